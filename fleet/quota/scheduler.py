"""Queues, what waits in them, and cycles: the head of every queue nominated against the same books, then decided.

Kueue `pkg/scheduler/scheduler.go` (reference 2.1-2.8). `cycle` is upstream's: one head a queue. `sweep` goes on until
nothing moves, which is what one pass of the agent does, and keeps what preemptors wait for out of reach meanwhile.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from fleet.actions import gang_subject
from fleet.fence import concerning
from fleet.quota.declared import AdmissionRules, QuotaFlavorSpec, QuotaQueueSpec
from fleet.quota.entries import (
    CycleEntry,
    EntryOutcome,
    classical_order,
    fair_order,
    requeues_immediately,
    stays_at_head,
)
from fleet.quota.flavors import PreemptionMode
from fleet.quota.ground import PlacementRefusal
from fleet.quota.ledger import UsageLedger
from fleet.quota.nominate import Nominator
from fleet.quota.pending import PendingQueue, RequeueCounter, order_key
from fleet.quota.reserve import BackfillReservation, earliest_reservation, ends_before
from fleet.quota.run import AdmissionCycle, CycleResult, HeldCapacity
from fleet.quota.tree import QuotaNode, charge, fits, release
from fleet.quota.workload import AdmittedWorkload, QuotaLedger, SecondPassWorkload, Workload, by_resource
from fleet.reasons import Reason
from fleet.snapshot.elastic_parts import whole

FOR_GOOD = frozenset({Reason.EXCEEDS_MAX_QUOTA, Reason.NO_MATCHING_FLAVOR})
"""Problems that no waiting cures."""


class _LastAssignment(NamedTuple):
    """Where a workload's search for flavors goes on."""

    indexes: Sequence[Mapping[str, int]]
    cycle: int
    changes: int


@dataclass(slots=True)
class AdmissionScheduler:
    """Decides; whoever calls it carries out the evictions and tells it what came of them."""

    books: QuotaLedger
    queues: Mapping[str, QuotaQueueSpec]
    flavors: Mapping[str, QuotaFlavorSpec]
    rules: AdmissionRules = field(default_factory=AdmissionRules)
    now_s: float = 0.0
    pending: dict[str, PendingQueue] = field(default_factory=dict)
    local_usage: dict[str, float] = field(default_factory=dict)
    """Local queue -> decayed usage."""
    ledger: UsageLedger | None = None
    """The accounts behind it, where admissions are to count within a sweep."""
    reservations: list[BackfillReservation] = field(default_factory=list)
    """Of this sweep: at most one a queue."""
    kept: list[HeldCapacity] = field(default_factory=list)
    """What this sweep keeps for workloads that wait, until its end."""
    _progress: dict[str, _LastAssignment] = field(default_factory=dict)
    _changes: dict[str, int] = field(default_factory=dict)
    """Root -> how often anything changed below it."""
    _retries: dict[str, RequeueCounter] = field(default_factory=dict)
    """Root -> how often everything set aside below it was to be looked at again."""
    _cycle: int = 0

    def submit(self, workload: Workload) -> None:
        """A workload waits in its queue from now on. KeyError when there is no such queue."""
        self._line(workload.queue).push(workload)

    def withdraw(self, workload: Workload) -> None:
        """It waits no longer."""
        self._line(workload.queue).forget(workload.uid)
        self.forget_progress(workload)

    def forget_progress(self, workload: Workload) -> None:
        """Its next search for flavors starts with the first."""
        self._progress.pop(workload.uid, None)

    def settle(self, holder: AdmittedWorkload) -> None:
        """A workload holds quota already."""
        self.books.enter(holder)

    def vacate(self, uid: str) -> AdmittedWorkload:
        """A holder gives its quota back (finished, gone, evicted); those set aside in its tree are looked at again."""
        holder = self.books.strike(uid)
        self.retry(holder.queue)
        return holder

    def retry(self, queue: QuotaNode) -> None:
        """Look again at everything set aside in the queue's tree."""
        root = queue.root
        self._changes[root.name] = self._changes.get(root.name, 0) + 1
        self._retries_of(root).count += 1

    def _retries_of(self, root: QuotaNode) -> RequeueCounter:
        return self._retries.setdefault(root.name, RequeueCounter())

    def _line(self, queue: str) -> PendingQueue:
        if queue not in self.pending:
            spec = self.queues[queue]
            usage = self.usage_of if spec.usage_ordered else None
            self.pending[queue] = PendingQueue(spec.strict, usage, self._retries_of(self.books.tree.queues[queue].root))
        return self.pending[queue]

    def usage_of(self, workload: Workload) -> float:
        """Decayed usage of its local queue."""
        return self.local_usage.get(workload.local_queue, 0.0)

    def count(self, admitted: AdmittedWorkload) -> None:
        """An admission counts at once: what waits in the same local queue comes later from now on."""
        workload = admitted.workload
        if self.ledger is not None and self.queues[workload.queue].usage_ordered:
            requests = by_resource(self.books.tree, admitted.usage)
            self.local_usage[workload.local_queue] = self.ledger.admit(workload.local_queue, requests)

    def heads(self, but: frozenset[str] = frozenset()) -> list[Workload]:
        """The next workload of every queue that is not in `but`."""
        found = (self.pending[name].pop() for name in sorted(self.pending) if name not in but)
        return [workload for workload in found if workload is not None]

    def cycle(self) -> CycleResult:
        """Decide one head of every queue. Who is admitted is in the books; evictions are still to be carried out."""
        return self.decide(self.heads())

    def sweep(self) -> CycleResult:
        """Cycles until nothing moves. Victims leave only after the sweep; their preemptors wait till then."""
        total = CycleResult()
        closed: frozenset[str] = frozenset()
        overdue = self._overdue()
        while heads := [overdue.pop(0)] if overdue else self.heads(closed):
            result = self._decide(heads, keep=True)
            total.admitted += result.admitted
            total.evictions += result.evictions
            for victim, _ in result.evictions:
                self.books.evict(victim.holder)
            for holder in result.admitted:
                holder.unsettled = True
            done = [e for e in result.waiting if e.outcome is not EntryOutcome.SKIPPED or not result.progressed]
            total.waiting += done
            closed |= {entry.queue.name for entry in done if entry.queue.strict}
            for entry in done:
                self._reserve(entry)
            for entry in done:
                if entry.outcome is EntryOutcome.SKIPPED:  # it would be overtaken again and again
                    self.withdraw(entry.workload)
        self.books.part(parted=False)
        return total

    def _overdue(self) -> list[Workload]:
        """The first overdue workload of every queue, out of its line: it goes before all others, or reserves first."""
        found = (self.pending[name].pop_overdue() for name in sorted(self.pending))
        return sorted((workload for workload in found if workload is not None), key=order_key)

    def left(self) -> list[Workload]:
        """Everybody still in a line, by queue and in order."""
        return [workload for name in sorted(self.pending) for workload in self.pending[name].in_order()]

    def decide(self, heads: Iterable[Workload], unseated: Iterable[SecondPassWorkload] = ()) -> CycleResult:
        """Decide these heads, which are in no line any more, and holders that need a place."""
        result = self._decide(heads, unseated, keep=False)
        self.books.part(parted=False)
        return result

    def _decide(
        self, heads: Iterable[Workload], unseated: Iterable[SecondPassWorkload] = (), *, keep: bool = False
    ) -> CycleResult:
        self._cycle += 1
        entries = [*map(self._seated, unseated), *map(self._nominated, heads)]
        run = AdmissionCycle(self)
        for entry in self._ordered(entries, grows=keep):
            with _about(entry.workload):
                run.process(entry)
        stay = frozenset(e.workload.uid for e in entries if self._stays_away(e)) if keep else frozenset()
        self.kept += run.close(but=stay)
        for entry in entries:
            self._return(entry, run.result, parked=entry.workload.uid in stay)
        return run.result

    def _ordered(self, entries: list[CycleEntry], *, grows: bool) -> Iterable[CycleEntry]:
        """The entries in the order in which they are decided; with `grows` they become more on the way."""
        fair = [entry for entry in entries if self.rules_for(entry.node).fair]
        classical = [entry for entry in entries if not self.rules_for(entry.node).fair]
        yield from classical_order(classical, self.rules)
        following = partial(self._following, entries) if grows else lambda _entry: None
        yield from fair_order(fair, self.books.tree, self.rules, following)

    def _following(self, entries: list[CycleEntry], entry: CycleEntry) -> CycleEntry | None:
        """The next of the queue of one that was admitted, if it fits at once: it competes with the heads of the others.

        With one head a queue and cycle each queue would get one after the other whatever its share, and what is unequal
        then be set right by evictions (progressive filling: Ghodsi et al., "Dominant Resource Fairness", section 4.2).
        """
        line = self.pending.get(entry.queue.name)
        goes_on = entry.outcome is EntryOutcome.ADMITTED and not entry.workload.overdue
        workload = line.pop() if line is not None and goes_on else None
        if line is None or workload is None:
            return None
        found = self._nominated(workload)
        if found.mode is not PreemptionMode.FIT or found.deferred:
            line.put_back(workload, again=True)
            return None
        entries.append(found)
        return found

    def rules_for(self, node: QuotaNode) -> AdmissionRules:
        """The rules of a queue's tree."""
        trees = self.rules.fair_trees
        if not self.rules.fair or trees is None or node.root.name in trees:
            return self.rules
        return replace(self.rules, fair=())

    def _stays_away(self, entry: CycleEntry) -> bool:
        """Whether it is not looked at again in this sweep: others leave for it, or it blocks its queue."""
        blocks = entry.queue.strict and entry.outcome is EntryOutcome.NO_CANDIDATES
        return blocks or entry.outcome in {EntryOutcome.PENDING_PREEMPTION, EntryOutcome.BUSY}

    def nominator(self, queue: str, only: Mapping[str, Mapping[str, str]] | None = None) -> Nominator:
        """The nominator of a queue."""
        spec, node = self.queues[queue], self.books.tree.queues[queue]
        usage = self.local_usage if spec.usage_ordered else {}
        return Nominator(self.books, self.rules_for(node), spec, node, self.flavors, usage, only)

    def _nominated(self, workload: Workload) -> CycleEntry:
        spec, node = self.queues[workload.queue], self.books.tree.queues[workload.queue]
        found = self._progress.get(workload.uid)
        changes = self._changes.get(node.root.name, 0)
        if found is not None and found.cycle < self._cycle - 1 and found.changes != changes:
            found = None
        resume = found.indexes if found else None
        nominator = self.nominator(workload.queue)
        with _about(workload):
            assignment, victims = nominator.nominate(workload, resume)
        began_late = found is not None and any(index != -1 for tried in found.indexes for index in tried.values())
        resumed = began_late and not self.rules.upstream_defects
        replaced = self.books.holders.get(workload.replaces)
        gone = () if replaced is None else (replaced,)
        parted = self.books.parted
        entry = CycleEntry(workload, spec, node, assignment, victims, gone=gone, resumed=resumed, parted=parted)
        if self.rules.wait_for_leaving and self.books.leaving:
            self._wait_for_leaving(entry, nominator, resume)
        self._progress[workload.uid] = _LastAssignment(entry.assignment.indexes(), self._cycle, changes)
        if (
            entry.mode is not PreemptionMode.FIT
            and self.reservations
            and ends_before(workload, self.now_s, self.reservations)
        ):
            self._backfill(entry, nominator)
        return entry

    def _reserve(self, entry: CycleEntry) -> None:
        """A reservation for the first overdue workload of a queue that cannot start for want of room."""
        queue = entry.workload.queue
        if not entry.workload.overdue or entry.outcome not in {EntryOutcome.NO_FIT, EntryOutcome.NO_CANDIDATES}:
            return
        if entry.assignment.problem in FOR_GOOD or any(r.kept.workload.queue == queue for r in self.reservations):
            return
        self.books.part(parted=False)
        found = earliest_reservation(self.books, entry, lambda workload: self.nominator(queue).nominate(workload)[0])
        if found is not None:
            found.kept.take(self.books)
            self.reservations.append(found)

    def _backfill(self, entry: CycleEntry, nominator: Nominator) -> None:
        """Nominate as if nothing were reserved: it is gone before that is needed."""
        self.books.part(parted=False)
        with self.unreserved():
            assignment, _ = nominator.nominate(entry.workload)
        if assignment.mode is PreemptionMode.FIT:
            entry.assignment, entry.victims, entry.backfills, entry.gone = assignment, [], True, ()
            entry.parted = False

    @contextmanager
    def unreserved(self) -> Iterator[None]:
        """For a while, as if nothing were reserved."""
        for reservation in reversed(self.reservations):
            reservation.kept.give(self.books)
        yield
        for reservation in self.reservations:
            reservation.kept.take(self.books)

    def _seated(self, unseated: SecondPassWorkload) -> CycleEntry:
        self.books.part(parted=False)
        holder = unseated.holder
        with _about(holder.workload):
            assignment, victims = self.nominator(holder.queue.name).seat(unseated)
        spec = self.queues[holder.queue.name]
        return CycleEntry(holder.workload, spec, holder.queue, assignment, victims, unseated=unseated)

    def _wait_for_leaving(
        self, entry: CycleEntry, nominator: Nominator, resume: Sequence[Mapping[str, int]] | None
    ) -> None:
        """What does not fit is nominated as if everybody who is leaving had left, whoever they leave for.

        Nobody else need go for that. Who does not fit then does not fit now either. Most heads in a row fare alike, so
        the books stay as the last one left them, and change only for a head that asks for the other view.
        """
        if entry.parted is not (entry.mode is PreemptionMode.FIT):
            return
        self.books.part(parted=not entry.parted)
        assignment, victims = nominator.nominate(entry.workload, resume if entry.parted else None)
        if not entry.parted or assignment.mode is PreemptionMode.FIT:
            entry.assignment, entry.victims, entry.parted = assignment, victims, self.books.parted
        if not entry.parted or entry.mode is not PreemptionMode.FIT:
            return
        if self.fits_already(entry, self.kept):
            entry.beside, entry.parted, entry.gone = True, False, ()
        else:
            entry.wait_for(self.books.leaving.values())

    def fits_already(self, entry: CycleEntry, kept: Sequence[HeldCapacity]) -> bool:
        """Whether there is quota without those who wait for room being made, and a place beside theirs."""
        self.books.part(parted=False)
        place = self.books.ground.find(entry.workload, entry.assignment.given)
        if isinstance(place, PlacementRefusal):
            return False
        for waiting in kept:
            release(waiting.node, waiting.usage)
        enough = fits(entry.node, entry.assignment.usage)
        for waiting in reversed(kept):
            charge(waiting.node, waiting.usage)
        entry.assignment.place = place if enough else entry.assignment.place
        return enough

    def _return(self, entry: CycleEntry, result: CycleResult, *, parked: bool) -> None:
        if entry.unseated is not None:  # in no line
            if entry.outcome not in {EntryOutcome.ADMITTED, EntryOutcome.EVICTED}:
                result.waiting.append(entry)
            return
        uid, line = entry.workload.uid, self._line(entry.workload.queue)
        if entry.outcome is EntryOutcome.ADMITTED:
            self.forget_progress(entry.workload)
            line.forget(uid)
            root = entry.node.root.name
            self._changes[root] = self._changes.get(root, 0) + 1
            return
        result.waiting.append(entry)
        strict = entry.queue.strict
        if stays_at_head(entry.outcome, strict=strict):
            line.sticky = uid
        if parked:
            return
        untried = uid in self._progress and entry.assignment.untried() and not self.rules.every_flavor
        again = requeues_immediately(entry.outcome, strict=strict, untried=untried or entry.resumed)
        if not again and entry.outcome in {EntryOutcome.NO_FIT, EntryOutcome.NO_CANDIDATES}:
            line.give_up_on(entry.workload.shape)
        line.put_back(entry.workload, again=again)


def _about(workload: Workload) -> concerning:
    """Whoever raises inside is the gang behind this workload, or a part of it."""
    return concerning(gang_subject(whole(workload.uid)))
