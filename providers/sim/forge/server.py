"""A pretended forge behind a socket, on a thread and an event loop of its own."""

import asyncio
import json
import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from aiohttp import web

from providers.sim.forge.dialect import ForgeAsked, ForgeDialect
from providers.sim.forge.state import ForgeState
from providers.sim.loopback import LoopbackServer

ForgePages = Callable[[web.BaseRequest, bytes], web.Response]
"""Answers what is asked beside the API, given the request and its body."""
EXCHANGES_MOST: Final = 1000
"""So many are kept, the last."""


@dataclass(frozen=True, slots=True)
class ForgeFault:
    """Something else than the answer: given to the next request whose path the pattern finds.

    `parts` are the body, sent as they come; no status cuts the connection. With `is_done` the request is carried out
    first: its answer is what gets lost.
    """

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    parts: Sequence[bytes] = (b"",)
    path: str = ""
    is_done: bool = False
    after: int = 0
    """So many requests that it would suit are answered before."""

    @classmethod
    def saying(cls, status: int, message: str, **headers: str) -> "ForgeFault":
        """Returns one that is an error as forges write it; `retry_after` becomes the header Retry-After."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, {"Content-Type": "application/json", **named}, (json.dumps({"message": message}).encode(),))


@dataclass(frozen=True, slots=True)
class ForgeExchange:
    """A request and its answer, as they were on the wire but for the address' prefix."""

    method: str
    path: str
    query: Mapping[str, str]
    request_headers: Mapping[str, str]
    request_body: bytes
    status: int
    headers: Mapping[str, str]
    body: bytes


class ForgeServer(LoopbackServer):
    """Serves a state on a loopback port until stopped; also a context manager.

    `prefix` is where the API is: `/api/v3` on a GitHub Enterprise Server; `pages` answer what is not below it.
    `on_exchange` hears of every request that was understood and answered by the rules, in the thread of the server.
    """

    def __init__(
        self,
        state: ForgeState,
        dialect: Callable[[ForgeState], ForgeDialect[Any]],
        *,
        prefix: str = "",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        on_exchange: Callable[[ForgeExchange], None] | None = None,
        pages: ForgePages | None = None,
    ) -> None:
        super().__init__("pretended forge", port=port, tls=tls)
        self.state = state
        self._dialect = dialect(state)
        self.exchanges: list[ForgeExchange] = []
        self._prefix = prefix
        self._on_exchange = on_exchange
        self._pages = pages
        self._faults: list[ForgeFault] = []

    @property
    def url(self) -> str:
        """Where its API is. RuntimeError before `start`."""
        return f"{self.root}{self._prefix}"

    @property
    def root(self) -> str:
        """Where its pages are."""
        return super().url

    def fail(self, *faults: ForgeFault) -> None:
        """Gives each of these in the place of one further answer."""
        with self.state.lock:
            self._faults += faults

    @contextmanager
    def _answering(self, loop: asyncio.AbstractEventLoop) -> Iterator[web.Server]:
        yield web.Server(self._handle, access_log=None)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        sent = await request.read()
        if self._pages is not None and not request.path.startswith(f"{self._prefix}/"):
            with self.state.lock:
                return self._pages(request, sent)
        with self.state.lock:
            fault = self._fault_for(request.path)
            if fault is None or fault.is_done:
                answer = self._answered(request, sent)
        return answer if fault is None else await _fail(request, fault)

    def _fault_for(self, path: str) -> ForgeFault | None:
        found = next((each for each in self._faults if re.search(each.path, path)), None)
        if found is None:
            return None
        place = self._faults.index(found)
        if found.after:
            self._faults[place] = replace(found, after=found.after - 1)
            return None
        del self._faults[place]
        return found

    def _answered(self, request: web.BaseRequest, sent: bytes) -> web.Response:
        path = request.rel_url.raw_path.removeprefix(self._prefix)
        asked = ForgeAsked(
            request.method,
            path,
            dict(request.query),
            request.headers,
            sent,
            str(request.url),
            self.url,
            self.root,
        )
        reply = self._dialect.reply(asked)
        told = dict(asked.headers)
        exchange = ForgeExchange(asked.method, path, asked.query, told, sent, reply.status, reply.headers, reply.body)
        self.exchanges = [*self.exchanges[1 - EXCHANGES_MOST :], exchange]
        if self._on_exchange is not None:
            self._on_exchange(exchange)
        return web.Response(status=reply.status, headers=reply.headers, body=reply.body)


async def _fail(request: web.BaseRequest, fault: ForgeFault) -> web.StreamResponse:
    if fault.status is None:
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)
    response = web.StreamResponse(status=fault.status, headers=fault.headers)
    await response.prepare(request)
    for part in fault.parts:
        await response.write(part)
    await response.write_eof()
    return response
