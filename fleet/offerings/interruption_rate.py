"""Estimates how often capacity pools are interrupted, and what that adds to the price of their offers.

An offer is ordered by its *expected* cost: its price and what interruptions of its capacity pool waste. The rate is
estimated from remembered interruptions, whose weight halves every `HALF_LIFE_S`; the bill knows prices only. Everything
is read off the claims, so that a message that comes twice, or an agent that starts anew, counts nothing twice.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Final, NamedTuple

from fleet.reasons import Reason
from fleet.snapshot import CapacityPool, Claim, InterruptionHistory, Snapshot
from model.index import Index, derived

HALF_LIFE_S: Final = 6 * 3600.0
"""Seconds after which an interruption counts half: spot capacity comes and goes with the hours of a day."""
WASTED_S: Final = 3600.0
"""Machine seconds that an interruption wastes: the work since the last checkpoint, and starting again."""
TOGETHER_S: Final = 180.0
"""Interruptions of a capacity pool within this many seconds count as one, however many machines they hit."""
MOST_PREMIUM: Final = 1.0
"""Largest premium: no offer counts as more than twice its price."""
LEAST_PREMIUM: Final = 1e-6
"""Smallest premium; a smaller one counts as none, so that it does not decide between equal offers."""
FORGOTTEN: Final = 0.01
"""Weight below which a remembered interruption is dropped, so that the history stays small."""


class _Interruption(NamedTuple):
    """An `_Interruption` is one machine taken back by the cloud: when (epoch seconds), of which capacity pool."""

    at_s: float
    pool: CapacityPool


def learned(
    before: Mapping[CapacityPool, InterruptionHistory], snapshot: Snapshot
) -> Mapping[CapacityPool, InterruptionHistory]:
    """Returns the history with the interruptions that claims tell of since; `before` itself where nothing is new."""
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
    """Returns the interruptions of spot and reserved machines that the claims tell of, the earliest first."""
    return sorted(
        _Interruption(claim.disruption.at_s, claim.capacity_pool)
        for claim in claims.values()
        if claim.disruption is not None
        and claim.disruption.reason == Reason.INTERRUPTED
        and claim.capacity_pool.capacity_type != "on-demand"
    )


def weight(memory: InterruptionHistory, now_s: float) -> float:
    """Returns how many interruptions a history counts as by now; a clock that went back forgets nothing."""
    return float(memory.weight * 0.5 ** (max(0.0, now_s - memory.at_s) / HALF_LIFE_S))


def premium(memory: InterruptionHistory, now_s: float) -> float:
    """Returns the expected extra cost of an offer as a part of its price: interruptions an hour times hours wasted.

    In the long run `weight` is the rate times HALF_LIFE_S / ln 2. A premium below LEAST_PREMIUM is 0.
    """
    added = min(MOST_PREMIUM, weight(memory, now_s) * log(2) / HALF_LIFE_S * WASTED_S)
    return added if added >= LEAST_PREMIUM else 0.0


def premiums(memories: Mapping[CapacityPool, InterruptionHistory], now_s: float) -> Mapping[CapacityPool, float]:
    """Returns capacity pool -> its premium, of all that were interrupted lately."""
    return {pool: premium(memory, now_s) for pool, memory in sorted(memories.items())}
