"""`price-overlay`: adjustments of a price, and what is a price at all."""

from typing import Any

from fleet.offerings.overlays import InvalidPrice, adjusted_usd_h, price_usd_h
from tests.conformance.cases import Case


def run(case: Case) -> dict[str, Any]:
    """The price, or whether the text says one."""
    given = case["given"]
    text = given.get("adjustment", given.get("price_field"))
    try:
        price = adjusted_usd_h(given["price"], text) if "adjustment" in given else price_usd_h(text)
    except InvalidPrice:
        return {"valid": False}
    return {"valid": True, "price": price}
