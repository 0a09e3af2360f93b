"""Which pods want, or do not want, to share a domain with which (plugin InterPodAffinity).

`matchLabelKeys` and `mismatchLabelKeys` are in the selectors already: admission merges them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from providers.sim.controllers.filters.bound_pods import BoundPod, required_terms
from providers.sim.controllers.filters.state import NodeCheck, NodeRefusal, SchedulingState
from providers.sim.controllers.matching import selector_matches
from providers.sim.controllers.objects import Obj, labels_of
from providers.sim.controllers.scheduling import SchedulableNode

DomainCounts = Counter[tuple[str, str]]
"""(topology key, its value) -> pods."""
_AFFINITY = NodeRefusal(("node(s) didn't match pod affinity rules",))
_ANTI_AFFINITY = NodeRefusal(("node(s) didn't match pod anti-affinity rules",), final=False)
_OTHERS = NodeRefusal(("node(s) didn't satisfy existing pods anti-affinity rules",), final=False)


def inter_pod_affinity(pod: Obj, state: SchedulingState) -> NodeCheck | None:
    """The pod's own required terms, and the anti-affinity of the pods that stand."""
    near, far = required_terms(pod["spec"], "podAffinity"), required_terms(pod["spec"], "podAntiAffinity")
    repelled = _repelled(pod, state)
    if not near and not far and not repelled:
        return None
    wanted = _wanted(pod, near, state)
    alone = bool(near) and not wanted and _selects_itself(pod, near, state)
    unwanted = _unwanted(pod, far, state)

    def check(node: SchedulableNode) -> NodeRefusal | None:
        if near and not _has_company(near, node, wanted, alone=alone):
            return _AFFINITY
        if any(unwanted[key, node.labels[key]] for key in _keys(far) if key in node.labels):
            return _ANTI_AFFINITY
        if any(pair in repelled for pair in node.labels.items()):
            return _OTHERS
        return None

    return check


def is_repelled(pod: Obj, state: SchedulingState) -> bool:
    """Whether a pod that stands wants not to be with this one."""
    namespace, labels = _identity(pod)
    return any(
        _term_selects(held.term, held.namespace, namespace, labels, state)
        for held in state.bound.anti_affinity.values()
    )


def _identity(pod: Obj) -> tuple[str, Mapping[str, str]]:
    return pod["metadata"].get("namespace") or "", labels_of(pod)


def _term_selects(term: Obj, owner: str, namespace: str, labels: Mapping[str, str], state: SchedulingState) -> bool:
    """Whether a term of a pod in namespace `owner` means a pod of `namespace` with these labels."""
    return _reaches(term, owner, namespace, state) and selector_matches(term.get("labelSelector"), labels)


def _reaches(term: Obj, owner: str, namespace: str, state: SchedulingState) -> bool:
    """Whether a term of a pod in namespace `owner` is about pods of `namespace`."""
    names, selector = term.get("namespaces") or (), term.get("namespaceSelector")
    if not names and selector is None:
        return namespace == owner
    return namespace in names or selector_matches(selector, state.namespace_labels(namespace))


def _meant(term: Obj, owner: str, state: SchedulingState) -> Iterable[BoundPod]:
    """The bound pods that a term of a pod in `owner` means."""
    selected = state.bound.selected(term.get("labelSelector"))
    return [other for other in selected if _reaches(term, owner, other.namespace, state)]


def _wanted(pod: Obj, terms: Sequence[Obj], state: SchedulingState) -> DomainCounts:
    """Per domain of each term, the pods that all terms mean: a pod that one of them does not mean is no company."""
    counts: DomainCounts = Counter()
    if not terms:
        return counts
    owner, first, rest = _identity(pod)[0], terms[0], terms[1:]
    for other in _meant(first, owner, state):
        if all(_term_selects(term, owner, other.namespace, other.labels, state) for term in rest):
            for term in terms:
                _count(counts, other.node, term, state)
    return counts


def _unwanted(pod: Obj, terms: Sequence[Obj], state: SchedulingState) -> DomainCounts:
    counts: DomainCounts = Counter()
    for term in terms:
        for other in _meant(term, _identity(pod)[0], state):
            _count(counts, other.node, term, state)
    return counts


def _count(counts: DomainCounts, node_name: str, term: Obj, state: SchedulingState) -> None:
    node, key = state.nodes.get(node_name), term["topologyKey"]
    if node is not None and key in node.labels:
        counts[key, node.labels[key]] += 1


def _repelled(pod: Obj, state: SchedulingState) -> set[tuple[str, str]]:
    """The domains in which a pod stands that does not want this one there."""
    namespace, labels = _identity(pod)
    counts: DomainCounts = Counter()
    for held in state.bound.anti_affinity.values():
        if _term_selects(held.term, held.namespace, namespace, labels, state):
            for node in held.nodes:
                _count(counts, node, held.term, state)
    return set(counts)


def _selects_itself(pod: Obj, terms: Sequence[Obj], state: SchedulingState) -> bool:
    namespace, labels = _identity(pod)
    return all(_term_selects(term, namespace, namespace, labels, state) for term in terms)


def _has_company(terms: Sequence[Obj], node: SchedulableNode, wanted: DomainCounts, *, alone: bool) -> bool:
    """Company in the domain of every term; `alone`: the first of a series that wants to be with itself starts it."""
    keys = list(_keys(terms))
    if any(key not in node.labels for key in keys):
        return False
    return alone or all(wanted[key, node.labels[key]] for key in keys)


def _keys(terms: Sequence[Obj]) -> Iterable[str]:
    return (term["topologyKey"] for term in terms)
