"""What people ask of a waiting gang: the way through the tree, and what would be otherwise."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fleet.actions import NominatePods
from fleet.explain.what_if import WhatIfDecision, otherwise, standings, verdict_of
from fleet.placement.carried_state import CarriedState
from fleet.scheduling import cycle
from fleet.snapshot import GangState, Pod, Snapshot
from tests.support.fleets import GPU, NOW, FleetBuilder, foreign_pod, gang, pod_set
from tests.support.world import World


@pytest.fixture
def world() -> World:
    """Two teams of eight GPUs each below one; `b` runs on all sixteen, on both machines there are."""
    builder = FleetBuilder().pool(limits={"nodes": 0}).team("org", quotas={}, namespaces=[])
    builder.team("a", {"h100": {GPU: 8}}, parent="org").team("b", {"h100": {GPU: 8}}, parent="org", namespaces=["b"])
    builder.queue("qa", "a", preemption={"reclaim": "LowerPriority"}).queue("qb", "b").priority("high", 100)
    made = World(builder.build())
    for n in range(2):
        made.machine(f"m{n}")
    made.runs(gang("first", queue="qb", namespace="b", created_s=NOW - 999), ("m0", 1))
    made.runs(gang("second", queue="qb", namespace="b", created_s=NOW - 99), ("m1", 1), quota_reserved_at_s=NOW - 9)
    made.waits(gang("g", queue="qa"))
    return made


def test_the_way_through_the_tree(world: World) -> None:
    (standing,) = standings(world.fleet, world.snapshot(), world.gang("g"))
    assert (standing.asked, standing.free) == (8, 0)
    assert [(level.node, level.used, level.quota, level.most) for level in standing.levels] == [
        ("/org/a/qa", 0, 0, 16),
        ("/org/a", 0, 8, 16),
        ("/org", 16, 16, 16),
    ]


def test_what_it_holds_itself_is_left_out(world: World) -> None:
    (standing,) = standings(world.fleet, world.snapshot(), world.gang("second"))
    assert standing.free == 8
    assert standing.levels[1].borrowed == 0


def test_a_queue_that_is_not_declared_has_no_tree(world: World) -> None:
    world.waits(gang("lost", queue="nowhere"))
    assert standings(world.fleet, world.snapshot(), world.gang("lost")) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, (GangState.PENDING, "WaitingForQuota", ())),
        ({"priority_class": "high"}, (GangState.PENDING, "WaitingForPreemptedWorkloads", ("b/second",))),
        ({"gpus": 0}, (GangState.ADMITTED, "Admitted", ())),
        ({"queue": "nowhere"}, (GangState.PENDING, "QueueNotFound", ())),
    ],
    ids=["as it is", "of higher priority", "without GPUs", "in a queue that is not there"],
)
def test_otherwise(world: World, change: dict[str, object], expected: tuple[GangState, str, tuple[str, ...]]) -> None:
    before = world.snapshot()
    found = otherwise(world.fleet, before, world.gang("g"), **change)  # type: ignore[arg-type]
    assert isinstance(found, WhatIfDecision)
    assert (found.state, found.reason, found.evicted) == expected
    assert world.snapshot() == before


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda world, seen: otherwise(world.fleet, seen, world.gang("g")), id="a gang"),
        pytest.param(lambda world, seen: verdict_of(world.fleet, seen, foreign_pod("p", "")), id="a pod"),
    ],
)
def test_a_question_leaves_the_agent_what_its_next_pass_begins_with(
    world: World, ask: Callable[[World, Snapshot], object]
) -> None:
    """The page asks in a thread of its own: a pass beside it found nothing, and looked at all machines anew."""
    seen = world.snapshot()
    cycle.decide(world.fleet, seen)
    assert seen.index.take((CarriedState, "")) is not None, "a pass has begun"
    ask(world, seen)
    assert seen.index.take((CarriedState, "")) is None, "the question has taken nothing, and hands nothing on"


def test_what_a_pass_finds_again_is_the_answer() -> None:
    """A pass tells only what differs from what it is known to have found: the agent's page said that nobody looked."""
    world = World(FleetBuilder().pool(serves=["Gangs", "Pods"]).team().queue().build())
    asked = replace(pod_set(gpu=64), namespace="ns")
    pod = replace(Pod("uid-p", "ns", "p", "", "Pending", asked.requests), shape=asked, waits_since_s=NOW - 60)
    world.pods = {pod.key: pod}
    (told,) = (it for it in cycle.decide(world.fleet, world.snapshot()) if isinstance(it, NominatePods))
    world.pod_verdicts = told.verdicts
    assert not any(isinstance(it, NominatePods) for it in cycle.decide(world.fleet, world.snapshot()))
    assert verdict_of(world.fleet, world.snapshot(), pod) == told.verdicts[pod.uid]
