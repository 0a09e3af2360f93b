"""A server that misbehaves to order: raw sockets, one scripted answer per request, a record of what it was asked."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    connection: int

    def json(self):
        return json.loads(self.body)


class Peer:
    """The server's side of one connection, for a step to do its worst with."""

    def __init__(self, sock: socket.socket, closing: threading.Event) -> None:
        self.sock = sock
        self.closing = closing

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def head(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        lines = [f"HTTP/1.1 {status} X", *(f"{k}: {v}" for k, v in (headers or {}).items()), "", ""]
        self.send("\r\n".join(lines).encode())

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def hang(self) -> None:
        """Say nothing more, as a peer behind a dead router does."""
        self.closing.wait(20)

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


Step = Callable[[Peer, Asked], bool]
"""Answers one request; True keeps the connection for the next one."""


class Scripted:
    """Answers the n-th request with the n-th step; the last step answers all the rest.

    Lists of one object, with which a reflector asks how old the server is, are answered by `probe` and not recorded.
    """

    def __init__(self, *steps: Step, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.steps = list(steps)
        self.asked: list[Asked] = []
        self.probe: Step = reply(page(version="9" * 18))
        self.arrived = threading.Condition()
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections.append(sock)
                thread = threading.Thread(target=self._serve, args=(sock, len(self._connections)), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        with suppress(OSError), self._wrapped(sock) as wrapped, wrapped.makefile("rb") as reader:
            while (asked := _request(reader, number)) is not None:
                if asked.query.get("limit") == "1":
                    if self.probe(Peer(wrapped, self._closing), asked):
                        continue
                    return
                with self.arrived:
                    step = self.steps[min(len(self.asked), len(self.steps) - 1)]
                    self.asked.append(asked)
                    self.arrived.notify_all()
                if not step(Peer(wrapped, self._closing), asked):
                    return

    def _wrapped(self, sock: socket.socket) -> socket.socket:
        return sock if self._tls is None else self._tls.wrap_socket(sock, server_side=True)

    def wait_for(self, count: int, timeout_s: float = 10.0) -> list[Asked]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.asked) >= count, timeout_s), f"only {len(self.asked)} came"
            return list(self.asked)

    def close(self) -> None:
        self._closing.set()
        for sock in (self._listener, *self._connections):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(5)


def _request(reader, number: int) -> Asked | None:
    line = reader.readline()
    if not line:
        return None
    method, target, _ = line.decode().split(" ", 2)
    headers = {}
    while header := reader.readline().strip():
        name, _, value = header.decode().partition(":")
        headers[name.strip().lower()] = value.strip()
    body = reader.read(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
    return Asked(method, parts.path, query, headers, body, number)


@contextmanager
def scripted(*steps: Step, tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    server = Scripted(*steps, tls=tls)
    try:
        yield server
    finally:
        server.close()


# -- steps ------------------------------------------------------------------------------------------------------------


def reply(body: object = None, status: int = 200, headers: Mapping[str, str] | None = None) -> Step:
    payload = body if isinstance(body, bytes) else json.dumps(body if body is not None else {}).encode()

    def step(peer: Peer, asked: Asked) -> bool:
        peer.head(status, {"Content-Type": "application/json", "Content-Length": str(len(payload)), **(headers or {})})
        peer.send(payload)
        return True

    return step


def status(code: int, reason: str, message: str = "no", headers: Mapping[str, str] | None = None, **details) -> Step:
    return reply(status_body(code, reason, message, **details), code, headers)


def status_body(code: int, reason: str, message: str = "no", **details) -> dict:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def watch(*lines: bytes, then: str = "end", tail: bytes = b"") -> Step:
    """Stream `lines`, one chunk each, and `tail` without a newline; then `end`, `cut`, `reset` or `hang`."""

    def step(peer: Peer, asked: Asked) -> bool:
        peer.head(200, {"Transfer-Encoding": "chunked", "Content-Type": "application/json"})
        for line in lines:
            peer.chunk(line)
        if tail:
            peer.chunk(tail)
        if then == "hang":
            peer.hang()
        if then == "reset":
            peer.reset()
        if then == "end":
            peer.send(b"0\r\n\r\n")
        return then == "end"

    return step


def routed(listing: Step, watching: Step) -> Step:
    """One step for lists and one for watches, however often each comes."""
    return lambda peer, asked: (watching if "watch" in asked.query else listing)(peer, asked)


def die(peer: Peer, asked: Asked) -> bool:
    """Close without a word."""
    return False


def silence(peer: Peer, asked: Asked) -> bool:
    """Accept the request and never answer."""
    peer.hang()
    return False


# -- objects ----------------------------------------------------------------------------------------------------------


def pod(name: str, version: int | str, namespace: str = "default", **spec) -> dict:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"nodeName": "", **spec}}


def page(*items: object, version: int | str = 100, token: str = "") -> dict:
    metadata = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
    return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": list(items)}


def event(kind: str, obj: object) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int | str) -> bytes:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})
