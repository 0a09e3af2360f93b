"""A topology is asked for places with requests; assignments and refusals come back. All are plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fleet.snapshot import PodSet
from model.kinds import RequirementTerm, Toleration
from model.quantity import Resources

DomainValues = tuple[str, ...]
"""Label values that name a domain, coarse to fine."""


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """The feature gates of Kueue for topologies; the defaults are those of the cases that must match upstream."""

    least_free_first: bool = True
    """Pod sets that ask for no level fill the domains with the least room first (TASProfileMixed)."""
    balanced: bool = False
    """Pod sets that prefer a level are spread evenly over few of its domains (TASBalancedPlacement)."""
    weigh_preferences: bool = False
    """Preferred node affinity comes before room (TASRespectNodeAffinityPreferred)."""


@dataclass(frozen=True, slots=True)
class TopologyFlavor:
    """A flavor whose pods are placed on a topology, with the nodes that are its own and how they are grouped."""

    name: str
    levels: tuple[str, ...]
    """Node labels, coarse to fine. Only where the last is `kubernetes.io/hostname` is a single host chosen."""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    """Added to those of every pod."""


@dataclass(frozen=True, slots=True)
class PreferredSchedulingTerm:
    """A term of preferred node affinity: hosts that meet all `terms` gain `weight` (1..100)."""

    weight: int
    terms: tuple[RequirementTerm, ...]


@dataclass(frozen=True, slots=True)
class TopologyAssignment:
    """An assignment says which domains the pods of one pod set go to."""

    pod_set: str
    flavor: str
    requests: Resources
    """Of one pod."""
    levels: tuple[str, ...]
    """What the values in `domains` are values of: the host alone where the topology ends in hosts, else every level."""
    domains: Mapping[DomainValues, int]
    """Domain -> pods, in the order of all level values."""

    @property
    def count(self) -> int:
        """The number of pods placed."""
        return sum(self.domains.values())

    def without(self, host: str) -> tuple["TopologyAssignment", int]:
        """The assignment less its domain on a host, and how many pods that was."""
        kept = {values: count for values, count in self.domains.items() if values[-1] != host}
        return replace(self, domains=kept), self.count - sum(kept.values())

    def first(self, count: int) -> "TopologyAssignment":
        """The first `count` pods of the assignment."""
        kept = {}
        for values, pods in self.domains.items():
            if (given := min(pods, count)) > 0:
                kept[values] = given
                count -= given
        return replace(self, domains=kept)


@dataclass(frozen=True, slots=True)
class PreviousAssignment:
    """The assignment that pods take over from a smaller or larger run of the same set (Kueue, elastic workloads).

    More pods than before: only the difference is placed. Fewer: the last domains go first. The caller has given the
    old assignment back.
    """

    assignment: TopologyAssignment


@dataclass(frozen=True, slots=True)
class NodeReplacement:
    """The assignment of running pods of which those on `host` have lost their place (Kueue, unhealthy nodes).

    `movable` is False for a pod that is its own workload: it cannot outlive its host, so its assignment stays.
    The caller leaves what still runs charged.
    """

    assignment: TopologyAssignment
    host: str
    movable: bool = True


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """A pod set that asks for places in a flavor. Sets of one `PodSet.group` and flavor are placed together."""

    pod_set: PodSet
    flavor: str
    preferred: tuple[PreferredSchedulingTerm, ...] = ()
    previous: PreviousAssignment | NodeReplacement | None = None
    """Where its pods run already, or did."""


class RefusalKind(StrEnum):
    """The kinds of reasons why no places were found."""

    NO_REQUEST = "NoTopologyRequest"
    """The set asks for no level at all, not even for any."""
    UNKNOWN_LEVEL = "UnknownLevel"
    INVALID_SLICES = "InvalidSlices"
    """A slice size that is not positive, does not divide, or a slice level coarser than what it is a slice of."""
    INVALID_GROUP = "InvalidGroup"
    """Not one leader and one set of workers."""
    NO_DOMAINS = "NoDomains"
    """No node of the flavor carries the labels."""
    NO_ROOM = "NoRoom"
    STALE = "StalePlacement"
    """A domain that was to be kept is gone."""


@dataclass(frozen=True, slots=True)
class TopologyRefusal:
    """A refusal names the pod set that found no place, and why. Equal worlds give equal refusals."""

    kind: RefusalKind
    pod_set: str
    detail: str = ""
    """The level, label or domain the kind is about."""
    fitting: int = 0
    """For `NO_ROOM`: how many units have a place."""
    wanted: int = 0
    """For `NO_ROOM`: how many units were asked for."""
    unit: str = "pod"
    hosts: int = 0
    """For `NO_ROOM`: hosts (or lowest domains) of the flavor."""
    excluded: tuple[tuple[str, int], ...] = ()
    """For `NO_ROOM`: why hosts take no pod -> how many, sorted."""

    @property
    def message(self) -> str:
        """A sentence that says what would change it."""
        return _SENTENCES[self.kind].format(
            it=self,
            units=self.unit if self.wanted == 1 else f"{self.unit}s",
            held=f"no {self.unit}" if not self.fitting else f"only {self.fitting}",
            why="" if not self.excluded else "; " + ", ".join(f"{n} of {self.hosts} {why}" for why, n in self.excluded),
        )


_SENTENCES = {
    RefusalKind.NO_REQUEST: "pod set {it.pod_set} names no topology level: require one, prefer one, or ask for any",
    RefusalKind.UNKNOWN_LEVEL: "the topology of the flavor has no level {it.detail}",
    RefusalKind.INVALID_SLICES: "the slices of pod set {it.pod_set} cannot be cut: {it.detail}",
    RefusalKind.INVALID_GROUP: "the group of pod set {it.pod_set} is not one leader with its workers: {it.detail}",
    RefusalKind.NO_DOMAINS: "no ready node of the flavor carries the label {it.detail}",
    RefusalKind.NO_ROOM: "of {it.wanted} {units} of pod set {it.pod_set} {held} can be placed {it.detail}{why}",
    RefusalKind.STALE: "domain {it.detail}, where pods of set {it.pod_set} run, is not in the topology any more",
}


@dataclass(frozen=True, slots=True)
class TopologyResult:
    """The result has the assignments of the pod sets in the order asked, up to the first that was refused."""

    assignments: tuple[TopologyAssignment, ...] = ()
    refusal: TopologyRefusal | None = None

    def of(self, pod_set: str) -> TopologyAssignment | None:
        """The assignment of the pod set of that name."""
        return next((assignment for assignment in self.assignments if assignment.pod_set == pod_set), None)
