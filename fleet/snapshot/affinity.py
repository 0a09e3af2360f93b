"""Judges whether a pod may stand on a node by labels, affinity and taints, Muster's own among them, not by room."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from fleet.snapshot import PodSet
from fleet.snapshot.constraints import PodAffinityTerm
from model.kinds import RequirementTerm, Taint, Toleration
from model.labels import normalize
from model.requirements import Requirement, Requirements

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
    return selects_any(pod_set.required_affinity, labels)


def selects_any(alternatives: Sequence[tuple[RequirementTerm, ...]], labels: Mapping[str, str]) -> bool:
    """Returns whether any one of the terms holds on a node with exactly these labels; without any, all nodes do.

    Each requirement of a term is asked by itself, as kube-scheduler does it. Merged as Karpenter does it, `Exists` and
    `NotIn` on one label would admit a node without the label.
    """
    return not alternatives or any(all(_holds(one, labels) for one in terms) for terms in alternatives)


def _holds(term: RequirementTerm, labels: Mapping[str, str]) -> bool:
    requirement, value = _requirement(term), labels.get(term.key)
    if value is None:
        value = labels.get(normalize(term.key))
    return requirement.allows_absent if value is None else requirement.has(value)


@lru_cache(maxsize=4096)
def _requirement(term: RequirementTerm) -> Requirement:
    return Requirement.of(term.operator, term.values)


def requirements_of(terms: tuple[RequirementTerm, ...]) -> Requirements:
    """Returns terms, all of which must hold, as requirements, of which Karpenter asks whether they can meet others."""
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


FOR_GANGS = Taint(key="muster.dev/gang", effect="NoSchedule")
"""Set on a machine that comes for a gang until the gang's pods are there: kube-scheduler would give their places to
pods that are not pinned, whomever the pool serves."""


OWN_KEYS = frozenset({UNREGISTERED.key, DISRUPTED.key, RECUTTING.key, FOR_GANGS.key})


EPHEMERAL_KEYS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    }
)
"""Taints that the system removes by itself once the node is well."""


EPHEMERAL_PREFIX = "readiness.k8s.io/"


def is_ephemeral(taint: Taint) -> bool:
    """Returns whether a taint goes by itself once a node is up."""
    return taint.key in EPHEMERAL_KEYS or taint.key.startswith(EPHEMERAL_PREFIX)


def near_each_other(pods: PodSet) -> tuple[PodAffinityTerm, ...]:
    """Returns the required pod affinity of pods that look for their own kind; none where they look for others."""
    if not (terms := pods.constraints.affinity):
        return ()
    own = dict(pods.labels)
    return terms if all(term.means(pods.namespace, own, {}) for term in terms) else ()
