"""Fair shares level by level: KAI-Scheduler's division of one resource.

A queue first gets its quota as far as it asks for it, even if quotas add up to more than there is. What is then left
goes to surplus: queues of a higher priority first, within one priority by over-quota weight, less what the queue has
used in the recent past, in whole units; units lost to rounding go to the largest remainders.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

UNLIMITED = -1.0


@dataclass(frozen=True, slots=True)
class Claimant:
    """One queue in one resource. `UNLIMITED` quota means all there is, `UNLIMITED` limit none."""

    quota: float
    request: float
    """What it runs and waits for."""
    weight: float = 1.0
    limit: float = UNLIMITED
    priority: int = 0
    usage: float = 0.0
    """Recent use as a fraction of the whole cluster, decayed (see `decayed`)."""
    age: int = 0
    """Position by creation, oldest first; breaks ties before the name does."""

    @property
    def wanted(self) -> float:
        """The request, as far as the limit lets it count."""
        return self.request if self.limit == UNLIMITED else min(self.limit, self.request)


def decayed(usage: float, seconds: float, half_life_s: float) -> float:
    """Past usage as it counts now."""
    return float(usage * 0.5 ** (seconds / half_life_s))


def divide(total: float, claimants: Mapping[str, Claimant], usage_weight: float = 0.0) -> dict[str, float]:
    """The fair share of each claimant of `total`; `usage_weight` is how much past usage counts (KAI's k)."""
    shares = {
        name: min(total if claimant.quota == UNLIMITED else claimant.quota, claimant.wanted)
        for name, claimant in claimants.items()
    }
    left = total - sum(shares.values())
    for priority in sorted({claimant.priority for claimant in claimants.values()}, reverse=True):
        if left <= 0:
            break
        peers = {name: claimant for name, claimant in sorted(claimants.items()) if claimant.priority == priority}
        left = _divide_surplus(left, peers, shares, usage_weight)
    return shares


def _divide_surplus(left: float, peers: Mapping[str, Claimant], shares: dict[str, float], usage_weight: float) -> float:
    remainders: dict[str, float] = {}
    again = True
    while again and left > 0:
        again, poured = False, left
        for name, portion in _portions(peers, shares, usage_weight).items():
            missing, fair = peers[name].wanted - shares[name], poured * portion
            given = missing if missing <= fair else float(floor(fair))
            remainders.pop(name, None)
            if missing > fair > given:
                remainders[name] = fair - given
            shares[name] += given
            left -= given
            again = again or missing < fair
    for name in sorted(remainders, key=lambda key: (-remainders[key], peers[key].age, key)):
        unit = min(1.0, left)
        shares[name] += unit
        left -= unit
    return left


def _portions(peers: Mapping[str, Claimant], shares: Mapping[str, float], usage_weight: float) -> dict[str, float]:
    """The part of the surplus due to each peer that still wants some, adding up to 1."""
    hungry = {name: peer for name, peer in peers.items() if peer.weight > 0 and peer.wanted > shares[name]}
    weights = sum(peer.weight for peer in hungry.values())
    tilted = {
        name: max(0.0, peer.weight / weights + usage_weight * (peer.weight / weights - peer.usage))
        for name, peer in hungry.items()
    }
    whole = sum(tilted.values())
    return {name: value / whole for name, value in tilted.items() if value} if whole else {}
