"""The reflector against a local server in a process of its own: events a second and the cost of reading a list.

`python -m bench.reflector` prints the numbers; `run` returns them.
"""

import json
import multiprocessing
import queue
import random
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe

import msgspec

from providers.clock import SystemClock
from providers.kube import wire
from providers.kube.batches import Batch, Replace
from providers.kube.config import from_url
from providers.kube.reading import Watched
from providers.kube.reflector import Reflector
from providers.kube.resources import PODS
from providers.kube.transport import KubeTransport

EVENTS = 20_000
LISTED = 5_000
PAGE = 500
_FIRST_VERSION = 100_000_000  # as many digits for all
_MARK = b"%d" % _FIRST_VERSION


class ReflectedMeta(msgspec.Struct, gc=False):
    name: str
    namespace: str
    uid: str
    resource_version: str = msgspec.field(name="resourceVersion")
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    deletion: str | None = msgspec.field(default=None, name="deletionTimestamp")


class Resources(msgspec.Struct, gc=False):
    requests: dict[str, str] = msgspec.field(default_factory=dict)
    limits: dict[str, str] = msgspec.field(default_factory=dict)


class ReflectedContainer(msgspec.Struct, gc=False):
    resources: Resources


class ReflectedToleration(msgspec.Struct, gc=False):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class ReflectedSpec(msgspec.Struct, gc=False):
    containers: list[ReflectedContainer]
    node: str = msgspec.field(default="", name="nodeName")
    priority: int = 0
    tolerations: list[ReflectedToleration] = msgspec.field(default_factory=list)


class ReflectedStatus(msgspec.Struct, gc=False):
    phase: str = ""


class ReflectedPod(msgspec.Struct, gc=False):
    """What an agent wants to know of a pod."""

    metadata: ReflectedMeta
    spec: ReflectedSpec
    status: ReflectedStatus


def key(pod: ReflectedPod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def run() -> dict[str, float]:
    """`events_per_s`, `event_cpu_us` (this process only), `events_per_batch`, `list_us_per_pod` (CPU), `pod_bytes`."""
    parent, child = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(child,), daemon=True)
    server.start()
    try:
        port = parent.recv()
        return _watched(f"http://127.0.0.1:{port}") | _listed()
    finally:
        server.terminate()
        server.join(10)


def _watched(url: str) -> dict[str, float]:
    batches: queue.Queue[tuple[float, float, int]] = queue.Queue()

    def take(batch: Batch[ReflectedPod]) -> None:
        count = 0 if isinstance(batch, Replace) else len(batch.deltas)
        batches.put((time.perf_counter(), time.process_time(), count))

    watched = Watched(PODS, msgspec.json.Decoder(ReflectedPod).decode, key)
    reflector = Reflector(KubeTransport(from_url(url)), watched, take, clock=SystemClock(), rng=random.Random(1))
    reflector.start()
    began_s, began_cpu_s, _ = batches.get(timeout=30)
    seen = handed_over = 0
    now_s = cpu_s = 0.0
    while seen < EVENTS:
        now_s, cpu_s, count = batches.get(timeout=60)
        seen += count
        handed_over += 1
    reflector.stop()
    return {
        "events_per_s": seen / (now_s - began_s),
        "event_cpu_us": (cpu_s - began_cpu_s) / seen * 1e6,
        "events_per_batch": seen / handed_over,
    }


def _listed() -> dict[str, float]:
    """CPU of turning pages into objects, network aside; the best of five."""
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [_pod(n) for n in range(PAGE)]}).encode()
    decode = msgspec.json.Decoder(ReflectedPod).decode
    cost_us = min(_timed_us(lambda: _decode_page(body, decode)) for _ in range(5)) / PAGE
    return {"list_us_per_pod": cost_us, "pod_bytes": len(body) / PAGE}


def _decode_page(body: bytes, decode: Callable[[msgspec.Raw], ReflectedPod]) -> dict[str, ReflectedPod]:
    return {key(pod): pod for pod in map(decode, wire.decode_page(body).items or ())}


def _timed_us(action: Callable[[], object]) -> float:
    rounds = LISTED // PAGE
    began_s = time.process_time()
    for _ in range(rounds):
        action()
    return (time.process_time() - began_s) / rounds * 1e6


# -- the other process ------------------------------------------------------------------------------------------------


def _serve(pipe: Pipe) -> None:
    """An empty list, then `EVENTS` events, each a chunk of its own as API servers send them."""
    head, tail = _chunk(0).split(_MARK)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        sock, _ = listener.accept()
        with sock, sock.makefile("rb") as reader:
            while line := reader.readline():
                while reader.readline().strip():
                    pass
                if b"watch=true" in line:
                    sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    for version in range(EVENTS):
                        sock.sendall(b"%s%d%s" % (head, _FIRST_VERSION + version, tail))
                    pipe.recv()  # never: the parent ends this process
                body = b'{"metadata":{"resourceVersion":"1"},"items":[]}'
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def _chunk(number: int) -> bytes:
    line = json.dumps({"type": "MODIFIED", "object": _pod(number)}).encode() + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


def _pod(number: int) -> dict[str, object]:
    """About 6 KB, as pods of a training job are, managedFields included."""
    owned: dict[str, object] = {f"f:field-{n}": {".": {}, "f:name": {}, "f:value": {}} for n in range(40)}
    env = [{"name": f"VARIABLE_{n}", "value": f"value-of-variable-{n}"} for n in range(12)]
    container = {
        "name": "worker",
        "image": "registry.invalid/train:1.0",
        "command": ["python", "-m", "train"],
        "env": env,
        "resources": {
            "requests": {"cpu": "12", "memory": "120Gi", "nvidia.com/gpu": "8"},
            "limits": {"nvidia.com/gpu": "8"},
        },
        "volumeMounts": [{"name": f"volume-{n}", "mountPath": f"/mnt/{n}"} for n in range(6)],
    }
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-11-20T09:00:00Z"}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"train-{number}",
            "namespace": "team-a",
            "uid": f"00000000-0000-0000-0000-{number:012d}",
            "resourceVersion": str(_FIRST_VERSION + number),
            "labels": {f"muster.dev/label-{n}": f"value-{n}" for n in range(6)},
            "annotations": {"kueue.x-k8s.io/workload": "job-train"},
            "managedFields": [
                {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:spec": owned}}
                for manager in ("kube-controller-manager", "kubelet")
            ],
        },
        "spec": {
            "nodeName": f"ip-10-0-{number % 250}-1.ec2.internal",
            "priority": 100,
            "containers": [container],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "volumes": [{"name": f"volume-{n}", "emptyDir": {}} for n in range(6)],
        },
        "status": {"phase": "Running", "conditions": conditions, "podIP": "10.0.0.1", "qosClass": "Burstable"},
    }


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:20} {value:12,.1f}")
