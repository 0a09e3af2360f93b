"""Exit codes, as Terraform and kubectl have taught people to read them."""

import sys
from typing import Final

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


def complain(*why: object) -> None:
    """Writes to standard error why a command cannot do what it was asked, a line for each argument."""
    sys.stderr.write("".join(f"muster: {plain(str(each))}\n" for each in why))
