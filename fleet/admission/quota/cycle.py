"""One cycle: the head of every queue is nominated against the same books, then decided one by one (reference 2.1-2.8)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.admission.quota.candidates import Victim
from fleet.admission.quota.declared import FlavorSpec, Policy, QueueSpec, Rules
from fleet.admission.quota.entries import Entry, Outcome, classical_order, fair_order, looks_again, stays_at_head
from fleet.admission.quota.flavors import Assignment, Mode
from fleet.admission.quota.ground import Misfit
from fleet.admission.quota.nominate import Nominator
from fleet.admission.quota.pending import Pending
from fleet.admission.quota.tree import Node, available, charge, fits, release
from fleet.admission.quota.workload import Books, Holder, Workload


class _Resume(NamedTuple):
    """Where a workload's search for flavors goes on."""

    indexes: Sequence[Mapping[str, int]]
    cycle: int
    changes: int


@dataclass(slots=True)
class CycleResult:
    """What one cycle decided."""

    admitted: list[Holder] = field(default_factory=list)
    evictions: list[tuple[Victim, Workload]] = field(default_factory=list)
    """With the workload each is evicted for."""
    waiting: list[Entry] = field(default_factory=list)
    """Heads that were not admitted."""
    skipped_preemptions: dict[str, int] = field(default_factory=dict)
    """Queue -> heads whose preemption had to wait for that of another."""
    recomputed: dict[str, str] = field(default_factory=dict)
    """Queue -> what became of a head that was nominated anew because its victims were taken."""

    @property
    def progressed(self) -> bool:
        """Whether anything changed that another cycle could build on."""
        return bool(self.admitted or self.evictions)


@dataclass(slots=True)
class Scheduler:
    """Queues, what waits in them and who holds quota. `cycle` decides; whoever calls it tells it what came of that."""

    books: Books
    queues: Mapping[str, QueueSpec]
    flavors: Mapping[str, FlavorSpec]
    rules: Rules = Rules()
    pending: dict[str, Pending] = field(default_factory=dict)
    local_usage: dict[str, float] = field(default_factory=dict)
    """Local queue -> decayed usage."""
    ignore_undeclared: bool = False
    _resume: dict[str, _Resume] = field(default_factory=dict)
    _changes: dict[str, int] = field(default_factory=dict)
    """Root -> how often anything changed below it."""
    _cycle: int = 0

    def submit(self, workload: Workload) -> None:
        """A workload waits in its queue from now on. KeyError when there is no such queue."""
        self._line(workload.queue).push(workload)

    def withdraw(self, workload: Workload) -> None:
        """It waits no longer."""
        self._line(workload.queue).forget(workload.uid)
        self._resume.pop(workload.uid, None)

    def settle(self, holder: Holder) -> None:
        """A workload holds quota already."""
        self.books.enter(holder)

    def vacate(self, uid: str) -> Holder:
        """A holder gives its quota back (finished, gone, evicted); those set aside in its tree are looked at again."""
        holder = self.books.strike(uid)
        self.retry(holder.queue)
        return holder

    def retry(self, queue: Node) -> None:
        """Look again at everything set aside in the queue's tree."""
        root = queue.root
        self._changes[root.name] = self._changes.get(root.name, 0) + 1
        for below in root.queues():
            if (line := self.pending.get(below.name)) is not None:
                line.retry()

    def start_over(self, uid: str) -> None:
        """A workload's next search for flavors begins with the first."""
        self._resume.pop(uid, None)

    def _line(self, queue: str) -> Pending:
        if queue not in self.pending:
            spec = self.queues[queue]
            self.pending[queue] = Pending(spec.strict, self._usage_of if spec.usage_ordered else None)
        return self.pending[queue]

    def _usage_of(self, workload: Workload) -> float:
        return self.local_usage.get(workload.local_queue, 0.0)

    def heads(self) -> list[Workload]:
        """The next workload of every queue."""
        found = ((name, self.pending[name].pop()) for name in sorted(self.pending))
        return [workload for _, workload in found if workload is not None]

    def cycle(self) -> CycleResult:
        """Decide one head of every queue; `admitted` are in the books already, `evictions` are still to be carried out."""
        return self.decide(self.heads())

    def decide(self, heads: Iterable[Workload]) -> CycleResult:
        """Decide these heads, which are in no line any more."""
        self._cycle += 1
        entries = [self._nominated(workload) for workload in heads]
        run = _Run(self, CycleResult())
        order = (
            fair_order(entries, self.books.tree, self.rules)
            if self.rules.fair
            else classical_order(entries, self.rules)
        )
        for entry in order:
            run.process(entry)
        run.close()
        for entry in entries:
            self._return(entry, run.result)
        return run.result

    def nominator(self, queue: str, only: Mapping[str, Mapping[str, str]] | None = None) -> Nominator:
        """The nominator of a queue."""
        spec, node = self.queues[queue], self.books.tree.queues[queue]
        usage = self.local_usage if spec.usage_ordered else {}
        return Nominator(
            self.books, self.rules, spec, node, self.flavors, usage, only, ignore_undeclared=self.ignore_undeclared
        )

    def _nominated(self, workload: Workload) -> Entry:
        resume = self._resume.get(workload.uid)
        node = self.books.tree.queues[workload.queue]
        changes = self._changes.get(node.root.name, 0)
        if resume is not None and resume.cycle < self._cycle - 1 and resume.changes != changes:
            resume = None
        nominator = self.nominator(workload.queue)
        assignment, victims = nominator.nominate(workload, resume.indexes if resume else None)
        self._resume[workload.uid] = _Resume(assignment.indexes(), self._cycle, changes)
        began_late = resume is not None and any(index != -1 for tried in resume.indexes for index in tried.values())
        resumed = began_late and not self.rules.upstream_defects
        return Entry(workload, self.queues[workload.queue], node, assignment, victims, resumed=resumed)

    def _return(self, entry: Entry, result: CycleResult) -> None:
        uid, line = entry.workload.uid, self._line(entry.workload.queue)
        if entry.outcome is Outcome.ADMITTED:
            self._resume.pop(uid, None)
            line.forget(uid)
            self._changes[entry.node.root.name] = self._changes.get(entry.node.root.name, 0) + 1
            return
        result.waiting.append(entry)
        strict = entry.queue.strict
        untried = entry.resumed or (uid in self._resume and entry.assignment.untried())
        again = looks_again(entry.outcome, strict=strict, untried=untried)
        if stays_at_head(entry.outcome, strict=strict):
            line.sticky = uid
        if not again and entry.outcome in {Outcome.NO_FIT, Outcome.NO_CANDIDATES}:
            line.give_up_on(entry.workload.shape)
        line.put_back(entry.workload, again=again)


@dataclass(slots=True)
class _Run:
    """The second half of a cycle: entries one by one against books that contain what was decided before."""

    scheduler: Scheduler
    result: CycleResult
    taken: dict[str, Victim] = field(default_factory=dict)
    """uid -> victims of this cycle so far; still in the books."""
    assumed: list[tuple[Node, Mapping[int, int]]] = field(default_factory=list)
    """Usage charged for entries that are not admitted yet, to be released at the end of the cycle."""

    @property
    def books(self) -> Books:
        """The books."""
        return self.scheduler.books

    def process(self, entry: Entry) -> None:
        """Decide one entry."""
        if any(victim.holder.workload.uid in self.taken for victim in entry.victims):
            self._recompute(entry)
        if entry.mode is Mode.FIT and not entry.deferred:
            self._place_again(entry)
        if entry.mode is Mode.NO_FIT:
            entry.outcome = Outcome.NO_FIT
            return
        if entry.mode.preempting and not entry.victims:
            self._reserve(entry)
            entry.outcome = Outcome.NO_CANDIDATES
            return
        if entry.mode.preempting and not entry.workload.may_evict:
            entry.outcome = Outcome.GATED
            return
        if entry.deferred:
            self._defer(entry)
            return
        if any(victim.holder.workload.uid in self.taken for victim in entry.victims) or not self._still_fits(entry):
            entry.outcome, entry.overtaken = Outcome.SKIPPED, True
            if entry.mode.preempting:
                self._count_skip(entry)
            return
        if entry.mode is Mode.FIT and not self._fits_beside_victims(entry):
            entry.deferred = True
            self._defer(entry)
            return
        self._take(entry)

    def _defer(self, entry: Entry) -> None:
        """It waits for the victims of others, and what it will get is kept for it."""
        self._assume(entry, entry.assignment.usage)
        entry.outcome = Outcome.PENDING_PREEMPTION
        self.scheduler.start_over(entry.workload.uid)

    def _fits_beside_victims(self, entry: Entry) -> bool:
        """Whether it fits before the victims of this cycle are gone: what they hold is not free yet."""
        if not self.taken or self.scheduler.rules.upstream_defects:
            return True
        for node, usage in reversed(self.assumed):
            release(node, usage)
        enough = fits(entry.node, entry.assignment.usage)
        for node, usage in self.assumed:
            charge(node, usage)
        return enough

    def _take(self, entry: Entry) -> None:
        if entry.victims:
            for victim in entry.victims:
                self.taken[victim.holder.workload.uid] = victim
                self.result.evictions.append((victim, entry.workload))
            self._assume(entry, entry.assignment.usage)
            entry.outcome = Outcome.PENDING_PREEMPTION
            # Once they are gone it is the flavor they held that it wants, not the next one.
            self.scheduler.start_over(entry.workload.uid)
            return
        holder = Holder(
            entry.workload,
            entry.node,
            entry.assignment.given,
            entry.assignment.usage,
            0.0,
            place=entry.assignment.place,
        )
        self.books.enter(holder)
        self.result.admitted.append(holder)
        entry.outcome = Outcome.ADMITTED

    def _count_skip(self, entry: Entry) -> None:
        name = entry.queue.name
        self.result.skipped_preemptions[name] = self.result.skipped_preemptions.get(name, 0) + 1

    def _recompute(self, entry: Entry) -> None:
        """Nominate anew as if the victims so far were gone, among the flavors nominated before."""
        nominated = {given.name: given.flavors for given in entry.assignment.given}
        nominator = self.scheduler.nominator(entry.queue.name, only=nominated)
        gone = list(self.taken.values())
        for victim in gone:
            self.books.lift(victim.holder)
        entry.assignment, entry.victims = nominator.nominate(entry.workload)
        for victim in reversed(gone):
            self.books.put_back(victim.holder)
        entry.deferred = entry.mode is Mode.FIT
        how = "deferred_fit" if entry.deferred else "preempt" if entry.victims else "skipped"
        self.result.recomputed[entry.queue.name] = how

    def _place_again(self, entry: Entry) -> None:
        """Its place may have gone to a head before it; another may be there."""
        if not fits(entry.node, entry.assignment.usage):
            return
        place = self.books.ground.find(entry.workload, entry.assignment.given)
        if not isinstance(place, Misfit):
            entry.assignment.place = place

    def _still_fits(self, entry: Entry) -> bool:
        gone = [*self.taken.values(), *entry.victims]
        for victim in gone:
            self.books.lift(victim.holder)
        enough = fits(entry.node, entry.assignment.usage)
        if enough:
            enough = not isinstance(self.books.ground.find(entry.workload, entry.assignment.given), Misfit)
        for victim in reversed(gone):
            self.books.put_back(victim.holder)
        return enough

    def _reserve(self, entry: Entry) -> None:
        """Nobody to preempt now: keep lower entries from taking what it could not take back later."""
        if entry.queue.preemption.reclaim is not Policy.ANY:
            self._assume(entry, to_reserve(entry.node, entry.assignment))

    def _assume(self, entry: Entry, usage: Mapping[int, int]) -> None:
        charge(entry.node, usage)
        self.assumed.append((entry.node, usage))

    def close(self) -> None:
        """Take back what was charged for entries that wait."""
        for node, usage in reversed(self.assumed):
            release(node, usage)


def to_reserve(node: Node, assignment: Assignment) -> dict[int, int]:
    """How much of its usage a blocked preemptor keeps from others (reference 2.7 step 4)."""
    kept = {}
    for cell, amount in assignment.usage.items():
        if assignment.mode is Mode.FIT:
            kept[cell] = amount
        elif assignment.borrow:
            limit = node.ceiling[cell] + node.private[cell]
            kept[cell] = min(amount, limit - node.usage[cell])
        else:
            kept[cell] = max(0, min(amount, node.nominal[cell] - node.usage[cell]))
    return {cell: amount for cell, amount in kept.items() if amount > 0}


def room_left(node: Node, usage: Mapping[int, int]) -> dict[int, int]:
    """For each cell of `usage` what the queue could still use."""
    return {cell: available(node, cell) for cell in usage}
