"""Whole cycles: heads nominated against the same ledger, decided one after the other."""

import pytest

from fleet.quota.admission_cycle import AdmissionCycle, resources_to_reserve
from fleet.quota.entries import EntryOutcome
from fleet.quota.specs import AdmissionRules, CandidatePolicy, QueuePreemption
from fleet.quota.tree import charge
from fleet.quota.workload import FlavorAssignment, PodSetFlavors, PreemptionMode, WorkloadAssignment
from fleet.reasons import Reason
from fleet.snapshot import PodSet
from tests.support.quotas import ALL, FAIR, RECLAIM, WITHIN, QuotaWorld, asks, cohort, inadmissible, queue

RECLAIM_LOWER = QueuePreemption(reclaim=CandidatePolicy.LOWER)


# -- who is admitted --------------------------------------------------------------------------------------------------


def test_one_head_a_queue_and_cycle_as_long_as_it_fits() -> None:
    world = QuotaWorld.of(queue("a", "root", {"f": 2}), queue("b", "root", {"f": 2}), queue("c", "root", {"f": 2}))
    for name in "abc":
        world.waits(f"{name}1", name, 1)
        world.waits(f"{name}2", name, 1, at_s=1.0)
    assert list(world.decide().admitted) == ["a1", "b1", "c1"]
    assert list(world.decide().admitted) == ["a2", "b2", "c2"]
    assert world.decide().admitted == {}


def test_a_head_that_does_not_fit_any_more_is_overtaken_and_looked_at_again() -> None:
    world = QuotaWorld.of(cohort("root", "", {"f": 4}), queue("a", "root"), queue("b", "root"))
    world.waits("first", "a", 3)
    world.waits("second", "b", 3, at_s=1.0)
    turn = world.decide()
    assert (list(turn.admitted), turn.waiting) == (["first"], {"second": EntryOutcome.SKIPPED})
    assert world.decide().waiting == {"second": EntryOutcome.NO_FIT}
    assert world.decide().waiting == {}, "it is set aside now"


def test_flavors_are_given_and_charged() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 2, "g": 4}))
    world.waits("w", "a", 3)
    assert world.decide().admitted == {"w": {"cpu": "g"}}
    assert world.node("a").usage == [0, 3]
    assert world.ledger.holders["w"].given[0].amounts == {"cpu": 3}


def test_what_was_admitted_is_out_of_line() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 2}))
    workload = world.waits("w", "a", 1)
    world.decide()
    assert len(world.scheduler.pending["a"]) == 0
    world.scheduler.vacate("w")
    assert world.decide().admitted == {}
    world.scheduler.submit(workload)
    world.scheduler.withdraw(workload)
    assert world.decide().admitted == {}


@pytest.mark.parametrize("rules", [AdmissionRules(), FAIR], ids=["classical", "fair"])
def test_the_order_decides_who_gets_the_last_of_it(rules: AdmissionRules) -> None:
    """`b` borrows nothing for it."""
    world = QuotaWorld.of(cohort("root", "", {"f": 1}), queue("a", "root"), queue("b", "root", {"f": 2}), rules=rules)
    world.waits("borrows", "a", 2, priority=9)
    world.waits("owns", "b", 2)
    turn = world.decide()
    assert (list(turn.admitted), turn.waiting) == (["owns"], {"borrows": EntryOutcome.SKIPPED})


# -- preemption -------------------------------------------------------------------------------------------------------


def test_a_preemptor_waits_until_its_victims_are_gone() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 2}, preemption=WITHIN))
    world.holds("low", "a", 2)
    world.waits("high", "a", 2, priority=1)
    for _ in range(2):
        turn = world.decide()
        assert turn.evicted == {"low": Reason.PREEMPTED}
        assert turn.waiting == {"high": EntryOutcome.PENDING_PREEMPTION}
        assert world.node("a").usage == [2], "nothing is charged for it yet"
    gone = world.scheduler.vacate("low")
    world.scheduler.submit(gone.workload)
    assert list(world.decide().admitted) == ["high"]


def test_a_preemptor_stays_at_the_head_while_its_victims_leave() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 2}, preemption=WITHIN))
    world.holds("low", "a", 2)
    world.waits("high", "a", 2, priority=1)
    world.decide()
    world.waits("higher", "a", 2, priority=9)
    world.scheduler.vacate("low")
    assert list(world.decide().admitted) == ["high"]


def test_under_strict_order_it_does_not() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 2}, preemption=WITHIN, strict=True))
    world.holds("low", "a", 2)
    world.waits("high", "a", 2, priority=1)
    world.decide()
    world.waits("higher", "a", 2, priority=9)
    world.scheduler.vacate("low")
    assert list(world.decide().admitted) == ["higher"]


def test_a_gate_holds_its_preemption_back() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 2}, preemption=WITHIN))
    world.holds("low", "a", 2)
    world.waits("high", "a", 2, priority=1, may_evict=False)
    for _ in range(2):
        turn = world.decide()
        assert (turn.evicted, turn.waiting) == ({}, {"high": EntryOutcome.GATED})


def test_one_that_does_not_preempt_waits() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 2}, preemption=WITHIN))
    world.holds("low", "a", 2)
    world.waits("meek", "a", 2, priority=1, preempts=False)
    turn = world.decide()
    assert (turn.evicted, turn.waiting) == ({}, {"meek": EntryOutcome.NO_CANDIDATES})


def test_several_queues_preempt_in_one_cycle() -> None:
    world = QuotaWorld.of(
        queue("a", "root", {"f": 2}, preemption=RECLAIM),
        queue("b", "root", {"f": 2}, preemption=RECLAIM),
        queue("c", "root", {"f": 2}),
    )
    for index in range(3):
        world.holds(f"c{index}", "c", 2, reserved_at_s=float(index))
    world.waits("a", "a", 2)
    world.waits("b", "b", 2, at_s=1.0)
    result = world.scheduler.cycle()
    evicted = {victim.holder.workload.name: preemptor.name for victim, preemptor in result.evictions}
    assert evicted == {"c2": "a", "c1": "b"}
    assert result.recomputed == {"b": "preempt"}, "both were after c2"


def shared_victim(other: int, free: int = 0) -> QuotaWorld:
    """`a` and `b` want two each and both may take `big` for it, `other` more and a `free` cohort quota aside."""
    world = QuotaWorld.of(
        cohort("root", "", {"f": free}),
        queue("a", "root", {"f": 2}, preemption=RECLAIM),
        queue("b", "root", {"f": 2}, preemption=RECLAIM),
        queue("c", "root", {"f": other}),
    )
    world.holds("big", "c", 4 + other)
    world.waits("a", "a", 2)
    world.waits("b", "b", 2, at_s=1.0)
    return world


def test_a_victim_of_two_is_evicted_once_and_the_second_fits_later() -> None:
    """Once `big` is gone `b` fits without victims: it keeps its turn, and what is kept for it others do not get."""
    world = shared_victim(0)
    world.waits("late", "c", 1, at_s=2.0)
    result = world.scheduler.cycle()
    assert [(victim.holder.workload.name, who.name) for victim, who in result.evictions] == [("big", "a")]
    assert result.recomputed == {"b": "deferred_fit"}
    waiting = {entry.workload.name: entry.outcome for entry in result.waiting}
    assert waiting == {
        "a": EntryOutcome.PENDING_PREEMPTION,
        "b": EntryOutcome.PENDING_PREEMPTION,
        "late": EntryOutcome.NO_FIT,
    }
    assert world.scheduler.pending["b"].sticky == "b"
    world.scheduler.vacate("big")
    assert list(world.decide().admitted) == ["a", "b"]


def test_a_second_preemptor_that_finds_nobody_else_waits() -> None:
    """Both are entitled to the two of their cohort that `big` has."""
    world = QuotaWorld.of(
        cohort("root"),
        cohort("left", "root", {"f": 2}),
        queue("a", "left", {"f": 0}, preemption=ALL),
        queue("b", "left", {"f": 0}, preemption=ALL),
        queue("c", "root"),
    )
    world.holds("big", "c", 2)
    world.waits("a", "a", 2)
    world.waits("b", "b", 2, at_s=1.0)
    result = world.scheduler.cycle()
    assert [(victim.holder.workload.name, who.name) for victim, who in result.evictions] == [("big", "a")]
    assert result.recomputed == {"b": "skipped"}
    waiting = {entry.workload.name: entry.outcome for entry in result.waiting}
    assert waiting == {"a": EntryOutcome.PENDING_PREEMPTION, "b": EntryOutcome.NO_FIT}


def test_what_a_preemptor_will_get_nobody_else_gets() -> None:
    """`small` would fit into what is free now, but not beside `high` once that has its place."""
    world = QuotaWorld.of(
        cohort("root", "", {"f": 2}), queue("a", "root", {"f": 4}, preemption=ALL), queue("b", "root")
    )
    world.holds("low", "a", 3)
    world.waits("high", "a", 4, priority=5)
    world.waits("small", "b", 3)
    turn = world.decide()
    assert turn.evicted == {"low": Reason.PREEMPTED}
    assert turn.waiting == {"high": EntryOutcome.PENDING_PREEMPTION, "small": EntryOutcome.SKIPPED}


def test_nobody_is_admitted_into_what_victims_have_not_left() -> None:
    """Of three free `x` and `y` want two each. Once `low` is gone there is room for all, not before."""
    world = QuotaWorld.of(
        queue("a", "root", {"f": 6}, preemption=WITHIN),
        queue("b", "root", {"f": 1}),
        queue("c", "root", {"f": 1}),
        rules=AdmissionRules(wait_for_leaving=True),
    )
    world.holds("low", "a", 5)
    world.waits("high", "a", 4, priority=5)
    world.waits("x", "b", 2, priority=4)
    world.waits("y", "c", 2, priority=3)
    assert list(world.decide().evicted) == ["low"]
    assert world.node("root").unused(world.cell()) >= 0
    world.scheduler.vacate("low")
    world.decide()
    assert list(world.holders()) == ["high", "x", "y"]


# -- reserving for a blocked preemptor --------------------------------------------------------------------------------


def blocked(preemption: QueuePreemption) -> QuotaWorld:
    """`high` is entitled to four, three are lent out to one that may not be taken; `small` would take what is left."""
    world = QuotaWorld.of(queue("a", "root", {"f": 4}, preemption=preemption), queue("b", "root", {"f": 2}))
    world.holds("lent", "b", 5, priority=99)
    world.waits("high", "a", 4, priority=5)
    world.waits("small", "b", 1, priority=0)
    return world


def test_capacity_is_kept_for_one_that_could_not_take_it_back() -> None:
    world = blocked(RECLAIM_LOWER)
    turn = world.decide()
    assert turn.admitted == {}
    assert turn.waiting == {"high": EntryOutcome.NO_CANDIDATES, "small": EntryOutcome.SKIPPED}
    assert world.node("a").usage == [0], "for the cycle only"


def test_not_for_one_that_could() -> None:
    world = blocked(RECLAIM)
    world.ledger.holders["lent"].protected = True
    turn = world.decide()
    assert list(turn.admitted) == ["small"]
    assert turn.waiting == {"high": EntryOutcome.NO_CANDIDATES}


@pytest.mark.parametrize(
    ("mode", "borrow", "quota", "used", "kept"),
    [
        pytest.param(PreemptionMode.FIT, 0, (4, None), 3, 5, id="what fits is kept whole"),
        pytest.param(PreemptionMode.PREEMPT, 0, (4, None), 3, 1, id="what is left of nominal"),
        pytest.param(PreemptionMode.PREEMPT, 0, (4, None), 6, 0, id="nothing past it"),
        pytest.param(PreemptionMode.PREEMPT, 0, (9, None), 1, 5, id="no more than it asks for"),
        pytest.param(PreemptionMode.PREEMPT, 1, (4, 3), 5, 2, id="borrowing: up to the limit"),
        pytest.param(PreemptionMode.PREEMPT, 1, (4, None), 5, 5, id="borrowing without a limit: all"),
    ],
)
def test_how_much_is_kept(
    mode: PreemptionMode, borrow: int, quota: tuple[int, int | None], used: int, kept: int
) -> None:
    """Of five asked for."""
    world = QuotaWorld.of(queue("a", "root", {"f": quota}), queue("b", "root", {"f": 20}))
    charge(world.node("a"), {world.cell(): used})
    pods = PodSetFlavors(PodSet("main", 1, {}), 1, {}, {"cpu": FlavorAssignment("f", mode, borrow, -1)})
    reserved = resources_to_reserve(world.node("a"), WorkloadAssignment([pods], {world.cell(): 5}))
    assert reserved == ({world.cell(): kept} if kept else {})


# -- strict and best effort -------------------------------------------------------------------------------------------


def stuck(*, strict: bool) -> QuotaWorld:
    world = QuotaWorld.of(queue("a", "", {"f": 4, "g": 1}, strict=strict))
    world.holds("running", "a", {"f": 4})
    world.waits("big", "a", 4, priority=5)
    world.waits("big-too", "a", 4, priority=5, at_s=1.0)
    world.waits("small", "a", 1)
    return world


def test_strict_order_lets_nobody_pass() -> None:
    world = stuck(strict=True)
    for _ in range(3):
        turn = world.decide()
        assert (turn.admitted, list(turn.waiting)) == ({}, ["big"])
    world.scheduler.vacate("running")
    assert list(world.decide().admitted) == ["big"]


def test_best_effort_sets_all_of_the_shape_aside() -> None:
    world = stuck(strict=False)
    assert list(world.decide().waiting) == ["big"]
    line = world.scheduler.pending["a"]
    assert [w.name for w in inadmissible(line)] == ["big", "big-too"]
    assert world.decide().admitted == {"small": {"cpu": "g"}}
    assert world.scheduler.heads() == []
    world.scheduler.vacate("running")
    assert list(world.decide().admitted) == ["big"]
    assert list(world.decide().waiting) == ["big-too"]


def test_a_change_in_another_tree_wakes_nobody() -> None:
    world = QuotaWorld.of(queue("a", "one", {"f": 1}), queue("b", "two", {"f": 1}))
    world.holds("x", "a", 1)
    world.holds("y", "b", 1)
    world.waits("w", "a", 1)
    world.decide()
    world.scheduler.vacate("y")
    assert world.decide().waiting == {}
    world.scheduler.vacate("x")
    assert list(world.decide().admitted) == ["w"]


# -- resuming the search ----------------------------------------------------------------------------------------------


def overtaken(g: int) -> QuotaWorld:
    """`w` stops at flavor f, where it may borrow, and `x` is faster there. `g` is what there is of the next flavor."""
    world = QuotaWorld.of(
        cohort("root", "", {"f": 2}), queue("a", "root", {"f": 0, "g": g}), queue("b", "root", {"f": 0})
    )
    world.waits("x", "b", 2)
    world.waits("w", "a", 2, at_s=1.0)
    turn = world.decide()
    assert (list(turn.admitted), turn.waiting) == (["x"], {"w": EntryOutcome.SKIPPED})
    return world


def test_one_that_was_overtaken_goes_on_behind_the_flavor() -> None:
    """Although that one is free again: it is not pushed aside there for ever."""
    world = overtaken(g=2)
    world.scheduler.vacate("x")
    assert world.decide().admitted == {"w": {"cpu": "g"}}


def test_after_a_change_that_is_older_than_a_cycle_it_starts_anew() -> None:
    world = overtaken(g=2)
    line = world.scheduler.pending["a"]
    (held,) = world.scheduler.heads()
    world.scheduler.vacate("x")
    world.decide()
    line.put_back(held, again=True)
    assert world.decide().admitted == {"w": {"cpu": "f"}}


def test_when_there_is_nothing_behind_it_looks_at_all_once_more() -> None:
    world = overtaken(g=0)
    world.scheduler.vacate("x")
    assert world.decide().waiting == {"w": EntryOutcome.NO_FIT}
    assert world.decide().admitted == {"w": {"cpu": "f"}}


def test_and_then_it_is_set_aside() -> None:
    world = overtaken(g=0)
    assert [world.decide().waiting for _ in range(3)] == [{"w": EntryOutcome.NO_FIT}, {"w": EntryOutcome.NO_FIT}, {}]


# -- switched on ------------------------------------------------------------------------------------------------------


def test_undeclared_resources_may_be_ignored() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 2}), rules=AdmissionRules(count_declared_only=True))
    world.waits("w", "a", {"cpu": 1, "disk": 5})
    assert world.decide().admitted == {"w": {"cpu": "f"}}
    assert world.ledger.holders["w"].given[0].amounts == {"cpu": 1}


def test_usage_order() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 1}, usage_ordered=True))
    world.scheduler.local_usage = {"ns/heavy": 5.0, "ns/light": 1.0}
    world.waits("heavy", "a", 1, priority=9, local_queue="ns/heavy")
    world.waits("light", "a", 1, local_queue="ns/light")
    assert list(world.decide().admitted) == ["light"]


def test_a_replacement_needs_only_what_it_has_more() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 4}))
    world.holds("old", "a", 3)
    world.waits("new", "a", 4, replaces="old")
    nominated, victims = world.scheduler.search("a").best(asks("new", "a", 4, replaces="old"))
    assert (nominated.mode, victims) == (PreemptionMode.FIT, [])


# -- partial admission ------------------------------------------------------------------------------------------------


def pods(count: int, least: int | None, name: str = "main") -> PodSet:
    return PodSet(name, count, {"cpu": 1}, min_count=least)


@pytest.mark.parametrize(
    ("wanted", "free", "counts"),
    [
        pytest.param([pods(10, 4)], 10, [10], id="all, if all fit"),
        pytest.param([pods(10, 4)], 7, [7], id="as many as fit"),
        pytest.param([pods(10, 4)], 4, [4], id="down to the least"),
        pytest.param([pods(10, 4)], 3, None, id="and no further"),
        pytest.param([pods(10, None)], 9, None, id="only those that allow it"),
        pytest.param([pods(10, 4, "a"), pods(5, None, "b")], 12, [7, 5], id="the others keep all"),
        pytest.param([pods(10, 4, "a"), pods(5, 2, "b")], 9, [6, 3], id="in proportion to what they can spare"),
        pytest.param([pods(10, 10)], 9, None, id="nothing to spare"),
    ],
)
def test_partial_admission(wanted: list[PodSet], free: int, counts: list[int] | None) -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 20}))
    world.holds("running", "a", 20 - free)
    world.waits("w", "a", wanted)
    admitted = world.scheduler.cycle().admitted
    assert [[given.count for given in holder.given] for holder in admitted] == ([counts] if counts else [])


def test_partial_admission_may_preempt() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 8}, preemption=WITHIN))
    world.holds("low", "a", 3)
    world.holds("high", "a", 5, priority=9)
    world.waits("w", "a", [pods(6, 2)], priority=5)
    result = world.scheduler.cycle()
    (entry,) = result.waiting
    assert [victim.holder.workload.name for victim, _ in result.evictions] == ["low"]
    assert entry.assignment.given[0].count == 3


def test_partial_admission_can_be_switched_off() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 8}), rules=AdmissionRules(partial_admission=False))
    world.waits("w", "a", [pods(9, 1)])
    assert world.decide().waiting == {"w": EntryOutcome.NO_FIT}


def test_what_is_not_there_is_an_error() -> None:
    world = QuotaWorld.of(queue("a"))
    with pytest.raises(KeyError):
        world.waits("w", "nowhere", 1)
    with pytest.raises(KeyError):
        world.scheduler.vacate("nobody")


def test_nobody_is_evicted_in_the_cycle_that_admits_it() -> None:
    """Even where the order of entries lets one go first that another may evict: it has to be saved before it leaves."""
    world = QuotaWorld.of(queue("a", "root", {"f": 4}, preemption=RECLAIM), queue("b", "root"))
    world.waits("entitled", "a", 4)
    world.waits("borrows", "b", 2)
    cycle = AdmissionCycle(world.scheduler)
    for name in ("b", "a"):
        [head] = world.scheduler.pending[name].in_order()
        cycle.process(entry := world.scheduler.nominate(head))
    assert [victim.holder.workload.name for victim in entry.victims] == ["borrows"]
    assert [holder.workload.name for holder in cycle.result.admitted] == ["borrows"]
    assert cycle.result.evictions == []
    assert entry.outcome is EntryOutcome.PENDING_PREEMPTION
