"""The agent's HTTP face: health, readiness, metrics and the webhook. It answers; it decides nothing."""

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

import structlog
from aiohttp import web

from providers.git.webhook import MAX_BODY_BYTES, WebhookEvent, WebhookRejected, verify

log = structlog.get_logger(__name__)


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

    def pushed(self) -> bool:
        """Somebody says that the repository has moved; False when this process is not the one to care."""
        ...


class HttpFace:
    """Serves health, readiness, metrics and the webhook from a thread of its own (aiohttp)."""

    def __init__(self, status: AgentStatus, host: str, port: int, webhook_secret: Callable[[], str]) -> None:
        self._status = status
        self._host = host
        self._port = port
        self._secret = webhook_secret
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._trouble: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._stop = asyncio.Event()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    def start(self) -> None:
        """Listen; raises OSError when the port is taken."""
        self._thread.start()
        self._started.wait(10.0)
        if self._trouble is not None:
            raise self._trouble

    def stop(self) -> None:
        """Close the port."""
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
            self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=MAX_BODY_BYTES + 1)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/webhook", self._webhook)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, self._host, self._port)
        await site.start()
        self._port = next((address[1] for address in runner.addresses), self._port)
        self._started.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _health(self, _request: web.Request) -> web.Response:
        return _verdict(self._status.healthy())

    async def _ready(self, _request: web.Request) -> web.Response:
        return _verdict(self._status.ready())

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._status.exposition(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _webhook(self, request: web.Request) -> web.Response:
        try:
            trigger = verify(request.headers, await request.read(), self._secret())
        except WebhookRejected as rejection:
            log.warning("webhook_rejected", status=rejection.http_status, why=str(rejection))
            return web.Response(status=rejection.http_status, text=f"{rejection}\n")
        if trigger.event is WebhookEvent.PUSH and not self._status.pushed():
            return web.Response(
                status=503, text="standby: the leader polls, or takes the delivery when it is sent again\n"
            )
        return web.Response(status=202, text="fetching\n" if trigger.event is WebhookEvent.PUSH else "heard\n")


def _verdict(trouble: str) -> web.Response:
    return web.Response(status=503 if trouble else 200, text=f"{trouble or 'ok'}\n")
