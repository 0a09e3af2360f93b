"""Terms begin and end; every instant is chosen."""

import pytest

from providers.kube.elector import ElectionTiming, FencingToken
from providers.kube.errors import Unreachable
from tests.providers.kube.electing import ElectionCandidate, ElectionWorld, MemoryLease, SkewedClock

TIMING = ElectionTiming()


@pytest.fixture
def world() -> ElectionWorld:
    return ElectionWorld()


@pytest.fixture
def lease() -> MemoryLease:
    return MemoryLease()


@pytest.fixture
def ada(world: ElectionWorld, lease: MemoryLease) -> ElectionCandidate:
    return ElectionCandidate(world, lease, "ada", TIMING)


@pytest.fixture
def bob(world: ElectionWorld, lease: MemoryLease) -> ElectionCandidate:
    return ElectionCandidate(world, lease, "bob", TIMING, SkewedClock(world, offset_s=1e6))


def pass_time(world: ElectionWorld, seconds: float, *candidates: ElectionCandidate, tick_s: float = 0.25) -> None:
    """Let time pass; the candidates step when they are due."""
    until_s = world.now_s + seconds
    while world.now_s < until_s:
        world.now_s += tick_s
        for candidate in candidates:
            if candidate.due():
                candidate.step()


@pytest.mark.parametrize(
    ("lease_s", "renew_s", "retry_s"),
    [(10, 10.0, 2.0), (15, 10.0, 10.0), (15, 10.0, 9.0), (15, 10.0, 0.0), (5, 9.0, 1.0)],
)
def test_timings_that_could_elect_two_or_none_are_refused(lease_s: int, renew_s: float, retry_s: float) -> None:
    with pytest.raises(ValueError, match="lease_s > renew_s"):
        ElectionTiming(lease_s, renew_s, retry_s)


def test_an_identity_is_needed(world: ElectionWorld, lease: MemoryLease) -> None:
    with pytest.raises(ValueError, match="identity"):
        ElectionCandidate(world, lease, "", TIMING)


def test_the_first_comes_to_lead_and_stays(
    world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate, bob: ElectionCandidate
) -> None:
    ada.step()
    bob.step()
    pass_time(world, 300, ada, bob)
    assert ada.started == [FencingToken(0, "uid-1")] == [ada.elector.token]
    assert (ada.lost, bob.started, bob.elector.token) == ([], [], None)
    assert bob.elector.holder == "ada"
    assert 140 <= lease.writes <= 160  # a renewal each two seconds


def test_a_leader_that_vanishes_is_replaced_after_the_lease(
    world: ElectionWorld, ada: ElectionCandidate, bob: ElectionCandidate
) -> None:
    ada.step()
    bob.step()
    pass_time(world, 9.75, bob)
    assert ada.elector.leading()
    pass_time(world, 0.25, bob)
    assert not ada.elector.leading()  # nobody stepped it: the clock alone ended the term
    pass_time(world, 4.75, bob)
    assert not bob.elector.leading()
    pass_time(world, 3.0, bob)
    assert bob.started == [FencingToken(1, "uid-1")]
    ada.step()
    assert ada.lost == ["not renewed in time"]
    assert ada.elector.holder == "bob"


def test_release_is_taken_up_at_once(
    world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate, bob: ElectionCandidate
) -> None:
    ada.step()
    bob.step()
    ada.elector.release()
    assert ada.lost == ["released"]
    assert lease.record is not None
    assert (lease.record.holder, lease.record.duration_s) == ("", 1)
    pass_time(world, 2.5, bob)
    assert bob.started == [FencingToken(1, "uid-1")]
    ada.elector.release()
    assert ada.lost == ["released"]  # a second release is none


def test_hands_are_still_before_the_lease_is_free(lease: MemoryLease, ada: ElectionCandidate) -> None:
    held: list[str] = []
    ada.elector._on_lost = lambda _: held.append(lease.record.holder if lease.record else "")
    ada.step()
    ada.elector.release()
    assert held == ["ada"]


def test_release_after_the_deadline_leaves_the_lease_alone(
    world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate
) -> None:
    ada.step()
    world.now_s += 11
    writes = lease.writes
    ada.elector.release()
    assert (ada.lost, lease.writes) == (["released"], writes)


def test_release_without_an_answer_is_no_error(lease: MemoryLease, ada: ElectionCandidate) -> None:
    ada.step()
    lease.fail(Unreachable("down"))
    ada.elector.release()
    assert not ada.elector.leading()


def test_an_outage_shorter_than_the_deadline_is_survived(
    world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate
) -> None:
    ada.step()
    for _ in range(3):
        lease.fail(Unreachable("down"))
        pass_time(world, 2.0, ada)
    pass_time(world, 30, ada)
    assert (len(ada.started), ada.lost) == (1, [])


def test_an_outage_ends_the_term_at_the_deadline_and_not_later(
    world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate
) -> None:
    def down(_: str) -> None:
        raise Unreachable("down")

    ada.step()
    lease.before = down
    pass_time(world, 10.0, ada)
    assert ada.lost == ["not renewed in time"]


def test_a_renewal_whose_answer_is_lost_does_not_end_the_term(
    world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate
) -> None:
    ada.step()
    lease.fail(Unreachable("lost"), committed=True)
    pass_time(world, 60, ada)
    assert (len(ada.started), ada.lost) == (1, [])


def test_an_acquisition_whose_answer_is_lost_is_waited_out(
    world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate
) -> None:
    lease.fail(Unreachable("lost"), committed=True, verb="create")
    ada.step()
    assert lease.record is not None
    pass_time(world, 14, ada)
    assert ada.started == []
    pass_time(world, 6, ada)
    assert ada.started == [FencingToken(1, "uid-1")]


def test_a_bystander_who_writes_does_not_end_the_term(
    world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate
) -> None:
    ada.step()
    assert lease.record is not None
    lease._commit(lease.record)  # say, an annotation
    pass_time(world, 60, ada)
    assert (len(ada.started), ada.lost) == (1, [])


def test_a_lease_taken_by_force_ends_the_term_at_the_next_renewal(
    world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate
) -> None:
    from dataclasses import replace

    ada.step()
    assert lease.record is not None
    lease._commit(replace(lease.record, holder="eve", transitions=7))
    pass_time(world, 2.25, ada)
    assert ada.lost == ["taken by eve"]
    pass_time(world, 30, ada)
    assert ada.started[-1] == FencingToken(8, "uid-1")


def test_a_deleted_lease_ends_the_term_and_is_not_made_anew_too_soon(
    world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate, bob: ElectionCandidate
) -> None:
    ada.step()
    bob.step()
    lease.record = None
    pass_time(world, 2.25, ada, bob)
    assert ada.lost == ["the lease was deleted"]
    pass_time(world, 10, ada, bob)
    assert len(ada.started) + len(bob.started) == 1
    pass_time(world, 10, ada, bob)
    assert (ada.started + bob.started)[-1] == FencingToken(0, "uid-2")


def test_a_namesake_waits_like_anybody_else(world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate) -> None:
    twin = ElectionCandidate(world, lease, "ada", TIMING)
    ada.step()
    twin.step()
    pass_time(world, 60, ada, twin)
    assert (len(ada.started), twin.started) == (1, [])


def test_a_leader_that_was_suspended_knows_by_either_clock(world: ElectionWorld, ada: ElectionCandidate) -> None:
    ada.step()
    ada.clock.jumped_s = 60.0  # the time of day went on, the monotonic clock stood still
    assert not ada.elector.leading()
    ada.step()
    assert ada.lost == ["not renewed in time"]


def test_a_time_of_day_that_falls_back_prolongs_nothing(world: ElectionWorld, ada: ElectionCandidate) -> None:
    ada.step()
    ada.clock.jumped_s = -3600.0
    world.now_s += 10
    assert not ada.elector.leading()


def test_the_lease_says_how_long_to_wait(world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate) -> None:
    slow = ElectionCandidate(world, lease, "slow", ElectionTiming(60, 40.0, 2.0))
    slow.step()
    ada.step()
    pass_time(world, 58, ada)
    assert ada.started == []
    pass_time(world, 6, ada)
    assert len(ada.started) == 1


def test_calls_are_given_no_more_time_than_the_term_has(
    world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate
) -> None:
    given: list[float] = []
    update = lease.update

    def spy(record, *, now_s, timeout_s):
        given.append(timeout_s)
        return update(record, now_s=now_s, timeout_s=timeout_s)

    lease.update = spy  # type: ignore[method-assign]
    ada.step()
    world.now_s += 9.5
    ada.step()
    world.now_s += 2
    ada.step()
    assert given == [0.5, 2.0]


@pytest.mark.parametrize("verb", ["create", "update"])
def test_a_slow_answer_prolongs_nothing(
    world: ElectionWorld, lease: MemoryLease, ada: ElectionCandidate, verb: str
) -> None:
    """Others count from the effect, which may have come right after the sending; so the term counts from there too."""

    def dawdle(called: str) -> None:
        world.now_s += 9.0 if called == verb else 0.0

    if verb == "update":
        ada.step()
    lease.after = dawdle
    ada.step()
    assert ada.elector.leading()
    world.now_s += 1.0
    assert not ada.elector.leading()
