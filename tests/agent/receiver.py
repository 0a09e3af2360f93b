"""A server on this machine that takes notifications, and answers them as a test wants."""

import http.server
import json
import threading
from collections.abc import Callable
from typing import Any

from agent.outbox import SIGNATURE

SECRET_PATH = "/services/T0/B0/very-secret"


class Receiver:
    """Answers notifications as a test wants, and keeps them."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.signed: list[tuple[str, bytes]] = []
        self.answer: Callable[[http.server.BaseHTTPRequestHandler], None] = self.ok
        outer = self

        class NewsHandler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.heard.append((self.path, json.loads(body)))
                outer.signed.append((self.headers.get(SIGNATURE, ""), body))
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NewsHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}{SECRET_PATH}"

    @staticmethod
    def ok(handler: http.server.BaseHTTPRequestHandler, status: int = 200, **headers: str) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
