"""The agent's machine has another time than the API server: what the server stamped is as old as the server says."""

import pytest

from fleet.snapshot import ClaimState
from tests.agent.scenes import Scene, gpu_job, simple

HOUR_S = 3600.0


def scene_off_by(offset_s: float, **pool: object) -> Scene:
    """The agent starts on a machine whose clock is off from the beginning."""
    scene = Scene(simple(**pool))
    scene.sim.crash()
    scene.sim.seats[0].agent_clock.offset_s = offset_s
    scene.sim.restart()
    scene.sim.advance(1)
    return scene


@pytest.mark.parametrize("offset_s", [HOUR_S, -HOUR_S])
def test_a_node_that_is_not_ready_has_the_time_that_repair_gives_it(offset_s: float) -> None:
    """An agent an hour ahead took a NotReady of ten seconds for one of an hour, and drained the machine."""
    scene = scene_off_by(offset_s)
    scene.runs(gpu_job("g"))
    (node,) = scene.nodes_of("g")
    scene.sim.health.make_unready(node)
    scene.sim.advance(10)
    (claim,) = scene.sim.claims().values()
    assert claim.state is ClaimState.READY
    assert claim.disruption is None
    assert scene.bought() == 1


@pytest.mark.parametrize("offset_s", [HOUR_S, -HOUR_S])
def test_a_gang_on_a_node_that_is_not_ready_is_not_given_up_at_once(offset_s: float) -> None:
    scene = scene_off_by(offset_s)
    scene.runs(gpu_job("g"))
    (node,) = scene.nodes_of("g")
    pods = [pod["metadata"]["uid"] for pod in scene.sim.objects("Pod")]
    scene.sim.health.make_unready(node)
    scene.sim.advance(20)
    scene.sim.health.heal(node)
    scene.settle(120)
    assert scene.nodes_of("g") == {node}
    assert [pod["metadata"]["uid"] for pod in scene.sim.objects("Pod")] == pods


@pytest.mark.parametrize("offset_s", [HOUR_S, -HOUR_S])
def test_what_the_agent_stamps_is_in_the_time_of_the_cluster(offset_s: float) -> None:
    """So that the next agent, on another machine, ages it truly."""
    scene = scene_off_by(offset_s)
    scene.runs(gpu_job("g"))
    (claim,) = scene.sim.claims().values()
    gang = scene.sim.gang("g")
    assert gang is not None
    stamps = (claim.created_at_s, claim.launched_at_s, claim.ready_at_s, gang.since_s, gang.admitted_at_s)
    assert all(scene.sim.now_s - 600 < at_s <= scene.sim.now_s + 1 for at_s in stamps)
