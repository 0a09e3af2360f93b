"""How long a do-not-disrupt protects."""

import pytest

from model.upstream.do_not_disrupt import longest, protected


@pytest.mark.parametrize(
    ("value", "for_s"),
    [
        ("10s", 10),
        ("1h30m", 5400),
        ("1.5m", 90),
        ("500ms", 0.5),
        ("+2m", 120),
        ("", 0),
        ("false", 0),
        ("5", 0),
        ("5x", 0),
    ],
)
def test_a_duration_protects_for_so_long(value: str, for_s: float) -> None:
    assert not for_s or protected(value, 0.0, for_s - 0.01)
    assert not protected(value, 0.0, for_s)


def test_for_good() -> None:
    assert protected("true", 0.0, 1e12)


@pytest.mark.parametrize(
    ("values", "expected"),
    [((), ""), (("", "false"), ""), (("90m", "1h", ""), "90m"), (("2h", "true"), "true"), (("5x", "1s"), "1s")],
)
def test_of_several_the_longest_protects(values: tuple[str, ...], expected: str) -> None:
    assert longest(values) == expected
