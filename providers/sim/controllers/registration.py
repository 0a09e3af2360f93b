"""Machines become nodes when their kubelet registers, and nodes go when their machine has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

import structlog

from model.quantity import canonical_amount, format_amount
from providers.sim.controllers.gpus import ULTRASERVER
from providers.sim.controllers.health import NodeHealth
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import Obj, being_deleted, is_true, stamp, status_of, with_condition
from providers.sim.controllers.userdata import InvalidUserData, KubeletArguments, kubelet_arguments
from providers.sim.machines import NodeShape, ShapeOf, SimulatedMachine, SimulatedMachines
from providers.sim.store import ApiError, StoreAlreadyExists, StoreConflict, StoreNotFound

_log = structlog.get_logger(__name__)
_PROVIDER = "aws:///"
_ZONE: Final = "topology.kubernetes.io/zone"
_RETRY_S: Final = 10.0
"""From what the API server refuses to the next attempt; a kubelet waits up to seven seconds."""


@dataclass(frozen=True, slots=True)
class RegistrationOptions:
    """Says how long machines take to become nodes, and nodes to go.

    `boot_delay_s(machine)`: launch to registration, None for a machine that never joins. `poll_s`: how often the
    machines are listed. `node_gc_delay_s`: machine gone to node deleted. `extra_labels(machine)`: what the cloud adds
    (network topology).
    """

    boot_delay_s: Callable[[SimulatedMachine], float | None] = field(default=lambda _machine: 60.0)
    poll_s: float = 2.0
    node_gc_delay_s: float = 10.0
    extra_labels: Callable[[SimulatedMachine], Mapping[str, str]] = field(default=lambda _machine: {})


class Registration:
    """Looks at all machines once a poll; each registers once, as a kubelet does: a node deleted under it stays away.

    `refused` says for each machine that never joins because of its user data, why, and `waiting` for each of which the
    API server refuses an object, what it says: it is asked again, its node is not ready until then, and the others go
    on (kubelet `initializeCSINodeWithNode`). `told`: the kernel steps it whenever
    the machines change, so that it need not be woken for polls that would find nothing new.
    """

    name = "registration"

    def __init__(
        self,
        cluster: MirroredCluster,
        machines: SimulatedMachines,
        shape_of: ShapeOf,
        health: NodeHealth,
        options: RegistrationOptions | None = None,
        *,
        told: bool = False,
    ) -> None:
        self._cluster = cluster
        self._machines = machines
        self._shape_of = shape_of
        self._health = health
        self._options = options or RegistrationOptions()
        self._nodes = cluster.mirror("Node")
        self._drivers = cluster.mirror("CSINode", "storage.k8s.io")
        self._registered: dict[str, str] = {}
        self._gone_at: dict[str, float] = {}
        self._listed: Sequence[SimulatedMachine] = ()
        self._nodes_moved = True
        self._nodes.watch(self._on_node)
        self._told = told
        self._next_poll = float("-inf")
        self._wake = float("inf")
        self.refused: dict[str, str] = {}
        self.waiting: dict[str, str] = {}
        self._asked_again_at: dict[str, float] = {}

    def step(self, now: float) -> float | None:
        """Register and remove what is due; what is new is looked at once a poll."""
        self._cluster.sync()
        if self._told and self._next_poll > float("-inf"):
            while self._next_poll < now:
                self._next_poll += self._options.poll_s
        if now >= self._next_poll or now >= self._wake:
            self._next_poll = now + self._options.poll_s
            self._wake = self._look(now)
        return self._wake if self._told and not self._news() else min(self._next_poll, self._wake)

    def _news(self) -> bool:
        return self._nodes_moved or tuple(self._machines.list()) != self._listed

    def _on_node(self, old: Obj | None, new: Obj | None) -> None:
        if old is None or new is None or old["spec"] != new["spec"]:
            self._nodes_moved = True

    def _look(self, now: float) -> float:
        """Act on every machine; the next instant something is due before the next poll."""
        listed = tuple(self._machines.list())
        if listed == self._listed and not self._nodes_moved and now < self._wake:
            return self._wake
        self._listed, self._nodes_moved = listed, False
        machines = {machine.instance_id: machine for machine in listed}
        wakes = [self._boot(machine, now) for _, machine in sorted(machines.items()) if machine.state == "running"]
        wakes += [self._check(node, machines, now) for node in self._nodes]
        for forgotten in [instance for instance in self._registered if instance not in machines]:
            del self._registered[forgotten]
        if self.waiting:
            there = {*machines, *(node["spec"].get("providerID", "").rpartition("/")[2] for node in self._nodes)}
            self.waiting = {instance: told for instance, told in self.waiting.items() if instance in there}
        return min(wakes, default=float("inf"))

    # Up

    def _boot(self, machine: SimulatedMachine, now: float) -> float:
        if machine.instance_id in self._registered or machine.instance_id in self.refused:
            return float("inf")
        delay_s = self._options.boot_delay_s(machine)
        if delay_s is None:
            return float("inf")
        due = max(machine.launched_at + delay_s, self._asked_again_at.get(machine.instance_id, 0.0))
        if now < due:
            return due
        try:
            self._register(machine, kubelet_arguments(machine.user_data), now)
        except InvalidUserData as error:
            self.refused[machine.instance_id] = str(error)
            _log.warning("machine never joins", instance=machine.instance_id, reason=str(error))
        except ApiError as error:
            return self._waits(machine.instance_id, _node_name(machine), error, now)
        self._waits_no_longer(machine.instance_id, _node_name(machine))
        return float("inf")

    def _waits(self, instance: str, node: str, error: ApiError, now: float) -> float:
        """Note what the API server refuses of a machine; returns when it is asked again."""
        if self.waiting.get(instance) != error.message:
            self.waiting[instance] = error.message
            _log.warning("machine waits", instance=instance, reason=error.message)
        if self._health.of(node).reports:
            self._health.make_unready(node, f"the API server refuses an object of the node: {error.message}")
        self._asked_again_at[instance] = now + _RETRY_S
        return now + _RETRY_S

    def _waits_no_longer(self, instance: str, node: str) -> None:
        self._asked_again_at.pop(instance, None)
        if self.waiting.pop(instance, None) is not None and self._health.of(node).reports:
            self._health.heal(node)

    def _register(self, machine: SimulatedMachine, arguments: KubeletArguments, now: float) -> None:
        shape = self._shape_of(machine.instance_type)
        if shape is None:
            raise InvalidUserData(f"nobody knows the shape of {machine.instance_type}")
        node = new_node(machine, shape, arguments, self._options.extra_labels(machine), now)
        if machine.instance_id not in self.waiting:
            self._health.heal(node["metadata"]["name"])
        try:
            self._nodes.create(node)
        except StoreAlreadyExists:
            self._adopt(node)
        self._tell_drivers(node, machine.instance_id, shape.attach_limits)
        self._registered[machine.instance_id] = node["metadata"]["name"]

    def _tell_drivers(self, node: Obj, instance_id: str, limits: Mapping[str, int]) -> None:
        """Write the CSINode of a machine's node, unless another machine has the node."""
        name = node["metadata"]["name"]
        held = self._cluster.store.get(self._nodes.resource, name) if limits else None
        if held is None or held["spec"].get("providerID") != node["spec"]["providerID"]:
            return
        told = csi_node(held, instance_id, limits)
        try:
            self._drivers.create(told)
        except StoreAlreadyExists:  # of a node of that name that has just gone
            version = self._cluster.store.get(self._drivers.resource, name)["metadata"]["resourceVersion"]
            self._drivers.update({**told, "metadata": {**told["metadata"], "resourceVersion": version}})

    def _adopt(self, node: Obj) -> None:
        """A kubelet that finds its node keeps it and brings the labels it owns up to date."""
        held = self._nodes.get(("", node["metadata"]["name"]))
        if held is None or held["spec"].get("providerID") not in (None, "", node["spec"]["providerID"]):
            _log.warning("two machines under one node name", node=node["metadata"]["name"])
            return
        labels = {**(held["metadata"].get("labels") or {}), **node["metadata"]["labels"]}
        spec = {**held["spec"], "providerID": node["spec"]["providerID"]}
        self._nodes.update({**held, "metadata": {**held["metadata"], "labels": labels}, "spec": spec})

    # Down

    def _check(self, node: Obj, machines: Mapping[str, SimulatedMachine], now: float) -> float:
        """A node whose machine stops turns unready at once and is deleted some time after the machine is gone."""
        provider_id = node["spec"].get("providerID") or ""
        if not provider_id.startswith(_PROVIDER) or being_deleted(node):
            return float("inf")
        instance = provider_id.rpartition("/")[2]
        machine, name = machines.get(instance), node["metadata"]["name"]
        if machine is not None and machine.state in ("pending", "running"):
            return float("inf")
        self._health.fail_node(name)
        try:
            return self._leave(node, instance, now, ends=machine is not None and machine.state == "shutting-down")
        except (StoreConflict, StoreNotFound):
            return now + self._options.poll_s
        except ApiError as error:
            return self._waits(instance, name, error, now)

    def _leave(self, node: Obj, instance: str, now: float, *, ends: bool) -> float:
        """Say that a node has stopped, and delete it when its machine has been gone long enough."""
        self._say_stopped(node, now)
        if ends:
            return float("inf")
        due = self._gone_at.setdefault(instance, now) + self._options.node_gc_delay_s
        if now < due:
            return due
        self._nodes.delete(node)
        self._health.heal(node["metadata"]["name"])
        self._gone_at.pop(instance, None)
        self._waits_no_longer(instance, node["metadata"]["name"])
        return float("inf")

    def _say_stopped(self, node: Obj, now: float) -> None:
        if not is_true(node, "Ready"):
            return
        conditions = status_of(node).get("conditions") or ()
        stopped = with_condition(conditions, now, "Ready", "False", "KubeletNotReady", "node is shutting down")
        self._nodes.update_status(node, {**status_of(node), "conditions": stopped})
        self._cluster.sync()


def new_node(
    machine: SimulatedMachine,
    shape: NodeShape,
    arguments: KubeletArguments,
    extra_labels: Mapping[str, str],
    now: float,
) -> Obj:
    """The node a kubelet registers: labels, taints and resources, not ready, and no device plugin yet."""
    name = _node_name(machine)
    labels = {
        **arguments.labels,
        **shape.labels,
        **extra_labels,
        **({ULTRASERVER: machine.reservation} if shape.ultraserver and machine.reservation else {}),
        "kubernetes.io/arch": shape.architecture,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": machine.instance_type,
        "topology.kubernetes.io/region": machine.region,
        _ZONE: machine.zone,
    }
    unready = {
        "type": "Ready",
        "status": "False",
        "reason": "KubeletNotReady",
        "message": "container runtime network not ready",
        "lastTransitionTime": stamp(now),
    }
    spec: dict[str, Any] = {"providerID": machine.provider_id}
    if arguments.taints:
        spec["taints"] = arguments.taints
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {
            "capacity": _of_machine(shape.capacity, machine, arguments.max_pods),
            "allocatable": _of_machine(_left(shape, arguments.kept), machine, arguments.max_pods),
            "conditions": [unready],
            "nodeInfo": _node_info(shape.architecture, name),
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalDNS", "address": name}],
        },
    }


def _node_name(machine: SimulatedMachine) -> str:
    return machine.private_dns or f"{machine.instance_id}.compute.internal"


def csi_node(node: Obj, instance_id: str, limits: Mapping[str, int]) -> Obj:
    """What a kubelet writes of the CSI drivers on its node; it goes with the node (kubelet `nodeinfomanager`).

    The drivers are taken to run at once.
    """
    name = node["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    drivers = [
        {"name": driver, "nodeID": instance_id, "topologyKeys": [_ZONE], "allocatable": {"count": most}}
        for driver, most in sorted(limits.items())
    ]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {"drivers": drivers},
    }


def _node_info(architecture: str, name: str) -> dict[str, str]:
    """Every field: typed clients refuse a node that leaves one out."""
    return {
        "architecture": architecture,
        "bootID": f"boot-{name}",
        "containerRuntimeVersion": "containerd://2.1.4",
        "kernelVersion": "6.12.46",
        "kubeProxyVersion": "",
        "kubeletVersion": "v1.34.0",
        "machineID": f"machine-{name}",
        "operatingSystem": "linux",
        "osImage": "Amazon Linux 2023",
        "systemUUID": f"system-{name}",
    }


_EVICTIONS: Final = {"memory": ("memory.available", "100Mi"), "ephemeral-storage": ("nodefs.available", "10%")}
"""Resource -> signal of the hard eviction, and what the images defend of it."""


def _left(shape: NodeShape, kept: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """What a kubelet with these settings leaves for pods of what the image would leave.

    One that is to keep more than there is does not start (kubelet `validateNodeAllocatable`).
    """
    left, kube, system = dict(shape.allocatable), kept.get("kube-reserved", {}), kept.get("system-reserved", {})
    for name in left.keys() & {"cpu", "memory", "ephemeral-storage"} if kept else ():
        signal, usual = _EVICTIONS.get(name, ("", "0"))
        whole, free = canonical_amount(name, shape.capacity[name]), canonical_amount(name, shape.allocatable[name])
        of_image = _defended(name, usual, whole)
        defended = _defended(name, kept.get("eviction-hard", {}).get(signal, usual), whole)
        reserved = canonical_amount(name, kube[name]) if name in kube else whole - free - of_image
        taken = reserved + canonical_amount(name, system.get(name, "0")) + defended
        if taken > whole:
            raise InvalidUserData(f"the kubelet does not start: it is to keep more {name} than the machine has")
        left[name] = format_amount(name, whole - taken)
    return left


def _defended(resource: str, amount: str, whole: int) -> int:
    percent = amount.removesuffix("%")
    if percent == amount:
        return canonical_amount(resource, amount)
    return 0 if float(percent) == 100 else ceil(whole * float(percent) / 100)


_EFA: Final = "vpc.amazonaws.com/efa"


def _of_machine(resources: Mapping[str, str], machine: SimulatedMachine, max_pods: int | None) -> dict[str, str]:
    """What a machine of the type has before the device plugin of its GPUs runs; EFA, as many as it was launched with.

    The device plugin of EFA is taken to run at once.
    """
    kept = {name: it for name, it in resources.items() if not name.startswith("nvidia.com/") and name != _EFA}
    kept |= {_EFA: str(machine.efa)} if machine.efa else {}
    return kept if max_pods is None else {**kept, "pods": str(max_pods)}
