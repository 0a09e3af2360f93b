"""Which hosts a pod may stand on at all, and how much it likes them. Only host labels and taints count, not room."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fleet.placement.topology.ledger import BoolArray, IntArray
from fleet.placement.topology.values import Preference
from fleet.snapshot import Node, PodSet
from fleet.snapshot.affinity import requirements_of, selects, tolerates
from model.kinds import RequirementTerm, Toleration

T = TypeVar("T")

SuitKey = tuple[tuple[tuple[str, str], ...], tuple[tuple[RequirementTerm, ...], ...], tuple[Toleration, ...]]


@dataclass(frozen=True, slots=True)
class Suit:
    """`mask` says which hosts are suitable, shape (hosts,); `excluded` counts the others by reason, sorted."""

    mask: BoolArray
    excluded: tuple[tuple[str, int], ...] = ()


def suit_key(pod_set: PodSet) -> SuitKey:
    """Equal for pod sets that suit the same hosts."""
    return tuple(sorted(pod_set.node_selector.items())), pod_set.required_affinity, pod_set.tolerations


def suit(nodes: Sequence[Node], pod_set: PodSet, tolerations: tuple[Toleration, ...]) -> Suit:
    """Hosts whose hard taints are tolerated and that node selector and required affinity admit."""
    tolerated = (*pod_set.tolerations, *tolerations)

    def reason(node: Node) -> str:
        if not tolerates(node.taints, tolerated):
            return "have a taint that is not tolerated"
        return "" if selects(pod_set, node.labels) else "do not match its node selector or affinity"

    keys = {*pod_set.node_selector, *_keys(term for terms in pod_set.required_affinity for term in terms)}
    reasons = _by_kind(nodes, keys, reason)
    counted = Counter(found for found in reasons if found)
    return Suit(np.array([not found for found in reasons], np.bool_), tuple(sorted(counted.items())))


def scores(nodes: Sequence[Node], preferences: tuple[Preference, ...]) -> IntArray:
    """The sum of the weights of the preferences each host meets."""
    weighted = [(it.weight, requirements_of(it.terms)) for it in preferences if it.weight and it.terms]

    def score(node: Node) -> int:
        return sum(weight for weight, wanted in weighted if wanted.matches(node.labels))

    keys = set(_keys(term for it in preferences for term in it.terms))
    return np.array(_by_kind(nodes, keys, score), np.int64)


def _keys(terms: Iterable[RequirementTerm]) -> Iterable[str]:
    return (term.key for term in terms)


def _by_kind(nodes: Sequence[Node], keys: set[str], of: Callable[[Node], T]) -> list[T]:
    """`of` each node, computed once for nodes with equal taints and equal values of the labels it looks at."""
    ordered = sorted(keys)
    known: dict[object, T] = {}
    found = []
    for node in nodes:
        kind = (node.taints, tuple(node.labels.get(key) for key in ordered))
        if kind not in known:
            known[kind] = of(node)
        found.append(known[kind])
    return found
