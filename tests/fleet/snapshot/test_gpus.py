"""What is kept of dcgm-exporter's readings: a window, in bounded memory, and faults for as long as they are told."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.snapshot import gpus
from fleet.snapshot.gpus import (
    FORGOTTEN_AFTER_S,
    FRESH_S,
    ComplaintKind,
    GpuComplaint,
    GpuReading,
    GpuRecord,
    GpuScrape,
    MeasuredUse,
    UseTally,
)

ONE = GpuReading("n1", "GPU-1", "", "", "NVIDIA A100-SXM4-80GB", "ns", "a", 0.5, 1000.0, 80000.0)
XID = GpuComplaint("GPU-1", ComplaintKind.XID, 79)


def measured(*seen: tuple[float, float, float], window_s: float = 3600.0) -> MeasuredUse:
    """Of readings (when, active, MiB)."""
    tally = UseTally(window_s)
    for at_s, active, mib in seen:
        tally.see(at_s, replace(ONE, active=active, used_mib=mib))
    found = tally.measured()
    assert found is not None
    return found


def test_what_was_used_is_a_level_a_mean_and_the_most_memory() -> None:
    found = measured(*((30.0 * at, 0.9 if at == 7 else 0.2, 500.0 + at) for at in range(40)))
    assert (found.readings, found.from_s, found.until_s) == (40, 0.0, 1170.0)
    assert found.active == 0.2, "19 of 20 readings had no more"
    assert found.mean == pytest.approx((39 * 0.2 + 0.9) / 40)
    assert found.most_mib == 539.0


def test_a_tally_forgets_what_is_older_than_its_window() -> None:
    found = measured((0.0, 1.0, 9000.0), *((600.0 * at, 0.1, 10.0) for at in range(1, 20)))
    assert found.active == 0.1
    assert found.most_mib == 10.0
    assert 3600.0 <= found.until_s - found.from_s <= 3600.0 * 7 / 6


@pytest.mark.parametrize(
    ("seen", "since_s", "readings"),
    [
        pytest.param([(0, 0.0), (30, 0.0), (60, 0.0)], 0.0, 3, id="from the first"),
        pytest.param([(0, 0.5), (30, 0.001), (60, 0.0)], 30.0, 2, id="since it was busy last"),
        pytest.param([(0, 0.0), (30, 0.0), (60, 0.01)], None, 0, id="busy now"),
        pytest.param([(0, 0.0), (30 + FRESH_S, 0.0)], 30.0 + FRESH_S, 1, id="what is between readings is not known"),
        pytest.param([(0, 0.0), (FRESH_S, 0.0)], 0.0, 2, id="a reading late is no gap"),
    ],
)
def test_since_when_it_is_idle(seen: list[tuple[float, float]], since_s: float | None, readings: int) -> None:
    found = measured(*((at_s, active, 1.0) for at_s, active in seen))
    assert (found.idle_from_s, found.idle_readings) == (since_s, readings)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(1, 900), st.floats(0, 1), st.floats(0, 1e5)), min_size=1, max_size=80))
def test_a_tally_says_what_the_readings_of_its_slots_say(steps: list[tuple[float, float, float]]) -> None:
    at_s, seen = 0.0, []
    for gap_s, active, mib in steps:
        at_s += gap_s
        seen.append((at_s, active, mib))
    found = measured(*seen)
    kept = [it for it in seen if it[0] >= found.from_s]
    assert found.readings == len(kept)
    assert found.most_mib == max(it[2] for it in kept)
    assert found.mean == pytest.approx(sum(it[1] for it in kept) / len(kept))
    enough = sum(it[1] <= found.active + 1e-9 for it in kept)
    assert enough >= 0.95 * len(kept) - 1e-6
    assert sum(it[1] <= found.active - 0.011 for it in kept) < 0.95 * len(kept)


def test_a_reading_that_is_late_or_tells_nothing_is_left_out() -> None:
    tally = UseTally()
    tally.see(60.0, ONE)
    tally.see(60.0, replace(ONE, active=1.0))
    tally.see(90.0, replace(ONE, active=None))
    found = tally.measured()
    assert found is not None
    assert (found.readings, found.active) == (1, 0.5)


def test_uses_are_by_pod_and_an_exporter_tells_of_its_own_node_only() -> None:
    record = GpuRecord(3600.0)
    other = replace(ONE, gpu="GPU-2")
    record.take({"n1": GpuScrape((ONE, other, replace(ONE, node="n2", pod="b"), replace(ONE, pod="")))}, 30.0)
    assert {pod: [it.last.gpu for it in uses] for pod, uses in record.uses.items()} == {"ns/a": ["GPU-1", "GPU-2"]}


def test_who_is_not_told_of_for_long_is_forgotten() -> None:
    record = GpuRecord(3600.0)
    record.take({"n1": GpuScrape((ONE,), (XID,))}, 30.0)
    record.take({}, 30.0 + FORGOTTEN_AFTER_S)
    assert list(record.uses) == ["ns/a"]
    assert list(record.faults) == ["n1"], "a machine may fall silent with its fault"
    record.take({}, 31.0 + FORGOTTEN_AFTER_S)
    assert (record.uses, record.faults) == ({}, {})


def test_of_more_pods_than_are_kept_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "MOST_HOLDERS", 2)
    record = GpuRecord(3600.0)
    record.take({"n1": GpuScrape(tuple(replace(ONE, pod=it) for it in "abc"))}, 30.0)
    assert list(record.uses) == ["ns/a", "ns/b"]


def test_a_fault_lasts_from_when_it_was_first_told_until_it_is_not() -> None:
    record = GpuRecord(3600.0)
    for at_s in (30.0, 60.0):
        record.take({"n1": GpuScrape((), (XID,))}, at_s)
    assert [(it.since_s, it.complaint.code) for it in record.faults["n1"]] == [(30.0, 79)]
    before = record.faults
    record.take({"n1": GpuScrape((), (XID,))}, 90.0)
    assert record.faults is before, "nobody has to decide anew"
    record.take({"n1": GpuScrape((), (XID._replace(code=31),))}, 120.0)
    assert [(it.since_s, it.complaint.code) for it in record.faults["n1"]] == [(120.0, 31)]
    record.take({"n1": GpuScrape()}, 150.0)
    assert record.faults == {}
