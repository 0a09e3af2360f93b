"""Small worlds for the quota engine: queues, holders and waiting workloads in one line each.

A cell of quota is written `"flavor"` (its cpu) or `"flavor/resource"`. Amounts are bare integers: no rule of the engine
asks what they are amounts of. A workload's uid is its name.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleet.quota.admission_cycle import CycleResult
from fleet.quota.entries import EntryOutcome
from fleet.quota.ledger import AdmittedWorkload, QuotaLedger
from fleet.quota.pending_queue import PendingQueue
from fleet.quota.preemption import PreemptionContext, Victim
from fleet.quota.scheduler import AdmissionScheduler
from fleet.quota.specs import (
    AdmissionRules,
    CandidatePolicy,
    CellQuota,
    FlavorResource,
    PreemptionStrategy,
    QueuePreemption,
    QuotaCohortSpec,
    QuotaFlavorSpec,
    QuotaQueueSpec,
    QuotaResourceGroup,
)
from fleet.quota.tree import Cell, QuotaNode, QuotaTree
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason
from fleet.snapshot import PodSet

Bound = int | tuple[int, int | None] | tuple[int, int | None, int | None]
"""Nominal, or (nominal, borrowing limit), or (nominal, borrowing limit, lending limit)."""
Amounts = Mapping[str, int]
"""Cell -> amount, or resource -> amount where something is asked for."""

BOTH = (PreemptionStrategy.FINAL, PreemptionStrategy.INITIAL)
FAIR = AdmissionRules(fair=BOTH)
CLASSICAL = AdmissionRules()

RECLAIM = QueuePreemption(reclaim=CandidatePolicy.ANY)
WITHIN = QueuePreemption(within_queue=CandidatePolicy.LOWER)
ALL = QueuePreemption(CandidatePolicy.LOWER, CandidatePolicy.ANY)
BORROWING = QueuePreemption(CandidatePolicy.LOWER, CandidatePolicy.ANY, CandidatePolicy.LOWER)


def cell_name(cell: str) -> FlavorResource:
    """The (flavor, resource) that `"flavor"` or `"flavor/resource"` means."""
    flavor, _, resource = cell.partition("/")
    return FlavorResource(flavor, resource or "cpu")


def quotas(given: Mapping[str, Bound]) -> dict[FlavorResource, CellQuota]:
    """Cells of quota."""
    return {
        cell_name(cell): CellQuota(*((bound,) if isinstance(bound, int) else bound)) for cell, bound in given.items()
    }


def cohort(
    name: str, parent: str = "", given: Mapping[str, Bound] | None = None, weight: float = 1.0
) -> QuotaCohortSpec:
    """A cohort."""
    return QuotaCohortSpec(name, parent, quotas(given or {}), weight)


def queue(name: str, above: str = "", given: Mapping[str, Bound] | None = None, **more: Any) -> QuotaQueueSpec:
    """A queue. Flavors that have the same resources form a group, unless `groups` says otherwise."""
    cells = quotas({"f": 0} if given is None else given)
    resources: dict[str, tuple[str, ...]] = {}
    for cell in cells:
        resources[cell.flavor] = (*resources.get(cell.flavor, ()), cell.resource)
    flavors: dict[tuple[str, ...], tuple[str, ...]] = {}
    for flavor, covered in resources.items():
        flavors[covered] = (*flavors.get(covered, ()), flavor)
    groups = more.pop("groups", tuple(QuotaResourceGroup(covered, names) for covered, names in flavors.items()))
    return QuotaQueueSpec(name, above, groups, cells, **more)


def usage_in(tree: QuotaTree, given: Sequence[PodSetAssignment]) -> dict[Cell, int]:
    """Amounts of cells that pod sets hold together."""
    usage: dict[Cell, int] = {}
    for pods in given:
        for resource, flavor in pods.flavors.items():
            cell = tree.cell(FlavorResource(flavor, resource))
            usage[cell] = usage.get(cell, 0) + pods.amounts.get(resource, 0)
    return usage


def asks(name: str, above: str, wanted: int | Amounts | Sequence[PodSet], **more: Any) -> Workload:
    """A workload: an amount of cpu, amounts of resources, or pod sets."""
    if isinstance(wanted, int):
        wanted = {"cpu": wanted}
    pod_sets = (PodSet("main", 1, wanted),) if isinstance(wanted, Mapping) else tuple(wanted)
    more = {"priority": 0, "at_s": 0.0} | more
    created_at_s = more.pop("at_s")
    return Workload(name, name, above, more.pop("priority"), created_at_s, pod_sets, **more)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one cycle decided, by name."""

    admitted: dict[str, dict[str, str]] = field(default_factory=dict)
    """Workload -> resource -> flavor, of its first pod set."""
    evicted: dict[str, Reason] = field(default_factory=dict)
    waiting: dict[str, EntryOutcome] = field(default_factory=dict)

    @classmethod
    def of(cls, result: CycleResult) -> "Turn":
        return cls(
            {holder.workload.name: dict(holder.given[0].flavors) for holder in result.admitted},
            {victim.holder.workload.name: victim.reason for victim, _ in result.evictions},
            {entry.workload.name: entry.outcome for entry in result.waiting},
        )


@dataclass(slots=True)
class QuotaWorld:
    """A scheduler with what it decides on. Evicted workloads are gone at once and wait again."""

    scheduler: AdmissionScheduler
    now_s: float = 1000.0
    """Reservations of later cycles are newer than those of earlier ones."""
    tired_after: int | None = None
    """Evictions after which a workload evicts nobody any more; None = it always may."""
    evictions: Counter[str] = field(default_factory=Counter)
    """uid -> how often it was evicted."""

    @classmethod
    def of(
        cls,
        *specs: QuotaCohortSpec | QuotaQueueSpec,
        rules: AdmissionRules = CLASSICAL,
        flavors: Sequence[QuotaFlavorSpec] = (),
    ) -> "QuotaWorld":
        """A flavor that is named by quota and not given has no labels and no taints."""
        cohorts = [spec for spec in specs if isinstance(spec, QuotaCohortSpec)]
        queues = [spec for spec in specs if isinstance(spec, QuotaQueueSpec)]
        tree = QuotaTree(cohorts, queues)
        known = {cell.flavor: QuotaFlavorSpec(cell.flavor) for cell in tree.cells} | {
            spec.name: spec for spec in flavors
        }
        return cls(AdmissionScheduler(QuotaLedger(tree), {spec.name: spec for spec in queues}, known, rules))

    @property
    def ledger(self) -> QuotaLedger:
        return self.scheduler.ledger

    @property
    def tree(self) -> QuotaTree:
        return self.scheduler.ledger.tree

    def node(self, name: str) -> QuotaNode:
        return self.tree.queues.get(name) or self.tree.cohorts[name]

    def cell(self, cell: str = "f") -> int:
        return self.tree.cell(cell_name(cell))

    def cells(self, amounts: Amounts) -> dict[int, int]:
        return {self.cell(cell): amount for cell, amount in amounts.items()}

    def holds(
        self, name: str, above: str, held: int | Amounts, *, reserved_at_s: float = 0.0, **more: Any
    ) -> AdmittedWorkload:
        """A workload that holds cells already; a bare amount is one of flavor `f`."""
        cells = {cell_name(cell): n for cell, n in ({"f": held} if isinstance(held, int) else held).items()}
        flags = {flag: more.pop(flag) for flag in ("leaving", "protected") if flag in more}
        workload = asks(name, above, {cell.resource: amount for cell, amount in cells.items()}, **more)
        given = PodSetAssignment(
            "main",
            1,
            {cell.resource: cell.flavor for cell in cells},
            {cell.resource: amount for cell, amount in cells.items()},
        )
        holder = AdmittedWorkload(
            workload, self.tree.queues[above], (given,), usage_in(self.tree, (given,)), reserved_at_s, **flags
        )
        self.scheduler.settle(holder)
        return holder

    def waits(self, name: str, above: str, wanted: int | Amounts | Sequence[PodSet], **more: Any) -> Workload:
        """A workload that waits in a queue."""
        workload = asks(name, above, wanted, **more)
        self.scheduler.submit(workload)
        return workload

    def contest(self, name: str, above: str, wanted: int | Amounts, **more: Any) -> PreemptionContext:
        """A workload that wants cells (`wanted` names cells here), all of them contested unless `cells` says which."""
        usage = self.cells({"f": wanted} if isinstance(wanted, int) else wanted)
        cells = more.pop("cells", None)
        workload = asks(name, above, {self.tree.cells[cell].resource: n for cell, n in usage.items()}, **more)
        contested = frozenset(usage if cells is None else self.cells(dict.fromkeys(cells, 0)))
        spec = self.scheduler.queues[above]
        return PreemptionContext(self.ledger, workload, spec, self.tree.queues[above], usage, contested)

    def decide(self) -> Turn:
        """One cycle; evictions are not carried out."""
        return Turn.of(self.scheduler.cycle())

    def turn(self) -> Turn:
        """One cycle, with its evictions carried out; who waits for room that others leave is marked so."""
        self.now_s += 1
        self.scheduler.now_s = self.now_s
        result = self.scheduler.cycle()
        for victim, _ in result.evictions:
            gone = self.scheduler.vacate(victim.holder.workload.uid).workload
            self.evictions[gone.uid] += 1
            preempts = gone.preempts and (self.tired_after is None or self.evictions[gone.uid] < self.tired_after)
            self.scheduler.submit(replace(gone, nominated=False, preempts=preempts))
        for entry in result.waiting:
            if entry.outcome is EntryOutcome.PENDING_PREEMPTION:
                self.scheduler.submit(replace(entry.workload, nominated=True))
        return Turn.of(result)

    def until_quiet(self, most: int = 100) -> list[Turn]:
        """Cycles until three in a row change nothing. AssertionError when `most` were not enough."""
        turns: list[Turn] = []
        idle = 0
        while idle < 3:
            assert len(turns) < most, f"still moving: {turns[-6:]}"
            turns.append(self.turn())
            idle = 0 if turns[-1].admitted or turns[-1].evicted else idle + 1
        return turns[:-3]

    def holders(self) -> dict[str, str]:
        """Holder -> queue, in name order."""
        return {name: self.ledger.holders[name].queue.name for name in sorted(self.ledger.holders)}

    def state(self) -> dict[str, list[int]]:
        """Every node's usage."""
        return {name: list(node.usage) for name, node in (*self.tree.cohorts.items(), *self.tree.queues.items())}


def reasons(victims: Sequence[Victim]) -> dict[str, Reason]:
    """Victim -> why, in the order they were found."""
    return {victim.holder.workload.name: victim.reason for victim in victims}


def inadmissible(pending: PendingQueue) -> list[Workload]:
    """Those that wait and are not looked at, in order."""
    looked_at = {workload.uid for workload in pending.active()}
    return [workload for workload in pending.in_order() if workload.uid not in looked_at]
