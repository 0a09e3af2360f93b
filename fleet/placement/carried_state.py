"""The carried state is the cluster state of admission, handed on from pass to pass with what gangs hold on it.

To set up ten thousand machines and to put a thousand gangs on them takes longer than to decide about the next one, and
from one pass to the next hardly any of it is another. So a pass undoes what it has tried, and the next one brings the
state up to date: machines of which something has changed are set up anew, and gangs whose places have changed are put
anew. It equals one that was built from nothing (`tests/fleet/placement/test_carried_state.py`).

While a pass works on it, nobody else has it; where a pass fails, it is gone and the next one builds its own.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, Self

from fleet.actions import gang_subject
from fleet.fence import concerning
from fleet.placement.cluster_state import ClusterState, NodeSlot
from fleet.placement.domains import ClosedNode, Place
from fleet.placement.flavor_nodes import FlavorNodes
from fleet.placement.free_capacity import forget_costs
from fleet.placement.inventory import being_recut, coming_machine, node_slot, usable, who_stands_where
from fleet.placement.neighbours import Neighbours, PodsPut
from fleet.snapshot import Catalog, Claim, Gang, Node, Pod, PodSet, Reservation, Snapshot
from fleet.snapshot.elastic_parts import whole
from fleet.snapshot.lookups import claims_by_node, claims_whatever_runs
from model.fleet import Fleet
from model.index import differing, followed_each
from model.quantity import Resources

_COMING: Final = "coming/"
_EMPTY: Final = "empty"


@dataclass(slots=True)
class _Tables:
    """The tables that a state was last brought up to date with."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    foreign_use: Mapping[str, Resources] = field(default_factory=dict)
    ordinary_pods: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    leaving: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class CarriedState:
    """A `CarriedState` is a cluster state with what it was made of, so that it can follow what changes."""

    fleet: Fleet
    catalog: Catalog
    reservations: Mapping[str, Reservation]
    """All slots depend on these three."""
    state: ClusterState = field(default_factory=ClusterState)
    by_claim: dict[str, NodeSlot] = field(default_factory=dict)
    """Name of a claim -> its slot."""
    _seen: _Tables = field(default_factory=_Tables)
    _unsteady: set[str] = field(default_factory=set)
    """Claims whose slot depends on more than they themselves: kept for gangs, or being cut anew."""
    _blank: dict[str, tuple[object, ...]] = field(default_factory=dict)
    """Slot -> what it was set up with."""
    _resources: dict[str, frozenset[str]] = field(default_factory=dict)
    """Slot -> what it has resources of."""
    _rank: dict[str, str] = field(default_factory=dict)
    """Slot -> what the slots are ordered by."""
    _ranked_anew: bool = False
    """Whether a slot goes elsewhere in that order now, and has not been moved there yet."""
    _closed: dict[str, Place] = field(default_factory=dict)
    """Nodes that take no pod."""
    _held: Mapping[str, Gang] = field(default_factory=dict)
    _standing: dict[str, list[tuple[NodeSlot, PodSet, int]]] = field(default_factory=dict)
    """uid -> its pods, as they stand."""
    _tenants: dict[str, set[str]] = field(default_factory=dict)
    """Claim, or node of a pin without one -> uids of those pinned there."""
    _offered: dict[str, tuple[FlavorNodes, Counter[frozenset[str]]]] = field(default_factory=dict)
    """Flavor -> its machines by what they have resources of; for those that were asked for."""

    @classmethod
    def taken(cls, fleet: Fleet, snapshot: Snapshot, use: str = "") -> Self:
        """Returns the state that the last pass has handed on, which nobody else gets now, or an empty one.

        `use`: for which use, where a pass needs several.
        """
        found: Any = snapshot.index.take((cls, use))
        if found is None or found.fleet is not fleet or found.catalog is not snapshot.catalog:
            return cls.empty(fleet, snapshot)
        return found if found.reservations == snapshot.reservations else cls.empty(fleet, snapshot)

    @classmethod
    def empty(cls, fleet: Fleet, snapshot: Snapshot) -> Self:
        """Returns a state without machines, which `update` sets up."""
        return cls(fleet, snapshot.catalog, snapshot.reservations)

    def hand_on(self, snapshot: Snapshot, use: str = "") -> None:
        """Takes back what the pass has done and hands the state on to the next one."""
        self.state.revert()
        self.state.neighbours = Neighbours()
        snapshot.index.hand_on((type(self), use), self)

    def update(self, snapshot: Snapshot, held: Mapping[str, Gang], leaving: Mapping[str, str]) -> None:
        """Brings all up to date: `held` are those who stand (by uid), `leaving` the claims that are to be replaced.

        A gang that cannot be put makes it raise, concerning that gang; the state is good for nothing then.
        """
        self.state.neighbours = Neighbours()  # of what is put now nobody asks; who stands where is told anew below
        changed = dict(self._changed_slots(snapshot, leaving))
        going = self._changed_gangs(held) | self._on(changed)
        for uid in going:
            self._lift(uid)
        came = [name for name, slot in changed.items() if slot is not None and name not in self.state.slots]
        for name, slot in changed.items():
            self._exchange(name, slot)
        if came:
            self._put_in_order(came)
        self._held = held
        for uid in [uid for uid in held if uid in going or uid not in self._standing]:
            with concerning(gang_subject(whole(uid))):
                self._put(held[uid])
        self.state.settle()
        self._tell_neighbours(snapshot)
        forget_costs(self.state)

    def offered(self, name: str, nodes: FlavorNodes) -> Iterable[frozenset[str]]:
        """Returns what the machines of a flavor have resources of: one set for all that have the same."""
        if name not in self._offered:
            owned = (slot.name for slot in self.state.slots.values() if nodes.owns(slot))
            self._offered[name] = nodes, Counter(self._resources[each] for each in owned)
        return self._offered[name][1]

    # -- machines -----------------------------------------------------------------------------------------------------

    def _changed_slots(self, snapshot: Snapshot, leaving: Mapping[str, str]) -> Iterator[tuple[str, NodeSlot | None]]:
        """Yields the slots that are set up otherwise than before, by name; None for those that are gone."""
        before = self._seen
        now = self._seen = _Tables(
            *(snapshot.nodes, claims_whatever_runs(snapshot), snapshot.foreign_use, snapshot.ordinary_pods, leaving)
        )
        claims = {*differing(before.claims, now.claims), *(before.leaving.keys() ^ leaving.keys()), *self._unsteady}
        nodes = {*differing(before.nodes, now.nodes), *differing(before.foreign_use, now.foreign_use)}
        nodes.update(differing(before.ordinary_pods, now.ordinary_pods))
        nodes.update(it.node for name in claims for it in (before.claims.get(name), now.claims.get(name)) if it)
        owner = claims_by_node(snapshot)
        for name in sorted(nodes):
            yield from self._unless_same(name, self._node(snapshot, name, owner.get(name), leaving))
        for name in sorted(claims):
            yield from self._unless_same(_COMING + name, self._coming(snapshot, name))

    def _node(self, snapshot: Snapshot, name: str, claim: Claim | None, leaving: Container[str]) -> NodeSlot | None:
        """Returns a node as a slot; None for one that takes no pod, or is gone."""
        node = snapshot.nodes.get(name)
        if node is not None and usable(node, claim):
            self._closed.pop(name, None)
            return node_slot(snapshot, node, claim, self.fleet.node_pools, leaving)
        if node is None:
            self._closed.pop(name, None)
        else:
            self._closed[name] = ClosedNode(name, node.labels, node.taints)
        return None

    def _coming(self, snapshot: Snapshot, name: str) -> NodeSlot | None:
        """Returns the machine of a claim as a slot, if it is on its way; notes whether it may change by itself."""
        claim = snapshot.claims.get(name)
        if claim is None:
            self._unsteady.discard(name)
            return None
        (self._unsteady.add if claim.replaces or being_recut(claim) else self._unsteady.discard)(name)
        return coming_machine(self.fleet, snapshot, claim)

    def _unless_same(self, name: str, slot: NodeSlot | None) -> Iterator[tuple[str, NodeSlot | None]]:
        """Yields a slot unless it stands as it is already, or is not there; notes what it was set up with."""
        if slot is None:
            if name in self.state.slots:
                yield name, None
            return
        blank = (
            *(slot.node, slot.claim, slot.labels, slot.taints, dict(slot.free), slot.pool, slot.only_for),
            *(slot.pods_when_empty, slot.closes_s, slot.leaving, slot.devices),
        )
        if self._blank.get(name) != blank:
            self._blank[name] = blank
            yield name, slot

    def _exchange(self, name: str, slot: NodeSlot | None) -> None:
        """Puts a slot in the place of the one with this name, if any; None removes it."""
        if (before := self.state.slots.get(name)) is not None:
            self._count(before, -1)
            if self.by_claim.get(before.claim) is before:
                del self.by_claim[before.claim]
        if slot is None:
            del self._blank[name], self._resources[name], self._rank[name]
        else:
            self._resources[name] = frozenset(slot.free)
            rank = f"{int(name.startswith(_COMING) and not slot.node)}{name}"
            self._ranked_anew |= self._rank.setdefault(name, rank) != rank
            self._rank[name] = rank
            self._count(slot, 1)
            if slot.claim:
                self.by_claim[slot.claim] = slot
        self.state.exchange(name, slot)

    def _count(self, slot: NodeSlot, sign: int) -> None:
        for nodes, counted in self._offered.values():
            if nodes.owns(slot):
                resources = self._resources[slot.name]
                counted[resources] += sign
                if not counted[resources]:
                    del counted[resources]

    def _put_in_order(self, came: Iterable[str]) -> None:
        """Puts the slots in the order in which they are built: nodes by name, then machines on their way.

        Those that came stand last; only what has to come after the first of them is moved, where the rest is in order.
        """
        slots, rank = self.state.slots, self._rank
        first = "" if self._ranked_anew else min(rank[name] for name in came)
        behind = list(takewhile(lambda name: rank[name] >= first, reversed(slots)))
        for name in sorted(behind, key=rank.__getitem__):
            slots[name] = slots.pop(name)
        self._ranked_anew = False

    # -- gangs --------------------------------------------------------------------------------------------------------

    def _changed_gangs(self, held: Mapping[str, Gang]) -> set[str]:
        """Returns the uids of those who stand no more, or otherwise than before."""
        before = self._held
        return {
            uid
            for uid in differing(before, held)
            if uid in self._standing
            and (
                (now := held.get(uid)) is None or (now.pins != before[uid].pins or now.pod_sets != before[uid].pod_sets)
            )
        }

    def _on(self, changed: Mapping[str, NodeSlot | None]) -> set[str]:
        """Returns the uids of those who are pinned to one of these slots, as it was or as it is to be."""
        found: set[str] = set()
        for name, slot in changed.items():
            before = self.state.slots.get(name)
            for key in {name, before.claim if before is not None else "", slot.claim if slot is not None else ""}:
                found |= self._tenants.get(key, set())
        return found

    def _put(self, gang: Gang) -> None:
        by_name = {pods.name: pods for pods in gang.pod_sets}
        stands = self._standing[gang.uid] = []
        for pin in gang.pins:
            self._tenants.setdefault(pin.claim or pin.node, set()).add(gang.uid)
            slot = self.by_claim.get(pin.claim) if pin.claim else self.state.slots.get(pin.node)
            if slot is not None:
                stands.append((slot, by_name[pin.pod_set], pin.count))
                self.state.place(slot, by_name[pin.pod_set], pin.count)

    def _lift(self, uid: str) -> None:
        for slot, pods, count in self._standing.pop(uid):
            self.state.place(slot, pods, -count)
        for pin in self._held[uid].pins:
            key = pin.claim or pin.node
            if (tenants := self._tenants.get(key)) is not None:
                tenants.discard(uid)
                if not tenants:
                    del self._tenants[key]

    def _tell_neighbours(self, snapshot: Snapshot) -> None:
        repel = bool(_repelling(snapshot.index, snapshot.gangs)) and any(map(_repels, self._held.values()))
        neighbours = who_stands_where(snapshot, self.state.slots, self._closed, self._pods, repel=repel)
        neighbours.watch(self.state.slots)
        for place in self._closed.values():
            neighbours.add_place(place)
        self.state.neighbours = neighbours

    def _pods(self) -> Iterator[PodsPut]:
        """Yields the pods of those who stand, in the order of their gangs."""
        for uid in self._held:
            for slot, pods, count in self._standing.get(uid, ()):
                yield pods, slot, count, False


def _repels(gang: Gang) -> bool:
    return any(pods.constraints.anti_affinity for pods in gang.pod_sets)


@followed_each()
def _repelling(gang: Gang) -> bool | None:
    """Returns True for a gang that keeps others away."""
    return _repels(gang) or None


@dataclass(slots=True)
class EmptyMachines:
    """`EmptyMachines` are the machines of a pass as if no gang stood on them, set up when they are asked for."""

    fleet: Fleet
    snapshot: Snapshot
    leaving: Mapping[str, str]
    """Claims that are to be replaced."""
    _carried: CarriedState | None = None

    def __call__(self) -> ClusterState:
        """Brings those of the last pass that asked for them up to date, and returns them."""
        self._carried = CarriedState.taken(self.fleet, self.snapshot, _EMPTY)
        self._carried.update(self.snapshot, {}, self.leaving)
        return self._carried.state

    def hand_on(self) -> None:
        """Hands them on to the next pass, if they were asked for."""
        if self._carried is not None:
            self._carried.hand_on(self.snapshot, _EMPTY)
