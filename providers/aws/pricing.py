"""On-demand prices from the Pricing API (`GetProducts`), with the filters of Karpenter's pricing provider."""

import json
from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from providers.aws.buckets import RateLimitGroup
from providers.aws.prices import USD_PER, OnDemandPrices
from providers.aws.retry import Caller, pages
from providers.ports import CloudRejected

if TYPE_CHECKING:
    from mypy_boto3_pricing import PricingClient

_COMMON = {
    "serviceCode": "AmazonEC2",
    "preInstalledSw": "NA",
    "operatingSystem": "Linux",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
_PASSES = (
    {"tenancy": "Shared", "productFamily": "Compute Instance"},
    {"tenancy": "Dedicated", "productFamily": "Compute Instance (bare metal)"},
)


def on_demand_prices(caller: Caller, client: "PricingClient", region: str, now_s: float) -> OnDemandPrices:
    """Today's price list of `region`; raises `CloudError`, also where the answer holds no price at all.

    Entries that cannot be read are skipped: one malformed product must not cost the whole list.
    """
    prices: dict[str, float] = {}
    for conditions in _PASSES:
        filters = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value}
            for field, value in {"regionCode": region, **_COMMON, **conditions}.items()
        ]
        for page in pages(
            caller,
            RateLimitGroup.PRICING,
            client.get_products,
            ServiceCode="AmazonEC2",
            Filters=filters,
            MaxResults=100,
        ):
            prices.update(parse_products(page.get("PriceList", ())))
    if not prices:
        raise CloudRejected(f"the price list of {region} is empty")
    return OnDemandPrices(prices, now_s, "Pricing API", region)


def parse_products(price_list: Iterator[str] | tuple[str, ...] | list[str]) -> Iterator[tuple[str, float]]:
    """(instance type, USD/h) of each product that has a positive hourly price; `price_list` holds JSON texts."""
    for text in price_list:
        try:
            product = json.loads(text)
            name, price = product["product"]["attributes"]["instanceType"], _hourly_usd(product["terms"]["OnDemand"])
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        if 0 < price < inf:
            yield name, price


def _hourly_usd(terms: Mapping[str, Any]) -> float:
    """The price of the first hourly dimension, by offer code; 0 where there is none."""
    for _, term in sorted(terms.items()):
        for _, dimension in sorted(term["priceDimensions"].items()):
            for currency, amount in dimension["pricePerUnit"].items():
                if dimension["unit"] == "Hrs" and currency in USD_PER and float(amount) > 0:
                    return float(amount) * USD_PER[currency]
    return 0.0
