"""Prices people set or adjust."""

import pytest

from fleet.offerings.overlay import InvalidPrice, adjusted_usd_h, price_usd_h


@pytest.mark.parametrize(
    ("price", "adjustment", "expected"),
    [
        (10, "+1.5", 11.5),
        (10, "-1.5", 8.5),
        (10, "+10%", 11),
        (10, "-10%", 9),
        (10, "-11", 0),
        (10, "-300%", 0),
        (0.1, "+0.2", 0.3),
        (10, "+.5", 10.5),
    ],
)
def test_adjusted(price: float, adjustment: str, expected: float) -> None:
    assert adjusted_usd_h(price, adjustment) == expected


@pytest.mark.parametrize("adjustment", ["1", "10%", "", "+", "-%", "+1e3", "+-1", " +1"])
def test_no_adjustment(adjustment: str) -> None:
    with pytest.raises(InvalidPrice):
        adjusted_usd_h(1.0, adjustment)


def test_price() -> None:
    assert [price_usd_h(text) for text in ("0", "42", "3.14")] == [0, 42, 3.14]


@pytest.mark.parametrize("text", ["", "+1", "-1", ".5", "5.", "1e3", "1,5", "1%", "1 ", "nan", "٣"])
def test_no_price(text: str) -> None:
    with pytest.raises(InvalidPrice):
        price_usd_h(text)
