"""Reservations for overdue workloads, and what may run around them meanwhile."""

from math import inf

import pytest

from fleet.quota.specs import AdmissionRules
from tests.support.quotas import RECLAIM, QuotaWorld, queue

NOW = 1000.0


def world(*, ends_at_s: float = NOW + 100, overdue: bool = True, strict: bool = False) -> QuotaWorld:
    """Eight of quota, six in use until `ends_at_s`; `big` wants all eight."""
    made = QuotaWorld.of(queue("q", given={"f": 8}, strict=strict), rules=AdmissionRules(wait_for_leaving=True))
    made.scheduler.now_s = NOW
    made.holds("running", "q", {"f": 6}).ends_at_s = ends_at_s
    made.waits("big", "q", 8, priority=1, overdue=overdue)
    return made


def admitted(made: QuotaWorld) -> set[str]:
    return {holder.workload.name for holder in made.scheduler.sweep().admitted}


@pytest.mark.parametrize(
    ("runs_s", "passes"),
    [(50.0, True), (100.0, True), (101.0, False), (None, False)],
    ids=["ends long before", "ends just in time", "would be late", "does not say"],
)
def test_who_may_run_around_a_reservation(runs_s: float | None, *, passes: bool) -> None:
    made = world()
    made.waits("small", "q", 2, runs_s=runs_s)
    assert admitted(made) == ({"small"} if passes else set())
    (reservation,) = made.scheduler.reservations
    assert (reservation.held.workload.name, reservation.starts_at_s) == ("big", NOW + 100)


def test_without_being_overdue_nothing_is_reserved() -> None:
    made = world(overdue=False)
    made.waits("small", "q", 2)
    assert admitted(made) == {"small"}
    assert not made.scheduler.reservations


def test_nobody_runs_around_a_reservation_of_which_nobody_knows_when_it_is_due() -> None:
    made = world(ends_at_s=inf)
    made.waits("small", "q", 2, runs_s=1.0)
    assert admitted(made) == set()


def test_one_reservation_a_queue_for_the_first() -> None:
    made = world()
    made.waits("second", "q", 7, overdue=True)
    admitted(made)
    assert [it.held.workload.name for it in made.scheduler.reservations] == ["big"]


def test_what_can_never_run_reserves_nothing() -> None:
    made = QuotaWorld.of(queue("q", given={"f": 8}))
    made.waits("huge", "q", 9, priority=1, overdue=True)
    made.waits("small", "q", 2)
    assert admitted(made) == {"small"}


def test_a_queue_that_borrows_does_not_take_what_another_has_reserved() -> None:
    made = QuotaWorld.of(queue("mine", "root", {"f": 8}), queue("other", "root", {"f": 0}, preemption=RECLAIM))
    made.scheduler.now_s = NOW
    made.holds("running", "mine", {"f": 6}).ends_at_s = NOW + 10
    made.waits("big", "mine", 8, overdue=True)
    made.waits("borrower", "other", 2, priority=9)
    assert admitted(made) == set()


@pytest.mark.parametrize("waited_for", [True, False], ids=["others were evicted for it", "nobody was"])
def test_what_others_gave_back_is_not_for_the_overdue(*, waited_for: bool) -> None:
    """The overdue one borrowed, was evicted by the owner, came back first, and was evicted again, without end."""
    rules = AdmissionRules(preemptors_first=True)
    made = QuotaWorld.of(queue("mine", "root", {"f": 8}), queue("other", "root", {"f": 0}), rules=rules)
    made.waits("owner", "mine", 8, nominated=waited_for)
    made.waits("borrower", "other", 8, overdue=True)
    assert admitted(made) == ({"owner"} if waited_for else {"borrower"})


def test_the_earliest_instant_is_that_of_the_last_who_has_to_end() -> None:
    made = QuotaWorld.of(queue("q", given={"f": 8}))
    made.scheduler.now_s = NOW
    for name, amount, ends_at_s in (("a", 2, 30.0), ("b", 2, 20.0), ("c", 2, 10.0), ("d", 2, inf)):
        made.holds(name, "q", {"f": amount}).ends_at_s = NOW + ends_at_s
    made.waits("big", "q", 4, overdue=True)
    made.scheduler.sweep()
    assert made.scheduler.reservations[0].starts_at_s == NOW + 20


def test_the_books_end_as_they_began_but_for_what_is_reserved() -> None:
    made = world()
    before = list(made.node("q").usage)
    made.scheduler.sweep()
    with made.scheduler.unreserved():
        assert list(made.node("q").usage) == before
    assert made.node("q").usage == [14]
