"""The clock of the agent's machine is set, or wrong: nothing is bought twice, and nothing waits an hour for it."""

import pytest

from providers.kube.objects.instants import format_instant
from tests.agent.scenes import Scene, gpu_job, simple


def scene_with(**limits: object) -> Scene:
    return Scene(simple(limits={"nodes": 2, "usdPerHour": 120, **limits}))


@pytest.mark.parametrize("step_s", [-90.0, -3600.0, 90.0, 3600.0])
@pytest.mark.parametrize("after_s", [0.0, 1.0, 5.0, 30.0, 70.0])
def test_a_clock_that_is_set_while_a_machine_comes_buys_nothing_more(step_s: float, after_s: float) -> None:
    """Fresh machines counted as "listed and not there": claims were closed, and others bought, again and again."""
    scene = scene_with()
    scene.sim.submit(gpu_job("g"))
    scene.sim.advance(after_s)
    scene.sim.seats[0].agent_clock.offset_s += step_s
    scene.until_running("g", 300)
    scene.settle(300)
    assert scene.bought() == 1


def test_a_clock_that_is_set_back_again_and_again() -> None:
    scene = scene_with()
    scene.sim.submit(gpu_job("g"))
    for _ in range(20):
        scene.sim.seats[0].agent_clock.offset_s -= 90.0
        scene.sim.advance(15)
    assert scene.sim.running("g")
    assert scene.bought() == 1


def test_what_an_agent_wrote_whose_clock_was_an_hour_ahead_is_not_waited_for_an_hour() -> None:
    """A join time-out came an hour late: the machine billed until then. Older agents stamped by their own clock."""
    scene = Scene(simple())
    scene.sim.submit(gpu_job("g"))
    scene.until(lambda: any(claim.launched_at_s for claim in scene.sim.claims().values()), 60)
    scene.sim.crash()
    (claim,) = scene.sim.objects("NodeClaim")
    first = claim["metadata"]["name"]
    status = claim["status"] | {"launchedAt": format_instant(scene.sim.now_s + 3600.0)}
    store = scene.sim.store
    store.update(store.resource("NodeClaim"), claim | {"status": status}, subresource="status")
    assert scene.sim.claims()[first].launched_at_s > scene.sim.now_s + 3000
    scene.sim.restart()
    scene.sim.advance(5)
    assert scene.sim.claims()[first].launched_at_s <= scene.sim.now_s
    scene.until_running("g", 600)


@pytest.mark.parametrize("skew_s", [-600.0, 0.0, 600.0])
@pytest.mark.parametrize("step_s", [-600.0, -90.0, 90.0])
def test_a_machine_that_never_boots_is_given_back_in_time_whatever_the_clock_says(skew_s: float, step_s: float) -> None:
    """Ten minutes behind, and set back once more, the agent kept one for 21 minutes instead of 15."""
    scene = scene_with()
    clock = scene.sim.seats[0].agent_clock
    clock.offset_s += skew_s
    scene.sim.advance(60)
    scene.sim.market.faults.never_boots = 1
    scene.sim.submit(gpu_job("g"))
    scene.until(lambda: bool(scene.sim.machines()), 60)
    [first] = scene.sim.machines()
    scene.sim.advance(6)
    clock.offset_s += step_s
    scene.until(lambda: first.id not in {it.id for it in scene.sim.machines()}, 15 * 60 + 60)
    assert scene.sim.now_s - first.launched_at_s > 14 * 60
