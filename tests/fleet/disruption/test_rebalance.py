"""Moving away where the cloud advises it: replaced first, from other capacity pools, under budget."""

from typing import Any

import pytest

from fleet.actions import Action, OpenClaims
from fleet.disruption.outcomes import Obstacle
from fleet.snapshot import CapacityPool
from model.kinds import CapacityType
from tests.support.disruption import (
    GOES,
    KEEPS,
    NOTHING,
    WAITS,
    Row,
    advised,
    busy,
    changed,
    check,
    sold_out,
    spared,
    told,
    world_of,
)
from tests.support.fleets import NOW, P5, A, B, FleetBuilder, gang
from tests.support.world import World

ROWS: list[Row] = [
    ("not advised", lambda: changed(advised(busy()), advised_at_s=0.0), {}, KEEPS, Obstacle.NOT_DUE, "not"),
    ("advice ignored", lambda: changed(busy(), advised_at_s=NOW), {}, KEEPS, Obstacle.POLICY, "ignores"),
    ("advised, idle", lambda: advised(world_of()), {"m0": 0}, GOES, NOTHING, "expects to take"),
    ("advised, busy, one zone left", lambda: advised(busy()), {"m0": 1}, GOES, NOTHING, "1 machine bought first"),
    ("advised, sold out", lambda: sold_out(advised(busy())), {}, WAITS, Obstacle.NO_PLACE, "short of"),
    ("advised, no budget", lambda: advised(busy(), budgets=[{"nodes": 0}]), {}, WAITS, Obstacle.BUDGET, ""),
    ("advised, spared", lambda: spared(advised(busy())), {}, WAITS, Obstacle.PODS, "its node"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_it_proposes_and_why_not(row: Row) -> None:
    check("rebalance", row)


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


SPOT_A, SPOT_B = CapacityPool("spot", P5.name, A), CapacityPool("spot", P5.name, B)


MOVES = {"onRebalance": "Replace"}


def advised_spot(disruption: dict[str, Any] | None = None, busy: bool = True, **pool: Any) -> World:
    world = pools(MOVES if disruption is None else disruption, **pool)
    world.machine("m0", capacity_type="spot", advised_at_s=NOW - 5, **({} if busy else {"emptied_at_s": NOW}))
    if busy:
        world.runs(gang("g", gpu=8), ("m0", 1))
    return world


@pytest.mark.parametrize(
    ("world", "bought", "gone"),
    [
        pytest.param(advised_spot(), [SPOT_B], {}, id="replaced first, from another capacity pool"),
        pytest.param(
            advised_spot(zones=[A]), [CapacityPool("on-demand", P5.name, A)], {}, id="on demand where there is no other"
        ),
        pytest.param(
            advised_spot(zones=[A], capacityTypes=["spot"]), [], {}, id="it stays where nothing else can be had"
        ),
        pytest.param(advised_spot(busy=False), [], {"m0": "RebalanceRecommended"}, id="nobody is on it"),
        pytest.param(advised_spot({}), [], {}, id="the pool ignores advice"),
        pytest.param(advised_spot({**MOVES, "budgets": [{"nodes": 0}]}), [], {}, id="the budget lets nobody go"),
        pytest.param(
            advised_spot({**MOVES, "budgets": [{"nodes": 0, "reasons": ["Rebalanced"]}]}),
            [],
            {},
            id="nor for this reason",
        ),
        pytest.param(
            advised_spot({**MOVES, "budgets": [{"nodes": 0, "reasons": ["Drifted"]}]}),
            [SPOT_B],
            {},
            id="only for others",
        ),
    ],
)
def test_what_advice_leads_to(world: World, bought: list[CapacityPool], gone: dict[str, str]) -> None:
    actions = world.disrupted()
    assert purchases(actions) == [(where, ("m0",)) for where in bought]
    assert told(actions) == gone


def test_an_advised_machine_is_left_when_its_replacement_is_ready() -> None:
    world = advised_spot()
    world.settle_down()
    assert {claim.capacity_pool for claim in world.claims.values()} == {SPOT_B}
    assert world.gang("g").state == "Admitted"
