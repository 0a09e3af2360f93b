"""What stands between a socket and aiohttp: TLS from files that may change, deadlines, and words for bad requests."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from agent.connection_limits import ConnectionLimits, ConnectionRefusal, TlsFiles
from agent.logs import LogSampler

log = structlog.get_logger(__name__)

Refused = Callable[[str, str], None]
"""Hears of every connection that is refused or cut off: at which server, and why."""

_HEADER_MOST = 64 * 1024
_HEADER_END = b"\r\n\r\n"


class ServerTls:
    """The TLS side of a server; files that change are read again at the next connection."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamp: tuple[tuple[int, int, int], ...] = ()
        self._context: ssl.SSLContext | None = None
        self._sampler = LogSampler()

    def context(self) -> ssl.SSLContext:
        """Returns the context for the next connection; raises OSError if there has never been a good pair of files."""
        try:
            stamp = tuple(_stamp(path) for path in (self._files.certificate, self._files.key))
            if self._context is None or stamp != self._stamp:
                fresh = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                fresh.load_cert_chain(self._files.certificate, self._files.key)
                self._context, self._stamp = fresh, stamp
        except OSError as error:  # also what ssl raises for a key that is not the certificate's
            if self._context is None:
                raise
            if self._sampler.admit("unreadable") is not None:
                log.warning("certificate_not_read", why=type(error).__name__, file=str(self._files.certificate))
        return self._context


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


class LimitedConnection(asyncio.Protocol):
    """Stands between a socket and aiohttp: cuts off what is slow or too large, and says once when it is over."""

    def __init__(self, inner: web.RequestHandler, limits: ConnectionLimits, over: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        self._inner = inner
        self._over = over
        self._transport: asyncio.Transport | None = None
        self._taken = 0
        self._in_header = True
        self._tail = b""
        self._cut = ""
        self._timers = [
            loop.call_later(limits.header_s, self._header_due),
            loop.call_later(limits.request_s, self._abort, ConnectionRefusal.SLOW),
        ]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass on."""
        self._transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on, unless the header does not end. What follows it has the time of the whole request."""
        if self._in_header and not self._header_ends(data):
            self._abort(ConnectionRefusal.TOO_LARGE)
        else:
            self._inner.data_received(data)

    def _header_ends(self, data: bytes) -> bool:
        """Notes whether the header has ended; False when it is longer than any of use."""
        seen = self._tail + data
        end = seen.find(_HEADER_END)
        self._in_header = end < 0
        self._taken += len(data) if end < 0 else max(0, end - len(self._tail))
        self._tail = seen[-len(_HEADER_END) + 1 :]
        return self._taken <= _HEADER_MOST

    def pause_writing(self) -> None:
        """Pass on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on, and be over."""
        self._inner.connection_lost(exc)
        self.end()

    def end(self, why: str = "") -> None:
        """The socket is gone, or never came to be; only the first call counts."""
        timers, self._timers = self._timers, []
        for timer in timers:
            timer.cancel()
        if timers:
            self._over(self._cut or why)

    def _header_due(self) -> None:
        if self._in_header:
            self._abort(ConnectionRefusal.SLOW)

    def _abort(self, why: ConnectionRefusal) -> None:
        self._cut = why
        if self._transport is not None:
            self._transport.abort()


class RequestErrors(logging.Logger):
    """What aiohttp says of requests: counted, and sampled as structured lines instead of a traceback for each."""

    def __init__(self, server: str, refused: Refused) -> None:
        super().__init__("aiohttp.server", logging.DEBUG)
        self._server = server
        self._refused = refused
        self._sampler = LogSampler()

    def handle(self, record: logging.LogRecord) -> None:
        """Takes one record, of a request that is no HTTP or of a handler that failed; who went away does not count."""
        failure = record.exc_info[1] if record.exc_info else None
        if isinstance(failure, ConnectionError):
            return
        malformed = isinstance(failure, HttpProcessingError | web.RequestPayloadError)
        why = ConnectionRefusal.MALFORMED if malformed else ConnectionRefusal.CRASH
        self._refused(self._server, why)
        left_out = self._sampler.admit((why, type(failure)))
        if left_out is None:
            return
        kind = type(failure).__name__
        if malformed:
            log.warning("malformed_request", server=self._server, error=kind, left_out=left_out)
        else:
            log.error("request_failed", server=self._server, error=kind, left_out=left_out, exc_info=record.exc_info)
