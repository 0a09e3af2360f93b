"""Pricing without gaps: the fullest machine of each kind by a small integer programme, and the bound that proves.

Of most kinds a few sorted columns say that no machine can carry more worth than it costs: those need no programme.
"""

from itertools import combinations

import numpy as np

from fleet.optimize.purchase.bound import Certificate, Prices, proven
from fleet.optimize.purchase.columns import Pool, added
from fleet.optimize.purchase.part import Floats, Part
from fleet.optimize.purchase.solver import Programme, Sparse

_TRUST = 1e-6
"""Relative: what the solver's bound of a machine may be off by its tolerances."""
_LARGE = 1_000.0
"""What the worth of a machine is scaled to at least, because the tolerances are absolute."""


def priced(part: Part, pool: Pool, prices: Prices, nodes: int) -> tuple[Certificate, bool]:
    """What the prices prove, and whether patterns that help were found. Raises `SolverFailed`."""
    kinds = np.arange(len(part.price))
    pods = np.zeros((len(kinds), len(part.demand)), dtype=np.int64)
    share = part.requests / np.maximum(part.capacity, 1.0)[:, None]  # [K, C, R]
    carried = at_most(part, share, prices.worth)
    for kind in np.flatnonzero(carried > prices.of_machines(part)).tolist():
        rows = np.flatnonzero(part.fits[:, kind] & (prices.worth > 0))
        knapsack = Programme(np.full(part.requests.shape[1], -np.inf), np.minimum(part.capacity[kind], 1.0))
        unit = _LARGE / (prices.worth[rows] * part.holds[rows, kind]).max()
        knapsack.add_columns(-unit * prices.worth[rows], Sparse.of(share[kind, rows]), part.holds[rows, kind])
        found = knapsack.solve_whole(None, nodes)
        pods[kind, rows] = found.values
        carried[kind] = -found.bound / unit * (1 + _TRUST)
    pods[(pods @ part.requests > part.capacity).any(axis=1)] = 0  # whole only within the tolerances
    return proven(part, prices, carried), added(part, pool, prices, kinds, pods)


def at_most(part: Part, share: Floats, worth: Floats) -> Floats:
    """[K] what no machine of a kind carries more of than: as if only one resource counted, or two as one.

    Then the best is to take pods by worth for their size, the last in part (Dantzig 1957).
    """
    each = [share[:, :, resource] for resource in range(share.shape[2])]
    most: Floats = np.full(len(share), np.inf)
    held, value = part.holds.T, part.holds.T * worth
    for size in [*each, *((one + other) / 2 for one, other in combinations(each, 2))]:
        whole = size * held
        density = np.divide(value, whole, out=np.full(whole.shape, np.inf), where=whole > 0)
        order = np.argsort(-density, axis=1, kind="stable")
        taken = np.take_along_axis(whole, order, axis=1)
        rest = 1.0 - (np.cumsum(taken, axis=1) - taken)
        part_of = np.divide(rest, taken, out=np.ones_like(rest), where=taken > 0)
        most = np.minimum(most, (np.take_along_axis(value, order, axis=1) * np.clip(part_of, 0.0, 1.0)).sum(axis=1))
    return most
