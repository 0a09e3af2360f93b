"""What is given back, case by case: machines, what is on them, and the steps that are expected."""

from dataclasses import dataclass, field, replace

import pytest

from fleet.optimize import solver
from fleet.optimize.consolidate import (
    GREEDY,
    ConsolidationHeuristic,
    ConsolidationProblem,
    ConsolidationRules,
    ConsolidationSolution,
    InvalidProblem,
    Limit,
    PodBlock,
    PodClass,
    ReplacementKind,
    StandingMachine,
    applied,
    solve,
)
from tests.support.repack import broken

LARGE, SMALL, SPOT = "large", "small", "spot"
GPU = PodClass("gpu", {"gpu": 1}, frozenset({LARGE, SMALL, SPOT}))
BIG = PodClass("big", {"gpu": 4}, frozenset({LARGE}))
KINDS = (ReplacementKind(LARGE, 10.0, {"gpu": 8}), ReplacementKind(SMALL, 2.0, {"gpu": 1}))
FREELY = ConsolidationRules(per_pod_usd_h=0.01)


def large(number: int, used: int, **more: object) -> StandingMachine:
    return replace(StandingMachine(f"m{number}", LARGE, 10.0, {"gpu": 8 - used}), **more)


def pods(machine: str, count: int, **more: object) -> PodBlock:
    return replace(PodBlock(f"on-{machine}", {machine: {"gpu": count}}, whole=False), **more)


def problem(
    standing: list[StandingMachine], blocks: list[PodBlock], rules: ConsolidationRules = FREELY, **more: object
) -> ConsolidationProblem:
    found = ConsolidationProblem(("gpu",), (GPU, BIG), tuple(standing), tuple(blocks), KINDS, rules=rules)
    return replace(found, **more)


@dataclass(frozen=True)
class Case:
    asked: ConsolidationProblem
    removed: list[str] = field(default_factory=list)
    bought: list[str] = field(default_factory=list)
    greedy: list[str] | None = None
    """What the greedy search removes, where that is something else."""


HALF = [large(0, 4), large(1, 4)]
HALF_PODS = [pods("m0", 4), pods("m1", 4)]
SPANNING = PodBlock("gang", {"m0": {"gpu": 2}, "m1": {"gpu": 2}}, 0.0)
CASES = {
    "nothing stands": Case(problem([], [])),
    "an empty machine goes": Case(problem([large(0, 0)], []), ["m0"]),
    "not where it must not": Case(problem([large(0, 0, may_go=False)], [])),
    "nor beyond the budget": Case(problem([large(n, 0, pool="a") for n in range(3)], [], budgets={"a": 1}), ["m0"]),
    "two halves are one": Case(problem(HALF, HALF_PODS), ["m0"]),
    "a full machine stays": Case(problem([large(0, 8)], [pods("m0", 8)])),
    "a few pods fit on small ones": Case(problem([large(0, 3)], [pods("m0", 3)]), ["m0"], [SMALL] * 3, greedy=[]),
    "unless moving counts for more": Case(
        problem([large(0, 3)], [pods("m0", 3)], ConsolidationRules(per_pod_usd_h=1.5))
    ),
    "lost work is weighed against four hours": Case(problem([large(0, 3)], [pods("m0", 3, moving_usd=16.1)])),
    "and may be worth it": Case(
        problem([large(0, 3)], [pods("m0", 3, moving_usd=15.9)]), ["m0"], [SMALL] * 3, greedy=[]
    ),
    "no more are bought than allowed": Case(
        problem([large(0, 3)], [pods("m0", 3)], ConsolidationRules(0.01, most_bought=2))
    ),
    "nor than a limit allows": Case(
        problem([large(0, 3)], [pods("m0", 3)], limits=(Limit("few", "usd_h", 5.0, frozenset({SMALL})),))
    ),
    "nor than there are": Case(problem([large(0, 3)], [pods("m0", 3)], kinds=(KINDS[0], replace(KINDS[1], most=2)))),
    "nothing that costs more at worst": Case(
        problem([large(0, 3)], [pods("m0", 3)], kinds=(KINDS[0], replace(KINDS[1], worst_usd_h=3.5)))
    ),
    "but another kind that does not": Case(
        problem(
            [large(0, 1)],
            [pods("m0", 1)],
            kinds=(replace(KINDS[1], worst_usd_h=12.0), ReplacementKind(SPOT, 3.0, {"gpu": 1})),
        ),
        ["m0"],
        [SPOT],
    ),
    "pods stay where they may stand": Case(
        problem([large(0, 4), large(1, 0, kind="other")], [PodBlock("b", {"m0": {"big": 1}})]), ["m1"]
    ),
    "a gang keeps all its places": Case(
        problem([large(0, 2), large(1, 8)], [SPANNING, pods("m1", 6)], kinds=())  # room on m0 alone is no room for all
    ),
    "or leaves them all": Case(
        problem([large(0, 2), large(1, 8), large(2, 4)], [SPANNING, pods("m1", 6), pods("m2", 4)], kinds=()),
        ["m0"],
    ),
    "unless it can move in parts": Case(
        problem([large(0, 2), large(1, 2)], [replace(SPANNING, whole=False)]), ["m0", "m1"], [SMALL] * 4, greedy=["m0"]
    ),
}


def names(answer: ConsolidationSolution) -> tuple[list[str], list[str]]:
    return list(answer.removed), sorted(it.kind for it in answer.bought)


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    case = CASES[name]
    answer = solve(case.asked)
    assert broken(case.asked, answer) == []
    if answer.failure:
        pytest.skip(answer.failure)
    assert names(answer) == (case.removed, case.bought)
    assert answer.bound_usd_h >= answer.objective_usd_h - 1e-6


@pytest.mark.parametrize("name", CASES)
def test_the_greedy_search(name: str) -> None:
    case = CASES[name]
    answer = solve(case.asked, GREEDY)
    assert broken(case.asked, answer) == []
    assert list(answer.removed) == (case.removed if case.greedy is None else case.greedy)
    assert len(answer.bought) <= len(answer.removed)


# -- steps ------------------------------------------------------------------------------------------------------------


def test_what_needs_nothing_of_each_other_is_apart() -> None:
    """An empty machine, and two that share the one that is bought in their place."""
    medium = ReplacementKind("medium", 6.0, {"gpu": 4})
    gpu = replace(GPU, kinds=GPU.kinds | {"medium"})
    asked = problem([large(0, 0), large(1, 2), large(2, 2)], [pods("m1", 2), pods("m2", 2)])
    asked = replace(asked, classes=(gpu,), kinds=(KINDS[0], medium), standing=(*asked.standing[1:], asked.standing[0]))
    asked = replace(asked, standing=tuple(replace(it, free={"gpu": min(it.free["gpu"], 1)}) for it in asked.standing))
    steps = solve(asked).steps
    assert [(step.removed, len(step.bought), step.moved) for step in steps] == [(("m1", "m2"), 1, 4), (("m0",), 0, 0)]
    assert [step.saving_usd_h for step in steps] == [14.0, 10.0]
    assert steps[0].disruption_usd_h == pytest.approx(0.04)


def test_what_takes_the_room_a_gang_leaves_waits_for_it() -> None:
    """What is on `m3` fits on `m1` alone, and only once the gang has left it: one step, though nothing is bought."""
    gang = PodBlock("gang", {"m0": {"gpu": 1}, "m1": {"gpu": 7}}, 0.0)
    standing = [large(0, 1), large(1, 8, may_go=False), large(2, 0, kind=SPOT, may_go=False), large(3, 8)]
    asked = problem(standing, [gang, PodBlock("big", {"m3": {"big": 1}})], kinds=())
    answer = solve(asked)
    assert broken(asked, answer) == []
    if answer.failure:
        pytest.skip(answer.failure)
    assert [step.removed for step in answer.steps] == [("m0", "m3")]


def test_a_plan_is_carried_out_by_applying_its_steps() -> None:
    asked = problem(
        [large(0, 3, pool="a")],
        [pods("m0", 3)],
        ConsolidationRules(0.01, most_bought=4),
        kinds=(KINDS[0], replace(KINDS[1], most=5)),
        budgets={"a": 2},
        limits=(Limit("few", "machines", 9.0, frozenset({SMALL})),),
    )
    answer = solve(asked)
    if answer.failure:
        pytest.skip(answer.failure)
    left = applied(asked, answer.steps)
    assert [(it.name, it.kind, it.free) for it in left.standing] == [(f"new-{n}", SMALL, {"gpu": 0}) for n in range(3)]
    assert left.blocks[0].places == {f"new-{n}": {"gpu": 1} for n in range(3)}
    assert (left.budgets, left.limits[0].most, left.kinds[1].most, left.rules.most_bought) == ({"a": 1}, 6.0, 2, 1)


# -- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("types", "rule", "swapped"), [(15, 15, True), (14, 15, False), (3, 3, True)])
def test_one_spot_machine_for_one_needs_types_to_come_as(types: int, rule: int, swapped: bool) -> None:
    kinds = tuple(ReplacementKind(f"spot-{n:02}", 2.0 + n / 100, {"gpu": 1}, spot=True) for n in range(types))
    gpu = PodClass("gpu", {"gpu": 1}, frozenset({LARGE, *(it.name for it in kinds)}))
    asked = problem([large(0, 1, spot=True)], [pods("m0", 1)], ConsolidationRules(0.01, spot_types=rule))
    answer = solve(replace(asked, classes=(gpu,), kinds=kinds))
    assert list(answer.removed) == (["m0"] if swapped else [])
    assert [it.instead for it in answer.bought] == ([tuple(it.name for it in kinds)] if swapped else [])


def test_layouts_and_zones_are_no_types() -> None:
    kinds = tuple(ReplacementKind(f"spot-{n:02}", 2.0, {"gpu": 1}, spot=True, type="same") for n in range(15))
    gpu = PodClass("gpu", {"gpu": 1}, frozenset(it.name for it in kinds) | {LARGE})
    asked = problem([large(0, 1, spot=True)], [pods("m0", 1)])
    assert solve(replace(asked, classes=(gpu,), kinds=kinds)).steps == ()


@pytest.mark.parametrize(("one_domain", "moved"), [(False, True), (True, False)])
def test_a_gang_of_one_domain_is_not_torn_apart(*, one_domain: bool, moved: bool) -> None:
    """Domain `a` and domain `b` have room for two pods each; the gang has four."""
    standing = [large(0, 4, domain="a"), large(1, 6, domain="a"), large(2, 6, domain="b")]
    standing = [replace(it, may_go=it.name == "m0") for it in standing]
    gang = PodBlock("gang", {"m0": {"gpu": 4}}, 0.0, one_domain=one_domain)
    answer = solve(problem(standing, [gang], kinds=()))
    assert bool(answer.steps) is moved


# -- what else --------------------------------------------------------------------------------------------------------


def test_without_a_solver_the_greedy_plan_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> object:
        raise solver.SolverFailed("no solver")

    monkeypatch.setattr(solver, "_highspy", absent)
    answer = solve(problem(HALF, HALF_PODS))
    assert (answer.removed, answer.heuristic, answer.failure) == (("m0",), ConsolidationHeuristic.GREEDY, "no solver")


def test_what_one_optimisation_finds_and_the_greedy_search_does_not() -> None:
    """One large machine becomes three small ones."""
    answer = solve(CASES["a few pods fit on small ones"].asked)
    if answer.failure:
        pytest.skip(answer.failure)
    assert (answer.heuristic, answer.greedy_usd_h, answer.rounds) == (ConsolidationHeuristic.WHOLE, 0.0, 2)
    assert answer.saving_usd_h == pytest.approx(4.0)
    assert answer.objective_usd_h == pytest.approx(3.97)
    assert 0.0 <= answer.gap_usd_h < 2.0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"standing": (large(0, 0), large(0, 0))}, "two of the same name: machine m0"),
        ({"blocks": (pods("m9", 1),)}, "block on-m9 has pods on m9, which is no machine"),
        ({"blocks": (PodBlock("b", {"m0": {"tpu": 1}}),)}, "block b has pods of tpu, which is no class"),
        ({"blocks": (pods("m0", 1, moving_usd=-1.0),)}, "block on-m0: a price of -1.0 USD makes no sense"),
        ({"classes": (PodClass("gpu", {"tpu": 1}, frozenset()),)}, "class gpu asks for tpu"),
        ({"standing": (large(0, 9),)}, "machine m0: -1 of gpu is not between 0"),
        ({"kinds": (ReplacementKind(SMALL, float("nan"), {}),)}, "kind small: a price of nan USD makes no sense"),
        ({"rules": ConsolidationRules(-1.0)}, "rules: a price of -1.0 USD makes no sense"),
        ({"rules": ConsolidationRules(payback_h=0.0)}, "rules: a payback of 0.0 hours makes no sense"),
    ],
)
def test_problems_that_contradict_themselves(change: dict[str, object], complaint: str) -> None:
    asked = problem([large(0, 0)], [])
    with pytest.raises(InvalidProblem, match=complaint):
        replace(asked, **change)
