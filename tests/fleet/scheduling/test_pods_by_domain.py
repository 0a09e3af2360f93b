"""Pods of no gang that ask something of each other are bought for at once: domains first, then machines together."""

from collections import Counter
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fleet.scheduling.ordinary_pods import OrdinaryPods
from fleet.snapshot import PodSet
from tests.fleet.scheduling.test_constrained_purchase import (
    EIGHT,
    ONE,
    OTHER,
    SETS,
    Asked,
    accepted,
    buy,
    drawn,
    ordinary,
    stands,
    world_of,
)
from tests.support.world import World


def world_with(*sets: PodSet, **pool: object) -> World:
    world = world_of(types=(ONE, EIGHT, OTHER), **pool)
    world.pods = {pod.key: pod for pod in ordinary(*sets)}
    return world


@settings(max_examples=300, phases=[Phase.generate])
@given(st.lists(SETS, min_size=2, max_size=8), st.sampled_from([None, None, 25]))
def test_never_dearer_than_class_by_class_and_accepted(nobodys: list[Asked], usd_h: int | None) -> None:
    limits = {} if usd_h is None else {"limits": {"usdPerHour": usd_h}}
    sets = [drawn(it) for it in nobodys]
    world, plain = world_with(*sets, **limits), world_with(*sets, **limits)
    claims, _ = buy(world)
    with patch.object(OrdinaryPods, "_buy_apart", lambda _self, _seeking: None):
        one_by_one, _ = buy(plain)
    beside = world.fleet.policy.spec.usd_per_hour_per_machine
    cost, most = (sum(claim.price_usd_h + beside for claim in found) for found in (claims, one_by_one))
    assert len(stands(world)) >= len(stands(plain))
    assert cost <= most + 1e-6 or len(stands(world)) > len(stands(plain))
    assert accepted(world) == [] or accepted(plain) != []
    assert {claim.name for claim in claims} == {place for _, place in stands(world)}, "none idle"
