"""How one request is spread over several pools."""

from collections.abc import Sequence

import pytest

from fleet.snapshot import CapacityPool
from providers.sim.ec2 import PoolFilter, RegionMarket
from providers.sim.ec2.allocation import Allocation, LaunchOverride, LaunchTarget, MachineSpec, allocate
from tests.providers.sim.ec2.rigs import NOW_S, PRICES, pool

CHEAP_A, CHEAP_B = pool(), pool(zone="us-east-1b")
DEAR_A, DEAR_B = pool("on-demand", "g6.2xlarge"), pool("on-demand", "g6.2xlarge", "us-east-1b")


class CountedSubnet:
    """So many addresses."""

    def __init__(self, size: int = 100) -> None:
        self.left = [f"10.0.0.{number}" for number in range(size)]

    def free(self) -> int:
        return len(self.left)

    def take(self) -> str:
        return self.left.pop(0)

    def give_back(self, address: str) -> None:
        self.left.append(address)


def candidates(pools: Sequence[CapacityPool], subnet: CountedSubnet | None = None) -> tuple[LaunchOverride, ...]:
    shared = subnet or CountedSubnet()
    return tuple(LaunchOverride(one, MachineSpec(shared), priority=float(rank)) for rank, one in enumerate(pools))


def awarded(allocation: Allocation) -> dict[CapacityPool, int]:
    return {award.candidate.pool: len(award.addresses) for award in allocation.awards}


@pytest.mark.parametrize(
    ("strategy", "pools", "expected"),
    [
        ("lowest-price", [DEAR_A, CHEAP_A], {CHEAP_A: 3, DEAR_A: 1}),
        ("prioritized", [DEAR_A, CHEAP_A], {DEAR_A: 4}),
        ("price-capacity-optimized", [DEAR_A, CHEAP_A], {CHEAP_A: 3, DEAR_A: 1}),
        ("capacity-optimized", [CHEAP_A, DEAR_A], {DEAR_A: 4}),
        ("capacity-optimized-prioritized", [CHEAP_A, DEAR_A], {DEAR_A: 4}),
    ],
)
def test_the_order_of_pools(strategy: str, pools: list[CapacityPool], expected: dict[CapacityPool, int]) -> None:
    market = RegionMarket(PRICES, capacity={CHEAP_A: 3, DEAR_A: 5})
    assert awarded(allocate(market, LaunchTarget(4, candidates(pools), strategy=strategy), NOW_S)) == expected


@pytest.mark.parametrize(
    ("single_type", "single_zone", "minimum", "expected"),
    [
        (False, False, 0, {CHEAP_A: 2, CHEAP_B: 2}),
        (True, False, 4, {CHEAP_A: 2, CHEAP_B: 2}),
        (False, True, 4, {CHEAP_A: 2, DEAR_A: 2}),
        (True, True, 4, {DEAR_A: 4}),
        (True, True, 5, {}),
        (True, True, 0, {CHEAP_A: 2}),
        (False, True, 7, {}),
        (True, False, 6, {}),
    ],
)
def test_single_type_and_single_zone(
    single_type: bool, single_zone: bool, minimum: int, expected: dict[CapacityPool, int]
) -> None:
    """The first group of pools that reaches the minimum gets all; what the others had granted is as if never asked."""
    count = max(4, minimum)
    market = RegionMarket(PRICES, capacity={CHEAP_A: 2, CHEAP_B: 2, DEAR_A: 4, DEAR_B: 1})
    subnet = CountedSubnet()
    target = LaunchTarget(
        count,
        candidates([CHEAP_A, CHEAP_B, DEAR_A, DEAR_B], subnet),
        minimum=minimum,
        single_type=single_type,
        single_zone=single_zone,
    )
    assert awarded(allocate(market, target, NOW_S)) == expected
    assert sum(market.in_use(one) for one in (CHEAP_A, CHEAP_B, DEAR_A, DEAR_B)) == sum(expected.values())
    assert subnet.free() == 100 - sum(expected.values())


def test_every_pool_that_fell_short_is_named() -> None:
    market = RegionMarket(PRICES, default_capacity=0)
    allocation = allocate(market, LaunchTarget(1, candidates([CHEAP_A, DEAR_B])), NOW_S)
    assert [(one.candidate.pool, one.code) for one in allocation.refusals] == [
        (CHEAP_A, "InsufficientInstanceCapacity"),
        (DEAR_B, "InsufficientInstanceCapacity"),
    ]


def test_a_full_subnet_is_its_own_kind_of_shortage() -> None:
    market = RegionMarket(PRICES)
    short = allocate(
        market, LaunchTarget(4, candidates([CHEAP_A], CountedSubnet(3)), minimum=4, single_type=True), NOW_S
    )
    assert (short.awards, [one.code for one in short.refusals]) == ((), ["InsufficientFreeAddressesInSubnet"])
    some = allocate(market, LaunchTarget(4, candidates([CHEAP_A], CountedSubnet(3))), NOW_S)
    assert awarded(some) == {CHEAP_A: 3}
    assert market.in_use(CHEAP_A) == 3


def test_two_candidates_in_one_subnet_share_its_addresses() -> None:
    market = RegionMarket(PRICES, capacity={CHEAP_A: 2})
    allocation = allocate(market, LaunchTarget(6, candidates([CHEAP_A, DEAR_A], CountedSubnet(5))), NOW_S)
    assert awarded(allocation) == {CHEAP_A: 2, DEAR_A: 3}


def test_a_group_with_a_liar_keeps_what_it_has() -> None:
    market = RegionMarket(PRICES, capacity={CHEAP_A: 1, CHEAP_B: 1})
    market.set_lying(PoolFilter.only(CHEAP_B))
    target = LaunchTarget(4, candidates([CHEAP_A, CHEAP_B]), minimum=4, single_type=True)
    assert awarded(allocate(market, target, NOW_S)) == {CHEAP_A: 1, CHEAP_B: 1}


def test_an_override_that_can_never_work_is_passed_over() -> None:
    never = LaunchOverride(CHEAP_A, MachineSpec(CountedSubnet()), refusal=("Unsupported", "not here"))
    allocation = allocate(RegionMarket(PRICES), LaunchTarget(2, (never, *candidates([DEAR_A]))), NOW_S)
    assert (awarded(allocation), [one.code for one in allocation.refusals]) == ({DEAR_A: 2}, ["Unsupported"])
