"""The page over HTTP: who may look, which headers guard it, and the stream that says when something has changed."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from agent.answers import NothingSo
from agent.config import WebSettings
from agent.web.access import DenialReason, Gate, NotAllowed, PageCaller, Viewer, gate_of
from agent.web.api import API
from agent.web.pages import Busy, NothingSeen, PageAnswer, Pages, root_of
from agent.web.rendering import ASSETS
from agent.web.seen import PageWatcher
from providers.kube.transport import KubeTransport

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
VIEWERS_MOST: Final = 64
"""Streams at once; whoever comes later reads the page and is not told when it changes."""
STREAM_S: Final = 10.0
"""How long one stream lives: no connection is held for good. A browser opens the next by itself."""
LOOK_S: Final = 0.25
AGAIN_MS: Final = 1_000
_HAVE: Final = "X-Have"
"""Header with the hashes of the parts that a viewer has; only others are sent."""


COOKIE: Final = "muster"
COOKIE_S: Final = 12 * 3600
"""A token that ends earlier is not known any more then."""
_FORM_MOST: Final = 8 * 1024
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,3800}")
_STATUS: Final[Mapping[DenialReason, int]] = {
    DenialReason.UNKNOWN: 401,
    DenialReason.FORBIDDEN: 403,
    DenialReason.UNAVAILABLE: 503,
    DenialReason.ADDRESS: 421,
}


class WebPages:
    """Answers everything that is asked beside health and metrics."""

    def __init__(self, pages: Pages, gate: Gate) -> None:
        self._pages = pages
        self._gate = gate
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="gate")
        self.viewers = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Returns the page, the part of it that has changed, or why there is none."""
        if request.path == "/login" and request.method == "POST" and self._gate.logs_in:
            return await self._login(request)
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, text="only GET\n", headers={**HEADERS, "Allow": "GET"})
        if request.path.startswith("/static/"):
            return self._asset(request.path.removeprefix("/static/"))
        try:
            viewer = await self._viewer(request)
        except NotAllowed as denied:
            return self._denied(request, denied)
        if request.path.startswith("/api/"):
            return await self._api(request, viewer)
        return await (self._live(request) if request.path == "/live" else self._page(request, viewer))

    async def _viewer(self, request: web.BaseRequest) -> Viewer:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        token = given.strip() if scheme.lower() == "bearer" else request.cookies.get(COOKIE, "")
        caller = PageCaller(request.remote or "", request.host, request.headers, token)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._asking, self._gate.admit, caller, self._pages.namespaces())

    def _denied(self, request: web.BaseRequest, denied: NotAllowed) -> web.Response:
        if request.path.startswith("/api/"):
            known = {"WWW-Authenticate": "Bearer"} if denied.reason is DenialReason.UNKNOWN else {}
            return _json(_STATUS[denied.reason], {"error": str(denied)}, known)
        words = [f"{denied}."]
        asks = self._gate.logs_in and denied.reason in {DenialReason.UNKNOWN, DenialReason.FORBIDDEN}
        html = self._pages.renderer.notice("Not for everybody", words, root_of(request.path), login=asks)
        headers = {**HEADERS, **({"WWW-Authenticate": "Bearer"} if denied.reason is DenialReason.UNKNOWN else {})}
        return web.Response(status=_STATUS[denied.reason], text=html, content_type="text/html", headers=headers)

    async def _login(self, request: web.BaseRequest) -> web.Response:
        """Keeps a token in a cookie that no script reads and no other site sends; the next request is judged by it."""
        origin = request.headers.get("Origin", "")
        if urlsplit(origin).netloc != request.host:
            return web.Response(status=403, text="the form comes from another site\n", headers=HEADERS)
        body = await request.content.read(_FORM_MOST + 1)
        sent = dict(parse_qsl(body.decode("ascii", "replace"), max_num_fields=4)) if len(body) <= _FORM_MOST else {}
        token = sent.get("token", "").strip()
        if not _TOKEN.fullmatch(token):
            return web.Response(status=400, text="this is no token\n", headers=HEADERS)
        secure = "; Secure" if origin.startswith("https://") else ""
        kept = f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={COOKIE_S}{secure}"
        return web.Response(status=303, headers={**HEADERS, "Location": "./", "Set-Cookie": kept})

    def _asset(self, name: str) -> web.Response:
        if name not in ASSETS:
            return web.Response(status=404, text="not here\n", headers=HEADERS)
        body, kind = self._pages.assets.content[name], ASSETS[name]
        headers = {**HEADERS, "Cache-Control": "public, max-age=86400", "Content-Type": f"{kind}; charset=utf-8"}
        return web.Response(body=body, headers=headers)

    async def _page(self, request: web.BaseRequest, viewer: Viewer) -> web.Response:
        loop = asyncio.get_running_loop()
        have = request.headers.get(_HAVE)
        asked = request.path, dict(request.query), viewer.scope, viewer.name
        find = partial(self._pages.find, *asked, whole=have is None)
        try:
            found = await loop.run_in_executor(self._pages.executor, find)
        except Busy as busy:
            again = {**HEADERS, "Retry-After": str(busy.after_s)}
            return web.Response(status=503, text=f"{busy}\n", headers=again)
        if found is None:
            words = ["There is no such page, or nothing of this name any more."]
            html = self._pages.renderer.notice("Not here", words, root_of(request.path))
            return web.Response(status=404, text=html, content_type="text/html", headers=HEADERS)
        if have is not None:
            return _changed(found, frozenset(have.split(",")))
        packed = "gzip" in request.headers.get("Accept-Encoding", "")
        headers = {**HEADERS, "Content-Type": "text/html; charset=utf-8", "Vary": "Accept-Encoding"}
        headers |= {"Content-Encoding": "gzip"} if packed else {}
        return web.Response(body=found.packed if packed else found.html, headers=headers)

    async def _api(self, request: web.BaseRequest, viewer: Viewer) -> web.Response:
        """Answers as typed values in JSON, or in words, where there are words and they are what is accepted."""
        asked = ((it, match) for it in API if (match := it.pattern.fullmatch(request.path)) is not None)
        question, match = next(asked, (None, None))
        if question is None or match is None:
            return _json(404, {"error": f"there is {', '.join(it.address for it in API)}"})
        if question.whole and not viewer.scope.whole:
            words = f"{question.address} is for who may list the Workloads of all namespaces"
            return _json(403, {"error": words})
        kind = question.kind(request.headers.get("Accept", ""))
        find = partial(self._pages.answer, question, match.groups(), dict(request.query), viewer.scope, kind)
        return await self._told(find, kind)

    async def _told(self, find: Callable[[], bytes], kind: str) -> web.Response:
        try:
            body = await asyncio.get_running_loop().run_in_executor(self._pages.executor, find)
        except Busy as busy:
            return _json(503, {"error": str(busy)}, {"Retry-After": str(busy.after_s)})
        except NothingSeen as nothing:
            return _json(503, {"error": str(nothing)}, {"Retry-After": "5"})
        except NothingSo as nothing:
            return _json(404, {"error": str(nothing)})
        except ValueError as error:
            return _json(400, {"error": str(error)})
        return web.Response(body=body, headers={**HEADERS, "Content-Type": kind})

    async def _live(self, request: web.BaseRequest) -> web.StreamResponse:
        """Tells a viewer that there is another picture, at most once a second."""
        if self.viewers >= VIEWERS_MOST:
            return web.Response(status=204, headers=HEADERS)  # a browser does not come again
        stream = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream", "Server": "muster"})
        stream.force_close()
        self.viewers += 1
        try:
            await stream.prepare(request)
            await self._tell(stream, request.headers.get("Last-Event-ID", ""))
        finally:
            self.viewers -= 1
        return stream

    async def _tell(self, stream: web.StreamResponse, known: str) -> None:
        ends_s = asyncio.get_running_loop().time() + STREAM_S
        await stream.write(f"retry: {AGAIN_MS}\n\n".encode())
        while asyncio.get_running_loop().time() < ends_s:
            version = str(self._pages.current().version)
            if version != known:
                known = version
                await stream.write(f"id: {version}\nevent: changed\ndata: {version}\n\n".encode())
            await asyncio.sleep(LOOK_S)


def _json(status: int, told: Mapping[str, str], more: Mapping[str, str] | None = None) -> web.Response:
    headers = {**HEADERS, "Content-Type": "application/json", **(more or {})}
    return web.Response(status=status, body=json.dumps(told).encode(), headers=headers)


def _changed(found: PageAnswer, have: frozenset[str]) -> web.Response:
    """Returns which parts there are, in order, and the HTML of those that the viewer has not."""
    parts = found.page.parts
    told = {
        "version": found.page.version,
        "order": [part.id for part in parts],
        "parts": {part.id: [part.hash, part.html] for part in parts if part.hash not in have},
    }
    return web.Response(body=json.dumps(told).encode(), headers={**HEADERS, "Content-Type": "application/json"})


def page_answers(
    said: WebSettings, watcher: PageWatcher, api: KubeTransport, monotonic: Callable[[], float]
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] | None:
    """Returns what answers for the page that the settings ask for; None = there is none."""
    gate = gate_of(said, api, monotonic)
    return WebPages(Pages(watcher, monotonic), gate).answer if gate is not None else None
