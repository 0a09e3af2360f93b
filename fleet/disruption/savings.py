"""What moving pods costs, and which machine brings most for it (Karpenter, reference 4.3).

Costs are plain numbers without a unit: an ordinary pod counts 1. Prices are USD an hour.
"""

from collections.abc import Iterable
from operator import itemgetter
from typing import Final

DELETION_COST_SCALE: Final = 2.0**27
"""The annotation `controller.kubernetes.io/pod-deletion-cost` reaches from -2^31 to 2^31: it moves a cost by 16."""
PRIORITY_SCALE: Final = 2.0**25
"""Priorities of users end at 10^9: they move a cost by 30."""
MOST: Final = 10.0
BASE: Final = 1.0
"""What a machine costs to move whatever runs on it."""
SPOT_TYPES: Final = 15
"""Cheaper types there must be before one spot machine gives way to another (reference 4.5)."""


def eviction_cost(deletion_cost: float = 0.0, priority: float = 0.0) -> float:
    """What it costs to evict one pod, -10 to 10."""
    raw = 1.0 + deletion_cost / DELETION_COST_SCALE + priority / PRIORITY_SCALE
    return min(MOST, max(-MOST, raw))


def disruption_cost(evictions: Iterable[float]) -> float:
    """What it costs to move everything off one machine. Pods that would rather go make nothing cheaper."""
    return BASE + sum(max(0.0, each) for each in evictions)


def savings_ratio(price_usd_h: float | None, cost: float) -> float:
    """USD an hour for each unit of disruption; 0 where the price is not known, infinite where it costs nothing."""
    if not price_usd_h:
        return 0.0
    return price_usd_h / cost if cost > 0 else float("inf")


def by_ratio(ratios: Iterable[tuple[str, float]]) -> list[str]:
    """Names of machines, most savings for the least disruption first, then by name."""
    return [name for name, _ in sorted(sorted(ratios), key=itemgetter(1), reverse=True)]
