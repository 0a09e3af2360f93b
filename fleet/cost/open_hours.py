"""Hours that are not in the ledger yet: what a meter holds of them, and the records that they will be."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, NamedTuple

from fleet.cost.commitments import with_fees
from fleet.cost.machine_use import Commitment
from fleet.cost.records import (
    DAY_S,
    HOUR_S,
    LedgerRecord,
    MachineSpan,
    Segment,
    StartRecord,
    cut_hour,
    cut_time,
    with_ends,
)
from fleet.markets import CapacityPool, PastPrice, PriceSource

AS_BEFORE: Final = "spot price before nobody looked"
READ_AFTERWARDS: Final = "spot price history, read after nobody had looked"


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
    bereft: Mapping[str, float] = field(default_factory=dict)
    """As `Meter` has them; what an older agent kept has neither."""
    settled_s: float = 0.0

    def up_to(self, now_s: float) -> "MeterState":
        """Returns what of it was seen until an instant, for who finds that the clock was ahead.

        Hours that were cut since are cut again: a ledger takes of them what it has nothing of.
        """
        return replace(
            self,
            spans={key: _up_to(span, now_s) for key, span in self.spans.items()},
            until_s=min(self.until_s, now_s),
            cut_until_s=min(self.cut_until_s, now_s // HOUR_S * HOUR_S),
            starts=tuple(it for it in self.starts if it.running_s <= now_s),
            bereft={},
            settled_s=0.0,
        )

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


def _up_to(span: MachineSpan, now_s: float) -> MachineSpan:
    """Returns what was seen of a machine until an instant, at which it runs if its end came later."""
    first, *later = span.segments
    segments = (first._replace(begin_s=min(first.begin_s, now_s)), *(it for it in later if it.begin_s <= now_s))
    over = span.ended_s is not None and span.ended_s <= now_s
    lost = tuple(it for it in span.lost if it.at_s <= now_s)
    return MachineSpan(segments, span.ended_s if over else None, span.ended if over else "", lost)


def silences(span: MachineSpan, until_s: float) -> Sequence[tuple[float, float]]:
    """Returns the times (begin, end) in which a machine's spot price is still to be read."""
    last_s = until_s if span.ended_s is None else span.ended_s
    return [(it.begin_s, min(end_s, last_s)) for it, end_s in with_ends(span.segments) if it.awaits_price]


def priced_segments(
    segments: Sequence[Segment], history: Sequence[PastPrice], until_s: float = inf
) -> tuple[Segment, ...]:
    """Returns the segments with prices from the history of their pool, which reaches until then.

    Those of which it knows nothing stay at the price from before. None of them awaits its price any longer.
    """
    found: list[Segment] = []
    for segment, end_s in with_ends(segments):
        mine = segment.awaits_price and segment.begin_s < until_s
        found += _priced(segment, end_s, history) if mine else [segment]
    return tuple(found)


def _priced(segment: Segment, end_s: float, history: Sequence[PastPrice]) -> Iterator[Segment]:
    """Yields a segment cut where its price changed; a price that comes again is no change."""
    use, begin_s = segment.use, segment.begin_s
    earlier = [it for it in history if it.since_s <= begin_s]
    changes = [*earlier[-1:], *(it for it in history if begin_s < it.since_s < end_s)]
    if not earlier:
        yield segment._replace(awaits_price=False)
    for n, (since_s, usd_h) in enumerate(changes):
        if n == 0 or usd_h != changes[n - 1].usd_h:
            source = use.priced.source.replace(AS_BEFORE, READ_AFTERWARDS)
            priced = PriceSource(source, use.priced.region, since_s)
            yield Segment(max(begin_s, since_s), replace(use, usd_h=usd_h * use.spot_part, priced=priced))
