"""Non-preemptible work: nothing stops it for others, and in return it stays within what its team is guaranteed."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.quota.volcano import ANY_MACHINE
from fleet.scheduling import cycle
from fleet.snapshot import GangState, PodSet
from model.fleet import Fleet
from model.loader import load
from tests.support.fleets import GPU, FleetBuilder, amounts, gang
from tests.support.world import World

STAYS = FleetBuilder().priority("stays", 10, preemptible=False).priority("goes", 10).priority("high", 100)


def world(guaranteed: int, *, machines: int = 2, **queue: Any) -> World:
    """Machines of eight GPUs of a fixed number, a team with a guarantee, and another that lends it all it has."""
    builder = STAYS.pool(limits={"nodes": 0})
    builder = builder.team("org", {"h100": {"guaranteed": {GPU: 64}}}, namespaces=[])
    builder = builder.team("t", {"h100": {"guaranteed": {GPU: guaranteed}}}, parent="org", namespaces=["ns"])
    made = World(builder.queue("main", "t", ["h100"], **queue).build())
    for n in range(machines):
        made.machine(f"m{n}")
    return made


def asks(name: str, gpus: int, of: str = "stays", **more: Any) -> Any:
    priority = {"stays": 10, "goes": 10, "high": 100}[of]
    pods = PodSet("main", 1, {**amounts(), GPU: gpus})
    return gang(name, pods, queue="main", priority_class=of, priority=priority, **more)


def decided(made: World) -> dict[str, GangState]:
    made.apply(cycle.decide(made.fleet, made.snapshot()))
    return {it.job.name: it.state for it in made.gangs.values()}


@pytest.mark.parametrize(("of", "state"), [("goes", GangState.EVICTING), ("stays", GangState.ADMITTED)])
def test_no_priority_evicts_it(of: str, state: GangState) -> None:
    made = world(64, machines=1)
    made.runs(asks("old", 8, of), ("m0", 1))
    made.waits(asks("new", 8, "high"))
    assert decided(made) == {"old": state, "new": GangState.PENDING}


def test_the_refusal_says_who_is_kept_and_why() -> None:
    made = world(8, machines=1)
    made.runs(asks("old", 8), ("m0", 1))
    made.waits(gang("new", PodSet("main", 9, {**amounts(), GPU: 8}), queue="main", priority_class="high", priority=100))
    decided(made)
    assert "1 gang may not be evicted: it is non-preemptible (priority class stays)" in made.gang("new").message


@pytest.mark.parametrize(
    ("of", "guaranteed", "admitted"), [("goes", 8, {"a", "b"}), ("stays", 8, {"a"}), ("stays", 16, {"a", "b"})]
)
def test_it_never_borrows(of: str, guaranteed: int, admitted: set[str]) -> None:
    made = world(guaranteed)
    made.waits(asks("a", 8, of, created_s=1.0), asks("b", 8, of, created_s=2.0))
    assert {name for name, state in decided(made).items() if state is GangState.ADMITTED} == admitted


def test_only_what_is_like_it_counts_against_the_guarantee() -> None:
    """What may be evicted has borrowed then, and gives way to whoever is entitled."""
    made = world(8)
    made.runs(asks("old", 8, "goes"), ("m0", 1))
    made.waits(asks("new", 8))
    assert decided(made)["new"] is GangState.ADMITTED


@pytest.mark.parametrize(
    ("gpus", "reason", "words"),
    [
        (8, "WaitingForQuota", "stays within the guarantee of t, of which such work has 0 left"),
        (4, "WaitingForQuota", "asks 4 nvidia.com/gpu of h100; it is non-preemptible and stays within"),
    ],
)
def test_the_refusal_tells_of_the_guarantee(gpus: int, reason: str, words: str) -> None:
    made = world(8)
    made.runs(asks("old", 8), ("m0", 1))
    made.waits(asks("new", gpus))
    decided(made)
    assert made.gang("new").reason == reason
    assert words in made.gang("new").message


def test_two_queues_of_a_team_do_not_use_its_guarantee_twice_in_a_pass() -> None:
    made = world(8)
    builder = STAYS.pool(limits={"nodes": 0}).team("org", {"h100": {"guaranteed": {GPU: 64}}}, namespaces=[])
    builder = builder.team("t", {"h100": {"guaranteed": {GPU: 8}}}, parent="org", namespaces=["ns"])
    made.fleet = builder.queue("main", "t", ["h100"]).queue("other", "t", ["h100"]).build()
    made.waits(asks("a", 8, created_s=1.0), replace(asks("b", 8, created_s=2.0), queue="other"))
    assert sorted(decided(made).values()) == [GangState.ADMITTED, GangState.PENDING]


def volcano(**annotations: str) -> Fleet:
    lines = "\n".join(f'    {key}: "{value}"' for key, value in annotations.items())
    text = f"""
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata:
  name: main
  annotations:
    a: b
{lines}
---
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {{name: h100}}
spec: {{instanceTypes: [p5.48xlarge], limits: {{nodes: 0}}}}
"""
    return load({"fleet.yaml": text.encode()})


@pytest.mark.parametrize(("label", "state"), [("true", GangState.EVICTING), ("false", GangState.ADMITTED)])
def test_below_a_queue_of_volcano_the_label_of_the_pods_counts(label: str, state: GangState) -> None:
    made = World(volcano())
    made.machine("m0")
    pods = PodSet("main", 1, {**amounts(), GPU: 8}, labels=(("volcano.sh/preemptable", label),))
    made.runs(gang("old", pods, queue="main", priority=1), ("m0", 1), flavor=ANY_MACHINE)
    made.waits(gang("new", queue="main", priority=9))
    assert decided(made)["old"] is state


@pytest.mark.parametrize(("policy", "state"), [("Hold", GangState.PENDING), ("None", GangState.ADMITTED)])
def test_a_queue_of_volcano_is_closed_by_annotation(policy: str, state: GangState) -> None:
    made = World(volcano(**{"muster.dev/stop-policy": policy}))
    made.machine("m0")
    made.waits(gang("new", queue="main"))
    assert decided(made)["new"] is state


def test_pods_that_ask_for_nothing_give_way_on_a_full_node() -> None:
    """No quota counts them, yet they take places for pods: who goes is a question of priority."""
    made = World(volcano())
    made.machine("m0", node={"allocatable": {**amounts(), GPU: 8, "pods": 1}})
    made.runs(gang("old", PodSet("main", 1, {}), queue="main", priority=1), ("m0", 1), flavor=ANY_MACHINE)
    made.waits(gang("equal", PodSet("main", 1, {}), queue="main", priority=1))
    assert decided(made)["old"] is GangState.ADMITTED
    made.waits(gang("higher", PodSet("main", 1, {}), queue="main", priority=2))
    assert decided(made)["old"] is GangState.EVICTING
