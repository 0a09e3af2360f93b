"""Sentences with numbers: what was asked, what is free, who holds the rest, what would change it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf

from fleet.quota.entries import CycleEntry, EntryOutcome
from fleet.quota.ledger import AdmittedWorkload
from fleet.quota.preemption import why_kept
from fleet.quota.scheduler import AdmissionScheduler
from fleet.quota.tree import Cell, QuotaNode, QuotaTree, available
from fleet.quota.workload import FlavorRefusal, PreemptionMode, Workload
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.quantity import format_amount


@dataclass(slots=True)
class Explainer:
    """Turns what the quota engine says of heads that wait into sentences, as the ledger stands after the sweep."""

    fleet: Fleet
    snapshot: Snapshot
    scheduler: AdmissionScheduler

    @property
    def tree(self) -> QuotaTree:
        """The quota tree."""
        return self.scheduler.ledger.tree

    def entry(self, entry: CycleEntry) -> Refusal:
        """Why a head waits."""
        if entry.outcome is EntryOutcome.PENDING_PREEMPTION:
            return waiting_for(
                [holder.workload.name for holder in entry.gone] if entry.deferred else [],
                [victim.holder.workload.name for victim in entry.victims],
            )
        return self._from_problems(entry)

    def behind(self, head: Workload) -> Refusal:
        """It is not looked at before the head of its StrictFIFO queue."""
        return Refusal(Reason.BEHIND_HEAD, f"waits behind {head.name} in a StrictFIFO queue")

    def _from_problems(self, entry: CycleEntry) -> Refusal:
        unfit: list[str] = []
        for pods in entry.assignment.pod_sets:
            for refused in pods.refusals:
                if refused.reason is not Reason.NO_MATCHING_FLAVOR:
                    return self._told(entry, refused)
            if pods.mode is PreemptionMode.NO_FIT:
                unfit = unfit or [pods.pod_set.name, *(refused.message for refused in pods.refusals)]
        if unfit:
            name, *details = unfit
            message = f"{name} fits no flavor of queue {entry.queue.name} ({'; '.join(details)})"
            return Refusal(Reason.NO_MATCHING_FLAVOR, message)
        return Refusal(Reason.QUEUED, "not considered yet")

    def _told(self, entry: CycleEntry, refused: FlavorRefusal) -> Refusal:
        if refused.reason is Reason.WAITING_FOR_QUOTA and refused.cell >= 0:
            return self._missing(entry, refused)
        return refused.told(self.tree)

    def _missing(self, entry: CycleEntry, refused: FlavorRefusal) -> Refusal:
        """How much is missing, who borrows it, and what the own team still has coming."""
        cell = refused.cell
        named, free = self.tree.cells[cell], available(entry.node, cell)
        resource = named.resource
        missing, asked, left = (format_amount(resource, n) for n in (refused.asked - free, refused.asked, free))
        sentence = [f"needs {missing} more {resource} of {named.flavor}: asks {asked}, {left} available"]
        if borrowers := _borrowers(entry.node.owner, cell):
            sentence.append("; ".join(f"{name} borrows {format_amount(resource, much)}" for name, much in borrowers))
        owner = entry.node.owner
        unused = owner.unused(cell)
        sentence.append(
            f"{owner.name} is {format_amount(resource, unused)} below its guarantee"
            if unused > 0
            else f"{owner.name} uses its whole guarantee and would borrow"
        )
        sentence += [part for part in (self._why_kept(entry, cell), self._when(entry, cell, refused.asked)) if part]
        return Refusal(Reason.WAITING_FOR_QUOTA, "; ".join(sentence))

    def _why_kept(self, entry: CycleEntry, cell: Cell) -> str:
        """Why those who hold the rest stay: what the queue's policies and their own state say of them."""
        if not entry.workload.preempts:
            return "it may not evict others"
        reasons: Counter[str] = Counter()
        for holder in self.scheduler.ledger.holders.values():
            if cell not in holder.usage or holder.leaving or holder.queue.root is not entry.node.root:
                continue
            if why := why_kept(entry.queue, entry.node, entry.workload, holder):
                reasons[why] += 1
        told = [f"{count} gang{'s' if count > 1 else ''} kept: {why}" for why, count in sorted(reasons.items())]
        return ", ".join(told[:3])

    def _when(self, entry: CycleEntry, cell: Cell, asked: int) -> str:
        """When enough of it will be free, if those who say when they end are right."""
        ledger, node = self.scheduler.ledger, entry.node
        ending = [h for h in ledger.holders.values() if cell in h.usage and h.ends_at_s < inf and not h.out]
        gone: list[AdmittedWorkload] = []
        for holder in sorted(ending, key=lambda h: (h.ends_at_s, h.workload.uid)):
            ledger.lift(holder)
            gone.append(holder)
            if available(node, cell) >= asked:
                break
        enough = available(node, cell) >= asked
        for holder in reversed(gone):
            ledger.put_back(holder)
        if not gone or not enough:
            return ""
        # an instant, not a delay: a sentence that ages would be written again every minute
        end = datetime.fromtimestamp(gone[-1].ends_at_s, UTC)
        return f"enough is free at about {end:%Y-%m-%d %H:%M} UTC, when {gone[-1].workload.name} ends"


def _borrowers(owner: QuotaNode, cell: Cell) -> list[tuple[str, int]]:
    """Who else uses more than its own of a cell: the largest three."""
    found = []
    stack = [owner.root]
    while stack:
        node = stack.pop()
        stack += node.children
        if node is not owner and node.parent is not None and not node.through_team and node.unused(cell) < 0:
            found.append((node.name, -node.unused(cell)))
    return sorted(found, key=lambda entry: (-entry[1], entry[0]))[:3]


def waiting_for(leaving: Iterable[str], chosen: Iterable[str]) -> Refusal:
    """It will run when these are gone."""
    names = sorted({*leaving, *chosen})
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return Refusal(Reason.WAITING_FOR_PREEMPTED, f"waits until {shown} {'have' if len(names) > 1 else 'has'} left")
