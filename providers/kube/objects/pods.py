"""`core/v1` Pod -> `Pod`; the hot decoder: 100,000 of them when the agent starts."""

import re
from sys import intern
from typing import Final, Literal

import msgspec
from msgspec import Raw, field

from fleet.snapshot import Pod
from model.labels import DO_NOT_DISRUPT, HOSTNAME
from model.quantity import Resources
from providers.kube.objects.amounts import pod_requests, raw_bytes
from providers.kube.objects.instants import instant_of
from providers.kube.objects.names import MIRROR, PLACEMENT_GATE, POD_SET, SAFE_TO_EVICT, WORKLOAD
from providers.kube.objects.shapes import Owner, Wire, WireCondition, holding

DEFAULT_GRACE_S: Final = 30

_DURATION: Final = re.compile(r"(\d+(\.\d+)?(h|m|s|ms|us|ns))+")


class Container(Wire, frozen=True):
    """A container, as far as placement goes. `restart_policy` Always makes an init container a sidecar."""

    resources: Raw = Raw()
    restart_policy: str | None = None


class Gate(Wire, frozen=True):
    """One scheduling gate."""

    name: str


class PodResources(Wire, frozen=True):
    """The fields of a pod spec that say what it takes on a node."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Raw = Raw()
    resources: Raw = Raw()


class _Labels(Wire, frozen=True):
    workload: str = field(default="", name=WORKLOAD)
    pod_set: str = field(default="", name=POD_SET)


class _Annotations(Wire, frozen=True):
    do_not_disrupt: str = field(default="", name=DO_NOT_DISRUPT)
    safe_to_evict: str = field(default="", name=SAFE_TO_EVICT)
    mirror: str | None = field(default=None, name=MIRROR)


class _Meta(Wire, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: _Labels | None = None
    annotations: _Annotations | None = None
    owner_references: list[Owner] | None = None
    deletion_timestamp: str | None = None


class _NodeSelector(Wire, frozen=True):
    hostname: str = field(default="", name=HOSTNAME)


class _Spec(PodResources, frozen=True):
    node_name: str = ""
    node_selector: _NodeSelector | None = None
    scheduling_gates: list[Gate] | None = None
    termination_grace_period_seconds: int | None = None


class _Status(Wire, frozen=True):
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"] = "Pending"
    conditions: list[WireCondition] | None = None
    start_time: str | None = None


class _Pod(Wire, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decoder = msgspec.json.Decoder(_Pod)
_NO_LABELS: Final = _Labels()
_NO_ANNOTATIONS: Final = _Annotations()


def requests_of(spec: PodResources) -> Resources:
    """What a pod of this spec takes on a node, in canonical amounts; shared between equal pods."""
    return pod_requests(
        tuple([raw_bytes(container.resources) for container in spec.containers or ()]),
        tuple([(one.restart_policy == "Always", raw_bytes(one.resources)) for one in spec.init_containers or ()]),
        raw_bytes(spec.overhead),
        raw_bytes(spec.resources),
    )


def protects(do_not_disrupt: str, safe_to_evict: str = "") -> bool:
    """Whether the annotations forbid voluntary disruption.

    Karpenter also takes a duration, counted from the pod's start; it protects as long as the pod lives here.
    """
    if safe_to_evict == "false":
        return True
    return do_not_disrupt == "true" or bool(_DURATION.fullmatch(do_not_disrupt))


def decode_pod(raw: bytes | Raw) -> Pod:
    """A pod, with only those of its labels and annotations that decide something here."""
    found = _decoder.decode(raw)
    meta, spec, status = found.metadata, found.spec, found.status
    labels = meta.labels or _NO_LABELS
    annotations = meta.annotations or _NO_ANNOTATIONS
    grace_s = spec.termination_grace_period_seconds
    return Pod(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        node=intern(spec.node_name),
        phase=status.phase,
        requests=requests_of(spec),
        workload=intern(labels.workload),
        pod_set=intern(labels.pod_set),
        gated=any(gate.name == PLACEMENT_GATE for gate in spec.scheduling_gates or ()),
        pinned_host=intern(spec.node_selector.hostname) if spec.node_selector else "",
        ready=holding(status.conditions, "Ready") is not None,
        deleting=meta.deletion_timestamp is not None,
        daemon=annotations.mirror is not None
        or any(owner.kind == "DaemonSet" for owner in meta.owner_references or ()),
        do_not_disrupt=protects(annotations.do_not_disrupt, annotations.safe_to_evict),
        started_at_s=instant_of(status.start_time),
        deletion_grace_s=float(DEFAULT_GRACE_S if grace_s is None else grace_s),
        deletion_at_s=instant_of(meta.deletion_timestamp),
    )
