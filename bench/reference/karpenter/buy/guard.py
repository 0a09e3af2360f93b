"""What besides room a claim has to keep: its flexibility, and a reservation it can be launched into.

These need the rows that are left one by one, so they are asked only of pools where they can matter (`nodeclaim.go
CanAdd`: after the filter by size, minValues, then reserved offerings).
"""

from dataclasses import dataclass

import numpy as np

from bench.reference.karpenter.buy import min_values
from bench.reference.karpenter.buy.families import ClaimClass, Families
from bench.reference.karpenter.buy.reservations import ReservationManager
from bench.reference.karpenter.buy.rows import Bools, InstanceRows, Ints


@dataclass(slots=True)
class Guard:
    """The rules that go beyond room, for all pools of a solve."""

    families: Families
    least: list[dict[str, int]]
    """By pool: the distinct values that must stay possible, none where the policy is best effort."""
    reserving: list[bool]
    """By pool: whether it has reserved offerings."""
    reservations: ReservationManager

    @classmethod
    def of(cls, families: Families) -> "Guard":
        """The guard of these pools."""
        left: dict[str, int] = {}
        for rows in families.rows:
            for offer in (rows.offers[index] for index in np.flatnonzero(rows.reserved)):
                left[offer.reservation_id] = min(left.get(offer.reservation_id, 1 << 40), offer.reserved_left)
        return cls(
            families,
            [min_values.least(template.requirements) for template in families.templates],
            [bool(rows.reserved.any()) for rows in families.rows],
            ReservationManager(left),
        )

    @property
    def reserves(self) -> bool:
        """Whether there are reservations at all, so that claims may depend on what others hold."""
        return any(self.reserving)

    def careful(self, family: ClaimClass) -> bool:
        """Whether what claims of the family may take depends on what others hold."""
        return self.reserving[family.pool]

    def flexible(self, family: ClaimClass, used: Ints, take: Ints, room: int) -> int:
        """How many of `room` more pods leave a claim of the family, with `used` taken, as flexible as it has to be."""
        least = self.least[family.pool]
        if not least or not room:
            return room
        rows, most = self.families.rows[family.pool], room
        if not min_values.unmet(least, rows, fitting(rows, family, used + most * take)):
            return most
        fewest = 0
        while most - fewest > 1:  # more pods never leave more types: halve
            middle = (fewest + most) // 2
            if min_values.unmet(least, rows, fitting(rows, family, used + middle * take)):
                most = middle
            else:
                fewest = middle
        return fewest

    def stuck(self, host: str, family: ClaimClass, used: Ints) -> bool:
        """Whether the claim `host`, as `family` with `used` taken, would lose reserved capacity that others hold."""
        if not self.reserving[family.pool]:
            return False
        rows = self.families.rows[family.pool]
        left = fitting(rows, family, used)
        usable = self._usable(rows, family, left)
        free = {each for each in usable if self.reservations.can_reserve(host, each)}
        return bool(usable or self.reservations.held(host)) and not free

    def settle(self, host: str, family: ClaimClass, used: Ints) -> None:
        """The claim is `family` with `used` taken: take places in what it can use, give back the others."""
        if not self.reserving[family.pool]:
            return
        rows = self.families.rows[family.pool]
        usable = self._usable(rows, family, fitting(rows, family, used))
        free = {each for each in usable if self.reservations.can_reserve(host, each)}
        self.reservations.reserve(host, free)
        self.reservations.release(host, self.reservations.held(host) - free)

    @staticmethod
    def _usable(rows: InstanceRows, family: ClaimClass, left: Bools) -> set[str]:
        offers = np.flatnonzero(rows.reserved & family.offers & left[rows.row_of])
        return {rows.offers[index].reservation_id for index in offers}


def fitting(rows: InstanceRows, family: ClaimClass, used: Ints) -> Bools:
    """The rows of the family that hold `used`."""
    return np.asarray(family.rows & (rows.room >= used).all(axis=1), dtype=np.bool_)
