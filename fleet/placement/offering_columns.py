"""Lays the offerings of a pool out in columns: what every search for pods asks of them, whoever the pods are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from fleet.catalog import InstanceOffer
from fleet.offerings.offerings import Offering, Offerings, Preference
from fleet.placement.cluster_state import PODS
from model.kinds import NodePool
from model.pools import capacity_rank
from model.quantity import Resources

DIGITS = 9
"""Costs that differ by less are equal: rounding must not decide, but the tiny prices of reserved machines may."""
_MOST_AMOUNTS = 256
"""Amounts of resources of which it is kept how many times machines have them."""


class OfferingColumns(NamedTuple):
    """The offerings of a pool in a zone by price, then key, column by column."""

    offerings: tuple[Offering, ...]
    rooms: tuple[int, ...]
    """The number of what each has for pods in `PoolColumns.rooms`."""
    capacity_ranks: tuple[int, ...]
    usd_h: tuple[float, ...]
    """Expected cost of a machine."""
    preferences: tuple[Preference, ...]
    places: tuple[int, ...]
    """Their order where one machine of each is tried."""
    all_last: bool
    """Whether none of them ends."""

    def at(self, numbers: Sequence[int]) -> "OfferingColumns":
        """Those with these numbers."""
        return OfferingColumns(
            *(tuple(map(self.offerings.__getitem__, numbers)), tuple(map(self.rooms.__getitem__, numbers))),
            *(tuple(map(self.capacity_ranks.__getitem__, numbers)), tuple(map(self.usd_h.__getitem__, numbers))),
            *(tuple(map(self.preferences.__getitem__, numbers)), tuple(map(self.places.__getitem__, numbers))),
            all_last=self.all_last,
        )


@dataclass(frozen=True, slots=True)
class PoolColumns:
    """What every search for pods asks of a pool's offerings."""

    rooms: tuple[Resources, ...]
    """What machines have for pods, each object once: offerings in several zones share it."""
    zones: Mapping[str, OfferingColumns]
    """Zone -> its offerings; "" = all."""
    _known: dict[tuple[str, int], Sequence[int]] = field(default_factory=dict)
    _amounts: dict[str, Sequence[int]] = field(default_factory=dict)
    """Resource -> how much of it each of the rooms has."""

    @classmethod
    def of(
        cls, pool: NodePool, offerings: Offerings, expected_usd_h: Callable[[InstanceOffer], float]
    ) -> "PoolColumns":
        """The columns of a pool at these expected costs."""
        every = offerings.of(pool)
        rooms = {id(it.allocatable): it.allocatable for it in every}
        number_of = {room: number for number, room in enumerate(rooms)}
        kinds = {it.offer.capacity_type for it in every}
        ranks = {it: capacity_rank(pool, it) for it in kinds}
        usd_h = [expected_usd_h(it.offer) for it in every]
        order = sorted(
            range(len(every)),
            key=lambda n: (
                ranks[every[n].offer.capacity_type],
                round(usd_h[n], DIGITS),
                every[n].preference,
                every[n].key,
            ),
        )
        places = {number: place for place, number in enumerate(order)}
        columns = OfferingColumns(
            every,
            tuple([number_of[id(it.allocatable)] for it in every]),
            tuple([ranks[it.offer.capacity_type] for it in every]),
            tuple(usd_h),
            tuple([it.preference for it in every]),
            tuple([places[number] for number in range(len(every))]),
            all_last=all(it.closes_s == inf for it in every),
        )
        by_zone: dict[str, list[int]] = {}
        for number, offering in enumerate(every):
            by_zone.setdefault(offering.offer.zone, []).append(number)
        return cls(tuple(rooms.values()), {"": columns} | {zone: columns.at(them) for zone, them in by_zone.items()})

    def holds(self, requests: Resources) -> Sequence[int]:
        """How many pods with these requests go into each of the rooms."""
        each = [self._times(name, amount) for name, amount in requests.items() if amount]
        return list(map(min, self._times(PODS, 1), *each)) if each else self._times(PODS, 1)

    def _times(self, resource: str, amount: int) -> Sequence[int]:
        """How many times each of the rooms has an amount: classes of pods ask for the same ones."""
        if (found := self._known.get((resource, amount))) is None:
            there = self._amounts.get(resource) or [max(0, room.get(resource, 0)) for room in self.rooms]
            found = [it // amount for it in there]
            if len(self._known) >= _MOST_AMOUNTS:
                self._known.clear()
            if any(found):  # pods may name anything: what nobody offers is not kept
                self._known[resource, amount], self._amounts[resource] = found, there
        return found
