"""The way back to what a pool prefers, and moving away where EC2 advises it: replaced first, whole, under budget."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import Action, OpenClaims, SaveClaim
from fleet.snapshot import CapacityPool, InstanceOffer, InterruptionHistory, Launch
from model.kinds import CapacityType, NodePool
from tests.support.fleets import NOW, P5, PRICES, A, B, FleetBuilder, catalog, gang
from tests.support.world import World

SPOT_FIRST: list[CapacityType] = ["spot", "on-demand"]


def decided(world: World) -> list[Action]:
    return world.disrupted()


def told(actions: list[Action]) -> dict[str, str]:
    return {
        it.claim.name: it.claim.disruption.reason for it in actions if isinstance(it, SaveClaim) and it.claim.disruption
    }


def opened(actions: list[Action]) -> list[tuple[CapacityPool, tuple[str, ...]]]:
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
    assert opened(decided(world)) == [(SPOT_A, ("m0",))]
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
        pytest.param(fallen_back(), {"gang": {"do_not_disrupt": True}}, id="it must not be disturbed"),
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
    assert decided(world) == []


def priced(spot_usd_h: float) -> Any:
    by_type: dict[CapacityType, float] = {"on-demand": PRICES[P5.name][0], "spot": spot_usd_h}
    return catalog([InstanceOffer(P5, zone, ct, usd_h) for zone in (A, B) for ct, usd_h in by_type.items()])


def test_reserved_is_gone_back_to_as_well() -> None:
    world = fallen_back(capacityTypes=["reserved", "on-demand"])
    assert decided(world) == []
    world.catalog = replace(world.catalog, offers=(*world.catalog.offers, InstanceOffer(P5, B, "reserved", 0.0)))
    assert opened(decided(world)) == [(CapacityPool("reserved", P5.name, B), ("m0",))]


def test_a_gang_goes_back_whole() -> None:
    world = pools(BACK)
    for n in range(3):
        world.machine(f"m{n}", ready_at_s=NOW - 7200)
    world.runs(gang("wide", count=2, gpu=8, last_checkpoint_s=NOW), ("m0", 1), ("m1", 1))
    world.runs(gang("late", gpu=8, last_checkpoint_s=NOW), ("m2", 1))
    actions = decided(world)
    assert opened(actions) == [(SPOT_A, ("m0", "m1"))] * 2, "one unit at a time"
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
    assert opened(decided(world)) == [(SPOT_A, ("m0", "m1"))]
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
    actions = decided(world)
    assert (opened(actions), told(actions)) == ([], {"m0": "PreferredCapacity"})


def test_the_minimum_stay_holds_consolidation_back_as_well() -> None:
    eager = {"consolidationPolicy": "WhenEmptyOrUnderutilized"}
    world = fallen_back({**BACK, **eager}, stayed_s=600)
    assert decided(world) == []
    assert opened(decided(fallen_back(eager, stayed_s=600))) == [(SPOT_A, ("m0",))], "without the policy"


@pytest.mark.parametrize("pool", [{"capacityTypes": ["spot"]}, {"capacityTypes": ["spot", "on-demand"], "replicas": 2}])
def test_a_policy_that_could_do_nothing_is_an_error(pool: dict[str, Any]) -> None:
    spec = {"instanceTypes": [P5.name], "disruption": BACK, **pool}
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": spec}
    with pytest.raises(ValueError, match="returnToPreferred wants"):
        NodePool.model_validate(body)


# -- advice -----------------------------------------------------------------------------------------------------------

MOVES = {"onRebalance": "Replace"}


def advised(disruption: dict[str, Any] | None = None, busy: bool = True, **pool: Any) -> World:
    world = pools(MOVES if disruption is None else disruption, **pool)
    world.machine("m0", capacity_type="spot", advised_at_s=NOW - 5, **({} if busy else {"emptied_at_s": NOW}))
    if busy:
        world.runs(gang("g", gpu=8), ("m0", 1))
    return world


@pytest.mark.parametrize(
    ("world", "bought", "gone"),
    [
        pytest.param(advised(), [SPOT_B], {}, id="replaced first, from another capacity pool"),
        pytest.param(
            advised(zones=[A]), [CapacityPool("on-demand", P5.name, A)], {}, id="on demand where there is no other"
        ),
        pytest.param(advised(zones=[A], capacityTypes=["spot"]), [], {}, id="it stays where nothing else can be had"),
        pytest.param(advised(busy=False), [], {"m0": "RebalanceRecommended"}, id="nobody is on it"),
        pytest.param(advised({}), [], {}, id="the pool ignores advice"),
        pytest.param(advised({**MOVES, "budgets": [{"nodes": 0}]}), [], {}, id="the budget lets nobody go"),
        pytest.param(
            advised({**MOVES, "budgets": [{"nodes": 0, "reasons": ["Rebalanced"]}]}), [], {}, id="nor for this reason"
        ),
        pytest.param(
            advised({**MOVES, "budgets": [{"nodes": 0, "reasons": ["Drifted"]}]}), [SPOT_B], {}, id="only for others"
        ),
    ],
)
def test_what_advice_leads_to(world: World, bought: list[CapacityPool], gone: dict[str, str]) -> None:
    actions = decided(world)
    assert opened(actions) == [(where, ("m0",)) for where in bought]
    assert told(actions) == gone


def test_an_advised_machine_is_left_when_its_replacement_is_ready() -> None:
    world = advised()
    world.settle_down()
    assert {claim.capacity_pool for claim in world.claims.values()} == {SPOT_B}
    assert world.gang("g").state == "Admitted"
