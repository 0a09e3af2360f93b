"""No machine carries more worth than its bound says."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings

from fleet.optimize.purchase import PurchaseProblem
from fleet.optimize.purchase.bounds import at_most
from fleet.optimize.purchase.purchasing import packing_instances
from tests.support.purchases import WORTHS, priced_parts, problem, problems


@settings(max_examples=60)
@given(asked=problems(most_pods=3), worths=WORTHS)
def test_no_machine_carries_more_worth_than_its_bound(asked: PurchaseProblem, worths: list[int]) -> None:
    for part, worth in priced_parts(asked, worths):
        most = at_most(part, np.arange(len(part.price)), worth, (0.125, 0.5))
        for kind in range(len(part.price)):
            amounts = [range(int(count) + 1) for count in part.holds[:, kind]]
            pods = np.array(list(product(*amounts)))
            fitting = pods[(pods @ part.requests <= part.capacity[kind]).all(axis=1)]
            assert (fitting @ worth).max() <= most[kind] + 1e-9


def test_one_resource_and_two_as_one_bound_what_a_machine_carries() -> None:
    (part,), _ = packing_instances(
        problem({"a": (4, {"cpu": 3}), "b": (4, {"cpu": 2, "memory": 5})}, {"k": (1.0, {"cpu": 8, "memory": 10})}), {}
    )
    worth = np.array([3.0, 4.0])  # by CPU two of b and 4/3 of a, by memory all of a and two of b
    assert at_most(part, np.array([0]), worth, (0.5,)).tolist() == pytest.approx([8 + 3 * 4 / 3])
