"""How many files the decision of one gang runs through: who reads it from top to bottom has to open these."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

from fleet.scheduling import cycle
from tests.support.calls import each_call
from tests.support.fleets import gang, small_fleet
from tests.support.world import World

ROOT = Path(cycle.__file__).parents[1]
MOST_FILES = 84
"""Of a pass in which one gang waits and a machine is bought for it: the rooms that decide, the vocabulary, and what is
only asked whether it has anything to say (counted in docs/design/0011-the-house.md)."""


def run_through(decide: Callable[[], object]) -> set[str]:
    """The files of fleet/ of which something is called; what only runs because it is imported now does not count."""
    found: set[str] = set()

    def note(frame: FrameType, event: str) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    with each_call(note):
        decide()
    return {str(path.relative_to(ROOT)) for path in map(Path, found) if path.is_relative_to(ROOT)}


def test_a_gang_that_buys_is_decided_in_files_that_can_be_read() -> None:
    worlds = World(small_fleet()), World(small_fleet())
    for world in worlds:
        world.machine("m0")
        world.waits(gang("g", count=2))
    first, second = (partial(cycle.decide, it.fleet, it.snapshot()) for it in worlds)
    first()  # what is imported only when it is needed is by now
    files = run_through(second)
    assert {"quota/flavor_assigner.py", "placement/place.py", "optimize/purchase/purchasing.py"} <= files
    assert len(files) <= MOST_FILES, sorted(files)
