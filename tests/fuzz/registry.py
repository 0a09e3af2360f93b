"""The fuzzers: who feeds what with made-up input. `FUZZERS` is the table; `python -m tests.fuzz` and a test run it.

A fuzzer is a class with a `name` and `start()`, a context manager that sets up what is attacked (a server, a world) and
gives a function of a random generator: one input a call. Whatever it raises is a finding. The generator of input N is
seeded with name, seed and N, so that a finding is found again by `python -m tests.fuzz NAME --seed S --first N`.

To add one: write its file beside this one, and enter it in `FUZZERS`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random
from typing import Protocol

from tests.fuzz.http import HttpFuzzer
from tests.fuzz.loader import LoaderFuzzer
from tests.fuzz.plan import PlanFuzzer

Attack = Callable[[Random], None]
"""Makes one input of the generator, feeds it, and raises where the answer is none that may be given."""


class Fuzzer(Protocol):
    """One fuzzer."""

    name: str
    most_seconds: float
    """Longest one input may work; ten times as long it may wait."""
    most_growth_mib: int
    """How much the process may grow while it runs, once the first inputs have warmed it up."""

    def start(self) -> AbstractContextManager[Attack]:
        """Sets up what is attacked, and takes it down again."""
        ...


FUZZERS: tuple[Fuzzer, ...] = (LoaderFuzzer(), HttpFuzzer(), PlanFuzzer())
