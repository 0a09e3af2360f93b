"""Buying by cheapest insertion, where machines hold few pods whatever their size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.optimize.purchase import MachineKind, PodDemand, PurchaseEffort, PurchaseHeuristic, PurchaseProblem, solve
from fleet.optimize.purchase.insertion import by_insertion
from fleet.optimize.purchase.purchasing import packing_instances

ZONES = ("a", "b")
CAPS = ("cap-0", "cap-1", "cap-2")
RESOURCES = ("cpu", "memory", *CAPS)
SIZES = range(1, 13)
OFFERED = {size: {"cpu": 10 * size - 1, "memory": 20 * size, **dict.fromkeys(CAPS, 1)} for size in SIZES}
KINDS = tuple(MachineKind(f"{zone}-{size:02}", size + 0.02, OFFERED[size]) for zone in ZONES for size in SIZES)
IN = {zone: frozenset(it.name for it in KINDS if it.name.startswith(zone)) for zone in ZONES} | {
    "": frozenset(it.name for it in KINDS)
}


@st.composite
def problems(draw: st.DrawFn) -> PurchaseProblem:
    """Pods that take one cap, or two, or none; of a zone or of any."""
    classes = []
    for number in range(draw(st.integers(1, 12))):
        caps = draw(st.sets(st.sampled_from(CAPS), min_size=0 if number % 4 == 3 else 1, max_size=2))
        requests = {"cpu": draw(st.integers(1, 15)), "memory": draw(st.integers(1, 40)), **dict.fromkeys(caps, 1)}
        kinds = IN[draw(st.sampled_from(["", *ZONES]))]
        classes.append(PodDemand(f"c{number:02}", requests, kinds, draw(st.integers(1, 6))))
    return PurchaseProblem(RESOURCES, tuple(classes), KINDS)


@settings(max_examples=60)
@given(problems())
def test_every_pod_has_one_place_and_machines_hold_what_is_on_them(problem: PurchaseProblem) -> None:
    for part in packing_instances(problem, {})[0]:
        mix = by_insertion(part)
        assert (mix.placed == part.demand).all()
        assert (mix.pods @ part.requests <= part.capacity[mix.kinds]).all()
        assert (part.fits.T[mix.kinds] | (mix.pods == 0)).all()
        assert mix.pods.any(axis=1).all(), "none idle"


@settings(max_examples=40)
@given(problems())
def test_never_above_karpenters_order_nor_below_the_bound(problem: PurchaseProblem) -> None:
    found = solve(problem, PurchaseEffort(value_classes=0))
    assert not found.left
    assert found.bound_usd_h - 1e-6 <= found.cost_usd_h <= found.baseline_usd_h + 1e-6


def of(*classes: tuple[int, int, str, str, int]) -> PurchaseProblem:
    return PurchaseProblem(
        RESOURCES,
        tuple(
            PodDemand(f"c{n:02}", {"cpu": cpu, "memory": memory, **({cap: 1} if cap else {})}, IN[zone], count)
            for n, (cpu, memory, cap, zone, count) in enumerate(classes)
        ),
        KINDS,
    )


@pytest.mark.parametrize(
    ("problem", "machines", "usd_h"),
    [
        pytest.param(of((5, 5, CAPS[0], "", 4), (4, 15, CAPS[1], "", 4)), 4, 4.08, id="each beside one kept apart"),
        pytest.param(of((9, 1, CAPS[0], "", 3), (9, 1, CAPS[1], "a", 1)), 3, 4.06, id="one larger is cheaper"),
        pytest.param(
            of((5, 5, CAPS[0], "", 4), (4, 5, CAPS[1], "a", 3), (4, 5, CAPS[1], "b", 1)), 4, 4.08, id="one is left to b"
        ),
        pytest.param(of((8, 1, CAPS[0], "", 1), (5, 1, CAPS[1], "", 1), (4, 1, "", "", 1)), 1, 2.02, id="all on one"),
    ],
)  # fmt: skip
def test_pods_go_where_they_make_the_purchase_dearer_by_least(
    problem: PurchaseProblem, machines: int, usd_h: float
) -> None:
    (part,), _ = packing_instances(problem, {})
    mix = by_insertion(part)
    assert (int(mix.machines.sum()), mix.cost_usd_h(part)) == (machines, pytest.approx(usd_h))


def test_pods_change_places_where_that_costs_less() -> None:
    """By size alone 6 and 5 cpu meet 4 and 3; exchanged, both machines are of the smallest kind."""
    problem = of((7, 1, CAPS[0], "", 1), (4, 12, CAPS[0], "", 1), (5, 7, CAPS[1], "", 1), (2, 18, CAPS[1], "", 1))
    (part,), _ = packing_instances(problem, {})
    mix = by_insertion(part)
    assert mix.cost_usd_h(part) == pytest.approx(2.04)
    assert len(np.unique(mix.kinds)) == 1


def test_many_classes_that_keep_apart_are_bought_for_by_insertion() -> None:
    problem = of(*((1 + n % 9, 1 + n % 17, CAPS[n % 3], "", 1 + n % 3) for n in range(70)))
    found = solve(problem)
    assert set(found.heuristics) == {PurchaseHeuristic.INSERTION}
