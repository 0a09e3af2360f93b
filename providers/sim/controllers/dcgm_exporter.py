"""A simulated dcgm-exporter on every GPU node: a pod with an address that tells who does what with its GPUs.

What a pod does with a device is said by its annotations (`sim.muster.dev/gpu-active`: 0 to 1; `gpu-memory-mib`).
Without them it is busy and three quarters full. Names and labels are those of dcgm-exporter's `render_metrics.go`.
"""

import asyncio
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from providers.sim.controllers.gpus import GPU, GpuHardware, PhysicalGpu, resource_name
from providers.sim.controllers.health import NodeHealth
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.nodework import NodeReconciler, pods_by_node
from providers.sim.controllers.objects import Key, Obj, annotations_of, instant, is_terminal, node_of, status_of
from providers.sim.loopback import LoopbackServer
from providers.sim.machines import NodeShape
from providers.sim.store.podrequests import requests_of

ACTIVE: Final = "sim.muster.dev/gpu-active"
MEMORY: Final = "sim.muster.dev/gpu-memory-mib"
LABELS: Final = {"app": "nvidia-dcgm-exporter"}
_SHARED: Final = f"{GPU}.shared"
_HOST: Final = "127.0.0.1"


class ExporterServer(LoopbackServer):
    """Answers for all exporters, each at a port of its own: as on machines, the address says whose it is."""

    def __init__(self) -> None:
        super().__init__("dcgm-exporter")
        self._texts: dict[int, str | None] = {}
        self._lock = threading.Lock()

    def opened(self) -> int:
        """Opens one more port; returns it."""
        if self._loop is None or self._server is None:
            raise RuntimeError("the dcgm-exporter is not started")
        made = asyncio.run_coroutine_threadsafe(self._loop.create_server(self._server, _HOST, 0), self._loop)
        port: int = made.result(10.0).sockets[0].getsockname()[1]
        return port

    def say(self, port: int, text: str | None) -> None:
        """Has a port answer with this; None = it does not answer well."""
        with self._lock:
            self._texts[port] = text

    @contextmanager
    def _answering(self, loop: asyncio.AbstractEventLoop) -> Iterator[web.Server]:
        yield web.Server(self._handle, access_log=None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        address = request.transport.get_extra_info("sockname") if request.transport else None
        with self._lock:
            text = self._texts.get(address[1]) if address else None
        if text is None or request.path != "/metrics":
            return web.Response(status=503 if request.path == "/metrics" else 404, text="no metrics\n")
        return web.Response(text=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


@dataclass(frozen=True, slots=True)
class GpuTrouble:
    """What the exporter of a node is to say of one of its GPUs, by the names of `POST gpu`.

    | kind | value | |
    |---|---|---|
    | `xid` | a number; 0 = none | the last error of the driver |
    | `ecc` | a number | memory errors that ECC could not mend |
    | `remap` | `pending`, `failed`, `none` | a row of memory to be remapped |
    | `health` | 0, 10, 20 | what DCGM's checks say: they pass, warn, fail |
    | `silent` | true, false | the exporter does not answer, for the whole node |
    """

    node: str
    gpu: int
    kind: str
    value: int | str | bool


def read_gpu_trouble(body: Mapping[str, Any]) -> GpuTrouble:
    """`{"node": "...", "gpu": 0, "xid": 79}`; raises ValueError with what there is where it is none."""
    kinds = [key for key in body if key not in ("node", "gpu")]
    gpu = body.get("gpu", 0)
    if not isinstance(body.get("node"), str) or len(kinds) != 1 or kinds[0] not in _KINDS or type(gpu) is not int:
        raise ValueError(f"give node, gpu (0) and one of {', '.join(_KINDS)}, not {', '.join(body) or 'nothing'}")
    kind, value = kinds[0], body[kinds[0]]
    if not _KINDS[kind](value):
        raise ValueError(f"{kind} cannot be {value!r}")
    return GpuTrouble(body["node"], gpu, kind, value)


_KINDS: Final[Mapping[str, Any]] = {
    "xid": lambda value: type(value) is int and 0 <= value <= 999,
    "ecc": lambda value: type(value) is int and 0 <= value <= 10**6,
    "remap": lambda value: value in ("pending", "failed", "none"),
    "health": lambda value: value in (0, 10, 20) and type(value) is int,
    "silent": lambda value: isinstance(value, bool),
}


@dataclass(frozen=True, slots=True)
class _Device:
    """A GPU, or an instance of one (`profile`)."""

    gpu: int
    instance: str = ""
    profile: str = ""


@dataclass(slots=True)
class _Exporter:
    port: int
    held: dict[str, tuple[_Device, ...]] = field(default_factory=dict)
    """uid of a pod -> its devices, as long as it runs."""
    troubles: dict[tuple[int, str], int | str | bool] = field(default_factory=dict)


class DcgmExporters(NodeReconciler):
    """Keeps a pod of the exporter on every GPU node, and what it answers; keys are nodes."""

    name = "dcgm-exporter"

    def __init__(
        self,
        cluster: MirroredCluster,
        hardware: GpuHardware,
        health: NodeHealth,
        first_delay_s: float = 15.0,
        namespace: str = "gpu-operator",
    ) -> None:
        super().__init__(cluster, health)
        self.server = ExporterServer()
        self._hardware, self._first_delay_s, self._namespace = hardware, first_delay_s, namespace
        self._exporters: dict[str, _Exporter] = {}
        self._pods = pods_by_node(cluster)
        self._pods.watch(self._on_pod)

    def _on_pod(self, old: Obj | None, new: Obj | None) -> None:
        for pod in (old, new):
            if pod is not None and node_of(pod):
                self._queue.add(node_of(pod))

    def forget(self, node: Obj) -> None:
        """The machine is gone, and its exporter with it."""
        found = self._exporters.pop(node["metadata"]["name"], None)
        if found is not None:
            self.server.say(found.port, None)

    def cause(self, trouble: GpuTrouble) -> None:
        """Have an exporter say so from now on, from any thread; ValueError where there is no such GPU."""
        node, exporter = self._nodes.get(("", trouble.node)), self._exporters.get(trouble.node)
        shape = self._hardware.shape(node) if node is not None else None
        if shape is None or exporter is None or not 0 <= trouble.gpu < shape.gpu_count:
            raise ValueError(f"no node {trouble.node!r} with a GPU {trouble.gpu} and an exporter")
        exporter.troubles[trouble.gpu, trouble.kind] = trouble.value
        self._health.look_again()

    def reconcile(self, key: str, now: float) -> float | None:
        """Bring one node's exporter and what it says up to date."""
        node = self._nodes.get(("", key))
        shape = self._hardware.shape(node) if node is not None else None
        if node is None or shape is None:
            return None
        born = instant(node["metadata"]["creationTimestamp"]) + self._first_delay_s
        if now < born:
            return born
        exporter = self._exporters.get(key) or self._exporters.setdefault(key, _Exporter(self._port_of(key)))
        where: Key = (self._namespace, f"nvidia-dcgm-exporter-{key}"[:63].rstrip("-."))
        pod = self._pods.get(where)
        if pod is None:
            self._pods.create(_exporter_pod(where, node, exporter.port))
        elif status_of(pod).get("phase") == "Running" and not status_of(pod).get("podIP"):
            self._pods.update_status(pod, {**status_of(pod), "podIP": _HOST, "podIPs": [{"ip": _HOST}]})
        answers = self._health.of(key).reports and exporter.troubles.get((0, "silent")) is not True
        self.server.say(exporter.port, self._text(node, shape, exporter) if answers else None)
        return None

    def _port_of(self, node: str) -> int:
        """A new port; that of the pod that is there already cannot be had again."""
        where: Key = (self._namespace, f"nvidia-dcgm-exporter-{node}"[:63].rstrip("-."))
        if (left := self._pods.get(where)) is not None:
            self._pods.delete(left, grace_period_s=0)
        return self.server.opened()

    def gpus_of_pods(self, node: Obj) -> dict[str, tuple[int, ...]]:
        """Returns uid of each pod on a node -> the GPUs of what it holds, one for each GPU and slice."""
        exporter = self._exporters.get(node["metadata"]["name"])
        if exporter is None:
            return {}
        self._handed_out(node, exporter)
        return {uid: tuple(device.gpu for device in devices) for uid, devices in exporter.held.items()}

    def held(self, node: Obj) -> frozenset[int] | None:
        """The GPUs of a node that pods hold, or slices of them; None where there is no exporter (yet)."""
        known = node["metadata"]["name"] in self._exporters
        return frozenset(gpu for gpus in self.gpus_of_pods(node).values() for gpu in gpus) if known else None

    def _handed_out(self, node: Obj, exporter: _Exporter) -> tuple[list[Obj], list[_Device]]:
        """Brings up to date who holds what; the pods that run and the devices."""
        running = sorted(
            (it for it in self._pods.by("node", node["metadata"]["name"]) if _runs(it)),
            key=lambda it: (it["metadata"]["creationTimestamp"], it["metadata"]["uid"]),
        )
        devices = _devices(self._hardware.of(node))
        _hand_out(exporter, running, devices)
        return running, devices

    def _text(self, node: Obj, shape: NodeShape, exporter: _Exporter) -> str:
        running, devices = self._handed_out(node, exporter)
        holders: dict[_Device, list[Obj]] = {device: [] for device in devices}
        for pod in running:
            for device in exporter.held.get(pod["metadata"]["uid"], ()):
                holders.setdefault(device, []).append(pod)
        rows = [row for device, pods in holders.items() for row in _rows(node, shape, exporter, device, pods)]
        return "".join(f"{name}{{{labels}}} {value}\n" for name, labels, value in sorted(rows))


def _runs(pod: Obj) -> bool:
    return status_of(pod).get("phase") == "Running" and not is_terminal(pod)


def _exporter_pod(where: Key, node: Obj, port: int) -> Obj:
    """A static pod of the node, which no scheduler places and nobody drains."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    ports = [{"name": "metrics", "containerPort": port, "protocol": "TCP"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": where[1],
            "namespace": where[0],
            "labels": LABELS,
            "annotations": {"kubernetes.io/config.mirror": node["metadata"]["uid"]},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "nodeName": node["metadata"]["name"],
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "nvidia-dcgm-exporter", "image": "dcgm-exporter", "ports": ports}],
        },
    }


# -- who holds what ---------------------------------------------------------------------------------------------------


def _devices(gpus: tuple[PhysicalGpu, ...]) -> list[_Device]:
    found: list[_Device] = []
    for number, gpu in enumerate(gpus):
        names = [name for name, count in sorted((gpu.profiles or {}).items()) for _ in range(count)]
        instances = [_Device(number, str(place), name) for place, name in enumerate(names, 1)]
        found += instances or [_Device(number)]
    return found


def _hand_out(exporter: _Exporter, running: list[Obj], devices: list[_Device]) -> None:
    """Give each pod that has none yet the first devices that are free; those of pods that are gone are free again."""
    uids = {pod["metadata"]["uid"] for pod in running}
    exporter.held = {uid: it for uid, it in exporter.held.items() if uid in uids and set(it) <= set(devices)}
    taken = {device for held in exporter.held.values() for device in held}
    for pod in running:
        uid, wants = pod["metadata"]["uid"], requests_of(pod)
        if uid in exporter.held:
            continue
        given: list[_Device] = []
        for device in devices:
            resource = resource_name(device.profile) if device.profile else GPU
            if device not in taken and sum(_of(it) == resource for it in given) < wants.get(resource, 0):
                given.append(device)
        if (shares := wants.get(_SHARED, 0)) and devices:
            whole = [it for it in devices if not it.profile]
            given += whole[len(exporter.held) % len(whole) :][:shares] if whole else []
        if given:
            exporter.held[uid] = tuple(given)
            taken |= {it for it in given if not wants.get(_SHARED, 0)}


def _of(device: _Device) -> str:
    return resource_name(device.profile) if device.profile else GPU


# -- what is said of it -----------------------------------------------------------------------------------------------

_Row = tuple[str, str, str]
"""Metric, labels, value."""


def _rows(node: Obj, shape: NodeShape, exporter: _Exporter, device: _Device, pods: list[Obj]) -> Iterator[_Row]:
    total = shape.mig_attributes.get(device.profile, {}).get("memory", 0) if device.profile else shape.gpu_memory_mib
    for pod in pods or (None,):
        labels = _labels(node, shape, device, pod)
        active, used = _use(pod, total) if pod is not None else (0.0, 0.0)
        yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, f"{active:.6f}"
        if not device.profile:
            yield "DCGM_FI_DEV_GPU_UTIL", labels, f"{100 * active:.0f}"
        yield "DCGM_FI_DEV_FB_USED", labels, f"{used:.0f}"
        yield "DCGM_FI_DEV_FB_FREE", labels, f"{max(0.0, total - used):.0f}"
        troubles = {kind: value for (gpu, kind), value in exporter.troubles.items() if gpu == device.gpu}
        yield "DCGM_FI_DEV_XID_ERRORS", labels, str(troubles.get("xid", 0))
        yield "DCGM_FI_DEV_ROW_REMAP_FAILURE", labels, str(int(troubles.get("remap") == "failed"))
        yield "DCGM_FI_DEV_ROW_REMAP_PENDING", labels, str(int(troubles.get("remap") == "pending"))
        yield "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", labels, str(troubles.get("ecc", 0))
        yield "DCGM_EXP_GPU_HEALTH_STATUS", f'{labels},health_watch="ALL"', str(troubles.get("health", 0))


def _use(pod: Obj, total_mib: float) -> tuple[float, float]:
    """How active a pod is, 0 to 1, and how much memory (MiB) it takes, of each of its devices."""
    notes = annotations_of(pod)
    active = min(1.0, max(0.0, _number(notes.get(ACTIVE), 0.9)))
    return active, min(total_mib, max(0.0, _number(notes.get(MEMORY), 0.75 * total_mib)))


def _number(text: str | None, otherwise: float) -> float:
    try:
        return otherwise if text is None else float(text)
    except ValueError:
        return otherwise


def _labels(node: Obj, shape: NodeShape, device: _Device, pod: Obj | None) -> str:
    gpu_uuid = uuid.uuid5(uuid.NAMESPACE_OID, f"{node['metadata']['uid']}/{device.gpu}")
    instance = {"GPU_I_PROFILE": device.profile, "GPU_I_ID": device.instance} if device.profile else {}
    holder = pod["metadata"] if pod is not None else {"namespace": "", "name": ""}
    said = {
        "gpu": str(device.gpu),
        "UUID": f"GPU-{gpu_uuid}",
        "device": f"nvidia{device.gpu}",
        "modelName": shape.gpu_product.replace("-", " ", 1),
        **instance,
        "hostname": node["metadata"]["name"],
        "container": pod["spec"]["containers"][0]["name"] if pod is not None else "",
        "namespace": holder["namespace"],
        "pod": holder["name"],
    }
    return ",".join(f'{name}="{value}"' for name, value in said.items())
