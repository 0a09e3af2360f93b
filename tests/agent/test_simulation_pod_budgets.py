"""PodDisruptionBudgets in the whole loop: what one of them holds stays where it is, and goes when it may."""

from typing import Any

import pytest

from agent.answers.node import lines
from agent.world import read_world
from fleet.explain.node import node_view
from model.loader import load
from tests.agent.scenes import CATALOG, Scene, files, gpu_job, pool, queue, simple, team

THRIFTY = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "120s",
    "budgets": [{"nodes": "100%"}],
}
RENEWED = {"template": {"labels": {"example.com/generation": "2"}}}


def budget(name: str = "keep", selector: dict[str, Any] | None = None, **wanted: Any) -> dict[str, Any]:
    """As `kubectl apply` would send it: over all pods of `t`, unless told otherwise."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "t"},
        "spec": {"selector": selector or {}, **wanted},
    }


def half_empty() -> Scene:
    """Two machines, each with a gang on half of it."""
    scene = Scene(simple(disruption=THRIFTY))
    scene.runs(gpu_job("long", gpus=4))
    scene.runs(gpu_job("filler", gpus=4, run_s=100))
    scene.runs(gpu_job("short", gpus=4))
    return scene


def explained(scene: Scene, fleet: dict[str, str]) -> str:
    """What `muster explain node` prints of every machine."""
    seen = read_world(scene.sim.api, scene.sim.clock, CATALOG)
    declared = load({path: text.encode() for path, text in fleet.items()})
    return "\n".join(
        line for claim in seen.claims.values() for line in lines(node_view(seen, claim, declared), seen.now_s)
    )


def test_a_half_empty_machine_stays_while_a_budget_holds_its_pods_and_goes_without_it() -> None:
    scene = half_empty()
    keep = budget(maxUnavailable=0)
    scene.sim.submit(keep)
    scene.until_state("filler", "Finished")
    scene.settle(1200)
    assert len(scene.sim.machines()) == 2
    assert scene.laws.evictions == {}
    told = explained(scene, simple(disruption=THRIFTY))
    assert (
        told.count("consolidation: waits (PodDisruptionBudget): PodDisruptionBudget t/keep allows 0 disruptions") == 2
    )
    scene.sim.delete(keep)
    scene.until(lambda: len(scene.sim.machines()) == 1, 1200)
    for name in ("long", "short"):
        scene.until_running(name)
    assert scene.laws.evictions.total() == 1
    scene.settle(600)
    assert scene.bought() == 2


def test_a_budget_of_one_gang_lets_the_other_go() -> None:
    scene = half_empty()
    terms = [{"key": "job-name", "operator": "In", "values": ["long"]}]
    scene.sim.submit(budget(selector={"matchExpressions": terms}, minAvailable=1))
    scene.until_state("filler", "Finished")
    stays = scene.nodes_of("long")
    scene.until(lambda: len(scene.sim.machines()) == 1, 1800)
    scene.until_running("short")
    assert scene.laws.evictions == {"short": 1}
    assert scene.nodes_of("long") == stays == scene.nodes_of("short")
    scene.settle(600)


@pytest.mark.parametrize(("available", "moves"), [(2, False), (1, False), (0, True)])
def test_a_gang_of_two_moves_when_both_of_its_pods_may(available: int, moves: bool) -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("wide", pods=2))
    scene.sim.submit(budget(selector={"matchLabels": {"job-name": "wide"}}, minAvailable=available))
    scene.sim.advance(5)
    before = scene.nodes_of("wide")
    scene.sim.push(simple(**RENEWED))
    scene.sim.advance(900)
    scene.until_running("wide")
    assert scene.bought() == (4 if moves else 2), "nothing is bought for a move that may not begin"
    assert bool(before & scene.nodes_of("wide")) is not moves
    scene.settle()


def test_one_at_a_time_where_the_budget_allows_one() -> None:
    """The count in a budget's status is old for a moment after each move: nobody else moves on it."""
    scene = Scene(files(pool(), team(), queue()))
    for name in ("a", "b", "c"):
        scene.runs(gpu_job(name))
    scene.sim.submit(budget(minAvailable=2))
    scene.sim.advance(5)
    least = 3

    def watch(_event: object) -> None:
        nonlocal least
        least = min(least, sum(scene.sim.running(name) for name in "abc"))

    scene.sim.store.subscribe(watch, resource=scene.sim.store.resource("Pod"))
    scene.sim.push(files(pool(**RENEWED), team(), queue()))
    scene.until(lambda: scene.bought() == 6 and len(scene.sim.machines()) == 3, 7200)
    for name in ("a", "b", "c"):
        scene.until_running(name)
    assert least == 2
    assert scene.laws.evictions == {"a": 1, "b": 1, "c": 1}
    scene.settle()
