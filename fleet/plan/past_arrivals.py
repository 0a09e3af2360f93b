"""What work came, and how long it ran: futures of a forecast are made of it."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from fleet.replay.run_times import EndedRun
from fleet.snapshot import Gang

ARRIVALS_KEPT: Final = 1_000
"""Newest arrivals that futures are made of."""


class PastArrival(NamedTuple):
    """A gang that came, and how long its run took (s); None = it has not ended."""

    gang: Gang
    ran_s: float | None


@dataclass(slots=True)
class PastArrivals:
    """What work came, as far as it was seen from its beginning. One thread notes, which draws as well."""

    _came: "OrderedDict[str, PastArrival]" = field(default_factory=OrderedDict)
    _since_s: float = inf
    """From when on all that came is known (epoch s)."""
    _looked: bool = False

    def note(self, gangs: Iterable[Gang], now_s: float) -> None:
        """Takes in gangs that are there; those that came before anybody looked say nothing about how often they do."""
        self._since_s, self._looked = min(self._since_s, now_s), True
        for gang in sorted(gangs, key=lambda it: (it.created_at_s, it.uid)):
            if gang.uid not in self._came and gang.created_at_s >= self._since_s and gang.queue:
                self._put(PastArrival(gang, None))

    def learn(self, ended: EndedRun) -> None:
        """Takes in a run that has ended; before anybody has looked, those of a record, which tells of all."""
        if not self._looked:
            self._since_s = min(self._since_s, ended.gang.created_at_s)
        if ended.gang.queue:
            self._put(PastArrival(*ended))

    def _put(self, arrival: PastArrival) -> None:
        self._came[arrival.gang.uid] = arrival
        while len(self._came) > ARRIVALS_KEPT:
            self._since_s = max(self._since_s, self._came.popitem(last=False)[1].gang.created_at_s)

    def view(self) -> "tuple[float, Sequence[PastArrival]]":
        """Returns since when arrivals are known (epoch s), and those since then, in order."""
        came = (it for it in self._came.values() if it.gang.created_at_s >= self._since_s)
        return self._since_s, sorted(came, key=lambda it: (it.gang.created_at_s, it.gang.uid))
