"""What a purchase is decided from: pods by what they ask, pools as templates, machines with offerings, standing nodes.

Amounts are canonical (`model.quantity`: milli-CPU, whole units of all else), prices USD an hour, times epoch seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from model.kinds import Taint, Toleration
from model.quantity import Resources
from model.requirements import Requirements

PODS = "pods"
"""The resource every pod takes one of, whether it asks or not."""
NODES = "nodes"
"""Among the limits of a pool: how many machines it may have."""
RESERVED = "reserved"
"""The capacity type of what is paid for already."""

ANYTHING = Requirements()

T = TypeVar("T")


class HostPort(NamedTuple):
    """A port of the machine itself; an empty `ip` means all of its addresses."""

    port: int
    protocol: str = "TCP"
    ip: str = ""

    def conflicts(self, other: "HostPort") -> bool:
        """Whether both cannot be on one machine."""
        same_port = (self.port, self.protocol) == (other.port, other.protocol)
        return same_port and (not self.ip or not other.ip or self.ip == other.ip)


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint (`core/v1 TopologySpreadConstraint`)."""

    key: str
    selector: Requirements | None
    """Over pod labels: empty selects every pod of the namespace, None selects none."""
    max_skew: int = 1
    hard: bool = True
    """DoNotSchedule; otherwise ScheduleAnyway, which is held like a hard one until it is relaxed."""
    min_domains: int | None = None
    honor_affinity: bool = True
    """`nodeAffinityPolicy`: count only what stands where the pod's node affinity lets it."""
    honor_taints: bool = False
    """`nodeTaintsPolicy`: count only what stands behind taints that the pod tolerates."""
    match_label_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Peers:
    """A term of pod affinity or anti-affinity. No `namespaces` = that of the pod."""

    key: str
    selector: Requirements | None
    namespaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Weighted(Generic[T]):
    """A preference, 1..100."""

    weight: int
    term: T


@dataclass(frozen=True, slots=True)
class PodSpecification:
    """All that matters of a pod. Pods that share one object, or whose asks are equal, are decided as one class."""

    requests: Resources = field(default_factory=dict)
    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    selector: Requirements = ANYTHING
    """The node selector."""
    required: tuple[Requirements, ...] = ()
    """Terms of required node affinity: one of them."""
    preferred: tuple[Weighted[Requirements], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spreads: tuple[Spread, ...] = ()
    affinity: tuple[Peers, ...] = ()
    preferred_affinity: tuple[Weighted[Peers], ...] = ()
    anti_affinity: tuple[Peers, ...] = ()
    preferred_anti_affinity: tuple[Weighted[Peers], ...] = ()
    volumes: tuple[Requirements, ...] = ()
    """Where its volumes can be: one of them, the first that goes."""
    host_ports: frozenset[HostPort] = frozenset()


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that waits. `name` is unique (`namespace/name`)."""

    name: str
    ask: PodSpecification
    created_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReferenceOffering:
    """One way to buy a machine. `labels` are those beyond zone, capacity type and reservation."""

    capacity_type: str
    zone: str
    price_usd_h: float
    available: bool = True
    reservation_id: str = ""
    reserved_left: int = 0
    """Machines the reservation still has."""
    labels: Mapping[str, str] = field(default_factory=dict)
    allocatable: Resources | None = None
    """Amounts that differ from those of the machine when bought this way."""


@dataclass(frozen=True, slots=True)
class MachineType:
    """A machine type. Zones and capacity types not in `requirements` are those of its available offerings."""

    name: str
    requirements: Requirements
    """The labels a machine of it can have."""
    capacity: Resources
    """What limits count."""
    allocatable: Resources
    """What pods and daemons can request."""
    offerings: tuple[ReferenceOffering, ...]


@dataclass(frozen=True, slots=True)
class Daemon:
    """A DaemonSet: on every new machine that one of `alternatives` (none = no condition) and the taints let it on."""

    name: str
    requests: Resources
    alternatives: tuple[Requirements, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class PoolTemplate:
    """A pool from which machines are bought."""

    name: str
    machines: tuple[MachineType, ...]
    requirements: Requirements = ANYTHING
    """Those of the pool and its labels; `minValues` may stand in them."""
    taints: tuple[Taint, ...] = ()
    """Without startup taints, which nobody has to tolerate."""
    weight: int = 0
    remaining: Resources | None = None
    """Limits less what the pool has; None = no limits."""
    daemons: tuple[Daemon, ...] = ()


@dataclass(frozen=True, slots=True)
class Resident:
    """`count` equal pods that stand on a node and stay."""

    labels: Mapping[str, str]
    namespace: str = "default"
    count: int = 1
    anti_affinity: tuple[Peers, ...] = ()
    host_ports: frozenset[HostPort] = frozenset()


@dataclass(frozen=True, slots=True)
class KarpenterNode:
    """A machine that stands or is on its way."""

    name: str
    labels: Mapping[str, str]
    free: Resources
    """Allocatable less what runs there and less the daemons still to come; pods included."""
    taints: tuple[Taint, ...] = ()
    """Without startup and ephemeral taints while it is not initialized."""
    initialized: bool = True
    residents: tuple[Resident, ...] = ()
