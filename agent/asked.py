"""What people ask of the agent by hand, on the FleetSync: to look at the repository now, and to suspend the sync.

Whoever writes another value into the annotation `muster.dev/requested-at` makes the agent that leads poll, and reads
the value again in `status.lastHandledRequest` once it has; `spec.suspend` says that no revision comes into force. Flux
has the same conventions (`requestedAt`, `lastHandledReconcileAt`, `spec.suspend`).

The command line imports this: nothing here may take it long to start.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Raw

from model import labels
from model.plain_text import plain
from providers.kube.errors import Invalid
from providers.kube.resources import FLEET_SYNCS
from providers.kube.transport import KubeTransport

REASON_MOST: Final = 256
"""Signs of a reason to suspend; the definition says the same."""
_TRIES: Final = 3
_POINTER: Final = "/metadata/annotations"
_KEY: Final = labels.REQUESTED_AT.replace("/", "~1")


@dataclass(frozen=True, slots=True)
class Operated:
    """What people ask of the sync by hand, as the FleetSync's specification says now."""

    suspended: bool
    """No revision is to come into force; what is in force goes on."""
    reason: str = ""


class _AskedMeta(msgspec.Struct, frozen=True):
    name: str = ""
    annotations: dict[str, str] | None = None


class _AskedSpec(msgspec.Struct, frozen=True, rename="camel"):
    suspend: bool = False
    suspend_reason: str = ""


class AskedObject(msgspec.Struct, frozen=True):
    """An `AskedObject` is a FleetSync, of which only what people write into it is read."""

    metadata: _AskedMeta = msgspec.field(default_factory=_AskedMeta)
    spec: _AskedSpec = msgspec.field(default_factory=_AskedSpec)

    @property
    def asked(self) -> str:
        """Returns the value of the annotation; empty where there is none."""
        return (self.metadata.annotations or {}).get(labels.REQUESTED_AT, "")

    @property
    def operated(self) -> Operated:
        """Returns what its specification asks for."""
        return Operated(self.spec.suspend, told_reason(self.spec.suspend_reason) if self.spec.suspend else "")


def told_reason(reason: str) -> str:
    """Returns a reason to suspend as the agent tells it."""
    return plain(reason)[:REASON_MOST]


def suspended_words(reason: str) -> str:
    """Returns how the condition `Suspended` of a suspension by hand begins; who asked for it waits for these words."""
    return f"no revision comes into force{f': {reason}' if reason else ''};"


_decoder = msgspec.json.Decoder(AskedObject)


def decode_asked(raw: bytes | Raw) -> AskedObject:
    """Returns what people ask by a FleetSync. Errors: MsgspecError."""
    return _decoder.decode(raw)


def decode_operated(raw: bytes | Raw) -> Operated:
    """Returns what the specification of a FleetSync asks of the agent."""
    return decode_asked(raw).operated


def ask_of(transport: KubeTransport, name: str, operated: Operated) -> None:
    """Writes into the FleetSync's specification whether no revision is to come into force. Errors: KubeError."""
    fields: dict[str, Any] = {"suspend": operated.suspended, "suspendReason": operated.reason[:REASON_MOST]}
    operations = [{"op": "add", "path": f"/spec/{key}", "value": value} for key, value in fields.items()]
    transport.patch_json(FLEET_SYNCS, name, operations)


def request(transport: KubeTransport, name: str, now_s: float) -> str:
    """Asks the leader to poll; the value that it echoes. Empty where others wrote meanwhile, again and again.

    Errors: KubeError; MsgspecError where the object cannot be read.
    """
    value = f"{datetime.fromtimestamp(now_s, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    for _ in range(_TRIES):
        found = decode_asked(transport.read(FLEET_SYNCS, name))
        operations: list[dict[str, Any]] = [{"op": "add", "path": f"{_POINTER}/{_KEY}", "value": value}]
        if not found.metadata.annotations:
            operations.insert(0, {"op": "add", "path": _POINTER, "value": {}})
        try:
            transport.patch_json(FLEET_SYNCS, name, operations)
        except Invalid:
            continue  # somebody has taken the last annotation away, or written the first
        return value
    return ""
