"""The contract of a ledger, whichever store it is in."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from fleet.cost.indicators import as_numbers, indicators
from fleet.cost.machine_use import IDLE, NOT_READY
from fleet.cost.records import HOUR_S, LedgerRecord, StartRecord
from fleet.cost.statement import DIMENSIONS, Month, fields_of, statement
from fleet.cost.sums import used_hours
from fleet.reasons import Reason
from providers.store.port import Ledger, OpenHours

H0 = 1_791_000_000 // 3600 * HOUR_S
"""An hour in October 2026."""


def record(machine: str = "i-0", hour: int = 0, subject: str = IDLE, **more: Any) -> LedgerRecord:
    facts: dict[str, Any] = {
        "cluster": "c",
        "team": "",
        "borrowed": False,
        "name": "g",
        "namespace": "ns",
        "queue": "q",
        "user": "",
        "node_pool": "h100",
        "instance_type": "p5.48xlarge",
        "zone": "us-east-1a",
        "capacity_type": "on-demand",
        "reservation": "",
        "gpu": "h100",
        "devices": "8 nvidia.com/gpu",
        "held_s": 3600.0,
        "gpu_s": 28_800.0,
        "cost_micro_usd": 55_040_000,
        "lost_s": 0.0,
        "lost_micro_usd": 0,
        "usd_h": 55.04,
        "price_source": "Pricing API",
        "priced_at_s": H0 - 60,
    }
    return LedgerRecord(**{**facts, "machine": machine, "hour_s": H0 + hour * HOUR_S, "subject": subject, **more})


def start(uid: str = "u", hour: float = 0, **more: Any) -> StartRecord:
    at_s = H0 + hour * HOUR_S
    facts: dict[str, Any] = {"cluster": "c", "admitted_s": at_s - 60, "running_s": at_s, "submitted_s": at_s - 600}
    facts |= {"reserved_s": at_s - 90, "name": "g", "namespace": "ns", "queue": "q", "team": "t", "again": False}
    return StartRecord(**{**facts, "uid": uid, **more})


def approx_tree(value: Any) -> Any:
    """The same with numbers that need only be nearly so: engines add floats up in another order."""
    if isinstance(value, Mapping):
        return {key: approx_tree(each) for key, each in value.items()}
    return pytest.approx(value) if isinstance(value, float) else value


class LedgerContract:
    """Derive from it, and give it a fresh ledger that is closed afterwards."""

    @pytest.fixture
    def ledger(self) -> Iterator[Ledger]:
        raise NotImplementedError

    def held(self, ledger: Ledger, cluster: str = "", hours: tuple[int, int] = (-(10**5), 10**5)) -> list[LedgerRecord]:
        return list(ledger.read(H0 + hours[0] * HOUR_S, H0 + hours[1] * HOUR_S, cluster))

    def test_what_goes_in_comes_out_as_it_was(self, ledger: Ledger) -> None:
        whole = record(
            subject="uid",
            team="Ä 'team'; --",
            borrowed=True,
            user='"quoted"\n',
            held_s=0.125,
            cost_micro_usd=2**53 + 1,
            lost_s=17.5,
            lost_micro_usd=3,
            priced_at_s=H0 + 0.75,
            reservation="cr-1",
        )
        assert ledger.append([whole]) == 1
        assert self.held(ledger) == [whole]

    def test_nothing_goes_in_twice(self, ledger: Ledger) -> None:
        records = [record(subject=name) for name in ("a", "b", IDLE)]
        assert [ledger.append(records) for _ in range(3)] == [3, 0, 0]
        assert len(self.held(ledger)) == 3

    def test_of_two_who_saw_a_machines_hour_the_first_counts_alone(self, ledger: Ledger) -> None:
        first = [record(subject="a", cost_micro_usd=40), record(subject=IDLE, cost_micro_usd=60)]
        second = [record(subject="b", cost_micro_usd=100)]
        assert (ledger.append(first), ledger.append(second)) == (2, 0)
        assert sum(it.cost_micro_usd for it in self.held(ledger)) == 100

    def test_machines_that_only_the_second_saw_are_added(self, ledger: Ledger) -> None:
        ledger.append([record("i-0", cost_micro_usd=1), record("i-1", cost_micro_usd=2)])
        assert ledger.append([record("i-1", subject="x", cost_micro_usd=9), record("i-2", cost_micro_usd=4)]) == 1
        assert ledger.append([record("i-3", cost_micro_usd=8), record("i-2", subject="y")]) == 1
        assert sum(it.cost_micro_usd for it in self.held(ledger)) == 15

    def test_one_call_may_bring_many_hours(self, ledger: Ledger) -> None:
        records = [record(f"i-{n % 3}", n) for n in range(50)]
        assert ledger.append(records[:30]) == 30
        assert ledger.append(records) == 20
        assert len(self.held(ledger)) == 50

    def test_nothing_is_nothing(self, ledger: Ledger) -> None:
        assert ledger.append([]) == 0
        assert self.held(ledger) == []
        assert ledger.clusters() == []
        assert ledger.open_hours("c") is None

    def test_reads_go_by_hour_and_cluster_in_order_of_key(self, ledger: Ledger) -> None:
        records = [
            record(f"i-{n % 2}", hour, cluster=cluster) for cluster in "ba" for hour in (30, 1, 2) for n in range(2)
        ]
        shuffled = list(records)
        random.Random(1).shuffle(shuffled)
        ledger.append(shuffled)
        assert self.held(ledger, "a", (1, 3)) == [
            record(f"i-{n}", hour, cluster="a") for hour in (1, 2) for n in (0, 1)
        ]
        assert [(it.cluster, it.hour_s, it.machine) for it in self.held(ledger)] == sorted(
            (it.cluster, it.hour_s, it.machine) for it in records
        )
        assert ledger.clusters() == ["a", "b"]
        assert self.held(ledger, "c") == []

    def test_old_hours_are_forgotten_and_no_others(self, ledger: Ledger) -> None:
        ledger.append([record(hour=hour) for hour in (-30, -2, -1, 0, 1, 2)])
        ledger.forget_before(H0)
        assert [it.hour_s for it in self.held(ledger)] == [H0, H0 + HOUR_S, H0 + 2 * HOUR_S]
        ledger.forget_before(H0)
        assert len(self.held(ledger)) == 3

    def test_the_newest_open_hours_are_kept_of_each_cluster(self, ledger: Ledger) -> None:
        for until_s, body in ((10.0, b"one"), (20.0, b"two"), (15.0, b"of one who was deposed"), (20.0, b"three")):
            ledger.keep_open("c", OpenHours(until_s, body))
        ledger.keep_open("d", OpenHours(1.0, b"\x00other"))
        assert ledger.open_hours("c") == OpenHours(20.0, b"three")
        assert ledger.open_hours("d") == OpenHours(1.0, b"\x00other")
        assert ledger.clusters() == ["c", "d"]

    def test_open_hours_of_a_clock_that_was_ahead_are_replaced(self, ledger: Ledger) -> None:
        for until_s, kept_s in ((H0 + 86_400, H0 + 86_400), (H0, H0), (H0 - HOUR_S, H0)):
            ledger.keep_open("c", OpenHours(until_s, b"x"))
            assert ledger.open_hours("c") == OpenHours(kept_s, b"x")

    def test_starts_are_kept_once_and_read_by_time(self, ledger: Ledger) -> None:
        first = [start("b", 1.5), start("a", 1.5), start("a", 30), start("a", 1.5, cluster="d", again=True)]
        for _ in range(2):
            ledger.append_starts(first)
        ledger.append_starts([])
        ledger.append_starts([start("c", 1.75), first[0]])
        ledger.append_starts([replace(first[0], running_s=first[0].running_s + 900)])  # seen by another, later
        found = list(ledger.read_starts(H0, H0 + 24 * HOUR_S))
        assert found == [first[1], first[0], start("c", 1.75), first[3]]
        assert list(ledger.read_starts(H0 + 24 * HOUR_S, H0 + 48 * HOUR_S, "c")) == [first[2]]
        assert ledger.clusters() in ([], ["c", "d"])
        ledger.forget_before(H0 + 24 * HOUR_S)
        assert [it.uid for it in ledger.read_starts(0, 2 * H0)] == ["a"]

    def test_sums_make_the_same_statement_by_everything(self, ledger: Ledger) -> None:
        luck = random.Random(2)
        records = [
            record(
                f"i-{machine}",
                hour,
                luck.choice([IDLE, "u", "v"]),
                cluster=cluster,
                team=luck.choice("ab"),
                user="ada",
                capacity_type=luck.choice(["spot", "on-demand"]),
                cost_micro_usd=luck.randrange(10**8),
                gpu_s=float(luck.randrange(9000)),
                lost_micro_usd=luck.randrange(100),
                borrowed=luck.random() < 0.5,
                priced_at_s=H0 - luck.randrange(9000),
            )
            for cluster in "cd"
            for hour in (0, 1, 30)
            for machine in range(60)
        ]
        ledger.append(records)
        month = Month.of(H0)
        late_s = H0 + 20 * HOUR_S
        for cluster in ("", "c"):
            whole = list(ledger.read(month.begin_s, month.end_s, cluster))
            for names in ([name] for name in DIMENSIONS), [["team", "gang", "day"]]:
                for by in names:
                    summed = list(ledger.sums(month.begin_s, month.end_s, fields_of(by), cluster))
                    one, other = (statement(it, month, by, month.end_s) for it in (whole, summed))
                    assert one == other, by
                    assert len(summed) < len(whole) / 4
                    assert {it.machine for it in summed} == {""}
        assert [ledger.newest_s(month.begin_s, end_s, "c") for end_s in (late_s, month.end_s)] == [
            H0 + HOUR_S,
            H0 + 30 * HOUR_S,
        ]
        assert ledger.newest_s(month.begin_s, month.end_s, "nobody") is None
        assert list(ledger.sums(month.begin_s, month.end_s, ("team",), "nobody")) == []

    def test_hours_of_machines_make_the_same_report(self, ledger: Ledger) -> None:
        luck = random.Random(3)
        records = [
            record(
                f"i-{machine}",
                hour,
                subject,
                cluster=cluster,
                gpu=["h100", "a100", ""][machine % 3],
                capacity_type=["spot", "on-demand"][machine % 2],
                ended=["", str(Reason.INTERRUPTED), "Empty"][machine % 3 if hour == 30 else 0],
                held_s=float(luck.randrange(1, 3600)),
                gpu_s=float(luck.randrange(9000)) if machine % 3 < 2 else 0.0,
                cost_micro_usd=luck.randrange(10**8),
                lost_s=luck.choice([0.0, 0.0, 900.0]),
                lost_micro_usd=luck.randrange(100),
            )
            for cluster in "cd"
            for hour in (0, 1, 30)
            for machine in range(30)
            for subject in luck.choice([(IDLE,), ("u", "v"), ("u", IDLE), (NOT_READY,), ("u", NOT_READY)])
        ]
        ledger.append(records)
        for cluster in ("", "c"):
            found = indicators(ledger.used_hours(0, 2 * H0, cluster), ())
            whole = indicators(used_hours(ledger.read(0, 2 * H0, cluster)), ())
            assert as_numbers(found) == approx_tree(as_numbers(whole))
            assert whole.evictions > 0 < whole.interruptions

    def test_machines_hours_of_a_call_keep_their_own_parts(self, ledger: Ledger) -> None:
        parts = [record(subject=f"g{n}", team=team, borrowed=bool(n % 2)) for n in range(4) for team in ("t", "u")]
        assert ledger.append(parts) == 8
        assert {it.key for it in self.held(ledger)} == {it.key for it in parts}
        assert ledger.append([replace(parts[0], cost_micro_usd=1)]) == 0
