"""`core/v1` Pod -> `Pod`; the hot decoder: 100,000 of them when the agent starts."""

from collections.abc import Sequence
from functools import lru_cache
from sys import intern
from typing import Final, Literal

import msgspec
from msgspec import Raw, field

from fleet.snapshot import STATEFUL_SET, GroupMember, Pod
from fleet.snapshot.constraints import PodLabels
from fleet.snapshot.works import group_uid
from model.labels import DO_NOT_DISRUPT, HOSTNAME, KUEUE_QUEUE, QUEUE
from model.upstream.do_not_disrupt import FOR_GOOD, longest
from providers.kube.objects.affinities import ANYWHERE
from providers.kube.objects.amounts import raw_bytes
from providers.kube.objects.instants import instant_of
from providers.kube.objects.jobs.reading import managing
from providers.kube.objects.jobs.registry import BY_GROUP_KIND, HELD_BY_POD
from providers.kube.objects.names import (
    GROUP_NAME,
    MIRROR,
    PLACEMENT_GATE,
    POD_DELETION_COST,
    POD_SET,
    SAFE_TO_EVICT,
    VOLCANO_GROUP,
    VOLCANO_TASK,
    WORKLOAD,
)
from providers.kube.objects.pod_constraints import ConstrainedSpec, constraints_of
from providers.kube.objects.pod_groups import member_of
from providers.kube.objects.pod_requests import requests_of
from providers.kube.objects.pod_templates import shape_of_pod
from providers.kube.objects.refused_fields import SchedulingGate
from providers.kube.objects.shapes import Owner, Wire, WireCondition, holding

DEFAULT_GRACE_S: Final = 30
MOST_DIGITS: Final = 11
"""Of a 32-bit integer, with its sign."""


class _Labels(Wire, frozen=True):
    workload: str = field(default="", name=WORKLOAD)
    pod_set: str = field(default="", name=POD_SET)
    group: str = field(default="", name=GROUP_NAME[0])
    kueue_group: str = field(default="", name=GROUP_NAME[1])
    volcano_task: str = field(default="", name=VOLCANO_TASK)
    queue: str = field(default="", name=QUEUE)
    kueue_queue: str = field(default="", name=KUEUE_QUEUE)


class _PodAnnotations(Wire, frozen=True):
    do_not_disrupt: str = field(default="", name=DO_NOT_DISRUPT)
    safe_to_evict: str = field(default="", name=SAFE_TO_EVICT)
    deletion_cost: str = field(default="", name=POD_DELETION_COST)
    mirror: str | None = field(default=None, name=MIRROR)
    volcano_task: str = field(default="", name=VOLCANO_TASK)
    volcano_group: str = field(default="", name=VOLCANO_GROUP[0])
    volcano_group_too: str = field(default="", name=VOLCANO_GROUP[1])


class _PodMeta(Wire, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: Raw = Raw()
    annotations: _PodAnnotations | None = None
    owner_references: list[Owner] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None


class _HostnameSelector(Wire, frozen=True):
    hostname: str = field(default="", name=HOSTNAME)


class _PodSpec(ConstrainedSpec, frozen=True):
    node_name: str = ""
    node_selector: _HostnameSelector | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    termination_grace_period_seconds: int | None = None
    priority: int | None = None


class _PodStatus(Wire, frozen=True):
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"] = "Pending"
    conditions: list[WireCondition] | None = None
    nominated_node_name: str | None = None
    start_time: str | None = None


class _Pod(Wire, frozen=True):
    metadata: _PodMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


_decoder = msgspec.json.Decoder(_Pod)
_known_labels = msgspec.json.Decoder(_Labels)
_all_labels = msgspec.json.Decoder(dict[str, str])
_WORK: Final = frozenset(BY_GROUP_KIND)
_TEMPLATE_HASH: Final = "pod-template-hash"
_JOB_TRACKING: Final = "batch.kubernetes.io/job-tracking"
_UNLABELLED: Final[tuple[_Labels, PodLabels]] = (_Labels(), ())
_NO_ANNOTATIONS: Final = _PodAnnotations()


def decode_pod(raw: bytes | Raw) -> Pod:
    """A pod, with all of its labels, which others may select by, and those of its annotations that decide something."""
    found = _decoder.decode(raw)
    meta, spec, status = found.metadata, found.spec, found.status
    label_text = raw_bytes(meta.labels)
    labels, all_labels = _labels_of(label_text) if label_text else _UNLABELLED
    annotations = meta.annotations or _NO_ANNOTATIONS
    grace_s = spec.termination_grace_period_seconds
    owners = meta.owner_references or ()
    made_by = managing(owners, _WORK) if owners else None
    stateful, owner = (made_by, None) if made_by is not None and made_by.kind == STATEFUL_SET else (None, made_by)
    daemon = annotations.mirror is not None or (bool(owners) and any(it.kind == "DaemonSet" for it in owners))
    gated = spec.scheduling_gates is not None and any(gate.name == PLACEMENT_GATE for gate in spec.scheduling_gates)
    alone = not daemon and (gated or bool(labels.workload))
    member = member_of(raw) if owner is None and _queued(labels, annotations, alone=alone) else None
    ordinary = member is None and not labels.workload and not daemon
    return Pod(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        node=intern(spec.node_name),
        phase=status.phase,
        requests=requests_of(spec),
        workload=intern(labels.workload),
        pod_set=intern(labels.pod_set or _role(labels, annotations, member)),
        gated=gated,
        pinned_host=intern(spec.node_selector.hostname) if spec.node_selector else "",
        ready=holding(status.conditions, "Ready") is not None,
        deleting=meta.deletion_timestamp is not None,
        daemon=daemon,
        do_not_disrupt=longest((annotations.do_not_disrupt, FOR_GOOD if annotations.safe_to_evict == "false" else "")),
        started_at_s=instant_of(status.start_time),
        priority=spec.priority or 0,
        deletion_cost=_deletion_cost(annotations.deletion_cost),
        deletion_grace_s=float(DEFAULT_GRACE_S if grace_s is None else grace_s),
        deletion_at_s=instant_of(meta.deletion_timestamp),
        job_uid=_job_uid(meta, owner or stateful, member),
        member=member,
        labels=all_labels,
        constraints=constraints_of(
            spec, spec.affinity_and_spread(meta.namespace, all_labels) if spec.particular else ANYWHERE
        ),
        tracked=_JOB_TRACKING in (meta.finalizers or ()),
        shape=shape_of_pod(raw, meta.namespace, "" if owner or spec.node_name else _queue_of(labels))
        if ordinary
        else None,
        controlled=any(it.controller for it in owners),
        owner_job=_owner_job(owner, stateful, member),
        owner=_owner_name(owners, all_labels) if ordinary else "",
        waits_since_s=_waits_since_s(spec, status, meta.creation_timestamp) if ordinary or labels.workload else 0.0,
    )


def _owner_name(owners: Sequence[Owner], all_labels: PodLabels) -> str:
    """Kind and name of the controller; a ReplicaSet that a Deployment has made carries the hash of its template."""
    found = next((it for it in owners if it.controller), None)
    if found is None:
        return ""
    template = next((value for key, value in all_labels if key == _TEMPLATE_HASH), "")
    if found.kind == "ReplicaSet" and template and found.name.endswith(f"-{template}"):
        return intern(f"Deployment/{found.name.removesuffix(f'-{template}')}")
    return intern(f"{found.kind}/{found.name}")


def _waits_since_s(spec: _PodSpec, status: _PodStatus, created: str | None) -> float:
    """Since when kube-scheduler has found no place for the pod; 0 = it has not said so, or is making room for it.

    Source: Karpenter `pkg/utils/pod/scheduling.go` (FailedToSchedule, IsPreempting).
    """
    if spec.node_name or spec.scheduling_gates or status.nominated_node_name:
        return 0.0
    said = next((it for it in status.conditions or () if it.type == "PodScheduled"), None)
    if said is None or said.status == "True" or said.reason != "Unschedulable":
        return 0.0
    return instant_of(said.last_transition_time or created) or 1.0


def _deletion_cost(text: str) -> int:
    """The cost that an annotation says, 0 where that is no 32-bit integer: the API server takes no such one."""
    if not text or not text.removeprefix("-").isdecimal() or len(text) > MOST_DIGITS:
        return 0
    return max(-(1 << 31), min(int(text), (1 << 31) - 1))


@lru_cache(maxsize=16384)
def _labels_of(text: bytes) -> tuple[_Labels, PodLabels]:
    """The labels that decide something here, and all of them.

    Equal texts share both: a pod comes again and again, and siblings are alike.
    """
    found = _all_labels.decode(text)
    return _known_labels.decode(text), tuple(sorted(found.items()))


def _queue_of(labels: _Labels) -> str:
    return labels.queue or labels.kueue_queue


def _queued(labels: _Labels, annotations: _PodAnnotations, *, alone: bool) -> bool:
    """Whether a pod that no job has made is on a queue: with a plain group, or as a gang of its own if it may be."""
    if not _queue_of(labels):
        return False
    groups = (labels.group, labels.kueue_group, annotations.volcano_group, annotations.volcano_group_too)
    return alone or any(groups)


def _job_uid(meta: _PodMeta, owner: Owner | None, member: GroupMember | None) -> str:
    """The job whose pods are held one by one: the owner, the plain group, or the pod itself.

    A pod of a StatefulSet that names a group is of that; whether others are gangs of their own depends on the set.
    """
    if owner is not None and owner.kind != STATEFUL_SET:
        return intern(owner.uid) if (owner.group, owner.kind) in HELD_BY_POD else ""
    if member is None:
        return ""
    if member.group:
        return intern(group_uid(meta.namespace, member.group))
    return intern(owner.uid if owner is not None else meta.uid)


def _owner_job(owner: Owner | None, stateful: Owner | None, member: GroupMember | None) -> str:
    """The job that has made it. A pod of a StatefulSet is its only where it waits, or runs, on a queue."""
    if stateful is not None and member is not None and not member.group:
        return intern(stateful.uid)
    return intern(owner.uid) if owner is not None else ""


def _role(labels: _Labels, annotations: _PodAnnotations, member: GroupMember | None) -> str:
    """The pod set of a pod that has not been given one yet."""
    return member.shape.name if member else labels.volcano_task or annotations.volcano_task
