"""A machine takes one pod more where it finds its devices, and so do those whose turn is still to come."""

from dataclasses import replace

import pytest

from fleet.placement.cluster_state import ClusterState, NodeSlot
from fleet.placement.device_allocator import DevicesThere
from fleet.placement.inventory import who_stands_where
from fleet.placement.neighbours import Neighbours
from fleet.placement.pod_filter import pod_filter
from fleet.snapshot import GangState, PodSet
from fleet.snapshot.constraints import PodConstraints
from fleet.snapshot.devices import (
    AllocatedDevice,
    ClusterDevices,
    DeviceAllocation,
    DeviceClaim,
    MachineDevices,
)
from tests.fleet.placement.test_device_allocator import CUT, WHOLE, claim, cut, gpu
from tests.support.fleets import gang as gang_of
from tests.support.fleets import gang_pod, small_fleet
from tests.support.world import World

ANY, FIRST = claim(gpu()), claim(gpu(cel="device.attributes['gpu.nvidia.com'].uuid == 'GPU-0'"))
SEVEN, EIGHT = claim(gpu(7)), claim(gpu(8))
G = "gpu.nvidia.com"


def pods(name: str, claims: tuple[DeviceClaim, ...]) -> PodSet:
    return PodSet(name, 1, {}, namespace="n", labels=(("of", name),), constraints=PodConstraints(devices=claims))


def allocated(name: str) -> AllocatedDevice:
    return AllocatedDevice((G, "", name))


def takes(
    new: tuple[DeviceClaim, ...],
    *standing: tuple[PodSet, tuple[str, ...]],
    foreign: tuple[str, ...] = (),
    machine: MachineDevices = WHOLE,
) -> bool:
    """Whether a node takes a pod; of those that stand some have devices, by name, others have none yet."""
    known = [(of, tuple(map(allocated, names))) for of, names in standing if names]
    known += [(None, tuple(map(allocated, foreign)))] if foreign else []  # type: ignore[list-item]
    there = DevicesThere(ClusterDevices({"n1": machine}), lambda _node: known)
    state = ClusterState(neighbours=Neighbours(devices=there))
    slot = NodeSlot("n1", "n1", "", {}, (), {"pods": 100})
    state.add(slot)
    for of, _ in standing:
        state.place(slot, of, 1)
    rules = pod_filter(state.neighbours, pods("new", new))
    assert rules is not None
    return rules.obstacle(slot) is None


@pytest.mark.parametrize(
    ("new", "standing", "foreign", "expected"),
    [
        (ANY, [], (), True),
        (EIGHT, [], ("gpu-3",), False),
        (SEVEN, [], ("gpu-3",), True),
        (EIGHT, [("a", ANY, ())], (), False),
        (SEVEN, [("a", ANY, ())], (), True),
        (FIRST, [("a", ANY, ("gpu-1",))], (), True),
        (FIRST, [("a", ANY, ("gpu-0",))], (), False),
        (FIRST, [("a", ANY, ())], (), False),
        (ANY, [("a", FIRST, ())], (), False),
        (ANY, [("a", FIRST, ("gpu-0",))], (), True),
        (ANY, [("a", SEVEN, ()), ("b", ANY, ())], (), False),
    ],
)
def test_what_is_allocated_is_known_and_what_is_expected_may_come_first(
    new: tuple[DeviceClaim, ...],
    standing: list[tuple[str, tuple[DeviceClaim, ...], tuple[str, ...]]],
    foreign: tuple[str, ...],
    *,
    expected: bool,
) -> None:
    there = [(pods(name, claims), names) for name, claims, names in standing]
    assert takes(new, *there, foreign=foreign) is expected


def test_slices_of_several_sizes_fit_in_every_order() -> None:
    """Small slices that come first take the first places, beside which a large one needs a half of the GPU."""
    one = replace(CUT, devices=tuple(it for it in CUT.devices if it.name.startswith("gpu-0")))
    small, large = claim(cut("1g.10gb")), claim(cut("3g.40gb"))
    assert takes(large, (pods("a", small), ()), machine=one)
    assert takes(large, *[(pods(f"a{n}", small), ()) for n in range(3)], machine=one)
    assert not takes(large, *[(pods(f"a{n}", small), ()) for n in range(5)], machine=one)
    assert takes(claim(cut("4g.40gb")), (pods("a", large), ("gpu-0-mig-3g40gb-4",)), machine=one)
    assert not takes(claim(cut("4g.40gb")), (pods("a", large), ()), machine=one), "the large one may come first, at 0"


def test_pods_that_are_taken_off_have_no_devices() -> None:
    there = DevicesThere(
        ClusterDevices({"n1": WHOLE}), lambda _node: [(standing, (AllocatedDevice((G, "", "gpu-0")),))]
    )
    standing = pods("a", ANY)
    state = ClusterState(neighbours=Neighbours(devices=there))
    slot = NodeSlot("n1", "n1", "", {}, (), {"pods": 100})
    state.add(slot)
    state.place(slot, standing, 1)
    rules = pod_filter(state.neighbours, pods("new", EIGHT))
    assert rules is not None
    assert rules.obstacle(slot) is not None
    state.place(slot, standing, -1)
    assert rules.obstacle(slot) is None


def test_what_a_pod_has_of_several_claims_is_told_together_and_a_shared_claim_is_its_carriers() -> None:
    own, shared = pods("own", (*ANY, *FIRST)), claim(gpu())[0]._replace(shared="shared")
    carrier = replace(pods("carrier", (shared,)), part_of="own")
    gang = gang_of("g", replace(own, count=2), carrier, state=GangState.ADMITTED)
    given = [("a-0", "a", "gpu-0"), ("shared", "a", "gpu-5"), ("a-1", "a", "gpu-1"), ("other", "x", "gpu-7")]
    allocated = tuple(
        DeviceAllocation(f"ns/{it}", f"ns/{pod}", (AllocatedDevice((G, "", name)),)) for it, pod, name in given
    )
    there = [gang_pod(gang, name, of, "n1") for name, of in (("a", "own"), ("b", "own"), ("c", "carrier"))]
    snapshot = replace(
        World(small_fleet()).snapshot(),
        gangs={gang.uid: gang},
        gang_pods={"ns/job-g": tuple(there)},
        node_pods={"n1": tuple(there)},
        devices=ClusterDevices({"n1": WHOLE}, {"n1": allocated}),
    )
    found = who_stands_where(snapshot, {}, {}).devices.allocated("n1")
    assert [(None if of is None else of.name, [it.id[2] for it in ids]) for of, ids in found] == [
        ("own", ["gpu-0", "gpu-1"]),
        ("carrier", ["gpu-5"]),
    ]
