"""`core/v1` Node -> `Node`."""

from functools import lru_cache
from sys import intern
from typing import Final

import msgspec
from msgspec import Raw

from fleet.snapshot import Node, NodeCondition
from model.kinds import Taint
from model.labels import DO_NOT_DISRUPT, NODE_NAME
from model.plain_text import plain
from providers.kube.objects.amounts import raw_bytes, resource_list
from providers.kube.objects.instants import instant_of
from providers.kube.objects.names import TERMINATION_FINALIZER
from providers.kube.objects.shapes import EMPTY, Wire, WireCondition, WireTaint, interned


class _NodeAnnotations(Wire, frozen=True):
    do_not_disrupt: str = msgspec.field(default="", name=DO_NOT_DISRUPT)


class _NodeMeta(Wire, frozen=True):
    name: str
    uid: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: _NodeAnnotations | None = None
    finalizers: list[str] | None = None


class _NodeSpec(Wire, frozen=True):
    provider_id: str = msgspec.field(default="", name="providerID")
    taints: list[WireTaint] | None = None
    unschedulable: bool = False


class _NodeStatus(Wire, frozen=True):
    allocatable: Raw = Raw()
    conditions: list[WireCondition] | None = None


class _Node(Wire, frozen=True):
    metadata: _NodeMeta
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


_decoder = msgspec.json.Decoder(_Node)


@lru_cache(maxsize=4096)
def taint_of(key: str, value: str, effect: str) -> Taint:
    """A taint; equal ones are one object. ValueError for an effect Kubernetes does not have."""
    return Taint.model_validate({"key": key, "value": value, "effect": effect})


_OF_KUBELET: Final = frozenset({"Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
_MOST_MESSAGE: Final = 200


def _message(kind: str, message: str) -> str:
    """What a health monitor says of its finding; the kubelet's conditions say nothing that their type does not."""
    return "" if kind in _OF_KUBELET else plain(message[:_MOST_MESSAGE])


def decode_node(raw: bytes | Raw) -> Node:
    """A node. Resources of old MIG profiles that the device plugin leaves at zero are dropped."""
    found = _decoder.decode(raw)
    meta, spec = found.metadata, found.spec
    ready = next((one for one in found.status.conditions or () if one.type == "Ready"), None)
    return Node(
        name=intern(meta.name),
        uid=meta.uid,
        provider_id=spec.provider_id,
        labels=interned({**(meta.labels or EMPTY), NODE_NAME: meta.name}),
        taints=tuple(taint_of(taint.key, taint.value or "", taint.effect) for taint in spec.taints or ()),
        allocatable=resource_list(raw_bytes(found.status.allocatable)),
        ready=ready is not None and ready.status == "True",
        unschedulable=spec.unschedulable,
        created_at_s=instant_of(meta.creation_timestamp),
        deleting=meta.deletion_timestamp is not None,
        ready_changed_at_s=instant_of(ready.last_transition_time) if ready else 0.0,
        conditions={
            intern(one.type): NodeCondition(
                intern(one.status), instant_of(one.last_transition_time), _message(one.type, one.message)
            )
            for one in found.status.conditions or ()
        },
        do_not_disrupt=meta.annotations.do_not_disrupt if meta.annotations else "",
        has_finalizer=TERMINATION_FINALIZER in (meta.finalizers or ()),
    )
