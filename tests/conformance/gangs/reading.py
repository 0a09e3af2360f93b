"""Reads from a run of the agent what the judges of rows look at: who runs where, who was evicted and for whom."""

import re
from collections.abc import Iterator
from typing import Final

from fleet.actions import EvictPod, ReleasePod, SaveGang
from fleet.plan.simulated_run import SimulatedRun, simulate
from fleet.reasons import Reason
from fleet.snapshot import Gang, GangState, Pod, Snapshot
from model.fleet import Fleet
from tests.conformance.cases import Case
from tests.conformance.gangs.cluster import ROW_POD
from tests.conformance.gangs.scene import PodNow, RowDecision, RowEviction, SceneRound, group_of, initial

HORIZON_S: Final = 1800.0
AT_THE_GATE: Final = frozenset({
    Reason.EXCEEDS_MAX_QUOTA, Reason.WAITING_FOR_QUOTA, Reason.RESOURCE_QUOTA, Reason.QUEUE_STOPPED,
    Reason.QUEUE_NOT_FOUND, Reason.DEACTIVATED,
})  # fmt: skip
"""What keeps a group from its queue's or its namespace's quota, wherever its pods could stand."""
_FOR: Final = re.compile(r"makes room for \S*/(\S+)")


def play(fleet: Fleet, snapshot: Snapshot) -> SimulatedRun:
    """Lets the agent run a cluster to rest."""
    return simulate(fleet, snapshot, horizon_s=HORIZON_S)


def round_of(case: Case, run: SimulatedRun) -> SceneRound:
    """Returns the whole run as one round: the pods of the row before it, after it, and what changed."""
    before = initial(case)
    places = {_row_name(pod): pod.node for pod in _pods(run.end) if pod.node and not pod.deleting}
    evicted = {entry.pod: entry for entry in evictions(case, run)}
    shaken = {before[name].node for name in evicted} | {pod.node for pod in before.values() if "Releasing" in pod.state}
    after = dict(before)
    bound, nominated, moved = (dict[str, str]() for _ in range(3))
    for name, was in before.items():
        node = places.get(name, "")
        if was.state == "Pending" and node:
            into, word = (nominated, "Pipelined") if node in shaken else (bound, "Binding")
            into[name] = node
            after[name] = PodNow(word, node)
        elif name in evicted and node and node != was.node:
            moved[name] = node
            after[name] = PodNow("Pipelined", node)
        elif name in evicted and not node:
            after[name] = PodNow("Releasing", was.node)
    gone = tuple(evicted[name] for name in sorted(evicted) if name not in moved or case["semantics"] == "volcano")
    phases = {gang.name: _phase(gang) for gang in run.end.gangs.values()}
    return SceneRound(before, after, RowDecision(bound, nominated, moved, gone), phases)


def _phase(gang: Gang) -> str:
    """Returns the phase that Volcano's PodGroup would have: its gate looks at queues and quotas, not at machines."""
    if gang.state is GangState.ADMITTED:
        return "Running"
    return "Pending" if gang.reason in AT_THE_GATE else "Inqueue"


def thrown_out(run: SimulatedRun) -> list[str]:
    """Returns the pods that the run itself had started, and that were told to go again."""
    started, found = set[str](), []
    for timed in run.actions:
        action = timed.action
        if isinstance(action, ReleasePod):
            started.add(_row_name(action.pod))
        elif isinstance(action, EvictPod) and _row_name(action.pod) in started:
            found.append(f"{_row_name(action.pod)} was started and evicted again")
    return found


def settled(case: Case, run: SimulatedRun) -> dict[str, str]:
    """Returns pod -> its node at the end, empty for one that waits."""
    found = dict.fromkeys(group_of(case), "")
    found.update({_row_name(pod): pod.node for pod in _pods(run.end) if pod.node and not pod.deleting})
    return found


def evictions(case: Case, run: SimulatedRun) -> Iterator[RowEviction]:
    """Yields the pods that ran and were told to go, with the reason and the gang that was to gain by it."""
    whose, before, groups = dict[str, str](), initial(case), group_of(case)
    for timed in run.actions:
        action = timed.action
        if isinstance(action, SaveGang) and _goes(action.gang):
            whose[action.gang.uid] = _message(action.gang)
        if isinstance(action, EvictPod) and action.pod.job_uid:
            name = _row_name(action.pod)
            if before[name].state in {"Running", "Bound", "Binding", "Allocated"}:
                message = whose.get(action.pod.job_uid, "")
                found = _FOR.search(message)
                yield RowEviction(name, groups[name], "preempted" if found else "stale", found[1] if found else "")


def _goes(gang: Gang) -> bool:
    return gang.state is GangState.EVICTING or bool(gang.leaving)


def _message(gang: Gang) -> str:
    return gang.eviction.message if gang.eviction and gang.state is GangState.EVICTING else gang.message


def _pods(snapshot: Snapshot) -> Iterator[Pod]:
    for pods in snapshot.job_pods.values():
        yield from pods


def _row_name(pod: Pod) -> str:
    return dict(pod.labels).get(ROW_POD, pod.name)
