"""The packer: keeps for every kind of request how well it would stand on each node, and redoes only what changed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.reference.fragmentation import WHOLE_MILLI, Bools, Ints, Measure, Request, States

UNFIT = np.iinfo(np.int64).max
"""The rank of a node the request does not fit on."""
KEPT = 512
"""Kinds of request whose ranks are kept; the one not asked for longest goes first."""
_BLOCK = 4096
"""Nodes ranked at a time, which bounds the memory of a first look at a large fleet."""


@dataclass(frozen=True, slots=True)
class FreeNode:
    """What is free on a node.

    Args:
        name: The node's name; unique.
        cpu_milli: Thousandths of a core.
        memory_mib: Memory in MiB.
        devices: Thousandths of a GPU for each device; 1000 = whole.
        model: The GPU model; empty for none.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    devices: tuple[int, ...] = ()
    model: str = ""


@dataclass(frozen=True, slots=True)
class PackedPlace:
    """Where a request stands: the node, and the devices by index."""

    node: str
    devices: tuple[int, ...] = ()


class NoRoom(ValueError):
    """What was to be taken is not free, or what was to be given back was never taken."""


@dataclass(slots=True)
class _Ranks:
    """How one kind of request would stand on each node, as of a change."""

    rank: Ints
    device: Ints
    as_of: int


class Packer:
    """Nodes in the order of their names, a measure of their worth, and the choice of the one that loses least.

    The measure has to know the models of the nodes. What is chosen is not taken: `take` it, and `give` undoes that
    exactly. A choice costs what has changed since the same kind of request was last asked for.
    """

    def __init__(self, nodes: Iterable[FreeNode], measure: Measure) -> None:
        machines = sorted(nodes, key=lambda machine: machine.name)
        self.names = [machine.name for machine in machines]
        self._at = {name: index for index, name in enumerate(self.names)}
        if len(self._at) < len(machines):
            raise ValueError("two nodes have the same name")
        self._measure = measure
        self._count = [len(machine.devices) for machine in machines]
        self._states = states_of(machines, measure)
        self._changed = np.zeros(len(machines), np.int64)
        self._change = 0
        self._ranks: dict[Request, _Ranks] = {}

    def machines(self) -> list[FreeNode]:
        """What is free now, in the order of names."""
        return [self.machine(index) for index in range(len(self.names))]

    def machine(self, index: int) -> FreeNode:
        """What is free now on the node at `index`."""
        states = self._states
        return FreeNode(
            self.names[index],
            int(states.cpu_milli[index]),
            int(states.memory_mib[index]),
            tuple(states.free_milli[index, : self._count[index]].tolist()),
            self._measure.models[int(states.model[index])],
        )

    def choose(self, request: Request) -> PackedPlace | None:
        """Where the request does least harm; None where it fits nowhere."""
        if not self.names:
            return None
        ranks = self.ranks(request)
        index = int(ranks.argmin())
        return None if ranks[index] == UNFIT else self.place(request, index)

    def ranks(self, request: Request) -> Ints:
        """The rank of every node, in the order of names, `UNFIT` where the request does not fit; not to be changed."""
        kept = self._ranks.pop(request, None)
        if kept is None:
            kept = _Ranks(np.empty(len(self.names), np.int64), np.zeros(len(self.names), np.int64), -1)
            if len(self._ranks) >= KEPT:
                del self._ranks[next(iter(self._ranks))]
        self._ranks[request] = kept
        if kept.as_of < self._change:
            stale = np.flatnonzero(self._changed > kept.as_of)
            for start in range(0, len(stale), _BLOCK):
                self._rank(request, kept, stale[start : start + _BLOCK])
            kept.as_of = self._change
        return kept.rank

    def place(self, request: Request, index: int) -> PackedPlace:
        """The best place on the node at `index`, where it has to fit."""
        if request.shared:
            self.ranks(request)
            return PackedPlace(self.names[index], (int(self._ranks[request].device[index]),))
        whole = np.flatnonzero(self._states.free_milli[index] == WHOLE_MILLI)
        return PackedPlace(self.names[index], tuple(whole[: request.gpus].tolist()))

    def take(self, request: Request, place: PackedPlace) -> None:
        """Take the room; raises `NoRoom` and changes nothing where it is not there."""
        self._move(request, place, -1)

    def give(self, request: Request, place: PackedPlace) -> None:
        """Give the room back that `take` took."""
        self._move(request, place, 1)

    def _move(self, request: Request, place: PackedPlace, sign: int) -> None:
        """Change what is free by the request, one way or the other, if that leaves everything within its bounds."""
        index, devices, states = self._index(request, place), list(place.devices), self._states
        free = states.free_milli[index, devices] + sign * request.gpu_milli
        cpu_milli = states.cpu_milli[index] + sign * request.cpu_milli
        memory_mib = states.memory_mib[index] + sign * request.memory_mib
        if min(cpu_milli, memory_mib) < 0 or ((free < 0) | (free > WHOLE_MILLI)).any():
            raise NoRoom(f"{place} {'does not hold' if sign > 0 else 'has no room for'} {request}")
        states.free_milli[index, devices] = free
        states.cpu_milli[index] = cpu_milli
        states.memory_mib[index] = memory_mib
        self._change += 1
        self._changed[index] = self._change

    def _index(self, request: Request, place: PackedPlace) -> int:
        """The node's index, if the place is one for such a request."""
        index = self._at.get(place.node)
        if (
            index is None
            or len(set(place.devices)) != request.gpus
            or not request.runs_on(self._measure.models[self._states.model[index]])
            or not all(0 <= device < self._count[index] for device in place.devices)
        ):
            raise NoRoom(f"{place} is no place for {request}")
        return index

    def _rank(self, request: Request, kept: _Ranks, rows: Ints) -> None:
        """Rank some nodes anew."""
        states = _rows(self._states, rows)
        before = self._measure.worth(states)
        fits = self._accepts(request, states)
        if request.shared:
            on_device = states.free_milli >= request.gpu_milli
            loss = before[:, None] - self._measure.worth(_shared(states, request))
            # The least loss first, then the fullest device; a device without room comes last.
            order = np.where(on_device, loss * (WHOLE_MILLI + 1) + states.free_milli, UNFIT)
            device = order.argmin(axis=1)
            kept.device[rows] = device
            after = before - np.take_along_axis(loss, device[:, None], axis=1)[:, 0]
            fits &= on_device.any(axis=1)
        else:
            whole = states.free_milli == WHOLE_MILLI
            after = self._measure.worth(_whole(states, request, whole))
            fits &= whole.sum(axis=1) >= request.gpus
        kept.rank[rows] = np.where(fits, self._measure.rank(before, after), UNFIT)

    def _accepts(self, request: Request, states: States) -> Bools:
        """Whether CPU, memory and model will do."""
        model = np.array([request.runs_on(it) for it in self._measure.models], np.bool_)[states.model]
        fits: Bools = (states.cpu_milli >= request.cpu_milli) & (states.memory_mib >= request.memory_mib) & model
        return fits


def models(nodes: Iterable[FreeNode]) -> list[str]:
    """The GPU models of some nodes, sorted: what a measure for them has to know."""
    return sorted({machine.model for machine in nodes})


def states_of(machines: Sequence[FreeNode], measure: Measure) -> States:
    """The machines as arrays, at least one device wide; what a node has less than others is never free."""
    known = {model: index for index, model in enumerate(measure.models)}
    if strange := sorted({machine.model for machine in machines} - known.keys()):
        raise ValueError(f"the measure does not know the GPU models {', '.join(strange)}")
    free = np.zeros((len(machines), max((1, *(len(it.devices) for it in machines)))), np.int64)
    for row, machine in zip(free, machines, strict=True):
        row[: len(machine.devices)] = machine.devices
    return States(
        np.array([it.cpu_milli for it in machines], np.int64),
        np.array([it.memory_mib for it in machines], np.int64),
        free,
        np.array([known[it.model] for it in machines], np.int64),
    )


def _rows(states: States, rows: Ints) -> States:
    return States(states.cpu_milli[rows], states.memory_mib[rows], states.free_milli[rows], states.model[rows])


def _shared(states: States, request: Request) -> States:
    """The states after the request, on each device in turn: shape (nodes, devices, devices).

    A device without room counts as taken; nobody looks at it.
    """
    devices = states.free_milli.shape[1]
    taken = np.eye(devices, dtype=np.int64) * request.gpu_milli
    return States(
        (states.cpu_milli - request.cpu_milli)[:, None],
        (states.memory_mib - request.memory_mib)[:, None],
        np.maximum(states.free_milli[:, None, :] - taken, 0),
        states.model[:, None],
    )


def _whole(states: States, request: Request, whole: Bools) -> States:
    """The states after the request took the first of the whole devices."""
    taken = whole & (whole.cumsum(axis=1) <= request.gpus)
    return States(
        states.cpu_milli - request.cpu_milli,
        states.memory_mib - request.memory_mib,
        np.where(taken, 0, states.free_milli),
        states.model,
    )
