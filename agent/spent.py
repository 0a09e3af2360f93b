"""What gangs have cost so far, and what months came to, read of the ledger a day at a time, the latest days first.

Whoever reads has a small share of the process's time: a unit is one day of the fleet, summed up by the store's engine.
Until a gang's first day has been read its cost is not told, and of a month how far back it was read.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import structlog

from agent.ledger import months_before
from fleet.cost.allocation import MICRO
from fleet.cost.open_hours import MeterState
from fleet.cost.records import DAY_S, HOUR_S, LedgerRecord
from fleet.cost.statement import DIMENSIONS, Month, StatementLine, fields_of
from fleet.snapshot import Snapshot
from providers.store.port import Ledger, LedgerError, NoLedgerYet

log = structlog.get_logger(__name__)

GANGS_KEPT: Final = 2_000
"""Dearest gangs that are kept of a month; while it is read, four times as many."""
_TEAM, _GANG = DIMENSIONS["team"], DIMENSIONS["gang"]
_FIELDS: Final = ("subject", *fields_of(["team", "gang"]))


class GangMoney(NamedTuple):
    """What a gang, or the owner of ordinary pods, has cost a team in a month (USD)."""

    team: str
    gang: str
    """`namespace/name`."""
    usd: float


class PastMonth(NamedTuple):
    """A month by the ledger, as far as it has been read."""

    name: str
    """`2026-10`."""
    from_s: float
    """From which instant on it was read (epoch seconds): its begin, once all was."""
    until_s: float
    teams: Mapping[str, StatementLine]
    """Or why nobody used what was paid for -> what it came to."""
    gangs: tuple[GangMoney, ...]
    """The dearest, these first."""


@dataclass(slots=True)
class _Sums:
    """A month while it is read."""

    month: Month
    teams: dict[str, StatementLine] = field(default_factory=dict)
    gangs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(team, gang) -> micro-USD."""

    def add(self, record: LedgerRecord) -> None:
        team = _TEAM.value(record)
        self.teams.setdefault(team, StatementLine()).add(record)
        if record.name and team != record.subject:
            self.gangs[team, _GANG.value(record)] += record.cost_micro_usd

    def told(self, before_s: float, until_s: float) -> PastMonth:
        month = self.month
        if before_s <= month.begin_s or len(self.gangs) > 4 * GANGS_KEPT:
            self.gangs = Counter(dict(self.gangs.most_common(GANGS_KEPT)))
        dearest = sorted(self.gangs.items(), key=lambda it: (-it[1], it[0]))[:GANGS_KEPT]
        gangs = tuple(GangMoney(*key, micro / MICRO) for key, micro in dearest)
        times = max(before_s, month.begin_s), min(until_s, month.end_s)
        return PastMonth(month.name, *times, dict(sorted(self.teams.items())), gangs)


class Spending:
    """Reads a ledger now and then, each hour once. `usd` and `months` may be asked by any thread, `read` by one."""

    def __init__(self, open_ledger: Callable[[], Ledger], cluster: str, keep_months: int) -> None:
        self._open_ledger, self._cluster, self._keep_months = open_ledger, cluster, keep_months
        self._ledger: Ledger | None = None
        self._written: Counter[str] = Counter()
        """uid of a gang -> micro-USD of the hours that were read."""
        self._open: Counter[str] = Counter()
        self._created: Mapping[str, float] = {}
        self.known_until_s = 0.0
        """Up to when what is open had been kept when it was read last (epoch seconds)."""
        self._from_s = self._until_s = 0.0
        """What has been read (epoch seconds)."""
        self._sums: dict[str, _Sums] = {}
        self._months: dict[str, PastMonth] = {}

    def usd(self, uid: str) -> float | None:
        """Returns what a gang has cost so far; None before the ledger was read back to its first hour."""
        created_s = self._created.get(uid)
        known = created_s is not None and self._until_s and self._from_s <= created_s // HOUR_S * HOUR_S
        return (self._written[uid] + self._open[uid]) / MICRO if known else None

    def months(self) -> tuple[PastMonth, ...]:
        """Returns the months of which anything has been read, the latest first."""
        return tuple(self._months[name] for name in sorted(self._months, reverse=True))

    def read(self, snapshot: Snapshot) -> bool:
        """Reads what is open, and a day of what was written; returns whether there may be more to read.

        A ledger that cannot be read leaves what is known.
        """
        try:
            self._ledger = self._ledger or self._open_ledger()
            return self._take(self._ledger, snapshot)
        except NoLedgerYet as error:
            log.info("no_ledger_yet", why=str(error))
            return False
        except (LedgerError, msgspec.MsgspecError) as error:
            log.warning("ledger_not_read", why=str(error))
            self.close()
            return False

    def close(self) -> None:
        """Let go of the ledger."""
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def _take(self, ledger: Ledger, snapshot: Snapshot) -> bool:
        kept = ledger.open_hours(self._cluster)
        state = msgspec.json.decode(kept.body, type=MeterState) if kept is not None else None
        cut_s = state.cut_until_s if state is not None else snapshot.now_s // HOUR_S * HOUR_S
        alive = {gang.uid: gang.created_at_s for gang in snapshot.gangs.values()}
        for uid in self._written.keys() - alive.keys():
            del self._written[uid]
        if not self._until_s:
            self._from_s = self._until_s = cut_s
        if cut_s > self._until_s:
            begin_s, self._until_s = self._until_s, min(cut_s, _day_after(self._until_s))
            self._add(ledger.sums(begin_s, self._until_s, _FIELDS, self._cluster), alive)
            more = True
        else:
            more = self._look_back(ledger, alive, months_before(snapshot.now_s, self._keep_months))
        found: Counter[str] = Counter()
        for record in state.so_far() if state is not None else ():
            found[record.subject] += record.cost_micro_usd
        self._open, self._created = found, alive
        self.known_until_s = state.until_s if state is not None else cut_s
        return more

    def _look_back(self, ledger: Ledger, alive: Mapping[str, float], oldest_s: float) -> bool:
        """Reads the last day before those that were read; a month without any at once."""
        if self._from_s <= oldest_s:
            return False
        month = Month.of(self._from_s - 1)
        begin_s, end_s = max(oldest_s, month.begin_s), self._from_s
        newest_s = ledger.newest_s(begin_s, end_s, self._cluster)
        self._from_s = begin_s if newest_s is None else max(begin_s, newest_s // DAY_S * DAY_S)
        if newest_s is not None:
            self._add(ledger.sums(self._from_s, end_s, _FIELDS, self._cluster), alive)
        elif month.name in self._sums:
            self._months[month.name] = self._sums[month.name].told(self._from_s, self._until_s)
        return self._from_s > oldest_s

    def _add(self, records: Iterable[LedgerRecord], alive: Mapping[str, float]) -> None:
        touched = set()
        for record in records:
            if record.subject in alive:
                self._written[record.subject] += record.cost_micro_usd
            month = Month.of(record.hour_s)
            touched.add(month.name)
            self._sums.setdefault(month.name, _Sums(month)).add(record)
        for name in touched:
            self._months[name] = self._sums[name].told(self._from_s, self._until_s)


def _day_after(at_s: float) -> float:
    return (at_s // DAY_S + 1) * DAY_S
