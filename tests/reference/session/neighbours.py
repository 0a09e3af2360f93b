"""Pods that want, or must not have, certain other pods near them. Slow and rare, so kept out of the arrays."""

from collections.abc import Iterable, Mapping

import numpy as np

from tests.reference.session.floor import Mask, PodKind
from tests.reference.session.hall import Hall, Seat
from tests.reference.session.values import Neighbour, PodState

_THERE_NOW = frozenset(
    {PodState.RUNNING, PodState.BOUND, PodState.TERMINATING, PodState.STUCK, PodState.EVICTED, PodState.NOMINATED}
)
_THERE_LATER = frozenset({PodState.RUNNING, PodState.BOUND, PodState.NOMINATED, PodState.MOVED, PodState.STUCK})


def near(hall: Hall, kind: PodKind, *, now: bool) -> Mask:
    """Machines where the wishes of such a pod hold, and those of the pods already there hold against it."""
    states = _THERE_NOW if now else _THERE_LATER
    residents = [seat for entry in hall.entries for seat in entry.seats if seat.row >= 0 and seat.state in states]
    allowed = np.ones(len(hall.floor.machines), dtype=bool)
    for wish in kind.neighbours:
        others = _domains(hall, wish.key, (seat for seat in residents if _matches(wish, seat.kind.labels)))
        if wish.apart:
            allowed &= ~others
        elif others.any() or not _matches(wish, kind.labels):
            allowed &= others
    for seat in residents:
        for wish in seat.kind.neighbours:
            if wish.apart and _matches(wish, kind.labels):
                allowed &= ~_domains(hall, wish.key, [seat])
    return allowed


def _matches(wish: Neighbour, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) in values for key, values in wish.labels.items())


def _domains(hall: Hall, key: str, seats: Iterable[Seat]) -> Mask:
    """Machines in the same domain of the label as any of the seats."""
    machines = hall.floor.machines
    values = {machines[seat.row].labels[key] for seat in seats if key in machines[seat.row].labels}
    return np.array([machine.labels.get(key) in values for machine in machines], dtype=bool)
