"""Elastic surplus: which pods are beyond the core, how they join, and how their seats are given up."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import EvictPod, SaveGang
from fleet.gangs import lifecycle
from fleet.gangs.elastic import departures, dismissed, missing
from fleet.gangs.pods_ready import ready_pods
from fleet.scheduling import cycle
from fleet.snapshot import Gang, GangState, Hold, Pin, PodSet, Slice, Snapshot
from fleet.snapshot.elastic_parts import PRIORITY, core_of, cores, fitted, parts, together, whole
from fleet.snapshot.sub_groups import RolePods, SubGroup, filled, first_choice
from tests.support.fleets import GPU, NOW, FleetBuilder, gang, gang_pod, job_of, plain_node, pod_set
from tests.support.world import World


def elastic(core: int, *places: int, count: int | None = None, **more: Any) -> Gang:
    """A running gang with so many pods on machines m0, m1, ..."""
    pins = tuple(Pin("main", f"m{n}", "", pods) for n, pods in enumerate(places) if pods)
    pods = replace(pod_set(count=sum(places) if count is None else count, gpu=1), core=core)
    return gang("g", pods, state=GangState.ADMITTED, admitted_at_s=NOW - 100, pins=pins, **more)


@pytest.mark.parametrize(
    ("count", "core", "starts"), [(4, None, [4]), (4, 4, [4]), (4, 9, [4]), (4, 3, [3]), (4, 0, [])]
)
def test_what_starts_together(count: int, core: int | None, starts: list[int]) -> None:
    assert [pods.count for pods in cores([replace(pod_set(count=count), core=core)])] == starts


def test_beyond_the_core_are_the_pods_of_the_emptiest_machines() -> None:
    core, *surplus = parts(elastic(3, 4, 1, 2))
    assert (core.uid, core.pins, core.effective_priority) == ("uid-g", (Pin("main", "m0", "", 3),), 0)
    assert [one.pins[0].node for one in surplus] == ["m1", "m2", "m2", "m0"]
    assert {one.effective_priority for one in surplus} == {PRIORITY}
    assert {whole(one.uid) for one in surplus} == {"uid-g"}


def test_what_leaves_already_is_beyond_the_core_first() -> None:
    leaving = elastic(3, 4, 1, leaving=(Pin("main", "m0", "", 1),))
    _, first, second = parts(leaving)
    assert (first.pins, first.leaving) == ((Pin("main", "m0", "", 1),), (Pin("main", "m0", "", 1),))
    assert (second.pins, second.leaving) == ((Pin("main", "m1", "", 1),), ())


@given(st.integers(0, 12), st.lists(st.integers(0, 4), min_size=1, max_size=5), st.data())
def test_the_parts_are_the_gang(core: int, places: list[int], data: st.DataObject) -> None:
    it = elastic(core, *places)
    spare = max(0, sum(places) - core)
    seats = [replace(pin, count=1) for pin in it.pins for _ in range(pin.count)]
    if spare and seats:
        it = replace(it, leaving=together(data.draw(st.permutations(seats))[: data.draw(st.integers(0, spare))]))
    found = list(parts(it))
    assert together(pin for one in found for pin in one.pins) == together(it.pins)
    assert len({one.uid for one in found}) == len(found)
    if len(found) > 1:
        assert together(pin for one in found for pin in one.leaving) == it.leaving
        assert sum(pin.count for pin in found[0].pins) == min(core, sum(places))
        assert all(sum(p.count for p in one.pod_sets) == sum(pin.count for pin in one.pins) for one in found)


RACK = "rack"


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({}, (False, "", {})),
        ({"preferred_topology": RACK}, (True, "", {})),
        ({"required_topology": RACK}, (True, "", {RACK: "r0"})),
        ({"required_topology": RACK, "group": "both"}, (True, "", {RACK: "r0"})),
        ({"required_topology": RACK, "slices": (Slice("host", 1),)}, (True, "", {RACK: "r0"})),
        ({"required_topology": RACK, "slices": (Slice("host", 2),)}, None),
        ({"required_topology": RACK, "slices": (Slice("host", 5),)}, (True, "", {RACK: "r0", "host": "h0"})),
        ({"slices": (Slice("host", 5),)}, (True, "", {"host": "h0"})),
        ({"slices": (Slice("elsewhere", 5),)}, None),
    ],
)
def test_further_pods_join_in_the_domain_that_the_others_have_to_share(
    wish: dict[str, Any], expected: tuple[bool, str, dict[str, str]] | None
) -> None:
    it = elastic(1, 2, 0)
    it = replace(it, pod_sets=tuple(replace(pods, **wish) for pods in it.pod_sets))
    found = list(missing(racks(), it, replace(job_of(it), pod_sets=tuple(replace(p, count=5) for p in it.pod_sets))))
    told = [(pods.any_topology, pods.required_topology, pods.node_selector) for pods in found]
    assert told == ([] if expected is None else [expected])
    assert all((pods.count, pods.min_count, pods.slices, pods.group) == (3, 1, (), "") for pods in found)


def test_a_core_of_one_slice_is_one_slice_of_fewer_pods() -> None:
    pods = replace(pod_set(count=5), core=2, slices=(Slice(RACK, 5),))
    assert core_of(pods).slices == (Slice(RACK, 2),)
    assert fitted(replace(pods, count=3)).slices == (Slice(RACK, 3),)
    several = replace(pods, slices=(Slice(RACK, 1),))
    assert core_of(several).slices == several.slices


@pytest.mark.parametrize(("group", "selector"), [("", {}), ("both", {RACK: "r0"})])
def test_the_first_further_pods_of_a_set_choose_its_domain(group: str, selector: dict[str, str]) -> None:
    """Unless it is that of a set that they share it with."""
    leader, none = (replace(pod_set(name, 1, 1), required_topology=RACK, group=group) for name in ("leader", "none"))
    none = replace(none, count=0, core=0)
    it = gang("g", leader, none, state=GangState.ADMITTED, pins=(Pin("leader", "m0", "", 1),))
    [found] = missing(racks(), it, replace(job_of(it), pod_sets=(leader, replace(none, count=2))))
    assert (found.node_selector, found.required_topology) == (selector, "" if selector else RACK)


def test_the_first_further_pods_of_one_slice_choose_its_domain() -> None:
    leader, none = pod_set("leader", 1, 1), replace(pod_set("none", 1, 1), slices=(Slice("host", 2),))
    none = replace(none, count=0, core=0)
    it = gang("g", leader, none, state=GangState.ADMITTED, pins=(Pin("leader", "m0", "", 1),))
    [found] = missing(racks(), it, replace(job_of(it), pod_sets=(leader, replace(none, count=2))))
    assert (found.node_selector, found.required_topology, found.count) == ({}, "host", 2)


def racks() -> Snapshot:
    return Snapshot(NOW, nodes={f"m{n}": plain_node(f"m{n}", {}, {RACK: f"r{n}", "host": f"h{n}"}) for n in range(2)})


def yard(*gangs: Gang, machines: int = 2, **queue: Any) -> World:
    builder = FleetBuilder().pool(limits={"nodes": 0}).team(quotas={"h100": {GPU: 8 * machines}})
    world = World(builder.queue(**queue).priority("high", 100).build())
    for n in range(machines):
        world.machine(f"m{n}")
    return world


def one_by_one(world: World, it: Gang) -> None:
    """The job's pods are held one by one."""
    uid = it.uid
    world.jobs[uid] = replace(world.jobs[uid], hold=Hold.PODS, pod_sets=it.pod_sets)


def decided(world: World) -> None:
    world.apply(cycle.decide(world.fleet, world.snapshot()))


def task(count: int, core: int, gpu: int = 8, **more: Any) -> PodSet:
    return replace(pod_set(count=count, gpu=gpu), core=core, **more)


def test_the_core_starts_and_the_rest_joins_as_room_comes() -> None:
    world = yard()
    world.runs(gang("other"), ("m0", 1))
    it = gang("g", task(3, 1))
    world.waits(it)
    one_by_one(world, it)
    decided(world)
    assert (world.gang("g").state, world.gang("g").pod_sets[0].count) == (GangState.ADMITTED, 1)
    assert world.gang("g").message == "placed on 1 machine; 2 more pods may join"
    decided(world)
    assert world.gang("g").pod_sets[0].count == 1, "there is no room"
    del world.gangs["uid-other"]
    world.pods.clear()
    decided(world)
    found = world.gang("g")
    assert (found.pod_sets[0].count, [pin.count for pin in found.pins]) == (2, [1, 1])
    assert found.message == "1 pod of main joined beyond its minimum"


def test_a_gang_that_waits_goes_before_what_could_join() -> None:
    world = yard()
    it = gang("g", task(2, 1))
    world.waits(it, gang("later", created_s=NOW - 1))
    one_by_one(world, it)
    decided(world)
    decided(world)
    assert world.gang("later").state is GangState.ADMITTED
    assert world.gang("g").pod_sets[0].count == 1


@pytest.mark.parametrize("stop", ["Hold", "HoldAndDrain"])
def test_nothing_joins_in_a_stopped_queue(stop: str) -> None:
    world = yard()
    it = gang("g", task(2, 1))
    world.waits(it)
    one_by_one(world, it)
    decided(world)
    builder = FleetBuilder().pool(limits={"nodes": 0}).team(quotas={"h100": {GPU: 16}})
    world.fleet = builder.queue(stopPolicy=stop).build()
    decided(world)
    assert world.gang("g").pod_sets[0].count == 1


def grown_to(pods: int, core: int) -> World:
    world = yard()
    it = gang("g", task(pods, core))
    world.waits(it)
    one_by_one(world, it)
    decided(world)
    decided(world)
    assert world.gang("g").pod_sets[0].count == pods
    for n, pin in enumerate(world.gang("g").pins):
        pod = gang_pod(world.gang("g"), f"g-{n}", node=pin.node)
        world.pods[pod.uid] = replace(pod, ready=True)
    return world


def test_what_is_beyond_the_core_leaves_for_an_equal_and_the_core_stays() -> None:
    world = grown_to(2, 1)
    world.waits(gang("late"))
    decided(world)
    left = world.gang("g")
    assert (left.state, sum(pin.count for pin in left.leaving)) == (GangState.ADMITTED, 1)
    assert left.message.startswith("pods beyond its minimum leave: it makes room for ns/late")
    assert world.gang("late").state is GangState.PENDING
    [evict] = [a for a in lifecycle.decide(world.fleet, world.snapshot()) if isinstance(a, EvictPod)]
    assert evict.pod.node == left.leaving[0].node
    del world.pods[evict.pod.uid]
    [save] = [a for a in lifecycle.decide(world.fleet, world.snapshot()) if isinstance(a, SaveGang)]
    assert (save.gang.pod_sets[0].count, save.gang.leaving, len(save.gang.pins)) == (1, (), 1)
    world.apply([save])
    decided(world)
    assert world.gang("late").state is GangState.ADMITTED
    assert world.gang("g").state is GangState.ADMITTED


@pytest.mark.parametrize(("priority", "leaves"), [(0, "uid-g-1"), (9, "uid-g-0")])
def test_of_pods_on_one_machine_that_of_lowest_priority_leaves(priority: int, leaves: str) -> None:
    it = replace(elastic(1, 2), leaving=(Pin("main", "m0", "", 1),))
    world = yard()
    for n in range(2):
        pod = replace(gang_pod(it, f"g-{n}", node="m0"), uid=f"uid-g-{n}", priority=n * priority)
        world.pods[pod.uid] = pod
    [evict] = [action for action in departures(world.snapshot(), it) if isinstance(action, EvictPod)]
    assert evict.pod.uid == leaves


def two_grow(high: str, machines: int) -> World:
    """Two elastic gangs of the same age with a core of one pod each; one of them has a higher class."""
    world = yard(machines=machines)
    for name in ("a", "b"):
        more = {"priority": 100, "priority_class": "high"} if name == high else {}
        it = gang(name, task(3, 1), **more)
        world.waits(it)
        one_by_one(world, it)
    for _ in range(2):
        decided(world)
    return world


@pytest.mark.parametrize("high", ["a", "b"])
def test_surplus_joins_and_leaves_in_the_order_of_the_classes_of_its_gangs(high: str) -> None:
    world = two_grow(high, machines=4)
    counts = {name: world.gang(name).pod_sets[0].count for name in ("a", "b")}
    assert counts == {"a": 1, "b": 1} | {high: 3}

    world = two_grow(high, machines=6)
    assert [world.gang(name).pod_sets[0].count for name in ("a", "b")] == [3, 3]
    world.waits(gang("late", count=2))
    decided(world)
    leaving = {name: sum(pin.count for pin in world.gang(name).leaving) for name in ("a", "b")}
    assert leaving == {"a": 2, "b": 2} | {high: 0}


def test_one_with_more_right_takes_the_core_too_and_all_of_it_leaves() -> None:
    world = grown_to(2, 1)
    world.waits(gang("big", count=2, priority=100, priority_class="high"))
    decided(world)
    assert world.gang("g").state is GangState.EVICTING


def test_the_core_alone_says_whether_all_pods_are_ready() -> None:
    world = grown_to(2, 1)
    first, second = sorted(world.pods)
    world.pods[second] = replace(world.pods[second], ready=False)
    it = world.gang("g")
    assert ready_pods(world.snapshot(), it) == (1, 1)
    world.pods[first] = replace(world.pods[first], ready=False)
    assert ready_pods(world.snapshot(), it) == (0, 1)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
def test_seats_are_given_up_once_their_pods_are_gone(places: list[int], data: st.DataObject) -> None:
    it = elastic(0, *places)
    seats = [replace(pin, count=1) for pin in it.pins for _ in range(pin.count)]
    it = dismissed(it, data.draw(st.permutations(seats))[: data.draw(st.integers(1, len(seats)))], "x", NOW)
    world = yard(machines=3)
    pods = {}
    for pin in it.pins:
        for n in range(data.draw(st.integers(0, pin.count))):
            pod = gang_pod(it, f"{pin.node}-{n}", node=pin.node)
            pods[pod.uid] = replace(pod, deleting=data.draw(st.booleans()))
    for _ in range(2 * len(seats) + 2):
        world.pods = dict(pods)
        actions = list(departures(world.snapshot(), it))
        if not it.leaving:
            break
        for action in actions:
            if isinstance(action, EvictPod):
                del pods[action.pod.uid]
            elif isinstance(action, SaveGang):
                it = action.gang
        here = Counter(pod.node for pod in pods.values() if not pod.deleting)
        kept = Counter({pin.node: pin.count for pin in it.pins})
        assert all(here[node] <= kept[node] for node in here)
        pods = {uid: pod for uid, pod in pods.items() if not pod.deleting}
    assert not it.leaving
    assert it.pod_sets[0].count == sum(pin.count for pin in it.pins)


# -- sub-groups -------------------------------------------------------------------------------------------------------


def leaf(name: str, pods: int) -> SubGroup:
    return SubGroup(name, (RolePods(name, pods),), pods)


def k_of(least: int, *parts: SubGroup) -> SubGroup:
    return SubGroup("", parts=parts, least=least)


NOWHERE = {"nowhere": "here"}


def in_sub_groups(choice: SubGroup, machines: int = 1, **selectors: dict[str, str]) -> World:
    """A job of sub-groups waits, whose pods ask for 2 of the 8 GPUs of a machine, on nodes with these labels."""
    world, first = yard(machines=machines), first_choice(choice)
    roles = [role for part in choice.leaves() for role in part.roles]
    sets = [
        replace(
            pod_set(it.pod_set, it.pods, gpu=2),
            core=first.get(it.pod_set, 0),
            node_selector=selectors.get(it.pod_set, {}),
        )
        for it in roles
    ]
    it = gang("g", *sets, choice=choice)
    world.waits(it)
    world.jobs[it.uid] = replace(world.jobs[it.uid], hold=Hold.PODS, pod_sets=it.pod_sets, choice=choice)
    return world


def counts_of(world: World) -> list[tuple[int, int | None]]:
    return [(pods.count, pods.core) for pods in world.gang("g").pod_sets]


THREE = (leaf("a", 2), leaf("b", 2), leaf("c", 2))


def test_a_gang_starts_when_as_many_sub_groups_as_it_needs_are_whole() -> None:
    world = in_sub_groups(k_of(2, *THREE), b=NOWHERE)
    decided(world)
    assert world.gang("g").state is GangState.ADMITTED
    assert counts_of(world) == [(2, 2), (0, 0), (2, 2)]
    assert world.gang("g").message == "placed on 1 machine; 2 more pods may join"


def test_too_few_whole_sub_groups_start_nothing() -> None:
    world = in_sub_groups(k_of(2, *THREE), b=NOWHERE, c=NOWHERE)
    decided(world)
    assert world.gang("g").state is GangState.PENDING


def test_the_pods_of_a_further_sub_group_join_together_or_not_at_all() -> None:
    world = in_sub_groups(k_of(1, leaf("a", 1), leaf("b", 2), leaf("c", 2)))
    world.runs(gang("other", gpu=4), ("m0", 1))
    decided(world)
    decided(world)
    assert counts_of(world) == [(1, 1), (0, 0), (0, 0)], "one GPU is left over for two pods"
    del world.gangs["uid-other"]
    world.pods.clear()
    decided(world)
    assert counts_of(world) == [(1, 1), (2, 0), (0, 0)]


def test_the_pods_of_a_further_sub_group_leave_together() -> None:
    world = in_sub_groups(k_of(1, *THREE[:2]))
    decided(world)
    decided(world)
    assert counts_of(world) == [(2, 2), (2, 0)]
    core, beyond = parts(world.gang("g"))
    assert ({pin.pod_set for pin in core.pins}, [(pin.pod_set, pin.count) for pin in beyond.pins]) == (
        {"a"},
        [("b", 2)],
    )
    world.waits(gang("late", gpu=2))
    decided(world)
    assert [(pin.pod_set, pin.count) for pin in world.gang("g").leaving] == [("b", 2)]


def test_further_pods_join_the_sub_group_that_has_least_of_what_it_needs() -> None:
    """Three places: `a` has two of its one, so `b` gets the first two and they have the same then."""
    roles = [SubGroup(name, (RolePods(name, 5),), 1) for name in "ab"]
    world = in_sub_groups(k_of(2, *roles))
    world.runs(gang("other", gpu=2), ("m0", 1))
    decided(world)
    assert [count for count, _ in counts_of(world)] == [1, 1]
    it = world.gang("g")
    a, b = it.pod_sets
    world.gangs[it.uid] = replace(
        it, pod_sets=(replace(a, count=2), b), pins=(Pin("a", "m0", "", 2), Pin("b", "m0", "", 1))
    )
    decided(world)
    assert [count for count, _ in counts_of(world)] == [2, 1]
    del world.gangs["uid-other"]
    world.pods.clear()
    decided(world)
    assert [count for count, _ in counts_of(world)] == [2, 2]


@pytest.mark.parametrize(
    ("held", "found"),
    [
        ({"a": 2, "b": 1, "c": 1, "d": 1}, {"a": (2, 2, 2), "b": (2, 2, 1), "c": (2, 1, 1), "d": (2, 1, 1)}),
        ({"a": 0, "b": 1, "c": 3, "d": 0}, {"a": (1, 1, 0), "b": (1, 1, 1), "c": (1, 0.5, 3), "d": (1, 0.5, 0)}),
    ],
)
def test_how_much_a_sub_group_has_of_what_it_needs(held: dict[str, int], found: dict[str, tuple[float, ...]]) -> None:
    """One of `a` and `b` suffices and both of `c` and `d` are needed, one pod each; one of the two pairs suffices."""
    a, b, c, d = (SubGroup(name, (RolePods(name, 4),), 1) for name in "abcd")
    tree = k_of(1, k_of(1, a, b), k_of(2, c, d))
    assert filled(tree, held) == found


def test_unlike_pods_stand_in_for_each_other() -> None:
    either = SubGroup("", (RolePods("a", 2), RolePods("b", 3)), 3)
    world = in_sub_groups(either, a=NOWHERE)
    decided(world)
    assert counts_of(world) == [(0, 0), (3, 3)]


def test_who_has_started_with_other_pods_than_the_first_is_left_running() -> None:
    """Its job asks for what the gang was admitted with a part of, whichever part that is."""
    world = in_sub_groups(k_of(1, *THREE), a=NOWHERE)
    decided(world)
    actions = lifecycle.decide(world.fleet, world.snapshot())
    assert not any(isinstance(action, SaveGang) and action.respecifies for action in actions)
    world.jobs["uid-g"] = replace(world.jobs["uid-g"], pod_sets=world.jobs["uid-g"].pod_sets[:2])
    actions = lifecycle.decide(world.fleet, world.snapshot())
    assert any(isinstance(action, SaveGang) and action.respecifies for action in actions)


def test_somebody_leaves_for_the_pods_that_can_run_where_the_first_never_can() -> None:
    world = in_sub_groups(k_of(1, *THREE), a=NOWHERE)
    low = gang("low", priority=-1, priority_class="low")
    world.runs(low, ("m0", 1))
    builder = FleetBuilder().pool(limits={"nodes": 0}).team(quotas={"h100": {GPU: 8}}).priority("low", -1)
    world.fleet = builder.queue(preemption={"withinQueue": "LowerPriority"}).build()
    decided(world)
    assert world.gang("low").state is GangState.EVICTING
