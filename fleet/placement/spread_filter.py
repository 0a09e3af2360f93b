"""Filters places by topology spread, as kube-scheduler does (plugin PodTopologySpread, 1.36)."""

from dataclasses import dataclass

from fleet.placement.domains import DomainCounts, EqualPods, NodeObstacle, Place, domain_of
from fleet.placement.neighbours import Neighbours
from fleet.snapshot import PodSet
from fleet.snapshot.affinity import selects, tolerates
from fleet.snapshot.constraints import PodSelector, TopologySpreadConstraint, selected

SKEWED = NodeObstacle("spec.topologySpreadConstraints", "didn't match pod topology spread constraints")
NO_DOMAIN = NodeObstacle(SKEWED.field, f"{SKEWED.words} (missing required label)")


@dataclass(frozen=True, slots=True)
class EvenSpread:
    """`EvenSpread` is one constraint with what stands in each domain."""

    constraint: TopologySpreadConstraint
    counts: DomainCounts
    itself: int
    """1 if the constraint counts the pods that carry it, else 0."""

    @classmethod
    def of(
        cls,
        neighbours: Neighbours,
        pod_set: PodSet,
        kind: EqualPods,
        constraint: TopologySpreadConstraint,
        hard: tuple[TopologySpreadConstraint, ...],
    ) -> "EvenSpread":
        """Returns it; only places with the labels of all constraints count, and those that the policies include."""
        keys = tuple(sorted({each.topology_key for each in hard}))

        def includes(place: Place) -> bool:
            if any(domain_of(place, key) is None for key in keys):
                return False
            if constraint.honors_affinity and not selects(pod_set, place.labels):
                return False
            return not constraint.honors_taints or tolerates(place.taints, pod_set.tolerations)

        def means(other: EqualPods) -> bool:
            return counts_for(constraint.selector, other, kind.namespace)

        asked = (
            "spread",
            constraint,
            kind.namespace,
            keys,
            tuple(sorted(pod_set.node_selector.items())),
            pod_set.required_affinity,
            pod_set.tolerations if constraint.honors_taints else (),
        )
        counts = neighbours.counts(asked, constraint.topology_key, means, includes)
        return cls(constraint, counts, int(means(kind)))

    def obstacle(self, place: Place) -> NodeObstacle | None:
        """Returns why one pod more in the domain of a place would be too many; None where it would not."""
        domain = domain_of(place, self.constraint.topology_key)
        if domain is None:
            return NO_DOMAIN
        return None if self.counts.pods.get(domain, 0) + self.itself <= self.most else SKEWED

    @property
    def most(self) -> int:
        """Returns the most pods that a domain may hold now."""
        few = len(self.counts.places) < self.constraint.min_domains
        return self.constraint.max_skew + (0 if few else self.counts.fewest())


def counts_for(selector: PodSelector | None, kind: EqualPods, namespace: str) -> bool:
    """Returns whether a spread constraint of a pod in `namespace` counts pods of this class; an empty one counts none.

    (`pkg/scheduler/framework/plugins/podtopologyspread/common.go`, `countPodsMatchSelector`)
    """
    return bool(selector) and kind.namespace == namespace and not kind.leaving and selected(selector or (), kind.labels)
