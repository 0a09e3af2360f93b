"""A restart between acting on a new revision and having written down that it is in force: nothing is undone."""

import pytest

from agent.simulation import Moment
from tests.agent.scenes import P5, Nurse, Scene, files, pool, queue, team

WRITES = 12


def fixed(replicas: int) -> dict[str, str]:
    return files(
        pool("h100", replicas=replicas),
        team(quotas={"h100": {"nvidia.com/gpu": 64}}),
        queue(flavors=("h100",)),
    )


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("write", range(1, WRITES + 1))
def test_machines_bought_for_a_revision_outlive_the_agent_that_has_not_said_so(write: int, moment: Moment) -> None:
    nurse = Nurse()
    scene = Scene(more=[nurse])
    nurse.sim = scene.sim
    scene.sim.push(fixed(1))
    scene.until(lambda: len(scene.sim.machines()) == 1, 600)
    scene.settle(300)
    scene.sim.crash_at(scene.sim.writes + write, moment)
    scene.sim.push(fixed(3))
    scene.until(lambda: nurse.deaths == 1, 600)
    scene.until(lambda: len(scene.sim.machines()) == 3, 900)
    scene.settle(300)
    assert scene.bought(P5) == 3
