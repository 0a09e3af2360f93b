"""Which machines a replacement may become so that it is sure to be cheaper (Karpenter, reference 4.5).

A launch takes any of the types it names, so what counts of each is not its cheapest but its dearest possible offer.
Spot for spot needs more: whoever may take any of the fifteen cheapest will not soon be moved again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from bench.reference.karpenter.buy import MachineType, ReferenceOffering
from fleet.disruption.evaluation import SPOT_TYPES
from model import labels
from model.requirements import Requirement, Requirements

LAUNCH_ORDER: Final = ("reserved", "spot", "on-demand")
"""A launch uses the first of these for which there is an offer."""


@dataclass(frozen=True, slots=True)
class ReplacementOptions:
    """What a replacement may become: `machines` cheapest first, each under `requirements`."""

    machines: tuple[MachineType, ...]
    requirements: Requirements
    reservations: frozenset[str] = frozenset()
    """The reservations it holds; offers of others are not for it."""

    def offers(self, machine: MachineType) -> list[ReferenceOffering]:
        """What a launch could take of one type now."""
        return [each for each in machine.offerings if each.available and self._takes(machine, each)]

    def _takes(self, machine: MachineType, offer: ReferenceOffering) -> bool:
        if offer.capacity_type == "reserved" and offer.reservation_id not in self.reservations:
            return False
        carried = offer_labels(offer)
        return all(key not in carried or wanted.has(carried[key]) for key, wanted in self.requirements.items())

    def price_usd_h(self) -> float:
        """What it costs if all goes well: the cheapest offer of the cheapest type."""
        return min((each.price_usd_h for each in self.offers(self.machines[0])), default=0.0) if self.machines else 0.0

    def may_be(self, capacity_type: str) -> bool:
        """Whether the requirements leave this capacity type."""
        return self.requirements.of(labels.CAPACITY_TYPE).has(capacity_type)


@dataclass(frozen=True, slots=True)
class TooDear:
    """No choice is left, and why."""

    message: str


def offer_labels(offer: ReferenceOffering) -> Mapping[str, str]:
    """The labels a machine of this offer carries because of it."""
    carried = {labels.ZONE: offer.zone, labels.CAPACITY_TYPE: offer.capacity_type, **offer.labels}
    return {**carried, labels.CAPACITY_RESERVATION_ID: offer.reservation_id} if offer.reservation_id else carried


def worst_usd_h(offers: Sequence[ReferenceOffering]) -> float:
    """The dearest offer of the capacity type that a launch would use; infinite without any."""
    for capacity_type in LAUNCH_ORDER:
        prices = [each.price_usd_h for each in offers if each.capacity_type == capacity_type]
        if prices:
            return max(prices)
    return inf


def below(choice: ReplacementOptions, usd_h: float) -> ReplacementOptions | TooDear:
    """The types that cost less than `usd_h` whatever the launch takes; too few of them are none."""
    kept = tuple(machine for machine in choice.machines if worst_usd_h(choice.offers(machine)) < usd_h)
    if not kept:
        return TooDear("Can't replace with a cheaper node")
    if missing := unmet(choice.requirements, kept):
        return TooDear(f"Filtering by price: too few types are left for minValues of {', '.join(missing)}")
    return ReplacementOptions(kept, choice.requirements, choice.reservations)


def unmet(requirements: Requirements, machines: Iterable[MachineType]) -> list[str]:
    """Keys, sorted, for which the types leave fewer distinct values than asked."""
    known = list(machines)
    asked = {key: wanted.min_values for key, wanted in sorted(requirements.items()) if wanted.min_values is not None}
    return [key for key, least in asked.items() if len(_values(key, known)) < least]


def _values(key: str, machines: Iterable[MachineType]) -> frozenset[str]:
    found = (machine.requirements.of(key) for machine in machines)
    return frozenset[str]().union(*(each.values for each in found if not each.complement))


def replacing(choice: ReplacementOptions, usd_h: float) -> ReplacementOptions | TooDear:
    """What may replace machines of which one at least is not spot.

    Where spot is possible the price was that of spot, so spot it must be: a shortage must fail, not cost more.
    """
    found = below(choice, usd_h)
    if isinstance(found, TooDear) or not (found.may_be("spot") and found.may_be("on-demand")):
        return found
    return _only_spot(found) if any(_offers_spot(found, machine) for machine in found.machines) else found


def spot_for_spot(
    choice: ReplacementOptions, usd_h: float, *, single: bool, enabled: bool
) -> ReplacementOptions | TooDear:
    """What may replace spot machines by spot; a `single` one needs fifteen cheaper types, and gets no others."""
    if not enabled:
        return TooDear("SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node")
    spot = _only_spot(choice)
    machines = tuple(machine for machine in spot.machines if _offers_spot(spot, machine))
    found = below(ReplacementOptions(machines, spot.requirements, spot.reservations), usd_h)
    if isinstance(found, TooDear) or not single:
        return found
    if len(found.machines) < SPOT_TYPES:
        return TooDear(
            f"SpotToSpotConsolidation requires {SPOT_TYPES} cheaper instance type options than the current candidate "
            f"to consolidate, got {len(found.machines)}"
        )
    count = max(SPOT_TYPES, _needed(found))
    return ReplacementOptions(found.machines[:count], found.requirements, found.reservations)


def _only_spot(choice: ReplacementOptions) -> ReplacementOptions:
    pinned = choice.requirements & Requirements({labels.CAPACITY_TYPE: Requirement.one_of("spot")})
    return ReplacementOptions(choice.machines, pinned, choice.reservations)


def _offers_spot(choice: ReplacementOptions, machine: MachineType) -> bool:
    return any(each.capacity_type == "spot" for each in choice.offers(machine))


def _needed(choice: ReplacementOptions) -> int:
    """How many of the cheapest types meet minValues together."""
    counts = range(1, len(choice.machines) + 1)
    enough = (count for count in counts if not unmet(choice.requirements, choice.machines[:count]))
    return next(enough, len(choice.machines))


def without_same(choice: ReplacementOptions, going: Iterable[tuple[str, float]]) -> ReplacementOptions | TooDear:
    """The choice for several machines at once, `going` being their types and prices.

    Where it could become one of those types, keeping that machine and deleting the others is the smaller change: only
    what is cheaper than the cheapest such machine is worth a purchase.
    """
    prices: dict[str, float] = {}
    for name, usd_h in going:
        prices[name] = min(usd_h, prices.get(name, inf))
    least = min((prices[machine.name] for machine in choice.machines if machine.name in prices), default=inf)
    return below(choice, least) if least < inf else choice
