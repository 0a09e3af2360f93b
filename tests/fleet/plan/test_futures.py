"""What futures take from the past: run times in their order, work to come, and what runs have taken already."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fleet.plan.futures import ENOUGH, LEAST_PAST_S, LEAST_TO_COME, Futures
from fleet.plan.past_arrivals import ARRIVALS_KEPT, PastArrivals
from fleet.replay.run_times import EndedRun, RunTimes
from fleet.snapshot import GangState, Snapshot
from tests.support.fleets import NOW, FleetBuilder, gang
from tests.support.world import World

DAY_S = 86_400.0


def waiting(count: int) -> Snapshot:
    world = World(FleetBuilder().pool().team().queue().build())
    for number in range(count):
        world.waits(gang(f"waits-{number}", created_s=NOW - 100 + number))
    return world.snapshot()


def known_of(*ran_s: float) -> RunTimes:
    known = RunTimes()
    for number, each_s in enumerate(ran_s):
        known.learn(EndedRun(gang(f"old-{number}", created_s=NOW - DAY_S + number), each_s))
    return known


def came(count: int, every_s: float) -> PastArrivals:
    arrivals = PastArrivals()
    for number in range(count):
        arrivals.learn(EndedRun(gang(f"old-{number}", created_s=NOW - every_s * (count - number)), 600.0))
    return arrivals


@given(st.lists(st.floats(60, 1e5), min_size=10, max_size=60), st.integers(1, 15))
def test_each_gang_meets_every_part_of_the_past_in_some_future(ran_s: list[float], futures: int) -> None:
    """Levels are spread evenly: each gang has one future in each part of the past, in its order."""
    snapshot, known = waiting(3), known_of(*ran_s)
    of = Futures(snapshot, known, PastArrivals(), futures)
    drawn = [of.run_s(number) for number in range(futures)]
    for uid in snapshot.gangs:
        each = Counter(future[uid] for future in drawn)
        most = Counter(ran_s)
        assert all(times <= most[run_s] * (1 + futures // len(ran_s)) + 1 for run_s, times in each.items())
        assert set(each) <= {max(1.0, run_s) for run_s in ran_s}


def test_gangs_that_came_one_after_the_other_run_as_such_gangs_did() -> None:
    """Twenty short runs, then twenty long ones: three gangs of one future are nearly always all short or all long."""
    snapshot, known = waiting(3), known_of(*[60.0] * 20, *[6000.0] * 20)
    of = Futures(snapshot, known, PastArrivals(), 20)
    alike = [len(set(of.run_s(number).values())) == 1 for number in range(20)]
    assert sum(alike) >= 16
    assert 8 <= sum(next(iter(of.run_s(number).values())) == 60.0 for number in range(20)) <= 12


def test_a_gang_that_was_evicted_runs_longer_than_it_had() -> None:
    known = known_of(*[60.0] * 30, *[6000.0] * 10)
    world = World(FleetBuilder().pool().team().queue().build())
    world.waits(gang("evicted", ran_before_s=1000.0, evictions=1))
    world.waits(gang("goes-on", ran_before_s=1000.0, evictions=1, checkpoint_interval_s=10.0))
    drawn = [Futures(world.snapshot(), known, PastArrivals(), 5).run_s(number) for number in range(5)]
    assert {future["uid-evicted"] for future in drawn} == {6000.0}
    assert {future["uid-goes-on"] for future in drawn} == {5000.0}, "it has kept what it did"


def test_work_comes_as_often_as_it_did_and_no_more_than_is_bounded() -> None:
    of = Futures(waiting(1), known_of(*[600.0] * 20), came(96, 1800.0), 10)
    for number in range(10):
        come = of.to_come(number)
        assert len(come) == LEAST_TO_COME
        after_s = [it.at_s - NOW for it in come]
        assert after_s == sorted(after_s)
        assert 0 < after_s[0] <= 2 * 1800.0
        assert 0.7 * 1800.0 * LEAST_TO_COME <= after_s[-1] <= 1.3 * 1800.0 * LEAST_TO_COME
        assert {it.run_s for it in come} == {600.0}
        assert len({it.job.ref.uid for it in come}) == LEAST_TO_COME
        assert all(it.job.suspended and it.job.queue == "q" for it in come)


def test_the_same_snapshot_has_the_same_futures() -> None:
    first, second = (Futures(waiting(3), known_of(*map(float, range(60, 90))), came(50, 600.0), 4) for _ in range(2))
    assert all(first.to_come(it) == second.to_come(it) and first.run_s(it) == second.run_s(it) for it in range(4))


def test_nothing_is_expected_to_come_while_too_little_is_known() -> None:
    assert not Futures(waiting(1), known_of(*[600.0] * 20), came(ENOUGH - 1, 600.0), 10).to_come(0)
    assert not Futures(waiting(1), RunTimes(), came(96, 600.0), 10).to_come(0), "no run time is known"


def test_a_burst_at_the_beginning_does_not_last_for_ever() -> None:
    """All that is known came within two minutes: it comes once a day, not every two minutes."""
    of = Futures(waiting(1), known_of(*[600.0] * 20), came(12, 10.0), 1)
    assert sum(it.at_s < NOW + LEAST_PAST_S / 2 for it in of.to_come(0)) <= 12


def test_gangs_from_before_anybody_looked_say_nothing_and_only_the_newest_are_kept() -> None:
    arrivals = PastArrivals()
    arrivals.note([gang("survivor", created_s=NOW - 30 * DAY_S), gang("new", created_s=NOW + 1)], NOW)
    arrivals.learn(EndedRun(gang("other-survivor", created_s=NOW - 60 * DAY_S), 59 * DAY_S))
    assert arrivals.view()[0] == NOW
    assert [it.gang.name for it in arrivals.view()[1]] == ["ns/new"]
    arrivals.note([gang(f"g{number}", created_s=NOW + 2 + number) for number in range(2 * ARRIVALS_KEPT)], NOW)
    since_s, kept = arrivals.view()
    assert len(kept) <= ARRIVALS_KEPT
    assert since_s >= NOW + 1
    assert kept[-1].gang.state is GangState.PENDING
