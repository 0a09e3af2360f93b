"""Pods that have done their part give back quota and seat, and nothing that another pod still needs."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.gangs.pods_ready import ready_pods
from fleet.quota.build_tree import quota_specs, usage_of
from fleet.scheduling import cycle
from fleet.snapshot import Gang, GangState, Pin, Pod, Slice, Snapshot
from fleet.snapshot.elastic_parts import startable
from fleet.snapshot.seats import given_back, seated, seats_of, strays_of
from tests.support.fleets import GPU, NOW, FleetBuilder, gang, gang_pod, pod_set
from tests.support.world import World

PINS = (Pin("main", "a", "", 2), Pin("main", "b", "", 2))


def running(remaining: dict[str, int], pins: tuple[Pin, ...] = PINS, count: int = 4) -> Gang:
    return gang(count=count, state=GangState.ADMITTED, flavors={"main": "h100"}, pins=pins, remaining=remaining)


def seen(of: Gang, *pods: Pod) -> Snapshot:
    return Snapshot(now_s=NOW, gangs={of.uid: of}, gang_pods={f"ns/{of.workload}": pods})


def pod(of: Gang, name: str, node: str, phase: str = "Running", **more: Any) -> Pod:
    return gang_pod(of, name, "main", node, phase=phase, **more)


@pytest.mark.parametrize(
    ("asked", "remaining", "reclaimable"),
    [
        (4, {}, {}),
        (4, {"main": 3}, {"main": 1}),
        (4, {"main": 0}, {"main": 4}),
        (2, {"main": 3}, {}),
        (4, {"x": 1}, {}),
    ],
)
def test_what_is_not_needed_any_more(asked: int, remaining: dict[str, int], reclaimable: dict[str, int]) -> None:
    """Part of the job may have been admitted only, which needs more than that still."""
    assert running(remaining, count=asked).reclaimable == reclaimable


HALF = {"main": 2}
DONE = "Succeeded"
CASES: list[tuple[str, dict[str, int], list[tuple[str, str]], list[int]]] = [
    ("all run", {}, [("a", "Running")] * 2 + [("b", "Running")] * 2, [2, 2]),
    ("one has ended and is replaced", {}, [("a", DONE), ("a", "Running"), ("a", "Running")], [2, 2]),
    ("one has ended for good", {"main": 3}, [("a", DONE), ("a", "Running")], [1, 2]),
    ("two on one machine", HALF, [("a", DONE), ("a", DONE)], [0, 2]),
    ("one on each", HALF, [("a", DONE), ("b", DONE)], [1, 1]),
    ("many have ended there, few for good", {"main": 3}, [("a", DONE)] * 9, [1, 2]),
    ("another runs in its seat", HALF, [("a", DONE), ("a", DONE), ("a", "Running")], [1, 2]),
    ("it is not seen any more where it was", HALF, [("a", "Running")], [2, 2]),
    ("a failed one comes back", HALF, [("a", "Failed"), ("a", "Running")], [2, 2]),
    ("all have ended", {"main": 0}, [("a", DONE)] * 2 + [("b", DONE)] * 2, [0, 0]),
]


@pytest.mark.parametrize(("remaining", "pods", "left"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_seats(remaining: dict[str, int], pods: list[tuple[str, str]], left: list[int]) -> None:
    held = running(remaining)
    snapshot = seen(held, *(pod(held, f"p{n}", node, phase) for n, (node, phase) in enumerate(pods)))
    expected = tuple(replace(pin, count=count) for pin, count in zip(PINS, left, strict=True) if count)
    assert seats_of(snapshot, held) == expected
    assert seated(snapshot, held).pins == expected


def test_a_pod_on_its_way_to_its_node_has_its_seat() -> None:
    held = running({"main": 2})
    done = [pod(held, f"d{n}", "a", DONE) for n in range(2)]
    coming = pod(held, "p", "", "Pending", gated=False, pinned_host="a")
    assert seats_of(seen(held, *done, coming), held) == (Pin("main", "a", "", 1), PINS[1])


def test_places_of_pods_that_have_ended_are_given_back_machine_by_machine() -> None:
    """Written down, they do not count again when the node is gone, and the last pods have ended uncounted."""
    held = running(HALF)
    one, other = (pod(held, f"d{n}", "a", DONE) for n in range(2))
    assert given_back(seen(held, one), held) is None, "another pod has its place there"
    less = given_back(seen(held, one, other), held)
    assert less is not None
    assert less.pins == PINS[1:]
    last = [pod(held, f"l{n}", "b", DONE) for n in range(2)]
    assert seats_of(seen(less, *last), less) == PINS[1:]
    assert given_back(seen(less, *last), less) is None
    assert given_back(seen(running({}), one, other), running({})) is None
    assert given_back(seen(running({"main": 0}), *last, one, other), running({"main": 0})) is None, "its job ends"


def test_a_gang_starts_again_without_the_pods_that_have_ended() -> None:
    """It bought machines for all of them."""
    world = World(FleetBuilder().pool().team(quotas={"h100": {GPU: 64}}).queue().build())
    world.waits(gang("g", count=3, gpu=8))
    world.gangs["uid-g"] = replace(world.gang("g"), remaining={"main": 1})
    world.jobs["uid-g"] = replace(world.jobs["uid-g"], remaining={"main": 1})
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    found = world.gang("g")
    assert (sum(pin.count for pin in found.pins), len(world.claims)) == (1, 1)
    assert "fewer" not in found.message


def test_of_slices_none_is_cut_where_pods_have_ended() -> None:
    sliced = replace(pod_set(count=4), slices=(Slice("kubernetes.io/hostname", 2),))
    assert [it.count for it in startable(gang("g", sliced, remaining={"main": 3}))] == [4]
    assert [it.count for it in startable(gang("g", pod_set(count=4), remaining={"main": 3}))] == [3]


placed = st.tuples(st.sampled_from("ab"), st.sampled_from(["Running", "Running", "Succeeded", "Failed", "Pending"]))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 6), st.lists(placed, max_size=9))
def test_nobody_loses_a_seat(remaining: int, pods: list[tuple[str, str]]) -> None:
    pins = (Pin("main", "a", "", 3), Pin("main", "b", "", 3))
    held = running({"main": remaining}, pins, count=6)
    made = [pod(held, f"p{n}", node, phase) for n, (node, phase) in enumerate(pods)]
    left = {pin.node: pin.count for pin in seats_of(seen(held, *made), held)}
    for pin in pins:
        active = sum(1 for one in made if one.active and one.node == pin.node)
        assert min(active, pin.count) <= left.get(pin.node, 0) <= pin.count
    assert sum(left.values()) >= remaining


def test_quota_is_charged_for_what_is_still_needed() -> None:
    fleet = FleetBuilder().pool().team().queue().build()
    said = quota_specs(fleet)
    full, half = (usage_of(said, said.tree(), "q", running(remaining)) for remaining in ({}, HALF))
    assert half == {cell: amount // 2 for cell, amount in full.items()}


def test_another_gang_starts_where_pods_have_ended_for_good() -> None:
    world = World(FleetBuilder().pool(limits={"nodes": 0}).team(quotas={"h100": {GPU: 8}}).queue().build())
    world.machine("m0")
    world.runs(gang("old", count=2, gpu=4), ("m0", 2))
    world.waits(gang("new", count=1, gpu=4))
    first = min(world.pods)
    world.pods[first] = replace(world.pods[first], phase=DONE, ready=False)
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    assert world.gang("new").state is GangState.PENDING, "the pod may be replaced"
    world.gangs["uid-old"] = replace(world.gang("old"), remaining={"main": 1})
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    assert (world.gang("new").state, world.gang("old").state) == (GangState.ADMITTED, GangState.ADMITTED)
    world.settle_down()
    assert sum(1 for one in world.pods.values() if one.active and one.node == "node-m0") == 2


def test_pods_that_have_ended_and_are_gone_are_not_missed() -> None:
    held = gang("g", pod_set(count=4), state=GangState.ADMITTED, pins=PINS, remaining=HALF)
    alive = [pod(held, f"p{n}", "b") for n in range(2)]
    assert ready_pods(seen(held, *alive), held) == (4, 4)
    assert ready_pods(seen(held, *alive, pod(held, "d", "a", DONE)), held) == (4, 4)
    assert ready_pods(seen(held, alive[0]), held) == (3, 4)
    uncounted = replace(pod(held, "p1", "b", DONE), tracked=True)
    assert ready_pods(seen(held, alive[0], uncounted), held) == (4, 4)


def test_pods_of_an_earlier_run_make_no_later_one_ready() -> None:
    again = replace(running({"main": 1}, (Pin("main", "b", "", 1),)), pod_sets=(pod_set(count=1),))
    ended = [pod(again, f"d{n}", "a", DONE) for n in range(3)]
    assert ready_pods(seen(again, *ended, pod(again, "p", "b", "Pending", ready=False)), again) == (0, 1)
    assert ready_pods(seen(again, *ended, pod(again, "p", "b")), again) == (1, 1)


# -- pods out of place ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("since_s", [0.0, NOW])
def test_a_pod_where_the_gang_has_no_seat_any_more(since_s: float) -> None:
    """Its node is taken, too, until it has gone; but only where it stands, and after a lost machine."""
    moved = replace(running({}), pins=(Pin("main", "b", "", 2), Pin("main", "", "c", 2)), replacing_since_s=since_s)
    pods = (
        pod(moved, "lost", "a"),
        pod(moved, "let-go", "", gated=False, pinned_host="a"),
        pod(moved, "kept", "b"),
        pod(moved, "over", "a", phase="Failed"),
        gang_pod(moved, "waits"),
    )
    snapshot = seen(moved, *pods)
    assert [one.name for one in strays_of(snapshot, moved)] == (["lost", "let-go"] if since_s else [])
    extra = (Pin("main", "a", "", 1),) if since_s else ()
    assert seated(snapshot, moved).pins == (*moved.pins, *extra)
