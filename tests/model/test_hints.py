"""Suggestions for near misses."""

import pytest

from model.hints import did_you_mean, listing, near


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("zonez", ["zones", "weight"], "zones"),
        ("instance_types", ["instanceTypes", "instanceFamilies"], "instanceTypes"),
        ("CAPACITYTYPES", ["capacityTypes"], "capacityTypes"),
        ("h100", ["h100-94gb", "h100-80gb", "a100-80gb"], "h100-80gb"),
        ("wholly", ["zones", "weight"], None),
        ("zones", ["zones"], None),
        ("x", [], None),
        ("x", ["xylophone"], None),
        ("a" * 500, ["a" * 499], None),
        ("name-5", [f"name-{number:04}" for number in range(1000)], None),
    ],
)
def test_near(word: str, known: list[str], expected: str | None) -> None:
    assert near(word, known) == expected
    assert did_you_mean(word, known) == (f"did you mean {expected!r}?" if expected else "")


@pytest.mark.parametrize(
    ("names", "expected"),
    [([], "nothing"), (["b", "a"], "'a', 'b'"), (["c", "b", "a"], "'a', 'b' and 1 more")],
)
def test_listing(names: list[str], expected: str) -> None:
    assert listing(names, most=2) == expected
