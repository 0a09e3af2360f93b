"""Prices people know better than the price list: a price instead, or an adjustment (Karpenter `NodeOverlay`)."""

import re
from decimal import Decimal

_PRICE = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_ADJUSTMENT = re.compile(r"(?P<amount>[+-][0-9]*\.?[0-9]+)(?P<percent>%?)")


class InvalidPrice(ValueError):
    """The text is no price, or no adjustment of one."""


def price_usd_h(text: str) -> float:
    """An absolute price: a plain decimal, neither sign nor exponent. Raises `InvalidPrice`."""
    if not _PRICE.fullmatch(text):
        raise InvalidPrice(f"{text!r} is not a price; write a plain decimal such as 3.14")
    return float(text)


def adjusted_usd_h(price_usd_h: float, adjustment: str) -> float:
    """The price after `+1.5`, `-0.25`, `+10%` or `-10%`; never below 0. Raises `InvalidPrice`."""
    match = _ADJUSTMENT.fullmatch(adjustment)
    if match is None:
        raise InvalidPrice(f"{adjustment!r} is not an adjustment; write +1.5, -1.5, +10% or -10%")
    price, amount = Decimal(repr(price_usd_h)), Decimal(match["amount"])
    changed = price * (100 + amount) / 100 if match["percent"] else price + amount
    return max(0.0, float(changed))
