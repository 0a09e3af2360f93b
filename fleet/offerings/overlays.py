"""Applies NodeOverlays (Karpenter) to prices and resources: which of them hold, for which offers of which pools.

The heaviest goes first; of equal weight the last by name. An overlay conflicts with another one of equal weight that
sets the same price, or the same resource of a machine, before it; then it is not applied at all. Source:
kubernetes-sigs/karpenter `pkg/controllers/nodeoverlay` (v1.14).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from fleet.catalog import Catalog, InstanceOffer
from fleet.markets import CapacityPool
from model import labels
from model.fleet import Fleet
from model.index import Index, derived
from model.kinds import NodeOverlay, NodePool
from model.quantity import Resources
from model.requirements import Requirements


@dataclass(frozen=True, slots=True)
class PoolOverlays:
    """`PoolOverlays` is what NodeOverlays set for the offers of one pool: prices and further resources."""

    prices: Mapping[CapacityPool, str] = field(default_factory=dict)
    """Offer -> a price (`3.14`) or an adjustment (`+10%`)."""
    resources: Mapping[CapacityPool, Resources] = field(default_factory=dict)
    """Offer -> further resources; of reserved machines, whichever reservation they are bought from."""

    def price_usd_h(self, offer: InstanceOffer) -> float:
        """Returns the price of an offer in this pool, in USD an hour."""
        said = self.prices.get(offer.pool_key, "") if self.prices else ""
        if not said:
            return offer.price_usd_h
        return adjusted_usd_h(offer.price_usd_h, said) if said[0] in "+-" else price_usd_h(said)

    def resources_of(self, offer: InstanceOffer) -> Resources:
        """Returns the further resources of machines that are bought so."""
        return self.resources.get(_any_reservation(offer), {}) if self.resources else {}


class OverlayConflict(NamedTuple):
    """An `OverlayConflict` names an overlay that is not applied, and the one of equal weight that it conflicts with."""

    overlay: str
    other: str
    where: str
    """The first offer, or resource of an instance type, of which both say something."""

    def __str__(self) -> str:
        """In a sentence."""
        return (
            f"nodeoverlay/{self.overlay} has no effect: nodeoverlay/{self.other} has the same weight and is about "
            f"{self.where}, too"
        )


@dataclass(frozen=True, slots=True)
class AppliedOverlays:
    """`AppliedOverlays` is the result of all NodeOverlays of a fleet, by pool, with the conflicts among them."""

    by_pool: Mapping[str, PoolOverlays] = field(default_factory=dict)
    conflicts: tuple[OverlayConflict, ...] = ()
    """In the order in which overlays are applied: by weight, then by name, both descending."""

    def of(self, pool: NodePool) -> PoolOverlays:
        """Returns the overlays that hold for a pool."""
        return self.by_pool.get(pool.name, PoolOverlays())


_Labels = tuple[tuple[str, str], ...]
_OF_OFFER = frozenset({labels.ZONE, labels.CAPACITY_TYPE})


@dataclass(slots=True)
class _OverlayEntries:
    """`_OverlayEntries` records which overlay sets each price and resource, for pools with equal labels.

    Only labels that some overlay asks about are compared.
    """

    own: Mapping[str, str]
    """Labels of the pools."""
    prices: dict[CapacityPool, NodeOverlay] = field(default_factory=dict)
    resources: dict[CapacityPool, dict[str, NodeOverlay]] = field(default_factory=dict)

    def result(self) -> PoolOverlays:
        """Returns the entries as prices and resources."""
        return PoolOverlays(
            {offer: overlay.spec.price or overlay.spec.price_adjustment for offer, overlay in self.prices.items()},
            {
                offer: {name: overlay.spec.capacity[name] for name, overlay in said.items()}
                for offer, said in self.resources.items()
            },
        )


@derived(4)
def applied_overlays(_index: Index, fleet: Fleet, catalog: Catalog) -> AppliedOverlays:
    """Returns what the fleet's overlays set for the catalogue, pool by pool; kept until revision or prices change."""
    if not fleet.node_overlays:
        return AppliedOverlays()
    names = sorted(fleet.node_overlays, reverse=True)
    ordered = sorted((fleet.node_overlays[name] for name in names), key=lambda each: -each.spec.weight)
    wanted = {each.name: Requirements.from_terms(each.spec.requirements) for each in ordered}
    asked = frozenset(key for each in wanted.values() for key in each)
    own = {name: _own(pool, asked) for name, pool in sorted(fleet.node_pools.items())}
    by_labels = {alike: _OverlayEntries(dict(alike)) for alike in dict.fromkeys(own.values())}
    conflicts: list[OverlayConflict] = []
    for overlay in ordered:
        offers = (*catalog.offers, *_reservable(catalog)) if overlay.spec.capacity else catalog.offers
        chosen = [(each, tuple(_chosen(each.own, wanted[overlay.name], offers))) for each in by_labels.values()]
        conflict = next((found for each, selected in chosen for found in _conflicts(each, overlay, selected)), None)
        if conflict is not None:
            conflicts.append(conflict)
            continue
        for entries, selected in chosen:
            _enter(entries, overlay, selected)
    applied = {alike: entries.result() for alike, entries in by_labels.items()}
    return AppliedOverlays({name: applied[alike] for name, alike in own.items()}, tuple(conflicts))


def _own(pool: NodePool, asked: frozenset[str]) -> _Labels:
    """Returns those labels of the pool's machines that overlays ask about, besides the labels of their type."""
    carried = {**pool.spec.template.labels, labels.NODE_POOL: pool.name}
    return tuple(sorted((key, value) for key, value in carried.items() if labels.normalize(key) in asked))


def _any_reservation(offer: InstanceOffer) -> CapacityPool:
    """Returns the capacity pool of an offer without the reservation it is bought from: overlays do not ask for it."""
    return CapacityPool(offer.capacity_type, offer.instance_type.name, offer.zone)


def _reservable(catalog: Catalog) -> Iterator[InstanceOffer]:
    """Yields what may be reserved: any type in any zone. Overlays add resources to it, and leave its price alone."""
    for zone in sorted({offer.zone for offer in catalog.offers}):
        yield from (InstanceOffer(machine, zone, "reserved", 0.0) for machine in catalog.types.values())


def _chosen(own: Mapping[str, str], wanted: Requirements, offers: Iterable[InstanceOffer]) -> Iterator[InstanceOffer]:
    """Yields the offers that an overlay selects for machines with the labels `own`, in their order."""
    of_type = Requirements({key: each for key, each in wanted.items() if key not in _OF_OFFER})
    of_offer = Requirements({key: each for key, each in wanted.items() if key in _OF_OFFER})
    suits: dict[str, bool] = {}
    for offer in offers:
        machine = offer.instance_type
        if machine.name not in suits:
            suits[machine.name] = of_type.matches({**own, **machine.labels})
        there = {labels.ZONE: offer.zone, labels.CAPACITY_TYPE: offer.capacity_type}
        if suits[machine.name] and of_offer.matches(there):
            yield offer


def _conflicts(
    entries: _OverlayEntries, overlay: NodeOverlay, offers: tuple[InstanceOffer, ...]
) -> Iterator[OverlayConflict]:
    """Yields a conflict for each offer or resource that an overlay of the same weight has set already."""
    spec = overlay.spec
    for offer in offers:
        if _sets_price(overlay, offer):
            said = entries.prices.get(offer.pool_key)
            if said is not None and said.spec.weight == spec.weight:
                yield OverlayConflict(overlay.name, said.name, str(offer.pool_key))
        known = entries.resources.get(offer.pool_key, {})
        for name in sorted(spec.capacity):
            if name in known and known[name].spec.weight == spec.weight:
                yield OverlayConflict(overlay.name, known[name].name, f"{name} of {offer.instance_type.name}")


def _enter(entries: _OverlayEntries, overlay: NodeOverlay, offers: tuple[InstanceOffer, ...]) -> None:
    """Enters what an overlay sets; what heavier overlays have set stays."""
    spec = overlay.spec
    for offer in offers:
        if _sets_price(overlay, offer):
            entries.prices.setdefault(offer.pool_key, overlay)
        for name in spec.capacity:
            entries.resources.setdefault(offer.pool_key, {}).setdefault(name, overlay)


def _sets_price(overlay: NodeOverlay, offer: InstanceOffer) -> bool:
    return bool(overlay.spec.price or overlay.spec.price_adjustment) and offer.capacity_type != "reserved"


_PRICE = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_ADJUSTMENT = re.compile(r"(?P<amount>[+-][0-9]*\.?[0-9]+)(?P<percent>%?)")


class InvalidPrice(ValueError):
    """The text is neither a price nor an adjustment of one."""


def price_usd_h(text: str) -> float:
    """Returns an absolute price, written as a plain decimal without sign or exponent. Raises `InvalidPrice`."""
    if not _PRICE.fullmatch(text):
        raise InvalidPrice(f"{text!r} is not a price; write a plain decimal such as 3.14")
    return float(text)


def adjusted_usd_h(price_usd_h: float, adjustment: str) -> float:
    """Returns the price after `+1.5`, `-0.25`, `+10%` or `-10%`; never below 0. Raises `InvalidPrice`."""
    match = _ADJUSTMENT.fullmatch(adjustment)
    if match is None:
        raise InvalidPrice(f"{adjustment!r} is not an adjustment; write +1.5, -1.5, +10% or -10%")
    price, amount = Decimal(repr(price_usd_h)), Decimal(match["amount"])
    changed = price * (100 + amount) / 100 if match["percent"] else price + amount
    return max(0.0, float(changed))
