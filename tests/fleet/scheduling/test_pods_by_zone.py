"""Pods of no gang that ask something of each other are bought for at once where they are many: zones first."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.scheduling import ordinary_pods
from fleet.scheduling.joint_purchase import buy_apart
from fleet.snapshot import PodSet
from fleet.snapshot.constraints import PodConstraints
from model.labels import ZONE
from tests.fleet.scheduling.test_constrained_purchase import (
    APPS,
    HOST,
    NOTHING,
    PORT,
    accepted,
    apart,
    buy,
    near,
    ordinary,
    pods,
    spread,
    stands,
    world_of,
)
from tests.fleet.scheduling.test_joint_purchase import EIGHT, ONE, OTHER
from tests.support.world import World


def world_with(*sets: PodSet, **pool: Any) -> World:
    """Pods of no gang wait, as many of each set as it counts."""
    world = world_of(types=(ONE, EIGHT, OTHER), **pool)
    world.pods = {pod.key: pod for pod in ordinary(*sets)}
    return world


@st.composite
def asked(draw: st.DrawFn) -> PodSet:
    """Pods of which zones and caps of machines say everything; who is spread counts among those it counts."""
    app = draw(APPS)
    ways: list[tuple[PodConstraints, str]] = [
        (apart(HOST, app), app), (near(ZONE, app), app), (PORT, app), (NOTHING, app),
        (spread(HOST, draw(st.integers(1, 2))), "x"), (spread(ZONE, draw(st.integers(1, 2))), "x"),
    ]  # fmt: skip
    constraints, own = draw(st.sampled_from(ways))
    return pods(constraints, draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 2, 4])), own)


@settings(max_examples=40)
@given(st.lists(asked(), min_size=1, max_size=8), st.sampled_from([None, 25]))
def test_all_have_a_place_that_the_scheduler_accepts(sets: list[PodSet], usd_h: int | None) -> None:
    """Held against the search class by class, which the judge refuses where the order in which pods come decides."""
    limits = {} if usd_h is None else {"limits": {"usdPerHour": usd_h}}
    world, plain = world_with(*sets, **limits), world_with(*sets, **limits)
    one_by_one, _ = buy(plain)
    with patch.object(ordinary_pods, "MANY_CLASSES", 1):
        claims, tally = buy(world)
    assert len(stands(world)) >= len(stands(plain))
    assert accepted(world) == [] or accepted(plain) != []
    assert {claim.name for claim in claims} == {place for _, place in stands(world)}, "none idle"
    cost_usd_h = sum(claim.price_usd_h for claim in claims)
    assert usd_h is None or cost_usd_h <= usd_h + 1e-6
    assert tally is None or tally.bound_usd_h <= cost_usd_h + 1e-6
    assert not one_by_one or claims


MANY = [pods(apart(HOST, f"a{n}"), 2, 1, f"a{n}") for n in range(ordinary_pods.MANY_CLASSES)]


@pytest.mark.parametrize(
    ("sets", "at_once"),
    [
        pytest.param(MANY, True, id="many"),
        pytest.param(MANY[1:], False, id="one class less"),
        pytest.param([*MANY, pods(NOTHING, 3, app="free")], True, id="others beside"),
        pytest.param([*MANY, pods(near(), 2, app="x")], False, id="some that share a machine"),
    ],
)
def test_at_once_only_where_many_ask_and_nothing_else_does(sets: list[PodSet], *, at_once: bool) -> None:
    world = world_with(*sets)
    with patch("fleet.scheduling.joint_purchase.buy_apart", wraps=buy_apart) as bought:
        buy(world)
    assert bought.called is at_once
    assert len(stands(world)) == sum(it.count for it in sets)
    assert accepted(world) == []


def test_class_by_class_where_limits_leave_too_little_for_all() -> None:
    world = world_with(*MANY, limits={"usdPerHour": 1.5})
    claims, _ = buy(world)
    assert 0 < sum(claim.price_usd_h for claim in claims) <= 1.5
    assert 0 < len(stands(world)) < 2 * len(MANY)
    assert accepted(world) == []


def test_room_on_what_stands_is_taken_first() -> None:
    world = world_with(*MANY)
    world.machine("large", "all", "eight.large")
    claims, _ = buy(world)
    places = [place for _, place in stands(world)]
    assert places.count("large") == 8
    assert len(places) == 2 * len(MANY)
    assert claims
