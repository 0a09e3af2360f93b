"""What machines cost in USD an hour: dated tables, and the rules for what to believe when a price is missing or old."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from providers.aws.facts import package

SPOT_ESTIMATE_RATIO = 0.4
"""Spot price assumed where none can be read: this share of on-demand. EC2's long-run mean discount is 60-70 %."""
SPOT_MAX_AGE_S = 7 * 86400.0
"""A spot price that changed last before this is no market price: the history cannot be read here."""
USD_PER: Mapping[str, float] = {"USD": 1.0, "CNY": 0.14}
"""Fixed rates, so that the same table gives the same plan; the one for CNY is that of the table's date (2024-11)."""

_FALLBACK_REGIONS = (("cn-", "cn-north-1"), ("us-gov-", "us-gov-west-1"), ("", "us-east-1"))


@dataclass(frozen=True, slots=True)
class OnDemandPrices:
    """Instance type -> USD/h, as of `at_s` (epoch seconds); `source` is a phrase for people.

    `region` is the one they are of, which is not the one asked about where that has none in the package.
    """

    hourly_usd: Mapping[str, float] = field(default_factory=dict)
    at_s: float = 0.0
    source: str = "none"
    region: str = ""


@dataclass(frozen=True, slots=True)
class SpotPrices:
    """(instance type, zone) -> USD/h, as of `at_s`."""

    hourly_usd: Mapping[tuple[str, str], float] = field(default_factory=dict)
    at_s: float = 0.0

    def price_usd_h(self, instance_type: str, zone: str, on_demand_usd_h: float) -> tuple[float, bool]:
        """The market price and False, or an estimate from the on-demand price and True."""
        price = self.hourly_usd.get((instance_type, zone))
        return (on_demand_usd_h * SPOT_ESTIMATE_RATIO, True) if price is None else (price, False)


def package_prices(region: str) -> OnDemandPrices:
    """The table of the package for `region`, or that of the nearest region it has, which its source then says."""
    tables = package()["prices"]
    found = (
        region if region in tables else next(home for prefix, home in _FALLBACK_REGIONS if region.startswith(prefix))
    )
    table = tables[found]
    rate = USD_PER[table["currency"]]
    source = f"package prices of {table['at'][:10]}"
    if found != region:
        source += f" for {found}, standing in for {region}"
    if rate != 1.0:
        source += f", {table['currency']} at {rate} USD"
    return OnDemandPrices(
        hourly_usd={name: price * rate for name, price in table["hourly"].items()},
        at_s=datetime.fromisoformat(table["at"]).timestamp(),
        source=source,
        region=found,
    )
