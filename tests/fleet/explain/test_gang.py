"""What is told of a gang that waits for nothing: it does not start as it is, and what is to be changed."""

import pytest

from fleet.explain.gang import NOT_FORECAST, explain_gang
from fleet.explain.gang_facts import StartEstimate, ToldLately
from fleet.scheduling.never_fits import meant_in
from fleet.snapshot import Gang
from tests.support.fleets import GPU, NOW, FleetBuilder, amounts, gang, pod_set
from tests.support.world import World

NOT_KNOWN = StartEstimate(NOW, why_unknown="nothing tells how long others will run")
NEVER = "as it is it does not start:"
MEANT = "which no machine has; did you mean nvidia.com/gpu?"


@pytest.mark.parametrize(
    ("asked", "starts", "remedy"),
    [
        (gang("w", gpu=8), NOT_KNOWN.why_unknown, ""),
        (
            gang("w", gpu=64),
            f"{NEVER} no machine can ever hold a pod of 'main': one pod asks 64 nvidia.com/gpu, one machine has 8",
            "change the pods' selectors or sizes, or a pool's requirements in git",
        ),
        (
            gang("w", pod_set(requests={**amounts(), "nvidia.com/gpus": 1})),
            f"{NEVER} no machine can ever hold a pod of 'main': it asks for nvidia.com/gpus, {MEANT}",
            "ask for nvidia.com/gpu in the job",
        ),
        (
            gang("w", queue="nosuch"),
            f"{NEVER} queue 'nosuch' is not declared; declared: q",
            "name a declared queue in the label muster.dev/queue, or declare this one in git",
        ),
    ],
)
def test_a_gang_that_no_waiting_helps_is_told_so(asked: Gang, starts: str, remedy: str) -> None:
    """It said that nobody knows how long others run, and advised a flavor for a misspelt resource."""
    world = World(FleetBuilder().pool().team(quotas={"h100": {GPU: 8}}).queue().build())
    world.waits(asked)
    if remedy:
        world.pass_once()
    told = explain_gang(world.fleet, world.snapshot(), world.gang("w"), ToldLately(start=NOT_KNOWN))
    assert told.start is not None
    assert (told.start.why_unknown, told.remedy) == (starts, remedy)
    untold = explain_gang(world.fleet, world.snapshot(), world.gang("w"), ToldLately())
    assert untold.start is not None
    assert untold.start.why_unknown == (starts if remedy else NOT_FORECAST)


def test_what_is_meant_is_found_wherever_it_is_said() -> None:
    assert meant_in(MEANT) == meant_in(f"{MEANT} (it is bounded)") == "nvidia.com/gpu"
    assert meant_in("no machine has it") == ""
