"""Who holds quota, and where the pods of those stand: the ledger that all decisions of a cycle are made against.

Machines are behind one protocol, so that the engine runs with them and without.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

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
    """When it says it will have ended (epoch seconds); inf = it does not say."""
    leaving: bool = False
    """It was evicted and is not gone yet."""
    place: object = None
    """Where its pods stand, as the placement backend knows it."""
    protected: bool = False
    """It may not be chosen as a victim now."""
    unsettled: bool = False
    """The last decision about it is still being written: who wants it to go waits until that is done."""
    out: bool = False
    """It is lifted out of the ledger for the moment."""

    def uses_any(self, cells: Iterable[Cell]) -> bool:
        """Whether the workload takes something of one of the cells."""
        usage = self.usage
        return any(cell in usage for cell in cells)


@dataclass(frozen=True, slots=True)
class SecondPassWorkload:
    """A holder keeps its quota and asks only for a place (Kueue's second pass).

    Its pods never had a place, or lost a part of it.
    """

    holder: AdmittedWorkload
    lost: bool = False
    """A node under it failed: nobody is evicted to make room, and what still runs stays where it is."""


@dataclass(frozen=True, slots=True)
class PlacementRefusal:
    """There is no place for these pod sets, and why."""

    pod_sets: tuple[str, ...]
    refusal: Refusal


class PlacementBackend(Protocol):
    """Finds and keeps places for pods. `put` and `lift`, `hold` and `release` undo each other exactly.

    A place is opaque to the quota engine: what `find` returns is handed back to the others. `find` changes nothing.
    """

    def find(
        self, workload: Workload, given: Sequence[PodSetAssignment], *, empty: bool = False, before: object = None
    ) -> object | PlacementRefusal:
        """A place for all pods as things stand, or with `empty` as if no workload stood anywhere.

        Of a workload that stands already, the pods that have a place keep it. `before` is a place found earlier in the
        cycle, which a backend may prefer as long as it is free.
        """

    def put(self, holder: AdmittedWorkload) -> None:
        """Let the pods of a holder stand where `holder.place` says."""

    def lift(self, holder: AdmittedWorkload) -> None:
        """Take the pods of a holder away."""

    def hold(self, workload: Workload, place: object) -> None:
        """Keep the place from all others, although the workload does not stand there yet."""

    def release(self, workload: Workload, place: object) -> None:
        """Undo `hold`."""


@dataclass(frozen=True, slots=True)
class NoPlacement:
    """A backend without machines: only quota counts."""

    def find(
        self, workload: Workload, given: Sequence[PodSetAssignment], *, empty: bool = False, before: object = None
    ) -> object | PlacementRefusal:
        """Nothing is ever in the way."""
        return None

    def put(self, holder: AdmittedWorkload) -> None:
        """Nothing stands anywhere."""

    def lift(self, holder: AdmittedWorkload) -> None:
        """Nothing stands anywhere."""

    def hold(self, workload: Workload, place: object) -> None:
        """Nothing is kept."""

    def release(self, workload: Workload, place: object) -> None:
        """Nothing was kept."""


NO_PLACEMENT = NoPlacement()


def eviction_order(holder: AdmittedWorkload) -> tuple[int, float, float, str]:
    """The order in which holders of one queue would have to go: low priority, little work lost, newest, uid."""
    workload = holder.workload
    return (workload.priority, workload.lost_work_s, -holder.reserved_at_s, workload.uid)


@dataclass(slots=True)
class QuotaLedger:
    """Everybody who holds quota, charged to the tree. `lift` and `put_back` bracket a what-if and undo each other."""

    tree: QuotaTree
    placement: PlacementBackend = NO_PLACEMENT
    holders: dict[str, AdmittedWorkload] = field(default_factory=dict)
    leaving: dict[str, AdmittedWorkload] = field(default_factory=dict)
    """Those who were told to leave and still hold what they hold, by uid."""
    leaving_gone: bool = False
    """Whether they count as gone for the moment; see `count_leaving`."""
    _of_queue: dict[str, dict[str, AdmittedWorkload]] = field(default_factory=dict)
    _staying: dict[str, list[AdmittedWorkload]] = field(default_factory=dict)
    """Queue -> those who are not leaving, by `eviction_order`: made when first asked for, kept in order from then on,
    because sorting them for each search costs more than the search."""

    def add(self, holder: AdmittedWorkload) -> None:
        """The workload holds its quota from now on; its place in the order of eviction does not change any more."""
        uid, queue = holder.workload.uid, holder.queue.name
        self.holders[uid] = holder
        self._of_queue.setdefault(queue, {})[uid] = holder
        if holder.leaving:
            self.leaving[uid] = holder
        elif queue in self._staying:
            insort(self._staying[queue], holder, key=eviction_order)
        self.put_back(holder)

    def remove(self, uid: str) -> AdmittedWorkload:
        """The workload holds nothing any more. KeyError when it held nothing."""
        holder = self.holders.pop(uid)
        del self._of_queue[holder.queue.name][uid]
        if self.leaving.pop(uid, None) is None:
            self._stays_no_more(holder)
        if not holder.out:
            self.lift(holder)
        return holder

    def evict(self, holder: AdmittedWorkload) -> None:
        """The holder is told to leave."""
        holder.leaving = True
        self.leaving[holder.workload.uid] = holder
        self._stays_no_more(holder)
        if self.leaving_gone and not holder.out:
            self.lift(holder)

    def _stays_no_more(self, holder: AdmittedWorkload) -> None:
        staying = self._staying.get(holder.queue.name)
        if staying is not None:
            del staying[bisect_left(staying, eviction_order(holder), key=eviction_order)]

    def count_leaving(self, *, gone: bool) -> None:
        """Count those who are leaving as gone from now on, or as there again.

        What-ifs that take their leaving for granted come in long rows: this way nobody is lifted for each of them.
        """
        if gone is self.leaving_gone:
            return
        self.leaving_gone = gone
        move = self.lift if gone else self.put_back
        for holder in self.leaving.values():
            move(holder)

    @property
    def leave_later(self) -> bool:
        """Whether anybody is leaving who does not count as gone for the moment."""
        return bool(self.leaving) and not self.leaving_gone

    def lift(self, holder: AdmittedWorkload) -> None:
        """Take the usage and the pods of a holder away for now."""
        holder.out = True
        release(holder.queue, holder.usage)
        self.placement.lift(holder)

    def put_back(self, holder: AdmittedWorkload) -> None:
        """Undo `lift`."""
        holder.out = False
        charge(holder.queue, holder.usage)
        self.placement.put(holder)

    def move(self, holder: AdmittedWorkload, place: object) -> None:
        """The pods of a holder stand at another place from now on."""
        self.placement.lift(holder)
        holder.place = place
        self.placement.put(holder)

    def staying(self, queue: str) -> Sequence[AdmittedWorkload]:
        """Holders charged at a queue that are not leaving, in the order of eviction."""
        if queue not in self._staying:
            everybody = self._of_queue.get(queue, {}).values()
            self._staying[queue] = sorted((holder for holder in everybody if not holder.leaving), key=eviction_order)
        return self._staying[queue]

    def leaving_of(self, queue: str) -> Sequence[AdmittedWorkload]:
        """Holders charged at a queue that are leaving, in the order of eviction."""
        return sorted((holder for holder in self.leaving.values() if holder.queue.name == queue), key=eviction_order)
