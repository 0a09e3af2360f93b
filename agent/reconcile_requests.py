"""Hears what people ask of the agent by hand, on the FleetSync (`agent.asked`), and answers it."""

import random
import threading
from collections.abc import Callable

import msgspec
import structlog
from msgspec import Raw

from agent.asked import AskedObject, Operated, decode_asked, request
from agent.inbox import Event, RequestHandled
from model.plain_text import plain
from providers.clock import Clock
from providers.kube.batches import Batch, told
from providers.kube.errors import KubeError
from providers.kube.objects.paths import FLEET_SYNCS
from providers.kube.reading import Watched
from providers.kube.reflector import Reflector
from providers.kube.transport import KubeTransport

log = structlog.get_logger(__name__)

_REQUEST_MOST = 64


def leave_request(transport: KubeTransport, name: str, clock: Clock) -> bool:
    """Writes down that the leader should poll; False when that could not be done (there is no FleetSync yet, say)."""
    try:
        return bool(request(transport, name, clock.now()))
    except (KubeError, msgspec.MsgspecError) as error:
        log.warning("request_not_left", why=type(error).__name__)
    return False


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

    def __call__(self, batch: Batch[AskedObject]) -> None:
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
) -> Reflector[AskedObject]:
    """Returns a reflector of the one FleetSync, not started yet."""

    def decode(raw: Raw) -> AskedObject:
        return decode_asked(raw)

    watched = Watched(FLEET_SYNCS, decode, lambda it: it.metadata.name, field_selector=f"metadata.name={name}")

    def trouble(error: Exception, gap_s: float) -> None:
        log.warning("watch_trouble", table="requests", error=str(error), next_try_s=round(gap_s, 1))

    return Reflector(transport, watched, listener, clock=clock, rng=rng, on_trouble=trouble)
