"""The HTTP face on a loopback port: probes, metrics, and a webhook that only people with the secret may ring."""

import hashlib
import hmac
import http.client
import json
import socket
import threading
from collections.abc import Iterator

import pytest

from agent.http import HttpFace
from providers.git.webhook import MAX_BODY_BYTES

SECRET = "test"


class FakeStatus:
    def __init__(self) -> None:
        self.ill = self.unready = ""
        self.leads = True
        self.rung = threading.Event()

    def healthy(self) -> str:
        return self.ill

    def ready(self) -> str:
        return self.unready

    def exposition(self) -> bytes:
        return b"# HELP muster_x x\n"

    def pushed(self) -> bool:
        self.rung.set()
        return self.leads


class Face:
    def __init__(self, secret: str = SECRET) -> None:
        self.status = FakeStatus()
        self.face = HttpFace(self.status, "127.0.0.1", 0, lambda: secret)
        self.face.start()

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.face.port, timeout=5)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def ring(self, body: bytes = b"{}", secret: str = SECRET, **headers: str) -> tuple[int, str]:
        proof = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        return self.ask("POST", "/webhook", body, X_Muster_Signature=proof, **headers)


@pytest.fixture
def face() -> Iterator[Face]:
    made = Face()
    yield made
    made.face.stop()


@pytest.mark.parametrize(("path", "attribute"), [("/healthz", "ill"), ("/readyz", "unready")])
def test_probes_say_why_not(face: Face, path: str, attribute: str) -> None:
    assert face.ask("GET", path) == (200, "ok\n")
    setattr(face.status, attribute, "the reason")
    assert face.ask("GET", path) == (503, "the reason\n")


def test_metrics(face: Face) -> None:
    assert face.ask("GET", "/metrics") == (200, "# HELP muster_x x\n")


def test_a_signed_push_rings(face: Face) -> None:
    assert face.ring() == (202, "fetching\n")
    assert face.status.rung.wait(5)


def test_a_signed_ping_is_heard_and_does_not_ring(face: Face) -> None:
    assert face.ring(X_Muster_Event="ping") == (202, "heard\n")
    assert not face.status.rung.is_set()


def test_a_standby_sends_the_delivery_away(face: Face) -> None:
    face.status.leads = False
    assert face.ring()[0] == 503


def test_github_s_signature_counts(face: Face) -> None:
    body = json.dumps({"ref": "refs/heads/main"}).encode()
    proof = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert face.ask("POST", "/webhook", body, X_Hub_Signature_256=proof, X_GitHub_Event="push")[0] == 202


def test_without_or_with_a_wrong_signature_nothing_rings(face: Face) -> None:
    assert face.ask("POST", "/webhook", b"{}")[0] == 401
    assert face.ring(secret="wrong")[0] == 403
    assert not face.status.rung.is_set()


def test_without_a_secret_nobody_may_ring() -> None:
    made = Face(secret="")
    try:
        assert made.ring(secret="")[0] == 503
        assert not made.status.rung.is_set()
    finally:
        made.face.stop()


def test_a_body_that_is_too_large_is_refused(face: Face) -> None:
    assert face.ring(b" " * (MAX_BODY_BYTES + 2))[0] == 413
    assert not face.status.rung.is_set()
    assert face.ask("GET", "/healthz")[0] == 200


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/webhook", 405), ("GET", "/nothing", 404)])
def test_nothing_else_is_there(face: Face, method: str, path: str, status: int) -> None:
    assert face.ask(method, path)[0] == status


def test_a_port_that_is_taken_is_an_error_at_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        face = HttpFace(FakeStatus(), "127.0.0.1", taken.getsockname()[1], lambda: SECRET)
        with pytest.raises(OSError, match="in use"):
            face.start()
        face.stop()


def test_the_port_is_free_again_after_the_end() -> None:
    made = Face()
    port = made.face.port
    made.face.stop()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
