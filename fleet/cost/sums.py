"""What a ledger's own engine adds up, so that a month of a large fleet is a few rows: costs, and hours of machines.

The engines run SQL (`providers.store.queries`). What they have to give is said here, once more in Python: for hours
that are not in the ledger yet, and for the tests that hold the engines to it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, Final

from fleet.cost.machine_use import NOBODY, NOT_READY
from fleet.cost.records import LedgerRecord
from fleet.reasons import Reason

APART: Final = ("cluster", "borrowed", "price_source")
"""Fields of records that always stay apart where records are summed up; so does why nobody takes a part."""
ADDED: Final = ("held_s", "gpu_s", "cost_micro_usd", "lost_s", "lost_micro_usd")
"""Fields that are added up."""
_EMPTY: Final = {field.name: 0.0 if field.type is float else "" for field in fields(LedgerRecord)}


def summed_record(by: Sequence[str], row: Sequence[Any]) -> LedgerRecord:
    """Returns the record of a row: `APART`, `by`, why nobody takes it, the earliest hour, `ADDED`, the oldest price.

    Its hour is the earliest of those that were summed up, and its price as old as the oldest of them was in its hour.
    """
    names = (*APART, *by, "nobody", "hour_s", *ADDED, "age_s")
    values = {**_EMPTY, **dict(zip(names, row, strict=True))}
    nobody, age_s = values.pop("nobody"), values.pop("age_s")
    values["subject"] = nobody or values["subject"]
    values["priced_at_s"] = values["hour_s"] - age_s
    values["borrowed"] = bool(values["borrowed"])
    for name in ("cost_micro_usd", "lost_micro_usd"):
        values[name] = int(values[name])
    return LedgerRecord(**values)


@dataclass(frozen=True, slots=True)
class UsedHours:
    """`UsedHours` are machines' hours of one GPU model and capacity type, summed up by what became of their GPUs."""

    gpu: str = ""
    """Empty: machines without GPUs."""
    capacity_type: str = ""
    cost_micro_usd: int = 0
    machine_h: float = 0.0
    """Hours in which they billed."""
    gpu_s: float = 0.0
    """GPU seconds, as all below."""
    used_s: float = 0.0
    """By work."""
    broken_s: float = 0.0
    """Of machines that were not ready."""
    stuck_s: float = 0.0
    """Idle in an hour in which others used a part of the machine."""
    lost_s: float = 0.0
    """Of work that was lost."""
    lost_micro_usd: int = 0
    interruptions: int = 0
    """Machines that were taken back."""
    evictions: int = 0
    """Subjects whose work was lost, each hour once."""


def used_hours(records: Iterable[LedgerRecord]) -> Iterator[UsedHours]:
    """Yields the sums of each machine's hour, whose records have to come together, and the evictions of them all."""
    lost: set[tuple[str, float, str]] = set()
    for _, group in groupby(records, key=lambda it: (it.cluster, it.hour_s, it.machine)):
        hour = list(group)
        lost |= {(it.cluster, it.hour_s, it.subject) for it in hour if it.lost_s}
        yield _used_hour(hour)
    yield UsedHours(evictions=len(lost))


def _used_hour(hour: Sequence[LedgerRecord]) -> UsedHours:
    paid_s = sum(it.gpu_s for it in hour)
    used_s = sum(it.gpu_s for it in hour if it.subject not in NOBODY)
    broken_s = sum(it.gpu_s for it in hour if it.subject == NOT_READY)
    return UsedHours(
        hour[0].gpu,
        hour[0].capacity_type,
        sum(it.cost_micro_usd for it in hour),
        max(it.held_s for it in hour) / 3600,
        paid_s,
        used_s,
        broken_s,
        paid_s - used_s - broken_s if used_s else 0.0,
        sum(it.lost_s * it.gpu_s / it.held_s for it in hour if it.lost_s and it.held_s),
        sum(it.lost_micro_usd for it in hour if it.lost_s),
        int(hour[0].ended == Reason.INTERRUPTED),
    )
