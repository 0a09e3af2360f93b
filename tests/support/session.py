"""Small scenes for sessions: machines, jobs, what a decision makes of them, and what may never be true of it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.snapshot import PodSet
from tests.reference.session.fair import FairLedger, FairQueue
from tests.reference.session.values import (
    Crew,
    CrewGroup,
    Decision,
    PodState,
    SessionMachine,
    SessionPod,
    Squad,
    crews_of,
)

GPU = "nvidia.com/gpu"
HOLDING = {PodState.RUNNING, PodState.BOUND, PodState.NOMINATED, PodState.MOVED}


def machine(
    name: str, gpus: int = 8, labels: Mapping[str, str] | None = None, more: Mapping[str, int] | None = None
) -> SessionMachine:
    """A machine with plenty of everything but GPUs."""
    capacity = {"cpu": 64_000, "memory": 1 << 40, "pods": 110, GPU: gpus, **(more or {})}
    return SessionMachine(name, capacity, labels or {})


def machines(count: int, gpus: int = 8) -> list[SessionMachine]:
    """`n1`, `n2`, ..."""
    return [machine(f"n{number}", gpus) for number in range(1, count + 1)]


def template(gpus: int = 1, **requests: int) -> PodSet:
    """What a pod asks for."""
    asked = {"cpu": 100, GPU: gpus, **requests}
    return PodSet("worker", 1, {name: amount for name, amount in asked.items() if amount})


def pods(name: str, count: int, asks: PodSet | None = None, on: Sequence[str] = ()) -> tuple[SessionPod, ...]:
    """Pods `name-0`...; the first run on the named machines."""
    found = []
    for number in range(count):
        state, node = (PodState.RUNNING, on[number]) if number < len(on) else (PodState.PENDING, "")
        found.append(SessionPod(f"{name}-{number}", asks or template(), state, node))
    return tuple(found)


def job(
    name: str,
    queue: str = "a",
    count: int = 1,
    *,
    gpus: int = 1,
    at_least: int | None = None,
    on: Sequence[str] = (),
    priority: int = 0,
    preemptible: bool = True,
    created: int = 0,
) -> Squad:
    """A gang of equal pods, all of them needed unless `at_least` says otherwise."""
    crew = Crew("", pods(name, count, template(gpus), on), count if at_least is None else at_least)
    return Squad(name, queue, CrewGroup("", (crew,), 1), priority, preemptible, created)


def fair(**quotas: float) -> FairLedger:
    """Queues with so many GPUs of quota and equal weights."""
    return FairLedger([FairQueue(name, quota={GPU: quota}) for name, quota in quotas.items()])


def pods_of(squads: Iterable[Squad]) -> dict[str, tuple[SessionPod, Squad]]:
    """All pods by name."""
    return {pod.name: (pod, squad) for squad in squads for crew in crews_of(squad.root) for pod in crew.pods}


@dataclass(frozen=True, slots=True)
class Where:
    """Where a pod is after a decision."""

    state: PodState
    node: str


def after(squads: Iterable[Squad], decision: Decision) -> dict[str, Where]:
    """Every pod once the decision is carried out, before anything has left."""
    found = {name: Where(pod.state, pod.node) for name, (pod, _) in pods_of(squads).items()}
    for state, placements in (
        (PodState.BOUND, decision.bound),
        (PodState.NOMINATED, decision.nominated),
        (PodState.MOVED, decision.moved),
    ):
        found.update({name: Where(state, placement.node) for name, placement in placements.items()})
    found.update({entry.pod: Where(PodState.EVICTED, found[entry.pod].node) for entry in decision.evicted})
    return found


def next_round(squads: Iterable[Squad], decision: Decision) -> list[Squad]:
    """The squads once everything has come and gone: what was placed runs, what was evicted waits again."""
    places = after(squads, decision)

    def moved(pod: SessionPod) -> SessionPod:
        where = places[pod.name]
        if where.state in HOLDING:
            return replace(pod, state=PodState.RUNNING, node=where.node)
        return replace(pod, state=PodState.PENDING, node="") if where.state is PodState.EVICTED else pod

    def rebuilt(part: Crew | CrewGroup) -> Crew | CrewGroup:
        if isinstance(part, Crew):
            return replace(part, pods=tuple(moved(pod) for pod in part.pods))
        return replace(part, parts=tuple(rebuilt(below) for below in part.parts))

    return [replace(squad, root=_group(rebuilt(squad.root))) for squad in squads]


def _group(part: Crew | CrewGroup) -> CrewGroup:
    if isinstance(part, Crew):
        raise TypeError("a squad is a group")
    return part


def wrongs(given: Sequence[SessionMachine], squads: Sequence[Squad], decision: Decision) -> list[str]:
    """What is wrong with a decision, from its input alone; for gangs of one crew and pods of whole devices."""
    known, places = pods_of(squads), after(squads, decision)
    return [
        *_over_commitment(given, known, places),
        *_partial(squads, places),
        *_for_nothing(known, decision),
    ]


def _over_commitment(
    given: Sequence[SessionMachine], known: Mapping[str, tuple[SessionPod, Squad]], places: Mapping[str, Where]
) -> Iterable[str]:
    """Neither now, when what leaves is still there and only `Bound` has come, nor once all have come and gone."""
    for node in given:
        now, later = Counter[str](), Counter[str]()
        for name, (pod, _) in known.items():
            asked = Counter({**pod.template.requests, "pods": 1})
            here = pod.node == node.name and pod.state in {PodState.RUNNING, PodState.TERMINATING, PodState.STUCK}
            now += asked if here else Counter()
            where = places[name]
            if where.node == node.name and where.state in {*HOLDING, PodState.STUCK}:
                later += asked
                now += asked if where.state is PodState.BOUND else Counter()
        for moment, held in (("now", now), ("later", later)):
            for resource, amount in held.items():
                if amount > node.capacity.get(resource, 0):
                    yield f"{node.name} {moment}: {amount} of {resource}"


def _partial(squads: Sequence[Squad], places: Mapping[str, Where]) -> Iterable[str]:
    for squad in squads:
        for crew in crews_of(squad.root):
            before = sum(1 for pod in crew.pods if pod.state is PodState.RUNNING)
            count = sum(1 for pod in crew.pods if places[pod.name].state in HOLDING)
            if 0 < count < crew.at_least and count != before:
                yield f"{squad.name}: {count} of {crew.at_least}"


def _for_nothing(known: Mapping[str, tuple[SessionPod, Squad]], decision: Decision) -> Iterable[str]:
    came = {known[name][1].name for name in (*decision.bound, *decision.nominated)}
    for entry in decision.evicted:
        if entry.beneficiary not in came and entry.reason != "stale":
            yield f"{entry.pod} was evicted for {entry.beneficiary or 'nobody'}, of which nothing came"
        if not known[entry.pod][1].preemptible and entry.reason != "stale":
            yield f"{entry.pod} may not be preempted"
