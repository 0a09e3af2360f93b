"""The ledger in SQLite: the contract, and what is its own: kills, versions, bounds, readers beside the writer."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.store.port import Ledger, LedgerError, NoLedgerYet, OpenHours
from providers.store.sqlite import MIGRATIONS, SqliteLedger
from tests.providers.store.contract import H0, LedgerContract, record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "ledger.db"


class TestSqliteLedger(LedgerContract):
    @pytest.fixture
    def ledger(self, path: Path) -> Iterator[Ledger]:
        made = SqliteLedger(path)
        yield made
        made.close()

    def test_it_is_all_there_after_a_restart(self, path: Path, ledger: Ledger) -> None:
        ledger.append([record()])
        ledger.keep_open("c", OpenHours(5.0, b"x"))
        ledger.close()
        again = SqliteLedger(path)
        assert (self.held(again), again.open_hours("c")) == ([record()], OpenHours(5.0, b"x"))
        again.close()

    def test_a_reader_stands_beside_the_writer_and_changes_nothing(self, path: Path, ledger: Ledger) -> None:
        ledger.append([record("i-0")])
        reader = SqliteLedger(path, read_only=True)
        ledger.append([record("i-1")])
        assert [it.machine for it in self.held(reader)] == ["i-0", "i-1"]
        with pytest.raises(LedgerError, match="readonly"):
            reader.append([record("i-2")])
        reader.close()

    def test_another_writer_is_waited_for_and_then_told_of(
        self, path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("providers.store.sqlite.BUSY_S", 0.01)
        late = SqliteLedger(path)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="locked") as caught:
            late.append([record()])
        assert caught.value.transient
        other.execute("ROLLBACK")
        assert late.append([record()]) == 1
        other.close()
        late.close()


KILLED = """
import os, sys
from pathlib import Path
from providers.store.sqlite import SqliteLedger
from tests.providers.store.contract import record
ledger = SqliteLedger(Path(sys.argv[1]))
ledger.append([record("i-whole", n) for n in range(3)])
class Killing:
    def execute(self, *a): return self.inner.execute(*a)
    def executemany(self, statement, rows):
        self.inner.executemany(statement, rows)
        self.count += 1
        if self.count > 250: os._exit(9)
    def __init__(self, inner): self.inner, self.count = inner, 0
ledger._file = Killing(ledger._file)
ledger.append([record("i-half", n) for n in range(500)])
"""


def test_a_kill_in_the_middle_leaves_all_of_a_call_or_nothing(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False, timeout=60)
    assert done.returncode == 9
    ledger = SqliteLedger(path)
    assert [it.machine for it in ledger.read(0, 2 * H0)] == ["i-whole"] * 3
    assert ledger.append([record("i-half", n) for n in range(500)]) == 500
    ledger.close()


def test_every_version_is_brought_to_the_newest(path: Path) -> None:
    path.parent.mkdir()
    for version in range(len(MIGRATIONS)):
        path.unlink(missing_ok=True)
        old = sqlite3.connect(path)
        for statements in MIGRATIONS[:version]:
            for statement in statements:
                old.execute(statement)
        old.execute(f"PRAGMA user_version = {version}")
        old.commit()
        old.close()
        if version:
            with pytest.raises(LedgerError, match="older version"):
                SqliteLedger(path, read_only=True)
        ledger = SqliteLedger(path)
        assert ledger.append([record()]) == 1
        ledger.close()


def test_a_newer_version_is_left_alone(path: Path) -> None:
    SqliteLedger(path).close()
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    newer.close()
    with pytest.raises(LedgerError, match="use the newer one") as caught:
        SqliteLedger(path)
    assert not caught.value.transient


def test_what_is_no_ledger_is_told_and_not_overwritten(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(LedgerError) as caught:
        SqliteLedger(path)
    assert not caught.value.transient
    assert path.read_bytes().startswith(b"something else")


def test_a_full_ledger_is_told_of_and_stays_readable(path: Path) -> None:
    ledger = SqliteLedger(path, most_mib=1)

    def fill() -> None:
        for hour in range(100):
            ledger.append([record(f"i-{n}", hour) for n in range(100)])

    with pytest.raises(LedgerError, match="full"):
        fill()
    before = len(list(ledger.read(0, 2 * H0)))
    assert before % 100 == 0
    assert before > 0
    ledger.close()


def test_a_reader_needs_a_file(path: Path) -> None:
    with pytest.raises(NoLedgerYet, match="there is no ledger at"):
        SqliteLedger(path, read_only=True)
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(NoLedgerYet, match="has not written to it yet"):
        SqliteLedger(path, read_only=True)
