"""A fleet run on a model of the world until nothing changes any more: what the agent would do, and when.

The deciders are the agent's own, in its order. Time passes in steps that grow while nothing happens; where nothing
runs, waits or stands it passes at once until something falls due. A machine that is bought in the run does not expire
in it: what takes its place would expire as well, and so on to the horizon.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, nextafter
from typing import Final

from fleet.actions import Action, Consider, NominatePods
from fleet.deciders import DECIDERS
from fleet.fence import DecisionFailed, told_apart
from fleet.placement.all_devices import under_fleet
from fleet.replay.cluster_model import ClusterModel
from fleet.replay.deadlines import anything_moves, next_deadline_s
from fleet.replay.effects import carry_out
from fleet.snapshot import Job, Snapshot
from model.fleet import Fleet

HORIZON_S: Final = 24 * 3600.0
"""How far a plan looks ahead; what is to happen later is said to be held."""
FIRST_STEP_S, LONGEST_STEP_S = 1.0, 900.0
"""Steps of time while nothing happens: each is half as long again as the one before."""
LONGEST_PART: Final = 1 / 8
"""What is further off is looked at in longer steps: at most this part of the time since the beginning."""
MOVING_S: Final = 60.0
"""What happens within this time is seen at once, and no more, while a machine or a gang comes or leaves: what takes two
looks must not exceed the time that it is given because nobody looked."""
RESTLESS_S: Final = 1800.0
"""A fleet whose machines expire sooner never comes to rest for guard rails."""
MOST_TURNS: Final = 5_000
"""Turns of all deciders before a run is given up: an agent that never came to rest would do the same."""


@dataclass(frozen=True, slots=True)
class TimedAction:
    """An action, and when it was asked for (epoch seconds)."""

    at_s: float
    action: Action


@dataclass(slots=True)
class SimulatedRun:
    """What was done, in order, and the world before and after, or as far as it has been played."""

    begin: Snapshot
    end: Snapshot
    actions: list[TimedAction] = field(default_factory=list)
    failed: list[DecisionFailed] = field(default_factory=list)
    given_up_after_s: float | None = None
    """How far the run got that was given up before the horizon, as it does not settle; None for one that was not."""
    expire_again: Mapping[str, float] = field(default_factory=dict)
    """Pools whose machines, bought in the run, would expire before the horizon as well, and after how long."""


@dataclass(frozen=True, slots=True)
class RunTerms:
    """`RunTerms` say how a fleet is run on a model of the world, and for how long."""

    before: Fleet | None = None
    """The fleet in force until now, under which machines that are still on their way were bought."""
    horizon_s: float = HORIZON_S
    run_s: Mapping[str, float] = field(default_factory=dict)
    """How long runs take beside what gangs say themselves (`ClusterModel`)."""
    enough: Callable[[Snapshot], bool] = lambda _seen: False
    """What ends the run sooner."""
    most_turns: int = MOST_TURNS
    steps_s: tuple[float, float] = (FIRST_STEP_S, LONGEST_STEP_S)
    """How far time goes at once where nothing falls due: at first, and at most."""
    least_part: float = 0.0
    """Of the time since the beginning: what happens within it is seen at once, at the mean of its instants.

    A job that arrives is seen when it does, as it cannot start before.
    """
    to_come: Sequence[tuple[float, Job]] = ()
    """Jobs that arrive in the run, and when (epoch s)."""


def simulate(
    fleet: Fleet, snapshot: Snapshot, *, before: Fleet | None = None, horizon_s: float = HORIZON_S
) -> SimulatedRun:
    """Returns what the agent would do from a snapshot on, until the horizon (seconds from then)."""
    return deque(played(fleet, snapshot, RunTerms(before, horizon_s)), maxlen=1)[0]


def played(fleet: Fleet, snapshot: Snapshot, terms: RunTerms) -> Iterator[SimulatedRun]:
    """Yields the run after each turn of all deciders, so that whoever plays it may pause, and once more at its end."""
    model = ClusterModel(fleet, under_fleet(fleet, snapshot), terms.before or fleet, terms.run_s)
    for at_s, job in terms.to_come:
        model.later(at_s, partial(model.jobs.put, job.ref.uid, job))
    came_s = sorted(at_s for at_s, _ in terms.to_come)
    run = SimulatedRun(model.snapshot(), model.snapshot())
    first_s, longest_s = terms.steps_s
    until_s, step_s = snapshot.now_s + terms.horizon_s, first_s
    aside: dict[str, frozenset[str]] = {}
    for _ in range(terms.most_turns):
        acted = _turn(fleet, model, run, aside)
        run.end = model.snapshot()
        yield run
        if terms.enough(run.end):
            break
        if acted:
            step_s = first_s
            continue
        if model.now_s >= until_s:
            break
        since_s = model.now_s - snapshot.now_s
        at_once_s = min(terms.least_part * since_s, MOVING_S if anything_moves(model.snapshot()) else inf)
        to_s = min(max(_next_turn_s(fleet, model, step_s), model.now_s + at_once_s), until_s)
        to_s = _before_arrival_s(came_s, model, to_s)
        step_s = min(step_s * 1.5, max(longest_s, LONGEST_PART * since_s)) if to_s < model.next_s else first_s
        model.advance(to_s, to_the_mean=terms.least_part > 0)
    else:
        run.given_up_after_s = model.now_s - snapshot.now_s
    run.end = model.snapshot()
    run.expire_again = _expire_again(fleet, run.end, until_s)
    yield run


def _anything(seen: Snapshot) -> bool:
    """Returns whether there is anything in this world that time alone could change."""
    return bool(seen.gangs or seen.jobs or seen.claims or seen.instances or seen.waiting_pods or seen.shortages)


def _expire_again(fleet: Fleet, end: Snapshot, until_s: float) -> Mapping[str, float]:
    ages = {name: pool.spec.template.expire_after for name, pool in fleet.node_pools.items()}
    bought = [claim for name, claim in end.claims.items() if name in end.never_expire and claim.node_pool in ages]
    again = (it.node_pool for it in bought if it.launched_at_s and it.launched_at_s + ages[it.node_pool] <= until_s)
    return {name: ages[name] for name in again}


def _next_turn_s(fleet: Fleet, model: ClusterModel, step_s: float) -> float:
    """Returns when something happens or falls due next; in `step_s` at the latest while anything is there."""
    seen = model.snapshot()
    look_s = model.now_s + step_s if _anything(seen) else inf
    return min(look_s, max(model.next_s, model.now_s), next_deadline_s(fleet, seen))


def _before_arrival_s(came_s: Sequence[float], model: ClusterModel, to_s: float) -> float:
    """Returns `to_s`, or where a job arrives until then its arrival; the last instant before it, if anything is first.

    `came_s` are the instants at which jobs arrive, in order.
    """
    later = bisect_right(came_s, model.now_s)
    if later == len(came_s) or to_s < came_s[later]:
        return to_s
    return came_s[later] if model.next_s >= came_s[later] else nextafter(came_s[later], 0.0)


def _turn(fleet: Fleet, model: ClusterModel, run: SimulatedRun, aside: dict[str, frozenset[str]]) -> int:
    """Lets every decider speak once; how many actions came of it. Who cannot be decided about is set aside for good.

    What one decider asks for is under way while the others speak, as in the agent: they leave its subjects alone.
    """
    acted, busy = 0, set[str]()
    for name, decide in DECIDERS.items():
        seen = model.snapshot()
        if busy or name in aside:
            seen = replace(seen, set_aside=aside.get(name, frozenset()), busy=frozenset(busy))
        actions, failed = told_apart(decide(fleet, seen))
        if failed:
            run.failed += failed
            aside[name] = aside.get(name, frozenset()) | {it.subject for it in failed}
        for action in actions:
            carry_out(model, action)
            if not isinstance(action, Consider | NominatePods):
                run.actions.append(TimedAction(model.now_s, action))
                busy.update(action.subjects)
                acted += 1
    return acted
