"""`v1` ResourceQuota <-> `HardFence`: one of a fixed name in each namespace, of which only what we have written counts.

Who has written what is what the API server says of it (`metadata.managedFields`), as for server-side apply.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw

from fleet.hard_fence import HARD_FENCE
from fleet.snapshot import HardFence
from model.quantity import Resources, canonical_resources, format_amount
from providers.kube.objects.shapes import JsonObject, Wire, dig, set_fields
from providers.kube.transport import FIELD_MANAGER

_REQUESTS: Final = "requests."
_LABELS: Final = {"app.kubernetes.io/managed-by": "muster"}


class _Owned(Wire, frozen=True):
    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: dict[str, Any] | None = msgspec.field(default=None, name="fieldsV1")


class _QuotaMeta(Wire, frozen=True):
    namespace: str
    uid: str = ""
    managed_fields: list[_Owned] | None = None


class _QuotaSpec(Wire, frozen=True):
    hard: dict[str, str | int] | None = None


class _ResourceQuota(Wire, frozen=True):
    metadata: _QuotaMeta
    spec: _QuotaSpec = _QuotaSpec()


_decoder = msgspec.json.Decoder(_ResourceQuota)


def decode_hard_fence(raw: bytes | Raw) -> HardFence:
    """A quota of our name, ours or not."""
    found = _decoder.decode(raw)
    meta, hard = found.metadata, found.spec.hard or {}
    writers = [it for it in meta.managed_fields or () if not it.subresource]
    own = [it for it in writers if (it.manager, it.operation) == (FIELD_MANAGER, "Apply")]
    of_ours = {name.removeprefix(_REQUESTS): hard[name] for name in _bounds(own) if name in hard}
    others = [it for it in writers if it not in own]
    return HardFence(
        meta.namespace,
        meta.uid,
        canonical_resources(of_ours),
        ours=bool(own),
        shared=any(dig(it.fields_v1, "f:spec") for it in others),
    )


def _bounds(writers: Iterable[_Owned]) -> Iterator[str]:
    """The names of the bounds that these have written."""
    for it in writers:
        for field in dig(it.fields_v1, "f:spec", "f:hard") or ():
            if field.startswith("f:"):
                yield field.removeprefix("f:")


def hard_fence_object(namespace: str, hard: Resources, uid: str = "") -> JsonObject:
    """The body for server-side apply: our bounds; without any, what is ours goes and the rest stays.

    With `uid` it is a Conflict where the quota is not that one.
    """
    meta = {"name": HARD_FENCE, "namespace": namespace, **set_fields(uid=uid, labels=_LABELS if hard else None)}
    bounds = {_REQUESTS + name: format_amount(name, hard[name]) for name in sorted(hard)}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, **set_fields(spec=hard and {"hard": bounds})}
