"""A change of two pools' templates, taken over one pool after the other, and stopped where a machine fails."""

from typing import Any

from agent.world import read_world
from model.labels import NODE_POOL
from providers.clock import VirtualClock
from tests.agent.scenes import CATALOG, G5, G6, Scene, doc, files, pool, queue, team

ROLLOUT = {"pools": ["canary", "rest"], "pauseOnFailure": True}


def fleet(mark: str, **rollout: Any) -> dict[str, str]:
    fixed: dict[str, Any] = {"replicas": 2, "template": {"labels": {"mark": mark}}}
    return files(
        pool("canary", (G6,), **fixed),
        pool("rest", (G5,), **fixed),
        team(quotas={"canary": {"nvidia.com/gpu": 8}}),
        queue(flavors=("canary",)),
        doc("FleetPolicy", "p", guardRails={"maxPercentRemoved": 100}, rollout={**ROLLOUT, **rollout}),
    )


def marks(scene: Scene, of: str) -> list[str]:
    """The labels of the nodes of a pool."""
    labels = [node["metadata"]["labels"] for node in scene.sim.objects("Node")]
    return sorted(it.get("mark", "") for it in labels if it.get(NODE_POOL) == of)


def standing() -> Scene:
    scene = Scene(fleet("old"))
    scene.until(lambda: marks(scene, "canary") == marks(scene, "rest") == ["old"] * 2, 900, "both pools stand")
    scene.settle(120)
    return scene


def paused(scene: Scene) -> str:
    """What the FleetSync says of a pause; empty while there is none."""
    conditions = scene.sim.objects("FleetSync")[0]["status"]["conditions"]
    return next((it["message"] for it in conditions if it["type"] == "RolloutPaused" and it["status"] == "True"), "")


def test_the_second_pool_begins_when_the_first_is_done() -> None:
    scene = standing()
    scene.sim.push(fleet("new"))
    scene.sim.advance(1)
    done: list[bool] = []

    def over() -> bool:
        if marks(scene, "rest") != ["old"] * 2:
            done.append(marks(scene, "canary") == ["new"] * 2)
        return marks(scene, "rest") == ["new"] * 2

    scene.until(over, 3600, "both pools are new")
    assert done
    assert all(done)
    assert paused(scene) == ""
    scene.settle(120)


def test_a_machine_that_never_joins_stops_it_until_the_template_changes() -> None:
    scene = standing()
    scene.faults.never_boots = 1
    scene.sim.push(fleet("broken"))
    scene.until(lambda: bool(paused(scene)), 2400, "the roll-out stops")
    assert "node pool canary" in paused(scene)
    assert "RegistrationTimeout" in paused(scene)
    assert "revert or mend" in paused(scene)
    name = scene.sim.objects("FleetSync")[0]["metadata"]["name"]
    seen = read_world(scene.sim.api, VirtualClock(), CATALOG, name)
    assert seen.rollout is not None
    assert seen.rollout.pool == "canary", "for commands, which ask the cluster"
    unnamed = read_world(scene.sim.api, VirtualClock(), CATALOG)
    assert (unnamed.cluster, unnamed.rollout) == (name, seen.rollout), "the only one there is"
    scene.sim.advance(1800)
    assert marks(scene, "rest") == ["old"] * 2
    assert marks(scene, "canary").count("broken") < 2
    scene.sim.crash()
    scene.sim.restart()
    scene.sim.advance(900)
    assert "RegistrationTimeout" in paused(scene), "the next process knows"
    assert marks(scene, "rest") == ["old"] * 2
    scene.sim.push(fleet("mended"))
    scene.until(lambda: marks(scene, "canary") == marks(scene, "rest") == ["mended"] * 2, 3600, "it goes on")
    assert paused(scene) == ""


def test_a_pause_ends_where_nobody_asks_for_it_any_more() -> None:
    scene = standing()
    scene.faults.never_boots = 1
    scene.sim.push(fleet("broken"))
    scene.until(lambda: bool(paused(scene)), 2400, "the roll-out stops")
    scene.sim.push(fleet("broken", pauseOnFailure=False))
    scene.until(lambda: marks(scene, "rest") == ["broken"] * 2, 3600, "it goes on")
    assert paused(scene) == ""
