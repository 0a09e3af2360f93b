"""Runs the admission scheduler: queues, what waits in them, and cycles that decide the heads of all queues.

Kueue `pkg/scheduler/scheduler.go` (reference 2.1-2.8). `cycle` is upstream's: one head a queue, all nominated against
the same ledger, then decided one by one. `sweep` goes on until nothing moves, which is what one pass of the agent does,
and keeps what preemptors wait for out of reach meanwhile.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from fleet.quota.admission_cycle import AdmissionCycle, CycleResult
from fleet.quota.entries import (
    CycleEntry,
    EntryOutcome,
    classical_key,
    classical_order,
    fair_order,
    requeues_immediately,
    stays_at_head,
)
from fleet.quota.ledger import AdmittedWorkload, PlacementRefusal, SecondPassWorkload
from fleet.quota.nomination import Nominator, about
from fleet.quota.pending_queue import PendingQueue, RequeueCounter, order_key
from fleet.quota.preemption import Mover
from fleet.quota.specs import QuotaQueueSpec
from fleet.quota.tree import Cell, QuotaNode, borrow_height, charge, fits, release
from fleet.quota.workload import PodSetAssignment, PreemptionMode, Workload

SETS_ASIDE = frozenset({EntryOutcome.NO_FIT, EntryOutcome.NO_CANDIDATES})
"""What becomes of a head whose whole shape is not looked at again until something changes."""


@dataclass(frozen=True, slots=True)
class PlainAssignment:
    """A `PlainAssignment` is what one pod gets while its queue has it free: the first flavor of each resource group.

    That these suit its pods does not change in a sweep, and nothing is better; so all of the shape have this
    assignment for as long as it is within the queue's own quota, whatever else has happened.
    """

    given: tuple[PodSetAssignment, ...]
    usage: Mapping[Cell, int]

    @classmethod
    def of(cls, entry: CycleEntry) -> "PlainAssignment | None":
        """Returns that of an admitted entry's shape; None where something else than its shape had a say."""
        workload, found = entry.workload, entry.assignment
        if workload.choice is not None or workload.replaces or workload.non_preemptible or entry.second_pass:
            return None
        one = [pods.count for pods in workload.pod_sets] == [1]
        first = all(_has_first(entry.queue, given.flavors) for given in found.given)
        return cls(found.given, found.usage) if one and first else None

    def is_free(self, queue: QuotaNode) -> bool:
        """Returns whether the queue has all of it free now, and within its own quota."""
        own = (not borrow_height(queue, cell, amount)[0] for cell, amount in self.usage.items())
        return fits(queue, self.usage) and all(own)


def _has_first(queue: QuotaQueueSpec, flavor_of: Mapping[str, str]) -> bool:
    """Returns whether each resource has the first flavor of its group."""
    groups = ((queue.group_of(resource), flavor) for resource, flavor in flavor_of.items())
    return all(group is not None and group.flavors[0] == flavor for group, flavor in groups)


@dataclass(slots=True)
class AdmissionScheduler(Nominator):
    """An `AdmissionScheduler` decides who is admitted and who is evicted; its caller carries that out."""

    pending: dict[str, PendingQueue] = field(default_factory=dict)
    """Queue -> the workloads that wait in it, for queues that ever had any."""
    _requeues: dict[str, RequeueCounter] = field(default_factory=dict)
    """Root -> counter of requests to look again at everything set aside below it."""
    _shapes: dict[Hashable, Hashable] = field(default_factory=dict)
    """Shapes of all that were submitted -> the token that stands for each from then on."""
    _plain: dict[tuple[str, Hashable], PlainAssignment] = field(default_factory=dict)
    """Queue and shape -> what the last of them was admitted with, where the next may get the same."""

    def submit(self, workload: Workload) -> None:
        """Adds a workload to its queue; KeyError when there is no such queue."""
        workload.share_shape(self._shapes)
        self._pending(workload.queue).push(workload)

    def withdraw(self, workload: Workload) -> None:
        """Removes a workload from its queue."""
        self._pending(workload.queue).forget(workload.uid)
        self.forget_progress(workload)

    def settle(self, holder: AdmittedWorkload, *, stands: bool = False) -> None:
        """Adds a workload that holds quota already; `stands`: its pods have their place, too."""
        self.ledger.add(holder, stands=stands)

    def vacate(self, uid: str) -> AdmittedWorkload:
        """Gives a holder's quota back (finished, gone, evicted), and looks again at all set aside in its tree."""
        holder = self.ledger.remove(uid)
        self.retry(holder.queue)
        return holder

    def retry(self, queue: QuotaNode) -> None:
        """Looks again at everything set aside in the queue's tree."""
        self.changed(queue)
        self._requeues_of(queue.root).count += 1

    def _requeues_of(self, root: QuotaNode) -> RequeueCounter:
        return self._requeues.setdefault(root.name, RequeueCounter())

    def _pending(self, queue: str) -> PendingQueue:
        if queue not in self.pending:
            spec = self.queues[queue]
            usage = self.usage_of if spec.usage_ordered else None
            requeues = self._requeues_of(self.ledger.tree.queues[queue].root)
            self.pending[queue] = PendingQueue(spec.strict, usage, requeues)
        return self.pending[queue]

    def usage_of(self, workload: Workload) -> float:
        """Returns the decayed usage of a workload's local queue."""
        return self.local_usage.get(workload.local_queue, 0.0)

    def heads(self, but: frozenset[str] = frozenset()) -> list[Workload]:
        """Returns the next workload of every queue that is not in `but`, taken out of its queue."""
        queues = [self.pending[name] for name in sorted(self.pending) if name not in but]
        return [workload for queue in queues if (workload := queue.pop()) is not None]

    def _nominated_heads(self, but: frozenset[str]) -> list[Workload]:
        """Returns the heads that others were evicted for, taken out of their queues, where they go before all others.

        What their victims left is theirs: another queue's head must not take it while its own queue has more of them.
        """
        if not self.rules.preemptors_first:
            return []
        queues = [self.pending[name] for name in sorted(self.pending) if name not in but]
        return [workload for queue in queues if (workload := queue.pop_nominated()) is not None]

    def cycle(self) -> CycleResult:
        """Decides one head of every queue. Who is admitted is in the ledger; evictions are still to be carried out."""
        return self.decide(self.heads())

    def sweep(self) -> CycleResult:
        """Runs cycles until nothing moves. Victims leave only after the sweep; their preemptors wait till then."""
        total = CycleResult()
        closed: frozenset[str] = frozenset()
        overdue = self._overdue()
        while heads := self._next(overdue, closed):
            if (alike := self._admit_alike(heads)) is not None:
                total.admitted += alike
                continue
            result = self._decide(heads, keep=True)
            total.admitted += result.admitted
            total.evictions += result.evictions
            self._carry_out(result)
            done = [e for e in result.waiting if not _is_decided_again(e, progressed=result.progressed)]
            total.waiting += done
            closed |= {entry.queue.name for entry in done if entry.queue.strict}
            for entry in done:
                self.reserve(entry)
            for entry in done:
                if entry.outcome is EntryOutcome.SKIPPED:  # it would be overtaken again and again
                    self.withdraw(entry.workload)
        self.ledger.count_leaving(gone=False)
        return total

    def _admit_alike(self, heads: list[Workload]) -> list[AdmittedWorkload] | None:
        """Admits heads with what the ones of their shapes before them got; None where a whole cycle has to decide.

        The cycle would find the same: what an only head was nominated with stands when its turn comes, and of several
        each has a place and its queue's own quota whatever the others get.
        """
        if self.ledger.leaving:
            return None
        known: list[tuple[Workload, PlainAssignment]] = []
        for workload in heads:
            plain = self._plain.get((workload.queue, workload.shape))
            if plain is None or workload.uid in self._last:
                return None
            known.append((workload, plain))
        if len(known) == 1:
            holder = self._admit_plain(*known[0], only=True)
            admitted = [] if holder is None else [holder]
        else:
            admitted = self._admit_several(known)
        self._cycle += bool(admitted)
        return admitted or None

    def _admit_several(self, heads: list[tuple[Workload, PlainAssignment]]) -> list[AdmittedWorkload]:
        """Admits heads of several queues in the order of a cycle; nobody where not all are certain to fit."""
        heads.sort(key=lambda it: classical_key(it[0], self.rules))
        tried = (self._admit_plain(*it, only=False) for it in heads) if self._all_fit(heads) else ()
        admitted = [holder for holder in takewhile(bool, tried) if holder is not None]
        for workload, _ in heads[len(admitted) :] if admitted else ():  # nobody, as all fit
            self._pending(workload.queue).put_back(workload, again=True)
        return admitted

    def _all_fit(self, heads: Sequence[tuple[Workload, PlainAssignment]]) -> bool:
        """Returns whether each of several heads has its quota and a place, and nobody to move, whoever comes before."""
        for workload, plain in heads:
            mover = self._mover_for(workload)
            if mover is not None and not mover.rests(workload, plain.given):
                return False
        if not self.ledger.placement.finds_all([(workload, plain.given) for workload, plain in heads]):
            return False
        charged: list[tuple[QuotaNode, PlainAssignment]] = []
        for workload, plain in heads:
            node = self.ledger.tree.queues[workload.queue]
            if not plain.is_free(node):
                break
            charge(node, plain.usage)
            charged.append((node, plain))
        for node, plain in reversed(charged):
            release(node, plain.usage)
        return len(charged) == len(heads)

    def _admit_plain(self, workload: Workload, plain: PlainAssignment, *, only: bool) -> AdmittedWorkload | None:
        """Admits a head with a known assignment; None where it has no quota or place any more.

        Of an `only` one it is asked here whether others may have to be moved for it, because that costs less than what
        would be bought: then there is None, too. Nobody is looked for here: what a pass looks for is bounded, and the
        cycle will.
        """
        node, mover = self.ledger.tree.queues[workload.queue], self._mover_for(workload) if only else None
        if not plain.is_free(node):
            return None
        with about(workload):
            place = self.ledger.placement.find(workload, plain.given)
            if isinstance(place, PlacementRefusal) or (mover and mover.compares(workload, plain.given)):
                return None
            if mover is not None:
                mover.note_purchase(workload, plain.given)
            holder = AdmittedWorkload(workload, node, plain.given, plain.usage, self.now_s, place=place)
            self.ledger.add(holder)
            self.count(holder)
        holder.unsettled = True
        self._pending(workload.queue).forget(workload.uid)
        self.changed(node)
        return holder

    def _mover_for(self, workload: Workload) -> Mover | None:
        """Returns who finds others to move for a workload; None where its queue has nobody moved."""
        return self.mover if self.queues[workload.queue].preemption.moves else None

    def _next(self, overdue: list[Workload], closed: frozenset[str]) -> list[Workload]:
        """Returns whom to decide next: who is moved, whom others were evicted for, the `overdue`, and then all heads.

        What somebody gave back for a workload with a better right is not the overdue one's: it had it, and was evicted.
        """
        first = overdue[:1]
        if not any(it.moved or it.nominated for it in first) and (heads := self._nominated_heads(closed)):
            return heads
        del overdue[:1]
        return first or self.heads(closed)

    def _carry_out(self, result: CycleResult) -> None:
        """Prepares the ledger for further cycles: victims are leaving, admissions are still being saved."""
        for victim, _ in result.evictions:
            self.ledger.evict(victim.holder)
        for holder in result.admitted:
            holder.unsettled = True

    def _overdue(self) -> list[Workload]:
        """Takes out of every queue whom is moved and its first overdue workload: they go first, or reserve first."""
        found = [workload for name in sorted(self.pending) for workload in self.pending[name].pop_overdue()]
        return sorted(found, key=lambda it: (not it.moved, not it.nominated, order_key(it)))

    def still_waiting(self) -> list[Workload]:
        """Returns all workloads that are still in a queue, by queue and in order."""
        return [workload for name in sorted(self.pending) for workload in self.pending[name].in_order()]

    def decide(self, heads: Iterable[Workload], second_pass: Iterable[SecondPassWorkload] = ()) -> CycleResult:
        """Decides these heads, which are in no queue any more, and holders that need a place."""
        result = self._decide(heads, second_pass, keep=False)
        self.ledger.count_leaving(gone=False)
        return result

    def _decide(
        self, heads: Iterable[Workload], second_pass: Iterable[SecondPassWorkload] = (), *, keep: bool = False
    ) -> CycleResult:
        """Runs one cycle.

        With `keep`, what is held for waiting entries stays held afterwards, and those entries stay out of their queues.
        """
        self._cycle += 1
        entries = [*map(self.nominate_again, second_pass), *map(self.nominate, heads)]
        cycle = AdmissionCycle(self)
        for entry in self._ordered(entries, grows=keep):
            with about(entry.workload):
                cycle.process(entry)
        stay = frozenset(e.workload.uid for e in entries if _stays_away(e)) if keep else frozenset()
        moved = {v.holder.workload.uid for e in entries if e.workload.uid in stay for v in e.victims if v.destination}
        self.held += cycle.close(but=stay | moved)
        for entry in entries:
            self._return(entry, cycle.result, parked=entry.workload.uid in stay)
        return cycle.result

    def _ordered(self, entries: list[CycleEntry], *, grows: bool) -> Iterable[CycleEntry]:
        """Yields entries in the order they are decided; with `grows`, the next of a queue joins after an admission."""
        fair = [entry for entry in entries if self._by_shares(entry.node)]
        classical = [entry for entry in entries if not self._by_shares(entry.node)]
        yield from classical_order(classical, self.rules)
        following = partial(self._following, entries) if grows else lambda _entry: None
        yield from fair_order(fair, self.ledger.tree, self.rules, following)

    def _by_shares(self, queue: QuotaNode) -> bool:
        """Returns whether shares order the heads of the queue's tree."""
        return bool(self.rules_for(queue).fair) or queue.root.name in self.rules.guarantee_trees

    def _following(self, entries: list[CycleEntry], entry: CycleEntry) -> CycleEntry | None:
        """Returns the next entry of a queue whose head was admitted, if it fits at once; it joins the cycle.

        With one head a queue and cycle, queues would be served in turn whatever their share, and evictions would
        correct that afterwards (progressive filling: Ghodsi et al., "Dominant Resource Fairness", section 4.2).
        """
        pending = self.pending.get(entry.queue.name)
        if pending is None or entry.outcome is not EntryOutcome.ADMITTED or entry.workload.overdue:
            return None
        workload = pending.pop_nominated() if entry.workload.nominated else pending.pop()
        if workload is None:
            return None
        found = self.nominate(workload)
        if found.mode is not PreemptionMode.FIT or found.deferred:
            pending.put_back(workload, again=True)
            return None
        entries.append(found)
        return found

    def _return(self, entry: CycleEntry, result: CycleResult, *, parked: bool) -> None:
        """Puts an entry that was not admitted back into its queue or aside; a `parked` one stays out."""
        if entry.second_pass is not None:  # in no queue
            if entry.outcome not in {EntryOutcome.ADMITTED, EntryOutcome.EVICTED}:
                result.waiting.append(entry)
            return
        uid, pending = entry.workload.uid, self._pending(entry.workload.queue)
        if entry.outcome is EntryOutcome.ADMITTED:
            self.forget_progress(entry.workload)
            pending.forget(uid)
            self.changed(entry.node)
            if not self._by_shares(entry.node) and (plain := PlainAssignment.of(entry)) is not None:
                self._plain[entry.workload.queue, entry.workload.shape] = plain
            return
        result.waiting.append(entry)
        strict = entry.queue.strict
        if stays_at_head(entry.outcome, strict=strict):
            pending.sticky = uid
        if parked:
            return
        untried = uid in self._last and entry.assignment.untried() and not self.rules.every_flavor
        again = requeues_immediately(entry.outcome, strict=strict, untried=untried or entry.resumed)
        if not again and entry.outcome in SETS_ASIDE:
            pending.set_aside(entry.workload.shape)
        pending.put_back(entry.workload, again=again)


def _is_decided_again(entry: CycleEntry, *, progressed: bool) -> bool:
    """Returns whether an entry that waits comes again in this sweep.

    So does one whose search resumed and came to an end: the flavors before have not been looked at since another entry
    took what it was to have, and what keeps it waiting would be told without them.
    """
    if entry.outcome is EntryOutcome.SKIPPED:
        return progressed
    return entry.resumed and entry.outcome in {EntryOutcome.NO_FIT, EntryOutcome.NO_CANDIDATES}


def _stays_away(entry: CycleEntry) -> bool:
    """Returns whether an entry is not decided again in this sweep: others leave for it, or it blocks its queue."""
    blocks = entry.queue.strict and not entry.resumed and entry.outcome is EntryOutcome.NO_CANDIDATES
    return blocks or entry.outcome in {EntryOutcome.PENDING_PREEMPTION, EntryOutcome.BUSY}
