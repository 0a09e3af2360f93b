"""Queues that go by use, over the life of several agents: whoever used less lately goes first, also after a restart."""

import pytest

from agent.explanation import explanation_lines, find
from agent.web.seen import explained_at_once
from providers.kube.objects.paths import CONFIG_MAPS
from tests.agent.scenes import Scene, doc, files, gpu_job, pool, queue, team

SHARING = {"usageHalfLifeTime": "1h", "usageSamplingInterval": "1m"}
FLEET = files(
    pool(limits={"nodes": 1}),
    team("t", namespaces=["a", "b"]),
    queue("t", admissionFairSharing={}, preemption={"withinQueue": "Never"}),
    doc("FleetPolicy", "p", admissionFairSharing=SHARING),
)


def submit(scene: Scene, name: str, namespace: str, *, run_s: float | None = None, priority: str = "normal") -> None:
    """A job of a whole machine, in the one queue of both namespaces."""
    manifest = gpu_job(name, namespace=namespace, priority=priority, run_s=run_s)
    manifest["metadata"]["labels"]["muster.dev/queue"] = "t"
    scene.sim.submit(manifest)


def busy() -> Scene:
    """`a` has had the only machine for a quarter of an hour, and wants it again before `b` does, and more urgently."""
    scene = Scene(FLEET)
    submit(scene, "first", "a", run_s=1200)
    scene.until_running("first")
    submit(scene, "again", "a", priority="high")
    scene.sim.advance(900)
    submit(scene, "other", "b")
    scene.sim.advance(70)
    assert [scene.state(name) for name in ("again", "other")] == ["Pending", "Pending"], scene.story()
    return scene


@pytest.mark.parametrize("lives", [1, 2, 4])
def test_who_used_less_goes_first_however_many_agents_come_and_go(lives: int) -> None:
    scene = busy()
    for _ in range(lives - 1):
        scene.sim.crash()
        scene.sim.advance(20)
        scene.sim.restart()
        scene.sim.advance(20)
    scene.until_running("other", 900)
    assert scene.state("again") == "Pending"
    scene.laws.check()


def test_without_its_books_it_begins_anew() -> None:
    """What shows that they are what is remembered: nothing else tells what was used."""
    scene = busy()
    scene.sim.crash()
    scene.sim.api.delete(CONFIG_MAPS, "muster-books", "muster-system")
    scene.sim.advance(400)
    scene.sim.restart()
    scene.until_running("again", 900)
    assert scene.state("other") == "Pending"


@pytest.mark.parametrize(("job", "place"), [("other", 1), ("again", 2)])
def test_people_are_told_who_goes_first_and_why(job: str, place: int) -> None:
    scene = busy()
    snapshot, fleet = scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset()), scene.sim.brain.sync.fleet
    assert fleet is not None
    (found,) = find(snapshot, job)
    told = explained_at_once(fleet, snapshot, found)
    assert told.position is not None
    assert (told.position.place, told.position.of) == (place, 2)
    assert list(told.position.usage) == ["b/t", "a/t"]
    assert told.position.usage["b/t"] == 0
    assert "; who used less lately goes first: b/t 0, a/t 1." in "\n".join(explanation_lines(told))
