"""Requests to look at the repository now, left as an annotation of the FleetSync by people and by a standby's webhook.

Whoever writes another value into `muster.dev/requested-at` makes the agent that leads poll; Flux has the same
convention.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import structlog
from msgspec import Raw

from model import labels
from providers.clock import Clock
from providers.kube.batches import Batch, Changes, told
from providers.kube.errors import Invalid, KubeError
from providers.kube.objects.instants import format_instant
from providers.kube.objects.paths import FLEET_SYNCS
from providers.kube.reading import Watched
from providers.kube.reflector import Reflector
from providers.kube.transport import KubeTransport

log = structlog.get_logger(__name__)

_TRIES = 3
_POINTER = "/metadata/annotations"
_KEY = labels.REQUESTED_AT.replace("/", "~1")


class _RequestMeta(msgspec.Struct, frozen=True):
    name: str = ""
    annotations: dict[str, str] | None = None


class _RequestedObject(msgspec.Struct, frozen=True):
    metadata: _RequestMeta = msgspec.field(default_factory=_RequestMeta)

    @property
    def asked(self) -> str:
        """The value of the annotation; empty where there is none."""
        return (self.metadata.annotations or {}).get(labels.REQUESTED_AT, "")


_decoder = msgspec.json.Decoder(_RequestedObject)


def leave_request(transport: KubeTransport, name: str, clock: Clock) -> bool:
    """Writes down that the leader should poll; False when that could not be done (there is no FleetSync yet, say)."""
    try:
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
            return True
    except (KubeError, msgspec.MsgspecError) as error:
        log.warning("request_not_left", why=type(error).__name__)
    return False


class RequestListener:
    """Takes batches of a reflector; calls `poke` with the annotation when it has another value than before."""

    def __init__(self, poke: Callable[[str], object]) -> None:
        self._poke = poke
        self._asked: dict[str, str] = {}
        self._known = False

    def __call__(self, batch: Batch[_RequestedObject]) -> None:
        """What is there at the start is no request: whoever starts polls anyway."""
        asked = ""
        for name, found in told(batch, self._asked.keys()):
            before = self._asked.pop(name, "")
            if found is not None:
                self._asked[name] = found.asked
                asked = found.asked if found.asked != before else asked
        if asked and (self._known or isinstance(batch, Changes)):
            self._poke(asked)
        self._known = True


def request_reflector(
    transport: KubeTransport, name: str, poke: Callable[[str], object], clock: Clock, rng: random.Random
) -> Reflector[_RequestedObject]:
    """Returns a reflector of the one FleetSync, not started yet."""

    def decode(raw: Raw) -> _RequestedObject:
        return _decoder.decode(raw)

    watched = Watched(FLEET_SYNCS, decode, lambda it: it.metadata.name, field_selector=f"metadata.name={name}")

    def trouble(error: Exception, gap_s: float) -> None:
        log.warning("watch_trouble", table="requests", error=str(error), next_try_s=round(gap_s, 1))

    return Reflector(transport, watched, RequestListener(poke), clock=clock, rng=rng, on_trouble=trouble)
