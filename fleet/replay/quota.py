"""A stream of jobs through the quota engine in virtual time: no machines, evictions complete at once.

At each instant jobs that finish give their quota back (in name order), then new ones arrive, then cycles run until
nothing moves any more. An evicted job loses what it has done and waits again with its old place in time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from fleet.quota.admission_cycle import CycleResult
from fleet.quota.scheduler import AdmissionScheduler
from fleet.quota.workload import Workload

IDLE_CYCLES = 3
"""An instant ends after so many cycles that changed nothing: the head of a StrictFIFO queue is looked at forever."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that comes at an instant and, once admitted, runs for a while. Milliseconds."""

    workload: Workload
    at_ms: int
    runtime_ms: int


@dataclass(slots=True)
class History:
    """The instants at which one job was created, admitted, evicted and finished (milliseconds)."""

    created_ms: int
    admitted_ms: list[int] = field(default_factory=list)
    evicted_ms: list[int] = field(default_factory=list)
    finished_ms: int | None = None


@dataclass(slots=True)
class Stream:
    """Plays a stream of jobs through an admission scheduler, in virtual time."""

    scheduler: AdmissionScheduler
    histories: dict[str, History] = field(default_factory=dict)
    """uid -> what became of it."""
    cycles: int = 0
    _jobs: dict[str, Arrival] = field(default_factory=dict)
    _finishing: list[tuple[int, str, int]] = field(default_factory=list)
    """(instant, name, run of the job) of jobs that will finish, unless evicted before."""

    def play(self, arrivals: Iterable[Arrival]) -> dict[str, History]:
        """Plays all arrivals to the end; returns uid -> what became of the job."""
        coming = sorted(arrivals, key=lambda job: (job.at_ms, job.workload.name), reverse=True)
        while coming or self._finishing:
            now_ms = min([job.at_ms for job in coming[-1:]] + [entry[0] for entry in self._finishing[:1]])
            while self._finishing and self._finishing[0][0] == now_ms:
                _, uid, run = heappop(self._finishing)
                self._finish(uid, run, now_ms)
            while coming and coming[-1].at_ms == now_ms:
                self._arrive(coming.pop())
            self._settle(now_ms)
        return self.histories

    def _arrive(self, job: Arrival) -> None:
        uid = job.workload.uid
        self._jobs[uid] = job
        self.histories[uid] = History(job.at_ms)
        self.scheduler.submit(job.workload)

    def _finish(self, uid: str, run: int, now_ms: int) -> None:
        history = self.histories[uid]
        if len(history.admitted_ms) == run and len(history.evicted_ms) < run:
            history.finished_ms = now_ms
            self.scheduler.vacate(uid)

    def _settle(self, now_ms: int) -> None:
        idle = 0
        self.scheduler.now_s = now_ms / 1000
        while idle < IDLE_CYCLES:
            heads = self.scheduler.heads()
            if not heads:
                return
            self.cycles += 1
            result = self.scheduler.decide(heads)
            self._carry_out(result, now_ms)
            idle = 0 if result.progressed else idle + 1

    def _carry_out(self, result: CycleResult, now_ms: int) -> None:
        for holder in result.admitted:
            uid = holder.workload.uid
            history = self.histories[uid]
            history.admitted_ms.append(now_ms)
            heappush(self._finishing, (now_ms + self._jobs[uid].runtime_ms, uid, len(history.admitted_ms)))
        for victim, _ in result.evictions:
            uid = victim.holder.workload.uid
            self.scheduler.vacate(uid)
            self.histories[uid].evicted_ms.append(now_ms)
            self.scheduler.submit(self._jobs[uid].workload)
