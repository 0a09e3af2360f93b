"""Why a gang waits or runs, when it starts and what it costs: one value, made by the functions that decide.

It is what every outlet shows: the agent's API as JSON, the page, the command line, comments and, in short, the status
of the Workload. Instants are epoch seconds, amounts canonical, money USD.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from typing import Final

from fleet.cost.lost_work import lost_since_s, lost_work_usd
from fleet.explain.advice import Advice
from fleet.explain.gang_notes import REMEDIES, gang_notes
from fleet.explain.tried_machines import TriedMachines, TriedOutcome, tried_machines
from fleet.explain.what_if import QuotaStanding, standings
from fleet.mig.layouts import gpu_part
from fleet.quota.build_tree import usages
from fleet.quota.queue_binding import binding_of, payer_of
from fleet.quota.specs import FlavorResource
from fleet.reasons import Reason, Refusal, some_of
from fleet.scheduling.never_fits import never_fits
from fleet.scheduling.prefilter import prefilter
from fleet.scheduling.queue_order import ends_at_s, pending_in_same_queue, usage_of_local_queues
from fleet.snapshot import Gang, GangState, Snapshot
from model.fleet import Fleet
from model.quantity import format_amount

HOLDERS_MOST: Final = 20
"""Gangs that are named as holding what is missing."""


class CheckStep(StrEnum):
    """What is asked of a gang, in this order."""

    CAN_RUN = "CanRun"
    """Whether some machine could ever hold its pods."""
    RIGHT_PLACE = "RightPlace"
    """Whether namespace, queue and class are such that it is considered."""
    QUOTA = "Quota"
    MACHINES = "Machines"
    POSITION = "Position"


@dataclass(frozen=True, slots=True)
class GangCheck:
    """The answer to one of the questions; `holds` None = it cannot be told."""

    step: CheckStep
    holds: bool | None
    reason: str = ""
    message: str = ""
    retry_at_s: float = 0.0
    """When it is tried again; 0 = when something changes."""


@dataclass(frozen=True, slots=True)
class QuotaHolder:
    """A gang that holds some of a quota that another one lacks."""

    gang: str
    team: str
    queue: str
    flavor: str
    resource: str
    amount: int
    ends_s: float | None
    """When it will have ended; None = nothing tells."""
    ends_by: str
    """What that stands on."""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Where a gang stands among those that wait in its queue."""

    queue: str
    place: int
    of: int
    ahead: tuple[str, ...]
    """Names of those before it, the next one last; three at most."""
    usage: Mapping[str, float]
    """Local queue -> what it used lately, where that decides who goes first."""


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When a gang will start: half of such estimates come true by `p50_s`, nine of ten by `p90_s`."""

    made_at_s: float
    p50_s: float | None = None
    p90_s: float | None = None
    """None = later than the forecast looks ahead."""
    basis: str = ""
    why_unknown: str = ""


@dataclass(frozen=True, slots=True)
class GangCost:
    """What a gang costs, in USD."""

    usd_h: float
    """Now; 0 while it holds no machine."""
    would_usd_h: float | None
    """Of the cheapest machines that it could have now, while it waits; None = there are none."""
    so_far_usd: float | None
    """By the ledger; None = none is kept, or it has not been read yet."""
    at_run_time_usd: float | None
    """For all of its declared run time at that rate; None = it declares none, or has no rate."""
    lost_usd: float
    """Machine time that its eviction now would waste."""
    lost_since_s: float
    """From when on that counts: the last checkpoint, or the start; 0 = it would lose nothing."""


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """When a gang that runs will have ended, and what that stands on; None = nothing tells."""

    at_s: float | None
    by: str


@dataclass(frozen=True, slots=True)
class ToldLately:
    """What takes longer to find out than an answer may: found in idle time, each part with its own age."""

    ends: Mapping[str, ExpectedEnd] = field(default_factory=dict)
    """uid -> when gangs end, of those that nothing has declared."""
    start: StartEstimate | None = None
    advice: tuple[Advice, ...] | None = None
    """None = not tried yet."""
    advised_at_s: float = 0.0
    so_far_usd: float | None = None
    usd_h: float = 0.0


@dataclass(frozen=True, slots=True)
class GangExplanation:
    """Everything that people ask about one gang, at one instant."""

    at_s: float
    uid: str
    name: str
    """`namespace/name` of the job."""
    kind: str
    workload: str
    queue: str
    team: str
    priority: int
    priority_class: str
    pods: int
    needs: int
    """Pods that it starts with."""
    asks: Mapping[str, int]
    """GPUs and slices -> how many all pods ask for."""
    state: str
    reason: str
    message: str
    since_s: float
    created_at_s: float
    evictions: int
    checks: tuple[GangCheck, ...]
    quotas: tuple[QuotaStanding, ...]
    holders: tuple[QuotaHolder, ...]
    """Who holds what is missing, the first to end first."""
    holders_more: int
    machines: TriedMachines | None
    """None while it holds its own."""
    stands: tuple[str, ...]
    """Machines that it has."""
    position: QueuePosition | None
    cost: GangCost
    start: StartEstimate | None
    """None where it does not wait, or nothing has been forecast yet."""
    advice: tuple[Advice, ...] | None
    """What would have it start, cheapest first; None = not tried yet, or it does not wait."""
    advised_at_s: float
    remedy: str
    """What would change it where that is nobody's to try: by its reason alone; empty = nothing is known."""
    notes: tuple[str, ...]
    """What else is to be said, a `subject: words` each."""

    @property
    def waits_for(self) -> GangCheck | None:
        """Returns the first check that fails."""
        return next((check for check in self.checks if check.holds is False), None)

    def without_names(self, namespaces: frozenset[str]) -> "GangExplanation":
        """Returns it as somebody may see it who sees these namespaces only: others' gangs by their team alone."""

        def seen(name: str) -> bool:
            return name.partition("/")[0] in namespaces

        holders = tuple(it if seen(it.gang) else replace(it, gang="", queue="") for it in self.holders)
        advice = self.advice and tuple(it.without_names(seen) for it in self.advice)
        position = self.position and replace(self.position, ahead=tuple(filter(seen, self.position.ahead)))
        return replace(self, holders=holders, advice=advice, position=position)


def explain_gang(fleet: Fleet, snapshot: Snapshot, gang: Gang, lately: ToldLately) -> GangExplanation:
    """Returns the explanation of one gang; what of it takes long is taken from what was found `lately`."""
    waits = gang.state is GangState.PENDING
    quotas = tuple(standings(fleet, snapshot, gang)) if waits else ()
    short = _short(quotas)
    holders = list(_holders(fleet, snapshot, gang, short, lately.ends))
    tried = tried_machines(fleet, snapshot, gang) if waits else None
    position = _position(fleet, snapshot, gang) if waits else None
    asks: dict[str, int] = {}
    for pods in gang.pod_sets:
        for resource, amount in gpu_part(pods.requests).items():
            asks[resource] = asks.get(resource, 0) + amount * pods.count
    return GangExplanation(
        at_s=snapshot.now_s,
        uid=gang.uid,
        name=gang.name,
        kind=gang.job.kind,
        workload=gang.workload,
        queue=gang.queue,
        team=payer_of(fleet, gang.namespace, gang.queue) or "",
        priority=gang.effective_priority,
        priority_class=gang.priority_class,
        pods=sum(pods.count for pods in gang.pod_sets),
        needs=sum(pods.count if pods.core is None else pods.core for pods in gang.pod_sets),
        asks=asks,
        state=str(gang.state),
        reason=str(gang.reason),
        message=gang.message,
        since_s=gang.since_s,
        created_at_s=gang.created_at_s,
        evictions=gang.evictions,
        checks=tuple(_checks(fleet, snapshot, gang, quotas, tried, position)),
        quotas=quotas,
        holders=tuple(holders[:HOLDERS_MOST]),
        holders_more=max(0, len(holders) - HOLDERS_MOST),
        machines=tried,
        stands=tuple(sorted({pin.node or pin.claim for pin in gang.pins})),
        position=position,
        cost=_cost(snapshot, gang, tried, lately),
        start=lately.start if gang.state in {GangState.PENDING, GangState.RESERVED} else None,
        advice=lately.advice if waits else None,
        advised_at_s=lately.advised_at_s if waits else 0.0,
        remedy=REMEDIES.get(gang.reason, ""),
        notes=tuple(gang_notes(snapshot, gang, fleet)),
    )


# -- the checks, in order ---------------------------------------------------------------------------------------------

_OF_QUOTA: Final = frozenset({Reason.WAITING_FOR_QUOTA, Reason.EXCEEDS_MAX_QUOTA, Reason.WAITING_FOR_PREEMPTED})
_OF_MACHINES: Final = frozenset({Reason.NO_OFFER, Reason.POOL_LIMIT, Reason.NO_CAPACITY, Reason.TOPOLOGY})


def _checks(
    fleet: Fleet,
    snapshot: Snapshot,
    gang: Gang,
    quotas: Sequence[QuotaStanding],
    tried: TriedMachines | None,
    position: QueuePosition | None,
) -> Iterator[GangCheck]:
    if tried is None or position is None:
        return
    never = never_fits(fleet, snapshot, gang)
    yield _told(CheckStep.CAN_RUN, never, "some machine of its flavors can hold each of its pods")
    place = prefilter(fleet, snapshot, gang)
    yield _told(CheckStep.RIGHT_PLACE, place, f"queue {gang.queue} takes it from {gang.namespace}")
    if binding_of(fleet, gang.namespace, gang.queue) is None:
        yield GangCheck(CheckStep.QUOTA, None, message="no queue, so no quota")
        yield GangCheck(CheckStep.MACHINES, None, message="no queue, so no flavors")
    else:
        yield _quota_check(gang, quotas)
        yield _machine_check(gang, tried)
    before = f", behind {some_of(position.ahead)}" if position.ahead else ""
    first = position.place == 1
    yield GangCheck(
        CheckStep.POSITION, first, "" if first else str(gang.reason), f"{position.place} of {position.of}{before}"
    )


def _told(step: CheckStep, refusal: Refusal | None, well: str) -> GangCheck:
    if refusal is None:
        return GangCheck(step, True, message=well)
    return GangCheck(step, False, str(refusal.reason), refusal.message, refusal.retry_at_s)


def _quota_check(gang: Gang, quotas: Sequence[QuotaStanding]) -> GangCheck:
    """Tells of the flavor in which least is missing; what the last pass said of it goes before."""
    if gang.reason in _OF_QUOTA:
        return GangCheck(CheckStep.QUOTA, False, str(gang.reason), gang.message)
    missing = _short(quotas)
    if not missing:
        return GangCheck(CheckStep.QUOTA, True, message="enough is free in one of its flavors")
    words = "; ".join(
        f"asks {format_amount(it.levels[0].resource, it.asked)} {it.levels[0].resource} of {it.levels[0].flavor}, "
        f"{format_amount(it.levels[0].resource, it.free)} free for it"
        for it in missing
    )
    return GangCheck(CheckStep.QUOTA, False, str(Reason.WAITING_FOR_QUOTA), words)


def _short(quotas: Sequence[QuotaStanding]) -> list[QuotaStanding]:
    """Returns what is missing in the flavor where least is, a row a resource; nothing where one has all."""
    flavors: dict[str, list[QuotaStanding]] = {}
    for it in quotas:
        flavors.setdefault(it.levels[0].flavor, []).append(it)
    found = [[it for it in rows if it.asked > it.free] for rows in flavors.values()]
    return min(found, key=lambda rows: (len(rows), sum(it.asked - it.free for it in rows)), default=[])


def _machine_check(gang: Gang, tried: TriedMachines) -> GangCheck:
    if gang.reason in _OF_MACHINES:
        retry_s = min((it.retry_at_s for it in tried.offers if it.outcome is TriedOutcome.SHORT), default=0.0)
        return GangCheck(CheckStep.MACHINES, False, str(gang.reason), gang.message, retry_s)
    if tried.free_pods >= tried.asked_pods:
        return GangCheck(CheckStep.MACHINES, True, message="there is room on machines that stand")
    if tried.open:
        return GangCheck(CheckStep.MACHINES, True, message=f"machines can be bought: {tried.open[0].words}")
    counts = ", ".join(f"{count} {outcome}" for outcome, count in tried.counts.items())
    retry_s = min((it.retry_at_s for it in tried.offers if it.retry_at_s), default=0.0)
    message = f"no machine can be bought now ({counts or 'no pool of its flavors sells any'})"
    return GangCheck(CheckStep.MACHINES, False, str(Reason.NO_OFFER), message, retry_s)


# -- who holds what is missing ----------------------------------------------------------------------------------------


def _holders(
    fleet: Fleet, snapshot: Snapshot, gang: Gang, short: Sequence[QuotaStanding], ends: Mapping[str, ExpectedEnd]
) -> Iterator[QuotaHolder]:
    """Yields who holds the quotas that it lacks in its tree, the first to end first, then by amount and name."""
    roots = {FlavorResource(it.levels[0].flavor, it.levels[0].resource): it.levels[-1].node for it in short}
    taken = usages(fleet, snapshot) if roots else {}
    others = ((snapshot.gangs.get(uid), cells) for uid, cells in taken.items() if uid != gang.uid)
    found = [
        _holder(fleet, holder, cell, cells[cell], expected_end(holder, snapshot.now_s, ends))
        for holder, cells in others
        if holder is not None and holder.holds_capacity
        for cell in sorted(cells.keys() & roots.keys())
        if cells[cell] and _root_of(fleet, holder) in {"", roots[cell].strip("/").partition("/")[0]}
    ]
    yield from sorted(found, key=lambda it: (inf if it.ends_s is None else it.ends_s, -it.amount, it.gang))


def _holder(fleet: Fleet, gang: Gang, cell: FlavorResource, amount: int, end: ExpectedEnd) -> QuotaHolder:
    team = payer_of(fleet, gang.namespace, gang.queue) or ""
    return QuotaHolder(gang.name, team, gang.queue, *cell, amount, end.at_s, end.by)


def _root_of(fleet: Fleet, gang: Gang) -> str:
    """Returns the team at the root of a gang's tree; empty where that is not one of ours."""
    binding = binding_of(fleet, gang.namespace, gang.queue)
    team = binding.team if binding is not None else None
    seen: set[str] = set()
    while team is not None and team.spec.parent and team.spec.parent in fleet.teams and team.name not in seen:
        seen.add(team.name)
        team = fleet.teams[team.spec.parent]
    return team.name if team is not None else ""


def expected_end(gang: Gang, now_s: float, ends: Mapping[str, ExpectedEnd]) -> ExpectedEnd:
    """Returns when a gang ends: as it has declared, as runs like it took, or nobody knows."""
    declared_s = ends_at_s(gang, now_s)
    if gang.state is GangState.EVICTING:
        return ExpectedEnd(now_s, "it is leaving")
    return ExpectedEnd(declared_s, "as declared") if declared_s < inf else ends.get(gang.uid, ExpectedEnd(None, ""))


# -- position and cost ------------------------------------------------------------------------------------------------


def _position(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> QueuePosition:
    waiting = pending_in_same_queue(fleet, snapshot, gang)
    place = next((number for number, it in enumerate(waiting, 1) if it.uid == gang.uid), 1)
    ahead = tuple(it.name for it in waiting[max(0, place - 4) : place - 1])
    return QueuePosition(gang.queue, place, len(waiting), ahead, dict(usage_of_local_queues(fleet, snapshot, gang)))


def _cost(snapshot: Snapshot, gang: Gang, tried: TriedMachines | None, lately: ToldLately) -> GangCost:
    would = min((it.total_usd_h for it in tried.open), default=None) if tried is not None else None
    rate = lately.usd_h or would
    declared_s = gang.expected_run_s
    lost_usd = lost_work_usd(gang, snapshot)
    return GangCost(
        usd_h=lately.usd_h,
        would_usd_h=would,
        so_far_usd=lately.so_far_usd,
        at_run_time_usd=rate * declared_s / 3600 if rate and declared_s else None,
        lost_usd=lost_usd,
        lost_since_s=lost_since_s(gang, snapshot.now_s) if lost_usd else 0.0,
    )
