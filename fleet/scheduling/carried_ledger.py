"""Carries the quota ledger from pass to pass: what those who stand use of which queue's quota, and what they are.

A pass takes the ledger of the last one out of the index of its snapshots, takes back what that pass has tried, charges
what has changed since, and hands it on. Nobody can tell it from one that was charged anew.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Self

from fleet.actions import gang_subject
from fleet.cost.lost_work import loses_more_with_time
from fleet.fence import concerning
from fleet.quota.build_tree import QuotaSpecs, current_quota_specs, pod_set_assignments, usage_of_all_parts, usages
from fleet.quota.ledger import AdmittedWorkload, QuotaLedger
from fleet.quota.queue_binding import QueueBinding, why_protected
from fleet.quota.specs import FlavorResource
from fleet.quota.tree import Cell, QuotaNode, QuotaTree, charge, release
from fleet.scheduling.queue_order import ends_at_s, is_moved, makes_room, runs_s
from fleet.scheduling.workloads import Workloads
from fleet.snapshot import Gang, GangState, Snapshot
from fleet.snapshot.elastic_parts import parts, whole
from fleet.snapshot.lookups import holders
from fleet.snapshot.seats import seated
from model.fleet import Fleet
from model.index import differing, followed_each


@dataclass(frozen=True, slots=True)
class _PartCharge:
    """A part of a gang that holds capacity, and what is charged for it."""

    part: Gang
    usage: Mapping[FlavorResource, int] | None
    queue: QuotaNode
    cells: Mapping[Cell, int]
    holder: AdmittedWorkload
    rests: bool
    """Whether the holder stays as it is as long as part and usage do, whatever the time."""


_holder_of: Final = attrgetter("holder")


@dataclass(slots=True)
class CarriedLedger:
    """`CarriedLedger` is the tree of quota with what those who stand use of it, good for one fleet and its specs."""

    fleet: Fleet
    specs: QuotaSpecs
    tree: QuotaTree
    _charged: dict[str, _PartCharge] = field(default_factory=dict)
    _standing: Mapping[str, Gang] = field(default_factory=dict)
    _taken: Mapping[str, Mapping[FlavorResource, int]] = field(default_factory=dict)
    """What those who were charged stood for, and what they used."""
    _usage: list[list[int]] = field(default_factory=list)
    """What each node of the tree used when those who stand were charged, before a pass did anything."""

    @classmethod
    def taken(cls, fleet: Fleet, snapshot: Snapshot) -> Self:
        """Returns the ledger of the pass before, which nobody else gets meanwhile; a new one where there is none."""
        specs, found = current_quota_specs(fleet, snapshot), snapshot.index.take(cls)
        if isinstance(found, cls) and found.fleet is fleet and found.specs is specs:
            found.take_back()
            return found
        return cls.empty(fleet, snapshot)

    @classmethod
    def empty(cls, fleet: Fleet, snapshot: Snapshot) -> Self:
        """Returns a ledger in which nobody holds anything yet."""
        specs = current_quota_specs(fleet, snapshot)
        return cls(fleet, specs, specs.tree())

    def hand_on(self, snapshot: Snapshot) -> None:
        """Hands the ledger on to the next pass."""
        snapshot.index.hand_on(type(self), self)

    def _nodes(self) -> list[QuotaNode]:
        return [*self.tree.cohorts.values(), *self.tree.queues.values()]

    def take_back(self) -> None:
        """Takes back what a pass has charged and released; cells that it has named first are used by nobody."""
        width = len(self.tree.cells)
        for node, used in zip(self._nodes(), self._usage, strict=True):
            node.usage = [*used, *[0] * (width - len(used))]

    def settle(
        self, ledger: QuotaLedger, workloads: Workloads, standing: Mapping[str, Gang], lost: Collection[str]
    ) -> None:
        """Fills the ledger of a pass with all parts of gangs that stand (by uid). `lost`: gangs that lack a place.

        A holder is that of the last pass where nothing says otherwise since, and that pass did not tell it to leave.
        What raises concerns the gang; then the carried ledger is good for nothing.
        """
        before, taken = self._charged, usages(self.fleet, workloads.snapshot)
        asked = {*(standing.keys() - before.keys()), *self._outdated(workloads, standing, taken), *lost}
        for uid in before.keys() & (asked | before.keys() - standing.keys()):
            release(before[uid].queue, before[uid].cells)
        anew: dict[str, _PartCharge] = {}
        part: Gang
        with concerning(lambda: gang_subject(whole(part.uid))):
            for part in [standing[uid] for uid in standing if uid in asked]:
                if (charged := self._charge(workloads, part, taken, lost)) is not None:
                    anew[part.uid] = charged
        all_charged, uncharged = {**before, **anew}, (asked & standing.keys()) - anew.keys()
        uids = [uid for uid in standing if uid not in uncharged] if uncharged else list(standing)
        known = dict(zip(uids, map(all_charged.__getitem__, uids), strict=True))
        self._charged, self._standing, self._taken = known, standing, taken
        self._usage = [list(node.usage) for node in self._nodes()]
        held = dict(zip(uids, map(_holder_of, known.values()), strict=True))
        ledger.stand(held, [it.holder for it in anew.values()])

    def _outdated(
        self, workloads: Workloads, standing: Mapping[str, Gang], taken: Mapping[str, Mapping[FlavorResource, int]]
    ) -> Collection[str]:
        """Returns the uids of those charged before whose holders are others now, or may be."""
        if not workloads.only_itself:
            return self._charged.keys()
        changed = {*differing(self._standing, standing), *differing(self._taken, taken)}
        changed |= {  # whose holder may be another one now: with time, or by what the last pass has done to it
            uid
            for uid, it in self._charged.items()
            if not it.rests or (held := it.holder).leaving or held.out or held.unsettled or held.place is not None
        }
        busy = workloads.snapshot.busy
        return changed | {uid for uid in self._charged if gang_subject(whole(uid)) in busy} if busy else changed

    def _charge(
        self, workloads: Workloads, part: Gang, taken: Mapping[str, Mapping[FlavorResource, int]], lost: Container[str]
    ) -> _PartCharge | None:
        """Charges what a part holds; None where its queue is no longer declared: it holds machines, and no quota."""
        if (binding := workloads.binding(part)) is None:
            return None
        usage = taken.get(part.uid)
        amounts = usage_of_all_parts(part, taken) if part.uid in lost else usage or {}
        holder = held_by(workloads, self.tree, part, binding, amounts)
        if part.uid in lost:
            holder.given = pod_set_assignments(self.specs, binding.name, part)
        charge(holder.queue, holder.usage)
        rests = part.uid not in lost and not holder.workload.non_preemptible and _rests(workloads, part, binding)
        return _PartCharge(part, usage, holder.queue, holder.usage, holder, rests)


def held_by(
    workloads: Workloads, tree: QuotaTree, part: Gang, binding: QueueBinding, usage: Mapping[FlavorResource, int]
) -> AdmittedWorkload:
    """Returns a part of a gang that holds capacity as a holder of quota in its queue."""
    snapshot = workloads.snapshot
    return AdmittedWorkload(
        workloads.held(part, binding),
        tree.queues[binding.name],
        (),
        {tree.cell(named): amount for named, amount in usage.items()},
        part.quota_reserved_at_s,
        ends_at_s(part, snapshot.now_s),
        leaving=bool(part.leaving) or _leaves(part, snapshot.now_s),
        protected=why_protected(workloads.fleet, part, binding, snapshot.now_s),
        unsettled=bool(snapshot.busy) and gang_subject(whole(part.uid)) in snapshot.busy,
    )


def _leaves(gang: Gang, now_s: float) -> bool:
    return gang.state is GangState.EVICTING and (makes_room(gang) or not is_moved(gang, now_s))


def _rests(workloads: Workloads, part: Gang, binding: QueueBinding) -> bool:
    """Returns whether a holder stays as it is while part and usage do: nothing of it is read off the clock any more."""
    young = workloads.snapshot.now_s - part.admitted_at_s < binding.protected_run_s
    stays = part.state is not GangState.EVICTING and not young and runs_s(part) is None
    return stays and not loses_more_with_time(part) and workloads.lasts(part, binding)


# -- who stands ----------------------------------------------------------------------------------------------------


def standing_parts(snapshot: Snapshot, lost: Container[str]) -> Mapping[str, Gang]:
    """Returns the parts of gangs that hold capacity, by uid; one that has lost machines counts as a single part."""
    as_one = _as_one(snapshot.index, snapshot.gangs)
    if not _in_parts(snapshot.index, snapshot.gangs):
        return as_one
    return {part.uid: part for gang in holders(snapshot) for part in _parts(snapshot, gang, lost, gang.uid in as_one)}


def _parts(snapshot: Snapshot, gang: Gang, lost: Container[str], as_one: bool) -> Iterable[Gang]:  # noqa: FBT001
    if as_one:
        return (gang,)
    stands = seated(snapshot, gang)
    return (stands,) if gang.uid in lost else parts(stands)


def _if_one(gang: Gang) -> Gang | None:
    """Returns a gang that holds capacity, needs every seat it has, and has no surplus: all of it is one part."""
    whole_now = gang.holds_capacity and not gang.remaining and not gang.replacing_since_s
    return gang if whole_now and next(iter(parts(gang))) is gang else None


_as_one = followed_each()(_if_one)


@followed_each()
def _in_parts(gang: Gang) -> bool | None:
    """Returns True for a gang that holds capacity and is not all one part: for hardly any."""
    return True if gang.holds_capacity and _if_one(gang) is None else None
