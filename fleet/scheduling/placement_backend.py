"""The quota engine's placement backend in production: machines that stand, are on their way, or can be bought."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.gangs.replacement import PodsToReplace
from fleet.nodeclaims.launch import write_claims
from fleet.offerings.offerings import Offering
from fleet.placement.cluster_state import ClusterState, NodeSlot, StateVersion
from fleet.placement.plan import Need, PlacementPlan
from fleet.quota.ledger import AdmittedWorkload, PlacementRefusal
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason, Refusal
from fleet.scheduling.gang_planner import GangPlanner, shape_of
from fleet.scheduling.replacement_plan import plan_replacement
from fleet.snapshot import Claim, Gang, Pin, PodSet


@dataclass(frozen=True, slots=True)
class PlacedGang:
    """What was decided for a gang: where it goes, and the claims that say what is bought for it."""

    plan: PlacementPlan
    claims: tuple[Claim, ...]
    pins: tuple[Pin, ...]
    needs: tuple[Need, ...] = ()
    """What the plan was found for; empty where it must stay as it is."""
    bought: Mapping[str, Offering] = field(default_factory=dict)
    """Claim -> what it says is to be bought."""


@dataclass(frozen=True, slots=True)
class _LastPlan:
    """A plan, and what it was found for: it is good while the state is as it was."""

    gang: str
    given: tuple[PodSetAssignment, ...]
    state: StateVersion
    plan: PlacementPlan


@dataclass(slots=True)
class ClusterBackend:
    """Places are plans of `place_gang`. A gang that held its place before this pass is known by its pins."""

    planner: GangPlanner
    state: ClusterState
    empty: Callable[[], ClusterState]
    """Makes a state of the same machines as if no gang stood on them."""
    standing: Mapping[str, Gang]
    """uid -> gang that holds its place since before this pass."""
    vacancies: Mapping[str, PodsToReplace] = field(default_factory=dict)
    """uid -> what a gang of these has lost and wants to have replaced."""
    refused: dict[str, Refusal] = field(default_factory=dict)
    """uid -> why a lost place could not be replaced."""
    written: dict[str, PlacedGang] = field(default_factory=dict)
    """uid -> what this pass has decided for it."""
    _moved: dict[str, tuple[Pin, ...]] = field(default_factory=dict)
    """uid -> where a gang stands that has had lost places replaced."""
    _emptied: ClusterState | None = None
    _hopeless: dict[Hashable, PlacementRefusal | None] = field(default_factory=dict)
    _of_claim: dict[str, NodeSlot] | None = None
    """Claim -> slot, once somebody asked for one."""
    _found: "_LastPlan | None" = None
    """The last plan found without a re-cut."""
    _held: dict[str, list[tuple[NodeSlot, dict[str, int], int]]] = field(default_factory=dict)

    def find(
        self, workload: Workload, given: Sequence[PodSetAssignment], *, empty: bool = False, before: object = None
    ) -> PlacementPlan | PlacementRefusal:
        """A plan for all pods, always the best; whether one exists on empty machines is asked once for every shape."""
        if workload.uid in self.vacancies:
            return self._mended(workload, given)
        if not empty:
            return self._known(workload, given) or self._try(self.state, workload, given)
        asked = (workload.queue, workload.shape, shape_of(given))
        if asked not in self._hopeless:
            if self._emptied is None:
                self._emptied = self.empty()
            found = self._try(self._emptied, workload, given)
            self._hopeless[asked] = found if isinstance(found, PlacementRefusal) else None
        return self._hopeless[asked] or PlacementPlan()

    def _mended(self, workload: Workload, given: Sequence[PodSetAssignment]) -> PlacementPlan | PlacementRefusal:
        """A plan for what a gang has lost; the rest of it stays where it is."""
        mark = self.state.mark()
        plan = self._replacement(workload, given)
        if isinstance(plan, Refusal):
            self.refused[workload.uid] = plan
            return PlacementRefusal(tuple(one.name for one in given), plan)
        self._undo(self.state, mark, plan)
        return plan

    def _replacement(self, workload: Workload, given: Sequence[PodSetAssignment]) -> PlacementPlan | Refusal:
        vacancy, pins = self.vacancies[workload.uid], self.standing[workload.uid].pins
        return plan_replacement(self.planner, self.state, workload, given, vacancy, pins)

    def _undo(self, state: ClusterState, mark: int, plan: PlacementPlan) -> None:
        state.undo(mark)
        for lot in plan.purchases:
            self.planner.capacity.headroom[lot.offering.pool.name].spend(lot.offering, -lot.count)

    def _try(
        self, state: ClusterState, workload: Workload, given: Sequence[PodSetAssignment]
    ) -> PlacementPlan | PlacementRefusal:
        mark = state.mark()
        plan = self.planner.plan(state, workload, given)
        if isinstance(plan, Refusal):
            return PlacementRefusal(tuple(one.name for one in given), plan)
        self._undo(state, mark, plan)
        if not workload.buys and not plan.ready:
            message = "no room for it on the machines that are ready"
            return PlacementRefusal(tuple(one.name for one in given), Refusal(Reason.NO_CAPACITY, message))
        if state is self.state and not plan.recuts:
            self._found = _LastPlan(workload.uid, tuple(given), state.version, plan)
        return plan

    def _known(self, workload: Workload, given: Sequence[PodSetAssignment]) -> PlacementPlan | None:
        """What was found last, if the same is asked again: that happens until the plan is carried out."""
        found = self._found
        same = found is not None and found.gang == workload.uid and found.given == tuple(given)
        return found.plan if found is not None and same and found.state == self.state.version else None

    def put(self, holder: AdmittedWorkload) -> None:
        """A gang from before takes its pins' places; a new one gets its plan carried out, for good."""
        uid = holder.workload.uid
        if uid in self.vacancies and isinstance(holder.place, PlacementPlan) and uid not in self.written:
            self._fill(holder)
            return
        if (pins := self._pins(uid)) is not None:
            self.shift(pins, holder.workload.pod_sets, 1)
            return
        needs = tuple(self.planner.needs(holder.workload, holder.given))
        plan = self._known(holder.workload, holder.given)
        if plan is not None:
            self._carry_out(plan, holder.workload.pod_sets)
            self._write(uid, plan, needs)
            return
        self._write(uid, _found_again(self.planner.plan(self.state, holder.workload, holder.given)), needs)

    def _carry_out(self, plan: PlacementPlan, pod_sets: Iterable[PodSet]) -> None:
        """What `place_gang` had done when it found the plan, once more."""
        requests = {pod_set.name: pod_set.requests for pod_set in pod_sets}
        bought = {seat.slot.name: seat.slot for seat in plan.assignments if seat.slot.name.startswith("new/")}
        for slot in bought.values():  # all of them: no more are bought than pods need
            self.state.add(slot)
        for lot in plan.purchases:
            self.planner.capacity.headroom[lot.offering.pool.name].spend(lot.offering, lot.count)
        for seat in plan.assignments:
            self.state.take(seat.slot, requests[seat.pod_set], seat.count)

    def _fill(self, holder: AdmittedWorkload) -> None:
        """A gang that lost places gets the others, for good: found once more, on the state as it was then."""
        uid, pod_sets = holder.workload.uid, holder.workload.pod_sets
        vacancy, standing = self.vacancies[uid], self.standing[uid]
        self.shift(standing.pins, pod_sets, 1)
        found = _found_again(self._replacement(holder.workload, holder.given))
        self.shift(vacancy.vacated, pod_sets, -1)
        self._write(uid, found, purpose=f"in place of a machine that {standing.name} has lost")
        cut = {recut.claim for recut in found.recuts}
        new = [replace(pin, node="") if pin.claim in cut else pin for pin in self.written[uid].pins]
        stay = set(vacancy.vacated)
        self._moved[uid] = (*(pin for pin in standing.pins if pin not in stay), *new)
        self.written[uid] = replace(self.written[uid], pins=tuple(new))

    def _write(self, uid: str, plan: PlacementPlan, needs: tuple[Need, ...] = (), purpose: str = "") -> None:
        claims = write_claims(plan, uid, self.planner.now_s, gang=uid, purpose=purpose)
        names = {f"new/{lot}/{n}": name for (lot, n), name in claims.names.items()}
        pins = sorted(Pin(pin.pod_set, pin.node, names.get(pin.claim, pin.claim), pin.count) for pin in plan.pins())
        offerings = {name: plan.purchases[lot].offering for (lot, _), name in claims.names.items()}
        self.written[uid] = PlacedGang(plan, claims.claims, tuple(pins), needs, offerings)
        for slot_name, claim_name in names.items():
            bought = self.state.slots[slot_name]
            self.state.rename(bought, f"claim/{claim_name}")
            bought.claim = claim_name
            self._slots()[claim_name] = bought
        for seat in plan.assignments:  # what is left there is for everybody who can wait for the machine
            if seat.slot.name.startswith(("claim/", "recut/")):
                self.state.share(seat.slot)
                self._slots()[seat.slot.claim] = seat.slot

    def lift(self, holder: AdmittedWorkload) -> None:
        """The gang's places are free."""
        self.shift(self._pins(holder.workload.uid) or (), holder.workload.pod_sets, -1)

    def _pins(self, uid: str) -> tuple[Pin, ...] | None:
        if uid in self._moved:
            return self._moved[uid]
        if uid in self.written:
            return self.written[uid].pins
        return self.standing[uid].pins if uid in self.standing else None

    def shift(self, pins: Iterable[Pin], pod_sets: Iterable[PodSet], sign: int) -> None:
        """Put pods on the machines that pins name, or take them off."""
        requests = {pod_set.name: pod_set.requests for pod_set in pod_sets}
        for pin in pins:
            slot = self._slot(pin.claim, pin.node)
            if slot is not None:
                self.state.take(slot, requests[pin.pod_set], sign * pin.count)

    def withhold(self, pins: Iterable[Pin]) -> None:
        """Let nobody onto the machines of these pins."""
        for pin in pins:
            if (slot := self._slot(pin.claim, pin.node)) is not None:
                self.state.close(slot.name)

    def _slot(self, claim: str, node: str) -> NodeSlot | None:
        return self._slots().get(claim) if claim else self.state.slots.get(node)

    def _slots(self) -> dict[str, NodeSlot]:
        if self._of_claim is None:
            self._of_claim = {slot.claim: slot for slot in self.state.slots.values() if slot.claim}
        return self._of_claim

    def hold(self, workload: Workload, place: object) -> None:
        """Nobody else gets what the plan would use; what victims still stand on is counted twice meanwhile."""
        plan = _as_found(place)
        requests = {pod_set.name: dict(pod_set.requests) for pod_set in workload.pod_sets}
        taken = [
            (standing, requests[seat.pod_set], seat.count)
            for seat in plan.assignments
            if (standing := self.state.slots.get(seat.slot.name)) is not None
        ]
        for slot, amounts, count in taken:
            self.state.take(slot, amounts, count)
        for recut in plan.recuts:
            room = self.state.close(recut.slot.name)
            taken += [(self.state.slots[recut.slot.name], {}, room)] if room else []
        for lot in plan.purchases:
            self.planner.capacity.headroom[lot.offering.pool.name].spend(lot.offering, lot.count)
        self._held[workload.uid] = taken

    def release(self, workload: Workload, place: object) -> None:
        """Undo `hold`."""
        for lot in _as_found(place).purchases:
            self.planner.capacity.headroom[lot.offering.pool.name].spend(lot.offering, -lot.count)
        for slot, amounts, count in reversed(self._held.pop(workload.uid)):
            self.state.take(slot, amounts, -count)


class PlanLost(RuntimeError):
    """A plan that was found a moment ago, in this very state, is not found again."""


def _found_again(plan: PlacementPlan | Refusal) -> PlacementPlan:
    if isinstance(plan, Refusal):
        raise PlanLost(plan.message)
    return plan


def _as_found(place: object) -> PlacementPlan:
    """What `find` returned and the quota engine hands back."""
    if not isinstance(place, PlacementPlan):
        raise TypeError(f"a place is what `find` returned, not {place!r}")
    return place
