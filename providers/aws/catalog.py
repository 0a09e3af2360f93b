"""Facts, zones and prices -> the catalogue of a region. Pure; nothing here talks to AWS or imports boto3."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.catalog import Catalog, InstanceOffer, InstanceType
from fleet.markets import PriceSource
from model.kinds import CapacityType
from providers.aws.allocatable import USUAL, ClusterSettings, hardware
from providers.aws.facts import TypeFacts, package, package_types
from providers.aws.machine_types import machine_type
from providers.aws.node_sizes import Ec2NodeProfiles
from providers.aws.prices import SPOT_ESTIMATE_RATIO, OnDemandPrices, SpotPrices, package_prices

_CAPACITY_TYPES: tuple[CapacityType, ...] = ("on-demand", "spot")
"""In the order in which they sort. Capacity blocks and reservations are bought ahead, not from a price list."""

Zones = Mapping[str, Sequence[str]]
"""Instance type -> zones that offer it."""


@dataclass(frozen=True, slots=True)
class CatalogBuild:
    """A catalogue, and why types of it cannot be bought: instance type -> reason."""

    catalog: Catalog
    left_out: Mapping[str, str] = field(default_factory=dict)


def build_catalog(
    region: str,
    facts: Mapping[str, TypeFacts],
    zones: Zones,
    on_demand: OnDemandPrices,
    spot: SpotPrices | None = None,
    settings: ClusterSettings = USUAL,
) -> CatalogBuild:
    """Every type of `facts` in `Catalog.types`; an offer for each zone and capacity type that has a price.

    A type without offers stays known, since machines of it may run already, and its reason is in `left_out`.
    """
    types = {name: machine_type(facts[name], settings, region) for name in sorted(facts)}
    market, sources = spot or SpotPrices(), _sources(region, on_demand, spot)
    offers: list[InstanceOffer] = []
    left_out: dict[str, str] = {}
    estimates = 0
    for name, instance_type in types.items():
        if reason := _unsold(facts[name], zones, on_demand):
            left_out[name] = reason
            continue
        for offer in _offers(facts[name], instance_type, zones[name], on_demand, market, sources):
            offers.append(offer)
            estimates += offer.priced is sources.estimate
    catalog = Catalog(
        region=region,
        types=types,
        offers=tuple(offers),
        priced_at_s=min([on_demand.at_s, *([spot.at_s] if spot and spot.hourly_usd else [])]),
        price_source=_source(on_demand, spot, estimates),
        profiles=Ec2NodeProfiles({name: hardware(each, settings) for name, each in facts.items()}),
        tagging_permission="ec2:CreateTags",
        zones=frozenset(zone for each in zones.values() for zone in each),
        price_region=on_demand.region,
    )
    return CatalogBuild(catalog, left_out)


def package_catalog(region: str, settings: ClusterSettings = USUAL) -> CatalogBuild:
    """The catalogue with no API at all: facts, zones and prices of the package.

    Zones are known for the 30 commercial regions of the package, and taken to offer everything in three regions of
    other partitions that have prices; elsewhere there are types but no offers.
    """
    zones = package_zones(region, assumed=True)
    return build_catalog(region, package_types(), zones, package_prices(region), None, settings)


def package_zones(region: str, *, assumed: bool = False) -> Zones:
    """Zones that offered each type when the package was made; empty for a region it does not know.

    `assumed`: where it knows zones and prices of a region, and not which zone offers what, every type that has a price
    is taken to be in all of them. That is good enough to plan with, and nothing to buy by.
    """
    letters = package()["zones"].get(region, {})
    if assumed and region in package()["letters"]:
        letters = dict.fromkeys(package()["prices"][region]["hourly"], package()["letters"][region])
    return {name: [region + letter for letter in each] for name, each in letters.items()}


def _unsold(facts: TypeFacts, zones: Zones, on_demand: OnDemandPrices) -> str:
    if not zones.get(facts.name):
        return "offered in no zone of the region that can be used"
    if not set(_CAPACITY_TYPES) & set(facts.usage_classes):
        return f"sold only as {', '.join(facts.usage_classes)}"
    if facts.name not in on_demand.hourly_usd:
        return f"no on-demand price ({on_demand.source})"
    return ""


class _Sources(NamedTuple):
    """Where prices of offers come from."""

    list: PriceSource
    history: PriceSource
    estimate: PriceSource


def _sources(region: str, on_demand: OnDemandPrices, spot: SpotPrices | None) -> _Sources:
    return _Sources(
        PriceSource(on_demand.source, on_demand.region, on_demand.at_s),
        PriceSource("spot price history", region, spot.at_s if spot else 0.0),
        PriceSource(f"{SPOT_ESTIMATE_RATIO:.2f} x on-demand", on_demand.region, on_demand.at_s),
    )


def _offers(
    facts: TypeFacts,
    instance_type: InstanceType,
    zones: Sequence[str],
    on_demand: OnDemandPrices,
    market: SpotPrices,
    sources: _Sources,
) -> Iterator[InstanceOffer]:
    """Offers of one type in (zone, capacity type) order."""
    price = on_demand.hourly_usd[facts.name]
    for zone in sorted(zones):
        for capacity_type in _CAPACITY_TYPES:
            if capacity_type not in facts.usage_classes:
                continue
            paid, source = (price, sources.list)
            if capacity_type == "spot":
                paid, estimated = market.price_usd_h(facts.name, zone, price)
                source = sources.estimate if estimated else sources.history
            yield InstanceOffer(instance_type, zone, capacity_type, paid, priced=source)


def _source(on_demand: OnDemandPrices, spot: SpotPrices | None, estimates: int) -> str:
    estimate = f"estimated at {SPOT_ESTIMATE_RATIO:.2f} x on-demand"
    if spot is None or not spot.hourly_usd:
        return f"on-demand: {on_demand.source}; spot: {estimate}"
    if not estimates:
        return f"on-demand: {on_demand.source}; spot: price history"
    return f"on-demand: {on_demand.source}; spot: price history, {estimates} offers {estimate}"
