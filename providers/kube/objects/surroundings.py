"""`v1` Namespace, `scheduling.k8s.io/v1` PriorityClass and `node.k8s.io/v1` RuntimeClass."""

from typing import Final

import msgspec
from msgspec import Raw

from fleet.snapshot import Namespace, PodPriority, RuntimeClass
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
