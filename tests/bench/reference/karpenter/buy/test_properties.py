"""What holds of every decision, whatever the world."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reference.karpenter.buy import solve
from tests.bench.reference.karpenter.buy.worlds import KarpenterWorld, faults, seen, worlds


@settings(max_examples=60, deadline=None)
@given(worlds)
def test_classes_are_decided_as_one_by_one(world: KarpenterWorld) -> None:
    together = solve(world.pods(), world.templates, world.nodes)
    singly = solve(world.singly(), world.templates, world.nodes)
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
@given(worlds)
def test_every_place_is_one(world: KarpenterWorld) -> None:
    outcome = solve(world.pods(), world.templates, world.nodes)
    assert faults(world, outcome) == []
