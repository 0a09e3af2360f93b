"""The ledger in a file of SQLite: one writer, the agent, and readers beside it (write-ahead log)."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from fleet.cost.records import AHEAD_S, LedgerRecord, StartRecord, by_machine_hour
from fleet.cost.sums import UsedHours, summed_record
from providers.store.port import LedgerError, NoLedgerYet, OpenHours
from providers.store.queries import DAY_S, sums_sql, used_on

BUSY_S: Final = 10.0
"""How long a lock of another process is waited for."""
PAGE_BYTES: Final = 4096
READ_AT_ONCE: Final = 1000
_COLUMNS: Final = tuple(field.name for field in fields(LedgerRecord))
_AT: Final = _COLUMNS.index("borrowed")
"""SQLite knows no truth values."""
_START: Final = tuple(field.name for field in fields(StartRecord))
_KEY: Final = "cluster, hour_s, machine, subject, team, borrowed"
_DAY: Final = "FROM records WHERE cluster = ? AND hour_s >= ? AND hour_s < ?"
_CLUSTERS: Final = """
WITH RECURSIVE found (name) AS (
  SELECT min(cluster) FROM records
  UNION ALL SELECT (SELECT min(cluster) FROM records WHERE cluster > found.name) FROM found WHERE name IS NOT NULL)
SELECT name FROM found WHERE name IS NOT NULL
"""

MIGRATIONS: Final[Sequence[Sequence[str]]] = (
    (
        f"""CREATE TABLE records (
            cluster TEXT NOT NULL, machine TEXT NOT NULL, hour_s REAL NOT NULL, subject TEXT NOT NULL,
            team TEXT NOT NULL, borrowed INTEGER NOT NULL, name TEXT NOT NULL, namespace TEXT NOT NULL,
            queue TEXT NOT NULL, user TEXT NOT NULL, node_pool TEXT NOT NULL, instance_type TEXT NOT NULL,
            zone TEXT NOT NULL, capacity_type TEXT NOT NULL, reservation TEXT NOT NULL, gpu TEXT NOT NULL,
            devices TEXT NOT NULL, held_s REAL NOT NULL, gpu_s REAL NOT NULL, cost_micro_usd INTEGER NOT NULL,
            lost_s REAL NOT NULL, lost_micro_usd INTEGER NOT NULL, usd_h REAL NOT NULL,
            price_source TEXT NOT NULL, priced_at_s REAL NOT NULL, ended TEXT NOT NULL,
            PRIMARY KEY ({_KEY})) WITHOUT ROWID""",
        "CREATE TABLE open_hours (cluster TEXT PRIMARY KEY, until_s REAL NOT NULL, body BLOB NOT NULL) WITHOUT ROWID",
    ),
    (
        """CREATE TABLE starts (
            cluster TEXT NOT NULL, uid TEXT NOT NULL, admitted_s REAL NOT NULL, running_s REAL NOT NULL,
            submitted_s REAL NOT NULL, reserved_s REAL NOT NULL, name TEXT NOT NULL, namespace TEXT NOT NULL,
            queue TEXT NOT NULL, team TEXT NOT NULL, again INTEGER NOT NULL,
            PRIMARY KEY (cluster, uid, admitted_s)) WITHOUT ROWID""",
        "CREATE INDEX starts_by_time ON starts (cluster, running_s)",
    ),
)
"""Statements that bring a file from each version (`PRAGMA user_version`) to the next. What is here is never edited."""


class SqliteLedger:
    """A ledger in one file. Its methods may be called from any thread, by one thread at a time."""

    def __init__(self, path: Path, most_mib: int = 0, *, read_only: bool = False) -> None:
        """`most_mib` bounds the file (0 = the volume does); raises `LedgerError` for what is no ledger, or a newer one.

        With `read_only` the file has to be there and is left as it is.
        """
        with _translated():
            if not read_only:
                path.parent.mkdir(parents=True, exist_ok=True)
            elif not path.exists():
                raise NoLedgerYet(
                    f"there is no ledger at {path}: the agent makes one where `ledger.path` of its settings says"
                )
            address = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
            self._file = sqlite3.connect(
                address, timeout=BUSY_S, isolation_level=None, check_same_thread=False, uri=True
            )
            try:
                self._prepare(most_mib, read_only=read_only)
            except BaseException:
                self._file.close()
                raise

    def _prepare(self, most_mib: int, *, read_only: bool) -> None:
        (version,) = self._file.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise LedgerError(
                f"the ledger has format {version}, this version of Muster knows {len(MIGRATIONS)}: use the newer one",
                transient=False,
            )
        if read_only:
            if not version:  # the agent has just made the file, and its first transaction goes on
                raise NoLedgerYet("the ledger is empty: the agent has not written to it yet")
            if version < len(MIGRATIONS):
                raise LedgerError("the ledger is of an older version: start the agent on it once", transient=False)
            return
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = FULL")
        self._file.execute(f"PRAGMA journal_size_limit = {64 * 2**20}")
        if most_mib:
            self._file.execute(f"PRAGMA max_page_count = {most_mib * 2**20 // PAGE_BYTES}")
        with self._transaction():
            (version,) = self._file.execute("PRAGMA user_version").fetchone()
            for number, statements in enumerate(MIGRATIONS[version:], version + 1):
                for statement in statements:
                    self._file.execute(statement)
                self._file.execute(f"PRAGMA user_version = {number}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._file.in_transaction:  # a full file has been rolled back by SQLite itself
                self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    def append(self, records: Sequence[LedgerRecord]) -> int:
        """Add the machines' hours that are not there yet, all in one transaction; returns how many records."""
        there = "SELECT 1 FROM records WHERE cluster = ? AND hour_s = ? AND machine = ? LIMIT 1"
        insert = f"INSERT INTO records ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
        added = 0
        with _translated(), self._transaction():
            for (cluster, machine, hour_s), group in by_machine_hour(records).items():
                if self._file.execute(there, (cluster, hour_s, machine)).fetchone() is None:
                    self._file.executemany(insert, map(astuple, group))
                    added += len(group)
        return added

    def append_starts(self, starts: Sequence[StartRecord]) -> None:
        """Add starts of gangs; those that are there stay as they are."""
        insert = f"INSERT OR IGNORE INTO starts ({', '.join(_START)}) VALUES ({', '.join('?' * len(_START))})"  # noqa: S608
        with _translated(), self._transaction():
            self._file.executemany(insert, map(astuple, starts))

    def read_starts(self, begin_s: float, end_s: float, cluster: str = "") -> Iterator[StartRecord]:
        """Yield the starts of gangs that came to run in that time."""
        of = "cluster = ? AND " if cluster else ""
        query = (
            f"SELECT {', '.join(_START)} FROM starts WHERE {of}running_s >= ? AND running_s < ? "  # noqa: S608
            "ORDER BY cluster, running_s, uid"
        )
        with _translated():
            found = self._file.execute(query, (*((cluster,) if cluster else ()), begin_s, end_s))
            while rows := found.fetchmany(READ_AT_ONCE):
                for row in rows:
                    values = dict(zip(_START, row, strict=True))
                    yield StartRecord(**{**values, "again": bool(values["again"])})

    def read(self, begin_s: float, end_s: float, cluster: str = "") -> Iterator[LedgerRecord]:
        """Yield the records of hours that begin in that time, in order of key."""
        of = "cluster = ? AND " if cluster else ""
        query = f"SELECT {', '.join(_COLUMNS)} FROM records WHERE {of}hour_s >= ? AND hour_s < ? ORDER BY {_KEY}"  # noqa: S608
        with _translated():
            found = self._file.execute(query, (*((cluster,) if cluster else ()), begin_s, end_s))
            while rows := found.fetchmany(READ_AT_ONCE):
                yield from map(_record, rows)

    def newest_s(self, begin_s: float, end_s: float, cluster: str) -> float | None:
        """The last hour that has records of a cluster and begins in that time."""
        (found,) = self._one(f"SELECT max(hour_s) {_DAY}", cluster, begin_s, end_s)
        return found if found is None else float(found)

    def sums(self, begin_s: float, end_s: float, by: Sequence[str], cluster: str = "") -> Iterator[LedgerRecord]:
        """Yield the same records summed up, in order of cluster and day."""
        query = sums_sql(by, _DAY)
        for day in self._days(begin_s, end_s, cluster):
            with _translated():
                found = self._file.execute(query, day)
                while rows := found.fetchmany(READ_AT_ONCE):
                    yield from (summed_record(by, (day[0], *row)) for row in rows)

    def used_hours(self, begin_s: float, end_s: float, cluster: str = "") -> Iterator[UsedHours]:
        """Yield what machines were used for in that time, in order of cluster and day."""
        for day in self._days(begin_s, end_s, cluster):
            yield from used_on(partial(self._rows, day), _DAY)

    def _days(self, begin_s: float, end_s: float, cluster: str) -> Iterator[tuple[str, float, float]]:
        """Yields a cluster and the part of a day within that time, for each that has records."""
        for name in [cluster] if cluster else self._written():
            at_s = begin_s
            while True:
                (first_s,) = self._one(f"SELECT min(hour_s) {_DAY}", name, at_s, end_s)
                if first_s is None:
                    break
                begin, at_s = at_s, min(end_s, (first_s // DAY_S + 1) * DAY_S)
                yield name, max(begin, first_s), at_s

    def _one(self, query: str, *values: object) -> Sequence[Any]:
        return self._rows(values, query)[0]

    def _rows(self, values: Sequence[object], query: str) -> Sequence[Sequence[Any]]:
        with _translated():
            return self._file.execute(query, values).fetchall()

    def keep_open(self, cluster: str, hours: OpenHours) -> None:
        """Keep what is not in the ledger yet; a little older than what is kept, it is dropped."""
        keep = (
            "INSERT INTO open_hours (cluster, until_s, body) VALUES (?, ?, ?) ON CONFLICT (cluster) DO UPDATE "
            "SET until_s = excluded.until_s, body = excluded.body "
            "WHERE excluded.until_s >= open_hours.until_s OR excluded.until_s < open_hours.until_s - ?"
        )
        with _translated():
            self._file.execute(keep, (cluster, hours.until_s, hours.body, AHEAD_S))

    def open_hours(self, cluster: str) -> OpenHours | None:
        """What was kept last."""
        with _translated():
            row = self._file.execute("SELECT until_s, body FROM open_hours WHERE cluster = ?", (cluster,)).fetchone()
        return OpenHours(float(row[0]), bytes(row[1])) if row is not None else None

    def clusters(self) -> Sequence[str]:
        """The names of all clusters that have written here."""
        with _translated():
            opened = [name for (name,) in self._file.execute("SELECT cluster FROM open_hours")]
        return sorted({*self._written(), *opened})

    def _written(self) -> Sequence[str]:
        """The clusters that have records, in order: each is looked for behind the last, without reading its records."""
        with _translated():
            return [name for (name,) in self._file.execute(_CLUSTERS)]

    def forget_before(self, at_s: float) -> None:
        """Forget records of hours that began earlier, and earlier starts."""
        with _translated():
            for name in self._written():
                self._file.execute("DELETE FROM records WHERE cluster = ? AND hour_s < ?", (name, at_s))
            self._file.execute("DELETE FROM starts WHERE running_s < ?", (at_s,))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _record(row: Sequence[Any]) -> LedgerRecord:
    values = list(row)
    values[_AT] = bool(values[_AT])
    return LedgerRecord(*values)


@contextmanager
def _translated() -> Iterator[None]:
    """Errors of SQLite as the port's: locks and full volumes may pass, a file that is damaged or no ledger does not."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise LedgerError(f"the ledger's file: {error}") from error
    except sqlite3.DatabaseError as error:
        raise LedgerError(f"the ledger's file: {error}", transient=False) from error
    except OSError as error:
        raise LedgerError(f"the ledger's file: {error}") from error
