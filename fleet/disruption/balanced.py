"""`consolidationPolicy: Balanced`: a move must be worth its disruption, in proportion to its pool.

A move that saves a tenth of what a pool costs may disturb a fifth of what runs there, at the threshold 2 that pools
have unless they say otherwise (Karpenter `balanced.go`, designs/balanced-consolidation.md; reference 4.5).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.disruption.savings import disruption_cost


@dataclass(frozen=True, slots=True)
class Totals:
    """All machines of a pool, movable or not."""

    cost_usd_h: float = 0.0
    disruption: float = 0.0

    @classmethod
    def of(cls, machines: Iterable[tuple[float | None, Iterable[float]]]) -> "Totals":
        """The sum over (price, eviction costs of its pods). A machine of unknown price costs nothing, but disturbs."""
        priced = [(price or 0.0, disruption_cost(evictions)) for price, evictions in machines]
        return cls(sum(price for price, _ in priced), sum(cost for _, cost in priced))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Share of the savings for each share of the disruption, and whether that is enough."""

    score: float
    approved: bool


@dataclass(frozen=True, slots=True)
class Part:
    """What one pool gives to a move: the price of its machines, and what it costs to move what runs on them."""

    pool: str
    price_usd_h: float
    disruption: float
    threshold: int | None = None
    """Of a pool whose policy is Balanced; None = it has no say."""


def judged(savings_usd_h: float, disruption: float, pool: Totals, threshold: int) -> Verdict:
    """Whether a pool agrees to lose machines for so much."""
    if pool.cost_usd_h <= 0 or savings_usd_h <= 0:
        return Verdict(0.0, approved=False)
    if pool.disruption <= 0 or disruption <= 0:
        return Verdict(float("inf"), approved=True)
    score = (savings_usd_h / pool.cost_usd_h) / (disruption / pool.disruption)
    return Verdict(score, approved=score >= 1 / threshold)


def agreed(savings_usd_h: float, parts: Iterable[Part], totals: Mapping[str, Totals]) -> Verdict:
    """Whether every Balanced pool agrees to a move; its savings are split by what the pools give.

    The score is the least of theirs, that of the first refusal by name where one refuses. Nothing moved is refused.
    """
    given = sorted(parts, key=lambda part: part.pool)
    if not given:
        return Verdict(0.0, approved=False)
    whole = sum(part.price_usd_h for part in given)
    least = Verdict(float("inf"), approved=True)
    for part in given:
        if part.threshold is None:
            continue
        share = part.price_usd_h / whole if whole > 0 and len(given) > 1 else 1.0
        mine = judged(savings_usd_h * share, part.disruption, totals.get(part.pool, Totals()), part.threshold)
        if not mine.approved:
            return mine
        least = min(least, mine, key=lambda verdict: verdict.score)
    return least
