"""A client of the embedded API server's handler without a socket, on an event loop whose time passes at once."""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11, RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from providers.clock import VirtualClock
from providers.sim.apiserver.access import Access
from providers.sim.apiserver.faults import FaultRules
from providers.sim.apiserver.handler import Handler
from providers.sim.apiserver.watching import Bell
from providers.sim.store import Store

_BOOKMARK_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back."""

    status: int
    headers: CIMultiDict[str]
    body: bytes


class _Instant(selectors.DefaultSelector):
    """Waits for nothing: the time that it was to wait passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passed_s += timeout or 0.0
        return super().select(0)


class _InstantLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._instant = _Instant()
        super().__init__(self._instant)

    def time(self) -> float:
        return self._instant.passed_s


class _Collected(AbstractStreamWriter):
    """What a handler writes."""

    def __init__(self) -> None:
        self.output_size = 0
        self.chunks: list[bytes] = []
        self.length = None

    async def write(self, chunk: Any) -> None:
        self.output_size += len(chunk)
        self.chunks.append(bytes(chunk))

    async def write_eof(self, chunk: bytes = b"") -> None:
        await self.write(chunk)

    async def drain(self) -> None: ...

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None: ...

    def enable_chunking(self) -> None: ...

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None: ...


class HandlerClient:
    """Sends requests to the handler of `store` and waits for the whole answer, a watch's as well."""

    def __init__(self, store: Store, clock: VirtualClock, access: Access | None = None) -> None:
        self._loop = _InstantLoop()
        self._bell = Bell(store, self._loop)
        self._handler = Handler(store, clock, FaultRules(), self._bell, _BOOKMARK_S, access)

    def close(self) -> None:
        """Ends the loop."""
        self._bell.close()
        self._loop.close()

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """One request."""
        return self._run(self._request(method, path, body, headers or {}))

    def _run(self, what: Coroutine[Any, Any, HttpAnswer]) -> HttpAnswer:
        return self._loop.run_until_complete(what)

    async def _request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        written = _Collected()
        response = await self._handler(self._message(method, path, body, headers, written))
        content = b"".join(written.chunks)
        if isinstance(response, web.Response) and not written.chunks:
            content = response.body if isinstance(response.body, bytes) else b""
        return HttpAnswer(response.status, response.headers, content)

    def _message(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], written: _Collected
    ) -> web.BaseRequest:
        fields = CIMultiDict({"Host": "apiserver", "Content-Length": str(len(body)), **headers})
        message = RawRequestMessage(
            method=method,
            path=path,
            version=HttpVersion11,
            headers=CIMultiDictProxy(fields),
            raw_headers=(),
            should_close=False,
            compression=None,
            upgrade=False,
            chunked=False,
            url=URL(path, encoded=True),
        )
        protocol: Any = mock.Mock()
        payload = StreamReader(protocol, 2**16, loop=self._loop)
        payload.feed_data(body)
        payload.feed_eof()
        task: Any = mock.Mock()
        return web.BaseRequest(message, payload, protocol, written, task, self._loop)
