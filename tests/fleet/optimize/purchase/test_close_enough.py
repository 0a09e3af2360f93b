import pytest

from fleet.optimize.purchase import (
    GREEDY,
    MachineKind,
    PodDemand,
    PurchaseEffort,
    PurchaseProblem,
    close_enough,
    in_karpenters_order,
    solve,
    split,
)

KINDS = tuple(MachineKind(f"k{size:02}", 1.1 * size**0.95, {"cpu": 1_000 * size}) for size in range(1, 5))
EVERY = frozenset(kind.name for kind in KINDS)


def of(classes: int) -> PurchaseProblem:
    """As many classes of one pod, no two alike, that fit on every kind."""
    return PurchaseProblem(
        ("cpu",), tuple(PodDemand(f"c{n:04}", {"cpu": n + 1}, EVERY, 1) for n in range(classes)), KINDS
    )


@pytest.mark.parametrize(
    ("classes", "above", "effort", "said"),
    [
        (900, 0.0, PurchaseEffort(exact_pairs=500), True),
        (900, 0.0002, PurchaseEffort(exact_pairs=500), True),
        (900, 0.0002, PurchaseEffort(exact_pairs=500, search_pairs=10_000), False),
        (900, 0.02, PurchaseEffort(exact_pairs=500, search_pairs=0.001), False),  # 0.3 % at most
        (900, 0.0, GREEDY, False),
        (5, 0.0, PurchaseEffort(), False),  # small ones are always searched
    ],
)
def test_little_is_what_a_search_of_that_size_has_to_save(
    classes: int, above: float, effort: PurchaseEffort, *, said: bool
) -> None:
    problem = of(classes)
    bound_usd_h = in_karpenters_order(problem, PurchaseEffort()).bound_usd_h
    assert close_enough(split(problem), bound_usd_h * (1 + above), effort) is said


def test_what_has_no_place_is_searched_for() -> None:
    problem = of(1_100)
    beyond = PurchaseProblem(("cpu",), (*problem.classes, PodDemand("large", {"cpu": 9_000}, EVERY, 1)), KINDS)
    assert not close_enough(split(beyond), 0.0, PurchaseEffort())


def test_a_large_part_is_not_searched_for_what_counts_as_little() -> None:
    """Machines by the prices of the bound alone, and within that of the bound; a search finds no more there."""
    problem = of(900)
    effort = PurchaseEffort(exact_pairs=500, eager_pairs=500, search_pairs=1)
    quick = solve(problem, effort)
    searched = solve(problem, PurchaseEffort(exact_pairs=500, eager_pairs=5_000))
    assert quick.steps.patterns == 0
    assert quick.cost_usd_h <= quick.bound_usd_h * (1 + effort.little(3_600))
    assert quick.cost_usd_h <= searched.cost_usd_h * 1.003
