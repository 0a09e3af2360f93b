"""What happens at a time: one APScheduler, whose jobs only wake those who do the work.

A job that is late (the machine slept, the process was stopped) runs once, as soon as it can: `coalesce`, and no grace
that ends. APScheduler reckons in the time of day, which may be set while the agent runs; here every job moves with it,
so that a pause stays as long as it was. Nothing is decided by it: who is woken asks the agent's own clock.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from providers.clock import Clock, SystemClock

LOOK_EVERY_S: Final = 1.0
"""How often it is looked whether somebody has set the machine's clock."""
JUMP_LEAST_S: Final = 0.5
"""The time of day is slewed all the time; a jump is more than that."""


def steady_scheduler(clock: Clock | None = None) -> Any:
    """Returns a BackgroundScheduler whose jobs keep their distance when the time of day is set.

    Of `clock` only jumps are asked: how far the time of day is from the monotonic clock.
    """
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.schedulers.base import STATE_STOPPED

    asked = clock or SystemClock()

    class SteadyScheduler(BackgroundScheduler):  # type: ignore[misc]  # it has no types
        """Waits by the monotonic clock, a second at a time."""

        def _main_loop(self) -> None:
            self.apart_s = asked.now() - asked.monotonic()
            wait_s: float | None = 0.0
            while self.state != STATE_STOPPED:
                self._event.wait(LOOK_EVERY_S if wait_s is None else min(LOOK_EVERY_S, wait_s))
                self._event.clear()
                self.follow_the_clock()
                wait_s = self._process_jobs()

        def follow_the_clock(self) -> None:
            """Moves every job by as much as the time of day has jumped."""
            by_s = asked.now() - asked.monotonic() - self.apart_s
            if abs(by_s) < JUMP_LEAST_S:
                return
            self.apart_s += by_s
            for job in self.get_jobs():
                if job.next_run_time is not None:
                    job.modify(next_run_time=job.next_run_time + timedelta(seconds=by_s))

    defaults = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
    return SteadyScheduler(executors={"default": ThreadPoolExecutor(1)}, job_defaults=defaults, timezone=UTC)


LEAST_S: Final = 1.0
"""From one look of the deciders to the next while anything is on its way."""
MOST_S: Final = 15.0
"""From one look to the next while nothing is on its way and nothing falls due."""
SOONEST_S: Final = 0.05
"""What falls due a moment later is looked at together."""


@dataclass(slots=True)
class RestPace:
    """Tells how long the deciders rest while nothing is heard. Seconds."""

    least_s: float = LEAST_S
    most_s: float = MOST_S
    soonest_s: float = SOONEST_S
    _rest_s: float = 0.0

    def rest_s(self, due_in_s: float) -> float:
        """Returns how long from now on, where something falls due so long from now; 0 or less = more is to do now.

        Each rest is half as long again as the one before, until more is to do, and ends when something falls due.
        """
        if due_in_s <= 0:
            return self.cut_short_s(due_in_s)
        self._rest_s = min(max(self.least_s, self._rest_s * 1.5), self.most_s)
        return max(self.soonest_s, min(self._rest_s, due_in_s))

    def cut_short_s(self, due_in_s: float) -> float:
        """Returns how long from now on at most, during a rest in which something else has been heard and decided."""
        if due_in_s > 0:
            return max(self.soonest_s, due_in_s)
        self._rest_s = 0.0
        return self.least_s


class Timetable:
    """Named calls at their times. Calls are short: they enqueue, or wake a thread. Thread-safe."""

    def __init__(self, scheduler: Any = None) -> None:
        self._scheduler = scheduler or steady_scheduler()

    def start(self) -> None:
        """Begin."""
        self._scheduler.start()

    def stop(self) -> None:
        """Call nobody any more."""
        self._scheduler.shutdown(wait=False)

    def every(self, name: str, interval_s: float, call: Callable[[], object]) -> None:
        """Call again and again."""
        self._scheduler.add_job(call, "interval", seconds=interval_s, id=name, replace_existing=True)

    def at(self, name: str, in_s: float, call: Callable[[], object]) -> None:
        """Call once, after so many seconds, in place of what the name stood for."""
        when = datetime.fromtimestamp(time.time() + max(0.0, in_s), UTC)
        self._scheduler.add_job(call, "date", run_date=when, id=name, replace_existing=True)

    def cancel(self, name: str) -> None:
        """Do not call what the name stands for."""
        if self._scheduler.get_job(name) is not None:
            self._scheduler.remove_job(name)


@dataclass(slots=True)
class Alarm:
    """An `Alarm` has the deciders asked again in time, though nothing is heard. Of one thread."""

    timetable: Timetable
    clock: Clock
    ring: Callable[[], object]
    pace: RestPace = field(default_factory=RestPace)
    _rings_at_s: float = 0.0
    """By the monotonic clock."""

    def rest(self, due_in_s: float, *, ticked: bool) -> None:
        """Sets it to when something falls due (seconds from now; 0 or less = more is to do now), or a rest is over.

        `ticked`: whether it has rung; else it is set to ring sooner than it would, or left.
        """
        now_s = self.clock.monotonic()
        rest_s = self.pace.rest_s(due_in_s) if ticked else self.pace.cut_short_s(due_in_s)
        if not ticked and now_s + rest_s >= self._rings_at_s:
            return
        self._rings_at_s = now_s + rest_s
        self.timetable.at("deciders", rest_s, self.ring)
