"""Orders the entries of a cycle: the heads of queues with what was found for them.

Kueue's classical and fair-sharing iterators (`pkg/scheduler`; reference 2.6), and where a head goes next (2.8).
"""

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fleet.quota.ledger import AdmittedWorkload, SecondPassWorkload
from fleet.quota.preemption import Victim
from fleet.quota.specs import AdmissionRules, QuotaQueueSpec
from fleet.quota.tree import (
    DominantResourceShare,
    QuotaNode,
    QuotaTree,
    UnrelatedNodes,
    charge,
    dominant_resource_share,
    release,
)
from fleet.quota.workload import PreemptionMode, Workload, WorkloadAssignment


class EntryOutcome(StrEnum):
    """What became of a head, by where it goes next (Kueue's RequeueReason, and ends without requeuing)."""

    ADMITTED = "Admitted"
    EVICTED = "Evicted"
    """It held quota and lost its place for good."""
    NO_FIT = "NoFit"
    NO_CANDIDATES = "NoCandidates"
    SKIPPED = "FailedAfterNomination"
    """An entry decided earlier in the cycle took the quota or the place."""
    PENDING_PREEMPTION = "PendingPreemption"
    GATED = "BlockedOnPreemptionGates"
    BUSY = "Busy"
    """The workload's last decision is still being saved; it stays at the head meanwhile."""
    GENERIC = "Generic"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    PREEMPTION_FAILED = "PreemptionFailed"


_AT_ONCE = frozenset(
    {EntryOutcome.SKIPPED, EntryOutcome.PENDING_PREEMPTION, EntryOutcome.PREEMPTION_FAILED, EntryOutcome.GATED}
)


def requeues_immediately(outcome: EntryOutcome, *, strict: bool, untried: bool) -> bool:
    """Returns whether a head goes back into its queue, rather than aside until something changes (reference 2.8)."""
    if strict:
        return outcome is not EntryOutcome.NAMESPACE_MISMATCH
    return outcome in _AT_ONCE or untried


def stays_at_head(outcome: EntryOutcome, *, strict: bool) -> bool:
    """Returns whether a workload stays at the head of its queue, because victims are leaving for it."""
    return not strict and outcome is EntryOutcome.PENDING_PREEMPTION


@dataclass(slots=True, eq=False)
class CycleEntry:
    """A `CycleEntry` is one head of a cycle, with what could be given to it (Kueue's entry)."""

    workload: Workload
    queue: QuotaQueueSpec
    node: QuotaNode
    assignment: WorkloadAssignment
    victims: list[Victim] = field(default_factory=list)
    outcome: EntryOutcome = EntryOutcome.GENERIC
    deferred: bool = False
    """Whether it fits once victims of other entries are gone, and needs none of its own."""
    backfills: bool = False
    """Whether it uses what is reserved for others, because it ends before they need it."""
    fits_beside: bool = False
    """Whether it fits now and also after leaving holders have made room for others, so that it need not wait."""
    resumed: bool = False
    """Whether its search resumed after flavors tried in an earlier cycle, which were not looked at again."""
    gone: tuple[AdmittedWorkload, ...] = ()
    """Holders that leave before it starts: the one it replaces and, if deferred, those that were leaving."""
    leaving_gone: bool = False
    """Whether it was nominated as if holders that are leaving had left."""
    second_pass: SecondPassWorkload | None = None
    """Set for a workload that holds quota already and asks only for a place."""

    def wait_for(self, leaving: tuple[AdmittedWorkload, ...]) -> None:
        """Notes that the entry fits once these holders and the victims of others are gone."""
        self.deferred, self.gone = True, tuple(dict.fromkeys((*self.gone, *leaving))) if self.gone else leaving

    @property
    def mode(self) -> PreemptionMode:
        """Returns how the entry's assignment could be had: it fits, by preemption, or not at all."""
        return self.assignment.mode


def classical_order(entries: Sequence[CycleEntry], rules: AdmissionRules) -> list[CycleEntry]:
    """Returns entries by: holds quota already, less borrowing, priority, age; name and uid end every tie."""

    def key(entry: CycleEntry) -> tuple[object, ...]:
        return (entry.second_pass is None, *classical_key(entry.workload, rules, entry.assignment.borrow))

    return sorted(entries, key=key)


def classical_key(workload: Workload, rules: AdmissionRules, borrow: int = 0) -> tuple[object, ...]:
    """Returns what orders the heads of queues, of which each borrows from so far up."""
    return (
        rules.preemptors_first and not workload.nominated,
        borrow,
        -workload.priority if rules.priority_between_queues else 0,
        workload.at_s,
        workload.evicted_at_s,
        workload.name,
        workload.uid,
    )


KnownStandings = dict[int, tuple[object, dict[tuple[int, int], "TournamentStanding"]]]
"""id of an entry -> its standings, and the usage of the nodes above it that they were found with."""


def _by_name(entry: CycleEntry) -> tuple[str, str]:
    return entry.workload.name, entry.workload.uid


def fair_order(
    entries: Sequence[CycleEntry],
    tree: QuotaTree,
    rules: AdmissionRules,
    following: Callable[[CycleEntry], CycleEntry | None] = lambda _entry: None,
) -> Iterator[CycleEntry]:
    """Yields entries by a tournament of dominant shares in each tree; shares are computed again after each.

    Trees go in the order of their first entry (upstream: any order). What is charged to the tree between two entries
    counts for the next. `following` is asked, once an entry was dealt with, for one that joins the tournament.
    """
    left, known = sorted(entries, key=_by_name), KnownStandings()
    while left:
        best, root = left[0], left[0].node.root
        if root is not best.node:
            best = _winner(root, [entry for entry in left if entry.node.root is root], tree, rules, known)
        left.remove(best)
        known.pop(id(best), None)
        yield best
        if (another := following(best)) is not None:
            insort(left, another, key=_by_name)


def _winner(
    root: QuotaNode, entries: Sequence[CycleEntry], tree: QuotaTree, rules: AdmissionRules, known: KnownStandings
) -> CycleEntry:
    """Returns the entry that wins the tournament of one tree."""
    standings = _standings(entries, tree, known, by_part=root.name in rules.guarantee_trees)
    by_queue: dict[int, list[CycleEntry]] = {}
    for entry in entries:
        by_queue.setdefault(id(entry.node), []).append(entry)

    def champion(node: QuotaNode) -> CycleEntry | None:
        """Returns who wins below a node: a queue's first head, else the fairest of those who won below it."""
        if node.is_queue:
            return min(by_queue.get(id(node), ()), key=_own_key, default=None)
        won = [(entry, child) for child in node.children if (entry := champion(child)) is not None]
        if not won:
            return None
        return min(won, key=lambda it: fair_key(it[0].workload, standings[id(it[0]), id(it[1])], rules))[0]

    best = champion(root)
    if best is None:
        raise UnrelatedNodes(f"no entry waits below {root.path}")
    return best


def _own_key(entry: CycleEntry) -> tuple[object, ...]:
    """Returns the sort key of a queue's own heads: priority, age, name, uid."""
    workload = entry.workload
    return -workload.priority, workload.at_s, workload.name, workload.uid


@dataclass(frozen=True, slots=True)
class TournamentStanding:
    """A `TournamentStanding` is what an entry is compared by at one level of the fair-sharing tournament."""

    share: DominantResourceShare
    borrows_requested: bool
    """The child it comes through borrows something that the entry asks for."""
    part_used: tuple[float, ...] = ()
    """Where parts of shares order: what the child uses of its fair share after and before, and how large that share is
    (of equals, the one with the smaller share goes first); without fair shares, what it uses of its guarantee."""
    rank: int = 0
    """Of the queue that the entry comes from."""


def fair_key(workload: Workload, standing: TournamentStanding, rules: AdmissionRules) -> tuple[object, ...]:
    """Orders workloads at one level of the tournament: the lowest key wins."""
    return (
        rules.preemptors_first and not workload.nominated,
        -standing.rank,
        standing.borrows_requested,
        standing.share.key,
        standing.part_used,
        -workload.priority,
        workload.at_s,
        workload.name,
        workload.uid,
    )


def _standings(
    entries: Sequence[CycleEntry], tree: QuotaTree, known: KnownStandings, *, by_part: bool = False
) -> dict[tuple[int, int], TournamentStanding]:
    """Returns (id of an entry, id of a node above it) -> its standing there once all it asks for is charged."""
    found: dict[tuple[int, int], TournamentStanding] = {}
    for entry in entries:
        path = [node for node in (entry.node, *entry.node.ancestors()) if node.parent is not None]
        usage = tuple(tuple(node.usage) for node in path)
        if (last := known.get(id(entry))) is None or last[0] != usage:
            last = known[id(entry)] = usage, dict(_standings_of(entry, path, tree, by_part=by_part))
        found |= last[1]
    return found


def _standings_of(
    entry: CycleEntry, path: Sequence[QuotaNode], tree: QuotaTree, *, by_part: bool
) -> Iterator[tuple[tuple[int, int], TournamentStanding]]:
    cells = [cell for cell, amount in entry.assignment.usage.items() if amount]
    before = [_part_used(node) if by_part else 0.0 for node in path]
    charge(entry.node, entry.assignment.usage)
    for node, used in zip(path, before, strict=True):
        share = _NOTHING if by_part else dominant_resource_share(tree, node)
        parts = _parts(node, used) if by_part else ()
        standing = TournamentStanding(share, not node.within(cells), parts, entry.queue.rank)
        yield (id(entry), id(node)), standing
    release(entry.node, entry.assignment.usage)


_NOTHING: Final = DominantResourceShare(0.0, 1.0)


def _part_used(node: QuotaNode) -> float:
    return node.share_used() if node.fair_shares else node.guarantee_used()


def _parts(node: QuotaNode, before: float) -> tuple[float, ...]:
    """Returns `TournamentStanding.part_used` of a node to which an entry is charged."""
    if not node.fair_shares:
        return (before,)
    return _part_used(node), before, sum(share.part for share in node.fair_shares)
