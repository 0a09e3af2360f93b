"""The command line. Every command imports what it needs when it runs, so that `--help` stays quick."""

import atexit
import gc
from typing import Final

__all__ = ["main"]

GARBAGE_MOST: Final = 250_000
"""New objects after which garbage is looked for: most commands have ended before. It took a sixth of their time."""
_USUAL: Final = gc.get_threshold()


def main() -> None:
    """The console script, by each of its names."""
    gc.set_threshold(GARBAGE_MOST)
    atexit.register(gc.freeze)  # Python looks for garbage in all there is before it ends: a fifth of a command's time
    from agent.cli.app import run_program

    run_program()


def lives_long() -> None:
    """Have garbage looked for as usual, in a command that does not end by itself."""
    gc.set_threshold(*_USUAL)
