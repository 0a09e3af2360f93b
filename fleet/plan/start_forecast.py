"""When waiting gangs start: the plan's own run, played several times with run times as they may turn out.

Each future gives every gang a run time, and lets work come, as in some piece of the past (`futures`). The same snapshot
gives the same forecast.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from fleet.actions import SaveGang
from fleet.explain.gang_facts import StartEstimate
from fleet.explain.quota_holders import ExpectedEnd
from fleet.plan.futures import Futures
from fleet.plan.past_arrivals import PastArrivals
from fleet.plan.simulated_run import RunTerms, SimulatedRun, played
from fleet.replay.run_times import RunTimeBasis, RunTimes
from fleet.snapshot import GangState, Snapshot
from model.fleet import Fleet
from model.plain_text import age, counted

FUTURES: Final = 9
"""Runs of the plan that one forecast plays; of a large fleet fewer (`MOST_WORK`).

The next one falls between any two of nine with the same chance: the fifth is the median, and the last the nine-tenths.
"""
HORIZON_S: Final = 7 * 86_400.0
MOST_TURNS: Final = 1_500
"""Turns of all deciders in one future; what has not started by then starts later than is foreseen."""
LEAST_PART: Final = 1 / 25
"""What happens within this part of the time since the forecast was made is decided on at once, at the mean of its
instants: a future of a large fleet takes some hundred turns instead of thousands, and starts are foreseen too early by
so much of their wait at most, or too late. At the end of that time each run would take so much longer, and a queue of
short ones a fifth longer than it does."""
WORK_AT_ONCE: Final = 400
"""Gangs times turns that are played before whoever plays may pause; one turn at least."""
MOST_WORK: Final = 2_000_000
"""Gangs times turns after which no further future is begun: of a large fleet fewer are played."""
LEAST_FUTURES: Final = 3
STEPS_S: Final = (600.0, 6 * 3600.0)
"""Futures go from event to event; so much later at most is seen what falls due by the clock alone."""
_WAITS: Final = frozenset({GangState.PENDING, GangState.RESERVED})
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class StartForecast:
    """The instants (epoch s) at which gangs start, one a future; inf = not within the horizon."""

    made_at_s: float
    starts: Mapping[str, Sequence[float]]
    """uid -> its starts, earliest first."""
    bases: Mapping[str, int]
    """What expected run times stand on -> gangs."""
    futures: int
    """How many runs of the plan it stands on."""
    timeless: Sequence[str]
    """Names of gangs that hold capacity and whose run time nothing tells, in order."""
    past_s: float = 0.0
    """How long a past it was from which the work to come was taken; 0 = none was expected."""

    def estimate(self, uid: str) -> StartEstimate:
        """Returns the estimate for one gang; unknown for one that did not wait."""
        found = self.starts.get(uid, ())
        if not found:
            return StartEstimate(self.made_at_s, why_unknown="it came after the last forecast")
        p50_s, p90_s = (found[min(len(found), round(level * (len(found) + 1))) - 1] for level in (0.5, 0.9))
        if p50_s == inf:
            return StartEstimate(self.made_at_s, why_unknown=self._why())
        return StartEstimate(self.made_at_s, p50_s, p90_s if p90_s < inf else None, self._basis())

    def _why(self) -> str:
        if self.timeless:
            more = f" and {len(self.timeless) - _NAMED} more" if len(self.timeless) > _NAMED else ""
            names = ", ".join(self.timeless[:_NAMED])
            return f"nothing tells how long {names}{more} will run: none is declared, and none has ended"
        return f"it does not start within {HORIZON_S / 86_400:.0f} days in most futures"

    def _basis(self) -> str:
        told = [
            f"{words} of {counted(count, 'gang')}" for kind, words in _WORDS.items() if (count := self.bases.get(kind))
        ]
        unknown = f"; {counted(len(self.timeless), 'gang')} without any" if self.timeless else ""
        basis = (
            f"{self.futures} runs of the plan with " + (", ".join(told) or "nothing that has to end first") + unknown
        )
        return basis + (f"; work to come as in the last {age(self.past_s)}" if self.past_s else "")


_WORDS: Final[Mapping[str, str]] = {
    RunTimeBasis.DECLARED: "declared run times",
    RunTimeBasis.NAME: "run times learned of jobs of the same name",
    RunTimeBasis.USER: "run times learned of the same user",
    RunTimeBasis.SHAPE: "run times learned of the same queue and size",
    RunTimeBasis.QUEUE: "run times learned of the same queue",
    RunTimeBasis.ALL: "run times learned of all queues",
}


class StartForecaster:
    """Plays futures a few turns at a time, so that whoever asks may pause between them."""

    def __init__(
        self,
        fleet: Fleet,
        snapshot: Snapshot,
        known: RunTimes,
        arrivals: PastArrivals,
        futures: int = FUTURES,
        horizon_s: float = HORIZON_S,
    ) -> None:
        gangs = [gang for gang in snapshot.gangs.values() if gang.state is not GangState.FINISHED]
        self._fleet, self._snapshot, self._horizon_s = fleet, snapshot, horizon_s
        self._waiting = frozenset(gang.uid for gang in gangs if gang.state in _WAITS)
        self._of = Futures(snapshot, known, arrivals, futures)
        self._spreads = self._of.spreads
        running = [gang for gang in gangs if gang.uid not in self._waiting]
        self._timeless = sorted(gang.name for gang in running if not self._spreads[gang.uid].times_s)
        self._starts: dict[str, list[float]] = {uid: [] for uid in sorted(self._waiting)}
        self._futures, self._played = (futures if self._waiting else 0), 0
        self._under_way: Iterator[SimulatedRun] | None = None
        self._run: SimulatedRun | None = None
        self._work = 0

    @property
    def left(self) -> bool:
        """Returns whether there is another future to play."""
        return self._played < self._futures

    def step(self) -> None:
        """Plays a few turns of the future under way: the fewer the more gangs there are."""
        if self._under_way is None:
            self._under_way = played(self._fleet, self._snapshot, self._terms(self._played))
        for _ in range(max(1, WORK_AT_ONCE // len(self._spreads))):
            run = next(self._under_way, None)
            if run is None:
                self._end_future()
                return
            self._run, self._work = run, self._work + len(run.end.gangs)

    def _terms(self, number: int) -> RunTerms:
        def all_started(seen: Snapshot) -> bool:
            left = (seen.gangs.get(uid) for uid in self._waiting)
            return not any(gang is not None and gang.state in _WAITS for gang in left)

        come = self._of.to_come(number)
        run_s = {**self._of.run_s(number), **{it.job.ref.uid: it.run_s for it in come}}
        jobs = [(it.at_s, it.job) for it in come]
        return RunTerms(None, self._horizon_s, run_s, all_started, MOST_TURNS, STEPS_S, LEAST_PART, jobs)

    def _end_future(self) -> None:
        began: dict[str, float] = {}
        for timed in self._run.actions if self._run is not None else ():
            if isinstance(timed.action, SaveGang) and timed.action.gang.state is GangState.ADMITTED:
                began.setdefault(timed.action.gang.uid, timed.at_s)
        for uid, starts in self._starts.items():
            starts.append(began.get(uid, inf))
        self._played, self._under_way = self._played + 1, None
        if self._played >= LEAST_FUTURES and self._work >= MOST_WORK:
            self._futures = self._played

    @property
    def forecast(self) -> StartForecast:
        """Returns what the futures so far have shown."""
        bases = Counter(str(it.basis) for it in self._spreads.values() if it.times_s)
        starts = {uid: sorted(each) for uid, each in self._starts.items() if each}
        return StartForecast(self._snapshot.now_s, starts, bases, self._played, self._timeless, self._of.past_s)

    @property
    def ends(self) -> Mapping[str, ExpectedEnd]:
        """Returns uid -> when gangs that run end in the median, as far as anything tells."""
        now_s, found = self._snapshot.now_s, {}
        for uid, spread in self._spreads.items():
            gang = self._snapshot.gangs[uid]
            if gang.state is GangState.ADMITTED and spread.times_s:
                at_s = gang.admitted_at_s + spread.at(0.5, now_s - gang.admitted_at_s)
                found[uid] = ExpectedEnd(at_s, _WORDS[spread.basis])
        return found
