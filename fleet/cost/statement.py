"""A month's statement: the ledger's records summed up by what somebody wants to see, with a forecast to its end."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Final, NamedTuple

from fleet.cost.machine_use import NOBODY
from fleet.cost.records import LedgerRecord

LATER: Final = "later days"
NO_TEAM: Final = "(no team)"
NONE: Final = "(none)"


class UnknownMonth(ValueError):
    """The text names no month; the message says how one is written."""


class Month(NamedTuple):
    """A `Month` is a calendar month (UTC), `[begin_s, end_s)` in epoch seconds."""

    name: str
    begin_s: float
    end_s: float

    @classmethod
    def named(cls, text: str) -> "Month":
        """Returns the month of a name such as `2026-10`; raises `UnknownMonth`."""
        found = re.fullmatch(r"(\d{4})-(\d{2})", text)
        year, month = (int(it) for it in found.groups()) if found else (0, 0)
        if not (1970 < year < 9999 and 1 <= month <= 12):
            raise UnknownMonth(f"{text!r} is no month such as 2026-10")
        begin = datetime(year, month, 1, tzinfo=UTC)
        end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
        return cls(text, begin.timestamp(), end.timestamp())

    @classmethod
    def of(cls, at_s: float) -> "Month":
        """Returns the month of an instant."""
        return cls.named(f"{datetime.fromtimestamp(at_s, UTC):%Y-%m}")


def _of_work(record: LedgerRecord, value: str, otherwise: str) -> str:
    """Returns a value of work; of what nobody takes why nobody does."""
    return record.subject if record.subject in NOBODY else value or otherwise


def _day(hour_s: float) -> str:
    """Returns the day of an hour; of what is only to come, after the running day, that it is later."""
    return LATER if hour_s == inf else f"{datetime.fromtimestamp(hour_s, UTC):%Y-%m-%d}"


class CostDimension(NamedTuple):
    """A `CostDimension` is what costs can be told apart by."""

    fields: tuple[str, ...]
    """Those of a record that it is made of."""
    value: Callable[[LedgerRecord], str]


DIMENSIONS: Final[Mapping[str, CostDimension]] = {
    "team": CostDimension(("team",), lambda it: _of_work(it, it.team, NO_TEAM)),
    "pool": CostDimension(("node_pool",), lambda it: it.node_pool or NONE),
    "queue": CostDimension(("queue",), lambda it: _of_work(it, it.queue, NONE)),
    "namespace": CostDimension(("namespace",), lambda it: _of_work(it, it.namespace, NONE)),
    "gang": CostDimension(("namespace", "name"), lambda it: _of_work(it, f"{it.namespace}/{it.name}", NONE)),
    "user": CostDimension(("user",), lambda it: _of_work(it, it.user, NONE)),
    "day": CostDimension((), lambda it: _day(it.hour_s)),
    "type": CostDimension(("instance_type",), lambda it: it.instance_type),
    "zone": CostDimension(("zone",), lambda it: it.zone),
    "capacity-type": CostDimension(("capacity_type",), lambda it: it.capacity_type),
    "gpu": CostDimension(("gpu",), lambda it: it.gpu or NONE),
    "cluster": CostDimension((), lambda it: it.cluster),
}
"""By name. Days and clusters are never summed up together (`Ledger.sums`)."""


def fields_of(by: Iterable[str]) -> tuple[str, ...]:
    """Returns the fields of records that have to stay apart for a statement by these dimensions."""
    return tuple(dict.fromkeys(name for each in by for name in DIMENSIONS[each].fields))


@dataclass(slots=True)
class StatementLine:
    """A `StatementLine` is one combination of values, summed up; costs in micro-USD, forecast to the month's end."""

    cost: int = 0
    borrowed: int = 0
    """Of the cost: by work on borrowed quota."""
    lost: int = 0
    """Of what was paid: for work that was lost."""
    gpu_s: float = 0.0
    forecast: int = 0

    def add(self, record: LedgerRecord) -> None:
        """Count a record."""
        self.cost += record.cost_micro_usd
        self.borrowed += record.cost_micro_usd if record.borrowed else 0
        self.lost += record.lost_micro_usd
        self.gpu_s += record.gpu_s
        self.forecast += record.cost_micro_usd


@dataclass(slots=True)
class UsedPrices:
    """`UsedPrices` are those of one source: what was charged by them, and how old the oldest was in its hour."""

    cost: int = 0
    oldest_s: float = 0.0


@dataclass(slots=True)
class Statement:
    """A `Statement` is a month summed up. The lines' costs are together that of the total."""

    month: Month
    by: tuple[str, ...]
    until_s: float
    """Up to when records were summed up (epoch seconds)."""
    lines: dict[tuple[str, ...], StatementLine] = field(default_factory=dict)
    total: StatementLine = field(default_factory=StatementLine)
    prices: dict[str, UsedPrices] = field(default_factory=dict)  # by source

    @property
    def ranked(self) -> Sequence[tuple[tuple[str, ...], StatementLine]]:
        """Returns the lines, the dearest first; by day, in order of days."""
        days = self.by[:1] == ("day",)
        return sorted(self.lines.items(), key=lambda it: (it[0][0] if days else "", -it[1].cost, it[0]))


def statement(
    records: Iterable[LedgerRecord], month: Month, by: Sequence[str], now_s: float, to_come: Iterable[LedgerRecord] = ()
) -> Statement:
    """Returns the month summed up by these dimensions; KeyError for one that is none.

    The forecast is what was spent with what is `to_come` until the month's end (`MeterState.to_come`).
    """
    of = [DIMENSIONS[name].value for name in by]
    found = Statement(month, tuple(by), max(month.begin_s, min(now_s, month.end_s)))

    def line(record: LedgerRecord) -> StatementLine:
        return found.lines.setdefault(tuple([value(record) for value in of]), StatementLine())

    for record in records:
        line(record).add(record)
        found.total.add(record)
        used = found.prices.setdefault(record.price_source or NONE, UsedPrices())
        used.cost += record.cost_micro_usd
        used.oldest_s = max(used.oldest_s, record.hour_s - record.priced_at_s)
    for record in to_come:
        line(record).forecast += record.cost_micro_usd
        found.total.forecast += record.cost_micro_usd
    return found
