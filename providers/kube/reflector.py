"""List and watch of one resource in a thread of its own, as batches of decoded objects for a single consumer.

The rules are client-go's (tools/cache/reflector.go): watch from the version of the *list*, never of its items; move on
with events and bookmarks; list again when the server has forgotten the version (410, as a status or as an ERROR event).
"""

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, Protocol, TypeVar

import msgspec
import structlog
from msgspec import Raw

from providers.clock import Clock
from providers.kube import wire
from providers.kube.batches import Batch, Changes, Delta, DeltaKind, Replace, Undecodable
from providers.kube.errors import Expired, KubeError, from_status
from providers.kube.pace import Pace, Pacing
from providers.kube.resources import ResourcePath
from providers.kube.stream import LineStream

T = TypeVar("T")
D = TypeVar("D")

log = structlog.get_logger(__name__)

_KINDS: Final = {kind.value: kind for kind in DeltaKind}
_RAW_KEPT: Final = 4096
_ASKED_MAX_S: Final = 60.0  # no Retry-After, however long, may blind the agent for longer


class ListWatch(Protocol):
    """The part of `KubeTransport` a reflector needs."""

    def list_envelopes(
        self,
        resource: ResourcePath,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        *,
        on_restart: Callable[[], None] | None = None,
    ) -> Iterator[wire.ListPage]:
        """Pages of a list."""
        ...

    def watch(
        self,
        resource: ResourcePath,
        resource_version: str,
        timeout_s: int,
        *,
        bookmarks: bool = True,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        grace_s: float = 30.0,
    ) -> LineStream:
        """Batches of event lines."""
        ...


@dataclass(frozen=True, slots=True)
class Watched(Generic[T]):
    """What to reflect: a resource, narrowed by namespace and selectors, and how to read its objects.

    `decode` takes the JSON of one object (items of a list carry no kind) and raises whatever it likes; `key` names an
    object among its kind: `namespace/name`, `name` or uid; `on_undecodable` hears of each object that was skipped.
    """

    resource: ResourcePath
    decode: Callable[[Raw], T]
    key: Callable[[T], str]
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    on_undecodable: Callable[[Undecodable], None] | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Server-side time-out of a watch (drawn from `watch_s` to twice that), silence beyond it, pages, retries."""

    watch_s: int = 300
    grace_s: float = 30.0
    page_limit: int = 500
    pacing: Pacing = field(default_factory=Pacing)
    relist_after: int = 5
    """Attempts to resume a watch that may fail in a row before the version itself is suspected."""


class Reflector(Generic[T]):
    """Keeps a consumer informed until stopped. Callbacks run on the reflector's thread and should only enqueue.

    `on_batch` first gets a `Replace`, then `Changes`, and after every gap another `Replace`; if it raises, it gets a
    `Replace` again. `on_trouble` hears of each failure, with the seconds until the next attempt.
    """

    def __init__(
        self,
        transport: ListWatch,
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
        self._heard_at_s = clock.monotonic()
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
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def silent_s(self) -> float:
        """Seconds since the server last said anything (a list, an event, a bookmark, a watch accepted)."""
        return self._clock.monotonic() - self._heard_at_s

    def run(self) -> None:
        """The loop, until `stop`. Usually in the thread `start` makes."""
        while not self._stop.is_set():
            trouble = self._attempt()
            if self._stop.is_set():
                return
            gap_s = self._gap_s(trouble)
            if trouble is not None:
                self._report(trouble, gap_s)
            if gap_s:
                self._wait(gap_s)

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
        if self._on_trouble is not None:
            self._on_trouble(trouble, gap_s)

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
            self._heard_at_s = self._clock.monotonic()
            objects.update(self._decoded(page.items or (), skipped))
        self._on_batch(Replace(MappingProxyType(objects), version, tuple(skipped)))
        self.synced.set()
        return version

    def _pages(self, forget: Callable[[], None]) -> Iterator[wire.ListPage]:
        watched = self._watched
        pages = self._transport.list_envelopes(
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

    def _decoded(self, items: Iterable[Raw], skipped: list[Undecodable]) -> Iterator[tuple[str, T]]:
        decode, key = self._watched.decode, self._watched.key
        for raw in items:
            try:
                found = decode(raw)
                name = key(found)
            except Exception as error:  # noqa: BLE001 - decoders are the caller's; one bad object must not hide the rest
                skipped.append(self._skip(raw, error))
                continue
            yield name, found

    def _skip(self, raw: Raw | bytes, error: Exception) -> Undecodable:
        who = wire.identity(raw)
        found = Undecodable(
            who.namespace, who.name, who.uid, bytes(raw)[:_RAW_KEPT], f"{type(error).__name__}: {error}"
        )
        log.warning("undecodable_object", resource=str(self._watched.resource), name=found.name, error=found.error)
        if self._watched.on_undecodable is not None:
            self._watched.on_undecodable(found)
        return found

    def _check_history(self, version: str) -> None:
        """Raise `Expired` when the server is younger than what it told before: its store was restored from a backup.

        Such a server accepts a watch from its future and leaves out all that happens until it gets there, bookmarks
        included (apiserver, storage/cacher: events up to the requested version are dropped). Only a list, be it of one
        object, tells.
        """
        watched = self._watched
        page = next(self._transport.list_envelopes(watched.resource, watched.namespace, limit=1))
        if _goes_back(version, page.resource_version):
            raise _another_history(version, page.resource_version)

    # -- watch --------------------------------------------------------------------------------------------------------

    def _follow(self, version: str) -> None:
        """Hand over what happens after `version` until the server ends the watch or it breaks."""
        timeout_s = int(self._timing.watch_s * self._rng.uniform(1.0, 2.0))
        with self._opened(version, timeout_s) as stream:
            self._watching_since_s = self._heard_at_s = self._clock.monotonic()
            try:
                for lines in stream:
                    self._heard_at_s = self._clock.monotonic()
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
        """Whole lines of a watch: hand over their deltas, move the version on, then raise what the server complains of.

        In this order: what came before a complaint is good, and a version is passed only once its event is delivered.
        """
        events, deltas, trouble = self._events(lines), list[Delta[T]](), None
        for at, event in enumerate(events):
            if (kind := _KINDS.get(event.type)) is not None:
                trouble = self._add(kind, event.object, deltas)
            elif event.type == "ERROR":
                trouble = from_status(0, event.object, context=f"watch {self._watched.resource}")
            if trouble is not None:
                del events[at:]
                break
        version = _last_version(events) or self._version or ""
        if deltas:
            self._on_batch(Changes(tuple(deltas), version))
        if _goes_back(self._version or "", version):
            trouble = _another_history(self._version, version)
        elif version != self._version:
            self._version, self._barren = version, 0
        if trouble is not None:
            raise trouble

    def _add(self, kind: DeltaKind, raw: Raw, deltas: list[Delta[T]]) -> KubeError | None:
        try:
            found = self._watched.decode(raw)
            deltas.append(Delta(kind, self._watched.key(found), found))
        except Exception as error:  # noqa: BLE001 - see `_decoded`
            self._skip(raw, error)
            if kind is DeltaKind.DELETED:
                return Expired("an object that cannot be read was deleted: only a list shows what is left")
        return None

    def _events(self, lines: bytes) -> list[wire.WatchEvent]:
        try:
            return wire.decode_events(lines)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return list(self._sound(lines.splitlines()))

    def _sound(self, lines: list[bytes]) -> Iterator[wire.WatchEvent]:
        for line in lines:
            try:
                yield wire.decode_event(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                self._skip(line, error)


def _goes_back(old: str, new: str) -> bool:
    """Whether `new` is older. Versions are opaque before Kubernetes 1.35, so only those that are numbers are compared."""
    return old.isdecimal() and new.isdecimal() and int(new) < int(old)


def _another_history(old: str | None, new: str) -> Expired:
    return Expired(f"version {new} after {old}: the server was restored, or is another one")


def _last_version(events: list[wire.WatchEvent]) -> str:
    """Versions of one watch only grow, so the last that can be read stands for all (bookmarks carry nothing else)."""
    for event in reversed(events):
        if version := wire.identity(event.object).resource_version:
            return version
    return ""
