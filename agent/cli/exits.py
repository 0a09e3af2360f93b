"""Exit codes, as Terraform and kubectl have taught people to read them."""

from typing import Final

OK: Final = 0
ERROR: Final = 1
CHANGES: Final = 2
"""With --detailed-exitcode: there is something to change."""
INVALID: Final = 3
"""The fleet has problems."""
REFUSED: Final = 5
"""The guard rails refuse the plan."""
INTERRUPTED: Final = 130
