"""The pretended GitHub behind a socket, on a thread and an event loop of its own."""

import asyncio
import hashlib
import json
import re
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import jwt
from aiohttp import web
from yarl import URL

from providers.sim.forge.documents import GitHubDocuments
from providers.sim.forge.routes import ROUTES, GitHubAnswer, GitHubQuestion
from providers.sim.forge.state import RATE, GitHubAccount, GitHubErrorAnswer, GitHubState

_START_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 1.0
VERSIONS: Final = ("2022-11-28", "2026-03-10")
_DOCUMENTED: Final = "https://docs.github.com/rest"


@dataclass(frozen=True, slots=True)
class GitHubFault:
    """Something else than the answer: given to the next request whose path the pattern finds.

    `parts` are the body, sent as they come; no status cuts the connection. With `is_done` the request is carried out
    first: its answer is what gets lost.
    """

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    parts: Sequence[bytes] = (b"",)
    path: str = ""
    is_done: bool = False

    @classmethod
    def saying(cls, status: int, message: str, **headers: str) -> "GitHubFault":
        """Returns one that is an error as GitHub writes it; `retry_after` becomes the header Retry-After."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, {"Content-Type": "application/json", **named}, (_error(status, message),))


@dataclass(frozen=True, slots=True)
class GitHubExchange:
    """A request and its answer, as they were on the wire but for the address' prefix."""

    method: str
    path: str
    query: Mapping[str, str]
    request_headers: Mapping[str, str]
    request_body: bytes
    status: int
    headers: Mapping[str, str]
    body: bytes


class GitHubServer:
    """Serves a state on a loopback port until stopped; also a context manager.

    `prefix` is `/api/v3` on an Enterprise Server. `on_exchange` hears of every request that was understood and answered
    by the rules, in the thread of the server.
    """

    def __init__(
        self,
        state: GitHubState,
        *,
        prefix: str = "",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        on_exchange: Callable[[GitHubExchange], None] | None = None,
    ) -> None:
        self.state = state
        self.exchanges: list[GitHubExchange] = []
        self._prefix = prefix
        self._port = port
        self._tls = tls
        self._on_exchange = on_exchange
        self._faults: list[GitHubFault] = []
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._finish: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    @property
    def url(self) -> str:
        """Where its API is. RuntimeError before `start`."""
        if not self._ready.is_set():
            raise RuntimeError("the pretended GitHub is not started")
        return f"{self._web}{self._prefix}"

    @property
    def _web(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def fail(self, *faults: GitHubFault) -> None:
        """Gives each of these in the place of one further answer."""
        with self.state.lock:
            self._faults += faults

    def start(self) -> Self:
        """Listens; returns when requests are answered. OSError when the port is taken."""
        self._thread = threading.Thread(target=self._run, name="github", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_TIMEOUT_S) or self._failure is not None:
            raise self._failure or TimeoutError("the pretended GitHub did not start")
        return self

    def stop(self) -> None:
        """Closes the port and every connection; returns when the thread has ended. Stopping twice is harmless."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._finish is None:
            return
        self._loop.call_soon_threadsafe(self._finish.set)
        thread.join()
        self._ready.clear()

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
        server = web.Server(self._handle, access_log=None)
        listener = await self._loop.create_server(server, "127.0.0.1", self._port, ssl=self._tls)
        self._port = listener.sockets[0].getsockname()[1]
        self._ready.set()
        await self._finish.wait()
        listener.close()
        for connection in list(server.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await server.shutdown(_STOP_TIMEOUT_S)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        sent = await request.read()
        with self.state.lock:
            fault = next((each for each in self._faults if re.search(each.path, request.path)), None)
            if fault is not None:
                self._faults.remove(fault)
            if fault is None or fault.is_done:
                answer = self._answered(request, sent)
        return answer if fault is None else await _fail(request, fault)

    def _answered(self, request: web.BaseRequest, sent: bytes) -> web.Response:
        path = request.path.removeprefix(self._prefix)
        headers = {"Content-Type": "application/json; charset=utf-8"}
        try:
            account = self._signed_in(request, path)
            answer = self._answer(request, path, sent, account, headers)
            status, body = answer.status, json.dumps(answer.document).encode()
        except GitHubErrorAnswer as error:
            status, body = error.status, _error(error.status, error.message)
        if request.method == "GET" and status == 200:
            headers["ETag"] = f'W/"{hashlib.sha256(body).hexdigest()}"'
            if request.headers.get("If-None-Match") == headers["ETag"]:
                status, body = 304, b""
        if status != 304:  # what did not change costs nothing
            self.state.spend()
        headers |= {
            "X-RateLimit-Limit": str(RATE),
            "X-RateLimit-Remaining": str(self.state.remaining),
            "X-RateLimit-Reset": str(int(self.state.resets_at_s)),
        }
        exchange = GitHubExchange(
            request.method, path, dict(request.query), dict(request.headers), sent, status, headers, body
        )
        self.exchanges.append(exchange)
        if self._on_exchange is not None:
            self._on_exchange(exchange)
        return web.Response(status=status, headers=headers, body=body)

    def _answer(
        self,
        request: web.BaseRequest,
        path: str,
        sent: bytes,
        account: GitHubAccount | None,
        headers: dict[str, str],
    ) -> GitHubAnswer:
        if request.headers.get("X-GitHub-Api-Version", VERSIONS[0]) not in VERSIONS:
            raise GitHubErrorAnswer(400, "The API version is not supported.")
        if self.state.is_exhausted():
            raise GitHubErrorAnswer(403, "API rate limit exceeded for user ID 1.")
        documents = GitHubDocuments(self.state, self.url, self._web)
        for method, pattern, route in ROUTES:
            if method == request.method and (match := pattern.fullmatch(path)):
                named = match.groupdict()
                if named.get("owner", self.state.owner.login) != self.state.owner.login:
                    break
                if named.get("name", self.state.name) != self.state.name:
                    break
                body = json.loads(sent) if sent else {}
                answer = route(GitHubQuestion(self.state, documents, named, request.query, body, account))
                return _paged(request, answer, headers)
        raise GitHubErrorAnswer(404, "Not Found")

    def _signed_in(self, request: web.BaseRequest, path: str) -> GitHubAccount | None:
        """Returns who asks, None for the App itself, which proves that it is by its key."""
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() in {"token", "bearer"} and secret in self.state.tokens:
            return self.state.tokens[secret]
        app = self.state.app
        if app is not None and scheme.lower() == "bearer" and re.fullmatch(r"/app(/.*)?", path):
            try:
                jwt.decode(secret, app.public_key, algorithms=["RS256"], issuer=str(app.id))
            except jwt.InvalidTokenError as error:
                raise GitHubErrorAnswer(401, f"A JSON web token could not be decoded: {error}") from error
            return None
        raise GitHubErrorAnswer(401, "Bad credentials")


def _paged(request: web.BaseRequest, answer: GitHubAnswer, headers: dict[str, str]) -> GitHubAnswer:
    """Returns a page of a list, and says by links which others there are."""
    if not isinstance(answer.document, list):
        return answer
    size = min(100, int(request.query.get("per_page", "30")))
    page = int(request.query.get("page", "1"))
    last = max(1, -(-len(answer.document) // size))
    address = URL(str(request.url))
    numbers = {"prev": page - 1, "next": page + 1, "last": last, "first": 1}
    shown = {"prev": page > 1, "next": page < last, "last": page < last, "first": page > 1}
    links = [
        f'<{address.update_query(page=str(number))}>; rel="{name}"' for name, number in numbers.items() if shown[name]
    ]
    if links:
        headers["Link"] = ", ".join(links)
    return GitHubAnswer(answer.status, answer.document[(page - 1) * size : page * size])


async def _fail(request: web.BaseRequest, fault: GitHubFault) -> web.StreamResponse:
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


def _error(status: int, message: str) -> bytes:
    document: dict[str, Any] = {"message": message, "documentation_url": _DOCUMENTED, "status": str(status)}
    return json.dumps(document).encode()
