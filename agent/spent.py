"""What gangs have cost so far, by the ledger: hours that are written, and those that are open."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from fleet.cost.allocation import MICRO
from fleet.cost.meter import MeterState
from fleet.cost.records import HOUR_S
from fleet.snapshot import Snapshot
from providers.ports import Ledger, LedgerError

log = structlog.get_logger(__name__)

BACK_MOST_S: Final = 92 * 86_400.0
"""Of a gang that began earlier, what it cost before is not counted."""


class SpentByGang:
    """Reads a ledger now and then, each hour once. `usd` may be asked by any thread, `read` by one."""

    def __init__(self, open_ledger: Callable[[], Ledger], cluster: str) -> None:
        self._open_ledger, self._cluster = open_ledger, cluster
        self._written: Counter[str] = Counter()
        """Subject -> micro-USD of the hours that were read."""
        self._open: Counter[str] = Counter()
        self._read_until_s = 0.0
        self._known = False

    def usd(self, uid: str) -> float | None:
        """Returns what a gang has cost so far; None before the ledger was read for the first time."""
        return (self._written[uid] + self._open[uid]) / MICRO if self._known else None

    def read(self, snapshot: Snapshot) -> None:
        """Reads what was written since, and what is open. A ledger that cannot be read leaves what is known."""
        try:
            ledger = self._open_ledger()
        except LedgerError as error:
            log.warning("ledger_not_read", why=str(error))
            return
        try:
            self._take(ledger, snapshot)
        except (LedgerError, msgspec.MsgspecError) as error:
            log.warning("ledger_not_read", why=str(error))
        finally:
            ledger.close()

    def _take(self, ledger: Ledger, snapshot: Snapshot) -> None:
        begin_s = min((gang.created_at_s for gang in snapshot.gangs.values()), default=snapshot.now_s)
        from_s = self._read_until_s or max(begin_s, snapshot.now_s - BACK_MOST_S) // HOUR_S * HOUR_S
        kept = ledger.open_hours(self._cluster)
        state = msgspec.json.decode(kept.body, type=MeterState) if kept is not None else None
        until_s = state.cut_until_s if state is not None else snapshot.now_s // HOUR_S * HOUR_S
        if until_s > from_s:
            for record in ledger.sums(from_s, until_s, ("subject",), self._cluster):
                self._written[record.subject] += record.cost_micro_usd
            self._read_until_s = until_s
        found: Counter[str] = Counter()
        for record in state.so_far() if state is not None else ():
            found[record.subject] += record.cost_micro_usd
        self._open = found
        alive = snapshot.gangs.keys()
        for uid in [uid for uid in self._written if uid not in alive]:
            del self._written[uid]
        self._known = True
