"""The market's rules as tables: what is granted, at what price, and what the account's limits allow."""

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.snapshot import CapacityPool
from providers.sim.ec2 import EC2_BUCKETS, Bucket, HeldReservation, PoolFilter, Quota, RegionMarket, SpotProcess
from providers.sim.ec2.limits import Throttle, bucket_of, quota_group
from tests.providers.sim.ec2.rigs import NOW_S, PRICES, VCPUS, pool, small_catalog

A, B = pool(), pool(zone="us-east-1b")
HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("capacity", "lies", "count", "minimum", "granted", "code"),
    [
        (None, False, 4, 4, 4, ""),
        (4, False, 4, 4, 4, ""),
        (3, False, 4, 4, 0, "InsufficientInstanceCapacity"),
        (3, False, 4, 0, 3, "InsufficientInstanceCapacity"),
        (3, False, 4, 3, 3, "InsufficientInstanceCapacity"),
        (3, True, 4, 4, 3, "InsufficientInstanceCapacity"),
        (0, True, 4, 4, 0, "InsufficientInstanceCapacity"),
        (0, False, 1, 1, 0, "InsufficientInstanceCapacity"),
    ],
)
def test_what_is_granted(capacity: int | None, lies: bool, count: int, minimum: int, granted: int, code: str) -> None:
    market = RegionMarket(PRICES, default_capacity=capacity)
    market.set_lying(PoolFilter.only(A), on=lies)
    grant = market.take(A, count, minimum)
    assert (grant.count, grant.code, bool(grant.message)) == (granted, code, bool(code))
    assert market.in_use(A) == granted


@pytest.mark.parametrize(("count", "minimum"), [(0, 0), (-1, 0), (2, 3), (2, -1)])
def test_a_request_that_makes_no_sense_is_refused(count: int, minimum: int) -> None:
    with pytest.raises(ValueError, match="machines"):
        RegionMarket().take(A, count, minimum)


def test_more_cannot_come_back_than_went_out() -> None:
    market = RegionMarket()
    market.take(A, 2)
    market.give_back(A, 2)
    with pytest.raises(ValueError, match="are out"):
        market.give_back(A)


@pytest.mark.parametrize(
    ("chosen", "matches"),
    [
        (PoolFilter(), {"a", "b", "spot", "p5"}),
        (PoolFilter(zone="us-east-1a"), {"a", "spot", "p5"}),
        (PoolFilter(capacity_type="spot"), {"spot"}),
        (PoolFilter(instance_type="g6.xlarge", zone="us-east-1b"), {"b"}),
        (PoolFilter.only(A), {"a"}),
    ],
)
def test_a_shortage_covers_the_pools_it_names(chosen: PoolFilter, matches: set[str]) -> None:
    pools = {"a": A, "b": B, "spot": pool("spot"), "p5": pool("on-demand", "p5.48xlarge")}
    market = RegionMarket()
    market.set_shortage(chosen)
    assert {name for name, one in pools.items() if market.take(one, 1).count == 0} == matches
    market.set_shortage(chosen, on=False)
    assert all(market.take(one, 1).count == 1 for one in pools.values())


def test_a_reservation_says_that_it_is_full() -> None:
    market = RegionMarket()
    held = HeldReservation("cr-1", "g6.xlarge", "us-east-1a", 2)
    market.reservations[held.id] = held
    assert [market.take(held.pool, count).code for count in (2, 1)] == ["", "ReservationCapacityExceeded"]
    assert market.take(pool("reserved"), 1).code == "ReservationCapacityExceeded"
    with pytest.raises(ValueError, match="machines"):
        market.set_capacity(held.pool, 3)


def test_quotas_count_vcpus_of_a_family_group_over_all_zones() -> None:
    market = RegionMarket(vcpus=VCPUS, quotas={Quota(spot=False, group="G and VT"): 20})
    assert market.take(A, 3).count == 3
    assert market.take(pool("on-demand", "g6.2xlarge", "us-east-1b"), 2).count == 1
    refused = market.take(B, 1)
    assert (refused.count, refused.code) == (0, "VcpuLimitExceeded")
    assert market.take(pool("spot"), 5).count == 5
    assert market.take(pool("on-demand", "p5.48xlarge"), 1).count == 1
    market.give_back(A, 3)
    assert market.take(B, 3).count == 3


def test_a_quota_on_a_type_of_unknown_size_is_an_error_not_a_guess() -> None:
    market = RegionMarket(quotas={Quota(spot=False, group="P"): 100})
    with pytest.raises(ValueError, match="vCPUs are not known"):
        market.take(pool("on-demand", "p5.48xlarge"), 1)


@pytest.mark.parametrize(
    ("instance_type", "group"),
    [
        ("p5.48xlarge", "P"),
        ("p4d.24xlarge", "P"),
        ("p6-b200.48xlarge", "P"),
        ("g6.xlarge", "G and VT"),
        ("g6f.large", "G and VT"),
        ("gr6.4xlarge", "G and VT"),
        ("vt1.3xlarge", "G and VT"),
        ("inf2.xlarge", "Inf"),
        ("trn1.32xlarge", "Trn"),
        ("dl1.24xlarge", "DL"),
        ("f2.6xlarge", "F"),
        ("x2idn.16xlarge", "X"),
        ("u-6tb1.56xlarge", "High Memory"),
        ("hpc7g.4xlarge", "HPC"),
        ("m5.large", "Standard"),
        ("c7gn.large", "Standard"),
        ("i4i.large", "Standard"),
        ("t3.micro", "Standard"),
    ],
)
def test_quota_groups(instance_type: str, group: str) -> None:
    assert quota_group(instance_type) == group


def test_undoing_a_grant_leaves_no_trace() -> None:
    market = RegionMarket(PRICES, capacity={A: 5})
    market.faults.shortage_after = 4
    market.undo(A, market.take(A, 3).count)
    assert (market.in_use(A), market.free(A), market.faults.shortage_after) == (0, 4, 4)


# Prices


def test_prices_of_the_catalogue() -> None:
    market = RegionMarket.from_catalog(small_catalog())
    assert market.price_usd_h(A, NOW_S) == PRICES["g6.xlarge"]
    assert market.price_usd_h(pool("reserved"), NOW_S) == PRICES["g6.xlarge"]
    assert market.price_usd_h(pool("on-demand", "z9.huge"), NOW_S) is None
    spot = market.price_usd_h(pool("spot"), NOW_S)
    assert spot is not None
    assert 0 < spot < PRICES["g6.xlarge"]


def test_spot_prices_are_piecewise_constant_and_the_same_in_every_order() -> None:
    process = SpotProcess(seed=7)
    instants = [process.period_start_s(NOW_S) + step * 600 for step in range(60)]
    forward = [process.price_usd_h(A, 1.0, at_s) for at_s in instants]
    backward = [SpotProcess(seed=7).price_usd_h(A, 1.0, at_s) for at_s in reversed(instants)]
    assert forward == backward[::-1]
    for _, prices in itertools.groupby(zip(instants, forward, strict=True), lambda one: one[0] // HOUR_S):
        assert len({price for _, price in prices}) == 1
    assert len(set(forward)) > 5


def test_pools_and_seeds_have_prices_of_their_own() -> None:
    pools = [pool("spot", name, zone) for name in PRICES for zone in ("us-east-1a", "us-east-1b")]
    assert len({SpotProcess(1).price_usd_h(one, 100.0, NOW_S) for one in pools}) == len(pools)
    assert SpotProcess(1).price_usd_h(A, 100.0, NOW_S) != SpotProcess(2).price_usd_h(A, 100.0, NOW_S)


@given(st.floats(0, 4e9), st.floats(0.01, 200))
def test_spot_prices_stay_between_nothing_and_on_demand(now_s: float, on_demand: float) -> None:
    price = SpotProcess(high_ratio=1.2, swing=0.5).price_usd_h(A, on_demand, now_s)
    assert 0.0001 <= price <= round(on_demand, 4)


@given(st.floats(0, 10 * HOUR_S), st.floats(0, 10 * HOUR_S), st.floats(0, 10 * HOUR_S))
def test_cost_adds_up_over_time(first_s: float, second_s: float, third_s: float) -> None:
    market = RegionMarket(PRICES)
    start_s, middle_s, end_s = sorted(NOW_S + offset for offset in (first_s, second_s, third_s))
    for one in (A, pool("spot")):
        parts = market.cost_usd(one, start_s, middle_s) + market.cost_usd(one, middle_s, end_s)
        assert market.cost_usd(one, start_s, end_s) == pytest.approx(parts, abs=1e-9)


def test_cost_of_a_spot_hour_is_its_price() -> None:
    market = RegionMarket(PRICES)
    start_s = market.spot.period_start_s(NOW_S)
    assert market.cost_usd(pool("spot"), start_s, start_s + HOUR_S) == pytest.approx(
        market.price_usd_h(pool("spot"), start_s)
    )


def test_prices_of_many_days_are_not_all_remembered() -> None:
    """Hour after hour of every pool is a third of what grew in ninety simulated days."""
    spot = SpotProcess(seed=3)
    tracemalloc.start()
    try:
        for step, one in itertools.product(range(2000), (A, B)):
            spot.price_usd_h(one, 10.0, step * HOUR_S)
        settled, _ = tracemalloc.get_traced_memory()
        for step, one in itertools.product(range(2000, 8000), (A, B)):
            spot.price_usd_h(one, 10.0, step * HOUR_S)
        assert tracemalloc.get_traced_memory()[0] - settled < 2**20
    finally:
        tracemalloc.stop()


def test_interruptions_come_at_the_rate_asked_for() -> None:
    process = SpotProcess(seed=3, interruptions_per_h=0.1)
    pools = [pool("spot", f"g6.{size}", zone) for size in range(40) for zone in ("a", "b")]
    lives = [process.lifetime_s(one, ordinal) for one in pools for ordinal in range(50)]
    mean_rate_per_h = sum(HOUR_S / (sum(filter(None, lives[i : i + 50])) / 50) for i in range(0, 4000, 50)) / 80
    assert mean_rate_per_h == pytest.approx(0.1, rel=0.1)
    assert SpotProcess().lifetime_s(A, 1) is None


# Request limits


@pytest.mark.parametrize(
    ("action", "paged", "bucket"),
    [
        ("CreateFleet", True, "write"),
        ("CreateLaunchTemplate", True, "write"),
        ("RunInstances", True, "RunInstances"),
        ("TerminateInstances", True, "TerminateInstances"),
        ("DescribeSubnets", False, "read"),
        ("DescribeInstances", True, "read"),
        ("DescribeInstances", False, "DescribeInstances:unpaged"),
        ("CreateTags", True, "CreateTags"),
    ],
)
def test_each_action_has_its_bucket(action: str, paged: bool, bucket: str) -> None:
    assert bucket_of(action, paged=paged) == bucket
    assert bucket in EC2_BUCKETS


def test_a_bucket_allows_its_burst_and_then_its_rate() -> None:
    throttle = Throttle({"x": Bucket(burst=3, refill_per_s=0.5)})
    assert [throttle.allows("x", 100.0) for _ in range(4)] == [True, True, True, False]
    assert [throttle.allows("x", 102.0) for _ in range(2)] == [True, False]
    assert throttle.allows("y", 100.0)
    assert [throttle.allows("x", 1000.0) for _ in range(4)] == [True, True, True, False]


def test_a_clock_that_jumps_back_gives_no_tokens() -> None:
    throttle = Throttle({"x": Bucket(burst=1, refill_per_s=1)})
    assert throttle.allows("x", 100.0)
    assert not throttle.allows("x", 50.0)


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 4)), max_size=60))
def test_no_bucket_gives_more_than_burst_and_refill(calls: list[tuple[float, int]]) -> None:
    throttle, now_s, used = Throttle({"x": Bucket(5, 2)}), 0.0, 0
    for pause_s, tokens in calls:
        now_s += pause_s
        used += tokens if throttle.allows("x", now_s, tokens) else 0
        assert used <= 5 + 2 * now_s + 1e-6


def test_pools_in_order() -> None:
    market = RegionMarket(capacity={B: 1})
    market.take(A, 1)
    assert market.pools() == sorted([A, B])
    market.give_back(A)
    assert market.pools() == [B]
    assert isinstance(market.pools()[0], CapacityPool)
