"""How long machines take until they are ready, as their like have taken."""

from typing import Any

import pytest

from fleet.gangs.lost_machines import BOOT_S, boot_s, ready_at_s
from tests.support.fleets import NOW, P5, P5S, FleetBuilder
from tests.support.world import World


def came(*taken_s: float, kind: str = P5.name, **claim: Any) -> World:
    """Machines that took so long from launch to ready."""
    world = World(FleetBuilder().pool(instanceTypes=[P5.name, P5S.name]).team().queue().build())
    for n, seconds in enumerate(taken_s):
        world.machine(f"m{n}", kind=kind, launched_at_s=NOW - 1000, ready_at_s=NOW - 1000 + seconds, **claim)
    return world


@pytest.mark.parametrize(
    ("world", "expected_s"),
    [
        pytest.param(came(), BOOT_S, id="nothing known"),
        pytest.param(came(90), 90, id="one"),
        pytest.param(came(60, 90, 300), 90, id="a hiccup of one changes nothing"),
        pytest.param(came(60, 90), 90, id="of two the longer"),
        pytest.param(came(70, kind=P5S.name), 70, id="another type of the pool"),
        pytest.param(came(70, recut_at_s=NOW - 950), BOOT_S, id="a cut hides when it was ready"),
        pytest.param(came(70, deleting=True), 70, id="one that leaves has come as well"),
    ],
)
def test_how_long_a_machine_takes(world: World, expected_s: float) -> None:
    assert boot_s(world.snapshot(), "h100", P5.name) == expected_s
    assert boot_s(world.snapshot(), "other", P5.name) == BOOT_S


@pytest.mark.parametrize(
    ("claim", "expected_s"),
    [
        pytest.param({"ready_at_s": 0.0, "launched_at_s": 0.0}, NOW + 90, id="not bought yet"),
        pytest.param({"ready_at_s": 0.0, "launched_at_s": NOW - 30}, NOW + 60, id="it boots"),
        pytest.param({"ready_at_s": 0.0, "launched_at_s": NOW - 300}, NOW, id="late: any moment"),
        pytest.param({"launched_at_s": NOW - 999, "ready_at_s": NOW - 900, "recut_at_s": NOW}, NOW + 90, id="cut anew"),
    ],
)
def test_when_a_machine_is_ready(claim: dict[str, float], expected_s: float) -> None:
    world = came(90)
    coming = world.machine("coming", **claim)
    assert ready_at_s(world.snapshot(), coming) == expected_s
