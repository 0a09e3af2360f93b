"""Would these gangs find a place without these machines? Karpenter's `SimulateScheduling`, for gangs that move whole.

The world of the what-ifs is made once a pass: everybody is seated and charged; who would move is lifted, and put back.
A what-if costs what it changes, not what there is: a plan for many machines asks for hundreds.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from fleet.actions import gang_subject
from fleet.fence import concerning
from fleet.offerings.offerings import Offering
from fleet.placement.cluster_state import ClusterState, NodeSlot, planned_slot
from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.inventory import BuyableCapacity, build_capacity, build_cluster_state
from fleet.placement.place import place_gang
from fleet.placement.plan import PlacementPlan, PlannedNodeClaims
from fleet.quota.compile import QuotaSpecs, charged_tree, current_quota_specs, usage_of
from fleet.quota.queue_binding import binding_of
from fleet.quota.tree import QuotaNode, QuotaTree, Usage, charge, fits, release
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, Gang, Snapshot
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
        """Names of the machines."""
        return tuple(claim.name for claim in self.claims)


@dataclass(slots=True)
class SchedulingSimulation:
    """Places, quota and purchases, as do/undo state. Machines cut anew are no place to move to."""

    fleet: Fleet
    snapshot: Snapshot
    board: ClusterState
    supply: BuyableCapacity
    flavors: FleetFlavors
    _said: QuotaSpecs
    _tree: QuotaTree
    _of_claim: dict[str, NodeSlot]
    _begin: int
    """The board's mark with all gangs on it and nothing else."""
    _avoided: frozenset[str] = frozenset()
    _closed: set[str] = field(default_factory=set)
    """Claims that are no place to move to."""
    _seated: int = 0
    _bought: int = 0
    """So many of the promises have been taken on the board, and from the limits."""

    @classmethod
    def of(cls, fleet: Fleet, snapshot: Snapshot) -> "SchedulingSimulation":
        """Of a snapshot, as it is."""
        gangs = holders(snapshot)
        board = build_cluster_state(snapshot, gangs, pools=fleet.node_pools)
        supply = build_capacity(fleet, snapshot)
        supply.recuts = []
        of_claim = {slot.claim: slot for slot in board.slots.values() if slot.claim}
        said, tree = current_quota_specs(fleet, snapshot), charged_tree(fleet, snapshot, gangs)
        flavors = FleetFlavors(fleet, supply.offerings, board)
        return cls(fleet, snapshot, board, supply, flavors, said, tree, of_claim, board.mark())

    def prepare(
        self, gone: Collection[str], promised: Sequence[tuple[Gang, PlacementPlan]], avoid: Collection[str]
    ) -> None:
        """Close what is `gone` or to `avoid` (claims), and take what was promised, so that nobody counts on it twice.

        `gone` and `promised` only ever grow.
        """
        if (avoided := frozenset(avoid)) != self._avoided:
            self.board.undo(self._begin)
            self._avoided, self._closed, self._seated = avoided, set(), 0
        for claim in sorted({*gone, *avoided} - self._closed):
            self._closed.add(claim)
            self._close(claim)
        for gang, plan in promised[self._seated :]:
            for taken in plan.assignments:
                if taken.slot.name in self.board.slots:
                    slot = self.board.slots[taken.slot.name]
                    self.board.take(slot, gang.pod_set(taken.pod_set).requests, taken.count)
        for _, plan in promised[self._bought :]:
            for lot in plan.purchases:
                self.supply.headroom[lot.offering.pool.name].spend(lot.offering, lot.count)
        self._seated = self._bought = len(promised)

    def _close(self, claim: str) -> None:
        if claim in self._of_claim:
            self.board.close(self._of_claim[claim].name)

    def schedule(self, group: CandidateGroup, bought: Sequence[Offering] | None) -> dict[str, PlacementPlan] | Refusal:
        """A place for every gang (uid) of the group without the group's machines; a refusal when one finds none.

        What is missing is bought gang by gang; or, where machines are `bought`, these are what all of them find, and
        those that stay empty are not bought. Then the first gang's plan has all lots.
        """
        if refused := self._over_quota(group.gangs):
            return refused
        spent: list[PlannedNodeClaims] = []
        self.supply.may_buy = bought is None
        try:
            with self._without(group.names, group.gangs):
                return self._placed(group.gangs, bought, spent)
        finally:
            self.supply.may_buy = True
            for lot in spent:
                self.supply.headroom[lot.offering.pool.name].spend(lot.offering, -lot.count)

    @contextmanager
    def _without(self, claims: Collection[str], gangs: Sequence[Gang]) -> Iterator[None]:
        """The board while these machines are gone and these gangs have left their places."""
        mark = self.board.mark()
        try:
            lifted: set[str] = set()
            for gang in gangs:
                for pin in seated(self.snapshot, gang).pins:
                    slot = self._of_claim.get(pin.claim) if pin.claim else self.board.slots.get(pin.node)
                    if slot is not None:
                        self.board.take(slot, gang.pod_set(pin.pod_set).requests, -pin.count)
                        lifted.add(slot.claim)
            for claim in sorted((lifted & self._closed) | set(claims)):
                self._close(claim)
            yield
        finally:
            self.board.undo(mark)

    def _over_quota(self, gangs: Sequence[Gang]) -> Refusal | None:
        """A gang whose queue has lost quota would not come back: it stays where it is until it ends."""
        charges = []
        for gang in gangs:
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
        """As `schedule`, on the board as it is then; what is taken from the limits is added to `spent`."""
        if bought is not None:
            beyond = _add(self.board, self.supply, bought, [gang.uid for gang in gangs], spent)
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
                _keep(self.board, number)
        return plans if bought is None else _with_lots(plans, bought)

    def _place(self, gang: Gang) -> PlacementPlan | Refusal:
        if not all(self.flavors.declared(given) for given in gang.flavors.values()):
            return Refusal(Reason.NO_MATCHING_FLAVOR, f"a flavor of {gang.name} is no longer declared")
        needs = [self.flavors.need(pod_set, gang.flavors[pod_set.name]) for pod_set in gang.pod_sets]
        if self.supply.closing:
            needs = [replace(need, until_s=self.snapshot.now_s) for need in needs]
        return place_gang(self.board, self.supply, gang.uid, needs)

    def _charge(self, gang: Gang) -> tuple[QuotaNode, Usage] | None:
        line = binding_of(self.fleet, gang.namespace, gang.queue)
        if line is None:
            return None
        return self._tree.queues[line.name], usage_of(self._said, self._tree, line.name, gang)


def _add(
    board: ClusterState,
    supply: BuyableCapacity,
    bought: Sequence[Offering],
    only_for: Iterable[str],
    spent: list[PlannedNodeClaims],
) -> Refusal | None:
    """Machines to be bought, as if they were on their way; a refusal where limits or shortages forbid them."""
    for number, offering in enumerate(bought):
        headroom = supply.headroom[offering.pool.name]
        if offering.offer.pool_key in supply.shortages or headroom.most(offering) < 1:
            return Refusal(
                Reason.POOL_LIMIT, f"{offering.offer.instance_type.name} of {offering.pool.name} cannot be bought"
            )
        headroom.spend(offering, 1)
        spent.append(PlannedNodeClaims(offering, 1))
        name = _TOGETHER.format(number)
        board.add(replace(planned_slot(offering, name, *only_for), labels={**offering.labels, HOSTNAME: name}))
    return None


def _with_lots(plans: dict[str, PlacementPlan], bought: Sequence[Offering]) -> dict[str, PlacementPlan]:
    used = {seat.slot.name for plan in plans.values() for seat in plan.assignments}
    counted = Counter(offering.key for number, offering in enumerate(bought) if _TOGETHER.format(number) in used)
    offerings = {offering.key: offering for offering in bought}
    first = next(iter(plans))
    lots = tuple(PlannedNodeClaims(offerings[key], count) for key, count in sorted(counted.items()))
    return plans | {first: replace(plans[first], purchases=lots)}


def _keep(board: ClusterState, number: int) -> None:
    """Slots bought for one gang get a name of their own, so that the next gang of the unit may buy as well."""
    for name in [name for name in board.slots if name.startswith("new/")]:
        board.rename(board.slots[name], f"kept/{number}/{name}")


def turn_of(ranked: Sequence[T], now_s: float) -> Sequence[T]:
    """What to try now: all, or where that is too much a window that moves with time."""
    if len(ranked) <= WHAT_IFS:
        return ranked
    start = int(now_s // ROUND_S) * WHAT_IFS % len(ranked)
    return [*ranked[start:], *ranked[:start]][:WHAT_IFS]
