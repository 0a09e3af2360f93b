"""Fragmentation: what the free part of a machine is worth to the work that may still come.

A GPU share that no likely request can use is lost although it is free, and so is a free GPU without CPU or memory
beside it. The rule, in five lines:

1. Requests come one by one, each a draw from the mix; after each one all is over with a chance of 1 in `HORIZON`.
2. A device with x free is worth the share of it that such a run fills when every request that fits takes its part.
3. A node is worth the sum over its devices, cut to the part its free CPU and memory can feed, whichever feeds less;
   requests for k > 1 whole devices see k whole devices as one; both are weighed by how many of the mix ask that way.
4. A request goes where the worth falls least, on a shared GPU to the device where it does.
5. Losses that differ by less than 1/1000 GPU are equal; then the lowest name wins, on a node the fullest device.

Fragmentation as growth to be kept small is the idea of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), whose
measure asks whether one request of each class fits; `docs/design/0003-packing.md` compares.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fleet.placement.opportunity_cost import HORIZON

WHOLE_MILLI = 1000
"""Thousandths of a GPU in a whole one."""
_MICRO = 1000
"""Worth is counted in whole millionths of a GPU, so that sums are exact in every order."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """What one pod asks of one node.

    Args:
        cpu_milli: Thousandths of a core.
        memory_mib: Memory in MiB.
        gpus: How many devices; 0 for none.
        gpu_milli: Thousandths of each of them; less than a whole one only on a single device.
        models: GPU models it may run on; empty = any.
    """

    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    gpu_milli: int = WHOLE_MILLI
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if min(self.cpu_milli, self.memory_mib, self.gpus) < 0:
            raise ValueError(f"a request cannot be negative: {self}")
        if not 0 < self.gpu_milli <= WHOLE_MILLI or (self.shared and self.gpus != 1):
            raise ValueError(f"only a single GPU can be shared, by thousandths: {self}")

    @property
    def shared(self) -> bool:
        """Whether it asks for part of a device."""
        return self.gpus > 0 and self.gpu_milli < WHOLE_MILLI

    @property
    def total_gpu_milli(self) -> int:
        """Thousandths of GPUs over all its devices."""
        return self.gpus * self.gpu_milli

    def runs_on(self, model: str) -> bool:
        """Whether it accepts nodes with this GPU model, which only matters to requests for GPUs."""
        return not self.gpus or not self.models or model in self.models


@dataclass(slots=True)
class States:
    """What is free on some nodes, as arrays that broadcast: `free_milli` has shape (..., devices), the others (...)."""

    cpu_milli: Ints
    memory_mib: Ints
    free_milli: Ints
    model: Ints
    """Index into the models of the measure."""


class Measure(Protocol):
    """What packing goes by: the worth of a node's free part, and which losses of it count as equal."""

    @property
    def models(self) -> Sequence[str]:
        """The GPU models that nodes may have; their index is what `States.model` says."""
        ...

    def worth(self, states: States) -> Ints:
        """The worth of each state; shape (...)."""
        ...

    def rank(self, before: Ints, after: Ints) -> Ints:
        """A whole number for each pair of worths; the lowest is chosen."""
        ...


@dataclass(frozen=True, slots=True)
class _Size:
    """All requests of a mix for the same part of one device, or for the same number of whole ones, as one."""

    gpus: int
    gpu_milli: int
    share: float
    """Their part of all GPU requests, 0 to 1."""
    cpu_milli: float
    memory_mib: float


@dataclass(frozen=True, slots=True)
class _Gang:
    """Requests for several whole devices of one node."""

    gpus: int
    cpu_milli: int
    memory_mib: int
    worth: int


class ExpectedFill:
    """The measure of this module for nodes of some GPU models, from a mix of typical requests (request -> count).

    Requests without GPUs say nothing about the worth of GPUs and are passed over.
    """

    __slots__ = ("_filled", "_gangs", "_table_of", "models")

    def __init__(self, mix: Mapping[Request, int], models: Sequence[str], horizon: int = HORIZON) -> None:
        self.models = tuple(models)
        tables: dict[tuple[_Size, ...], int] = {}
        for sizes in (by_model := [_sizes(mix, model) for model in self.models]):
            tables.setdefault(sizes, len(tables))
        self._table_of = np.array([tables[sizes] for sizes in by_model], np.int64)
        self._filled = np.concatenate([_filled(sizes, horizon) for sizes in tables] or [np.zeros((1, 3), np.int64)])
        self._gangs = [_gangs(sizes, horizon) for sizes in tables]

    def worth(self, states: States) -> Ints:
        """Millionths of a GPU that the run of requests is expected to fill; shape (...)."""
        table = self._table_of[states.model]
        start = table[..., None] * (WHOLE_MILLI + 1) if len(self._gangs) > 1 else 0
        filled = self._filled.take(states.free_milli + start, axis=0).sum(axis=-2)
        fed = _fed(filled[..., 0], states.cpu_milli, filled[..., 1])
        total: Ints = np.minimum(fed, _fed(filled[..., 0], states.memory_mib, filled[..., 2]))
        if any(self._gangs):
            whole = (states.free_milli == WHOLE_MILLI).sum(axis=-1)
            for number, gangs in enumerate(self._gangs):
                for gang in gangs:
                    worth = _times(gang, whole, states) * gang.worth
                    total = total + (worth if len(self._gangs) == 1 else np.where(table == number, worth, 0))
        return total

    def rank(self, before: Ints, after: Ints) -> Ints:
        """The loss in whole thousandths of a GPU."""
        loss: Ints = (before - after) // _MICRO
        return loss


def _fed(worth: Ints, free: Ints, needed: Ints) -> Ints:
    """The part of the worth that the free amount of a resource can feed."""
    short = np.minimum(free - needed, 0)
    fed: Ints = worth + worth * short // np.maximum(needed, 1)
    return fed


def _times(gang: _Gang, whole: Ints, states: States) -> Ints:
    """How many of these fit one after the other."""
    times = whole // gang.gpus
    if gang.cpu_milli:
        times = np.minimum(times, states.cpu_milli // gang.cpu_milli)
    if gang.memory_mib:
        times = np.minimum(times, states.memory_mib // gang.memory_mib)
    return times


def _sizes(mix: Mapping[Request, int], model: str) -> tuple[_Size, ...]:
    """The GPU requests of a mix that a model may serve, by size, in order of size."""
    total = sum(count for request, count in mix.items() if request.gpus)
    sums: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for request, count in mix.items():
        if request.gpus and count > 0 and request.runs_on(model):
            entry = sums[request.gpus, request.gpu_milli]
            entry[0] += count
            entry[1] += count * request.cpu_milli
            entry[2] += count * request.memory_mib
    return tuple(
        _Size(gpus, gpu_milli, count / total, cpu_milli / count, memory_mib / count)
        for (gpus, gpu_milli), (count, cpu_milli, memory_mib) in sorted(sums.items())
    )


def _filled(sizes: Iterable[_Size], horizon: int) -> Ints:
    """For each free share of a device from 0 to a whole: micro-GPUs filled, CPU and memory taken by it.

    One step of the run: the next request that fits comes before the end with a chance of fits / (fits + 1/horizon).
    Shape (1001, 3). The fill is weighed by the part of the requests that ask for one device or less.
    """
    single = [size for size in sizes if size.gpus == 1]
    weight = sum(size.share for size in single) * _MICRO
    run = np.zeros((WHOLE_MILLI + 1, 3))
    for free in range(WHOLE_MILLI + 1):
        fitting = [size for size in single if size.gpu_milli <= free]
        for size in fitting:
            run[free] += size.share * (run[free - size.gpu_milli] + (size.gpu_milli, size.cpu_milli, size.memory_mib))
        if fitting:
            run[free] /= sum(size.share for size in fitting) + 1 / horizon
    return np.rint(run * (weight, 1, 1)).astype(np.int64)


def _gangs(sizes: Iterable[_Size], horizon: int) -> list[_Gang]:
    """Requests for several devices: worth what they take, if one comes before the end, weighed by their part."""
    return [
        _Gang(
            size.gpus,
            round(size.cpu_milli),
            round(size.memory_mib),
            round(size.share * size.share / (size.share + 1 / horizon) * size.gpus * WHOLE_MILLI * _MICRO),
        )
        for size in sizes
        if size.gpus > 1
    ]
