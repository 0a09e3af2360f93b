"""What people ask of the agent by hand, on the FleetSync: to look at the repository now, and to suspend the sync.

Whoever writes another value into the annotation `muster.dev/requested-at` makes the agent that leads poll, and reads
the value again in `status.lastHandledRequest` once it has; `spec.suspend` says that no revision comes into force. Flux
has the same conventions (`requestedAt`, `lastHandledReconcileAt`, `spec.suspend`).
"""

import random
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import structlog
from msgspec import Raw

from agent.inbox import Event, Operated, RequestHandled
from model import labels
from model.plain_text import plain
from providers.clock import Clock
from providers.kube.batches import Batch, told
from providers.kube.errors import Invalid, KubeError
from providers.kube.objects.instants import format_instant
from providers.kube.objects.paths import FLEET_SYNCS
from providers.kube.reading import Watched
from providers.kube.reflector import Reflector
from providers.kube.transport import KubeTransport

log = structlog.get_logger(__name__)

REASON_MOST = 256
"""Signs of a reason to suspend; the definition says the same."""
_REQUEST_MOST = 64
_TRIES = 3
_POINTER = "/metadata/annotations"
_KEY = labels.REQUESTED_AT.replace("/", "~1")


class _RequestMeta(msgspec.Struct, frozen=True):
    name: str = ""
    annotations: dict[str, str] | None = None


class _RequestSpec(msgspec.Struct, frozen=True, rename="camel"):
    suspend: bool = False
    suspend_reason: str = ""


class _RequestedObject(msgspec.Struct, frozen=True):
    metadata: _RequestMeta = msgspec.field(default_factory=_RequestMeta)
    spec: _RequestSpec = msgspec.field(default_factory=_RequestSpec)

    @property
    def asked(self) -> str:
        """The value of the annotation; empty where there is none."""
        return (self.metadata.annotations or {}).get(labels.REQUESTED_AT, "")

    @property
    def operated(self) -> Operated:
        """What its specification asks for."""
        return Operated(self.spec.suspend, plain(self.spec.suspend_reason)[:REASON_MOST] if self.spec.suspend else "")


_decoder = msgspec.json.Decoder(_RequestedObject)


def decode_operated(raw: bytes | Raw) -> Operated:
    """Returns what the specification of a FleetSync asks of the agent."""
    return _decoder.decode(raw).operated


def ask_of(transport: KubeTransport, name: str, operated: Operated) -> None:
    """Writes into the FleetSync's specification whether no revision is to come into force. Errors: KubeError."""
    fields: dict[str, Any] = {"suspend": operated.suspended, "suspendReason": operated.reason[:REASON_MOST]}
    operations = [{"op": "add", "path": f"/spec/{key}", "value": value} for key, value in fields.items()]
    transport.patch_json(FLEET_SYNCS, name, operations)


def leave_request(transport: KubeTransport, name: str, clock: Clock) -> bool:
    """Writes down that the leader should poll; False when that could not be done (there is no FleetSync yet, say)."""
    try:
        return bool(request(transport, name, clock))
    except (KubeError, msgspec.MsgspecError) as error:
        log.warning("request_not_left", why=type(error).__name__)
    return False


def request(transport: KubeTransport, name: str, clock: Clock) -> str:
    """Asks the leader to poll; the value that it echoes. Empty where others wrote meanwhile, again and again.

    Errors: KubeError; MsgspecError where the object cannot be read.
    """
    for _ in range(_TRIES):
        found = _decoder.decode(transport.read(FLEET_SYNCS, name))
        value = format_instant(clock.now())
        operations: list[dict[str, Any]] = [{"op": "add", "path": f"{_POINTER}/{_KEY}", "value": value}]
        if not found.metadata.annotations:
            operations.insert(0, {"op": "add", "path": _POINTER, "value": {}})
        try:
            transport.patch_json(FLEET_SYNCS, name, operations)
        except Invalid:
            continue  # somebody has taken the last annotation away, or written the first
        return value
    return ""


class RequestListener:
    """Takes batches of a reflector: `poke` hears each new value of the annotation, `put` what the specification asks.

    `handled` is the request that was answered last: one that is older than the agent is answered as well.
    """

    def __init__(self, poke: Callable[[str], object], put: Callable[[Event], object], handled: str = "") -> None:
        self._poke = poke
        self._put = put
        self._handled = handled
        self._operated: Operated | None = None
        self._asked: dict[str, str] = {}

    def __call__(self, batch: Batch[_RequestedObject]) -> None:
        """Tells what is other than before."""
        for name, found in told(batch, self._asked.keys()):
            before = self._asked.pop(name, self._handled)
            if found is not None:
                self._asked[name] = found.asked
                if found.asked not in ("", before):
                    self._poke(found.asked)
            operated = found.operated if found is not None else Operated(suspended=False)
            if operated != self._operated:
                self._operated = operated
                self._put(operated)


class OpenRequests:
    """Holds what was asked until the repository has been looked at since; any thread may ask."""

    def __init__(self, put: Callable[[Event], object]) -> None:
        self._put = put
        self._lock = threading.Lock()
        self._asked = ""

    def ask(self, value: str) -> None:
        """Take a request down; of several that wait the last one is answered."""
        with self._lock:
            self._asked = value

    def answering(self, listen: Callable[[], float]) -> Callable[[], float]:
        """Returns `listen`, after which what was asked before it is answered; one that raises answers nothing."""

        def answered() -> float:
            with self._lock:
                asked = self._asked
            pause_s = listen()
            with self._lock:
                self._asked = "" if self._asked == asked else self._asked
            if asked:
                self._put(RequestHandled(plain(asked)[:_REQUEST_MOST]))
            return pause_s

        return answered


def request_reflector(
    transport: KubeTransport, name: str, listener: RequestListener, clock: Clock, rng: random.Random
) -> Reflector[_RequestedObject]:
    """Returns a reflector of the one FleetSync, not started yet."""

    def decode(raw: Raw) -> _RequestedObject:
        return _decoder.decode(raw)

    watched = Watched(FLEET_SYNCS, decode, lambda it: it.metadata.name, field_selector=f"metadata.name={name}")

    def trouble(error: Exception, gap_s: float) -> None:
        log.warning("watch_trouble", table="requests", error=str(error), next_try_s=round(gap_s, 1))

    return Reflector(transport, watched, listener, clock=clock, rng=rng, on_trouble=trouble)
