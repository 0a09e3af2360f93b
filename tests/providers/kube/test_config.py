"""Which connection is made; credentials here are made up."""

import base64
import json
import sys
import textwrap
from pathlib import Path

import pytest

from providers.kube import config
from providers.kube.errors import BadConnection
from providers.kube.transport import KubeTransport
from tests.providers.kube.scripted import reply, scripted


def kubeconfig(path: Path, url: str, user: object) -> Path:
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "main",
                "clusters": [
                    {"name": "here", "cluster": {"server": url}},
                    {"name": "there", "cluster": {"server": "https://there.invalid:6443"}},
                ],
                "users": [{"name": "me", "user": user}],
                "contexts": [
                    {"name": "main", "context": {"cluster": "here", "user": "me"}},
                    {"name": "other", "context": {"cluster": "there", "user": "me"}},
                ],
            }
        )
    )
    return path


def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    with scripted(reply()) as server:
        path = kubeconfig(tmp_path / "config", server.url + "/", {"token": "test"})
        connection = config.connect(kubeconfig=path)
        KubeTransport(connection).get("/version")
        assert connection.base_url == server.url
        assert server.asked[0].headers["authorization"] == "Bearer test"


def test_the_context_chooses_and_the_environment_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {"token": "test"})
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert config.connect(context="other").base_url == "https://there.invalid:6443"
    assert config.connect().base_url == "http://127.0.0.1:1"


def test_an_exec_plugin_is_run_and_its_token_refreshed_when_it_expires(tmp_path: Path) -> None:
    count, plugin = tmp_path / "count", tmp_path / "plugin.py"
    plugin.write_text(
        textwrap.dedent(f"""
        import json, pathlib
        path = pathlib.Path({str(count)!r})
        n = int(path.read_text()) + 1 if path.exists() else 1
        path.write_text(str(n))
        status = {{"token": f"test-{{n}}", "expirationTimestamp": "2020-01-01T00:00:00Z"}}
        version = "client.authentication.k8s.io/v1"
        print(json.dumps({{"apiVersion": version, "kind": "ExecCredential", "status": status}}))
        """)
    )
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(plugin)],
            "interactiveMode": "Never",
        }
    }
    with scripted(reply()) as server:
        transport = KubeTransport(config.from_kubeconfig(kubeconfig(tmp_path / "config", server.url, user)))
        transport.get("/a")
        transport.get("/b")
        assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer test-2", "Bearer test-3"]


def test_basic_credentials(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {"username": "test", "password": "test"})
    expected = "Basic " + base64.b64encode(b"test:test").decode()
    assert {k.lower(): v for k, v in config.from_kubeconfig(path).auth_headers().items()} == {"authorization": expected}


def test_the_kubeconfig_is_never_written(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {"token": "test"})
    before = path.read_bytes()
    path.chmod(0o400)
    config.from_kubeconfig(path).auth_headers()
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["", "{", "[]", "a: 1", "contexts: 3\ncurrent-context: x"])
def test_a_broken_kubeconfig_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(BadConnection, match="kubeconfig"):
        config.from_kubeconfig(path)


def test_nothing_to_connect_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BadConnection):
        config.connect()
    with pytest.raises(BadConnection, match="context"):
        config.connect(kubeconfig=kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {}), context="missing")


def test_in_cluster_needs_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(BadConnection, match="service account"):
        config.in_cluster()


def test_in_cluster_reads_the_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.config import incluster_config

    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("test\n")
    ca.write_text("test")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(ca))
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", token)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    connection = config.connect()
    assert connection.base_url == "https://10.0.0.1:443"
    assert connection.auth_headers() == {"authorization": "bearer test"}


def test_importing_the_adapter_does_not_import_the_client() -> None:
    import subprocess

    code = (
        "import sys, providers.kube.reflector, providers.kube.transport, providers.kube.elector, providers.kube.lease, "
        "providers.kube.retry; sys.exit('kubernetes' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(config.__file__).parents[2]).returncode == 0
    )
