"""The stream over TLS: records, not bytes, are what a socket holds, and reading ahead must not lose its place."""

import json
import ssl
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from providers.kube.config import connect, from_url
from providers.kube.errors import Unreachable
from providers.kube.resources import PODS
from providers.kube.transport import KubeTransport
from tests.providers.kube.scripted import Asked, Peer, reply, scripted, watch
from tests.support.certificates import write_loopback_certificate


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    return write_loopback_certificate(tmp_path_factory.mktemp("tls") / "server.pem")


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_requests_and_trust(certificate: Path, tls: ssl.SSLContext) -> None:
    with scripted(reply({"ok": True}), tls=tls) as server:
        assert KubeTransport(from_url(server.url, ca_file=certificate)).get("/a") == b'{"ok": true}'
        with pytest.raises(Unreachable, match="certificate"):
            KubeTransport(from_url(server.url)).get("/a")


def test_that_nobody_proves_who_the_server_is_is_said_once_and_in_words(
    tmp_path: Path, tls: ssl.SSLContext, recwarn: pytest.WarningsRecorder
) -> None:
    """urllib3 would warn at every request, in its own words and on standard error."""
    with scripted(reply({"ok": True}), tls=tls) as server, capture_logs() as logs:
        told = {
            "current-context": "main",
            "clusters": [{"name": "here", "cluster": {"server": server.url, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "me", "user": {"token": "test"}}],
            "contexts": [{"name": "main", "context": {"cluster": "here", "user": "me"}}],
        }
        path = tmp_path / "config"
        path.write_text(json.dumps(told))
        transport = KubeTransport(connect(kubeconfig=path))
        for _ in range(3):
            transport.get("/a")
        transport.apart().get("/a")
    assert [str(it.message) for it in recwarn.list] == []
    assert [(it["event"], it["server"]) for it in logs] == [("server_not_verified", server.url)]


def test_a_firehose_loses_nothing(certificate: Path, tls: ssl.SSLContext) -> None:
    lines = [b"%06d" % n + b"x" * (n * 37 % 6000) + b"\n" for n in range(2000)]

    def firehose(peer: Peer, asked: Asked) -> bool:
        peer.head(200, {"Transfer-Encoding": "chunked"})
        for line in lines:
            peer.chunk(line)
        peer.send(b"0\r\n\r\n")
        return False

    with scripted(firehose, tls=tls) as server:
        transport = KubeTransport(from_url(server.url, ca_file=certificate))
        with transport.watch(PODS, "1", 30) as stream:
            batches = list(stream)
    assert b"".join(batches) == b"".join(lines)
    assert all(batch.endswith(b"\n") for batch in batches)


def test_silence_and_interruption(certificate: Path, tls: ssl.SSLContext) -> None:
    with scripted(watch(b"one\n", then="hang"), tls=tls) as server:
        transport = KubeTransport(from_url(server.url, ca_file=certificate))
        with transport.watch(PODS, "1", 0, grace_s=0.3) as stream:
            assert next(stream) == b"one\n"
            with pytest.raises(Unreachable, match="half-open"):
                next(stream)
        with transport.watch(PODS, "1", 60) as stream:
            assert next(stream) == b"one\n"
            rest: list[list[bytes]] = []
            reader = threading.Thread(target=lambda: rest.append(list(stream)))
            reader.start()
            stream.interrupt()
            reader.join(5)
            assert not reader.is_alive()
            assert rest == [[]]
