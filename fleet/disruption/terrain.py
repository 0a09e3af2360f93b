"""The ground for the what-ifs of a pass: everybody is seated and charged; who would move is lifted, and put back.

It is made once a pass. A what-if costs what it changes, not what there is: a plan for many machines asks for hundreds.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from fleet.placement.cluster_state import ClusterState, NodeSlot
from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.inventory import BuyableCapacity, build_capacity, build_cluster_state
from fleet.placement.plan import PlacementPlan
from fleet.quota.compile import QuotaSpecs, charged_tree, current_quota_specs, usage_of
from fleet.quota.queue_binding import binding_of
from fleet.quota.tree import QuotaNode, QuotaTree, Usage, charge, fits, release
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Gang, Snapshot
from fleet.snapshot.lookups import holders
from fleet.snapshot.seats import seated
from model.fleet import Fleet


@dataclass(slots=True)
class Terrain:
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
    def of(cls, fleet: Fleet, snapshot: Snapshot) -> "Terrain":
        """That of a snapshot."""
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

    @contextmanager
    def without(self, claims: Collection[str], gangs: Sequence[Gang]) -> Iterator[None]:
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

    def over_quota(self, gangs: Sequence[Gang]) -> Refusal | None:
        """A gang whose queue has lost quota would not come back: it stays where it is until it ends."""
        charges = [(gang, self._charge(gang)) for gang in gangs]
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

    def _charge(self, gang: Gang) -> tuple[QuotaNode, Usage] | None:
        line = binding_of(self.fleet, gang.namespace, gang.queue)
        if line is None:
            return None
        return self._tree.queues[line.name], usage_of(self._said, self._tree, line.name, gang)
