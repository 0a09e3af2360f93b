"""The order of a cycle's heads, classical and fair, and where each goes next."""

from collections.abc import Sequence

import pytest

from fleet.quota.entries import (
    CycleEntry,
    EntryOutcome,
    TournamentStanding,
    classical_order,
    fair_key,
    fair_order,
    requeues_immediately,
    stays_at_head,
)
from fleet.quota.specs import AdmissionRules, QuotaCohortSpec, QuotaQueueSpec
from fleet.quota.tree import DominantResourceShare, charge
from fleet.quota.workload import FlavorAssignment, PodSetFlavors, PreemptionMode, Workload, WorkloadAssignment
from fleet.snapshot import PodSet
from tests.support.quotas import BOTH, FAIR, Amounts, QuotaWorld, asks, cohort, queue

# -- where a head goes next -------------------------------------------------------------------------------------------

AT_ONCE = {EntryOutcome.SKIPPED, EntryOutcome.PENDING_PREEMPTION, EntryOutcome.PREEMPTION_FAILED, EntryOutcome.GATED}


@pytest.mark.parametrize("outcome", EntryOutcome)
def test_who_is_looked_at_again(outcome: EntryOutcome) -> None:
    assert requeues_immediately(outcome, strict=True, untried=False) is (outcome is not EntryOutcome.NAMESPACE_MISMATCH)
    assert requeues_immediately(outcome, strict=False, untried=False) is (outcome in AT_ONCE)
    assert requeues_immediately(outcome, strict=False, untried=True)


@pytest.mark.parametrize("outcome", EntryOutcome)
def test_who_stays_at_the_head(outcome: EntryOutcome) -> None:
    assert stays_at_head(outcome, strict=False) is (outcome is EntryOutcome.PENDING_PREEMPTION)
    assert not stays_at_head(outcome, strict=True)


# -- classical --------------------------------------------------------------------------------------------------------


def entry(world: QuotaWorld, workload: Workload, usage: Amounts, borrow: int = 0) -> CycleEntry:
    choices = {"cpu": FlavorAssignment("f", PreemptionMode.FIT, borrow, -1)}
    pods = PodSetFlavors(PodSet("main", 1, {}), 1, {}, choices)
    spec = world.scheduler.queues[workload.queue]
    return CycleEntry(workload, spec, world.node(workload.queue), WorkloadAssignment([pods], world.cells(usage)))


LISTED: tuple[tuple[str, int, dict[str, object]], ...] = (
    ("high", 0, {"priority": 2, "at_s": 9.0}),
    ("old", 0, {"priority": 1, "at_s": 1.0}),
    ("same-a", 0, {"priority": 1, "at_s": 2.0}),
    ("same-b", 0, {"priority": 1, "at_s": 2.0}),
    ("same-c", 0, {"priority": 1, "at_s": 2.0, "evicted_at_s": 1.0}),
    ("low", 0, {"priority": 0, "at_s": 0.0}),
    ("borrows", 1, {"priority": 9, "at_s": 0.0, "nominated": True}),
    ("borrows-more", 2, {"priority": 9, "at_s": 0.0}),
)


def listed(world: QuotaWorld) -> list[CycleEntry]:
    return [entry(world, asks(name, "q", 1, **more), {"f": 1}, borrow) for name, borrow, more in LISTED]


def names(entries: Sequence[CycleEntry]) -> list[str]:
    return [found.workload.name for found in entries]


@pytest.mark.parametrize("backwards", [False, True])
def test_classical_order(*, backwards: bool) -> None:
    entries = listed(QuotaWorld.of(queue("q")))
    ordered = classical_order(entries[::-1] if backwards else entries, AdmissionRules())
    assert names(ordered) == [name for name, _, _ in LISTED]


def test_classical_order_without_priorities() -> None:
    ordered = classical_order(listed(QuotaWorld.of(queue("q"))), AdmissionRules(priority_between_queues=False))
    assert names(ordered) == ["low", "old", "same-a", "same-b", "same-c", "high", "borrows", "borrows-more"]


def test_classical_order_with_preemptors_first() -> None:
    ordered = classical_order(listed(QuotaWorld.of(queue("q"))), AdmissionRules(preemptors_first=True))
    assert names(ordered)[:2] == ["borrows", "high"]


# -- fair: one level --------------------------------------------------------------------------------------------------

LOW, HIGH = DominantResourceShare(10, 1, "cpu", borrowing=True), DominantResourceShare(20, 1, "cpu", borrowing=True)
NONE, INFINITE = DominantResourceShare(0, 1), DominantResourceShare(1, 0, "cpu", borrowing=True)


def goes_first(
    a: tuple[Workload, TournamentStanding], b: tuple[Workload, TournamentStanding], rules: AdmissionRules
) -> bool:
    return fair_key(*a, rules) < fair_key(*b, rules)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param(
            (TournamentStanding(HIGH, False), {}),
            (TournamentStanding(LOW, True), {"priority": 9}),
            id="not borrowing what it asks",
        ),
        pytest.param(
            (TournamentStanding(LOW, True), {}), (TournamentStanding(HIGH, True), {"priority": 9}), id="the lower share"
        ),
        pytest.param(
            (TournamentStanding(NONE, False), {}),
            (TournamentStanding(LOW, False), {"priority": 9}),
            id="no share at all",
        ),
        pytest.param(
            (TournamentStanding(HIGH, True), {}),
            (TournamentStanding(INFINITE, True), {"priority": 9}),
            id="any finite share",
        ),
        pytest.param(
            (TournamentStanding(LOW, True), {"priority": 9, "at_s": 5.0}),
            (TournamentStanding(LOW, True), {}),
            id="the higher priority",
        ),
        pytest.param(
            (TournamentStanding(LOW, True), {}), (TournamentStanding(LOW, True), {"at_s": 5.0}), id="the older one"
        ),
    ],
)
def test_who_wins_at_one_level(
    a: tuple[TournamentStanding, dict[str, object]], b: tuple[TournamentStanding, dict[str, object]]
) -> None:
    first, second = (asks("z", "q", 1, **a[1]), a[0]), (asks("b", "q", 1, **b[1]), b[0])
    assert goes_first(first, second, FAIR)
    assert not goes_first(second, first, FAIR)


def test_a_preemptor_goes_first_where_that_is_switched_on() -> None:
    first = (asks("z", "q", 1, nominated=True), TournamentStanding(HIGH, True))
    second = (asks("b", "q", 1, priority=9), TournamentStanding(NONE, False))
    assert goes_first(first, second, AdmissionRules(fair=BOTH, preemptors_first=True))
    assert goes_first(second, first, FAIR)


# -- fair: the tournament ---------------------------------------------------------------------------------------------

Specs = tuple[QuotaCohortSpec | QuotaQueueSpec, ...]
Asked = tuple[str, str, int, dict[str, object]]

FLAT: Specs = (
    cohort("root", "", {"f": 10}),
    queue("a", "root", {"f": 2}),
    queue("b", "root", {"f": 2}),
    queue("c", "root", {"f": 2}, weight=4.0),
)
NESTED: Specs = (
    cohort("root", "", {"f": 10}),
    cohort("left", "root"),
    cohort("right", "root"),
    queue("l1", "left", {"f": 2}),
    queue("l2", "left", {"f": 2}),
    queue("r1", "right", {"f": 2}),
)


@pytest.mark.parametrize(
    ("specs", "held", "asked", "order"),
    [
        pytest.param(
            FLAT, {}, (("x", "a", 3, {"priority": 9}), ("y", "b", 2, {})), ["y", "x"], id="who does not borrow"
        ),
        pytest.param(
            FLAT, {"a": 4}, (("x", "a", 2, {}), ("y", "b", 5, {})), ["y", "x"], id="the lower share with the request"
        ),
        pytest.param(
            FLAT, {}, (("x", "a", 5, {}), ("y", "c", 9, {})), ["y", "x"], id="shares by weight: 7/4 is less than 3"
        ),
        pytest.param(
            FLAT, {}, (("x", "a", 3, {"at_s": 5.0}), ("y", "b", 3, {})), ["y", "x"], id="the older one of equal shares"
        ),
        pytest.param(
            FLAT,
            {},
            (("x", "a", 3, {"priority": 1}), ("y", "b", 3, {})),
            ["x", "y"],
            id="the higher priority of equals",
        ),
        pytest.param(FLAT, {}, (("y", "b", 3, {}), ("x", "a", 3, {})), ["x", "y"], id="the name ends a tie"),
        pytest.param(
            NESTED,
            {"l2": 6},
            (("x", "l1", 2, {}), ("y", "r1", 3, {})),
            ["y", "x"],
            id="the level below the root decides: left borrows more than right, though l1 borrows nothing",
        ),
        pytest.param(
            NESTED,
            {"r1": 9},
            (("x", "l1", 5, {}), ("z", "l2", 3, {}), ("y", "r1", 1, {})),
            ["z", "x", "y"],
            id="each cohort sends its own best",
        ),
    ],
)
def test_tournament(specs: Specs, held: dict[str, int], asked: tuple[Asked, ...], order: list[str]) -> None:
    world = QuotaWorld.of(*specs, rules=FAIR)
    for name, amount in held.items():
        charge(world.node(name), world.cells({"f": amount}))
    before = world.state()
    for permuted in (asked, asked[::-1]):
        entries = [entry(world, asks(n, q, amount, **more), {"f": amount}) for n, q, amount, more in permuted]
        assert names(list(fair_order(entries, world.tree, FAIR))) == order
    assert world.state() == before


def test_shares_are_taken_anew_after_each_one() -> None:
    """`b` takes much; what was behind it is then ahead of its second entry."""
    world = QuotaWorld.of(*FLAT, rules=FAIR)
    asked = (("x", "a", 5), ("y", "b", 4), ("z", "b", 4))
    entries = [entry(world, asks(n, q, amount), {"f": amount}) for n, q, amount in asked]
    order = []
    for found in fair_order(entries, world.tree, FAIR):
        order.append(found.workload.name)
        charge(found.node, found.assignment.usage)
    assert order == ["y", "x", "z"]


def test_trees_go_in_the_order_of_their_first_entry() -> None:
    world = QuotaWorld.of(
        queue("a", "one", {"f": 2}), queue("b", "two", {"f": 2}), queue("alone", "", {"f": 2}), rules=FAIR
    )
    entries = [entry(world, asks(n, q, 1), {"f": 1}) for n, q in (("z", "a"), ("m", "alone"), ("y", "b"))]
    assert names(list(fair_order(entries, world.tree, FAIR))) == ["m", "y", "z"]
