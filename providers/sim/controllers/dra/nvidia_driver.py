"""NVIDIA's DRA driver on every node that is labelled for it: what it publishes, and how it fails on demand.

Source: kubernetes-sigs/dra-driver-nvidia-gpu, `cmd/gpu-kubelet-plugin/driver.go` (a pool for each node; with
partitions one slice of all counters and one of devices for each GPU), `resourceslice` of dynamic-resource-allocation,
and the Helm chart's DeviceClasses.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from providers.sim.controllers.dra.devices import DRIVER, Announcement, announced
from providers.sim.controllers.gpus import GpuHardware, PhysicalGpu
from providers.sim.controllers.health import NodeHealth
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.nodework import NodeReconciler, read_node_fault
from providers.sim.controllers.objects import Obj, instant, is_true, labels_of
from providers.sim.store.deviceslices import COUNTER_SETS_MOST, DEVICES_MOST

SERVED: Final = "nvidia.com/dra-kubelet-plugin"
"""`"true"` on the nodes where the driver's kubelet plugin runs."""
DYNAMIC: Final = "muster.dev/dra-dynamic-mig"
"""`"true"` on the nodes whose driver runs with the feature gate DynamicMIG."""
COMPUTE_DOMAINS: Final = "compute-domain.nvidia.com"
CLASSES: Final[Mapping[str, tuple[str, str, str]]] = {
    "gpu.nvidia.com": (DRIVER, "gpu", ""),
    "mig.nvidia.com": (DRIVER, "mig", ""),
    "compute-domain-daemon.nvidia.com": (COMPUTE_DOMAINS, "daemon", ""),
    "compute-domain-default-channel.nvidia.com": (COMPUTE_DOMAINS, "channel", ".id == 0"),
}
"""DeviceClass -> driver, type, and what else its devices must be."""


@dataclass(frozen=True, slots=True)
class DraOptions:
    """How the driver is set up, and how fast it is.

    `first_delay_s`: from the creation of a node, or its label, to slices; `restart_delay_s`: from GPUs that were cut
    anew to slices that say so; `consumable_shares` as the driver's flag (`unlimited`, `memory` or a number).
    """

    first_delay_s: float = 30.0
    restart_delay_s: float = 10.0
    consumable_shares: str = ""


@dataclass(frozen=True, slots=True)
class DraFault:
    """Something that goes wrong with the driver of a node.

    | kind | value | |
    |---|---|---|
    | `fail` | a number, or true for 1 | so many preparations of claims fail |
    | `silent` | true, false | the driver's pod is gone: slices stay, claims cannot be prepared |
    | `withdraw` | true, false | the driver announces nothing |
    | `taint` | a device, or "" | that device is unhealthy: it has a taint with the effect NoExecute |
    """

    node: str
    kind: str
    value: bool | int | str


_VALUES: Final[Mapping[str, Callable[[object], bool]]] = {
    "fail": lambda value: value is True or (type(value) is int and value >= 0),
    "silent": lambda value: isinstance(value, bool),
    "withdraw": lambda value: isinstance(value, bool),
    "taint": lambda value: isinstance(value, str) and re.fullmatch(r"|gpu-[a-z0-9-]{1,58}", value) is not None,
}


def read_dra_fault(body: Mapping[str, Any]) -> DraFault:
    """`{"node": "...", "fail": 2}`; raises ValueError with what there is where it is none."""
    return DraFault(*read_node_fault(body, _VALUES))


@dataclass(slots=True)
class _DriverPod:
    """The driver's pod on one node: what it knows of the GPUs since its last start, and what is wrong with it."""

    ready_at: float
    gpus: tuple[PhysicalGpu, ...]
    dynamic: bool


@dataclass(slots=True)
class DriverFaults:
    """What is wrong with the drivers, by node."""

    failing: dict[str, int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    tainted: dict[str, str] = field(default_factory=dict)


class NvidiaDraDriver(NodeReconciler):
    """Publishes the GPUs of nodes; keys are nodes."""

    name = "dra-driver"

    def __init__(
        self, cluster: MirroredCluster, hardware: GpuHardware, health: NodeHealth, options: DraOptions | None = None
    ) -> None:
        super().__init__(cluster, health)
        self._hardware = hardware
        self._options = options or DraOptions()
        self._plugins: dict[str, _DriverPod] = {}
        self._faults = DriverFaults()
        self._orders: deque[DraFault] = deque()
        self._slices = cluster.mirror("ResourceSlice", "resource.k8s.io")
        self._slices.index("node", lambda held: (held["spec"].get("nodeName") or "",))
        self._slices.watch(self._on_slice)
        self._classes = cluster.mirror("DeviceClass", "resource.k8s.io")
        self._installed = False

    def forget(self, node: Obj) -> None:
        """The driver's pod goes with the machine; its slices are the garbage collector's."""
        self._plugins.pop(node["metadata"]["uid"], None)

    def _on_slice(self, old: Obj | None, new: Obj | None) -> None:
        held = new or old or {}
        if held["spec"].get("driver") in (DRIVER, COMPUTE_DOMAINS) and held["spec"].get("nodeName"):
            self._queue.add(held["spec"]["nodeName"])

    def step(self, now: float) -> float | None:
        """Install the chart's classes at first; faults happen before anything else."""
        if not self._installed:
            self._installed = True
            for name, (driver, kind, more) in CLASSES.items():
                if self._classes.get(("", name)) is None:
                    self._classes.create(_device_class(name, driver, kind, more))
        while self._orders:
            self._happen(self._orders.popleft())
        return super().step(now)

    def reconcile(self, key: str, now: float) -> float | None:
        """Publish what one node's GPUs are."""
        node = self._nodes.get(("", key))
        if node is None or not self._health.of(key).reports:
            return None
        if self._hardware.shape(node) is None or labels_of(node).get(SERVED) != "true":
            self._plugins.pop(node["metadata"]["uid"], None)
            self._publish(node, {})
            return None
        if not is_true(node, "Ready") or key in self._faults.silent:
            return None
        plugin = self._plugin(node, now)
        if now < plugin.ready_at:
            return plugin.ready_at
        self._publish(node, {} if key in self._faults.withdrawn else self._contents(node, plugin))
        return None

    def _plugin(self, node: Obj, now: float) -> _DriverPod:
        """The driver's pod; it starts anew when the GPUs were cut, or it is set up otherwise."""
        uid, dynamic = node["metadata"]["uid"], labels_of(node).get(DYNAMIC) == "true"
        plugin = self._plugins.get(uid)
        if plugin is None:
            born = instant(node["metadata"]["creationTimestamp"])
            first = born + self._options.first_delay_s
            plugin = self._plugins[uid] = _DriverPod(max(first, now), (), dynamic)
            self._start(node, plugin)
        elif plugin.dynamic != dynamic or plugin.gpus != self._hardware.of(node):
            plugin.ready_at, plugin.dynamic = now + self._options.restart_delay_s, dynamic
            self._start(node, plugin)
        return plugin

    def _start(self, node: Obj, plugin: _DriverPod) -> None:
        """Look at the GPUs; with DynamicMIG instances that nobody is known to use are destroyed."""
        gpus = self._hardware.of(node)
        if plugin.dynamic and any(gpu.profiles for gpu in gpus):
            self._hardware.cut(node, tuple(PhysicalGpu({}) if gpu.mig_enabled else gpu for gpu in gpus))
        plugin.gpus = self._hardware.of(node)

    # Slices

    def _contents(self, node: Obj, plugin: _DriverPod) -> dict[str, list[Obj]]:
        shape = self._hardware.shape(node)
        if shape is None:
            return {}
        uid, shares = node["metadata"]["uid"], self._options.consumable_shares
        found = announced(uid, shape, plugin.gpus, dynamic=plugin.dynamic, shares=shares)
        tainted = self._faults.tainted.get(node["metadata"]["name"])
        channels = [
            {"name": f"{kind}-0", "attributes": {"id": {"int": 0}, "type": {"string": kind}}}
            for kind in ("channel", "daemon")
        ]
        return {DRIVER: list(_slices_of(found, tainted)), COMPUTE_DOMAINS: [{"devices": channels}]}

    def _publish(self, node: Obj, wanted: Mapping[str, Sequence[Obj]]) -> None:
        """Make the slices of the node's pools be these; a pool that changes is of the next generation."""
        name = node["metadata"]["name"]
        for driver in (DRIVER, COMPUTE_DOMAINS):
            held = [it for it in self._slices.by("node", name) if it["spec"]["driver"] == driver]
            contents = list(wanted.get(driver, ()))
            if [_content(it) for it in held] == contents and all(_counted(it, len(held)) for it in held):
                continue
            generation = 1 + max((it["spec"]["pool"]["generation"] for it in held), default=0)
            for extra in held[len(contents) :]:
                self._slices.delete(extra)
            for i, content in enumerate(contents):
                pool = {"name": name, "generation": generation, "resourceSliceCount": len(contents)}
                spec = {"driver": driver, "nodeName": name, "pool": pool, **content}
                if i < len(held):
                    self._slices.update({**held[i], "spec": spec})
                else:
                    self._slices.create(_slice(node, f"{name}-{driver}-{i:02d}", spec))

    # Faults

    def cause(self, fault: DraFault) -> None:
        """Let a fault happen at the next step, from any thread; raises ValueError where the node has no driver."""
        node = self._nodes.get(("", fault.node))
        if node is None or labels_of(node).get(SERVED) != "true":
            raise ValueError(f"no node {fault.node!r} with the DRA driver")
        self._orders.append(fault)
        self._health.look_again()

    def _happen(self, fault: DraFault) -> None:
        name, faults = fault.node, self._faults
        self._queue.add(name)
        match fault.kind:
            case "fail":
                faults.failing[name] = int(fault.value)
            case "taint":
                faults.tainted[name] = str(fault.value)
            case kind:
                held = faults.silent if kind == "silent" else faults.withdrawn
                (held.add if fault.value else held.discard)(name)

    def why_not_prepared(self, node: str, claim: Obj) -> str | None:
        """What the kubelet of a node hears when it asks the drivers to prepare a claim; None: it is prepared."""
        drivers = {it["driver"] for it in claim["status"]["allocation"]["devices"].get("results") or ()}
        for driver in sorted(drivers):
            published = any(it["spec"]["driver"] == driver for it in self._slices.by("node", node))
            if driver in (DRIVER, COMPUTE_DOMAINS) and (node in self._faults.silent or not published):
                return f"DRA driver {driver} is not registered"
        left = self._faults.failing.get(node, 0)
        if left and DRIVER in drivers:
            self._faults.failing[node] = left - 1
            name, uid = claim["metadata"]["name"], claim["metadata"]["uid"]
            what = f"error preparing devices for claim {claim['metadata']['namespace']}/{name}:{uid}"
            return f"NodePrepareResources failed for ResourceClaim {name}: {what}: prepare devices failed: injected"
        return None


def _slices_of(found: Announcement, tainted: str | None) -> Iterator[Obj]:
    """What is announced, as slices: together where nothing is counted, else the counters and a slice for each GPU."""
    taint = [{"key": "gpu.nvidia.com/unhealthy", "effect": "NoExecute"}]
    by_gpu = [[{**it, "taints": taint} if it["name"] == tainted else it for it in gpu] for gpu in found.devices]
    if not found.counters:
        devices = [device for gpu in by_gpu for device in gpu]
        most = DEVICES_MOST if not tainted else DEVICES_MOST // 2
        yield from ({"devices": devices[i : i + most]} for i in range(0, max(len(devices), 1), most))
        return
    for i in range(0, len(found.counters), COUNTER_SETS_MOST):
        yield {"sharedCounters": list(found.counters[i : i + COUNTER_SETS_MOST])}
    yield from ({"devices": gpu} for gpu in by_gpu)


def _content(held: Obj) -> Obj:
    return {part: held["spec"][part] for part in ("devices", "sharedCounters") if part in held["spec"]}


def _counted(held: Obj, count: int) -> bool:
    return bool(held["spec"]["pool"]["resourceSliceCount"] == count)


def _slice(node: Obj, name: str, spec: Obj) -> Obj:
    meta = node["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"], "controller": True}
    return {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}


def _device_class(name: str, driver: str, kind: str, more: str) -> Obj:
    attributes = f"device.attributes['{driver}']"
    parts = [f"device.driver == '{driver}'", f"{attributes}.type == '{kind}'", *([attributes + more] if more else [])]
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": " && ".join(parts)}}]}}
