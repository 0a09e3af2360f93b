"""Things upstream gets wrong, as worlds where it shows, and that we do not."""

from dataclasses import replace
from itertools import permutations

import pytest

from fleet.quota.entries import EntryOutcome
from fleet.quota.fair_preemption import fair_preemptions
from fleet.quota.specs import (
    AdmissionRules,
    CandidatePolicy,
    FungibilityPolicy,
    PreemptionStrategy,
    QueueFungibility,
    QueuePreemption,
    QuotaCohortSpec,
    QuotaQueueSpec,
)
from fleet.quota.workload import PreemptionMode
from fleet.reasons import Reason
from tests.support.quotas import BOTH, FAIR, RECLAIM, WITHIN, QuotaWorld, cohort, queue, reasons

LESS_BORROWING = QueueFungibility(FungibilityPolicy.NEXT, FungibilityPolicy.NEXT, prefer_preemption=True)


def defective(rules: AdmissionRules) -> AdmissionRules:
    return replace(rules, upstream_defects=True)


# -- a flavor's mode and its borrowing come from different resources --------------------------------------------------


def uneven(rules: AdmissionRules, *more: str) -> QuotaWorld:
    """Cpu is the queue's own and taken by `low`, gpu is free to borrow: one flavor for both."""
    given: dict[str, int] = {"f/cpu": 4, "f/gpu": 1} | dict.fromkeys(more, 0)
    world = QuotaWorld.of(
        cohort("root", "", {"f/gpu": 4} | dict.fromkeys(more, 9)),
        queue("q", "root", given, preemption=WITHIN, fungibility=LESS_BORROWING),
        rules=rules,
    )
    world.holds("low", "q", {"f/cpu": 4})
    world.waits("w", "q", {"cpu": 2, "gpu": 2}, priority=1)
    return world


def test_one_resource_that_needs_preemption_makes_the_flavor_need_it() -> None:
    world = uneven(AdmissionRules())
    (head,) = world.scheduler.heads()
    found, victims = world.scheduler.search("q").best(head)
    choices = found.pod_sets[0].choices or {}
    assert {name: (choice.mode, choice.borrow) for name, choice in choices.items()} == {
        "cpu": (PreemptionMode.PREEMPT, 0),
        "gpu": (PreemptionMode.FIT, 1),
    }
    assert (found.mode, found.borrow, reasons(victims)) == (PreemptionMode.PREEMPT, 1, {"low": Reason.PREEMPTED})


def test_and_so_it_preempts_instead_of_failing_each_cycle() -> None:
    world = uneven(AdmissionRules())
    assert world.decide().waiting == {"w": EntryOutcome.PENDING_PREEMPTION}
    world.scheduler.vacate("low")
    assert world.decide().admitted == {"w": {"cpu": "f", "gpu": "f"}}


def test_another_flavor_that_really_fits_is_better() -> None:
    """By its worst pair the first flavor looks like one that fits by borrowing, as good as the second, which does."""
    assert uneven(AdmissionRules(), "g/cpu", "g/gpu").decide().admitted == {"w": {"cpu": "g", "gpu": "g"}}
    upstream = uneven(defective(AdmissionRules()), "g/cpu", "g/gpu").decide()
    assert (upstream.admitted, upstream.evicted) == ({}, {"low": Reason.PREEMPTED})


# -- ties between cohorts (upstream issue 10131) ----------------------------------------------------------------------

_COHORTS = (cohort("root"), cohort("left", "root"), cohort("right", "root"))
_QUEUES = (
    queue("l", "left", {"f": 1}),
    queue("r", "right", {"f": 1}),
    queue("mine", "root", {"f": 4}, preemption=RECLAIM),
)
_HELD = (("l1", "l"), ("l2", "l"), ("l3", "l"), ("r1", "r"), ("r2", "r"), ("r3", "r"))


def tied(
    cohorts: tuple[QuotaCohortSpec, ...],
    queues: tuple[QuotaQueueSpec, ...],
    held: tuple[tuple[str, str], ...],
    wanted: int,
) -> dict[str, Reason]:
    world = QuotaWorld.of(*cohorts, *queues, rules=FAIR)
    for name, above in held:
        world.holds(name, above, 1)
    return reasons(fair_preemptions(world.contest("w", "mine", wanted), BOTH))


@pytest.mark.parametrize(
    ("wanted", "victims"), [(1, ["l1"]), (2, ["l1", "r1"]), (3, ["l1", "r1", "l2"]), (4, ["l1", "r1", "l2", "r2"])]
)
def test_equal_shares_are_taken_from_in_name_order_whatever_the_input(wanted: int, victims: list[str]) -> None:
    for cohorts in permutations(_COHORTS):
        for queues in permutations(_QUEUES):
            for held in (_HELD, _HELD[::-1], _HELD[::2] + _HELD[1::2]):
                assert sorted(tied(cohorts, queues, held, wanted)) == sorted(victims)
                if wanted < 4:
                    continue
                assert set(tied(cohorts, queues, held, wanted).values()) == {Reason.RECLAIMED}


# -- fill back makes a preemption illegal (upstream issue 14543) ------------------------------------------------------

INITIAL = AdmissionRules(fair=(PreemptionStrategy.INITIAL,))


def legalised(rules: AdmissionRules) -> QuotaWorld:
    """Nine to borrow. `mine` has 3 and wants 4 more: 7 in all, against the 6 of `theirs`: not allowed. With its own 3
    gone first it would have 4, and may take from 6. What it takes is enough even with its own 3 back; but with them it
    has 7 again, and whoever was taken may come back for it."""
    evicts = QueuePreemption(CandidatePolicy.LOWER_OR_NEWER, CandidatePolicy.ANY)
    world = QuotaWorld.of(
        cohort("root", "", {"f": 9}),
        queue("mine", "root", preemption=evicts),
        queue("theirs", "root", preemption=RECLAIM),
        rules=rules,
    )
    world.holds("own", "mine", 3, at_s=1.0, reserved_at_s=1.0)
    world.holds("small", "theirs", 1, reserved_at_s=1.0)
    world.holds("large", "theirs", 5, reserved_at_s=2.0)
    world.waits("w", "mine", 4)
    return world


def share_rule_holds(world: QuotaWorld, victims: list[str]) -> bool:
    """Whether `mine` has less than `theirs` had, for each of those that are taken from there, once all others left."""
    left = {name: holder for name, holder in world.ledger.holders.items() if name not in victims}
    mine = 4 + sum(holder.usage[0] for holder in left.values() if holder.queue.name == "mine")
    theirs = sum(holder.usage[0] for holder in left.values() if holder.queue.name == "theirs")
    taken = [world.ledger.holders[name] for name in victims]
    return all(mine < theirs + holder.usage[0] for holder in taken if holder.queue.name == "theirs")


def test_victims_that_justify_others_are_not_put_back() -> None:
    world = legalised(INITIAL)
    turn = world.decide()
    assert turn.evicted == {"own": Reason.PREEMPTED, "large": Reason.FAIR_SHARING}
    assert share_rule_holds(world, list(turn.evicted))


def test_upstream_puts_them_back() -> None:
    world = legalised(defective(INITIAL))
    turn = world.decide()
    assert turn.evicted == {"large": Reason.FAIR_SHARING}
    assert not share_rule_holds(world, list(turn.evicted))


IN_TURN = replace(INITIAL, preemptors_first=True)
"""A preemptor gets what its victims left before they can."""


@pytest.mark.parametrize("rules", [INITIAL, IN_TURN], ids=["by share", "preemptors first"])
def test_and_so_it_comes_to_rest(rules: AdmissionRules) -> None:
    """Also when everybody is looked at again and again."""
    world = legalised(rules)
    world.until_quiet(20)
    settled = world.holders()
    for _ in range(3):
        world.scheduler.retry(world.node("mine"))
        assert world.until_quiet(20) == []
    assert world.holders() == settled


@pytest.mark.parametrize(
    ("rules", "again"),
    [(INITIAL, ("large",)), (IN_TURN, ("large", "w"))],
    ids=["by share: it is back before the preemptor comes", "preemptors first: they take turns"],
)
def test_where_upstream_evicts_for_ever(rules: AdmissionRules, again: tuple[str, ...]) -> None:
    world = legalised(defective(rules))
    evicted = tuple(name for turn in [world.turn() for _ in range(60)] for name in turn.evicted)
    assert evicted[: 10 * len(again)] == again * 10


# -- admitted into what victims have not left yet ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "most"),
    [(AdmissionRules(wait_for_leaving=True), 0), (AdmissionRules(), 1)],
    ids=["waiting for who leaves", "as upstream"],
)
def test_how_far_quota_is_exceeded_while_a_victim_leaves(rules: AdmissionRules, most: int) -> None:
    """Eight in all, of which `low` has five until it is gone; `x` and `y` want two each of the other three."""
    world = QuotaWorld.of(
        queue("a", "root", {"f": 6}, preemption=WITHIN),
        queue("b", "root", {"f": 1}),
        queue("c", "root", {"f": 1}),
        rules=rules,
    )
    world.holds("low", "a", 5)
    for name, above, amount, priority in (("high", "a", 4, 5), ("x", "b", 2, 4), ("y", "c", 2, 3)):
        world.waits(name, above, amount, priority=priority)
    world.decide()
    assert max(0, -world.node("root").unused(world.cell())) == most
