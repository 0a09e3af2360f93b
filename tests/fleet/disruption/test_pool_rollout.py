"""Pools that take over a change one after the other: whose turn it is, what stops it, and what is remembered."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import SaveClaim
from fleet.disruption.context import DisruptionContext
from fleet.disruption.drift import DriftMethod
from fleet.disruption.outcomes import Obstacle
from fleet.disruption.pool_rollout import rollout_order, rollout_progress
from fleet.disruption.replacement import coming
from fleet.nodeclaims.drift import drifted_claims
from fleet.plan import make_plan
from fleet.plan.sections import document
from fleet.reasons import Reason
from fleet.snapshot import Claim, NodeDisruption, RolloutProgress, Snapshot
from model.fleet import Fleet
from model.pools import pool_hash
from tests.support.fleets import GPU, NOW, FleetBuilder, gang
from tests.support.world import World

POOLS = ("a", "b", "c")


def fleet(*marks: str, order: tuple[str, ...] = POOLS, fixed: int | None = None, **rollout: Any) -> Fleet:
    """Pools `a`, `b` and `c` of one type, whose templates say these marks."""
    builder = FleetBuilder()
    for name, mark in zip(POOLS, marks, strict=True):
        spec: dict[str, Any] = {"template": {"labels": {"mark": mark}}, "disruption": {"budgets": [{"nodes": "100%"}]}}
        builder.pool(name, **spec, **({"replicas": fixed} if fixed else {}))
    builder.team(quotas={name: {GPU: 64} for name in POOLS}).queue(flavors=list(POOLS))
    return builder.policy(rollout={"pools": list(order), **rollout}).build()


def standing(*marks: str, machines: int = 2, **more: Any) -> World:
    """Idle machines `a0`, `a1`, `b0` ... of templates that said `old`, where they now say something else."""
    world = World(fleet("old", "old", "old", **more))
    for name in POOLS:
        for number in range(machines):
            world.machine(f"{name}{number}", name)
    world.fleet = fleet(*marks, **more)
    return world


def told(world: World, progress: RolloutProgress | None = None) -> set[str]:
    """The machines that drift takes now."""
    context = DisruptionContext.of(world.fleet, replace(world.snapshot(), rollout=progress))
    return {claim.name for command in DriftMethod().propose(context) for claim in command.claims}


def progress(world: World, before: RolloutProgress | None) -> RolloutProgress | None:
    return rollout_progress(before, world.fleet, world.snapshot())


def begun(world: World) -> RolloutProgress:
    found = progress(world, None)
    assert found is not None
    return replace(found, began_s=NOW - 600)


@pytest.mark.parametrize(
    ("marks", "order", "expected"),
    [
        (("new", "new", "new"), POOLS, {"a0", "a1"}),
        (("old", "new", "new"), POOLS, {"b0", "b1"}),
        (("old", "old", "old"), POOLS, set()),
        (("new", "new", "new"), ("c", "a"), {"c0", "c1", "b0", "b1"}),
        (("new", "new", "new"), ("b",), {"a0", "a1", "b0", "b1", "c0", "c1"}),
    ],
    ids=["the first", "the first that has changed", "nothing", "one that is not named waits for nobody", "one alone"],
)
def test_whose_turn_it_is(marks: tuple[str, ...], order: tuple[str, ...], expected: set[str]) -> None:
    assert told(standing(*marks, order=order)) == expected


def changed(world: World, name: str, **facts: Any) -> World:
    world.claims[name] = replace(world.claims[name], **facts)
    return world


def renewed(world: World, *names: str, **facts: Any) -> World:
    """These machines are of the present template."""
    for name in names:
        changed(world, name, pool_hash=pool_hash(world.fleet.node_pools[name[0]]), **facts)
    return world


LEAVES = NodeDisruption(Reason.DRIFTED, "x", NOW)


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (renewed(standing("new", "new", "new"), "a0"), "1 machine of it differs still"),
        (changed(renewed(standing("new", "new", "new"), "a0", "a1"), "a0", disruption=LEAVES), "1 machine of it"),
        (renewed(standing("new", "new", "new"), "a0", "a1", ready_at_s=0.0), "a0 is not ready"),
        (renewed(renewed(standing("new", "new", "new"), "a1"), "a0", ready_at_s=0.0, replaces=("z",)), "a0 is not"),
        (renewed(standing("new", "new", "new", fixed=3), "a0", "a1"), "2 of its 3 machines are ready"),
    ],
    ids=["differs", "leaves", "none is proven", "a replacement boots", "a fixed pool lacks one"],
)
def test_what_the_next_pool_waits_for(world: World, words: str) -> None:
    assert not {name for name in told(world) if name.startswith(("b", "c"))}
    context = DisruptionContext.of(world.fleet, world.snapshot())
    blocked = DriftMethod().why_not(context, world.claims["b0"])
    assert blocked.obstacle is Obstacle.ROLLOUT
    assert f"node pool a comes first in the roll-out: {words}" in blocked.message


def test_the_next_begins_where_machines_are_bought_all_the_time() -> None:
    world = renewed(renewed(standing("new", "new", "new"), "a1"), "a0", ready_at_s=0.0)
    assert told(world) == {"b0", "b1"}, "one that work asked for is not waited for once another one is ready"


def test_what_has_begun_ends_before_an_earlier_pool_begins_anew() -> None:
    world = standing("new", "new", "new")
    changed(world, "b0", disruption=LEAVES)
    assert told(world) == set()
    blocked = DriftMethod().why_not(DisruptionContext.of(world.fleet, world.snapshot()), world.claims["a0"])
    assert "what has begun in node pool b ends first" in blocked.message


@pytest.mark.parametrize("paused", [False, True])
def test_a_machine_goes_whose_replacement_is_ready(paused: bool) -> None:
    world = standing("new", "new", "new")
    world.runs(gang("g", gpu=8), ("b0", 1), flavor="b")
    ready = renewed(world, "c0").claims.pop("c0")
    new = replace(ready, node_pool="b", pool_hash=pool_hash(world.fleet.node_pools["b"]), replaces=("b0",))
    world.claims["c0"] = replace(new, launch=replace(new.launch, size=1))
    held = replace(begun(world), pool="a", failure="x") if paused else None
    assert told(world, held) == {"b0"}


# -- what stops it ----------------------------------------------------------------------------------------------------


def failed(reason: Reason, name: str = "a0", **facts: Any) -> World:
    world = renewed(standing("new", "new", "new"), name, created_at_s=NOW - 60)
    return changed(world, name, disruption=NodeDisruption(reason, "so it is", NOW), **facts)


@pytest.mark.parametrize(
    ("world", "stopped"),
    [
        (failed(Reason.LAUNCH_REFUSED), True),
        (failed(Reason.REGISTRATION_TIMEOUT), True),
        (failed(Reason.INITIALIZATION_TIMEOUT), True),
        (failed(Reason.NODE_FAILURE), True),
        (failed(Reason.LAUNCH_FAILED), False),
        (failed(Reason.EMPTY), False),
        (failed(Reason.NODE_FAILURE, created_at_s=NOW - 700), False),
        (failed(Reason.NODE_FAILURE, pool_hash="v2-other"), False),
    ],
    ids=["refused", "never joined", "never ready", "repaired", "shortage", "idle", "of before", "of the old template"],
)
def test_what_stops_it(world: World, stopped: bool) -> None:
    before = begun(world)
    after = progress(world, before)
    assert after is not None
    assert after.paused == stopped
    assert (after is before) == (not stopped)
    assert bool(told(world, before)) == (not stopped), "in the pass in which it is seen already"
    if stopped:
        assert (after.pool, "so it is" in after.failure) == ("a", True)
        assert progress(world, after) is after
        assert told(world, after) == set()


def stopped_at_a(world: World) -> RolloutProgress:
    return replace(begun(world), pool="a", failure="x")


def test_a_pause_ends_with_what_was_declared() -> None:
    world = standing("new", "new", "new")
    held = stopped_at_a(world)
    world.fleet = fleet("newer", "new", "new")
    after = progress(world, held)
    assert after is not None
    assert (after.paused, after.began_s) == (False, NOW)
    assert told(world, held) == {"a0", "a1"}


def test_another_revision_that_leaves_the_pools_alone_ends_no_pause() -> None:
    world = standing("new", "new", "new")
    held = stopped_at_a(world)
    builder = fleet("new", "new", "new")
    budgets = {"budgets": [{"nodes": 1}]}
    pools = {
        name: pool.model_copy(update={"spec": type(pool.spec).model_validate(
            {**pool.spec.model_dump(by_alias=True, exclude_unset=True), "disruption": budgets})})
        for name, pool in builder.node_pools.items()
    }  # fmt: skip
    world.fleet = replace(builder, node_pools=pools)
    assert progress(world, held) is held


@pytest.mark.parametrize("how", ["not asked for any more", "nothing is left", "no roll-out"])
def test_a_pause_ends(how: str) -> None:
    world = standing("new", "new", "new")
    held = stopped_at_a(world)
    if how == "not asked for any more":
        world.fleet = fleet("new", "new", "new", pauseOnFailure=False)
    elif how == "nothing is left":
        renewed(world, *world.claims)
    else:
        world.fleet = replace(world.fleet, policy=FleetBuilder().policy().build().policy)
    after = progress(world, held)
    assert after is None if how == "no roll-out" else after is not None and not after.paused


def test_the_order_that_a_plan_tells() -> None:
    assert rollout_order(fleet("x", "x", "x"), fleet("y", "x", "y", order=("c", "b", "a"))) == ("c", "a")


# -- whatever happens -------------------------------------------------------------------------------------------------


def drifting(world: World) -> set[str]:
    """The pools in which machines leave, or are being replaced, because they have drifted."""
    snapshot: Snapshot = world.snapshot()
    context, whys = DisruptionContext.of(world.fleet, snapshot), drifted_claims(world.fleet, snapshot)

    def leaves(claim: Claim) -> bool:
        why = claim.disruption
        if why is not None:
            return why.reason == Reason.DRIFTED
        return claim.name in whys and bool(coming(context, [claim.name]))

    return {claim.node_pool for claim in world.claims.values() if leaves(claim)}


STEP = st.sampled_from(["pass", "pass", "pass", "slow", "a", "b", "c", "all", "breaks", "hour"])


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEP, min_size=4, max_size=30), busy=st.sets(st.sampled_from(["a0", "b0", "b1", "c1"])))
def test_never_two_pools_at_once(steps: list[str], busy: set[str]) -> None:
    world = standing("old", "old", "old")
    for name in sorted(busy):
        world.runs(gang(f"g-{name}", gpu=8), (name, 1), flavor=name[0])
    marks, remembered = dict.fromkeys(POOLS, "old"), None
    for number, step in enumerate(steps):
        if step in {*POOLS, "all"}:
            marks |= dict.fromkeys(POOLS if step == "all" else (step,), f"n{number}")
            world.fleet = fleet(*marks.values())
        elif step == "breaks":
            claim = max(world.claims.values(), key=lambda it: (it.created_at_s, it.name), default=None)
            if claim is not None and claim.disruption is None:
                world.apply([SaveClaim(claim.with_disruption(NodeDisruption(Reason.NODE_FAILURE, "x", world.now_s)))])
        elif step == "hour":
            world.now_s += 3600.0
        else:
            world.rollout = remembered
            world.pass_once(boot=step == "pass")
            remembered = rollout_progress(remembered, world.fleet, world.snapshot())
            world.now_s += 5.0
        assert len(drifting(world)) <= 1


def test_a_roll_out_comes_to_its_end() -> None:
    world = standing("new", "new", "new")
    for name in ("a0", "b0", "c1"):
        world.runs(gang(f"g-{name}", gpu=8), (name, 1), flavor=name[0])
    world.settle_down(rounds=400)
    assert not drifted_claims(world.fleet, world.snapshot())


def test_a_plan_tells_the_order_where_several_pools_change() -> None:
    world = standing("old", "old", "old")
    after = fleet("old", "new", "new")
    found = make_plan(world.fleet, after, world.snapshot(), base_revision="1", head_revision="2")
    assert found.rollout == ("b", "c")
    sections = {it.title: [line.text for line in it.lines] for it in document(found).sections}
    assert sections["Roll-out"] == ["node pool b first, then c"]
    one = make_plan(world.fleet, fleet("old", "new", "old"), world.snapshot(), base_revision="1", head_revision="2")
    assert "Roll-out" not in {it.title for it in document(one).sections}
