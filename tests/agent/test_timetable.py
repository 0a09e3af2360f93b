"""The timetable: whoever is to be woken is woken in time, once, whatever becomes of the machine's clock."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agent.inbox import Event, Tick
from agent.sources import SourceThread
from agent.timetable import JUMP_LEAST_S, LEAST_S, MOST_S, SOONEST_S, Alarm, RestPace, Timetable, steady_scheduler
from providers.clock import VirtualClock


class WoundClock:
    """A machine's clock that somebody sets."""

    def __init__(self) -> None:
        self.at_s = 1_000.0
        self.wall_s = 5_000.0

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        return self.wall_s

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return self.at_s


@pytest.fixture
def running() -> Any:
    timetable = Timetable()
    timetable.start()
    yield timetable
    timetable.stop()


def heard() -> tuple[threading.Event, Callable[[], None]]:
    event = threading.Event()
    return event, event.set


def test_it_calls_again_and_again_and_once(running: Timetable) -> None:
    events: list[Event] = []
    twice, once = threading.Semaphore(0), threading.Event()
    running.every("tick", 0.01, lambda: (events.append(Tick()), twice.release()))
    running.at("git", 0.01, once.set)
    assert twice.acquire(timeout=5.0)
    assert twice.acquire(timeout=5.0)
    assert once.wait(5.0)


def test_a_name_stands_for_its_last_call(running: Timetable) -> None:
    first, call_first = heard()
    last, call_last = heard()
    running.at("git", 3600.0, call_first)
    running.at("git", 0.0, call_last)
    assert last.wait(5.0)
    assert not first.is_set()
    running.at("git", 3600.0, call_first)
    running.cancel("git")
    running.cancel("git")
    assert running._scheduler.get_job("git") is None


def test_what_is_missed_runs_once_and_is_not_left_out() -> None:
    timetable = Timetable()
    timetable.every("tick", 1.0, lambda: None)
    timetable._scheduler.start(paused=True)
    try:
        job = timetable._scheduler.get_job("tick")
        assert (job.coalesce, job.misfire_grace_time, job.max_instances) == (True, None, 1)
        late = job.next_run_time - timedelta(hours=5)
        job.modify(next_run_time=late)
        assert len(job._get_run_times(late + timedelta(hours=5))) > 1_000, "as often as it was missed"
    finally:
        timetable.stop()


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0, -1.0, 86_400.0 * 365])
def test_jobs_keep_their_distance_when_the_clock_is_set(by_s: float) -> None:
    clock = WoundClock()
    scheduler = steady_scheduler(clock)
    scheduler.apart_s = clock.now() - clock.monotonic()
    timetable = Timetable(scheduler)
    scheduler.start(paused=True)
    try:
        timetable.every("tick", 1.0, lambda: None)
        timetable.at("git", 60.0, lambda: None)
        before = {job.id: job.next_run_time for job in scheduler.get_jobs()}
        scheduler.apart_s = clock.now() - clock.monotonic()
        clock.at_s, clock.wall_s = clock.at_s + 5.0, clock.wall_s + 5.0
        scheduler.follow_the_clock()
        assert {job.id: job.next_run_time for job in scheduler.get_jobs()} == before, "time that passes is no jump"
        clock.wall_s += by_s
        scheduler.follow_the_clock()
        scheduler.follow_the_clock()
        after = {job.id: job.next_run_time for job in scheduler.get_jobs()}
        assert after == {name: when + timedelta(seconds=by_s) for name, when in before.items()}
    finally:
        timetable.stop()


def test_a_clock_that_is_slewed_moves_nothing() -> None:
    clock = WoundClock()
    scheduler = steady_scheduler(clock)
    timetable = Timetable(scheduler)
    scheduler.start(paused=True)
    try:
        timetable.at("git", 60.0, lambda: None)
        scheduler.apart_s = clock.now() - clock.monotonic()
        before = scheduler.get_job("git").next_run_time
        clock.wall_s += JUMP_LEAST_S / 2
        scheduler.follow_the_clock()
        assert scheduler.get_job("git").next_run_time == before
    finally:
        timetable.stop()


def test_the_pause_of_a_source_ends_by_the_timetable(running: Timetable) -> None:
    stop, third, times = threading.Event(), threading.Event(), [0]

    def listen() -> float:
        times[0] += 1
        if times[0] == 3:
            third.set()
        return 0.01 if times[0] < 3 else 3600.0

    thread = SourceThread("test", listen, stop, lambda *_failure: None, running)
    thread.start()
    assert third.wait(5.0)
    stop.set()
    thread.join(5.0)
    assert times == [3]


class WrittenTimetable(Timetable):
    """Writes down when it is to call, and calls nobody."""

    def __init__(self) -> None:
        self.in_s: list[float] = []

    def at(self, name: str, in_s: float, call: Callable[[], object]) -> None:
        """One call."""
        assert name == "deciders"
        self.in_s.append(in_s)


def test_rests_grow_while_nothing_is_due_and_end_when_something_is() -> None:
    pace = RestPace()
    assert [pace.rest_s(3600.0) for _ in range(8)] == [1.0, 1.5, 2.25, 3.375, 5.0625, 7.59375, 11.390625, MOST_S]
    assert pace.rest_s(3.5) == 3.5
    assert pace.rest_s(0.001) == SOONEST_S
    assert [pace.rest_s(due) for due in (0.0, -5.0, 60.0, 60.0)] == [LEAST_S, LEAST_S, LEAST_S, 1.5]


def test_an_hour_in_which_nothing_is_due_asks_the_deciders_a_few_hundred_times() -> None:
    clock, written = VirtualClock(0.0), WrittenTimetable()
    alarm = Alarm(written, clock, lambda: None)
    while clock.now() < 3600.0:
        alarm.rest(7200.0, ticked=True)
        clock.advance(written.in_s[-1])
    assert len(written.in_s) == 245


def test_a_rest_is_cut_short_by_what_is_heard_and_never_made_longer() -> None:
    clock, written = VirtualClock(0.0), WrittenTimetable()
    alarm = Alarm(written, clock, lambda: None)
    alarm.rest(60.0, ticked=True)
    alarm.rest(0.4, ticked=False)
    alarm.rest(30.0, ticked=False)
    alarm.rest(0.0, ticked=False)
    assert written.in_s == [1.0, 0.4], "it rings in 0.4 s already"
    clock.advance(0.4)
    alarm.rest(20.0, ticked=True)
    clock.advance(0.5)
    alarm.rest(0.0, ticked=False)
    assert written.in_s[2:] == [1.0], "half a second is left of this one"
