"""The devices that there are and who has them, as of the last sync: what an allocation is made from.

Source: `structured/internal/*/pools_*.go` and `dynamicresources/allocateddevices.go`. A pool counts as its newest
generation says; while slices of it are missing nothing is taken from it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from providers.sim.controllers.dra.extended import classes_by_resource
from providers.sim.controllers.matching import node_selector_matches
from providers.sim.controllers.mirror import InformerCache, MirroredCluster
from providers.sim.controllers.objects import Obj, status_of
from providers.sim.controllers.scheduling import SchedulableNode
from providers.sim.store.amounts import amount
from providers.sim.store.deviceslices import TAINT_RULES

_BY_DEVICE: Final = "perDeviceNodeSelection"
CounterKey = tuple[str, str]
"""Counter set and counter."""


class DeviceId(NamedTuple):
    """A device of the cluster."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class PooledDevice:
    """A device of a pool, with where it can be used."""

    id: DeviceId
    body: Obj
    place: Obj
    """What says on which nodes: the spec of the slice, or the device itself."""

    def reaches(self, node: SchedulableNode) -> bool:
        """Whether it can be used on a node."""
        if self.place.get("nodeName"):
            return bool(self.place["nodeName"] == node.name)
        selector = self.place.get("nodeSelector")
        return bool(self.place.get("allNodes")) or (
            selector is not None and node_selector_matches(selector, node.labels, node.name)
        )

    def consumed(self) -> Mapping[CounterKey, Fraction]:
        """What it takes of the counters of its pool."""
        return {
            (part["counterSet"], name): amount(counter["value"])
            for part in self.body.get("consumesCounters") or ()
            for name, counter in part["counters"].items()
        }

    @property
    def shareable(self) -> bool:
        """Whether several claims may have it at once."""
        return bool(self.body.get("allowMultipleAllocations"))


@dataclass(frozen=True, slots=True)
class ResourcePool:
    """One pool of one driver, as of its newest generation."""

    driver: str
    name: str
    devices: tuple[PooledDevice, ...]
    counters: Mapping[CounterKey, Fraction]
    incomplete: bool
    invalid: bool
    """Two devices have one name."""


@dataclass(slots=True)
class HeldDevices:
    """What is taken of devices: whole ones, and so much of those that several may have."""

    whole: set[DeviceId] = field(default_factory=set)
    parts: dict[DeviceId, dict[str, Fraction]] = field(default_factory=dict)
    """By capacity; under the empty name, by how many."""


class DeviceInventory:
    """The slices and claims of a cluster, by pool and by device."""

    def __init__(self, cluster: MirroredCluster) -> None:
        self.claims = cluster.mirror("ResourceClaim", "resource.k8s.io")
        self.classes = cluster.mirror("DeviceClass", "resource.k8s.io")
        self.slices = cluster.mirror("ResourceSlice", "resource.k8s.io")
        self.rules = taint_rules(cluster)
        self._pools: dict[tuple[str, str], ResourcePool] = {}
        self._by_pool: dict[tuple[str, str], dict[str, Obj]] = {}
        self._local: dict[str, set[tuple[str, str]]] = {}
        self._everywhere: set[tuple[str, str]] = set()
        self._holding = HeldDevices()
        self._stale = True
        self._extended: dict[str, str] | None = None
        self.classes.watch(self._on_class)
        self.slices.watch(self._on_slice)
        self.claims.watch(self._on_claim)
        if self.rules is not None:
            self.rules.watch(lambda _old, _new: self._pools.clear())

    def _on_class(self, _old: Obj | None, _new: Obj | None) -> None:
        self._extended = None

    @property
    def mirrors(self) -> tuple[InformerCache, ...]:
        """All that an allocation is made from: a pod that found none may find one when one of them changes."""
        return (self.claims, self.slices, self.classes, *(() if self.rules is None else (self.rules,)))

    @property
    def extended(self) -> Mapping[str, str]:
        """Extended resource -> the DeviceClass that stands for it."""
        if self._extended is None:
            self._extended = classes_by_resource(self.classes)
        return self._extended

    def _on_slice(self, old: Obj | None, new: Obj | None) -> None:
        for held in (old, new):
            if held is not None:
                spec = held["spec"]
                key = (spec["driver"], spec["pool"]["name"])
                self._pools.pop(key, None)
                self._by_pool.setdefault(key, {}).pop(held["metadata"]["name"], None)
        if new is not None:
            spec = new["spec"]
            key = (spec["driver"], spec["pool"]["name"])
            self._by_pool[key][new["metadata"]["name"]] = new
            places = self._local.setdefault(spec["nodeName"], set()) if spec.get("nodeName") else self._everywhere
            places.add(key)

    def _on_claim(self, old: Obj | None, new: Obj | None) -> None:
        before, after = (status_of(it or {}).get("allocation") for it in (old, new))
        if before != after:
            self._stale = True

    def pools_for(self, node: SchedulableNode) -> list[ResourcePool]:
        """The pools with a device for a node, by driver and name."""
        keys = sorted(self._local.get(node.name, set()) | self._everywhere)
        return [pool for key in keys if self._by_pool.get(key) and (pool := self._pool(key)).devices]

    def _pool(self, key: tuple[str, str]) -> ResourcePool:
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = _pooled(*key, self._by_pool[key].values(), self.rules or ())
        return found

    def holding(self) -> HeldDevices:
        """What the claims of the cluster have."""
        if self._stale:
            self._holding, self._stale = _held_by(self.claims), False
        return self._holding

    def left(self, pool: ResourcePool) -> dict[CounterKey, Fraction]:
        """What is left of the counters of a pool."""
        left, whole = dict(pool.counters), self.holding().whole
        parts = self.holding().parts
        for device in pool.devices:
            if device.id in whole or device.id in parts:
                for key, taken in device.consumed().items():
                    left[key] = left.get(key, Fraction(0)) - taken
        return left


def taint_rules(cluster: MirroredCluster) -> InformerCache | None:
    """The DeviceTaintRules of a cluster; None where its API server has none."""
    served = any(it.key == TAINT_RULES for it in cluster.store.resources())
    return cluster.mirror("DeviceTaintRule", "resource.k8s.io") if served else None


def taints_of(device: DeviceId, body: Obj, rules: Iterable[Obj]) -> list[Obj]:
    """The taints of a device: those that its driver publishes, and those of rules that select it."""
    given = (it["spec"]["taint"] for it in rules if _selects(it["spec"].get("deviceSelector"), device))
    return [*(body.get("taints") or ()), *given]


def _selects(wanted: Obj | None, device: DeviceId) -> bool:
    """Without a selector a rule is about no device."""
    return wanted is not None and all(wanted.get(field) in (None, has) for field, has in device._asdict().items())


def _pooled(driver: str, name: str, slices: Iterable[Obj], rules: Iterable[Obj]) -> ResourcePool:
    newest = max(it["spec"]["pool"]["generation"] for it in slices)
    current = sorted(
        (it for it in slices if it["spec"]["pool"]["generation"] == newest), key=lambda it: str(it["metadata"]["name"])
    )
    devices = tuple(
        PooledDevice(
            id_, _tainted(body, taints_of(id_, body, rules)), body if it["spec"].get(_BY_DEVICE) else it["spec"]
        )
        for it in current
        for body in it["spec"].get("devices") or ()
        for id_ in (DeviceId(driver, name, body["name"]),)
    )
    counters = {
        (part["name"], counter): amount(held["value"])
        for it in current
        for part in it["spec"].get("sharedCounters") or ()
        for counter, held in part["counters"].items()
    }
    incomplete = len(current) != current[0]["spec"]["pool"]["resourceSliceCount"]
    return ResourcePool(driver, name, devices, counters, incomplete, len({it.id for it in devices}) < len(devices))


def _tainted(body: Obj, taints: list[Obj]) -> Obj:
    return {**body, "taints": taints} if taints else body


def _held_by(claims: Iterable[Obj]) -> HeldDevices:
    found = HeldDevices()
    for claim in claims:
        allocation = status_of(claim).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            device = DeviceId(result["driver"], result["pool"], result["device"])
            if result.get("shareID") is None:
                found.whole.add(device)
                continue
            taken = found.parts.setdefault(device, {})
            taken[""] = taken.get("", Fraction(0)) + 1
            for name, value in (result.get("consumedCapacity") or {}).items():
                taken[name] = taken.get(name, Fraction(0)) + amount(value)
    return found
