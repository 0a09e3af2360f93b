"""Hours that are not in the ledger yet: what a meter holds of them, and the records that they will be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from fleet.cost.commitments import with_fees
from fleet.cost.machine_use import Commitment
from fleet.cost.records import DAY_S, HOUR_S, LedgerRecord, MachineSpan, Segment, StartRecord, cut_hour, cut_time
from fleet.markets import CapacityPool


class SpotSilence(NamedTuple):
    """A `SpotSilence` is a time in which nobody looked at spot machines, whose prices are still to be read."""

    pools: frozenset[CapacityPool]
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class MeterState:
    """A `MeterState` is what a meter holds at one instant."""

    cluster: str
    spans: Mapping[str, MachineSpan]
    until_s: float
    cut_until_s: float
    running: Mapping[str, float] = field(default_factory=dict)
    starts: tuple[StartRecord, ...] = ()
    commitments: tuple[Commitment, ...] = ()

    def started(self, hour_s: float) -> Sequence[StartRecord]:
        """Returns the starts of an hour that is over."""
        return [it for it in self.starts if it.running_s < hour_s + HOUR_S]

    def records(self, hour_s: float) -> Sequence[LedgerRecord]:
        """Returns the records of an hour that is over."""
        return self._cut(hour_s, inf)

    def _cut(self, hour_s: float, seen_s: float) -> Sequence[LedgerRecord]:
        spans = (span for _, span in sorted(self.spans.items()))
        records = (it for span in spans for it in cut_hour(self.cluster, span, hour_s, seen_s))
        return with_fees(self.cluster, records, self.commitments, hour_s, min(hour_s + HOUR_S, seen_s))

    def so_far(self) -> Sequence[LedgerRecord]:
        """Returns the records of what is not cut yet, up to the last look: for reports of the running month."""
        found: list[LedgerRecord] = []
        hour_s = self.cut_until_s
        while hour_s < self.until_s:
            found += self._cut(hour_s, self.until_s)
            hour_s += HOUR_S
        return found

    def to_come(self, end_s: float, *, by_day: bool = False) -> Sequence[LedgerRecord]:
        """Returns the records that a time to come makes if all that runs now runs on (`MachineUse.to_come`).

        Those of the days after the running one are of the hour inf, where days are told apart.
        """
        day_s = (self.until_s // DAY_S + 1) * DAY_S
        if not by_day or day_s >= end_s:
            return self._to_come(self.until_s, end_s)
        later = self._to_come(day_s, end_s)
        return [*self._to_come(self.until_s, day_s), *(replace(it, hour_s=inf) for it in later)]

    def _to_come(self, begin_s: float, end_s: float) -> Sequence[LedgerRecord]:
        running = (it.segments[-1].use for _, it in sorted(self.spans.items()) if it.ended_s is None)
        pieces = (piece for use in running for piece in use.to_come(self.until_s, end_s))
        records = [
            record
            for from_s, until_s, use in pieces
            for record in cut_time(self.cluster, MachineSpan((Segment(from_s, use),)), begin_s, until_s)
        ]
        return with_fees(self.cluster, records, self.commitments, begin_s, end_s)
