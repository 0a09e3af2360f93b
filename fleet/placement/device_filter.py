"""Filters machines by the devices that pods claim: whether kube-scheduler will find them theirs there.

What has been allocated is known by name. What stands there and has no devices yet is foreseen; nobody knows whose turn
comes first, so that pods have to find theirs before those as well as after them.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from fleet.placement.device_allocator import DeviceAllocator, DevicesInUse
from fleet.placement.domains import Check, EqualPods, NodeObstacle, Place
from fleet.placement.neighbours import Neighbours
from fleet.snapshot.devices import DeviceClaim

NO_DEVICE: Final = NodeObstacle("spec.resourceClaims", "cannot allocate all claims")
_Expected = list[tuple[DeviceClaim, ...]]
"""The claims of each pod that stands somewhere and has no devices yet."""


def device_check(neighbours: Neighbours, kind: EqualPods) -> Check:
    """Returns the check for pods with claims. What a machine without devices lacks, its amounts say."""
    there, claims = neighbours.devices, kind.constraints.devices
    known: dict[Place, tuple[object, NodeObstacle | None]] = {}

    def check(place: Place) -> NodeObstacle | None:
        machine = there.known.machines.get(place.node) or place.devices
        if machine is None:
            return None
        standing = neighbours.claiming(place)
        told = known.get(place)
        if told is None or told[0] != standing:
            used = DevicesInUse(machine)
            expected = _taken(neighbours, place, standing, used)
            found = None if _finds(there.allocator, used, expected, claims) else NO_DEVICE
            told = known[place] = standing, found
        return told[1]

    return check


def _taken(
    neighbours: Neighbours, place: Place, standing: Sequence[tuple[EqualPods, int]], used: DevicesInUse
) -> _Expected:
    """Takes what is allocated, but for pods that stand there no more; returns the claims of those without devices."""
    left = Counter(dict(standing))
    for holder, devices in neighbours.devices.allocated(place.node):
        kind = neighbours.kind_of(holder) if holder is not None else None
        if kind is not None and left[kind] <= 0:
            continue
        used.take_known(devices)
        if kind is not None:
            left[kind] -= 1
    return [kind.constraints.devices for kind, _ in standing for _ in range(left[kind])]


def _finds(
    allocator: DeviceAllocator, used: DevicesInUse, expected: _Expected, claims: tuple[DeviceClaim, ...]
) -> bool:
    """Whether one pod more finds its devices, and so do those that are expected, whoever is first."""
    last, first = used.copy(), used.copy()
    for each in expected:
        allocator.allocate(last, each)
    if not allocator.allocate(last, claims):
        return False
    others = [each for each in expected if each != claims]
    if not others:
        return True
    return allocator.allocate(first, claims) and all(allocator.allocate(first, each) for each in expected)
