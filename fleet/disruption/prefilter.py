"""A quick look before a simulation: could these gangs possibly find room without this machine?

Everything is an upper bound: more room than there is, every zone at once, each pod set as if it were alone. So a "no"
is certain and spares the simulation; a "yes" says nothing. Equal pod sets are one class, counted once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fleet.offerings.offerings import Offerings, offerings_now
from fleet.placement.cluster_state import PODS, ClusterState, NodeSlot, planned_slot
from fleet.placement.flavor_nodes import FleetFlavors, sells
from fleet.placement.inventory import build_cluster_state
from fleet.placement.plan import Need
from fleet.snapshot import Claim, Gang, Node, PodSet, Snapshot
from fleet.snapshot.affinity import admits
from fleet.snapshot.lookups import holders
from model.fleet import Fleet
from model.index import Index, derived
from model.quantity import Resources


class _Buyable(NamedTuple):
    """A machine that might be bought, with the number of pods that fit on it."""

    usd_h: float
    spot: bool
    fits: int
    instance_type: str


@dataclass(frozen=True, slots=True)
class _ClassRoom:
    """The room that pods of one class find: on standing machines, and on one machine that might be bought."""

    on_slots: Mapping[str, int]
    """Slot -> pods that still fit; without those on which none does."""
    total: int
    to_buy: Sequence["_Buyable"]
    """Every offering that takes any."""


@dataclass(frozen=True, slots=True)
class _PodSetRoom:
    """The room that a pod set needs and would find if its gang, and those that move with it, left their places."""

    count: int
    total: int
    on_claims: Mapping[str, int]
    """Claim -> pods that fit there, of the machines the gangs stand on."""
    room: _ClassRoom


@dataclass(slots=True)
class Prefilter:
    """The most room there could be for gangs that move; worked out as asked, kept while nothing changes."""

    fleet: Fleet
    state: ClusterState
    by_claim: Mapping[str, NodeSlot]
    flavors: FleetFlavors
    _classes: dict[tuple[object, ...], _ClassRoom] = field(default_factory=dict)
    _wanted: dict[tuple[str, ...], Sequence[_PodSetRoom] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, fleet: Fleet, snapshot: Snapshot) -> "Prefilter":
        """Returns the filter of a snapshot."""
        offerings = offerings_now(fleet, snapshot)
        gangs = holders(snapshot)
        return _prefilter(
            snapshot.index, fleet, offerings, snapshot.nodes, snapshot.claims, snapshot.foreign_use, gangs
        )

    def hopeless(self, claim: Claim, gangs: Sequence[Gang], below_usd_h: float) -> bool:
        """Returns whether the gangs, moved whole, cannot do without `claim` even with one machine for less."""
        wanted = self._wants(gangs)
        return wanted is None or any(self._missing(pods, claim, below_usd_h) for pods in wanted)

    def cheaper_spot_types(self, claim: Claim, gangs: Sequence[Gang]) -> int:
        """Counts the cheaper types of spot machines of which one could take what finds no room elsewhere."""
        left: set[str] | None = None
        for pods in self._wants(gangs) or ():
            missing = self._beyond(pods, claim)
            if missing > 0:
                able = {
                    it.instance_type
                    for it in pods.room.to_buy
                    if it.spot and it.usd_h < claim.price_usd_h and it.fits >= missing
                }
                left = able if left is None else left & able
        return len(left or ())

    def _missing(self, pods: _PodSetRoom, claim: Claim, below_usd_h: float) -> bool:
        missing = self._beyond(pods, claim)
        if missing <= 0:
            return False
        no_spot = claim.capacity_pool.capacity_type == "spot" and not self._trades_spot(claim)
        return not any(
            it.fits >= missing and it.usd_h < below_usd_h and not (no_spot and it.spot) for it in pods.room.to_buy
        )

    @staticmethod
    def _beyond(pods: _PodSetRoom, claim: Claim) -> int:
        """Counts the pods for which there is no room without the machine."""
        own = pods.on_claims.get(claim.name)
        return pods.count - pods.total + (pods.room.on_slots.get(claim.node, 0) if own is None else own)

    def _trades_spot(self, claim: Claim) -> bool:
        pool = self.fleet.node_pools.get(claim.node_pool)
        return pool is not None and pool.spec.disruption.spot_to_spot

    def _wants(self, gangs: Sequence[Gang]) -> Sequence[_PodSetRoom] | None:
        """Returns the room for each pod set; None when a flavor is no longer declared."""
        key = tuple(gang.uid for gang in gangs)
        if key not in self._wanted:
            self._wanted[key] = self._lifted(gangs) if all(map(self.flavors.declared, gangs)) else None
        return self._wanted[key]

    def _lifted(self, gangs: Sequence[Gang]) -> list[_PodSetRoom]:
        freed = self._freed(gangs)
        wanted = []
        for gang in gangs:
            for pod_set in gang.needed:
                need = self.flavors.need_of(gang, pod_set)
                room = self._room(gang.flavors.get(pod_set.name, ()), need)
                total, on_claims = room.total, dict[str, int]()
                for slot in freed:
                    fits = slot.room_for(pod_set.requests) if need.accepts(slot) else 0
                    total += fits - room.on_slots.get(slot.name, 0)
                    on_claims[slot.claim] = fits
                wanted.append(_PodSetRoom(pod_set.count, total, on_claims, room))
        return wanted

    def _freed(self, gangs: Sequence[Gang]) -> list[NodeSlot]:
        """Returns copies of the slots that the gangs stand on, without them."""
        freed: dict[str, NodeSlot] = {}
        for gang in gangs:
            for pin in gang.pins:
                standing = self.by_claim.get(pin.claim) if pin.claim else self.state.slots.get(pin.node)
                if standing is not None:
                    slot = freed.setdefault(standing.name, replace(standing, free=dict(standing.free)))
                    _free(slot, gang.pod_set(pin.pod_set).requests, pin.count)
        return list(freed.values())

    def _room(self, flavors: Sequence[str], need: Need) -> _ClassRoom:
        key = _class_of(flavors, need.pod_set)
        if key not in self._classes:
            self._classes[key] = self._counted(need)
        return self._classes[key]

    def _counted(self, need: Need) -> _ClassRoom:
        requests = need.pod_set.requests
        on_slots = {
            slot.name: fits
            for slot in self.state.slots.values()
            if (fits := slot.room_for(requests)) and need.accepts(slot)
        }
        to_buy = {
            _Buyable(
                offering.offer.price_usd_h,
                offering.offer.capacity_type == "spot",
                fits,
                offering.offer.instance_type.name,
            )
            for pool in need.pools
            if sells(pool, need)
            for offering in self.flavors.offerings.of(pool)
            if (fits := planned_slot(offering, "probe").room_for(requests))
            and admits(need.pod_set, need.tolerations, offering.labels, offering.taints)
        }
        return _ClassRoom(on_slots, sum(on_slots.values()), sorted(to_buy))


@derived(2)
def _prefilter(
    index: Index,
    fleet: Fleet,
    offerings: Offerings,
    nodes: Mapping[str, Node],
    claims: Mapping[str, Claim],
    foreign_use: Mapping[str, Resources],
    held_by: Sequence[Gang],
) -> Prefilter:
    seen = Snapshot(0.0, nodes=nodes, claims=claims, foreign_use=foreign_use, index=index)
    state = build_cluster_state(seen, held_by)
    by_claim = {slot.claim: slot for slot in state.slots.values() if slot.claim}
    return Prefilter(fleet, state, by_claim, FleetFlavors(fleet, offerings, state))


def _class_of(flavors: Sequence[str], pod_set: PodSet) -> tuple[object, ...]:
    return (
        tuple(flavors),
        tuple(sorted(pod_set.requests.items())),
        tuple(sorted(pod_set.node_selector.items())),
        pod_set.required_affinity,
        pod_set.tolerations,
    )


def _free(slot: NodeSlot, requests: Resources, count: int) -> None:
    for resource, amount in (*requests.items(), (PODS, 1)):
        slot.free[resource] = slot.free.get(resource, 0) + amount * count
