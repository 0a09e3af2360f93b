"""Durations as Go writes them (`time.ParseDuration`), which annotations of upstream hold: `1h30m`, `1.5h`, `300ms`."""

import re
from typing import Final

_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(h|ms|us|µs|ns|m|s)", re.ASCII)
_DURATION: Final = re.compile(rf"\+?(?:{_PART.pattern})+", re.ASCII)
_UNIT_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def go_duration_s(text: str) -> float | None:
    """Returns a duration in seconds; None where the text is none, or a negative one."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(amount) * _UNIT_S[unit] for amount, unit in _PART.findall(text))
