"""A lot of claims as one launch, and what its outcome means: all machines or none."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.actions import Action, SaveClaim, TerminateMachines
from fleet.offerings.births import image_kind
from fleet.offerings.offerings import node_labels_of
from fleet.offerings.reservations import RESERVED, offer_of
from fleet.reasons import Reason
from fleet.snapshot import (
    CapacityPool,
    Claim,
    Disruption,
    LaunchError,
    LaunchFailure,
    LaunchOutcome,
    LaunchRequest,
    Reach,
    Reservation,
    Snapshot,
)
from fleet.snapshot.machines import Market
from fleet.snapshot.taints import UNREGISTERED
from model import labels
from model.fleet import Fleet
from model.kinds import NEVER, NodePool

LAUNCH_GROUP_TAG = "muster.dev/launch-group"
NODE_POOL_TAG = labels.NODE_POOL

SHORTAGE_S: Mapping[LaunchError, float] = {
    LaunchError.SHORTAGE: 180.0,
    LaunchError.QUOTA: 600.0,
    LaunchError.MISCONFIGURED: 600.0,
    LaunchError.THROTTLED: 0.0,
    LaunchError.UNKNOWN: 0.0,
}
"""How long a capacity pool is not tried again (Karpenter remembers a shortage for 3 minutes)."""


def launch_token(claims: Sequence[Claim]) -> str:
    """The idempotency token of a lot: from the uids of its claims, so that it exists once and survives any crash."""
    uids = ",".join(sorted(claim.uid for claim in claims))
    return hashlib.sha256(uids.encode()).hexdigest()[:64]


def launch_request(fleet: Fleet, snapshot: Snapshot, lot: Sequence[Claim]) -> LaunchRequest:
    """The launch of one lot (claims of one group and capacity pool), from the claims and their pool alone."""
    first = lot[0]
    pool = fleet.node_pools[first.node_pool]
    template = pool.spec.template
    machine = snapshot.catalog.types[first.capacity_pool.instance_type]
    kind = image_kind(machine)
    offer = offer_of(first, snapshot)
    return LaunchRequest(
        token=launch_token(lot),
        count=len(lot),
        pool=first.capacity_pool,
        node_pool=pool.name,
        labels=_own_labels(pool, first, snapshot),
        taints=(*template.taints, *template.startup_taints, UNREGISTERED),
        tags={**template.tags, **own_tags(first, snapshot.cluster)},
        template=template,
        arch=kind.arch,
        accelerator=kind.accelerator,
        placement_group=pool.spec.placement.group,
        efa_interfaces=machine.efa_interfaces if pool.spec.placement.efa else 0,
        market=market_of(offer.reservation),
        closed=offer.reservation is None and RESERVED in pool.spec.capacity_types,
    )


def own_tags(claim: Claim, cluster: str) -> dict[str, str]:
    """The tags that every machine of this cluster carries, bought or adopted."""
    return {labels.CLUSTER: cluster, LAUNCH_GROUP_TAG: claim.launch.group, NODE_POOL_TAG: claim.node_pool}


def _own_labels(pool: NodePool, claim: Claim, snapshot: Snapshot) -> dict[str, str]:
    """The labels of a machine that neither its type nor the cloud provider gives it. Its type must be known."""
    machine = snapshot.catalog.types[claim.capacity_pool.instance_type]
    found = node_labels_of(pool, offer_of(claim, snapshot), claim.layout, snapshot.catalog.region)
    return {key: value for key, value in found.items() if key not in machine.labels and not _cloud_sets(key)}


def market_of(reservation: Reservation | None) -> Market:
    """How EC2 sells what is in a reservation."""
    if reservation is None:
        return ""
    if reservation.interruptible:
        return "interruptible-capacity-reservation"
    return "capacity-block" if reservation.kind == "capacity-block" else ""


def _cloud_sets(label: str) -> bool:
    """Labels that the cloud provider writes itself; the kubelet may not set them (NodeRestriction)."""
    return label in {labels.ZONE, labels.REGION}


@dataclass(frozen=True, slots=True)
class Settlement:
    """What follows from an outcome: writes and returns, and capacity pools not to be tried until an instant."""

    actions: tuple[Action, ...]
    shortages: Mapping[CapacityPool, float]
    ask_again: bool = False
    """Nothing is known to have been bought: the same launch again after a pause."""


def settle(outcome: LaunchOutcome, lot: Sequence[Claim], snapshot: Snapshot) -> Settlement:
    """Bind instances to claims, or on any shortfall give back what came and drop the whole launch group."""
    now = snapshot.now_s
    ordered = sorted(lot, key=lambda claim: claim.name)
    if len(outcome.instances) >= len(ordered):
        bound = zip(ordered, sorted(outcome.instances), strict=False)
        saves = tuple(SaveClaim(replace(claim, instance_id=found, launched_at_s=now)) for claim, found in bound)
        surplus = tuple(sorted(outcome.instances)[len(ordered) :])
        return Settlement((*saves, *((TerminateMachines(surplus, Reason.ORPHANED),) if surplus else ())), {})
    if not outcome.instances and all(failure.error in _ASK_AGAIN for failure in outcome.failures):
        return Settlement((), {}, ask_again=True)
    message = _why(outcome, ordered)
    group = [claim for claim in snapshot.claims.values() if claim.launch.group == ordered[0].launch.group]
    given_up = tuple(
        SaveClaim(claim.with_disruption(Disruption(Reason.LAUNCH_FAILED, message, now, NEVER)))
        for claim in sorted(group, key=lambda claim: claim.name)
        if not claim.deleting
    )
    back = (TerminateMachines(tuple(sorted(outcome.instances)), Reason.LAUNCH_FAILED),) if outcome.instances else ()
    pause_s = max((SHORTAGE_S[f.error] for f in outcome.failures), default=SHORTAGE_S[LaunchError.SHORTAGE])
    until = now + max(pause_s, 1.0)
    return Settlement((*back, *given_up), dict.fromkeys(_short(outcome, ordered[0].capacity_pool, snapshot), until))


def _short(outcome: LaunchOutcome, tried: CapacityPool, snapshot: Snapshot) -> list[CapacityPool]:
    """The capacity pool that was tried, and all of its capacity type where the account cannot have that at all."""
    if all(failure.reach is not Reach.CAPACITY_TYPE for failure in outcome.failures):
        return [tried]
    offers = snapshot.catalog.offers
    return [tried, *(offer.pool_key for offer in offers if offer.capacity_type == tried.capacity_type)]


_ASK_AGAIN = frozenset({LaunchError.THROTTLED, LaunchError.UNKNOWN})
"""Nothing is known to have been bought, or the call was too early: the same token again, later."""


def _why(outcome: LaunchOutcome, lot: Sequence[Claim]) -> str:
    failures: Sequence[LaunchFailure] = outcome.failures
    reasons = ", ".join(sorted({_told(failure) for failure in failures})) or "fewer machines than asked"
    return f"{len(outcome.instances)} of {len(lot)} machines of {lot[0].capacity_pool}: {reasons}"


def _told(failure: LaunchFailure) -> str:
    """The cloud's code; with its sentence where only a person can help."""
    misled = failure.error is LaunchError.MISCONFIGURED and failure.message
    return f"{failure.code} ({failure.message[:200]})" if misled else failure.code
