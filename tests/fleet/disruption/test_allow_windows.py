"""Allow windows: outside of them what they name stops, and the end of that is known."""

from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest

from fleet.disruption import ended_window, frozen_until
from fleet.scheduling.prefilter import frozen
from model.fleet import Fleet
from model.loader import load
from tests.agent.scenes import doc, files, pool, queue, team

NIGHTS = {"name": "nights", "schedule": "0 22 * * *", "duration": "6h", "timeZone": "Europe/Berlin"}


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def fleet(**policy: Any) -> Fleet:
    declared = files(pool(), team(), queue(), doc("FleetPolicy", "p", **policy))
    return load({path: text.encode() for path, text in declared.items()})


@pytest.mark.parametrize(
    ("policy", "now", "words", "until"),
    [
        ({"allowWindows": [NIGHTS]}, "2026-01-15T12:00", "no allow window (nights) is open", "2026-01-15T21:00"),
        ({"allowWindows": [NIGHTS]}, "2026-01-15T22:00", "", "2026-01-15T22:00"),
        ({"allowWindows": [{**NIGHTS, "allows": ["Disruption"]}]}, "2026-01-15T12:00", "", "2026-01-15T12:00"),
        ({"allowWindows": [NIGHTS], "freezeWindows": [{"name": "late", "schedule": "0 20 * * *", "duration": "2h"}]},
         "2026-01-15T21:30", "freeze window late is open", "2026-01-15T22:00"),
        ({"allowWindows": [NIGHTS], "freezeWindows": [{"name": "long", "schedule": "0 20 * * *", "duration": "8h"}]},
         "2026-01-15T21:30", "freeze window long is open", None),  # every night lies within it
        ({"allowWindows": [NIGHTS], "freezeWindows": [{"name": "all", "schedule": "* * * * *", "duration": "2h"}]},
         "2026-01-15T21:30", "freeze window all is open", None),
    ],
)  # fmt: skip
def test_what_holds_revisions_back_and_until_when(
    policy: dict[str, Any], now: str, words: str, until: str | None
) -> None:
    assert frozen_until(fleet(**policy), at(now), "Sync") == (words, at(until) if until else inf)


def test_a_machine_goes_once_a_window_opens() -> None:
    nights = fleet(allowWindows=[NIGHTS])
    assert frozen(nights, at("2026-01-15T20:59"), "Disruption")
    assert not frozen(nights, at("2026-01-15T21:00"), "Disruption")
    told = ended_window(nights, "h100", "drift", at("2026-01-15T21:01"), 300.0)
    assert told == "the time before allow window 'nights'"
    assert ended_window(nights, "h100", "drift", at("2026-01-15T23:01"), 300.0) == ""
