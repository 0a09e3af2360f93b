"""Who may be preempted, and in which order."""

from typing import Any

import pytest

from fleet.quota.preemption import Victim, candidates_in, fill_back, satisfies_policy
from fleet.quota.specs import CandidatePolicy
from fleet.reasons import Reason
from tests.support.quotas import QuotaWorld, asks, cohort, queue

MINE = {"priority": 5, "at_s": 10.0}


@pytest.mark.parametrize(
    ("policy", "priority", "at_s", "may"),
    [
        pytest.param(CandidatePolicy.NEVER, 0, 99.0, False, id="never"),
        pytest.param(CandidatePolicy.ANY, 9, 0.0, True, id="any, even a higher one"),
        pytest.param(CandidatePolicy.LOWER, 4, 0.0, True, id="lower"),
        pytest.param(CandidatePolicy.LOWER, 5, 99.0, False, id="lower does not mean equal"),
        pytest.param(CandidatePolicy.LOWER_OR_NEWER, 4, 0.0, True, id="lower, however old"),
        pytest.param(CandidatePolicy.LOWER_OR_NEWER, 5, 11.0, True, id="equal and newer"),
        pytest.param(CandidatePolicy.LOWER_OR_NEWER, 5, 10.0, False, id="equal and of the same time"),
        pytest.param(CandidatePolicy.LOWER_OR_NEWER, 5, 9.0, False, id="equal and older"),
        pytest.param(CandidatePolicy.LOWER_OR_NEWER, 6, 99.0, False, id="higher, however new"),
    ],
)
def test_policies(policy: CandidatePolicy, priority: int, at_s: float, may: bool) -> None:
    candidate = asks("candidate", "q", 1, priority=priority, at_s=at_s)
    assert satisfies_policy(policy, asks("preemptor", "q", 1, **MINE), candidate) is may


def test_the_time_that_counts_is_that_in_the_queue() -> None:
    """A workload that was evicted stands where its eviction put it, not where its creation did."""
    candidate = asks("candidate", "q", 1, priority=5, at_s=1.0, queued_at_s=20.0)
    assert satisfies_policy(CandidatePolicy.LOWER_OR_NEWER, asks("preemptor", "q", 1, **MINE), candidate)


# Each row differs from a plain holder (own queue, priority 1, reserved at 5 s) in what its name says.
_ORDERED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("leaving", "mine", {"leaving": True, "priority": 9}),
    ("other-low", "other", {}),
    ("other-high", "other", {"priority": 3}),
    ("low", "mine", {"priority": 0}),
    ("cheap-old", "mine", {"reserved_at_s": 1.0}),
    ("new", "mine", {"reserved_at_s": 8.0, "lost_work_s": 2.0}),
    ("same-a", "mine", {"lost_work_s": 2.0}),
    ("same-b", "mine", {"lost_work_s": 2.0}),
    ("old", "mine", {"reserved_at_s": 2.0, "lost_work_s": 2.0}),
    ("dear", "mine", {"reserved_at_s": 9.0, "lost_work_s": 3.0}),
)


@pytest.mark.parametrize("backwards", [False, True], ids=["as listed", "entered backwards"])
def test_order(*, backwards: bool) -> None:
    """Leaving, other queues, lower priority, least work lost, newest reservation, uid."""
    world = QuotaWorld.of(queue("mine", "root", {"f": 9}), queue("other", "root", {"f": 9}))
    for name, above, more in reversed(_ORDERED) if backwards else _ORDERED:
        world.holds(name, above, 1, **{"priority": 1, "reserved_at_s": 5.0} | more)
    contest = world.contest("preemptor", "mine", 1)
    ordered = contest.ordered(world.ledger.holders.values())
    assert [holder.workload.name for holder in ordered] == [name for name, _, _ in _ORDERED]


def test_in_the_own_queue_the_heavier_local_queue_goes_first() -> None:
    world = QuotaWorld.of(queue("mine", "root", {"f": 9}), queue("other", "root", {"f": 9}))
    world.holds("light", "mine", 1, local_queue="ns/light")
    world.holds("heavy", "mine", 1, local_queue="ns/heavy", priority=5)
    world.holds("elsewhere", "other", 1, local_queue="ns/light", priority=1)
    world.holds("heavy-elsewhere", "other", 1, local_queue="ns/heavy", priority=2)
    contest = world.contest("preemptor", "mine", 1)
    contest.local_usage = {"ns/light": 1.0, "ns/heavy": 7.0}
    names = [holder.workload.name for holder in contest.ordered(world.ledger.holders.values())]
    assert names == ["elsewhere", "heavy-elsewhere", "heavy", "light"]


def test_a_candidate_frees_a_contested_cell_and_may_go() -> None:
    world = QuotaWorld.of(queue("mine", "", {"f": 9, "g": 9}))
    world.holds("yes", "mine", 1)
    world.holds("both", "mine", {"f": 1, "g/gpu": 1})
    world.holds("other-flavor", "mine", {"g": 1})
    world.holds("protected", "mine", 1, protected=True)
    world.holds("higher", "mine", 1, priority=8)
    world.ledger.lift(world.holds("lifted", "mine", 1))
    contest = world.contest("preemptor", "mine", 1, priority=5)

    def found(policy: CandidatePolicy) -> set[str]:
        return {holder.workload.name for holder in candidates_in(contest, world.node("mine"), policy, leaving=False)}

    assert found(CandidatePolicy.LOWER) == {"yes", "both"}
    assert found(CandidatePolicy.ANY) == {"yes", "both", "higher"}
    assert found(CandidatePolicy.NEVER) == set()


@pytest.mark.parametrize(
    ("wanted", "borrowing", "fits"),
    [(4, True, True), (4, False, True), (6, True, True), (6, False, False), (11, True, False)],
)
def test_fits_with_and_without_borrowing(wanted: int, borrowing: bool, fits: bool) -> None:
    world = QuotaWorld.of(queue("mine", "root", {"f": 4}), queue("other", "root", {"f": 6}))
    assert world.contest("w", "mine", wanted).fits(borrowing=borrowing) is fits


def test_fits_asks_the_ground_last() -> None:
    world = QuotaWorld.of(queue("mine", "", {"f": 4}))
    contest = world.contest("w", "mine", 4)
    contest.finds_place = lambda: False
    assert not contest.fits()


def taken(world: QuotaWorld, *names: str) -> list[Victim]:
    """These holders lifted, in order."""
    victims = [Victim(world.ledger.holders[name], Reason.PREEMPTED) for name in names]
    for victim in victims:
        world.ledger.lift(victim.holder)
    return victims


@pytest.mark.parametrize(
    ("sizes", "wanted", "kept"),
    [
        pytest.param((1, 1, 4), 4, ["c"], id="the last alone is enough"),
        pytest.param((1, 2, 4), 5, ["a", "c"], id="the second-last is looked at first"),
        pytest.param((2, 1, 4), 7, ["a", "c", "b"], id="all are needed; nobody moves"),
    ],
)
def test_fill_back(sizes: tuple[int, ...], wanted: int, kept: list[str]) -> None:
    world = QuotaWorld.of(queue("mine", "", {"f": sum(sizes)}))
    for name, size in zip("abc", sizes, strict=True):
        world.holds(name, "mine", size)
    contest = world.contest("w", "mine", wanted)
    left = fill_back(contest, taken(world, "a", "b", "c"), borrowing=True)
    assert sorted(victim.holder.workload.name for victim in left) == sorted(kept)
    assert {name for name, holder in world.ledger.holders.items() if holder.out} == set(kept)


def test_fill_back_moves_the_last_into_the_hole() -> None:
    """d is needed; c goes back and e moves to its place; b goes back and d, now the last, moves to its; a is needed."""
    world = QuotaWorld.of(queue("mine", "", {"f": 10}))
    for name, size in zip("abcde", (1, 1, 1, 3, 4), strict=True):
        world.holds(name, "mine", size)
    left = fill_back(world.contest("w", "mine", 8), taken(world, *"abcde"), borrowing=True)
    assert [victim.holder.workload.name for victim in left] == ["a", "d", "e"]


def test_fill_back_without_borrowing_puts_fewer_back() -> None:
    world = QuotaWorld.of(cohort("root", "", {"f": 4}), queue("mine", "root", {"f": 4}))
    for name in "abc":
        world.holds(name, "mine", 2)
    contest = world.contest("w", "mine", 2)
    assert len(fill_back(contest, taken(world, *"abc"), borrowing=True)) == 1
    for victim in world.ledger.holders.values():
        if victim.out:
            world.ledger.put_back(victim)
    assert len(fill_back(contest, taken(world, *"abc"), borrowing=False)) == 2


def test_fill_back_hears_objections() -> None:
    world = QuotaWorld.of(queue("mine", "", {"f": 3}))
    for name in "abc":
        world.holds(name, "mine", 1)
    seen: list[list[str]] = []

    def keep_b(left: list[Victim]) -> bool:
        seen.append([victim.holder.workload.name for victim in left])
        return "b" in seen[-1]

    left = fill_back(world.contest("w", "mine", 1), taken(world, *"abc"), borrowing=True, still_right=keep_b)
    assert seen == [["a", "c"], ["c", "b"]]
    assert [victim.holder.workload.name for victim in left] == ["c", "b"]
