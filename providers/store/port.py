"""The port of a ledger: what its adapters (SQLite, Parquet in S3) implement."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from fleet.cost.records import LedgerRecord, StartRecord
from fleet.cost.sums import UsedHours


class LedgerError(Exception):
    """The ledger could not be read or written. `transient` tells whether the same call may succeed later."""

    def __init__(self, words: str, *, transient: bool = True) -> None:
        super().__init__(words)
        self.transient = transient


class NoLedgerYet(LedgerError):
    """Nothing was written yet: the agent makes the ledger when it first writes."""


class OpenHours(NamedTuple):
    """`OpenHours` is what an agent has seen of hours that are not in the ledger yet, to go on from after a crash."""

    until_s: float
    """When it looked last (epoch seconds)."""
    body: bytes
    """JSON, for the agent alone."""


class Ledger(Protocol):
    """Keeps records of costs: they are added and, years later, forgotten, and never changed. Errors: `LedgerError`."""

    def append(self, records: Sequence[LedgerRecord]) -> int:
        """Add records, and return how many are new.

        The records of one hour of a machine go in together, or not at all where that hour is there: who repeats a call,
        and who comes second, adds nothing. All that a call brings for one hour of a cluster is there afterwards, or
        nothing of it.
        """
        ...

    def append_starts(self, starts: Sequence[StartRecord]) -> None:
        """Add starts of gangs; those that are there stay as they are."""
        ...

    def read_starts(self, begin_s: float, end_s: float, cluster: str = "") -> Iterator[StartRecord]:
        """Yield the starts of gangs that came to run in that time, in order of cluster and time."""
        ...

    def read(self, begin_s: float, end_s: float, cluster: str = "") -> Iterator[LedgerRecord]:
        """Yield the records of hours that begin in that time (epoch seconds), in order of key; empty = all clusters."""
        ...

    def newest_s(self, begin_s: float, end_s: float, cluster: str) -> float | None:
        """The last hour that has records of a cluster and begins in that time; None where there is none."""
        ...

    def sums(self, begin_s: float, end_s: float, by: Sequence[str], cluster: str = "") -> Iterator[LedgerRecord]:
        """Yield the same records summed up by the store's own engine, days and clusters apart (`fleet.cost.sums`).

        `by` are the fields that stay apart beside `APART`; what else is of one record alone is empty.
        """
        ...

    def used_hours(self, begin_s: float, end_s: float, cluster: str = "") -> Iterator[UsedHours]:
        """Yield what machines were used for in that time, summed up by the store's own engine, in any order."""
        ...

    def keep_open(self, cluster: str, hours: OpenHours) -> None:
        """Keep what is not in the ledger yet in place of what was kept.

        One that is older than that is dropped, unless what was kept is by a clock that was ahead (`AHEAD_S`).
        """
        ...

    def open_hours(self, cluster: str) -> OpenHours | None:
        """What was kept last."""
        ...

    def clusters(self) -> Sequence[str]:
        """The names of all clusters that have written here, sorted."""
        ...

    def forget_before(self, at_s: float) -> None:
        """Forget records of hours that began earlier, and earlier starts."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...
