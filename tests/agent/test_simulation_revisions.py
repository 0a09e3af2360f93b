"""A new revision: a restart before it is written down undoes nothing, and machines on their way stay what they are."""

import pytest

from agent.simulation import Moment
from tests.agent.scenes import P5, Nurse, Scene, files, gpu_job, pool, queue, simple, team

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


BOOT = {"key": "boot", "effect": "NoSchedule"}


@pytest.mark.parametrize("state", ["Launched", "Registered"])
def test_a_machine_waits_for_the_start_up_taints_that_it_was_born_with(state: str) -> None:
    """Of a pool that has none any more it counted as initialised while they were there."""
    scene = Scene(simple(template={"startupTaints": [BOOT]}))
    scene.sim.submit(gpu_job("a"))
    scene.until(lambda: state in {str(claim.state) for claim in scene.sim.claims().values()}, words=state)
    scene.sim.push(simple(template={"startupTaints": []}))
    scene.sim.advance(300)
    (node,) = scene.sim.objects("Node")
    own = [taint for taint in node["spec"]["taints"] if taint["key"] != "muster.dev/gang"]  # which keeps others away
    assert own == [BOOT]
    assert (scene.state("a"), scene.sim.objects("Pod")) == ("QuotaReserved", [])
    scene.sim.store.update(scene.sim.store.resource("Node"), {**node, "spec": {**node["spec"], "taints": []}})
    scene.until_running("a", 60)
