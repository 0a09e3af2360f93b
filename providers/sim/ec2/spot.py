"""Spot prices and interruptions as pure functions of (seed, pool, time): any instant can be asked for, in any order."""

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

from fleet.snapshot import CapacityPool

_TWO_64 = float(1 << 64)


def _unit(*key: object) -> float:
    """A number in [0, 1) that depends on nothing but `key`; the same in every process."""
    digest = hashlib.blake2b("|".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / _TWO_64


@dataclass(frozen=True, slots=True)
class SpotProcess:
    """How spot prices move and how often spot machines are taken back.

    The price of a pool is constant for `period_s` and then jumps: on-demand price x a base ratio of the pool, drawn
    from `low_ratio`..`high_ratio`, x a noise of +-`swing` made of a slow wave and a fast one; never above on-demand, as
    EC2 caps it. `interruptions_per_h`: expected interruptions of one machine in one hour; 0 switches them off.
    """

    seed: int = 0
    period_s: float = 3600.0
    low_ratio: float = 0.3
    high_ratio: float = 0.6
    swing: float = 0.25
    interruptions_per_h: float = 0.0

    def period_start_s(self, now_s: float) -> float:
        """When the price that holds at `now_s` came into force."""
        return math.floor(now_s / self.period_s) * self.period_s

    def changes_s(self, begin_s: float, end_s: float) -> list[float]:
        """When prices that held in a time came into force, in order; the first held at its begin."""
        first_s = self.period_start_s(min(begin_s, end_s))
        periods = int((self.period_start_s(end_s) - first_s) // self.period_s)
        return [first_s + number * self.period_s for number in range(periods + 1)]

    def price_usd_h(self, pool: CapacityPool, on_demand_usd_h: float, now_s: float) -> float:
        """The spot price of `pool` at `now_s` in USD an hour, rounded to EC2's four decimals and never below 0.0001."""
        return _price_usd_h(self, pool, on_demand_usd_h, math.floor(now_s / self.period_s))

    def ratio(self, pool: CapacityPool, step: int) -> float:
        """Spot price over on-demand price of `pool` in the `step`-th period since the epoch; at most 1."""
        base = self.low_ratio + (self.high_ratio - self.low_ratio) * _unit(self.seed, pool, "base")
        wave = 0.7 * self._noise(pool, step / 24.0, "slow") + 0.3 * self._noise(pool, float(step), "fast")
        return min(1.0, base * (1.0 + self.swing * wave))

    def cost_usd(self, pool: CapacityPool, on_demand_usd_h: float, start_s: float, end_s: float) -> float:
        """What one machine of `pool` costs from `start_s` to `end_s`: the integral of the price."""
        total, at_s = 0.0, start_s
        while at_s < end_s:
            until_s = min(end_s, self.period_start_s(at_s) + self.period_s)
            if until_s <= at_s:
                break
            total += self.price_usd_h(pool, on_demand_usd_h, at_s) * (until_s - at_s) / 3600.0
            at_s = until_s
        return total

    def lifetime_s(self, pool: CapacityPool, ordinal: int) -> float | None:
        """Seconds until the cloud takes back the `ordinal`-th machine it ever launched; None for never.

        Exponential, at 0.5 to 1.5 times the mean rate depending on the pool, since some are more contended than others.
        """
        if self.interruptions_per_h <= 0:
            return None
        rate_per_s = self.interruptions_per_h * (0.5 + _unit(self.seed, pool, "contention")) / 3600.0
        return -math.log(1.0 - _unit(self.seed, pool, ordinal, "life")) / rate_per_s

    def _noise(self, pool: CapacityPool, x: float, name: str) -> float:
        """Value noise in [-1, 1]: random at whole numbers, linear between them."""
        left = math.floor(x)
        here, there = (_unit(self.seed, pool, name, knot) for knot in (left, left + 1))
        return 2.0 * (here + (there - here) * (x - left)) - 1.0


PRICES_MOST = 2048
"""Prices that are remembered at a time: those of three days for thirty pools. All others are worked out again."""


@lru_cache(maxsize=PRICES_MOST)
def _price_usd_h(process: SpotProcess, pool: CapacityPool, on_demand_usd_h: float, step: int) -> float:
    """The price in the `step`-th period; remembered, since a thousand machines of a gang ask for the same one."""
    return max(0.0001, round(on_demand_usd_h * process.ratio(pool, step), 4))
