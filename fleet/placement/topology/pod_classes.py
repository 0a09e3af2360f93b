"""The counts of every class of pods asked for lately are kept, so that the next search need not count anew.

A class of pods is what requests the same and matches the same nodes (Kueue `podSetMatchKey`). Which nodes match is a
matter of their labels and taints alone; how many pods fit there is counted beside it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from fleet.placement.topology.capacity import CapacityMatrix
from fleet.placement.topology.counts import LeafCounts, LevelCounts, count_levels
from fleet.placement.topology.domains import BoolArray, DomainTree, IntArray, SliceSpec
from fleet.placement.topology.request import PreferredSchedulingTerm
from fleet.snapshot import Node, PodSet
from fleet.snapshot.affinity import requirements_of, selects, tolerates
from model.kinds import RequirementTerm, Toleration

CLASSES = 64
"""Classes of pods that are kept; one takes some 8 bytes a host and array, with a leader five arrays."""
SLICINGS = 4
"""Ways to slice the pods of a class that are kept."""

LeafRange = tuple[int, int]
"""Leaves from the first to before the second."""
MatchKey = tuple[tuple[tuple[str, str], ...], tuple[tuple[RequirementTerm, ...], ...], tuple[Toleration, ...]]
"""Node selector, required affinity and tolerations of pods."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class AffinityScores:
    """The scores of leaves: the summed weights of the preferred terms they meet, shape (leaves,)."""

    preferred: tuple[PreferredSchedulingTerm, ...]
    leaves: IntArray


@dataclass(frozen=True, slots=True)
class MatchingLeaves:
    """The leaves in `mask`, shape (leaves,), match a class; `excluded` counts the others by reason, sorted."""

    mask: BoolArray
    excluded: tuple[tuple[str, int], ...] = ()


class PodClassCache:
    """The cache has the counts of one flavor by class of pods, as many as were asked for lately."""

    def __init__(
        self,
        tree: DomainTree,
        capacity: CapacityMatrix,
        leaf_of_row: IntArray,
        nodes: Sequence[Node],
        tolerations: tuple[Toleration, ...],
    ) -> None:
        """`leaf_of_row`: row of the matrix -> leaf of the tree, -1 for rows that are none of its own."""
        self._tree = tree
        self._capacity = capacity
        self._leaf_of_row = leaf_of_row
        self._hosts = [nodes[leaf.rows[0]] for leaf in tree.leaves] if tree.on_hosts else []
        self._tolerations = tolerations
        self._matching: dict[MatchKey, MatchingLeaves] = {}
        self._scores: dict[tuple[PreferredSchedulingTerm, ...], AffinityScores] = {}
        self._counts: dict[object, PodClassCounts] = {}

    def of(self, pods: PodSet, leader: PodSet | None, *, empty: bool) -> "PodClassCounts":
        """The counts of pods like these, up to date. `empty`: as if no gang took anything."""
        key = (_class_of(pods), None if leader is None else _class_of(leader), empty)
        counts = self._counts.get(key)
        if counts is None:
            matching = self._matching_leaves(pods)
            mine = (self._capacity.columns_of(pods.requests), matching.mask)
            its = None
            if leader is not None:
                its = (self._capacity.columns_of(leader.requests), self._matching_leaves(leader).mask)
            leaves = LeafCounts(self._capacity, self._leaf_of_row, mine, its, empty=empty)
            counts = PodClassCounts(self._tree, leaves, matching, led=leader is not None)
            _keep(self._counts, key, counts, CLASSES)
        counts.leaves.refresh()
        return counts

    def scores(self, preferred: tuple[PreferredSchedulingTerm, ...]) -> AffinityScores:
        """How much the leaves are preferred; nothing where the lowest domains are not hosts."""
        if not self._tree.on_hosts:
            preferred = ()
        found = self._scores.get(preferred)
        if found is None:
            nothing = np.zeros(len(self._tree.leaves), np.int64)
            found = AffinityScores(preferred, affinity_scores(self._hosts, preferred) if preferred else nothing)
            _keep(self._scores, preferred, found, CLASSES)
        return found

    def _matching_leaves(self, pod_set: PodSet) -> MatchingLeaves:
        """Suitable leaves; where the lowest domains are not hosts, labels and taints of hosts are not looked at."""
        if not self._tree.on_hosts:
            return MatchingLeaves(np.ones(len(self._tree.leaves), np.bool_))
        key = match_key(pod_set)
        found = self._matching.get(key)
        if found is None:
            found = matching_hosts(self._hosts, pod_set, self._tolerations)
            _keep(self._matching, key, found, CLASSES)
        return found


@dataclass(slots=True)
class PodClassCounts:
    """The counts of pods of one class (and their leader): on leaves, and above for each way to slice the pods."""

    tree: DomainTree
    leaves: LeafCounts
    matching: MatchingLeaves
    led: bool
    _kept: dict[tuple[SliceSpec, tuple[PreferredSchedulingTerm, ...]], tuple[int, list[LevelCounts]]] = field(
        default_factory=dict
    )

    def levels(self, slicing: SliceSpec, scores: AffinityScores, within: LeafRange | None) -> list[LevelCounts]:
        """Every level, coarsest first; `within`: as if only these leaves were there. Callers do not change them."""
        if within is not None:
            return self._counted(slicing, scores, within)
        key = (slicing, scores.preferred)
        version, levels = self._kept.get(key, (-1, []))
        if version != self.leaves.version:
            levels = self._counted(slicing, scores, (0, len(self.leaves.pods)))
            _keep(self._kept, key, (self.leaves.version, levels), SLICINGS)
        return levels

    def _counted(self, slicing: SliceSpec, scores: AffinityScores, within: LeafRange) -> list[LevelCounts]:
        inside, leaves = slice(*within), self.leaves
        arrays = [leaves.pods, leaves.led_pods, leaves.leads]
        if within != (0, len(leaves.pods)):
            arrays = [np.zeros_like(array) for array in arrays]
            for array, counted in zip(arrays, (leaves.pods, leaves.led_pods, leaves.leads), strict=True):
                array[inside] = counted[inside]
        pods, led_pods, leads = arrays
        score = scores.leaves * self.matching.mask if scores.preferred else scores.leaves
        return count_levels(self.tree, LevelCounts(pods, pods, led_pods, led_pods, leads, score), slicing, led=self.led)

    def excluded(self) -> tuple[tuple[str, int], ...]:
        """Why leaves take no pod of the class -> how many; first what they are, then what they are short of."""
        return (*self.matching.excluded, *self.leaves.short_of())


def match_key(pod_set: PodSet) -> MatchKey:
    """Equal for pod sets that match the same hosts."""
    return tuple(sorted(pod_set.node_selector.items())), pod_set.required_affinity, pod_set.tolerations


def _class_of(pod_set: PodSet) -> tuple[tuple[tuple[str, int], ...], MatchKey]:
    """Equal for pods that request the same and match the same hosts."""
    return tuple(sorted(pod_set.requests.items())), match_key(pod_set)


def matching_hosts(nodes: Sequence[Node], pod_set: PodSet, tolerations: tuple[Toleration, ...]) -> MatchingLeaves:
    """Hosts whose hard taints are tolerated and that node selector and required affinity admit."""
    tolerated = (*pod_set.tolerations, *tolerations)
    keys = {*pod_set.node_selector, *_keys(term for terms in pod_set.required_affinity for term in terms)}
    reasons = _by_kind(nodes, keys, lambda node: _exclusion(node, pod_set, tolerated))
    counted = Counter(found for found in reasons if found)
    return MatchingLeaves(np.array([not found for found in reasons], np.bool_), tuple(sorted(counted.items())))


def _exclusion(node: Node, pod_set: PodSet, tolerated: tuple[Toleration, ...]) -> str:
    """Why a host takes no pod of the set whatever is free; empty when it may."""
    if not tolerates(node.taints, tolerated):
        return "have a taint that is not tolerated"
    return "" if selects(pod_set, node.labels) else "do not match its node selector or affinity"


def affinity_scores(nodes: Sequence[Node], preferred: tuple[PreferredSchedulingTerm, ...]) -> IntArray:
    """The sum of the weights of the terms each host meets."""
    weighted = [(it.weight, requirements_of(it.terms)) for it in preferred if it.weight and it.terms]

    def score(node: Node) -> int:
        return sum(weight for weight, wanted in weighted if wanted.matches(node.labels))

    keys = set(_keys(term for it in preferred for term in it.terms))
    return np.array(_by_kind(nodes, keys, score), np.int64)


def _keys(terms: Iterable[RequirementTerm]) -> Iterable[str]:
    return (term.key for term in terms)


def _by_kind(nodes: Sequence[Node], keys: set[str], of: Callable[[Node], V]) -> list[V]:
    """`of` each node, computed once for nodes with equal taints and equal values of the labels it looks at."""
    ordered = sorted(keys)
    known: dict[object, V] = {}
    found = []
    for node in nodes:
        kind = (node.taints, tuple(node.labels.get(key) for key in ordered))
        if kind not in known:
            known[kind] = of(node)
        found.append(known[kind])
    return found


def _keep(kept: dict[K, V], key: K, value: V, most: int) -> None:
    """Keeps a value; the one kept first goes when there are too many."""
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]
