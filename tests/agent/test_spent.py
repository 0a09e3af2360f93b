"""What is read of the ledger for the page: the cost of gangs, and months, a day at a time and the latest first."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from agent.spent import GANGS_KEPT, Spending
from fleet.cost.machine_use import IDLE
from fleet.cost.open_hours import MeterState
from fleet.cost.records import HOUR_S, LedgerRecord, MachineSpan, Segment
from fleet.cost.statement import Month, statement
from fleet.snapshot import Snapshot
from providers.store.port import LedgerError, OpenHours
from providers.store.sqlite import SqliteLedger
from tests.fleet.cost.test_records import use
from tests.providers.store.contract import record
from tests.support.fleets import gang

NOW_S = datetime(2026, 12, 3, 6, 30, tzinfo=UTC).timestamp()
CUT_S = NOW_S // HOUR_S * HOUR_S
OLD = gang("old", namespace="a", created_s=CUT_S - 40 * 24 * HOUR_S)
NEW = gang("new", namespace="a", created_s=CUT_S - 3 * HOUR_S)
AGES_AGO_S = CUT_S - 300 * 24 * HOUR_S


def hours(last_s: float, count: int, uid: str, **more: object) -> Iterator[LedgerRecord]:
    for n in range(count):
        one = record(f"i-{uid}", 0, uid, team="a", name=uid, namespace="a", cost_micro_usd=2_000_000)
        yield replace(one, hour_s=last_s - n * HOUR_S, **more)  # type: ignore[arg-type]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    it = SqliteLedger(tmp_path / "ledger.db")
    last_s = CUT_S - HOUR_S
    it.append([*hours(last_s, 40 * 24, OLD.uid), *hours(last_s, 3, NEW.uid, borrowed=True), *hours(last_s, 60, IDLE)])
    it.append(list(hours(AGES_AGO_S, 5, "gone", team="b")))
    yield it
    it.close()


def seen(now_s: float = NOW_S) -> Snapshot:
    return Snapshot(now_s=now_s, gangs={it.uid: it for it in (OLD, NEW)})


def test_days_are_read_one_by_one_until_all_is_known(ledger: SqliteLedger) -> None:
    spending, units = Spending(lambda: ledger, "c", 12), 1
    assert (spending.usd(NEW.uid), spending.months()) == (None, ())
    assert spending.read(seen())
    assert (spending.usd(NEW.uid), spending.usd(OLD.uid)) == (6.0, None), "of the older the first days are not read yet"
    assert [it.name for it in spending.months()] == ["2026-12"]
    while spending.read(seen()):
        units += 1
    assert 40 < units < 70, "a day a unit, and months without records at once"
    assert (spending.usd(OLD.uid), spending.usd("gone")) == (40 * 24 * 2.0, None)
    assert [it.name for it in spending.months()] == ["2026-12", "2026-11", "2026-10", "2026-02"]


def test_months_are_those_of_the_statements(ledger: SqliteLedger) -> None:
    spending = Spending(lambda: ledger, "c", 12)
    while spending.read(seen()):
        pass
    for past in spending.months():
        month = Month.named(past.name)
        whole = statement(ledger.read(month.begin_s, month.end_s), month, ["team"], month.end_s)
        for team, line in past.teams.items():
            other = whole.lines[team,]
            assert (line.cost, line.borrowed, line.gpu_s) == (other.cost, other.borrowed, other.gpu_s)
        assert past.teams.keys() == {key[0] for key in whole.lines}
        assert past.from_s == month.begin_s
        assert sum(it.usd for it in past.gangs) * 1e6 == sum(
            line.cost for team, line in past.teams.items() if team != IDLE
        )


def test_what_is_written_and_open_since_counts_once(ledger: SqliteLedger) -> None:
    spending = Spending(lambda: ledger, "c", 12)
    while spending.read(seen()):
        pass
    ledger.append(list(hours(CUT_S, 1, NEW.uid)))
    spans = {"i-9": MachineSpan((Segment(CUT_S + HOUR_S, replace(use(machine="i-9"), holdings=())),))}
    state = MeterState("c", spans, CUT_S + 1.5 * HOUR_S, CUT_S + HOUR_S)
    ledger.keep_open("c", OpenHours(state.until_s, msgspec.json.encode(state)))
    for _ in range(3):
        spending.read(seen(CUT_S + 2 * HOUR_S))
        assert (spending.usd(NEW.uid), spending.known_until_s) == (8.0, state.until_s)


def test_of_many_gangs_the_dearest_are_kept(ledger: SqliteLedger) -> None:
    many = [
        replace(it, cost_micro_usd=n)
        for n in range(GANGS_KEPT + 50)
        for it in hours(AGES_AGO_S, 1, f"g{n:05d}", team="b")
    ]
    ledger.append(many)
    spending = Spending(lambda: ledger, "c", 12)
    while spending.read(seen()):
        pass
    old = spending.months()[-1]
    assert len(old.gangs) == GANGS_KEPT
    assert old.gangs[0].gang == "a/gone"
    assert old.gangs[1].gang == f"a/g{GANGS_KEPT + 49:05d}"
    assert old.teams["b"].cost == 10 * 10**6 + sum(range(GANGS_KEPT + 50))


def test_a_ledger_that_cannot_be_read_is_opened_anew(ledger: SqliteLedger) -> None:
    tries = []

    def opened() -> SqliteLedger:
        tries.append(1)
        if len(tries) < 3:
            raise LedgerError("not now")
        return ledger

    spending = Spending(opened, "c", 12)
    assert [spending.read(seen()) for _ in range(3)] == [False, False, True]
    assert spending.usd(NEW.uid) == 6.0


def test_a_new_agent_does_not_warn_of_a_ledger_that_is_still_to_be_made(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    spending = Spending(lambda: SqliteLedger(path, read_only=True), "c", 12)
    with capture_logs() as logs:
        assert not spending.read(seen())
        path.touch()
        assert not spending.read(seen())
    assert [(it["event"], it["log_level"]) for it in logs] == [("no_ledger_yet", "info")] * 2
