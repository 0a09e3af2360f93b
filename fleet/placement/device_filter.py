"""Filters machines by the devices that pods claim: whether kube-scheduler will find them theirs there.

What has been allocated is known by name. What stands there and has no devices yet is foreseen; nobody knows whose turn
comes first, so that all have to find theirs in every order of those who claim the same.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Final

from fleet.placement.device_allocator import DeviceAllocator, DevicesInUse
from fleet.placement.domains import Check, EqualPods, NodeObstacle, Place
from fleet.placement.neighbours import Neighbours
from fleet.snapshot.devices import DeviceClaim

NO_DEVICE: Final = NodeObstacle("spec.resourceClaims", "cannot allocate all claims")
_MOST_PERMUTED: Final = 4
"""Kinds of claims of which every order is tried."""
_Expected = list[tuple[DeviceClaim, ...]]
"""The claims of each pod that stands somewhere and has no devices yet."""


def device_check(neighbours: Neighbours, kind: EqualPods) -> Check:
    """Returns the check for pods with claims. What a machine without devices lacks, its amounts say."""
    there, claims = neighbours.devices, kind.constraints.devices
    known: dict[Place, tuple[object, NodeObstacle | None]] = {}

    def check(place: Place) -> NodeObstacle | None:
        """Returns what is against a machine; worked out anew only where other pods stand there than the last time."""
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
    """Whether one pod more finds its devices, and so do those that are expected, whoever comes first.

    Pods that claim the same take turns as one; of more than a few kinds, the new ones come first or last.
    """
    pods = Counter([*expected, claims])
    kinds = [*(kind for kind in pods if kind != claims), claims]
    orders = permutations(kinds) if len(kinds) <= _MOST_PERMUTED else ([claims, *kinds[:-1]], kinds)
    return all(_all_find(allocator, used.copy(), order, pods) for order in orders)


def _all_find(
    allocator: DeviceAllocator,
    used: DevicesInUse,
    order: Iterable[tuple[DeviceClaim, ...]],
    pods: Mapping[tuple[DeviceClaim, ...], int],
) -> bool:
    return all(allocator.allocate(used, kind) for kind in order for _ in range(pods[kind]))
