"""Finds places for the quota engine in production: on machines that stand, are being launched, or can be bought."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from fleet.gangs.replacement import PodsToReplace
from fleet.nodeclaims.launch import WrittenClaims, in_halves, write_claims
from fleet.offerings.offerings import Offering
from fleet.placement.cluster_state import ClusterState, NodeSlot, StateVersion
from fleet.placement.plan import Need, PlacementPlan
from fleet.quota.ledger import AdmittedWorkload, PlacementRefusal
from fleet.quota.namespace_room import NamespaceRoom
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason, Refusal
from fleet.scheduling.gang_planner import GangPlanner
from fleet.scheduling.replacement_plan import plan_replacement
from fleet.snapshot import Claim, Gang, Pin, PodSet
from model.quantity import Resources


@dataclass(slots=True)  # never changed; frozen ones take three times as long to make, and there are many
class PlacedGang:
    """A `PlacedGang` is what a pass decided for a gang: its plan, its pins, and the claims of what is bought for it."""

    plan: PlacementPlan
    written: WrittenClaims
    needs: tuple[Need, ...] = ()
    """What the plan was found for; empty where no joint purchase may change it."""
    bought: Mapping[str, Offering] = field(default_factory=dict)
    """Name of a claim -> the offering it buys."""
    ordinary: bool = False
    """Whether it is for pods of no gang: the machines are nobody's, and need not come together."""
    fixed: tuple[Pin, ...] | None = None
    """Its pins where the plan has slots that are shared since, which tell no node. None = as the plan has them."""

    @property
    def pins(self) -> tuple[Pin, ...]:
        """Returns its places as its status has them; few are asked for before all is bought together."""
        return self.plan.pins() if self.fixed is None else self.fixed

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Returns the claims of what is bought, in the order of their names; they are not written before."""
        return self.written.claims


@dataclass(slots=True)  # never changed; frozen ones take three times as long to make, and there are many
class _LastPlan:
    """A `_LastPlan` is the plan found last; it holds as long as gang, assignment and cluster state are the same."""

    gang: str
    given: tuple[PodSetAssignment, ...]
    state: StateVersion
    plan: PlacementPlan


_Taken = tuple[NodeSlot, Resources, int, PodSet | None]
"""Slot, amounts for one pod, pods, and whose."""


@dataclass(slots=True)
class ClusterBackend:
    """A `ClusterBackend` finds, takes and frees places for the quota engine (its `PlacementBackend`).

    Places of new gangs are plans of `place_gang`; places of gangs admitted before this pass are their pins.
    """

    keeps_nominated: ClassVar[bool] = False
    planner: GangPlanner
    state: ClusterState
    """The machines with everything that stands on them."""
    build_empty_state: Callable[[], ClusterState]
    """Builds a state of the same machines as if no gang stood on them."""
    admitted_before: Mapping[str, Gang]
    """uid -> gang that has held its place since before this pass."""
    standing: Mapping[str, NodeSlot]
    """Name of a claim -> its slot, of the machines that the pass begins with."""
    lost_pods: Mapping[str, PodsToReplace] = field(default_factory=dict)
    """uid -> the pods that a gang has lost and wants to have replaced."""
    namespaces: NamespaceRoom | None = None
    """What ResourceQuotas still let in; None where there are none. Who stands when the pass begins is in it."""
    refused: dict[str, Refusal] = field(default_factory=dict)
    """uid -> why the lost pods could not be replaced."""
    placed: dict[str, PlacedGang] = field(default_factory=dict)
    """uid -> what this pass has decided for the gang."""
    _pins_with_replacements: dict[str, tuple[Pin, ...]] = field(default_factory=dict)
    """uid -> all pins of a gang whose lost pods have been replaced."""
    _empty_state: ClusterState | None = None
    _refusal_when_empty: dict[Hashable, PlacementRefusal | None] = field(default_factory=dict)
    """(queue, shape, assignment) -> why there is no place even on empty machines; None = there is one."""
    _slot_of_claim: dict[str, NodeSlot] = field(default_factory=dict)
    """Name of a claim -> its slot, where this pass has changed it."""
    _owners: frozenset[str] | None = None
    """uids of those for whom machines are kept; worked out when it is asked for."""
    _last_plan: "_LastPlan | None" = None
    """The last plan found that does not change a MIG layout."""
    _held: dict[str, list[_Taken]] = field(default_factory=dict)
    """uid -> what `hold` has taken."""

    def find(
        self, workload: Workload, given: Sequence[PodSetAssignment], *, empty: bool = False, before: object = None
    ) -> PlacementPlan | PlacementRefusal:
        """Returns the best plan for all pods of a workload, or why there is none; the state is unchanged.

        `empty`: only whether a plan exists on the same machines without any gangs, answered once for every shape.
        """
        if workload.uid in self.lost_pods:
            return self._find_replacement(workload, given)
        if self.namespaces and (refusal := self.namespaces.refusal(workload, given, empty=empty)) is not None:
            return _refused(given, refusal)
        if not empty:
            return self._repeated_plan(workload, given) or self._find_plan(self.state, workload, given)
        asked = self.planner.alike(workload, given)
        if asked not in self._refusal_when_empty:
            if self._empty_state is None:
                self._empty_state = self.build_empty_state()
            room = self.planner.has_room(self._empty_state, workload, given)  # tells most of them apart for nothing
            found = None if room else self._find_plan(self._empty_state, workload, given)
            self._refusal_when_empty[asked] = found if isinstance(found, PlacementRefusal) else None
        return self._refusal_when_empty[asked] or PlacementPlan()

    def would_buy(self, workload: Workload, given: Sequence[PodSetAssignment]) -> PlacementPlan | None:
        """Returns the plan of a workload for which machines would be bought; None where it has room or no place."""
        found: PlacementPlan | PlacementRefusal | None = self._repeated_plan(workload, given)
        if found is None and not self.planner.has_room(self.state, workload, given):
            found = self.find(workload, given)
        return found if isinstance(found, PlacementPlan) and found.purchases else None

    def fits(self, workload: Workload, given: Sequence[PodSetAssignment]) -> bool:
        """Returns whether there is a plan for all pods of a workload."""
        if workload.uid in self.lost_pods:
            return not isinstance(self.find(workload, given), PlacementRefusal)
        if self.namespaces and self.namespaces.refusal(workload, given) is not None:
            return False
        enough = self.planner.has_room(self.state, workload, given)
        if enough is None:
            plan = self._repeated_plan(workload, given) or self._find_plan(self.state, workload, given, full=True)
            return not isinstance(plan, PlacementRefusal)
        return enough

    def finds_all(self, asked: Sequence[tuple[Workload, Sequence[PodSetAssignment]]]) -> bool:
        """Returns whether each of several workloads is certain to find a place, whichever of them come before."""
        known: dict[Hashable, bool] = {}
        for workload, given in asked:
            alike = self.planner.alike(workload, given)
            if alike not in known:
                known[alike] = self.planner.has_places(self.state, workload, given, len(asked))
            if not known[alike] or workload.uid in self.lost_pods:
                return False
        return True

    def alike(self, workload: Workload, given: Sequence[PodSetAssignment]) -> Hashable | None:
        """Returns queue, shape and assignment, and how often machines were shared; None for whom a machine is kept."""
        if self._owners is None:
            self._owners = frozenset().union(*(slot.only_for for slot in self.state.slots.values()))
        if workload.uid in self.lost_pods or workload.uid in self._owners:
            return None
        return self.planner.alike(workload, given), self.state.version[1]

    def _find_replacement(
        self, workload: Workload, given: Sequence[PodSetAssignment]
    ) -> PlacementPlan | PlacementRefusal:
        """Returns a plan for the pods a gang has lost; its other pods stay where they are."""
        mark = self.state.mark()
        plan = self._take_replacement(workload, given)
        if isinstance(plan, Refusal):
            self.refused[workload.uid] = plan
            return PlacementRefusal(tuple(one.name for one in given), plan)
        self._undo(self.state, mark, plan)
        return plan

    def _take_replacement(self, workload: Workload, given: Sequence[PodSetAssignment]) -> PlacementPlan | Refusal:
        """Plans the lost pods and takes the plan on the state."""
        lost_pods, pins = self.lost_pods[workload.uid], self.admitted_before[workload.uid].pins
        return plan_replacement(self.planner, self.state, workload, given, lost_pods, pins)

    def _undo(self, state: ClusterState, mark: int, plan: PlacementPlan) -> None:
        """Takes back a plan: the state returns to `mark`, purchases are given back to the limits."""
        state.undo(mark)
        for purchase in plan.purchases:
            self.planner.capacity.headroom[purchase.offering.pool.name].spend(purchase.offering, -purchase.count)

    def _find_plan(
        self, state: ClusterState, workload: Workload, given: Sequence[PodSetAssignment], *, full: bool = False
    ) -> PlacementPlan | PlacementRefusal:
        """Returns a plan on this state, which stays unchanged, or the refusal; `full`: `has_room` found no room."""
        mark = state.mark()
        plan = self.planner.foreseen(state, workload, given, full=full)
        if plan is None:
            found = self.planner.plan(state, workload, given)
            if isinstance(found, Refusal):
                return _refused(given, found)
            self._undo(state, mark, found)
            plan = found
        if not workload.buys and not plan.ready:
            return _refused(given, Refusal(Reason.NO_CAPACITY, "no room for it on the machines that are ready"))
        if state is self.state and not plan.recuts:
            self._last_plan = _LastPlan(workload.uid, tuple(given), state.version, plan)
        return plan

    def _repeated_plan(self, workload: Workload, given: Sequence[PodSetAssignment]) -> PlacementPlan | None:
        """Returns the last plan if the same is asked on the same state: the engine asks again until it admits."""
        found = self._last_plan
        if found is None or found.gang != workload.uid or found.given != tuple(given):
            return None
        return found.plan if found.state == self.state.version else None

    def put(self, holder: AdmittedWorkload) -> None:
        """Takes the places of a gang: its pins if it was admitted before, else its plan, for good."""
        uid = holder.workload.uid
        self._count(holder.workload, holder.given, 1)
        if uid in self.lost_pods and isinstance(holder.place, PlacementPlan) and uid not in self.placed:
            self._put_replacement(holder)
            return
        if (pins := self._pins(uid)) is not None:
            self.shift(pins, holder.workload.pod_sets, 1)
            return
        plan = self._repeated_plan(holder.workload, holder.given)
        if plan is not None:
            self._take_plan(plan, holder.workload.pod_sets)
        else:
            plan = _found_again(self.planner.plan(self.state, holder.workload, holder.given))
        led = uid in self.planner.leading  # a joint purchase would know nothing of those who are still to follow
        self._record(uid, plan, () if led else tuple(self.planner.needs(holder.workload, holder.given)))

    def _count(self, workload: Workload, given: Sequence[PodSetAssignment], sign: int) -> None:
        """Counts what pods still to be created take of their namespace's ResourceQuotas, or gives it back."""
        if self.namespaces:
            self.namespaces.shift(workload, given, sign)

    def _take_plan(self, plan: PlacementPlan, pod_sets: Iterable[PodSet]) -> None:
        """Takes a plan on the state and deducts its purchases from the limits, as finding it had done."""
        by_name = {pod_set.name: pod_set for pod_set in pod_sets}
        bought = {
            assignment.slot.name: assignment.slot
            for assignment in plan.assignments
            if assignment.slot.name.startswith("new/")
        }
        for slot in bought.values():  # each has pods: no more are bought than needed
            self.state.add(slot)
        for purchase in plan.purchases:
            self.planner.capacity.headroom[purchase.offering.pool.name].spend(purchase.offering, purchase.count)
        for assignment in plan.assignments:
            self.state.place(assignment.slot, by_name[assignment.pod_set], assignment.count)

    def _put_replacement(self, holder: AdmittedWorkload) -> None:
        """Takes the places that replace lost pods, for good: plans them once more, on the state that `find` saw."""
        uid, pod_sets = holder.workload.uid, holder.workload.pod_sets
        lost_pods, gang = self.lost_pods[uid], self.admitted_before[uid]
        self.shift(gang.pins, pod_sets, 1)
        found = _found_again(self._take_replacement(holder.workload, holder.given))
        self.shift(lost_pods.vacated, pod_sets, -1)
        self._record(uid, found, purpose=f"in place of a machine that {gang.name} has lost")
        cut = {recut.claim for recut in found.recuts}
        new = [replace(pin, node="") if pin.claim in cut else pin for pin in self.placed[uid].pins]
        vacated = set(lost_pods.vacated)
        self._pins_with_replacements[uid] = (*(pin for pin in gang.pins if pin not in vacated), *new)
        self.placed[uid] = replace(self.placed[uid], fixed=tuple(new))

    def note_pods(self, uid: str, plan: PlacementPlan, needs: tuple[Need, ...]) -> None:
        """Records as decided what is bought for ordinary pods; the plan has been taken on the state."""
        self._record(uid, plan, needs, ordinary=True)

    def awaits_writes(self) -> frozenset[str]:
        """Returns whose plans cut machines that are being written, and who stands on what is bought for those."""
        found = {uid for uid, it in self.placed.items() if it.plan.busy}
        count = 0
        while count < len(found):
            count, bought = len(found), {claim for uid in found for claim in self.placed[uid].bought}
            found |= {uid for uid, it in self.placed.items() if any(pin.claim in bought for pin in it.pins)}
        return frozenset(found)

    def claims_of(self, uid: str, plan: PlacementPlan, purpose: str = "", *, ordinary: bool = False) -> WrittenClaims:
        """Writes the claims of what is bought for a gang, or for ordinary pods."""
        written = write_claims(plan, uid, self.planner.now_s, gang="" if ordinary else uid, purpose=purpose)
        return WrittenClaims(written.names, lambda told: in_halves(written.write(told))) if ordinary else written

    def _record(
        self, uid: str, plan: PlacementPlan, needs: tuple[Need, ...] = (), purpose: str = "", *, ordinary: bool = False
    ) -> None:
        """Records a plan as decided: writes its claims and names the bought machines' slots after them."""
        if plan.purchases:
            claims = self.claims_of(uid, plan, purpose, ordinary=ordinary)
            offerings = {name: plan.purchases[purchase].offering for (purchase, _), name in claims.names.items()}
            self._name_bought(claims.names)
        else:
            claims, offerings = WrittenClaims(), {}
        shared = (
            () if plan.busy else [it.slot for it in plan.assignments if it.slot.name.startswith(("claim/", "recut/"))]
        )
        pins = plan.pins() if [it for it in shared if it.node] else None
        self.placed[uid] = PlacedGang(plan, claims, needs, offerings, ordinary, pins)
        self.planner.settle(uid)
        self._share_rest(shared)

    def _name_bought(self, names: Mapping[tuple[int, int], str]) -> None:
        """Names the slots of bought machines after their claims."""
        for (purchase, number), name in names.items():
            bought = self.state.slots[f"new/{purchase}/{number}"]
            self.state.rename(bought, f"claim/{name}")
            bought.claim = name
            self._slot_of_claim[name] = bought

    def _share_rest(self, slots: Iterable[NodeSlot]) -> None:
        """Lets gangs that can wait for machines on their way use the rest of them."""
        for slot in slots:
            self.state.share(slot)
            self._slot_of_claim[slot.claim] = slot

    def lift(self, holder: AdmittedWorkload) -> None:
        """Frees all places of a gang."""
        self._count(holder.workload, holder.given, -1)
        self.shift(self._pins(holder.workload.uid) or (), holder.workload.pod_sets, -1)

    def _pins(self, uid: str) -> tuple[Pin, ...] | None:
        """Returns the pins of a gang as this pass has left them; None if it has no place yet."""
        if uid in self._pins_with_replacements:
            return self._pins_with_replacements[uid]
        if uid in self.placed:
            return self.placed[uid].pins
        return self.admitted_before[uid].pins if uid in self.admitted_before else None

    def shift(self, pins: Iterable[Pin], pod_sets: Iterable[PodSet], sign: int) -> None:
        """Puts pods onto the machines that pins name (`sign` 1), or takes them off (-1)."""
        by_name = {pod_set.name: pod_set for pod_set in pod_sets}
        for pin in pins:
            slot = self._slot(pin.claim, pin.node)
            if slot is not None:
                self.state.place(slot, by_name[pin.pod_set], sign * pin.count)

    def withhold(self, pins: Iterable[Pin]) -> None:
        """Closes the machines of these pins to every gang."""
        for pin in pins:
            if (slot := self._slot(pin.claim, pin.node)) is not None:
                self.state.close(slot.name)

    def _slot(self, claim: str, node: str) -> NodeSlot | None:
        """Returns the slot of a claim, or of a node without one; None if the state has none."""
        if not claim:
            return self.state.slots.get(node)
        return self._slot_of_claim.get(claim) or self.standing.get(claim)

    def hold(self, workload: Workload, place: object) -> None:
        """Reserves in the cluster state what a plan would use, so that no other gang gets it while the victims leave.

        What victims still stand on is counted twice meanwhile.
        """
        plan = _as_plan(place)
        self._count(workload, (), 1)
        by_name = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        taken: list[_Taken] = [
            (slot, by_name[it.pod_set].requests, it.count, by_name[it.pod_set])
            for it in plan.assignments
            if (slot := self.state.slots.get(it.slot.name)) is not None
        ]
        for slot, amounts, count, pods in taken:
            self.state.take(slot, amounts, count, pods)
        for recut in plan.recuts:
            room = self.state.close(recut.slot.name)
            taken += [(self.state.slots[recut.slot.name], {}, room, None)] if room else []
        for purchase in plan.purchases:
            self.planner.capacity.headroom[purchase.offering.pool.name].spend(purchase.offering, purchase.count)
        self._held[workload.uid] = taken

    def release(self, workload: Workload, place: object) -> None:
        """Takes back what `hold` reserved."""
        self._count(workload, (), -1)
        for purchase in _as_plan(place).purchases:
            self.planner.capacity.headroom[purchase.offering.pool.name].spend(purchase.offering, -purchase.count)
        for slot, amounts, count, pods in reversed(self._held.pop(workload.uid)):
            self.state.take(slot, amounts, -count, pods)


class PlanLost(RuntimeError):
    """A plan found a moment ago in this very state is not found again."""


def _found_again(plan: PlacementPlan | Refusal) -> PlacementPlan:
    """Returns the plan. Raises `PlanLost` for a refusal."""
    if isinstance(plan, Refusal):
        raise PlanLost(plan.message)
    return plan


def _as_plan(place: object) -> PlacementPlan:
    """Returns the plan that `find` returned and the quota engine hands back as an opaque place.

    Raises TypeError for anything else.
    """
    if not isinstance(place, PlacementPlan):
        raise TypeError(f"a place is what `find` returned, not {place!r}")
    return place


def _refused(given: Sequence[PodSetAssignment], refusal: Refusal) -> PlacementRefusal:
    return PlacementRefusal(tuple(one.name for one in given), refusal)
