"""Fewer or cheaper machines where that pays: what is proposed, why others stay, and what pools have to say to it."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import OpenClaims, SaveClaim
from fleet.catalog import InstanceOffer
from fleet.disruption.context import DisruptionContext
from fleet.disruption.outcomes import DisruptionOutcome, Obstacle
from fleet.reasons import Reason
from fleet.snapshot import Claim, GangState, NodeDisruption
from fleet.snapshot.constraints import UNCONSTRAINED, PodConstraints, PodHostPort
from fleet.snapshot.gangs import Eviction
from tests.support.disruption import (
    BOTH,
    KEEPS,
    OPEN,
    RETURNS,
    WAITS,
    Change,
    Row,
    at_rest,
    balanced,
    busy,
    busy_with,
    cheaper_on_its_way,
    check,
    dear_work,
    declare,
    opened,
    quiet,
    said,
    second_best,
    sold_out,
    spared,
    standing,
    told,
    within,
    world_of,
)
from tests.support.fleets import GPU, NOW, P5, P5S, A, FleetBuilder, catalog, foreign_pod, gang, machine, pod_set
from tests.support.world import World

ROWS: list[Row] = [
    ("small gang, big machine", lambda: busy(gpu=1, instanceTypes=BOTH), {}, WAITS, Obstacle.PROPOSED,
     "saving 84.00 USD/h; 1 machine bought first; it goes when that still holds"),
    ("full", lambda: busy(gpu=8, instanceTypes=BOTH), {}, KEEPS, Obstacle.NO_SAVING, "as much or more"),
    ("several small ones", lambda: busy_with(2), {}, KEEPS, Obstacle.NO_SAVING, "more than 1"),
    ("no other offer", lambda: sold_out(busy(gpu=1)), {}, WAITS, Obstacle.NO_PLACE, "short of"),
    ("dear work", lambda: dear_work(1), {}, WAITS, Obstacle.PAYBACK, "lose work worth 2352.00 USD"),
    ("just started", lambda: busy(gpu=1, run={"admitted_at_s": NOW - 5}, instanceTypes=BOTH), {}, WAITS,
     Obstacle.QUIET_TIME, "60 s"),
    ("when empty only", lambda: busy(disruption={"consolidationPolicy": "WhenEmpty"}), {}, KEEPS, Obstacle.POLICY,
     "WhenEmpty"),
    ("nothing on it", lambda: world_of(**quiet(9000)), {}, KEEPS, Obstacle.EMPTY, "emptiness"),
    ("fixed", lambda: busy(replicas=1), {}, KEEPS, Obstacle.FIXED_POOL, "keeps 1"),
    ("replacement coming", cheaper_on_its_way, {}, WAITS, Obstacle.REPLACEMENT, "small has to be ready"),
    ("may not move", lambda: busy(gpu=1, instanceTypes=BOTH, run={"do_not_disrupt": "true"}), {}, WAITS, Obstacle.GANG,
     "says do-not-disrupt"),
    ("saves, no budget", lambda: busy(gpu=1, instanceTypes=BOTH, disruption={"budgets": [{"nodes": 0}]}), {}, WAITS,
     Obstacle.BUDGET, "Underutilized"),
    ("spared and small", lambda: spared(busy(gpu=1, instanceTypes=BOTH)), {}, WAITS, Obstacle.PODS, ""),
    ("out of proportion", balanced, {}, WAITS, Obstacle.BALANCE, "too little for what it disturbs"),
    ("stays, not consolidated", lambda: second_best(600, disruption={**RETURNS, "consolidateAfter": "0s"}), {}, WAITS,
     Obstacle.MINIMUM_STAY, "after first"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_it_proposes_and_why_not(row: Row) -> None:
    check("consolidation", row)


def test_spot_is_not_traded_for_spot() -> None:
    world = World(FleetBuilder().pool(instanceTypes=BOTH, capacityTypes=["spot"]).team().queue().build())
    world.machine("m0", capacity_type="spot")
    declare(world, instanceTypes=BOTH, capacityTypes=["spot"])
    world.runs(gang("g", gpu=1), ("m0", 1))
    found = said(world)["consolidation"]
    assert (found.outcome, found.obstacle) == (DisruptionOutcome.KEEPS, Obstacle.NO_SAVING)
    assert "risk of interruption" in found.message


def test_one_machine_at_a_time_is_consolidated() -> None:
    world = world_of(2, instanceTypes=BOTH)
    for n in range(2):
        world.runs(gang(f"g{n}", gpu=1), (f"m{n}", 1))
    found = [said(world, name)["consolidation"] for name in ("m0", "m1")]
    assert {it.obstacle for it in found} <= {Obstacle.PROPOSED, Obstacle.TURN}


def of_gang(**facts: Any) -> Change:
    return lambda world: world.gangs.update({"uid-g": replace(world.gang("g"), **facts)})


def small_on_large(**pool: Any) -> World:
    """A gang of one GPU alone on a machine of eight; the pool also buys machines with one. Runs for ten minutes."""
    world = standing(1, instanceTypes=BOTH, **pool)
    world.runs(gang("g", gpu=1), ("m0", 1), admitted_at_s=NOW - 600)
    return world


@pytest.mark.parametrize(
    ("pool", "change", "moves"),
    [
        pytest.param({}, None, True, id="a cheaper machine does"),
        pytest.param({"disruption": {**OPEN, "consolidationPolicy": "WhenEmpty"}}, None, False, id="WhenEmpty"),
        pytest.param({"replicas": 1}, None, False, id="a fixed pool"),
        pytest.param({"disruption": {**OPEN, "consolidateAfter": "10m"}}, None, True, id="quiet for long enough"),
        pytest.param({"disruption": {**OPEN, "consolidateAfter": "11m"}}, None, False, id="not quiet for long enough"),
        pytest.param(
            {"disruption": {"budgets": [{"nodes": 0, "reasons": ["Underutilized"]}]}}, None, False, id="budget"
        ),
        pytest.param(
            {"disruption": {"budgets": [{"nodes": 0, "reasons": ["Drifted"]}]}}, None, True, id="other budget"
        ),
        pytest.param({"limits": {"nodes": 1}}, None, False, id="no room to buy first"),
        pytest.param({}, of_gang(do_not_disrupt="true"), False, id="must not be disturbed"),
        pytest.param({}, of_gang(state=GangState.RESERVED), False, id="has not started"),
        pytest.param({}, lambda w: w.stands(foreign_pod("x", "node-m0")), False, id="a pod of somebody else"),
        pytest.param({}, lambda w: setattr(w, "busy", frozenset({"gang/uid-g"})), False, id="busy gang"),
        # a saving of 84 USD/h for four hours is 336 USD; its eighth of the machine costs 12.25 USD/h
        pytest.param({}, of_gang(admitted_at_s=NOW - 27.2 * 3600), True, id="333 USD of work lost"),
        pytest.param({}, of_gang(admitted_at_s=NOW - 28 * 3600), False, id="343 USD of work lost"),
        pytest.param(
            {}, of_gang(admitted_at_s=NOW - 9 * 3600, last_checkpoint_s=NOW - 60), True, id="a checkpoint saves it"
        ),
        pytest.param(
            {},
            of_gang(admitted_at_s=NOW - 10.5 * 54.4 * 3600, checkpoint_interval_s=54.4 * 3600),
            True,
            id="half an interval is lost",
        ),
        pytest.param(
            {},
            of_gang(admitted_at_s=NOW - 10.5 * 56 * 3600, checkpoint_interval_s=56 * 3600),
            False,
            id="half a longer interval",
        ),
    ],
)
def test_replacing_by_a_cheaper_machine(pool: dict[str, Any], change: Change | None, moves: bool) -> None:
    world = small_on_large(**pool)
    if change:
        change(world)
    actions = world.disrupted()
    assert told(actions) == {}
    assert opened(actions) == ([(P5S.name, "uid-g", ("m0",))] if moves else [])


def test_a_gang_that_needs_the_large_machine_keeps_it() -> None:
    world = standing(1, instanceTypes=BOTH)
    world.runs(gang("g", gpu=8), ("m0", 1), admitted_at_s=NOW - 600)
    assert world.disrupted() == []


def test_two_cheaper_machines_for_one_are_not_bought() -> None:
    world = standing(1, instanceTypes=BOTH)
    world.runs(gang("g", count=2, gpu=1), ("m0", 2), admitted_at_s=NOW - 600)
    assert world.disrupted() == []


@pytest.mark.parametrize(
    ("capacity_types", "own", "moves"),
    [(["spot"], "spot", False), (["spot", "on-demand"], "on-demand", True), (["on-demand", "spot"], "spot", True)],
)
def test_spot_is_not_traded_for_cheaper_spot(capacity_types: list[str], own: Any, moves: bool) -> None:
    world = World(FleetBuilder().build())
    within(world, instanceTypes=BOTH, capacityTypes=capacity_types)
    world.machine("m0", capacity_type=own)
    world.runs(gang("g", gpu=1), ("m0", 1), admitted_at_s=NOW - 600)
    assert bool(opened(world.disrupted())) is moves


def test_what_fits_elsewhere_goes_there() -> None:
    world = standing(2)
    for n in range(2):
        world.runs(gang(f"g{n}", gpu=4), (f"m{n}", 1), admitted_at_s=NOW - 600)
    assert list(told(world.disrupted()).values()) == ["Underutilized"]


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "goes"),
    [
        ({}, {}, "m0"),
        ({"deletion_cost": 1000}, {}, "m1"),
        ({}, {"deletion_cost": -1000}, "m1"),
        ({"priority": 1000}, {}, "m1"),
        ({"priority": 1000}, {"deletion_cost": 1 << 30}, "m0"),
        ({"deletion_cost": -(1 << 31)}, {}, "m0"),
    ],
)
def test_of_ordinary_pods_those_go_first_that_would_least_rather_stay(
    first: dict[str, Any], second: dict[str, Any], goes: str, one_by_one: bool
) -> None:
    """Karpenter's eviction cost. Either fits beside the other; one with a port is no matter of the plan for many."""
    world = standing(2)
    for n, facts in enumerate((first, second)):
        asked = PodConstraints(host_ports=(PodHostPort(80 + n),)) if one_by_one else UNCONSTRAINED
        shape = pod_set(f"p{n}", 1, gpu=4, namespace="other", constraints=asked)
        more = {"controlled": True, "shape": shape, "constraints": asked, "started_at_s": NOW - 600}
        world.stands(foreign_pod(f"p{n}", f"node-m{n}", shape.requests, **more, **facts))
        world.claims[f"m{n}"] = replace(world.claims[f"m{n}"], emptied_at_s=0.0)
    assert list(told(world.disrupted())) == [goes]


def test_what_does_not_fit_elsewhere_stays() -> None:
    world = standing(2)
    for n in range(2):
        world.runs(gang(f"g{n}", gpu=5), (f"m{n}", 1), admitted_at_s=NOW - 600)
    assert world.disrupted() == []


def test_a_cheaper_machine_that_is_ready_takes_over() -> None:
    world = small_on_large()
    world.machine("new", kind=P5S.name, replaces=("m0",), gang="uid-g")
    [save] = world.disrupted()
    assert isinstance(save, SaveClaim)
    assert told([save]) == {"m0": "Underutilized"}
    assert save.claim.disruption
    assert save.claim.disruption.message == "a cheaper machine is ready, saving 84.00 USD/h"


def test_machines_that_are_tried_one_by_one_do_not_count_on_the_same_room() -> None:
    """Each gang alone would fit beside the one that may not move; the zone keeps the plan for many away."""
    world = standing(3)
    for n in range(3):
        wide = pod_set("main", 2, gpu=2, required_topology="kubernetes.io/hostname")
        world.runs(gang(f"g{n}", wide, do_not_disrupt="true" if n == 2 else ""), (f"m{n}", 2), admitted_at_s=NOW - 600)
    assert list(told(world.disrupted())) in (["m0"], ["m1"])


def test_consolidation_to_a_cheaper_machine_runs_to_its_end() -> None:
    world = small_on_large()
    world.settle_down()
    [left] = world.claims.values()
    assert left.capacity_pool.instance_type == P5S.name
    assert world.gang("g").reason == "PodsReady"
    at_rest(world)


def test_consolidation_onto_what_stands_runs_to_its_end() -> None:
    world = standing(3)
    for n in range(3):
        world.runs(gang(f"g{n}", gpu=2 + n), (f"m{n}", 1), admitted_at_s=NOW - 600)
    for _ in range(4):
        world.settle_down()
        world.now_s += 120
    world.settle_down()
    assert sum(it.price_usd_h for it in world.claims.values()) == 2 * 98
    assert all(it.reason == "PodsReady" for it in world.gangs.values())
    at_rest(world)


# -- Balanced, and spot for spot ---------------------------------------------------------------------------------------

AT_ONCE: dict[str, Any] = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}


def of_policy(kinds: list[str], disruption: dict[str, Any], **pool: Any) -> World:
    builder = FleetBuilder().pool(instanceTypes=kinds, disruption={**AT_ONCE, **disruption}, **pool)
    return World(builder.team(quotas={"h100": {GPU: 64}}).queue().build())


def bought_first(world: World) -> list[Claim]:
    return [claim for it in world.disrupted() if isinstance(it, OpenClaims) for claim in it.claims]


def told_to_go(world: World) -> list[str]:
    return [it.claim.name for it in world.disrupted() if isinstance(it, SaveClaim)]


@pytest.mark.parametrize(
    ("disruption", "moves"),
    [
        pytest.param({}, True, id="not asked"),
        pytest.param({"consolidationPolicy": "WhenEmpty"}, False, id="WhenEmpty"),
        pytest.param({"consolidationPolicy": "Balanced"}, True, id="balanced"),
        pytest.param({"consolidationPolicy": "Balanced", "consolidationThreshold": 1}, False, id="stricter"),
    ],
)
def test_a_move_in_proportion(disruption: dict[str, Any], moves: bool) -> None:
    """A pod on one of two large machines moves to a small one: 84 of 196 USD/h for 2 of 3 parts of the disruption."""
    world = of_policy(BOTH, disruption)
    world.machine("m0")
    world.machine("m1", emptied_at_s=NOW)
    world.runs(gang("g", gpu=1), ("m0", 1), admitted_at_s=NOW - 600)
    world.nodes["node-m1"] = replace(world.nodes["node-m1"], do_not_disrupt="true", unschedulable=True)
    assert bool(bought_first(world)) is moves


def test_the_machine_that_brings_most_for_what_it_disturbs_comes_first() -> None:
    world = of_policy([P5.name], {})
    for number, count in enumerate((4, 1, 2)):
        world.machine(f"m{number}")
        world.runs(gang(f"g{number}", count=count, gpu=1), (f"m{number}", count), admitted_at_s=NOW - 600)
    assert told_to_go(world)[0] == "m1"


def test_urgent_work_is_dearer_to_move() -> None:
    world = of_policy([P5.name], {})
    for number, boost in enumerate((2**26, 0)):
        world.machine(f"m{number}")
        world.runs(replace(gang(f"g{number}", gpu=1), priority_boost=boost), (f"m{number}", 1), admitted_at_s=NOW - 600)
    assert told_to_go(world) == ["m1"]


@pytest.mark.parametrize(("cheaper", "enabled", "moves"), [(15, True, True), (14, True, False), (15, False, False)])
def test_spot_gives_way_to_spot_where_fifteen_types_are_cheaper(cheaper: int, enabled: bool, moves: bool) -> None:
    kinds = [machine(f"x{n:02}.large", gpus=1, gpu="h100", gpu_memory=81920, cpu=16) for n in range(cheaper)]
    offers = [InstanceOffer(kind, A, "spot", 5.0 + n / 10) for n, kind in enumerate(kinds)] + [
        InstanceOffer(P5, A, "spot", 40.0)
    ]
    names = [P5.name, *(kind.name for kind in kinds)]
    world = of_policy(names, {"spotToSpot": enabled}, capacityTypes=["spot"])
    world.catalog = catalog(sorted(offers, key=lambda offer: offer.instance_type.name))
    world.machine("m0", capacity_type="spot")
    world.runs(gang("g", gpu=1), ("m0", 1), admitted_at_s=NOW - 600)
    assert [claim.capacity_pool.instance_type for claim in bought_first(world)] == (["x00.large"] if moves else [])


@pytest.mark.parametrize(
    ("reason", "room"),
    [
        pytest.param(Reason.UNDERUTILIZED, False, id="it is being moved, and will stand on m1 or m2"),
        pytest.param(Reason.DRIFTED, False, id="it is being moved for another reason"),
        pytest.param(Reason.PREEMPTED, True, id="it has lost its turn to another"),
    ],
)
def test_room_that_a_gang_on_its_way_counts_on_is_not_counted_twice(reason: Reason, room: bool) -> None:
    """While its pods ended, the machine it was moved to was given up, or filled with others: one more was bought."""
    world = world_of(3)
    for n in range(3):
        world.runs(gang(f"g{n}", gpu=4), (f"m{n}", 1))
    world.gangs["uid-g0"] = replace(
        world.gangs["uid-g0"],
        state=GangState.EVICTING,
        eviction=Eviction(reason, "x", NOW),
    )
    world.claims["m0"] = replace(world.claims["m0"], disruption=NodeDisruption(reason, "x", NOW))
    context = DisruptionContext.of(world.fleet, world.snapshot())
    for name in ("m1", "m2"):
        found = context.simulate(context.group([world.claims[name]]), bought=())
        assert isinstance(found, dict) is room, found
