"""Has forecasts made for comments, one at a time, by a process of its own that is ended when its time is up.

Nobody waits for it: the comment stands before a forecast begins, and whoever wants the forecast asks whether it is
made. A forecast of a head that was pushed over is ended.
"""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from agent.review.forecast_child import ForecastJob
from fleet.review.forecast import Forecast, forecast_block
from model.fleet import Fleet

log = structlog.get_logger(__name__)

_PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
_ROOT: Final = Path(__file__).resolve().parents[2]
_ANSWER_MOST: Final = 8 * 2**20


class Proposed(NamedTuple):
    """What a forecast is of: full commit ids."""

    head: str
    base: str


class ForecastBounds(NamedTuple):
    """What is played, and what it may cost."""

    record: Path
    region: str
    days: float
    within_s: float
    memory_bytes: int


class Forecaster:
    """Thread-safe. `wake` is called when a forecast is made."""

    def __init__(self, bounds: ForecastBounds, wake: Callable[[], None]) -> None:
        self._bounds, self._wake = bounds, wake
        self._lock = threading.Lock()
        self._wanted: dict[int, Proposed] = {}
        """By request, until what came of it has been said."""
        self._made: dict[int, str] = {}
        self._running: tuple[int, subprocess.Popen[bytes]] | None = None
        self._threads = ThreadPoolExecutor(1, "forecast")
        self._closed = False

    def want(self, request: int, proposed: Proposed, before: Fleet, after: Fleet, now_s: float) -> None:
        """Have the forecast of a request made, in the place of any other of it; not again the same."""
        with self._lock:
            if self._wanted.get(request) == proposed or self._closed:
                return
            self._drop(request)
            self._wanted[request] = proposed
            self._threads.submit(self._make, request, proposed, before, after, now_s)

    def made(self, request: int, proposed: Proposed) -> str:
        """Returns what the comment is to show; empty while it is not made."""
        with self._lock:
            return self._made.get(request, "") if self._wanted.get(request) == proposed else ""

    def said(self, request: int) -> None:
        """What was made of a request has been said."""
        with self._lock:
            self._drop(request)

    def keep(self, heads: Mapping[int, str]) -> None:
        """End the forecasts of all but these requests and heads."""
        with self._lock:
            for request in [it for it, proposed in self._wanted.items() if heads.get(it) != proposed.head]:
                self._drop(request)

    def close(self) -> None:
        """End what is being made, for good."""
        with self._lock:
            self._closed = True
            for request in list(self._wanted):
                self._drop(request)
        self._threads.shutdown(cancel_futures=True)

    def _drop(self, request: int) -> None:
        self._wanted.pop(request, None)
        self._made.pop(request, None)
        if self._running is not None and self._running[0] == request:
            self._running[1].kill()

    def _make(self, request: int, proposed: Proposed, before: Fleet, after: Fleet, now_s: float) -> None:
        it = self._bounds
        job = ForecastJob(it.record, now_s, it.region, it.days, before, after, it.within_s, it.memory_bytes)
        try:
            found = self._answer(request, proposed, job)
        except (OSError, msgspec.DecodeError) as error:
            found = f"Not made: {type(error).__name__}: {error}"
        with self._lock:
            if found is None or self._wanted.get(request) != proposed:
                return
            self._made[request] = forecast_block(proposed.head, proposed.base, it.days, found)
        if isinstance(found, str):
            log.warning("forecast_not_made", request=request, why=found)
        self._wake()

    def _answer(self, request: int, proposed: Proposed, job: ForecastJob) -> Forecast | str | None:
        """What the child says, or why it says nothing; None where nobody wants it any more."""
        with self._lock:
            if self._wanted.get(request) != proposed:
                return None
            process = _begin()
            self._running = request, process
        late = threading.Event()

        def too_late() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self._bounds.within_s, too_late)
        timer.daemon = True
        timer.start()
        try:
            answer = _asked(process, job)
        finally:
            timer.cancel()
            with self._lock:
                self._running = None
            process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()
        if late.is_set():
            return f"Not finished within {self._bounds.within_s:g} s (review.forecast.withinS)."
        if not answer:
            return f"Not made: its process ended with {process.returncode}; the agent's log may say why."
        return msgspec.json.decode(answer, type=Forecast | str)


def _begin() -> "subprocess.Popen[bytes]":
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "agent.review.forecast_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        cwd="/",
        start_new_session=True,
    )


def _asked(process: "subprocess.Popen[bytes]", job: ForecastJob) -> bytes:
    """Hands the job over and returns the answer; nothing where the process ended before."""
    assert process.stdin is not None  # noqa: S101 - it was begun with pipes
    assert process.stdout is not None  # noqa: S101
    packed = pickle.dumps(job)
    try:
        process.stdin.write(len(packed).to_bytes(8) + packed)
        process.stdin.flush()
    except BrokenPipeError:
        return b""
    return process.stdout.read(_ANSWER_MOST)
