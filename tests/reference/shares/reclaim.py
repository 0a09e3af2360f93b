"""Who may take from whom when queues have quotas and fair shares: KAI-Scheduler's tests, on the numbers alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from tests.reference.shares.division import UNLIMITED

Amounts = Mapping[str, float]

TOLERANCE = 1e-6


@dataclass(slots=True)
class QueueStanding:
    """One queue in one resource. `UNLIMITED` is allowed for `quota`, `limit` and `fair`."""

    quota: float = 0.0
    fair: float = 0.0
    limit: float = UNLIMITED
    used: float = 0.0
    used_firmly: float = 0.0
    """By work that may not be preempted."""

    def copy(self) -> "QueueStanding":
        """The same numbers, apart."""
        return QueueStanding(self.quota, self.fair, self.limit, self.used, self.used_firmly)

    @property
    def allocatable(self) -> float:
        """What it may keep: the larger of quota and fair share, within its limit."""
        if self.quota == UNLIMITED:
            return self.limit
        share = max(self.quota, self.fair)
        return share if self.limit == UNLIMITED else min(self.limit, share)


Standings = Mapping[str, QueueStanding]


def at_most(amount: float, bound: float) -> bool:
    """Whether an amount is within a bound that may be unlimited."""
    return bound == UNLIMITED or amount <= bound + TOLERANCE


def fits_quota(queue: Standings, required: Amounts) -> bool:
    """Whether the queue stays within its quota in every resource with `required` more."""
    return all(at_most(one.used + required.get(name, 0.0), one.quota) for name, one in queue.items())


def exceeds_quota(queue: Standings, remaining: Amounts) -> bool:
    """Whether what remains to a queue is above its quota in some resource."""
    return any(not at_most(remaining[name], one.quota) for name, one in queue.items())


def exceeds_share(queue: Standings, remaining: Amounts) -> bool:
    """Whether what remains to a queue is above what it may keep, in some resource."""
    return any(not at_most(remaining[name], one.allocatable) for name, one in queue.items())


def can_reclaim(queue: Standings, required: Amounts, *, preemptible: bool) -> bool:
    """Whether a queue may ask others for `required`: within its fair share, and firm work within its quota."""
    if not all(at_most(one.used + required.get(name, 0.0), one.fair) for name, one in queue.items()):
        return False
    return preemptible or all(
        at_most(one.used_firmly + required.get(name, 0.0), one.quota) for name, one in queue.items()
    )


def may_lose(reclaimer: Standings, required: Amounts, victim: Standings, remaining: Amounts) -> bool:
    """Whether a queue that still holds `remaining` may lose more to the reclaimer: two sibling queues at one level.

    Either the victim is above what it may keep, or the reclaimer claims its quota and the victim is above its own.
    """
    if exceeds_share(victim, remaining):
        return True
    return fits_quota(reclaimer, required) and exceeds_quota(victim, remaining)


def worth_trying(reclaimer: Standings, required: Amounts, victim: Standings) -> bool:
    """Whether any victim of this queue can pass `may_lose`: spares the search for queues within their share."""
    held = {name: one.used for name, one in victim.items()}
    if not fits_quota(reclaimer, required):
        return exceeds_share(victim, held)
    bounded = [one for name, one in victim.items() if required.get(name, 0.0) > 0 and one.quota != UNLIMITED]
    if any(one.used > one.quota for one in bounded):
        return True
    return not any(one.used < one.quota for one in bounded)


def saturation(used: float, fair: float) -> float:
    """How full a queue is against its fair share; infinite when it uses what it has no share of."""
    if fair == UNLIMITED:
        return 0.0
    if fair == 0:
        return float("inf") if used > 0 else 0.0
    return used / fair


def stays_below(
    reclaimer: Standings,
    after: Amounts,
    sibling: Standings,
    sibling_after: Amounts,
    involved: frozenset[str],
    multiplier: float = 1.0,
) -> bool:
    """Whether the reclaimer, if it ends above its fair share, is still less saturated than the sibling it takes from.

    `multiplier` of at least 1 makes it harder; this is what keeps two queues from taking from each other in turn.
    """
    for name in sorted(involved):
        mine, theirs = reclaimer[name], sibling[name]
        ratio = saturation(after[name], mine.fair)
        if ratio > 1 and theirs.fair > 0 and ratio * multiplier >= saturation(sibling_after[name], theirs.fair):
            return False
    return True
