"""Exit codes, as Terraform and kubectl have taught people to read them, and how commands speak to a terminal."""

import os
import sys
from typing import Final, TextIO

from model.plain_text import plain

OK: Final = 0
ERROR: Final = 1
CHANGES: Final = 2
"""With --detailed-exitcode: there is something to change."""
INVALID: Final = 3
"""The fleet has problems."""
REFUSED: Final = 5
"""The guard rails refuse the plan."""
INTERRUPTED: Final = 130


def coloured(stream: TextIO) -> bool:
    """Returns whether colours are welcome: on a terminal only, and not where NO_COLOR is set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def complain(*why: object) -> None:
    """Writes to standard error why a command cannot do what it was asked, a line for each argument.

    A pipe that nobody reads any more is nothing to complain of: with `head` behind it, a command has told enough. It is
    raised again, and ends the command without a word.
    """
    for each in why:
        if isinstance(each, BrokenPipeError):
            raise each
    sys.stderr.write("".join(f"muster: {plain(str(each))}\n" for each in why))
