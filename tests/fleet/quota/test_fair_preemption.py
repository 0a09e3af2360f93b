"""Fair-sharing preemption: both strategies, what comes before them, and the order of targets."""

from typing import Any

import pytest

from fleet.quota.fair_preemption import TargetQueueOrdering, fair_preemptions
from fleet.quota.specs import CandidatePolicy, PreemptionStrategy, QueuePreemption, QuotaCohortSpec, QuotaQueueSpec
from fleet.reasons import Reason
from tests.support.quotas import ALL, BOTH, RECLAIM, Amounts, QuotaWorld, cohort, queue, reasons

OWN, RECLAIMED, SHARED = Reason.PREEMPTED, Reason.RECLAIMED, Reason.FAIR_SHARING
FINAL, INITIAL = (PreemptionStrategy.FINAL,), (PreemptionStrategy.INITIAL,)
Held = tuple[str, str, int | Amounts, int]
"""Name, queue, amount, priority."""


def world(*specs: QuotaCohortSpec | QuotaQueueSpec, held: tuple[Held, ...]) -> QuotaWorld:
    made = QuotaWorld.of(*specs)
    for index, (name, above, amount, priority) in enumerate(held):
        made.holds(name, above, amount, priority=priority, at_s=float(index), reserved_at_s=float(index))
    return made


def victims(
    made: QuotaWorld, above: str, wanted: int | Amounts, strategies: tuple[PreemptionStrategy, ...] = BOTH, **more: Any
) -> dict[str, Reason]:
    """Whom a workload of priority 5 would have evicted; the ledger ends as it began."""
    before = made.state()
    contest = made.contest("preemptor", above, wanted, **{"priority": 5, "at_s": 50.0} | more)
    found = reasons(fair_preemptions(contest, strategies))
    assert made.state() == before
    assert not any(holder.out for holder in made.ledger.holders.values())
    return found


def three(**weights: float) -> tuple[QuotaCohortSpec | QuotaQueueSpec, ...]:
    """Queues `a`, `b` and `c` with three each, three more in the cohort."""
    return (
        cohort("root", "", {"f": 3}),
        *(queue(name, "root", {"f": 3}, preemption=ALL, weight=weights.get(name, 1.0)) for name in "abc"),
    )


def ones(above: str, count: int, priority: int = 0) -> tuple[Held, ...]:
    return tuple((f"{above}{index}", above, 1, priority) for index in range(count))


# -- before any strategy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "wanted", "found"),
    [
        pytest.param(
            (*ones("b", 12),), 3, dict.fromkeys(("b11", "b10", "b9"), RECLAIMED), id="within nominal: what is its own"
        ),
        pytest.param(
            (("big", "b", 12, 9),), 3, {"big": RECLAIMED}, id="whatever the shares would say of that, and any priority"
        ),
        pytest.param((*ones("b", 3), ("big", "c", 9, 0)), 3, {"big": RECLAIMED}, id="nothing of who does not borrow"),
        pytest.param(
            (*ones("b", 6), *ones("c", 6)), 2, {"b5": RECLAIMED, "c5": RECLAIMED}, id="of the highest share, taken anew"
        ),
    ],
)
def test_within_nominal(held: tuple[Held, ...], wanted: int, found: dict[str, Reason]) -> None:
    assert victims(world(*three(), held=held), "a", wanted) == found


def test_the_policy_still_holds() -> None:
    never = (queue("a", "root", {"f": 3}), queue("b", "root", {"f": 3}))
    assert victims(world(*never, held=ones("b", 6)), "a", 1) == {}
    lower = (
        queue("a", "root", {"f": 3}, preemption=QueuePreemption(reclaim=CandidatePolicy.LOWER)),
        queue("b", "root", {"f": 3}),
    )
    held = (*ones("b", 5), ("high", "b", 1, 9))
    assert victims(world(*lower, held=held), "a", 2) == {"b4": RECLAIMED, "b3": RECLAIMED}
    assert victims(world(*lower, held=(("high", "b", 6, 5),)), "a", 2) == {}


def test_a_queue_on_its_own_takes_from_itself_only() -> None:
    made = world(queue("a", "", {"f": 4}, preemption=ALL), held=(*ones("a", 3), ("high", "a", 1, 9)))
    assert victims(made, "a", 2) == {"a2": OWN, "a1": OWN}
    assert victims(made, "a", 4) == {}


def team(*held: Held) -> QuotaWorld:
    """Two queues through a team that has twelve, of which it uses less, and one beside it that borrows all else."""
    specs = (
        cohort("root", "", {"f": 12}),
        cohort("team", "root", {"f": 12}),
        queue("a", "team", {}, preemption=ALL, through_team=True),
        queue("b", "team", {}, preemption=ALL, through_team=True),
        queue("c", "root"),
    )
    return world(*specs, held=held)


def test_of_one_team_neither_queue_is_entitled_to_what_the_other_holds() -> None:
    """What the team is within of is as much the one's as the other's: shares decide, and nothing goes in turns."""
    made = team(("big", "b", 8, 0), ("else", "c", 14, 0))
    assert victims(made, "a", 4) == {"else": RECLAIMED}, "it borrows, and the team is within its own"
    place = made.contest("preemptor", "a", 4, priority=5, at_s=50.0)
    place.finds_place = lambda: made.ledger.holders["big"].out
    assert reasons(fair_preemptions(place, BOTH)) == {"big": SHARED}
    there = team(("small", "a", 4, 0), ("else", "c", 14, 0))
    place = there.contest("preemptor", "b", 8, priority=5, at_s=50.0)
    place.finds_place = lambda: there.ledger.holders["small"].out
    assert reasons(fair_preemptions(place, BOTH)) == {}


# -- the strategies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategies", "held", "wanted", "found"),
    [
        pytest.param(FINAL, (*ones("a", 3, 5), *ones("b", 9)), 1, {"b8": SHARED}, id="final: 1 against 6 - 1"),
        pytest.param(
            FINAL,
            (*ones("a", 3, 5), *ones("b", 9)),
            3,
            dict.fromkeys(("b8", "b7", "b6"), SHARED),
            id="final: until equal",
        ),
        pytest.param(FINAL, (*ones("a", 3, 5), *ones("b", 9)), 4, {}, id="final: not past an equal share"),
        pytest.param(BOTH, (*ones("a", 3, 5), *ones("b", 9)), 4, {}, id="both: nor would the second"),
        pytest.param(FINAL, (*ones("a", 5, 5), *ones("b", 7)), 1, {"b6": SHARED}, id="final: equal afterwards"),
        pytest.param(FINAL, (*ones("a", 3, 5), ("big", "b", 9, 0)), 1, {}, id="final: a large one leaves nothing"),
        pytest.param(
            FINAL,
            (*ones("a", 3, 5), ("big", "b", 6, 0), ("small", "b", 3, 1)),
            1,
            {"small": SHARED},
            id="final: the next one of the queue where the first leaves too little",
        ),
        pytest.param(INITIAL, (*ones("a", 3, 5), ("big", "b", 9, 0)), 1, {"big": SHARED}, id="initial: more before"),
        pytest.param(
            INITIAL, (*ones("a", 5, 5), *ones("b", 6), ("c", "c", 1, 5)), 1, {}, id="initial: not from an equal"
        ),
        pytest.param(
            BOTH,
            (*ones("a", 3, 5), ("big", "b", 9, 0)),
            1,
            {"big": SHARED},
            id="both: the second where the first fails",
        ),
        pytest.param(
            BOTH,
            (*ones("a", 3, 5), ("big", "b", 5, 0), ("small", "b", 4, 1)),
            4,
            {"big": SHARED},
            id="both: of those the first passed over, one a queue",
        ),
        pytest.param(FINAL, (("low", "a", 6, 0), *ones("b", 6)), 1, {"low": OWN}, id="the own queue where it has most"),
        pytest.param(
            FINAL,
            (("low", "a", 4, 0), ("high", "a", 2, 9), ("big", "b", 6, 0)),
            5,
            {},
            id="the own queue first, and that is not enough",
        ),
    ],
)
def test_strategies(
    strategies: tuple[PreemptionStrategy, ...], held: tuple[Held, ...], wanted: int, found: dict[str, Reason]
) -> None:
    """Three each and three of the cohort, all taken: a share is what is held past three."""
    made = world(*three(), held=held)
    assert made.node("root").unused(made.cell()) == 0
    assert victims(made, "a", wanted, strategies) == found


@pytest.mark.parametrize(
    ("weights", "held", "found"),
    [
        pytest.param({"a": 2.0}, (*ones("a", 6, 5), *ones("b", 6)), {"b5": SHARED}, id="4/2 against 3 - 1"),
        pytest.param({"b": 2.0}, (*ones("a", 4, 5), *ones("b", 8)), {"b7": SHARED}, id="2 against 5/2 - 1/2"),
        pytest.param({"b": 3.0}, (*ones("a", 4, 5), *ones("b", 8)), {}, id="2 against less than 2"),
        pytest.param({"a": 0.0}, (*ones("a", 3, 5), *ones("b", 9)), {}, id="without weight one wins nothing"),
        pytest.param({"b": 0.0}, (*ones("a", 7, 5), *ones("b", 5)), {"b4": SHARED}, id="and loses everything"),
        pytest.param(
            {"b": 0.0}, (*ones("a", 8, 5), *ones("b", 4)), {"b3": SHARED}, id="down to its own: initially infinite"
        ),
        pytest.param({"b": 0.0}, (*ones("a", 7, 5), *ones("b", 3), ("c", "c", 2, 0)), {}, id="but not that"),
        pytest.param(
            {"a": 0.0, "b": 0.0}, (*ones("a", 3, 5), *ones("b", 9)), {"b8": SHARED}, id="both without: what they borrow"
        ),
        pytest.param({"a": 0.0, "b": 0.0}, (*ones("a", 6, 5), *ones("b", 6)), {}, id="both without, and equal"),
    ],
)
def test_weights(weights: dict[str, float], held: tuple[Held, ...], found: dict[str, Reason]) -> None:
    """One more for `a`."""
    made = world(*three(**weights), held=held)
    assert made.node("root").unused(made.cell()) == 0
    assert victims(made, "a", 1) == found


def test_victims_come_from_the_highest_share_at_each_step() -> None:
    """Of equals the queue goes whose candidate would: `b` has the newer ones."""
    made = world(*three(), held=(*ones("a", 1, 5), *ones("c", 6), *ones("b", 5)))
    assert list(victims(made, "a", 3, FINAL)) == ["c5", "b4", "c4"]


# -- three levels: almost the lowest common ancestor ------------------------------------------------------------------


def nested(left: float = 1.0, right: float = 1.0) -> tuple[QuotaCohortSpec | QuotaQueueSpec, ...]:
    """Two queues of two in each of two cohorts, four more at the root."""
    return (
        cohort("root", "", {"f": 4}),
        cohort("left", "root", weight=left),
        cohort("right", "root", weight=right),
        *(
            queue(name, above, {"f": 2}, preemption=ALL)
            for name, above in (("a", "left"), ("a2", "left"), ("b", "right"), ("b2", "right"))
        ),
    )


@pytest.mark.parametrize(
    ("specs", "held", "found"),
    [
        pytest.param(
            nested(),
            (*ones("a", 4, 5), *ones("b", 4), *ones("b2", 4)),
            {"b23": SHARED},
            id="other cohort: 1 of left against 4 - 1 of right, whatever a has within left",
        ),
        pytest.param(
            nested(),
            (*ones("a", 6, 5), *ones("b", 3), *ones("b2", 3)),
            {},
            id="other cohort: 3 of left against 2 of right",
        ),
        pytest.param(
            nested(left=3.0),
            (*ones("a", 6, 5), *ones("b", 3), *ones("b2", 3)),
            {"b22": SHARED},
            id="the weights of the cohorts count",
        ),
        pytest.param(
            nested(),
            (*ones("a", 3, 5), *ones("a2", 5), *ones("b", 2), *ones("b2", 2)),
            {"a24": SHARED},
            id="own cohort: queue against queue, 2 against 3 - 1",
        ),
        pytest.param(
            nested(),
            (*ones("a", 4, 5), *ones("a2", 4), *ones("b", 2), *ones("b2", 2)),
            {},
            id="own cohort: 3 against 2",
        ),
    ],
)
def test_whose_shares_are_compared(
    specs: tuple[QuotaCohortSpec | QuotaQueueSpec, ...], held: tuple[Held, ...], found: dict[str, Reason]
) -> None:
    """One more for `a`, of twelve that are all taken."""
    made = world(*specs, held=held)
    assert made.node("root").unused(made.cell()) == 0
    assert victims(made, "a", 1) == found


# -- the order of targets ---------------------------------------------------------------------------------------------


def targets(made: QuotaWorld, above: str) -> list[str]:
    """Queues in the order they are handed out, each candidate lifted when its queue comes."""
    contest = made.contest("preemptor", above, 1)
    found = TargetQueueOrdering.of(contest, contest.ordered(made.ledger.holders.values()))
    order = []
    for node in found:
        order.append(node.name)
        made.ledger.lift(found.left[node.name].pop(0))
    return order


def test_targets_go_by_share_and_end_when_nobody_borrows() -> None:
    """Of equals the queue goes whose candidate would: `c` has the newer ones."""
    made = world(*three(), held=(*ones("b", 5), *ones("c", 7)))
    assert targets(made, "a") == ["c", "c", "c", "b", "c", "b"]


def test_the_own_queue_is_a_target_even_within_its_quota() -> None:
    made = world(*three(), held=(*ones("a", 2), *ones("b", 4)))
    assert targets(made, "a") == ["b", "a", "a"]


def test_a_cohort_goes_before_a_queue_of_equal_share() -> None:
    made = world(
        cohort("root", "", {"f": 4}),
        cohort("deep", "root"),
        queue("a", "root", {"f": 2}, preemption=RECLAIM),
        queue("flat", "root", {"f": 2}),
        queue("inner", "deep", {"f": 2}),
        held=(*ones("flat", 4), *ones("inner", 4)),
    )
    assert targets(made, "a") == ["inner", "flat", "inner", "flat"]


def test_a_dropped_queue_comes_no_more() -> None:
    made = world(*three(), held=(*ones("b", 6), *ones("c", 5)))
    contest = made.contest("preemptor", "a", 1)
    found = TargetQueueOrdering.of(contest, contest.ordered(made.ledger.holders.values()))
    order = []
    for node in found:
        order.append(node.name)
        found.drop(node)
    assert order == ["b", "c"]
