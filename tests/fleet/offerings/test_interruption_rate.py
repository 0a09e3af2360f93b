"""What is remembered of interruptions, what it adds to a price, and what is bought then."""

from collections import Counter
from math import log
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import OpenClaims, PurchaseTally
from fleet.catalog import InstanceOffer
from fleet.offerings.interruption_rate import (
    FORGOTTEN,
    HALF_LIFE_S,
    MOST_PREMIUM,
    TOGETHER_S,
    learned,
    premium,
    weight,
)
from fleet.scheduling import cycle
from fleet.snapshot import CapacityPool, Claim, InterruptionHistory, NodeDisruption, Snapshot
from model.kinds import CapacityType
from tests.support.fleets import NOW, A, B, FleetBuilder, catalog, gang, machine
from tests.support.world import World

CAPACITY_TYPES: tuple[CapacityType, ...] = ("on-demand", "spot")


def claims(*at_s: float, reason: str = "Interrupted", capacity_type: Any = "spot") -> dict[str, Claim]:
    """A machine interrupted at each instant."""
    world = World(FleetBuilder().pool(capacityTypes=["spot", "on-demand"]).team().queue().build())
    for number, when_s in enumerate(at_s):
        why = NodeDisruption(reason, "x", when_s, when_s + 105)
        world.machine(f"m{number}", capacity_type=capacity_type, disruption=why)
    return world.claims


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(claims(NOW), InterruptionHistory(1.0, NOW), id="one"),
        pytest.param(claims(NOW, NOW + 60, NOW + TOGETHER_S), InterruptionHistory(1.0, NOW), id="taken together"),
        pytest.param(claims(NOW + 60, NOW), InterruptionHistory(1.0, NOW), id="the earliest counts"),
        pytest.param(claims(NOW, NOW + HALF_LIFE_S), InterruptionHistory(1.5, NOW + HALF_LIFE_S), id="half forgotten"),
        pytest.param(claims(NOW, reason="Drifted"), None, id="leaves by plan"),
        pytest.param(claims(NOW, capacity_type="on-demand"), None, id="EC2 never takes those back for others"),
        pytest.param(claims(), None, id="nothing"),
    ],
)
def test_what_is_learned(found: dict[str, Claim], expected: InterruptionHistory | None) -> None:
    memories = learned({}, Snapshot(NOW + 1, claims=found))
    assert list(memories.values()) == ([expected] if expected else [])
    assert learned(memories, Snapshot(NOW + 2, claims=dict(found))) is memories, "nothing counts twice"


def test_an_old_memory_goes() -> None:
    memories = learned({}, Snapshot(NOW, claims=claims(NOW)))
    assert learned(memories, Snapshot(NOW + 6 * HALF_LIFE_S, claims={})) is memories
    assert learned(memories, Snapshot(NOW + 7 * HALF_LIFE_S, claims={})) == {}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 5 * HALF_LIFE_S), max_size=6), st.integers(0, 6))
def test_an_agent_that_starts_anew_learns_the_same(ages_s: list[float], at: int) -> None:
    """However the claims come into sight: all at once, or in two parts with the memory kept between."""
    times = sorted(NOW + age_s for age_s in ages_s)
    end_s = NOW + 5 * HALF_LIFE_S
    early = learned({}, Snapshot(times[at - 1] if 0 < at <= len(times) else NOW, claims=claims(*times[:at])))
    last = Snapshot(end_s, claims=claims(*times))
    again, at_once = learned(early, last), learned({}, last)
    assert list(again) == list(at_once)
    for pool, memory in at_once.items():
        assert again[pool] == pytest.approx(memory)


@pytest.mark.parametrize(
    ("memory", "now_s", "part"),
    [
        (InterruptionHistory(1.0, NOW), NOW, log(2) / 6),
        (InterruptionHistory(1.0, NOW), NOW + HALF_LIFE_S, log(2) / 12),
        (InterruptionHistory(2.0, NOW), NOW, log(2) / 3),
        (InterruptionHistory(1.0, NOW), NOW - 999, log(2) / 6),
        (InterruptionHistory(99.0, NOW), NOW, MOST_PREMIUM),
    ],
)
def test_what_it_adds_to_the_price(memory: InterruptionHistory, now_s: float, part: float) -> None:
    assert premium(memory, now_s) == pytest.approx(part)
    assert weight(memory, NOW + 99 * HALF_LIFE_S) < FORGOTTEN


# -- what is bought ---------------------------------------------------------------------------------------------------

TEN, ELEVEN = machine("ten.large", gpus=8, gpu="l4"), machine("eleven.large", gpus=8, gpu="l4")
USD_H = {TEN.name: 10.0, ELEVEN.name: 11.0}


def asked(**pool: Any) -> World:
    """Two machines of either kind are wanted; spot costs half."""
    offers = [
        InstanceOffer(it, zone, ct, USD_H[it.name] / (2 if ct == "spot" else 1))
        for it in (ELEVEN, TEN)
        for zone in (A, B)
        for ct in CAPACITY_TYPES
    ]
    spec = {"instanceFamilies": ["ten", "eleven"], "capacityTypes": ["spot", "on-demand"], **pool}
    fleet = FleetBuilder().pool(**spec).team(quotas={"h100": {"nvidia.com/gpu": 64}}).queue().build()
    world = World(fleet, catalog=catalog(offers))
    world.waits(gang("g", count=2, gpu=8))
    return world


def bought(world: World) -> tuple[set[CapacityPool], PurchaseTally]:
    [opened] = [it for it in cycle.decide(world.fleet, world.snapshot()) if isinstance(it, OpenClaims)]
    assert opened.tally is not None
    assert sum(claim.price_usd_h for claim in opened.claims) == pytest.approx(opened.tally.cost_usd_h)
    assert opened.tally.bound_usd_h <= opened.tally.cost_usd_h
    return {claim.capacity_pool for claim in opened.claims}, opened.tally


def spot(kind: str, zone: str) -> CapacityPool:
    return CapacityPool("spot", kind, zone)


@pytest.mark.parametrize(
    ("pool", "weights", "expected", "usd_h"),
    [
        pytest.param({}, {}, spot(TEN.name, A), 10.0, id="nothing remembered: the cheapest"),
        pytest.param({}, {spot(TEN.name, A): 1.0}, spot(TEN.name, B), 10.0, id="the next zone costs the same"),
        pytest.param({}, {spot(TEN.name, A): 1e-8}, spot(TEN.name, A), 10.0, id="as good as forgotten"),
        pytest.param({"zones": [A]}, {spot(TEN.name, A): 1.0}, spot(ELEVEN.name, A), 11.0, id="a dearer kind"),
        pytest.param({"zones": [A]}, {spot(TEN.name, A): 0.8}, spot(TEN.name, A), 10.0, id="not by enough"),
        pytest.param(
            {"zones": [A]},
            {spot(TEN.name, A): 99.0, spot(ELEVEN.name, A): 99.0},
            CapacityPool("on-demand", TEN.name, A),
            20.0,
            id="on demand, where no spot machine is expected to be cheaper",
        ),
        pytest.param(
            {"zones": [A], "capacityTypes": ["on-demand", "spot"]},
            {},
            CapacityPool("on-demand", TEN.name, A),
            20.0,
            id="spot is for emergencies where on demand comes first",
        ),
        pytest.param(
            {"zones": [A], "limits": {"usdPerHour": 10.5}},
            {spot(TEN.name, A): 0.8},
            spot(TEN.name, A),
            10.0,
            id="limits count the price",
        ),
    ],
)
def test_what_is_bought(
    pool: dict[str, Any], weights: dict[CapacityPool, float], expected: CapacityPool, usd_h: float
) -> None:
    world = asked(**pool)
    world.interruptions = {where: InterruptionHistory(weight, NOW) for where, weight in weights.items()}
    where, tally = bought(world)
    assert (where, tally.cost_usd_h) == ({expected}, pytest.approx(usd_h))


def test_what_gangs_buy_together_is_chosen_by_expected_cost_and_told_in_prices() -> None:
    """One machine for both would be cheaper by its price, and is not by what it is expected to cost."""
    world = asked(zones=[A])
    small = machine("ten.small", gpus=2, gpu="l4")
    world.catalog = catalog([*world.catalog.offers, InstanceOffer(small, A, "spot", 2.6)])
    world.gangs.clear()
    world.waits(gang("g", count=2, gpu=1), gang("h", count=2, gpu=1))
    assert bought(world)[0] == {spot(TEN.name, A)}
    world.interruptions = {spot(TEN.name, A): InterruptionHistory(1.0, NOW)}
    where, tally = bought_in_all(world)
    assert where == {spot(small.name, A): 2}
    assert tally.cost_usd_h == pytest.approx(5.2)
    assert tally.bound_usd_h <= 5.2


def bought_in_all(world: World) -> tuple[dict[CapacityPool, int], PurchaseTally]:
    opened = [it for it in cycle.decide(world.fleet, world.snapshot()) if isinstance(it, OpenClaims)]
    [tally] = [it.tally for it in opened if it.tally is not None]
    return dict(Counter(claim.capacity_pool for it in opened for claim in it.claims)), tally
