"""A fleet run on a model of the world until nothing changes any more: what the agent would do, and when.

The deciders are the agent's own, in its order. Time passes in steps that grow while nothing happens.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from fleet.actions import Action, Consider
from fleet.deciders import DECIDERS
from fleet.fence import DecisionFailed, told_apart
from fleet.plan.cluster_model import ClusterModel
from fleet.plan.effects import carry_out
from fleet.snapshot import Snapshot
from model.fleet import Fleet

HORIZON_S: Final = 24 * 3600.0
"""How far a plan looks ahead; what is to happen later is said to be held."""
FIRST_STEP_S: Final = 1.0
LONGEST_STEP_S: Final = 900.0
"""Steps of time while nothing happens: each is half as long again as the one before."""
MOST_TURNS: Final = 5_000
"""Turns of all deciders before a run is given up: an agent that never came to rest would do the same."""


@dataclass(frozen=True, slots=True)
class TimedAction:
    """An action, and when it was asked for (epoch seconds)."""

    at_s: float
    action: Action


@dataclass(slots=True)
class SimulatedRun:
    """What was done, in order, and the world before and after."""

    begin: Snapshot
    end: Snapshot
    actions: list[TimedAction] = field(default_factory=list)
    failed: list[DecisionFailed] = field(default_factory=list)
    given_up_after_s: float | None = None
    """How far the run got that was given up before the horizon, as it does not settle; None for one that was not."""


def simulate(fleet: Fleet, snapshot: Snapshot, *, horizon_s: float = HORIZON_S) -> SimulatedRun:
    """Returns what the agent would do from a snapshot on, until the horizon (seconds from then)."""
    model = ClusterModel(fleet, snapshot)
    run = SimulatedRun(model.snapshot(), model.snapshot())
    until_s, step_s = snapshot.now_s + horizon_s, FIRST_STEP_S
    aside: dict[str, frozenset[str]] = {}
    for _ in range(MOST_TURNS):
        acted = _turn(fleet, model, run, aside)
        if acted:
            step_s = FIRST_STEP_S
            continue
        if model.now_s >= until_s:
            break
        to_s = min(model.now_s + step_s, max(model.next_s, model.now_s), until_s)
        step_s = min(step_s * 1.5, LONGEST_STEP_S) if to_s < model.next_s else FIRST_STEP_S
        model.advance(to_s)
    else:
        run.given_up_after_s = model.now_s - snapshot.now_s
    run.end = model.snapshot()
    return run


def _turn(fleet: Fleet, model: ClusterModel, run: SimulatedRun, aside: dict[str, frozenset[str]]) -> int:
    """Lets every decider speak once; how many actions came of it. Who cannot be decided about is set aside for good."""
    acted = 0
    for name, decide in DECIDERS.items():
        seen = replace(model.snapshot(), set_aside=aside.get(name, frozenset()))
        actions, failed = told_apart(decide(fleet, seen))
        run.failed += failed
        aside[name] = aside.get(name, frozenset()) | {it.subject for it in failed}
        for action in actions:
            carry_out(model, action)
            if not isinstance(action, Consider):
                run.actions.append(TimedAction(model.now_s, action))
                acted += 1
    return acted
