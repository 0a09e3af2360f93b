"""The protocol of "Beware of Fragmentation": a trace's pods in random order, placed where they fit, never moved."""

import csv
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.reference.fragmentation import WHOLE_MILLI, Measure, Request
from bench.reference.packer import FreeNode, PackedPlace, Packer, states_of

REQUESTED = 1.3
"""GPUs requested over all of a run, by the GPUs there are."""
_PODS, _NODES = "pod_list_", "*node_list*.csv"

Choice = Callable[[Packer, Request], PackedPlace | None]


class NoTrace(ValueError):
    """The files are not those of a trace."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes and pods, both in the order of their names."""

    name: str
    nodes: tuple[FreeNode, ...]
    pods: tuple[Request, ...]

    @property
    def gpu_milli(self) -> int:
        """All GPUs there are, in thousandths."""
        return sum(sum(node.devices) for node in self.nodes)

    @property
    def mix(self) -> Counter[Request]:
        """How often each request occurs in the list."""
        return Counter(self.pods)


@dataclass(frozen=True, slots=True)
class PackingOutcome:
    """What one run has come to."""

    seed: int
    pods: int
    placed: int
    allocated_pct: float
    """Of all GPUs, what the pods that were placed ask for."""
    held_pct: float
    """What they hold: more, where a share is rounded up to a replica."""
    fragmented_pct: float
    slowest_s: float
    seconds: float


def read(pod_list: Path) -> Trace:
    """A pod list and the node list beside it; raises `NoTrace` where they do not make a trace."""
    lists = sorted(pod_list.parent.glob(_NODES))
    if len(lists) != 1:
        raise NoTrace(f"{len(lists)} node lists ({_NODES}) beside {pod_list}, not one")
    try:
        nodes = sorted((_machine(row) for row in _rows(lists[0])), key=lambda node: node.name)
        pods = sorted((row["name"], _request(row)) for row in _rows(pod_list))
    except (KeyError, ValueError) as error:
        raise NoTrace(f"{pod_list} and {lists[0]} are no lists of pods and nodes: {error!r}") from error
    trace = Trace(pod_list.stem.rpartition(_PODS)[2], tuple(nodes), tuple(request for _, request in pods))
    if not trace.gpu_milli or not any(pod.gpus for pod in trace.pods):
        raise NoTrace(f"no GPUs in {lists[0]}, or no pod that asks for one in {pod_list}")
    return trace


def arrivals(trace: Trace, seed: int) -> list[Request]:
    """The list shuffled, then cut or filled up by random draws until 130 % of the GPUs are requested."""
    draw = random.Random(seed)
    pods = list(trace.pods)
    draw.shuffle(pods)
    wanted = REQUESTED * trace.gpu_milli
    requested = sum(pod.total_gpu_milli for pod in pods)
    if requested > wanted:
        while requested > wanted:
            requested -= pods.pop(draw.randrange(len(pods))).total_gpu_milli
        return pods
    while (requested := requested + (pod := draw.choice(trace.pods)).total_gpu_milli) <= wanted:
        pods.append(pod)
    return pods


def replicas_for(pod: Request, offered: Sequence[int]) -> int:
    """Of GPUs that are offered so many times, those with the smallest replica that is no less than the pod's share.

    1 = a whole GPU, which is always offered.
    """
    return max(times for times in (1, *offered) if times * pod.gpu_milli <= WHOLE_MILLI) if pod.shared else 1


def rounded(pod: Request, offered: Sequence[int]) -> Request:
    """The pod with its share rounded up to such a replica; as it is where nothing is offered but exact shares."""
    if not (offered and pod.shared):
        return pod
    return replace(pod, gpu_milli=WHOLE_MILLI // replicas_for(pod, offered))


def fill(
    trace: Trace, measure: Measure, choose: Choice, fragmented: Measure, seed: int, offered: Sequence[int] = ()
) -> PackingOutcome:
    """One run; `fragmented` is a measure whose worth is minus the fragmented millionths of a GPU.

    Shares are `rounded` up to the replicas that are `offered`.
    """
    packer = Packer(trace.nodes, measure)
    pods = arrivals(trace, seed)
    placed, allocated, held, slowest_s, began_s = 0, 0, 0, 0.0, time.perf_counter()
    for pod in pods:
        asked_s, taken = time.perf_counter(), rounded(pod, offered)
        place = choose(packer, taken)
        slowest_s = max(slowest_s, time.perf_counter() - asked_s)
        if place is not None:
            packer.take(taken, place)
            placed += 1
            allocated += pod.total_gpu_milli
            held += taken.total_gpu_milli
    seconds = time.perf_counter() - began_s
    return PackingOutcome(
        seed=seed,
        pods=len(pods),
        placed=placed,
        allocated_pct=100 * allocated / trace.gpu_milli,
        held_pct=100 * held / trace.gpu_milli,
        fragmented_pct=fragmented_pct(packer.machines(), fragmented),
        slowest_s=slowest_s,
        seconds=seconds,
    )


def fragmented_pct(machines: Sequence[FreeNode], measure: Measure) -> float:
    """The part of the idle GPUs that is fragmented; 0 where none is idle."""
    idle_milli = sum(sum(machine.devices) for machine in machines)
    worth = -int(measure.worth(states_of(machines, measure)).sum())
    return worth / (10 * idle_milli) if idle_milli else 0.0


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)


def _machine(row: dict[str, str]) -> FreeNode:
    devices = (WHOLE_MILLI,) * int(row["gpu"])
    return FreeNode(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), devices, row["model"])


def _request(row: dict[str, str]) -> Request:
    gpus = int(row["num_gpu"])
    allowed = tuple(sorted(filter(None, (row.get("gpu_spec") or "").split("|"))))
    gpu_milli = int(row["gpu_milli"]) if gpus else WHOLE_MILLI
    return Request(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, gpu_milli, allowed)
