"""Why a gang waits or runs, when it starts and what it costs: one value, made by the functions that decide.

It is what every outlet shows: the agent's API as JSON, the page, the command line, comments and, in short, the status
of the Workload. Instants are epoch seconds, amounts canonical, money USD.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from fleet.explain.advice import Advice
from fleet.explain.gang_facts import GangCost, QueuePosition, StartEstimate, ToldLately, gang_cost, queue_position
from fleet.explain.gang_notes import gang_notes, remedy_of
from fleet.explain.quota_holders import QuotaHolder, quota_holders, short_of
from fleet.explain.tried_machines import OF_MACHINES, TriedMachines, TriedOutcome, tried_machines
from fleet.explain.what_if import QuotaStanding, standings
from fleet.mig.layouts import gpu_part
from fleet.quota.queue_binding import binding_of, payer_of
from fleet.reasons import Reason, Refusal, some_of
from fleet.scheduling.never_fits import never_fits
from fleet.scheduling.prefilter import prefilter
from fleet.snapshot import Gang, GangState, Snapshot
from model.fleet import Fleet
from model.quantity import format_amount

HOLDERS_MOST: Final = 20
"""Gangs that are named as holding what is missing."""

NOT_FORECAST: Final = "nothing has been forecast since it came"


class CheckStep(StrEnum):
    """What is asked of a gang, in this order."""

    CAN_RUN = "CanRun"
    """Whether some machine could ever hold its pods."""
    RIGHT_PLACE = "RightPlace"
    """Whether namespace, queue and class are such that it is considered."""
    QUOTA = "Quota"
    MACHINES = "Machines"
    POSITION = "Position"


_NEVER: Final = frozenset(
    {
        *(Reason.NO_OFFER, Reason.NO_MATCHING_FLAVOR, Reason.QUEUE_NOT_FOUND, Reason.NAMESPACE_NOT_ALLOWED),
        *(Reason.PRIORITY_NOT_FOUND, Reason.PRIORITY_NOT_ALLOWED, Reason.UNSUPPORTED, Reason.RUNTIME_CLASS_NOT_FOUND),
        *(Reason.PODS_FORBIDDEN, Reason.DEACTIVATED, Reason.QUEUE_STOPPED),
    }
)
"""What no waiting mends, where it is said before quota and machines are looked at."""


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
    """None where it does not wait."""
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
    short = short_of(quotas)
    holders = list(quota_holders(fleet, snapshot, gang, short, lately.ends))
    tried = tried_machines(fleet, snapshot, gang) if waits else None
    position = queue_position(fleet, snapshot, gang) if waits else None
    checks = tuple(_checks(fleet, snapshot, gang, quotas, tried, position))
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
        checks=checks,
        quotas=quotas,
        holders=tuple(holders[:HOLDERS_MOST]),
        holders_more=max(0, len(holders) - HOLDERS_MOST),
        machines=tried,
        stands=tuple(sorted({pin.node or pin.claim for pin in gang.pins})),
        position=position,
        cost=gang_cost(snapshot, gang, tried, lately),
        start=_start(snapshot, gang, checks, lately),
        advice=lately.advice if waits else None,
        advised_at_s=lately.advised_at_s if waits else 0.0,
        remedy=remedy_of(gang),
        notes=tuple(gang_notes(snapshot, gang, fleet)),
    )


def _start(snapshot: Snapshot, gang: Gang, checks: Sequence[GangCheck], lately: ToldLately) -> StartEstimate | None:
    """Returns when a gang starts: never as it is, where it fails a check that no waiting mends."""
    if gang.state not in {GangState.PENDING, GangState.RESERVED}:
        return None
    never = next(filter(_no_waiting_mends, checks), None)
    if never is not None and (lately.start is None or lately.start.p50_s is None):
        return StartEstimate(snapshot.now_s, why_unknown=f"as it is it does not start: {never.message}")
    return lately.start or StartEstimate(snapshot.now_s, why_unknown=NOT_FORECAST)


def _no_waiting_mends(it: GangCheck) -> bool:
    return it.step in {CheckStep.CAN_RUN, CheckStep.RIGHT_PLACE} and it.holds is False and it.reason in _NEVER


# -- the checks, in order ---------------------------------------------------------------------------------------------

_OF_QUOTA: Final = frozenset({Reason.WAITING_FOR_QUOTA, Reason.EXCEEDS_MAX_QUOTA, Reason.WAITING_FOR_PREEMPTED})


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
    missing = short_of(quotas)
    if not missing:
        return GangCheck(CheckStep.QUOTA, True, message="enough is free in one of its flavors")
    words = "; ".join(
        f"asks {format_amount(it.levels[0].resource, it.asked)} {it.levels[0].resource} of {it.levels[0].flavor}, "
        f"{format_amount(it.levels[0].resource, it.free)} free for it"
        for it in missing
    )
    return GangCheck(CheckStep.QUOTA, False, str(Reason.WAITING_FOR_QUOTA), words)


def _machine_check(gang: Gang, tried: TriedMachines) -> GangCheck:
    if gang.reason in OF_MACHINES:
        retry_s = min((it.retry_at_s for it in tried.offers if it.outcome is TriedOutcome.SHORT), default=0.0)
        return GangCheck(CheckStep.MACHINES, False, str(gang.reason), gang.message, retry_s)
    if tried.free_pods >= tried.asked_pods:
        return GangCheck(CheckStep.MACHINES, True, message="there is room on machines that stand")
    if tried.open:
        return GangCheck(CheckStep.MACHINES, True, message=f"machines can be bought: {tried.open[0].words}")
    return _nothing_to_buy(tried)


def _nothing_to_buy(tried: TriedMachines) -> GangCheck:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in tried.counts.items())
    retry_s = min((it.retry_at_s for it in tried.offers if it.retry_at_s), default=0.0)
    message = f"no machine can be bought now ({counts or 'no pool of its flavors sells any'})"
    return GangCheck(CheckStep.MACHINES, False, str(Reason.NO_OFFER), message, retry_s)
