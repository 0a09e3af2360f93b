"""For whom a machine is kept that was bought to move gangs."""

from dataclasses import replace

import pytest

from fleet.placement.inventory import build_cluster_state
from fleet.reasons import Reason
from fleet.snapshot.gangs import Eviction
from tests.support.disruption import standing
from tests.support.fleets import NOW, gang


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        pytest.param(Reason.DRIFTED, True, id="it left the machine that this one replaces"),
        pytest.param(Reason.PREEMPTED, False, id="it made room for a gang of its queue"),
        pytest.param(Reason.RECLAIMED, False, id="it made room for a team that took its guarantee back"),
    ],
)
def test_a_machine_is_kept_for_the_gang_it_was_bought_to_move_unless_that_gave_way(reason: Reason, kept: bool) -> None:
    """Kept for a gang that was preempted, the room would help neither: the victim came back, and so without end."""
    world = standing(1)
    world.machine("new", replaces=("m0",), gang="uid-g")
    waiting = replace(gang("g"), eviction=Eviction(reason, "x", NOW - 1))
    world.gangs = {**world.gangs, waiting.uid: waiting}
    state = build_cluster_state(world.snapshot(), ())
    assert state.slots["node-new"].only_for == (frozenset({"uid-g"}) if kept else frozenset())
