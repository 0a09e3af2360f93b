"""Defines what pods ask of other pods, of host ports and of volumes, by which kube-scheduler filters and scores nodes.

The names are those of `core/v1`. Node selector, required node affinity and tolerations stand in the `PodSet` itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from fleet.snapshot.devices import DeviceClaim
from model.kinds import RequirementTerm
from model.upstream.selectors import LabelSelectorRequirement

PodLabels = tuple[tuple[str, str], ...]
"""Labels of a pod, sorted by key."""
PodSelector = tuple[LabelSelectorRequirement, ...]
"""All requirements hold; without any, every pod is selected."""


def selected(selector: PodSelector, labels: Mapping[str, str]) -> bool:
    """Returns whether an object with these labels is selected."""
    return all(requirement.matches(labels) for requirement in selector)


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """A `PodAffinityTerm` selects pods, and names the node label whose value the pod has to share with them, or not.

    `matchLabelKeys` and `mismatchLabelKeys` are merged into the selector, as the API server does it.
    """

    topology_key: str
    selector: PodSelector | None
    """Of the pods meant; None selects none."""
    namespaces: frozenset[str] = frozenset()
    """Namespaces of the pods meant; the pod's own where its spec names none and has no namespace selector."""
    namespace_selector: PodSelector | None = None
    """Selects further namespaces by their labels; None selects none."""

    def means(self, namespace: str, labels: Mapping[str, str], namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """Returns whether it is about pods of a namespace with these labels. `namespaces` gives their labels."""
        if namespace not in self.namespaces:
            chosen = self.namespace_selector
            if chosen is None or not selected(chosen, namespaces.get(namespace, {})):
                return False
        return self.selector is not None and selected(self.selector, labels)


class PreferredPods(NamedTuple):
    """`PreferredPods` are pods that a pod would like to stand beside, or far from where the weight is negative."""

    weight: int
    term: PodAffinityTerm


class PreferredNodes(NamedTuple):
    """`PreferredNodes` are nodes that a pod would like to stand on (preferred node affinity)."""

    weight: int
    terms: tuple[RequirementTerm, ...]
    """All of them hold."""


@dataclass(frozen=True, slots=True)
class TopologySpreadConstraint:
    """A `TopologySpreadConstraint` bounds by how many pods the domains of a node label may differ.

    The defaults are those of `core/v1`.
    """

    topology_key: str
    max_skew: int
    selector: PodSelector | None
    hard: bool = True
    """Whether it forbids a place (`DoNotSchedule`) or only counts against it (`ScheduleAnyway`)."""
    min_domains: int = 1
    """While fewer domains are there, the least populated one counts as empty."""
    honors_affinity: bool = True
    """Whether nodes that selector and affinity of the pod rule out are left out of the count (`nodeAffinityPolicy`)."""
    honors_taints: bool = False
    """Whether nodes with a taint that the pod does not tolerate are left out (`nodeTaintsPolicy`)."""


class PodHostPort(NamedTuple):
    """A `PodHostPort` is a port of the node that a pod takes for itself."""

    port: int
    protocol: str = "TCP"
    ip: str = ""
    """Address of the node; empty = all of them (`0.0.0.0` in a pod spec)."""

    def clashes(self, other: "PodHostPort") -> bool:
        """Returns whether two pods with these cannot share a node."""
        alike = (self.port, self.protocol) == (other.port, other.protocol)
        return alike and (self.ip == other.ip or "" in (self.ip, other.ip))


class EphemeralClaim(NamedTuple):
    """An `EphemeralClaim` is a volume claim that comes with its pod (`volumes[].ephemeral`), and most often goes."""

    volume: str
    """Name of the volume within the pod; the claim is called `<pod>-<volume>`."""
    storage_class: str
    """Empty = the default class."""
    claim: str = ""
    """Name of a claim that outlives its pod, and may be there already (`volumeClaimTemplates` of a StatefulSet)."""


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """`PodConstraints` are all a pod asks beyond node selector, required node affinity, tolerations and amounts."""

    affinity: tuple[PodAffinityTerm, ...] = ()
    """Required pod affinity: all of them hold."""
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    """Required pod anti-affinity: none of the pods it selects may be in the domain, whoever comes first."""
    spread: tuple[TopologySpreadConstraint, ...] = ()
    host_ports: tuple[PodHostPort, ...] = ()
    claims: tuple[str, ...] = ()
    """Names of the PersistentVolumeClaims it mounts, in its own namespace."""
    ephemeral: tuple[EphemeralClaim, ...] = ()
    preferred_nodes: tuple[PreferredNodes, ...] = ()
    preferred_pods: tuple[PreferredPods, ...] = ()
    devices: tuple[DeviceClaim, ...] = ()
    """What each of the pods claims; of a claim that pods share one of them."""

    @property
    def mounts(self) -> bool:
        """Returns whether a pod mounts volumes that are attached to its machine."""
        return bool(self.claims or self.ephemeral)

    @property
    def required(self) -> bool:
        """Returns whether any of them can forbid a place."""
        if self.affinity or self.anti_affinity or self.host_ports or self.mounts or self.devices:
            return True
        return bool(self.spread) and any(constraint.hard for constraint in self.spread)


UNCONSTRAINED: Final = PodConstraints()


class UnsupportedConstraint(NamedTuple):
    """An `UnsupportedConstraint` is a field that would decide about places and that is not honoured yet: a refusal."""

    path: str
    """Of the field in the pod template: `spec.resourceClaims[0]`."""
    words: str
    """What to do instead, or why not."""
