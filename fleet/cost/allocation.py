"""Cost allocation: teams pay for machines by the share that their work takes of them.

What no work takes goes to `IDLE` instead of a team. Amounts are integers of micro-USD and add up to the bill exactly.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.cost.machine_use import IDLE, MachinePrice, MachineUse
from model.index import Index, derived

MICRO = 1_000_000
_Use = tuple[MachinePrice, tuple[tuple[str, float], ...]]
"""Price and shares by team of a machine."""


@dataclass(frozen=True, slots=True)
class Bill:
    """An amount in micro-USD, by team and in all; `sum(by_team.values()) == total` always."""

    total: int = 0
    by_team: Mapping[str, int] = field(default_factory=dict)

    def plus(self, other: "Bill") -> "Bill":
        """Returns the sum of both bills."""
        teams = sorted({*self.by_team, *other.by_team})
        summed = {team: self.by_team.get(team, 0) + other.by_team.get(team, 0) for team in teams}
        return Bill(self.total + other.total, summed)


def split(total: int, weights: Sequence[float]) -> list[int]:
    """Returns the parts of `total` in proportion to the weights; they sum to it exactly.

    Each is rounded down; what is left goes, one each, to the largest remainders, of equal ones to the earliest. All
    goes to the last one where there is no weight.
    """
    whole = sum(weights)
    if not weights or whole <= 0:
        return [*[0] * (len(weights) - 1), total][: len(weights)]
    exact = [total * weight / whole for weight in weights]
    parts = [int(it) for it in exact]
    by_remainder = sorted(range(len(parts)), key=lambda n: (parts[n] - exact[n], n))
    left = total - sum(parts)
    if left < 0:  # sums of floats are not exact
        parts[parts.index(max(parts))] += left
    for n in range(left):
        parts[by_remainder[n % len(parts)]] += 1
    return parts


def allocate(
    index: Index, used: Mapping[str, MachineUse], seconds: float, apart: Iterable[tuple[MachineUse, float]] = ()
) -> Bill:
    """Returns the bill of all machines that bill now for so many seconds; `apart` are those of another time, and it."""
    by_team: Counter[str] = Counter()
    for (price, shares), count in _grouped(index, used).items():
        for team, amount in _machine(price.usd_h, shares, seconds).items():
            by_team[team] += amount * count
    for use, lasted_s in apart:
        shares = _shares(use)
        by_team.subtract(_machine(use.usd_h, shares, seconds))
        by_team.update(_machine(use.usd_h, shares, lasted_s))
    left = {team: amount for team, amount in sorted(by_team.items()) if amount}
    return Bill(sum(left.values()), left)


@derived(1)
def _grouped(_index: Index, used: Mapping[str, MachineUse]) -> Mapping[_Use, int]:
    """Returns how many machines there are of each price, now and later, and division among teams."""
    return Counter((use.priced_as, _shares(use)) for use in used.values())


def bill_to_come(index: Index, used: Mapping[str, MachineUse], begin_s: float, end_s: float) -> Bill:
    """Returns what machines come to in a time to come if all that runs now runs on, each at its price now.

    What is in a reservation that ends costs its price on demand from then on, or nothing if its pool buys none so.
    """
    by_team: Counter[str] = Counter()
    for (price, shares), count in _grouped(index, used).items():
        for from_s, until_s, usd_h in price.to_come(begin_s, end_s):
            for team, amount in _machine(usd_h, shares, until_s - from_s).items():
                by_team[team] += amount * count
    return Bill(by_team.total(), dict(sorted(by_team.items())))


def _shares(use: MachineUse) -> tuple[tuple[str, float], ...]:
    """Returns (team, the part of the machine that it pays for) in order of team; work of no team counts as idle."""
    paid: dict[str, float] = {}
    for holding in use.holdings:
        team = holding.team or IDLE
        paid[team] = paid.get(team, 0.0) + holding.share
    return tuple(sorted(paid.items()))


def machine_parts(use: MachineUse, seconds: float) -> Mapping[str, int]:
    """Returns what each team pays for so many seconds of a machine (micro-USD); `use.rest` for what nobody takes."""
    return _machine(use.usd_h, _shares(use), seconds, use.rest)


def _machine(
    usd_h: float, shares: tuple[tuple[str, float], ...], seconds: float, rest: str = IDLE
) -> Mapping[str, int]:
    """Returns what each team pays for one machine (micro-USD); together its price."""
    taken = dict(shares)
    taken[rest] = taken.get(rest, 0.0) + max(0.0, 1.0 - sum(taken.values()))
    parts = split(round(usd_h * MICRO * seconds / 3600), list(taken.values()))
    return {team: amount for team, amount in zip(taken, parts, strict=True) if amount}
