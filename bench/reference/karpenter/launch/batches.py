"""Equal launches are one call, and what it brings is dealt out (Karpenter `pkg/batcher`).

For machines bought one by one. A gang is one lot from the start, and all or nothing.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Request = TypeVar("Request", bound=Hashable)


@dataclass(frozen=True, slots=True)
class FleetBatch(Generic[Request]):
    """One call for all who ask the same."""

    request: Request
    callers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchShare:
    """What a caller gets: a machine, or none; and all that went wrong, which may explain why others got none."""

    caller: str
    instance: str
    """Empty = none."""
    failures: tuple[str, ...]


def merged(asked: Iterable[tuple[str, Request]]) -> list[FleetBatch[Request]]:
    """Callers by what they ask, in the order in which it was asked first."""
    callers: dict[Request, list[str]] = {}
    for caller, request in asked:
        callers.setdefault(request, []).append(caller)
    return [FleetBatch(request, tuple(mine)) for request, mine in callers.items()]


def dealt(batch: FleetBatch[Request], instances: Sequence[str], failures: Sequence[str]) -> list[BatchShare]:
    """One machine to each caller as long as there are any, in order."""
    given = [*instances, *("" for _ in batch.callers)]
    return [BatchShare(caller, given[index], tuple(failures)) for index, caller in enumerate(batch.callers)]
