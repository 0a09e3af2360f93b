"""The way back to what a pool prefers: replaced first, whole, under budget, where it pays for the work lost."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import Action, OpenClaims
from fleet.catalog import InstanceOffer
from fleet.disruption.outcomes import Obstacle
from fleet.snapshot import CapacityPool, InterruptionHistory, Launch
from model.kinds import CapacityType, NodePool
from tests.support.disruption import GOES, KEEPS, NOTHING, RETURNS, WAITS, Row, busy, check, second_best, sold_out, told
from tests.support.fleets import NOW, P5, PRICES, A, B, FleetBuilder, catalog, gang
from tests.support.world import World

ROWS: list[Row] = [
    ("no way back", busy, {}, KEEPS, Obstacle.POLICY, "no returnToPreferred"),
    ("second best", second_best, {"m0": 1}, GOES, NOTHING, "1 machine bought first"),
    ("second best, short stay", lambda: second_best(600), {}, WAITS, Obstacle.MINIMUM_STAY, "after first"),
    ("second best, sold out", lambda: sold_out(second_best()), {}, WAITS, Obstacle.NO_PLACE, "of spot are"),
    ("second best, dear work", lambda: second_best(run={"admitted_at_s": NOW - 86400}), {}, WAITS, Obstacle.PAYBACK,
     "pay for the work lost"),
    ("second best, protected", lambda: second_best(run={"do_not_disrupt": "true"}), {}, WAITS, Obstacle.GANG,
     "ns/g says"),
    ("second best, no budget", lambda: second_best(disruption={**RETURNS, "budgets": [{"nodes": 0}]}), {}, WAITS,
     Obstacle.BUDGET, "the budgets of h100"),
    ("second best, no limit left", lambda: second_best(limits={"nodes": 1}), {}, WAITS, Obstacle.NO_PLACE,
     "beyond the limits"),
    ("best already", lambda: second_best(capacityTypes=["on-demand", "spot"]), {}, KEEPS, Obstacle.NOT_DUE,
     "prefers nothing to on-demand"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_it_proposes_and_why_not(row: Row) -> None:
    check("preference", row)


SPOT_FIRST: list[CapacityType] = ["spot", "on-demand"]


def purchases(actions: list[Action]) -> list[tuple[CapacityPool, tuple[str, ...]]]:
    claims = [claim for it in actions if isinstance(it, OpenClaims) for claim in it.claims]
    return [(claim.capacity_pool, claim.replaces) for claim in claims]


def pools(disruption: dict[str, Any], **pool: Any) -> World:
    spec = {
        "zones": [A, B],
        "capacityTypes": SPOT_FIRST,
        "disruption": {"consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "100%"}]} | disruption,
    } | pool
    quotas = {"h100": {"nvidia.com/gpu": 64}}
    return World(FleetBuilder().pool(**spec).team(quotas=quotas).queue().build())


BACK = {"returnToPreferred": {"after": "1h"}}


SPOT_A, SPOT_B = CapacityPool("spot", P5.name, A), CapacityPool("spot", P5.name, B)


def fallen_back(disruption: dict[str, Any] | None = None, stayed_s: float = 3600, **pool: Any) -> World:
    """A gang on one on-demand machine of a pool that prefers spot; it has just written a checkpoint."""
    world = pools(BACK if disruption is None else disruption, **pool)
    world.machine("m0", ready_at_s=NOW - stayed_s)
    world.runs(gang("g", gpu=8, last_checkpoint_s=NOW), ("m0", 1))
    return world


def test_after_the_minimum_stay_spot_is_bought_first_and_then_the_machine_goes() -> None:
    world = fallen_back()
    assert purchases(world.disrupted()) == [(SPOT_A, ("m0",))]
    world.settle_down()
    assert {claim.capacity_pool.capacity_type for claim in world.claims.values()} == {"spot"}
    assert world.gang("g").state == "Admitted"
    assert world.gang("g").evictions == 1


@pytest.mark.parametrize(
    ("world", "change"),
    [
        pytest.param(fallen_back(stayed_s=3599), {}, id="not long enough"),
        pytest.param(fallen_back({}), {}, id="the pool has no such policy"),
        pytest.param(fallen_back(capacityTypes=["on-demand", "spot"]), {}, id="it is what the pool prefers"),
        pytest.param(fallen_back(), {"shortages": {SPOT_A: NOW + 9, SPOT_B: NOW + 9}}, id="spot is short"),
        pytest.param(fallen_back(), {"gang": {"last_checkpoint_s": NOW - 9 * 3600}}, id="too much work is lost"),
        pytest.param(fallen_back(), {"gang": {"do_not_disrupt": "true"}}, id="it must not be disturbed"),
        pytest.param(fallen_back({**BACK, "budgets": [{"nodes": 0}]}), {}, id="the budget lets nobody go"),
        pytest.param(
            fallen_back({**BACK, "budgets": [{"nodes": 0, "reasons": ["Underutilized"]}]}), {}, id="nor for this reason"
        ),
        pytest.param(fallen_back(limits={"nodes": 1}), {}, id="the limits let none be bought"),
        pytest.param(fallen_back(), {"spot_usd_h": 98.0}, id="spot costs as much"),
        pytest.param(
            fallen_back(), {"spot_usd_h": 60.0, "interrupted": 99.0}, id="spot costs less, but is always taken back"
        ),
    ],
)
def test_who_stays(world: World, change: dict[str, Any]) -> None:
    admitted_s = NOW - 10 * 3600
    world.gangs["uid-g"] = replace(world.gang("g"), admitted_at_s=admitted_s, **change.get("gang", {}))
    world.shortages = change.get("shortages", {})
    if "spot_usd_h" in change:
        world.catalog = priced(change["spot_usd_h"])
    if "interrupted" in change:
        world.interruptions = {where: InterruptionHistory(change["interrupted"], NOW) for where in (SPOT_A, SPOT_B)}
    assert world.disrupted() == []


def priced(spot_usd_h: float) -> Any:
    by_type: dict[CapacityType, float] = {"on-demand": PRICES[P5.name][0], "spot": spot_usd_h}
    return catalog([InstanceOffer(P5, zone, ct, usd_h) for zone in (A, B) for ct, usd_h in by_type.items()])


def test_reserved_is_gone_back_to_as_well() -> None:
    world = fallen_back(capacityTypes=["reserved", "on-demand"])
    assert world.disrupted() == []
    world.catalog = replace(world.catalog, offers=(*world.catalog.offers, InstanceOffer(P5, B, "reserved", 0.0)))
    assert purchases(world.disrupted()) == [(CapacityPool("reserved", P5.name, B), ("m0",))]


def test_a_gang_goes_back_whole() -> None:
    world = pools(BACK)
    for n in range(3):
        world.machine(f"m{n}", ready_at_s=NOW - 7200)
    world.runs(gang("wide", count=2, gpu=8, last_checkpoint_s=NOW), ("m0", 1), ("m1", 1))
    world.runs(gang("late", gpu=8, last_checkpoint_s=NOW), ("m2", 1))
    actions = world.disrupted()
    assert purchases(actions) == [(SPOT_A, ("m0", "m1"))] * 2, "one unit at a time"
    world.settle_down()
    assert {claim.capacity_pool.capacity_type for claim in world.claims.values()} == {"spot"}
    assert [world.gang(name).evictions for name in ("wide", "late")] == [1, 1]


def test_a_replacement_that_was_lost_is_bought_again_beside_the_others() -> None:
    world = pools({**BACK, "budgets": [{"nodes": 2}]})
    for n in range(2):
        world.machine(f"m{n}", ready_at_s=NOW - 7200)
    world.runs(gang("wide", count=2, gpu=8, last_checkpoint_s=NOW), ("m0", 1), ("m1", 1))
    both = {"replaces": ("m0", "m1"), "launch": Launch("group", 0, 2), "gang": "uid-wide"}
    world.machine("s0", capacity_type="spot", **both)
    assert purchases(world.disrupted()) == [(SPOT_A, ("m0", "m1"))]
    world.settle_down()
    assert {claim.capacity_pool.capacity_type for claim in world.claims.values()} == {"spot"}
    assert "s0" in world.claims
    assert world.gang("wide").evictions == 1


def test_what_is_bought_in_the_same_zone_shortage_goes_elsewhere() -> None:
    world = fallen_back()
    world.sold_out = {SPOT_A}
    world.settle_down()
    assert {claim.capacity_pool for claim in world.claims.values()} == {SPOT_B}


def test_while_spot_is_sold_out_it_is_tried_and_the_gang_runs_on() -> None:
    world = fallen_back()
    world.sold_out = {SPOT_A, SPOT_B}
    for _ in range(20):
        world.pass_once()
        world.now_s += 60
    assert world.gang("g").state == "Admitted"
    assert world.gang("g").evictions == 0
    assert world.claims["m0"].disruption is None
    assert 2 <= len(world.launches) <= 2 * 8, "as often as a shortage is forgotten"


def test_an_idle_machine_of_a_preferred_type_is_enough() -> None:
    world = fallen_back()
    world.machine("s0", capacity_type="spot", emptied_at_s=NOW)
    actions = world.disrupted()
    assert (purchases(actions), told(actions)) == ([], {"m0": "PreferredCapacity"})


def test_the_minimum_stay_holds_consolidation_back_as_well() -> None:
    eager = {"consolidationPolicy": "WhenEmptyOrUnderutilized"}
    world = fallen_back({**BACK, **eager}, stayed_s=600)
    assert world.disrupted() == []
    assert purchases(fallen_back(eager, stayed_s=600).disrupted()) == [(SPOT_A, ("m0",))], "without the policy"


@pytest.mark.parametrize("pool", [{"capacityTypes": ["spot"]}, {"capacityTypes": ["spot", "on-demand"], "replicas": 2}])
def test_a_policy_that_could_do_nothing_is_an_error(pool: dict[str, Any]) -> None:
    spec = {"instanceTypes": [P5.name], "disruption": BACK, **pool}
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": spec}
    with pytest.raises(ValueError, match="returnToPreferred wants"):
        NodePool.model_validate(body)
