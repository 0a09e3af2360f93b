"""Scores places by what pods would like: preferences forbid nothing, and cost nothing.

Sources: the Score plugins NodeAffinity, InterPodAffinity and PodTopologySpread (`pkg/scheduler/framework/plugins`).
As there, each is scaled to 0..100 among the places to choose from; their weights in the default profile are equal.
Where kube-scheduler also looks at how full nodes are, here what a place costs other work decides (`opportunity_cost`),
as does the price of what is bought: a preference only chooses among what is free, and among purchases of equal cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleet.placement.cluster_state import NodeSlot
from fleet.placement.domains import EqualPods, domain_of
from fleet.placement.neighbours import Neighbours
from fleet.snapshot import PodSet
from fleet.snapshot.affinity import selects_any
from fleet.snapshot.constraints import PodConstraints, PreferredNodes, PreferredPods, TopologySpreadConstraint, selected

MOST = 100
"""The score of the best place, by each kind of preference."""
Rating = Callable[[NodeSlot], int]
"""What a place is worth to one kind of preference, before it is compared with others."""


@dataclass(frozen=True, slots=True)
class PodScore:
    """A `PodScore` compares places for one pod more of a set, always as the cluster state is now."""

    ratings: tuple[Rating, ...]

    def best(self, slots: Sequence[NodeSlot]) -> NodeSlot:
        """Returns the slot with the highest score; of equal ones the first."""
        scores = self.of(slots)
        return slots[max(range(len(slots)), key=lambda n: (scores[n], -n))]

    def worth(self, slot: NodeSlot) -> int:
        """Returns what the pods that stand on a slot like about it, to compare whole plans by."""
        return sum(rating(slot) for rating in self.ratings)

    def of(self, slots: Sequence[NodeSlot]) -> list[int]:
        """Returns the score of each slot."""
        total = [0] * len(slots)
        for rating in self.ratings:
            found = [rating(slot) for slot in slots]
            least, spread = min(found), max(found) - min(found)
            if spread:
                total = [sum_ + MOST * (one - least) // spread for sum_, one in zip(total, found, strict=True)]
        return total


def pod_score(neighbours: Neighbours, pod_set: PodSet) -> PodScore | None:
    """Returns the score for the pods of a set; None where they prefer nothing."""
    constraints = pod_set.constraints
    if not prefers(constraints):
        return None
    kind, ratings = neighbours.kind_of(pod_set), list[Rating]()
    if constraints.preferred_nodes:
        ratings.append(_nodes(constraints.preferred_nodes))
    if constraints.preferred_pods:
        ratings.append(_pods(neighbours, constraints.preferred_pods))
    if soft := [constraint for constraint in constraints.spread if not constraint.hard]:
        ratings.append(_evenly(neighbours, kind, soft))
    return PodScore(tuple(ratings))


def prefers(constraints: PodConstraints) -> bool:
    """Returns whether pods would rather stand somewhere than elsewhere."""
    if constraints.preferred_nodes or constraints.preferred_pods:
        return True
    return bool(constraints.spread) and any(not constraint.hard for constraint in constraints.spread)


def _nodes(preferred: Sequence[PreferredNodes]) -> Rating:
    return lambda slot: sum(it.weight for it in preferred if selects_any((it.terms,), slot.labels))


def _pods(neighbours: Neighbours, preferred: Sequence[PreferredPods]) -> Rating:
    """Every pod that is meant counts; the weight of those to keep away from is negative."""
    counted = [
        (it.weight, neighbours.counts(("term", it.term), it.term.topology_key, _means(neighbours, it)))
        for it in preferred
    ]
    return lambda slot: sum(weight * counts.at(slot) for weight, counts in counted)


def _means(neighbours: Neighbours, preferred: PreferredPods) -> Callable[[EqualPods], bool]:
    return lambda other: neighbours.means(preferred.term, other)


def _evenly(neighbours: Neighbours, kind: EqualPods, soft: Sequence[TopologySpreadConstraint]) -> Rating:
    """The fewer of its kind in the domain the better; a place without the label comes last."""
    counted = []
    for constraint in soft:

        def means(other: EqualPods, constraint: TopologySpreadConstraint = constraint) -> bool:
            chosen = constraint.selector
            return bool(chosen) and other.namespace == kind.namespace and selected(chosen or (), other.labels)

        asked = "soft spread", constraint, kind.namespace
        counted.append(neighbours.counts(asked, constraint.topology_key, means))
    worst = 1 << 20
    return lambda slot: -sum(worst if domain_of(slot, counts.key) is None else counts.at(slot) for counts in counted)
