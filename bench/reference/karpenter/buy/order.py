"""Who comes when: pods by size, pools by weight, nodes by name (`queue.go`, `nodepools.go OrderByWeight`)."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from bench.reference.karpenter.buy.values import KarpenterNode, PodSpecification, PoolTemplate, WaitingPod
from model.quantity import CPU


@dataclass(slots=True)
class Run:
    """Pods of one class that follow each other in the queue. `next` counts those that have a place."""

    kind: int
    """Index of its class among the asks."""
    names: list[str]
    next: int = 0

    @property
    def count(self) -> int:
        """Pods still without a place."""
        return len(self.names) - self.next

    def take(self, count: int) -> list[str]:
        """The next `count` of them."""
        taken = self.names[self.next : self.next + count]
        self.next += count
        return taken


def runs_of(pods: Iterable[WaitingPod]) -> tuple[list[PodSpecification], list[Run]]:
    """The distinct asks, and the queue over them.

    CPU, then memory, both descending, then age; among pods equal in all that, classes go whole, the class with the
    lowest name first (upstream: the random uid).
    """
    asks: dict[int, PodSpecification] = {}
    groups: dict[tuple[int, float], list[str]] = {}
    for pod in pods:
        key = (id(pod.ask), pod.created_at_s)
        equal = groups.get(key)
        if equal is None:
            equal = groups[key] = []
            asks[key[0]] = pod.ask
        equal.append(pod.name)
    kinds: dict[tuple[object, ...], int] = {}
    kind_of = {given: kinds.setdefault(identity(ask), len(kinds)) for given, ask in asks.items()}
    distinct: dict[int, PodSpecification] = {}
    for given, ask in asks.items():
        distinct.setdefault(kind_of[given], ask)
    merged: dict[tuple[int, float], list[str]] = {}
    for (given, created_at_s), names in groups.items():
        merged.setdefault((kind_of[given], created_at_s), []).extend(names)
    known = [distinct[kind] for kind in range(len(distinct))]
    return known, _sorted(known, merged)


def _sorted(asks: Sequence[PodSpecification], groups: dict[tuple[int, float], list[str]]) -> list[Run]:
    keyed = []
    for (kind, created_at_s), names in groups.items():
        names.sort()
        requests = asks[kind].requests
        keyed.append((-requests.get(CPU, 0), -requests.get("memory", 0), created_at_s, names[0], Run(kind, names)))
    keyed.sort(key=lambda entry: entry[:4])
    return [entry[4] for entry in keyed]


def identity(ask: PodSpecification) -> tuple[object, ...]:
    """Equal for asks that are decided alike."""
    return (
        tuple(sorted(item for item in ask.requests.items() if item[1])),
        ask.namespace,
        tuple(sorted(ask.labels.items())),
        ask.selector,
        ask.required,
        ask.preferred,
        ask.tolerations,
        ask.spreads,
        ask.affinity,
        ask.preferred_affinity,
        ask.anti_affinity,
        ask.preferred_anti_affinity,
        ask.volumes,
        ask.host_ports,
    )


class PodQueue:
    """The runs in order. What failed goes to the back; it ends when a whole round brought nothing."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._runs = deque((run, -1) for run in runs)
        self._length = sum(run.count for run, _ in self._runs)

    def pop(self) -> Run | None:
        """The next run; None when there is none, or when nothing has changed since it failed."""
        if not self._runs or self._runs[0][1] == self._length:
            return None
        return self._runs.popleft()[0]

    def placed(self, count: int) -> None:
        """So many pods have left the queue for good."""
        self._length -= count

    def push(self, run: Run) -> None:
        """The rest of a run, to the back."""
        self._runs.append((run, self._length))

    def rest(self) -> list[Run]:
        """The runs that are left, in order of their first name."""
        return sorted((run for run, _ in self._runs), key=lambda run: run.names[run.next])


def by_weight(templates: Iterable[PoolTemplate]) -> list[PoolTemplate]:
    """Heaviest first; among equals the name later in the alphabet."""
    return sorted(sorted(templates, key=attrgetter("name"), reverse=True), key=lambda template: -template.weight)


def by_readiness(nodes: Iterable[KarpenterNode]) -> list[KarpenterNode]:
    """Initialized nodes first, then by name."""
    return sorted(nodes, key=lambda node: (not node.initialized, node.name))
