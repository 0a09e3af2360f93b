"""The engine against the same order said plainly."""

from collections import Counter

from hypothesis import given, settings

from bench.reference.karpenter.buy import solve
from tests.bench.reference.karpenter.buy.naive import Naive, NaiveVerdict, without_reservations
from tests.bench.reference.karpenter.buy.worlds import KarpenterWorld, kind, worlds


@settings(max_examples=60, deadline=None)
@given(worlds)
def test_the_engine_decides_what_the_plain_order_says(world: KarpenterWorld) -> None:
    templates = without_reservations(world.templates)
    outcome = solve(world.pods(), templates, world.nodes)
    got = NaiveVerdict(
        [
            (claim.template, frozenset(option.machine for option in claim.options), Counter(map(kind, claim.pods)))
            for claim in outcome.claims
        ],
        {node: Counter(map(kind, names)) for node, names in outcome.seats.items()},
        Counter(kind(name) for each in outcome.unplaced for name in each.pods),
    )
    assert got == Naive(templates, world.nodes).solve(world.pods())
