"""What else could be so: prices, shortages and quotas that differ from those of the fleet and of the catalogue."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from fleet.catalog import InstanceOffer
from fleet.replay.virtual_world import Selection, Shortage, selects
from fleet.snapshot import Catalog
from model.fleet import Fleet
from model.index import Index
from model.kinds import Team


class UnknownVariant(Exception):
    """A variant changes something that is not there; the message names it."""


@dataclass(frozen=True, slots=True)
class PriceFactor:
    """A `PriceFactor` multiplies the prices of some offers; empty = of any."""

    factor: float
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""

    @property
    def selection(self) -> Selection:
        """Returns which offers it is about."""
        return self.instance_type, self.zone, self.capacity_type

    def means(self, offer: InstanceOffer) -> bool:
        """Returns whether it is about an offer."""
        return selects(self.selection, (offer.instance_type.name, offer.zone, offer.capacity_type))


@dataclass(frozen=True, slots=True)
class QuotaFactor:
    """A `QuotaFactor` multiplies all that a team is guaranteed, may borrow and lends; rounded down."""

    team: str
    factor: float


@dataclass(frozen=True, slots=True)
class Variant:
    """A `Variant` is one way things could be. `shortages` count from the beginning of the replay (s)."""

    name: str = ""
    prices: tuple[PriceFactor, ...] = ()
    shortages: tuple[Shortage, ...] = ()
    quotas: tuple[QuotaFactor, ...] = ()

    def __add__(self, other: "Variant") -> "Variant":
        """Returns both at once."""
        name = ", ".join(filter(None, (self.name, other.name)))
        return Variant(name, self.prices + other.prices, self.shortages + other.shortages, self.quotas + other.quotas)

    def shortages_from(self, begin_s: float) -> list[Shortage]:
        """Returns the shortages of a replay that begins then (epoch seconds)."""
        return [replace(it, from_s=it.from_s + begin_s, until_s=it.until_s + begin_s) for it in self.shortages]

    def priced(self, catalog: Catalog) -> Catalog:
        """Returns the catalogue at its prices. Raises `UnknownVariant` where nothing is on sale that it means."""
        self._check_sold("price", (it.selection for it in self.prices), catalog)
        self._check_sold("shortage", (it.selection for it in self.shortages), catalog)
        return replace(catalog, offers=tuple(self._offer(it) for it in catalog.offers)) if self.prices else catalog

    def _check_sold(self, what: str, selections: Iterable[Selection], catalog: Catalog) -> None:
        for asked in selections:
            if not _on_sale(asked, catalog):
                raise UnknownVariant(f"{self.name}: its {what} is of {' '.join(filter(None, asked))}: not on sale")

    def _offer(self, offer: InstanceOffer) -> InstanceOffer:
        factor = 1.0
        for each in self.prices:
            factor *= each.factor if each.means(offer) else 1.0
        if factor == 1.0:
            return offer
        listed = None if offer.list_usd_h is None else offer.list_usd_h * factor
        return replace(offer, price_usd_h=offer.price_usd_h * factor, list_usd_h=listed)

    def granted(self, fleet: Fleet) -> Fleet:
        """Returns the fleet with its quotas. Raises `UnknownVariant` for those of a team that is not declared."""
        teams = dict(fleet.teams)
        for each in self.quotas:
            if each.team not in teams:
                raise UnknownVariant(f"{self.name}: team {each.team} is not declared")
            teams[each.team] = _scaled(teams[each.team], each.factor)
        return replace(fleet, teams=teams, index=Index()) if self.quotas else fleet


def _on_sale(asked: Selection, catalog: Catalog) -> bool:
    return any(selects(asked, (it.instance_type.name, it.zone, it.capacity_type)) for it in catalog.offers)


def _scaled(team: Team, factor: float) -> Team:
    limits = ("guaranteed", "borrowing_limit", "lending_limit")
    quotas = {}
    for flavor, quota in team.spec.quotas.items():
        said = {limit: amounts for limit in limits if (amounts := getattr(quota, limit)) is not None}
        scaled = {name: {key: int(it * factor) for key, it in amounts.items()} for name, amounts in said.items()}
        quotas[flavor] = quota.model_copy(update=scaled)
    return team.model_copy(update={"spec": team.spec.model_copy(update={"quotas": quotas})})


@dataclass(frozen=True, slots=True)
class Grid:
    """A `Grid` has axes of variants; every combination of one of each axis is played."""

    axes: Sequence[Sequence[Variant]] = field(default_factory=tuple)

    @property
    def count(self) -> int:
        """Returns how many combinations there are."""
        return prod(map(len, self.axes))

    def variants(self) -> list[Variant]:
        """Returns the combinations, in order; a single one that changes nothing where there are no axes."""
        return [_sum(chosen) for chosen in product(*self.axes)]


def _sum(variants: Iterable[Variant]) -> Variant:
    found = Variant()
    for each in variants:
        found += each
    return found
