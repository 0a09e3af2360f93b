"""How evenly pods must be spread over domains (plugin PodTopologySpread, `whenUnsatisfiable: DoNotSchedule`)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from providers.sim.controllers.filters.bound_pods import hard_constraints
from providers.sim.controllers.filters.state import NodeCheck, NodeRefusal, SchedulingState
from providers.sim.controllers.matching import selector_matches, selects, untolerated
from providers.sim.controllers.objects import Obj, labels_of
from providers.sim.controllers.scheduling import REPELLING, SchedulableNode

_NO_DOMAIN = NodeRefusal(("node(s) didn't match pod topology spread constraints (missing required label)",))
_SKEWED = NodeRefusal(("node(s) didn't match pod topology spread constraints",), final=False)


@dataclass(frozen=True, slots=True)
class SpreadCounts:
    """One constraint with what stands in each domain already."""

    key: str
    most: int
    """The most pods, counting this one if it is meant, that a domain may hold."""
    itself: int
    domains: Mapping[str, int]

    def refusal(self, node: SchedulableNode) -> NodeRefusal | None:
        """Whether one pod more in the domain of this node is too many."""
        domain = node.labels.get(self.key)
        if domain is None:
            return _NO_DOMAIN
        return _SKEWED if self.domains.get(domain, 0) + self.itself > self.most else None


def topology_spread(pod: Obj, state: SchedulingState) -> NodeCheck | None:
    """All constraints that must hold; what they count is as of now."""
    constraints = hard_constraints(pod["spec"])
    if not constraints:
        return None
    keys = [constraint["topologyKey"] for constraint in constraints]
    nodes = [node for node in state.nodes.values() if all(key in node.labels for key in keys)]
    counted = [_counted(constraint, pod, nodes, state) for constraint in constraints]
    return lambda node: next((no for counts in counted if (no := counts.refusal(node))), None)


def _counted(constraint: Obj, pod: Obj, nodes: Sequence[SchedulableNode], state: SchedulingState) -> SpreadCounts:
    key, selector = constraint["topologyKey"], constraint.get("labelSelector")
    standing = _standing(constraint, pod, state)
    domains: Counter[str] = Counter()
    for node in nodes:
        if _included(constraint, pod["spec"], node):
            domains[node.labels[key]] += standing[node.name]
    least = min(domains.values(), default=0)
    if len(domains) < (constraint.get("minDomains") or 1):
        least = 0
    itself = int(selector_matches(selector, labels_of(pod)))
    return SpreadCounts(key, constraint["maxSkew"] + least, itself, domains)


def _standing(constraint: Obj, pod: Obj, state: SchedulingState) -> Counter[str]:
    """Pods that count, by node: of the same namespace, not on their way out. An empty selector counts nobody."""
    selector = constraint.get("labelSelector") or {}
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return Counter()
    namespace = pod["metadata"].get("namespace") or ""
    return Counter(
        other.node for other in state.bound.selected(selector) if other.namespace == namespace and not other.terminating
    )


def _included(constraint: Obj, spec: Obj, node: SchedulableNode) -> bool:
    """Whether a node counts as part of its domain, by the two inclusion policies."""
    by_affinity = constraint.get("nodeAffinityPolicy") or "Honor"
    if by_affinity == "Honor" and not selects(spec, node.labels, node.name):
        return False
    by_taints = constraint.get("nodeTaintsPolicy") or "Ignore"
    return by_taints == "Ignore" or untolerated(spec, node.taints, REPELLING) is None
