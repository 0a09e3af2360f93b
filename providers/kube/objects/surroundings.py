"""`v1` Namespace and `scheduling.k8s.io/v1` PriorityClass."""

from typing import Final

import msgspec
from msgspec import Raw

from fleet.snapshot import Namespace, PodPriority
from providers.kube.objects.shapes import Wire, WireMeta, interned

_NEVER: Final = "Never"


class _Namespace(Wire, frozen=True):
    metadata: WireMeta


class _PriorityClass(Wire, frozen=True):
    metadata: WireMeta
    value: int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


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
