"""The admission cycle: quota, place and machine as one decision, with a reason where one of them is missing."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import Action, OpenClaims, SaveClaim, SaveGang, claim_subject, gang_subject
from fleet.gangs.transitions import released
from fleet.reasons import Reason
from fleet.scheduling import cycle
from fleet.snapshot import Eviction, Gang, GangState
from model import labels
from tests.support.fleets import (
    GPU,
    NOW,
    P5,
    A,
    B,
    FleetBuilder,
    amounts,
    capacity_pool,
    foreign_pod,
    gang,
    pod_set,
    small_fleet,
)
from tests.support.world import World


def run(world: World, **options: Any) -> list[Action]:
    actions = cycle.decide(world.fleet, world.snapshot(), **options)
    world.apply(actions)
    return actions


def states(world: World) -> dict[str, str]:
    return {it.job.name: str(it.state) for it in world.gangs.values()}


def reasons(world: World) -> dict[str, str]:
    return {it.job.name: str(it.reason) for it in world.gangs.values()}


def yard(machines: int = 2, **more: Any) -> World:
    """A pool that may not grow, with idle machines of eight GPUs, and a team entitled to sixteen GPUs."""
    builder = FleetBuilder().pool(limits={"nodes": 0}).team(quotas=more.pop("quotas", None))
    world = World(builder.queue(**more).priority("high", 100).priority("low", -1).build())
    for n in range(machines):
        world.machine(f"m{n}")
    return world


def test_those_of_one_kind_are_told_why_the_first_was_refused_not_for_whom_an_earlier_one_waits() -> None:
    """Told that they wait for those who leave, they went first in the next pass, and others were told so: for ever."""
    world = yard(1)
    world.runs(gang("old"), ("m0", 1))
    left = Eviction(Reason.PODS_READY_TIMEOUT, "x", NOW - 1)
    world.gangs["uid-old"] = replace(world.gang("old"), state=GangState.EVICTING, eviction=left)
    world.waits(*(gang(name, created_s=NOW - 100 + n) for n, name in enumerate("abcd")))
    run(world)
    told = reasons(world)
    assert told.pop("a") == Reason.WAITING_FOR_PREEMPTED
    assert {told[name] for name in "bcd"} == {Reason.POOL_LIMIT}
    assert run(world) == []


def test_one_gang_waits_for_those_who_leave_and_one_of_another_queue_does_not_wait_for_the_same() -> None:
    """Both were told that they do; the older one went first then, and the other evicted it again, without an end."""
    builder = (
        FleetBuilder().pool(limits={"nodes": 0}).team().team("u", namespaces=["other"]).queue().queue("r", team="u")
    )
    world = World(builder.queue("r", team="u").build())
    world.machine("m0")
    world.runs(gang("old"), ("m0", 1))
    left = Eviction(Reason.PREEMPTED, "x", NOW - 1)
    world.gangs["uid-old"] = replace(world.gang("old"), state=GangState.EVICTING, eviction=left)
    world.waits(gang("a", created_s=NOW - 100), gang("b", created_s=NOW - 90, queue="r", namespace="other"))
    run(world)
    assert {name: it for name, it in reasons(world).items() if name != "old"} == {
        "a": Reason.WAITING_FOR_PREEMPTED,
        "b": Reason.POOL_LIMIT,
    }
    assert run(world) == []


# -- admission --------------------------------------------------------------------------------------------------------


def test_a_gang_with_quota_and_place_is_admitted_at_once() -> None:
    world = yard()
    world.waits(gang("g", count=4, gpu=4))
    [action] = run(world)
    assert isinstance(action, SaveGang)
    g = world.gang("g")
    assert (g.state, g.reason, g.message) == (GangState.ADMITTED, "Admitted", "placed on 2 machines")
    assert [(pin.node, pin.claim, pin.count) for pin in g.pins] == [("node-m0", "m0", 2), ("node-m1", "m1", 2)]
    assert (g.flavors, g.admitted_at_s, g.quota_reserved_at_s) == ({"main": ("h100",)}, NOW, NOW)


def test_a_gang_without_a_place_gets_exactly_what_is_missing_bought() -> None:
    world = World(small_fleet())
    world.machine("m0")
    world.waits(gang("g", count=2))
    save, opened = run(world)
    assert isinstance(save, SaveGang)
    assert isinstance(opened, OpenClaims)
    [claim] = opened.claims
    g = world.gang("g")
    assert (g.state, g.reason) == (GangState.RESERVED, "Buying")
    assert g.message == f"buying 1 x {P5.name} (on-demand, {A}) at 98.00 USD/h"
    assert {pin.claim for pin in g.pins} == {"m0", claim.name}
    assert (claim.gang, claim.launch.size, claim.node_pool, claim.price_usd_h) == ("uid-g", 1, "h100", 98.0)
    assert g.admitted_at_s == 0


def test_all_or_nothing() -> None:
    """Half a gang has a place: it takes nothing, and the next one takes it."""
    world = yard(1)
    world.waits(gang("big", count=2), gang("small", created_s=NOW))
    run(world)
    assert states(world) == {"big": "Pending", "small": "Admitted"}
    assert world.gang("big").reason == "PoolLimitReached"
    assert not world.gang("big").pins


def test_several_pod_sets_are_one_gang() -> None:
    world = yard(1)
    world.waits(
        gang("g", pod_set("leader", 1, 0), pod_set("worker", 8, 1)), gang("h", pod_set("a", 1, 4), pod_set("b", 1, 5))
    )
    run(world)
    assert states(world) == {"g": "Admitted", "h": "Pending"}
    assert {(pin.pod_set, pin.count) for pin in world.gang("g").pins} == {("leader", 1), ("worker", 8)}


def test_two_gangs_may_buy_in_one_pass() -> None:
    world = World(small_fleet())
    world.waits(gang("g"), gang("h"))
    opened = [it for it in run(world) if isinstance(it, OpenClaims)]
    assert len(opened) == 2
    assert len({claim.name for it in opened for claim in it.claims}) == 2
    assert len({claim.launch.group for it in opened for claim in it.claims}) == 2


def test_what_is_left_on_a_machine_on_its_way_is_for_the_next_gang_in_this_pass_and_the_next() -> None:
    world = World(small_fleet())
    world.waits(gang("g", gpu=4), gang("h", gpu=2))
    [opened] = [it for it in run(world) if isinstance(it, OpenClaims)]
    assert len(opened.claims) == 1
    assert reasons(world) == {"g": "Buying", "h": "Buying"}
    world.waits(gang("i", gpu=2))
    assert not [it for it in run(world) if isinstance(it, OpenClaims)]
    assert {pin.claim for name in "ghi" for pin in world.gang(name).pins} == {opened.claims[0].name}


def test_nothing_is_bought_for_pods_that_no_quota_counts() -> None:
    world = World(small_fleet())
    world.waits(gang("g", pod_set(count=1, requests={"cpu": 1000})))
    assert not [it for it in run(world) if isinstance(it, OpenClaims)]
    assert reasons(world) == {"g": "NoMatchingOffer"}
    world.machine("m0")
    run(world)
    assert reasons(world) == {"g": "Admitted"}


def test_two_gangs_in_one_pass_respect_one_limit() -> None:
    world = World(small_fleet(limits={"nodes": 1}))
    world.waits(gang("g"), gang("h", created_s=NOW))
    run(world)
    assert reasons(world) == {"g": "Buying", "h": "PoolLimitReached"}


def test_without_leave_to_buy_gangs_wait() -> None:
    world = World(small_fleet())
    world.waits(gang("g"))
    run(world, may_buy=False)
    assert world.gang("g").reason == "NoMatchingOffer"


def mig_world() -> World:
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    builder.layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
    builder.pool(limits={"nodes": 1}, sharing={"mig": {"layouts": ["small", "large"]}})
    counted = {labels.MIG_RESOURCE_PREFIX + profile: 99 for profile in ("1g.10gb", "3g.40gb")}
    return World(builder.team(quotas={"h100": counted}).queue().build())


def slices(profile: str, count: int = 1) -> Any:
    return pod_set(count=count, requests={**amounts(), labels.MIG_RESOURCE_PREFIX + profile: 1})


def test_a_recut_is_asked_for_and_waited_for() -> None:
    world = mig_world()
    world.machine("m0")
    world.waits(gang("g", slices("3g.40gb", 2)))
    save, cut = run(world)
    assert isinstance(save, SaveGang)
    assert isinstance(cut, SaveClaim)
    g = world.gang("g")
    assert (g.state, g.reason, g.message) == (GangState.RESERVED, "Recutting", "waits for a new MIG layout on node-m0")
    assert list(g.recuts) == ["m0"]
    assert cut.claim.layout == g.recuts["m0"]
    assert cut.claim.resources[labels.MIG_RESOURCE_PREFIX + "3g.40gb"] == 16
    assert cut.claim.recut_at_s > cut.claim.ready_at_s
    assert cut.claim.emptied_at_s == 0


def test_who_comes_while_a_machine_is_cut_is_told_that_it_waits_for_the_cut() -> None:
    world = mig_world()
    world.machine("m0")
    world.waits(gang("g", slices("3g.40gb", 2)))
    run(world)
    world.waits(gang("h", slices("3g.40gb", 2)))
    run(world)
    assert reasons(world)["h"] == Reason.RECUTTING
    assert world.gang("h").message == "waits for 1 machine whose GPUs are cut anew"


def test_a_machine_that_became_ready_this_instant_is_cut_all_the_same() -> None:
    world = mig_world()
    world.machine("m0", at_s=NOW)
    world.waits(gang("g", slices("3g.40gb", 2)))
    run(world)
    claim = world.claims["m0"]
    assert claim.recut_at_s > claim.ready_at_s


@pytest.mark.parametrize("gone", [1, 4, 8])
@pytest.mark.parametrize("written", [True, False])
def test_nobody_returns_to_a_machine_that_is_emptied_to_be_cut_for_another(gone: int, written: bool) -> None:
    """When the last had left, its claim was being written as empty: all came back, and were evicted again for ever."""
    world = mig_world()
    world.machine("m0")
    left = Eviction(Reason.PREEMPTED, "x", NOW - 1)
    small = [gang(f"s{n}", slices("1g.10gb", 7), created_s=NOW - 1000 + n) for n in range(8)]
    world.waits(*small[:gone])
    for one in small[gone:]:
        world.runs(one, ("m0", 7))
        world.gangs[one.uid] = replace(world.gangs[one.uid], state=GangState.EVICTING, eviction=left)
    big = gang("big", slices("3g.40gb", 4), priority=100, created_s=NOW - 10)
    world.waits(replace(big, reason=Reason.WAITING_FOR_PREEMPTED, message="x"))
    world.busy = frozenset() if written else frozenset({claim_subject("m0")})
    run(world)
    assert {world.gangs[one.uid].state for one in small[:gone]} == {GangState.PENDING}
    assert reasons(world)["big"] == ("Recutting" if gone == 8 and written else Reason.WAITING_FOR_PREEMPTED)
    assert bool(world.claims["m0"].recut_at_s) is (gone == 8 and written)


@pytest.mark.parametrize(("first", "second"), [("1g.10gb", "3g.40gb"), ("3g.40gb", "1g.10gb")])
def test_one_machine_is_not_given_to_two_gangs_in_two_cuts(first: str, second: str) -> None:
    world = mig_world()
    world.machine("m0")
    world.waits(gang("a", slices(first), created_s=NOW - 9), gang("b", slices(second), created_s=NOW - 8))
    run(world)
    assert world.gang("a").holds_capacity
    assert not world.gang("b").holds_capacity
    assert world.gang("b").reason == "PoolLimitReached"


def test_fewer_pods_where_that_makes_it_possible_and_all_of_them_again_after_an_eviction() -> None:
    world = yard(1)
    world.waits(gang("g", pod_set(count=12, gpu=1, min_count=4)))
    run(world)
    g = world.gang("g")
    assert (g.state, [pods.count for pods in g.pod_sets]) == (GangState.ADMITTED, [8])
    assert sum(pin.count for pin in g.pins) == 8
    assert g.message == "placed on 1 machine, with 4 pods fewer than it asks"
    back = released(g, world.jobs[g.uid], Reason.QUEUED, "", NOW)
    assert [pods.count for pods in back.pod_sets] == [12]


# -- flavors ----------------------------------------------------------------------------------------------------------


def two_flavors(**queue: Any) -> World:
    builder = FleetBuilder().pool("reserved", limits={"nodes": 0}).pool("bought", zones=[B])
    builder.team(quotas={"reserved": {GPU: 8}, "bought": {GPU: 8}}).queue(flavors=["reserved", "bought"], **queue)
    return World(builder.build())


def test_flavors_are_tried_in_the_queues_order() -> None:
    world = two_flavors()
    world.machine("m0", "reserved")
    world.waits(gang("a"), gang("b", created_s=NOW - 60), gang("c", created_s=NOW - 30))
    run(world)
    assert [world.gang(name).flavors.get("main") for name in "abc"] == [("reserved",), ("bought",), None]
    assert reasons(world) == {"a": "Admitted", "b": "Buying", "c": "WaitingForQuota"}


def test_a_flavor_without_a_machine_is_passed_over() -> None:
    world = two_flavors()
    world.waits(gang("a"))
    run(world)
    assert world.gang("a").flavors == {"main": ("bought",)}


def test_the_reason_is_that_of_the_first_flavor() -> None:
    world = two_flavors()
    world.shortages = {capacity_pool(zone=B): NOW + 60}
    world.waits(gang("a"))
    run(world)
    assert world.gang("a").reason == "PoolLimitReached"


def test_pod_sets_may_get_different_flavors() -> None:
    builder = FleetBuilder().pool("h100").pool("cpu", instanceTypes=["m7i.4xlarge"])
    builder.team(quotas={"h100": {GPU: 8}, "cpu": {"cpu": "16"}}).queue(flavors=["cpu", "h100"])
    world = World(builder.build())
    world.waits(gang("g", pod_set("driver", 1, 0), pod_set("worker", 1, 8)))
    run(world)
    assert world.gang("g").flavors == {"driver": ("cpu",), "worker": ("h100",)}


def test_a_flavor_over_existing_nodes() -> None:
    from tests.support.fleets import plain_node

    builder = FleetBuilder().flavor(
        "owned", nodeLabels={"rack": "r1"}, tolerations=[{"key": "own", "operator": "Exists"}]
    )
    world = World(builder.team(quotas={"owned": {GPU: 8}}).queue(flavors=["owned"]).build())
    from model.kinds import Taint

    taint = Taint(key="own", effect="NoSchedule")
    world.nodes["n0"] = plain_node("n0", {GPU: 8, "cpu": 64000, "memory": 1 << 40}, {"rack": "r1"}, taints=(taint,))
    world.nodes["n1"] = plain_node("n1", {GPU: 8, "cpu": 64000, "memory": 1 << 40}, {"rack": "r2"})
    world.waits(gang("a"), gang("b", created_s=NOW, gpu=1))
    run(world)
    assert [(pin.node, pin.claim) for pin in world.gang("a").pins] == [("n0", "")]
    assert world.gang("b").reason == "WaitingForQuota"


# -- waiting ----------------------------------------------------------------------------------------------------------


def screened(**change: Any) -> World:
    """A world in which everything is fine but what `change` says."""
    team = {"priorityClasses": ["high"], **change.pop("team", {})}
    world = World(
        FleetBuilder()
        .pool()
        .team(**team)
        .queue(**change.pop("queue", {}))
        .priority("high", 1)
        .priority("low", 0)
        .build()
    )
    world.spent_usd = change.pop("spent", {})
    world.waits(gang("g", **{"priority_class": "high", **change}))
    return world


SCREEN: list[Any] = [
    ({"queue_name": "x"}, "QueueNotFound", "queue 'x' is not declared; declared: q"),
    ({"namespace": "other"}, "NamespaceNotAllowed", "namespace 'other' may not use queue 'q': team 't' has ns"),
    ({"priority_class": "p"}, "PriorityClassNotFound", "priority class 'p' is not declared; declared: high, low"),
    ({"priority_class": "low"}, "PriorityClassNotAllowed", "team 't' may not use priority class 'low', only high"),
    ({"queue": {"stopPolicy": "Hold"}}, "QueueStopped", "queue 'q' is stopped (Hold)"),
    ({"queue": {"stopPolicy": "HoldAndDrain"}}, "QueueStopped", "queue 'q' is stopped (HoldAndDrain)"),
    (
        {"team": {"budget": {"usdPerMonth": 50.0}}, "spent": {"t": 50.0}},
        "BudgetExhausted",
        "team 't' has used up its 50.00 USD of this month",
    ),
    ({"requeue_at_s": NOW + 1}, "BackOff", "waits out the pause after its last eviction"),
    ({"gpu": 17}, "NoMatchingOffer", "one pod asks 17 nvidia.com/gpu, one machine has 8"),
    ({"count": 3}, "ExceedsMaxQuota", "at most 16 with everybody else idle"),
    ({"gpu": 9}, "NoMatchingOffer", "holds one pod of main"),
]


@pytest.mark.parametrize(("change", "reason", "message"), SCREEN, ids=[reason for _, reason, _ in SCREEN])
def test_reasons_to_wait(change: dict[str, Any], reason: str, message: str) -> None:
    name = change.get("queue_name")
    world = screened(**{key: value for key, value in change.items() if key != "queue_name"})
    if name:
        world.gangs = {uid: replace(it, queue=name) for uid, it in world.gangs.items()}
    [action] = run(world)
    assert isinstance(action, SaveGang)
    g = world.gang("g")
    assert (g.state, g.reason) == (GangState.PENDING, reason)
    assert message in g.message
    assert g.since_s == NOW - 600, "waiting for another reason is still the same wait"
    assert run(world) == [], "an unchanged reason is not written twice"


@pytest.mark.parametrize(("suspended", "active_pods", "waits"), [(True, 0, False), (False, 0, True), (True, 1, True)])
def test_a_job_started_past_the_queue_is_stopped_first(suspended: bool, active_pods: int, waits: bool) -> None:
    world = yard()
    world.waits(gang("g"))
    world.jobs["uid-g"] = replace(world.jobs["uid-g"], suspended=suspended, active_pods=active_pods)
    run(world)
    g = world.gang("g")
    assert (g.state is GangState.PENDING) is waits
    if waits:
        assert (g.reason, g.message) == ("Queued", "its job was started without admission, and is suspended first")


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"team": {"budget": {"usdPerMonth": 50.0}}, "spent": {"t": 49.99}},
        {"requeue_at_s": NOW},
        {"team": {"priorityClasses": []}, "priority_class": ""},
    ],
)
def test_what_does_not_keep_a_gang_waiting(change: dict[str, Any]) -> None:
    world = screened(**change)
    run(world)
    assert world.gang("g").reason == "Buying"


def test_a_resource_that_no_machine_offers() -> None:
    world = World(small_fleet())
    world.waits(gang("g", pod_set(requests={"example.com/fpga": 1})))
    run(world)
    g = world.gang("g")
    assert (g.reason, g.message) == (
        "NoMatchingFlavor",
        "main fits no flavor of queue q (h100: no machine offers example.com/fpga)",
    )


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"reclaim": "Never"}, "1 gang may not be evicted: reclaim from other teams is off"),
        ({"reclaim": "LowerPriority"}, "1 gang may not be evicted: priority 0 is not below 0"),
    ],
)
def test_missing_quota_is_explained_with_numbers(policy: dict[str, str], why: str) -> None:
    builder = FleetBuilder().pool().team("org", quotas={}, namespaces=[])
    builder.team("a", {"h100": {GPU: 8}}, parent="org").team("b", {"h100": {GPU: 8}}, parent="org", namespaces=["b"])
    builder.queue("qa", "a", preemption=policy).queue("qb", "b")
    world = World(builder.build())
    for n in range(2):
        world.machine(f"m{n}")
    world.runs(gang("loud", count=2, queue="qb", namespace="b"), ("m0", 1), ("m1", 1))
    world.waits(gang("g", queue="qa"))
    run(world)
    assert world.gang("g").message == (
        f"needs 8 more {GPU} of h100: asks 8, 0 available; b borrows 8; a is 8 below its guarantee; {why}"
    )


def test_amounts_that_no_quota_names_are_not_limited() -> None:
    world = yard(quotas={"h100": {"cpu": "8"}})
    world.waits(gang("g", count=2))
    run(world)
    assert world.gang("g").state is GangState.ADMITTED


def test_what_other_pods_take_is_not_free() -> None:
    world = yard(1)
    world.stands(foreign_pod("debug", "node-m0", {GPU: 1}))
    world.waits(gang("g"), gang("h", gpu=7, created_s=NOW))
    run(world)
    assert states(world) == {"g": "Pending", "h": "Admitted"}


# -- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("BestEffortFIFO", {"head": "PoolLimitReached", "next": "Admitted", "last": "Admitted"}),
        ("StrictFIFO", {"head": "PoolLimitReached", "next": "BehindHead", "last": "BehindHead"}),
    ],
)
def test_what_passes_a_head_that_cannot_run(order: str, expected: dict[str, str]) -> None:
    world = yard(1, order=order)
    world.waits(
        gang("head", count=2, created_s=NOW - 30),
        gang("next", gpu=4, created_s=NOW - 20),
        gang("last", gpu=4, created_s=NOW),
    )
    run(world)
    assert reasons(world) == expected
    if order == "StrictFIFO":
        assert world.gang("last").message == "waits behind ns/head in a StrictFIFO queue"


@pytest.mark.parametrize("order", ["BestEffortFIFO", "StrictFIFO"])
def test_nothing_passes_a_strict_head_that_has_an_action_under_way(order: str) -> None:
    world = yard(2, order=order)
    world.waits(gang("head", created_s=NOW - 30), gang("next", created_s=NOW - 20))
    world.busy = frozenset({gang_subject("uid-head")})
    run(world)
    assert states(world)["next"] == ("Pending" if order == "StrictFIFO" else "Admitted")


@pytest.mark.parametrize(
    ("gangs", "winner"),
    [
        pytest.param({"a": {"created_s": NOW - 9}, "b": {"created_s": NOW - 10}}, "b", id="older"),
        pytest.param({"a": {"priority": 1}, "b": {"created_s": NOW - 9999}}, "a", id="priority before age"),
        pytest.param({"b": {}, "a": {}}, "a", id="then uid"),
        pytest.param(
            {"a": {"priority": 9}, "b": {"reason": "WaitingForPreemptedWorkloads"}}, "b", id="for whom others have left"
        ),
    ],
)
def test_order_within_a_queue(gangs: dict[str, dict[str, Any]], winner: str) -> None:
    world = yard(1)
    for name, facts in gangs.items():
        world.waits(gang(name, **facts))
    run(world)
    assert [name for name, state in states(world).items() if state == "Admitted"] == [winner]


def org(machines: int = 2, a: Any = None, b: Any = None, **queue: Any) -> World:
    """Two teams of eight GPUs each below one root, a queue each, machines that cannot grow."""
    builder = FleetBuilder().pool(limits={"nodes": 0}).team("org", quotas={}, namespaces=[])
    builder.team("a", {"h100": a or {GPU: 8}}, parent="org", namespaces=["a"])
    builder.team("b", {"h100": b or {GPU: 8}}, parent="org", namespaces=["b"])
    builder.queue("qa", "a", **queue).queue("qb", "b", **queue)
    world = World(builder.priority("meek", 50, preempts=False).build())
    for n in range(machines):
        world.machine(f"m{n}")
    return world


def of(team: str, name: str, **facts: Any) -> Gang:
    return gang(name, queue=f"q{team}", namespace=team, **facts)


def test_less_borrowing_goes_before_priority() -> None:
    world = org(1)
    world.waits(of("a", "borrows", count=1, gpu=8, priority=9), of("b", "owns", gpu=8))
    world.machine("m1")
    world.runs(of("a", "before"), ("m1", 1))
    run(world)
    assert states(world)["owns"] == "Admitted"
    assert states(world)["borrows"] == "Pending"


@pytest.mark.parametrize(("fairness", "winner"), [("None", "greedy"), ("DominantShare", "modest")])
def test_dominant_share_decides_among_borrowers(fairness: str, winner: str) -> None:
    """Both would borrow; `greedy` is older, but its team already borrows four."""
    world = org(3, a={GPU: 4}, b={GPU: 4}, fairness=fairness)
    world.fleet.teams["org"].spec.quotas.update(_quota(16))
    world.runs(of("a", "ga"), ("m0", 1))
    world.runs(of("b", "gb", gpu=4), ("m1", 1))
    world.waits(of("a", "greedy", gpu=8, created_s=NOW - 99), of("b", "modest", gpu=8, created_s=NOW - 9))
    run(world)
    assert [name for name in ("greedy", "modest") if states(world)[name] == "Admitted"] == [winner]


def _quota(gpus: int) -> dict[str, Any]:
    from model.kinds.tenancy import FlavorQuota

    return {"h100": FlavorQuota.model_validate({"guaranteed": {GPU: gpus}})}


# -- eviction ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evictions", "ago_s", "rests"),
    [
        (2, 0, False),
        (3, 59, True),
        (3, 60, False),
        (4, 119, True),
        (4, 120, False),
        (99, 3599, True),
        (99, 3600, False),
    ],
)
def test_who_was_evicted_again_and_again_may_not_evict_for_a_while(evictions: int, ago_s: int, *, rests: bool) -> None:
    world = full()
    world.waits(gang("new", priority=1, evictions=evictions, eviction=Eviction("InClusterQueue", "", NOW - ago_s)))
    run(world)
    assert (states(world)["young"] == "Admitted") is rests


def full(**queue: Any) -> World:
    """Two machines, each full with a gang of the queue; `new` is older than `young`, and younger than `old`."""
    world = yard(2, **queue)
    world.runs(gang("old", created_s=NOW - 900), ("m0", 1))
    world.runs(gang("young", created_s=NOW - 100), ("m1", 1), quota_reserved_at_s=NOW - 99)
    return world


@pytest.mark.parametrize(
    ("policy", "priority", "victims"),
    [
        pytest.param("LowerPriority", 1, ["young"], id="the most recently admitted of the lower ones"),
        pytest.param("LowerPriority", 0, [], id="equals stay"),
        pytest.param("LowerOrNewerEqualPriority", 0, ["young"], id="newer equals go"),
        pytest.param("Never", 9, [], id="never"),
    ],
)
def test_preemption_within_the_queue(policy: str, priority: int, victims: list[str]) -> None:
    world = full(preemption={"withinQueue": policy})
    world.waits(gang("new", priority=priority))
    run(world)
    assert [name for name, state in states(world).items() if state == "Evicting"] == victims
    if victims:
        young = world.gang("young")
        assert (young.reason, young.evictions) == ("InClusterQueue", 1)
        assert young.message == f"makes room for ns/new (priority {priority}, queue q)"
        assert (world.gang("new").reason, world.gang("new").message) == (
            "WaitingForPreemptedWorkloads",
            "waits until ns/young has left",
        )
    else:
        assert world.gang("new").reason == "WaitingForQuota"


def test_gangs_are_evicted_whole_and_no_more_of_them_than_needed() -> None:
    world = yard(2)
    world.runs(gang("wide", count=2, gpu=4), ("m0", 1), ("m1", 1))
    world.runs(gang("narrow", gpu=4), ("m0", 1))
    world.waits(gang("new", gpu=4, priority=1), gang("newer", gpu=8, priority=2))
    run(world)
    assert states(world) == {"wide": "Evicting", "narrow": "Admitted", "new": "Pending", "newer": "Pending"}
    assert world.gang("new").message == "waits until ns/wide has left"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        pytest.param({"priority_class": "low", "priority": 5}, None, id="a class that preempts"),
        pytest.param(
            {"priority_class": "meek", "priority": 50, "preempts": False}, "WaitingForQuota", id="a class that does not"
        ),
    ],
)
def test_a_priority_class_may_forbid_preemption(facts: dict[str, Any], reason: str | None) -> None:
    world = org()
    world.runs(of("a", "ga"), ("m0", 1))
    world.runs(of("a", "gb"), ("m1", 1))
    fleet = world.fleet
    world.fleet = replace(fleet, priority_classes={**fleet.priority_classes, "low": _class("low", 5)})
    world.waits(of("b", "new", **facts))
    run(world)
    assert ("Evicting" in states(world).values()) is (reason is None)
    if reason:
        assert world.gang("new").reason == reason


def _class(name: str, value: int) -> Any:
    return FleetBuilder().priority(name, value).build().priority_classes[name]


def test_protected_run_time() -> None:
    world = full(protectedRunTime="10m")
    world.waits(gang("new", priority=1))
    run(world)
    assert "Evicting" not in states(world).values()
    world.now_s += 101
    run(world)
    assert "Evicting" in states(world).values()


def test_a_team_takes_back_its_guarantee() -> None:
    world = org()
    world.runs(of("a", "own"), ("m0", 1), quota_reserved_at_s=NOW - 400)
    world.runs(of("a", "borrowed", priority=9), ("m1", 1))
    world.waits(of("b", "new"))
    run(world)
    assert states(world) == {"own": "Evicting", "borrowed": "Admitted", "new": "Pending"}
    assert world.gang("own").reason == "InCohortReclamation"


@pytest.mark.parametrize(
    ("policy", "priority", "taken"),
    [("Never", 9, False), ("LowerPriority", 0, False), ("LowerPriority", 1, True), ("Any", -5, True)],
)
def test_reclaim_policies(policy: str, priority: int, taken: bool) -> None:
    world = org(preemption={"reclaim": policy})
    world.runs(of("a", "ga"), ("m0", 1))
    world.runs(of("a", "gb"), ("m1", 1))
    world.waits(of("b", "new", priority=priority))
    run(world)
    assert ("Evicting" in states(world).values()) is taken


def test_nothing_is_taken_from_a_team_within_its_guarantee() -> None:
    world = org()
    world.runs(of("a", "ga"), ("m0", 1))
    world.runs(of("b", "gb"), ("m1", 1))
    world.waits(of("b", "new", priority=9, gpu=4), of("a", "other", priority=9, gpu=4))
    world.fleet = replace(
        world.fleet,
        queues={n: _never(q) for n, q in world.fleet.queues.items()},
    )
    run(world)
    assert "Evicting" not in states(world).values()


def _never(queue: Any) -> Any:
    spec = queue.spec.model_copy(
        update={"preemption": queue.spec.preemption.model_copy(update={"within_queue": "Never"})}
    )
    return queue.model_copy(update={"spec": spec})


def test_nobody_is_evicted_for_a_gang_that_would_still_have_no_place() -> None:
    """Quota would come free, but no machine is large enough for one pod."""
    world = yard(2, quotas={"h100": {GPU: 16, "cpu": "100"}})
    world.runs(gang("a", count=2), ("m0", 1), ("m1", 1))
    world.waits(gang("new", pod_set(count=2, requests={**amounts(8), "memory": 2 << 40}), priority=9))
    run(world)
    assert states(world) == {"a": "Admitted", "new": "Pending"}


def test_eviction_may_make_room_in_quota_for_a_purchase() -> None:
    world = World(FleetBuilder().pool(limits={"nodes": 2}).team(quotas={"h100": {GPU: 8}}).queue().build())
    world.machine("m0")
    world.runs(gang("a"), ("m0", 1))
    world.waits(
        gang("new", pod_set(count=1, gpu=8, required_topology=labels.ZONE, node_selector={labels.ZONE: B}), priority=1)
    )
    run(world)
    assert states(world) == {"a": "Evicting", "new": "Pending"}


def test_a_gang_that_was_only_waiting_for_machines_gives_everything_back_at_once() -> None:
    world = World(FleetBuilder().pool(limits={"nodes": 4}).team(quotas={"h100": {GPU: 8}}).queue().build())
    world.waits(gang("a"))
    run(world)
    assert world.gang("a").state is GangState.RESERVED
    world.waits(gang("new", priority=1))
    run(world)
    a = world.gang("a")
    assert (a.state, a.reason, a.pins, a.flavors) == (GangState.PENDING, "InClusterQueue", (), {})
    run(world)
    assert world.gang("new").state is GangState.RESERVED


def test_while_victims_leave_the_preemptor_waits_and_nobody_takes_what_it_waits_for() -> None:
    world = full(preemption={"withinQueue": "LowerPriority"}, quotas={"h100": {GPU: 24}})
    world.waits(gang("new", priority=1))
    run(world)
    world.waits(gang("sneaky", gpu=1, priority=0, created_s=NOW - 9999))
    for _ in range(3):
        run(world)
        assert states(world) == {"old": "Admitted", "young": "Evicting", "new": "Pending", "sneaky": "Pending"}
    world.gangs["uid-young"] = replace(world.gang("young"), state=GangState.PENDING, pins=(), flavors={})
    run(world)
    assert states(world)["new"] == "Admitted"
    assert {pin.claim for pin in world.gang("new").pins} == {"m1"}


def test_what_a_preemptor_will_buy_is_not_bought_by_others_meanwhile() -> None:
    """Quota comes free by an eviction; the pool's last machine is for the preemptor."""
    builder = FleetBuilder().pool(limits={"nodes": 2}).team(quotas={"h100": {GPU: 8}}).queue()
    builder.team("u", {"h100": {GPU: 8}}, namespaces=["u"]).queue("qu", "u")
    world = World(builder.build())
    world.machine("m0")
    world.runs(gang("a", gpu=8), ("m0", 1))
    in_b = pod_set(node_selector={labels.ZONE: B})
    world.waits(gang("new", in_b, priority=1), gang("other", queue="qu", namespace="u", created_s=NOW))
    run(world)
    assert states(world) == {"a": "Evicting", "new": "Pending", "other": "Pending"}


def test_two_preemptors_do_not_count_on_the_same_victim() -> None:
    world = full()
    world.waits(gang("first", priority=2), gang("second", priority=1))
    run(world)
    assert states(world) == {"old": "Evicting", "young": "Evicting", "first": "Pending", "second": "Pending"}


def test_a_gang_admitted_in_this_pass_is_not_evicted_in_it() -> None:
    """One action a gang and pass: the preemptor waits for the next one."""
    world = org(2)
    world.runs(of("a", "ga", priority=9), ("m0", 1))
    world.waits(of("b", "lowly", gpu=8), of("b", "urgent", gpu=8, priority=5, created_s=NOW))
    world.waits(of("a", "thief", gpu=8, priority=9))
    actions = run(world)
    saved = [it.gang.uid for it in actions if isinstance(it, SaveGang)]
    assert len(saved) == len(set(saved))


# -- busy subjects ----------------------------------------------------------------------------------------------------


def test_a_busy_gang_is_left_alone() -> None:
    world = yard()
    world.waits(gang("g"))
    world.busy = frozenset({gang_subject("uid-g")})
    assert run(world) == []


def test_a_busy_gang_keeps_its_turn() -> None:
    """Its last decision is still being written: what it could have now goes to nobody behind it."""
    world = yard(1)
    world.waits(gang("first", priority=1), gang("second"))
    world.busy = frozenset({gang_subject("uid-first")})
    run(world)
    assert states(world) == {"first": "Pending", "second": "Pending"}
    world.busy = frozenset()
    run(world)
    assert states(world) == {"first": "Admitted", "second": "Pending"}


def test_a_busy_victim_is_waited_for_and_nobody_else_goes_in_its_place() -> None:
    world = full()
    world.waits(gang("new", priority=1))
    world.busy = frozenset({gang_subject("uid-young")})
    run(world)
    assert states(world) == {"old": "Admitted", "young": "Admitted", "new": "Pending"}
    world.busy = frozenset()
    run(world)
    assert states(world) == {"old": "Admitted", "young": "Evicting", "new": "Pending"}


def test_a_busy_machine_is_not_cut_anew() -> None:
    world = mig_world()
    world.machine("m0")
    world.busy = frozenset({"claim/m0"})
    world.waits(gang("g", slices("3g.40gb", 2)))
    run(world)
    assert not world.gang("g").recuts


@pytest.mark.parametrize("fairness", ["None", "DominantShare", "GuaranteeShare"])
@pytest.mark.parametrize("late", [6, 4])
def test_a_guarantee_is_taken_back_where_its_machine_is_and_not_only_in_one_order(late: int, fairness: str) -> None:
    """The newest two were enough for the quota and left 4 and 6 GPUs on two machines: nobody went, for ever."""
    builder = FleetBuilder().pool(limits={"nodes": 0}).team(quotas={"h100": {GPU: 8}}, parent="org")
    builder.team("org", {}, namespaces=[]).team("u", {"h100": {GPU: 8}}, namespaces=["other"], parent="org")
    world = World(builder.queue().queue("r", team="u", fairness=fairness, preemption={"reclaim": "Any"}).build())
    world.machine("m0")
    world.machine("m1")
    stands = {"a": (4, "m0", 900), "b": (8 - late, "m1", 800), "c": (late, "m1", 500), "d": (4, "m0", 400)}
    for name, (gpus, where, ago_s) in stands.items():
        world.runs(gang(name, gpu=gpus), (where, 1), quota_reserved_at_s=NOW - ago_s, admitted_at_s=NOW - ago_s)
    world.waits(gang("w", queue="r", namespace="other"))
    run(world)
    gone = {name for name, state in states(world).items() if state == "Evicting"}
    assert gone in ({"b", "c"}, {"a", "d"})
    assert reasons(world)["w"] == Reason.WAITING_FOR_PREEMPTED
