"""What may happen while gangs wait: how long runs take, and what work comes. Each future is a piece of the past.

Runs are alike that were submitted one after the other (a sweep, a release), and work comes in bursts. Where each gang
draws by itself, a queue of many takes as long in all futures, as their runs average out; and where nothing comes, all
starts are too early. So a future takes both from the past in the order in which they were, from an instant that is
drawn (circular block bootstrap: Politis and Romano, 1992). Instants are spread evenly over the futures.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import count, islice
from math import log
from typing import Final, NamedTuple

from fleet.plan.past_arrivals import PastArrivals
from fleet.replay.run_times import RunTimes, RunTimeSpread
from fleet.snapshot import Gang, GangState, Job, JobRef, Snapshot

ENOUGH: Final = 10
"""Arrivals from which on work is expected to come."""
LEAST_PAST_S: Final = 86_400.0
"""A shorter past counts as so long, with nothing before it: else a burst at the beginning would last for ever."""
LONGEST_LULL_S: Final = 3_600.0
"""So much of the time since the last arrival counts at most when like instants of the past are looked for."""
TOGETHER: Final = 1.2
"""Work that comes within this factor of the time since the forecast was made comes at once: fewer turns are played."""
LEAST_TO_COME: Final = 15
"""Gangs that come in one future at most; half as many as there are now, if those are more.

What comes first matters most, and a future must not become much dearer.
"""


class ComingGang(NamedTuple):
    """A gang that comes in one future: when (epoch s), as what job, and how long it runs from its admission on (s)."""

    at_s: float
    job: Job
    run_s: float


class Futures:
    """So many futures of one snapshot; the same for the same snapshot and past."""

    def __init__(self, snapshot: Snapshot, known: RunTimes, arrivals: PastArrivals, futures: int) -> None:
        self._now_s, self._futures = snapshot.now_s, futures
        gangs = (gang for gang in snapshot.gangs.values() if gang.state is not GangState.FINISHED)
        self._gangs = sorted(gangs, key=lambda it: (it.created_at_s, it.uid))
        under_way = [(it, ran_s) for it in self._gangs if (ran_s := _longest_s(it, self._now_s)) > 0]
        self._known = known.with_open(under_way, _share)
        self.spreads: Mapping[str, RunTimeSpread] = {it.uid: self._known.spread(it) for it in self._gangs}
        """uid -> how long its run may take."""
        self._since_s, self._came = arrivals.view()

    @property
    def past_s(self) -> float:
        """Returns how long the past is that work to come is taken from (s); 0 = none is expected."""
        return self._now_s - self._since_s if len(self._came) >= ENOUGH else 0.0

    def run_s(self, number: int) -> Mapping[str, float]:
        """Returns uid -> how long its run takes from its admission on (s), in one future."""
        found, turns = dict[str, float](), Counter[Hashable]()
        for gang in self._gangs:
            spread = self.spreads[gang.uid]
            if spread.times_s:
                level = self._level(gang, spread, number, turns[spread.kind])
                turns[spread.kind] += 1
                found[gang.uid] = _run_s(gang, spread, level, self._now_s)
        return found

    def _level(self, gang: Gang, spread: RunTimeSpread, number: int, turn: int) -> float:
        """Returns at which level of its run times a gang is: that of the run that was as far on in the past."""
        within = _share(gang.uid, number)
        if not spread.in_turn:
            return within
        parts = len(spread.in_turn)
        begin = parts * (_share(spread.kind, self._now_s) + number / self._futures)
        return (spread.rank(spread.in_turn[(int(begin) + turn) % parts]) + within) / parts

    def to_come(self, number: int) -> Sequence[ComingGang]:
        """Returns the work that comes in one future, in order: what came after some gang of the past had come."""
        if len(self._came) < ENOUGH:
            return ()
        return list(islice(self._after(number), max(LEAST_TO_COME, len(self._gangs) // 2)))

    def _after(self, number: int) -> Iterator[ComingGang]:
        came, now_s = self._came, self._now_s
        first = int((_share("begin", now_s) + number / self._futures) % 1.0 * len(came))
        lull_s = min(LONGEST_LULL_S, now_s - came[-1].gang.created_at_s)
        from_s, past_s = came[first].gang.created_at_s + lull_s, max(LEAST_PAST_S, now_s - self._since_s)
        for place in count(first):
            again, which = divmod(place, len(came))
            gang, ran_s = came[which]
            at_s = now_s + gang.created_at_s - from_s + again * past_s
            spread = self._known.spread(gang)
            if at_s > now_s and spread.times_s:
                run_s = _run_s(gang, spread, _share(gang.uid, number, "run"), now_s) if ran_s is None else ran_s
                at_s = now_s + _rounded_s(at_s - now_s)
                yield ComingGang(at_s, _job_like(gang, f"to-come-{place}", at_s), run_s)
            elif place > first + 2 * len(came):
                return  # nothing of what came has a run time


def _run_s(gang: Gang, spread: RunTimeSpread, level: float, now_s: float) -> float:
    """Returns how long a gang runs from its admission on, the present one if it runs, given what it has run already."""
    ran_s = now_s - gang.admitted_at_s if gang.state is GangState.ADMITTED else 0.0
    kept_s = gang.ran_before_s if gang.checkpoint_interval_s else 0.0
    return max(ran_s, 0.0) + max(1.0, spread.at(level, _longest_s(gang, now_s)) - kept_s - max(ran_s, 0.0))


def _longest_s(gang: Gang, now_s: float) -> float:
    """Returns how long a run of a gang has taken without ending: one that was evicted takes longer than it had.

    Of several earlier runs only the sum is known; one of them was as long as their mean at least.
    """
    if gang.checkpoint_interval_s:
        return gang.ran_s(now_s)
    earlier_s = gang.ran_before_s / max(1, gang.evictions)
    return max(earlier_s, now_s - gang.admitted_at_s if gang.state is GangState.ADMITTED else 0.0)


def _rounded_s(after_s: float) -> float:
    """Returns the nearest of the instants, in proportion, at which work comes."""
    return TOGETHER ** round(log(max(1.0, after_s), TOGETHER))


def _job_like(gang: Gang, uid: str, at_s: float) -> Job:
    return Job(
        JobRef("batch/v1", "Job", gang.namespace, f"{uid}-{gang.job.name}", uid), "1", gang.queue, gang.priority_class,
        True, gang.pod_sets, at_s, expected_run_s=gang.expected_run_s, max_run_s=gang.max_run_s,
        checkpoint_interval_s=gang.checkpoint_interval_s,
    )  # fmt: skip


def _share(*of: object) -> float:
    """Returns a number from 0 to 1 that is the same for the same things, and unlike for others."""
    return int.from_bytes(blake2b(repr(of).encode(), digest_size=8).digest(), "big") / 2**64
