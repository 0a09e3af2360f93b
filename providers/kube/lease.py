"""The `coordination.k8s.io` Lease as a leader election sees it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from providers.kube import wire
from providers.kube.errors import NotFound, Unreachable
from providers.kube.resources import LEASES
from providers.kube.transport import KubeTransport


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One state of a lease. `holder` is empty when nobody holds it; `resource_version` is the write precondition."""

    holder: str
    duration_s: int
    transitions: int
    uid: str = ""
    resource_version: str = ""


class _LeaseObject(msgspec.Struct):
    """A lease as it was read last; what of its metadata nobody here looks at goes back as it came."""

    apiVersion: str = LEASES.api_version()  # noqa: N815  the wire's name
    kind: str = "Lease"
    metadata: dict[str, msgspec.Raw] | None = None
    spec: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_LeaseObject).decode
_text = msgspec.json.Decoder(str).decode
_NO_TEXT = msgspec.Raw(b'""')


class LeaseStore(Protocol):
    """Where one lease lives. Calls raise `KubeError`, and return within about `timeout_s` seconds."""

    def read(self, *, timeout_s: float) -> LeaseRecord | None:
        """The current record; None where there is no lease."""
        ...

    def create(self, record: LeaseRecord, *, now_s: float, timeout_s: float) -> LeaseRecord:
        """A new lease, as stored; `AlreadyExists` when somebody was faster."""
        ...

    def update(self, record: LeaseRecord, *, now_s: float, timeout_s: float) -> LeaseRecord:
        """The lease as stored; `Conflict` unless `record.resource_version` is still the current one."""
        ...


class KubeLease:
    """A Lease object; fields of its spec that are not ours survive a write.

    Its requests have connections of their own: a renewal never waits behind other requests, and it does not try one
    dead connection after the other of those that a hundred other requests left behind.
    """

    def __init__(self, transport: KubeTransport, name: str, namespace: str) -> None:
        self._transport = transport.apart()
        self._name = name
        self._namespace = namespace
        self._last = _LeaseObject()

    def read(self, *, timeout_s: float) -> LeaseRecord | None:
        """The current record; None where there is no lease."""
        try:
            return self._record(self._transport.read(LEASES, self._name, self._namespace, read_s=timeout_s))
        except NotFound:
            return None

    def create(self, record: LeaseRecord, *, now_s: float, timeout_s: float) -> LeaseRecord:
        """A new lease, as stored; `AlreadyExists` when somebody was faster."""
        body = {
            "apiVersion": LEASES.api_version(),
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": _spec({}, record, now_s),
        }
        return self._record(self._transport.create(LEASES, body, self._namespace, read_s=timeout_s))

    def update(self, record: LeaseRecord, *, now_s: float, timeout_s: float) -> LeaseRecord:
        """The lease as stored; `Conflict` unless `record.resource_version` is still the current one."""
        last = self._last
        metadata = (last.metadata or {}) | {"resourceVersion": record.resource_version, "uid": record.uid}
        body = {
            "apiVersion": last.apiVersion,
            "kind": last.kind,
            "metadata": metadata,
            "spec": _spec(last.spec or {}, record, now_s),
        }
        return self._record(self._transport.replace(LEASES, self._name, body, self._namespace, read_s=timeout_s))

    def _record(self, body: bytes) -> LeaseRecord:
        try:
            self._last = last = _decode(body)
            metadata, spec = last.metadata or {}, last.spec or {}
            return LeaseRecord(
                holder=spec.get("holderIdentity") or "",
                duration_s=spec.get("leaseDurationSeconds") or 0,
                transitions=spec.get("leaseTransitions") or 0,
                uid=_text(metadata.get("uid", _NO_TEXT)),
                resource_version=_text(metadata.get("resourceVersion", _NO_TEXT)),
            )
        except wire.MALFORMED as error:
            raise Unreachable(f"the answer is not a lease: {error}") from error


def _spec(old: dict[str, Any], record: LeaseRecord, now_s: float) -> dict[str, Any]:
    now = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="microseconds")[:26] + "Z"
    changed_hands = old.get("leaseTransitions") != record.transitions or not old.get("acquireTime")
    return old | {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "leaseTransitions": record.transitions,
        "renewTime": now,
        "acquireTime": now if changed_hands else old["acquireTime"],
    }
