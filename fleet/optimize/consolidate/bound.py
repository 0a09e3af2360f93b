"""What no plan can exceed: the programme of `frame.py` in fractions, with machines bought in bulk, not in patterns.

Of every kind `y_k` machines are bought in fractions and `v_ck` pods of a row come to them; only what holds for all
machines of a kind together is asked. Every plan is a solution, so the optimum is a bound whatever patterns are known.
"""

import numpy as np

from fleet.optimize.consolidate.frame import Frame, sparse
from fleet.optimize.consolidate.ground import Ground
from fleet.optimize.purchase.part import Floats
from fleet.optimize.purchase.solver import Sparse

_ROUNDING = 1e-7
"""What the bound gives away for the tolerances of the solver, relatively."""


def relaxed(ground: Ground, frame: Frame, iterations: int) -> float:
    """USD an hour. Raises `SolverFailed`."""
    part, programme = ground.kinds, frame.programme()
    classes, count = len(part.demand), len(part.price)
    begin = programme.columns
    programme.add_columns(part.price, frame.entries(np.arange(count), np.zeros((count, classes), dtype=np.int64)))
    kind, row = np.nonzero(part.fits.T)
    programme.add_columns(np.zeros(len(kind)), Sparse(np.arange(len(kind)), row, np.ones(len(kind))))
    rows: list[tuple[list[int], list[float]]] = []
    for number in range(count):
        own = np.flatnonzero(kind == number)
        columns = (begin + count + own).tolist()
        rows += _capacity(part.requests[row[own]], part.capacity[number], columns, begin + number)
        for column, most in zip(columns, part.holds[row[own], number].tolist(), strict=True):
            rows.append(([column, begin + number], [1.0, -most]))
    programme.add_rows(np.full(len(rows), -np.inf), np.zeros(len(rows)), sparse(rows))
    objective = -programme.solve(iterations).objective
    return objective + _ROUNDING * (abs(objective) + float(ground.price.sum()))


def _capacity(
    requests: Floats, capacity: Floats, columns: list[int], bought: int
) -> list[tuple[list[int], list[float]]]:
    """One row for each resource that is asked for."""
    found: list[tuple[list[int], list[float]]] = []
    for resource in np.flatnonzero(requests.any(axis=0)).tolist():
        asking = np.flatnonzero(requests[:, resource])
        factors = [*(requests[asking, resource] / capacity[resource]).tolist(), -1.0]
        found.append(([*(columns[at] for at in asking.tolist()), bought], factors))
    return found
