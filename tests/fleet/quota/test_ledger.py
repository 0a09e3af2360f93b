"""The ledger: who is asked to go first, and those who leave counting as gone for a while."""

import pytest

from fleet.quota.ledger import AdmittedWorkload
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
    return names(list(made.ledger.staying("a")))


def test_low_priority_goes_first_then_the_newest() -> None:
    assert staying(world()) == ["low", "new", "old"]


def test_the_order_is_kept_while_holders_come_and_go() -> None:
    made = world()
    assert staying(made)
    made.holds("newest", "a", 1, reserved_at_s=3.0)
    made.ledger.remove("low")
    assert staying(made) == ["newest", "new", "old"]
    made.ledger.evict(made.ledger.holders["new"])
    assert staying(made) == ["newest", "old"]
    assert names(list(made.ledger.leaving_of("a"))) == ["new"]


@pytest.mark.parametrize("name", ["low", "new", "old"])
def test_who_is_told_to_leave_twice_leaves_once_and_nobody_with_it(name: str) -> None:
    made = world()
    others = [it for it in staying(made) if it != name]
    for _ in range(2):
        made.ledger.evict(made.ledger.holders[name])
    assert staying(made) == others


def test_who_leaves_counts_as_gone_and_is_there_again() -> None:
    made = world()
    made.ledger.evict(made.ledger.holders["new"])
    start = made.state()
    made.ledger.count_leaving(gone=True)
    assert made.node("a").usage == [4]
    assert not made.ledger.leave_later
    made.ledger.count_leaving(gone=True)
    assert made.node("a").usage == [4], "twice is once"
    made.ledger.count_leaving(gone=False)
    assert made.state() == start


@pytest.mark.parametrize("gone", [True, False])
def test_who_is_told_to_leave_meanwhile_goes_with_the_others(*, gone: bool) -> None:
    made = world()
    made.ledger.count_leaving(gone=gone)
    made.ledger.evict(made.ledger.holders["old"])
    assert made.node("a").usage == [5 if gone else 6]
    made.ledger.count_leaving(gone=False)
    assert made.node("a").usage == [6]


@pytest.mark.parametrize("gone", [True, False])
def test_who_is_gone_in_the_end_is_released_once(*, gone: bool) -> None:
    made = world()
    made.ledger.evict(made.ledger.holders["old"])
    made.ledger.count_leaving(gone=gone)
    made.ledger.remove("old")
    made.ledger.count_leaving(gone=False)
    assert made.node("a").usage == [5]
    assert not made.ledger.leaving
