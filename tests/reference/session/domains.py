"""Topology domains as arrays, and the order in which they are tried: narrow before wide, full before empty."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tests.reference.session.floor import Counts, Floor, Mask
from tests.reference.session.values import SessionTopology, Within


class UnknownLevel(ValueError):
    """A constraint names a topology or a level that is not declared."""


class Domains:
    """All topologies of a session on its machines."""

    def __init__(self, floor: Floor, topologies: Mapping[str, SessionTopology]) -> None:
        self._topologies = topologies
        self._levels: dict[str, list[npt.NDArray[np.int64]]] = {}
        for name, topology in topologies.items():
            self._levels[name] = [_numbered(floor, domains) for domains in topology.domains]

    def masks(self, within: Within, allowed: Mask, pinned: Sequence[int], room: Counts, count: int) -> Iterator[Mask]:
        """Sets of machines to try in turn for `count` pods that fit `room` to a machine, with some already `pinned`.

        Nothing is yielded when what is pinned already breaks the constraint. Raises `UnknownLevel`.
        """
        levels, required = self._levels.get(within.topology), -1
        if levels is None:
            raise UnknownLevel(within.topology)
        if within.required:
            required = self._level(within, within.required)
            domains = levels[required]
            allowed = allowed & (domains >= 0)
            homes = {int(domains[row]) for row in pinned}
            if len(homes) > 1 or -1 in homes:
                return
            if homes:
                allowed = allowed & (domains == homes.pop())
        narrowest = self._level(within, within.preferred) if within.preferred else required
        for level in range(narrowest, max(required, 0) - 1, -1):
            yield from self._of_level(levels, level, allowed, room, count)
        if required < 0:
            yield allowed

    def _level(self, within: Within, name: str) -> int:
        known = self._topologies[within.topology].levels
        if name not in known:
            raise UnknownLevel(f"{within.topology}: {name}")
        return known.index(name)

    def _of_level(
        self, levels: list[npt.NDArray[np.int64]], level: int, allowed: Mask, room: Counts, count: int
    ) -> Iterator[Mask]:
        here = allowed & (levels[level] >= 0) & (room > 0)
        if not here.any():
            return
        totals = [np.bincount(ids[here & (ids >= 0)], weights=room[here & (ids >= 0)]) for ids in levels[: level + 1]]
        found = []
        for domain in np.unique(levels[level][here]):
            if totals[level][domain] < count:
                continue
            first = int(np.flatnonzero(here & (levels[level] == domain))[0])
            wider = [float(totals[up][levels[up][first]]) if levels[up][first] >= 0 else 0.0 for up in range(level)]
            found.append(((*wider, float(totals[level][domain]), first), int(domain)))
        for _, domain in sorted(found):
            yield allowed & (levels[level] == domain)


def _numbered(floor: Floor, domains: Mapping[str, str]) -> npt.NDArray[np.int64]:
    numbers = {name: number for number, name in enumerate(sorted(set(domains.values())))}
    return np.array([numbers.get(domains.get(machine.name, ""), -1) for machine in floor.machines], dtype=np.int64)
