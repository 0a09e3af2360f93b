"""An HTTP server in a thread of its own that bounds what a stranger can make it hold: sockets, bytes and time."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from agent.connection_limits import ConnectionLimiter, ConnectionLimits, ConnectionRefusal, TlsFiles
from agent.limited_connection import LimitedConnection, Refused, RequestErrors, ServerTls
from agent.logs import LogSampler

log = structlog.get_logger(__name__)

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_BACKLOG = 128
_LINGER_S = 2.0
"""So long what an answered sender still sends is thrown away, so that it reads the answer."""
_PAUSE_S = 0.1


class HttpListener:
    """Accepts sockets itself, so that those beyond the limits are closed before HTTP or TLS costs anything."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        answer: Answer,
        *,
        limits: ConnectionLimits,
        refused: Refused = lambda _server, _why: None,
        tls: TlsFiles | None = None,
    ) -> None:
        self._name, self._host, self._port = name, host, port
        self._answer = answer
        self._limits = limits
        self._refused = refused
        self._tls = ServerTls(tls) if tls else None
        self._sampler = LogSampler()
        self._loop = asyncio.new_event_loop()
        self._limiter = ConnectionLimiter(limits, self._loop.time)
        self._opening: set[asyncio.Task[None]] = set()
        self._started = threading.Event()
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"http-{name}", daemon=True)
        self._stop = asyncio.Event()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return self._limiter.open

    def start(self) -> None:
        """Listen; raises OSError when the port is taken or the certificate cannot be read."""
        self._thread.start()
        self._started.wait(10.0)
        if self._trouble is not None:
            self._thread.join(5.0)  # whoever stops what never ran finds it ended
            raise self._trouble

    def stop(self) -> None:
        """Close the port and what is open."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(5.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except OSError as error:
            self._trouble = error
        finally:
            self._started.set()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _serve(self) -> None:
        if self._tls is not None:
            self._tls.context()
        server = web.Server(
            self._handle,
            access_log=None,
            logger=RequestErrors(self._name, self._refused),
            lingering_time=_LINGER_S,
            max_headers=64,
            max_field_size=4096,
            max_line_size=4096,
            auto_decompress=False,
        )
        listening = self._bound()
        with listening:
            self._port = listening.getsockname()[1]
            self._started.set()
            accepting = asyncio.create_task(self._accept(listening, server))
            await self._stop.wait()
            accepting.cancel()
        await server.shutdown(1.0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:  # handshakes, and readers of what an answered sender still sends
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _bound(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.create_server((self._host, self._port), family=family, backlog=_BACKLOG)
        listening.setblocking(False)
        return listening

    async def _accept(self, listening: socket.socket, server: web.Server) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(listening)
            except OSError as error:  # no descriptors are left, or the caller has gone
                self._say("not_accepted", type(error).__name__)
                await asyncio.sleep(_PAUSE_S)
                continue
            refusal = self._limiter.admit(address[0])
            if refusal is None:
                task = self._loop.create_task(self._open(accepted, address[0], server))
                self._opening.add(task)
                task.add_done_callback(self._opening.discard)
            else:
                accepted.close()
                self._tell(refusal)
            await asyncio.sleep(0)  # accepting at once does not give way to those who have been accepted

    async def _open(self, accepted: socket.socket, address: str, server: web.Server) -> None:
        def over(why: str) -> None:
            self._limiter.release(address)
            if why:
                self._tell(ConnectionRefusal(why))

        connection = LimitedConnection(server(), self._limits, over)
        try:
            tls = self._tls.context() if self._tls else None
            await self._loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=tls, ssl_handshake_timeout=self._limits.header_s if tls else None
            )
        except (OSError, asyncio.CancelledError):  # what ssl raises is an OSError, and so is a handshake's timeout
            accepted.close()
            connection.end(ConnectionRefusal.TLS)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = await self._answer(request)
        if answer.prepared:  # a stream, which has been sent
            return answer
        answer.force_close()
        answer.headers["Server"] = "muster"  # not which versions of what serve it
        return answer

    def _tell(self, why: ConnectionRefusal) -> None:
        self._refused(self._name, why)
        self._say("connection_refused", why)

    def _say(self, event: str, why: str) -> None:
        left_out = self._sampler.admit((event, why))
        if left_out is not None:
            log.warning(event, server=self._name, why=why, left_out=left_out, open=self._limiter.open)
