"""How long garbage may lie in a command: to look for it took a third of the time of those that end by themselves."""

import atexit
import gc
from typing import Final

MOST: Final = 250_000
"""New objects after which garbage is looked for: most commands have ended before."""
_USUAL: Final = gc.get_threshold()


def let_lie() -> None:
    """Have none looked for in a command that soon ends, nor at its end, where Python goes through all there is."""
    gc.set_threshold(MOST)
    atexit.register(gc.freeze)


def look_as_usual() -> None:
    """Have it looked for in a command that does not end by itself."""
    gc.set_threshold(*_USUAL)
