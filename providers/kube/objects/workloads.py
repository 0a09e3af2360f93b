"""`Gang` <-> the Workload object. The specification says what is asked for, the status what was decided.

Both together rebuild the gang after a crash. What admission rests on cannot change under it: the API server refuses any
change of the specification but of `active` (a rule of the CRD; Kueue's webhook does so while quota is reserved).

Not kept, because they are read from the job whenever it is seen: `LIVE_FIELDS`. Never written here, because they are
others' to write: `active`, once the object exists, and `checks` (`workload_patches` has the exceptions).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec
from msgspec import Raw

from fleet.reasons import Reason
from fleet.snapshot import Check, CheckState, Eviction, Gang, GangState, IdleGpus, JobRef, Pin, PodSet
from fleet.snapshot.works import POD_GROUP
from model.labels import PRIORITY_CLASS, QUEUE
from model.plain_text import plain
from providers.kube.objects.conditions import Condition, conditions_of, failure_from, find, refusal_from, written
from providers.kube.objects.instants import format_instant, instant_of
from providers.kube.objects.names import API_VERSION, JOB_UID
from providers.kube.objects.pod_sets import WirePodSet, pod_set_from, pod_set_object
from providers.kube.objects.shapes import JsonObject, Wire, WireCondition, WireMeta, set_fields
from providers.kube.objects.workload_conditions import POD_READY, gpus_of, workload_findings

KIND: Final = "Workload"


class _JobRef(Wire, frozen=True):
    api_version: str
    kind: str
    name: str
    uid: str


class _WorkloadSpec(Wire, frozen=True):
    job: _JobRef
    queue: str = ""
    priority_class: str = ""
    priority: int = 0
    preempts: bool = True
    active: bool = True
    created_at: str | None = None
    pod_sets: list[WirePodSet] | None = None


class _Assignment(Wire, frozen=True):
    pod_set: str
    flavor: str


class _Pin(Wire, frozen=True):
    pod_set: str
    count: int
    node: str = ""
    claim: str = ""


class _Counted(Wire, frozen=True):
    pod_set: str
    count: int


class _Recut(Wire, frozen=True):
    claim: str
    layout: str


class _Eviction(Wire, frozen=True):
    reason: str = ""
    message: str = ""
    at: str | None = None
    room_for: str = ""
    admitted_at: str | None = None


class _IdleGpus(Wire, frozen=True):
    since: str | None = None
    idle: int = 0
    of: int = 0
    after_seconds: float = 0.0


class _Check(Wire, frozen=True):
    name: str
    state: CheckState = CheckState.PENDING
    message: str | None = None
    requeue_after_seconds: float | None = None


class _WorkloadStatus(Wire, frozen=True):
    state: GangState = GangState.PENDING
    reason: str = ""
    message: str = ""
    since: str | None = None
    flavors: list[_Assignment] | None = None
    admitted: list[_Counted] | None = None
    pins: list[_Pin] | None = None
    leaving: list[_Pin] | None = None
    recuts: list[_Recut] | None = None
    quota_reserved_at: str | None = None
    admitted_at: str | None = None
    not_ready_since: str | None = None
    replacing_since: str | None = None
    idle_gpus: _IdleGpus | None = None
    eviction: _Eviction | None = None
    evictions: int = 0
    requeue_at: str | None = None
    timeouts: int = 0
    ran_before_seconds: float = 0.0
    admission_checks: list[_Check] | None = None
    conditions: list[WireCondition] | None = None


class _Workload(Wire, frozen=True):
    metadata: WireMeta
    spec: _WorkloadSpec
    status: _WorkloadStatus | None = None


_decoder = msgspec.json.Decoder(_Workload)


def workload_object(gang: Gang) -> JsonObject:
    """The Workload of a gang as it is created: metadata and specification.

    The job owns it, or the pod that is a gang of its own. A plain group is no object that could: what names an owner
    that is not there is collected.
    """
    job = gang.job
    labels = {JOB_UID: gang.uid} | set_fields(**{QUEUE: gang.queue, PRIORITY_CLASS: gang.priority_class})
    ref = {"apiVersion": job.api_version, "kind": job.kind, "name": job.name, "uid": job.uid}
    owned = {} if job.kind == POD_GROUP else {"ownerReferences": [{**ref, "controller": True}]}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": gang.workload,
            "namespace": gang.namespace,
            "labels": labels,
            **owned,
        },
        "spec": {
            "job": ref,
            "queue": gang.queue,
            "priorityClass": gang.priority_class,
            "priority": gang.priority,
            "createdAt": format_instant(gang.created_at_s),
            "podSets": [pod_set_object(pod_set) for pod_set in gang.pod_sets],
            **({} if gang.preempts else {"preempts": False}),
            **({} if gang.active else {"active": False}),
        },
    }


def workload_status(gang: Gang, now_s: float, previous: Sequence[Condition] = (), generation: int = 0) -> JsonObject:
    """The body that records what was decided, for server-side apply to the status subresource.

    `previous` are the conditions the object has (`decode_conditions`), so that their times stay true.
    """
    status = {
        "state": str(gang.state),
        "reason": gang.reason,
        "message": plain(gang.message),
        "since": format_instant(gang.since_s),
        "conditions": written(workload_findings(gang, now_s, previous), previous, now_s, generation),
    } | set_fields(
        waitingSince=_waiting_since(gang),
        nodes=len({pin.node or pin.claim for pin in gang.pins}),
        gpus=gpus_of(gang),
        flavors=[{"podSet": name, "flavor": one} for name, given in sorted(gang.flavors.items()) for one in given],
        admitted=[{"podSet": one.name, "count": one.count} for one in gang.pod_sets if gang.holds_capacity],
        pins=[_pin_object(pin) for pin in gang.pins],
        leaving=[_pin_object(pin) for pin in gang.leaving],
        recuts=[{"claim": claim, "layout": layout} for claim, layout in sorted(gang.recuts.items())],
        quotaReservedAt=_stamp(gang.quota_reserved_at_s),
        admittedAt=_stamp(gang.admitted_at_s),
        notReadySince=_stamp(gang.not_ready_since_s),
        replacingSince=_stamp(gang.replacing_since_s),
        idleGpus=_idle_object(gang.idle),
        eviction=_eviction_object(gang.eviction),
        evictions=gang.evictions,
        requeueAt=_stamp(gang.requeue_at_s),
        timeouts=gang.timeouts,
        ranBeforeSeconds=gang.ran_before_s,
    )
    metadata = {"name": gang.workload, "namespace": gang.namespace}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": status}


def decode_workload(raw: bytes | Raw) -> Gang:
    """The gang a Workload records; `LIVE_FIELDS` have their defaults. Without a status nothing was decided yet."""
    found = _decoder.decode(raw)
    meta, spec, job = found.metadata, found.spec, found.spec.job
    status = found.status or _WorkloadStatus(reason=Reason.QUEUED, since=meta.creation_timestamp)
    conditions = conditions_of(status.conditions)
    ready = find(conditions, POD_READY)
    return Gang(
        uid=job.uid,
        namespace=meta.namespace,
        workload=meta.name,
        workload_uid=meta.uid,
        job=JobRef(job.api_version, job.kind, meta.namespace, job.name, job.uid),
        queue=spec.queue,
        priority_class=spec.priority_class,
        priority=spec.priority,
        pod_sets=_admitted(spec.pod_sets or (), status.admitted or (), meta.namespace),
        created_at_s=instant_of(spec.created_at),
        state=status.state,
        reason=status.reason,
        message=status.message,
        since_s=instant_of(status.since),
        flavors=_flavors(status.flavors or ()),
        pins=tuple(_pin(pin) for pin in status.pins or ()),
        leaving=tuple(_pin(pin) for pin in status.leaving or ()),
        recuts={one.claim: one.layout for one in status.recuts or ()},
        quota_reserved_at_s=instant_of(status.quota_reserved_at),
        admitted_at_s=instant_of(status.admitted_at),
        not_ready_since_s=instant_of(status.not_ready_since),
        replacing_since_s=instant_of(status.replacing_since),
        pods_ready=ready is not None and ready.holds is True,
        idle=_idle(status.idle_gpus),
        eviction=_eviction(status.eviction),
        evictions=status.evictions,
        requeue_at_s=instant_of(status.requeue_at),
        preempts=spec.preempts,
        active=spec.active,
        timeouts=status.timeouts,
        ran_before_s=status.ran_before_seconds,
        failure=failure_from(conditions),
        refused=refusal_from(conditions),
        checks={
            one.name: Check(one.state, one.message or "", one.requeue_after_seconds or 0.0)
            for one in status.admission_checks or ()
        },
    )


# -- decisions --------------------------------------------------------------------------------------------------------


def _flavors(found: Sequence[_Assignment]) -> dict[str, tuple[str, ...]]:
    flavors: dict[str, tuple[str, ...]] = {}
    for one in found:
        flavors[one.pod_set] = (*flavors.get(one.pod_set, ()), one.flavor)
    return flavors


def _admitted(asked: Sequence[WirePodSet], admitted: Sequence[_Counted], namespace: str) -> tuple[PodSet, ...]:
    """The pod sets with as many pods as were admitted: perhaps fewer than were asked for."""
    counts = {one.pod_set: one.count for one in admitted}
    found = (pod_set_from(one, namespace) for one in asked)
    return tuple(replace(pods, count=counts.get(pods.name, pods.count)) for pods in found)


def _pin(pin: _Pin) -> Pin:
    return Pin(pin.pod_set, pin.node, pin.claim, pin.count)


def _pin_object(pin: Pin) -> JsonObject:
    return {"podSet": pin.pod_set, "count": pin.count} | set_fields(node=pin.node, claim=pin.claim)


def _idle_object(idle: IdleGpus | None) -> JsonObject | None:
    if idle is None:
        return None
    since, after_s = format_instant(idle.since_s), idle.after_s
    return {"since": since, "idle": idle.idle, "of": idle.of, "afterSeconds": after_s}


def _idle(found: _IdleGpus | None) -> IdleGpus | None:
    return None if found is None else IdleGpus(instant_of(found.since), found.idle, found.of, found.after_seconds)


def _eviction_object(eviction: Eviction | None) -> Mapping[str, str] | None:
    if eviction is None:
        return None
    told = {"reason": eviction.reason, "message": plain(eviction.message), "at": format_instant(eviction.at_s)}
    return told | set_fields(roomFor=eviction.room_for, admittedAt=_stamp(eviction.admitted_at_s))


def _eviction(found: _Eviction | None) -> Eviction | None:
    if found is None:
        return None
    at_s, admitted_at_s = instant_of(found.at), instant_of(found.admitted_at)
    return Eviction(found.reason, found.message, at_s, found.room_for, admitted_at_s)


def _stamp(epoch_s: float) -> str:
    return format_instant(epoch_s) if epoch_s else ""


def _waiting_since(gang: Gang) -> str:
    """Since when people have been waiting for it; nothing while it runs, leaves or is over."""
    if gang.state not in {GangState.PENDING, GangState.RESERVED}:
        return ""
    return format_instant(max(gang.created_at_s, gang.eviction.at_s if gang.eviction else 0.0))
