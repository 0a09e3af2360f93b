"""An admission cycle decides entries one by one, against a ledger that contains what was decided before.

The second half of Kueue's schedule (`pkg/scheduler/scheduler.go`; reference 2.7); nomination is the first.
"""

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

from fleet.quota.entries import CycleEntry, EntryOutcome
from fleet.quota.ledger import NO_PLACEMENT, AdmittedWorkload, PlacementRefusal, QuotaLedger
from fleet.quota.nomination import HeldCapacity, Nominator
from fleet.quota.preemption import Victim
from fleet.quota.specs import CandidatePolicy
from fleet.quota.tree import QuotaNode, fits
from fleet.quota.workload import PreemptionMode, Workload, WorkloadAssignment


@dataclass(slots=True)
class CycleResult:
    """A `CycleResult` is everything that one cycle, or a sweep of several, has decided."""

    admitted: list[AdmittedWorkload] = field(default_factory=list)
    placed: list[AdmittedWorkload] = field(default_factory=list)
    """Holders of quota that got a place in this cycle (Kueue's second pass)."""
    lost: list[AdmittedWorkload] = field(default_factory=list)
    """Holders of quota that have to leave: a node of theirs failed and there is no other place."""
    replaced: list[AdmittedWorkload] = field(default_factory=list)
    """Workloads whose quota was given back because an admitted one replaces them."""
    evictions: list[tuple[Victim, Workload]] = field(default_factory=list)
    """(victim, the workload it is evicted for)."""
    waiting: list[CycleEntry] = field(default_factory=list)
    """Heads that were not admitted."""
    skipped_preemptions: dict[str, int] = field(default_factory=dict)
    """Queue -> heads whose preemption had to wait for that of another."""
    recomputed: dict[str, str] = field(default_factory=dict)
    """Queue -> what became of a head that was nominated anew because its victims were taken."""

    @property
    def progressed(self) -> bool:
        """Returns whether anything changed that another cycle could build on."""
        return bool(self.admitted or self.evictions or self.placed)


@dataclass(slots=True)
class AdmissionCycle:
    """An `AdmissionCycle` decides the entries of one cycle in the order in which they come."""

    nominator: Nominator
    result: CycleResult = field(default_factory=CycleResult)
    taken: dict[str, Victim] = field(default_factory=dict)
    """uid -> victim chosen so far in this cycle; it is still in the ledger."""
    _taken_below: dict[str, list[AdmittedWorkload]] = field(default_factory=dict)
    """Root -> the victims that hold quota of its tree."""
    held: dict[str, HeldCapacity] = field(default_factory=dict)
    """uid -> what is held for an entry that waits, until the end of the cycle or longer."""

    @property
    def ledger(self) -> QuotaLedger:
        """Returns the ledger that all entries are decided against."""
        return self.nominator.ledger

    def process(self, entry: CycleEntry) -> None:
        """Decides one entry, and sets its outcome."""
        if self._overlaps(entry):
            if self.nominator.rules.victims_again:
                self._recompute(entry)
        elif entry.mode is PreemptionMode.FIT and self.nominator.rules.place_again:
            self._place_again(entry)
        entry.outcome = EntryOutcome.EVICTED if self._leaves(entry) else self._outcome(entry)

    def _leaves(self, entry: CycleEntry) -> bool:
        """Returns whether the entry has lost part of its place, finds no other and has to leave."""
        second_pass = entry.second_pass
        if second_pass is None or not second_pass.lost:
            return False
        if entry.mode is PreemptionMode.FIT or not self.nominator.rules.lost_leave:
            return False
        self.result.lost.append(second_pass.holder)
        return True

    def _overlaps(self, entry: CycleEntry) -> bool:
        """Returns whether a victim of the entry is already evicted for another entry."""
        taken = self.taken
        return bool(taken) and any(victim.holder.workload.uid in taken for victim in entry.victims)

    def _outcome(self, entry: CycleEntry) -> EntryOutcome:
        """Returns the outcome of an entry, and carries out what follows from it."""
        if entry.workload.busy:
            if entry.deferred or (entry.mode is PreemptionMode.FIT and self._still_fits(entry)):
                self._keep(entry, entry.assignment.usage)
            return EntryOutcome.BUSY
        if entry.mode is PreemptionMode.NO_FIT:
            return EntryOutcome.NO_FIT
        if entry.deferred:
            self._keep(entry, entry.assignment.usage)
            self.nominator.forget_progress(entry.workload)
            return EntryOutcome.PENDING_PREEMPTION
        if entry.mode is PreemptionMode.FIT or (entry.victims and entry.workload.may_evict):
            return self._carry_out(entry)
        if entry.victims:
            return EntryOutcome.GATED
        # It cannot reclaim this later, so it is kept free for it.
        if entry.queue.preemption.reclaim is not CandidatePolicy.ANY:
            self._keep(entry, resources_to_reserve(entry.node, entry.assignment), blocked=True)
        return EntryOutcome.NO_CANDIDATES

    def _carry_out(self, entry: CycleEntry) -> EntryOutcome:
        """Admits the entry or evicts its victims; one that backfills does so on what is reserved for others."""
        with self.nominator.unreserved() if entry.backfills else nullcontext():
            return self._admit_or_evict(entry)

    def _admit_or_evict(self, entry: CycleEntry) -> EntryOutcome:
        """Returns the outcome of admitting an entry or evicting its victims; SKIPPED if it no longer fits."""
        if self._overlaps(entry) or not self._still_fits(entry):
            if entry.mode.preempting:
                self._count_skip(entry)
            return EntryOutcome.SKIPPED
        if entry.victims:
            self._evict(entry)
            return EntryOutcome.PENDING_PREEMPTION
        self._admit(entry)
        return EntryOutcome.ADMITTED

    def _evict(self, entry: CycleEntry) -> None:
        """Records the victims of an entry, and holds quota and place for it until they have left."""
        admitted = {holder.workload.uid for holder in self.result.admitted}  # a moment ago, and not yet saved
        settled = not any(it.holder.unsettled or it.holder.workload.uid in admitted for it in entry.victims)
        for victim in entry.victims if settled else ():
            self.taken[victim.holder.workload.uid] = victim
            self._taken_below.setdefault(entry.node.root.name, []).append(victim.holder)
            self.result.evictions.append((victim, entry.workload))
        self._keep(entry, entry.assignment.usage)
        self._keep_destinations(entry.victims)
        # Once they are gone it wants the flavor they held, not the next one.
        self.nominator.forget_progress(entry.workload)

    def _admit(self, entry: CycleEntry) -> None:
        """Adds the entry's workload to the ledger, or moves a holder to the place found for it."""
        found = entry.assignment
        if entry.second_pass is not None:
            self.ledger.move(entry.second_pass.holder, found.place)
            self.result.placed.append(entry.second_pass.holder)
            return
        holder = AdmittedWorkload(
            entry.workload, entry.node, found.given, found.usage, self.nominator.now_s, place=found.place
        )
        if entry.workload.replaces in self.ledger.holders:
            self.result.replaced.append(self.ledger.remove(entry.workload.replaces))
        self.ledger.add(holder)
        self.nominator.count(holder)
        self.result.admitted.append(holder)

    def _count_skip(self, entry: CycleEntry) -> None:
        name = entry.queue.name
        self.result.skipped_preemptions[name] = self.result.skipped_preemptions.get(name, 0) + 1

    def _recompute(self, entry: CycleEntry) -> None:
        """Nominates an entry again because some of its victims go for another entry, as if all victims were gone."""
        self._renominate(entry)
        if entry.mode is PreemptionMode.FIT:
            leaving = self.ledger.who_leaves() if entry.leaving_gone else ()
            entry.wait_for(tuple(dict.fromkeys((*self._taken(entry), *leaving))))
        how = "deferred_fit" if entry.deferred else "preempt" if entry.victims else "skipped"
        self.result.recomputed[entry.queue.name] = how

    def _place_again(self, entry: CycleEntry) -> None:
        """Nominates an entry again if an entry before it has taken its place: for another, with victims if need be.

        So is one that waits for holders who leave, where another waits for the same: they leave for that one.
        """
        if self.ledger.placement is NO_PLACEMENT:
            return
        gone = self._lift(entry, self._taken(entry))
        enough = fits(entry.node, entry.assignment.usage)
        before = entry.assignment.place
        found = self.ledger.placement.find(entry.workload, entry.assignment.given, before=before) if enough else None
        lost = isinstance(found, PlacementRefusal)
        entry.assignment.place = before if found is None or lost else found
        self._put_back(gone)
        if lost or (entry.deferred and not enough):
            self._renominate(entry)
            entry.deferred = entry.deferred and entry.mode is PreemptionMode.FIT

    def _renominate(self, entry: CycleEntry) -> None:
        """Nominates an entry again as if all victims so far were gone, among the flavors it was nominated with."""
        nominated = {given.name: given.flavors for given in entry.assignment.given}
        gone = self._lift(entry, self._taken(entry))
        search = self.nominator.search(entry.queue.name, nominated)
        found = search.find_place(entry.second_pass) if entry.second_pass else search.best(entry.workload)
        entry.assignment, entry.victims = found
        self._put_back(gone)

    def _taken(self, entry: CycleEntry) -> list[AdmittedWorkload]:
        """Returns victims of this cycle that may matter to the entry; without machines, only those of its tree."""
        if self.ledger.placement is NO_PLACEMENT:
            return self._taken_below.get(entry.node.root.name, [])
        return [victim.holder for victim in self.taken.values()]

    def _lift(self, entry: CycleEntry, more: Iterable[AdmittedWorkload]) -> list[AdmittedWorkload]:
        """Lifts `more` and the holders that the entry was nominated without; returns whom to put back.

        An entry nominated as if leaving holders had left is judged like that here.
        """
        self.ledger.count_leaving(gone=entry.leaving_gone)
        gone = []
        out_already = entry.leaving_gone and entry.gone is self.ledger.who_leaves()  # as of most who wait for many
        for holder in (*more, *(() if out_already else entry.gone)):
            if not holder.out:
                self.ledger.lift(holder)
                gone.append(holder)
        return gone

    def _put_back(self, gone: list[AdmittedWorkload]) -> None:
        """Undoes `_lift`; the ledger stays as it is for those who leave."""
        for holder in reversed(gone):
            self.ledger.put_back(holder)

    def _still_fits(self, entry: CycleEntry) -> bool:
        """Returns whether an entry has quota and a place once its victims are gone, and notes the place found."""
        if entry.fits_beside:
            return self.nominator.fits_already(entry, [*self.nominator.held, *self.held.values()])
        workload = entry.workload
        if workload.non_preemptible and self.ledger.beyond_guarantee(entry.node, entry.assignment.usage):
            return False
        if self.ledger.placement is NO_PLACEMENT and fits(entry.node, entry.assignment.usage):
            return True  # what fits beside them fits without them: for most heads nobody is lifted
        more = [*self._taken(entry), *(victim.holder for victim in entry.victims)]
        if self.nominator.rules.wait_for_leaving and not entry.victims:
            more = []  # it starts at once, on what is free now
        gone = self._lift(entry, more)
        enough = fits(entry.node, entry.assignment.usage)
        if enough:
            place = self.ledger.placement.find(entry.workload, entry.assignment.given, before=entry.assignment.place)
            enough = not isinstance(place, PlacementRefusal)
            entry.assignment.place = place if enough else None
        self._put_back(gone)
        return enough

    def _keep(self, entry: CycleEntry, usage: Mapping[int, int], *, blocked: bool = False) -> None:
        """Holds quota and place for a waiting entry, until the end of the cycle or longer."""
        held = HeldCapacity(entry.workload, entry.node, usage, entry.assignment.place, blocked)
        held.take(self.ledger)
        self.held[entry.workload.uid] = held

    def _keep_destinations(self, victims: Iterable[Victim]) -> None:
        """Holds the places to which victims move; the quota they have already."""
        for victim in victims:
            if victim.destination is not None:
                holder = victim.holder
                held = HeldCapacity(holder.workload, holder.queue, {}, victim.destination)
                held.take(self.ledger)
                self.held[holder.workload.uid] = held

    def close(self, *, but: frozenset[str] = frozenset()) -> list[HeldCapacity]:
        """Gives back what is held for waiting entries; returns what stays held, for the workloads in `but`."""
        longer = []
        for uid, held in reversed(self.held.items()):
            if uid in but:
                longer.append(held)
            else:
                held.give(self.ledger)
        return longer


def resources_to_reserve(node: QuotaNode, assignment: WorkloadAssignment) -> dict[int, int]:
    """Returns the part of its usage that a blocked preemptor keeps from others, by cell (reference 2.7 step 4)."""
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
