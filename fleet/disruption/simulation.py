"""Would these gangs find a place without these machines? Karpenter's `SimulateScheduling`, for gangs that move whole.

Its world is made once a pass: every gang has its place and is charged; who would move is lifted, and put back. A
simulation costs what it changes, not what there is: a plan for many machines asks for hundreds.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from fleet.actions import gang_subject
from fleet.fence import concerning
from fleet.nodeclaims.capacity_buffers import pods_of_buffers
from fleet.nodeclaims.drift import drifted_claims
from fleet.offerings.offerings import Offering
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import ClusterState, NodeSlot, planned_slot
from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.followers import place_company
from fleet.placement.inventory import MOVED, build_capacity, build_cluster_state
from fleet.placement.plan import PlacementPlan, PlannedNodeClaims
from fleet.placement.pod_quota import ordinary_usage
from fleet.quota.build_tree import QuotaSpecs, charged_tree, current_quota_specs, usage_of
from fleet.quota.queue_binding import binding_of
from fleet.quota.tree import QuotaNode, QuotaTree, Usage, charge, fits, release
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, Gang, GangState, Snapshot
from fleet.snapshot.lookups import holders
from fleet.snapshot.seats import seated
from model.fleet import Fleet
from model.labels import HOSTNAME

T = TypeVar("T")

WHAT_IFS: Final = 16
"""Machines tried in one pass: a bound in steps, so that the same input gives the same answer."""
ROUND_S: Final = 10.0
"""Of more machines than can be tried the next ones are, after this long."""
_TOGETHER: Final = "together/{}"
"""Name of a machine that is bought for all gangs of a group."""


@dataclass(frozen=True, slots=True)
class CandidateGroup:
    """Machines that go together because gangs span them, and those gangs."""

    claims: tuple[Claim, ...]
    gangs: tuple[Gang, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the names of the machines."""
        return tuple(claim.name for claim in self.claims)


@dataclass(slots=True)
class SchedulingSimulation:
    """The simulation holds places, quota and purchases as do/undo state. Re-cut machines are no place to move to."""

    fleet: Fleet
    snapshot: Snapshot
    state: ClusterState
    capacity: BuyableCapacity
    flavors: FleetFlavors
    _specs: QuotaSpecs
    _tree: QuotaTree
    _of_claim: dict[str, NodeSlot]
    _begin: int
    """The mark of `state` with all gangs in it and nothing else."""
    _avoided: frozenset[str] = frozenset()
    _closed: set[str] = field(default_factory=set)
    """Claims that are no place to move to."""
    _placed_until: int = 0
    """So many of the promises have their places in `state`."""
    _spent_until: int = 0
    """So many of the promises have been taken from the limits."""
    _moving: Sequence[Gang] = ()
    """Gangs that are about to leave their machines, and find places on others that stand."""

    @classmethod
    def of(cls, fleet: Fleet, snapshot: Snapshot) -> "SchedulingSimulation":
        """Returns the simulation of a snapshot in which nothing has moved."""
        gangs, spare = holders(snapshot), pods_of_buffers(fleet, snapshot)
        state = build_cluster_state(snapshot, (*gangs, *spare), (), fleet.node_pools, drifted_claims(fleet, snapshot))
        capacity = build_capacity(fleet, snapshot)
        capacity.recuts = []
        of_claim = {slot.claim: slot for slot in state.slots.values() if slot.claim}
        specs = current_quota_specs(fleet, snapshot)
        tree = charged_tree(fleet, snapshot, gangs, ordinary_usage(fleet, snapshot))
        flavors = FleetFlavors(fleet, capacity.offerings, state)
        made = cls(fleet, snapshot, state, capacity, flavors, specs, tree, of_claim, state.mark())
        leaving = (gang for _, gang in sorted(snapshot.gangs.items()) if gang.state is GangState.EVICTING)
        moving = [gang for gang in leaving if gang.eviction and gang.eviction.reason in MOVED]
        made._moving = [gang for gang in moving if made._moves(gang)]
        state.undo(made._begin)
        return made

    def prepare(
        self, taken: Collection[str], promised: Sequence[tuple[Gang, PlacementPlan]], avoid: Collection[str]
    ) -> None:
        """Closes claims that are `taken` or to `avoid`, and takes what was promised, so that nobody counts on it twice.

        `taken` and `promised` only ever grow.
        """
        if (avoided := frozenset(avoid)) != self._avoided:
            self.state.undo(self._begin)
            self._avoided, self._closed, self._placed_until = avoided, set(), 0
        for claim in sorted({*taken, *avoided} - self._closed):
            self._closed.add(claim)
            self._close(claim)
        for gang, plan in promised[self._placed_until :]:
            self._take_places(gang, plan)
        for _, plan in promised[self._spent_until :]:
            for purchase in plan.purchases:
                self.capacity.headroom[purchase.offering.pool.name].spend(purchase.offering, purchase.count)
        self._placed_until = self._spent_until = len(promised)

    def _take_places(self, gang: Gang, plan: PlacementPlan) -> None:
        for each in plan.assignments:
            if (slot := self.state.slots.get(each.slot.name)) is not None:
                self.state.place(slot, gang.pod_set(each.pod_set), each.count)

    def _close(self, claim: str) -> None:
        if claim in self._of_claim:
            self.state.close(self._of_claim[claim].name)

    def schedule(self, group: CandidateGroup, bought: Sequence[Offering] | None) -> dict[str, PlacementPlan] | Refusal:
        """Finds a place for every gang (uid) of the group without its machines; a refusal when one finds none.

        Who is being moved already has its place before: Karpenter schedules the pods of machines that are drained, too.
        What is missing is bought gang by gang; or, where machines are `bought`, these are what all of them find, and
        those that stay empty are not bought. Then the first gang's plan has all purchases.
        """
        if refused := self._over_quota(group.gangs):
            return refused
        spent: list[PlannedNodeClaims] = []
        self.capacity.may_buy = bought is None
        try:
            with self._without(group.names, group.gangs):
                homeless = next((gang for gang in self._moving if not self._moves(gang)), None)
                if homeless is not None:
                    return Refusal(Reason.NO_OFFER, f"{homeless.name}, which is being moved, counts on the room")
                return self._placed(group.gangs, bought, spent)
        finally:
            self.capacity.may_buy = True
            for purchase in spent:
                self.capacity.headroom[purchase.offering.pool.name].spend(purchase.offering, -purchase.count)

    @contextmanager
    def _without(self, claims: Collection[str], gangs: Sequence[Gang]) -> Iterator[None]:
        """Simulates that these machines are gone and these gangs have left their places."""
        mark = self.state.mark()
        try:
            lifted = {claim for gang in gangs for claim in self._lift(gang)}
            for claim in sorted((lifted & self._closed) | set(claims)):
                self._close(claim)
            yield
        finally:
            self.state.undo(mark)

    def _lift(self, gang: Gang) -> Iterator[str]:
        """Takes the gang off its places; yields the claims of the machines it stood on."""
        pod_sets = {pods.name: pods for pods in gang.pod_sets}
        for pin in seated(self.snapshot, gang).pins:
            slot = self._of_claim.get(pin.claim) if pin.claim else self.state.slots.get(pin.node)
            if slot is not None and pin.pod_set in pod_sets:  # else its Workload was edited: it stays closed
                self.state.place(slot, pod_sets[pin.pod_set], -pin.count)
                yield slot.claim

    def _moves(self, gang: Gang) -> bool:
        """Puts a gang that is being moved where it will stand, so that nobody counts on that; whether it finds room."""
        may_buy, self.capacity.may_buy = self.capacity.may_buy, False
        try:
            with concerning(gang_subject(gang.uid)):
                return isinstance(self._place(gang), PlacementPlan)
        finally:
            self.capacity.may_buy = may_buy

    def _over_quota(self, gangs: Sequence[Gang]) -> Refusal | None:
        """Refuses a gang whose queue has lost quota: it would not come back, and stays where it is until it ends."""
        charges = []
        for gang in (gang for gang in gangs if not gang.ordinary):
            with concerning(gang_subject(gang.uid)):
                charges.append((gang, self._charge(gang)))
        for _, charged in charges:
            if charged is not None:
                release(*charged)
        refused: Refusal | None = None
        for gang, charged in charges:
            if refused is None and (charged is None or not fits(*charged)):
                refused = Refusal(Reason.WAITING_FOR_QUOTA, f"{gang.name} has no quota to come back to")
            if charged is not None:
                charge(*charged)
        return refused

    def _placed(
        self, gangs: Sequence[Gang], bought: Sequence[Offering] | None, spent: list[PlannedNodeClaims]
    ) -> dict[str, PlacementPlan] | Refusal:
        """Places the gangs in the state as it is then; what is taken from the limits is added to `spent`."""
        if bought is not None:
            beyond = _add(self.state, self.capacity, bought, [gang.uid for gang in gangs], spent)
            if beyond is not None:
                return beyond
        plans: dict[str, PlacementPlan] = {}
        for number, gang in enumerate(gangs):
            with concerning(gang_subject(gang.uid)):
                plan = self._place(gang)
            if isinstance(plan, Refusal):
                return plan
            plans[gang.uid] = plan
            spent += plan.purchases
            if plan.purchases:
                _share_within(self.state, number, gangs)
        return plans if bought is None else _with_purchases(plans, bought)

    def _place(self, gang: Gang) -> PlacementPlan | Refusal:
        if not self.flavors.declared(gang):
            return Refusal(Reason.NO_MATCHING_FLAVOR, f"a flavor of {gang.name} is no longer declared")
        needs = [self.flavors.need_of(gang, pod_set) for pod_set in gang.needed]
        if self.capacity.closing:
            needs = [replace(need, until_s=self.snapshot.now_s) for need in needs]
        return place_company(self.state, self.capacity, gang.uid, needs)

    def _charge(self, gang: Gang) -> tuple[QuotaNode, Usage] | None:
        binding = binding_of(self.fleet, gang.namespace, gang.queue)
        if binding is None:
            return None
        return self._tree.queues[binding.name], usage_of(self._specs, self._tree, binding.name, gang)


def _add(
    state: ClusterState,
    capacity: BuyableCapacity,
    bought: Sequence[Offering],
    only_for: Iterable[str],
    spent: list[PlannedNodeClaims],
) -> Refusal | None:
    """Adds machines to be bought, as if they were on their way; a refusal where limits or shortages forbid them."""
    for number, offering in enumerate(bought):
        headroom = capacity.headroom[offering.pool.name]
        if offering.offer.pool_key in capacity.shortages or headroom.most(offering) < 1:
            return Refusal(
                Reason.POOL_LIMIT, f"{offering.offer.instance_type.name} of {offering.pool.name} cannot be bought"
            )
        headroom.spend(offering, 1)
        spent.append(PlannedNodeClaims(offering, 1))
        name = _TOGETHER.format(number)
        slot = planned_slot(offering, name, *only_for, room=offering.flexible_room)
        state.add(replace(slot, labels={**offering.labels, HOSTNAME: name}, offering=None))
    return None


def _with_purchases(plans: dict[str, PlacementPlan], bought: Sequence[Offering]) -> dict[str, PlacementPlan]:
    used = {each.slot.name for plan in plans.values() for each in plan.assignments}
    counted = Counter(offering.key for number, offering in enumerate(bought) if _TOGETHER.format(number) in used)
    offerings = {offering.key: offering for offering in bought}
    first = next(iter(plans))
    purchases = tuple(PlannedNodeClaims(offerings[key], count) for key, count in sorted(counted.items()))
    return plans | {first: replace(plans[first], purchases=purchases)}


def _share_within(state: ClusterState, number: int, gangs: Iterable[Gang]) -> None:
    """Lets all gangs of the group use what was bought for one, under a name of its own (`bought_for`).

    Each would else get machines of its own, and one machine be replaced by as many as it has tenants.
    """
    owners = frozenset(gang.uid for gang in gangs)
    for name in [name for name in state.slots if name.startswith("new/")]:
        slot = state.slots[name]
        state.rename(slot, f"{number}/{name}")
        state.share(slot, owners)


def bought_for(plans: Mapping[str, PlacementPlan]) -> Mapping[str, Sequence[frozenset[str]]]:
    """Returns of the plans for a group, gang by gang: by uid, which gangs each machine is for that its plan buys.

    The machines are in the order of the plan's purchases.
    """
    users: dict[str, set[str]] = {}
    for uid, plan in plans.items():
        for each in plan.assignments:
            users.setdefault(each.slot.name, set()).add(uid)
    return {
        uid: [
            frozenset(users.get(f"{number}/new/{lot}/{n}", ()))
            for lot, purchase in enumerate(plan.purchases)
            for n in range(purchase.count)
        ]
        for number, (uid, plan) in enumerate(plans.items())
    }


def turn_of(ranked: Sequence[T], now_s: float) -> Sequence[T]:
    """Returns what to try now: all, or where that is too much a window that moves with time."""
    return in_turns(ranked, now_s)[:WHAT_IFS]


def in_turns(ranked: Sequence[T], now_s: float) -> Sequence[T]:
    """Returns them all; of more than can be tried in a pass others come first as time passes."""
    if len(ranked) <= WHAT_IFS:
        return ranked
    start = int(now_s // ROUND_S) * WHAT_IFS % len(ranked)
    return [*ranked[start:], *ranked[:start]]
