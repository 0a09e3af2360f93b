"""The heads of a cycle with what was found for them, and the order they are decided in (reference 2.6)."""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.quota.candidates import Victim
from fleet.quota.declared import AdmissionRules, QuotaQueueSpec
from fleet.quota.flavors import PreemptionMode, WorkloadAssignment
from fleet.quota.share import DominantResourceShare, borrows_any, dominant_resource_share
from fleet.quota.tree import QuotaNode, QuotaTree, charge, release
from fleet.quota.workload import AdmittedWorkload, SecondPassWorkload, Workload


class EntryOutcome(StrEnum):
    """What became of a head, by where it goes next."""

    ADMITTED = "Admitted"
    EVICTED = "Evicted"
    """It held quota and lost its place for good."""
    NO_FIT = "NoFit"
    NO_CANDIDATES = "NoCandidates"
    SKIPPED = "FailedAfterNomination"
    """Another head was faster."""
    PENDING_PREEMPTION = "PendingPreemption"
    GATED = "BlockedOnPreemptionGates"
    BUSY = "Busy"
    """It keeps its turn while its last decision is written."""
    GENERIC = "Generic"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    PREEMPTION_FAILED = "PreemptionFailed"


_AT_ONCE = frozenset(
    {EntryOutcome.SKIPPED, EntryOutcome.PENDING_PREEMPTION, EntryOutcome.PREEMPTION_FAILED, EntryOutcome.GATED}
)


def requeues_immediately(outcome: EntryOutcome, *, strict: bool, untried: bool) -> bool:
    """Whether a head goes back into line, rather than aside until something changes (reference 2.8)."""
    if strict:
        return outcome is not EntryOutcome.NAMESPACE_MISMATCH
    return outcome in _AT_ONCE or untried


def stays_at_head(outcome: EntryOutcome, *, strict: bool) -> bool:
    """Whether it keeps its turn whatever arrives: others are leaving for it."""
    return not strict and outcome is EntryOutcome.PENDING_PREEMPTION


@dataclass(slots=True, eq=False)
class CycleEntry:
    """One head of a cycle."""

    workload: Workload
    queue: QuotaQueueSpec
    node: QuotaNode
    assignment: WorkloadAssignment
    victims: list[Victim] = field(default_factory=list)
    outcome: EntryOutcome = EntryOutcome.GENERIC
    deferred: bool = False
    """It fits once the victims of others in this cycle are gone, and has none of its own."""
    backfills: bool = False
    """It ends before the reservations of others are due, and uses what they will need."""
    beside: bool = False
    """It fits now, and will once those who are leaving have made room for others: it need not wait for that."""
    resumed: bool = False
    """Its search went on behind flavors it was overtaken on; those may be free by now and were not looked at."""
    gone: tuple[AdmittedWorkload, ...] = ()
    """Those who leave for it to start: the one it stands in for, and where it is deferred those who were leaving."""
    parted: bool = False
    """It was nominated as if those who are leaving already had left."""
    unseated: SecondPassWorkload | None = None
    """It holds its quota and asks only for a place."""

    def wait_for(self, leaving: Iterable[AdmittedWorkload]) -> None:
        """It fits once these and the victims of others are gone."""
        self.deferred, self.gone = True, tuple(dict.fromkeys((*self.gone, *leaving)))

    @property
    def mode(self) -> PreemptionMode:
        """How its assignment could be had."""
        return self.assignment.mode


def classical_order(entries: Sequence[CycleEntry], rules: AdmissionRules) -> list[CycleEntry]:
    """Who holds quota already first, then less borrowing, priority, age; name and uid end every tie."""

    def key(entry: CycleEntry) -> tuple[object, ...]:
        workload = entry.workload
        return (
            entry.unseated is None,
            rules.preemptors_first and not workload.nominated,
            -entry.queue.rank,
            entry.assignment.borrow,
            -workload.priority if rules.priority_between_queues else 0,
            workload.at_s,
            workload.evicted_at_s,
            workload.name,
            workload.uid,
        )

    return sorted(entries, key=key)


@dataclass(frozen=True, slots=True)
class TournamentStanding:
    """How an entry looks at one level of the tournament."""

    share: DominantResourceShare
    borrows_requested: bool
    """The child it comes through borrows something that the entry asks for."""


def goes_first(
    a: tuple[Workload, TournamentStanding], b: tuple[Workload, TournamentStanding], rules: AdmissionRules
) -> bool:
    """Whether `a` wins at one level of the tournament."""
    return _fair_key(*a, rules) < _fair_key(*b, rules)


def _fair_key(workload: Workload, standing: TournamentStanding, rules: AdmissionRules) -> tuple[object, ...]:
    return (
        rules.preemptors_first and not workload.nominated,
        standing.borrows_requested,
        standing.share.key,
        -workload.priority,
        workload.at_s,
        workload.name,
        workload.uid,
    )


def _by_name(entry: CycleEntry) -> tuple[str, str]:
    return entry.workload.name, entry.workload.uid


def fair_order(
    entries: Sequence[CycleEntry],
    tree: QuotaTree,
    rules: AdmissionRules,
    following: Callable[[CycleEntry], CycleEntry | None] = lambda _entry: None,
) -> Iterator[CycleEntry]:
    """Entries by a tournament of dominant shares in each tree, shares taken anew after each one.

    Trees go in the order of their first entry (upstream: any order). What is charged to the tree between two entries
    counts for the next. `following` is asked, once an entry was dealt with, for one that joins the tournament.
    """
    left = sorted(entries, key=_by_name)
    while left:
        root = left[0].node.root
        best = left[0] if root is left[0].node else _winner(root, [e for e in left if e.node.root is root], tree, rules)
        left.remove(best)
        yield best
        if (another := following(best)) is not None:
            insort(left, another, key=_by_name)


def _winner(root: QuotaNode, entries: Sequence[CycleEntry], tree: QuotaTree, rules: AdmissionRules) -> CycleEntry:
    standings: dict[tuple[int, int], TournamentStanding] = {}
    by_queue: dict[int, list[CycleEntry]] = {}
    for entry in entries:
        by_queue.setdefault(id(entry.node), []).append(entry)
        cells = [cell for cell, amount in entry.assignment.usage.items() if amount]
        charge(entry.node, entry.assignment.usage)
        for node in (entry.node, *entry.node.ancestors()):
            if node.parent is not None:
                standings[id(entry), id(node)] = TournamentStanding(
                    dominant_resource_share(tree, node), borrows_any(node, cells)
                )
        release(entry.node, entry.assignment.usage)

    def champion(node: QuotaNode) -> CycleEntry | None:
        """Who wins the tournament below a node: a queue's own head by its order, else the fairest of the children's."""
        candidates = list(by_queue.get(id(node), ()))
        through = {id(entry): node for entry in candidates}
        for child in node.children:
            if (entry := champion(child)) is not None:
                candidates.append(entry)
                through[id(entry)] = child
        if not candidates:
            return None
        if node.is_queue:
            return min(
                candidates, key=lambda e: (-e.workload.priority, e.workload.at_s, e.workload.name, e.workload.uid)
            )
        return min(
            candidates,
            key=lambda entry: _fair_key(entry.workload, standings[id(entry), id(through[id(entry)])], rules),
        )

    best = champion(root)
    assert best is not None  # noqa: S101 -- there is at least one entry below this root
    return best
