"""The books: who is asked to go first, and those who leave counting as gone for a while."""

import pytest

from fleet.quota.workload import AdmittedWorkload
from tests.support.quotas import QuotaWorld, queue


def world() -> QuotaWorld:
    made = QuotaWorld.of(queue("a", "", {"f": 20}))
    made.holds("old", "a", 1, reserved_at_s=1.0)
    made.holds("new", "a", 2, reserved_at_s=2.0)
    made.holds("low", "a", 3, priority=-1, reserved_at_s=1.0)
    return made


def names(holders: list[AdmittedWorkload] | tuple[AdmittedWorkload, ...]) -> list[str]:
    return [holder.workload.name for holder in holders]


def staying(made: QuotaWorld) -> list[str]:
    return names(list(made.books.staying("a")))


def test_low_priority_goes_first_then_the_newest() -> None:
    assert staying(world()) == ["low", "new", "old"]


def test_the_order_is_kept_while_holders_come_and_go() -> None:
    made = world()
    assert staying(made)
    made.holds("newest", "a", 1, reserved_at_s=3.0)
    made.books.strike("low")
    assert staying(made) == ["newest", "new", "old"]
    made.books.evict(made.books.holders["new"])
    assert staying(made) == ["newest", "old"]
    assert names(list(made.books.leaving_of("a"))) == ["new"]


def test_who_leaves_counts_as_gone_and_is_there_again() -> None:
    made = world()
    made.books.evict(made.books.holders["new"])
    start = made.state()
    made.books.part(parted=True)
    assert made.node("a").usage == [4]
    assert not made.books.leave_later
    made.books.part(parted=True)
    assert made.node("a").usage == [4], "twice is once"
    made.books.part(parted=False)
    assert made.state() == start


@pytest.mark.parametrize("parted", [True, False])
def test_who_is_told_to_leave_meanwhile_goes_with_the_others(*, parted: bool) -> None:
    made = world()
    made.books.part(parted=parted)
    made.books.evict(made.books.holders["old"])
    assert made.node("a").usage == [5 if parted else 6]
    made.books.part(parted=False)
    assert made.node("a").usage == [6]


@pytest.mark.parametrize("parted", [True, False])
def test_who_is_gone_in_the_end_is_released_once(*, parted: bool) -> None:
    made = world()
    made.books.evict(made.books.holders["old"])
    made.books.part(parted=parted)
    made.books.strike("old")
    made.books.part(parted=False)
    assert made.node("a").usage == [5]
    assert not made.books.leaving
