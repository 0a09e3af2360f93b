"""Reservations: a workload that has waited too long gets what becomes free, and small ones run around it meanwhile.

EASY backfill: only the first overdue workload of a queue has a reservation, with the instant at which it could start if
everybody ended when they say they will. Until then others may use what is reserved if they say they end before
(Lifka, "The ANL/IBM SP scheduling system"; Slurm's and Volcano's `sla-waiting-time` reserve without an end).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from fleet.quota.entries import CycleEntry
from fleet.quota.flavors import PreemptionMode, WorkloadAssignment
from fleet.quota.run import HeldCapacity
from fleet.quota.workload import AdmittedWorkload, QuotaLedger, Workload


@dataclass(frozen=True, slots=True)
class BackfillReservation:
    """What is kept for an overdue workload, and when it could start (epoch seconds; inf = nobody says)."""

    kept: HeldCapacity
    starts_at_s: float


Answer = TypeVar("Answer")

Ask = Callable[[Workload], WorkloadAssignment]
"""What a workload could have as the books stand."""


def earliest_reservation(books: QuotaLedger, entry: CycleEntry, ask: Ask) -> BackfillReservation | None:
    """The earliest reservation for an entry; None when not even an empty tree would do.

    Holders leave in the order in which they say they end. One that says nothing leaves last, at no known time.
    """
    ending = sorted(
        (holder for holder in books.holders.values() if not holder.out),
        key=lambda holder: (holder.ends_at_s, holder.workload.uid),
    )
    first = _fewest_gone(books, ending, lambda: ask(entry.workload).mode is PreemptionMode.FIT)
    if first is None:
        return None
    found = _without(books, ending[:first], lambda: ask(entry.workload))
    starts_at_s = ending[first - 1].ends_at_s if first else 0.0
    return BackfillReservation(HeldCapacity(entry.workload, entry.node, found.usage, found.place), starts_at_s)


def _fewest_gone(books: QuotaLedger, ending: Sequence[AdmittedWorkload], fits: Callable[[], bool]) -> int | None:
    """How many of those that end have to be gone, by bisection; None when all of them are not enough."""
    low, high = 0, len(ending) + 1
    while low < high:
        middle = (low + high) // 2
        if middle > len(ending):
            return None
        if _without(books, ending[:middle], fits):
            high = middle
        else:
            low = middle + 1
    return low if low <= len(ending) else None


def _without(books: QuotaLedger, gone: Sequence[AdmittedWorkload], ask: Callable[[], Answer]) -> Answer:
    """The answer as if these were gone."""
    for holder in gone:
        books.lift(holder)
    answer = ask()
    for holder in reversed(gone):
        books.put_back(holder)
    return answer


def ends_before(workload: Workload, now_s: float, reservations: Sequence[BackfillReservation]) -> bool:
    """Whether a workload that starts now says it ends before any of the reservations is due."""
    if workload.runs_s is None:
        return False
    return all(now_s + workload.runs_s <= reservation.starts_at_s < inf for reservation in reservations)
