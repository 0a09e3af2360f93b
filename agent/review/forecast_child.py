"""The process that makes a forecast: recorded work through two fleets, bounded in memory and CPU by the kernel.

The job comes by stdin, which stays open as long as somebody wants the answer; that goes to stdout, as JSON.
"""

import contextlib
import gc
import os
import pickle
import resource
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from agent.cli.look import UnknownRegion, catalog_of
from fleet.quota.queue_binding import binding_of
from fleet.replay.submissions import SubmittedGang
from fleet.replay.virtual_agent import NeverAtRest
from fleet.replay.virtual_run import ReplayWindow, replay
from fleet.review.forecast import Forecast, ForecastSide
from model.fleet import Fleet
from providers.traces import TraceError, read_trace

GRACE_S = 3600.0
"""For machines to come and gangs to start that would otherwise not end within the window."""
_POLITE = 19
"""The agent itself goes first."""


class ForecastJob(NamedTuple):
    """What is to be played, and what it may cost."""

    record: Path
    now_s: float
    """Until when work that has not ended has run (epoch)."""
    region: str
    days: float
    before: Fleet
    after: Fleet
    cpu_s: float
    memory_bytes: int


class NothingRecorded(Exception):
    """There is no work to play; the message says why."""


def forecast(job: ForecastJob) -> Forecast:
    """Plays the work of the last days under both fleets.

    Errors: OSError, TraceError, UnknownRegion, NeverAtRest, NothingRecorded.
    """
    if not job.record.exists() or not job.record.stat().st_size + _size(job.record.with_name(f"{job.record.name}.1")):
        raise NothingRecorded("nothing is recorded yet")
    work = _of_the_last(job.days, read_trace(job.record, job.now_s).work)
    queues, fleets = {(it.namespace, it.queue) for it in work}, (job.before, job.after)
    declared = {it for it in queues if any(binding_of(fleet, *it) is not None for fleet in fleets)}
    kept = [it for it in work if (it.namespace, it.queue) in declared]
    if not kept:
        raise NothingRecorded("neither fleet declares a queue of the work that is recorded")
    until_s = max(it.submitted_s + it.run_s for it in kept) + GRACE_S
    window, catalog = ReplayWindow(kept[0].submitted_s, until_s), catalog_of(job.region)
    found = (replay("", fleet, catalog, kept, window) for fleet in fleets)
    before, after = (ForecastSide(it.queues, it.total, it.usd) for it in found)
    return Forecast(before, after, len(work) - len(kept))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _of_the_last(days: float, work: Sequence[SubmittedGang]) -> list[SubmittedGang]:
    """The work that came within so many days before the last that is known of any."""
    last_s = max(it.submitted_s + it.run_s for it in work)
    return [it for it in work if it.submitted_s >= last_s - days * 86_400.0]


def main() -> None:
    """Plays one job."""
    inbox = sys.stdin.buffer
    job: ForecastJob = pickle.loads(inbox.read(int.from_bytes(inbox.read(8))))  # noqa: S301 - from our own agent
    threading.Thread(target=_end_with_the_agent, daemon=True).start()
    for kind, most in ((resource.RLIMIT_AS, job.memory_bytes), (resource.RLIMIT_CPU, int(job.cpu_s) + 1)):
        resource.setrlimit(kind, (most, most))
    os.nice(_POLITE)
    with contextlib.suppress(OSError), Path("/proc/self/oom_score_adj").open("w") as file:
        file.write("1000")  # of the pod's processes the first to be ended where memory runs out
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)  # values by the million and no circles among them: a third of the time else
    try:
        found: Forecast | str = forecast(job)
    except (OSError, TraceError, UnknownRegion, NeverAtRest, NothingRecorded) as error:
        found = f"Not made: {error}".replace(f"{job.record.parent}{os.sep}", "")  # a comment is read by everybody
    except MemoryError:
        found = f"Not made: more than {job.memory_bytes // 2**20} MiB of memory (review.forecast.memoryMib)"
    sys.stdout.buffer.write(msgspec.json.encode(found))
    sys.stdout.buffer.flush()


def _end_with_the_agent() -> None:
    os.read(sys.stdin.fileno(), 1)  # what is buffered has no part in this: the agent sends nothing after the job
    os._exit(1)


if __name__ == "__main__":
    main()
