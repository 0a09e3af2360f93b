"""The stream over TLS: records, not bytes, are what a socket holds, and reading ahead must not lose its place."""

import base64
import json
import ssl
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from providers.kube.config import connect, from_url
from providers.kube.errors import BadConnection, Unreachable
from providers.kube.kubeconfig import plain_server
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


# -- kubeconfigs of plain parts ---------------------------------------------------------------------------------------


@pytest.fixture
def known(certificate: Path) -> ssl.SSLContext:
    """A server that takes only who shows its own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate)
    return context


def plain_kubeconfig(folder: Path, cluster: dict[str, object], user: dict[str, object]) -> Path:
    path = folder / "config"
    told = {
        "current-context": "main",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "main", "context": {"cluster": "here", "user": "me", "namespace": "t"}}],
    }
    path.write_text(json.dumps(told))
    return path


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "in files"])
def test_a_client_certificate(
    certificate: Path, known: ssl.SSLContext, tmp_path: Path, inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read here, whether inline or beside the kubeconfig; no key is left behind in a file."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    data = base64.b64encode(certificate.read_bytes()).decode()
    (tmp_path / "here.pem").write_bytes(certificate.read_bytes())
    parts = ("certificate-authority", "client-certificate", "client-key")
    told = {f"{part}-data": data for part in parts} if inline else dict.fromkeys(parts, "here.pem")
    authority: dict[str, object] = {key: value for key, value in told.items() if "authority" in key}
    with scripted(reply({"ok": True}), tls=known) as server:
        user = {key: value for key, value in told.items() if key not in authority}
        path = plain_kubeconfig(tmp_path, {"server": server.url} | authority, user)
        assert plain_server(str(path), None) is not None
        assert KubeTransport(connect(kubeconfig=path)).get("/a") == b'{"ok": true}'
    assert {it.name for it in tmp_path.iterdir()} == {"config", "here.pem"}


def test_a_server_that_the_kubeconfig_does_not_vouch_for(tls: ssl.SSLContext, tmp_path: Path) -> None:
    other = write_loopback_certificate(tmp_path / "other.pem")
    with scripted(reply({"ok": True}), tls=tls) as server:
        path = plain_kubeconfig(tmp_path, {"server": server.url, "certificate-authority": str(other)}, {"token": "x"})
        with pytest.raises(Unreachable, match="certificate"):
            KubeTransport(connect(kubeconfig=path)).get("/a")


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"insecure-skip-tls-verify": True}, {}),
        ({"tls-server-name": "x"}, {}),
        ({"proxy-url": "http://p"}, {}),
        ({}, {"exec": {}}),
        ({}, {"tokenFile": "t"}),
        ({}, {"as": "root"}),
        ({}, {"username": "u", "password": "p"}),
        ({}, {"auth-provider": {}}),
    ],
    ids=str,
)
def test_what_is_more_than_plain_is_left_to_the_client_library(
    tmp_path: Path, cluster: dict[str, object], user: dict[str, object]
) -> None:
    path = plain_kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, {"token": "x"})
    assert plain_server(str(path), None) is not None
    assert plain_server(f"{path}:{path}", None) is None
    path = plain_kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"} | cluster, {"token": "x"} | user)
    assert plain_server(str(path), None) is None


def test_a_proxy_of_the_environment_is_left_to_the_client_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = plain_kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, {"token": "x"})
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:2")
    assert plain_server(str(path), None) is None


def test_a_key_that_cannot_be_used_is_one_clear_error(tmp_path: Path) -> None:
    path = plain_kubeconfig(tmp_path, {"server": "https://127.0.0.1:1"}, {"client-certificate-data": "@@"})
    with pytest.raises(BadConnection, match="kubeconfig"):
        connect(kubeconfig=path)
