"""Judges whether a pod may stand on a node by labels, affinity and taints, Muster's own among them, not by room."""

from collections.abc import Iterable, Mapping

from fleet.snapshot import PodSet
from model.kinds import RequirementTerm, Taint, Toleration
from model.requirements import Requirements

HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


def tolerates(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Returns whether every hard taint is tolerated."""
    known = tuple(tolerations)
    return all(any(t.tolerates(taint) for t in known) for taint in taints if taint.effect in HARD_EFFECTS)


def selects(pod_set: PodSet, labels: Mapping[str, str]) -> bool:
    """Returns whether node selector and required node affinity hold on a node with exactly these labels."""
    for key, value in pod_set.node_selector.items():
        if labels.get(key) != value:
            return False
    alternatives = pod_set.required_affinity
    return not alternatives or any(requirements_of(terms).matches(labels) for terms in alternatives)


def requirements_of(terms: tuple[RequirementTerm, ...]) -> Requirements:
    """Returns terms, all of which must hold, as requirements."""
    return Requirements.from_terms(terms)


def admits(
    pod_set: PodSet, tolerations: tuple[Toleration, ...], labels: Mapping[str, str], taints: tuple[Taint, ...]
) -> bool:
    """Returns whether a pod of the set, with the flavor's `tolerations` added, may stand on a machine with these."""
    return (not taints or tolerates(taints, (*pod_set.tolerations, *tolerations))) and selects(pod_set, labels)


UNREGISTERED = Taint(key="muster.dev/unregistered", effect="NoExecute")
"""Set on every new machine until its node is registered, so that nothing runs on a node without a claim."""


DISRUPTED = Taint(key="muster.dev/disrupted", effect="NoSchedule")
"""Set on a machine that is leaving."""


RECUTTING = Taint(key="muster.dev/recutting", effect="NoSchedule")
"""Set on a machine whose GPUs are being partitioned anew."""


OWN_KEYS = frozenset({UNREGISTERED.key, DISRUPTED.key, RECUTTING.key})


EPHEMERAL_KEYS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    }
)
"""Taints that the system removes by itself once the node is well."""


EPHEMERAL_PREFIX = "readiness.k8s.io/"
