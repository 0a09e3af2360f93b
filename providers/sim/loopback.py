"""HTTP servers of the simulated world: on loopback, each on a thread and an event loop of its own."""

import asyncio
import ssl
import threading
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from aiohttp import web

_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 1.0  # zero would mean to wait for ever for requests that have no end, such as watches
_BACKLOG = 1024


class LoopbackServer:
    """Listens (port 0 takes a free one) until stopped; also a context manager."""

    def __init__(self, name: str, *, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._name = name
        self._host = host
        self._port = port
        self._tls = tls
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._finish: asyncio.Event | None = None
        self._server: web.Server | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    def _answering(self, loop: asyncio.AbstractEventLoop) -> AbstractContextManager[web.Server]:
        """Makes what answers, for as long as the port is open: each kind of server its own."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        """Where it listens, without a trailing slash. RuntimeError before `start`."""
        if not self._ready.is_set():
            raise RuntimeError(f"the {self._name} is not started")
        return f"{'https' if self._tls else 'http'}://{self._host}:{self._port}"

    def start(self) -> Self:
        """Listen; returns when requests are answered. OSError when the port is taken."""
        if self._thread is not None:
            raise RuntimeError(f"the {self._name} is started already")
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_TIMEOUT_S) or self._failure is not None:
            raise self._failure or TimeoutError(f"the {self._name} did not start")
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
        with self._answering(self._loop) as self._server:
            listener = await self._loop.create_server(
                self._server, self._host, self._port, ssl=self._tls, backlog=_BACKLOG
            )
            self._port = listener.sockets[0].getsockname()[1]
            self._ready.set()
            await self._finish.wait()
            listener.close()
        await self._cut_all()
        await self._server.shutdown(_STOP_TIMEOUT_S)

    async def _cut_all(self) -> None:
        for connection in list(self._server.connections) if self._server else ():
            if connection.transport is not None:
                connection.transport.abort()
