"""The API server's time of day as its answers are dated."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.clock import SystemClock, VirtualClock
from providers.kube.config import from_url
from providers.kube.errors import NotFound
from providers.kube.resources import PODS
from providers.kube.server_clock import ServerClock
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import ApiServer
from providers.sim.store import Store
from tests.providers.kube.electing import ElectionWorld, SkewedClock

TRUE_S = 1_800_000_000.0


def clock_off_by(offset_s: float) -> tuple[ElectionWorld, ServerClock]:
    world = ElectionWorld(TRUE_S)
    machine = SkewedClock(world)
    machine.jumped_s = offset_s
    return world, ServerClock(machine)


def dated(at_s: float) -> str:
    return formatdate(at_s, usegmt=True)


def test_before_the_first_answer_it_is_the_time_of_the_machine() -> None:
    world, clock = clock_off_by(3600.0)
    assert clock.now() == world.now_s + 3600.0


@pytest.mark.parametrize("offset_s", [-3600.0, -2.0, 2.0, 3600.0])
def test_one_answer_tells_the_time_to_the_second(offset_s: float) -> None:
    world, clock = clock_off_by(offset_s)
    clock.told(dated(world.now_s), clock.monotonic())
    assert abs(clock.now() - world.now_s) <= 1.0
    world.now_s += 5000.25
    assert abs(clock.now() - world.now_s) <= 1.0


def test_a_machine_that_agrees_is_believed() -> None:
    world, clock = clock_off_by(0.25)
    clock.told(dated(world.now_s), clock.monotonic())
    assert clock.now() == world.now_s + 0.25


@pytest.mark.parametrize("header", ["", "yesterday", "Sun, 99 Nov 2026 08:49:37 GMT", "Sun, 06 Nov 99999 08:49:37 GMT"])
def test_what_is_no_date_says_nothing(header: str) -> None:
    world, clock = clock_off_by(3600.0)
    clock.told(header, clock.monotonic())
    assert clock.now() == world.now_s + 3600.0


@given(
    st.floats(-1e4, 1e4),
    st.lists(st.tuples(st.floats(0.0, 60.0), st.floats(0.0, 20.0), st.floats(0.0, 1.0)), max_size=30),
)
def test_no_answer_however_slow_makes_it_worse(offset_s: float, answers: list[tuple[float, float, float]]) -> None:
    world, clock = clock_off_by(offset_s)
    off_s = abs(offset_s)
    for pause_s, took_s, part in answers:
        world.now_s += pause_s
        asked_s = clock.monotonic()
        said_s = world.now_s + took_s * part
        world.now_s += took_s
        clock.told(dated(said_s), asked_s)
        assert abs(clock.now() - world.now_s) <= off_s + 1e-5
        off_s = abs(clock.now() - world.now_s)
        assert off_s <= 1.0 + took_s + 1e-5


def test_a_steady_one_starts_from_the_first_answer_and_then_takes_its_time() -> None:
    world, clock = clock_off_by(3600.0)
    steady = clock.steady()
    clock.told(dated(world.now_s), clock.monotonic())
    assert abs(steady.now() - world.now_s) <= 1.0
    before_s = steady.now()
    clock.told(dated(world.now_s + 600.0), clock.monotonic())
    assert steady.now() == before_s
    world.now_s += 10.0
    assert steady.now() == before_s + 20.0


def test_every_answer_of_a_server_tells_it() -> None:
    """A refusal and the head of a watch as well, and over connections apart."""
    server_clock = VirtualClock(TRUE_S)
    with ApiServer(Store(server_clock), clock=server_clock) as server:
        for ask in (_read, _refused, _watch, _apart):
            transport = KubeTransport(from_url(server.url))
            clock = transport.clock(SystemClock())
            ask(transport)
            assert abs(clock.now() - TRUE_S) < 5.0


def _read(transport: KubeTransport) -> None:
    list(transport.list_pages(PODS))


def _refused(transport: KubeTransport) -> None:
    with pytest.raises(NotFound):
        transport.read(PODS, "none", "default")


def _watch(transport: KubeTransport) -> None:
    with transport.watch(PODS, "1", 1):
        pass


def _apart(transport: KubeTransport) -> None:
    _read(transport.apart())
