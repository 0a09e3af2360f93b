"""Actions as API calls. Every one is idempotent: done twice, or after somebody else did it, nothing changes.

Returns what the API answered (`WrittenObject`), so that the brain need not wait for the echo of the watch.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from fleet.actions import (
    Action,
    Announce,
    CloseClaim,
    CloseGang,
    EvictPod,
    ForgetClaim,
    KeepHardFence,
    LiftHardFence,
    Marks,
    OpenClaims,
    OpenGang,
    PatchNode,
    PublishLayouts,
    ReleasePod,
    RemoveNode,
    SaveClaim,
    SaveGang,
    StartJob,
    StopJob,
)
from fleet.snapshot import Claim, Gang, JobRef
from model.gpu_sharing import with_carried_configs
from model.mig import with_carried
from providers.clock import Clock
from providers.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from providers.kube.objects import (
    DECODERS,
    HARD_FENCE,
    EventSeries,
    StaleObject,
    checks_patch,
    claim_object,
    claim_status,
    deactivation_patch,
    decode_claim,
    decode_hard_fence,
    decode_node,
    decode_pod,
    decode_standing,
    decode_workload,
    event_name,
    event_object,
    forget_patch,
    hard_fence_object,
    kind_of,
    node_patch,
    prepare_patch,
    release_patch,
    respecification_patch,
    start_patch,
    stop_patch,
    take_patch,
    workload_object,
    workload_status,
)
from providers.kube.objects.paths import (
    CONFIG_MAPS,
    EVENTS,
    FLEET_SYNCS,
    NODE_CLAIMS,
    NODE_POOLS,
    NODES,
    QUEUES,
    RESOURCE_QUOTAS,
    WORKLOADS,
)
from providers.kube.resources import PODS, ResourcePath
from providers.kube.retry import Retrier
from providers.kube.transport import KubeTransport

_SAID_MOST = 4096
_CONTENDED_TRIES = 4
_REPORTS: Final = {"FleetSync": FLEET_SYNCS, "Queue": QUEUES, "NodePool": NODE_POOLS}


class WrittenObject(NamedTuple):
    """What a write left behind: the object's key in its table, its resourceVersion (empty = unknown) and its value."""

    key: str
    version: str
    value: Any = None


class GpuOperatorMaps(NamedTuple):
    """The ConfigMaps that the GPU operator's parts read: their namespace, mig-manager's, and the device plugin's."""

    namespace: str = "gpu-operator"
    layouts: str = "muster-mig-config"
    sharing: str = "muster-device-plugin-config"


USUAL_MAPS: Final = GpuOperatorMaps()


class Actuator:
    """Performs actions against one cluster. Thread-safe, as the transport is."""

    def __init__(
        self,
        transport: KubeTransport,
        retrier: Retrier,
        clock: Clock,
        *,
        instance: str = "",
        gpu_operator: GpuOperatorMaps = USUAL_MAPS,
    ) -> None:
        self._api = transport
        self._retry = retrier
        self._clock = clock
        self._instance = instance
        self._gpu_operator = gpu_operator
        self._said: OrderedDict[str, EventSeries] = OrderedDict()
        self._said_lock = threading.Lock()
        self._table: dict[type, Callable[[Any], tuple[WrittenObject, ...]]] = {
            OpenGang: self._open_gang,
            SaveGang: self._save_gang,
            CloseGang: self._close_gang,
            StartJob: self._start_job,
            StopJob: self._stop_job,
            ReleasePod: self._release_pod,
            EvictPod: self._evict_pod,
            OpenClaims: self._open_claims,
            SaveClaim: self._save_claim,
            CloseClaim: self._close_claim,
            ForgetClaim: self._forget_claim,
            PatchNode: self._patch_node,
            RemoveNode: self._remove_node,
            PublishLayouts: self._publish_layouts,
            KeepHardFence: self._keep_hard_fence,
            LiftHardFence: self._lift_hard_fence,
            Announce: self._announce,
        }

    def perform(self, action: Action) -> tuple[WrittenObject, ...]:
        """Carry an action out; raises `KubeError` or `StaleObject` when it could not be."""
        return self._table[type(action)](action)

    def _open_gang(self, action: OpenGang) -> tuple[WrittenObject, ...]:
        gang = action.gang
        body = workload_object(gang)
        raw = self._create(WORKLOADS, gang.workload, body, gang.namespace)
        return (self._workload(f"{gang.namespace}/{gang.workload}", raw),)

    def _save_gang(self, action: SaveGang) -> tuple[WrittenObject, ...]:
        gang = action.gang
        held = self._read(WORKLOADS, gang.workload, gang.namespace)
        if action.deactivates:
            held = self._patch_workload(gang, held, deactivation_patch(msgspec.json.decode(held)))
        held = self._patch_workload(gang, held, checks_patch(msgspec.json.decode(held), gang), "status")
        body = workload_status(gang, self._clock.now(), *decode_standing(held))
        raw = self._apply_status(WORKLOADS, gang.workload, body, gang.namespace)
        if action.respecifies:
            raw = self._patch_workload(gang, raw, respecification_patch(msgspec.json.decode(raw), gang))
        return (self._workload(f"{gang.namespace}/{gang.workload}", raw),)

    def _patch_workload(self, gang: Gang, held: bytes, patch: list[dict[str, Any]], subresource: str = "") -> bytes:
        if not patch:
            return held
        where = (WORKLOADS, gang.workload, patch, gang.namespace, subresource)
        return self._retry.call(lambda: self._api.patch_json(*where), idempotent=True)

    @staticmethod
    def _workload(key: str, raw: bytes) -> WrittenObject:
        return WrittenObject(key, _version(raw), decode_workload(raw))

    def _close_gang(self, action: CloseGang) -> tuple[WrittenObject, ...]:
        gang = action.gang
        return (
            WrittenObject(f"{gang.namespace}/{gang.workload}", self._delete(WORKLOADS, gang.workload, gang.namespace)),
        )

    def _start_job(self, action: StartJob) -> tuple[WrittenObject, ...]:
        resource, name, namespace = _job_path(action.job)
        raw = msgspec.json.decode(self._read(resource, name, namespace))
        first = prepare_patch(action, raw)
        if first:
            answer = self._api.patch_json(resource, name, first.operations, namespace, first.subresource)
            raw = msgspec.json.decode(answer)
            action = replace(action, resource_version=raw["metadata"]["resourceVersion"])
        patch = start_patch(action, raw)
        done = self._api.patch_json(resource, name, patch, namespace) if patch else msgspec.json.encode(raw)
        return (_job(action.job, done),)

    def _stop_job(self, action: StopJob) -> tuple[WrittenObject, ...]:
        resource, name, namespace = _job_path(action.job)
        try:
            raw = msgspec.json.decode(self._read(resource, name, namespace))
        except NotFound:
            return (WrittenObject(action.job.uid, ""),)
        patch = stop_patch(action, raw)
        done = self._api.patch_json(resource, name, patch, namespace) if patch else msgspec.json.encode(raw)
        return (_job(action.job, done),)

    def _release_pod(self, action: ReleasePod) -> tuple[WrittenObject, ...]:
        pod = action.pod
        if action.marks is not None:
            return self._take_pod(action, action.marks)
        patch = release_patch(action)
        raw = self._retry.call(lambda: self._api.patch_strategic(PODS, pod.name, patch, pod.namespace), idempotent=True)
        return (WrittenObject(pod.key, _version(raw), decode_pod(raw)),)

    def _take_pod(self, action: ReleasePod, marks: Marks) -> tuple[WrittenObject, ...]:
        pod = action.pod
        for attempt in range(_CONTENDED_TRIES):
            raw = self._read(PODS, pod.name, pod.namespace)
            found = msgspec.json.decode(raw)
            if found["metadata"]["uid"] != pod.uid:
                raise StaleObject(f"pod {pod.key} has been replaced by another of its name")
            patch = take_patch(action, marks, found)
            try:
                done = self._api.patch_json(PODS, pod.name, patch, pod.namespace) if patch else raw
            except Conflict:  # somebody else wrote between our look and our write
                if attempt + 1 == _CONTENDED_TRIES:
                    raise
            else:
                return (WrittenObject(pod.key, _version(done), decode_pod(done)),)
        raise AssertionError("unreachable")

    def _evict_pod(self, action: EvictPod) -> tuple[WrittenObject, ...]:
        pod = action.pod
        try:
            if action.force_grace_s is None:
                self._api.evict(pod.name, pod.namespace, uid=pod.uid)
            else:
                self._api.delete(PODS, pod.name, pod.namespace, uid=pod.uid, grace_s=action.force_grace_s)
        except (NotFound, Conflict):
            pass  # gone, or replaced by another pod of the same name: either way this one no longer stands there
        return ()

    def _open_claims(self, action: OpenClaims) -> tuple[WrittenObject, ...]:
        return tuple(self._open_claim(claim) for claim in action.claims)

    def _open_claim(self, claim: Claim) -> WrittenObject:
        raw = self._create(NODE_CLAIMS, claim.name, claim_object(claim))
        return WrittenObject(claim.name, _version(raw), decode_claim(raw))

    def _save_claim(self, action: SaveClaim) -> tuple[WrittenObject, ...]:
        claim = action.claim
        held = self._read(NODE_CLAIMS, claim.name)
        body = claim_status(claim, self._clock.now(), *decode_standing(held))
        raw = self._apply_status(NODE_CLAIMS, claim.name, body)
        return (WrittenObject(claim.name, _version(raw), decode_claim(raw)),)

    def _close_claim(self, action: CloseClaim) -> tuple[WrittenObject, ...]:
        return (WrittenObject(action.claim.name, self._delete(NODE_CLAIMS, action.claim.name)),)

    def _forget_claim(self, action: ForgetClaim) -> tuple[WrittenObject, ...]:
        self._release(NODE_CLAIMS, action.claim.name)
        return (WrittenObject(action.claim.name, ""),)

    def _patch_node(self, action: PatchNode) -> tuple[WrittenObject, ...]:
        for attempt in range(_CONTENDED_TRIES):
            raw = self._read(NODES, action.node)
            patch = node_patch(action, msgspec.json.decode(raw))
            try:
                done = self._api.patch_json(NODES, action.node, patch) if patch else raw
            except (Conflict, Invalid):  # somebody else tainted it between our look and our write
                if attempt + 1 == _CONTENDED_TRIES:
                    raise
            else:
                return (WrittenObject(action.node, _version(done), decode_node(done)),)
        raise AssertionError("unreachable")

    def _remove_node(self, action: RemoveNode) -> tuple[WrittenObject, ...]:
        """The deletion is asked for first: after a crash between the two the node is still ours to see gone."""
        version = self._delete(NODES, action.node)
        self._release(NODES, action.node)
        return (WrittenObject(action.node, version),)

    def _release(self, resource: ResourcePath, name: str) -> None:
        """Take our finalizer away, if the object is still there and has it."""
        try:
            patch = forget_patch(msgspec.json.decode(self._read(resource, name)))
            if patch:
                self._retry.call(lambda: self._api.patch_json(resource, name, patch), idempotent=False)
        except NotFound:
            return

    def _publish_layouts(self, action: PublishLayouts) -> tuple[WrittenObject, ...]:
        at = self._gpu_operator
        if action.config:
            config = yaml.load(action.config, yaml.CSafeLoader)  # never hand mig-manager a file it cannot read
            if action.carried:
                config = with_carried(config, self._published_layouts(), action.carried)
            self._publish(at.layouts, {"config.yaml": yaml.dump(config, Dumper=yaml.CSafeDumper, sort_keys=True)})
        if action.sharing:
            published = self._published(at.sharing) if action.carried else {}
            self._publish(at.sharing, with_carried_configs(action.sharing, published, action.carried))
        return ()

    def _publish(self, name: str, data: Mapping[str, str]) -> None:
        namespace = self._gpu_operator.namespace
        metadata = {"name": name, "namespace": namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
        self._retry.call(lambda: self._api.apply(CONFIG_MAPS, name, body, namespace, force=True), idempotent=True)

    def _published(self, name: str) -> Mapping[str, str]:
        """What a ConfigMap holds now; nothing where there is none."""
        try:
            return msgspec.json.decode(self._read(CONFIG_MAPS, name, self._gpu_operator.namespace)).get("data") or {}
        except NotFound:
            return {}

    def _published_layouts(self) -> object:
        """What mig-parted's file holds now, parsed; None where there is none, or nothing that can be read."""
        try:
            return yaml.safe_load(self._published(self._gpu_operator.layouts).get("config.yaml") or "")
        except yaml.YAMLError:
            return None

    def _keep_hard_fence(self, action: KeepHardFence) -> tuple[WrittenObject, ...]:
        body = hard_fence_object(action.namespace, action.hard)
        return (self._apply_fence(action.namespace, body, force=action.takes_back),)

    def _lift_hard_fence(self, action: LiftHardFence) -> tuple[WrittenObject, ...]:
        """What others have written into it stays, without our bounds."""
        namespace, uid = action.fence.namespace, action.fence.uid
        try:
            if action.fence.shared:
                return (self._apply_fence(namespace, hard_fence_object(namespace, {}, uid), force=True),)
            where = (RESOURCE_QUOTAS, HARD_FENCE, namespace)
            raw = self._retry.call(lambda: self._api.delete(*where, uid=uid), idempotent=True)
        except (NotFound, Conflict):
            return (WrittenObject(namespace, ""),)  # gone, or replaced by another of the name
        return (WrittenObject(namespace, _version(raw)),)

    def _apply_fence(self, namespace: str, body: dict[str, Any], *, force: bool) -> WrittenObject:
        raw = self._retry.call(
            lambda: self._api.apply(RESOURCE_QUOTAS, HARD_FENCE, body, namespace, force=force), idempotent=True
        )
        return WrittenObject(namespace, _version(raw), decode_hard_fence(raw))

    def _announce(self, action: Announce) -> tuple[WrittenObject, ...]:
        action = replace(action, about=self._with_uid(action.about))
        name = event_name(action)
        now = self._clock.now()
        series = self._series_of(name, now)
        body = event_object(action, now, series, instance=self._instance)
        namespace = body["metadata"]["namespace"]
        self._retry.call(lambda: self._api.apply(EVENTS, name, body, namespace, force=True), idempotent=True)
        return ()

    def _with_uid(self, about: JobRef) -> JobRef:
        """Returns an object with its uid, by which `kubectl describe` looks for events; nobody watches our reports."""
        resource = _REPORTS.get(about.kind)
        if resource is None or about.uid:
            return about
        try:
            return replace(about, uid=_any.decode(self._read(resource, about.name)).metadata.uid)
        except (NotFound, Forbidden):  # under roles of an earlier version it may not: better said where few look
            return about

    def _series_of(self, name: str, now_s: float) -> EventSeries:
        """How often this has been said; what has not been said for long is forgotten."""
        with self._said_lock:
            before = self._said.pop(name, None)
            series = EventSeries(before.first_s, before.count + 1) if before else EventSeries(now_s)
            self._said[name] = series
            while len(self._said) > _SAID_MOST:
                self._said.popitem(last=False)
        return series

    def _read(self, resource: ResourcePath, name: str, namespace: str = "") -> bytes:
        return self._retry.call(lambda: self._api.read(resource, name, namespace), idempotent=True)

    def _create(self, resource: ResourcePath, name: str, body: dict[str, Any], namespace: str = "") -> bytes:
        try:
            return self._retry.call(lambda: self._api.create(resource, body, namespace), idempotent=True)
        except AlreadyExists:
            return self._read(resource, name, namespace)

    def _apply_status(self, resource: ResourcePath, name: str, body: dict[str, Any], namespace: str = "") -> bytes:
        return self._retry.call(
            lambda: self._api.apply(resource, name, body, namespace, "status", force=True), idempotent=True
        )

    def _delete(self, resource: ResourcePath, name: str, namespace: str = "") -> str:
        try:
            return _version(self._retry.call(lambda: self._api.delete(resource, name, namespace), idempotent=True))
        except NotFound:
            return ""


class _WrittenMeta(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815 - the wire's name
    uid: str = ""


class _Any(msgspec.Struct):
    metadata: _WrittenMeta = msgspec.field(default_factory=_WrittenMeta)


_any = msgspec.json.Decoder(_Any)


def _version(raw: bytes) -> str:
    return _any.decode(raw).metadata.resourceVersion


def _job(job: JobRef, raw: bytes) -> WrittenObject:
    return WrittenObject(job.uid, _version(raw), DECODERS[kind_of(job).group_kind](raw))


def _job_path(job: JobRef) -> tuple[ResourcePath, str, str]:
    return kind_of(job).path, job.name, job.namespace
