"""How often capacity pools take machines back, and what that adds to their price.

An offer is ordered by its *expected* cost: its price and what interruptions of its capacity pool waste. The rate of
these is what is remembered of them, forgotten by half lives; the bill knows prices only. Everything is read off the
claims, so that a message that comes twice, or an agent that starts anew, counts nothing twice.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Final, NamedTuple

from fleet.reasons import Reason
from fleet.snapshot import CapacityPool, Claim, InterruptionHistory, Snapshot
from model.index import Index, derived

HALF_LIFE_S: Final = 6 * 3600.0
"""An interruption counts half after this long: spot capacity comes and goes with the hours of a day."""
WASTED_S: Final = 3600.0
"""Machine time that an interruption wastes: the work since the last checkpoint, and starting again."""
TOGETHER_S: Final = 180.0
"""What a capacity pool takes back within this time is one interruption, however many machines it hits."""
MOST_PREMIUM: Final = 1.0
"""No offer counts as more than twice its price."""
LEAST_PREMIUM: Final = 1e-6
"""Less does not put an offer behind an equal one."""
FORGOTTEN: Final = 0.01
"""Less of an interruption than this is none: memories do not pile up for ever."""


class _Interruption(NamedTuple):
    at_s: float
    pool: CapacityPool


def learned(
    before: Mapping[CapacityPool, InterruptionHistory], snapshot: Snapshot
) -> Mapping[CapacityPool, InterruptionHistory]:
    """`before`, with what the claims tell of interruptions since; `before` itself when they tell nothing new."""
    found = dict(before)
    for event in _interruptions(snapshot.index, snapshot.claims):
        known = found.get(event.pool)
        if known is None:
            found[event.pool] = InterruptionHistory(1.0, event.at_s)
        elif event.at_s > known.at_s + TOGETHER_S:
            found[event.pool] = InterruptionHistory(weight(known, event.at_s) + 1.0, event.at_s)
    kept = {pool: memory for pool, memory in found.items() if weight(memory, snapshot.now_s) >= FORGOTTEN}
    return before if kept == before else kept


@derived(1)
def _interruptions(_index: Index, claims: Mapping[str, Claim]) -> Sequence[_Interruption]:
    """Machines that the cloud takes back, the earliest first: it does that with spot and reserved ones only."""
    return sorted(
        _Interruption(claim.disruption.at_s, claim.capacity_pool)
        for claim in claims.values()
        if claim.disruption is not None
        and claim.disruption.reason == Reason.INTERRUPTED
        and claim.capacity_pool.capacity_type != "on-demand"
    )


def weight(memory: InterruptionHistory, now_s: float) -> float:
    """How many interruptions a memory stands for by now; a clock that went back forgets nothing."""
    return float(memory.weight * 0.5 ** (max(0.0, now_s - memory.at_s) / HALF_LIFE_S))


def premium(memory: InterruptionHistory, now_s: float) -> float:
    """The part of its price that an offer costs beside it: interruptions an hour, times the hours one wastes.

    In the long run `weight` is the rate times HALF_LIFE_S / ln 2. Below LEAST_PREMIUM it is forgotten.
    """
    added = min(MOST_PREMIUM, weight(memory, now_s) * log(2) / HALF_LIFE_S * WASTED_S)
    return added if added >= LEAST_PREMIUM else 0.0


def premiums(memories: Mapping[CapacityPool, InterruptionHistory], now_s: float) -> Mapping[CapacityPool, float]:
    """Capacity pool -> its premium, of all that have been interrupted lately."""
    return {pool: premium(memory, now_s) for pool, memory in sorted(memories.items())}
