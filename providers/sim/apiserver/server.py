"""The embedded API server: the store behind a socket, on a thread and an event loop of its own."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from providers.clock import Clock, SystemClock
from providers.sim.apiserver.access import Access
from providers.sim.apiserver.faults import FaultRules
from providers.sim.apiserver.handler import Handler
from providers.sim.apiserver.watching import Bell
from providers.sim.loopback import LoopbackServer
from providers.sim.store import Store

_MAX_BODY_BYTES = 3 * 1024 * 1024  # the request limit of the real server
_CONTEXT = "muster-sandbox"


class ApiServer(LoopbackServer):
    """Serves a store over HTTP on a loopback port (0 takes a free one) until stopped; also a context manager.

    Ages in tables and token lifetimes follow `clock`. `bookmark_every_s` is how often an idle watch gets a bookmark.
    """

    def __init__(
        self,
        store: Store,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        faults: FaultRules | None = None,
        clock: Clock | None = None,
        bookmark_every_s: float = 60.0,
        access: Access | None = None,
    ) -> None:
        super().__init__("API server", host=host, port=port)
        self.store = store
        self.faults = faults or FaultRules()
        self._clock = clock or SystemClock()
        self._bookmark_every_s = bookmark_every_s
        self._access = access

    @contextmanager
    def _answering(self, loop: asyncio.AbstractEventLoop) -> Iterator[web.Server]:
        with closing(Bell(self.store, loop)) as bell:
            handler = Handler(self.store, self._clock, self.faults, bell, self._bookmark_every_s, self._access)
            yield web.Server(handler, request_factory=_request, access_log=None, handler_cancellation=True)

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server to `path` and return it."""
        named = {"name": _CONTEXT}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{**named, "cluster": {"server": self.url}}],
            "users": [{**named, "user": {}}],
            "contexts": [{**named, "context": {"cluster": _CONTEXT, "user": _CONTEXT, "namespace": "default"}}],
            "current-context": _CONTEXT,
        }
        path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        return path


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """A request that may be as large as the real server takes."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY_BYTES)
