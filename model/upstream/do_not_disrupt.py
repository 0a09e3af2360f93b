"""`karpenter.sh/do-not-disrupt`: `true`, or a duration from the start of what it protects (`2h`)."""

from collections.abc import Iterable
from math import inf

from model.upstream.durations import go_duration_s

FOR_GOOD = "true"


def lasts_s(value: str) -> float:
    """Returns for how long a value of the annotation protects, in seconds; inf = for good, 0 = not at all.

    What is neither `true` nor a duration protects nothing.
    """
    return inf if value == FOR_GOOD else go_duration_s(value) or 0.0


def protected(value: str, since_s: float, now_s: float) -> bool:
    """Returns whether a value of the annotation still holds for what has started at `since_s` (epoch seconds)."""
    return now_s < since_s + lasts_s(value)


def longest(values: Iterable[str]) -> str:
    """Returns the value that protects longest; empty where none protects."""
    found = max(values, key=lasts_s, default="")
    return found if lasts_s(found) else ""
