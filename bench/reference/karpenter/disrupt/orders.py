"""A command under way: machines go when all that replaces them is ready, or it is given up (reference 4.8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SECONDS_A_COMMAND: Final = 0.08
LEAST_PATIENCE_S: Final = 10 * 60.0
MOST_PATIENCE_S: Final = 3600.0
"""The more commands are under way the slower each goes: patience grows with their number, within bounds."""


class Fate(StrEnum):
    """What becomes of a command."""

    WAITS = "Waits"
    DONE = "Done"
    """All replacements are ready: the machines go."""
    GIVEN_UP = "GivenUp"
    """The machines stay and are free again; replacements that were bought stay too, until consolidation finds them."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A machine that was bought for a command."""

    initialized: bool = False
    gone: bool = False
    """It could not be had, or was lost: no other one is bought for it."""


def patience_s(commands: int) -> float:
    """How long a command may take while so many are under way."""
    return min(MOST_PATIENCE_S, max(LEAST_PATIENCE_S, SECONDS_A_COMMAND * commands))


def fate(replacements: Sequence[Replacement], elapsed_s: float, commands: int) -> Fate:
    """What becomes of a command `elapsed_s` after it was given. A lost replacement cannot be made good."""
    if any(each.gone for each in replacements):
        return Fate.GIVEN_UP
    if all(each.initialized for each in replacements):
        return Fate.DONE
    return Fate.GIVEN_UP if elapsed_s > patience_s(commands) else Fate.WAITS
