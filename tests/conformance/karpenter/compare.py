"""What of a case is compared, and how: all that is expected, by the name it goes by."""

from collections.abc import Callable, Mapping
from math import isclose
from typing import Any

Same = Callable[[Any, Any], bool]


def same(expected: Any, got: Any) -> bool:
    """Whether everything expected came. An adapter may know more than a case asks."""
    return all(name in got and COMPARE.get(name, _equal)(value, got[name]) for name, value in _told(expected).items())


def _told(expected: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in expected.items() if name != "note"}


def _equal(expected: Any, got: Any) -> bool:
    if isinstance(expected, float) and isinstance(got, int | float):
        return isclose(expected, got, rel_tol=1e-9, abs_tol=1e-9)
    return bool(expected == got)


def _at_least(expected: int, got: int) -> bool:
    return got >= expected


def _contains(expected: str, got: str) -> bool:
    return expected in got


def _bag(expected: list[Any], got: list[Any]) -> bool:
    return sorted(expected) == sorted(got)


def _listed_or_counted(expected: Any, got: list[str]) -> bool:
    """`launched` is a list of types in some cases, a number of machines in others."""
    return len(got) == expected if isinstance(expected, int) else sorted(got) == sorted(expected)


def _told_of(expected: list[str], got: list[str]) -> bool:
    """Each text is part of something that was said."""
    return all(any(text in said for said in got) for text in expected)


def _rounded(expected: Any, got: Any) -> bool:
    """Scores are written with four digits behind the point."""
    if isinstance(expected, str) or isinstance(got, str):
        return str(expected).strip("+").lower()[:3] == str(got).strip("+").lower()[:3]
    return isclose(expected, got, rel_tol=0.0, abs_tol=5e-5)


def _below(expected: float, got: float) -> bool:
    return got < expected


def _above(expected: float, got: float) -> bool:
    return got > expected


def _instant(expected: str, got: str) -> bool:
    """Now, or some other one that was there before."""
    return (expected == "now") == (got == "now")


def _all_met(expected: Any, got: Any) -> bool:
    """The adapter has checked it and says whether it holds."""
    return got is True


COMPARE: Mapping[str, Same] = {
    "cost_gt": _above,
    "cost_lt": _below,
    "error_contains": _contains,
    "event_contains": _told_of,
    "every_launch_option_matches": _all_met,
    "launch_instance_types_exactly": _bag,
    "launched": _listed_or_counted,
    "message_contains": _contains,
    "min_instance_types_per_launch": _at_least,
    "pods_at_least": _at_least,
    "pods_per_domain_unordered": _bag,
    "score": _rounded,
    "score_balanced_pool": _rounded,
    "terminated": _bag,
    "termination_timestamp": _instant,
}
