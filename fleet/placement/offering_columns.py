"""Lays the offerings of a pool out in columns: what every search for pods asks of them, whoever the pods are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from fleet.offerings.offerings import Offering, Offerings, Preference
from fleet.placement.cluster_state import PODS
from fleet.snapshot import InstanceOffer
from model.kinds import NodePool
from model.pools import capacity_rank
from model.quantity import Resources

DIGITS = 9
"""Costs that differ by less are equal: rounding must not decide, but the tiny prices of reserved machines may."""


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
    _amounts: dict[str, tuple[int, ...]] = field(default_factory=dict)

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
        each = [[has // amount for has in self._of(name)] for name, amount in requests.items() if amount]
        least = map(min, self._of(PODS), *each) if each else self._of(PODS)
        return [max(0, it) for it in least]

    def _of(self, resource: str) -> tuple[int, ...]:
        if (found := self._amounts.get(resource)) is None:
            found = tuple([room.get(resource, 0) for room in self.rooms])
            if any(found):  # pods may name anything: what nobody offers is not kept
                self._amounts[resource] = found
        return found
