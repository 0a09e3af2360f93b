"""Machines that go because nothing runs on them: emptiness, drift, expiry; with budgets and freezes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fleet import disruption as disrupt
from fleet.actions import OpenClaims, SaveClaim
from fleet.disruption.drift import drift_of
from fleet.snapshot import Claim, GangState, InstanceOffer, NodeDisruption
from model import labels
from model.kinds import NEVER
from tests.support.fleets import NOW, P5, P5S, A, B, FleetBuilder, foreign_pod, gang, small_fleet
from tests.support.world import World

ANY: dict[str, Any] = {"disruption": {"budgets": [{"nodes": "100%"}]}}


def told(world: World) -> dict[str, str]:
    """Claims told to go, with the reason; nothing may be bought."""
    actions = world.disrupted(waits=False)
    assert all(isinstance(it, SaveClaim) for it in actions)
    names = [it.claim.name for it in actions if isinstance(it, SaveClaim)]
    assert len(names) == len(set(names))
    return {
        it.claim.name: it.claim.disruption.reason for it in actions if isinstance(it, SaveClaim) and it.claim.disruption
    }


def idle(count: int = 1, *, since_s: float = 100.0, **pool: Any) -> World:
    world = World(small_fleet(**{**ANY, **pool}))
    for n in range(count):
        world.machine(f"m{n}", emptied_at_s=NOW - since_s)
    return world


Change = Callable[[World], object]


def claim(**facts: Any) -> Change:
    return lambda world: world.claims.__setitem__("m0", replace(world.claims["m0"], **facts))


# -- emptiness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since_s", "change", "goes"),
    [
        pytest.param(59, lambda w: None, False, id="not quiet for long enough"),
        pytest.param(60, lambda w: None, True, id="quiet"),
        pytest.param(99, claim(emptied_at_s=0.0), False, id="not known to be idle"),
        pytest.param(99, lambda w: w.runs(gang("g"), ("m0", 1)), False, id="a gang is on it"),
        pytest.param(
            99,
            lambda w: w.runs(gang("g"), ("m0", 1), pods=False, state=GangState.RESERVED),
            False,
            id="a gang waits for it",
        ),
        pytest.param(
            99, lambda w: w.runs(gang("g"), ("m0", 1), state=GangState.EVICTING), False, id="a gang still ends on it"
        ),
        pytest.param(99, lambda w: w.stands(foreign_pod("p", "node-m0")), False, id="another pod is on it"),
        pytest.param(99, lambda w: w.stands(foreign_pod("p", "node-m0", daemon=True)), True, id="only DaemonSets"),
        pytest.param(99, claim(ready_at_s=0.0), False, id="not ready"),
        pytest.param(99, claim(deleting=True), False, id="goes already"),
        pytest.param(99, claim(disruption=NodeDisruption("Drifted", "x", NOW, NEVER)), False, id="told already"),
        pytest.param(99, claim(recut_at_s=NOW), False, id="being cut"),
        pytest.param(99, lambda w: setattr(w, "busy", frozenset({"claim/m0"})), False, id="busy"),
        pytest.param(99, claim(replaces=("m0",)), False, id="waits to take over"),
    ],
)
def test_emptiness(since_s: float, change: Change, goes: bool) -> None:
    world = idle(since_s=since_s)
    change(world)
    assert told(world) == ({"m0": "Empty"} if goes else {})


@pytest.mark.parametrize(
    ("pool", "goes"),
    [
        ({"disruption": {"consolidateAfter": "2m"}}, 0),
        ({"disruption": {"consolidateAfter": "Never"}}, 0),
        ({"disruption": {"consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": 9}]}}, 4),
        ({"disruption": {"budgets": [{"nodes": 1}]}}, 1),
        ({"disruption": {"budgets": [{"nodes": "50%"}]}}, 2),
        ({"disruption": {"budgets": [{"nodes": 0, "reasons": ["Drifted"]}]}}, 4),
        ({"disruption": {"budgets": [{"nodes": 0, "reasons": ["Empty"]}]}}, 0),
        ({"replicas": 4}, 0),
    ],
)
def test_emptiness_by_pool(pool: dict[str, Any], goes: int) -> None:
    assert len(told(idle(4, **pool))) == goes


def test_budgets_count_what_leaves_already() -> None:
    world = idle(4, disruption={"budgets": [{"nodes": 2}]})
    claim(deleting=True)(world)
    assert list(told(world)) == ["m1"]


def test_the_deadline_is_the_pools_grace_period() -> None:
    world = idle(template={"terminationGracePeriod": "10m"})
    [action] = disrupt.decide(world.fleet, world.snapshot())
    assert isinstance(action, SaveClaim)
    assert action.claim.disruption
    assert (action.claim.disruption.deadline_s, action.claim.disruption.at_s) == (NOW + 600, NOW)
    assert action.claim.disruption.message == "nothing has run on it for 100 s"


@pytest.mark.parametrize(
    ("schedule", "blocks", "goes"),
    [
        ("0 8 * * *", ["Disruption"], False),
        ("0 8 * * *", ["Sync"], True),
        ("0 9 * * *", ["Disruption"], True),
        ("30 7 * * *", ["Sync", "Disruption"], False),
    ],
)
def test_freeze_windows(schedule: str, blocks: list[str], goes: bool) -> None:
    builder = FleetBuilder().pool(**ANY).team().queue()
    window = {"name": "launch", "schedule": schedule, "duration": "1h", "blocks": blocks}
    world = World(builder.policy(freezeWindows=[window]).build())
    world.machine("m0")
    assert bool(told(world)) is goes


# -- drift ------------------------------------------------------------------------------------------------------------

DRIFTS: list[tuple[str, dict[str, Any], str]] = [
    ("nothing changed", {}, ""),
    ("a label of the template", {"template": {"labels": {"a": "b"}}}, "the template of node pool h100 has changed"),
    ("an annotation", {"template": {"annotations": {"a": "b"}}}, "the template of node pool h100 has changed"),
    ("no annotations", {"template": {"annotations": {}}}, ""),
    ("the image", {"template": {"amis": [{"id": "ami-2"}]}}, "the template of node pool h100 has changed"),
    ("user data", {"template": {"userData": "x"}}, "the template of node pool h100 has changed"),
    ("placement", {"placement": {"group": "pg"}}, "the template of node pool h100 has changed"),
    ("sharing", {"sharing": {"mps": {"replicas": 2}}}, "the template of node pool h100 has changed"),
    ("expiry is no drift", {"template": {"expireAfter": "1h"}}, ""),
    ("grace is no drift", {"template": {"terminationGracePeriod": "1h"}}, ""),
    ("limits are no drift", {"limits": {"nodes": 0}}, ""),
    ("weight is no drift", {"weight": 7}, ""),
    ("its zone is still allowed", {"zones": [A, B]}, ""),
    ("its zone is not", {"zones": [B]}, f"{labels.ZONE}={A} no longer meets the requirements of node pool h100"),
    (
        "its type is not",
        {"instanceTypes": [P5S.name]},
        f"{labels.INSTANCE_TYPE}={P5.name} no longer meets the requirements of node pool h100",
    ),
    (
        "its capacity type is not",
        {"capacityTypes": ["spot"]},
        f"{labels.CAPACITY_TYPE}=on-demand no longer meets the requirements of node pool h100",
    ),
    (
        "a requirement",
        {
            "requirements": [{"key": labels.INSTANCE_CPU, "operator": "Lt", "values": ["100"]}],
            "instanceTypes": [P5.name],
        },
        f"{labels.INSTANCE_CPU}=192 no longer meets the requirements of node pool h100",
    ),
    ("it has to be cut now", {"sharing": {"mig": {"layouts": ["small"]}}}, "node pool h100 now cuts its GPUs"),
]


def with_pool(world: World, **pool: Any) -> None:
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    world.fleet = builder.pool(**pool).team().queue().build()


@pytest.mark.parametrize(("pool", "why"), [it[1:] for it in DRIFTS], ids=[it[0] for it in DRIFTS])
def test_drift(pool: dict[str, Any], why: str) -> None:
    world = idle(since_s=1)
    with_pool(world, **{**ANY, **pool})
    assert drift_of(world.fleet, world.snapshot(), world.claims["m0"]) == why
    if "expireAfter" not in pool.get("template", {}):
        assert told(world) == ({"m0": "Drifted"} if why else {})


def test_a_hash_of_another_version_is_no_drift() -> None:
    world = idle(since_s=1)
    claim(pool_hash="v0-whatever")(world)
    assert told(world) == {}


@pytest.mark.parametrize(
    ("types", "offers", "age_s", "goes"),
    [
        pytest.param((P5, P5S), ((P5, A),), 7200, False, id="sold where it stands"),
        pytest.param((P5, P5S), ((P5, B),), 7200, True, id="sold elsewhere only"),
        pytest.param((P5S,), ((P5S, A),), 7200, True, id="sold nowhere"),
        pytest.param((P5S,), ((P5S, A),), 3599, False, id="bought a moment ago"),
        pytest.param((P5, P5S), ((P5S, A),), 7200, False, id="known, but nobody knows its price"),
        pytest.param((), (), 7200, False, id="no catalogue yet"),
    ],
)
def test_a_type_that_is_no_longer_sold(types: Any, offers: Any, age_s: float, goes: bool) -> None:
    world = idle(since_s=1, instanceTypes=[P5.name, P5S.name])
    claim(launched_at_s=NOW - age_s)(world)
    sold = tuple(InstanceOffer(kind, zone, "on-demand", 1.0) for kind, zone in offers)
    world.catalog = replace(world.catalog, types={kind.name: kind for kind in types}, offers=sold)
    assert told(world) == ({"m0": "Drifted"} if goes else {})


def test_a_machine_of_a_removed_pool_goes_whatever_the_budgets() -> None:
    world = idle(3, since_s=1, disruption={"budgets": [{"nodes": 0}]})
    world.fleet = FleetBuilder().pool("other").team(quotas={}).queue(flavors=["other"]).build()
    assert told(world) == dict.fromkeys(("m0", "m1", "m2"), "NodePoolRemoved")


def test_drift_keeps_to_its_budget() -> None:
    world = idle(10, since_s=1)
    with_pool(world, template={"labels": {"a": "b"}}, disruption={"budgets": [{"nodes": 3}]})
    assert list(told(world)) == ["m0", "m1", "m2"]


def test_methods_share_the_budget_of_a_pool() -> None:
    """Emptiness takes first; what it leaves is for drift."""
    world = idle(4, since_s=1)
    claim(emptied_at_s=NOW - 99)(world)
    with_pool(world, template={"labels": {"a": "b"}}, disruption={"budgets": [{"nodes": 2}]})
    assert told(world) == {"m0": "Empty", "m1": "Drifted"}


# -- expiry -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_s", "expire_after", "goes"),
    [
        (3599, "1h", False),
        (3600, "1h", True),
        (9e9, "Never", False),
        (720 * 3600, None, True),
        (719 * 3600, None, False),
    ],
)
def test_expiry(age_s: float, expire_after: str | None, goes: bool) -> None:
    world = idle(since_s=1, template={"expireAfter": expire_after} if expire_after else {})
    claim(launched_at_s=NOW - age_s)(world)
    assert told(world) == ({"m0": "Expired"} if goes else {})


def test_expiry_does_not_wait_for_budgets_but_counts() -> None:
    world = idle(4, disruption={"budgets": [{"nodes": 1}]}, template={"expireAfter": "1h"})
    for name in ("m0", "m1"):
        it: Claim = world.claims[name]
        world.claims[name] = replace(it, launched_at_s=NOW - 9999, emptied_at_s=NOW)
    for name in ("m2", "m3"):
        world.claims[name] = replace(world.claims[name], emptied_at_s=NOW, launched_at_s=NOW)
    assert told(world) == {"m0": "Expired", "m1": "Expired"}


# -- rest -------------------------------------------------------------------------------------------------------------


def test_nothing_is_bought_for_idle_machines() -> None:
    world = idle(3)
    with_pool(world, **ANY, template={"labels": {"a": "b"}, "expireAfter": "1h"})
    assert not [it for it in disrupt.decide(world.fleet, world.snapshot()) if isinstance(it, OpenClaims)]
