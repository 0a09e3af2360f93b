"""Says why heads of queues wait, in numbers: what they ask, what is free, who holds the rest, what would change it."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf

from fleet.quota.entries import CycleEntry, EntryOutcome
from fleet.quota.ledger import AdmittedWorkload
from fleet.quota.preemption import Victim, why_kept
from fleet.quota.scheduler import AdmissionScheduler
from fleet.quota.specs import CandidatePolicy
from fleet.quota.tree import Cell, QuotaNode, QuotaTree, available
from fleet.quota.workload import FlavorRefusal, PreemptionMode, Workload
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.quantity import format_amount


@dataclass(slots=True)
class Explainer:
    """An `Explainer` turns what the quota engine found about waiting heads into refusals, as the ledger stands now.

    The ledger must not change while it speaks: thousands wait for the same reason, behind thousands that hold the same,
    and each of both is looked at once.
    """

    fleet: Fleet
    snapshot: Snapshot
    scheduler: AdmissionScheduler
    _answers: dict[int, tuple[CycleEntry, Refusal]] = field(default_factory=dict)
    _waits: dict[int, tuple[tuple[AdmittedWorkload, ...], Refusal]] = field(default_factory=dict)
    """id of those who leave -> they, and the refusal of all who wait for them alone."""
    _alike: dict[Cell, list[list[AdmittedWorkload]]] = field(default_factory=dict)
    """Cell -> who holds it and is not leaving, alike in all that decides whether they may be evicted but their age."""
    _sorted: dict[int, list[AdmittedWorkload]] = field(default_factory=dict)
    """id of such a list -> the same, the oldest first; for those of which age has a say."""
    _ending: dict[Cell, list[AdmittedWorkload]] = field(default_factory=dict)
    """Cell -> who holds it and says when it ends, in that order."""
    _left: dict[tuple[str, Cell], list[int]] = field(default_factory=dict)
    """(queue, cell) -> what is available there once so many of those have ended."""

    @property
    def tree(self) -> QuotaTree:
        """Returns the quota tree."""
        return self.scheduler.ledger.tree

    def entry(self, entry: CycleEntry) -> Refusal:
        """Returns why the head of a queue waits."""
        if id(entry) not in self._answers:
            self._answers[id(entry)] = entry, self._found(entry)
        return self._answers[id(entry)][1]

    def _found(self, entry: CycleEntry) -> Refusal:
        if entry.outcome is not EntryOutcome.PENDING_PREEMPTION:
            return self._from_problems(entry)
        gone = entry.gone if entry.deferred else ()
        if entry.victims:
            return _waiting_for(gone, entry.victims)
        if id(gone) not in self._waits:  # thousands may wait for the same
            self._waits[id(gone)] = gone, _waiting_for(gone, ())
        return self._waits[id(gone)][1]

    def behind(self, head: Workload) -> Refusal:
        """Returns the refusal of a gang that waits behind the head of its StrictFIFO queue."""
        return Refusal(Reason.BEHIND_HEAD, f"waits behind {head.name} in a StrictFIFO queue")

    def _from_problems(self, entry: CycleEntry) -> Refusal:
        """Returns the refusal for the first flavor problem of a head's pod sets."""
        unfit: list[str] = []
        for pods in entry.assignment.pod_sets:
            for refused in pods.refusals:
                if refused.reason is not Reason.NO_MATCHING_FLAVOR:
                    return self._refusal(entry, refused)
            if pods.mode is PreemptionMode.NO_FIT:
                unfit = unfit or [pods.pod_set.name, *(refused.message for refused in pods.refusals)]
        if unfit:
            name, *details = unfit
            message = f"{name} fits no flavor of queue {entry.queue.name} ({'; '.join(details)})"
            return Refusal(Reason.NO_MATCHING_FLAVOR, message)
        return Refusal(Reason.QUEUED, "not considered yet")

    def _refusal(self, entry: CycleEntry, refused: FlavorRefusal) -> Refusal:
        """Returns the refusal for a flavor that a pod set did not get; missing quota is spelled out."""
        if refused.reason is Reason.WAITING_FOR_QUOTA and refused.cell >= 0:
            return self._missing_quota(entry, refused)
        return refused.told(self.tree)

    def _missing_quota(self, entry: CycleEntry, refused: FlavorRefusal) -> Refusal:
        """Returns how much quota is missing, who borrows it, and what the own team has left of its guarantee."""
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
        sentence += [
            part for part in (self._why_kept(entry, cell), self._when_free(entry, cell, refused.asked)) if part
        ]
        return Refusal(Reason.WAITING_FOR_QUOTA, "; ".join(sentence))

    def _why_kept(self, entry: CycleEntry, cell: Cell) -> str:
        """Returns why gangs that hold the quota are not evicted: at most three reasons with counts."""
        if not entry.workload.preempts:
            return "it may not evict others"
        reasons: Counter[str] = Counter()
        for alike in self._holding(cell, entry.node.root):
            for part in self._by_age(entry, alike):
                if part and (why := why_kept(entry.queue, entry.node, entry.workload, part[0])):
                    reasons[why] += len(part)
        told = [
            f"{count} gang{'s' if count > 1 else ''} may not be evicted: {why}"
            for why, count in sorted(reasons.items())
        ]
        return ", ".join(told[:3])

    def _by_age(self, entry: CycleEntry, alike: list[AdmittedWorkload]) -> Sequence[Sequence[AdmittedWorkload]]:
        """Returns holders in parts of which all are kept for one reason, or none: by age where that has a say."""
        policies = entry.queue.preemption
        policy = policies.within_queue if alike[0].queue is entry.node else policies.reclaim
        if policy is not CandidatePolicy.LOWER_OR_NEWER:
            return (alike,)
        if (known := self._sorted.get(id(alike))) is None:
            known = self._sorted[id(alike)] = sorted(alike, key=_since_s)
        newer = bisect_right(known, entry.workload.at_s, key=_since_s)
        return known[:newer], known[newer:]

    def _holding(self, cell: Cell, root: QuotaNode) -> list[list[AdmittedWorkload]]:
        """Returns who holds a cell of a tree and is not leaving: those alike together."""
        if cell not in self._alike:
            found: dict[tuple[int, int, str], list[AdmittedWorkload]] = {}
            for holder in self.scheduler.ledger.holders.values():
                if cell in holder.usage and not holder.leaving:
                    alike = id(holder.queue), holder.workload.priority, holder.protected
                    found.setdefault(alike, []).append(holder)
            self._alike[cell] = list(found.values())
        return [alike for alike in self._alike[cell] if alike[0].queue.root is root]

    def _when_free(self, entry: CycleEntry, cell: Cell, asked: int) -> str:
        """Returns when enough quota will be free if gangs end when they say; empty if that is never or unknown."""
        if cell not in self._ending:
            holders = self.scheduler.ledger.holders.values()
            ending = [h for h in holders if cell in h.usage and h.ends_at_s < inf and not h.out]
            self._ending[cell] = sorted(ending, key=lambda h: (h.ends_at_s, h.workload.uid))
        ending = self._ending[cell]
        gone = bisect_left(self._available(entry.node, cell, ending, asked), asked)
        if not ending or gone > len(ending):
            return ""
        # an instant, not a delay: a sentence that ages would be written again every minute
        last = ending[max(gone, 1) - 1]
        end = datetime.fromtimestamp(last.ends_at_s, UTC)
        return f"enough is free at about {end:%Y-%m-%d %H:%M} UTC, when {last.workload.name} ends"

    def _available(self, node: QuotaNode, cell: Cell, ending: Sequence[AdmittedWorkload], asked: int) -> list[int]:
        """Returns what is available once none, one, two, ... of these have ended, up to what is asked."""
        left = self._left.get((node.name, cell), [])
        if not left or (left[-1] < asked and len(left) <= len(ending)):
            left = [available(node, cell)]
            for holder in ending:
                if left[-1] >= asked:
                    break
                self.scheduler.ledger.lift(holder)
                left.append(available(node, cell))
            for holder in reversed(ending[: len(left) - 1]):
                self.scheduler.ledger.put_back(holder)
            self._left[node.name, cell] = left
        return left


def _since_s(holder: AdmittedWorkload) -> float:
    return holder.workload.at_s


def _borrowers(owner: QuotaNode, cell: Cell) -> list[tuple[str, int]]:
    """Returns the three queues or cohorts that borrow most of a cell, with their amounts."""
    found = []
    stack = [owner.root]
    while stack:
        node = stack.pop()
        stack += node.children
        if node is not owner and node.parent is not None and not node.through_team and node.unused(cell) < 0:
            found.append((node.name, -node.unused(cell)))
    return sorted(found, key=lambda entry: (-entry[1], entry[0]))[:3]


def _waiting_for(gone: Iterable[AdmittedWorkload], victims: Iterable[Victim]) -> Refusal:
    return waiting_for([holder.workload.name for holder in gone], [victim.holder.workload.name for victim in victims])


def waiting_for(leaving: Iterable[str], chosen: Iterable[str]) -> Refusal:
    """Returns the refusal of a gang that runs as soon as these gangs have left."""
    names = sorted({*leaving, *chosen})
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return Refusal(Reason.WAITING_FOR_PREEMPTED, f"waits until {shown} {'have' if len(names) > 1 else 'has'} left")
