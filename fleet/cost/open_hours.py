"""Hours that are not in the ledger yet: what a meter holds of them, and the records that they will be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from fleet.cost.commitments import with_fees
from fleet.cost.machine_use import Commitment
from fleet.cost.records import HOUR_S, LedgerRecord, MachineSpan, StartRecord, cut_hour
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
        return with_fees(self.cluster, records, self.commitments, hour_s, seen_s)

    def so_far(self) -> Sequence[LedgerRecord]:
        """Returns the records of what is not cut yet, up to the last look: for reports of the running month."""
        found: list[LedgerRecord] = []
        hour_s = self.cut_until_s
        while hour_s < self.until_s:
            found += self._cut(hour_s, self.until_s)
            hour_s += HOUR_S
        return found
