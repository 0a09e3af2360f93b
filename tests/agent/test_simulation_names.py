"""A push that names machines nobody sells: refused with file and line, and the gang that runs goes on running."""

import pytest

from tests.agent.scenes import P5, Scene, files, gpu_job, pool, queue, simple, team

PUSHES = [
    (files(pool(types=("p5.48xl",)), team(), queue()), "'p5.48xl' is no instance type", "did you mean 'p5.48xlarge'?"),
    (files(pool(gpu={"models": ["h1000"]}), team(), queue()), "'h1000' is no GPU model", "did you mean 'h100'?"),
    (files(pool(zones=["us-east-1x"]), team(), queue()), "'us-east-1x' is no zone", "did you mean 'us-east-1"),
    (files(pool(), team(quotas={"h100": {"nvidia.com/gpus": 32}}), queue()), "'nvidia.com/gpus'", "'nvidia.com/gpu'"),
    (files(pool(gpu={"models": ["l4"]}), team(), queue()), "nothing in us-east-1 can be bought", "explain pool"),
]


@pytest.mark.parametrize(("push", "message", "hint"), PUSHES)
def test_a_slip_in_a_push_moves_nothing(push: dict[str, str], message: str, hint: str) -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("busy", gpus=8, pods=1))
    applied = scene.sim.sync()["appliedRevision"]
    nodes, state = scene.nodes_of("busy"), scene.state("busy")
    attempted = scene.sim.push(push)
    scene.until(lambda: attempted in scene.sim.sync().get("attemptedRevision", ""), 120)
    scene.settle(900)
    sync = scene.sim.sync()
    assert sync["appliedRevision"] == applied
    (problem,) = sync["problems"]
    assert problem["file"] == "fleet.yaml"
    assert problem["line"] > 0
    assert message in problem["message"]
    assert hint in problem["message"]
    assert (scene.state("busy"), scene.nodes_of("busy"), scene.bought(P5)) == (state, nodes, 1)
