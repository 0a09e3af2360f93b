"""The recorder's script for one Job, played in virtual time: its fake kubelet, its requests, what it wrote down."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from providers.clock import VirtualClock
from providers.sim.controllers.garbage import GarbageCollector
from providers.sim.controllers.health import NodeHealth
from providers.sim.controllers.job import JobController
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.node_lifecycle import LifecycleOptions, NodeLifecycle
from providers.sim.controllers.objects import condition_of, instant, stamp, with_condition
from providers.sim.controllers.podgc import PodGarbage
from providers.sim.kernel import Kernel, VirtualDriver
from providers.sim.store import ApiError, PatchType, Store, StoreEvent, StoreNotFound
from tests.conformance.kubernetes.timelines import (
    TRACKING,
    Event,
    Obj,
    PodNames,
    birth_of,
    trimmed_job,
    trimmed_pod,
)

_NAMESPACE = "default"
_EPOCH = 1_800_000_000.0
_KILLED = 137
_SENT_S = 0.01
"""What a request took until its effect was seen."""
_PATIENCE_S = 3.0
"""How long a step waits for the pod that it is about."""


@dataclass(frozen=True, slots=True)
class RecordersMachine:
    """What the recorder did not write down.

    `fraction`: the part of a second at which the Job was created; all that is stamped with whole seconds depends on it.
    `batch_late_s`, `kubelet_late_s`: how late its controllers' batches and its kubelet were. `monitor_at`,
    `collector_at`: when the node monitor and pod GC looked, in seconds after the Job.
    """

    fraction: float
    batch_late_s: float = 0.0
    kubelet_late_s: float = 0.0
    monitor_at: float = 0.0
    collector_at: float = 0.0


class FakeKubelet:
    """Binds and runs every pod that was not born gated `runs_after` seconds after it appeared, and ends a deleted one
    `stops_after` seconds after its deletion."""

    name = "fake-kubelet"

    def __init__(
        self, store: Store, delays: Mapping[str, float | None], late_s: float, ready: Callable[[int], bool]
    ) -> None:
        self._store = store
        self._delays = delays
        self._late_s = late_s
        self._ready = ready
        self._born: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self.mute: set[str] = set()
        self.node = "n1"

    def step(self, now: float) -> float | None:
        """Do what is due for every pod."""
        wake = inf
        for pod in self._store.list(self._store.resource("Pod")):
            at = self._due(pod, now)
            if at <= now:
                self._act(pod, now)
                wake = now
            wake = min(wake, at if at > now else inf)
        return None if wake == inf else wake

    def _due(self, pod: Obj, now: float) -> float:
        uid, meta = pod["metadata"]["uid"], pod["metadata"]
        runs, stops = self._delays["runs_after"], self._delays["stops_after"]
        if "deletionTimestamp" in meta:
            over = meta.get("deletionGracePeriodSeconds") == 0 or not pod["spec"].get("nodeName")
            silent = stops is None or pod["spec"].get("nodeName") in self.mute
            return inf if over or silent else self._ended.setdefault(uid, now + self._late_s) + float(stops or 0)
        if pod["spec"].get("nodeName") or runs is None:
            return inf
        return self._born.setdefault(uid, inf if pod["spec"].get("schedulingGates") else now) + runs

    def _act(self, pod: Obj, now: float) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            self.ends(pod, _KILLED, now)
            self.removes(pod)
            return
        name = pod["metadata"]["name"]
        self._store.bind(name, _NAMESPACE, self.node)
        bound = self._store.get(self._store.resource("Pod"), name, _NAMESPACE)
        ready = self._ready(list(self._born).index(pod["metadata"]["uid"]))
        self._write(bound, "Running", {"running": {"startedAt": stamp(now)}}, now, ready=ready)

    def ends(self, pod: Obj, code: int, now: float) -> None:
        """Its container exits; a pod that is over stays as it is."""
        if pod["status"]["phase"] not in ("Succeeded", "Failed"):
            over = {"exitCode": code, "startedAt": stamp(now), "finishedAt": stamp(now)}
            phase, reason = ("Failed", "PodFailed") if code else ("Succeeded", "PodCompleted")
            self._write(pod, phase, {"terminated": over}, now, ready=False, reason=reason)

    def removes(self, pod: Obj) -> None:
        """The end of a deleted pod."""
        self._store.delete(self._store.resource("Pod"), pod["metadata"]["name"], namespace=_NAMESPACE, grace_period_s=0)

    def restarts(self, pod: Obj, count: int) -> None:
        """The container started anew so many times."""
        held = pod["status"]["containerStatuses"][0]
        self._status(pod, {**pod["status"], "containerStatuses": [{**held, "restartCount": count}]})

    def turns_ready(self, pod: Obj, ready: str, now: float) -> None:
        """Readiness comes or goes."""
        conditions = with_condition(pod["status"]["conditions"], now, "Ready", ready)
        self._status(pod, {**pod["status"], "conditions": conditions})

    def _write(self, pod: Obj, phase: str, state: Obj, now: float, *, ready: bool, reason: str = "") -> None:
        conditions = with_condition(pod["status"].get("conditions") or (), now, "Ready", str(ready), reason)
        container = {"name": "c", "image": "img", "imageID": "", "ready": ready, "restartCount": 0, "state": state}
        status = {**pod["status"], "phase": phase, "conditions": conditions, "containerStatuses": [container]}
        self._status(pod, status)

    def _status(self, pod: Obj, status: Obj) -> None:
        resource = self._store.resource("Pod")
        self._store.update(resource, {**pod, "status": status}, namespace=_NAMESPACE, subresource="status")


class JobScript:
    """One row played from the creation of its Job to its last event."""

    def __init__(self, case: Mapping[str, Any], machine: RecordersMachine) -> None:
        self._timeline: Sequence[Event] = case["timeline"]
        self._case = case
        self._machine = machine
        self._clock = VirtualClock(_EPOCH + machine.fraction)
        self._start = self._clock.now()
        self._store = Store(self._clock)
        self._health = NodeHealth(self._clock)
        self._pods = PodNames(self._timeline)
        self._events: list[Event] = []
        self._last: dict[str, Obj] = {}
        self._full_names: dict[str, str] = {}
        self._kubelet = FakeKubelet(self._store, case["kubelet"], machine.kubelet_late_s, self._runs_ready)
        self._driver = VirtualDriver(Kernel(self._store, self._clock, self._controllers()), self._clock)
        self._later: list[tuple[float, Callable[[], object]]] = []

    def play(self) -> list[Event]:
        """The timeline that came."""
        nodes = {str(e["what"]).rpartition(" ")[2] for e in self._timeline if "of node" in str(e.get("what"))}
        for name in sorted({"n1", "n2", *nodes}):
            self._store.create(self._store.resource("Node"), _node(name))
        self._kubelet.node = min(nodes, default="n1")
        self._driver.settle()
        self._store.subscribe(self._note)
        for node in sorted(nodes):
            self._note_node(self._store.get(self._store.resource("Node"), node))
        before: Event = {}
        for event in self._timeline:
            if not (before.get("on") == event["on"] == "do" and before["t"] == event["t"]):
                self._until(event["t"] + (_SENT_S if event["t"] else 0.0))  # of two at once nobody sees the first alone
            if event["on"] in ("do", "note"):
                self._do(event)
            elif event["on"] == "pod":
                self._tidy(event)
            before = event
        self._until(self._timeline[-1]["t"] + 0.1)
        pods = self._pods.timeline()
        named = [self._named(event, self._pods.names()) for event in self._events]
        return sorted([*named, *pods], key=lambda event: float(event["t"]))

    def _named(self, event: Event, names: Mapping[str, str]) -> Event:
        """The Job's conditions with the recorder's names of pods."""
        conditions = event.get("status", {}).get("conditions")
        if not conditions:
            return event
        said = []
        for condition in conditions:
            text = condition.get("message", "")
            for uid, name in names.items():
                text = text.replace(f"{_NAMESPACE}/{self._full_names.get(uid, '?')} ", f"<ns>/<{name}> ")
            said.append({**condition, **({"message": text} if text else {})})
        return {**event, "status": {**event["status"], "conditions": said}}

    def _controllers(self) -> list[Any]:
        cluster = MirroredCluster(self._store)
        return [
            NodeLifecycle(cluster, self._health, LifecycleOptions(phase_s=self._start + self._machine.monitor_at)),
            JobController(cluster, batch_s=1.0 + self._machine.batch_late_s),
            GarbageCollector(self._store),
            self._kubelet,
            PodGarbage(cluster, phase_s=self._start + self._machine.collector_at),
        ]

    def _runs_ready(self, count: int) -> bool:
        """Whether the recorder's kubelet let the pod that appeared at that place be Ready when it ran."""
        names = list(dict.fromkeys(event["pod"] for event in self._timeline if event["on"] == "pod"))
        for event in self._timeline:
            if (
                event["on"] == "pod"
                and event["pod"] == names[min(count, len(names) - 1)]
                and event["phase"] == "Running"
            ):
                return {"type": "Ready", "status": "True"} in event["conditions"]
        return True

    # Time

    @property
    def _t(self) -> float:
        return self._clock.now() - self._start

    def _until(self, t: float) -> None:
        for at, act in sorted(self._later, key=lambda entry: entry[0]):
            if at <= t:
                self._driver.advance(self._start + at)
                self._later.remove((at, act))
                act()
                self._driver.settle()
        self._driver.advance(self._start + t)

    # What the recorder saw

    def _note(self, event: StoreEvent) -> None:
        kind, obj = event.object["kind"], event.object
        if kind == "Node":
            self._note_node(obj)
        elif kind in ("Job", "Pod"):
            trimmed = trimmed_job(obj) if kind == "Job" else trimmed_pod(obj)
            uid = obj["metadata"]["uid"]
            if event.type == "MODIFIED" and self._last.get(uid) == trimmed:
                return
            self._last[uid] = trimmed
            said = {"t": round(self._t, 3), "on": kind.lower(), "ev": event.type, **trimmed}
            if kind == "Job":
                self._events.append(said)
            else:
                self._full_names[uid] = obj["metadata"]["name"]
                self._pods.note(uid, {**said, **(birth_of(obj) if event.type == "ADDED" else {})})

    def _note_node(self, node: Obj) -> None:
        taints = [f"{taint['key']}:{taint['effect']}" for taint in node["spec"].get("taints") or ()]
        ready = condition_of(node, "Ready") or {}
        said = [[ready.get("status"), ready.get("reason")]]
        name = node["metadata"]["name"]
        self._events.append({"t": self._t, "on": "node", "node": name, "taints": taints, "ready": said})

    # What the recorder did

    def _do(self, event: Event) -> None:
        if event["on"] == "note":
            node = str(event["what"]).rpartition(" ")[2]
            if "no more" in event["what"]:
                self._kubelet.mute.add(node)
                self._kubelet.node = "n2"
                self._health.stop_heartbeats(node)
            else:
                self._kubelet.mute.discard(node)
                self._health.heal(node)
            return
        answer: Obj = {}
        try:
            self._request(str(event["what"]))
        except ApiError as error:
            answer = {"code": error.code, "reason": error.reason, "message": error.message}
        if "code" in event and not answer:
            answer = {"code": event["code"] if event["code"] < 300 else 200}  # 200 and 201 are one here
        self._events.append({"t": self._t, "on": "do", "what": event["what"], **answer})

    def _request(self, what: str) -> None:
        for pattern, act in _REQUESTS:
            found = re.fullmatch(pattern, what, re.DOTALL)
            if found:
                act(self, *found.groups())
                return
        raise ValueError(f"the script does not know how to {what!r}")

    def _create(self) -> None:
        self._store.create(self._store.resource("Job"), self._case["job"], namespace=_NAMESPACE)

    def _patch_job(self, patch: str) -> None:
        self._patch("Job", self._case["job"]["metadata"]["name"], json.loads(patch))

    def _patch_pod(self, name: str, patch: str) -> None:
        self._patch("Pod", self._pod(name)["metadata"]["name"], json.loads(patch))

    def _patch(self, kind: str, name: str, patch: Obj) -> None:
        self._store.patch(self._store.resource(kind), name, patch, PatchType.MERGE, namespace=_NAMESPACE)

    def _delete_job(self, policy: str | None) -> None:
        found = policy if policy in ("Foreground", "Background", "Orphan") else None
        propagation: Any = found or (None if policy == "without a policy" else "Background")
        name = self._case["job"]["metadata"]["name"]
        self._store.delete(self._store.resource("Job"), name, namespace=_NAMESPACE, propagation=propagation)

    def _delete_pod(self, name: str, rest: str) -> None:
        grace = re.search(r"\d+", rest)
        seconds = int(grace.group()) if grace else 0 if "force" in rest else None
        pod = self._pod(name)["metadata"]["name"]
        self._store.delete(self._store.resource("Pod"), pod, namespace=_NAMESPACE, grace_period_s=seconds)

    def _evict(self, name: str) -> None:
        self._store.evict(self._pod(name, running=True)["metadata"]["name"], _NAMESPACE)

    def _bind(self, name: str) -> None:
        self._store.bind(self._pod(name)["metadata"]["name"], _NAMESPACE, "n1")

    def _exits(self, name: str, code: str, gone: str | None) -> None:
        pod = self._pod(name, running=True)
        self._kubelet.ends(pod, int(code), self._clock.now())
        if gone:
            self._later.append((self._t + 1.0, lambda: self._kubelet.removes(pod)))

    def _restarts(self, count: str) -> None:
        self._kubelet.restarts(self._pod("p1", running=True), int(count))

    def _turns_ready(self, ready: str) -> None:
        self._kubelet.turns_ready(self._pod("p1", running=True), ready, self._clock.now())

    def _lets_go(self, name: str) -> None:
        self._finalizers(self._pod(name), lambda held: held == TRACKING)

    def _finalizers(self, pod: Obj, keeps: Callable[[str], bool]) -> None:
        held = [name for name in pod["metadata"].get("finalizers") or () if keeps(name)]
        self._patch("Pod", pod["metadata"]["name"], {"metadata": {"finalizers": held or None}})

    def _tidy(self, event: Event) -> None:
        """A foreign finalizer goes only by the recorder's hand, also where it did not say so: when it was done."""
        uid = self._pods.uid(event["pod"], event["t"]) if event["ev"] == "MODIFIED" else None
        if uid is not None and uid in self._last:
            foreign = set(self._last[uid]["finalizers"]) - {TRACKING}
            if foreign - set(event["finalizers"]):
                self._finalizers(self._pod(event["pod"]), lambda name: name in event["finalizers"])
                self._driver.settle()

    def _node_ready(self, ready: str) -> None:
        node = self._store.get(self._store.resource("Node"), self._kubelet.node)
        conditions = with_condition(node["status"]["conditions"], self._clock.now(), "Ready", ready, "KubeletNotReady")
        changed = {**node, "status": {**node["status"], "conditions": conditions}}
        self._store.update(self._store.resource("Node"), changed, subresource="status")
        if ready != "True":
            self._kubelet.mute.add(self._kubelet.node)

    def _out_of_service(self) -> None:
        node = self._store.get(self._store.resource("Node"), self._kubelet.node)
        taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
        taints = [*(node["spec"].get("taints") or ()), taint]
        self._store.update(self._store.resource("Node"), {**node, "spec": {**node["spec"], "taints": taints}})
        self._kubelet.node = "n2"

    def _delete_node(self, name: str) -> None:
        known = [node["metadata"]["name"] for node in self._store.list(self._store.resource("Node"))]
        gone = name if name in known else self._kubelet.node
        self._kubelet.mute.add(gone)
        self._store.delete(self._store.resource("Node"), gone)
        if self._kubelet.node == gone:
            self._kubelet.node = "n2"

    def _pod(self, name: str, *, running: bool = False) -> Obj:
        """The pod of that name, when it is there (and runs)."""
        self._driver.advance_until(lambda: self._there(name, running=running) is not None, within_s=_PATIENCE_S)
        pod = self._there(name, running=running)
        if pod is None:
            raise StoreNotFound(f'pods "<{name}>" not found')
        return pod

    def _there(self, name: str, *, running: bool) -> Obj | None:
        uid = self._pods.uid(name, self._t)
        pods = {pod["metadata"]["uid"]: pod for pod in self._store.list(self._store.resource("Pod"))}
        pod = pods.get(uid or "")
        return None if pod is None or (running and pod["status"]["phase"] == "Pending") else pod


_REQUESTS: Sequence[tuple[str, Callable[..., None]]] = (
    (r"create job", JobScript._create),
    (r"patch job [^{]*(\{.*\})", JobScript._patch_job),
    (r"(?:patch pod )?(p\d+):? [^{]*(\{.*\})", JobScript._patch_pod),
    (r"delete job ?(.*)", JobScript._delete_job),
    (r"(?:force )?delete pod (p\d+)(.*)", JobScript._delete_pod),
    (r"evict (p\d+)", JobScript._evict),
    (r"bind \w* ?(p\d+)", JobScript._bind),
    (r"kubelet: (p\d+) exits (\d+)(, then is gone)?", JobScript._exits),
    (r"kubelet: restartCount (\d+)", JobScript._restarts),
    (r"kubelet: Ready=(\w+)", JobScript._turns_ready),
    (r"remove the finalizer of (p\d+)", JobScript._lets_go),
    (r"node Ready=(\w+)", JobScript._node_ready),
    (r"taint out-of-service", JobScript._out_of_service),
    (r"delete node (\S+)", JobScript._delete_node),
)


def _node(name: str) -> Obj:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(instant("2026-01-01T00:00:00Z"))}
    return {"metadata": {"name": name}, "spec": {}, "status": {"conditions": [ready], "allocatable": {"pods": "110"}}}
