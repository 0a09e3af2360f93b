"""The agent's pages: health, readiness and metrics on one port, the webhook on another. They answer and decide nothing.

They are apart because metrics tell what teams spend, and the webhook is what a forge must be able to reach.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
from aiohttp import web

from agent.connection_limits import ConnectionLimits, TlsFiles
from agent.limited_connection import Refused
from agent.listener import HttpListener
from agent.logs import LogSampler
from model.plain_text import plain
from providers.git.webhook import MAX_BODY_BYTES, WebhookEvent, WebhookRejected, check_proof, verify

log = structlog.get_logger(__name__)

PAGES_LIMITS = ConnectionLimits(total=256, per_address=64)
WebAnswer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
"""Answers what is asked beside health and metrics."""
WEBHOOK_LIMITS = ConnectionLimits(per_minute=60.0)


class AgentStatus(Protocol):
    """Answers what the HTTP server is asked about the agent."""

    def healthy(self) -> str:
        """Why the process should be restarted; empty when it is well."""
        ...

    def ready(self) -> str:
        """Why it cannot do its work yet; empty when it can."""
        ...

    def exposition(self) -> bytes:
        """Metrics as Prometheus text."""
        ...


def status_listener(
    status: AgentStatus,
    host: str,
    port: int,
    *,
    limits: ConnectionLimits = PAGES_LIMITS,
    refused: Refused = lambda _server, _why: None,
    page: WebAnswer | None = None,
    tls: TlsFiles | None = None,
) -> HttpListener:
    """Serves `/healthz`, `/readyz` and `/metrics`, and at all other addresses the page, where there is one."""
    pages: dict[str, Callable[[], web.Response]] = {
        "/healthz": lambda: _verdict(status.healthy()),
        "/readyz": lambda: _verdict(status.ready()),
        "/metrics": lambda: _metrics(status),
    }

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        found = pages.get(request.path)
        if found is None:
            return await page(request) if page is not None else web.Response(status=404, text="not here\n")
        return found() if request.method in {"GET", "HEAD"} else _only("GET")

    return HttpListener("status", host, port, answer, limits=limits, refused=refused, tls=tls)


def _verdict(trouble: str) -> web.Response:
    return web.Response(status=503 if trouble else 200, text=f"{plain(trouble) or 'ok'}\n")


def _metrics(status: AgentStatus) -> web.Response:
    return web.Response(body=status.exposition(), headers={"Content-Type": "text/plain; version=0.0.4"})


def _only(method: str) -> web.Response:
    return web.Response(status=405, text=f"only {method}\n", headers={"Allow": method})


_HEARD = {
    WebhookEvent.PING: "heard\n",
    WebhookEvent.OTHER: "heard; nothing follows from an event of this kind\n",
}


class Webhook:
    """Answers `POST /webhook`: the proof's header first, then a bounded body, then the signature over it."""

    def __init__(
        self,
        secret: Callable[[], str],
        pushed: Callable[[], bool],
        told: Callable[[str, int], None] = lambda _sender, _status: None,
        *,
        body_most: int = MAX_BODY_BYTES,
    ) -> None:
        """`pushed` is told that the repository or a review has moved; it may wait for the cluster.

        It returns whether anybody could be told.

        `told` hears of every delivery: who sent it ("" = nobody we know), and the status of the answer.
        """
        self._secret = secret
        self._pushed = pushed
        self._told = told
        self._body_most = body_most
        self._sampler = LogSampler()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Answers 202, or what is wrong; nothing that helps to guess."""
        if request.path != "/webhook":
            return web.Response(status=404, text="not here\n")
        if request.method != "POST":
            return _only("POST")
        try:
            return await self._taken(request)
        except WebhookRejected as rejection:
            self._told("", rejection.http_status)
            if (left_out := self._sampler.admit(rejection.http_status)) is not None:
                log.warning("webhook_rejected", status=rejection.http_status, why=str(rejection), left_out=left_out)
            return web.Response(status=rejection.http_status, text=f"{rejection}\n")

    async def _taken(self, request: web.BaseRequest) -> web.Response:
        secret = self._secret()
        check_proof(request.headers, secret)
        if (request.content_length or 0) > self._body_most:
            raise WebhookRejected(413, f"the body is larger than {self._body_most} bytes")
        trigger = verify(request.headers, await self._body(request), secret, most=self._body_most)
        moved = trigger.event in {WebhookEvent.PUSH, WebhookEvent.REVIEW}
        heard = not moved or await asyncio.get_running_loop().run_in_executor(None, self._pushed)
        self._told(trigger.sender, 202 if heard else 503)
        if not heard:
            return web.Response(status=503, text="nobody could be told; send it again, or wait for the next poll\n")
        return web.Response(status=202, text="fetching\n" if moved else _HEARD[trigger.event])

    async def _body(self, request: web.BaseRequest) -> bytes:
        """Returns the body; raises `WebhookRejected` as soon as more has come than is allowed."""
        body = bytearray()
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > self._body_most:
                raise WebhookRejected(413, f"the body is larger than {self._body_most} bytes")
        return bytes(body)


def webhook_listener(
    webhook: Webhook,
    host: str,
    port: int,
    *,
    limits: ConnectionLimits = WEBHOOK_LIMITS,
    refused: Refused = lambda _server, _why: None,
    tls: TlsFiles | None = None,
) -> HttpListener:
    """Serves `POST /webhook`, over TLS where there are files for it."""
    return HttpListener("webhook", host, port, webhook.answer, limits=limits, refused=refused, tls=tls)
