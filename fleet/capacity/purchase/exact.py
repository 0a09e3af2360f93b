"""Pricing without gaps: the fullest machine of each kind by a small integer programme, and the bound that proves."""

import numpy as np

from fleet.capacity.purchase.bound import Certificate, Prices, proven
from fleet.capacity.purchase.columns import Pool, added
from fleet.capacity.purchase.part import Part
from fleet.capacity.purchase.solver import Programme, Sparse

_TRUST = 1e-6
"""Relative: what the solver's bound of a machine may be off by its tolerances."""
_LARGE = 1_000.0
"""What the worth of a machine is scaled to at least, because the tolerances are absolute."""


def priced(part: Part, pool: Pool, prices: Prices, nodes: int) -> tuple[Certificate, bool]:
    """What the prices prove, and whether patterns that help were found. Raises `SolverFailed`."""
    kinds = np.arange(len(part.price))
    pods = np.zeros((len(kinds), len(part.demand)), dtype=np.int64)
    carried = np.zeros(len(kinds))
    share = part.requests / np.maximum(part.capacity, 1.0)[:, None]  # [K, C, R]
    for kind in kinds.tolist():
        rows = np.flatnonzero(part.fits[:, kind] & (prices.worth > 0))
        if not len(rows):
            continue
        knapsack = Programme(np.full(part.requests.shape[1], -np.inf), np.minimum(part.capacity[kind], 1.0))
        unit = _LARGE / (prices.worth[rows] * part.holds[rows, kind]).max()
        knapsack.add_columns(-unit * prices.worth[rows], Sparse.of(share[kind, rows]), part.holds[rows, kind])
        found = knapsack.solve_whole(None, nodes)
        pods[kind, rows] = found.values
        carried[kind] = -found.bound / unit * (1 + _TRUST)
    pods[(pods @ part.requests > part.capacity).any(axis=1)] = 0  # whole only within the tolerances
    return proven(part, prices, carried), added(part, pool, prices, kinds, pods)
