"""What holds of every decision, whatever the world."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reference.karpenter.buy import ProvisionerSettings, solve
from tests.bench.reference.karpenter.buy.worlds import KarpenterWorld, faults, rules, seen, worlds


@settings(max_examples=60, deadline=None)
@given(worlds, rules)
def test_classes_are_decided_as_one_by_one(world: KarpenterWorld, setup: ProvisionerSettings) -> None:
    together = solve(world.pods(), world.templates, world.nodes, setup)
    singly = solve(world.singly(), world.templates, world.nodes, setup)
    assert seen(together) == seen(singly)


@settings(max_examples=60, deadline=None)
@given(worlds, st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_does_not_matter(world: KarpenterWorld, draw: random.Random) -> None:
    pods, templates, nodes = world.pods(), list(world.templates), list(world.nodes)
    expected = solve(pods, templates, nodes)
    for each in (pods, templates, nodes):
        draw.shuffle(each)
    assert solve(pods, templates, nodes) == expected


@settings(max_examples=60, deadline=None)
@given(worlds, rules, st.booleans())
def test_every_place_is_one(world: KarpenterWorld, setup: ProvisionerSettings, respect: bool) -> None:
    outcome = solve(world.pods(), world.templates, world.nodes, replace(setup, respect_preferences=respect))
    assert faults(world, outcome) == []
