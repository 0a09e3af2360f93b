"""Drift: machines that are not what their pool now declares (Karpenter `nodeclaim/disruption/drift.go`)."""

from collections.abc import Mapping

from fleet.capacity.disrupt.command import Command
from fleet.capacity.disrupt.replace import replacing
from fleet.capacity.disrupt.yard import Yard
from fleet.capacity.pools import HASH_VERSION, pool_hash
from fleet.capacity.reservations import Reserved, reserved_of, unselected
from fleet.memo import remembered
from fleet.mig.layouts import pool_layouts
from fleet.reasons import Reason
from fleet.snapshot import Catalog, Claim, Snapshot
from model import labels
from model.fleet import Fleet
from model.kinds import NodePool
from model.pools import pool_requirements


def drift(yard: Yard) -> list[Command]:
    """Idle drifted machines go at once; those with gangs when their replacements are ready; both under budget."""
    whys = drifted_claims(yard.fleet, yard.snapshot)
    if not whys:
        return []
    drifted = [(pool, claim, whys[claim.name]) for pool, claim in yard.candidates() if claim.name in whys]
    commands: list[Command] = []
    for pool, claim, why in drifted:
        reason = Reason.DRIFTED if pool else Reason.POOL_REMOVED
        if yard.is_empty(claim) and yard.may_take([claim], reason):
            commands.append(Command((claim,), reason, why))
    fates = {claim.name: (Reason.DRIFTED if pool else Reason.POOL_REMOVED, why) for pool, claim, why in drifted}
    return commands + replacing(yard, fates)


def drifted_claims(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, str]:
    """Claim -> how its machine differs from its pool, in words, for all that do."""
    return _drifted(fleet, snapshot.catalog, snapshot.claims, reserved_of(snapshot))


@remembered()
def _drifted(fleet: Fleet, catalog: Catalog, claims: Mapping[str, Claim], reserved: Reserved) -> Mapping[str, str]:
    """Machines of one kind are judged once."""
    verdicts: dict[tuple[object, ...], str] = {}
    found: dict[str, str] = {}
    for name, claim in claims.items():
        kind = (claim.node_pool, claim.pool_hash, claim.capacity_pool, bool(claim.layout))
        why = verdicts.get(kind)
        if why is None:
            why = verdicts[kind] = _difference(fleet, catalog, claim, reserved)
        if why:
            found[name] = why
    return found


def drift_of(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> str:
    """How a machine differs from its pool, in words; empty when it does not. First match wins."""
    return _difference(fleet, snapshot.catalog, claim, reserved_of(snapshot))


def _difference(fleet: Fleet, catalog: Catalog, claim: Claim, reserved: Reserved) -> str:
    pool = fleet.node_pools.get(claim.node_pool)
    if pool is None:
        return f"node pool {claim.node_pool} is no longer declared"
    same_version = claim.pool_hash.startswith(f"{HASH_VERSION}-")
    if same_version and claim.pool_hash != pool_hash(pool):
        return f"the template of node pool {pool.name} has changed"
    return _requirements(pool, catalog, claim) or unselected(reserved, pool, claim) or _sharing(fleet, pool, claim)


def _requirements(pool: NodePool, catalog: Catalog, claim: Claim) -> str:
    where = claim.capacity_pool
    machine = catalog.types.get(where.instance_type)
    carried = {**(machine.labels if machine else {}), **pool.spec.template.labels}
    carried |= {labels.ZONE: where.zone, labels.CAPACITY_TYPE: where.capacity_type, labels.NODE_POOL: pool.name}
    carried |= {labels.INSTANCE_TYPE: where.instance_type, labels.REGION: catalog.region}
    for key, requirement in sorted(pool_requirements(pool).items()):
        if key == labels.MIG_LAYOUT:
            continue  # a machine with another layout is cut anew in place (`fleet.mig.rollout`)
        value = carried.get(key)
        if machine is not None and not (requirement.allows_absent if value is None else requirement.has(value)):
            return f"{key}={value} no longer meets the requirements of node pool {pool.name}"
    return ""


def _sharing(fleet: Fleet, pool: NodePool, claim: Claim) -> str:
    """A machine of a pool that started or stopped cutting GPUs; other layouts are re-cut in place (`fleet.mig`)."""
    if bool(pool_layouts(fleet, pool)) != bool(claim.layout):
        return f"node pool {pool.name} {'now cuts' if not claim.layout else 'no longer cuts'} its GPUs"
    return ""
