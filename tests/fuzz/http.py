"""The HTTP fuzzer: bytes at the webhook's port, from nearly a good delivery to noise, whole, cut off and pipelined.

Whatever comes, nothing rings but a delivery with a good signature, nothing is counted as a crash, and the server goes
on: every so many inputs a good delivery is answered.
"""

import hashlib
import hmac
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from random import Random

from agent.connection_limits import ConnectionLimits
from agent.http import Webhook, webhook_listener

SECRET = "fuzz"
BODY = b'{"ref": "refs/heads/main"}'
PROOFS = ("X-Hub-Signature-256", "X-Gitlab-Token", "X-Muster-Signature", "X-Signature")
ODD = (
    b"", b"\0", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\x80", b"\xff" * 9, b"\x1b[31m", "\u202e".encode(), b":", b" ",
    b"-1", b"0", b"9" * 30, b"0x10", b"1e9", b"+1", b"chunked", b"chunked, chunked", b"gzip", b"identity", b"close",
    b"keep-alive", b"upgrade", b"websocket", b"100-continue", b"HTTP/0.9", b"HTTP/1.0", b"HTTP/2", b"HTTP/1.1", b"*",
    b"/", b"//webhook", b"/webhook/", b"/%2e%2e/webhook", b"http://x/webhook", b"/webhook?x=\xff", b"a" * 9000,
    b"ffffffffffffffff\r\n", b"0\r\n\r\n", b"5;x=y\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00",
)  # fmt: skip
"""Pieces that have hurt servers."""


TRIES = 5
"""Good deliveries that may be cut off in a row: the server gives each a second, which a busy machine may not have."""


def answered(port: int) -> bool:
    """Whether a good delivery is taken."""
    return b" 202 " in exchange(port, [delivery(proof(BODY))])[:20]


class HttpFuzzer:
    """Attacks one webhook server on loopback."""

    name = "http"
    most_seconds = 20.0
    most_growth_mib = 96

    @contextmanager
    def start(self) -> Iterator[Callable[[Random], None]]:
        """A server that takes whatever connects, with deadlines short enough for a fuzzer."""
        rung, refused = Counter[str](), Counter[str]()
        hook = Webhook(lambda: SECRET, lambda: bool(rung.update(["push"])) or True, body_most=64 * 1024)
        limits = ConnectionLimits(total=64, per_address=64, header_s=0.5, request_s=1.0)
        counted = lambda _server, why: refused.update([str(why)])  # noqa: E731
        listener = webhook_listener(hook, "127.0.0.1", 0, limits=limits, refused=counted)
        listener.start()
        sent = 0

        def attack(rng: Random) -> None:
            nonlocal sent
            sent += 1
            before = rung["push"]
            exchange(listener.port, list(pieces(rng)), ends=True, wait=rng.random() < 0.8)
            if rung["push"] != before:
                raise AssertionError("a delivery without a good signature has rung")
            if refused["crash"]:
                raise AssertionError("a handler has failed")
            if sent % 50 == 0 and not any(answered(listener.port) for _ in range(TRIES)):
                raise AssertionError("a good delivery is not answered any more")

        try:
            yield attack
        finally:
            listener.stop()


def proof(body: bytes) -> str:
    """The signature that counts."""
    return "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()


def delivery(signature: str, name: str = "X-Signature", body: bytes = BODY) -> bytes:
    """A delivery as a forge sends it."""
    head = f"POST /webhook HTTP/1.1\r\nHost: x\r\n{name}: {signature}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def exchange(port: int, said: list[bytes], *, ends: bool = False, wait: bool = True) -> bytes:
    """Says all of it, and that this was all where it `ends`; hears the answer unless it does not `wait`."""
    heard = b""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=5.0)) as sender, suppress(OSError):
        for piece in said:
            sender.sendall(piece)
        if wait:
            if ends:
                sender.shutdown(socket.SHUT_WR)
            while more := sender.recv(65536):
                heard += more
    return heard


def pieces(rng: Random) -> Iterator[bytes]:
    """A request of strangers, in pieces."""
    request = bytearray(_request(rng))
    for _ in range(rng.choice((0, 0, 1, 1, 2, 5, 20))):
        _bend(request, rng)
    whole = bytes(request) * rng.choice((1, 1, 1, 2, 40))
    while whole and rng.random() < 0.4:
        at = rng.randrange(len(whole) + 1)
        yield whole[:at]
        whole = whole[at:]
    yield whole


def _request(rng: Random) -> bytes:
    """A delivery that is not signed by the secret, in one of the forms there are."""
    wrong = rng.choice(("", "sha256=", "sha256=" + "0" * 64, "sha256=" + "g" * 64, "fuz", "fuzz2", proof(b"other")))
    name = rng.choice(PROOFS)
    if rng.random() < 0.3:
        chunks = b"".join(
            b"%x\r\n%s\r\n" % (len(c), c) for c in (rng.randbytes(rng.randrange(1, 3000)) for _ in range(3))
        )
        head = f"POST /webhook HTTP/1.1\r\nHost: x\r\n{name}: {wrong}\r\nTransfer-Encoding: chunked\r\n\r\n"
        return head.encode() + chunks + b"0\r\n\r\n"
    return delivery(wrong, name, rng.randbytes(rng.choice((0, 1, 100, 70_000))))


def _bend(request: bytearray, rng: Random) -> None:
    """Changes the request in one place, most often in its header."""
    at = rng.randrange(min(len(request), rng.choice((40, 200, 100_000))) + 1)
    match rng.randrange(4):
        case 0:
            request[at:at] = rng.choice(ODD)
        case 1:
            request[at : at + rng.randrange(1, 30)] = rng.choice(ODD)
        case 2:
            request[at : at + 1] = rng.randbytes(1)
        case _:
            del request[at:]
