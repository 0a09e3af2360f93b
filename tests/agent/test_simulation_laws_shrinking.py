"""A history is shrunk to what a violation needs, and written as a scene; days pass without growth."""

from typing import Any

import pytest

from agent.simulation import Simulation
from agent.simulation.command import main
from agent.simulation.days import lived_days
from agent.simulation.drawing import sold
from agent.simulation.history import DrawnHistory, HistoryEvent
from agent.simulation.profiles import drawn_history
from agent.simulation.shrink import scene, shrunk
from providers.sim.store import StoreExpired
from tests.agent.scenes import gpu_job, simple


def test_what_is_not_needed_is_left_out() -> None:
    events = tuple(HistoryEvent(float(n), "push" if n == 0 else f"event-{n}") for n in range(12))
    history = DrawnHistory(1, "calm", events)
    tried: list[int] = []

    def breaks(tried_history: DrawnHistory) -> bool:
        tried.append(len(tried_history.events))
        return {"event-3", "event-8"} <= {event.kind for event in tried_history.events}

    found = shrunk(history, breaks)
    assert [event.kind for event in found.events] == ["push", "event-3", "event-8"]
    assert len(tried) < 60


def test_a_scene_is_a_test_that_plays_the_same_history() -> None:
    history = drawn_history(3, "faults")
    text = scene(history, "nothing idle")
    made: dict[str, Any] = {}
    exec(compile(text, "scene.py", "exec"), made)
    assert DrawnHistory.load(made["HISTORY"]) == history
    assert "test_nothing_idle_faults_3" in made


def test_shrinking_what_breaks_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--shrink", "--seed", "2"]) == 0
    assert "No law is broken" in capsys.readouterr().out


def test_days_in_one_process_do_not_let_it_grow() -> None:
    days = list(lived_days(2, 3))
    assert [day.day for day in days] == [1, 2]
    assert days[-1].machines > days[0].machines
    assert days[-1].objects < 150
    assert days[-1].books_bytes < 4000
    assert days[-1].fleetsync_bytes < 20_000


def test_events_and_history_are_forgotten_in_time() -> None:
    sim = Simulation(catalog=sold())
    sim.push(simple())
    sim.advance(1)
    sim.submit(gpu_job("a", run_s=30))
    sim.advance(900)
    assert sim.objects("Event")
    sim.advance(3600 + 600)
    assert not sim.objects("Event")
    with pytest.raises(StoreExpired):
        sim.store.changes(sim.store.resource("Pod"), 1)
