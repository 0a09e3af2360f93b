"""Advice: what would have a gang start, tried on the engine. None that the engine refutes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.explain.advice import MOST_TRIES, Advice, Adviser, Change, ChangeKind, changes_for
from fleet.snapshot import Gang, GangState, Snapshot
from model.fleet import Fleet
from tests.fleet.scheduling.test_cycle import mig_world, slices
from tests.support.fleets import GPU, NOW, FleetBuilder, gang, pod_set
from tests.support.world import World


def contended(*, borrowing: int | None = None, reclaim: str = "Any") -> World:
    """Two teams of eight GPUs each below one; `b` runs on all sixteen, on both machines there are."""
    builder = FleetBuilder().pool(limits={"nodes": 2}).team("org", quotas={}, namespaces=[])
    limit = {} if borrowing is None else {"borrowingLimit": {GPU: borrowing}}
    builder.team("a", {"h100": {"guaranteed": {GPU: 8}, **limit}}, parent="org")
    builder.team("b", {"h100": {"guaranteed": {GPU: 8}}}, parent="org", namespaces=["b"])
    builder.queue("qa", "a", preemption={"reclaim": reclaim}).queue("qb", "b").priority("high", 100)
    made = World(builder.build())
    for n in range(2):
        made.machine(f"m{n}")
    return made


def advice_for(fleet: Fleet, snapshot: Snapshot, it: Gang) -> tuple[Advice, ...]:
    adviser = Adviser(fleet, snapshot, it)
    while adviser.left:
        adviser.step()
    return adviser.advice


def kinds(found: Sequence[Advice]) -> list[str]:
    return [str(it.kind) for it in found]


def applied(world: World, change: Change) -> World:
    """The world as it is once somebody has done what is advised."""
    made = replace(world, gangs=dict(world.gangs), jobs=dict(world.jobs), pods=dict(world.pods), fleet=change.fleet)
    gone = made.gangs.pop(change.gone, None)
    if gone is not None:
        made.jobs.pop(change.gone, None)
        made.pods = {key: it for key, it in made.pods.items() if it.workload != gone.workload}
    made.waits(change.gang)
    return made


def starts(world: World, uid: str) -> bool:
    """Whether the deciders, left alone, admit the gang: in a minute, as others may have to leave first."""
    for _ in range(12):
        world.pass_once()
        if uid in world.gangs and world.gangs[uid].state in {GangState.RESERVED, GangState.ADMITTED}:
            return True
        world.now_s += 5.0
    return False


def test_who_ends_leaves_no_pod_on_a_machine_that_is_then_cut_anew() -> None:
    """The pods of whoever would have ended kept the machine from being cut, and nothing was advised."""
    world = mig_world()
    world.machine("m0")
    world.runs(gang("small", slices("1g.10gb", 5)), ("m0", 5))
    world.waits(gang("g", slices("3g.40gb", 4)))
    snapshot = world.snapshot()
    (ends,) = [it for it in advice_for(world.fleet, snapshot, world.gang("g")) if it.kind is ChangeKind.GANG_ENDS]
    assert ends.words == "wait for ns/small to end: 1 machine would be cut anew, and it starts on them"
    (change,) = [it for it in changes_for(world.fleet, snapshot, world.gang("g")) if it.kind is ChangeKind.GANG_ENDS]
    assert starts(applied(world, change), "uid-g")


def test_a_higher_class_evicts_and_says_whom() -> None:
    world = contended(reclaim="LowerPriority")
    world.runs(gang("first", queue="qb", namespace="b", created_s=NOW - 999), ("m0", 1))
    world.runs(gang("second", queue="qb", namespace="b", created_s=NOW - 99), ("m1", 1), quota_reserved_at_s=NOW - 9)
    world.waits(gang("g", queue="qa"))
    found = advice_for(world.fleet, world.snapshot(), world.gang("g"))
    (higher,) = [it for it in found if it.kind is ChangeKind.HIGHER_CLASS]
    assert higher.change == "give it priority class high"
    assert higher.evicted == ("b/second",)
    assert higher.effect.startswith("b/second would leave")


def test_a_class_that_the_team_may_not_use_is_changed_for_the_nearest_that_it_may() -> None:
    builder = FleetBuilder().pool().team("a", {"h100": {GPU: 16}}, priorityClasses=["low", "mid"]).queue("qa", "a")
    world = World(builder.priority("low", 1).priority("mid", 50).priority("top", 100).build())
    world.waits(gang("g", queue="qa", priority=100, priority_class="top"))
    found = advice_for(world.fleet, world.snapshot(), world.gang("g"))
    assert [it.change for it in found] == ["give it priority class mid"]


def test_a_borrowing_limit_is_raised_to_what_is_enough_and_no_further() -> None:
    world = contended(borrowing=0)
    world.waits(gang("g", count=2, queue="qa"))
    found = advice_for(world.fleet, world.snapshot(), world.gang("g"))
    assert kinds(found) == ["BorrowingLimit", "LowerCount"]
    assert found[0].change == f"raise borrowingLimit of {GPU} in h100 of team a from 0 to 8"
    assert found[1].words == "ask for 1 instead of 2 pods of main: it starts at once"


def test_a_selector_that_rules_out_what_stands_is_named() -> None:
    world = contended()
    world.waits(gang("g", pod_set(node_selector={"zone": "nowhere"}), queue="qa"))
    found = advice_for(world.fleet, world.snapshot(), world.gang("g"))
    assert kinds(found) == ["OtherFlavor"]
    assert found[0].change == "drop the node selector zone, so that it gets machines of flavor h100"


def test_the_flavor_that_a_selector_keeps_it_from_is_named() -> None:
    builder = FleetBuilder().pool(limits={"nodes": 0}).pool("spare", limits={"nodes": 1})
    builder.team("a", {name: {"guaranteed": {GPU: 8}} for name in ("h100", "spare")})
    world = World(builder.queue("q", "a", flavors=("h100", "spare")).build())
    world.machine("m0", pool="spare")
    world.waits(gang("g", pod_set(node_selector={"karpenter.sh/nodepool": "h100"})))
    found = advice_for(world.fleet, world.snapshot(), world.gang("g"))
    assert [it.change for it in found if it.kind is ChangeKind.OTHER_FLAVOR] == [
        "drop the node selector karpenter.sh/nodepool, so that it gets machines of flavor spare"
    ]


def test_a_gang_whose_end_is_enough_is_named() -> None:
    world = contended()
    world.runs(gang("long", queue="qb", namespace="b"), ("m0", 1), expected_run_s=7200.0)
    world.runs(gang("short", queue="qb", namespace="b"), ("m1", 1), expected_run_s=900.0)
    world.waits(gang("g", queue="qb", namespace="b"))
    found = advice_for(world.fleet, world.snapshot(), world.gang("g"))
    assert [it.named for it in found if it.kind is ChangeKind.GANG_ENDS] == ["b/short"]


def test_nothing_is_advised_that_the_engine_refutes() -> None:
    """Sixteen GPUs a pod fit no machine: a higher class, a limit or an end would change nothing."""
    world = contended(borrowing=0)
    world.waits(gang("g", gpu=16, queue="qa"))
    found = advice_for(world.fleet, world.snapshot(), world.gang("g"))
    assert kinds(found) == ["LowerCount"]
    assert found[0].change == "ask for 8 instead of 16 GPUs a pod"


def test_tries_are_bounded() -> None:
    builder = FleetBuilder().pool(limits={"nodes": 1}).team("a", {"h100": {"guaranteed": {GPU: 8}}})
    for number in range(40):
        builder.queue(f"q{number}", "a").priority(f"p{number}", number + 1)
    world = World(builder.build())
    world.waits(gang("g", count=64, queue="q0"))
    adviser = Adviser(world.fleet, world.snapshot(), world.gang("g"))
    while adviser.left:
        adviser.step()
    assert adviser.tries <= MOST_TRIES
    assert adviser.advice == ()  # nothing holds two pods, and bisecting ends before one


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A few teams, machines, and gangs that run or wait; limits that leave little."""
    machines = draw(st.integers(1, 4))
    builder = FleetBuilder().pool(limits={"nodes": machines + draw(st.integers(0, 1))})
    builder.team("org", quotas={}, namespaces=[]).priority("low", -10).priority("high", 100)
    for name in "ab":
        limit = draw(st.sampled_from([None, 0, 8]))
        quota = {"guaranteed": {GPU: draw(st.sampled_from([0, 8, 16]))}}
        quota |= {} if limit is None else {"borrowingLimit": {GPU: limit}}
        builder.team(name, {"h100": quota}, parent="org", namespaces=[name])
        reclaim = draw(st.sampled_from(["Never", "LowerPriority", "Any"]))
        within = draw(st.sampled_from(["Never", "LowerPriority"]))
        builder.queue(f"q{name}", name, preemption={"reclaim": reclaim, "withinQueue": within})
    world = World(builder.build())
    for number in range(machines):
        world.machine(f"m{number}")
    for number in range(machines):
        if draw(st.booleans()):
            team = draw(st.sampled_from("ab"))
            it = gang(
                f"r{number}", gpu=draw(st.sampled_from([4, 8])), queue=f"q{team}", namespace=team,
                priority=draw(st.sampled_from([-10, 0, 100])), created_s=NOW - 1000 - number,
            )  # fmt: skip
            world.runs(it, (f"m{number}", 1))
    for number in range(draw(st.integers(1, 3))):
        team = draw(st.sampled_from("ab"))
        selector = draw(st.sampled_from([{}, {}, {"disk": "fast"}]))
        pods = pod_set(count=draw(st.integers(1, 4)), gpu=draw(st.sampled_from([2, 8, 16])), node_selector=selector)
        world.waits(gang(f"w{number}", pods, queue=f"q{team}", namespace=team, created_s=NOW - 600 + number))
    return world


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(worlds())
def test_every_advice_applied_has_the_engine_admit_the_gang(world: World) -> None:
    snapshot = world.snapshot()
    waiting = [it for it in snapshot.gangs.values() if it.state is GangState.PENDING]
    for it in waiting:
        adviser = Adviser(world.fleet, snapshot, it)
        while adviser.left:
            adviser.step()
        for change, found in adviser.worked:
            assert starts(applied(world, change), it.uid), found.words
        assert {each.words for each in adviser.advice} <= {each.words for _, each in adviser.worked}
