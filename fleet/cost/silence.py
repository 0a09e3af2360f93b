"""Times in which nobody looked: what is known of them afterwards, and what of that is told of machines.

What a machine cost is known from when the cloud launched and stopped it. Who had it is known of work that was there
before or is there now, as far as its job or its Workload says since when and until when. All else is `UNOBSERVED`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final, NamedTuple

from fleet.cost.allocation import Bill, allocate, machine_parts
from fleet.cost.machine_use import UNOBSERVED, Holding, MachineUse
from fleet.cost.open_hours import AS_BEFORE
from fleet.cost.records import Segment, with_ends
from fleet.markets import PriceSource
from fleet.snapshot import GangState, Snapshot

SILENCE_S: Final = 120.0
"""A longer time between two looks is one in which nobody looked: the agent was down, or another led."""
UNSEEN_MOST_S: Final = 3600.0
"""No machine runs for longer before it is known: what says so of a machine that is seen first is no launch of ours."""
_RUNS: Final = frozenset({GangState.ADMITTED, GangState.EVICTING})


class Silence(NamedTuple):
    """A `Silence` is the time since somebody looked last, and the world as it is seen afterwards."""

    begin_s: float
    """Epoch seconds, as `end_s`."""
    end_s: float
    after: Snapshot

    @property
    def unseen(self) -> bool:
        """Returns whether nobody looked: it is longer than between two looks of one agent, and one came before."""
        return self.begin_s > 0 and self.end_s - self.begin_s > SILENCE_S

    def held_until_s(self, holding: Holding) -> float | None:
        """Returns until when work held a machine at most (inf: it does still); None where nothing tells.

        Its job says when it ended, its Workload that it was never stopped, or when: both of the run that it is in, and
        nothing of an earlier one.
        """
        gang, job = self.after.gangs.get(holding.subject), self.after.jobs.get(holding.subject)
        if gang is not None and holding.of_run(gang.admitted_at_s):
            if job is not None and job.result and job.finished_at_s:
                return job.finished_at_s
            return inf if gang.state in _RUNS else None
        stopped = gang.eviction if gang is not None else None
        return stopped.at_s if stopped is not None and holding.of_run(stopped.admitted_at_s) else None


class _HeldTime(NamedTuple):
    begin_s: float
    end_s: float
    holding: Holding


def silent_segments(silence: Silence, before: MachineUse, after: MachineUse | None) -> Sequence[Segment]:
    """Returns the segments of a silence of a machine, which was used so before and is afterwards; None = it is gone.

    The price is that from before, unless it follows the spot price: then it is to be read (`priced_segments`).
    """
    begin_s, end_s, _ = silence
    held = [it for it in _held(silence, before, after) if it.begin_s < end_s and it.end_s > begin_s]
    times = {begin_s, *(it.begin_s for it in held), *(it.end_s for it in held)}
    unseen = replace(before, rest=UNOBSERVED, priced=_price_before(before))

    def segment(at_s: float) -> Segment:
        holdings = tuple(it.holding for it in held if it.begin_s <= at_s < it.end_s)
        return Segment(at_s, replace(unseen, holdings=holdings), awaits_price=before.spot_part > 0)

    return [segment(at_s) for at_s in sorted(times) if begin_s <= at_s < end_s]


def _price_before(before: MachineUse) -> PriceSource:
    """Returns the source of a price that nobody saw: that of one which does not move is what it was."""
    if not before.spot_part:
        return before.priced
    rate = "" if before.spot_part == 1 else f", {before.priced.source}"
    return before.priced._replace(source=f"{AS_BEFORE}{rate}")


def _held(silence: Silence, before: MachineUse, after: MachineUse | None) -> Iterator[_HeldTime]:
    """Yields who held the machine, as far as that is known: who has it now says best which part of it."""
    there = after.holdings if after is not None else ()
    for it in there:
        until_s = silence.held_until_s(it)
        yield _HeldTime(max(it.since_s, silence.begin_s), inf if until_s is None else until_s, it)
    told = {(it.subject, round(it.since_s)) for it in there}
    for it in before.holdings:
        until_s = silence.held_until_s(it)
        if until_s is not None and (it.subject, round(it.since_s)) not in told:
            yield _HeldTime(max(it.since_s, silence.begin_s), until_s, it)


_MachineEnd = tuple[MachineUse, float]
"""A machine, and when it ended (epoch seconds)."""


def bill_since(
    silence: Silence,
    used: Mapping[str, MachineUse],
    ended: Iterable[_MachineEnd] = (),
    seen: Mapping[str, MachineUse] | None = None,
    earliest_s: float = 0.0,
) -> Bill:
    """Returns the bill for the time since the last one, of the machines that bill now and of those that ended in it.

    Where nobody looked teams pay for what is known of their work, and machines that `ended` count, when they did. A
    machine that was in no bill yet counts from its launch on, but not from before `earliest_s` (epoch seconds). `seen`
    are the machines of the last bill, by id; None where only that of another agent is known.
    """
    lasted_s = silence.end_s - silence.begin_s
    if lasted_s <= 0:
        return Bill()
    counts = _Counting(silence, seen, max(earliest_s, silence.begin_s - UNSEEN_MOST_S))
    if silence.unseen:
        present = ((it, silence.end_s) for it in used.values())
        return _missed(silence, counts, [*present, *ended])
    begins = ((it, counts.from_s(it)) for it in used.values())
    apart = ((it, silence.end_s - min(at_s, silence.end_s)) for it, at_s in begins if at_s != silence.begin_s)
    return allocate(silence.after.index, used, lasted_s, apart)


class _Counting(NamedTuple):
    silence: Silence
    seen: Mapping[str, MachineUse] | None
    earliest_s: float

    def from_s(self, use: MachineUse) -> float:
        """Returns from when on a machine counts (epoch seconds).

        What this agent has billed before goes on, whatever clocks say. What another has billed is known by when the
        machine became known; the clock that says so may be a little off the one that times are measured by.
        """
        begin_s = self.silence.begin_s
        if self.seen is not None and use.machine in self.seen:
            return begin_s
        if use.known_s > (begin_s if self.seen is None else begin_s - SILENCE_S):
            return max(self.earliest_s, use.launched_s)
        return max(begin_s, use.launched_s)


def _missed(silence: Silence, counts: _Counting, until_s: Iterable[_MachineEnd]) -> Bill:
    """Returns the bill for a silence of machines, each up to an instant, at the price that is known now."""
    by_team: Counter[str] = Counter()
    for use, end_s in until_s:
        missed = silence._replace(begin_s=counts.from_s(use), end_s=min(silence.end_s, end_s))
        if missed.begin_s >= missed.end_s:
            continue
        for segment, segment_end_s in with_ends(silent_segments(missed, use, use)):
            by_team.update(machine_parts(segment.use, min(segment_end_s, missed.end_s) - segment.begin_s))
    return Bill(by_team.total(), dict(sorted(by_team.items())))
