import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.kube.pace import Pace, Pacing


@given(seed=st.integers(0, 2**32), attempts=st.lists(st.tuples(st.floats(0, 9.9), st.booleans()), max_size=60))
def test_short_attempts_wait_within_bounds_however_they_end(seed: int, attempts: list[tuple[float, bool]]) -> None:
    pace = Pace(Pacing(), random.Random(seed))
    for number, (lasted_s, in_order) in enumerate(attempts, start=1):
        gap_s = pace.gap_s(lasted_s, in_order=in_order)
        assert 0.8 <= gap_s <= min(30.0, 0.8 * 2**number)


def test_gaps_grow() -> None:
    pace = Pace(Pacing(), random.Random(3))
    gaps = [pace.gap_s(0.0, in_order=False) for _ in range(200)]
    assert max(gaps[:2]) <= 3.2
    assert max(gaps[10:]) > 25.0


@pytest.mark.parametrize(("in_order", "widest_s"), [(True, 0.0), (False, 1.6)])
def test_a_healthy_period_forgives(in_order: bool, widest_s: float) -> None:
    pace = Pace(Pacing(), random.Random(3))
    for _ in range(20):
        pace.gap_s(0.0, in_order=False)
    assert pace.gap_s(10.0, in_order=in_order) <= widest_s
    assert pace.gap_s(0.0, in_order=False) <= 3.2
