"""Nominates the heads of queues: what each could be given as the ledger stands, and whom it waits for.

Kueue's `nominate` (`pkg/scheduler/scheduler.go`; reference 2.3), with EASY backfill around those who wait too long: the
first overdue workload of a queue has a reservation, with the instant at which it could start if everybody ended when
they say they will. Until then others may use what is reserved if they say they end before (Lifka, "The ANL/IBM SP
scheduling system"; Slurm's and Volcano's `sla-waiting-time` reserve without an end).
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple, TypeVar

from fleet.actions import gang_subject
from fleet.fence import concerning
from fleet.quota.admission_fair_sharing import UsageLedger
from fleet.quota.assignment_search import AssignmentSearch
from fleet.quota.entries import CycleEntry, EntryOutcome
from fleet.quota.ledger import AdmittedWorkload, PlacementRefusal, QuotaLedger, SecondPassWorkload
from fleet.quota.preemption import Mover
from fleet.quota.specs import AdmissionRules, QuotaFlavorSpec, QuotaQueueSpec
from fleet.quota.tree import QuotaNode, charge, fits, release
from fleet.quota.workload import PreemptionMode, Workload, WorkloadAssignment, by_resource
from fleet.reasons import Reason
from fleet.snapshot.elastic_parts import whole

FOR_GOOD = frozenset({Reason.EXCEEDS_MAX_QUOTA, Reason.NO_MATCHING_FLAVOR})
"""Reasons that waiting does not change."""


@dataclass(frozen=True, slots=True)
class HeldCapacity:
    """The quota and place that are kept for a workload that waits."""

    workload: Workload
    node: QuotaNode
    usage: Mapping[int, int]
    place: object = None
    blocked: bool = False
    """Whether nobody leaves for it, and it is only kept from others: its team does not use it."""

    def take(self, ledger: QuotaLedger) -> None:
        """Charges the quota and holds the place: nobody else gets them from now on."""
        charge(self.node, self.usage)
        if self.place is not None:
            ledger.placement.hold(self.workload, self.place)

    def give(self, ledger: QuotaLedger) -> None:
        """Undoes `take`."""
        ledger.given_back += 1
        if self.place is not None:
            ledger.placement.release(self.workload, self.place)
        release(self.node, self.usage)


@dataclass(frozen=True, slots=True)
class BackfillReservation:
    """Capacity held for an overdue workload, which could start then (epoch seconds; inf = nobody says)."""

    held: HeldCapacity
    starts_at_s: float


class _LastAssignment(NamedTuple):
    """The flavors at which a workload's search goes on (Kueue's LastAssignment)."""

    indexes: Sequence[Mapping[str, int]]
    cycle: int
    changes: int

    def untried(self) -> bool:
        """Returns whether some resource has flavors left to try."""
        return any(index != -1 for tried in self.indexes for index in tried.values())


@dataclass(slots=True)
class Nominator:
    """Nominates heads of queues against the ledger, by the rules, local usage and reservations it holds."""

    ledger: QuotaLedger
    queues: Mapping[str, QuotaQueueSpec]
    flavors: Mapping[str, QuotaFlavorSpec]
    rules: AdmissionRules = field(default_factory=AdmissionRules)
    now_s: float = 0.0
    local_usage: dict[str, float] = field(default_factory=dict)
    """Local queue -> decayed usage."""
    usage_ledger: UsageLedger | None = None
    """The ledger that `local_usage` is computed from, where admissions are to count within a sweep."""
    reservations: list[BackfillReservation] = field(default_factory=list)
    """Reservations made in this sweep: at most one a queue."""
    held: list[HeldCapacity] = field(default_factory=list)
    """Capacity held until the end of this sweep for workloads that wait."""
    mover: Mover | None = None
    """Finds who could stand elsewhere, so that a workload finds a place; None = nobody is moved."""
    _last: dict[str, _LastAssignment] = field(default_factory=dict)
    """uid -> where the search for flavors resumes."""
    _refused_beside: dict[Hashable, int] = field(default_factory=dict)
    """What is alike for those who were refused a place beside holders that leave -> `given_back` of the ledger then."""
    _changes: dict[str, int] = field(default_factory=dict)
    """Root -> how often anything changed below it."""
    _cycle: int = 0

    def rules_for(self, node: QuotaNode) -> AdmissionRules:
        """Returns the rules of a queue's tree."""
        trees = self.rules.fair_trees
        if not self.rules.fair or trees is None or node.root.name in trees:
            return self.rules
        return replace(self.rules, fair=())

    def search(self, queue: str, only: Mapping[str, Mapping[str, str]] | None = None) -> AssignmentSearch:
        """Returns the search for assignments in a queue; `only` is pod set -> resource -> the one flavor to look at."""
        spec, node = self.queues[queue], self.ledger.tree.queues[queue]
        usage = self.local_usage if spec.usage_ordered else {}
        rules = self.rules_for(node)
        return AssignmentSearch(self.ledger, rules, spec, node, self.flavors, usage, only, self.mover)

    def changed(self, node: QuotaNode) -> None:
        """Notes that something changed in the node's tree."""
        root = node.root.name
        self._changes[root] = self._changes.get(root, 0) + 1

    def forget_progress(self, workload: Workload) -> None:
        """Lets the next search for flavors of a workload start with the first."""
        self._last.pop(workload.uid, None)

    def nominate(self, workload: Workload) -> CycleEntry:
        """Returns the entry of a queue's head: its best assignment and victims as the ledger stands."""
        spec, node = self.queues[workload.queue], self.ledger.tree.queues[workload.queue]
        changes = self._changes.get(node.root.name, 0)
        last = self._last_of(workload, changes)
        resume = last.indexes if last and last.untried() else None
        resumed = resume is not None and not self.rules.upstream_defects
        search = self.search(workload.queue)
        search.places_later = self.rules.place_again and not self.ledger.placement.keeps_nominated
        leaving, was_gone = self.rules.wait_for_leaving and bool(self.ledger.leaving), self.ledger.leaving_gone
        with about(workload):
            waits = leaving and not self.ledger.leaving_gone and not search.fits_now(workload, resume)
            if waits:  # whom else it could evict would be forgotten again
                self.ledger.count_leaving(gone=True)
                resume = None
            assignment, victims = search.best(workload, resume)
        replaced = self.ledger.holders.get(workload.replaces)
        entry = CycleEntry(
            workload,
            spec,
            node,
            assignment,
            victims,
            gone=() if replaced is None else (replaced,),
            resumed=resumed,
            leaving_gone=self.ledger.leaving_gone,
        )
        if waits:
            self._beside_leaving(entry)
        elif leaving:
            self._wait_for_leaving(entry, search, resume)
        if entry.victims and any(held.blocked for held in self.held):
            self._beside_blocked(entry, search, resume)
        # A search that began with the first flavor instead of where it was has nothing left to resume.
        began_anew = resumed and entry.leaving_gone and not was_gone
        indexes = () if began_anew else entry.assignment.indexes()
        self._last[workload.uid] = _LastAssignment(indexes, self._cycle, changes)
        if self.reservations and entry.mode is not PreemptionMode.FIT:
            self._backfill(entry, search)
        return entry

    def _beside_blocked(
        self, entry: CycleEntry, search: AssignmentSearch, resume: Sequence[Mapping[str, int]] | None
    ) -> None:
        """Nominates an entry again with nothing charged to teams for what is kept free for their blocked heads.

        Kueue keeps it free from others and chooses victims before: a team within its guarantee is no borrower because
        of it. Where the entry would fit but for that, it waits, and nobody leaves.
        """
        self.ledger.count_leaving(gone=entry.leaving_gone)
        blocked = [held for held in self.held if held.blocked]
        for held in blocked:
            release(held.node, held.usage)
        assignment, victims = search.best(entry.workload, resume)
        for held in reversed(blocked):
            charge(held.node, held.usage)
        entry.victims = victims
        if assignment.mode is not PreemptionMode.FIT:
            entry.assignment = assignment

    def _last_of(self, workload: Workload, changes: int) -> _LastAssignment | None:
        """Returns where a workload's search for flavors resumes; None where it starts again.

        It starts again if the workload was not nominated in the last cycle and its tree has changed since.
        """
        last = self._last.get(workload.uid)
        if last is not None and last.cycle < self._cycle - 1 and last.changes != changes:
            return None
        return last

    def nominate_again(self, second_pass: SecondPassWorkload) -> CycleEntry:
        """Returns the entry of a holder of quota that needs a place (Kueue's second pass)."""
        self.ledger.count_leaving(gone=False)
        holder = second_pass.holder
        with about(holder.workload):
            assignment, victims = self.search(holder.queue.name).find_place(second_pass)
        spec = self.queues[holder.queue.name]
        return CycleEntry(holder.workload, spec, holder.queue, assignment, victims, second_pass=second_pass)

    def _wait_for_leaving(
        self, entry: CycleEntry, search: AssignmentSearch, resume: Sequence[Mapping[str, int]] | None
    ) -> None:
        """Nominates an entry that does not fit as if all leaving holders had left.

        If it fits then, it waits for them and nobody else is evicted; if it does not, it does not fit now either. Most
        heads in a row fare alike, so the ledger stays as the last one left it, and changes only for a head that asks
        for the other view.
        """
        if entry.leaving_gone is not (entry.mode is PreemptionMode.FIT):
            return
        if not entry.leaving_gone:
            self.ledger.count_leaving(gone=True)
            entry.assignment, entry.victims = search.best(entry.workload)
            entry.leaving_gone = True
        elif self._may_fit_beside(entry.workload, search, resume):  # else at most with what is held for others
            assignment, victims = search.best(entry.workload, resume)
            if assignment.mode is PreemptionMode.FIT:
                entry.assignment, entry.victims, entry.leaving_gone = assignment, victims, False
        self._beside_leaving(entry)

    def _may_fit_beside(
        self, workload: Workload, search: AssignmentSearch, resume: Sequence[Mapping[str, int]] | None
    ) -> bool:
        """Returns whether a workload may fit while all leaving holders are there, in whose view the ledger is then."""
        alike = self.ledger.placement.alike(workload, ()) if resume is None else None
        if self._is_refused(alike):
            return False
        self.ledger.count_leaving(gone=False)
        return search.fits_now(workload, resume) or self._refuses(alike)

    def _is_refused(self, alike: Hashable | None) -> bool:
        """Returns whether one that is alike was refused beside those who leave, and nothing was given back since.

        For each of thousands who wait for thousands who leave, those would have to be put back and lifted again.
        """
        return alike is not None and self._refused_beside.get(alike) == self.ledger.given_back

    def _refuses(self, alike: Hashable | None) -> bool:
        """Notes a refusal for all that are alike; returns False."""
        if alike is not None:
            self._refused_beside[alike] = self.ledger.given_back
        return False

    def _beside_leaving(self, entry: CycleEntry) -> None:
        """Lets an entry that fits once all leaving holders have left wait for them, unless it fits beside them."""
        if not entry.leaving_gone or entry.mode is not PreemptionMode.FIT:
            return
        if self.fits_already(entry, self.held):
            entry.fits_beside, entry.leaving_gone, entry.gone = True, False, ()
        else:
            entry.wait_for(self.ledger.who_leaves())

    def fits_already(self, entry: CycleEntry, held: Sequence[HeldCapacity]) -> bool:
        """Returns whether an entry has quota, not counting what is `held` for others, and a place beside theirs."""
        alike = self.ledger.placement.alike(entry.workload, entry.assignment.given)
        if self._is_refused(alike):
            return False
        self.ledger.count_leaving(gone=False)
        place = self.ledger.placement.find(entry.workload, entry.assignment.given)
        if isinstance(place, PlacementRefusal):
            return self._refuses(alike)
        for waiting in held:
            release(waiting.node, waiting.usage)
        enough = fits(entry.node, entry.assignment.usage)
        for waiting in reversed(held):
            charge(waiting.node, waiting.usage)
        entry.assignment.place = place if enough else entry.assignment.place
        return enough

    def _backfill(self, entry: CycleEntry, search: AssignmentSearch) -> None:
        """Nominates an entry as if nothing were reserved, where its workload ends before that is needed."""
        if not ends_before(entry.workload, self.now_s, self.reservations):
            return
        self.ledger.count_leaving(gone=False)
        with self.unreserved():
            assignment, _ = search.best(entry.workload)
        if assignment.mode is PreemptionMode.FIT:
            entry.assignment, entry.victims, entry.backfills, entry.gone = assignment, [], True, ()
            entry.leaving_gone = False

    @contextmanager
    def unreserved(self) -> Iterator[None]:
        """Gives back what is reserved while the context lasts."""
        for reservation in reversed(self.reservations):
            reservation.held.give(self.ledger)
        yield
        for reservation in self.reservations:
            reservation.held.take(self.ledger)

    def reserve(self, entry: CycleEntry) -> None:
        """Reserves capacity for the first overdue workload of a queue that finds no quota or place."""
        queue = entry.workload.queue
        if not entry.workload.overdue or entry.outcome not in {EntryOutcome.NO_FIT, EntryOutcome.NO_CANDIDATES}:
            return
        if entry.assignment.no_fit_reason in FOR_GOOD or any(r.held.workload.queue == queue for r in self.reservations):
            return
        self.ledger.count_leaving(gone=False)
        found = earliest_reservation(self.ledger, entry, lambda workload: self.search(queue).best(workload)[0])
        if found is not None:
            found.held.take(self.ledger)
            self.reservations.append(found)

    def count(self, admitted: AdmittedWorkload) -> None:
        """Counts an admission at once: other workloads of the same local queue come later from now on."""
        workload = admitted.workload
        if self.usage_ledger is not None and self.queues[workload.queue].usage_ordered:
            requests = by_resource(self.ledger.tree, admitted.usage)
            self.local_usage[workload.local_queue] = self.usage_ledger.admit(workload.local_queue, requests)


def about(workload: Workload) -> concerning:
    """Returns a fence: an exception raised inside it is attributed to the gang of this workload."""
    return concerning(lambda: gang_subject(whole(workload.uid)))


def ends_before(workload: Workload, now_s: float, reservations: Sequence[BackfillReservation]) -> bool:
    """Returns whether a workload that starts now says it ends before any of the reservations is due."""
    if workload.runs_s is None:
        return False
    return all(now_s + workload.runs_s <= reservation.starts_at_s < inf for reservation in reservations)


Answer = TypeVar("Answer")


def earliest_reservation(
    ledger: QuotaLedger, entry: CycleEntry, ask: Callable[[Workload], WorkloadAssignment]
) -> BackfillReservation | None:
    """Returns the earliest reservation for an entry; None when not even an empty tree would do.

    Holders are assumed to leave when they say they end; those that say nothing leave last, at no known time. `ask`
    returns what a workload could have as the ledger stands.
    """
    ending = sorted(
        (holder for holder in ledger.holders.values() if not holder.out),
        key=lambda holder: (holder.ends_at_s, holder.workload.uid),
    )
    first = _fewest_gone(ledger, ending, lambda: ask(entry.workload).mode is PreemptionMode.FIT)
    if first is None:
        return None
    found = _without(ledger, ending[:first], lambda: ask(entry.workload))
    starts_at_s = ending[first - 1].ends_at_s if first else 0.0
    return BackfillReservation(HeldCapacity(entry.workload, entry.node, found.usage, found.place), starts_at_s)


def _fewest_gone(ledger: QuotaLedger, ending: Sequence[AdmittedWorkload], fitting: Callable[[], bool]) -> int | None:
    """Returns how many of the holders, in order, must be gone until it fits, by bisection; None if all are too few."""
    low, high = 0, len(ending) + 1
    while low < high:
        middle = (low + high) // 2
        if middle > len(ending):
            return None
        if _without(ledger, ending[:middle], fitting):
            high = middle
        else:
            low = middle + 1
    return low if low <= len(ending) else None


def _without(ledger: QuotaLedger, gone: Sequence[AdmittedWorkload], ask: Callable[[], Answer]) -> Answer:
    """Returns the answer of `ask` as if these holders were gone."""
    for holder in gone:
        ledger.lift(holder)
    answer = ask()
    for holder in reversed(gone):
        ledger.put_back(holder)
    return answer
