"""Of one gang: its place in the queue, when it starts, what it costs, and what of that was found in idle time."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.cost.lost_work import lost_since_s, lost_work_usd
from fleet.explain.advice import Advice
from fleet.explain.quota_holders import ExpectedEnd
from fleet.explain.tried_machines import TriedMachines
from fleet.scheduling.queue_order import pending_in_same_queue, usage_of_local_queues
from fleet.snapshot import Gang, Snapshot
from model.fleet import Fleet


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Where a gang stands among those that wait in its queue."""

    queue: str
    place: int
    of: int
    ahead: tuple[str, ...]
    """Names of those before it, the next one last; three at most."""
    usage: Mapping[str, float]
    """Local queue -> what it used lately, where that decides who goes first."""


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When a gang will start: half of such estimates come true by `p50_s`, nine of ten by `p90_s`."""

    made_at_s: float
    p50_s: float | None = None
    p90_s: float | None = None
    """None = later than the forecast looks ahead."""
    basis: str = ""
    why_unknown: str = ""


@dataclass(frozen=True, slots=True)
class GangCost:
    """What a gang costs, in USD."""

    usd_h: float
    """Now; 0 while it holds no machine."""
    would_usd_h: float | None
    """Of the cheapest machines that it could have now, while it waits; None = there are none."""
    so_far_usd: float | None
    """By the ledger; None = none is kept, or it has not been read yet."""
    at_run_time_usd: float | None
    """For all of its declared run time at that rate; None = it declares none, or has no rate."""
    lost_usd: float
    """Machine time that its eviction now would waste."""
    lost_since_s: float
    """From when on that counts: the last checkpoint, or the start; 0 = it would lose nothing."""
    so_far_until_s: float = 0.0
    """Up to when the ledger had been kept that `so_far_usd` is by; 0 = none was read."""


@dataclass(frozen=True, slots=True)
class ToldLately:
    """What takes longer to find out than an answer may: found in idle time, each part with its own age."""

    ends: Mapping[str, ExpectedEnd] = field(default_factory=dict)
    """uid -> when gangs end, of those that nothing has declared."""
    start: StartEstimate | None = None
    advice: tuple[Advice, ...] | None = None
    """None = not tried yet."""
    advised_at_s: float = 0.0
    so_far_usd: float | None = None
    so_far_until_s: float = 0.0
    usd_h: float = 0.0


def queue_position(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> QueuePosition:
    """Returns where a waiting gang stands in its queue."""
    waiting = pending_in_same_queue(fleet, snapshot, gang)
    place = next((number for number, it in enumerate(waiting, 1) if it.uid == gang.uid), 1)
    ahead = tuple(it.name for it in waiting[max(0, place - 4) : place - 1])
    return QueuePosition(gang.queue, place, len(waiting), ahead, dict(usage_of_local_queues(fleet, snapshot, gang)))


def gang_cost(snapshot: Snapshot, gang: Gang, tried: TriedMachines | None, lately: ToldLately) -> GangCost:
    """Returns what a gang costs; what takes a ledger, and its rate, are those found `lately`."""
    would = min((it.total_usd_h for it in tried.open), default=None) if tried is not None else None
    rate = lately.usd_h or would
    declared_s = gang.expected_run_s
    lost_usd = lost_work_usd(gang, snapshot)
    return GangCost(
        usd_h=lately.usd_h,
        would_usd_h=would,
        so_far_usd=lately.so_far_usd,
        so_far_until_s=lately.so_far_until_s,
        at_run_time_usd=rate * declared_s / 3600 if rate and declared_s else None,
        lost_usd=lost_usd,
        lost_since_s=lost_since_s(gang, snapshot.now_s) if lost_usd else 0.0,
    )
