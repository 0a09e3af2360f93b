"""Drift: machines that are not what their pool now declares (Karpenter `nodeclaim/disruption/drift.go`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fleet.disruption.command import Command
from fleet.disruption.fixed_drift import fixed_drift, serves
from fleet.disruption.replace import replacing
from fleet.disruption.yard import Yard
from fleet.mig.layouts import pool_layouts
from fleet.nodeclaims.drift_facts import (
    NO_DRIFT,
    TYPE_CHECKED_AFTER_S,
    Drift,
    DriftFacts,
    DriftReason,
    OfferingAvailability,
    TemplateHash,
    drift_reason,
    provider_drift,
    wrong_key,
)
from fleet.nodeclaims.launch import image_kind
from fleet.offerings.reservations import NO_RESERVATIONS, ReservationSelector, reservation_selector, unselected
from fleet.reasons import Reason
from fleet.snapshot import NOT_READ, Catalog, Claim, Instance, Resolutions, Snapshot
from fleet.snapshot.memo import remembered
from model import labels
from model.fleet import Fleet
from model.kinds import NodePool
from model.pools import pool_hashes, pool_requirements
from model.requirements import Requirements

RESERVATION: Final = "CapacityReservationDrift"


def drift(yard: Yard) -> list[Command]:
    """Idle drifted machines go at once; those with gangs when their replacements are ready; both under budget.

    Fixed pools are served first, each machine by another one that is ready before it goes.
    """
    whys = drifted_claims(yard.fleet, yard.snapshot)
    if not whys:
        return []
    drifted = [(pool, claim, whys[claim.name]) for pool, claim in yard.volunteers() if claim.name in whys]
    served = {pool.name for pool, _, _ in drifted if pool and serves(yard, pool)}
    commands = fixed_drift(yard, [(pool, claim, why) for pool, claim, why in drifted if pool and pool.name in served])
    rest = [(pool, claim, why) for pool, claim, why in drifted if claim.node_pool not in served]
    for pool, claim, why in rest:
        reason = Reason.DRIFTED if pool else Reason.POOL_REMOVED
        if yard.is_empty(claim) and yard.may_take([claim], reason):
            commands.append(Command((claim,), reason, why))
    fates = {claim.name: (Reason.DRIFTED if pool else Reason.POOL_REMOVED, why) for pool, claim, why in rest}
    return commands + replacing(yard, fates)


@dataclass(frozen=True, slots=True)
class Known:
    """What of the world tells whether a machine is what its pool declares."""

    catalog: Catalog
    reserved: ReservationSelector = NO_RESERVATIONS
    resolved: Resolutions = NOT_READ
    instances: Mapping[str, Instance] = field(default_factory=dict)
    strays: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def listed(self, claim: Claim) -> Instance | None:
        """The machine as EC2 lists it, if it is old enough to be judged by what names stood for when they were read.

        What was launched later may have got what was published in between; what was adopted was born otherwise.
        """
        if claim.adopts or claim.launched_at_s >= self.resolved.at_s:
            return None
        found = self.instances.get(claim.instance_id)
        return None if found is None or found.gone else found


def drifted_claims(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, str]:
    """Claim -> how its machine differs from its pool, in words, for all that do."""
    return {name: found.words for name, found in differences(fleet, snapshot).items()}


def differences(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, Drift]:
    """Claim -> how its machine differs from its pool, for all that do."""
    found = _drifted(fleet, snapshot.claims, _known(snapshot))
    old_s = snapshot.now_s - TYPE_CHECKED_AFTER_S
    claims = snapshot.claims
    return {
        name: each
        for name, each in found.items()
        if each.reason != DriftReason.TYPE_GONE or claims[name].launched_at_s <= old_s
    }


def drift_of(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> str:
    """How a machine differs from its pool, in words; empty when it does not."""
    return differs(fleet, snapshot, claim).words


def differs(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Drift:
    """How a machine differs from its pool. First match wins."""
    found = difference(fleet, claim, _known(snapshot))
    young = snapshot.now_s - claim.launched_at_s < TYPE_CHECKED_AFTER_S
    return NO_DRIFT if found.reason == DriftReason.TYPE_GONE and young else found


def _known(snapshot: Snapshot) -> Known:
    reserved = reservation_selector(snapshot)
    return _gathered(snapshot.catalog, reserved, snapshot.resolved, snapshot.instances, snapshot.strays)


@remembered(1)
def _gathered(
    catalog: Catalog,
    reserved: ReservationSelector,
    resolved: Resolutions,
    instances: Mapping[str, Instance],
    strays: Mapping[str, tuple[str, str]],
) -> Known:
    return Known(catalog, reserved, resolved, instances, strays)


@remembered()
def _drifted(fleet: Fleet, claims: Mapping[str, Claim], known: Known) -> Mapping[str, Drift]:
    """Machines of one kind are judged once, as if all were old."""
    verdicts: dict[tuple[object, ...], Drift] = {}
    found: dict[str, Drift] = {}
    for name, claim in claims.items():
        kind = (
            claim.node_pool,
            claim.pool_hash,
            claim.capacity_pool,
            bool(claim.layout),
            bool(claim.launched_at_s),
            _marks(known.listed(claim)),
            known.strays.get(name),
        )
        if kind not in verdicts:
            verdicts[kind] = difference(fleet, claim, known)
        if verdicts[kind].words:
            found[name] = verdicts[kind]
    return found


def _marks(machine: Instance | None) -> tuple[object, ...]:
    """What it was born with, as far as a pool can be judged by it."""
    return () if machine is None else (machine.image, machine.subnet, machine.security_groups)


def difference(fleet: Fleet, claim: Claim, known: Known) -> Drift:
    """How a machine differs from its pool, whatever its age. A pool that is not declared any more is one, too."""
    pool = fleet.node_pools.get(claim.node_pool)
    if pool is None:
        return Drift("", f"node pool {claim.node_pool} is no longer declared")
    provided = _provided(fleet, pool, claim, known)
    facts = _facts(fleet, pool, known.catalog, claim, provided.reason)
    reason = drift_reason(facts)
    if reason == DriftReason.TEMPLATE:
        return Drift(reason, f"the template of node pool {pool.name} has changed")
    if reason == DriftReason.REQUIREMENTS and facts.wanted is not None:
        key = wrong_key(facts.carried, facts.wanted)
        told = f"{key}={facts.carried.get(key)}"
        return Drift(reason, f"{told} no longer meets the requirements of node pool {pool.name}")
    if reason == DriftReason.TYPE_GONE:
        return Drift(reason, f"{claim.capacity_pool} is not on sale any more")
    return provided if reason else _sharing(fleet, pool, claim)


def _provided(fleet: Fleet, pool: NodePool, claim: Claim, known: Known) -> Drift:
    """What only the cloud can tell: of its image and network first, then of its reservation."""
    machine, now = known.listed(claim), known.resolved.found.get(pool_hashes(fleet.index, fleet.node_pools)[pool.name])
    if machine is not None and now is not None:
        sold = known.catalog.types.get(claim.capacity_pool.instance_type)
        found = provider_drift(pool.name, image_kind(sold) if sold else None, machine, now)
        if found.reason:
            return found
    if claim.name in known.strays:
        return Drift(*known.strays[claim.name])
    words = unselected(known.reserved, pool, claim)
    return Drift(RESERVATION, words) if words else NO_DRIFT


def _facts(fleet: Fleet, pool: NodePool, catalog: Catalog, claim: Claim, provider: str) -> DriftFacts:
    where = claim.capacity_pool
    machine = catalog.types.get(where.instance_type)
    carried = {**(machine.labels if machine else {}), **pool.spec.template.labels}
    carried |= {labels.ZONE: where.zone, labels.CAPACITY_TYPE: where.capacity_type, labels.NODE_POOL: pool.name}
    carried |= {labels.INSTANCE_TYPE: where.instance_type, labels.REGION: catalog.region}
    return DriftFacts(
        bool(claim.launched_at_s),
        pool=stamp_of(pool_hashes(fleet.index, fleet.node_pools)[pool.name]),
        machine=stamp_of(claim.pool_hash),
        carried=carried,
        wanted=_judged(pool) if machine else None,
        market=OfferingAvailability(where.zone, where.capacity_type),
        on_sale=_on_sale(catalog).get(where.instance_type) if machine else (frozenset() if catalog.types else None),
        provider=provider,
    )


def stamp_of(text: str) -> TemplateHash | None:
    """The stamp in a claim's `pool_hash` (`v1-0123...`); None for one that has no version."""
    version, dash, found = text.partition("-")
    return TemplateHash(found, version) if dash else None


@remembered(256)
def _judged(pool: NodePool) -> Requirements:
    """A machine with another layout is cut anew in place (`fleet.disruption.rollout`)."""
    wanted = pool_requirements(pool)
    return Requirements({key: value for key, value in wanted.items() if key != labels.MIG_LAYOUT})


@remembered()
def _on_sale(catalog: Catalog) -> Mapping[str, frozenset[OfferingAvailability]]:
    """Type -> where it is sold. Of a type that is known but has no offer at all the price may just be missing."""
    found: dict[str, set[OfferingAvailability]] = {}
    for offer in catalog.offers:
        found.setdefault(offer.instance_type.name, set()).add(OfferingAvailability(offer.zone, offer.capacity_type))
    return {name: frozenset(markets) for name, markets in found.items()}


def _sharing(fleet: Fleet, pool: NodePool, claim: Claim) -> Drift:
    """A machine of a pool that started or stopped cutting GPUs; other layouts are re-cut in place (`fleet.mig`)."""
    if bool(pool_layouts(fleet, pool)) == bool(claim.layout):
        return NO_DRIFT
    words = f"node pool {pool.name} {'now cuts' if not claim.layout else 'no longer cuts'} its GPUs"
    return Drift(DriftReason.TEMPLATE, words)
