"""Schedules in time zones: every opening once, whatever the clocks do."""

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.cron import Cron, UnknownTimeZone

BERLIN = "Europe/Berlin"


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "opens"),
    [
        ("0 9 * * *", BERLIN, "2026-01-15T07:00:00", "2026-01-15T08:00:00"),
        ("0 9 * * *", BERLIN, "2026-07-15T06:30:00", "2026-07-15T07:00:00"),
        ("30 9 * * *", "Asia/Kolkata", "2026-01-15T00:00:00", "2026-01-15T04:00:00"),
        ("0 22 * * fri", "America/New_York", "2026-11-20T12:00:00", "2026-11-21T03:00:00"),
        # 2026-03-29, 02:00 -> 03:00: what is left out opens an hour later
        ("30 2 * * *", BERLIN, "2026-03-29T00:00:00", "2026-03-29T01:30:00"),
        ("30 2 * * *", BERLIN, "2026-03-29T01:10:00", "2026-03-29T01:30:00"),
        ("30 2 * * *", BERLIN, "2026-03-29T01:30:00", "2026-03-30T00:30:00"),
        # 2026-10-25, 03:00 -> 02:00: what comes twice opens the first time
        ("30 2 * * *", BERLIN, "2026-10-24T23:00:00", "2026-10-25T00:30:00"),
        ("30 2 * * *", BERLIN, "2026-10-25T00:30:00", "2026-10-26T01:30:00"),
    ],
)  # fmt: skip
def test_the_next_opening_in_a_zone(schedule: str, zone: str, after: str, opens: str) -> None:
    assert Cron.parse(schedule, zone).next_after(at(after)) == at(opens)


def test_a_zone_that_there_is_not() -> None:
    with pytest.raises(UnknownTimeZone, match="Europe/Atlantis"):
        Cron.parse("0 0 * * *", "Europe/Atlantis")


@given(
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Santiago"]),
    st.sampled_from(["30 2 * * *", "*/20 * * * *", "0 0 * * *", "15 1-3 * * sun"]),
    st.integers(int(at("2026-01-01")), int(at("2027-12-31"))),
)
def test_openings_rise_and_none_lies_between_two(zone: str, schedule: str, began_s: int) -> None:
    cron, clock = Cron.parse(schedule, zone), ZoneInfo(zone)
    openings = [float(began_s)]
    for _ in range(8):
        found = cron.next_after(openings[-1])
        assert found is not None
        openings.append(found)
    for before_s, opens_s in pairwise(openings):
        assert before_s < opens_s
        middle_s = (before_s + opens_s) / 2
        assert cron.next_after(middle_s) == opens_s, datetime.fromtimestamp(middle_s, clock)
