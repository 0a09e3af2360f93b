"""What belongs together is searched together, and nothing else."""

from dataclasses import replace

import pytest

from fleet.optimize.consolidate import (
    ConsolidationProblem,
    ConsolidationRules,
    Limit,
    PodBlock,
    PodClass,
    ReplacementKind,
    StandingMachine,
)
from fleet.optimize.consolidate.instance import consolidation_instances

CPU = PodClass("cpu", {"cpu": 1}, frozenset({"c", "c-large", "c-dear"}))
GPU = PodClass("gpu", {"gpu": 1}, frozenset({"g"}))
KINDS = (
    ReplacementKind("c", 1.0, {"cpu": 4}),
    ReplacementKind("c-large", 2.0, {"cpu": 9}),
    ReplacementKind("c-dear", 2.0, {"cpu": 3}),
    ReplacementKind("g", 5.0, {"gpu": 4}),
)
APART = ConsolidationProblem(
    ("cpu", "gpu"),
    (CPU, GPU),
    (StandingMachine("c0", "c", 1.0, {"cpu": 2}, "a"), StandingMachine("g0", "g", 5.0, {"gpu": 2}, "a")),
    (PodBlock("b0", {"c0": {"cpu": 2}}, whole=False), PodBlock("b1", {"g0": {"gpu": 2}}, whole=False)),
    KINDS,
)
PARTS = {
    "nothing in common": (APART, 2),
    "a machine for both": (
        replace(APART, standing=(*APART.standing, StandingMachine("x", "c", 1.0, {"cpu": 4})), classes=(
            CPU, replace(GPU, requests={"cpu": 1, "gpu": 0}, kinds=frozenset({"g", "c"})))), 1,
    ),
    "a gang of both": (replace(APART, blocks=(PodBlock("b", {"c0": {"cpu": 2}, "g0": {"gpu": 2}}),)), 1),
    "a budget that binds": (replace(APART, budgets={"a": 1}), 1),
    "a budget for all": (replace(APART, budgets={"a": 2}), 2),
    "a limit": (replace(APART, limits=(Limit("l", "machines", 3.0, frozenset({"c", "g"})),)), 1),
    "a bound on all": (replace(APART, rules=ConsolidationRules(most_bought=3)), 1),
    "a machine for nobody": (replace(APART, standing=(*APART.standing, StandingMachine("x", "x", 1.0, {}))), 3),
    "nothing": (replace(APART, standing=(), blocks=()), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_parts(name: str) -> None:
    problem, count = PARTS[name]
    grounds = consolidation_instances(problem)
    assert len(grounds) == count
    assert sorted(number for it in grounds for number in it.machines.tolist()) == list(range(len(problem.standing)))


def test_kinds_that_another_one_beats_are_gone_and_equal_classes_are_one() -> None:
    twin = replace(CPU, name="twin")
    blocks = (PodBlock("b", {"c0": {"cpu": 1, "twin": 1}}, whole=False),)
    (ground, _) = consolidation_instances(replace(APART, classes=(CPU, twin, GPU), blocks=(*blocks, APART.blocks[1])))
    assert ground.classes == ((0, 1),)
    assert ground.independent.tolist() == [[2]]
    assert [names[0] for names in ground.kinds.names] == ["c"]  # two pods make no use of more


def test_a_block_of_one_domain_has_a_row_and_a_way_for_each() -> None:
    domains = tuple(
        replace(kind, name=f"{kind.name}-{domain}", domain=domain) for kind in KINDS[:1] for domain in "abc"
    )
    cpu = replace(CPU, kinds=frozenset({"c", *(it.name for it in domains)}))
    standing = (replace(APART.standing[0], domain="a"),)
    gang = PodBlock("b", {"c0": {"cpu": 2}}, one_domain=True)
    (ground,) = consolidation_instances(ConsolidationProblem(("cpu",), (cpu,), standing, (gang,), domains))
    assert [option.sum(axis=0).tolist() for option in ground.gangs[0].options] == [
        [0, 2, 0, 0],
        [0, 0, 2, 0],
        [0, 0, 0, 2],
    ]
    assert ground.fits[:, 0].tolist() == [True, True, False, False]
