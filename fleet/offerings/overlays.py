"""NodeOverlays against what is on offer: which of them hold, for which offers of which pools.

The heaviest goes first; of equal weight the last by name. An overlay that says the price of an offer, or a resource of
a machine, of which one of equal weight has said it already contradicts that one, and holds nowhere. Source:
kubernetes-sigs/karpenter `pkg/controllers/nodeoverlay` (v1.14).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.offerings.overlay import adjusted_usd_h, price_usd_h
from fleet.snapshot import CapacityPool, Catalog, InstanceOffer
from fleet.snapshot.memo import remembered
from model import labels
from model.fleet import Fleet
from model.kinds import NodeOverlay, NodePool
from model.quantity import Resources
from model.requirements import Requirements


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What overlays say of the offers of one pool."""

    prices: Mapping[CapacityPool, str] = field(default_factory=dict)
    """Offer -> a price (`3.14`) or an adjustment (`+10%`)."""
    resources: Mapping[str, Resources] = field(default_factory=dict)
    """Instance type -> further resources."""

    def price_usd_h(self, offer: InstanceOffer) -> float:
        """The price of an offer in this pool."""
        said = self.prices.get(offer.pool_key, "")
        if not said:
            return offer.price_usd_h
        return adjusted_usd_h(offer.price_usd_h, said) if said[0] in "+-" else price_usd_h(said)


class Conflict(NamedTuple):
    """An overlay that holds nowhere, and the one of equal weight that it contradicts."""

    overlay: str
    other: str
    where: str
    """The first offer or instance type, by name, of which both say something."""

    def __str__(self) -> str:
        """In a sentence."""
        return (
            f"nodeoverlay/{self.overlay} holds nowhere: nodeoverlay/{self.other} has the same weight and is about "
            f"{self.where}, too"
        )


@dataclass(frozen=True, slots=True)
class Overlaid:
    """What all overlays come to."""

    by_pool: Mapping[str, Knowledge] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()
    """In the order in which overlays are heard."""

    def of(self, pool: NodePool) -> Knowledge:
        """What is known for a pool."""
        return self.by_pool.get(pool.name, _NOTHING)


_NOTHING = Knowledge()


_Labels = tuple[tuple[str, str], ...]
_OF_OFFER = frozenset({labels.ZONE, labels.CAPACITY_TYPE})


@dataclass(slots=True)
class _Book:
    """What has been said so far for pools that carry the same of what overlays ask about, and by whom."""

    own: Mapping[str, str]
    """Labels of the pools."""
    prices: dict[CapacityPool, NodeOverlay] = field(default_factory=dict)
    resources: dict[str, dict[str, NodeOverlay]] = field(default_factory=dict)

    def knowledge(self) -> Knowledge:
        return Knowledge(
            {offer: overlay.spec.price or overlay.spec.price_adjustment for offer, overlay in self.prices.items()},
            {
                machine: {name: overlay.spec.capacity[name] for name, overlay in said.items()}
                for machine, said in self.resources.items()
            },
        )


@remembered(4)
def overlaid(fleet: Fleet, catalog: Catalog) -> Overlaid:
    """What the fleet's overlays say of the catalogue, pool by pool: the same until revision or prices change."""
    if not fleet.node_overlays:
        return Overlaid()
    names = sorted(fleet.node_overlays, reverse=True)
    heard = sorted((fleet.node_overlays[name] for name in names), key=lambda each: -each.spec.weight)
    wanted = {each.name: Requirements.from_terms(each.spec.requirements) for each in heard}
    asked = frozenset(key for each in wanted.values() for key in each)
    own = {name: _own(pool, asked) for name, pool in sorted(fleet.node_pools.items())}
    books = {alike: _Book(dict(alike)) for alike in dict.fromkeys(own.values())}
    conflicts: list[Conflict] = []
    for overlay in heard:
        chosen = [(book, tuple(_chosen(book.own, wanted[overlay.name], catalog))) for book in books.values()]
        conflict = next((found for book, offers in chosen for found in _contradicted(book, overlay, offers)), None)
        if conflict is not None:
            conflicts.append(conflict)
            continue
        for book, offers in chosen:
            _write(book, overlay, offers)
    known = {alike: book.knowledge() for alike, book in books.items()}
    return Overlaid({name: known[alike] for name, alike in own.items()}, tuple(conflicts))


def _own(pool: NodePool, asked: frozenset[str]) -> _Labels:
    """What machines of the pool carry of the labels that are asked about, beside those of their type."""
    carried = {**pool.spec.template.labels, labels.NODE_POOL: pool.name}
    return tuple(sorted((key, value) for key, value in carried.items() if labels.normalize(key) in asked))


def _chosen(own: Mapping[str, str], wanted: Requirements, catalog: Catalog) -> Iterator[InstanceOffer]:
    """The offers that an overlay is about, as machines of pools that carry `own`; in the order of the catalogue."""
    of_type = Requirements({key: each for key, each in wanted.items() if key not in _OF_OFFER})
    of_offer = Requirements({key: each for key, each in wanted.items() if key in _OF_OFFER})
    suits: dict[str, bool] = {}
    for offer in catalog.offers:
        machine = offer.instance_type
        if machine.name not in suits:
            suits[machine.name] = of_type.matches({**own, **machine.labels})
        there = {labels.ZONE: offer.zone, labels.CAPACITY_TYPE: offer.capacity_type}
        if suits[machine.name] and of_offer.matches(there):
            yield offer


def _contradicted(book: _Book, overlay: NodeOverlay, offers: tuple[InstanceOffer, ...]) -> Iterator[Conflict]:
    spec = overlay.spec
    for offer in offers:
        if spec.price or spec.price_adjustment:
            said = book.prices.get(offer.pool_key)
            if said is not None and said.spec.weight == spec.weight:
                yield Conflict(overlay.name, said.name, str(offer.pool_key))
        known = book.resources.get(offer.instance_type.name, {})
        for name in sorted(spec.capacity):
            if name in known and known[name].spec.weight == spec.weight:
                yield Conflict(overlay.name, known[name].name, f"{name} of {offer.instance_type.name}")


def _write(book: _Book, overlay: NodeOverlay, offers: tuple[InstanceOffer, ...]) -> None:
    """What heavier ones have said stays."""
    spec = overlay.spec
    for offer in offers:
        if spec.price or spec.price_adjustment:
            book.prices.setdefault(offer.pool_key, overlay)
        known = book.resources.setdefault(offer.instance_type.name, {})
        for name in spec.capacity:
            known.setdefault(name, overlay)
