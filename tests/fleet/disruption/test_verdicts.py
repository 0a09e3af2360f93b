"""What every method says of a machine: who goes is who the methods take, and for the rest there is one reason each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet import disruption as disrupt
from fleet.actions import Action, OpenClaims, SaveClaim, claim_subject, gang_subject
from fleet.disruption.outcomes import DisruptionOutcome, DisruptionVerdict, Obstacle
from fleet.explain.verdicts import INVOLUNTARY, verdicts
from fleet.reasons import Reason
from fleet.snapshot import CapacityPool, GangState, NodeDisruption
from model.kinds import NEVER
from tests.support.fleets import GPU, NOW, P5, P5S, FleetBuilder, foreign_pod, gang
from tests.support.world import World

BOTH = [P5.name, P5S.name]
OPEN: dict[str, Any] = {"budgets": [{"nodes": "100%"}]}
CHANGED: dict[str, Any] = {"template": {"labels": {"a": "b"}}}
ROLLS: dict[str, Any] = {"template": {"expireAfter": "1h"}}


def world_of(machines: int = 1, policy: dict[str, Any] | None = None, **pool: Any) -> World:
    world = World(FleetBuilder().pool(instanceTypes=pool.get("instanceTypes", [P5.name])).team().queue().build())
    for n in range(machines):
        world.machine(f"m{n}")
    declare(world, policy, **pool)
    return world


def declare(world: World, policy: dict[str, Any] | None = None, **pool: Any) -> None:
    builder = FleetBuilder().pool(**{"disruption": OPEN, **pool}).team(quotas={"h100": {GPU: 64}}).queue()
    world.fleet = (builder.policy(**policy) if policy else builder).build()


def busy(machines: int = 1, gpu: int = 4, run: dict[str, Any] | None = None, **pool: Any) -> World:
    """A gang on `m0`."""
    world = world_of(machines, **pool)
    world.runs(gang("g", gpu=gpu), ("m0", 1), **(run or {}))
    return world


def said(world: World, claim: str = "m0") -> dict[str, DisruptionVerdict]:
    return {it.method: it for it in verdicts(world.fleet, world.snapshot(), world.claims[claim])}


def quiet(seconds: int) -> dict[str, Any]:
    return {"disruption": {**OPEN, "consolidateAfter": f"{seconds}s"}}


def with_pod(**more: Any) -> World:
    world = busy(**CHANGED)
    world.stands(foreign_pod("p", "node-m0", **more))
    return world


def changed(world: World, claim: str = "m0", **facts: Any) -> World:
    world.claims[claim] = replace(world.claims[claim], **facts)
    return world


def in_hand(world: World, *subjects: str) -> World:
    world.busy = frozenset(subjects)
    return world


def dear_work(gpus: int) -> World:
    """A small gang alone on a big machine for hours, without a checkpoint."""
    return busy(gpu=gpus, run={"admitted_at_s": NOW - 24 * 3600}, instanceTypes=BOTH)


def too_little_quota() -> World:
    world = busy(**CHANGED)
    it = FleetBuilder().pool(disruption=OPEN, **CHANGED).team(quotas={"h100": {GPU: 1}}).queue()
    world.fleet = it.build()
    return world


def cheaper_on_its_way() -> World:
    world = busy(instanceTypes=BOTH)
    small = world.machine("small", kind=P5S.name, replaces=("m0",), ready_at_s=0.0, registered_at_s=0.0, gang="uid-g")
    world.claims["small"] = replace(small, emptied_at_s=0.0)
    return world


def wide_gang(nodes: int) -> World:
    world = world_of(2, disruption={"budgets": [{"nodes": nodes}]}, **CHANGED)
    world.runs(gang("wide", count=2, gpu=8), ("m0", 1), ("m1", 1))
    return world


def busy_with(gangs: int) -> World:
    """Gangs of one GPU each, which small machines would hold one by one."""
    world = world_of(instanceTypes=BOTH)
    for n in range(gangs):
        world.runs(gang(f"g{n}", gpu=1), ("m0", 1))
    return world


def sold_out(world: World) -> World:
    world.shortages = {offer.pool_key: NOW + 60 for offer in world.catalog.offers}
    return world


def gone_pool() -> World:
    world = world_of()
    world.fleet = FleetBuilder().pool("other").team(quotas={}).build()
    return world


def silent(seconds: float, machines: int = 1, dumb: int = 1) -> World:
    world = world_of(machines)
    for n in range(dumb):
        node = world.nodes[f"node-m{n}"]
        world.nodes[node.name] = replace(node, ready=False, ready_changed_at_s=NOW - seconds)
    return world


def one_leaves() -> World:
    """The budget lets two go, and one is going."""
    world = wide_gang(2)
    world.machine("m2", disruption=NodeDisruption(Reason.EMPTY, "", NOW, NEVER))
    return world


def protected_neighbour() -> World:
    """A gang spans two machines; on the other one there is a second gang that may not move."""
    world = world_of(2, **CHANGED)
    world.runs(gang("wide", count=2, gpu=4), ("m0", 1), ("m1", 1))
    world.runs(gang("fixed", gpu=4), ("m1", 1), do_not_disrupt=True)
    return world


def frozen(world: World) -> World:
    """With a freeze window that is open."""
    declare(world, FREEZE, instanceTypes=BOTH)
    return world


def spared(world: World) -> World:
    """The node of `m0` says do-not-disrupt."""
    world.nodes["node-m0"] = replace(world.nodes["node-m0"], do_not_disrupt="true")
    return world


def fixed(machines: int, **pool: Any) -> World:
    """A drifted pool of two fixed machines, on the first of them a gang."""
    world = busy(machines, replicas=2)
    declare(world, **{"replicas": 2, **CHANGED, **pool})
    return world


def successor_boots() -> World:
    world = fixed(2)
    world.machine("new", replaces=("m0",), ready_at_s=0.0, registered_at_s=0.0)
    return world


def balanced() -> World:
    """Nearly all that the pool runs stands on the machine that would save a little."""
    policy = {"consolidationPolicy": "Balanced", "consolidationThreshold": 1, **OPEN}
    world = World(FleetBuilder().pool(instanceTypes=BOTH).team().queue().build())
    world.machine("m0", kind=P5S.name, capacity_type="on-demand", price_usd_h=15.0)
    for n in range(1, 4):
        world.machine(f"m{n}")
    declare(world, instanceTypes=BOTH, disruption=policy)
    for n in range(1, 4):
        world.runs(gang(f"full{n}", gpu=8), (f"m{n}", 1))
    world.runs(gang("g", gpu=1), ("m0", 1))
    return world


def advised(world: World, **pool: Any) -> World:
    """EC2 expects to take `m0`, and its pool acts on that."""
    declare(world, disruption={"onRebalance": "Replace", "consolidateAfter": "Never", **OPEN, **pool})
    return changed(world, advised_at_s=NOW - 60)


RETURNS: dict[str, Any] = {"returnToPreferred": {"after": "1h"}, "consolidateAfter": "Never", **OPEN}


def second_best(ready_s: float = 7200, run: dict[str, Any] | None = None, **pool: Any) -> World:
    """A gang on an on-demand machine of a pool that would rather have spot."""
    kinds: dict[str, Any] = {"capacityTypes": ["spot", "on-demand"], "disruption": RETURNS, **pool}
    world = World(FleetBuilder().pool(**kinds).team(quotas={"h100": {GPU: 64}}).queue().build())
    world.machine("m0", ready_at_s=NOW - ready_s)
    world.runs(gang("g"), ("m0", 1), **(run or {}))
    return world


GOES, WAITS, KEEPS = DisruptionOutcome.GOES, DisruptionOutcome.WAITS, DisruptionOutcome.KEEPS
NOTHING = Obstacle.NONE
FREEZE = {"freezeWindows": [{"name": "always", "schedule": "* * * * *", "duration": "10m", "blocks": ["Disruption"]}]}
CASES: list[tuple[str, Callable[[], World], str, DisruptionOutcome, Obstacle, str]] = [
    ("idle", world_of, "emptiness", GOES, NOTHING, "nothing has run on it for 7000 s"),
    ("just idle", lambda: changed(world_of(**quiet(600)), emptied_at_s=NOW - 60), "emptiness", WAITS,
     Obstacle.QUIET_TIME, "quiet for 600 s"),
    ("not noticed yet", lambda: changed(world_of(), emptied_at_s=0.0), "emptiness", WAITS, Obstacle.QUIET_TIME, ""),
    ("never idle enough", lambda: world_of(disruption={"consolidateAfter": "Never"}), "emptiness", KEEPS,
     Obstacle.QUIET_TIME, "Never"),
    ("no budget", lambda: world_of(disruption={"budgets": [{"nodes": 0}]}), "emptiness", WAITS, Obstacle.BUDGET,
     "the budgets of h100 let no more machines go as Empty now"),
    ("occupied", busy, "emptiness", KEEPS, Obstacle.OCCUPIED, "ns/g on it"),
    ("fixed pool", lambda: world_of(replicas=1), "emptiness", KEEPS, Obstacle.FIXED_POOL, "keeps 1 machines"),
    ("as declared", world_of, "drift", KEEPS, Obstacle.TAKEN, "emptiness has it in hand"),
    ("as declared and busy", busy, "drift", KEEPS, Obstacle.NOT_DUE, "what its pool declares"),
    ("drifted", lambda: busy(**CHANGED), "drift", GOES, NOTHING, "1 machine bought first"),
    ("drifted, no budget", lambda: busy(**CHANGED, disruption={"budgets": [{"nodes": 0}]}), "drift", WAITS,
     Obstacle.BUDGET, "the template of node pool h100 has changed; the budgets of h100"),
    ("spans the budget", lambda: wide_gang(1), "drift", WAITS, Obstacle.BUDGET, "stays until ns/wide end"),
    ("spans within the budget", lambda: wide_gang(2), "drift", GOES, NOTHING, "2 machines bought first"),
    ("spans what is left of the budget", one_leaves, "drift", WAITS, Obstacle.BUDGET, "2 machines go together"),
    ("goes with one that may not", protected_neighbour, "drift", WAITS, Obstacle.GANG, "machines that go with it"),
    ("drifted, no limit left", lambda: busy(**CHANGED, limits={"nodes": 1}), "drift", WAITS, Obstacle.NO_PLACE,
     "beyond the limits of h100"),
    ("drifted, no quota to come back to", too_little_quota, "drift", WAITS, Obstacle.NO_PLACE, "no quota"),
    ("do-not-disrupt", lambda: busy(**CHANGED, run={"do_not_disrupt": True}), "drift", WAITS, Obstacle.GANG,
     "ns/g says do-not-disrupt"),
    ("gang leaves", lambda: busy(**CHANGED, run={"state": GangState.EVICTING}), "drift", WAITS, Obstacle.GANG,
     "ns/g is Evicting"),
    ("gang mends", lambda: busy(**CHANGED, run={"replacing_since_s": NOW - 5}), "drift", WAITS, Obstacle.GANG,
     "replacing a machine"),
    ("gang in hand", lambda: in_hand(busy(**CHANGED), gang_subject("uid-g")), "drift", WAITS, Obstacle.GANG,
     "action on ns/g"),
    ("pod of nobody", with_pod, "drift", WAITS, Obstacle.PODS, "other/p belongs to no gang"),
    ("protected pod", lambda: with_pod(do_not_disrupt=True), "drift", WAITS, Obstacle.PODS, "do-not-disrupt"),
    ("taken by drift", lambda: busy(**CHANGED), "expiry", KEEPS, Obstacle.TAKEN, "drift has it in hand"),
    ("old and idle", lambda: world_of(**ROLLS, disruption={"consolidateAfter": "Never"}), "expiry", GOES, NOTHING,
     "1.9 h old"),
    ("old and busy", lambda: busy(**ROLLS), "expiry", GOES, NOTHING, "1 machine bought first"),
    ("old and protected", lambda: busy(**ROLLS, run={"do_not_disrupt": True}), "expiry", WAITS, Obstacle.GANG,
     "the pool allows 1.0 h; ns/g says"),
    ("young", busy, "expiry", KEEPS, Obstacle.NOT_DUE, "the pool allows 720.0 h"),
    ("never expires", lambda: busy(template={"expireAfter": "Never"}), "expiry", KEEPS, Obstacle.NOT_DUE, "never"),
    ("small gang, big machine", lambda: busy(gpu=1, instanceTypes=BOTH), "consolidation", WAITS,
     Obstacle.PROPOSED, "saving 84.00 USD/h; 1 machine bought first; it goes when that still holds"),
    ("about to go, frozen", lambda: frozen(busy(gpu=1, instanceTypes=BOTH)), "consolidation", WAITS, Obstacle.FREEZE,
     "saving 84.00 USD/h"),
    ("full", lambda: busy(gpu=8, instanceTypes=BOTH), "consolidation", KEEPS, Obstacle.NO_SAVING, "as much or more"),
    ("several small ones", lambda: busy_with(2), "consolidation", KEEPS, Obstacle.NO_SAVING, "more than 1"),
    ("no other offer", lambda: sold_out(busy(gpu=1)), "consolidation", WAITS, Obstacle.NO_PLACE, "short of"),
    ("dear work", lambda: dear_work(1), "consolidation", WAITS, Obstacle.PAYBACK, "lose work worth 2352.00 USD"),
    ("just started", lambda: busy(gpu=1, run={"admitted_at_s": NOW - 5}, instanceTypes=BOTH), "consolidation", WAITS,
     Obstacle.QUIET_TIME, "60 s"),
    ("when empty only", lambda: busy(disruption={"consolidationPolicy": "WhenEmpty"}), "consolidation", KEEPS,
     Obstacle.POLICY, "WhenEmpty"),
    ("nothing on it", lambda: world_of(**quiet(9000)), "consolidation", KEEPS, Obstacle.EMPTY, "emptiness"),
    ("fixed", lambda: busy(replicas=1), "consolidation", KEEPS, Obstacle.FIXED_POOL, "keeps 1"),
    ("replacement coming", cheaper_on_its_way, "consolidation", WAITS, Obstacle.REPLACEMENT, "small has to be ready"),
    ("may not move", lambda: busy(gpu=1, instanceTypes=BOTH, run={"do_not_disrupt": True}), "consolidation", WAITS,
     Obstacle.GANG, "says do-not-disrupt"),
    ("saves, no budget", lambda: busy(gpu=1, instanceTypes=BOTH, disruption={"budgets": [{"nodes": 0}]}),
     "consolidation", WAITS, Obstacle.BUDGET, "Underutilized"),
    ("frozen", lambda: world_of(policy=FREEZE), "emptiness", WAITS, Obstacle.FREEZE, "freeze window always is open"),
    ("frozen and nothing to do", lambda: world_of(policy=FREEZE), "consolidation", KEEPS, Obstacle.TAKEN, ""),
    ("leaves", lambda: changed(world_of(), disruption=NodeDisruption(Reason.EMPTY, "", NOW, NEVER)), "drift", KEEPS,
     Obstacle.LEAVING, "leaves already: Empty"),
    ("deleted", lambda: changed(world_of(), deleting=True), "emptiness", KEEPS, Obstacle.LEAVING, "being deleted"),
    ("boots", lambda: changed(world_of(), ready_at_s=0.0), "emptiness", KEEPS, Obstacle.NOT_READY, "Registered"),
    ("is cut", lambda: changed(world_of(), recut_at_s=NOW, layout="x"), "drift", KEEPS, Obstacle.RECUTTING, "cut to x"),
    ("in hand", lambda: in_hand(world_of(), claim_subject("m0")), "drift", KEEPS, Obstacle.IN_HAND, "under way"),
    ("replacement itself", lambda: changed(world_of(2), replaces=("m1",)), "emptiness", KEEPS, Obstacle.AWAITS_MOVE,
     "m1"),
    ("no pool any more", gone_pool, "emptiness", KEEPS, Obstacle.NO_POOL, "not declared"),
    ("pool removed", gone_pool, "drift", GOES, NOTHING, "no longer declared"),
    ("spared and idle", lambda: spared(world_of()), "emptiness", WAITS, Obstacle.PODS, "its node says do-not-disrupt"),
    ("spared and drifted", lambda: spared(busy(**CHANGED)), "drift", WAITS, Obstacle.PODS, "changed; its node says"),
    ("spared and small", lambda: spared(busy(gpu=1, instanceTypes=BOTH)), "consolidation", WAITS, Obstacle.PODS, ""),
    ("spared and old", lambda: spared(world_of(**ROLLS)), "expiry", GOES, NOTHING, "1.9 h old"),
    ("fixed, drifted", lambda: fixed(2), "drift", GOES, NOTHING, "1 machine bought first"),
    ("fixed, one missing", lambda: fixed(1), "drift", WAITS, Obstacle.FIXED_POOL, "has 1 machines and keeps 2"),
    ("fixed, drifted, no budget", lambda: fixed(2, disruption={"budgets": [{"nodes": 0}]}), "drift", WAITS,
     Obstacle.BUDGET, "Drifted"),
    ("fixed, sold out", lambda: sold_out(fixed(2)), "drift", WAITS, Obstacle.NO_PLACE, "no machine can be bought"),
    ("fixed, successor boots", successor_boots, "drift", WAITS, Obstacle.REPLACEMENT, "new has to be ready first"),
    ("out of proportion", balanced, "consolidation", WAITS, Obstacle.BALANCE, "too little for what it disturbs"),
    ("not advised", lambda: changed(advised(busy()), advised_at_s=0.0), "rebalance", KEEPS, Obstacle.NOT_DUE, "not"),
    ("advice ignored", lambda: changed(busy(), advised_at_s=NOW), "rebalance", KEEPS, Obstacle.POLICY, "ignores"),
    ("advised, idle", lambda: advised(world_of()), "rebalance", GOES, NOTHING, "expects to take"),
    ("advised, busy, one zone left", lambda: advised(busy()), "rebalance", GOES, NOTHING, "1 machine bought first"),
    ("advised, sold out", lambda: sold_out(advised(busy())), "rebalance", WAITS, Obstacle.NO_PLACE, "short of"),
    ("advised, no budget", lambda: advised(busy(), budgets=[{"nodes": 0}]), "rebalance", WAITS, Obstacle.BUDGET, ""),
    ("advised, spared", lambda: spared(advised(busy())), "rebalance", WAITS, Obstacle.PODS, "its node"),
    ("no way back", busy, "preference", KEEPS, Obstacle.POLICY, "no returnToPreferred"),
    ("second best", second_best, "preference", GOES, NOTHING, "1 machine bought first"),
    ("second best, short stay", lambda: second_best(600), "preference", WAITS, Obstacle.MINIMUM_STAY, "after first"),
    ("second best, sold out", lambda: sold_out(second_best()), "preference", WAITS, Obstacle.NO_PLACE, "of spot are"),
    ("second best, dear work", lambda: second_best(run={"admitted_at_s": NOW - 86400}), "preference", WAITS,
     Obstacle.PAYBACK, "pay for the work lost"),
    ("second best, protected", lambda: second_best(run={"do_not_disrupt": True}), "preference", WAITS, Obstacle.GANG,
     "ns/g says"),
    ("second best, no budget", lambda: second_best(disruption={**RETURNS, "budgets": [{"nodes": 0}]}), "preference",
     WAITS, Obstacle.BUDGET, "the budgets of h100"),
    ("second best, no limit left", lambda: second_best(limits={"nodes": 1}), "preference", WAITS, Obstacle.NO_PLACE,
     "beyond the limits"),
    ("best already", lambda: second_best(capacityTypes=["on-demand", "spot"]), "preference", KEEPS, Obstacle.NOT_DUE,
     "prefers nothing to on-demand"),
    ("stays, not consolidated", lambda: second_best(600, disruption={**RETURNS, "consolidateAfter": "0s"}),
     "consolidation", WAITS, Obstacle.MINIMUM_STAY, "after first"),
    ("not interrupted", world_of, "interruption", KEEPS, Obstacle.NOT_DUE, "announced nothing"),
    ("interrupted", lambda: changed(world_of(), disruption=NodeDisruption(Reason.INTERRUPTED, "taken", NOW, NOW + 90)),
     "interruption", GOES, NOTHING, "taken"),
    ("well", world_of, "repair", KEEPS, Obstacle.NOT_DUE, "well"),
    ("silent", lambda: silent(100), "repair", WAITS, Obstacle.QUIET_TIME, "unwell"),
    ("silent for long", lambda: silent(301), "repair", GOES, NOTHING, "condition Ready of its node was False"),
    ("all silent", lambda: silent(301, 3, 3), "repair", WAITS, Obstacle.POOL_UNWELL, "3 of 3 nodes"),
    ("no node", lambda: changed(world_of(), node=""), "repair", KEEPS, Obstacle.NOT_READY, "no node"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("scene", "method", "outcome", "obstacle", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_a_method_says(
    scene: Callable[[], World], method: str, outcome: DisruptionOutcome, obstacle: Obstacle, words: str
) -> None:
    found = said(scene())[method]
    assert (found.outcome, found.obstacle) == (outcome, obstacle), found.message
    assert words in found.message


def test_spot_is_not_traded_for_spot() -> None:
    world = World(FleetBuilder().pool(instanceTypes=BOTH, capacityTypes=["spot"]).team().queue().build())
    world.machine("m0", capacity_type="spot")
    declare(world, instanceTypes=BOTH, capacityTypes=["spot"])
    world.runs(gang("g", gpu=1), ("m0", 1))
    found = said(world)["consolidation"]
    assert (found.outcome, found.obstacle) == (DisruptionOutcome.KEEPS, Obstacle.NO_SAVING)
    assert "risk of interruption" in found.message


@pytest.mark.parametrize(
    ("world", "method", "left_s"),
    [
        (changed(world_of(**quiet(600)), emptied_at_s=NOW - 60), "emptiness", 540),
        (busy(), "expiry", 720 * 3600 - 7000),
        (silent(100), "repair", 200),
        (busy(gpu=1, instanceTypes=BOTH), "consolidation", 15),
    ],
)
def test_when_time_alone_will_do(world: World, method: str, left_s: float) -> None:
    assert said(world)[method].until_s == NOW + left_s


def test_one_machine_at_a_time_is_consolidated() -> None:
    world = world_of(2, instanceTypes=BOTH)
    for n in range(2):
        world.runs(gang(f"g{n}", gpu=1), (f"m{n}", 1))
    found = [said(world, name)["consolidation"] for name in ("m0", "m1")]
    assert {it.obstacle for it in found} <= {Obstacle.PROPOSED, Obstacle.TURN}


def test_every_method_of_a_pass_has_its_word_in_its_order() -> None:
    assert list(said(world_of())) == [*(method.name for method in disrupt.METHODS), *INVOLUNTARY]


def touched(actions: list[Action]) -> set[str]:
    """Claims that voluntary disruption acts on."""
    told = {it.claim.name for it in actions if isinstance(it, SaveClaim)}
    return told | {name for it in actions if isinstance(it, OpenClaims) for new in it.claims for name in new.replaces}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = world_of(
        draw(st.integers(1, 4)),
        draw(st.sampled_from((None, None, FREEZE))),
        instanceTypes=BOTH,
        disruption={
            "budgets": [{"nodes": draw(st.sampled_from((0, 1, 2, "100%")))}],
            "consolidateAfter": draw(st.sampled_from(("0s", "60s", "Never"))),
        },
        **draw(st.sampled_from(({}, CHANGED, ROLLS, {"limits": {"nodes": 3}}, {**CHANGED, "replicas": 2}))),
    )
    for n in range(draw(st.integers(0, 3))):
        places = draw(st.lists(st.sampled_from(sorted(world.claims)), min_size=1, max_size=2, unique=True))
        run = {"admitted_at_s": NOW - draw(st.sampled_from((10, 600, 80_000)))}
        it = gang(f"g{n}", count=len(places), gpu=draw(st.sampled_from((1, 2))))
        world.runs(it, *((place, 1) for place in places), do_not_disrupt=draw(st.booleans()), **run)
    if draw(st.booleans()):
        world.shortages = {CapacityPool("on-demand", P5S.name, "us-east-1a"): NOW + 60}
    return world


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_who_goes_is_who_the_pass_takes_and_the_rest_is_explained(world: World) -> None:
    before = world.snapshot()
    acted = touched(world.disrupted(waits=False))
    for name in sorted(world.claims):
        found = {it.method: it for it in verdicts(world.fleet, before, world.claims[name])}
        if found["consolidation"].obstacle is Obstacle.PROPOSED:
            assert world.outlook.of(name), (name, found)
        goes = {method.name for method in disrupt.METHODS if found[method.name].outcome is DisruptionOutcome.GOES}
        assert bool(goes) == (name in acted), (name, found)
        assert len(goes) <= 1
        assert all(it.message for it in found.values())
        assert all((it.obstacle is Obstacle.NONE) == (it.outcome is DisruptionOutcome.GOES) for it in found.values())
