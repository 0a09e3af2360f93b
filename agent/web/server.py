"""The page over HTTP: who may look, which headers guard it, and the stream that says when something has changed."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web

from agent.web.pages import Busy, PageAnswer, Pages, root_of
from agent.web.rendering import ASSETS
from agent.web.seen import Scope

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


class WebPages:
    """Answers everything that is asked beside health and metrics."""

    def __init__(self, pages: Pages, scope: Callable[[web.BaseRequest], Scope] = lambda _request: Scope()) -> None:
        self._pages = pages
        self._scope = scope
        self.viewers = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Returns the page, the part of it that has changed, or why there is none."""
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, text="only GET\n", headers={**HEADERS, "Allow": "GET"})
        if request.path.startswith("/static/"):
            return self._asset(request.path.removeprefix("/static/"))
        if request.path == "/live":
            return await self._live(request)
        return await self._page(request, self._scope(request))

    def _asset(self, name: str) -> web.Response:
        if name not in ASSETS:
            return web.Response(status=404, text="not here\n", headers=HEADERS)
        body, kind = self._pages.assets.content[name], ASSETS[name]
        headers = {**HEADERS, "Cache-Control": "public, max-age=86400", "Content-Type": f"{kind}; charset=utf-8"}
        return web.Response(body=body, headers=headers)

    async def _page(self, request: web.BaseRequest, scope: Scope) -> web.Response:
        loop = asyncio.get_running_loop()
        find = self._pages.find
        try:
            found = await loop.run_in_executor(self._pages.executor, find, request.path, dict(request.query), scope)
        except Busy as busy:
            again = {**HEADERS, "Retry-After": f"{busy.after_s:.0f}"}
            return web.Response(status=503, text=f"{busy}\n", headers=again)
        if found is None:
            words = ["There is no such page, or nothing of this name any more."]
            html = self._pages.renderer.notice("Not here", words, root_of(request.path))
            return web.Response(status=404, text=html, content_type="text/html", headers=HEADERS)
        if (have := request.headers.get(_HAVE)) is not None:
            return _changed(found, frozenset(have.split(",")))
        packed = "gzip" in request.headers.get("Accept-Encoding", "")
        headers = {**HEADERS, "Content-Type": "text/html; charset=utf-8", "Vary": "Accept-Encoding"}
        headers |= {"Content-Encoding": "gzip"} if packed else {}
        return web.Response(body=found.packed if packed else found.html, headers=headers)

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


def _changed(found: PageAnswer, have: frozenset[str]) -> web.Response:
    """Returns which parts there are, in order, and the HTML of those that the viewer has not."""
    parts = found.page.parts
    told = {
        "version": found.page.version,
        "order": [part.id for part in parts],
        "parts": {part.id: [part.hash, part.html] for part in parts if part.hash not in have},
    }
    return web.Response(body=json.dumps(told).encode(), headers={**HEADERS, "Content-Type": "application/json"})
