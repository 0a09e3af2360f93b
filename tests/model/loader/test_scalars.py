"""No plain scalar changes its type behind the writer's back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.loader.scalars import explain_text, resolve

RESOLVED = [
    ("", None),
    ("~", None),
    ("null", None),
    ("true", True),
    ("True", True),
    ("FALSE", False),
    ("0", 0),
    ("-12", -12),
    ("+5", 5),
    ("999999999999999999", 999999999999999999),
    ("1.5", 1.5),
    ("-0.25", -0.25),
    (".5", 0.5),
    ("1.", 1.0),
]
TEXT = [
    *("yes", "Yes", "NO", "on", "Off", "y", "N"),
    *("012", "-007", "0o14", "0x1F", "0b11", "1_000", "1_0.5", "1e3", "1E-3", "1.5e3", "6.02E+23"),
    *(".inf", "-.Inf", ".NaN", "12:30", "12:30:45", "1:1", "2026-01-31", "2026-01-31T00:00:00Z"),
    *("9999999999999999999", "0.1000000000000000055", "9" * 5000),
]
PLAIN_WORDS = [
    "p5.48xlarge",
    "1g.10gb",
    "us-east-1a",
    "10%",
    "30s",
    "8Gi",
    "-",
    "+",
    ".",
    "..",
    "nullable",
    "truex",
    "a",
]


@pytest.mark.parametrize(("text", "value"), RESOLVED)
def test_resolved(text: str, value: object) -> None:
    found = resolve(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", TEXT)
def test_ambiguous_scalars_stay_text_and_are_explained(text: str) -> None:
    assert resolve(text) == text
    assert explain_text(text).startswith(text)


@pytest.mark.parametrize("text", PLAIN_WORDS)
def test_words_are_text_without_comment(text: str) -> None:
    assert resolve(text) == text
    assert explain_text(text) == ""


@given(st.integers(-(10**17), 10**17))
def test_integers(number: int) -> None:
    assert resolve(str(number)) == number


@given(st.text(max_size=20))
def test_total(text: str) -> None:
    value = resolve(text)
    assert value is None or isinstance(value, bool | int | float | str)
    if isinstance(value, str):
        assert value == text
