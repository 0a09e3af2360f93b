"""A gang that has lost a machine: who may go on without, where its lost pods go, and what it says."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import Action, EvictPod, OpenClaims, ReleasePod, SaveGang
from fleet.gangs import lifecycle
from fleet.quota.build_tree import quota_specs, usage_of
from fleet.scheduling import cycle
from fleet.snapshot import ANY_NUMBER, Gang, GangState, NodeDisruption, Pin, PodSet, Slice
from fleet.snapshot.seats import strays_of
from model import labels
from model.kinds import NEVER
from tests.support.fleets import (
    GPU,
    NOW,
    P5,
    A,
    B,
    FleetBuilder,
    amounts,
    capacity_pool,
    gang,
    gang_pod,
    plain_node,
    pod_set,
)
from tests.support.world import World

G = "uid-g"
RACK = "example.com/rack"
HARDY = {"main": ANY_NUMBER}


def fleet(**queued: Any) -> FleetBuilder:
    return FleetBuilder().pool().team(quotas={"h100": {GPU: 64}}).queue(**queued)


def running(*, on: int = 3, idle: int = 0, builder: FleetBuilder | None = None, **asked: Any) -> World:
    """A gang on `on` machines, `m0` and so on, with one pod each and all GPUs; `idle` machines besides, `i0`."""
    world = World((builder or fleet()).build())
    for number in range(on):
        world.machine(f"m{number}")
    for number in range(idle):
        world.machine(f"i{number}")
    world.runs(gang("g", pod_set(count=on, gpu=8, **asked)), *[(f"m{number}", 1) for number in range(on)])
    world.jobs[G] = replace(world.jobs[G], restarts=HARDY)
    return world


Change = Callable[[World], object]


def silent(*machines: str, for_s: float = 60.0) -> Change:
    def change(world: World) -> None:
        for name in machines:
            node = world.nodes[f"node-{name}"]
            world.nodes[node.name] = replace(node, ready=False, ready_changed_at_s=world.now_s - for_s)
            world.pods = {k: replace(p, ready=False) if p.node == node.name else p for k, p in world.pods.items()}
        world.jobs[G] = replace(world.jobs[G], ready_pods=sum(pod.ready for pod in world.pods.values()))

    return change


def leaves(reason: str, machine: str = "m0") -> Change:
    def change(world: World) -> None:
        why = NodeDisruption(reason, "why", NOW - 5, NEVER)
        world.claims[machine] = replace(world.claims[machine], disruption=why)

    return change


def gone(world: World) -> None:
    del world.nodes["node-m0"]


def ended(machine: str, *, tracked: bool = True) -> Change:
    """One more pod of the gang was lost before, on a machine; `tracked`: the Job controller has not counted it yet."""

    def change(world: World) -> None:
        pod = next(pod for pod in world.pods.values() if pod.node == f"node-{machine}")
        lost = replace(pod, uid="uid-lost", name="lost", phase="Failed", ready=False, tracked=tracked)
        world.pods[lost.key] = lost

    return change


def said(**facts: Any) -> Change:
    return lambda world: world.jobs.__setitem__(G, replace(world.jobs[G], **facts))


def both(*changes: Change) -> Change:
    def change(world: World) -> None:
        for one in changes:
            one(world)

    return change


def decided(world: World) -> list[Action]:
    """The gang's life and the pass after it, as the brain runs them."""
    first = lifecycle.decide(world.fleet, world.snapshot())
    world.apply(first)
    second = cycle.decide(world.fleet, world.snapshot())
    world.apply(second)
    return [*first, *second]


def saved(actions: list[Action]) -> list[Gang]:
    return [action.gang for action in actions if isinstance(action, SaveGang)]


def stand(world: World) -> dict[str, int]:
    """Node, or claim of a machine to come -> pods that have a seat there."""
    return {pin.node or pin.claim: pin.count for pin in world.gang("g").pins}


# -- who goes on ------------------------------------------------------------------------------------------------------

STAYS, WHOLE, NOTHING = "NodeReplacement", "Evicting", ""
FATES: list[tuple[str, Change, dict[str, Any], str]] = [
    ("a node is gone", gone, {}, STAYS),
    ("silent for 59 s", silent("m0", for_s=59), {}, NOTHING),
    ("silent for 60 s", silent("m0"), {}, STAYS),
    ("two of three", silent("m0", "m1"), {}, STAYS),
    ("all of them", silent("m0", "m1", "m2"), {}, WHOLE),
    ("interrupted", leaves("Interrupted"), {}, STAYS),
    ("its instance has ended", leaves("InstanceTerminated"), {}, STAYS),
    ("silent for so long that the machine is repaired", leaves("NodeFailures"), {}, STAYS),
    ("drifted: replaced by plan, first and whole", leaves("Drifted"), {}, WHOLE),
    ("expired", leaves("Expired"), {}, WHOLE),
    ("consolidated", leaves("Underutilized"), {}, WHOLE),
    ("one interrupted, one drifted", both(leaves("Interrupted"), leaves("Drifted", "m1")), {}, WHOLE),
    ("the queue wants it whole", silent("m0"), {"onNodeFailure": "Evict"}, WHOLE),
    ("the job wants it whole", both(said(on_node_failure="Evict"), silent("m0")), {}, WHOLE),
    (
        "the job knows better than its queue",
        both(said(on_node_failure="Replace"), silent("m0")),
        {"onNodeFailure": "Evict"},
        STAYS,
    ),
    ("the job would fail", both(said(restarts={}), silent("m0")), {}, WHOLE),
    ("it says that it would not", both(said(restarts={}, on_node_failure="Replace"), silent("m0")), {}, STAYS),
    ("one more may be lost", both(said(restarts={"main": 1}), silent("m0")), {}, STAYS),
    ("not two more", both(said(restarts={"main": 1}), silent("m0", "m1")), {}, WHOLE),
    ("one more, and one is not counted yet", both(said(restarts={"main": 1}), ended("m1"), silent("m0")), {}, WHOLE),
    (
        "one more, and another that is counted",
        both(said(restarts={"main": 1}), ended("m1", tracked=False), silent("m0")),
        {},
        STAYS,
    ),
    ("not started yet", both(said(suspended=True), silent("m0")), {}, WHOLE),
]


@pytest.mark.parametrize(("change", "queued", "fate"), [it[1:] for it in FATES], ids=[it[0] for it in FATES])
def test_who_goes_on_without(change: Change, queued: dict[str, Any], fate: str) -> None:
    world = running(builder=fleet(**queued))
    change(world)
    found = [it for it in saved(decided(world)) if it.reason != "PodsNotReady"]
    assert len(found) == bool(fate), "one decision, at most"
    if fate == WHOLE:
        assert found[0].state is GangState.EVICTING
    elif fate:
        assert (found[0].state, found[0].reason, found[0].pods_ready) == (GangState.ADMITTED, STAYS, False)


def test_pods_that_have_gone_already_are_behind_the_job() -> None:
    world = running()
    said(restarts={})(world)
    gone(world)
    world.pods = {key: pod for key, pod in world.pods.items() if pod.node != "node-m0"}
    assert saved(decided(world))[-1].reason == STAYS


def test_why_it_could_not_go_on() -> None:
    world = running()
    both(said(restarts={}), silent("m0"))(world)
    [save] = [it for it in saved(decided(world)) if it.eviction]
    assert save.eviction is not None
    assert save.eviction.message == (
        "node node-m0 has not been ready for 60 s, and job/ns/g does not make lost pods of main anew"
    )


# -- where the lost pods go -------------------------------------------------------------------------------------------


def test_an_idle_machine_first() -> None:
    world = running(idle=1)
    silent("m0")(world)
    actions = decided(world)
    assert stand(world) == {"node-m1": 1, "node-m2": 1, "node-i0": 1}
    assert not [action for action in actions if isinstance(action, OpenClaims)]
    assert world.gang("g").message == (
        "1 of 3 pods lost node node-m0 (node node-m0 has not been ready for 60 s); replacing on node-i0"
    )


def test_else_one_is_bought_and_the_intent_is_written_with_the_seat() -> None:
    world = running()
    before = world.gang("g")
    silent("m0")(world)
    actions = decided(world)
    [opened] = [action for action in actions if isinstance(action, OpenClaims)]
    assert [(claim.gang, claim.replaces) for claim in opened.claims] == [(G, ())]
    assert stand(world) == {"node-m1": 1, "node-m2": 1, opened.claims[0].name: 1}
    after = world.gang("g")
    assert after.message.endswith(f"; buying 1 x {P5.name} (on-demand, {A}) at 98.00 USD/h")
    assert (after.admitted_at_s, after.flavors) == (before.admitted_at_s, before.flavors)
    assert (after.not_ready_since_s, after.replacing_since_s) == (NOW, NOW)


def test_a_purchase_goes_beside_the_others_where_it_can() -> None:
    """The first zone is sold as well, and comes first by name; the others stand in the second."""
    world = World(fleet().build())
    for number in range(3):
        world.machine(f"m{number}", zone=B)
    world.runs(gang("g", pod_set(count=3, gpu=8)), *[(f"m{number}", 1) for number in range(3)])
    world.jobs[G] = replace(world.jobs[G], restarts=HARDY)
    silent("m0")(world)
    decided(world)
    assert [claim.capacity_pool.zone for claim in world.claims.values() if claim.gang] == [B]


@pytest.mark.parametrize(("level", "zone"), [("", A), (labels.ZONE, None)])
def test_who_has_to_share_a_zone_stays_in_it(level: str, zone: str | None) -> None:
    world = World(fleet().build())
    for number in range(3):
        world.machine(f"m{number}", zone=B)
    world.machine("i0", zone=A)
    pods = pod_set(count=3, gpu=8, required_topology=level)
    world.runs(gang("g", pods), *[(f"m{number}", 1) for number in range(3)])
    world.jobs[G] = replace(world.jobs[G], restarts=HARDY)
    world.shortages[capacity_pool(zone=B)] = NOW + 100
    silent("m0")(world)
    decided(world)
    if zone is None:
        assert world.gang("g").state is GangState.EVICTING
        assert "and there is no replacement: no machine for 1 more pod of main" in world.gang("g").message
    else:
        assert stand(world) == {"node-m1": 1, "node-m2": 1, "node-i0": 1}


def test_without_a_replacement_it_leaves_at_once() -> None:
    world = running(builder=FleetBuilder().pool(limits={"nodes": 3}).team(quotas={"h100": {GPU: 64}}).queue())
    silent("m0")(world)
    [save] = [it for it in saved(decided(world)) if it.eviction]
    assert (save.state, save.reason, save.evictions) == (GangState.EVICTING, "NodeFailures", 1)
    assert save.message == (
        "1 of 3 pods lost node node-m0 (node node-m0 has not been ready for 60 s), and there is no replacement: "
        "1 more pod of main needs machines beyond the limits of h100"
    )


def test_nobody_is_evicted_for_it() -> None:
    builder = FleetBuilder().pool(limits={"nodes": 4}).team(quotas={"h100": {GPU: 64}}).queue()
    world = running(builder=builder)
    world.machine("m3")
    world.gangs[G] = replace(world.gang("g"), priority=100)
    world.runs(gang("low", pod_set(count=1, gpu=8), priority=0), ("m3", 1))
    silent("m0")(world)
    assert {it.job.name for it in saved(decided(world)) if it.eviction} == {"g"}
    assert world.gang("low").state is GangState.ADMITTED


def test_it_goes_before_everybody_who_waits() -> None:
    world = running(idle=1)
    silent("m0")(world)
    world.waits(gang("high", pod_set(count=1, gpu=8), priority=1000, created_s=NOW - 9000))
    decided(world)
    assert stand(world)["node-i0"] == 1
    assert world.gang("high").state is GangState.RESERVED


def test_two_gangs_that_lost_a_machine_do_not_get_the_same_one() -> None:
    world = running(idle=1)
    silent("m0")(world)
    world.machine("n0")
    world.machine("n1")
    world.runs(gang("h", pod_set(count=2, gpu=8)), ("n0", 1), ("n1", 1))
    world.jobs["uid-h"] = replace(world.jobs["uid-h"], restarts=HARDY)
    node = world.nodes["node-n0"]
    world.nodes["node-n0"] = replace(node, ready=False, ready_changed_at_s=NOW - 60)
    decided(world)
    taken = Counter(pin.node for name in "gh" for pin in world.gang(name).pins if pin.node == "node-i0")
    assert taken == {"node-i0": 1}
    assert {world.gang(name).reason for name in "gh"} == {STAYS}


# -- topologies -------------------------------------------------------------------------------------------------------


def racks(*free: str) -> World:
    """Racks of three plain machines with four GPUs each; a gang stands on the first two, others where not `free`."""
    builder = FleetBuilder().pool(limits={"nodes": 0}).topology("hall", RACK, labels.HOSTNAME)
    builder.flavor("own", nodeLabels={"own": "yes"}, topology="hall")
    world = World(builder.team(quotas={"own": {GPU: 99}}).queue(flavors=["own"]).build())
    for number in range(8):
        name, rack = f"n{number}", f"r{number // 3}"
        carried = {"own": "yes", RACK: rack, labels.HOSTNAME: name}
        left = 4 if number < 2 or name in free else 0
        world.nodes[name] = plain_node(name, {**amounts(cpu="99", memory="99Gi"), GPU: left, "pods": 99}, carried)
    return world


TOPOLOGIES: list[tuple[str, dict[str, Any], tuple[str, ...], dict[str, int] | None]] = [
    ("a rack is required", {"required_topology": RACK}, ("n2", "n4"), {"n1": 4, "n2": 4}),
    ("a rack is required, and full", {"required_topology": RACK}, ("n4",), None),
    ("a rack is preferred, and full", {"preferred_topology": RACK}, ("n4",), {"n1": 4, "n4": 4}),
    ("a slice of eight is broken", {"slices": (Slice(RACK, 8),)}, ("n2", "n4"), {"n1": 4, "n2": 4}),
    ("a slice of eight, no room beside it", {"slices": (Slice(RACK, 8),)}, ("n4",), None),
    ("slices of four: a whole one was lost", {"slices": (Slice(RACK, 4),)}, ("n4",), {"n1": 4, "n4": 4}),
    ("anywhere", {"any_topology": True}, ("n7",), {"n1": 4, "n7": 4}),
]


@pytest.mark.parametrize(("wish", "free", "expected"), [it[1:] for it in TOPOLOGIES], ids=[it[0] for it in TOPOLOGIES])
def test_on_a_topology(wish: dict[str, Any], free: tuple[str, ...], expected: dict[str, int] | None) -> None:
    world = racks(*free)
    world.runs(gang("g", pod_set(count=8, gpu=1, **wish)), ("n0", 4), ("n1", 4), flavor="own")
    world.jobs[G] = replace(world.jobs[G], restarts=HARDY)
    del world.nodes["n0"]
    decided(world)
    if expected is None:
        assert world.gang("g").state is GangState.EVICTING
    else:
        assert stand(world) == expected


def test_where_the_domain_of_the_others_is_not_known_there_is_no_place() -> None:
    world = racks("n2", "n4")
    world.runs(gang("g", pod_set(count=8, gpu=1, required_topology=RACK)), ("n0", 4), ("n1", 4), flavor="own")
    world.jobs[G] = replace(world.jobs[G], restarts=HARDY)
    del world.nodes["n0"]
    bare = {key: value for key, value in world.nodes["n1"].labels.items() if key != RACK}
    world.nodes["n1"] = replace(world.nodes["n1"], labels=bare)
    decided(world)
    assert world.gang("g").state is GangState.EVICTING


def test_a_lost_leader_comes_back_to_its_workers() -> None:
    world = racks("n2", "n4")
    sets = (
        pod_set("leader", 1, 1, group="x", required_topology=RACK),
        pod_set("worker", 4, 1, group="x", required_topology=RACK),
    )
    pins = (Pin("leader", "n0", "", 1), Pin("worker", "n1", "", 4))
    flavors = {"leader": ("own",), "worker": ("own",)}
    world.runs(gang("g", *sets), pins=pins, flavors=flavors, pods=False)
    world.jobs[G] = replace(world.jobs[G], restarts={"leader": ANY_NUMBER})
    del world.nodes["n0"]
    decided(world)
    assert stand(world) == {"n1": 4, "n2": 1}


# -- what is not replaced ---------------------------------------------------------------------------------------------


def test_pods_that_have_done_their_part_need_no_other_place() -> None:
    world = running()
    said(remaining={"main": 2})(world)
    world.gangs[G] = replace(world.gang("g"), remaining={"main": 2})
    world.pods = {k: replace(p, phase="Succeeded") if p.node == "node-m0" else p for k, p in world.pods.items()}
    gone(world)
    [less] = saved(decided(world))
    assert {pin.node for pin in less.pins} == {"node-m1", "node-m2"}, "what is lost is nobody's seat any more"
    assert not decided(world)


def test_of_an_elastic_gang_only_the_core_is_replaced() -> None:
    world = running(on=4)
    [pods] = world.gang("g").pod_sets
    world.gangs[G] = replace(world.gang("g"), pod_sets=(replace(pods, core=3),))
    both(said(restarts={"main": 1}), silent("m0", "m1"))(world)
    decided(world)
    found = world.gang("g")
    assert found.reason == STAYS
    assert sum(pin.count for pin in found.pins) == 3
    assert found.pod_sets[0].count == 3


# -- while it goes on -------------------------------------------------------------------------------------------------


def test_lost_pods_are_asked_to_go_and_then_told() -> None:
    world = running(idle=1)
    silent("m0")(world)
    decided(world)
    [evict] = [it for it in lifecycle.decide(world.fleet, world.snapshot()) if isinstance(it, EvictPod)]
    assert (evict.pod.node, evict.force_grace_s) == ("node-m0", None)
    world.now_s += 10
    [evict] = [it for it in lifecycle.decide(world.fleet, world.snapshot()) if isinstance(it, EvictPod)]
    assert (evict.pod.node, evict.force_grace_s) == ("node-m0", 30)


def again(world: World, *names: str) -> None:
    for name in names:
        world.stands(gang_pod(world.gang("g"), name))


def test_nobody_is_let_go_to_the_lost_node_or_to_one_that_has_not_come() -> None:
    world = running()
    silent("m0")(world)
    decided(world)
    again(world, "new")
    assert not [it for it in lifecycle.decide(world.fleet, world.snapshot()) if isinstance(it, ReleasePod)]


def test_two_pods_never_get_one_seat() -> None:
    world = running(idle=1)
    silent("m0")(world)
    decided(world)
    again(world, "new", "newer")
    released = [it.node for it in lifecycle.decide(world.fleet, world.snapshot()) if isinstance(it, ReleasePod)]
    assert released == ["node-i0"]


def test_its_life_from_the_loss_to_the_end_of_it() -> None:
    world = running()
    silent("m0")(world)
    reasons = []
    for _ in range(12):
        world.pass_once()
        world.now_s += 5
        reasons.append(world.gang("g").reason)
    assert list(dict.fromkeys(reasons)) == [STAYS, "PodsReady"]
    found = world.gang("g")
    assert (found.evictions, found.pods_ready, found.replacing_since_s, found.not_ready_since_s) == (0, True, 0, 0)
    assert all(pin.node for pin in found.pins)
    assert sorted(pod.node for pod in world.pods.values()) == sorted(stand(world))


def test_a_seat_that_stands_idle_by_now_is_taken_instead() -> None:
    world = running()
    silent("m0")(world)
    decided(world)
    [bought] = [claim.name for claim in world.claims.values() if claim.gang]
    world.machine("late")
    decided(world)
    assert stand(world) == {"node-m1": 1, "node-m2": 1, "node-late": 1}
    assert world.gang("g").message == "1 of 3 pods no longer need to wait for a machine; replacing on node-late"
    world.now_s += 40
    world.pass_once()
    assert bought not in world.claims or world.claims[bought].disruption is not None, "nobody waits for it any more"


def test_a_node_that_comes_back_is_nobodys_while_a_lost_pod_stands_there() -> None:
    world = running()
    silent("m0")(world)
    decided(world)
    world.nodes["node-m0"] = replace(world.nodes["node-m0"], ready=True, ready_changed_at_s=NOW)
    world.pods = {k: replace(p, deleting=p.node == "node-m0") for k, p in world.pods.items()}
    world.waits(gang("other", pod_set(count=1, gpu=8)))
    decided(world)
    assert "node-m0" not in stand(world)
    assert "node-m0" not in {pin.node for pin in world.gang("other").pins}
    world.pods = {key: pod for key, pod in world.pods.items() if pod.node != "node-m0"}
    decided(world)
    assert stand(world) == {"node-m0": 1, "node-m1": 1, "node-m2": 1}, "the gang takes it back, before others"


def test_a_purchase_that_fails_is_made_again_elsewhere_and_then_given_up() -> None:
    world = running()
    silent("m0")(world)
    world.sold_out = {capacity_pool(zone=A)}
    for _ in range(3):
        world.pass_once(boot=False)
        world.now_s += 1
    assert {claim.capacity_pool.zone for claim in world.claims.values() if claim.gang and not claim.disruption} == {B}
    world = running()
    silent("m0")(world)
    world.sold_out = {capacity_pool(zone=zone) for zone in (A, B)}
    for _ in range(4):
        world.pass_once(boot=False)
        world.now_s += 1
    assert (world.gang("g").evictions, world.gang("g").eviction.reason) == (1, "NodeFailures")  # type: ignore[union-attr]
    assert "the cloud is short of" in world.gang("g").eviction.message  # type: ignore[union-attr]


def test_recovery_is_measured_from_the_loss() -> None:
    world = running()
    silent("m0")(world)
    decided(world)
    since_s = world.gang("g").not_ready_since_s
    world.now_s = since_s + 299
    assert not [it for it in saved(lifecycle.decide(world.fleet, world.snapshot())) if it.eviction]
    world.now_s = since_s + 300
    [save] = [it for it in saved(lifecycle.decide(world.fleet, world.snapshot())) if it.eviction]
    assert save.reason == "PodsReadyTimeout"


@pytest.mark.parametrize(("ago_s", "since_s"), [(5, 5), (60, 60), (7200, 60)])
def test_nor_from_before_it_could_be_noticed(ago_s: float, since_s: float) -> None:
    """The agent may have been away: the time it was is not counted against the gang."""
    world = running()
    why = NodeDisruption("Interrupted", "why", NOW - ago_s, NEVER)
    world.claims["m0"] = replace(world.claims["m0"], disruption=why)
    decided(world)
    assert world.gang("g").not_ready_since_s == NOW - since_s


def test_who_was_never_whole_has_the_time_of_a_start() -> None:
    world = running()
    world.gangs[G] = replace(world.gang("g"), pods_ready=False)
    silent("m0")(world)
    decided(world)
    assert world.gang("g").reason == STAYS
    assert world.gang("g").not_ready_since_s == 0


def test_nothing_is_consolidated_under_it_meanwhile() -> None:
    policy = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
    world = running(builder=FleetBuilder().pool(disruption=policy).team(quotas={"h100": {GPU: 64}}).queue())
    silent("m0")(world)
    decided(world)
    assert not world.disrupted()


# -- whatever is lost -------------------------------------------------------------------------------------------------


@st.composite
def losses(draw: st.DrawFn) -> tuple[World, set[str]]:
    """Running gangs on half-full machines, idle ones, and one to three machines that fail."""
    limit = draw(st.sampled_from((6, 7, 8, 12)))
    builder = FleetBuilder().pool(limits={"nodes": limit}).team(quotas={"h100": {GPU: 96}}).queue()
    world = World(builder.build())
    for number in range(6):
        world.machine(f"m{number}", zone=draw(st.sampled_from((A, B))))
    for number in range(draw(st.integers(1, 4))):
        level = draw(st.sampled_from(("", labels.ZONE, labels.HOSTNAME)))
        sets = [
            PodSet(f"s{n}", draw(st.integers(1, 4)), {**amounts(), GPU: draw(st.sampled_from((1, 2, 4)))})
            for n in range(draw(st.integers(1, 2)))
        ]
        world.waits(gang(f"g{number}", *(replace(one, required_topology=level) for one in sets)))
    world.apply(cycle.decide(world.fleet, world.snapshot(), may_buy=False))
    for uid, it in list(world.gangs.items()):
        if it.state is not GangState.ADMITTED:
            del world.gangs[uid], world.jobs[uid]
            continue
        placed = world.runs(it, pins=it.pins, flavors=it.flavors, pods=False)
        for pin in placed.pins:
            for n in range(pin.count):
                world.stands(gang_pod(placed, f"{it.job.name}-{pin.pod_set}-{pin.node}-{n}", pin.pod_set, pin.node))
        restarts = {one.name: ANY_NUMBER for one in it.pod_sets}
        world.jobs[uid] = replace(world.jobs[uid], restarts=restarts)
    failed = draw(st.sets(st.sampled_from(sorted(world.nodes)), min_size=1, max_size=3))
    for name in sorted(failed):
        world.nodes[name] = replace(world.nodes[name], ready=False, ready_changed_at_s=NOW - 60)
    return world, failed


def held(world: World, it: Gang) -> dict[int, int]:
    said = quota_specs(world.fleet)
    return usage_of(said, said.tree(), it.queue, it)


@settings(max_examples=150, deadline=None)
@given(losses())
def test_whatever_is_lost(found: tuple[World, set[str]]) -> None:
    """Every pod has one seat, none on a lost node or beyond a machine's room; quota and the others are as they were."""
    world, failed = found
    before = dict(world.gangs)
    hit = {uid for uid, it in before.items() if {pin.node for pin in it.pins} & failed}
    decided(world)
    for uid, it in world.gangs.items():
        assert (it == before[uid]) or uid in hit, "who lost nothing is left alone"
        assert it.state is GangState.ADMITTED or uid in hit
        assert held(world, it) == held(world, before[uid])
        if it.state is GangState.ADMITTED:
            pinned = Counter({one.name: 0 for one in it.pod_sets})
            for pin in it.pins:
                pinned[pin.pod_set] += pin.count
                assert pin.node not in failed
            assert pinned == {one.name: one.count for one in it.pod_sets}
            kept = {pin for pin in before[uid].pins if pin.node not in failed}
            assert all(
                any((p.pod_set, p.node) == (k.pod_set, k.node) and p.count >= k.count for p in it.pins) for k in kept
            )
            assert _shares_its_domains(world, it)
    _no_machine_is_overfull(world)
    for _ in range(60):
        world.pass_once()
        _no_machine_is_overfull(world)
        world.now_s += 5
    world.settle_down()  # consolidation may just be moving somebody
    for it in world.gangs.values():
        if it.state is GangState.ADMITTED:
            mine = [pod for pod in world.pods.values() if pod.workload == it.workload]
            seats = {(pin.pod_set, pin.node): pin.count for pin in it.pins}
            assert Counter((pod.pod_set, pod.node) for pod in mine) == seats
            assert not strays_of(world.snapshot(), it)


def _shares_its_domains(world: World, it: Gang) -> bool:
    def domain(pin: Pin, level: str) -> str:
        node = world.nodes.get(pin.node)
        where = world.claims[pin.claim].capacity_pool.zone if level == labels.ZONE else pin.claim
        return node.labels[level] if node else where

    return all(
        len({domain(pin, one.required_topology) for pin in it.pins if pin.pod_set == one.name}) == 1
        for one in it.pod_sets
        if one.required_topology == labels.ZONE
    )


def _no_machine_is_overfull(world: World) -> None:
    taken: Counter[str] = Counter()
    for it in world.gangs.values():
        for pin in it.pins:
            taken[pin.claim] += pin.count * it.pod_set(pin.pod_set).requests.get(GPU, 0)
    assert all(amount <= 8 for amount in taken.values())
