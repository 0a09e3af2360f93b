"""What both questions are reduced by before they are searched."""

import numpy as np
import pytest

from fleet.optimize.inputs import Limit, MachineKind
from fleet.optimize.presolve import allowed, common_unit, components, dominated, usage

SETS = {
    "nothing in common": (["a", "b"], "ab"),
    "a pair": (["ab", "c"], "aac"),
    "a chain, in any order": (["cd", "ab", "bc"], "aaaa"),
    "an empty set": (["", "bc"], "abb"),
}


@pytest.mark.parametrize("name", SETS)
def test_components_are_named_by_their_first_element(name: str) -> None:
    sets, heads = SETS[name]
    table = np.array([[chr(ord("a") + n) in it for n in range(len(heads))] for it in sets])
    assert "".join(chr(ord("a") + n) for n in components(table).tolist()) == heads


COLUMNS = {
    "dearer and no better": ([1.0, 2.0], [[4.0], [4.0]], [True, False]),
    "dearer and larger": ([1.0, 2.0], [[4.0], [8.0]], [True, True]),
    "equal: the first stays": ([1.0, 1.0], [[4.0], [4.0]], [True, False]),
    "cheaper and smaller": ([2.0, 1.0], [[8.0], [4.0]], [True, True]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_dominated_columns(name: str) -> None:
    cost, features, kept = COLUMNS[name]
    fits = np.ones((3, 2), dtype=bool)
    assert (~dominated(np.array(cost), np.arange(2), np.array(features), fits)).tolist() == kept
    assert not dominated(np.array(cost), np.arange(0), np.array(features), fits).any()  # by no rivals nothing is
    fits[2, 0] = False  # nor by what is allowed to fewer classes
    assert not dominated(np.array(cost), np.arange(1), np.array(features), fits).any()


def test_rows_may_stand_on_the_kinds_they_name_in_their_domain() -> None:
    rows = [(frozenset({"k", "gone"}), None), (frozenset({"k", "l"}), "a"), (frozenset({"k", "l"}), None)]
    table = allowed(rows, ["k", "l", "k"], ["a", "b", "b"])
    assert table.tolist() == [[True, False, True], [True, False, False], [True, True, True]]


def test_what_machines_count_against_limits() -> None:
    kinds = (MachineKind("k", 2.5, {"cpu": 8}), MachineKind("l", 1.0, {}), MachineKind("there", 0.0, {"cpu": 4}))
    names = frozenset({"k", "there"})
    limits = [Limit(what, what, 9.0, names) for what in ("machines", "usd_h", "cpu")]
    assert usage(limits, kinds, {"there"}).tolist() == [[1.0, 0.0, 0.0], [2.5, 0.0, 0.0], [8.0, 0.0, 0.0]]


def test_units_divide_all_requests() -> None:
    assert common_unit(np.array([[6.0, 0.0, 5.0], [9.0, 0.0, 7.0]])).tolist() == [3.0, 1.0, 1.0]
    assert common_unit(np.zeros((0, 2))).tolist() == [1.0, 1.0]
