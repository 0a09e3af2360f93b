"""Defines what dcgm-exporter says of GPUs and of who holds them, and keeps what pods made of them over a window.

Memory is bounded: what a pod does with a GPU is counted in a few slots of a window, and so many pods are kept.
"""

from array import array
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, inf
from typing import Final, NamedTuple

BUSY: Final = 0.01
"""A GPU that is less active than this is idle: contexts that are open and do nothing show up to a thousandth."""
FRESH_S: Final = 180.0
"""Readings further apart than this say nothing of the time between, and one older than this nothing of now."""
_WHOLE_DAY: Final = 0.95
"""How active a pod is, is what it did not exceed in this part of the readings; memory has to fit at its most."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """A `GpuReading` is what DCGM says of a GPU, or of a slice of one, that a pod holds."""

    node: str
    gpu: str
    """UUID of the GPU."""
    instance: str
    """Id of the MIG instance; empty for a whole GPU."""
    profile: str
    """`1g.10gb`; empty for a whole GPU."""
    model: str
    """As NVIDIA names it: `NVIDIA A100-SXM4-80GB`."""
    namespace: str
    pod: str
    active: float | None
    """Part of the time, 0 to 1, in which its engines ran; None = not told."""
    used_mib: float | None
    free_mib: float | None
    index: int = -1
    """Of its GPU on the machine; -1 = not told."""


class GpuHolders(NamedTuple):
    """A `GpuHolders` says which pods hold something of each GPU of a machine."""

    at_s: float
    """When its exporter was asked."""
    pods: tuple[frozenset[str], ...]
    """`namespace/pod` of those that hold the GPU, or a slice of it, by the index of the GPU."""
    devices: Mapping[str, int]
    """`namespace/pod` -> how many GPUs and slices it holds."""


class ComplaintKind(StrEnum):
    """A `ComplaintKind` is what DCGM may have against a GPU."""

    XID = "Xid"
    """An error of the driver; the code is its number (DCGM_FI_DEV_XID_ERRORS: the last one)."""
    ROW_REMAP_FAILURE = "RowRemapFailure"
    """A row of its memory is bad and could not be remapped."""
    ROW_REMAP_PENDING = "RowRemapPending"
    """A row is remapped at the next reset."""
    UNCORRECTABLE_ECC = "UncorrectableEcc"
    """Errors of memory that ECC could not mend since the driver was loaded; the code is how many."""
    HEALTH = "DcgmHealth"
    """DCGM's own checks fail; the code is its result (20 = it fails)."""


class GpuComplaint(NamedTuple):
    """A `GpuComplaint` is one thing that DCGM has against a GPU."""

    gpu: str
    """UUID."""
    kind: ComplaintKind
    code: int
    words: str = ""
    """As the exporter puts it; empty where it does not."""


class GpuFault(NamedTuple):
    """A `GpuFault` is a complaint, and since when it has been told without a break (epoch seconds)."""

    since_s: float
    complaint: GpuComplaint


class GpuScrape(NamedTuple):
    """A `GpuScrape` is one answer of an exporter: of one machine, at one instant."""

    readings: tuple[GpuReading, ...] = ()
    complaints: tuple[GpuComplaint, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """A `MeasuredUse` is what one pod used of one GPU or slice over the time that was looked at. Epoch seconds."""

    last: GpuReading
    readings: int
    from_s: float
    until_s: float
    active: float
    """What it did not exceed in 95 % of the readings, 0 to 1."""
    most_mib: float
    mean: float = 0.0
    """How active it was in the mean, 0 to 1."""
    idle_from_s: float | None = None
    """Since when each reading was idle, and none was missing for longer than `FRESH_S`; None = the last was busy."""
    idle_readings: int = 0
    """How many readings that were."""

    @property
    def idle_s(self) -> float:
        """Returns for how long it has done nothing."""
        return 0.0 if self.idle_from_s is None else self.until_s - self.idle_from_s

    @property
    def holds(self) -> str:
        """Returns what it holds, in words."""
        return f"{self.last.profile} of {self.last.model}" if self.last.profile else self.last.model


# -- one pod and one device -------------------------------------------------------------------------------------------

_SLOTS: Final = 6
_LEVELS: Final = 101


@dataclass(slots=True)
class _UseSlot:
    """Some of a window: how often which part of a hundred was active, rounded up."""

    from_s: float
    levels: "array[int]" = field(default_factory=lambda: array("I", [0]) * _LEVELS)
    readings: int = 0
    total: float = 0.0
    most_mib: float = 0.0


class UseTally:
    """A `UseTally` adds up what one pod does with one device; it forgets what is older than its window."""

    def __init__(self, window_s: float = inf) -> None:
        self._slot_s = window_s / _SLOTS
        self._slots: deque[_UseSlot] = deque()
        self._levels: array[int] = array("I", [0]) * _LEVELS
        """Of all slots together."""
        self._last: GpuReading | None = None
        self._idle_from_s: float | None = None
        self._idle_readings = 0
        self.until_s = -inf

    def see(self, at_s: float, reading: GpuReading) -> None:
        """Count a reading that tells of activity and memory; one that is not later than the last is left out."""
        if reading.active is None or reading.used_mib is None or at_s <= self.until_s:
            return
        if not self._slots or at_s - self._slots[-1].from_s >= self._slot_s:
            self._slots.append(_UseSlot(at_s))
            self._drop()
        slot, level = self._slots[-1], min(_LEVELS - 1, ceil(reading.active * (_LEVELS - 1) - 1e-9))
        slot.levels[level] += 1
        self._levels[level] += 1
        slot.readings += 1
        slot.total += reading.active
        slot.most_mib = max(slot.most_mib, reading.used_mib)
        self._count_idle(at_s, reading.active)
        self.until_s, self._last = at_s, reading

    def _count_idle(self, at_s: float, active: float) -> None:
        """Count readings in a row that find it idle; the row begins anew after a gap."""
        if active >= BUSY:
            self._idle_from_s, self._idle_readings = None, 0
        elif self._idle_from_s is None or at_s - self.until_s > FRESH_S:
            self._idle_from_s, self._idle_readings = at_s, 1
        else:
            self._idle_readings += 1

    def _drop(self) -> None:
        while len(self._slots) > _SLOTS + 1:
            for level, count in enumerate(self._slots.popleft().levels):
                self._levels[level] -= count

    def measured(self) -> MeasuredUse | None:
        """Returns what it came to; None before the first reading."""
        if self._last is None:
            return None
        readings = sum(slot.readings for slot in self._slots)
        return MeasuredUse(
            self._last,
            readings,
            self._slots[0].from_s,
            self.until_s,
            _level(self._levels, readings * _WHOLE_DAY),
            max(slot.most_mib for slot in self._slots),
            sum(slot.total for slot in self._slots) / readings,
            self._idle_from_s,
            self._idle_readings,
        )


def holders_of(readings: Sequence[GpuReading], at_s: float) -> GpuHolders | None:
    """Returns who holds the GPUs of one machine; None where its exporter does not tell of each GPU by its index."""
    found: dict[int, set[str]] = {}
    for it in readings:
        found.setdefault(it.index, set()).update({f"{it.namespace}/{it.pod}"} if it.pod else ())
    held = Counter(f"{it.namespace}/{it.pod}" for it in readings if it.pod)
    if not found or sorted(found) != list(range(len(found))):
        return None
    return GpuHolders(at_s, tuple(frozenset(found[index]) for index in range(len(found))), held)


def _all_holders(scrapes: Mapping[str, GpuScrape], at_s: float) -> Mapping[str, GpuHolders]:
    """Returns node -> who holds its GPUs, where that is told of all."""
    told = ((node, holders_of(scrape.readings, at_s)) for node, scrape in sorted(scrapes.items()))
    return {node: found for node, found in told if found is not None}


def _level(counts: Sequence[int], enough: float) -> float:
    below = 0
    for percent, count in enumerate(counts):
        below += count
        if below >= enough - 1e-9:
            return percent / (_LEVELS - 1)
    return 1.0


# -- everything that is read ------------------------------------------------------------------------------------------

MOST_HOLDERS: Final = 10_000
"""Pods and devices that are kept; of more nothing is known."""
FORGOTTEN_AFTER_S: Final = 1800.0
"""What no exporter has told of for so long is gone: pods end, and a machine may fall silent with its fault."""

_Holder = tuple[str, str, str, str, str]
"""Namespace, pod, node, GPU, instance."""
NO_USES: Final[Mapping[str, tuple[MeasuredUse, ...]]] = {}
NO_FAULTS: Final[Mapping[str, tuple[GpuFault, ...]]] = {}


class GpuRecord:
    """A `GpuRecord` keeps what all exporters said: use by pod over a window, and faults by node."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._tallies: dict[_Holder, UseTally] = {}
        self._told: dict[str, tuple[float, tuple[GpuFault, ...]]] = {}
        self.uses: Mapping[str, tuple[MeasuredUse, ...]] = NO_USES
        """`namespace/pod` -> what it used of each of its devices; another mapping after each `take`."""
        self.holders: Mapping[str, GpuHolders] = {}
        """Node -> who holds its GPUs; without machines whose exporter does not tell of every GPU."""
        self.faults: Mapping[str, tuple[GpuFault, ...]] = NO_FAULTS
        """Node -> its faults, the earliest first; the same mapping while they stay as they are."""

    def take(self, scrapes: Mapping[str, GpuScrape], at_s: float) -> None:
        """Count what the exporters of these nodes said. A reading counts for the node whose exporter it comes from."""
        for node, scrape in sorted(scrapes.items()):
            for it in (it for it in scrape.readings if it.pod and it.node == node):
                self._tally(it).see(at_s, it)
            self._told[node] = at_s, self._faults(node, scrape.complaints, at_s)
        self.holders = _all_holders(scrapes, at_s)
        self._forget(at_s)
        self.uses = self._uses()
        if (faults := {node: told for node, (_, told) in sorted(self._told.items()) if told}) != self.faults:
            self.faults = faults

    def _tally(self, it: GpuReading) -> UseTally:
        key = (it.namespace, it.pod, it.node, it.gpu, it.instance)
        found = self._tallies.get(key)
        if found is None:
            found = UseTally(self._window_s)
            if len(self._tallies) < MOST_HOLDERS:
                self._tallies[key] = found
        return found

    def _faults(self, node: str, complaints: Sequence[GpuComplaint], at_s: float) -> tuple[GpuFault, ...]:
        before = {(it.complaint.gpu, it.complaint.kind, it.complaint.code): it.since_s for it in self._known(node)}
        found = (GpuFault(before.get((it.gpu, it.kind, it.code), at_s), it) for it in complaints)
        return tuple(sorted(found))

    def _known(self, node: str) -> tuple[GpuFault, ...]:
        return self._told[node][1] if node in self._told else ()

    def _forget(self, at_s: float) -> None:
        since_s = at_s - FORGOTTEN_AFTER_S
        self._tallies = {key: it for key, it in self._tallies.items() if it.until_s >= since_s}
        self._told = {node: it for node, it in self._told.items() if it[0] >= since_s}

    def _uses(self) -> Mapping[str, tuple[MeasuredUse, ...]]:
        found: dict[str, list[MeasuredUse]] = {}
        for (namespace, pod, *_), tally in sorted(self._tallies.items(), key=lambda it: it[0]):
            if (use := tally.measured()) is not None:
                found.setdefault(f"{namespace}/{pod}", []).append(use)
        return {pod: tuple(uses) for pod, uses in found.items()}
