"""Who may take from whom, on the numbers alone. `s` writes a standing as quota, fair share, used."""

import pytest

from tests.reference.shares.division import UNLIMITED
from tests.reference.shares.reclaim import (
    QueueStanding,
    can_reclaim,
    exceeds_quota,
    exceeds_share,
    fits_quota,
    may_lose,
    saturation,
    stays_below,
    worth_trying,
)


def s(
    quota: float, fair: float, used: float, *, limit: float = UNLIMITED, firm: float = 0.0
) -> dict[str, QueueStanding]:
    return {"gpu": QueueStanding(quota, fair, limit, used, firm)}


def gpus(amount: float) -> dict[str, float]:
    return {"gpu": amount}


@pytest.mark.parametrize(
    ("quota", "fair", "limit", "expected"),
    [
        pytest.param(2, 5, UNLIMITED, 5, id="fair share"),
        pytest.param(6, 5, UNLIMITED, 6, id="quota"),
        pytest.param(6, 5, 4, 4, id="limit"),
        pytest.param(UNLIMITED, 5, 7, 7, id="unlimited quota"),
        pytest.param(UNLIMITED, 5, UNLIMITED, UNLIMITED, id="unlimited"),
    ],
)
def test_what_a_queue_may_keep(quota: float, fair: float, limit: float, expected: float) -> None:
    assert QueueStanding(quota, fair, limit).allocatable == expected


@pytest.mark.parametrize(
    ("queue", "required", "preemptible", "expected"),
    [
        pytest.param(s(2, 4, 3), 1, True, True, id="reaches its fair share"),
        pytest.param(s(2, 4, 4), 1, True, False, id="goes above it"),
        pytest.param(s(2, 4, 3, firm=1), 1, False, True, id="firm work within quota"),
        pytest.param(s(2, 4, 3, firm=2), 1, False, False, id="firm work above quota"),
        pytest.param(s(UNLIMITED, UNLIMITED, 99), 1, False, True, id="unlimited"),
    ],
)
def test_who_may_reclaim(queue: dict[str, QueueStanding], required: float, preemptible: bool, expected: bool) -> None:
    assert can_reclaim(queue, gpus(required), preemptible=preemptible) is expected


@pytest.mark.parametrize(
    ("mine", "required", "theirs", "remaining", "expected"),
    [
        pytest.param(s(0, 4, 0), 1, s(2, 4, 6), 6, True, id="the victim is above its fair share"),
        pytest.param(s(0, 4, 0), 1, s(2, 4, 6), 4, False, id="and was, before it lost the rest"),
        pytest.param(s(2, 4, 1), 1, s(2, 4, 4), 4, True, id="quota beats surplus"),
        pytest.param(s(2, 4, 1), 1, s(2, 4, 4), 2, False, id="but not quota"),
        pytest.param(s(2, 4, 2), 1, s(2, 4, 4), 4, False, id="surplus does not beat surplus within the share"),
    ],
)
def test_who_may_lose(
    mine: dict[str, QueueStanding], required: float, theirs: dict[str, QueueStanding], remaining: float, expected: bool
) -> None:
    assert may_lose(mine, gpus(required), theirs, gpus(remaining)) is expected


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        pytest.param(s(2, 2, 0), s(2, 2, 3), True, id="above quota"),
        pytest.param(s(2, 2, 0), s(2, 2, 1), False, id="below quota"),
        pytest.param(s(2, 2, 0), s(2, 2, 2), True, id="just at quota: not worth ruling out"),
        pytest.param(s(0, 2, 0), s(0, 2, 2), False, id="mine is no quota and theirs is their share"),
        pytest.param(s(0, 2, 0), s(0, 2, 3), True, id="mine is no quota and theirs is above their share"),
    ],
)
def test_worth_trying(mine: dict[str, QueueStanding], theirs: dict[str, QueueStanding], expected: bool) -> None:
    assert worth_trying(mine, gpus(1), theirs) is expected


@pytest.mark.parametrize(
    ("after", "sibling_after", "multiplier", "expected"),
    [
        pytest.param(4, 9, 1.0, True, id="within the fair share anything goes"),
        pytest.param(5, 7, 1.0, True, id="above it, but less than the sibling"),
        pytest.param(5, 5, 1.0, False, id="as much as the sibling: they would take turns for ever"),
        pytest.param(5, 7, 2.0, False, id="not enough less"),
    ],
)
def test_stays_below(after: float, sibling_after: float, multiplier: float, expected: bool) -> None:
    queue = s(0, 4, 0)
    assert stays_below(queue, gpus(after), queue, gpus(sibling_after), frozenset({"gpu"}), multiplier) is expected


@pytest.mark.parametrize(
    ("used", "fair", "expected"),
    [(2, 4, 0.5), (0, 0, 0.0), (1, 0, float("inf")), (9, UNLIMITED, 0.0)],
)
def test_saturation(used: float, fair: float, expected: float) -> None:
    assert saturation(used, fair) == expected


def test_unlimited_is_never_exceeded() -> None:
    queue = s(UNLIMITED, UNLIMITED, 50)
    assert fits_quota(queue, gpus(50))
    assert not exceeds_quota(queue, gpus(50))
    assert not exceeds_share(queue, gpus(50))
