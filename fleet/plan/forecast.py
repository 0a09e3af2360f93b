"""What a fleet would do to the world: machines bought, replaced and given back, gangs moved, and the bill."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleet import disruption as disrupt
from fleet.actions import Action, Consider, OpenClaims, PurchaseTally, SaveClaim, SaveGang
from fleet.disruption import rollout
from fleet.disruption.context import DisruptionContext
from fleet.disruption.drift import drift_of
from fleet.disruption.pending import due_s, to_buy, told
from fleet.disruption.replacement import kept_for_long
from fleet.fence import Decided, told_apart
from fleet.mig.layouts import gpu_part, layout_name
from fleet.nodeclaims import fixed
from fleet.nodeclaims.drift_facts import PROVIDER_DRIFT
from fleet.offerings.offerings import Offering, offerings_now
from fleet.plan.changes import PlannedChange, Verb
from fleet.quota.queue_binding import binding_of
from fleet.reasons import Reason
from fleet.scheduling import cycle
from fleet.snapshot import CapacityPool, Claim, Gang, GangState, Proposal, Snapshot
from model import labels
from model.fleet import Fleet


@dataclass(frozen=True, slots=True)
class GangImpact:
    """A running gang that would be stopped, and why."""

    name: str
    queue: str
    gpus: int
    """Whole GPUs."""
    reason: str
    resources: Mapping[str, int] = field(default_factory=dict)
    """GPU resources, slices included."""
    upkeep: bool = False
    """The agent would do it anyway: not the revision's doing."""


@dataclass(frozen=True, slots=True)
class HourlyBill:
    """The price (USD an hour) and number of GPUs of all machines."""

    usd_h: float
    gpus: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a fleet would do to the machines and gangs there are."""

    machines: tuple[PlannedChange, ...]
    gangs: tuple[GangImpact, ...]
    now: HourlyBill
    then: HourlyBill
    existing: int
    """Machines that exist now."""
    tally: PurchaseTally | None = None
    """Of what waiting gangs would buy."""
    upkeep_usd_h: float = 0.0
    """What of the difference consolidation would save anyway."""
    undecided: tuple[str, ...] = ()
    """Gangs and machines that the deciders fail on, and how: what becomes of them is not known."""


@dataclass(slots=True)
class _Foreseen:
    """What a fleet would do, gathered from one decider after the other."""

    changes: dict[str, PlannedChange]
    """Claim, or name of a machine that would be bought -> what becomes of it."""
    consolidated: set[str] = field(default_factory=set)
    """Claims that consolidation would give back without the revision as well."""
    upkeep_usd_h: float = 0.0
    """What that saves."""
    preempted: Mapping[str, str] = field(default_factory=dict)
    """Gang uid -> why it would be told to leave."""
    tally: PurchaseTally | None = None
    undecided: tuple[str, ...] = ()


def forecast(before: Fleet, fleet: Fleet, snapshot: Snapshot) -> Forecast:
    """Returns what the agent would begin to do under `fleet`, by running the very deciders that the agent runs.

    Gangs that would be preempted under `before` as well are not counted: work comes and goes without a revision.
    """
    owned = {name: c for name, c in sorted(snapshot.claims.items()) if not c.deleting and not c.disruption}
    seen = _Foreseen(_drifted(fleet, snapshot, owned.values()))
    if snapshot.catalog.offers:
        _run_deciders(seen, before, fleet, snapshot, owned)
    changes = seen.changes
    strays = {name for name, change in changes.items() if change.verb == "replace" and change.upkeep}
    gangs = _impacts(fleet, snapshot, changes, seen.preempted, seen.consolidated | strays)
    now = HourlyBill(
        sum(claim.price_usd_h for claim in owned.values()),
        sum(_gpus(snapshot, claim.capacity_pool.instance_type) for claim in owned.values()),
    )
    return Forecast(
        tuple(changes[name] for name in sorted(changes)),
        gangs,
        now,
        _then(fleet, snapshot, now, changes),
        len(owned),
        seen.tally,
        seen.upkeep_usd_h,
        seen.undecided,
    )


def _drifted(fleet: Fleet, snapshot: Snapshot, owned: Iterable[Claim]) -> dict[str, PlannedChange]:
    """Returns claim -> its replacement, or its removal where the pool is gone, with what keeps it for now in words."""
    changes: dict[str, PlannedChange] = {}
    for claim in owned:
        if (how := drift_of(fleet, snapshot, claim)).words:
            verb: Verb = "replace" if claim.node_pool in fleet.node_pools else "delete"
            changes[claim.name] = replace(_machine(claim, verb, how.words), upkeep=how.reason in PROVIDER_DRIFT)
    due = {name: (Reason.DRIFTED, change.reason) for name, change in changes.items() if change.verb == "replace"}
    for name, words in kept_for_long(DisruptionContext.of(fleet, snapshot), due).items():
        changes[name] = replace(changes[name], reason=f"{changes[name].reason}; {words}")
    return changes


def _run_deciders(seen: _Foreseen, before: Fleet, fleet: Fleet, snapshot: Snapshot, owned: Mapping[str, Claim]) -> None:
    actions, failed = told_apart(_decided(fleet, snapshot))
    seen.undecided = tuple(f"{it.subject or 'a decider'}: {it.failure.error}: {it.failure.cause}" for it in failed)
    seen.tally = next((it.tally for it in actions if isinstance(it, OpenClaims) and it.tally), None)
    for action in actions:
        _fold(action, seen.changes, snapshot)
    outlook = next((it.outlook for it in actions if isinstance(it, Consider)), snapshot.outlook)
    for proposal in outlook.proposals:
        if owned.keys() >= set(proposal.claims):
            _consolidate(seen, before, fleet, snapshot, proposal)
    if preempted := _preempted(actions):
        anyway = _preempted(told_apart(cycle.decide(before, snapshot))[0])
        seen.preempted = {uid: why for uid, why in preempted.items() if uid not in anyway}


def _consolidate(seen: _Foreseen, before: Fleet, fleet: Fleet, snapshot: Snapshot, proposal: Proposal) -> None:
    anyway = _anyway(before, fleet, snapshot, proposal)
    seen.changes |= _proposed(fleet, snapshot, proposal, upkeep=anyway)
    if anyway:
        seen.upkeep_usd_h += proposal.saving_usd_h
        seen.consolidated |= set(proposal.claims)


def _decided(fleet: Fleet, snapshot: Snapshot) -> Iterable[Decided]:
    yield from rollout.decide(fleet, snapshot)
    yield from fixed.decide(fleet, snapshot)
    yield from cycle.decide(fleet, snapshot)
    yield from disrupt.decide(fleet, snapshot)


def _preempted(actions: Iterable[Action]) -> dict[str, str]:
    """Returns gang uid -> why it would be told to leave."""
    leaving = (action.gang for action in actions if isinstance(action, SaveGang) and action.gang.eviction)
    return {gang.uid: gang.message for gang in leaving if gang.state in {GangState.EVICTING, GangState.PENDING}}


def _fold(action: Action, changes: dict[str, PlannedChange], snapshot: Snapshot) -> None:
    if isinstance(action, OpenClaims):
        for claim in action.claims:
            if not claim.replaces:
                changes[claim.name] = _machine(claim, "create", claim.purpose)
    elif isinstance(action, SaveClaim):
        _fold_claim(action.claim, changes, snapshot)


def _fold_claim(claim: Claim, changes: dict[str, PlannedChange], snapshot: Snapshot) -> None:
    if disruption := claim.disruption:
        if disruption.reason not in _DRIFT or claim.name not in changes:
            change = _machine(claim, "delete", f"{disruption.reason}: {disruption.message}")
            changes[claim.name] = replace(change, upkeep=disruption.reason in _UPKEEP)
    elif claim.layout != snapshot.claims[claim.name].layout:
        layout = layout_name(claim.layout)
        changes.setdefault(claim.name, _machine(claim, "update", f"its GPUs are cut to layout {layout}"))


def _anyway(before: Fleet, after: Fleet, snapshot: Snapshot, proposal: Proposal) -> bool:
    """Returns whether the revision leaves the pools of a proposal's machines as they are."""
    pools = {snapshot.claims[name].node_pool for name in proposal.claims} | {key[0] for key in proposal.bought}
    return all(before.node_pools.get(name) == after.node_pools.get(name) for name in pools)


def _proposed(fleet: Fleet, snapshot: Snapshot, proposal: Proposal, *, upkeep: bool) -> dict[str, PlannedChange]:
    """Returns the machines that a proposal would give back, and those that it would buy first."""
    left_s = max(0.0, due_s(proposal) - snapshot.now_s)
    why = f"{Reason.UNDERUTILIZED}: {told(proposal)}; proposed, looked at again in {left_s:.0f} s"
    gone = {name: _machine(snapshot.claims[name], "delete", why) for name in proposal.claims}
    found = {name: replace(change, upkeep=upkeep) for name, change in gone.items()}
    for number, offering in enumerate(to_buy(fleet, snapshot, proposal) or ()):
        name, offer = f"{offering.pool.name}-for-{proposal.claims[0]}-{number}", offering.offer
        facts = _facts(offering.pool.name, offer.pool_key, offer.price_usd_h)
        why = f"in place of {', '.join(proposal.claims)}"
        found[name] = PlannedChange(f"nodeclaim/{name}", "create", reason=why, upkeep=upkeep, after=facts)
    return found


_UPKEEP = frozenset({Reason.EMPTY, Reason.EXPIRED, Reason.UNDERUTILIZED, Reason.BLOCK_ENDS})
_DRIFT = frozenset({Reason.DRIFTED, Reason.POOL_REMOVED})
"""What `forecast` has seen for itself; any other reason says that the machine goes without being replaced."""


def _machine(claim: Claim, verb: Verb, why: str) -> PlannedChange:
    facts = _facts(claim.node_pool, claim.capacity_pool, claim.price_usd_h)
    return PlannedChange(
        f"nodeclaim/{claim.name}",
        verb,
        reason=why,
        before=None if verb == "create" else facts,
        after=None if verb == "delete" else facts,
    )


def _facts(pool: str, where: CapacityPool, price_usd_h: float) -> Mapping[str, Any]:
    return {
        "nodePool": pool,
        "instanceType": where.instance_type,
        "zone": where.zone,
        "capacityType": where.capacity_type,
        "usdPerHour": price_usd_h,
    }


def _impacts(
    fleet: Fleet,
    snapshot: Snapshot,
    changes: dict[str, PlannedChange],
    preempted: Mapping[str, str],
    anyway: Collection[str],
) -> tuple[GangImpact, ...]:
    """Returns the running gangs that would be stopped, by name. `anyway`: claims that would go without the revision."""
    leaving = {name: change.reason for name, change in changes.items() if change.verb in {"delete", "replace"}}
    impacts = []
    for _, gang in sorted(snapshot.gangs.items(), key=lambda entry: (entry[1].name, entry[0])):
        if not gang.holds_capacity or gang.state is GangState.EVICTING:
            continue
        lost = sorted({pin.claim for pin in gang.pins} & leaving.keys())
        by_revision = [name for name in lost if name not in anyway]
        if by_revision:
            impacts.append(_impact(gang, _machines_lost(by_revision, leaving)))
        elif gang.uid in preempted:
            impacts.append(_impact(gang, preempted[gang.uid]))
        elif _is_drained(fleet, gang):
            impacts.append(_impact(gang, f"queue {gang.queue} is drained"))
        elif lost:
            impacts.append(replace(_impact(gang, _machines_lost(lost, leaving)), upkeep=True))
    return tuple(impacts)


def _machines_lost(lost: Sequence[str], reasons: Mapping[str, str]) -> str:
    return f"{len(lost)} of its machines: {reasons[lost[0]]}"


def _is_drained(fleet: Fleet, gang: Gang) -> bool:
    line = binding_of(fleet, gang.namespace, gang.queue)
    return line is not None and line.stop_policy == "HoldAndDrain"


def _impact(gang: Gang, reason: str) -> GangImpact:
    resources: dict[str, int] = {}
    for pod_set in gang.pod_sets:
        for name, amount in gpu_part(pod_set.requests).items():
            resources[name] = resources.get(name, 0) + amount * pod_set.count
    return GangImpact(gang.name, gang.queue, resources.get(labels.GPU_RESOURCE, 0), reason, resources)


def _gpus(snapshot: Snapshot, instance_type: str) -> int:
    machine = snapshot.catalog.types.get(instance_type)
    return machine.gpu_count if machine else 0


def _then(fleet: Fleet, snapshot: Snapshot, now: HourlyBill, changes: dict[str, PlannedChange]) -> HourlyBill:
    """Returns the bill once all of it has happened; a replacement costs what its pool's cheapest offering costs now."""
    offerings = offerings_now(fleet, snapshot)
    usd, gpus = now.usd_h, now.gpus
    for change in changes.values():
        facts = change.before or change.after or {}
        count = _gpus(snapshot, facts["instanceType"])
        sign = {"create": 1, "delete": -1}.get(change.verb, 0)
        usd += sign * facts["usdPerHour"]
        gpus += sign * count
        if change.verb == "replace":
            best = _cheapest(offerings.of(fleet.node_pools[facts["nodePool"]]), facts["capacityType"])
            usd += (best.offer.price_usd_h if best else 0.0) - facts["usdPerHour"]
            gpus += (best.offer.instance_type.gpu_count if best else 0) - count
    return HourlyBill(round(usd, 6), gpus)


def _cheapest(offered: Sequence[Offering], capacity_type: str) -> Offering | None:
    """Returns the cheapest of a pool's offerings, preferably of this capacity type."""
    same = (offering for offering in offered if offering.offer.capacity_type == capacity_type)
    return next(same, offered[0] if offered else None)
