"""One Job and its pods under a script: what the simulated Job controller, pod GC, taint manager and TTL make of it.

A row passes when, with the recorder's fake kubelet and the script's requests at the recorded times,

* the Job's changes are those recorded, in order: suspension, parallelism, generation, deletion and finalizers, and the
  whole status (conditions without times; uncounted pods as counts), each within `MACHINE_S` of its time. `startTime`
  and `completionTime`, whole seconds, may differ by one;
* every pod's changes are those recorded, in order: phase, finalizers, deletion and its grace, conditions, and at its
  birth name, labels, annotations, owner, index, gates; within `MACHINE_S`, or `KUBELET_S` once it has a node, for then
  the recorder's kubelet, which was late at times, writes too, and at the end, for which the garbage collector takes its
  time. What the Job did and what a pod did stand in the order that their times give them. Pods that only their name
  tells apart may change places;
* every request is answered with the recorded code and reason (messages: the API server's rows);
* nodes look as they did whenever the recorder looked.

What the recorder did not write down is tried: the fraction of a second at which the Job was created, from which all
back-offs count (twenty values), and whether its controllers' batches and its kubelet came 0.02 s late (four pairs). The
phases of the two loops (node monitor 5 s, pod GC 20 s) are read off the row.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.conformance.cases import Case, Result
from tests.conformance.kubernetes.job_script import JobScript, RecordersMachine
from tests.conformance.kubernetes.timelines import Event, Obj, differences

ANSWERS = frozenset({"timeline"})
DECLINED: Mapping[str, str] = {}
_STEPS = 20
_LATE = ((0.0, 0.0), (0.02, 0.0), (0.0, 0.02), (0.02, 0.02))


def run(case: Case) -> Obj:
    """The timeline, of all machines the one that comes closest."""
    best: list[Event] = []
    least = -1
    for machine in _machines(case["timeline"]):
        came = JobScript(case, machine).play()
        wrong = len(differences(case["timeline"], came))
        if least < 0 or wrong < least:
            best, least = came, wrong
        if not wrong:
            break
    return {"timeline": best}


def _machines(recorded: Sequence[Event]) -> Iterator[RecordersMachine]:
    """Every machine that the recorder's may have been."""
    monitor_at = _first(recorded, lambda event: {"type": "Ready", "status": "False"} in (event.get("conditions") or ()))
    collector_at = _first(recorded, lambda event: event["phase"] == "Failed" and _by_collector(event))
    for batch_late_s, kubelet_late_s in _LATE:
        for step in range(_STEPS):
            fraction = (0.5 + step / _STEPS) % 1
            yield RecordersMachine(fraction, batch_late_s, kubelet_late_s, monitor_at, collector_at)


def _first(recorded: Sequence[Event], which: Callable[[Event], bool]) -> float:
    return next((float(event["t"]) for event in recorded if event["on"] == "pod" and which(event)), 0.0)


def _by_collector(event: Event) -> bool:
    """No kubelet says that a pod failed and leaves it Ready."""
    said = {(condition["type"], condition["status"]) for condition in event.get("conditions") or ()}
    reasons = {condition.get("reason") for condition in event.get("conditions") or ()}
    return ("Ready", "True") in said or "DeletionByPodGC" in reasons


def same(case: Case, got: object) -> bool:
    """Whether nothing differs."""
    return isinstance(got, dict) and not differences(case["timeline"], got["timeline"])


def table(results: Sequence[Result]) -> list[str]:
    """A line a family of ids."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        mark = "declined" if result.id in DECLINED else "passed" if result.passed else "failed"
        counts.setdefault(result.id.partition("-")[0], Counter()).update([mark])
    total: Counter[str] = sum(counts.values(), Counter())
    columns = ("passed", "failed", "declined")
    lines = [f"{'family':<12}" + "".join(f"{column:>12}" for column in columns)]
    for name, count in [*counts.items(), ("all", total)]:
        lines.append(f"{name:<12}" + "".join(f"{count[column]:>12}" for column in columns))
    return lines
