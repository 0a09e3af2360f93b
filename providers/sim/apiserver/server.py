"""The embedded API server: the store behind a socket, on a thread and an event loop of its own."""

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from aiohttp import web

from providers.clock import Clock, SystemClock
from providers.sim.apiserver.faults import FaultRules
from providers.sim.apiserver.handler import Handler
from providers.sim.apiserver.watching import Bell
from providers.sim.store import Store

_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 1.0  # zero would mean to wait for ever for open watches
_MAX_BODY_BYTES = 3 * 1024 * 1024  # the request limit of the real server
_CONTEXT = "muster-sandbox"


class ApiServer:
    """Serves a store over HTTP on a loopback port (0 takes a free one) until stopped; also a context manager.

    Ages in tables and token lifetimes follow `clock`. `bookmark_every_s` is how often an idle watch gets a bookmark.
    """

    def __init__(
        self,
        store: Store,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        faults: FaultRules | None = None,
        clock: Clock | None = None,
        bookmark_every_s: float = 60.0,
    ) -> None:
        self.store = store
        self.faults = faults or FaultRules()
        self._host = host
        self._port = port
        self._clock = clock or SystemClock()
        self._bookmark_every_s = bookmark_every_s
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._finish: asyncio.Event | None = None
        self._server: web.Server | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    @property
    def url(self) -> str:
        """Where it listens, without a trailing slash. RuntimeError before `start`."""
        if not self._ready.is_set():
            raise RuntimeError("the API server is not started")
        return f"http://{self._host}:{self._port}"

    def start(self) -> Self:
        """Listen; returns when requests are answered. OSError when the port is taken."""
        if self._thread is not None:
            raise RuntimeError("the API server is started already")
        self._thread = threading.Thread(target=self._run, name="apiserver", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_TIMEOUT_S) or self._failure is not None:
            raise self._failure or TimeoutError("the API server did not start")
        return self

    def stop(self) -> None:
        """Close the port and every connection; returns when the thread has ended. Stopping twice is harmless."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._finish is None:
            return
        self._loop.call_soon_threadsafe(self._finish.set)
        thread.join()
        self._ready.clear()

    def drop_connections(self) -> None:
        """Cut every open connection at once, whatever it carries; the port stays open."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._cut_all(), self._loop).result(_START_TIMEOUT_S)

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server to `path` and return it."""
        named = {"name": _CONTEXT}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{**named, "cluster": {"server": self.url}}],
            "users": [{**named, "user": {}}],
            "contexts": [{**named, "context": {"cluster": _CONTEXT, "user": _CONTEXT, "namespace": "default"}}],
            "current-context": _CONTEXT,
        }
        path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        return path

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits in `start`
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._finish = asyncio.get_running_loop(), asyncio.Event()
        bell = Bell(self.store, self._loop)
        handler = Handler(self.store, self._clock, self.faults, bell, self._bookmark_every_s)
        self._server = web.Server(handler, request_factory=_request, access_log=None, handler_cancellation=True)
        listener = await self._loop.create_server(self._server, self._host, self._port, backlog=1024)
        self._port = listener.sockets[0].getsockname()[1]
        self._ready.set()
        await self._finish.wait()
        listener.close()
        bell.close()
        await self._cut_all()
        await self._server.shutdown(_STOP_TIMEOUT_S)

    async def _cut_all(self) -> None:
        for connection in list(self._server.connections) if self._server else ():
            if connection.transport is not None:
                connection.transport.abort()


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """A request that may be as large as the real server takes."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY_BYTES)
