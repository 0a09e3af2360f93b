"""Kubernetes quantities, against apimachinery's own table and as exact arithmetic."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.quantity import (
    InvalidQuantity,
    canonical_amount,
    canonical_resources,
    devices_in_sight,
    format_amount,
    parse_quantity,
)

GPU, THIN, THICK = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"

# Values of apimachinery pkg/api/resource/quantity_test.go (TestQuantityParse and neighbours).
PARSED = [
    ("0", 0),
    ("0n", 0),
    ("0Ki", 0),
    ("1n", Fraction(1, 10**9)),
    ("1u", Fraction(1, 10**6)),
    ("1m", Fraction(1, 1000)),
    ("1", 1),
    ("1k", 1000),
    ("1M", 10**6),
    ("1G", 10**9),
    ("1T", 10**12),
    ("1P", 10**15),
    ("1E", 10**18),
    ("1Ki", 1024),
    ("1Mi", 1024**2),
    ("1Gi", 1024**3),
    ("1Ti", 1024**4),
    ("1Pi", 1024**5),
    ("1Ei", 1024**6),
    ("8Ki", 8192),
    ("1e3", 1000),
    ("1E3", 1000),
    ("1e+3", 1000),
    ("1E-3", Fraction(1, 1000)),
    ("100.035k", 100035),
    ("0.5Mi", 524288),
    ("0.05Gi", Fraction(1024**3, 20)),
    (".5", Fraction(1, 2)),
    ("5.", 5),
    ("+5", 5),
    ("-5", -5),
    ("-1.5Ki", -1536),
    ("1.1E-6", Fraction(11, 10**7)),
    (8, 8),
    (1.5, Fraction(3, 2)),
    (0.1, Fraction(1, 10)),
    (1e-7, Fraction(1, 10**7)),
]
REFUSED = [
    *("", " ", "1 ", "1,5", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "1KiB", "1GB", "Ki"),
    *("1e", "1e3Ki", "12:30", "٣", "1_000", "0x10", "NaN", "inf", ".", "+", "1e9999", "9" * 65),
    *(True, None, [], float("nan"), float("inf")),
]


@pytest.mark.parametrize(("text", "value"), PARSED)
def test_parse(text: str | float, value: Fraction | int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(InvalidQuantity):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "1500m", 1500),
        ("cpu", "0.0001", 1),  # rounded up, never down to nothing
        ("cpu", "1n", 1),
        ("memory", "1Ki", 1024),
        ("memory", "1m", 1),
        ("memory", "1.5", 2),
        ("memory", "128974848", 128974848),
        ("memory", "129e6", 129000000),
        ("nvidia.com/gpu", 8, 8),
        ("nvidia.com/gpu", "0", 0),
        ("memory", "100E", 2**63 - 1),  # capped, as in Kubernetes
        ("cpu", "-0", 0),
    ],
)
def test_canonical_amount(resource: str, text: str | int, amount: int) -> None:
    assert canonical_amount(resource, text) == amount


@pytest.mark.parametrize("text", ["-1", "-1m", -1, "-1Ki"])
def test_negative_amounts_are_refused(text: str | int) -> None:
    with pytest.raises(InvalidQuantity, match="negative"):
        canonical_amount("memory", text)


def test_canonical_resources() -> None:
    assert canonical_resources({"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": 1}) == {
        "cpu": 2000,
        "memory": 1 << 30,
        "nvidia.com/gpu": 1,
    }


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 2000, "2"),
        ("cpu", 1500, "1500m"),
        ("cpu", 0, "0"),
        ("memory", 1 << 30, "1Gi"),
        ("memory", 3 << 29, "1536Mi"),
        ("memory", 1000, "1000"),
        ("memory", 0, "0"),
        ("hugepages-2Mi", 2 << 20, "2Mi"),
        ("nvidia.com/gpu", 1024, "1024"),
    ],
)
def test_format_amount(resource: str, amount: int, text: str) -> None:
    assert format_amount(resource, amount) == text


RESOURCES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-1Gi", "nvidia.com/gpu", "pods"])


@given(RESOURCES, st.integers(0, 2**63 - 1))
def test_format_reads_back(resource: str, amount: int) -> None:
    assert canonical_amount(resource, format_amount(resource, amount)) == amount


@given(
    st.decimals(-(10**9), 10**9, places=6, allow_nan=False), st.sampled_from(["", "m", "k", "Ki", "Gi", "e2", "E-2"])
)
def test_exact(number: object, suffix: str) -> None:
    scale = {"": 1, "m": Fraction(1, 1000), "k": 1000, "Ki": 1024, "Gi": 1024**3, "e2": 100, "E-2": Fraction(1, 100)}
    assert parse_quantity(f"{number:f}{suffix}") == Fraction(str(number)) * scale[suffix]


@given(st.integers(-999_999_999, 999_999_999), st.integers(0, 6))
def test_a_float_is_the_decimal_it_was_written_as(digits: int, places: int) -> None:
    exact = Fraction(digits, 10**places)
    assert parse_quantity(float(exact)) == exact


@pytest.mark.parametrize(
    ("layout", "offered", "used", "seen"),
    [
        ("", {GPU: 8}, {}, {GPU: 8}),
        ("", {GPU: 8, THIN: 56, THICK: 16}, {THIN: 3}, {GPU: 8, THIN: 3}),
        ("", {GPU: 8, THIN: 56}, {GPU: 2}, {GPU: 8}),
        ("mixed-1", {GPU: 4, THIN: 28}, {}, {GPU: 4, THIN: 28}),
        ("", {THIN: 28}, {}, {THIN: 28}),
    ],
)
def test_of_a_machine_cut_on_demand_only_what_is_cut_is_counted(
    layout: str, offered: dict[str, int], used: dict[str, int], seen: dict[str, int]
) -> None:
    assert devices_in_sight(layout, offered, used) == seen
