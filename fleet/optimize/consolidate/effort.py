"""How hard to try, in steps: the same steps on every machine, however busy it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Ends of the search; each is a count of something the problem alone decides."""

    sweeps: int = 2
    """Of the greedy search over all machines one by one."""
    pricing: int = 30
    """Rounds of finding patterns to buy, for each part."""
    nodes: int = 20
    """Of branch and bound, for each part."""
    iterations: int = 100_000
    """Of the simplex method, for each linear programme."""
    splits: int = 2
    """Times that equal machines are looked at one by one, for each part, since they hold less than they do together."""
    close_enough: float = 1e-3
    """Of a part's bill: where fractions promise no more than this, whole numbers are not looked for."""
    near: float = 2e-3
    """Of a part's bill: how far a large programme may stay behind the optimum in fractions."""
    ways: int = 20
    """Of gangs on several machines to move, for each part: where there are more, whole numbers are only looked for near
    the fractions. Else they take three to ten times as long as all the rest, and find 0.3 % of the bill more."""
    rounds: int = 4
    """Of the whole search, each on what the one before left."""
    solver: bool = True
    """Whether linear and integer programmes are solved at all."""


GREEDY = Effort(solver=False)
"""No solver."""
