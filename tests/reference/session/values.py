"""What a session is given and what it decides, as plain values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.snapshot import PodSet
from model.kinds import Taint
from model.quantity import Resources


class PodState(StrEnum):
    """What becomes of a pod. The first six are given, the last four decided."""

    PENDING = "Pending"
    RUNNING = "Running"
    TERMINATING = "Terminating"
    """Its room will be free soon."""
    STUCK = "Stuck"
    """It should have ended and has not: its room counts as taken for good."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    BOUND = "Bound"
    NOMINATED = "Nominated"
    """It gets room that others are still leaving."""
    MOVED = "Moved"
    """It ran, and gets another node."""
    EVICTED = "Evicted"


ACTIVE = frozenset({PodState.RUNNING, PodState.BOUND, PodState.NOMINATED, PodState.MOVED})
"""States that count towards the minimum of a gang and against the share of its queue."""


@dataclass(frozen=True, slots=True)
class SessionMachine:
    """A node. `capacity` is what pods of this session may use together, `pods` included."""

    name: str
    capacity: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    open: bool = True
    """Whether further pods may be put on it."""
    rank: int = 0
    """Machines of a lower rank are filled first."""
    gpu_memory_mib: int = 0
    """Of each of its GPUs; what a request for GPU memory is measured against."""


@dataclass(frozen=True, slots=True)
class GpuShare:
    """A part of each of `devices` GPUs: either a fraction in millionths or memory in MiB."""

    millionths: int = 0
    memory_mib: int = 0
    devices: int = 1


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Pods whose labels match must (or, if `apart`, must not) run in the same domain of the node label `key`."""

    key: str
    labels: Mapping[str, frozenset[str]]
    """Label -> values that match."""
    apart: bool = False


@dataclass(frozen=True, slots=True)
class SessionPod:
    """One pod. Equal templates are treated as one class."""

    name: str
    template: PodSet
    state: PodState = PodState.PENDING
    node: str = ""
    evictable: bool = True
    may_evict: bool = True
    """Whether others may be evicted for it."""
    priority: int | None = None
    """Its own, where it differs from the gang's; a pod never makes one of the same or a higher priority leave."""
    order: int = 0
    """Lower starts earlier and leaves later."""
    gpu: GpuShare | None = None
    devices: tuple[str, ...] = ()
    """GPUs it already has parts of."""
    labels: Mapping[str, str] = field(default_factory=dict)
    neighbours: tuple[Neighbour, ...] = ()


@dataclass(frozen=True, slots=True)
class Within:
    """Keep together: inside one domain of `required`, if named, and as far as possible of `preferred`.

    Levels are named as in the `SessionTopology`.
    """

    topology: str
    required: str = ""
    preferred: str = ""


@dataclass(frozen=True, slots=True)
class Crew:
    """Pods of one role. At least `at_least` of them start together, the rest joins singly."""

    name: str
    pods: tuple[SessionPod, ...]
    at_least: int
    within: Within | None = None


@dataclass(frozen=True, slots=True)
class CrewGroup:
    """Crews and groups of them. It stands when `at_least` of its parts and `pods_at_least` pods do."""

    name: str
    parts: "tuple[Crew | CrewGroup, ...]"
    at_least: int
    pods_at_least: int = 0
    within: Within | None = None


def crews_of(part: Crew | CrewGroup) -> Iterator[Crew]:
    """All crews below, in order."""
    if isinstance(part, Crew):
        yield part
        return
    for below in part.parts:
        yield from crews_of(below)


@dataclass(frozen=True, slots=True)
class Squad:
    """A gang with its pods, as the session sees it."""

    name: str
    queue: str
    root: CrewGroup
    priority: int = 0
    preemptible: bool = True
    created: int = 0
    """Position by age, oldest first."""
    queued: bool = True
    """Whether it has passed the gate of its queue; else it starts nothing."""
    floor: Resources = field(default_factory=dict)
    """What the gate counts it for."""
    may_evict: bool = True
    """Whether others may be evicted for it already."""
    stale: bool = False
    """Running below its minimum for longer than it is granted."""
    leaving: bool = False
    """Its owner is being deleted: nothing of it starts."""
    ran_for_s: float | None = None
    """How long it has been running; None = not known, which protects nothing."""
    lost_work: float = 0.0
    """What evicting all of it would throw away (GPU-seconds since its last checkpoint)."""


@dataclass(frozen=True, slots=True)
class SessionTopology:
    """Domains as one map of node -> domain for each level, widest level first. Unknown nodes belong nowhere."""

    name: str
    levels: tuple[str, ...]
    domains: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class SessionEviction:
    """A pod that leaves, why, and for which gang (empty when for none)."""

    pod: str
    squad: str
    reason: str
    beneficiary: str = ""


@dataclass(frozen=True, slots=True)
class SessionPlacement:
    """Where a pod goes, and the GPUs it gets a part of."""

    node: str
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """All that changes, and who goes on waiting, by the unique names of the pods."""

    bound: Mapping[str, SessionPlacement]
    nominated: Mapping[str, SessionPlacement]
    moved: Mapping[str, SessionPlacement]
    evicted: tuple[SessionEviction, ...]
    queued: tuple[str, ...]
    """Squads let through the gate of their queue."""
    pending: tuple[str, ...]
