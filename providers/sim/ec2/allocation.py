"""How EC2 spreads one request over several capacity pools (CreateFleet, type instant).

Source: EC2 API Reference CreateFleet, OnDemandOptionsRequest and SpotOptionsRequest; EC2 User Guide "Allocation
strategies".
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from fleet.snapshot import CapacityPool
from providers.sim.ec2.market import Grant, RegionMarket
from providers.sim.ec2.reservations import open_to


class Addresses(Protocol):
    """Where machines get their private addresses from: one subnet."""

    def free(self) -> int:
        """Addresses left."""
        ...

    def take(self) -> str:
        """The next IPv4 address."""
        ...

    def give_back(self, address: str) -> None:
        """Free an address."""
        ...


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """What a machine is made with; `details` is what only the EC2 API shows of it (image, groups, profile...)."""

    addresses: Addresses
    user_data: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, object] = field(default_factory=dict)
    closed: bool = False
    """Not to be let into an open capacity reservation."""
    efa: int = 0
    """EFA interfaces."""


@dataclass(frozen=True, slots=True)
class LaunchOverride:
    """One override of a request: a pool to draw from. `refusal` (code, message) is set where it can never work."""

    pool: CapacityPool
    spec: MachineSpec
    priority: float = 0.0
    refusal: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class LaunchTarget:
    """So many machines of one capacity type, at least `minimum` of them, from any of the candidates."""

    count: int
    candidates: tuple[LaunchOverride, ...]
    minimum: int = 0
    strategy: str = "lowest-price"
    single_type: bool = False
    single_zone: bool = False


@dataclass(frozen=True, slots=True)
class Award:
    """Machines granted to one candidate: one for each address."""

    candidate: LaunchOverride
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OverrideRefusal:
    """Why a candidate gave fewer than asked."""

    candidate: LaunchOverride
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """The outcome for one target."""

    awards: tuple[Award, ...]
    refusals: tuple[OverrideRefusal, ...]


_Rank = Callable[[LaunchOverride, RegionMarket, float], tuple[float, ...]]


def _price(candidate: LaunchOverride, market: RegionMarket, now_s: float) -> float:
    price = market.price_usd_h(candidate.pool, now_s)
    return float("inf") if price is None else price


def _scarcity(candidate: LaunchOverride, market: RegionMarket) -> float:
    free = market.free(candidate.pool)
    return float("-inf") if free is None else -float(free)


STRATEGIES: Mapping[str, _Rank] = {
    "lowest-price": lambda c, market, now_s: (_price(c, market, now_s),),
    "prioritized": lambda c, market, now_s: (c.priority, _price(c, market, now_s)),
    "price-capacity-optimized": lambda c, market, now_s: (float(market.free(c.pool) == 0), _price(c, market, now_s)),
    "capacity-optimized": lambda c, market, now_s: (_scarcity(c, market), _price(c, market, now_s)),
    "capacity-optimized-prioritized": lambda c, market, _now_s: (_scarcity(c, market), c.priority),
}
"""Allocation strategy -> the order in which pools are drawn from. AWS does not publish how price-capacity-optimized
weighs the two; here pools without capacity come last and the rest by price. `diversified` is not modelled."""


def allocate(market: RegionMarket, target: LaunchTarget, now_s: float) -> Allocation:
    """Draw machines for `target`. Raises KeyError for a strategy that is not modelled.

    Under SingleInstanceType / SingleAvailabilityZone the first group of pools that reaches the minimum gets all.
    """
    refusals: list[OverrideRefusal] = []
    for group in _groups(market, target, now_s):
        awards = _fill(market, target, group, refusals)
        if awards:
            return Allocation(tuple(awards), tuple(refusals))
    return Allocation((), tuple(refusals))


def _groups(market: RegionMarket, target: LaunchTarget, now_s: float) -> Iterable[list[LaunchOverride]]:
    rank = STRATEGIES[target.strategy]
    groups: dict[tuple[str, str], list[LaunchOverride]] = {}
    for candidate in sorted(target.candidates, key=lambda c: rank(c, market, now_s)):
        pool = candidate.pool
        key = (pool.instance_type if target.single_type else "", pool.zone if target.single_zone else "")
        groups.setdefault(key, []).append(candidate)
    return groups.values()


def _fill(
    market: RegionMarket, target: LaunchTarget, group: list[LaunchOverride], refusals: list[OverrideRefusal]
) -> list[Award]:
    awards: list[Award] = []
    missing = target.count
    for candidate in group:
        matched = _open_places(market, candidate, missing)
        awards += matched
        missing -= sum(len(award.addresses) for award in matched)
        if not missing:
            return awards
        had = target.count - missing
        grant = _draw(market, candidate, missing, max(0, target.minimum - had) if len(group) == 1 else 0)
        if grant.code:
            refusals.append(OverrideRefusal(candidate, grant.code, grant.message))
        if grant.count:
            take = candidate.spec.addresses.take
            awards.append(Award(candidate, tuple(take() for _ in range(grant.count))))
            missing -= grant.count
        if not missing:
            return awards
    if target.count - missing < target.minimum and not any(market.lies(award.candidate.pool) for award in awards):
        for award in awards:
            _undo(market, award)
        return []
    return awards


def _open_places(market: RegionMarket, candidate: LaunchOverride, count: int) -> list[Award]:
    """Machines in open reservations, which on-demand ones get without asking for it."""
    awards: list[Award] = []
    if candidate.spec.closed or candidate.refusal is not None:
        return awards
    for held in open_to(market.reservations.values(), candidate.pool):
        room = min(count, candidate.spec.addresses.free(), market.free(held.pool) or 0)
        granted = market.take(held.pool, room).count if room else 0
        if granted:
            take = candidate.spec.addresses.take
            awards.append(Award(replace(candidate, pool=held.pool), tuple(take() for _ in range(granted))))
            count -= granted
    return awards


def _draw(market: RegionMarket, candidate: LaunchOverride, count: int, minimum: int) -> Grant:
    if candidate.refusal is not None:
        return Grant(0, *candidate.refusal)
    room = min(count, candidate.spec.addresses.free())
    short_of_addresses = "InsufficientFreeAddressesInSubnet", "There are not enough free addresses in the subnet."
    if room == 0 or room < minimum:
        return Grant(0, *short_of_addresses)
    grant = market.take(candidate.pool, room, minimum)
    return grant if grant.code or room == count else Grant(grant.count, *short_of_addresses)


def _undo(market: RegionMarket, award: Award) -> None:
    market.undo(award.candidate.pool, len(award.addresses))
    for address in award.addresses:
        award.candidate.spec.addresses.give_back(address)
