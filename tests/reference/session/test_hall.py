"""Everything a session changes can be undone exactly, and is the same however often it is tried."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.session.fair import FairLedger
from tests.reference.session.hall import Hall, Seat
from tests.reference.session.parts import active
from tests.reference.session.policy import Policy
from tests.reference.session.values import Crew, CrewGroup, GpuShare, PodState, SessionPod, Squad
from tests.support.session import fair, job, machines, pods, template


def hall() -> Hall:
    """Whole GPUs and parts of them, running and waiting."""
    halves = tuple(
        SessionPod(
            f"h-{n}", template(0), PodState.RUNNING if n < 2 else PodState.PENDING, "n1" if n < 2 else "", gpu=HALF
        )
        for n in range(4)
    )
    squads = [
        job("x", "a", 3, at_least=1, on=["n1", "n2"]),
        job("y", "b", 4, gpus=2, at_least=2),
        Squad("h", "b", CrewGroup("", (Crew("", halves, 1),), 1)),
    ]
    return Hall(machines(3, gpus=4), squads, fair(a=4, b=8), Policy())


HALF = GpuShare(500_000)


def state(of: Hall) -> object:
    """All that may change, as plain values."""
    floor, ledger = of.floor, of.ledger
    assert isinstance(ledger, FairLedger)
    return (
        floor.idle.tolist(),
        floor.future.tolist(),
        [{name: tuple(part) for name, part in parts.items()} for parts in floor.parts],
        {queue: {name: one.used for name, one in found.items()} for queue, found in ledger.standings.items()},
        [(seat.state, seat.row, seat.devices) for entry in of.entries for seat in entry.seats],
        [active(entry, entry.squad.root) for entry in of.entries],
        [entry.held for entry in of.entries],
    )


def seats_of(of: Hall) -> list[Seat]:
    return [seat for entry in of.entries for seat in entry.seats]


def do(of: Hall, number: int, row: int, *, now: bool) -> None:
    """Whatever can be done with that seat in its state."""
    seat = seats_of(of)[number]
    if seat.state is PodState.RUNNING:
        of.evict(seat)
    elif seat.state is PodState.EVICTED and row == seat.row:
        of.keep(seat)
    elif seat.state in {PodState.PENDING, PodState.EVICTED} and of.floor.slots(seat.kind, now=now)[row]:
        gpu = seat.kind.gpu
        of.place([seat], row, now=now, devices=of.floor.devices_for(gpu, row, now=now) if gpu else ())


STEPS = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 2), st.booleans()), max_size=25)


@settings(max_examples=100)
@given(before=STEPS, what_if=STEPS)
def test_undo_is_exact(before: list[tuple[int, int, bool]], what_if: list[tuple[int, int, bool]]) -> None:
    one = hall()
    for number, row, now in before:
        do(one, number, row, now=now)
    was, mark = state(one), one.mark()
    for number, row, now in what_if:
        do(one, number, row, now=now)
    assert (one.floor.future >= 0).all()
    one.undo(mark)
    assert state(one) == was
    one.undo(0)
    assert state(one) == state(hall())


@pytest.mark.parametrize("now", [True, False])
def test_many_equal_pods_at_once_are_the_same_as_one_by_one(now: bool) -> None:
    at_once, singly = hall(), hall()
    waiting = [seat for seat in seats_of(at_once) if seat.pod.name.startswith("y-")][:2]
    at_once.place(waiting, 2, now=now)
    for seat in [seat for seat in seats_of(singly) if seat.pod.name.startswith("y-")][:2]:
        singly.place([seat], 2, now=now)
    assert state(at_once) == state(singly)


def test_room_is_free_in_future_once_a_pod_is_evicted() -> None:
    one = hall()
    seat = next(seat for seat in seats_of(one) if seat.pod.name == "x-0")
    idle, future = one.floor.idle.copy(), one.floor.future.copy()
    one.evict(seat)
    assert np.array_equal(one.floor.idle, idle)
    assert (one.floor.future - future)[seat.row, one.floor.gpu] == 1


def test_an_eviction_is_not_taken_back_where_the_room_is_gone() -> None:
    given_squads = [job("x", "a", 1, on=["n1"]), job("y", "a", 1)]
    one = Hall(machines(1, gpus=1), given_squads, fair(a=2), Policy())
    running, waiting = seats_of(one)
    one.evict(running)
    assert one.keep(running)
    one.evict(running)
    one.place([waiting], 0, now=False)
    assert not one.keep(running)
    assert running.state is PodState.EVICTED


def test_a_pod_on_a_machine_nobody_knows_takes_quota_but_no_room() -> None:
    one = Hall(
        machines(1), [Squad("x", "a", CrewGroup("", (Crew("", pods("x", 1, on=["gone"]), 1),), 1))], fair(a=2), Policy()
    )
    assert isinstance(one.ledger, FairLedger)
    assert one.ledger.standings["a"]["cpu"].used == 100
    assert one.floor.idle[0, one.floor.gpu] == 8
