"""What limits let a fleet cost, by hand."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.offerings import offerings_now
from fleet.plan.exposure import Exposure, ceiling_usd_h, exposure_of
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from tests.support.fleets import G6, GPU, NOW, P5, FleetBuilder, catalog

P5_USD_H, G6_USD_H, SPOT_USD_H = 98.0, 4.6, 1.8
WORLD = Snapshot(now_s=NOW, catalog=catalog())


def fleet(**pool: Any) -> Fleet:
    return FleetBuilder().pool(**{"instanceTypes": [P5.name, G6.name], **pool}).build()


@pytest.mark.parametrize(
    ("pool", "usd_h"),
    [
        ({"limits": {"nodes": 3}}, 3 * P5_USD_H),
        ({"limits": {"nodes": 3}, "instanceTypes": [G6.name]}, 3 * G6_USD_H),
        ({"limits": {"nodes": 3}, "instanceTypes": [G6.name], "capacityTypes": ["spot"]}, 3 * SPOT_USD_H),
        ({"limits": {"nodes": 3, "usdPerHour": 100}}, 100),
        ({"limits": {"nodes": 0}}, 0),
        ({"limits": {"usdPerHour": 50}}, 50),
        ({"replicas": 2}, 2 * P5_USD_H),
        ({"replicas": 5, "limits": {"nodes": 2}}, 2 * P5_USD_H),
        ({"limits": {"resources": {GPU: 16}}}, 16 * P5_USD_H / 8),
        ({"limits": {"resources": {GPU: 16}}, "instanceTypes": [P5.name]}, 2 * P5_USD_H),
        ({"limits": {"resources": {GPU: 16}, "nodes": 1}, "instanceTypes": [P5.name]}, P5_USD_H),
        ({"limits": {"resources": {"vpc.amazonaws.com/efa": 8}}}, inf),
        ({}, inf),
        ({"zones": ["us-east-1f"]}, 0),
    ],
)
def test_the_least_of_the_limits_bounds_what_a_pool_may_cost(pool: dict[str, Any], usd_h: float) -> None:
    (found,) = exposure_of(fleet(**pool), WORLD).by_pool.values()
    assert found == pytest.approx(usd_h)


def test_the_exposure_of_a_fleet_is_that_of_its_bounded_pools_and_names_the_others() -> None:
    found = Exposure({"a": 10.0, "b": inf, "c": 2.5})
    assert (found.usd_h, found.unbounded) == (12.5, ("b",))


@given(
    nodes=st.none() | st.integers(0, 30),
    usd_h=st.none() | st.floats(0, 2_000, allow_nan=False),
    gpus=st.none() | st.integers(0, 100),
    picks=st.lists(st.integers(0, 1_000), max_size=60),
)
def test_no_purchase_that_the_limits_allow_costs_more(
    nodes: int | None, usd_h: float | None, gpus: int | None, picks: list[int]
) -> None:
    given_limits = {"nodes": nodes, "usdPerHour": usd_h, "resources": None if gpus is None else {GPU: gpus}}
    declared = fleet(limits={name: limit for name, limit in given_limits.items() if limit is not None})
    pool = declared.node_pools["h100"]
    offerings = offerings_now(declared, WORLD).of(pool)
    left, bill_usd_h = PoolHeadroom.of(WORLD, pool), 0.0
    for pick in picks:
        offering = offerings[pick % len(offerings)]
        if left.most(offering):
            left.spend(offering, 1)
            bill_usd_h += offering.offer.price_usd_h
    assert bill_usd_h <= ceiling_usd_h(pool, offerings) + 1e-6
