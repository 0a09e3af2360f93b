"""Preemption comes to rest: nobody evicts anybody for ever. Worlds in which it once did not, and random ones.

Evictions are carried out at once and whoever was evicted waits again at once: the hardest case, real ones have pauses.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings

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
from fleet.scheduling.queue_order import PREEMPTION_BACKOFF_AFTER
from tests.support.quota_worlds import BOTH, QuotaPlan, plans
from tests.support.quotas import ALL, BORROWING, FAIR, RECLAIM, Amounts, Bound, QuotaWorld, cohort, queue

Specs = tuple[QuotaCohortSpec | QuotaQueueSpec, ...]
Waiting = tuple[str, str, int | Amounts, int, float]
"""Name, queue, amount, priority, place in time."""

STOP = QueueFungibility(FungibilityPolicy.STOP, FungibilityPolicy.STOP)
INITIAL = AdmissionRules(fair=(PreemptionStrategy.INITIAL,))
MOST = 60
"""Cycles that any of these worlds may take; all are at rest within a dozen, or never."""


def waiting(specs: Specs, rules: AdmissionRules, *rows: Waiting) -> QuotaWorld:
    world = QuotaWorld.of(*specs, rules=rules)
    for name, above, wanted, priority, at_s in rows:
        world.waits(name, above, wanted, priority=priority, at_s=at_s)
    return world


def rests(world: QuotaWorld) -> None:
    """And stays so when everybody is looked at again."""
    world.until_quiet(MOST)
    for _ in range(2):
        for node in world.tree.queues.values():
            world.scheduler.retry(node)
        world.until_quiet(MOST)


# -- a preemptor comes back to the flavor its victims left ------------------------------------------------------------


def two_flavors(given: dict[str, Bound], *, strict: bool = False) -> Specs:
    """`mine` takes its own back and stops at the first flavor where it can; `other` has nothing of its own."""
    mine = queue("mine", "root", given, preemption=RECLAIM, fungibility=STOP, strict=strict)
    return mine, queue("other", "root", dict.fromkeys(given, 0))


@pytest.mark.parametrize("rules", [AdmissionRules(), FAIR], ids=["classical", "fair"])
@pytest.mark.parametrize("strict", [False, True], ids=["best effort", "strict"])
def test_not_to_the_next_one_while_the_victim_comes_back_to_the_first(*, strict: bool, rules: AdmissionRules) -> None:
    world = waiting(two_flavors({"f": 4, "g": 0}, strict=strict), rules)
    world.holds("victim", "other", {"f": 1})
    world.waits("w", "mine", 4)
    rests(world)
    assert world.holders() == {"w": "mine"}


@pytest.mark.parametrize("rules", [AdmissionRules(), FAIR], ids=["classical", "fair"])
def test_not_to_preempt_on_each_flavor_in_turn(rules: AdmissionRules) -> None:
    world = waiting(two_flavors({"f": 3, "g": 3}), rules)
    world.holds("one", "other", {"f": 3})
    world.holds("two", "other", {"g": 1})
    world.waits("w", "mine", 3)
    rests(world)
    assert world.holders() == {"two": "other", "w": "mine"}


# -- a preemptor goes before its victims ------------------------------------------------------------------------------

LOWER = QueuePreemption(reclaim=CandidatePolicy.LOWER, while_borrowing=CandidatePolicy.LOWER)

IN_TURN: dict[str, Callable[[AdmissionRules], QuotaWorld]] = {
    "classical: the victim borrows less": lambda rules: waiting(
        (
            cohort("root", "", {"f": 2}),
            cohort("right", "root", {"f": 1}),
            queue("mine", "right", {"f": 2}, preemption=LOWER),
            queue("other", "right"),
        ),
        rules,
        ("w", "mine", 5, 1, 0.0),
        ("victim", "other", 1, 0, 0.0),
    ),
    "fair: the victim has the lower share, in another resource": lambda rules: waiting(
        (
            cohort("root", "", {"f/cpu": 1}),
            queue("mine", "root", {"f/cpu": 0, "f/gpu": 3}, preemption=RECLAIM),
            queue("other", "root", {"f/cpu": 0, "f/gpu": 0}),
        ),
        replace(rules, fair=BOTH),
        ("w", "mine", {"cpu": 1, "gpu": 3}, 0, 0.0),
        ("victim", "other", {"gpu": 1}, 0, 0.0),
    ),
    "three in turn: newer and small, older and large, one that borrows": lambda rules: waiting(
        (
            queue(
                "mine",
                "root",
                {"f": 4},
                preemption=QueuePreemption(CandidatePolicy.LOWER_OR_NEWER, CandidatePolicy.ANY),
            ),
            queue("other", "root", {"f": 1}),
        ),
        replace(rules, fair=BOTH),
        ("old", "mine", 5, 0, 0.0),
        ("new", "mine", 4, 0, 1.0),
        ("a-victim", "other", 2, 0, 0.0),
    ),
}


@pytest.mark.parametrize("build", IN_TURN.values(), ids=IN_TURN)
def test_with_preemptors_first_the_victim_does_not_come_back_before_it(
    build: Callable[[AdmissionRules], QuotaWorld],
) -> None:
    rests(build(AdmissionRules(preemptors_first=True)))


@pytest.mark.parametrize("build", IN_TURN.values(), ids=IN_TURN)
def test_without_that_it_does_for_ever(build: Callable[[AdmissionRules], QuotaWorld]) -> None:
    """Nothing else holds the room that victims leave: the switch is worth having."""
    world = build(AdmissionRules(preemptors_first=False))
    assert sum(len(world.turn().evicted) for _ in range(MOST)) > MOST // 5


# -- rules that contradict each other ---------------------------------------------------------------------------------

CIRCLES: dict[str, Callable[[], QuotaWorld]] = {
    "fair: own priority over entitlement over share": lambda: waiting(
        (queue("a", "root", {"f": 3}, preemption=RECLAIM), queue("b", "root", {"f": 2}, preemption=ALL)),
        INITIAL,
        ("small", "b", 2, 0, 0.0),
        ("large", "b", 4, 1, 0.0),
        ("other", "a", 4, 0, 0.0),
    ),
    "fair: two that fit together where one large one did, which has more right than both": lambda: waiting(
        (
            cohort("root", "", {"f": 1}),
            cohort("left", "root", {"f": 1}),
            queue("l1", "left", preemption=QueuePreemption(reclaim=CandidatePolicy.LOWER)),
            queue("l2", "left"),
            queue("r", "root", {"f": 5}, preemption=RECLAIM),
        ),
        FAIR,
        ("small", "l1", 1, 1, 0.0),
        ("free-rider", "l2", 4, 0, 0.0),
        ("first", "r", 2, 0, 0.0),
        ("large", "r", 5, 0, 0.0),
    ),
    "classical: entitlement over priority while borrowing over age": lambda: waiting(
        (
            cohort("root"),
            cohort("below", "root"),
            queue("a", "below", {"f": 1}),
            queue(
                "b",
                "below",
                {"f": (3, 2)},
                preemption=QueuePreemption(CandidatePolicy.LOWER_OR_NEWER, CandidatePolicy.ANY),
            ),
            queue("c", "below", {"f": 2}, preemption=BORROWING),
        ),
        AdmissionRules(),
        ("old", "b", 4, 0, 0.0),
        ("new", "b", 2, 0, 1.0),
        ("high", "c", 5, 1, 0.0),
    ),
}


def circle(build: Callable[[], QuotaWorld]) -> QuotaWorld:
    world = build()
    world.scheduler.rules = replace(world.scheduler.rules, preemptors_first=True)
    return world


@pytest.mark.parametrize("build", CIRCLES.values(), ids=CIRCLES)
def test_each_of_three_may_evict_the_next(build: Callable[[], QuotaWorld]) -> None:
    """No order of victims helps."""
    world = circle(build)
    assert sum(len(world.turn().evicted) for _ in range(MOST)) > MOST // 5


@pytest.mark.parametrize("build", CIRCLES.values(), ids=CIRCLES)
def test_it_ends_when_the_right_to_evict_rests(build: Callable[[], QuotaWorld]) -> None:
    """As it does in production, for a while (`fleet.scheduling.queue_order`)."""
    world = circle(build)
    world.tired_after = PREEMPTION_BACKOFF_AFTER
    rests(world)
    assert sum(world.evictions.values()) <= 3 * PREEMPTION_BACKOFF_AFTER


# -- random worlds ----------------------------------------------------------------------------------------------------


def changed(
    plan: QuotaPlan, preemption: Callable[[QueuePreemption], QueuePreemption], *, equal: bool = False
) -> QuotaPlan:
    """With preemptors first, other policies, and all weights 1 if `equal`."""
    weighed = {"weight": 1.0} if equal else {}
    return replace(
        plan,
        rules=replace(plan.rules, preemptors_first=True),
        queues=tuple(replace(q, preemption=preemption(q.preemption), **weighed) for q in plan.queues),
        cohorts=tuple(replace(c, **weighed) for c in plan.cohorts),
    )


@settings(max_examples=200)
@given(plans(strategies=((),)))
def test_classical_preemption_comes_to_rest(plan: QuotaPlan) -> None:
    """Whatever is reclaimed, and by whatever priority in the own queue; not while borrowing."""
    rests(changed(plan, lambda policy: replace(policy, while_borrowing=CandidatePolicy.NEVER)).build())


@settings(max_examples=200)
@given(plans(strategies=(BOTH[:1],), resources=(("cpu",),)))
def test_fair_preemption_comes_to_rest(plan: QuotaPlan) -> None:
    """Of one resource, by final shares, among equals, and not within a queue."""
    rests(changed(plan, lambda policy: replace(policy, within_queue=CandidatePolicy.NEVER), equal=True).build())


@settings(max_examples=200)
@given(plans())
def test_two_never_evict_each_other_for_ever(plan: QuotaPlan) -> None:
    """Whatever the rules and policies, with preemptors first."""
    for jobs in zip(plan.jobs, plan.jobs[1:], strict=False):
        rests(changed(replace(plan, jobs=jobs), lambda policy: policy).build())
