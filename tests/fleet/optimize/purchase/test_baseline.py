"""Whole classes at a time lead to the machines that Karpenter's order leads to pod by pod."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings

from fleet.optimize.purchase import GREEDY, Problem, solve
from fleet.optimize.purchase.baseline import karpenter_order
from fleet.optimize.purchase.cut import parts_of
from fleet.optimize.purchase.named import batches
from tests.support.purchases import pod_by_pod, problem, problems

Machines = Counter[tuple[str, tuple[tuple[str, int], ...]]]


def machines(asked: Problem) -> Machines:
    found: Machines = Counter()
    for part in parts_of(asked, {})[0]:
        for it in batches(part, karpenter_order(part)):
            found[it.kind, tuple(sorted(it.pods.items()))] += it.machines
    return found


def sizes(found: Machines) -> Counter[tuple[str, int]]:
    """Equal classes are dealt out as they come: only how many pods stand where can be compared."""
    counted: Counter[tuple[str, int]] = Counter()
    for (kind, pods), count in found.items():
        counted[kind, sum(n for _, n in pods)] += count
    return counted


@settings(max_examples=60)
@given(problems(most_pods=12, limited=False))
def test_a_class_at_a_time_is_pod_by_pod(asked: Problem) -> None:
    assert sizes(machines(asked)) == sizes(pod_by_pod(asked))


@pytest.mark.parametrize("seed", range(3))
def test_many_classes_are_pod_by_pod_too(seed: int) -> None:
    """More groups of claims than there is room for at first, of which some are torn apart."""
    draw = random.Random(seed)
    classes = {
        f"c{n:03}": (draw.randint(1, 4), {"cpu": 900 - 4 * n, "memory": draw.randint(1, 999), "gpu": 0})
        for n in range(150)
    }
    kinds = {"wide": (2.0, {"cpu": 2600, "memory": 1200}), "deep": (2.5, {"cpu": 1300, "memory": 3000})}
    asked = problem(classes, kinds)
    assert machines(asked) == pod_by_pod(asked)


def test_a_claim_grows_while_any_kind_holds_it() -> None:
    """The reason why that order is dear: eight small machines would cost half."""
    asked = problem(
        {"gpu": (8, {"cpu": 4, "gpu": 1})},
        {"small": (0.8, {"cpu": 8, "gpu": 1}), "large": (13.35, {"cpu": 64, "gpu": 8})},
    )
    assert machines(asked) == {("large", (("gpu", 8),)): 1}
    answer = solve(asked, GREEDY)
    assert answer.baseline_usd_h == 13.35
    assert answer.cost_usd_h == pytest.approx(6.4)


def test_claims_are_filled_level() -> None:
    """Two claims with one large pod each share the small ones evenly, the first gets the odd one."""
    asked = problem({"big": (2, {"cpu": 9}), "small": (3, {"cpu": 1})}, {"k": (1.0, {"cpu": 16})})
    assert machines(asked) == {("k", (("big", 1), ("small", 2))): 1, ("k", (("big", 1), ("small", 1))): 1}
