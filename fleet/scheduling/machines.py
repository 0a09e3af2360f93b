"""The quota engine's placement backend in production: machines that stand, are on their way, or can be bought."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fleet.gangs.replacement import Vacancy
from fleet.nodeclaims.launch import write_claims
from fleet.offerings.offerings import Offering
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import ClusterState, NodeSlot, StateVersion
from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.place import place_gang
from fleet.placement.plan import Need, PlacementPlan
from fleet.quota.ledger import AdmittedWorkload, PlacementRefusal
from fleet.quota.specs import FlavorResource, QuotaQueueSpec
from fleet.quota.tree import QuotaTree
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason, Refusal
from fleet.scheduling.mending import mend
from fleet.snapshot import Claim, Gang, Pin, PodSet

if TYPE_CHECKING:
    from fleet.placement.topology_placer import TopologyPlacer


@dataclass(frozen=True, slots=True)
class Written:
    """What was decided for a gang: where it goes, and the claims that say what is bought for it."""

    plan: PlacementPlan
    claims: tuple[Claim, ...]
    pins: tuple[Pin, ...]
    needs: tuple[Need, ...] = ()
    """What the plan was found for; empty where it must stay as it is."""
    bought: Mapping[str, Offering] = field(default_factory=dict)
    """Claim -> what it says is to be bought."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A plan, and what it was found for: it is good while the board is as it was."""

    gang: str
    given: tuple[PodSetAssignment, ...]
    state: StateVersion
    plan: PlacementPlan


@dataclass(slots=True)
class Machines:
    """Places are plans of `place_gang`. A gang that held its place before this pass is known by its pins."""

    queues: Mapping[str, QuotaQueueSpec]
    tree: QuotaTree
    board: ClusterState
    supply: BuyableCapacity
    flavors: FleetFlavors
    empty: Callable[[], ClusterState]
    """Makes a board of the same machines as if no gang stood on them."""
    standing: Mapping[str, Gang]
    """uid -> gang that holds its place since before this pass."""
    now_s: float
    vacancies: Mapping[str, Vacancy] = field(default_factory=dict)
    """uid -> what a gang of these has lost and wants to have replaced."""
    refused: dict[str, Refusal] = field(default_factory=dict)
    """uid -> why a lost place could not be replaced."""
    written: dict[str, Written] = field(default_factory=dict)
    """uid -> what this pass has decided for it."""
    _moved: dict[str, tuple[Pin, ...]] = field(default_factory=dict)
    """uid -> where a gang stands that has had lost places replaced."""
    _emptied: ClusterState | None = None
    _hopeless: dict[Hashable, PlacementRefusal | None] = field(default_factory=dict)
    _of_claim: dict[str, NodeSlot] | None = None
    """Claim -> slot, once somebody asked for one."""
    _asked: dict[Hashable, list[Need]] = field(default_factory=dict)
    _found: "_Found | None" = None
    """The last plan found without a re-cut."""
    _terrains: "dict[int, TopologyPlacer]" = field(default_factory=dict)
    _held: dict[str, list[tuple[NodeSlot, dict[str, int], int]]] = field(default_factory=dict)

    def find(
        self, workload: Workload, given: Sequence[PodSetAssignment], *, empty: bool = False, before: object = None
    ) -> PlacementPlan | PlacementRefusal:
        """A plan for all pods, always the best; whether one exists on empty machines is asked once for every shape."""
        if workload.uid in self.vacancies:
            return self._mended(workload, given)
        if not empty:
            return self._known(workload, given) or self._try(self.board, workload, given)
        asked = (workload.queue, workload.shape, _flavors_of(given))
        if asked not in self._hopeless:
            if self._emptied is None:
                self._emptied = self.empty()
            found = self._try(self._emptied, workload, given)
            self._hopeless[asked] = found if isinstance(found, PlacementRefusal) else None
        return self._hopeless[asked] or PlacementPlan()

    def _mended(self, workload: Workload, given: Sequence[PodSetAssignment]) -> PlacementPlan | PlacementRefusal:
        """A plan for what a gang has lost; the rest of it stays where it is."""
        mark = self.board.mark()
        plan = mend(self, workload, given)
        if isinstance(plan, Refusal):
            self.refused[workload.uid] = plan
            return PlacementRefusal(tuple(one.name for one in given), plan)
        self._undo(self.board, mark, plan)
        return plan

    def _undo(self, board: ClusterState, mark: int, plan: PlacementPlan) -> None:
        board.undo(mark)
        for lot in plan.purchases:
            self.supply.headroom[lot.offering.pool.name].spend(lot.offering, -lot.count)

    def _plan(
        self, board: ClusterState, workload: Workload, given: Sequence[PodSetAssignment]
    ) -> PlacementPlan | Refusal:
        """A plan, taken on the board: on the topology where the pods wish for more than one domain, else anywhere."""
        needs = self._needs(workload, given)
        wishing = [need.pod_set for need in needs if need.pod_set.wishes]
        if not wishing:
            return place_gang(board, self.supply, workload.uid, needs)
        flavors = (self.flavors_of(workload, one) for one in given)
        found = self.terrain(board).find([(need.pod_set, names) for need, names in zip(needs, flavors, strict=True)])
        if not isinstance(found, Refusal) and any(s.slot.closes_s <= n.until_s for s in found for n in needs):
            found = Refusal(Reason.TOPOLOGY, "it would run past the end of a capacity block it would be placed on")
        if not isinstance(found, Refusal):
            requests = {need.pod_set.name: need.pod_set.requests for need in needs}
            for seat in found:
                board.take(seat.slot, requests[seat.pod_set], seat.count)
            return PlacementPlan(tuple(found))
        if any(pods.slices or pods.group or pods.required_topology for pods in wishing):
            return found  # a purchase could not promise it
        return place_gang(board, self.supply, workload.uid, needs)

    def terrain(self, board: ClusterState) -> "TopologyPlacer":
        """The topologies of a board."""
        from fleet.placement.topology_placer import TopologyPlacer  # numpy with it, which most passes have no use for

        if id(board) not in self._terrains:
            self._terrains[id(board)] = TopologyPlacer(board, self.flavors.placing)
        return self._terrains[id(board)]

    def _try(
        self, board: ClusterState, workload: Workload, given: Sequence[PodSetAssignment]
    ) -> PlacementPlan | PlacementRefusal:
        mark = board.mark()
        plan = self._plan(board, workload, given)
        if isinstance(plan, Refusal):
            return PlacementRefusal(tuple(one.name for one in given), plan)
        self._undo(board, mark, plan)
        if not workload.buys and not plan.ready:
            message = "no room for it on the machines that are ready"
            return PlacementRefusal(tuple(one.name for one in given), Refusal(Reason.NO_CAPACITY, message))
        if board is self.board and not plan.recuts:
            self._found = _Found(workload.uid, tuple(given), board.version, plan)
        return plan

    def _known(self, workload: Workload, given: Sequence[PodSetAssignment]) -> PlacementPlan | None:
        """What was found last, if the same is asked again: that happens until the plan is carried out."""
        found = self._found
        same = found is not None and found.gang == workload.uid and found.given == tuple(given)
        return found.plan if found is not None and same and found.state == self.board.version else None

    def _needs(self, workload: Workload, given: Sequence[PodSetAssignment]) -> list[Need]:
        """What the pods need, worked out once for all gangs of one shape."""
        key = (workload.queue, workload.shape, _flavors_of(given))
        if key not in self._asked:
            self._asked[key] = self._worked_out(workload, given)
        return self._asked[key]

    def _worked_out(self, workload: Workload, given: Sequence[PodSetAssignment]) -> list[Need]:
        pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        needs = []
        for one in given:
            pod_set = pod_sets[one.name]
            sized = pod_set if one.count == pod_set.count else replace(pod_set, count=one.count)
            needs.append(self.need(workload, one, sized))
        return needs

    def need(self, workload: Workload, one: PodSetAssignment, sized: PodSet) -> Need:
        """What pods of a set need with what the set was given."""
        need = self.flavors.need(sized, self.flavors_of(workload, one), charged=self._charged(workload, one))
        return replace(need, until_s=self.now_s + (workload.runs_s or 0.0)) if self.supply.closing else need

    def flavors_of(self, workload: Workload, one: PodSetAssignment) -> tuple[str, ...]:
        """The flavors of a pod set; one that asks for nothing goes with the queue's first."""
        return tuple(dict.fromkeys(one.flavors.values())) or (self.queues[workload.queue].groups[0].flavors[0],)

    def _charged(self, workload: Workload, one: PodSetAssignment) -> bool:
        """Whether any quota counts what a pod of the set takes of the flavor."""
        queue = self.tree.queues[workload.queue]
        asked = ((flavor, name) for name, flavor in one.flavors.items() if one.amounts.get(name))
        return workload.buys and any(self.tree.counts(queue, FlavorResource(flavor, name)) for flavor, name in asked)

    def put(self, holder: AdmittedWorkload) -> None:
        """A gang from before takes its pins' places; a new one gets its plan carried out, for good."""
        uid = holder.workload.uid
        if uid in self.vacancies and isinstance(holder.place, PlacementPlan) and uid not in self.written:
            self._fill(holder)
            return
        if (pins := self._pins(uid)) is not None:
            self.shift(pins, holder.workload.pod_sets, 1)
            return
        needs = tuple(self._needs(holder.workload, holder.given))
        plan = self._known(holder.workload, holder.given)
        if plan is not None:
            self._carry_out(plan, holder.workload.pod_sets)
            self._write(uid, plan, needs)
            return
        found = self._plan(self.board, holder.workload, holder.given)
        assert isinstance(found, PlacementPlan)  # noqa: S101 -- it was found in this very state
        self._write(uid, found, needs)

    def _carry_out(self, plan: PlacementPlan, pod_sets: Iterable[PodSet]) -> None:
        """What `place_gang` had done when it found the plan, once more."""
        requests = {pod_set.name: pod_set.requests for pod_set in pod_sets}
        bought = {seat.slot.name: seat.slot for seat in plan.assignments if seat.slot.name.startswith("new/")}
        for slot in bought.values():  # all of them: no more are bought than pods need
            self.board.add(slot)
        for lot in plan.purchases:
            self.supply.headroom[lot.offering.pool.name].spend(lot.offering, lot.count)
        for seat in plan.assignments:
            self.board.take(seat.slot, requests[seat.pod_set], seat.count)

    def _fill(self, holder: AdmittedWorkload) -> None:
        """A gang that lost places gets the others, for good: found once more, on the board as it was then."""
        uid, pod_sets = holder.workload.uid, holder.workload.pod_sets
        vacancy, standing = self.vacancies[uid], self.standing[uid]
        self.shift(standing.pins, pod_sets, 1)
        found = mend(self, holder.workload, holder.given)
        assert isinstance(found, PlacementPlan)  # noqa: S101 -- it was found in this very state
        self.shift(vacancy.vacated, pod_sets, -1)
        self._write(uid, found, purpose=f"in place of a machine that {standing.name} has lost")
        cut = {recut.claim for recut in found.recuts}
        new = [replace(pin, node="") if pin.claim in cut else pin for pin in self.written[uid].pins]
        stay = set(vacancy.vacated)
        self._moved[uid] = (*(pin for pin in standing.pins if pin not in stay), *new)
        self.written[uid] = replace(self.written[uid], pins=tuple(new))

    def _write(self, uid: str, plan: PlacementPlan, needs: tuple[Need, ...] = (), purpose: str = "") -> None:
        claims = write_claims(plan, uid, self.now_s, gang=uid, purpose=purpose)
        names = {f"new/{lot}/{n}": name for (lot, n), name in claims.names.items()}
        pins = sorted(Pin(pin.pod_set, pin.node, names.get(pin.claim, pin.claim), pin.count) for pin in plan.pins())
        offerings = {name: plan.purchases[lot].offering for (lot, _), name in claims.names.items()}
        self.written[uid] = Written(plan, claims.claims, tuple(pins), needs, offerings)
        for slot_name, claim_name in names.items():
            bought = self.board.slots[slot_name]
            self.board.rename(bought, f"claim/{claim_name}")
            bought.claim = claim_name
            self._slots()[claim_name] = bought
        for seat in plan.assignments:  # what is left there is for everybody who can wait for the machine
            if seat.slot.name.startswith(("claim/", "recut/")):
                self.board.share(seat.slot)
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
                self.board.take(slot, requests[pin.pod_set], sign * pin.count)

    def withhold(self, pins: Iterable[Pin]) -> None:
        """Let nobody onto the machines of these pins."""
        for pin in pins:
            if (slot := self._slot(pin.claim, pin.node)) is not None:
                self.board.close(slot.name)

    def _slot(self, claim: str, node: str) -> NodeSlot | None:
        return self._slots().get(claim) if claim else self.board.slots.get(node)

    def _slots(self) -> dict[str, NodeSlot]:
        if self._of_claim is None:
            self._of_claim = {slot.claim: slot for slot in self.board.slots.values() if slot.claim}
        return self._of_claim

    def hold(self, workload: Workload, place: object) -> None:
        """Nobody else gets what the plan would use; what victims still stand on is counted twice meanwhile."""
        assert isinstance(place, PlacementPlan)  # noqa: S101 -- what `find` returned
        requests = {pod_set.name: dict(pod_set.requests) for pod_set in workload.pod_sets}
        taken = [
            (standing, requests[seat.pod_set], seat.count)
            for seat in place.assignments
            if (standing := self.board.slots.get(seat.slot.name)) is not None
        ]
        for slot, amounts, count in taken:
            self.board.take(slot, amounts, count)
        for recut in place.recuts:
            room = self.board.close(recut.slot.name)
            taken += [(self.board.slots[recut.slot.name], {}, room)] if room else []
        for lot in place.purchases:
            self.supply.headroom[lot.offering.pool.name].spend(lot.offering, lot.count)
        self._held[workload.uid] = taken

    def release(self, workload: Workload, place: object) -> None:
        """Undo `hold`."""
        assert isinstance(place, PlacementPlan)  # noqa: S101 -- what `find` returned
        for lot in place.purchases:
            self.supply.headroom[lot.offering.pool.name].spend(lot.offering, -lot.count)
        for slot, amounts, count in reversed(self._held.pop(workload.uid)):
            self.board.take(slot, amounts, -count)


def _flavors_of(given: Sequence[PodSetAssignment]) -> Hashable:
    return tuple((one.name, one.count, tuple(one.flavors.items())) for one in given)
