"""What EC2 itself says about the market: which zone offers which type, hardware newer than the package, spot prices."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from fleet.markets import PastPrice
from fleet.snapshot import CapacityPool
from providers.aws.buckets import RateLimitGroup
from providers.aws.catalog import Zones
from providers.aws.facts import TypeFacts, describe_facts
from providers.aws.prices import SPOT_MAX_AGE_S, SpotPrices
from providers.aws.retry import Caller, pages

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_PRODUCTS = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]
_TYPES_A_CALL = 100


def offered_zones(caller: Caller, client: "EC2Client") -> Zones:
    """Instance type -> zones (`DescribeInstanceTypeOfferings`, whole region)."""
    zones: dict[str, list[str]] = {}
    for page in pages(
        caller,
        RateLimitGroup.DESCRIBE,
        client.describe_instance_type_offerings,
        LocationType="availability-zone",
        MaxResults=1000,
    ):
        for row in page["InstanceTypeOfferings"]:
            zones.setdefault(row["InstanceType"], []).append(row["Location"])
    return {name: sorted(set(each)) for name, each in sorted(zones.items())}


def described_types(caller: Caller, client: "EC2Client", names: Iterable[str]) -> Mapping[str, TypeFacts]:
    """Facts of the types `names` (`DescribeInstanceTypes`); those no Linux pod can run on are missing."""
    found: dict[str, TypeFacts] = {}
    ordered = sorted(names)
    for start in range(0, len(ordered), _TYPES_A_CALL):
        some = ordered[start : start + _TYPES_A_CALL]
        for page in pages(
            caller,
            RateLimitGroup.DESCRIBE,
            client.describe_instance_types,
            Filters=[{"Name": "instance-type", "Values": some}],
            MaxResults=100,
        ):
            facts = (describe_facts(info) for info in page["InstanceTypes"])
            found.update((each.name, each) for each in facts if each is not None)
    return found


class _Change(NamedTuple):
    """A price of a pool (type, zone) that came into force."""

    pool: tuple[str, str]
    at_s: float
    usd_h: float


def spot_prices(caller: Caller, client: "EC2Client", now_s: float, *, start: object) -> SpotPrices:
    """The market price of every pool now (`DescribeSpotPriceHistory` from `start`, the present, a datetime).

    The service then answers with the price in force and when it last changed. A change longer ago than
    `SPOT_MAX_AGE_S` is not believed; the latest of several prices of a pool counts.
    """
    latest: dict[tuple[str, str], tuple[float, float]] = {}
    for pool, changed_s, price in _changes(caller, client, now_s, StartTime=start):
        latest[pool] = max(latest.get(pool, (changed_s, price)), (changed_s, price))
    return SpotPrices({key: price for key, (_, price) in sorted(latest.items())}, now_s)


def spot_history(
    caller: Caller, client: "EC2Client", pools: Collection[CapacityPool], begin_s: float, end_s: float
) -> Mapping[CapacityPool, Sequence[PastPrice]]:
    """The prices of spot pools in a past time, as `DescribeSpotPriceHistory` tells them: of the last 90 days.

    It tells the last change before the begin as well. One longer ago than `SPOT_MAX_AGE_S` before is not believed.
    """
    wanted = {(pool.instance_type, pool.zone): pool for pool in pools if pool.capacity_type == "spot"}
    types, found = sorted({name for name, _ in wanted}), dict[CapacityPool, dict[float, float]]()
    for start in range(0, len(types), _TYPES_A_CALL):
        asked = {"InstanceTypes": types[start : start + _TYPES_A_CALL], "StartTime": _date(begin_s)}
        for pool, at_s, usd_h in _changes(caller, client, begin_s, EndTime=_date(end_s), **asked):
            if pool in wanted and at_s < end_s:
                prices = found.setdefault(wanted[pool], {})
                prices[at_s] = max(prices.get(at_s, 0.0), usd_h)
    return {pool: [PastPrice(*it) for it in sorted(prices.items())] for pool, prices in sorted(found.items())}


def _changes(caller: Caller, client: "EC2Client", from_s: float, **asked: object) -> Iterator[_Change]:
    """The rows of a price history that can be believed."""
    for page in pages(
        caller,
        RateLimitGroup.DESCRIBE,
        client.describe_spot_price_history,
        ProductDescriptions=_PRODUCTS,
        MaxResults=1000,
        **asked,
    ):
        for row in page["SpotPriceHistory"]:
            changed_s, price = row["Timestamp"].timestamp(), float(row["SpotPrice"])
            if 0 < price < inf and from_s - changed_s <= SPOT_MAX_AGE_S:
                yield _Change((row["InstanceType"], row["AvailabilityZone"]), changed_s, price)


def _date(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)
