"""A simulated cluster under a virtual clock, with short words for what the tests do to it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from providers.clock import VirtualClock
from providers.sim.controllers import (
    DevicePluginOptions,
    Feasible,
    HeartbeatOptions,
    KubeletOptions,
    MigOptions,
    RegistrationOptions,
    SimulationOptions,
    assemble,
)
from providers.sim.controllers.objects import condition_of, is_active, is_terminal, node_of
from providers.sim.controllers.occupancy import allocatable_of
from providers.sim.kernel import VirtualDriver
from providers.sim.machines import NodeShape, ShapeOf, SimulatedMachine
from providers.sim.store import Store
from providers.sim.store.podrequests import requests_of

Obj = dict[str, Any]

A100 = NodeShape(
    capacity={"cpu": "96", "memory": "1152Gi", "pods": "110"},
    allocatable={"cpu": "95", "memory": "1100Gi", "pods": "110"},
    gpu_model="a100-40gb",
    gpu_count=8,
    gpu_product="NVIDIA-A100-SXM4-40GB",
    gpu_memory_mib=40960,
    gpu_device_ids=("0x20B010DE",),
    mig_capable=True,
)
CPU_NODE = NodeShape(
    capacity={"cpu": "4", "memory": "16Gi", "pods": "10"}, allocatable={"cpu": "4", "memory": "16Gi", "pods": "10"}
)
SHAPES = {"p4d.24xlarge": A100, "m7i.xlarge": CPU_NODE}

QUICK = SimulationOptions(
    registration=RegistrationOptions(boot_delay_s=lambda _: 20.0),
    heartbeat=HeartbeatOptions(ready_delay_s=5.0),
    device_plugin=DevicePluginOptions(first_delay_s=15.0, restart_delay_s=10.0, discovery_interval_s=60.0),
    kubelet=KubeletOptions(start_delay_s=1.0),
)


class FakeMachines:
    """Machines by id, changed by hand."""

    def __init__(self) -> None:
        self.machines: dict[str, SimulatedMachine] = {}
        self.changes = 0

    def list(self) -> Sequence[SimulatedMachine]:
        return list(self.machines.values())

    def set(self, instance_id: str, **changes: Any) -> None:
        self.machines[instance_id] = replace(self.machines[instance_id], **changes)
        self.changes += 1


class ControllerWorld:
    def __init__(
        self,
        options: SimulationOptions = QUICK,
        feasible: Feasible = lambda _model, _profiles: True,
        *,
        told: bool = False,
        shape_of: ShapeOf = SHAPES.get,
    ) -> None:
        self.clock = VirtualClock()
        self.store = Store(self.clock)
        self.machines = FakeMachines()
        self.sim = assemble(
            self.store,
            self.clock,
            machines=self.machines,
            shape_of=shape_of,
            feasible=feasible,
            options=options,
            moves=(lambda: self.machines.changes) if told else None,
        )
        self.driver = VirtualDriver(self.sim.kernel, self.clock)
        self.settle, self.pass_s = self.driver.settle, self.driver.advance_by

    @property
    def now(self) -> float:
        return self.clock.now()

    # reading

    def all(self, kind: str) -> list[Obj]:
        return self.store.list(self.store.resource(kind))

    def get(self, kind: str, name: str) -> Obj | None:
        resource = self.store.resource(kind)
        return next((o for o in self.store.list(resource) if o["metadata"]["name"] == name), None)

    def the(self, kind: str, name: str) -> Obj:
        found = self.get(kind, name)
        assert found is not None, f"no {kind} {name}"
        return found

    def condition(self, kind: str, name: str, condition: str) -> tuple[str, str] | None:
        found = condition_of(self.the(kind, name), condition)
        return None if found is None else (found["status"], found.get("reason", ""))

    def pods(self, **labels: str) -> list[Obj]:
        wanted = {key.replace("_", "-"): value for key, value in labels.items()}
        return [p for p in self.all("Pod") if wanted.items() <= (p["metadata"].get("labels") or {}).items()]

    def pods_of(self, job: str) -> list[Obj]:
        return self.pods(job_name=job)

    def phases(self, job: str) -> list[str]:
        return sorted(pod["status"]["phase"] for pod in self.pods_of(job))

    # writing

    def create(self, kind: str, obj: Obj) -> Obj:
        resource = self.store.resource(kind)
        return self.store.create(resource, obj, namespace="default" if resource.namespaced else "")

    def change(self, kind: str, name: str, **spec: Any) -> Obj:
        resource, held = self.store.resource(kind), self.the(kind, name)
        namespace = held["metadata"].get("namespace") or ""
        return self.store.update(resource, {**held, "spec": {**held["spec"], **spec}}, namespace=namespace)

    def label(self, kind: str, name: str, **labels: str | None) -> Obj:
        held = self.the(kind, name)
        return self.set_labels(kind, name, {**(held["metadata"].get("labels") or {}), **labels})

    def set_labels(self, kind: str, name: str, labels: dict[str, str | None]) -> Obj:
        resource, held = self.store.resource(kind), self.the(kind, name)
        kept = {key: value for key, value in labels.items() if value is not None}
        changed = {**held, "metadata": {**held["metadata"], "labels": kept}}
        return self.store.update(resource, changed, namespace=held["metadata"].get("namespace") or "")

    def delete(self, kind: str, name: str, **options: Any) -> None:
        resource, held = self.store.resource(kind), self.the(kind, name)
        self.store.delete(resource, name, namespace=held["metadata"].get("namespace") or "", **options)

    def node(
        self, name: str, *, labels: dict[str, str] | None = None, taints: list[Obj] | None = None, **allocatable: str
    ) -> Obj:
        """A node made by hand; it turns Ready by itself after the delay."""
        resources = {key.replace("_", "/"): value for key, value in {"cpu": "4", "pods": "10", **allocatable}.items()}
        spec = {"taints": taints} if taints else {}
        status = {"capacity": resources, "allocatable": resources}
        return self.create("Node", {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": status})

    def ready_node(self, name: str, **kwargs: Any) -> None:
        self.node(name, **kwargs)
        self.pass_s(6)

    def pod(
        self,
        name: str,
        *,
        cpu: str = "1",
        notes: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> Obj:
        template = pod_template(cpu=cpu, notes=notes, labels=labels, **spec)
        return self.create("Pod", {"metadata": {**template["metadata"], "name": name}, "spec": template["spec"]})

    def job(self, name: str, *, template: Obj | None = None, **spec: Any) -> Obj:
        return self.create(
            "Job", {"metadata": {"name": name}, "spec": {"template": template or pod_template(), **spec}}
        )

    def machine(self, instance_id: str, instance_type: str = "p4d.24xlarge", **fields: Any) -> SimulatedMachine:
        given = {"zone": "us-east-1a", "capacity_type": "spot", "state": "running", "launched_at": self.now, **fields}
        machine = SimulatedMachine(instance_id, instance_type, private_dns=f"{instance_id}.ec2.internal", **given)
        self.machines.machines[instance_id] = machine
        self.machines.changes += 1
        return machine

    # invariants

    def check_invariants(self) -> None:
        nodes = {node["metadata"]["name"]: node for node in self.all("Node")}
        by_node: dict[str, list[Obj]] = {}
        for pod in self.all("Pod"):
            if node_of(pod) and not is_terminal(pod):
                by_node.setdefault(node_of(pod), []).append(pod)
        for name, pods in by_node.items():
            if name in nodes:
                used, free = Counter[str](), allocatable_of(nodes[name])
                for pod in pods:
                    used.update(requests_of(pod))
                assert all(amount <= free.get(resource, 0) for resource, amount in used.items()), (name, used, free)
        jobs = {job["metadata"]["uid"]: job for job in self.all("Job")}
        for uid, job in jobs.items():
            active = [p for p in self.all("Pod") if _owner_uid(p) == uid and is_active(p)]
            assert len(active) <= job["spec"]["parallelism"], job["metadata"]["name"]
            if job["spec"].get("suspend"):
                assert not active, job["metadata"]["name"]
        owners = ("JobSet", "Job", "ReplicaSet", "StatefulSet", "DaemonSet")
        uids = {o["metadata"]["uid"] for kind in owners for o in self.all(kind)}
        for kind in ("Job", "Pod"):
            for obj in self.all(kind):
                assert _owner_uid(obj) in (None, *uids) or "deletionTimestamp" in obj["metadata"], obj["metadata"][
                    "name"
                ]


def _owner_uid(obj: Obj) -> str | None:
    owners = obj["metadata"].get("ownerReferences") or ()
    return owners[0]["uid"] if owners else None


def pod_template(
    *,
    cpu: str = "1",
    gpus: int = 0,
    notes: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Obj:
    limits: dict[str, str] = {"cpu": cpu, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "main", "image": "busybox:1", "resources": {"limits": limits}}
    annotations = {f"sim.muster.dev/{key}": value for key, value in (notes or {}).items()}
    metadata = {"annotations": annotations, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}


__all__ = ["A100", "QUICK", "ControllerWorld", "MigOptions", "pod_template"]
