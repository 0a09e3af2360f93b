"""Watches: a cursor into the event log per watch, woken by the store, written in batches.

A slow reader holds only its cursor: when the log has moved on without it, it gets the 410 it would get upstream.
Source: API concepts (watch bookmarks, streaming lists, KEP-3157), apiserver `storage/cacher`.
"""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from providers.sim.apiserver.faults import CutWatch
from providers.sim.apiserver.tables import Renderer
from providers.sim.store import ListQuery, Resource, Revision, Store, StoreEvent, StoreExpired
from providers.sim.store.paging import parsed_version
from providers.sim.store.selectors import Predicate, selection
from providers.sim.store.watchlog import LoggedChange

_encode = msgspec.json.Encoder().encode
_BATCH = 1_000
_LAST_MARK_S = 2.0  # a watch gets its last bookmark that long before it ends (`cacher.go` bookmarkFrequency)
DEFAULT_TIMEOUT_S = 1800.0  # the real server draws between one and two of these


class Bell:
    """Wakes the watches of a resource when it changed; rung from any thread, heard on the loop, once a batch."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._dirty: set[str] = set()
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._scheduled = False
        self._lock = threading.Lock()
        self._stop = store.subscribe(self._ring)

    def close(self) -> None:
        """Stop listening."""
        self._stop()

    async def wait(self, resource_key: str, timeout_s: float) -> None:
        """Until the resource changes, or the time is up."""
        future = self._loop.create_future()
        waiting = self._waiting.setdefault(resource_key, set())
        waiting.add(future)
        try:
            async with asyncio.timeout(max(timeout_s, 0)):  # unlike wait_for it never swallows a cancellation
                await future
        except TimeoutError:
            pass
        finally:
            waiting.discard(future)

    def _ring(self, event: StoreEvent) -> None:
        with self._lock:
            self._dirty.add(event.resource.key)
            ring, self._scheduled = not self._scheduled, True
        if ring:
            self._loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        with self._lock:
            self._scheduled = False
            dirty, self._dirty = self._dirty, set()
        for key in dirty:
            for future in self._waiting.get(key, ()):
                if not future.done():
                    future.set_result(None)


@dataclass(frozen=True, slots=True)
class WatchQuery:
    """What a watch asks for."""

    resource: Resource
    select: ListQuery
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S


class Cut(Exception):
    """An injected end of a watch, in the way `how` says."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class Watch:
    """One watch in progress: produces lines from the log and remembers how far it got."""

    def __init__(self, store: Store, query: WatchQuery, renderer: Renderer, cut: CutWatch | None = None) -> None:
        self._store = store
        self._query = query
        self._renderer = renderer
        self._wanted: Predicate | None = selection(
            query.resource, query.select.label_selector, query.select.field_selector
        )
        self._cut = cut
        self._sent = 0
        self._first = True
        self.cursor = parsed_version(query.select.resource_version)
        if query.initial_events is False and not self.cursor:
            self.cursor = store.resource_version
        elif not self._from_start():
            store.changes(query.resource, self.cursor)  # Expired now, before anything is answered

    def _from_start(self) -> bool:
        """Whether the watch begins with the objects there are, as ADDED events."""
        if self._query.initial_events is not None:
            return self._query.initial_events
        return self._query.select.resource_version in ("", "0")

    def opening(self) -> Iterator[bytes]:
        """The synthetic ADDED events, and the bookmark that ends them when they were asked for."""
        if not self._from_start():
            return
        select = self._query.select
        page = self._store.page(
            self._query.resource, ListQuery(select.namespace, select.label_selector, select.field_selector)
        )
        self.cursor = page.resource_version
        for revision in page.rows:
            yield from self._emit(b"ADDED", revision)
        if self._query.initial_events:
            yield self.bookmark(initial_end=True)

    def pending(self) -> Iterator[bytes]:
        """The lines of everything that happened since the cursor, which moves along."""
        seen = self._store.resource_version
        for entry in self._store.changes(self._query.resource, self.cursor, established=True):
            yield from self._lines(entry)
            self.cursor = entry.revision.resource_version
        self.cursor = max(self.cursor, seen)

    def behind(self) -> bool:
        """Whether something happened since the cursor, for example while the last batch was being written."""
        try:
            return bool(self._store.changes(self._query.resource, self.cursor, established=True))
        except StoreExpired:
            return True

    def bookmark(self, *, initial_end: bool = False) -> bytes:
        """A BOOKMARK line at the cursor."""
        meta: dict[str, Any] = {"resourceVersion": str(self.cursor), "creationTimestamp": None}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        resource = self._query.resource
        mark = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
        if self._renderer.form == "table":
            mark = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": meta,
                "columnDefinitions": [],
                "rows": [],
            }
        return _encode({"type": "BOOKMARK", "object": mark}) + b"\n"

    def _lines(self, entry: LoggedChange) -> Iterator[bytes]:
        namespace = self._query.select.namespace
        if namespace and entry.key[0] != namespace:
            return
        wanted = self._wanted
        if wanted is None:
            yield from self._emit(entry.type.encode(), entry.revision)
            return
        before = entry.previous is not None and wanted(entry.previous.obj)
        after = entry.type != "DELETED" and wanted(entry.revision.obj)
        if after:
            yield from self._emit(b"MODIFIED" if before else b"ADDED", entry.revision)
        elif before and entry.previous is not None:
            yield from self._emit(b"DELETED", _as_it_left(entry.previous, entry.revision))

    def _emit(self, kind: bytes, revision: Revision) -> Iterator[bytes]:
        body = self._renderer.line(revision, first=self._first)
        line = b'{"type":"%b","object":%b}\n' % (kind, body)
        if self._cut is not None and self._sent >= self._cut.after_events:
            if self._cut.how == "mid-line":
                yield line[: len(line) // 2]
            raise Cut(self._cut.how)
        self._sent += 1
        self._first = False
        yield line


def _as_it_left(last: Revision, revision: Revision) -> Revision:
    """What a watch that no longer selects an object shows of it: its last selected state in the new version."""
    meta = {**last.obj["metadata"], "resourceVersion": str(revision.resource_version)}
    return Revision({**last.obj, "metadata": meta}, revision.resource_version)


async def serve_watch(
    response: web.StreamResponse, watch: Watch, bell: Bell, query: WatchQuery, bookmark_every_s: float
) -> None:
    """Write the watch to `response` until its time is up. Cut where a fault says so, ConnectionError when left."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + query.timeout_s
    marks = min(loop.time() + bookmark_every_s, max(ends - _LAST_MARK_S, loop.time() + _LAST_MARK_S))
    await _write(response, watch.opening())
    while True:
        try:
            await _write(response, watch.pending())
        except StoreExpired as gone:
            await response.write(_encode({"type": "ERROR", "object": gone.status()}) + b"\n")
            return
        now = loop.time()
        if now >= ends:
            return
        if query.bookmarks and now >= marks:
            await response.write(watch.bookmark())
            marks = now + bookmark_every_s
        if not watch.behind():
            await bell.wait(query.resource.key, (min(ends, marks) if query.bookmarks else ends) - now)


async def _write(response: web.StreamResponse, lines: Iterator[bytes]) -> None:
    """Write lines in batches; what came before a Cut is still sent."""
    while True:
        batch: list[bytes] = []
        cut: Cut | None = None
        try:
            for line in lines:
                batch.append(line)
                if len(batch) == _BATCH:
                    break
        except Cut as injected:
            cut = injected
        if batch:
            await response.write(b"".join(batch))
        if cut:
            raise cut
        if len(batch) < _BATCH:
            return
