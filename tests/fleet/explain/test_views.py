"""What limits a pool, and what a machine is for, as values."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from fleet.disruption import METHODS
from fleet.explain.node import claim_called, node_view
from fleet.explain.pool import PoolLimit, PoolView, ScheduleWindow, pool_view
from fleet.explain.verdicts import INVOLUNTARY
from fleet.reasons import Reason
from fleet.snapshot import GangState, Pin
from tests.support.fleets import GPU, NOW, P5, FleetBuilder, capacity_pool, foreign_pod, gang, plain_node
from tests.support.world import World


def standing(machines: int = 2, policy: dict[str, Any] | None = None, **spec: Any) -> World:
    builder = FleetBuilder().pool(**spec).pool("other").team(quotas={"h100": {GPU: 64}, "other": {GPU: 8}})
    builder = builder.queue().queue("o", flavors=("other",))
    world = World((builder.policy(**policy) if policy else builder).build())
    for n in range(machines):
        world.machine(f"m{n}")
    return world


def view_of(world: World, name: str = "h100") -> PoolView:
    return pool_view(world.fleet, world.snapshot(), name)


# -- pools ------------------------------------------------------------------------------------------------------------


def test_limits_used_and_left() -> None:
    limits = {"nodes": 3, "usdPerHour": 150.0, "resources": {GPU: 24, "cpu": 1000}}
    view = view_of(standing(limits=limits))
    assert view.bounds == (
        PoolLimit("nodes", 2, 3),
        PoolLimit("usdPerHour", 196.0, 150.0),
        PoolLimit("cpu", 384_000, 1_000_000),
        PoolLimit(GPU, 16, 24),
    )
    assert [bound.left for bound in view.bounds] == [1, -46.0, 616_000, 8]
    assert view_of(standing()).bounds == ()


HOUR = 3600.0


@pytest.mark.parametrize(
    ("budget", "open_", "opens_s", "may_go"),
    [
        ({"nodes": 1}, True, None, 1),
        ({"nodes": "100%"}, True, None, 2),
        ({"nodes": 0, "reasons": ["Drifted"]}, True, None, 0),
        ({"nodes": 0, "schedule": "0 8 * * *", "duration": "1h"}, True, None, 0),
        ({"nodes": 0, "schedule": "0 9 * * *", "duration": "1h"}, False, NOW + HOUR, 1 << 31),
    ],
)
def test_budgets_open_now(budget: dict[str, Any], open_: bool, opens_s: float | None, may_go: int) -> None:
    view = view_of(standing(disruption={"budgets": [budget]}))
    assert [(window.open, window.opens_s) for window in view.budgets] == [(open_, opens_s)]
    assert view.may_go["Drifted"] == may_go
    assert {"Empty", "Underutilized", "Drifted", "Expired"} <= view.may_go.keys()


def test_freeze_windows_that_concern_machines() -> None:
    windows = [
        {"name": "now", "schedule": "0 8 * * *", "duration": "2h", "blocks": ["Disruption"]},
        {"name": "later", "schedule": "0 10 * * *", "duration": "2h"},
        {"name": "sync", "schedule": "0 8 * * *", "duration": "2h", "blocks": ["Sync"]},
    ]
    view = view_of(standing(policy={"freezeWindows": windows}))
    assert view.freezes == (
        ScheduleWindow("now", open=True, opens_s=None),
        ScheduleWindow("later", open=False, opens_s=NOW + 2 * HOUR),
    )


def test_shortages_of_its_offers_only() -> None:
    world = standing()
    mine, others = capacity_pool(), capacity_pool("g6.12xlarge")
    world.shortages = {mine: NOW + 60, others: NOW + 60, capacity_pool(zone="us-east-1b"): NOW - 1}
    assert view_of(world).shortages == {mine: NOW + 60}


@pytest.mark.parametrize(
    ("reason", "queue", "waits"),
    [
        (Reason.POOL_LIMIT, "q", True),
        (Reason.NO_CAPACITY, "q", True),
        (Reason.BATCHING, "q", True),
        (Reason.POOL_LIMIT, "o", False),
        (Reason.WAITING_FOR_QUOTA, "q", False),
        (Reason.POOL_LIMIT, "unknown", False),
    ],
)
def test_who_waits_for_it(reason: Reason, queue: str, waits: bool) -> None:
    world = standing()
    world.waits(gang("g", queue=queue, reason=reason))
    assert [it.name for it in view_of(world).waiting] == (["ns/g"] if waits else [])


def test_who_is_served_already() -> None:
    world = standing()
    world.claims["m1"] = replace(world.claims["m1"], ready_at_s=0.0)
    buying: dict[str, Any] = {"state": GangState.RESERVED, "reason": Reason.BUYING}
    world.waits(
        gang("g", pins=(Pin("main", "", "m1", 1),), **buying), gang("h", pins=(Pin("main", "", "x", 1),), **buying)
    )
    view = view_of(world)
    assert [it.name for it in view.coming] == ["ns/g"]
    assert view.machines == {"Registered": 1, "Ready": 1}


def test_a_pool_that_is_not_declared() -> None:
    with pytest.raises(KeyError):
        view_of(standing(), "no")


# -- machines ---------------------------------------------------------------------------------------------------------


def test_why_a_machine_was_bought() -> None:
    world = standing()
    world.runs(gang("g"), ("m0", 1))
    world.claims["m0"] = replace(world.claims["m0"], gang="uid-g", purpose="cheapest of three")
    snapshot = world.snapshot()
    assert node_view(snapshot, snapshot.claims["m0"]).buyer == "ns/g"
    gone = replace(snapshot.claims["m0"], gang="uid-old")
    assert node_view(snapshot, gone).buyer == "a gang that is gone"
    assert node_view(snapshot, snapshot.claims["m1"]).buyer == ""


def test_what_stands_on_a_machine() -> None:
    world = standing()
    low = gang("low", count=2, gpu=2, expected_run_s=7200.0)
    world.runs(low, ("m0", 1), ("m1", 1), admitted_at_s=NOW - 3600)
    world.runs(gang("high", gpu=2, priority=9), ("m0", 1), last_checkpoint_s=NOW - 60, admitted_at_s=NOW - 600)
    world.stands(foreign_pod("p", "node-m0"))
    snapshot = world.snapshot()
    view = node_view(snapshot, snapshot.claims["m0"])
    assert [(it.gang.name, it.pods, it.lost_s, it.ends_s) for it in view.gangs] == [
        ("ns/high", 1, 60.0, inf),
        ("ns/low", 1, 3600.0, NOW + 3600),
    ]
    assert [it.lost_usd for it in view.gangs] == [pytest.approx(98 / 4 / 60), pytest.approx(98 / 4 * 2)]
    assert view.foreign_pods == ("other/p",)
    assert view.verdicts == ()


def test_what_the_methods_say_takes_a_fleet() -> None:
    world = standing()
    snapshot = world.snapshot()
    view = node_view(snapshot, snapshot.claims["m0"], world.fleet)
    assert [verdict.method for verdict in view.verdicts] == [*(method.name for method in METHODS), *INVOLUNTARY]


def test_machines_by_name() -> None:
    world = standing()
    world.nodes["alien"] = plain_node("alien", {GPU: 8})
    snapshot = world.snapshot()
    assert claim_called(snapshot, "m0") == claim_called(snapshot, "node-m0") == snapshot.claims["m0"]
    assert claim_called(snapshot, "alien") is None
    assert snapshot.claims["m0"].capacity_pool.instance_type == P5.name
