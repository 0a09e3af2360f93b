"""Machines that stand or are on their way: pods go there first, initialized ones before others (`existingnode.go`)."""

from collections.abc import Iterable, Mapping

import numpy as np

from bench.reference.karpenter.buy.demands import Demand
from bench.reference.karpenter.buy.fronts import MANY
from bench.reference.karpenter.buy.groups import Filter, TopologyGroup
from bench.reference.karpenter.buy.order import by_readiness
from bench.reference.karpenter.buy.rows import Bools, Ints, vector
from bench.reference.karpenter.buy.taints import tolerated
from bench.reference.karpenter.buy.values import KarpenterNode
from model.kinds import Taint
from model.labels import HOSTNAME
from model.requirements import STRICT, Requirement, Requirements


class NodeColumns:
    """The nodes as columns. `keys` are the labels any pod asks for: nodes equal in those are of one kind."""

    def __init__(self, nodes: Iterable[KarpenterNode], resources: tuple[str, ...], keys: frozenset[str]) -> None:
        self.nodes = by_readiness(nodes)
        free = [vector(node.free, resources) for node in self.nodes]
        self.free: Ints = np.array(free, dtype=np.int64).reshape(len(free), len(resources)).T.copy()
        self._kinds, self.kind = _kinds(self.nodes, keys)
        self._accepted: dict[int, Bools] = {}
        self._domains: dict[str, tuple[list[str], Ints]] = {}
        self._passed: dict[Filter, Bools] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def fill(self, demand: Demand, count: int) -> tuple[Ints, Ints]:
        """Seats for up to `count` equal pods, each on the first node that takes it: nodes, and how many on each."""
        room = self._room(demand)
        before = np.cumsum(room) - room
        given = np.clip(count - before, 0, room)
        found = np.flatnonzero(given)
        given = given[found]
        self.free[:, found] -= demand.take[:, None] * given
        for group in demand.counted:
            self._record(group, found, given)
        return found, given

    def domains(self, key: str) -> tuple[list[str], Ints]:
        """The values the nodes have for `key`, and for each node the index of its own; -1 where it has none."""
        found = self._domains.get(key)
        if found is None:
            values = [_domain(node, key) for node in self.nodes]
            names = sorted({value for value in values if value is not None})
            index = {name: position for position, name in enumerate(names)}
            own = np.array([-1 if value is None else index[value] for value in values], dtype=np.int64)
            found = self._domains[key] = (names, own)
        return found

    def passed(self, counts_on: Filter) -> Bools:
        """The nodes a spread counts on."""
        found = self._passed.get(counts_on)
        if found is None:
            judged = [counts_on.passes(Requirements.from_labels(n.labels), n.taints, bought=False) for n in self.nodes]
            found = self._passed[counts_on] = np.array(judged, dtype=np.bool_)
        return found

    def count(self, group: TopologyGroup, nodes: Ints, pods: Ints) -> None:
        """Count pods that stand, or have just been given a seat."""
        self._record(group, nodes, pods)

    def _record(self, group: TopologyGroup, found: Ints, given: Ints) -> None:
        if group.key.counts_on != Filter():
            passed = self.passed(group.key.counts_on)[found]
            found, given = found[passed], given[passed]
        if group.by_host:
            group.record_nodes(found, given)
            return
        names, own = self.domains(group.key.key)
        inside = own[found]
        sums = np.bincount(inside[inside >= 0], weights=given[inside >= 0], minlength=len(names))
        for position in np.flatnonzero(sums):
            group.record((names[position],), int(sums[position]))

    def _room(self, demand: Demand) -> Ints:
        room = self._accepting(demand)
        for resource, each in enumerate(demand.take):
            left = self.free[resource]
            room = np.minimum(room, left // each if each else np.where(left < 0, 0, MANY))
        room = np.maximum(room, 0)
        for group, mine in demand.rules:
            if group.by_host:
                room = np.minimum(room, group.room(group.on_nodes, mine=mine))
            else:
                room = np.where(self._allowed(demand, group, mine=mine), room, 0)
        return room

    def _accepting(self, demand: Demand) -> Ints:
        accepted = self._accepted.get(demand.number)
        if accepted is None:
            judged = [
                tolerated(taints, demand.ask.tolerations)
                and any(labels.compatible(wanted, undefined=STRICT) for wanted in demand.wanted)
                for labels, taints in self._kinds
            ]
            accepted = self._accepted[demand.number] = np.array(judged, dtype=np.bool_)[self.kind]
        return np.where(accepted, MANY, 0)

    def _allowed(self, demand: Demand, group: TopologyGroup, *, mine: bool) -> Bools:
        """Nodes in a domain the group allows; a node without the label is in none."""
        names, own = self.domains(group.key.key)
        pod = demand.strict.of(group.key.key)
        fits = [bool(group.allowed(pod, Requirement.one_of(name), mine=mine)) for name in names]
        return np.array([*fits, False], dtype=np.bool_)[own]


def _domain(node: KarpenterNode, key: str) -> str | None:
    """The node's domain; its name stands in for a hostname it does not have yet."""
    return node.labels.get(key, node.name if key == HOSTNAME else None)


def _kinds(
    nodes: Iterable[KarpenterNode], keys: frozenset[str]
) -> tuple[list[tuple[Requirements, tuple[Taint, ...]]], Ints]:
    numbers: dict[tuple[tuple[tuple[str, str], ...], tuple[Taint, ...]], int] = {}
    kind = []
    for node in nodes:
        seen = _projected({HOSTNAME: node.name, **node.labels}, keys)
        kind.append(numbers.setdefault((seen, node.taints), len(numbers)))
    kinds = [(Requirements.from_labels(dict(seen)), taints) for seen, taints in numbers]
    return kinds, np.array(kind, dtype=np.int64)


def _projected(labels: Mapping[str, str], keys: frozenset[str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, labels[key]) for key in keys if key in labels))
