"""When waiting gangs start: the plan's own run, played several times with run times as they may turn out.

Each future gives every gang one of its equally likely run times. Levels are stratified and shuffled by a hash of the
gang, so that futures differ, no two gangs move in step, and the same snapshot gives the same forecast.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import inf
from typing import Final

from fleet.actions import SaveGang
from fleet.explain.gang import StartEstimate
from fleet.plan.simulated_run import simulate
from fleet.replay.run_times import RunTimeBasis, RunTimes, RunTimeSpread
from fleet.snapshot import GangState, Snapshot
from model.fleet import Fleet
from model.plain_text import counted

FUTURES: Final = 10
"""Runs of the plan that one forecast plays."""
HORIZON_S: Final = 7 * 86_400.0
MOST_TURNS: Final = 1_500
"""Turns of all deciders in one future; what has not started by then starts later than is foreseen."""
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
    timeless: Sequence[str]
    """Names of gangs that hold capacity and whose run time nothing tells, in order."""

    def estimate(self, uid: str) -> StartEstimate:
        """Returns the estimate for one gang; unknown for one that did not wait."""
        found = self.starts.get(uid, ())
        if not found:
            return StartEstimate(self.made_at_s, why_unknown="it came after the last forecast")
        p50_s, p90_s = (found[min(len(found) - 1, int(level * len(found)))] for level in (0.5, 0.9))
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
        return f"{FUTURES} runs of the plan with " + (", ".join(told) or "nothing that has to end first") + unknown


_WORDS: Final[Mapping[str, str]] = {
    RunTimeBasis.DECLARED: "declared run times",
    RunTimeBasis.NAME: "run times learned of jobs of the same name",
    RunTimeBasis.USER: "run times learned of the same user",
    RunTimeBasis.SHAPE: "run times learned of the same queue and size",
    RunTimeBasis.QUEUE: "run times learned of the same queue",
    RunTimeBasis.ALL: "run times learned of all queues",
}


def forecast_starts(
    fleet: Fleet, snapshot: Snapshot, known: RunTimes, *, futures: int = FUTURES, horizon_s: float = HORIZON_S
) -> StartForecast:
    """Returns when all that wait now start. Its cost is that of `futures` plans that stop when all have started."""
    waiting = frozenset(uid for uid, gang in snapshot.gangs.items() if gang.state in _WAITS)
    spreads = {uid: known.spread(gang) for uid, gang in snapshot.gangs.items() if gang.state is not GangState.FINISHED}
    running = [gang for gang in snapshot.gangs.values() if gang.holds_capacity and gang.uid not in waiting]
    timeless = sorted(gang.name for gang in running if not spreads[gang.uid].times_s)
    if not waiting:
        return StartForecast(snapshot.now_s, {}, {}, timeless)
    found: dict[str, list[float]] = {uid: [] for uid in waiting}
    for number in range(futures):
        began = _future(fleet, snapshot, _drawn(snapshot, spreads, number, futures), waiting, horizon_s)
        for uid, starts in found.items():
            starts.append(began.get(uid, inf))
    bases = Counter(str(it.basis) for it in spreads.values() if it.times_s)
    return StartForecast(snapshot.now_s, {uid: sorted(each) for uid, each in found.items()}, bases, timeless)


def _drawn(snapshot: Snapshot, spreads: Mapping[str, RunTimeSpread], number: int, futures: int) -> Mapping[str, float]:
    """Returns uid -> how long its run takes from its admission on, in one future."""
    found = {}
    for uid, spread in spreads.items():
        gang = snapshot.gangs[uid]
        if spread.times_s:
            ran_s = snapshot.now_s - gang.admitted_at_s if gang.state is GangState.ADMITTED else 0.0
            found[uid] = max(ran_s + 1.0, spread.at(level_of(uid, number, futures), ran_s))
    return found


def level_of(uid: str, number: int, futures: int) -> float:
    """Returns which level of its run times a gang has in a future: each of so many equal parts once, in its order."""
    digest = blake2b(uid.encode(), digest_size=16).digest()
    order = sorted(range(futures), key=lambda it: blake2b(digest + it.to_bytes(4, "big"), digest_size=8).digest())
    within = blake2b(digest + b"within" + number.to_bytes(4, "big"), digest_size=4).digest()
    return (order[number % futures] + int.from_bytes(within, "big") / 2**32) / futures


def _future(
    fleet: Fleet, snapshot: Snapshot, run_s: Mapping[str, float], waiting: Collection[str], horizon_s: float
) -> Mapping[str, float]:
    """Returns uid -> when it starts for the first time, for those that do."""

    def all_started(seen: Snapshot) -> bool:
        left = (seen.gangs.get(uid) for uid in waiting)
        return not any(gang is not None and gang.state in _WAITS for gang in left)

    run = simulate(
        fleet,
        snapshot,
        horizon_s=horizon_s,
        run_s=run_s,
        enough=all_started,
        most_turns=MOST_TURNS,
    )
    began: dict[str, float] = {}
    for timed in run.actions:
        if isinstance(timed.action, SaveGang) and timed.action.gang.state is GangState.ADMITTED:
            began.setdefault(timed.action.gang.uid, timed.at_s)
    return began
