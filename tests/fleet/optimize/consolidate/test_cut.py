"""What belongs together is searched together, and nothing else."""

from dataclasses import replace

import pytest

from fleet.optimize.consolidate import Block, Buyable, Limit, PodClass, Problem, Rules, Standing
from fleet.optimize.consolidate.cut import grounds_of

CPU = PodClass("cpu", {"cpu": 1}, frozenset({"c", "c-large", "c-dear"}))
GPU = PodClass("gpu", {"gpu": 1}, frozenset({"g"}))
KINDS = (
    Buyable("c", 1.0, {"cpu": 4}),
    Buyable("c-large", 2.0, {"cpu": 9}),
    Buyable("c-dear", 2.0, {"cpu": 3}),
    Buyable("g", 5.0, {"gpu": 4}),
)
APART = Problem(
    ("cpu", "gpu"),
    (CPU, GPU),
    (Standing("c0", "c", 1.0, {"cpu": 2}, "a"), Standing("g0", "g", 5.0, {"gpu": 2}, "a")),
    (Block("b0", {"c0": {"cpu": 2}}, whole=False), Block("b1", {"g0": {"gpu": 2}}, whole=False)),
    KINDS,
)
PARTS = {
    "nothing in common": (APART, 2),
    "a machine for both": (
        replace(APART, standing=(*APART.standing, Standing("x", "c", 1.0, {"cpu": 4})), classes=(
            CPU, replace(GPU, requests={"cpu": 1, "gpu": 0}, kinds=frozenset({"g", "c"})))), 1,
    ),
    "a gang of both": (replace(APART, blocks=(Block("b", {"c0": {"cpu": 2}, "g0": {"gpu": 2}}),)), 1),
    "a budget that binds": (replace(APART, budgets={"a": 1}), 1),
    "a budget for all": (replace(APART, budgets={"a": 2}), 2),
    "a limit": (replace(APART, limits=(Limit("l", "machines", 3.0, frozenset({"c", "g"})),)), 1),
    "a bound on all": (replace(APART, rules=Rules(most_bought=3)), 1),
    "a machine for nobody": (replace(APART, standing=(*APART.standing, Standing("x", "x", 1.0, {}))), 3),
    "nothing": (replace(APART, standing=(), blocks=()), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_parts(name: str) -> None:
    problem, count = PARTS[name]
    grounds = grounds_of(problem)
    assert len(grounds) == count
    assert sorted(number for it in grounds for number in it.machines.tolist()) == list(range(len(problem.standing)))


def test_kinds_that_another_one_beats_are_gone_and_equal_classes_are_one() -> None:
    twin = replace(CPU, name="twin")
    blocks = (Block("b", {"c0": {"cpu": 1, "twin": 1}}, whole=False),)
    (ground, _) = grounds_of(replace(APART, classes=(CPU, twin, GPU), blocks=(*blocks, APART.blocks[1])))
    assert ground.classes == ((0, 1),)
    assert ground.loose.tolist() == [[2]]
    assert [names[0] for names in ground.kinds.names] == ["c"]  # two pods make no use of more


def test_a_block_of_one_lane_has_a_row_and_a_way_for_each() -> None:
    lanes = tuple(replace(kind, name=f"{kind.name}-{lane}", lane=lane) for kind in KINDS[:1] for lane in "abc")
    cpu = replace(CPU, kinds=frozenset({"c", *(it.name for it in lanes)}))
    standing = (replace(APART.standing[0], lane="a"),)
    gang = Block("b", {"c0": {"cpu": 2}}, one_lane=True)
    (ground,) = grounds_of(Problem(("cpu",), (cpu,), standing, (gang,), lanes))
    assert [way.sum(axis=0).tolist() for way in ground.gangs[0].ways] == [[0, 2, 0, 0], [0, 0, 2, 0], [0, 0, 0, 2]]
    assert ground.fits[:, 0].tolist() == [True, True, False, False]
