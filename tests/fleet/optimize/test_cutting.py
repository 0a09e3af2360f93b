"""Cutting GPUs for slices: as few machines as can be, dealt so that they are alike, with a bound that holds."""

from collections import Counter
from functools import cache
from math import ceil
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.optimize.cutting import CuttableMachine, MachineCut, SliceDemand, StockCut, Uncuttable, cut_stock
from model.mig import best_multisets, mig_models, resource_name
from tests.support.purchases import HIGHS

pytestmark = HIGHS
PLAIN = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")


def machine(
    model: str = "a100-80gb", gpus: int = 8, usd_h: float = 27.4, names: tuple[str, ...] = PLAIN
) -> CuttableMachine:
    patterns = best_multisets(mig_models()[model], names)
    cuts = tuple({resource_name(name): count for name, count in it.items()} for it in patterns)
    return CuttableMachine(model, gpus, usd_h, cuts)


def asked(counts: tuple[int, ...], *machines: str, names: tuple[str, ...] = PLAIN) -> list[SliceDemand]:
    of = frozenset(machines or ("a100-80gb",))
    return [SliceDemand(resource_name(name), count, of) for name, count in zip(names, counts, strict=True)]


def given_by(found: StockCut) -> Counter[str]:
    total = Counter[str]()
    for it in found.cuts:
        for pattern in it.gpus:
            total.update({name: count * it.count for name, count in pattern.items()})
    return total


# Demands and the least machines of eight GPUs by an exact integer programme over the maximal layouts of one GPU; the
# last column is what one pool a profile takes.
DEMANDS = [
    ("openb", (0, 8, 7, 12, 13), 4, 48),
    ("openb", (6, 34, 53, 133, 174), 39, 368),
    ("openb", (9, 88, 141, 325, 437), 96, 880),
    ("notebooks", (22, 11, 5, 0, 2), 2, 32),
    ("notebooks", (248, 62, 64, 19, 7), 13, 128),
    ("notebooks", (597, 197, 159, 28, 19), 31, 296),
    ("inference", (14, 11, 13, 0, 2), 2, 32),
    ("inference", (127, 110, 132, 17, 14), 17, 176),
    ("inference", (333, 264, 296, 56, 51), 42, 400),
    ("big", (8, 12, 14, 3, 3), 2, 40),
    ("big", (41, 70, 207, 46, 36), 24, 224),
    ("big", (91, 207, 512, 85, 105), 59, 544),
]


@pytest.mark.parametrize(("mix", "counts", "least", "by_profile"), DEMANDS)
def test_recorded_mixes_take_the_fewest_machines(
    mix: str, counts: tuple[int, ...], least: int, by_profile: int
) -> None:
    before_s = process_time()
    found = cut_stock([machine()], asked(counts))
    assert process_time() - before_s < 1.0, "a thousand pods in a second of CPU"
    assert found.machines == {"a100-80gb": least}
    assert ceil(found.bound_usd_h / 27.4 - 1e-6) == least, "and it is proven"
    assert given_by(found) >= Counter({it.resource: it.count for it in asked(counts)})
    assert sum(it.count for it in found.cuts) == least
    assert all(len(it.gpus) == 8 for it in found.cuts)
    assert least * 8 < by_profile
    assert len(found.cuts) <= 6, f"machines of {mix} are alike"


SMALL = ("1g.6gb", "2g.12gb", "4g.24gb")


def least_gpus(counts: tuple[int, ...]) -> int:
    """By trying everything: the fewest A30s."""
    patterns = [tuple(it.get(name, 0) for name in SMALL) for it in best_multisets(mig_models()["a30-24gb"], SMALL)]

    @cache
    def least(left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        rest = {tuple(max(0, a - b) for a, b in zip(left, it, strict=True)) for it in patterns} - {left}
        return 1 + min(map(least, rest))

    return least(counts)


@given(st.tuples(st.integers(0, 9), st.integers(0, 7), st.integers(0, 4)))
@settings(max_examples=40, deadline=None)
def test_no_search_of_everything_finds_fewer(counts: tuple[int, ...]) -> None:
    cuttable = machine("a30-24gb", 1, 1.0, SMALL)
    found = cut_stock([cuttable], asked(counts, "a30-24gb", names=SMALL))
    assert sum(found.machines.values()) == least_gpus(counts)


def test_the_cheaper_of_two_types_is_taken_where_both_may_serve() -> None:
    """An H100 gives the same slices at twice the price: it is bought for what may go nowhere else."""
    kinds = [machine(), machine("h100-80gb", usd_h=55.0)]
    anywhere = SliceDemand(resource_name("1g.10gb"), 56, frozenset(("a100-80gb", "h100-80gb")))
    only = SliceDemand(resource_name("7g.80gb"), 1, frozenset(("h100-80gb",)))
    assert cut_stock(kinds, [anywhere]).machines == {"a100-80gb": 1}
    assert cut_stock(kinds, [anywhere, only]).machines == {"a100-80gb": 1, "h100-80gb": 1}
    fewer = SliceDemand(anywhere.resource, 49, anywhere.machines)
    assert cut_stock(kinds, [fewer, only]).machines == {"h100-80gb": 1}, "seven GPUs of it are left"


def test_one_big_machine_is_not_bought_for_one_slice() -> None:
    kinds = [machine(), CuttableMachine("one", 1, 4.0, machine().patterns)]
    demand = SliceDemand(resource_name("3g.40gb"), 2, frozenset(("a100-80gb", "one")))
    (cut,) = cut_stock(kinds, [demand]).cuts
    assert cut == MachineCut("one", 1, ({"nvidia.com/mig-3g.40gb": 2},))


def test_nothing_is_asked_for_and_nothing_bought() -> None:
    assert cut_stock([machine()], []) == StockCut((), 0.0, 0.0, {})


def test_what_no_machine_can_be_cut_into_is_named() -> None:
    with pytest.raises(Uncuttable, match=r"nvidia.com/mig-2g.20gb"):
        cut_stock([machine(names=("1g.10gb",))], asked((1, 1, 0, 0, 0)))
