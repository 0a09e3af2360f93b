"""When a fault of the embedded API server strikes: by count, or by a seeded generator."""

import random

from providers.sim.apiserver.faults import When


def every(n: int) -> When:
    """The n-th, 2n-th, ... matching request."""
    return lambda count: count % n == 0


def first(n: int) -> When:
    """The first `n` matching requests."""
    return lambda count: count <= n


def nth(*counts: int) -> When:
    """Exactly these matching requests, counted from 1."""
    return frozenset(counts).__contains__


def rate(probability: float, rng: random.Random) -> When:
    """A share of the matching requests, drawn from a generator the caller seeded."""
    return lambda _: rng.random() < probability
