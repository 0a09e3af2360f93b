"""Drift: machines that are not what their pool now declares (Karpenter `nodeclaim/disruption/drift.go`)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from fleet.actions import claim_subject, pool_subject
from fleet.disruption.context import DisruptionContext, found_at, set_aside
from fleet.disruption.eligibility import keeps, out_of_budget, spared
from fleet.disruption.outcomes import Blocked, Command, Due, Obstacle, no_reason
from fleet.disruption.replacement import coming, replacement, replacing, unready, why_not_replaced
from fleet.fence import concerning
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
from fleet.nodeclaims.fixed import best_offering
from fleet.nodeclaims.launch import image_kind, write_claims
from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.offerings import offerings_now
from fleet.offerings.reservations import ReservationSelector, reservation_selector, unselected
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.inventory import build_capacity
from fleet.placement.plan import PlacementPlan, PlannedNodeClaims
from fleet.reasons import Reason
from fleet.snapshot import Catalog, Claim, Instance, Resolutions, Snapshot
from model import labels
from model.fleet import Fleet
from model.index import Index, derived
from model.kinds import NodePool
from model.pools import pool_hashes, pool_requirements
from model.requirements import Requirements

RESERVATION: Final = "CapacityReservationDrift"
Drifted = tuple[NodePool | None, Claim, str]
"""A machine, its pool (None when it was removed), and how it differs from it."""
_DriftedOf = tuple[NodePool, Claim, str]


class DriftMethod:
    """Idle drifted machines go at once; those with gangs when their replacements are ready; both under budget.

    Fixed pools are served first, each machine by another one that is ready before it goes (Karpenter `staticdrift.go`,
    reference 4.5 and 4.9). A fixed pool whose limits leave no room for one more machine is treated as the others: what
    is idle there goes first, and `fleet.nodeclaims.fixed` buys the next.
    """

    name = "drift"
    reason = Reason.DRIFTED

    def propose(self, context: DisruptionContext) -> Sequence[Command]:
        """Returns commands for machines of fixed pools, then for idle ones, then for busy ones."""
        whys = drifted_claims(context.fleet, context.snapshot)
        if not whys:
            return ()
        drifted = self._drifted(context, whys)
        pools = {pool.name: pool for pool, _, _ in drifted if pool}
        served = {name for name, pool in pools.items() if _has_room(context, pool)}
        fixed = [(pool, claim, why) for pool, claim, why in drifted if pool and pool.name in served]
        rest = [(pool, claim, why) for pool, claim, why in drifted if claim.node_pool not in served]
        commands = [*_fixed(context, fixed), *self._idle(context, rest)]
        return [*commands, *replacing(context, _due(rest))]

    def why_not(self, context: DisruptionContext, claim: Claim) -> Blocked:
        """Returns why a machine that is not what its pool declares stays; or that it is just that."""
        whys = drifted_claims(context.fleet, context.snapshot)
        why = whys.get(claim.name)
        if why is None:
            return no_reason(Obstacle.NOT_DUE, "it is what its pool declares")
        pool, sparing = context.pool_of(claim), spared(context, claim)
        if sparing is not None:
            return sparing.although(why)
        if pool is not None and _has_room(context, pool):
            return _fixed_blocked(context, pool, claim).although(why)
        if pool is not None and (context.is_empty(claim) or context.budget(pool.name, self.reason) < 1):
            return out_of_budget(context, pool, self.reason).although(why)
        served = {name for name, each in context.fleet.node_pools.items() if _has_room(context, each)}
        rest = [each for each in self._drifted(context, whys) if each[1].node_pool not in served]
        return why_not_replaced(context, claim, _due(rest))

    def _drifted(self, context: DisruptionContext, whys: Mapping[str, str]) -> list[Drifted]:
        """Returns the machines that are different, and may be touched."""

        def look(pool: NodePool | None, claim: Claim) -> Drifted | None:
            why = whys.get(claim.name)
            return None if why is None or spared(context, claim) else (pool, claim, why)

        return found_at(context.candidates(), look)

    def _idle(self, context: DisruptionContext, drifted: Iterable[Drifted]) -> Iterator[Command]:
        for pool, claim, why in drifted:
            reason = _reason(pool)
            if context.is_empty(claim) and context.may_take([claim], reason):
                yield Command((claim,), reason, why)


def _due(drifted: Iterable[Drifted]) -> Due:
    return {claim.name: (_reason(pool), why) for pool, claim, why in drifted}


def _reason(pool: NodePool | None) -> Reason:
    return Reason.DRIFTED if pool else Reason.POOL_REMOVED


# -- fixed pools: another machine is bought first, and the old one goes when that is ready ----------------------------


def staged(replicas: int, running: int, drifted: int, budget: int, most_nodes: float = inf) -> int:
    """Returns how many drifted machines of a fixed pool are replaced now, each by one that is bought first.

    0 while the pool has more than it should; no more than the limit leaves room for beside all that run.
    """
    if running > replicas:
        return 0
    return int(max(0, min(drifted, budget, most_nodes - running)))


def _has_room(context: DisruptionContext, pool: NodePool) -> bool:
    """Returns whether a fixed pool has room within its limits for one machine more, or such a one already."""
    if pool.spec.replicas is None:
        return False
    members = context.members.get(pool.name, ())
    if any(coming(context, [claim.name]) for claim in members):
        return True
    with concerning(pool_subject(pool.name)):
        free = PoolHeadroom.of(context.snapshot, pool)
        sold = offerings_now(context.fleet, context.snapshot).of(pool)
        offerings = [offering for offering in sold if offering.offer.reservation is None]
        return not offerings or any(free.most(offering) > 0 for offering in offerings)


def _fixed(context: DisruptionContext, drifted: Iterable[_DriftedOf]) -> list[Command]:
    """Gives back machines whose successor is ready, and buys one for as many others as budget and limit allow."""
    by_pool: dict[str, list[_DriftedOf]] = {}
    for each in drifted:
        by_pool.setdefault(each[0].name, []).append(each)
    capacity: BuyableCapacity | None = None
    commands: list[Command] = []
    for _, mine in sorted(by_pool.items()):
        commands += _succeeded(context, mine)
        turn = _turn(context, [each for each in mine if not coming(context, [each[1].name])])
        if turn:
            capacity = capacity or build_capacity(context.fleet, context.snapshot)
            commands += _successors(context, capacity, turn)
    return commands


def _fixed_blocked(context: DisruptionContext, pool: NodePool, claim: Claim) -> Blocked:
    """Tells what keeps a drifted machine of a fixed pool."""
    blocked = _kept(context, claim) or replacement(context, claim) or _uneven(context, pool)
    if blocked is None and best_offering(pool, build_capacity(context.fleet, context.snapshot)) is None:
        blocked = Blocked(Obstacle.NO_PLACE, "no machine can be bought in its place now")
    return blocked or out_of_budget(context, pool, Reason.DRIFTED)


def _kept(context: DisruptionContext, claim: Claim) -> Blocked | None:
    with concerning(claim_subject(claim.name)):
        return None if context.is_empty(claim) else keeps(context, claim, Reason.DRIFTED)


def _uneven(context: DisruptionContext, pool: NodePool) -> Blocked | None:
    """Blocks while the pool has not the number of machines that it keeps: what is missing is bought first."""
    running = _running(context, pool)
    if running == pool.spec.replicas:
        return None
    words = f"{pool.name} has {running} machines and keeps {pool.spec.replicas}, that comes first"
    return Blocked(Obstacle.FIXED_POOL, words)


def _running(context: DisruptionContext, pool: NodePool) -> int:
    return sum(1 for claim in context.members.get(pool.name, ()) if not claim.deleting and not claim.disruption)


def _succeeded(context: DisruptionContext, drifted: Iterable[_DriftedOf]) -> Iterator[Command]:
    """Gives back the machines in whose place another one stands ready."""
    for _, claim, why in drifted:
        names = [claim.name]
        if coming(context, names) and not unready(context, names) and not _kept(context, claim):
            context.taken.add(claim.name)
            yield Command((claim,), Reason.DRIFTED, why)


def _turn(context: DisruptionContext, waiting: Sequence[_DriftedOf]) -> Sequence[_DriftedOf]:
    """Returns those of a pool's machines for which another one is bought now."""
    if not waiting or _uneven(context, pool := waiting[0][0]):
        return ()
    able = [each for each in waiting if _kept(context, each[1]) is None]
    limit = inf if pool.spec.limits.nodes is None else pool.spec.limits.nodes
    budget = context.budget(pool.name, Reason.DRIFTED)
    return able[: staged(pool.spec.replicas or 0, _running(context, pool), len(able), budget, limit)]


def _successors(context: DisruptionContext, capacity: BuyableCapacity, turn: Iterable[_DriftedOf]) -> Iterator[Command]:
    for pool, claim, why in turn:
        if _kept(context, claim):
            continue  # those taken in this turn leave its gangs' PodDisruptionBudgets too little
        with concerning(pool_subject(pool.name)):
            offering = best_offering(pool, capacity)
        if offering is None or not context.may_take([claim], Reason.DRIFTED):
            return
        capacity.headroom[pool.name].spend(offering, 1)
        plan, now_s = PlacementPlan(purchases=(PlannedNodeClaims(offering, 1),)), context.snapshot.now_s
        bought = write_claims(plan, f"{pool.name}/{claim.name}", now_s, replaces=(claim.name,)).claims
        yield Command((claim,), Reason.DRIFTED, why, bought)


# -- how machines differ from their pools -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DriftInputs:
    """The observations that tell whether a machine is what its pool declares."""

    catalog: Catalog
    on_sale: Mapping[str, frozenset[OfferingAvailability]]
    """Type -> where it is sold. Of a type that is known but has no offer at all the price may just be missing."""
    reserved: ReservationSelector
    resolved: Resolutions
    instances: Mapping[str, Instance]
    strays: Mapping[str, tuple[str, str]]

    def listed(self, claim: Claim) -> Instance | None:
        """Returns the listed machine, if it was launched before the names of images and subnets were read.

        What was launched later may have got what was published in between; what was adopted was born otherwise.
        """
        if claim.adopts or claim.launched_at_s >= self.resolved.at_s:
            return None
        found = self.instances.get(claim.instance_id)
        return None if found is None or found.gone else found


def drifted_claims(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, str]:
    """Returns in words how machines (by claim) differ from their pools, for all that do."""
    return {name: found.words for name, found in drifts(fleet, snapshot).items()}


def drifts(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, Drift]:
    """Returns how machines (by claim) differ from their pools, for all that do."""
    claims, aside = snapshot.claims, set_aside(snapshot)
    if aside:
        claims = {name: claim for name, claim in claims.items() if name not in aside}
    found = _drifts(snapshot.index, fleet, claims, _inputs(snapshot))
    old_s = snapshot.now_s - TYPE_CHECKED_AFTER_S
    return {
        name: each
        for name, each in found.items()
        if each.reason != DriftReason.TYPE_GONE or claims[name].launched_at_s <= old_s
    }


def _inputs(snapshot: Snapshot) -> DriftInputs:
    reserved = reservation_selector(snapshot)
    return _gathered(snapshot.index, snapshot.catalog, reserved, snapshot.resolved, snapshot.instances, snapshot.strays)


@derived(1)
def _gathered(
    index: Index,
    catalog: Catalog,
    reserved: ReservationSelector,
    resolved: Resolutions,
    instances: Mapping[str, Instance],
    strays: Mapping[str, tuple[str, str]],
) -> DriftInputs:
    return DriftInputs(catalog, _on_sale(index, catalog), reserved, resolved, instances, strays)


@derived()
def _drifts(_index: Index, fleet: Fleet, claims: Mapping[str, Claim], inputs: DriftInputs) -> Mapping[str, Drift]:
    """Returns claim -> drift, as if all machines were old; machines of one kind are judged once."""
    judged: dict[tuple[object, ...], Drift] = {}
    found: dict[str, Drift] = {}
    for name, claim in claims.items():
        kind = (
            claim.node_pool,
            claim.pool_hash,
            claim.capacity_pool,
            bool(claim.layout),
            bool(claim.launched_at_s),
            _marks(inputs.listed(claim)),
            inputs.strays.get(name),
        )
        if kind not in judged:
            with concerning(claim_subject(name)):
                judged[kind] = _drift_of(fleet, claim, inputs)
        if judged[kind].words:
            found[name] = judged[kind]
    return found


def _marks(machine: Instance | None) -> tuple[object, ...]:
    """Returns what the machine was launched with, as far as it can drift."""
    return () if machine is None else (machine.image, machine.subnet, machine.security_groups)


def _drift_of(fleet: Fleet, claim: Claim, inputs: DriftInputs) -> Drift:
    """Returns how a machine differs from its pool, whatever its age; a pool that was removed is a difference, too."""
    pool = fleet.node_pools.get(claim.node_pool)
    if pool is None:
        return Drift("", f"node pool {claim.node_pool} is no longer declared")
    provided = _provided(fleet, pool, claim, inputs)
    facts = _facts(fleet, pool, claim, inputs, provided.reason)
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


def _provided(fleet: Fleet, pool: NodePool, claim: Claim, inputs: DriftInputs) -> Drift:
    """Returns the difference that only the cloud can tell: of image and network first, then of the reservation."""
    machine, now = inputs.listed(claim), inputs.resolved.found.get(_hash_of(fleet, pool))
    if machine is not None and now is not None:
        sold = inputs.catalog.types.get(claim.capacity_pool.instance_type)
        found = provider_drift(pool.name, image_kind(sold) if sold else None, machine, now)
        if found.reason:
            return found
    if claim.name in inputs.strays:
        return Drift(*inputs.strays[claim.name])
    words = unselected(inputs.reserved, pool, claim)
    return Drift(RESERVATION, words) if words else NO_DRIFT


def _facts(fleet: Fleet, pool: NodePool, claim: Claim, inputs: DriftInputs, provider: str) -> DriftFacts:
    where, catalog = claim.capacity_pool, inputs.catalog
    machine = catalog.types.get(where.instance_type)
    carried = {**(machine.labels if machine else {}), **pool.spec.template.labels}
    carried |= {labels.ZONE: where.zone, labels.CAPACITY_TYPE: where.capacity_type, labels.NODE_POOL: pool.name}
    carried |= {labels.INSTANCE_TYPE: where.instance_type, labels.REGION: catalog.region}
    return DriftFacts(
        bool(claim.launched_at_s),
        pool=stamp_of(_hash_of(fleet, pool)),
        machine=stamp_of(claim.pool_hash),
        carried=carried,
        wanted=_wanted(fleet.index, pool) if machine else None,
        market=OfferingAvailability(where.zone, where.capacity_type),
        on_sale=inputs.on_sale.get(where.instance_type) if machine else (frozenset() if catalog.types else None),
        provider=provider,
    )


def _hash_of(fleet: Fleet, pool: NodePool) -> str:
    return pool_hashes(fleet.index, fleet.node_pools)[pool.name]


def stamp_of(text: str) -> TemplateHash | None:
    """Reads the template hash in a claim's `pool_hash` (`v1-0123...`); None for one that has no version."""
    version, dash, found = text.partition("-")
    return TemplateHash(found, version) if dash else None


@derived(256)
def _wanted(_index: Index, pool: NodePool) -> Requirements:
    """Returns what the pool requires of its machines, but for their layout: they are re-cut in place (`rollout`)."""
    with concerning(pool_subject(pool.name)):
        wanted = pool_requirements(pool)
    return Requirements({key: value for key, value in wanted.items() if key != labels.MIG_LAYOUT})


@derived()
def _on_sale(_index: Index, catalog: Catalog) -> Mapping[str, frozenset[OfferingAvailability]]:
    found: dict[str, set[OfferingAvailability]] = {}
    for offer in catalog.offers:
        found.setdefault(offer.instance_type.name, set()).add(OfferingAvailability(offer.zone, offer.capacity_type))
    return {name: frozenset(markets) for name, markets in found.items()}


def _sharing(fleet: Fleet, pool: NodePool, claim: Claim) -> Drift:
    """Returns whether the pool started or stopped cutting GPUs; other layouts are re-cut in place (`rollout`)."""
    if bool(pool_layouts(fleet, pool)) == bool(claim.layout):
        return NO_DRIFT
    words = f"node pool {pool.name} {'now cuts' if not claim.layout else 'no longer cuts'} its GPUs"
    return Drift(DriftReason.TEMPLATE, words)
