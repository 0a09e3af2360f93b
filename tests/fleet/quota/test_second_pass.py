"""Holders that keep their quota and ask for a place, heads that keep the place they were nominated with, stand-ins."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from fleet.quota.admission_cycle import CycleResult
from fleet.quota.entries import EntryOutcome
from fleet.quota.ledger import AdmittedWorkload, PlacementBackend, PlacementRefusal, QuotaLedger, SecondPassWorkload
from fleet.quota.scheduler import AdmissionScheduler
from fleet.quota.specs import (
    AdmissionRules,
    CandidatePolicy,
    CellQuota,
    FlavorResource,
    QueuePreemption,
    QuotaFlavorSpec,
    QuotaQueueSpec,
    QuotaResourceGroup,
)
from fleet.quota.tree import QuotaTree
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason, Refusal
from fleet.snapshot import PodSet
from tests.support.quotas import usage_in


@dataclass(slots=True)
class NamedRooms:
    """A backend of named rooms; all pods of a workload go to the tightest one that holds them."""

    keeps_nominated: ClassVar[bool] = True
    free: dict[str, int]
    size: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.size = dict(self.free)

    def find(
        self, workload: Workload, given: Sequence[PodSetAssignment], *, empty: bool = False, before: object = None
    ) -> object | PlacementRefusal:
        pods, there = _pods(workload), self.size if empty else self.free
        if before is not None and there[str(before)] >= pods:
            return before
        fitting = sorted((free, name) for name, free in there.items() if free >= pods)
        return fitting[0][1] if fitting else PlacementRefusal(("main",), Refusal(Reason.TOPOLOGY, "no room"))

    def fits(self, workload: Workload, given: Sequence[PodSetAssignment]) -> bool:
        return not isinstance(self.find(workload, given), PlacementRefusal)

    def alike(self, workload: Workload, given: Sequence[PodSetAssignment]) -> Hashable | None:
        return None

    def put(self, holder: AdmittedWorkload) -> None:
        self.hold(holder.workload, holder.place)

    def lift(self, holder: AdmittedWorkload) -> None:
        self.release(holder.workload, holder.place)

    def hold(self, workload: Workload, place: object) -> None:
        if place is not None:
            self.free[str(place)] -= _pods(workload)

    def release(self, workload: Workload, place: object) -> None:
        if place is not None:
            self.free[str(place)] += _pods(workload)


def _pods(workload: Workload) -> int:
    return sum(pods.count for pods in workload.pod_sets)


def scheduler(
    rooms: PlacementBackend | None = None, rules: AdmissionRules | None = None, **cpu: int
) -> AdmissionScheduler:
    """Queues of the names in `cpu`, with so much nominal quota of one flavor, lower priorities may be preempted."""
    named = FlavorResource("default", "cpu")
    specs = [
        QuotaQueueSpec(
            name,
            "all",
            (QuotaResourceGroup(("cpu",), ("default",)),),
            {named: CellQuota(nominal)},
            preemption=QueuePreemption(CandidatePolicy.LOWER, CandidatePolicy.ANY),
        )
        for name, nominal in cpu.items()
    ]
    ledger = QuotaLedger(QuotaTree([], specs)) if rooms is None else QuotaLedger(QuotaTree([], specs), rooms)
    return AdmissionScheduler(
        ledger, {spec.name: spec for spec in specs}, {"default": QuotaFlavorSpec("default")}, rules or AdmissionRules()
    )


def workload(name: str, pods: int, queue: str = "q", priority: int = 0, **more: object) -> Workload:
    pod_sets = (PodSet("main", pods, {"cpu": 1}),)
    return Workload(name, name, queue, priority, 0.0, pod_sets, **more)  # type: ignore[arg-type]


def settled(on: AdmissionScheduler, asks: Workload, place: str | None) -> AdmittedWorkload:
    given = (PodSetAssignment("main", _pods(asks), {"cpu": "default"}, {"cpu": _pods(asks)}),)
    holder = AdmittedWorkload(
        asks, on.ledger.tree.queues[asks.queue], given, usage_in(on.ledger.tree, given), 0.0, place=place
    )
    on.settle(holder)
    return holder


def outcomes(result: CycleResult) -> dict[str, EntryOutcome]:
    return {entry.workload.name: entry.outcome for entry in result.waiting}


def test_who_holds_quota_goes_before_heads_that_matter_more() -> None:
    on = scheduler(NamedRooms({"a": 4}), q=8)
    holder = settled(on, workload("holder", 4), None)
    result = on.decide([workload("head", 4, priority=9)], [SecondPassWorkload(holder)])
    assert result.placed == [holder]
    assert holder.place == "a"
    assert result.admitted == []
    assert on.ledger.placement.free == {"a": 0}  # type: ignore[attr-defined]


def test_a_place_costs_no_quota() -> None:
    on = scheduler(NamedRooms({"a": 4, "b": 4}), q=8)
    holder = settled(on, workload("holder", 4), None)
    result = on.decide([workload("head", 4)], [SecondPassWorkload(holder)])
    assert [each.workload.name for each in result.admitted] == ["head"]
    assert list(on.ledger.tree.queues["q"].usage) == [8]


@pytest.mark.parametrize(
    ("lost", "leaves", "outcome", "evicted"),
    [
        (False, True, EntryOutcome.PENDING_PREEMPTION, ["low"]),
        (True, True, None, []),
        (True, False, EntryOutcome.NO_FIT, []),
    ],
)
def test_only_a_first_place_is_made_by_evicting_others(
    lost: bool, leaves: bool, outcome: EntryOutcome | None, evicted: list[str]
) -> None:
    on = scheduler(NamedRooms({"a": 4}), AdmissionRules(lost_leave=leaves), q=8)
    settled(on, workload("low", 4, priority=-1), "a")
    holder = settled(on, workload("holder", 4), None)
    result = on.decide([], [SecondPassWorkload(holder, lost)])
    assert outcomes(result) == ({"holder": outcome} if outcome else {})
    assert [victim.holder.workload.name for victim, _ in result.evictions] == evicted
    assert result.lost == ([] if outcome else [holder])
    assert on.ledger.holders["holder"] is holder
    assert on.still_waiting() == []


def test_a_head_keeps_its_place_while_it_is_free() -> None:
    """`first` makes the other room the tighter one for `second`, which has been nominated for its own by then."""
    on = scheduler(NamedRooms({"large": 8, "small": 4}), q=8, r=8)
    result = on.decide([workload("first", 5, priority=1), workload("second", 3, "r")])
    assert {holder.workload.name: holder.place for holder in result.admitted} == {"first": "large", "second": "small"}


def test_victims_of_another_are_not_waited_for_where_nobody_is_nominated_again() -> None:
    on = scheduler(rules=AdmissionRules(victims_again=False), a=4, b=4, c=0)
    settled(on, workload("victim", 8, "c", priority=-1), None)
    result = on.decide([workload("first", 4, "a", priority=1), workload("second", 4, "b")])
    assert outcomes(result) == {"first": EntryOutcome.PENDING_PREEMPTION, "second": EntryOutcome.SKIPPED}
    assert result.skipped_preemptions == {"b": 1}
    assert result.recomputed == {}


def test_a_gate_holds_evictions_back() -> None:
    on = scheduler(q=4)
    settled(on, workload("low", 4, priority=-1), None)
    result = on.decide([workload("gated", 4, may_evict=False)])
    assert outcomes(result) == {"gated": EntryOutcome.GATED}
    assert result.evictions == []


@pytest.mark.parametrize(("pods", "admitted"), [(6, True), (9, False)])
def test_a_stand_in_takes_over_what_the_other_holds(pods: int, admitted: bool) -> None:
    on = scheduler(NamedRooms({"a": 8}), q=8)
    old = settled(on, workload("old", 4), "a")
    result = on.decide([workload("new", pods, replaces="old")])
    assert result.replaced == ([old] if admitted else [])
    assert sorted(on.ledger.holders) == (["new"] if admitted else ["old"])
    assert on.ledger.placement.free == {"a": 8 - (pods if admitted else 4)}  # type: ignore[attr-defined]
    assert list(on.ledger.tree.queues["q"].usage) == [pods if admitted else 4]
    assert result.evictions == []


def test_a_stand_in_evicts_others_for_the_rest() -> None:
    on = scheduler(NamedRooms({"a": 8}), q=8)
    settled(on, workload("old", 4), "a")
    settled(on, workload("low", 4, priority=-1), "a")
    result = on.decide([workload("new", 6, replaces="old")])
    assert [victim.holder.workload.name for victim, _ in result.evictions] == ["low"]
    assert sorted(on.ledger.holders) == ["low", "old"]
    on.vacate("low")
    assert [holder.workload.name for holder in on.cycle().admitted] == ["new"]
    assert sorted(on.ledger.holders) == ["new"]
