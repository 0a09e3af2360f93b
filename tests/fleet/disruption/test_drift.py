"""Machines that are not what their pool declares: how they differ, what is proposed, and why others stay."""

from dataclasses import replace
from typing import Any

import pytest

from fleet import disruption as disrupt
from fleet.actions import OpenClaims, SaveClaim, claim_subject, gang_subject
from fleet.catalog import InstanceOffer
from fleet.disruption.context import DisruptionContext
from fleet.disruption.drift import staged
from fleet.disruption.eligibility import immovable
from fleet.disruption.outcomes import Obstacle
from fleet.nodeclaims import fixed as fixed_pools
from fleet.snapshot import GangState, PodBudget
from model import labels
from model.upstream.selectors import LabelSelector
from tests.support.disruption import (
    ANY,
    CHANGED,
    GOES,
    KEEPS,
    NOTHING,
    WAITS,
    Row,
    busy,
    check,
    drift_of,
    fixed,
    gone,
    gone_pool,
    idle,
    in_hand,
    of_claim,
    one_leaves,
    protected_neighbour,
    sold_out,
    spared,
    successor_boots,
    too_little_quota,
    wide_gang,
    with_pod,
    with_pool,
)
from tests.support.fleets import NOW, P5, P5S, A, B, FleetBuilder, foreign_pod, gang
from tests.support.world import World


def ending(**pod: Any) -> World:
    """A drained node may take five minutes at most."""
    template = {**CHANGED["template"], "terminationGracePeriod": "5m"}
    world = busy(template=template)
    world.stands(foreign_pod("p", "node-m0", controlled=True, **pod))
    return world


def spared_since(seconds: int) -> World:
    """A gang that asks for two hours, which it has run for so long of."""
    return busy(**CHANGED, run={"do_not_disrupt": "2h", "admitted_at_s": NOW - seconds})


def closed_daemon() -> World:
    """Nobody may evict the pod of a DaemonSet."""
    world = with_pod(daemon=True, labels=(("app", "a"),))
    budget = PodBudget("other", "b", LabelSelector(match_labels={"app": "a"}), 0)
    world.pod_budgets = {budget.key: budget}
    return world


ROWS: list[Row] = [
    ("as declared and busy", busy, {}, KEEPS, Obstacle.NOT_DUE, "what its pool declares"),
    ("drifted", lambda: busy(**CHANGED), {"m0": 1}, GOES, NOTHING, "1 machine bought first"),
    ("drifted, and another one whose action is under way stands idle",
     lambda: in_hand(busy(2, **CHANGED), claim_subject("m1")), {"m0": 1}, GOES, NOTHING, "1 machine bought first"),
    ("drifted, no budget", lambda: busy(**CHANGED, disruption={"budgets": [{"nodes": 0}]}), {}, WAITS, Obstacle.BUDGET,
     "the template of node pool h100 has changed; the budgets of h100"),
    ("spans the budget", lambda: wide_gang(1), {}, WAITS, Obstacle.BUDGET, "stays until ns/wide end"),
    ("spans within the budget", lambda: wide_gang(2), {"m0 m1": 2}, GOES, NOTHING, "2 machines bought first"),
    ("spans what is left of the budget", one_leaves, {}, WAITS, Obstacle.BUDGET, "2 machines go together"),
    ("goes with one that may not", protected_neighbour, {}, WAITS, Obstacle.GANG, "machines that go with it"),
    ("drifted, no limit left", lambda: busy(**CHANGED, limits={"nodes": 1}), {}, WAITS, Obstacle.NO_PLACE,
     "beyond the limits of h100"),
    ("drifted, no quota to come back to", too_little_quota, {}, WAITS, Obstacle.NO_PLACE, "no quota"),
    ("do-not-disrupt", lambda: busy(**CHANGED, run={"do_not_disrupt": "true"}), {}, WAITS, Obstacle.GANG,
     "ns/g says do-not-disrupt"),
    ("do-not-disrupt for two hours, after one", lambda: spared_since(3600), {}, WAITS, Obstacle.GANG,
     "ns/g says do-not-disrupt"),
    ("do-not-disrupt for two hours, after three", lambda: spared_since(10_800), {"m0": 1}, GOES, NOTHING,
     "1 machine bought first"),
    ("gang leaves", lambda: busy(**CHANGED, run={"state": GangState.EVICTING}), {}, WAITS, Obstacle.GANG,
     "ns/g is Evicting"),
    ("gang mends", lambda: busy(**CHANGED, run={"replacing_since_s": NOW - 5}), {}, WAITS, Obstacle.GANG,
     "replacing a machine"),
    ("gang in hand", lambda: in_hand(busy(**CHANGED), gang_subject("uid-g")), {}, WAITS, Obstacle.GANG,
     "action on ns/g"),
    ("pod of nobody", with_pod, {}, WAITS, Obstacle.PODS, "other/p has no controller"),
    ("protected pod", lambda: with_pod(do_not_disrupt="true"), {}, WAITS, Obstacle.PODS, "do-not-disrupt"),
    ("protected pod, and a drain has to end", lambda: ending(do_not_disrupt="true"), {"m0": 1}, GOES, NOTHING,
     "1 machine bought first"),
    ("protected pod of a DaemonSet", lambda: with_pod(daemon=True, do_not_disrupt="true"), {}, WAITS, Obstacle.PODS,
     "do-not-disrupt"),
    ("pod of a DaemonSet with a closed budget", closed_daemon, {}, WAITS, Obstacle.POD_BUDGET,
     "PodDisruptionBudget other/b"),
    ("pool removed", gone_pool, {"m0": 0}, GOES, NOTHING, "no longer declared"),
    ("spared and drifted", lambda: spared(busy(**CHANGED)), {}, WAITS, Obstacle.PODS, "changed; its node says"),
    ("fixed, drifted", lambda: fixed(2), {"m0": 1, "m1": 1}, GOES, NOTHING, "1 machine bought first"),
    ("fixed, one missing", lambda: fixed(1), {}, WAITS, Obstacle.FIXED_POOL, "has 1 machine and keeps 2"),
    ("fixed, drifted, no budget", lambda: fixed(2, disruption={"budgets": [{"nodes": 0}]}), {}, WAITS, Obstacle.BUDGET,
     "Drifted"),
    ("fixed, sold out", lambda: sold_out(fixed(2)), {}, WAITS, Obstacle.NO_PLACE, "no machine can be bought"),
    ("fixed, successor boots", successor_boots, {}, WAITS, Obstacle.REPLACEMENT, "new has to be ready first"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_it_proposes_and_why_not(row: Row) -> None:
    check("drift", row)


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


@pytest.mark.parametrize(("pool", "why"), [it[1:] for it in DRIFTS], ids=[it[0] for it in DRIFTS])
def test_drift(pool: dict[str, Any], why: str) -> None:
    world = idle(since_s=1)
    with_pool(world, **{**ANY, **pool})
    assert drift_of(world.fleet, world.snapshot(), world.claims["m0"]).words == why
    if "expireAfter" not in pool.get("template", {}):
        assert gone(world) == ({"m0": "Drifted"} if why else {})


def test_a_hash_of_another_version_is_no_drift() -> None:
    world = idle(since_s=1)
    of_claim(pool_hash="v0-whatever")(world)
    assert gone(world) == {}


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
    of_claim(launched_at_s=NOW - age_s)(world)
    sold = tuple(InstanceOffer(kind, zone, "on-demand", 1.0) for kind, zone in offers)
    world.catalog = replace(world.catalog, types={kind.name: kind for kind in types}, offers=sold)
    assert gone(world) == ({"m0": "Drifted"} if goes else {})


def test_a_machine_of_a_removed_pool_goes_whatever_the_budgets() -> None:
    world = idle(3, since_s=1, disruption={"budgets": [{"nodes": 0}]})
    world.fleet = FleetBuilder().pool("other").team(quotas={}).queue(flavors=["other"]).build()
    assert gone(world) == dict.fromkeys(("m0", "m1", "m2"), "NodePoolRemoved")


def test_drift_keeps_to_its_budget() -> None:
    world = idle(10, since_s=1)
    with_pool(world, template={"labels": {"a": "b"}}, disruption={"budgets": [{"nodes": 3}]})
    assert list(gone(world)) == ["m0", "m1", "m2"]


# -- fixed pools: another machine first, and the pool never has fewer than it should -----------------------------------


def fixed_pool(machines: int, replicas: int, budget: str = "100%", **pool: Any) -> World:
    def built(**more: Any) -> Any:
        spec = {"replicas": replicas, "disruption": {"budgets": [{"nodes": budget}]}, **pool, **more}
        return FleetBuilder().pool(**spec).team().queue().build()

    world = World(built())
    for number in range(machines):
        world.machine(f"m{number}")
    world.fleet = built(**CHANGED)
    return world


def of_fixed(world: World) -> tuple[list[str], list[str]]:
    """(machines for which another is bought, machines told to go)."""
    actions = disrupt.decide(world.fleet, world.snapshot())
    bought = [name for it in actions if isinstance(it, OpenClaims) for claim in it.claims for name in claim.replaces]
    return bought, [it.claim.name for it in actions if isinstance(it, SaveClaim)]


@pytest.mark.parametrize(
    ("replicas", "running", "count", "budget", "limit", "turns"),
    [
        (10, 10, 10, 2, float("inf"), 2),
        (5, 5, 5, 9, 5, 0),
        (5, 5, 5, 9, 7, 2),
        (1, 2, 1, 9, float("inf"), 0),
        (5, 4, 3, 9, float("inf"), 3),
        (5, 5, 5, 0, float("inf"), 0),
        (5, 5, 2, 9, 4, 0),
    ],
)
def test_staged(replicas: int, running: int, count: int, budget: int, limit: float, turns: int) -> None:
    assert staged(replicas, running, count, budget, limit) == turns


@pytest.mark.parametrize(
    ("machines", "replicas", "pool", "bought", "gone"),
    [
        pytest.param(3, 3, {}, ["m0", "m1", "m2"], [], id="each by another"),
        pytest.param(4, 4, {"budget": "50%"}, ["m0", "m1"], [], id="budget"),
        pytest.param(3, 3, {"limits": {"nodes": 4}}, ["m0"], [], id="limit"),
        pytest.param(3, 3, {"limits": {"nodes": 3}}, [], ["m0", "m1", "m2"], id="no room for one more"),
        pytest.param(3, 3, {"limits": {"usdPerHour": 3 * 98.0}}, [], ["m0", "m1", "m2"], id="no money for one more"),
        pytest.param(3, 2, {}, [], [], id="too many stand"),
        pytest.param(3, 4, {}, [], [], id="one is missing: that comes first"),
    ],
)
def test_turns(machines: int, replicas: int, pool: dict[str, Any], bought: list[str], gone: list[str]) -> None:
    assert of_fixed(fixed_pool(machines, replicas, **pool)) == (bought, gone)


def test_the_old_ones_go_when_the_new_ones_are_ready_and_the_pool_keeps_its_number() -> None:
    world = fixed_pool(3, 3, budget="34%")
    for _ in range(60):
        world.pass_once()
        world.now_s += 5
        living = [one for one in world.claims.values() if one.ready_at_s and not one.disruption and not one.deleting]
        assert len(living) >= 3
    assert len(world.claims) == 3
    assert not {"m0", "m1", "m2"} & world.claims.keys()


def test_a_gang_that_may_not_move_keeps_its_machine() -> None:
    world = fixed_pool(2, 2)
    world.runs(replace(gang("g"), do_not_disrupt="true"), ("m0", 1))
    assert of_fixed(world) == (["m1"], [])


@pytest.mark.parametrize(("preemptible", "kept"), [(True, []), (False, ["m0"])])
def test_non_preemptible_work_keeps_its_machine(*, preemptible: bool, kept: list[str]) -> None:
    world = busy(**CHANGED)
    classes = FleetBuilder().priority("stays", 9, preemptible=preemptible).build().priority_classes
    world.fleet = replace(world.fleet, priority_classes=classes)
    world.gangs = {uid: replace(it, priority_class="stays") for uid, it in world.gangs.items()}
    context = DisruptionContext.of(world.fleet, world.snapshot())
    blocked = [claim.name for claim in world.claims.values() if immovable(context, claim) is not None]
    assert blocked == kept


def test_a_machine_that_has_a_successor_does_not_count_twice() -> None:
    world = fixed_pool(1, 1)
    world.machine("new", replaces=("m0",))
    assert fixed_pools.decide(world.fleet, world.snapshot()) == []
    assert of_fixed(world) == ([], ["m0"])
