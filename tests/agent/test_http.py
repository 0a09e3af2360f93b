"""The agent's pages and its webhook on loopback ports: who gets an answer, and how little a stranger can take."""

import contextlib
import hashlib
import hmac
import http.client
import json
import os
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs

from agent.connection_limits import ConnectionLimits, TlsFiles
from agent.http import Webhook, status_listener, webhook_listener
from agent.listener import HttpListener
from providers.git.webhook import MAX_BODY_BYTES

SECRET = "test"
WITHIN_S = 60.0
FORGED = "sha256=" + "0" * 64


def until(holds: Callable[[], object], words: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"not within {WITHIN_S} s: {words}")


class FakeStatus:
    def __init__(self) -> None:
        self.ill = self.unready = ""

    def healthy(self) -> str:
        return self.ill

    def ready(self) -> str:
        return self.unready

    def exposition(self) -> bytes:
        return b"# HELP muster_x x\n"


def ask(port: int, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN_S)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


class Hook:
    """A webhook with limits, and all that became of what was sent to it."""

    def __init__(self, limits: ConnectionLimits | None = None, tls: TlsFiles | None = None, **more: Any) -> None:
        self.secret = SECRET
        self.leads = True
        self.rung: list[float] = []
        self.refused: Counter[str] = Counter()
        self.answers: Counter[tuple[str, int]] = Counter()
        hook = Webhook(lambda: self.secret, self.pushed, lambda *told: self.answers.update([told]), **more)
        counted = lambda _server, why: self.refused.update([str(why)])  # noqa: E731
        held = limits or ConnectionLimits()
        self.listener = webhook_listener(hook, "127.0.0.1", 0, limits=held, refused=counted, tls=tls)
        self.listener.start()

    def pushed(self) -> bool:
        self.rung.append(time.monotonic())
        return self.leads

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
        return ask(self.listener.port, method, path, body, **headers)

    def ring(self, body: bytes = b"{}", secret: str = SECRET, **headers: str) -> tuple[int, str]:
        proof = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        return self.ask("POST", "/webhook", body, X_Muster_Signature=proof, **headers)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.listener.port), timeout=WITHIN_S)


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.listener.stop()


@pytest.fixture
def hooks() -> Iterator[Callable[..., Hook]]:
    made: list[Hook] = []

    def start(*arguments: Any, **more: Any) -> Hook:
        made.append(Hook(*arguments, **more))
        return made[-1]

    yield start
    for each in made:
        each.listener.stop()


@pytest.fixture
def pages() -> Iterator[tuple[FakeStatus, HttpListener]]:
    status = FakeStatus()
    listener = status_listener(status, "127.0.0.1", 0)
    listener.start()
    yield status, listener
    listener.stop()


# -- the pages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "attribute"), [("/healthz", "ill"), ("/readyz", "unready")])
def test_probes_say_why_not(pages: tuple[FakeStatus, HttpListener], path: str, attribute: str) -> None:
    status, listener = pages
    assert ask(listener.port, "GET", path) == (200, "ok\n")
    setattr(status, attribute, "the reason\x1b\nforged")
    assert ask(listener.port, "GET", path) == (503, "the reason\\x1b\\nforged\n")


def test_an_answer_does_not_tell_what_serves_it(hook: Hook) -> None:
    with hook.connect() as sender:
        sender.sendall(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")
        said = sender.recv(4096).decode()
    assert "Server: muster\r\n" in said
    assert "aiohttp" not in said


def test_metrics(pages: tuple[FakeStatus, HttpListener]) -> None:
    assert ask(pages[1].port, "GET", "/metrics") == (200, "# HELP muster_x x\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/metrics", 405), ("POST", "/webhook", 404), ("GET", "/webhook", 404), ("GET", "/", 404)],
)
def test_nothing_else_is_on_the_pages_port(
    pages: tuple[FakeStatus, HttpListener], method: str, path: str, status: int
) -> None:
    assert ask(pages[1].port, method, path)[0] == status


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/webhook", 405), ("GET", "/metrics", 404), ("GET", "/healthz", 404), ("POST", "/nothing", 404)],
)
def test_nothing_else_is_on_the_webhook_s_port(hook: Hook, method: str, path: str, status: int) -> None:
    assert hook.ask(method, path)[0] == status


# -- deliveries -------------------------------------------------------------------------------------------------------


def test_a_signed_push_rings_and_a_replay_of_it_only_rings_again(hook: Hook) -> None:
    for _ in range(3):
        assert hook.ring() == (202, "fetching\n")
    assert len(hook.rung) == 3
    assert hook.answers == {("generic", 202): 3}


@pytest.mark.parametrize(
    ("header", "proof", "event"),
    [
        ("X_Hub_Signature_256", "sha256={}", {"X_GitHub_Event": "issue_comment"}),
        ("X_Gitea_Signature", "{}", {"X_Gitea_Event": "pull_request_approved"}),
        ("X_Gitlab_Token", SECRET, {"X_Gitlab_Event": "Merge Request Hook"}),
        ("X_Gitlab_Token", SECRET, {"X_Gitlab_Event": "Note Hook"}),
    ],
)
def test_what_happens_to_a_review_rings(hook: Hook, header: str, proof: str, event: dict[str, str]) -> None:
    digest = hmac.new(SECRET.encode(), b"{}", hashlib.sha256).hexdigest()
    assert hook.ask("POST", "/webhook", b"{}", **{header: proof.format(digest)}, **event) == (202, "fetching\n")
    assert len(hook.rung) == 1


def test_a_signed_ping_is_heard_and_does_not_ring(hook: Hook) -> None:
    assert hook.ring(X_Muster_Event="ping") == (202, "heard\n")
    assert not hook.rung


def test_a_delivery_that_nobody_could_be_told_of_is_sent_away(hook: Hook) -> None:
    hook.leads = False
    assert hook.ring()[0] == 503


def test_github_s_signature_counts(hook: Hook) -> None:
    body = json.dumps({"ref": "refs/heads/main"}).encode()
    proof = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert hook.ask("POST", "/webhook", body, X_Hub_Signature_256=proof, X_GitHub_Event="push")[0] == 202


def test_without_or_with_a_wrong_signature_nothing_rings(hook: Hook) -> None:
    assert hook.ask("POST", "/webhook", b"{}")[0] == 401
    assert hook.ring(secret="wrong")[0] == 403
    assert not hook.rung
    assert hook.answers == {("", 401): 1, ("", 403): 1}


def test_without_a_secret_nobody_may_ring_and_a_new_one_counts_at_once(hook: Hook) -> None:
    hook.secret = ""
    assert hook.ring(secret="")[0] == 503
    hook.secret = "another"
    assert hook.ring()[0] == 403
    assert hook.ring(secret="another")[0] == 202


@pytest.mark.parametrize("chunked", [False, True])
def test_the_largest_body_is_taken_and_one_byte_more_is_not(hooks: Callable[..., Hook], chunked: bool) -> None:
    made = hooks(body_most=300_000)
    for size, status in ((300_000, 202), (300_001, 413)):
        body = b"x" * size
        proof = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        connection = http.client.HTTPConnection("127.0.0.1", made.listener.port, timeout=WITHIN_S)
        parts = iter([body[:1000], body[1000:]]) if chunked else body
        connection.request("POST", "/webhook", parts, {"X-Signature": proof}, encode_chunked=chunked)
        assert connection.getresponse().status == status
        connection.close()


def test_a_body_of_the_default_size_is_taken(hook: Hook) -> None:
    assert hook.ring(b"x" * MAX_BODY_BYTES)[0] == 202


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"", b"401"),
        (b"X-Hub-Signature-256: sha256=00\r\n", b"403"),
        (b"X-Gitlab-Token: wrong\r\n", b"403"),
        (b"X-Gitlab-Token: " + SECRET.encode() + b"\r\n", b"413"),
    ],
)
def test_the_header_alone_is_answered_before_any_body_comes(hook: Hook, headers: bytes, status: bytes) -> None:
    with hook.connect() as sender:
        sender.sendall(b"POST /webhook HTTP/1.1\r\nHost: x\r\n" + headers + b"Content-Length: 3145728\r\n\r\n")
        assert sender.recv(64).split()[1] == status


def test_a_body_that_says_it_is_compressed_is_not_inflated(hook: Hook) -> None:
    assert hook.ring(b"\x1f\x8b not a zip", Content_Encoding="gzip")[0] == 202


# -- attacks ----------------------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    with Path("/proc/self/statm").open(encoding="ascii") as found:
        return int(found.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("proof", ["", f"X-Hub-Signature-256: {FORGED}\r\n"])
def test_large_bodies_left_unfinished_take_no_memory(hooks: Callable[..., Hook], proof: str) -> None:
    """200 times 3 MB: 600 MB if they were kept. Those who send are in this process too, and keep nothing."""
    made = hooks(ConnectionLimits(total=8, per_address=8))
    head = f"POST /webhook HTTP/1.1\r\nHost: x\r\n{proof}Transfer-Encoding: chunked\r\n\r\n".encode()
    piece = b"fffc\r\n" + b"x" * 0xFFFC + b"\r\n"
    before, kept = resident_bytes(), []
    for _ in range(200):
        sender = made.connect()
        sender.setblocking(False)
        try:
            sender.sendall(head)
            for _ in range(48):
                sender.send(piece)
        except OSError:
            pass
        kept.append(sender)
    assert made.listener.open <= 8
    assert resident_bytes() - before < 100e6
    for sender in kept:
        sender.close()
    until(lambda: made.listener.open == 0, "all are gone")
    assert made.ring()[0] == 202


@pytest.mark.parametrize("said", [b"", b"POST /webh", b"POST /webhook HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_slow_sockets_are_closed(hooks: Callable[..., Hook], said: bytes) -> None:
    made = hooks(ConnectionLimits(total=50, per_address=40, header_s=0.3, request_s=5.0))
    slow = [made.connect() for _ in range(100)]
    for sender in slow[:40]:
        sender.send(said)
    for sender in slow:
        assert closed(sender), "by the server"
    until(lambda: made.listener.open == 0, "none is left")
    until(lambda: made.refused == {"address": 60, "slow": 40}, "all are counted")
    assert made.ring()[0] == 202


def closed(sender: socket.socket) -> bool:
    """Whether the other side ends the connection within the socket's time-out, whatever it says before."""
    try:
        while sender.recv(4096):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def test_a_body_that_comes_too_slowly_is_cut_off(hooks: Callable[..., Hook]) -> None:
    made = hooks(ConnectionLimits(header_s=5.0, request_s=0.5))
    with made.connect() as sender:
        sender.sendall(
            f"POST /webhook HTTP/1.1\r\nHost: x\r\nX-Signature: {FORGED}\r\nContent-Length: 9\r\n\r\n12".encode()
        )
        assert closed(sender)
    until(lambda: made.refused["slow"] == 1, "it is counted")
    assert not made.rung


def test_a_reader_that_does_not_read_is_cut_off() -> None:
    class Talkative(FakeStatus):
        def exposition(self) -> bytes:
            return b"x" * 20_000_000

    listener = status_listener(Talkative(), "127.0.0.1", 0, limits=ConnectionLimits(request_s=0.5))
    listener.start()
    try:
        with socket.create_connection(("127.0.0.1", listener.port), timeout=WITHIN_S) as sender:
            sender.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            until(lambda: listener.open == 1, "it is served")
            until(lambda: listener.open == 0, "it is cut off")
    finally:
        listener.stop()


def test_a_header_without_an_end_is_cut_off(hooks: Callable[..., Hook]) -> None:
    made = hooks(ConnectionLimits(header_s=WITHIN_S, request_s=WITHIN_S))
    with made.connect() as sender:
        with contextlib.suppress(ConnectionError):
            sender.sendall(b"POST /webhook HTTP/1.1\r\n" + b"X-A: b\r\n" * 50_000)
        assert closed(sender)
    until(lambda: made.listener.open == 0, "it is gone")


def test_an_address_that_comes_too_often_is_not_heard(hooks: Callable[..., Hook]) -> None:
    made = hooks(ConnectionLimits(per_minute=3.0))
    assert [made.ring()[0] for _ in range(3)] == [202, 202, 202]
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        made.ring()
    until(lambda: made.refused["rate"] == 1, "it is counted")


MALFORMED = [
    b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET  HTTP/9.9\r\n\r\n",
    b"POST /webhook HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /webhook HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    f"POST /webhook HTTP/1.1\r\nX-Signature: {FORGED}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".encode(),
    b"GET /webhook HTTP/1.1\r\nHost: \xff\x1b[31m\r\nX: " + b"y" * 5000 + b"\r\n\r\n",
]


def test_malformed_requests_are_counted_and_few_lines_are_logged(hook: Hook) -> None:
    with capture_logs() as lines:
        for _ in range(100):
            for said in MALFORMED:
                with hook.connect() as sender:
                    sender.sendall(said)
                    assert closed(sender)
    until(lambda: hook.refused["malformed"] >= 600, "they are counted")
    assert hook.refused["crash"] == 0
    assert 1 <= len(lines) <= 60
    assert not any("exc_info" in line for line in lines)
    assert hook.ring()[0] == 202


def test_a_handler_that_fails_is_told_with_its_traceback_and_the_next_is_served(hook: Hook) -> None:
    def broken() -> bool:
        raise ZeroDivisionError

    hook.listener.stop()
    made = webhook_listener(Webhook(lambda: SECRET, broken), "127.0.0.1", 0)
    made.start()
    body = b"{}"
    proof = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    with capture_logs() as lines:
        assert ask(made.port, "POST", "/webhook", body, X_Signature=proof)[0] == 500
    made.stop()
    assert [line["event"] for line in lines] == ["request_failed"]
    assert lines[0]["exc_info"]


def test_connections_that_are_reset_are_no_failures(hook: Hook) -> None:
    with capture_logs() as lines:
        for _ in range(20):
            sender = hook.connect()
            sender.sendall(
                f"POST /webhook HTTP/1.1\r\nHost: x\r\nX-Signature: {FORGED}\r\nContent-Length: 9\r\n\r\n1".encode()
            )
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sender.close()
        until(lambda: hook.listener.open == 0, "all are gone")
    assert lines == []
    assert hook.refused["crash"] == 0


# -- TLS --------------------------------------------------------------------------------------------------------------


def write_certificate(folder: Path, name: str) -> TlsFiles:
    """A self-signed certificate for 127.0.0.1, at the same paths each time."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    files = TlsFiles(folder / "tls.crt", folder / "tls.key")
    files.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files


def name_served(port: int) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S) as raw,
        context.wrap_socket(raw) as secured,
    ):
        found = secured.getpeercert(binary_form=True)
        assert found is not None
        (name,) = x509.load_der_x509_certificate(found).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(name.value)


def test_a_certificate_is_read_again_when_it_changes(hooks: Callable[..., Hook], tmp_path: Path) -> None:
    files = write_certificate(tmp_path, "first")
    made = hooks(tls=files)
    assert name_served(made.listener.port) == "first"
    write_certificate(tmp_path, "second")
    assert name_served(made.listener.port) == "second"
    files.key.write_text("half written", encoding="utf-8")
    assert name_served(made.listener.port) == "second", "the last good pair stays"
    connection = http.client.HTTPSConnection(
        "127.0.0.1", made.listener.port, timeout=WITHIN_S, context=ssl._create_unverified_context()
    )
    body = b"{}"
    proof = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    connection.request("POST", "/webhook", body, {"X-Signature": proof})
    assert connection.getresponse().status == 202
    connection.close()


def test_handshakes_that_do_not_end_are_bounded_too(hooks: Callable[..., Hook], tmp_path: Path) -> None:
    limits = ConnectionLimits(total=4, per_address=4, header_s=0.3)
    made = hooks(limits, tls=write_certificate(tmp_path, "x"))
    slow = [made.connect() for _ in range(20)]
    assert made.listener.open <= 4
    assert all(closed(sender) for sender in slow)
    until(lambda: made.listener.open == 0, "none is left")
    with made.connect() as sender:
        sender.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert closed(sender)
    until(lambda: made.refused["tls"] + made.refused["slow"] == 5, "all are counted")


def test_without_a_good_certificate_it_does_not_start(tmp_path: Path) -> None:
    made = webhook_listener(
        Webhook(lambda: SECRET, lambda: True), "127.0.0.1", 0, tls=TlsFiles(tmp_path / "a", tmp_path / "b")
    )
    with pytest.raises(OSError):
        made.start()
    made.stop()


# -- start and end ----------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_an_error_at_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listener = status_listener(FakeStatus(), "127.0.0.1", taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            listener.start()
        listener.stop()


def test_the_port_is_free_again_after_the_end_and_open_connections_are_closed(hooks: Callable[..., Hook]) -> None:
    made = hooks(ConnectionLimits(header_s=WITHIN_S, request_s=WITHIN_S))
    open_one = made.connect()
    until(lambda: made.listener.open == 1, "it is open")
    port = made.listener.port
    made.listener.stop()
    assert closed(open_one)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
