"""The agent's clock: ages stay true, and it never goes back, whatever happens to the time of day."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.clock import SteadyClock

START_S = 1_800_000_000.0


class SetClock:
    """A machine's clock that people set."""

    def __init__(self) -> None:
        self.monotonic_s = 100.0
        self.now_s = START_S

    def now(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.monotonic_s

    def passes(self, seconds: float, *, frozen: bool = False) -> None:
        self.monotonic_s += seconds
        self.now_s += 0.0 if frozen else seconds


def test_it_is_the_time_of_day_as_long_as_nobody_sets_that() -> None:
    machine = SetClock()
    steady = SteadyClock(machine)
    for seconds in (0.0, 0.1, 1e-3, 7.3, 1e6):
        machine.passes(seconds)
        assert steady.now() == machine.now()


@pytest.mark.parametrize(
    ("step_s", "after_s", "passed_s"),
    [
        pytest.param(-90.0, 0.0, 0.0, id="set back: it does not go back"),
        pytest.param(-90.0, 60.0, 30.0, id="and goes at half its pace"),
        pytest.param(-90.0, 180.0, 90.0, id="until it agrees again"),
        pytest.param(-90.0, 1000.0, 910.0, id="and then with it"),
        pytest.param(3600.0, 0.0, 0.0, id="set forward: nothing is an hour older at once"),
        pytest.param(3600.0, 600.0, 1200.0, id="it catches up"),
        pytest.param(3600.0, 3600.0, 7200.0, id="in an hour"),
        pytest.param(3600.0, 4000.0, 7600.0, id="and then with it"),
    ],
)
def test_what_it_makes_of_a_step(step_s: float, after_s: float, passed_s: float) -> None:
    machine = SetClock()
    steady = SteadyClock(machine)
    machine.now_s += step_s
    machine.passes(after_s)
    assert steady.now() == START_S + passed_s


def test_it_can_start_anew() -> None:
    machine = SetClock()
    steady = SteadyClock(machine)
    machine.now_s -= 3600.0
    steady.start_anew()
    assert steady.now() == START_S - 3600.0
    machine.passes(5.0)
    assert steady.now() == START_S - 3595.0


changes = st.lists(
    st.tuples(st.sampled_from(("pass", "freeze", "set")), st.floats(-1e4, 1e4, allow_nan=False)), max_size=30
)


@given(changes)
def test_ages_are_true_within_a_factor_of_two(moves: list[tuple[str, float]]) -> None:
    machine = SetClock()
    steady = SteadyClock(machine)
    before_s = steady.now()
    for what, amount in moves:
        if what == "set":
            machine.now_s += amount
        else:
            machine.passes(abs(amount), frozen=what == "freeze")
        elapsed_s, before_s = steady.now() - before_s, steady.now()
        true_s = 0.0 if what == "set" else abs(amount)
        assert 0.5 * true_s - 1e-5 <= elapsed_s <= 2.0 * true_s + 1e-5
