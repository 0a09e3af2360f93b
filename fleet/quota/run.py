"""The second half of a cycle: entries one by one against books that contain what was decided before (reference 2.7)."""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.quota.candidates import Victim
from fleet.quota.declared import CandidatePolicy
from fleet.quota.entries import CycleEntry, EntryOutcome
from fleet.quota.flavors import PreemptionMode, WorkloadAssignment
from fleet.quota.ground import NO_PLACEMENT, PlacementRefusal
from fleet.quota.tree import QuotaNode, charge, fits, release
from fleet.quota.workload import AdmittedWorkload, QuotaLedger, Workload

if TYPE_CHECKING:
    from fleet.quota.scheduler import AdmissionScheduler


@dataclass(slots=True)
class CycleResult:
    """What was decided."""

    admitted: list[AdmittedWorkload] = field(default_factory=list)
    seated: list[AdmittedWorkload] = field(default_factory=list)
    """Held their quota before, and have a place now."""
    lost: list[AdmittedWorkload] = field(default_factory=list)
    """Hold their quota still, and have to leave: a node of theirs failed and there is no other place."""
    replaced: list[AdmittedWorkload] = field(default_factory=list)
    """Hold nothing any more: one that was admitted stands in for each."""
    evictions: list[tuple[Victim, Workload]] = field(default_factory=list)
    """With the workload each is evicted for."""
    waiting: list[CycleEntry] = field(default_factory=list)
    """Heads that were not admitted."""
    skipped_preemptions: dict[str, int] = field(default_factory=dict)
    """Queue -> heads whose preemption had to wait for that of another."""
    recomputed: dict[str, str] = field(default_factory=dict)
    """Queue -> what became of a head that was nominated anew because its victims were taken."""

    @property
    def progressed(self) -> bool:
        """Whether anything changed that another cycle could build on."""
        return bool(self.admitted or self.evictions or self.seated)


@dataclass(frozen=True, slots=True)
class HeldCapacity:
    """Quota and place that are kept for a workload that waits."""

    workload: Workload
    node: QuotaNode
    usage: Mapping[int, int]
    place: object = None

    def take(self, books: QuotaLedger) -> None:
        """Nobody else gets it from now on."""
        charge(self.node, self.usage)
        if self.place is not None:
            books.ground.hold(self.workload, self.place)

    def give(self, books: QuotaLedger) -> None:
        """Undo `take`."""
        if self.place is not None:
            books.ground.release(self.workload, self.place)
        release(self.node, self.usage)


@dataclass(slots=True)
class AdmissionCycle:
    """One cycle's entries, decided in order."""

    scheduler: "AdmissionScheduler"
    result: CycleResult = field(default_factory=CycleResult)
    taken: dict[str, Victim] = field(default_factory=dict)
    """uid -> victims so far; still in the books."""
    _taken_below: dict[str, list[AdmittedWorkload]] = field(default_factory=dict)
    """Root -> the same by the tree they hold quota of."""
    kept: dict[str, HeldCapacity] = field(default_factory=dict)
    """uid -> what is kept for entries that wait, until the end of the cycle or longer."""

    @property
    def books(self) -> QuotaLedger:
        """The books."""
        return self.scheduler.books

    def process(self, entry: CycleEntry) -> None:
        """Decide one entry."""
        if any(victim.holder.workload.uid in self.taken for victim in entry.victims):
            if self.scheduler.rules.victims_again:
                self._recompute(entry)
        elif entry.mode is PreemptionMode.FIT and not entry.deferred and self.scheduler.rules.place_again:
            self._place_again(entry)
        entry.outcome = EntryOutcome.EVICTED if self._leaves(entry) else self._outcome(entry)

    def _leaves(self, entry: CycleEntry) -> bool:
        """Whether it lost a part of its place and finds no other."""
        unseated = entry.unseated
        if (
            unseated is None
            or not unseated.lost
            or entry.mode is PreemptionMode.FIT
            or not self.scheduler.rules.lost_leave
        ):
            return False
        self.result.lost.append(unseated.holder)
        return True

    def _outcome(self, entry: CycleEntry) -> EntryOutcome:
        if entry.workload.busy:
            if entry.deferred or (entry.mode is PreemptionMode.FIT and self._still_fits(entry)):
                self._keep(entry, entry.assignment.usage)
            return EntryOutcome.BUSY
        if entry.mode is PreemptionMode.NO_FIT:
            return EntryOutcome.NO_FIT
        if entry.deferred:
            self._keep(entry, entry.assignment.usage)
            self.scheduler.forget_progress(entry.workload)
            return EntryOutcome.PENDING_PREEMPTION
        if entry.mode is PreemptionMode.FIT or (entry.victims and entry.workload.may_evict):
            return self._carried_out(entry)
        if entry.victims:
            return EntryOutcome.GATED
        if (
            entry.queue.preemption.reclaim is not CandidatePolicy.ANY
        ):  # what it cannot take back later stays free for it
            self._keep(entry, resources_to_reserve(entry.node, entry.assignment))
        return EntryOutcome.NO_CANDIDATES

    def _carried_out(self, entry: CycleEntry) -> EntryOutcome:
        with self.scheduler.unreserved() if entry.backfills else nullcontext():
            return self._done(entry)

    def _done(self, entry: CycleEntry) -> EntryOutcome:
        if any(victim.holder.workload.uid in self.taken for victim in entry.victims) or not self._still_fits(entry):
            if entry.mode.preempting:
                self._count_skip(entry)
            return EntryOutcome.SKIPPED
        if entry.victims:
            self._evict(entry)
            return EntryOutcome.PENDING_PREEMPTION
        self._admit(entry)
        return EntryOutcome.ADMITTED

    def _evict(self, entry: CycleEntry) -> None:
        settled = not any(victim.holder.unsettled for victim in entry.victims)
        for victim in entry.victims if settled else ():
            self.taken[victim.holder.workload.uid] = victim
            self._taken_below.setdefault(entry.node.root.name, []).append(victim.holder)
            self.result.evictions.append((victim, entry.workload))
        self._keep(entry, entry.assignment.usage)
        # Once they are gone it wants the flavor they held, not the next one.
        self.scheduler.forget_progress(entry.workload)

    def _admit(self, entry: CycleEntry) -> None:
        found = entry.assignment
        if entry.unseated is not None:
            self.books.seat(entry.unseated.holder, found.place)
            self.result.seated.append(entry.unseated.holder)
            return
        holder = AdmittedWorkload(
            entry.workload, entry.node, found.given, found.usage, self.scheduler.now_s, place=found.place
        )
        if entry.workload.replaces in self.books.holders:
            self.result.replaced.append(self.books.strike(entry.workload.replaces))
        self.books.enter(holder)
        self.scheduler.count(holder)
        self.result.admitted.append(holder)

    def _count_skip(self, entry: CycleEntry) -> None:
        name = entry.queue.name
        self.result.skipped_preemptions[name] = self.result.skipped_preemptions.get(name, 0) + 1

    def _recompute(self, entry: CycleEntry) -> None:
        """Nominate anew as if the victims so far were gone: some of them were to go for it."""
        self._renominate(entry)
        if entry.mode is PreemptionMode.FIT:
            entry.wait_for(self.books.leaving.values() if entry.parted else ())
        how = "deferred_fit" if entry.deferred else "preempt" if entry.victims else "skipped"
        self.result.recomputed[entry.queue.name] = how

    def _place_again(self, entry: CycleEntry) -> None:
        """Its place may have gone to a head before it: find another, with victims if that is what it takes."""
        if self.books.ground is NO_PLACEMENT:
            return
        gone = self._lift(entry, self._taken(entry))
        lost = fits(entry.node, entry.assignment.usage) and isinstance(
            self.books.ground.find(entry.workload, entry.assignment.given, before=entry.assignment.place),
            PlacementRefusal,
        )
        self._put_back(gone)
        if lost:
            self._renominate(entry)

    def _renominate(self, entry: CycleEntry) -> None:
        """Nominate as if everybody gone were gone, among the flavors nominated before."""
        nominated = {given.name: given.flavors for given in entry.assignment.given}
        gone = self._lift(entry, self._taken(entry))
        nominator = self.scheduler.nominator(entry.queue.name, nominated)
        found = nominator.seat(entry.unseated) if entry.unseated else nominator.nominate(entry.workload)
        entry.assignment, entry.victims = found
        self._put_back(gone)

    def _taken(self, entry: CycleEntry) -> list[AdmittedWorkload]:
        """The victims so far that may stand in the entry's way: of its own tree, where machines do not matter."""
        if self.books.ground is NO_PLACEMENT:
            return self._taken_below.get(entry.node.root.name, [])
        return [victim.holder for victim in self.taken.values()]

    def _lift(self, entry: CycleEntry, more: Iterable[AdmittedWorkload]) -> list[AdmittedWorkload]:
        """Lift those the entry was nominated without and `more`; what is returned has to be put back.

        Who was nominated as if those who leave had left is judged so too.
        """
        self.books.part(parted=entry.parted)
        gone = []
        for holder in (*more, *entry.gone):
            if not holder.out:
                self.books.lift(holder)
                gone.append(holder)
        return gone

    def _put_back(self, gone: list[AdmittedWorkload]) -> None:
        """Undo `_lift`; the books stay as they are for those who leave."""
        for holder in reversed(gone):
            self.books.put_back(holder)

    def _still_fits(self, entry: CycleEntry) -> bool:
        """Whether it has quota and a place with everybody gone who leaves; a preemptor's place is the one found now."""
        if entry.beside:
            return self.scheduler.fits_already(entry, [*self.scheduler.kept, *self.kept.values()])
        if self.books.ground is NO_PLACEMENT and fits(entry.node, entry.assignment.usage):
            return True  # who fits beside them fits without them: most heads need nobody lifted
        more = [*self._taken(entry), *(victim.holder for victim in entry.victims)]
        if self.scheduler.rules.wait_for_leaving and not entry.victims:
            more = []  # it starts at once, on what is free now
        gone = self._lift(entry, more)
        enough = fits(entry.node, entry.assignment.usage)
        if enough:
            place = self.books.ground.find(entry.workload, entry.assignment.given, before=entry.assignment.place)
            enough = not isinstance(place, PlacementRefusal)
            entry.assignment.place = place if enough else None
        self._put_back(gone)
        return enough

    def _keep(self, entry: CycleEntry, usage: Mapping[int, int]) -> None:
        kept = HeldCapacity(entry.workload, entry.node, usage, entry.assignment.place)
        kept.take(self.books)
        self.kept[entry.workload.uid] = kept

    def close(self, *, but: frozenset[str] = frozenset()) -> list[HeldCapacity]:
        """Give back what was kept for entries that wait, except for the workloads named: theirs is returned."""
        longer = []
        for uid, kept in reversed(self.kept.items()):
            if uid in but:
                longer.append(kept)
            else:
                kept.give(self.books)
        return longer


def resources_to_reserve(node: QuotaNode, assignment: WorkloadAssignment) -> dict[int, int]:
    """How much of its usage a blocked preemptor keeps from others (reference 2.7 step 4)."""
    kept = {}
    for cell, amount in assignment.usage.items():
        if assignment.mode is PreemptionMode.FIT:
            kept[cell] = amount
        elif assignment.borrow:
            limit = node.ceiling[cell] + node.private[cell]
            kept[cell] = min(amount, limit - node.usage[cell])
        else:
            kept[cell] = max(0, min(amount, node.nominal[cell] - node.usage[cell]))
    return {cell: amount for cell, amount in kept.items() if amount > 0}
