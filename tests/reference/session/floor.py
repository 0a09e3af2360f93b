"""The machines as arrays: what is idle now and what will be, with parts of GPUs kept per device.

`idle` is free at this moment, `future` is what will be free once everything that is leaving has left and everything
nominated has come. Rows are machines by name, columns resources by name. Changes go through `shift` and are undone by
the same call with the opposite signs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from fleet.snapshot import PodSet
from fleet.snapshot.affinity import admits
from tests.reference.session.values import GpuShare, Neighbour, SessionMachine, SessionPod

Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]

GPU = "nvidia.com/gpu"
PODS = "pods"
WHOLE = 1_000_000
"""A whole GPU in the unit of its parts."""


@dataclass(frozen=True, slots=True, eq=False)
class PodKind:
    """A class of equal pods."""

    index: int
    template: PodSet
    columns: npt.NDArray[np.intp]
    needs: Counts
    """For one pod, in `columns`."""
    row: Counts
    """For one pod, in all columns."""
    gpu: GpuShare | None
    neighbours: tuple[Neighbour, ...]
    labels: Mapping[str, str]
    asks: bool
    """Whether it asks for anything but a place among the pods."""

    @property
    def gpus(self) -> float:
        """Whole GPUs and parts of them; one that is asked for by memory counts in full."""
        parts = self.gpu.devices * (self.gpu.millionths or WHOLE) / WHOLE if self.gpu is not None else 0.0
        return self.template.requests.get(GPU, 0) + parts

    @property
    def single(self) -> bool:
        """Whether such pods have to be placed one at a time, because each changes where the next may go."""
        return self.gpu is not None or bool(self.neighbours)


class Floor:
    """All machines; see the module."""

    def __init__(self, machines: Sequence[SessionMachine], pods: Iterable[SessionPod]) -> None:
        self.machines = sorted(machines, key=lambda machine: machine.name)
        self.index = {machine.name: row for row, machine in enumerate(self.machines)}
        self._kinds: dict[object, PodKind] = {}
        self._of_template: dict[int, object] = {}
        self._static: dict[int, Mask] = {}
        names = {PODS, "cpu", GPU}
        for machine in self.machines:
            names.update(machine.capacity)
        known = list(pods)
        for pod in known:
            names.update(pod.template.requests)
        self.columns = {name: column for column, name in enumerate(sorted(names))}
        self.capacity = np.zeros((len(self.machines), len(names)), dtype=np.int64)
        for row, machine in enumerate(self.machines):
            for name, amount in machine.capacity.items():
                self.capacity[row, self.columns[name]] = amount
        self.idle, self.future = self.capacity.copy(), self.capacity.copy()
        self.gpu, self._cpu = self.columns[GPU], self.columns["cpu"]
        self.parts: list[dict[str, list[int]]] = [{} for _ in self.machines]
        """Device -> (used now, used in future), for devices that are shared."""
        self._shared: set[int] = set()
        self._open = np.array([machine.open for machine in self.machines], dtype=bool)
        self._rank = np.array([machine.rank for machine in self.machines], dtype=np.int64) << 44
        self._with_gpus = (self.capacity[:, self.gpu] > 0).astype(np.int64) << 43

    def kind(self, pod: SessionPod) -> PodKind:
        """The class of a pod."""
        template = self._of_template.get(id(pod.template))
        if template is None:
            template = self._of_template[id(pod.template)] = _template_key(pod.template)
        labels = tuple(sorted(pod.labels.items())) if pod.labels else ()
        key = (template, pod.gpu, labels, repr(pod.neighbours) if pod.neighbours else "")
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._new_kind(pod)
        return kind

    def _new_kind(self, pod: SessionPod) -> PodKind:
        row = np.zeros(len(self.columns), dtype=np.int64)
        for name, amount in pod.template.requests.items():
            row[self.columns[name]] = amount
        asks = bool(row.any()) or pod.gpu is not None
        row[self.columns[PODS]] = 1
        columns = np.flatnonzero(row)
        return PodKind(
            len(self._kinds), pod.template, columns, row[columns], row, pod.gpu, pod.neighbours, pod.labels, asks
        )

    def admits(self, kind: PodKind) -> Mask:
        """Machines such a pod may stand on, room aside."""
        mask = self._static.get(kind.index)
        if mask is None:
            mask = np.fromiter(
                (admits(kind.template, (), machine.labels, machine.taints) for machine in self.machines),
                dtype=bool,
                count=len(self.machines),
            )
            mask &= self._open
            self._static[kind.index] = mask
        return mask

    def slots(self, kind: PodKind, *, now: bool) -> Counts:
        """How many such pods fit on each machine: on idle room when `now`, else on room that will be free."""
        room = self.slots_in(np.minimum(self.future, self.idle) if now else self.future, kind)
        if kind.gpu is not None:
            for row in np.flatnonzero(room):
                room[row] = min(room[row], self._part_slots(kind.gpu, int(row), now=now))
        return room

    def slots_in(self, free: Counts, kind: PodKind) -> Counts:
        """How many such pods fit on each machine when so much is free, parts of GPUs aside."""
        room: Counts = (free[:, kind.columns] // kind.needs).min(axis=1)
        np.maximum(room, 0, out=room)
        room[~self.admits(kind)] = 0
        return room

    def packing(self, kind: PodKind) -> Counts:
        """What to sort machines by: the fullest first, and work without GPUs away from them."""
        if kind.gpu is not None or kind.row[self.gpu]:
            found: Counts = np.maximum(self.future[:, self._cpu], 0) // 1000
            found += (self.future[:, self.gpu] << 20) + self._rank
            return found
        found = np.maximum(self.future[:, self._cpu], 0)
        found += self._with_gpus + self._rank
        return found

    def shift(self, kind: PodKind, row: int, count: int, signs: tuple[int, int], devices: tuple[str, ...] = ()) -> None:
        """Change what is (idle, free in future) of a machine by `count` pods, each times its sign."""
        now, later = signs
        if now:
            self.idle[row] += kind.row * (count * now)
        if later:
            self.future[row] += kind.row * (count * later)
        if kind.gpu is not None:
            self._shift_parts(self.units(kind.gpu, row), row, signs, devices)

    def units(self, gpu: GpuShare, row: int) -> int:
        """The part of each device, in millionths; more than a whole when the device is too small."""
        if gpu.millionths:
            return gpu.millionths
        memory = self.machines[row].gpu_memory_mib
        return ceil(gpu.memory_mib * WHOLE / memory) if memory else WHOLE + 1

    def devices_for(self, gpu: GpuShare, row: int, *, now: bool, spread: bool = False) -> tuple[str, ...]:
        """Devices that take the part, the fullest shared ones first and untouched ones last; empty when too few do."""
        units, parts = self.units(gpu, row), self.parts[row]
        if units > WHOLE:
            return ()
        left = [int(self.idle[row, self.gpu]) if now else WHOLE, int(self.future[row, self.gpu])]
        found: list[tuple[bool, int, str]] = []
        for name, part in parts.items():
            used = max(part) if now else part[1]
            if used + units <= WHOLE:
                found.append((not part[1] or (now and not part[0]), used if spread else -used, name))
        names = [name for _, _, name in sorted(found)]
        names += [str(number) for number in range(len(parts) + gpu.devices) if str(number) not in parts]
        chosen: list[str] = []
        for name in names:
            was = parts.get(name, [0, 0])
            cost = (int(now and not was[0]), int(not was[1]))
            if len(chosen) < gpu.devices and cost[0] <= left[0] and cost[1] <= left[1]:
                chosen.append(name)
                left = [left[0] - cost[0], left[1] - cost[1]]
        return tuple(chosen) if len(chosen) == gpu.devices else ()

    def gpus_in_sum(self) -> float:
        """GPUs that will be free, counting what is left of shared ones."""
        shared = sum(WHOLE - part[1] for row in self._shared for part in self.parts[row].values() if part[1])
        return float(np.maximum(self.future[:, self.gpu], 0).sum()) + shared / WHOLE

    def _part_slots(self, gpu: GpuShare, row: int, *, now: bool) -> int:
        return 1 if self.devices_for(gpu, row, now=now) else 0

    def _shift_parts(self, units: int, row: int, signs: tuple[int, int], devices: tuple[str, ...]) -> None:
        parts = self.parts[row]
        self._shared.add(row)
        for device in devices:
            part = parts.setdefault(device, [0, 0])
            for place, array in ((0, self.idle), (1, self.future)):
                if not signs[place]:
                    continue
                before = part[place]
                part[place] = after = before - units * signs[place]
                if not before and after:
                    array[row, self.gpu] -= 1
                elif before and not after:
                    array[row, self.gpu] += 1
            if part == [0, 0]:
                del parts[device]


def _template_key(template: PodSet) -> object:
    return (
        tuple(sorted(template.requests.items())),
        tuple(sorted(template.node_selector.items())),
        repr(template.required_affinity) if template.required_affinity else "",
        repr(template.tolerations) if template.tolerations else "",
    )
