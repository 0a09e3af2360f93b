"""What a run does to the machines and gangs there are, and how two runs differ: what only one of two fleets causes."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from fleet.actions import OpenClaims, PurchaseTally, SaveClaim, SaveGang
from fleet.cost.lost_work import lost_work_usd
from fleet.disruption import ended_window
from fleet.disruption.drift import DriftMethod
from fleet.explain.verdicts import verdicts
from fleet.mig.layouts import TAKES_OVER, gpu_part, layout_name
from fleet.nodeclaims.drift import drifts
from fleet.plan.changes import NOW, PlannedChange, Verb, When
from fleet.snapshot import Claim, Gang, GangState, NodeDisruption, Snapshot
from model import labels
from model.fleet import Fleet

if TYPE_CHECKING:  # a plan without a look at the world plays nothing
    from fleet.plan.simulated_run import SimulatedRun, TimedAction

CUT_ANEW: Final = "is cut anew to"
AT_ONCE_S = 120.0
"""What happens within this time happens now, as far as a plan goes."""


@dataclass(frozen=True, slots=True)
class GangImpact:
    """A gang that fares otherwise because of a revision: it runs and would be stopped, or waits and would start."""

    name: str
    queue: str
    gpus: int
    """Whole GPUs."""
    reason: str
    resources: Mapping[str, int] = field(default_factory=dict)
    """GPU resources, slices included."""
    stopped: bool = True
    """Whether it runs and is stopped, for good or to be requeued."""
    lost_usd: float = 0.0
    """The work since its last checkpoint that is lost with it."""
    when: When = NOW


@dataclass(frozen=True, slots=True)
class HourlyBill:
    """The price (USD an hour) and the GPUs of all machines, by model as labels and offers name it (`h100`)."""

    usd_h: float
    gpus: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PeakBill:
    """The most machines there are at once in a run, and the most they cost: what is given back again counts as well.

    A machine that is bought in the place of others counts once they are gone, not beside them.
    """

    nodes: int
    usd_h: float
    when: When
    """When they cost most."""


@dataclass(frozen=True, slots=True)
class Consequences:
    """What becomes of machines and gangs in one run."""

    machines: tuple[PlannedChange, ...]
    gangs: tuple["GangFate", ...]
    bill: HourlyBill
    """Once nothing changes any more, or at the horizon."""
    peak: PeakBill
    tally: PurchaseTally | None
    undecided: tuple[str, ...]
    """Gangs and machines that the deciders fail on, and how: what becomes of them is not known."""
    expire_again: Mapping[str, float] = field(default_factory=dict)
    """Pool -> after how many seconds its machines expire, where that comes round again for those that are bought."""
    given_up_after_s: float | None = None
    """How far (s) was looked ahead where things go on changing; None where they come to rest, or up to the horizon."""


def consequences(fleet: Fleet, run: "SimulatedRun") -> Consequences:
    """Returns all that a run does: machines by name, then those bought; gangs by name."""
    tallies = (it.action.tally for it in run.actions if isinstance(it.action, OpenClaims))
    return Consequences(
        tuple(_machines(fleet, run)),
        tuple(_gangs(run)),
        bill(run.end),
        peak_of(run.begin, run.actions),
        next((tally for tally in tallies if tally), None),
        tuple(f"{it.subject or 'a decider'}: {it.failure.error}: {it.failure.cause}" for it in run.failed),
        run.expire_again,
        run.given_up_after_s,
    )


def bill(snapshot: Snapshot) -> HourlyBill:
    """Returns what the machines cost that stay."""
    claims = [claim for claim in snapshot.claims.values() if not claim.deleting and claim.disruption is None]
    gpus: Counter[str] = Counter()
    for claim in claims:
        machine = snapshot.catalog.types.get(claim.capacity_pool.instance_type)
        if machine is not None and machine.gpu_count:
            gpus[machine.gpu_name or "gpu"] += machine.gpu_count
    return HourlyBill(round(sum(claim.price_usd_h for claim in claims), 6), dict(sorted(gpus.items())))


def peak_of(begin: Snapshot, actions: Sequence["TimedAction"] = ()) -> PeakBill:
    """Returns the most that there is from a beginning to the last of the actions."""
    standing = {name: it for name, it in begin.claims.items() if not it.deleting and it.disruption is None}
    found = _counted(standing, NOW)
    for at_s, together in groupby(actions, key=lambda it: it.at_s):
        for it in together:
            if isinstance(it.action, OpenClaims):
                standing |= {claim.name: claim for claim in it.action.claims}
            elif isinstance(it.action, SaveClaim) and it.action.claim.disruption is not None:
                standing.pop(it.action.claim.name, None)
        now = _counted(standing, after(begin, at_s))
        dearer = now if now.usd_h > found.usd_h else found
        found = replace(dearer, nodes=max(now.nodes, found.nodes))
    return found


def _counted(standing: Mapping[str, Claim], when: When) -> PeakBill:
    counted = [claim for claim in standing.values() if standing.keys().isdisjoint(claim.replaces)]
    return PeakBill(len(counted), round(sum(claim.price_usd_h for claim in counted), 6), when)


def caused(
    head: Sequence[PlannedChange], base: Sequence[PlannedChange]
) -> tuple[tuple[PlannedChange, ...], tuple[PlannedChange, ...]]:
    """Returns (what only the head does, what the base does as well), the latter as the head does it.

    Two changes are one where the same becomes of the same machine, or where equal machines are bought.
    """
    own, shared = _split(head, base)
    prevented, _ = _split(base, head)
    touched = {change.address for change in own}
    kept = [replace(it, verb="keep", after=it.before) for it in prevented if it.before and it.address not in touched]
    return (*own, *kept), tuple(shared)


def _split(
    one: Iterable[PlannedChange], other: Iterable[PlannedChange]
) -> tuple[list[PlannedChange], list[PlannedChange]]:
    """Returns the changes that the other side has not, and those that it has."""
    left = Counter(map(_what, other))
    own: list[PlannedChange] = []
    shared: list[PlannedChange] = []
    for change in one:
        known = left[_what(change)] > 0
        left[_what(change)] -= known
        (shared if known else own).append(change)
    return own, shared


def _what(change: PlannedChange) -> object:
    """Returns what makes two changes one: what becomes of a machine that is there, or what is bought."""
    facts = tuple(sorted((change.after or {}).items()))
    return change.verb, change.address if change.before else "", facts, bool(change.when.held)


# -- machines ---------------------------------------------------------------------------------------------------------


def _machines(fleet: Fleet, run: "SimulatedRun") -> Iterator[PlannedChange]:
    bought = _bought(run)
    gone = _told_to_go(run)
    successors = _successors(run, bought, gone)
    named = {claim.name for claim in successors.values()}
    for name, claim in sorted(run.begin.claims.items()):
        if claim.deleting or claim.disruption:
            continue
        if name in gone and not claim.launched_at_s:
            continue  # an intent that is given up: no machine of it was ever there
        if name in gone:
            at_s, why = gone[name]
            new = successors.get(name)
            when = _when(fleet, run, claim, why.reason, at_s, new)
            change = _change(claim, "replace" if new else "delete", f"{why.reason}: {why.message}", when, new)
            stands = new is not None and new.name in run.begin.claims
            yield replace(change, after={**(change.after or {}), "standing": True}) if stands else change
        elif (end := run.end.claims.get(name)) is not None and end.layout != claim.layout:
            yield _change(
                claim, "update", f"{CUT_ANEW} {layout_name(end.layout)}", after(run.begin, end.recut_at_s), end
            )
    yield from _held(fleet, run, gone)
    for name, claim in sorted(bought.items(), key=lambda it: (it[1].created_at_s, it[0])):
        if name not in named and name in run.end.claims and name not in gone:
            yield _created(claim, after(run.begin, claim.created_at_s))


def _successors(run: "SimulatedRun", bought: Mapping[str, Claim], gone: Container[str]) -> dict[str, Claim]:
    """Returns claim -> the machine that comes in its place and stays; each comes in the place of one that goes.

    One that comes where nothing goes in the end, as work has come to the old machine meanwhile, is one more.
    """
    coming = {**run.begin.claims, **bought}
    found: dict[str, Claim] = {}
    for _, claim in sorted(coming.items()):
        open_places = (old for old in claim.replaces if old in run.begin.claims and old in gone and old not in found)
        if claim.name in run.end.claims and (old := next(open_places, None)) is not None:
            found[old] = claim
    return found


def _bought(run: "SimulatedRun") -> dict[str, Claim]:
    """Returns name -> what was bought; cut as it is in the end, if it was cut anew since."""
    opened = (it.action for it in run.actions if isinstance(it.action, OpenClaims))
    bought = {claim.name: claim for action in opened for claim in action.claims}
    cut = {name: end.layout for name in bought if (end := run.end.claims.get(name)) is not None}
    return {name: replace(claim, layout=cut.get(name, claim.layout)) for name, claim in bought.items()}


def _when(fleet: Fleet, run: "SimulatedRun", claim: Claim, reason: str, at_s: float, new: Claim | None) -> When:
    """Returns when a machine goes, and the window that has kept it, if one ended just before anything was done."""
    when, began_s = after(run.begin, at_s), min(at_s, new.created_at_s) if new else at_s
    if not when.after_s:
        return when
    from fleet.plan.simulated_run import LONGEST_STEP_S

    return replace(when, until=ended_window(fleet, claim.node_pool, reason, began_s, LONGEST_STEP_S))


def _told_to_go(run: "SimulatedRun") -> dict[str, tuple[float, NodeDisruption]]:
    """Returns claim -> when it was first told to go, and why."""
    found: dict[str, tuple[float, NodeDisruption]] = {}
    for it in run.actions:
        if isinstance(it.action, SaveClaim) and (why := it.action.claim.disruption) is not None:
            found.setdefault(it.action.claim.name, (it.at_s, why))
    return found


def _held(fleet: Fleet, run: "SimulatedRun", gone: Mapping[str, object]) -> Iterator[PlannedChange]:
    """Yields the machines that are not what is declared and still stand at the end, with what keeps them."""
    for name, drift in sorted(drifts(fleet, run.end).items()):
        claim = run.end.claims[name]
        if not drift.words or name in gone or name not in run.begin.claims or claim.deleting or claim.disruption:
            continue
        said = next((it for it in verdicts(fleet, run.end, claim) if it.method == DriftMethod.name), None)
        words = said.message.removeprefix(f"{drift.words}; ") if said else "it is not ready"
        verb: Verb = "replace" if claim.node_pool in fleet.node_pools else "delete"
        yield _change(run.begin.claims[name], verb, drift.words, When(held=words))


def _change(claim: Claim, verb: Verb, why: str, when: When, new: Claim | None = None) -> PlannedChange:
    return PlannedChange(
        f"nodeclaim/{claim.name}",
        verb,
        reason=why,
        when=when,
        before=_facts(claim),
        after=_facts(new) if new is not None else None,
    )


def _created(claim: Claim, when: When) -> PlannedChange:
    return PlannedChange(f"nodeclaim/{claim.name}", "create", reason=claim.purpose, when=when, after=_facts(claim))


def _facts(claim: Claim) -> Mapping[str, Any]:
    where = claim.capacity_pool
    facts = {
        "nodePool": claim.node_pool,
        "instanceType": where.instance_type,
        "zone": where.zone,
        "capacityType": where.capacity_type,
        "usdPerHour": claim.price_usd_h,
    }
    return facts | ({"layout": layout_name(claim.layout)} if claim.layout else {})


# -- gangs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GangFate:
    """What becomes of one gang in a run."""

    gang: Gang
    """As it was at the beginning."""
    stopped_s: float | None
    """When it was first told to stop (epoch seconds); None = it was not, or did not run."""
    why: str
    """Why it was told to stop."""
    started_s: float | None
    """When one that waited was admitted; None = it was not, or ran already."""
    end: Gang | None
    """As it is at the end; None where it is gone."""

    @property
    def runs(self) -> bool:
        """Returns whether it runs, or has run to its end."""
        return self.end is not None and self.end.state in {GangState.ADMITTED, GangState.FINISHED}


def _gangs(run: "SimulatedRun") -> Iterator[GangFate]:
    saved: dict[str, list[tuple[float, Gang]]] = {}
    for it in run.actions:
        if isinstance(it.action, SaveGang):
            saved.setdefault(it.action.gang.uid, []).append((it.at_s, it.action.gang))
    for uid, gang in sorted(run.begin.gangs.items(), key=lambda it: (it[1].name, it[0])):
        if gang.state in {GangState.EVICTING, GangState.FINISHED}:
            continue
        written = saved.get(uid, [])
        stopped = next(((at, it.message) for at, it in written if _is_stopped(gang, it)), None)
        started = next((at for at, it in written if it.state is GangState.ADMITTED), None)
        waits = not gang.holds_capacity
        yield GangFate(
            gang, stopped[0] if stopped else None, stopped[1] if stopped else "", started if waits else None,
            run.end.gangs.get(uid),
        )  # fmt: skip


def _is_stopped(before: Gang, now: Gang) -> bool:
    return before.holds_capacity and now.state in {GangState.EVICTING, GangState.PENDING}


def impacts(head: Sequence[GangFate], base: Sequence[GangFate], begin: Snapshot) -> tuple[GangImpact, ...]:
    """Returns the gangs that fare otherwise under the head than under the base, by name."""
    anyway = {fate.gang.uid: fate for fate in base}
    found = (_impact(fate, anyway.get(fate.gang.uid), begin) for fate in head)
    return tuple(it for it in found if it is not None)


def stopped_anyway(head: Sequence[GangFate], base: Sequence[GangFate], begin: Snapshot) -> tuple[GangImpact, ...]:
    """Returns the gangs that are stopped without the revision as well, by name."""
    anyway = {fate.gang.uid: fate for fate in base}
    both = (fate for fate in head if _is_stopped_anyway(fate, anyway.get(fate.gang.uid)))
    return tuple(_told(fate, begin, fate.why, fate.stopped_s) for fate in both)


def _is_stopped_anyway(fate: GangFate, base: GangFate | None) -> bool:
    """Returns whether it is stopped under both. One that would run again, and now does not, is stopped by the head."""
    if fate.stopped_s is None or base is None or base.stopped_s is None:
        return False
    return fate.runs or not base.runs


def _impact(fate: GangFate, base: GangFate | None, begin: Snapshot) -> GangImpact | None:
    if fate.stopped_s is not None and not _is_stopped_anyway(fate, base):
        again = "" if fate.runs else f"; then it waits: {_end_of(fate)}"
        return _told(fate, begin, f"{fate.why}{again}", fate.stopped_s)
    if base is None or fate.gang.holds_capacity:
        return None
    if base.started_s is not None and fate.started_s is None:
        return _told(fate, begin, f"does not start: {_end_of(fate)}", None)
    if fate.started_s is not None and base.started_s is None:
        return _told(fate, begin, "starts", fate.started_s)
    if fate.started_s is None or base.started_s is None or abs(fate.started_s - base.started_s) <= AT_ONCE_S:
        return None
    return _told(fate, begin, "starts later" if fate.started_s > base.started_s else "starts earlier", fate.started_s)


def _end_of(fate: GangFate) -> str:
    return f"{fate.end.reason}: {fate.end.message}" if fate.end is not None else "it is gone"


def _told(fate: GangFate, begin: Snapshot, why: str, at_s: float | None) -> GangImpact:
    gang, stopped = fate.gang, fate.stopped_s is not None
    resources: dict[str, int] = {}
    for pod_set in gang.pod_sets:
        for name, amount in gpu_part(pod_set.requests).items():
            resources[name] = resources.get(name, 0) + amount * pod_set.count
    return GangImpact(
        gang.name,
        gang.queue,
        resources.get(labels.GPU_RESOURCE, 0),
        why,
        resources,
        stopped,
        round(_lost_usd(fate, begin), 2) if stopped else 0.0,
        after(begin, at_s),
    )


def _lost_usd(fate: GangFate, begin: Snapshot) -> float:
    """Returns the work that a gang loses: by now, and for a roll-out that stops it later no less than by then."""
    now_usd = lost_work_usd(fate.gang, begin)
    if fate.stopped_s is None or TAKES_OVER not in fate.why:
        return now_usd
    return max(now_usd, lost_work_usd(fate.gang, replace(begin, now_s=fate.stopped_s)))


def after(begin: Snapshot, at_s: float | None) -> When:
    """Returns when something happens, as a plan tells it: what is soon is now. None = it does not."""
    if at_s is None:
        return When(held="not within the horizon")
    after_s = max(0.0, at_s - begin.now_s)
    return When(after_s=0.0 if after_s <= AT_ONCE_S else after_s)
