"""Commands under way."""

import pytest

from bench.reference.karpenter.disrupt.orders import Fate, Replacement, fate, patience_s

READY, BOOTS, GONE = Replacement(initialized=True), Replacement(), Replacement(gone=True)


@pytest.mark.parametrize(("commands", "most_s"), [(0, 600), (7500, 600), (10000, 800), (45000, 3600), (90000, 3600)])
def test_patience(commands: int, most_s: float) -> None:
    assert patience_s(commands) == most_s


@pytest.mark.parametrize(
    ("replacements", "elapsed_s", "expected"),
    [
        ([], 0, Fate.DONE),
        ([READY, READY], 0, Fate.DONE),
        ([READY, BOOTS], 0, Fate.WAITS),
        ([READY, BOOTS], 600, Fate.WAITS),
        ([READY, BOOTS], 600.1, Fate.GIVEN_UP),
        ([READY, READY], 9999, Fate.DONE),
        ([READY, GONE], 0, Fate.GIVEN_UP),
    ],
)
def test_fate(replacements: list[Replacement], elapsed_s: float, expected: Fate) -> None:
    assert fate(replacements, elapsed_s, 1) is expected
