"""Durations as Go reads them."""

import pytest

from model.upstream.durations import go_duration_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("+2m", 120.0),
        ("300ms", 0.3),
        ("5us", 5e-6),
        ("5µs", 5e-6),
        ("1m1m", 120.0),
        ("", None),
        ("true", None),
        ("10", None),
        ("-10s", None),
        ("1d", None),
        ("1h 2m", None),
        ("٣s", None),
    ],
)
def test_go_durations(text: str, seconds: float | None) -> None:
    assert go_duration_s(text) == (None if seconds is None else pytest.approx(seconds))
