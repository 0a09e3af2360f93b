"""A machine that might be bought, as a slot."""

from fleet.offerings.shapes import Shape
from fleet.placement.board import Slot


def slot_of(shape: Shape, name: str, *only_for: str) -> Slot:
    """A fresh machine of this shape, for the board; `only_for` names the gangs it is kept for."""
    free, pool = dict(shape.allocatable), shape.pool.name
    return Slot(name, "", name, shape.labels, shape.taints, free, pool, frozenset(only_for), closes_s=shape.closes_s)
