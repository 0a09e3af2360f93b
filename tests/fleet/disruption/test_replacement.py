"""Machines with gangs on them: replaced first, moved whole, and then nothing more happens."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import OpenClaims
from fleet.disruption.context import DisruptionContext
from fleet.disruption.drift import DriftMethod
from fleet.placement.inventory import MOVES_WITHIN_S, build_cluster_state
from fleet.snapshot import Eviction, GangState, Launch, NodeDisruption
from model.kinds import NEVER
from model.labels import HOSTNAME
from tests.support.disruption import CHANGED, OPEN, at_rest, opened, standing, told, within
from tests.support.fleets import NOW, P5, P5S, B, FleetBuilder, capacity_pool, foreign_pod, gang, pod_set
from tests.support.world import World


def drifted(**pool: Any) -> World:
    """Two machines; a gang on `m0` alone, one on both; the template has changed since."""
    world = standing(2)
    world.runs(gang("wide", count=2, gpu=4), ("m0", 1), ("m1", 1))
    world.runs(gang("narrow", gpu=4), ("m0", 1))
    within(world, **{**CHANGED, **pool})
    return world


def test_machines_that_share_a_gang_are_replaced_together_in_one_launch_group() -> None:
    world = drifted()
    actions = world.disrupted()
    assert told(actions) == {}
    names = ("m0", "m1")
    assert opened(actions) == [(P5.name, "uid-narrow", names), (P5.name, "uid-wide", names)]
    launches = [claim.launch for it in actions if isinstance(it, OpenClaims) for claim in it.claims]
    assert len({it.group for it in launches}) == 1
    assert [(it.lot, it.size) for it in sorted(launches, key=lambda it: it.lot)] == [(0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("pool", "change"),
    [
        pytest.param({"disruption": {"budgets": [{"nodes": 1}]}}, None, id="the budget lets one go, they go in twos"),
        pytest.param({"limits": {"nodes": 3}}, None, id="the limits let one more be bought"),
        pytest.param({}, {"do_not_disrupt": "true"}, id="one of the gangs must not be disturbed"),
        pytest.param({}, {"state": GangState.EVICTING}, id="one of the gangs leaves anyway"),
        pytest.param({}, {"flavors": {"main": ("gone",)}}, id="its flavor is no longer declared"),
    ],
)
def test_when_they_are_not_replaced(pool: dict[str, Any], change: dict[str, Any] | None) -> None:
    world = drifted(**pool)
    if change:
        world.gangs["uid-wide"] = replace(world.gang("wide"), **change)
    assert world.disrupted() == []


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(lambda world: setattr(world, "busy", frozenset({"claim/m1"})), id="an action on it is under way"),
        pytest.param(
            lambda world: world.claims.update(
                m1=replace(world.claims["m1"], replaces=("old",)),
                old=replace(world.claims["m1"], name="old", deleting=True),
            ),
            id="the one that it replaced is not gone yet",
        ),
    ],
)
def test_a_machine_waits_for_another_one_of_its_gang_that_cannot_leave_at_this_moment(
    later: Callable[[World], object],
) -> None:
    """Both of the gang's machines were bought in place of the one."""
    world = drifted()
    later(world)
    assert world.disrupted() == []


def test_what_shares_a_machine_shares_the_one_bought_in_its_place() -> None:
    """Gang by gang each got a machine of its own, and one was replaced by as many as it had tenants."""
    world = standing(1)
    for n in range(3):
        world.runs(gang(f"g{n}", gpu=2), ("m0", 1))
    within(world, **CHANGED)
    bought = [claim for it in world.disrupted() if isinstance(it, OpenClaims) for claim in it.claims]
    assert [(claim.gang, claim.also_for) for claim in bought] == [("uid-g0", ("uid-g1", "uid-g2"))]
    large = standing(1)
    for n in range(2):
        large.runs(gang(f"g{n}", gpu=4), ("m0", 1))
    within(large, instanceTypes=[P5S.name])
    assert large.disrupted() == [], "neither fits on what may be bought now"


HELD = {"stopPolicy": "Hold"}
KEEPERS: list[tuple[str, Callable[[FleetBuilder], FleetBuilder]]] = [
    ("a stopped queue", lambda it: it.queue(**HELD)),
    ("a queue that has gone", lambda it: it.queue("other")),
    ("a namespace that is its team's no more", lambda it: it.team(namespaces=["other"]).queue()),
    ("a priority class that is gone", lambda it: it.queue()),
    ("a month's budget that is used up", lambda it: it.team(budget={"usdPerMonth": 100}).queue()),
]


@pytest.mark.parametrize("declared", [it[1] for it in KEEPERS], ids=[it[0] for it in KEEPERS])
def test_work_that_might_not_start_again_keeps_its_machine(declared: Callable[[FleetBuilder], FleetBuilder]) -> None:
    """It was evicted all the same, stayed stopped, and what had been bought for it billed for hours."""
    world = standing(1)
    world.runs(gang("g", priority_class="gone" if declared is KEEPERS[3][1] else ""), ("m0", 1))
    world.spent_usd = {"t": 100.0}
    builder = FleetBuilder().pool(disruption=OPEN, **CHANGED).team(quotas={"h100": {"nvidia.com/gpu": 64}})
    world.fleet = declared(builder).build()
    assert world.disrupted() == []
    context = DisruptionContext.of(world.fleet, world.snapshot())
    assert "g could not start again" in DriftMethod().why_not(context, world.claims["m0"]).message


@pytest.mark.parametrize(
    ("state", "since_s", "waits"),
    [
        pytest.param(GangState.PENDING, 0.0, True, id="it has just left its old machine"),
        pytest.param(GangState.PENDING, MOVES_WITHIN_S - 1, True, id="it waits in its queue"),
        pytest.param(GangState.PENDING, MOVES_WITHIN_S, False, id="for a quarter of an hour"),
        pytest.param(GangState.EVICTING, 9 * MOVES_WITHIN_S, True, id="it takes its time to end"),
        pytest.param(GangState.FINISHED, 0.0, False, id="it has ended"),
    ],
)
def test_a_replacement_waits_for_its_gang_so_long_and_no_longer(state: GangState, since_s: float, waits: bool) -> None:
    """A queue that was stopped meanwhile kept it idle for ever."""
    world = standing(1)
    world.machine("new", replaces=("m0",), gang="uid-g", ready_at_s=NOW - 7200, emptied_at_s=NOW - 7200)
    world.runs(gang("g", gpu=8), ("m0", 1))
    leaves = state is GangState.EVICTING
    pins = world.gang("g").pins if leaves else ()
    world.gangs["uid-g"] = replace(world.gang("g"), state=state, since_s=NOW - since_s, pins=pins)
    if leaves:
        gone = NodeDisruption("Drifted", "x", NOW, NEVER)
        world.claims["m0"] = replace(world.claims["m0"], disruption=gone, deleting=True)
    else:
        del world.claims["m0"], world.nodes["node-m0"]
    assert ("new" in told(world.disrupted())) is not waits
    slot = build_cluster_state(world.snapshot(), ()).slots["node-new"]
    assert slot.only_for == (frozenset({"uid-g"}) if waits else frozenset())


@pytest.mark.parametrize(("reason", "waits"), [("Drifted", True), ("NodeFailures", False)])
def test_a_replacement_waits_for_a_gang_that_lost_its_place_from_then_on(reason: str, waits: bool) -> None:
    """Found by `--profile faults --seed 20675`: its pods were long gone to end, and others had its quota."""
    world = standing(1)
    world.machine("new", replaces=("m0",), gang="uid-g", ready_at_s=NOW - 7200, emptied_at_s=NOW - 7200)
    world.waits(gang("g", gpu=8))
    evicted = Eviction(reason, "x", NOW - MOVES_WITHIN_S)
    world.gangs["uid-g"] = replace(world.gang("g"), since_s=NOW, eviction=evicted)
    del world.claims["m0"], world.nodes["node-m0"]
    assert ("new" in told(world.disrupted())) is not waits


def test_a_replacement_does_not_wait_for_a_gang_that_may_not_start() -> None:
    """Found by `--profile humans --seed 20137`: the old machine expired, and the gang's queue was stopped."""
    world = standing(1)
    world.machine("new", replaces=("m0",), gang="uid-g", ready_at_s=NOW - 7200, emptied_at_s=NOW - 7200)
    world.waits(gang("g", gpu=8))
    world.gangs["uid-g"] = replace(world.gang("g"), since_s=NOW)
    del world.claims["m0"], world.nodes["node-m0"]
    assert "new" not in told(world.disrupted())
    world.fleet = FleetBuilder().pool(disruption=OPEN, **CHANGED).team().queue(**HELD).build()
    assert told(world.disrupted())["new"] == "Empty"


def bought_long_ago(**pool: Any) -> World:
    """A drifted machine with a gang, and the one bought in its place that has been ready for hours."""
    world = standing(1)
    world.runs(gang("g", gpu=8), ("m0", 1))
    within(world, **{**CHANGED, **pool})
    world.machine("new", replaces=("m0",), gang="uid-g", emptied_at_s=NOW - 7200)
    return world


def test_what_was_bought_for_a_machine_that_may_not_go_is_given_back() -> None:
    world = bought_long_ago()
    assert told(world.disrupted()) == {"m0": "Drifted"}, "after an absence of the agent, too"
    world = bought_long_ago()
    world.gangs["uid-g"] = replace(world.gang("g"), do_not_disrupt="true")
    assert told(world.disrupted()) == {"new": "NotNeeded"}
    world.claims["new"] = replace(world.claims["new"], ready_at_s=NOW - MOVES_WITHIN_S + 1)
    assert told(world.disrupted()) == {}
    del world.claims["new"]
    assert world.disrupted() == [], "and nothing is bought for it again"


KEPT = [
    pytest.param({"do_not_disrupt": "true"}, None, id="its node says do-not-disrupt"),
    pytest.param({}, {"do_not_disrupt": "true"}, id="a pod of a DaemonSet says do-not-disrupt"),
]


def keep(world: World, name: str, node: dict[str, Any], daemon: dict[str, Any] | None) -> None:
    at = world.claims[name].node
    world.nodes[at] = replace(world.nodes[at], **node)
    if daemon is not None:
        world.stands(replace(foreign_pod("agent", at, {}), daemon=True, **daemon))


@pytest.mark.parametrize(("node", "daemon"), KEPT)
def test_what_was_bought_and_may_not_be_disrupted_is_not_given_back(
    node: dict[str, Any], daemon: dict[str, Any] | None
) -> None:
    world = bought_long_ago()
    world.gangs["uid-g"] = replace(world.gang("g"), do_not_disrupt="true")
    keep(world, "new", node, daemon)
    assert told(world.disrupted()) == {}


def test_a_pod_of_somebody_else_keeps_the_unit() -> None:
    world = drifted()
    world.stands(foreign_pod("x", "node-m1"))
    assert world.disrupted() == []


def test_no_replacement_can_be_had() -> None:
    world = drifted()
    world.shortages = {capacity_pool(): NOW + 60, capacity_pool(zone=B): NOW + 60}
    assert world.disrupted() == []


def test_a_busy_gang_is_not_moved() -> None:
    world = drifted()
    world.busy = frozenset({"gang/uid-wide"})
    assert world.disrupted() == []


def replaced(*ready: bool, **facts: Any) -> World:
    """The replacements of `m0` and `m1` in one launch group, each ready or on its way."""
    world = drifted()
    for n, done in enumerate(ready):
        stamps = {} if done else {"ready_at_s": 0.0}
        launch = Launch("replacements", n, 2)
        gang_uid = ("uid-narrow", "uid-wide")[n % 2]
        world.machine(f"r{n}", replaces=("m0", "m1"), gang=gang_uid, launch=launch, **{**stamps, **facts})
    return world


@pytest.mark.parametrize(
    ("ready", "facts", "goes", "buys"),
    [
        pytest.param((True, True), {}, True, 0, id="all ready: the old ones go"),
        pytest.param((True, False), {}, False, 0, id="one still on its way"),
        pytest.param((False, False), {}, False, 0, id="all on their way"),
        pytest.param(
            (False, False),
            {"disruption": NodeDisruption("InsufficientCapacityError", "x", NOW, NEVER)},
            False,
            2,
            id="all given up",
        ),
        pytest.param((False, False), {"deleting": True}, False, 2, id="all being deleted"),
        pytest.param((True,), {}, False, 1, id="one of the group was lost: what is missing is bought"),
    ],
)
def test_what_follows_from_replacements(ready: tuple[bool, ...], facts: dict[str, Any], goes: bool, buys: int) -> None:
    world = replaced(*ready, **facts)
    actions = world.disrupted()
    assert told(actions) == (dict.fromkeys(("m0", "m1"), "Drifted") if goes else {})
    assert len(opened(actions)) == buys


@pytest.mark.parametrize(
    ("facts", "given_back"),
    [
        pytest.param({}, ["r0", "r1"], id="on their way"),
        pytest.param({"ready_at_s": NOW - 5}, ["r0", "r1"], id="ready, and nobody has moved"),
        pytest.param({"disruption": NodeDisruption("SpotInterruption", "x", NOW, NEVER)}, [], id="given up anyway"),
    ],
)
def test_replacements_of_a_template_that_has_changed_since_are_given_back(
    facts: dict[str, Any], given_back: list[str]
) -> None:
    """Those who moved there would move once more; the old machines stay until others are bought for them."""
    world = replaced(False, False, **facts)
    within(world, template={"labels": {"a": "c"}})
    actions = world.disrupted()
    if given_back:
        assert told(actions) == dict.fromkeys(given_back, "NotNeeded")
        assert opened(actions) == [], "others are bought for them afterwards"
    else:
        assert told(actions) == {}


@pytest.mark.parametrize(("node", "daemon"), KEPT)
def test_replacements_of_a_template_that_has_changed_stay_where_they_may_not_be_disrupted(
    node: dict[str, Any], daemon: dict[str, Any] | None
) -> None:
    world = replaced(False, False, ready_at_s=NOW - 5)
    within(world, template={"labels": {"a": "c"}})
    keep(world, "r1", node, daemon)
    assert "NotNeeded" not in told(world.disrupted()).values()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"advised_at_s": NOW - 5}, id="the cloud advises to leave it"),
        pytest.param({"disruption": NodeDisruption("Drifted", "x", NOW, NEVER)}, id="its work moves already"),
    ],
)
def test_replacements_are_kept_where_an_old_machine_cannot_wait_for_others(change: dict[str, Any]) -> None:
    world = replaced(False, False)
    world.claims["m0"] = replace(world.claims["m0"], **change)
    within(world, template={"labels": {"a": "c"}})
    assert told(world.disrupted()) == {}


def test_two_units_in_one_pass_do_not_count_on_the_same_room() -> None:
    """Each gang alone would fit on the spare machine; only one of them does, the other's machine is bought."""
    world = standing(2)
    world.runs(gang("a"), ("m0", 1))
    world.runs(gang("b"), ("m1", 1))
    within(world, **CHANGED, limits={"nodes": 4})
    world.machine("spare", emptied_at_s=NOW)
    actions = world.disrupted()
    assert told(actions) == {"m0": "Drifted"}
    assert opened(actions) == [(P5.name, "uid-b", ("m1",))]


def test_two_units_in_one_pass_keep_to_one_limit() -> None:
    world = standing(2)
    world.runs(gang("a"), ("m0", 1))
    world.runs(gang("b"), ("m1", 1))
    within(world, **CHANGED, limits={"nodes": 3})
    assert opened(world.disrupted()) == [(P5.name, "uid-a", ("m0",))]


def test_a_gang_is_not_moved_from_one_drifted_machine_to_another() -> None:
    world = standing(2)
    world.runs(gang("a", gpu=2), ("m0", 1))
    world.runs(gang("b", gpu=2), ("m1", 1))
    within(world, **CHANGED)
    assert opened(world.disrupted()) == [(P5.name, "uid-a", ("m0",)), (P5.name, "uid-b", ("m1",))]


def stays_and_goes(**disruption: Any) -> World:
    """Two machines that have drifted: what is on `m0` fits nowhere else, what is on `m1` fits beside it."""
    world = standing(2)
    world.runs(gang("a", pod_set(gpu=2, node_selector={HOSTNAME: "node-m0"})), ("m0", 1))
    world.runs(gang("b", gpu=2), ("m1", 1))
    within(world, **CHANGED, **({"disruption": disruption} if disruption else {}))
    return world


def test_a_gang_moves_to_a_drifted_machine_that_cannot_leave_either() -> None:
    """Karpenter would put it there, too; a machine bought for it would stand beside one with room."""
    actions = stays_and_goes().disrupted()
    assert told(actions) == {"m1": "Drifted"}
    assert opened(actions) == []


def test_a_machine_without_a_place_for_its_gang_takes_nothing_from_the_budget() -> None:
    """It came first in every turn, so that no other was ever replaced."""
    assert told(stays_and_goes(budgets=[{"nodes": 1}]).disrupted()) == {"m1": "Drifted"}


def test_a_drifted_machine_is_replaced_and_its_gang_moves_in() -> None:
    world = drifted()
    actions = world.settle_down()
    assert set(world.claims).isdisjoint({"m0", "m1"})
    assert [(it.state, it.reason, it.evictions) for it in world.gangs.values()] == [
        (GangState.ADMITTED, "PodsReady", 1)
    ] * 2
    assert len([it for it in actions if isinstance(it, OpenClaims)]) == 1, "the replacements are what the gangs move to"
    assert all(node.labels.get("a") == "b" for node in world.nodes.values())
    at_rest(world)


def test_replacements_that_cannot_be_had_are_not_asked_for_again_and_again() -> None:
    """The cloud has none: the gang keeps its machine, and there is one attempt a shortage."""
    world = standing(1)
    world.runs(gang("g"), ("m0", 1))
    within(world, **CHANGED)
    world.sold_out = {capacity_pool(), capacity_pool(zone=B)}
    for _ in range(40):
        world.pass_once()
        world.now_s += 5
    assert world.gang("g").reason == "PodsReady"
    assert world.gang("g").evictions == 0
    assert len(world.launches) == 2 * 2, "each zone once, and once more after the shortage is over"
