"""`v1` Namespace, LimitRange, ResourceQuota; `scheduling.k8s.io/v1` PriorityClass, `node.k8s.io/v1` RuntimeClass."""

from typing import Final

import msgspec
from msgspec import Raw

from fleet.snapshot import (
    LimitRange,
    LimitRangeItem,
    Namespace,
    NamespaceQuota,
    PodPriority,
    QuotaScope,
    RuntimeClass,
)
from fleet.snapshot.limit_ranges import CONTAINER, POD_TYPE
from fleet.snapshot.resource_quotas import bounds_pods, resource_of
from model.quantity import CPU, Resources, canonical_amount, canonical_resources
from providers.kube.objects.amounts import raw_bytes, resource_list
from providers.kube.objects.pod_templates import WireToleration, tolerations_of
from providers.kube.objects.shapes import Wire, WireMeta, interned

_NEVER: Final = "Never"


class _Namespace(Wire, frozen=True):
    metadata: WireMeta


class _PriorityClass(Wire, frozen=True):
    metadata: WireMeta
    value: int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


class _Overhead(Wire, frozen=True):
    pod_fixed: Raw = Raw()


class _RuntimeScheduling(Wire, frozen=True):
    node_selector: dict[str, str] | None = None
    tolerations: list[WireToleration] | None = None


class _RuntimeClass(Wire, frozen=True):
    metadata: WireMeta
    overhead: _Overhead | None = None
    scheduling: _RuntimeScheduling | None = None


_Amounts = dict[str, str | int]


class _LimitRangeItem(Wire, frozen=True):
    type: str = ""
    default: _Amounts | None = None
    default_request: _Amounts | None = None
    min: _Amounts | None = None
    max: _Amounts | None = None
    max_limit_request_ratio: _Amounts | None = None


class _LimitRangeSpec(Wire, frozen=True):
    limits: list[_LimitRangeItem] | None = None


class _LimitRange(Wire, frozen=True):
    metadata: WireMeta
    spec: _LimitRangeSpec = _LimitRangeSpec()


class _ScopeTerm(Wire, frozen=True):
    scope_name: str = ""
    operator: str = "Exists"
    values: list[str] | None = None


class _ScopeSelector(Wire, frozen=True):
    match_expressions: list[_ScopeTerm] | None = None


class _NamespaceQuotaSpec(Wire, frozen=True):
    hard: _Amounts | None = None
    scopes: list[str] | None = None
    scope_selector: _ScopeSelector | None = None


class _NamespaceQuotaStatus(Wire, frozen=True):
    hard: _Amounts | None = None
    used: _Amounts | None = None


class _NamespaceQuota(Wire, frozen=True):
    metadata: WireMeta
    spec: _NamespaceQuotaSpec = _NamespaceQuotaSpec()
    status: _NamespaceQuotaStatus = _NamespaceQuotaStatus()


_quotas = msgspec.json.Decoder(_NamespaceQuota)
_limit_ranges = msgspec.json.Decoder(_LimitRange)
_runtimes = msgspec.json.Decoder(_RuntimeClass)
_namespaces = msgspec.json.Decoder(_Namespace)
_priorities = msgspec.json.Decoder(_PriorityClass)


def decode_namespace(raw: bytes | Raw) -> Namespace:
    """A namespace and its labels."""
    meta = _namespaces.decode(raw).metadata
    return Namespace(meta.name, interned(meta.labels))


def decode_pod_priority(raw: bytes | Raw) -> PodPriority:
    """A priority of pods. One that says no preemption policy preempts, as the API has it."""
    found = _priorities.decode(raw)
    return PodPriority(found.metadata.name, found.value, found.preemption_policy != _NEVER, bool(found.global_default))


def decode_runtime_class(raw: bytes | Raw) -> RuntimeClass:
    """What a runtime adds to what its pods ask."""
    found = _runtimes.decode(raw)
    scheduling = found.scheduling or _RuntimeScheduling()
    return RuntimeClass(
        found.metadata.name,
        resource_list(raw_bytes(found.overhead.pod_fixed)) if found.overhead else {},
        interned(scheduling.node_selector),
        tolerations_of(scheduling.tolerations),
    )


def decode_limit_range(raw: bytes | Raw) -> LimitRange:
    """What pods of a namespace get by default, and may ask. Items that are not about pods are left out."""
    found = _limit_ranges.decode(raw)
    items = (it for it in found.spec.limits or () if it.type in (CONTAINER, POD_TYPE))
    return LimitRange(found.metadata.namespace, found.metadata.name, tuple(_limit_range_item(it) for it in items))


def decode_namespace_quota(raw: bytes | Raw) -> NamespaceQuota:
    """What bounds the pods of a namespace, as it is in force: by its status, or its spec until that is written."""
    found = _quotas.decode(raw)
    selector = found.spec.scope_selector or _ScopeSelector()
    terms = (QuotaScope(it.scope_name, it.operator, tuple(it.values or ())) for it in selector.match_expressions or ())
    return NamespaceQuota(
        found.metadata.namespace,
        found.metadata.name,
        _bounds(found.status.hard or found.spec.hard),
        _bounds(found.status.used),
        (*(QuotaScope(name) for name in found.spec.scopes or ()), *terms),
    )


def _bounds(amounts: _Amounts | None) -> Resources:
    """Returns what is about pods, by the quota's own names."""
    of_pods = ((name, it) for name, it in (amounts or {}).items() if bounds_pods(name))
    return {name: canonical_amount(resource_of(name), it) for name, it in of_pods}


def _limit_range_item(found: _LimitRangeItem) -> LimitRangeItem:
    return LimitRangeItem(
        type=found.type,
        default=_read(found.default),
        default_request=_read(found.default_request),
        min=_read(found.min),
        max=_read(found.max),
        max_ratio_milli={name: canonical_amount(CPU, it) for name, it in (found.max_limit_request_ratio or {}).items()},
    )


def _read(amounts: _Amounts | None) -> Resources:
    return canonical_resources(amounts or {})
