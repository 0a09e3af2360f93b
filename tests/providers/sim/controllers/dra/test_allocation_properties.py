"""The search finds the first solution in the order of the list, as trying all of them in small cases does."""

from collections import Counter
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.providers.sim.controllers.dra.test_allocation import DRIVER, Devices, any_of, device, of
from tests.providers.sim.controllers.world import Obj

SELECTORS = {"any": (), "small": (of("size == 1"),), "large": (of("size == 2"),)}
MEMORY = 6

parts = st.tuples(st.sampled_from("pq"), st.integers(1, 2), st.integers(0, 3))
wishes = st.tuples(st.sampled_from(sorted(SELECTORS)), st.integers(1, 2))
shared = st.tuples(st.sampled_from(["parent", "size"]), st.booleans(), st.frozensets(st.integers(0, 2)))


def slices(given: list[tuple[str, int, int]]) -> Devices:
    made = []
    for n, (parent, size, memory) in enumerate(given):
        one = device(f"d{n}", parent=parent, size=size)
        counters = {"memory": {"value": str(memory)}}
        made.append({**one, "consumesCounters": [{"counterSet": "set", "counters": counters}]} if memory else one)
    return Devices(*made, counters=[{"name": "set", "counters": {"memory": {"value": str(MEMORY)}}}])


def first_solution(
    given: list[tuple[str, int, int]], asked: list[tuple[str, int]], rules: list[tuple[str, bool, frozenset[int]]]
) -> list[str] | None:
    """Every way to fill the places in order, the first that holds."""
    places = [(request, kind) for request, (kind, count) in enumerate(asked) for _ in range(count)]
    for chosen in product(range(len(given)), repeat=len(places)):
        if _holds([(place, given[n]) for place, n in zip(places, chosen, strict=True)], list(chosen), rules):
            return [f"d{n}" for n in chosen]
    return None


def _holds(
    filled: list[tuple[tuple[int, str], tuple[str, int, int]]],
    chosen: list[int],
    rules: list[tuple[str, bool, frozenset[int]]],
) -> bool:
    if max(Counter(chosen).values(), default=0) > 1 or sum(part[2] for _, part in filled) > MEMORY:
        return False
    if any(kind != "any" and part[1] != {"small": 1, "large": 2}[kind] for (_, kind), part in filled):
        return False
    for attribute, distinct, requests in rules:
        values = [part[attribute == "size"] for (request, _), part in filled if not requests or request in requests]
        if len(set(values)) != (len(values) if distinct else min(1, len(values))):
            return False
    return True


@settings(max_examples=150)
@given(st.lists(parts, min_size=1, max_size=5), st.lists(wishes, min_size=1, max_size=3), st.lists(shared, max_size=2))
def test_the_first_solution(
    given: list[tuple[str, int, int]], asked: list[tuple[str, int]], rules: list[tuple[str, bool, frozenset[int]]]
) -> None:
    requests = [any_of(f"r{n}", *SELECTORS[kind], count=count) for n, (kind, count) in enumerate(asked)]
    rules = [(name, distinct, frozenset(it for it in of_them if it < len(asked))) for name, distinct, of_them in rules]
    constraints: list[Obj] = []
    for name, distinct, of_them in rules:
        named: dict[str, Any] = {"requests": [f"r{n}" for n in sorted(of_them)]} if of_them else {}
        constraints.append({**named, "distinctAttribute" if distinct else "matchAttribute": f"{DRIVER}/{name}"})
    found = slices(given).ask(*requests, constraints=constraints)
    assert found == first_solution(given, asked, rules)
