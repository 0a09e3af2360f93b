"""What a plan says is what happens, for pairs of made-up fleets. More of them: `make fuzz FUZZERS=plan`."""

from collections import Counter
from random import Random

import pytest

from tests.agent.scenes import doc
from tests.fuzz.field_values import DRAWN, UNDRAWN, VALUES, FieldPath, all_fields, undrawn
from tests.fuzz.fleet_pairs import base_fleet, loaded, mutated, put, text_of
from tests.fuzz.plan import EXCUSES, PairTally, pairs

SEEDS = range(20)
PAIRS = 25
"""Of each seed: 500 in all."""
MOST_EXCUSED = 2
"""Of the pairs of one seed; 3 % of all."""


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_planned_for_made_up_fleets_is_what_happens(seed: int) -> None:
    tally = PairTally()
    assert [str(error) for error in pairs(seed, PAIRS, tally, first=seed * PAIRS)] == []
    assert tally.pairs == PAIRS
    assert set(tally.excused) <= set(EXCUSES)
    assert tally.excused.total() <= MOST_EXCUSED, tally.excused
    assert tally.moved >= PAIRS // 8, "pairs that move nothing say nothing"


def test_every_field_is_drawn_or_said_to_move_nothing() -> None:
    fields = all_fields()
    known = {(field.owner, field.path[-1]) for field in fields} | {(field.owner, "*") for field in fields}
    assert [str(field) for field in fields if not undrawn(field) and (field.owner, field.path[-1]) not in VALUES] == []
    assert (VALUES.keys() | UNDRAWN.keys()) - known == set(), "a field that is no more"


@pytest.mark.parametrize("field", DRAWN, ids=str)
def test_every_field_is_reached(field: FieldPath) -> None:
    """Some fleet changes in it and loads: values that never load would leave the field untried."""
    reached: Counter[bool] = Counter()
    for number in range(24):
        rng = Random(f"reach:{number}")
        docs = base_fleet(rng)
        put(docs, doc("Topology", "named", levels=["topology.kubernetes.io/zone"]))  # few made-up fleets have any
        _, words, _ = mutated(rng, docs, field)
        reached[".".join(field.path) in words[0]] += 1
        if reached[True]:
            return
    assert reached[True], field


def test_the_same_seed_is_the_same_pair() -> None:
    one, other = (mutated(rng := Random("x"), base_fleet(rng)) for _ in range(2))
    assert one == other
    assert loaded(one[0]) is not None
    assert text_of(one[0]) == text_of(other[0])
