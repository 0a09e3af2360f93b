"""Writes that are carried out late and refused then: the agent has gone on in the belief that they succeed.

An API server that turns requests away answers seconds later; without a wire every other simulation answers at once.
"""

from dataclasses import replace
from random import Random

import pytest

from agent.simulation.history import DrawnHistory, HistoryEvent
from agent.simulation.play import play
from agent.simulation.process import Tempo
from agent.simulation.profiles import DRAWN_FAULTS, drawn_history
from providers.sim.apiserver.faults import WRITES, FaultRule, PriorityReject
from tests.agent.scenes import Scene, gpu_job, simple

KIND = "api_refuses_late"


def test_a_node_whose_registration_was_refused_is_registered_after_all() -> None:
    """Its claim was Ready with the taint `unregistered` on its node, and the gang pinned to it waited for ever."""
    scene = Scene(simple(), tempo=Tempo(tick_s=1.0))
    scene.sim.late_writes = lambda: 2.0
    rule = scene.sim.api_rules.add(FaultRule(PriorityReject(), WRITES, frozenset({"nodes"})))
    scene.sim.submit(gpu_job("train"))
    scene.settle(300, settled=False)
    scene.sim.api_rules.remove(rule)
    scene.until_running("train")


def shaken(seed: int, times: int) -> DrawnHistory:
    """A calm history with many of these faults while it works."""
    calm, rng = drawn_history(seed, "calm"), Random(seed)
    faults = [
        HistoryEvent(rng.uniform(10.0, 600.0), KIND, pick=rng.random(), args=DRAWN_FAULTS[KIND](rng))
        for _ in range(times)
    ]
    return replace(calm, foresees=False, events=tuple(sorted([*calm.events, *faults], key=lambda it: it.at_s)))


@pytest.mark.parametrize("seed", [10, 46, 87, 132, 133, 162, 183, 220, 224, 398])
def test_histories_in_which_it_went_wrong_keep_the_laws(seed: int) -> None:
    """Nodes left unregistered, saves repeated without a pause, one machine replaced by two, a launch repeated."""
    assert play(shaken(seed, 14)).violations == ()
