"""Lists the offerings of pools: every way to buy a machine, with what pods will find on it.

An offering is (offer of the catalogue x MIG layout) of a pool: type, zone, capacity type, price, allocatable with that
layout and without what DaemonSets take, and the labels and taints that the node will carry.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from fleet.catalog import Catalog, InstanceOffer, InstanceType
from fleet.mig.layouts import WHOLE, cut, is_cuttable, layout_name, pool_layouts, with_gpus
from fleet.offerings.allocatable import KEPT_FOR_NODES, corrected, profiled, with_capacity
from fleet.offerings.min_values import asked_values, shared_rooms
from fleet.offerings.overlays import PoolOverlays, applied_overlays
from fleet.offerings.reservations import (
    DISCOUNT,
    NO_RESERVATIONS,
    RESERVATION_LABELS,
    RESERVED,
    ReservationSelector,
    closes_s,
    reservation_selector,
    reserved_labels,
)
from model import labels
from model.fleet import Fleet
from model.gpu_sharing import plugin_config_name
from model.index import Index, derived
from model.kinds import NodePool, Taint
from model.kinds.node_pool import Sharing
from model.mig import ALL_DISABLED
from model.pools import pool_hash, pool_requirements
from model.quantity import Resources
from model.requirements import Requirements

if TYPE_CHECKING:  # fleets are checked against what is sold without what is observed
    from fleet.snapshot import DaemonOverhead, Measured, OfferingKey, Snapshot
    from fleet.snapshot.devices import MachineDevices, TaintRules

_MachineName = Hashable
"""An instance type, and what overlays add to it."""


@dataclass(slots=True)  # never changed; frozen ones take three times as long to make, and there are thousands
class Offering:
    """An `Offering` is one way to buy a machine from a pool (Karpenter's `Offering`, for one NodePool and layout)."""

    pool: NodePool
    offer: InstanceOffer
    layout: str
    """MIG configuration name; empty = GPUs are not partitioned."""
    allocatable: Resources
    """Amounts left for pods once DaemonSets have taken theirs; CPU and so on in the units of `model.quantity`."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    pool_hash: str
    """Hash of the pool's template, by which drift is judged later (`model.pools`)."""
    layout_rank: int = 0
    """Place of the layout in the pool's order."""
    closes_s: float = inf
    """When the machine stops taking new work because its capacity block ends (epoch seconds); inf = never."""
    flexible_room: Resources | None = None
    """What of `allocatable` enough other kinds of the pool hold, too, for its `minValues`; None = all of it."""
    devices: "MachineDevices | None" = field(default=None, repr=False, compare=False)
    """What pods will be able to claim on the machine, where the DRA driver offers it."""
    fabric_on_request: bool = False
    """Whether it has its network fabric for pods that ask for that; the pool buys the same machine without."""
    preference: "Preference" = field(init=False, repr=False, compare=False)
    """What decides between equal prices; every search for a class of pods asks it."""

    key: "OfferingKey" = field(init=False, repr=False, compare=False)
    """Breaks ties between offerings; of equal ones the pool's first layout wins."""

    def __post_init__(self) -> None:
        offer = self.offer
        self.preference = preference(offer)
        self.key = (
            self.pool.name,
            offer.instance_type.name,
            offer.zone,
            offer.capacity_type,
            offer.reservation.id if offer.reservation else "",
            self.layout_rank,
            self.layout,
            self.fabric_on_request,
        )


@dataclass(slots=True)
class Offerings:
    """`Offerings` computes the offerings of a fleet pool by pool, and keeps them; see `offerings_now`.

    They do not depend on how many machines there are, so they stay valid whatever happens in the cluster.
    """

    fleet: Fleet
    catalog: Catalog
    daemons: tuple["DaemonOverhead", ...] = ()
    reserved: ReservationSelector = NO_RESERVATIONS
    measured: "Measured" = field(default_factory=dict)
    taint_rules: "TaintRules" = ()
    index: Index = field(default_factory=Index, repr=False, compare=False)
    """Where computed node profiles and overlays are kept."""
    _by_pool: dict[str, tuple[Offering, ...]] = field(default_factory=dict)
    _zones: dict[str, frozenset[str]] = field(default_factory=dict)
    _resources: dict[str, frozenset[str]] = field(default_factory=dict)

    def of(self, pool: NodePool) -> tuple[Offering, ...]:
        """Returns every offering of the pool, including those that are short or full now; sorted by price, then key."""
        if pool.name not in self._by_pool:
            self._by_pool[pool.name] = self.of_variant(pool)
        return self._by_pool[pool.name]

    def of_variant(self, pool: NodePool) -> tuple[Offering, ...]:
        """Returns the offerings of a pool whose declaration differs from the fleet's pool of that name; not kept."""
        found = sorted(self._build(pool), key=lambda offering: (offering.offer.price_usd_h, offering.key))
        if not asked_values(pool):
            return tuple(found)
        rooms = zip(found, shared_rooms(pool, found), strict=True)
        return tuple(replace(it, flexible_room=room) for it, room in rooms)

    def zones(self, pool: NodePool) -> frozenset[str]:
        """Returns the zones in which the pool can buy."""
        if pool.name not in self._zones:
            self._zones[pool.name] = frozenset([offering.offer.zone for offering in self.of(pool)])
        return self._zones[pool.name]

    def resources(self, pool: NodePool) -> frozenset[str]:
        """Returns every resource that some machine of the pool has for pods."""
        if pool.name not in self._resources:
            self._resources[pool.name] = frozenset(chain.from_iterable([it.allocatable for it in self.of(pool)]))
        return self._resources[pool.name]

    def _build(self, pool: NodePool) -> Iterator[Offering]:
        """Yields the pool's offerings: each offer that meets its requirements, with each of its MIG layouts."""
        wanted, born_with = pool_requirements(pool), pool_hash(pool)
        overlays = applied_overlays(self.index, self.fleet, self.catalog).of(pool)
        able: dict[str, InstanceType | None] = {}
        cuts: dict[_MachineName, list[_MachineCut]] = {}
        there: dict[tuple[int, str], dict[str, str]] = {}
        for offer in self._meeting(pool, wanted):
            name = offer.instance_type.name
            if name not in able:
                able[name] = self._machine(pool, wanted, offer.instance_type)
            if (machine := able[name]) is None:
                continue
            more = overlays.resources_of(offer)
            kind = (name, *sorted(more.items())) if more else name
            if (ways := cuts.get(kind)) is None:
                ways = cuts[kind] = list(self._cuts(pool, with_capacity(machine, more), born_with))
            for one in ways:
                priced, like = _overlaid(offer, one.machine, overlays), (id(one), offer.capacity_type)
                own = self._labels(pool, priced, one.layout, there.get(like))
                if offer.reservation is None:
                    there[like] = own
                yield self._offering(pool, priced, one, born_with, own)

    def _cuts(self, pool: NodePool, machine: InstanceType, born_with: str) -> "Iterator[_MachineCut]":
        """Yields the ways in which the pool has a machine: whole, or in each of the layouts that fit its GPUs."""
        layouts = pool_layouts(self.fleet, pool)
        offered = corrected(machine.allocatable, self.measured.get((machine.name, born_with)))
        for rank, layout in enumerate(layouts or (WHOLE,)):
            devices = self._devices(pool, machine, layout)
            gpus = cut(machine, layouts[layout]) if layout else whole_gpus(pool, machine)
            if gpus is not None:
                room = with_gpus(offered, gpus if devices is None else devices.amounts)
                yield from _by_fabric(pool, _MachineCut(machine, layout, rank, room, devices))

    def _meeting(self, pool: NodePool, wanted: Requirements) -> Iterator[InstanceOffer]:
        """Yields the offers whose capacity type, zone and reservation a pool's requirements (`wanted`) allow."""
        for offers in _offers_by_place(self.index, self.catalog).values():
            if _meets(wanted, offers[0]):
                yield from offers
        yield from (offer for offer in self._reserved_offers(pool) if _meets(wanted, offer))

    def _machine(self, pool: NodePool, wanted: Requirements, machine: InstanceType) -> InstanceType | None:
        """Returns an instance type as nodes of the pool have it; None if it may not have it.

        A kubelet that is to keep all there is for itself does not start (kubelet `validateNodeAllocatable`).
        """
        if not self.suits(pool, wanted, machine):
            return None
        found = profiled(self.index, self.catalog.profiles, pool, machine)
        starts = all(found.allocatable.get(name, 1) > 0 for name in KEPT_FOR_NODES)
        return found if starts else None

    def _reserved_offers(self, pool: NodePool) -> Iterator[InstanceOffer]:
        """Yields an offer for each reservation the pool selects, in zones that the catalogue knows.

        Its list price is the on-demand price of its type in its zone, else the least in any; a type that is sold in
        capacity blocks only has none.
        """
        found = self.reserved.of(pool)
        if not found:
            return
        zones = {offer.zone for offer in self.catalog.offers}
        prices: dict[str, float] = {}
        here: dict[tuple[str, str], float] = {}
        for offer in self.catalog.offers:
            if offer.capacity_type == "on-demand":
                name = offer.instance_type.name
                here[name, offer.zone] = offer.price_usd_h
                prices[name] = min(offer.price_usd_h, prices.get(name, inf))
        for reservation in found:
            machine = self.catalog.types.get(reservation.instance_type)
            if machine is not None and reservation.zone in zones:
                listed = here.get((machine.name, reservation.zone), prices.get(machine.name))
                yield InstanceOffer(
                    machine, reservation.zone, RESERVED, (listed or 0.0) / DISCOUNT, reservation, listed
                )

    @staticmethod
    def suits(pool: NodePool, wanted: Requirements, machine: InstanceType) -> bool:
        """Returns whether the pool's GPU, fabric and other requirements (`wanted`) allow the instance type."""
        if pool.spec.placement.fabric is True and not machine.fabric_interfaces:
            return False
        if pool.spec.gpu is not None and not machine.gpu_count:
            return False  # a fraction of a GPU (g6f) has a GPU's name but is no whole one
        fraction = labels.GPU_FRACTION
        if fraction in wanted and fraction not in machine.labels and not wanted[fraction].allows_absent:
            return False
        carried = {**machine.labels, **pool.spec.template.labels, labels.NODE_POOL: pool.name}
        return wanted.met_by(carried, undefined=_DECIDED_LATER)

    def _devices(self, pool: NodePool, machine: InstanceType, layout: str) -> "MachineDevices | None":
        """Returns what pods can claim on a machine; None where the device plugin offers its GPUs."""
        if pool.spec.sharing.dra is None:
            return None
        from fleet.offerings.device_templates import machine_devices

        return machine_devices(self.index, self.fleet, pool, machine, layout, self.taint_rules)

    def _labels(self, pool: NodePool, offer: InstanceOffer, layout: str, like: dict[str, str] | None) -> dict[str, str]:
        """Returns the labels of an offer's nodes; `like` are those of the same machine, perhaps in another zone."""
        if like is None or offer.reservation is not None or labels.ZONE in pool.spec.template.labels:
            return node_labels_of(pool, offer, layout, self.catalog.region)
        return like | {labels.ZONE: offer.zone}

    def _offering(
        self, pool: NodePool, offer: InstanceOffer, one: "_MachineCut", born_with: str, node_labels: dict[str, str]
    ) -> Offering:
        """Returns the offering of nodes with these labels, without what DaemonSets take."""
        left = one.room
        for daemon in self.daemons:
            if all(node_labels.get(key) == value for key, value in daemon.node_selector.items()):
                left = dict(left)
                for resource, amount in (*daemon.requests.items(), ("pods", 1)):
                    left[resource] = left.get(resource, 0) - amount
        closes_at_s = inf if offer.reservation is None else closes_s(pool, offer.reservation)
        return Offering(
            *(pool, offer, one.layout, left, node_labels, pool.spec.template.taints, born_with, one.rank, closes_at_s),
            devices=one.devices,
            fabric_on_request=one.fabric_on_request,
        )


class _MachineCut(NamedTuple):
    """An instance type as nodes of a pool have it in one of the pool's layouts."""

    machine: InstanceType
    layout: str
    rank: int
    room: Resources
    """What is left for pods and DaemonSets."""
    devices: "MachineDevices | None"
    fabric_on_request: bool = False


def _by_fabric(pool: NodePool, own: _MachineCut) -> Iterator[_MachineCut]:
    """Yields a machine that has a network fabric as its pool buys it: with that, without, or both ways.

    Source: aws/karpenter-provider-aws `pkg/providers/amifamily/resolver.go`, which attaches interfaces for claims that
    ask for the resource alone.
    """
    fabric, resource = pool.spec.placement.fabric, own.machine.fabric_resource
    if fabric is True or resource not in own.room:
        yield own
        return
    yield own._replace(room={name: it for name, it in own.room.items() if name != resource})
    if fabric:
        yield own._replace(fabric_on_request=True)


def offerings_now(fleet: Fleet, snapshot: "Snapshot") -> Offerings:
    """Returns the offerings of a fleet.

    The same object until revision, prices, reservations, measurements, DaemonSets or rules about devices change.
    """
    seen, reserved = (snapshot.catalog, snapshot.daemon_overheads), reservation_selector(snapshot)
    return _offerings(snapshot.index, fleet, *seen, reserved, snapshot.measured, snapshot.devices.rules)


def work_out_offerings(fleet: Fleet, snapshot: "Snapshot") -> None:
    """Works out what all pools can buy while nobody waits for it: it is kept until prices or declarations change."""
    known = offerings_now(fleet, snapshot)
    for pool in fleet.node_pools.values():
        known.resources(pool)


@derived(4)
def _offerings(
    index: Index,
    fleet: Fleet,
    catalog: Catalog,
    daemons: tuple["DaemonOverhead", ...],
    reserved: ReservationSelector,
    measured: "Measured",
    taint_rules: "TaintRules",
) -> Offerings:
    return Offerings(fleet, catalog, daemons, reserved, measured, taint_rules, index)


@derived(2)
def _offers_by_place(_index: Index, catalog: Catalog) -> Mapping[Hashable, Sequence[InstanceOffer]]:
    """Returns the offers by capacity type, zone and reservation: which of these suit a pool is asked once for all."""
    found: dict[Hashable, list[InstanceOffer]] = {}
    for offer in catalog.offers:
        found.setdefault((offer.capacity_type, offer.zone, offer.reservation and offer.reservation.id), []).append(
            offer
        )
    return found


def _overlaid(offer: InstanceOffer, machine: InstanceType, overlays: PoolOverlays) -> InstanceOffer:
    """Returns the offer with the pool's instance type and with the price that overlays set."""
    price_usd_h = overlays.price_usd_h(offer)
    if machine is offer.instance_type and price_usd_h == offer.price_usd_h:
        return offer
    return replace(offer, instance_type=machine, price_usd_h=price_usd_h)


def _meets(wanted: Requirements, offer: InstanceOffer) -> bool:
    """Returns whether the pool's requirements allow the offer's capacity type, zone and reservation."""
    if not wanted.of(labels.CAPACITY_TYPE).has(offer.capacity_type) or not wanted.of(labels.ZONE).has(offer.zone):
        return False
    return _reservation_meets(wanted, offer)


def _reservation_meets(wanted: Requirements, offer: InstanceOffer) -> bool:
    """Returns whether the offer's reservation, or the lack of one, meets the pool's requirements on its labels."""
    carried = reserved_labels(offer.reservation) if offer.reservation else {}
    for key in RESERVATION_LABELS:
        asked, value = wanted.get(key), carried.get(key)
        if asked is not None and not (asked.allows_absent if value is None else asked.has(value)):
            return False
    return True


_DECIDED_LATER = (labels.WELL_KNOWN | {labels.MIG_LAYOUT}) - labels.OF_SOME_MACHINES
"""Labels that the offer and the layout decide, not the instance type."""


def whole_gpus(pool: NodePool, machine: InstanceType) -> dict[str, int]:
    """Returns the GPU resources without a MIG layout: GPUs, or their replicas under time-slicing and MPS.

    A fraction of a GPU counts as one GPU where the pool requires fractions: only its image can have the driver they
    need.
    """
    amount = machine.allocatable.get(labels.GPU_RESOURCE, 0)
    if not amount and labels.GPU_FRACTION in machine.labels and _asks_for_fractions(pool):
        amount = 1
    amount *= pool.spec.sharing.replicas
    return {pool.spec.sharing.resource: amount} if amount else {}


def _asks_for_fractions(pool: NodePool) -> bool:
    """Returns whether the pool requires machines with a fraction of a GPU."""
    return any(term.key == labels.GPU_FRACTION and term.operator != "DoesNotExist" for term in pool.spec.requirements)


def node_labels_of(pool: NodePool, offer: InstanceOffer, layout: str, region: str) -> dict[str, str]:
    """Returns the labels that nodes of this pool and offer will carry."""
    found = dict(offer.instance_type.labels)
    found |= {
        labels.ZONE: offer.zone,
        labels.REGION: region,
        labels.CAPACITY_TYPE: offer.capacity_type,
        labels.NODE_POOL: pool.name,
    }
    if offer.reservation is not None:
        found |= reserved_labels(offer.reservation)
    if layout:
        found |= {labels.MIG_CONFIG: layout, labels.MIG_LAYOUT: layout_name(layout)}
    elif is_cuttable(offer.instance_type) and not pool.spec.sharing.dynamic_mig:
        found[labels.MIG_CONFIG] = ALL_DISABLED  # else the GPU operator would write it, in its own time
    if shared := plugin_config_name(pool.spec.sharing):
        found[labels.DEVICE_PLUGIN_CONFIG] = shared
    found |= _dra_labels(pool.spec.sharing)
    return found | pool.spec.template.labels


def _dra_labels(sharing: Sharing) -> dict[str, str]:
    """Returns the labels by which the GPU operator runs the DRA driver on a node instead of the device plugin."""
    if sharing.dra is None:
        return {}
    found = {labels.DRA_PLUGIN: "true", labels.DEPLOY_DEVICE_PLUGIN: "false"}
    if sharing.dynamic_mig:  # the driver destroys partitions that it has not made
        found |= {labels.DRA_DYNAMIC_MIG: "true", labels.DEPLOY_MIG_MANAGER: "false"}
    return found


# -- equally dear offers ----------------------------------------------------------------------------------------------
#
# Prices decide first. Source of the order among equals: aws/karpenter-provider-aws `pkg/providers/instance/filter`
# (v1.14). There machines with accelerators and bare metal are left out of a launch whatever they cost, as long as it
# names any other; here they come last among equals.


class Preference(NamedTuple):
    """A `Preference` is the sort key of offers of one price; the lower is preferred."""

    exotic: bool
    """Whether the machine has accelerators or is bare metal, which takes long to boot."""
    may_be_taken_back: bool
    """Whether it may be taken back at short notice: spot, or of an interruptible reservation."""
    ends: bool
    """Whether it ends with its reservation, as the machines of a capacity block do."""


def preference(offer: InstanceOffer) -> Preference:
    """Returns the sort key among equal prices. Work that asks for an accelerator finds exotic machines alone."""
    kept = offer.reservation
    return Preference(
        is_exotic(offer.instance_type),
        offer.capacity_type == "spot" or (kept is not None and kept.interruptible),
        kept is not None and kept.ends_machines,
    )


def is_exotic(machine: InstanceType) -> bool:
    """Returns whether a machine has accelerators, or is bare metal by the name of its size."""
    if "metal" in machine.labels.get(labels.INSTANCE_SIZE, ""):
        return True
    possible = not labels.ACCELERATORS.isdisjoint(machine.capacity)
    return possible and any(map(machine.capacity.get, labels.ACCELERATORS))
