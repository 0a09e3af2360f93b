"""Who holds which reserved machine (`reservationmanager.go`).

A claim holds a place in every reservation it could still be launched into; what it can no longer use it gives back.
"""

from collections.abc import Iterable, Mapping


class OverReserved(ValueError):
    """More places of a reservation were taken than it has, or it is not known: a mistake of the caller."""


class ReservationManager:
    """Places left by reservation id. `host` names the claim."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self._left = dict(places)
        self._held: dict[str, set[str]] = {}

    def remaining(self, reservation: str) -> int:
        """Places nobody holds."""
        return self._left.get(reservation, 0)

    def held(self, host: str) -> frozenset[str]:
        """The reservations the host has a place in."""
        return frozenset(self._held.get(host, ()))

    def can_reserve(self, host: str, reservation: str) -> bool:
        """Whether the host has a place or may take one."""
        return reservation in self._held.get(host, ()) or self.remaining(reservation) > 0

    def reserve(self, host: str, reservations: Iterable[str]) -> None:
        """Take a place in each, once; raises `OverReserved` where none is left."""
        mine = self._held.setdefault(host, set())
        for reservation in sorted(reservations):
            if reservation in mine:
                continue
            if self.remaining(reservation) < 1:
                raise OverReserved(f"{host} asks for a place in reservation {reservation!r}, which has none left")
            self._left[reservation] -= 1
            mine.add(reservation)

    def release(self, host: str, reservations: Iterable[str]) -> None:
        """Give back the places the host has in these."""
        mine = self._held.get(host, set())
        for reservation in set(reservations) & mine:
            mine.remove(reservation)
            self._left[reservation] += 1
