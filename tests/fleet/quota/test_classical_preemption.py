"""Classical preemption: who is taken, in which attempt, and who is put back."""

from typing import Any

import pytest

from fleet.quota.preemption import classical_preemptions
from fleet.quota.specs import CandidatePolicy, QueuePreemption, QuotaCohortSpec, QuotaQueueSpec
from fleet.reasons import Reason
from tests.support.quotas import ALL, BORROWING, RECLAIM, WITHIN, QuotaWorld, cohort, queue, reasons

OWN, RECLAIMED, WHILE = Reason.PREEMPTED, Reason.RECLAIMED, Reason.RECLAIMED_WHILE_BORROWING
Held = tuple[str, str, int, int]
"""Name, queue, amount, priority."""


def world(*specs: QuotaCohortSpec | QuotaQueueSpec, held: tuple[Held, ...]) -> QuotaWorld:
    made = QuotaWorld.of(*specs)
    for index, (name, above, amount, priority) in enumerate(held):
        made.holds(name, above, amount, priority=priority, at_s=float(index), reserved_at_s=float(index))
    return made


def victims(made: QuotaWorld, above: str, wanted: int, **more: Any) -> dict[str, Reason]:
    """Whom a workload of priority 5 would have evicted; the ledger ends as it began."""
    before = made.state()
    found = reasons(
        classical_preemptions(made.contest("preemptor", above, wanted, **{"priority": 5, "at_s": 50.0} | more))
    )
    assert made.state() == before
    assert not any(holder.out for holder in made.ledger.holders.values())
    return found


def pair(
    preemption: QueuePreemption, *, own: int = 6, other: int = 6, **more: Any
) -> tuple[QuotaQueueSpec, QuotaQueueSpec]:
    """Queue `a` with a policy beside queue `b` without one."""
    return queue("a", "root", {"f": own}, preemption=preemption, **more), queue("b", "root", {"f": other})


# -- the own queue ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "wanted", "found"),
    [
        pytest.param(CandidatePolicy.NEVER, 1, {}, id="never"),
        pytest.param(CandidatePolicy.LOWER, 1, {"low-new": OWN}, id="the newest of the lowest"),
        pytest.param(CandidatePolicy.LOWER, 4, {"low-new": OWN, "low-old": OWN}, id="one after the other"),
        pytest.param(CandidatePolicy.LOWER, 5, {}, id="not enough may go"),
        pytest.param(
            CandidatePolicy.LOWER_OR_NEWER, 5, {"low-new": OWN, "low-old": OWN, "equal-new": OWN}, id="equal and newer"
        ),
        pytest.param(CandidatePolicy.LOWER_OR_NEWER, 7, {}, id="but not equal and older"),
    ],
)
def test_own_queue(policy: CandidatePolicy, wanted: int, found: dict[str, Reason]) -> None:
    held = (("low-old", "a", 2, 1), ("low-new", "a", 2, 1), ("equal-old", "a", 2, 5), ("equal-new", "a", 2, 5))
    made = world(queue("a", "", {"f": 8}, preemption=QueuePreemption(policy)), held=held)
    assert victims(made, "a", wanted, at_s=2.5) == found


def test_only_holders_of_a_contested_cell_go() -> None:
    made = QuotaWorld.of(queue("a", "", {"f": 4, "g": 4}, preemption=WITHIN))
    made.holds("on-g", "a", {"g": 4})
    made.holds("on-f", "a", {"f": 4}, priority=1)
    found = classical_preemptions(made.contest("w", "a", {"f": 1, "g/cpu": 0}, cells=("f",), priority=5))
    assert reasons(found) == {"on-f": OWN}


# -- the cohort -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preemption", "held", "wanted", "found"),
    [
        pytest.param(QueuePreemption(), (("x", "b", 12, 0),), 6, {}, id="no policy"),
        pytest.param(RECLAIM, (("x", "b", 12, 9),), 6, {"x": RECLAIMED}, id="what one is entitled to, from anybody"),
        pytest.param(
            QueuePreemption(reclaim=CandidatePolicy.LOWER),
            (("x", "b", 12, 9),),
            6,
            {},
            id="or only from lower priorities",
        ),
        pytest.param(RECLAIM, (("x", "b", 6, 0), ("y", "a", 3, 0)), 6, {}, id="nothing from a queue within its quota"),
        pytest.param(
            RECLAIM,
            (("x", "b", 3, 0), ("y", "b", 3, 0), ("z", "b", 3, 0)),
            6,
            {"z": RECLAIMED},
            id="no more than it takes",
        ),
        pytest.param(
            RECLAIM,
            (("x", "b", 6, 0), ("y", "b", 3, 1), ("z", "b", 3, 2)),
            6,
            {"x": RECLAIMED},
            id="the lowest first, even if that is the largest",
        ),
        pytest.param(
            RECLAIM,
            (("x", "b", 1, 0), ("y", "b", 11, 1)),
            6,
            {"y": RECLAIMED},
            id="the first is put back when the last was enough",
        ),
        pytest.param(RECLAIM, (("x", "b", 12, 0),), 7, {}, id="but no more than that"),
    ],
)
def test_cohort(preemption: QueuePreemption, held: tuple[Held, ...], wanted: int, found: dict[str, Reason]) -> None:
    """Queues `a` and `b` with six each."""
    assert victims(world(*pair(preemption), held=held), "a", wanted) == found


def test_others_before_own() -> None:
    """Those who take what the queue is entitled to go before its own."""
    made = world(*pair(ALL), held=(("own", "a", 2, 0), ("theirs", "b", 8, 4)))
    assert victims(made, "a", 4) == {"theirs": RECLAIMED}


def test_own_go_where_others_are_not_enough() -> None:
    made = world(*pair(ALL), held=(("own", "a", 5, 0), ("theirs", "b", 7, 4)))
    assert victims(made, "a", 6) == {"theirs": RECLAIMED, "own": OWN}


def test_a_subtree_that_was_within_quota_in_the_meantime_is_left_alone() -> None:
    """Once the first is gone `b` borrows nothing any more; the rest has to come from the own queue."""
    held = (("x", "b", 4, 0), ("y", "b", 4, 1), ("own", "a", 4, 2))
    made = world(*pair(ALL), held=held)
    assert victims(made, "a", 6) == {"x": RECLAIMED, "own": OWN}


def test_leaving_ones_are_taken_before_all_others() -> None:
    made = world(*pair(ALL), held=(("x", "b", 4, 0), ("y", "b", 4, 0)))
    made.holds("going", "a", 4, priority=3, leaving=True)
    assert victims(made, "a", 4) == {"going": OWN}


def test_protected_ones_stay() -> None:
    made = world(*pair(RECLAIM), held=(("x", "b", 8, 0),))
    made.holds("saved", "b", 4, protected=True)
    assert victims(made, "a", 4) == {"x": RECLAIMED}
    made.ledger.holders["x"].protected = True
    assert victims(made, "a", 4) == {}


# -- borrowing --------------------------------------------------------------------------------------------------------

LOWER_FOREIGN = QueuePreemption(
    CandidatePolicy.LOWER, CandidatePolicy.ANY, CandidatePolicy.LOWER, while_borrowing_below=2
)


@pytest.mark.parametrize(
    ("preemption", "priority", "wanted", "found"),
    [
        pytest.param(ALL, 0, 7, {}, id="off"),
        pytest.param(BORROWING, 0, 7, {"x": WHILE}, id="a lower priority"),
        pytest.param(BORROWING, 5, 7, {}, id="not an equal one"),
        pytest.param(LOWER_FOREIGN, 2, 7, {"x": WHILE}, id="up to the threshold"),
        pytest.param(LOWER_FOREIGN, 3, 7, {}, id="not above it"),
        pytest.param(LOWER_FOREIGN, 3, 6, {"x": RECLAIMED}, id="the threshold does not limit what one is entitled to"),
    ],
)
def test_preemption_while_borrowing(
    preemption: QueuePreemption, priority: int, wanted: int, found: dict[str, Reason]
) -> None:
    """`b` holds 8 of its 6, a third queue's 4 are free: 7 for `a` means borrowing."""
    specs = (*pair(preemption), queue("c", "root", {"f": 4}))
    made = world(*specs, held=(("x", "b", 10, priority),))
    assert victims(made, "a", wanted) == found


def ones(above: str, count: int) -> tuple[Held, ...]:
    """So many holders of one each, the first to go first."""
    return tuple((f"own-{index}", above, 1, index) for index in range(count))


@pytest.mark.parametrize(
    ("preemption", "held", "wanted", "found"),
    [
        pytest.param(
            ALL,
            (*ones("a", 3), ("theirs", "b", 7, 9)),
            5,
            {"own-0": OWN, "own-1": OWN},
            id="below its quota and entitled to nothing: first without borrowing, where one would do with it",
        ),
        pytest.param(
            WITHIN,
            (*ones("a", 3), ("theirs", "b", 7, 9)),
            5,
            {"own-0": OWN},
            id="no candidates elsewhere: only with borrowing",
        ),
        pytest.param(
            ALL,
            (*ones("a", 6), ("theirs", "b", 7, 9)),
            2,
            {"own-0": OWN},
            id="not below its quota: only with borrowing",
        ),
        pytest.param(
            BORROWING,
            (*ones("a", 2), ("theirs", "b", 10, 11)),
            6,
            {"theirs": RECLAIMED, "own-0": OWN, "own-1": OWN},
            id="may borrow: with it first, but then nobody of higher priority goes; without it they do",
        ),
        pytest.param(
            ALL,
            (*ones("a", 1), ("theirs", "b", 12, 9)),
            5,
            {"theirs": RECLAIMED},
            id="entitled: with borrowing first",
        ),
    ],
)
def test_attempts(preemption: QueuePreemption, held: tuple[Held, ...], wanted: int, found: dict[str, Reason]) -> None:
    """Six each for `a` and `b`, two that are nobody's."""
    made = world(*pair(preemption), queue("c", "root", {"f": 2}), held=held)
    assert victims(made, "a", wanted, priority=10) == found


# -- trees ------------------------------------------------------------------------------------------------------------

TREE = (
    cohort("root"),
    cohort("left", "root"),
    cohort("right", "root"),
    queue("a", "left", {"f": 4}, preemption=ALL),
    queue("sibling", "left", {"f": 4}),
    queue("cousin-1", "right", {"f": 4}),
    queue("cousin-2", "right", {"f": 4}),
)


@pytest.mark.parametrize(
    ("held", "wanted", "found"),
    [
        pytest.param(
            (("s", "sibling", 8, 0), ("c", "cousin-1", 8, 0)), 4, {"s": RECLAIMED}, id="who is over in one's own cohort"
        ),
        pytest.param(
            (("s", "sibling", 4, 0), ("c1", "cousin-1", 8, 0), ("c2", "cousin-2", 4, 0)),
            4,
            {"c1": RECLAIMED},
            id="who is over in a cohort that is over",
        ),
        pytest.param(
            (("s", "sibling", 8, 0), ("c1", "cousin-1", 8, 0)),
            5,
            {},
            id="nobody, of a cohort that is within its quota",
        ),
        pytest.param(
            (("s", "sibling", 2, 9), ("s2", "sibling", 4, 10), ("c1", "cousin-1", 3, 0), ("c2", "cousin-1", 7, 8)),
            4,
            {"c1": RECLAIMED, "s": RECLAIMED},
            id="both, once the cousins' cohort is within its quota",
        ),
    ],
)
def test_three_levels(held: tuple[Held, ...], wanted: int, found: dict[str, Reason]) -> None:
    assert victims(world(*TREE, held=held), "a", wanted) == found


def test_entitled_by_the_cohort_above() -> None:
    """Borrowing from one's own cohort's quota, a cousin that borrows from the root is taken for it."""
    made = world(
        cohort("root"),
        cohort("left", "root", {"f": 6}),
        queue("a", "left", {"f": 0}, preemption=ALL),
        queue("cousin", "root", {"f": 2}),
        held=(("c", "cousin", 8, 9),),
    )
    assert victims(made, "a", 6) == {"c": RECLAIMED}
    assert victims(made, "a", 7) == {}


def test_hierarchical_before_priority() -> None:
    """`left` is entitled to what the cousin has, `a` itself not to what its sibling has: priority comes second."""
    made = world(
        cohort("root"),
        cohort("left", "root"),
        queue("a", "left", {"f": 2}, preemption=BORROWING),
        queue("sibling", "left", {"f": 4}),
        queue("idle", "left", {"f": 2}),
        queue("cousin", "root", {"f": 2}),
        held=(("s", "sibling", 5, 0), ("c", "cousin", 5, 9)),
    )
    assert victims(made, "a", 3) == {"c": RECLAIMED}
    made.ledger.holders["c"].protected = True
    assert victims(made, "a", 3) == {"s": WHILE}


# -- order of fill back -----------------------------------------------------------------------------------------------


def test_fill_back_looks_at_the_second_last_first() -> None:
    """1+1+1+5 are taken for 6: the third goes back, then the second; the first and the last are what is needed."""
    held = (("p", "a", 5, 3), ("z", "a", 1, 0), ("y", "a", 1, 1), ("x", "a", 1, 2))
    made = world(queue("a", "", {"f": 8}, preemption=WITHIN), held=held)
    assert victims(made, "a", 6) == {"z": OWN, "p": OWN}


# -- a queue below a team ---------------------------------------------------------------------------------------------


def test_siblings_of_a_team_give_way_to_higher_priorities_only() -> None:
    specs = (
        cohort("root"),
        cohort("team", "root", {"f": 6}),
        queue("q1", "team", {}, through_team=True),
        queue("q2", "team", {}, through_team=True),
        queue("other", "root", {"f": 6}),
    )
    made = world(*specs, held=(("low", "q2", 4, 0), ("high", "q2", 2, 9), ("full", "other", 6, 0)))
    assert victims(made, "q1", 4) == {"low": OWN}
    assert victims(made, "q1", 5) == {}
