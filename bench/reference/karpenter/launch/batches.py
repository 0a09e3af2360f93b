"""Equal launches are one call, and what it brings is dealt out (Karpenter `pkg/batcher`).

For machines bought one by one. A gang is one lot from the start, and all or nothing.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Request = TypeVar("Request", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Batch(Generic[Request]):
    """One call for all who ask the same."""

    request: Request
    callers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """What a caller gets: a machine, or none; and all that went wrong, which may explain why others got none."""

    caller: str
    instance: str
    """Empty = none."""
    failures: tuple[str, ...]


def merged(asked: Iterable[tuple[str, Request]]) -> list[Batch[Request]]:
    """Callers by what they ask, in the order in which it was asked first."""
    callers: dict[Request, list[str]] = {}
    for caller, request in asked:
        callers.setdefault(request, []).append(caller)
    return [Batch(request, tuple(mine)) for request, mine in callers.items()]


def dealt(batch: Batch[Request], instances: Sequence[str], failures: Sequence[str]) -> list[Share]:
    """One machine to each caller as long as there are any, in order."""
    given = [*instances, *("" for _ in batch.callers)]
    return [Share(caller, given[index], tuple(failures)) for index, caller in enumerate(batch.callers)]
