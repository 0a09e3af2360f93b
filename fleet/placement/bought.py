"""A machine that might be bought, as a slot."""

from fleet.offerings.offerings import Offering
from fleet.placement.board import Slot


def slot_of(offering: Offering, name: str, *only_for: str) -> Slot:
    """A fresh machine of this offering, for the board; `only_for` names the gangs it is kept for."""
    free, pool = dict(offering.allocatable), offering.pool.name
    return Slot(
        name, "", name, offering.labels, offering.taints, free, pool, frozenset(only_for), closes_s=offering.closes_s
    )
