"""What a disruption method asks for."""

from dataclasses import dataclass

from fleet.reasons import Reason
from fleet.snapshot import Claim


@dataclass(frozen=True, slots=True)
class Command:
    """Machines that should go. `replacements` are bought first; the machines stay until those are ready."""

    claims: tuple[Claim, ...]
    reason: Reason
    message: str
    replacements: tuple[Claim, ...] = ()
