"""How many files the decision of one gang runs through: who reads it from top to bottom has to open these."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from fleet.scheduling import cycle
from tests.support.fleets import gang, small_fleet
from tests.support.world import World

ROOT = Path(cycle.__file__).parents[1]
MOST_FILES = 84
"""Of a pass in which one gang waits and a machine is bought for it: the rooms that decide, the vocabulary, and what is
only asked whether it has anything to say (counted in docs/design/0011-the-house.md)."""


def run_through(decide: Callable[[], object]) -> set[str]:
    """The files of fleet/ of which something is called; what only runs because it is imported now does not count."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        decide()
    finally:
        sys.setprofile(before)
    return {str(path.relative_to(ROOT)) for path in map(Path, found) if path.is_relative_to(ROOT)}


def test_a_gang_that_buys_is_decided_in_files_that_can_be_read() -> None:
    world = World(small_fleet())
    world.machine("m0")
    world.waits(gang("g", count=2))
    snapshot = world.snapshot()
    files = run_through(lambda: cycle.decide(world.fleet, snapshot))
    assert {"quota/flavor_assigner.py", "placement/place.py", "optimize/purchase/purchasing.py"} <= files
    assert len(files) <= MOST_FILES, sorted(files)
