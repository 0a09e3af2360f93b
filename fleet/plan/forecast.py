"""What a fleet would do to the world: machines bought, replaced and given back, gangs moved, and the bill."""

from collections.abc import Collection, Iterable, Mapping
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
from fleet.offerings.offerings import offerings_now
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
    """USD an hour and GPUs."""

    usd_h: float
    gpus: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """The consequences of a fleet for the world as it is."""

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


def forecast(before: Fleet, fleet: Fleet, snapshot: Snapshot) -> Forecast:
    """What the agent would begin to do under `fleet`, by the very deciders it runs.

    Gangs that would be preempted under `before` as well are not counted: work comes and goes without a revision.
    """
    owned = {name: c for name, c in sorted(snapshot.claims.items()) if not c.deleting and not c.disruption}
    changes: dict[str, PlannedChange] = {}
    for name, claim in owned.items():
        if (how := drift_of(fleet, snapshot, claim)).words:
            verb: Verb = "replace" if claim.node_pool in fleet.node_pools else "delete"
            changes[name] = replace(_machine(claim, verb, how.words), upkeep=how.reason in PROVIDER_DRIFT)
    due = {name: (Reason.DRIFTED, change.reason) for name, change in changes.items() if change.verb == "replace"}
    for name, words in kept_for_long(DisruptionContext.of(fleet, snapshot), due).items():
        changes[name] = replace(changes[name], reason=f"{changes[name].reason}; {words}")
    preempted: dict[str, str] = {}
    tally: PurchaseTally | None = None
    consolidated: set[str] = set()
    undecided: tuple[str, ...] = ()
    upkeep_usd_h = 0.0
    if snapshot.catalog.offers:
        actions, failed = told_apart(_decided(fleet, snapshot))
        undecided = tuple(f"{it.subject or 'a decider'}: {it.failure.error}: {it.failure.cause}" for it in failed)
        for action in actions:
            _fold(action, changes, snapshot)
        outlook = next((it.outlook for it in actions if isinstance(it, Consider)), snapshot.outlook)
        for proposal in (it for it in outlook.proposals if owned.keys() >= set(it.claims)):
            anyway = _anyway(before, fleet, snapshot, proposal)
            upkeep_usd_h += proposal.saving_usd_h if anyway else 0.0
            consolidated |= set(proposal.claims) if anyway else set()
            changes |= _proposed(fleet, snapshot, proposal, upkeep=anyway)
        preempted = _preempted(actions)
        tally = next((it.tally for it in actions if isinstance(it, OpenClaims) and it.tally), None)
        for uid in _preempted(told_apart(cycle.decide(before, snapshot))[0]) if preempted else ():
            preempted.pop(uid, None)
    strays = {name for name, change in changes.items() if change.verb == "replace" and change.upkeep}
    gangs = _impacts(fleet, snapshot, changes, preempted, consolidated | strays)
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
        tally,
        upkeep_usd_h,
        undecided,
    )


def _decided(fleet: Fleet, snapshot: Snapshot) -> Iterable[Decided]:
    yield from rollout.decide(fleet, snapshot)
    yield from fixed.decide(fleet, snapshot)
    yield from cycle.decide(fleet, snapshot)
    yield from disrupt.decide(fleet, snapshot)


def _preempted(actions: Iterable[Action]) -> dict[str, str]:
    """Gang uid -> why it would be told to leave."""
    leaving = (action.gang for action in actions if isinstance(action, SaveGang) and action.gang.eviction)
    return {gang.uid: gang.message for gang in leaving if gang.state in {GangState.EVICTING, GangState.PENDING}}


def _fold(action: Action, changes: dict[str, PlannedChange], snapshot: Snapshot) -> None:
    if isinstance(action, OpenClaims):
        for claim in action.claims:
            if not claim.replaces:
                changes[claim.name] = _machine(claim, "create", claim.purpose)
    elif isinstance(action, SaveClaim) and (disruption := action.claim.disruption):
        if disruption.reason in _DRIFT and action.claim.name in changes:
            return
        change = _machine(action.claim, "delete", f"{disruption.reason}: {disruption.message}")
        changes[action.claim.name] = replace(change, upkeep=disruption.reason in _UPKEEP)
    elif isinstance(action, SaveClaim) and action.claim.layout != snapshot.claims[action.claim.name].layout:
        layout = layout_name(action.claim.layout)
        changes.setdefault(action.claim.name, _machine(action.claim, "update", f"is cut anew to {layout}"))


def _anyway(before: Fleet, after: Fleet, snapshot: Snapshot, proposal: Proposal) -> bool:
    """Whether the revision leaves the pools of its machines as they are."""
    pools = {snapshot.claims[name].node_pool for name in proposal.claims} | {key[0] for key in proposal.bought}
    return all(before.node_pools.get(name) == after.node_pools.get(name) for name in pools)


def _proposed(fleet: Fleet, snapshot: Snapshot, proposal: Proposal, *, upkeep: bool) -> dict[str, PlannedChange]:
    """The machines of a proposal, which are about to go, and what would be bought first."""
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
    """`anyway`: claims that would go without the revision."""
    leaving = {name: change for name, change in changes.items() if change.verb in {"delete", "replace"}}
    impacts = []
    for _, gang in sorted(snapshot.gangs.items(), key=lambda entry: (entry[1].name, entry[0])):
        if not gang.holds_capacity or gang.state is GangState.EVICTING:
            continue
        hit = sorted({pin.claim for pin in gang.pins} & leaving.keys())
        line = binding_of(fleet, gang.namespace, gang.queue)
        ours = [name for name in hit if name not in anyway]
        if ours:
            impacts.append(_impact(gang, f"{len(ours)} of its machines: {leaving[ours[0]].reason}"))
        elif gang.uid in preempted:
            impacts.append(_impact(gang, preempted[gang.uid]))
        elif line is not None and line.stop_policy == "HoldAndDrain":
            impacts.append(_impact(gang, f"queue {gang.queue} is drained"))
        elif hit:
            words = f"{len(hit)} of its machines: {leaving[hit[0]].reason}"
            impacts.append(replace(_impact(gang, words), upkeep=True))
    return tuple(impacts)


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
    """The bill once all of it has happened; a replaced machine costs what its pool's cheapest offering costs now."""
    offerings = offerings_now(fleet, snapshot)
    usd, gpus = now.usd_h, now.gpus
    for change in changes.values():
        facts = change.before or change.after or {}
        count = _gpus(snapshot, facts["instanceType"])
        sign = {"create": 1, "delete": -1}.get(change.verb, 0)
        usd += sign * facts["usdPerHour"]
        gpus += sign * count
        if change.verb == "replace":
            offered = offerings.of(fleet.node_pools[facts["nodePool"]])
            best = next(
                (offering for offering in offered if offering.offer.capacity_type == facts["capacityType"]), None
            )
            best = best or (offered[0] if offered else None)
            usd += (best.offer.price_usd_h if best else 0.0) - facts["usdPerHour"]
            gpus += (best.offer.instance_type.gpu_count if best else 0) - count
    return HourlyBill(round(usd, 6), gpus)
