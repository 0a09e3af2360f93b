"""Keeps the ledger that all decisions of a cycle are made against: who holds quota, and where its pods stand.

Machines are behind one protocol, so that the engine runs with them and without.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Protocol

from fleet.quota.tree import Cell, QuotaNode, QuotaTree, charge, release
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Refusal


@dataclass(slots=True, eq=False)
class AdmittedWorkload:
    """A workload that holds quota, whether its machines are there already or not (Kueue: QuotaReserved)."""

    workload: Workload
    queue: QuotaNode
    given: tuple[PodSetAssignment, ...]
    usage: Mapping[Cell, int]
    reserved_at_s: float
    ends_at_s: float = inf
    """When it is expected to have ended (epoch seconds); inf = unknown."""
    leaving: bool = False
    """Whether it was evicted and has not left yet."""
    place: object = None
    """Where its pods stand; opaque here, known to the placement backend."""
    protected: str = ""
    """Why it may not be chosen as a victim now; empty where it may."""
    unsettled: bool = False
    """Whether its last decision is still being saved: a preemptor that wants it to leave waits for that."""
    out: bool = False
    """Whether it is lifted out of the ledger for a what-if."""

    def uses_any(self, cells: Iterable[Cell]) -> bool:
        """Returns whether the workload takes something of one of the cells."""
        return not self.usage.keys().isdisjoint(cells)


@dataclass(frozen=True, slots=True)
class SecondPassWorkload:
    """A workload that holds quota and asks only for a place (Kueue's second pass).

    Its pods never had a place, or lost a part of it.
    """

    holder: AdmittedWorkload
    lost: bool = False
    """Whether a node under it failed: then nobody is evicted for it, and its other pods stay where they are."""


@dataclass(frozen=True, slots=True)
class PlacementRefusal:
    """The pod sets that have no place, and why."""

    pod_sets: tuple[str, ...]
    refusal: Refusal


class PlacementBackend(Protocol):
    """Finds and keeps places for pods. `put` and `lift`, `hold` and `release` undo each other exactly.

    A place is opaque to the quota engine: what `find` returns is handed back to the others. `find` changes nothing.
    """

    keeps_nominated: ClassVar[bool]
    """Whether it goes back to the place that a head was nominated with; else that place is not looked for."""

    def find(
        self, workload: Workload, given: Sequence[PodSetAssignment], *, empty: bool = False, before: object = None
    ) -> object | PlacementRefusal:
        """Returns a place for all pods as things stand, or with `empty` as if no workload stood anywhere.

        Of a workload that stands already, the pods that have a place keep it. `before` is a place found earlier in the
        cycle, which a backend may prefer as long as it is free.
        """

    def fits(self, workload: Workload, given: Sequence[PodSetAssignment]) -> bool:
        """Returns whether `find` would find a place as things stand; cheaper, as it need not be the best one."""

    def finds_all(self, asked: Sequence[tuple[Workload, Sequence[PodSetAssignment]]]) -> bool:
        """Returns whether each of several workloads is certain to find a place, whichever of them come before."""

    def alike(self, workload: Workload, given: Sequence[PodSetAssignment]) -> Hashable | None:
        """Returns what is equal for workloads that find a place, or none, together; None where nobody is known to be.

        What came in between has to be told apart, unless it has only taken room.
        """

    def put(self, holder: AdmittedWorkload) -> None:
        """Lets the pods of a holder stand where `holder.place` says."""

    def lift(self, holder: AdmittedWorkload) -> None:
        """Takes the pods of a holder away."""

    def hold(self, workload: Workload, place: object) -> None:
        """Keeps the place from all others, although the workload does not stand there yet."""

    def release(self, workload: Workload, place: object) -> None:
        """Undoes `hold`."""


@dataclass(frozen=True, slots=True)
class NoPlacement:
    """A backend without machines: only quota counts."""

    keeps_nominated: ClassVar[bool] = True

    def find(
        self, workload: Workload, given: Sequence[PodSetAssignment], *, empty: bool = False, before: object = None
    ) -> object | PlacementRefusal:
        """Returns None: every workload has a place."""
        return None

    def fits(self, workload: Workload, given: Sequence[PodSetAssignment]) -> bool:
        """Returns True."""
        return True

    def finds_all(self, asked: Sequence[tuple[Workload, Sequence[PodSetAssignment]]]) -> bool:
        """Returns True."""
        return True

    def alike(self, workload: Workload, given: Sequence[PodSetAssignment]) -> Hashable | None:
        """Returns None: nobody is refused a place."""
        return None

    def put(self, holder: AdmittedWorkload) -> None:
        """Does nothing."""

    def lift(self, holder: AdmittedWorkload) -> None:
        """Does nothing."""

    def hold(self, workload: Workload, place: object) -> None:
        """Does nothing."""

    def release(self, workload: Workload, place: object) -> None:
        """Does nothing."""


NO_PLACEMENT = NoPlacement()


def eviction_order(holder: AdmittedWorkload) -> tuple[int, float, float, str]:
    """Returns the sort key of holders of one queue, first to go first: low priority, little lost work, newest, uid."""
    workload = holder.workload
    return (workload.priority, workload.lost_work_s, -holder.reserved_at_s, workload.uid)


@dataclass(slots=True)
class QuotaLedger:
    """All workloads that hold quota, charged to the tree; `lift` and `put_back` undo each other, for what-ifs."""

    tree: QuotaTree
    placement: PlacementBackend = NO_PLACEMENT
    holders: dict[str, AdmittedWorkload] = field(default_factory=dict)
    leaving: dict[str, AdmittedWorkload] = field(default_factory=dict)
    """uid -> holder that was told to leave and still holds its quota and place."""
    leaving_gone: bool = False
    """Whether leaving holders count as gone in the present what-if; see `count_leaving`."""
    _who_leaves: tuple[AdmittedWorkload, ...] | None = None
    given_back: int = 0
    """How often something was given back for good, or for more than a what-if: until then there was only less room."""
    kept: Counter[tuple[str, Cell]] = field(default_factory=Counter)
    """(name of the node with the quota, cell) -> what non-preemptible workloads use of it."""
    _of_queue: dict[str, dict[str, AdmittedWorkload]] | None = None
    """Queue -> its holders; None until somebody asks."""
    _lowest: dict[str, float] = field(default_factory=dict)
    """Queue -> a priority that none of its holders is below; for those that were asked for."""
    _staying: dict[str, list[AdmittedWorkload]] = field(default_factory=dict)
    """Queue -> holders that are not leaving, in eviction order: kept sorted, because sorting them for each search costs
    more than the search."""

    def add(self, holder: AdmittedWorkload, *, stands: bool = False) -> None:
        """Charges a holder's quota and place; its position in the order of eviction is fixed from now on.

        `stands`: its pods have their place already.
        """
        uid, queue = holder.workload.uid, holder.queue.name
        self.holders[uid] = holder
        if self._of_queue is not None:
            self._of_queue.setdefault(queue, {})[uid] = holder
        if queue in self._lowest:
            self._lowest[queue] = min(self._lowest[queue], holder.workload.priority)
        if holder.leaving:
            self.leaving[uid], self._who_leaves = holder, None
        elif queue in self._staying:
            insort(self._staying[queue], holder, key=eviction_order)
        self._charge(holder)
        if not stands:
            self.placement.put(holder)

    def stand(self, holders: dict[str, AdmittedWorkload], apart: Iterable[AdmittedWorkload]) -> None:
        """Takes over holders (by uid) that are charged to the tree and have their places, before there are others.

        `apart`: those of them that may leave or be non-preemptible.
        """
        self.holders = holders
        for holder in apart:
            if holder.leaving:
                self.leaving[holder.workload.uid] = holder
            if holder.workload.non_preemptible:
                self._keep(holder, 1)

    def remove(self, uid: str) -> AdmittedWorkload:
        """Gives back all that a workload holds, and returns its holder; KeyError when it holds nothing."""
        self.given_back += 1
        holder = self.holders.pop(uid)
        if self._of_queue is not None:
            del self._of_queue[holder.queue.name][uid]
        if self.leaving.pop(uid, None) is None:
            self._stays_no_more(holder)
        self._who_leaves = None
        if not holder.out:
            self.lift(holder)
        return holder

    def evict(self, holder: AdmittedWorkload) -> None:
        """Notes that the holder is told to leave; once more it changes nothing: searches take those who leave first."""
        if holder.leaving:
            return
        holder.leaving = True
        self.leaving[holder.workload.uid], self._who_leaves = holder, None
        self._stays_no_more(holder)
        if self.leaving_gone and not holder.out:
            self.lift(holder)

    def _stays_no_more(self, holder: AdmittedWorkload) -> None:
        staying = self._staying.get(holder.queue.name)
        if staying is not None:
            del staying[bisect_left(staying, eviction_order(holder), key=eviction_order)]

    def count_leaving(self, *, gone: bool) -> None:
        """Counts leaving holders as gone from now on, or as present again.

        Many what-ifs in a row assume that they have left; so they are lifted once and not for each.
        """
        if gone is self.leaving_gone:
            return
        self.leaving_gone = gone
        move = self.lift if gone else self.put_back
        for holder in self.leaving.values():
            move(holder)

    def who_leaves(self) -> tuple[AdmittedWorkload, ...]:
        """Returns the leaving holders: the same object until somebody else is told to leave, or has left."""
        if self._who_leaves is None:
            self._who_leaves = tuple(self.leaving.values())
        return self._who_leaves

    @property
    def leave_later(self) -> bool:
        """Returns whether some holder is leaving and does not count as gone at present."""
        return bool(self.leaving) and not self.leaving_gone

    def lift(self, holder: AdmittedWorkload) -> None:
        """Takes the usage and the pods of a holder away for now."""
        holder.out = True
        release(holder.queue, holder.usage)
        if holder.workload.non_preemptible:
            self._keep(holder, -1)
        self.placement.lift(holder)

    def put_back(self, holder: AdmittedWorkload) -> None:
        """Undoes `lift`."""
        self._charge(holder)
        self.placement.put(holder)

    def _charge(self, holder: AdmittedWorkload) -> None:
        holder.out = False
        charge(holder.queue, holder.usage)
        if holder.workload.non_preemptible:
            self._keep(holder, 1)

    def _keep(self, holder: AdmittedWorkload, sign: int) -> None:
        owner = holder.queue.owner.name
        for cell, amount in holder.usage.items():
            self.kept[owner, cell] += sign * amount

    def guarantee_left(self, queue: QuotaNode, cell: Cell) -> int:
        """Returns what a non-preemptible workload of a queue may take: the guarantee less what others like it use."""
        owner = queue.owner
        return owner.nominal[cell] - self.kept[owner.name, cell]

    def beyond_guarantee(self, queue: QuotaNode, usage: Mapping[Cell, int]) -> bool:
        """Returns whether a non-preemptible workload would take more than its queue is guaranteed."""
        return any(amount > self.guarantee_left(queue, cell) for cell, amount in usage.items())

    def move(self, holder: AdmittedWorkload, place: object) -> None:
        """Moves the pods of a holder to another place."""
        self.given_back += 1
        self.placement.lift(holder)
        holder.place = place
        self.placement.put(holder)

    def staying(self, queue: str) -> Sequence[AdmittedWorkload]:
        """Returns holders charged at a queue that are not leaving, in the order of eviction."""
        if queue not in self._staying:
            everybody = self._by_queue().get(queue, {}).values()
            self._staying[queue] = sorted((holder for holder in everybody if not holder.leaving), key=eviction_order)
        return self._staying[queue]

    def lowest_priority(self, queue: str) -> float:
        """Returns a priority that no holder charged at a queue is below: the lowest that any has had; inf = nobody has.

        For who looks for holders below a priority: where there is none, they need not be put in order.
        """
        if (lowest := self._lowest.get(queue)) is None:
            holders = (it.workload.priority for it in self.holders.values() if it.queue.name == queue)
            lowest = self._lowest[queue] = min(holders, default=inf)
        return lowest

    def _by_queue(self) -> dict[str, dict[str, AdmittedWorkload]]:
        if self._of_queue is None:
            self._of_queue = {}
            for uid, holder in self.holders.items():
                self._of_queue.setdefault(holder.queue.name, {})[uid] = holder
        return self._of_queue

    def leaving_of(self, queue: str) -> Sequence[AdmittedWorkload]:
        """Returns holders charged at a queue that are leaving, in the order of eviction."""
        return sorted((holder for holder in self.leaving.values() if holder.queue.name == queue), key=eviction_order)
