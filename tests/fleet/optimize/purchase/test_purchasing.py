"""What every purchase keeps, whatever is asked: checked by a judge that knows nothing of the search."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.optimize.purchase import (
    GREEDY,
    ExistingMachine,
    InvalidProblem,
    Limit,
    MachineKind,
    PodDemand,
    PurchaseEffort,
    PurchaseHeuristic,
    PurchaseProblem,
    solve,
)
from tests.support.purchases import CENT, RESOURCES, cheapest_usd_h, faults, problem, problems

LITTLE = PurchaseEffort(rounds=4, nodes=3, exact_rounds=1, exact_nodes=3, close_enough=0.0)
BOTH = pytest.mark.parametrize("effort", [GREEDY, LITTLE], ids=["greedy", "solver"])


@BOTH
@settings(max_examples=60)
@given(asked=problems())
def test_every_answer_is_possible_and_never_costlier_than_the_baseline(
    effort: PurchaseEffort, asked: PurchaseProblem
) -> None:
    assert faults(asked, solve(asked, effort)) == []


@settings(max_examples=40)
@given(asked=problems(domains=True))
def test_groups_stay_whole_in_one_domain(asked: PurchaseProblem) -> None:
    assert faults(asked, solve(asked, GREEDY)) == []


@BOTH
@settings(max_examples=30)
@given(asked=problems(domains=True), seed=st.integers(0, 99))
def test_the_order_of_declarations_changes_nothing(effort: PurchaseEffort, asked: PurchaseProblem, seed: int) -> None:
    draw = random.Random(seed)
    parts = (asked.classes, asked.kinds, asked.limits, asked.existing)
    classes, kinds, limits, existing = (tuple(draw.sample(part, len(part))) for part in parts)
    assert solve(PurchaseProblem(RESOURCES, classes, kinds, limits, existing), effort) == solve(asked, effort)


@BOTH
@settings(max_examples=25)
@given(asked=problems(most_pods=2))
def test_bounds_hold_and_nothing_beats_trying_everything(effort: PurchaseEffort, asked: PurchaseProblem) -> None:
    asked = replace(asked, limits=(), classes=asked.classes[:3], kinds=asked.kinds[:3])
    answer, least_usd_h = solve(asked, effort), cheapest_usd_h(asked)
    if not answer.left:
        assert answer.bound_usd_h - CENT <= least_usd_h <= answer.cost_usd_h + CENT


TABLE = {
    "nothing": (problem({}, {}), 0.0),
    "no pods": (problem({"a": (0, {"cpu": 1})}, {"k": (1.0, {"cpu": 1})}), 0.0),
    "pods that ask for nothing": (problem({"a": (7, {})}, {"k": (1.0, {"cpu": 1}), "l": (0.5, {})}), 0.5),
    "the cheapest of all that hold it": (
        problem({"a": (3, {"cpu": 2})}, {"k": (3.0, {"cpu": 8}), "l": (1.0, {"cpu": 2}), "m": (2.5, {"cpu": 6})}),
        2.5,
    ),
    "two that complement each other": (
        problem(
            {"wide": (4, {"cpu": 6, "memory": 1}), "deep": (4, {"cpu": 1, "memory": 6})},
            {"even": (1.0, {"cpu": 7, "memory": 7}), "cpu": (0.9, {"cpu": 7, "memory": 2})},
        ),
        4.0,
    ),
    "one large beats many small": (
        problem({"a": (4, {"gpu": 1})}, {"one": (1.0, {"gpu": 1}), "four": (3.5, {"gpu": 4})}),
        3.5,
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_small_cases_are_solved_to_the_optimum(name: str) -> None:
    asked, cost_usd_h = TABLE[name]
    answer = solve(asked)
    assert faults(asked, answer) == []
    assert answer.cost_usd_h == pytest.approx(cost_usd_h)
    assert not answer.left


def test_pods_that_fit_nowhere_are_left() -> None:
    asked = problem({"a": (2, {"cpu": 9}), "b": (1, {"cpu": 1})}, {"k": (1.0, {"cpu": 8})})
    answer = solve(asked)
    assert answer.left == {"a": 2}
    assert answer.cost_usd_h == 1.0


# -- what is there, and what there may be -----------------------------------------------------------------------------

ROOMY = problem({"a": (10, {"cpu": 2})}, {"k": (1.0, {"cpu": 8}), "l": (1.5, {"cpu": 16})})


def with_rooms(asked: PurchaseProblem, rooms: int, cpu: int) -> PurchaseProblem:
    names = frozenset(f"r{n}" for n in range(rooms))
    classes = tuple(replace(it, kinds=it.kinds | names) for it in asked.classes)
    return replace(
        asked, classes=classes, existing=tuple(ExistingMachine(name, {"cpu": cpu}) for name in sorted(names))
    )


@BOTH
@pytest.mark.parametrize(
    ("rooms", "cpu", "cost_usd_h"), [(0, 0, 2.5), (3, 1, 2.5), (2, 4, 1.5), (2, 7, 1.0), (5, 4, 0.0), (9, 4, 0.0)]
)
def test_free_room_is_used_first(effort: PurchaseEffort, rooms: int, cpu: int, cost_usd_h: float) -> None:
    asked = with_rooms(ROOMY, rooms, cpu)
    answer = solve(asked, effort)
    assert faults(asked, answer) == []
    assert answer.cost_usd_h == pytest.approx(cost_usd_h)


LIMITS = {
    "machines": (Limit("pool", "machines", 2, frozenset({"k", "l"})), 10, 2.5),
    "machines of one kind": (Limit("pool", "machines", 0, frozenset({"l"})), 10, 3.0),
    "one machine": (Limit("pool", "machines", 1, frozenset({"k", "l"})), 8, 1.5),
    "money": (Limit("pool", "usd_h", 2.0, frozenset({"k", "l"})), 8, 1.5),
    "a resource": (Limit("pool", "cpu", 16, frozenset({"k", "l"})), 8, 1.5),
    "nothing at all": (Limit("pool", "usd_h", 0.0, frozenset({"k", "l"})), 0, 0.0),
}


@BOTH
@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_kept(effort: PurchaseEffort, name: str) -> None:
    limit, placed, cost_usd_h = LIMITS[name]
    asked = replace(ROOMY, limits=(limit,))
    answer = solve(asked, effort)
    assert faults(asked, answer) == []
    assert 10 - sum(answer.left.values()) == placed
    assert answer.cost_usd_h == pytest.approx(cost_usd_h)


def test_a_bound_on_a_kind_sends_the_rest_to_the_next() -> None:
    kinds = (replace(ROOMY.kinds[0], most=1), replace(ROOMY.kinds[1], most=None))
    asked = replace(ROOMY, kinds=kinds, classes=(replace(ROOMY.classes[0], count=8 + 8 + 4),))
    answer = solve(asked)
    assert faults(asked, answer) == []
    assert answer.cost_usd_h == 4.0
    alone = solve(replace(asked, kinds=kinds[:1]))
    assert alone.left == {"a": 16}


# -- groups -----------------------------------------------------------------------------------------------------------


def gang(pods: int, domains: dict[str, float], group: str = "g", most: int | None = None) -> PurchaseProblem:
    """`pods` of 8 GPUs in two classes, one machine each, at a price for each domain."""
    kinds = tuple(MachineKind(f"p5-{domain}", price, {"gpu": 8}, domain, most) for domain, price in domains.items())
    names = frozenset(it.name for it in kinds)
    classes = (
        PodDemand("leader", {"gpu": 8}, names, 1, group),
        PodDemand("worker", {"gpu": 8}, names, pods - 1, group),
    )
    return PurchaseProblem(RESOURCES, classes, kinds)


@BOTH
def test_a_group_goes_to_the_cheapest_domain_that_has_enough(effort: PurchaseEffort) -> None:
    asked = gang(4, {"a": 10.0, "b": 9.0, "c": 12.0})
    assert solve(asked, effort).domains == {"g": "b"}
    scarce = replace(asked, kinds=tuple(replace(it, most=3 if it.domain == "b" else None) for it in asked.kinds))
    answer = solve(scarce, effort)
    assert answer.domains == {"g": "a"}
    assert answer.cost_usd_h == 40.0


@BOTH
def test_a_group_that_no_domain_holds_gets_nothing(effort: PurchaseEffort) -> None:
    asked = gang(4, {"a": 10.0, "b": 9.0}, most=3)
    answer = solve(asked, effort)
    assert faults(asked, answer) == []
    assert answer.left == {"leader": 1, "worker": 3}
    assert answer.cost_usd_h == 0.0


def test_of_two_groups_that_want_the_same_room_one_is_whole() -> None:
    one, two = gang(2, {"a": 10.0}, "g", most=3), gang(2, {"a": 10.0}, "h", most=3)
    others = tuple(replace(it, name=f"other-{it.name}") for it in two.classes)
    asked = replace(one, classes=one.classes + others)
    answer = solve(asked)
    assert faults(asked, answer) == []
    assert sum(answer.left.values()) == 2


def test_many_groups_find_their_domains_one_by_one() -> None:
    prices = {"a": 3.0, "b": 2.0, "c": 1.0}
    parts = [gang(2, prices, f"g{n}") for n in range(6)]
    classes = tuple(replace(it, name=f"{it.name}-{it.group}") for part in parts for it in part.classes)
    answer = solve(PurchaseProblem(RESOURCES, classes, parts[0].kinds))
    assert answer.domains == {f"g{n}": "c" for n in range(6)}


# -- the rest ---------------------------------------------------------------------------------------------------------

WRONG = {
    "two of the same name": lambda: PurchaseProblem(("cpu", "cpu"), (), ()),
    "no resource": lambda: PurchaseProblem((), (), ()),
    "none of the resources": lambda: problem({"a": (1, {"bananas": 1})}, {}),
    "is negative": lambda: problem({"a": (-1, {"cpu": 1})}, {}),
    "is not between": lambda: problem({"a": (1, {"cpu": 2**51})}, {}),
    "price": lambda: problem({}, {"k": (float("nan"), {})}),
    "makes no sense": lambda: replace(ROOMY, limits=(Limit("l", "bananas", 1, frozenset()),)),
}


@pytest.mark.parametrize("words", WRONG)
def test_a_problem_that_contradicts_itself_is_refused(words: str) -> None:
    with pytest.raises(InvalidProblem, match=words):
        WRONG[words]()


def test_equal_classes_are_counted_as_one_and_dealt_out_by_name() -> None:
    asked = problem({f"c{n:02}": (3, {"cpu": 2}) for n in range(20)}, {"k": (1.0, {"cpu": 14})})
    answer = solve(asked)
    assert faults(asked, answer) == []
    assert answer.cost_usd_h == 9.0
    assert answer.heuristics == (PurchaseHeuristic.BASELINE,)


def test_what_a_pod_is_worth_proves_the_bound() -> None:
    asked = problem({"a": (40, {"cpu": 3}), "b": (30, {"cpu": 5})}, {"k": (1.0, {"cpu": 8}), "l": (1.9, {"cpu": 16})})
    answer = solve(asked)
    assert sum(answer.worth_usd_h[it.name] * it.count for it in asked.classes) == pytest.approx(
        answer.bound_usd_h, abs=1e-3
    )
