"""How hard to try, in steps: the same steps on every machine, however busy it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Ends of the search; each is a count of something the problem alone decides.

    The usual one spends about a second on a part of 130 classes and 20 kinds, whatever it holds more. Without ends of
    `work`, `whole_pairs` and `whole_patterns` it takes four times as long there, and saves a tenth of a percent more.
    """

    value_classes: int = 60
    """Parts with more are not filled by value until the solver says what pods are worth."""
    pattern_pairs: int = 40_000
    """Of a class and a kind that may hold it. Parts with more are left as the quick ways have them."""
    exact_pairs: int = 1_000
    """Of a class and a kind. Parts with more are priced by filling alone, which costs little and proves less."""
    rounds: int = 200
    """Of pricing, for each part."""
    work: int = 10_000_000
    """Of pricing, for each part: machines filled times classes, and what programmes take in that measure; a second."""
    exact_rounds: int = 3
    """Of pricing that misses nothing, for each part; the last of them proves the bound."""
    exact_nodes: int = 200
    """Of branch and bound, for each kind in such a round."""
    nodes: int = 60
    """Of branch and bound over patterns, for each part."""
    whole_pairs: float = 100.0
    """Of a class and a kind: for each so many, branch and bound has to promise another `close_enough` to be tried."""
    whole_patterns: int = 150
    """Among which branch and bound chooses, for each part, besides those of the best so far."""
    iterations: int = 100_000
    """Of the simplex method, for each linear programme."""
    trials: int = 24
    """Choices of lanes for the groups that are compared by the quick ways."""
    lanes: int = 3
    """Choices of lanes that are searched in full at most."""
    close_enough: float = 1e-4
    """A part that could save less than this of the whole purchase is good enough."""
    solver: bool = True
    """Whether linear and integer programmes are solved at all."""


GREEDY = Effort(solver=False)
"""No solver: the best of the greedy ways, with a bound by one resource."""
