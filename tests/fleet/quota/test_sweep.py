"""Sweeps: what one pass of the agent decides, and passes one after the other while victims take their time to leave."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.quota.entries import EntryOutcome
from fleet.quota.scheduler import AdmissionScheduler
from fleet.quota.specs import AdmissionRules, CandidatePolicy, FungibilityPolicy, QueueFungibility, QueuePreemption
from fleet.quota.workload import PreemptionMode
from fleet.reasons import Reason
from tests.support.quota_passes import AGENT, Passes
from tests.support.quota_worlds import BOTH, QuotaJob, QuotaPlan, over, plans
from tests.support.quotas import ALL, RECLAIM, WITHIN, QuotaWorld, Turn, cohort, queue


def swept(world: QuotaWorld) -> Turn:
    return Turn.of(world.scheduler.sweep())


# -- one sweep --------------------------------------------------------------------------------------------------------


def test_a_queue_goes_on_while_its_heads_are_admitted() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 3}), queue("b", "", {"f": 2}), rules=AGENT)
    for name in ("a1", "a2", "a3", "a4", "b1", "b2"):
        world.waits(name, name[0], 1, at_s=float(name[1]))
    turn = swept(world)
    assert sorted(turn.admitted) == ["a1", "a2", "a3", "b1", "b2"]
    assert [workload.name for workload in world.scheduler.still_waiting()] == ["a4"]


@pytest.mark.parametrize(
    ("borrows", "flavors"),
    [(FungibilityPolicy.NEXT, ["f", "g", "g", "f"]), (FungibilityPolicy.STOP, ["f", "f", "f", "g"])],
)
def test_heads_of_one_shape_go_on_to_the_next_flavor_before_they_borrow(
    borrows: FungibilityPolicy, flavors: list[str]
) -> None:
    own, fungibility = {"f": 1, "g": 2}, QueueFungibility(when_can_borrow=borrows)
    lender = queue("b", "root", {"f": 2, "g": 0})
    world = QuotaWorld.of(queue("a", "root", own, fungibility=fungibility), lender, rules=AGENT)
    for number in range(4):
        world.waits(f"a{number}", "a", 1, at_s=float(number))
    admitted = world.scheduler.sweep().admitted
    assert [flavor for holder in admitted for one in holder.given for flavor in one.flavors.values()] == flavors


def test_everybody_who_waits_is_told_of_once() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 3}), rules=AGENT)
    for name, amount in (("large", 4), ("fits", 3), ("late", 1)):
        world.waits(name, "a", amount, at_s=float(len(name)))
    result = world.scheduler.sweep()
    names = [entry.workload.name for entry in result.waiting]
    assert sorted(names) == ["large", "late"]
    assert [holder.workload.name for holder in result.admitted] == ["fits"]


def test_a_strict_queue_ends_at_its_first_that_waits() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 3}, strict=True), queue("b", "", {"f": 3}), rules=AGENT)
    for name, amount in (("a1", 1), ("a2", 3), ("a3", 1), ("b1", 1), ("b2", 9), ("b3", 1)):
        world.waits(name, name[0], amount, at_s=float(name[1]))
    assert sorted(swept(world).admitted) == ["a1", "b1", "b3"]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("leaves", [True, False])
def test_one_that_lost_its_flavor_to_another_is_told_of_all_of_them(strict: bool, leaves: bool) -> None:
    """Its search goes on behind that flavor, and then begins anew: what keeps it waiting is said of both."""
    late = queue("b", "root", {"f": 0, "g": 1}, strict=strict)
    world = QuotaWorld.of(cohort("root", "", {"f": 4, "g": 0}), queue("a", "root", {"f": 0}), late, rules=AGENT)
    if leaves:
        world.holds("going", "a", 1, leaving=True)
    world.waits("a1", "a", 2, priority=1)
    world.waits("b1", "b", 3)
    result = world.scheduler.sweep()
    assert [holder.workload.name for holder in result.admitted] == ["a1"]
    entry = [it for it in result.waiting if it.workload.name == "b1"][-1]
    refusals = entry.assignment.pod_sets[0].refusals
    assert {world.tree.cells[it.cell].flavor for it in refusals if it.cell is not None} == {"f", "g"}


def test_what_is_kept_for_a_blocked_head_makes_its_team_no_borrower() -> None:
    """What runs within its guarantee was reclaimed by the second of another queue, which fits in the next sweep."""

    def sweep_of(*waiting: str, mine: int) -> Turn:
        strict = queue("b", "root", {"f": 4}, strict=True)
        world = QuotaWorld.of(queue("a", "root", {"f": 4}, preemption=RECLAIM), strict, rules=AGENT)
        world.holds("mine", "a", mine)
        world.holds("guaranteed", "b", 4)
        world.waits("head", "b", 4)
        for name in waiting:
            world.waits(name, "a", 1, priority=9, at_s=float(name[1]))
        return swept(world)

    turn = sweep_of("a1", "a2", mine=2)
    assert (sorted(turn.admitted), turn.evicted) == (["a1"], {})
    assert turn.waiting["head"] is turn.waiting["a2"] is EntryOutcome.NO_CANDIDATES
    assert sorted(sweep_of("a2", mine=3).admitted) == ["a2"]


def test_what_a_preemptor_waits_for_is_kept_from_those_behind_it() -> None:
    world = QuotaWorld.of(queue("a", "root", {"f": 4}, preemption=WITHIN), queue("b", "root"), rules=AGENT)
    world.holds("low", "a", 3)
    world.waits("high", "a", 4, priority=1)
    world.waits("small", "b", 1)
    turn = swept(world)
    assert (turn.admitted, turn.evicted) == ({}, {"low": Reason.PREEMPTED})
    assert turn.waiting["high"] is EntryOutcome.PENDING_PREEMPTION


def test_what_victims_left_goes_to_all_of_a_queue_they_left_it_for() -> None:
    """Not to the head of another queue while the second of this one waits behind the first."""
    world = QuotaWorld.of(queue("a", "root", {"f": 4}), queue("b", "root"), rules=AGENT)
    for name in ("one", "two"):
        world.waits(name, "a", 2, nominated=True)
    world.waits("victim", "b", 2, priority=9)
    assert sorted(swept(world).admitted) == ["one", "two"]


def test_nobody_else_goes_for_one_whose_victims_are_leaving() -> None:
    """Nor for another that fits once they are gone."""
    world = QuotaWorld.of(
        queue("a", "root", {"f": 4}, preemption=ALL), queue("b", "root", {"f": 4}, preemption=ALL), rules=AGENT
    )
    world.holds("going", "b", 4, leaving=True)
    world.holds("low", "b", 4)
    world.waits("high", "a", 4, priority=1, nominated=True)
    turn = swept(world)
    assert (turn.admitted, turn.evicted) == ({}, {})
    assert turn.waiting == {"high": EntryOutcome.PENDING_PREEMPTION}


def test_one_that_is_busy_keeps_its_turn_and_its_room() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 2}), rules=AGENT)
    world.waits("busy", "a", 2, priority=1, busy=True)
    world.waits("other", "a", 1)
    turn = swept(world)
    assert turn.admitted == {}
    assert turn.waiting["busy"] is EntryOutcome.BUSY


@pytest.mark.parametrize("rules", [AGENT, replace(AGENT, fair=BOTH)], ids=["classical", "fair"])
def test_passes_worked_out_by_hand(rules: AdmissionRules) -> None:
    """`mine` takes back its own: the first pass evicts, the second waits, the third admits; `theirs` then waits."""
    plan = QuotaPlan(
        (cohort("root"),),
        (queue("a", "root", {"f": 2}, preemption=RECLAIM), queue("b", "root", {"f": 2}, preemption=RECLAIM)),
        (
            QuotaJob("mine", "a", (("cpu", 2),), 0, 1.0),
            QuotaJob("theirs", "b", (("cpu", 4),), 0, 0.0, "f"),
        ),
        rules,
    )
    passes = Passes.of(plan)
    turns = [passes.turn() for _ in range(4)]
    assert [list(turn.evicted) for turn in turns] == [["theirs"], [], [], []]
    assert [list(turn.admitted) for turn in turns] == [[], [], ["mine"], []]
    assert list(passes.held) == ["mine"]


# -- whatever is declared ---------------------------------------------------------------------------------------------

MOST = 80
delays = st.sampled_from((1, 3))


@settings(max_examples=120)
@given(plans(), delays)
def test_quota_is_never_exceeded_while_victims_leave(plan: QuotaPlan, delay: int) -> None:
    passes = Passes.of(plan, delay)
    before = over(passes.world())
    for _ in range(10):
        passes.turn()
        assert over(passes.world()) <= before


@settings(max_examples=120)
@given(plans())
def test_after_a_sweep_nobody_who_waits_would_fit(plan: QuotaPlan) -> None:
    """Into what is neither held nor kept for others; a strict queue's head may stand before them."""
    plan = replace(plan, queues=tuple(replace(q, strict=False) for q in plan.queues))
    world = Passes.of(plan).world()
    world.scheduler.sweep()
    for workload in world.scheduler.still_waiting():
        assignment, _ = world.scheduler.search(workload.queue).best(workload)
        assert assignment.mode is not PreemptionMode.FIT


@settings(max_examples=120)
@given(plans(), st.data())
def test_the_order_of_the_input_does_not_matter(plan: QuotaPlan, data: st.DataObject) -> None:
    other = plan.permuted(
        *(data.draw(st.permutations(range(len(part)))) for part in (plan.cohorts, plan.queues, plan.jobs))
    )
    one, two = Passes.of(plan), Passes.of(other)
    for _ in range(6):
        a, b = one.turn(), two.turn()
        assert (a.admitted, a.evicted, a.waiting) == (b.admitted, b.evicted, b.waiting)


@settings(max_examples=120)
@given(plans(strategies=((),)), delays)
def test_classical_passes_come_to_rest(plan: QuotaPlan, delay: int) -> None:
    """Not while borrowing: entitlement and priority may then go round in circles (test_rest.py)."""
    preemption = [replace(q.preemption, while_borrowing=CandidatePolicy.NEVER) for q in plan.queues]
    queues = tuple(replace(q, preemption=p) for q, p in zip(plan.queues, preemption, strict=True))
    Passes.of(replace(plan, queues=queues), delay).until_quiet(MOST)


@settings(max_examples=120)
@given(plans(), delays)
def test_two_never_evict_each_other_for_ever(plan: QuotaPlan, delay: int) -> None:
    for jobs in zip(plan.jobs, plan.jobs[1:], strict=False):
        Passes.of(replace(plan, jobs=jobs), delay).until_quiet(MOST)


@settings(max_examples=300)
@given(plans(strategies=((),)))
def test_a_sweep_of_many_heads_comes_to_what_one_head_a_queue_and_cycle_does(plan: QuotaPlan) -> None:
    """Where nobody is evicted, so that no cycle waits for what another has begun.

    Nor is quota kept for a head that waits: a sweep keeps it to its end, while the next cycle gives it away. And not
    under fair sharing, where more heads of one queue than one compete in a cycle of a sweep.
    """
    never = replace(plan, queues=tuple(replace(q, preemption=QueuePreemption()) for q in plan.queues))
    swept_at_once, one_by_one = never.build(), never.build()
    swept = swept_at_once.scheduler.sweep()
    assume(not any(entry.outcome is EntryOutcome.NO_CANDIDATES for entry in swept.waiting))
    idle = 0
    while idle <= len(plan.jobs):
        idle = 0 if one_by_one.scheduler.cycle().progressed else idle + 1

    def held(world: QuotaWorld) -> dict[str, object]:
        return {uid: [one.flavors for one in holder.given] for uid, holder in world.ledger.holders.items()}

    assert held(swept_at_once) == held(one_by_one)


@settings(max_examples=400)
@given(plans(amounts=(1, 1, 2)), delays, st.data())
def test_heads_of_one_shape_are_admitted_as_whole_cycles_would(
    plan: QuotaPlan, delay: int, data: st.DataObject
) -> None:
    """A crowd of two shapes waits in one queue; what others hold is what is drawn."""
    [first, *_], shapes = plan.queues, [(job.wanted, job.priority) for job in plan.jobs[:2]]
    drawn = data.draw(st.lists(st.sampled_from(shapes), min_size=2, max_size=8))
    crowd = [QuotaJob(f"x{n}", first.name, *shape, at_s=float(n)) for n, shape in enumerate(drawn)]
    jobs = (*(job for job in plan.jobs if job.flavor or job.queue != first.name), *crowd)
    at_once, by_cycles = (Passes.of(replace(plan, jobs=jobs), delay) for _ in range(2))
    for _ in range(6):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(AdmissionScheduler, "_admit_alike", lambda *_given: None)
            expected = by_cycles.turn()
        assert at_once.turn() == expected
        assert at_once.held == by_cycles.held
