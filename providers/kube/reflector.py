"""List and watch of one resource in a thread of its own, as batches of decoded objects for a single consumer.

The rules are client-go's (tools/cache/reflector.go): watch from the version of the *list*, never of its items; move on
with events and bookmarks; list again when the server has forgotten the version (410, as a status or as an ERROR event).
"""

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, TypeVar

import structlog

from providers.clock import Clock
from providers.kube import wire
from providers.kube.batches import Batch, Changes, Replace, Undecodable
from providers.kube.errors import Expired, KubeError, NotFound
from providers.kube.pace import Pace, Pacing
from providers.kube.reading import Reader, Watched
from providers.kube.stream import LineStream
from providers.kube.transport import KubeTransport

T = TypeVar("T")

log = structlog.get_logger(__name__)

_ASKED_MAX_S: Final = 60.0  # no Retry-After, however long, may blind the agent for longer


@dataclass(frozen=True, slots=True)
class Timing:
    """Server-side time-out of a watch (drawn from `watch_s` to twice that), silence beyond it, pages, retries."""

    watch_s: int = 300
    grace_s: float = 30.0
    page_limit: int = 500
    pacing: Pacing = field(default_factory=Pacing)
    absent_s: float = 60.0
    """Between two looks for an optional resource that the server does not serve."""
    relist_after: int = 5
    """Attempts to resume a watch that may fail in a row before the version itself is suspected."""


class Reflector(Generic[T]):
    """Keeps a consumer informed until stopped. Callbacks run on the reflector's thread and should only enqueue.

    `on_batch` first gets a `Replace`, then `Changes`, and after every gap another `Replace`; if it raises, it gets a
    `Replace` again. `on_trouble` hears of each failure, with the seconds until the next attempt.
    """

    def __init__(
        self,
        transport: KubeTransport,
        watched: Watched[T],
        on_batch: Callable[[Batch[T]], None],
        *,
        clock: Clock,
        rng: random.Random,
        timing: Timing = Timing(),
        on_trouble: Callable[[Exception, float], None] | None = None,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self.synced = threading.Event()
        self._transport = transport
        self._watched = watched
        self._reader = Reader(watched)
        self._on_batch = on_batch
        self._clock = clock
        self._rng = rng
        self._timing = timing
        self._on_trouble = on_trouble
        self._stop = threading.Event()
        self._wait = self._stop.wait if wait is None else wait
        self._pace = Pace(timing.pacing, rng)
        self._version: str | None = None
        self._barren = 0
        self._watching_since_s: float | None = None
        self._absent = False
        self._stream: LineStream | None = None
        self._stream_lock = threading.Lock()
        self._thread = threading.Thread(target=self.run, name=f"reflect-{watched.resource}", daemon=True)

    def start(self) -> None:
        """Begin in the background."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """End it and wait; False if the thread is still inside a request whose time-out is longer than `timeout_s`."""
        self._stop.set()
        with self._stream_lock:
            if self._stream is not None:
                self._stream.interrupt()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def run(self) -> None:
        """Lists and watches until `stop`; usually in the thread that `start` makes."""
        while not self._stop.is_set():
            trouble = self._attempt()
            if self._stop.is_set():
                return
            if self._watched.optional and isinstance(trouble, NotFound):
                self._missing()
                continue
            self._absent = False
            gap_s = self._gap_s(trouble)
            if trouble is not None:
                self._report(trouble, gap_s)
            if gap_s:
                self._wait(gap_s)

    def _missing(self) -> None:
        """There are none of a kind that is not served; look again now and then, it may be installed later."""
        self._version = None
        if not self._absent:
            self._absent = True
            log.info("not_served", resource=str(self._watched.resource), next_look_s=self._timing.absent_s)
            self._on_batch(Replace(MappingProxyType({}), "0"))
            self.synced.set()
        self._wait(self._timing.absent_s)

    def _gap_s(self, trouble: Exception | None) -> float:
        """Seconds until the next attempt; a version that leads nowhere again and again is given up."""
        watched_s = 0.0 if self._watching_since_s is None else self._clock.monotonic() - self._watching_since_s
        gap_s = self._pace.gap_s(watched_s, in_order=trouble is None)
        self._barren = self._barren + 1 if gap_s else 0
        if self._barren >= self._timing.relist_after:
            self._version = None
        return max(gap_s, min(_ASKED_MAX_S, getattr(trouble, "retry_after_s", None) or 0.0))

    def _attempt(self) -> Exception | None:
        """List if need be, then watch until that ends; the error it ended with, if any."""
        self._watching_since_s = None
        try:
            if self._version is None:
                self._version = self._relist()
            else:
                self._check_history(self._version)
            self._follow(self._version)
        except KubeError as error:
            if not error.transient:
                self._version = None
            return error
        except Exception as error:  # noqa: BLE001 - the loop's edge: a consumer's fault is reported and followed by a list
            self._version = None
            return error
        return None

    def _report(self, trouble: Exception, gap_s: float) -> None:
        level = log.warning if isinstance(trouble, KubeError) else log.error
        level("reflector_trouble", resource=str(self._watched.resource), error=str(trouble), next_try_s=round(gap_s, 1))
        if self._on_trouble is None:
            return
        try:
            self._on_trouble(trouble, gap_s)
        except Exception:
            log.exception("on_trouble_failed", resource=str(self._watched.resource))

    # -- list ---------------------------------------------------------------------------------------------------------

    def _relist(self) -> str:
        """Hand over everything there is; returns the version to watch from."""
        objects: dict[str, T] = {}
        skipped: list[Undecodable] = []
        version = ""

        def forget() -> None:
            nonlocal version
            version = ""
            objects.clear()
            skipped.clear()

        for page in self._pages(forget):
            version = version or page.resource_version
            objects.update(self._reader.objects(page.items or (), skipped))
        self._on_batch(Replace(MappingProxyType(objects), version, tuple(skipped)))
        self.synced.set()
        return version

    def _pages(self, forget: Callable[[], None]) -> Iterator[wire.ListPage]:
        watched = self._watched
        pages = self._transport.list_pages(
            watched.resource,
            watched.namespace,
            watched.label_selector,
            watched.field_selector,
            self._timing.page_limit,
            on_restart=forget,
        )
        for page in pages:
            if self._stop.is_set():
                raise KubeError("stopped during the list")
            yield page

    def _check_history(self, version: str) -> None:
        """Raise `Expired` when the server is younger than what it told before: its store was restored from a backup.

        Such a server accepts a watch from its future and leaves out all that happens until it gets there, bookmarks
        included (apiserver, storage/cacher: events up to the requested version are dropped). Only a list, be it of one
        object, tells.
        """
        watched = self._watched
        page = next(self._transport.list_pages(watched.resource, watched.namespace, limit=1))
        if _goes_back(version, page.resource_version):
            raise _another_history(version, page.resource_version)

    # -- watch --------------------------------------------------------------------------------------------------------

    def _follow(self, version: str) -> None:
        """Hand over what happens after `version` until the server ends the watch or it breaks."""
        timeout_s = int(self._timing.watch_s * self._rng.uniform(1.0, 2.0))
        with self._opened(version, timeout_s) as stream:
            self._watching_since_s = self._clock.monotonic()
            try:
                for lines in stream:
                    self._take(lines)
            finally:
                with self._stream_lock:
                    self._stream = None

    def _opened(self, version: str, timeout_s: int) -> LineStream:
        watched = self._watched
        stream = self._transport.watch(
            watched.resource,
            version,
            timeout_s,
            namespace=watched.namespace,
            label_selector=watched.label_selector,
            field_selector=watched.field_selector,
            grace_s=self._timing.grace_s,
        )
        with self._stream_lock:
            self._stream = stream
            if self._stop.is_set():  # `stop` came before there was anything to interrupt
                stream.interrupt()
        return stream

    def _take(self, lines: bytes) -> None:
        """Hand over the deltas of some lines, move the version on, then raise what the server complains of.

        In this order: what came before a complaint is good, and a version is passed only once its event is delivered.
        """
        reading = self._reader.events(lines)
        version = reading.version or self._version or ""
        if reading.deltas:
            self._on_batch(Changes(reading.deltas, version))
        if _goes_back(self._version or "", version):
            raise _another_history(self._version, version)
        if version != self._version:
            self._version, self._barren = version, 0
        if reading.trouble is not None:
            raise reading.trouble


def _goes_back(old: str, new: str) -> bool:
    """Whether `new` is older; only numbers are compared: before Kubernetes 1.35 versions are opaque by contract."""
    return old.isdecimal() and new.isdecimal() and int(new) < int(old)


def _another_history(old: str | None, new: str) -> Expired:
    return Expired(f"version {new} after {old}: the server was restored, or is another one")
