"""What a replay came to: waits, GPU-hours, evictions, lost work, money and use, over the same time for every fleet."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from fleet.replay.virtual_agent import VirtualAgent
from fleet.replay.virtual_world import GangHistory

SAMPLES: Final = 240
"""Points in time of a series."""
MOST_REASONS: Final = 10


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """What became of the gangs of one queue. Waits (s) are from arrival to the first start."""

    queue: str
    gangs: int
    started: int
    finished: int
    wait_p50_s: float
    """A gang that never started has waited until the end: it counts with that, which is the least it can be."""
    wait_p95_s: float
    gpu_h: float
    """GPU-hours that its gangs ran, lost ones included."""
    evictions: int
    lost_gpu_h: float
    """GPU-hours that were run and had to be run again."""


@dataclass(frozen=True, slots=True)
class ReplaySeries:
    """What changed over time, at equal distances from the beginning to the end."""

    at_s: tuple[float, ...]
    """Seconds from the beginning."""
    used_gpus: tuple[int, ...]
    bought_gpus: tuple[int, ...]
    waiting: Mapping[str, tuple[int, ...]]
    """Queue -> gangs that had arrived and had not started."""
    wait_p50_s: Mapping[str, tuple[float | None, ...]]
    """Queue -> median wait of the gangs that arrived since the point before; None where none did."""


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What one fleet did with the work, in numbers. It is the same whenever the same is replayed."""

    name: str
    """Of the fleet, or of the variant."""
    lasts_s: float
    queues: tuple[QueueOutcome, ...]
    """By name; those of which no gang arrived are not there."""
    total: QueueOutcome
    machines: int
    """Machines bought."""
    most_gpus: int
    """GPUs or slices of machines that stood at once, at most."""
    most_whole_gpus: int
    """The same in GPUs, before any cut."""
    bought_gpu_h: float
    usd: float
    lost_usd: float
    """What lost work has cost, at the mean price of a GPU-hour bought."""
    waiting_for: tuple[tuple[str, int], ...]
    """(reason, gangs) of those that wait at the end, the most frequent first."""
    undecided: tuple[str, ...]
    """Subjects that nothing could be decided about, and why."""
    series: ReplaySeries

    @property
    def utilisation(self) -> float:
        """Returns which part (of 1) of the GPU-hours bought gangs ran; 0 where none were bought."""
        return self.total.gpu_h / self.bought_gpu_h if self.bought_gpu_h else 0.0


def outcome_of(name: str, agent: VirtualAgent, begin_s: float, until_s: float) -> ReplayOutcome:
    """Returns what a replay came to between two instants (epoch seconds)."""
    gangs = [it for it in agent.world.gang_histories.values() if it.work.submitted_s < until_s]
    machines = list(agent.world.machines.values())
    by_queue = defaultdict(list)
    for gang in gangs:
        by_queue[gang.work.queue].append(gang)
    total = _queue("", gangs, until_s)
    bought_gpu_h = sum(it.gpus * _hours(it.from_s, it.to_s, until_s) for it in machines)
    usd = sum(it.usd_h * _hours(it.from_s, it.to_s, until_s) for it in machines)
    waiting = (gang for uid, gang in agent.world.gangs.view.items() if uid in agent.world.pending)
    reasons = Counter(str(gang.reason) for gang in waiting)
    bought = _steps((it.from_s, it.to_s, it.gpus) for it in machines)
    return ReplayOutcome(
        name,
        until_s - begin_s,
        tuple(_queue(queue, found, until_s) for queue, found in sorted(by_queue.items())),
        total,
        len(machines),
        max((count for _, count in bought), default=0),
        max((count for _, count in _steps((it.from_s, it.to_s, it.whole_gpus) for it in machines)), default=0),
        bought_gpu_h,
        usd,
        total.lost_gpu_h * usd / bought_gpu_h if bought_gpu_h else 0.0,
        tuple(sorted(reasons.items(), key=lambda it: (-it[1], it[0]))[:MOST_REASONS]),
        tuple(sorted({f"{it.subject}: {it.error}" for it in agent.failed})),
        _series(by_queue, gangs, bought, begin_s, until_s),
    )


def _hours(from_s: float, to_s: float, until_s: float) -> float:
    return max(0.0, min(to_s, until_s) - from_s) / 3600


def wait_s(gang: GangHistory, until_s: float) -> float:
    """Returns how long (s) a gang waited for its first start, or has waited until the end."""
    started_s = gang.started_s
    return (until_s if started_s is None else started_s) - gang.work.submitted_s


def percentile(values: Sequence[float], part: float) -> float:
    """Returns the least of the sorted values that at least this part (of 1) of them does not exceed; 0 for none."""
    return values[max(0, -int(-len(values) * part // 1) - 1)] if values else 0.0


def _queue(queue: str, gangs: Sequence[GangHistory], until_s: float) -> QueueOutcome:
    waits = sorted(wait_s(gang, until_s) for gang in gangs)
    return QueueOutcome(
        queue,
        len(gangs),
        sum(bool(gang.runs) for gang in gangs),
        sum(gang.finished_s is not None for gang in gangs),
        percentile(waits, 0.5),
        percentile(waits, 0.95),
        sum(gang.work.gpus * _hours(from_s, to_s, until_s) for gang in gangs for from_s, to_s in gang.runs),
        sum(gang.evictions for gang in gangs),
        sum(gang.work.gpus * gang.lost_s for gang in gangs) / 3600,
    )


# -- over time --------------------------------------------------------------------------------------------------------


def _steps(spans: Iterable[tuple[float, float, int]]) -> list[tuple[float, int]]:
    """Returns (from when on, how much there is), of spans of so much each."""
    changes: Counter[float] = Counter()
    for from_s, to_s, amount in spans:
        changes[from_s] += amount
        changes[to_s] -= amount
    instants = sorted(changes)
    return list(zip(instants, accumulate(changes[it] for it in instants), strict=True))


def _at(steps: Sequence[tuple[float, int]], instants: Sequence[float]) -> tuple[int, ...]:
    begins = [from_s for from_s, _ in steps]
    found = (bisect_right(begins, at_s) - 1 for at_s in instants)
    return tuple(steps[place][1] if place >= 0 else 0 for place in found)


def _series(
    by_queue: Mapping[str, Sequence[GangHistory]],
    gangs: Sequence[GangHistory],
    bought: Sequence[tuple[float, int]],
    begin_s: float,
    until_s: float,
) -> ReplaySeries:
    step_s = (until_s - begin_s) / SAMPLES
    instants = [begin_s + step_s * (number + 1) for number in range(SAMPLES)]
    used = _steps((from_s, to_s, gang.work.gpus) for gang in gangs for from_s, to_s in gang.runs)
    return ReplaySeries(
        tuple(at_s - begin_s for at_s in instants),
        _at(used, instants),
        _at(bought, instants),
        {queue: _at(_waiting(found), instants) for queue, found in sorted(by_queue.items())},
        {queue: _medians(found, begin_s, until_s, step_s) for queue, found in sorted(by_queue.items())},
    )


def _waiting(gangs: Sequence[GangHistory]) -> list[tuple[float, int]]:
    return _steps((it.work.submitted_s, float("inf") if it.started_s is None else it.started_s, 1) for it in gangs)


def _medians(gangs: Sequence[GangHistory], begin_s: float, until_s: float, step_s: float) -> tuple[float | None, ...]:
    waits: dict[int, list[float]] = defaultdict(list)
    for gang in gangs:
        waits[min(SAMPLES - 1, int((gang.work.submitted_s - begin_s) / step_s))].append(wait_s(gang, until_s))
    return tuple(percentile(sorted(waits[it]), 0.5) if it in waits else None for it in range(SAMPLES))
