"""The servers the conformance tests run against: the embedded one always, a real one where it is installed."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from providers.clock import SystemClock
from providers.sim.apiserver import ApiServer
from providers.sim.store import Store

_START_TIMEOUT_S = 60.0
_TOKEN = "test"
_KUBECTL_TIMEOUT_S = 30
KUBECTL = shutil.which("kubectl")
Kubectl = Callable[..., subprocess.CompletedProcess[str]]
"""`kubectl(*arguments, stdin=None, fails=False)`."""


def kubectl_of(kubeconfig: Path, namespace: str, home: Path) -> Kubectl:
    """Runs kubectl in one namespace (empty: that of the objects).

    Fails the test when it fails, unless told `fails=True`. Skips without kubectl.
    """
    if KUBECTL is None:
        pytest.skip("kubectl is not on the PATH")

    def run(*arguments: str, stdin: str | None = None, fails: bool = False) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(KUBECTL), *([f"--namespace={namespace}"] if namespace else []), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_KUBECTL_TIMEOUT_S,
            check=False,
            env={"PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig), "HOME": str(home)},
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done

    return run


@contextlib.contextmanager
def embedded(folder: Path) -> Iterator[Path]:
    """The embedded server; yields a kubeconfig."""
    with ApiServer(Store(SystemClock())) as server:
        yield server.kubeconfig(folder / "kubeconfig")


@contextlib.contextmanager
def envtest(folder: Path) -> Iterator[Path]:
    """etcd and kube-apiserver from KUBEBUILDER_ASSETS; yields a kubeconfig. Skips where there are none."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    binaries = [assets / name for name in ("etcd", "kube-apiserver")]
    if not os.environ.get("KUBEBUILDER_ASSETS") or not all(binary.is_file() for binary in binaries):
        pytest.skip("KUBEBUILDER_ASSETS does not name a folder with etcd and kube-apiserver")
    client, peer, secure = _free_port(), _free_port(), _free_port()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_process(folder, binaries[0], _etcd_arguments(folder, client, peer)))
        _wait(f"http://127.0.0.1:{client}/health")
        stack.enter_context(_process(folder, binaries[1], _apiserver_arguments(folder, client, secure)))
        config = _kubeconfig(folder, secure)
        _wait_ready(config)
        yield config


def _etcd_arguments(folder: Path, client: int, peer: int) -> list[str]:
    here, there = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return [
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={here}",
        f"--advertise-client-urls={here}",
        f"--listen-peer-urls={there}",
        f"--initial-advertise-peer-urls={there}",
        f"--initial-cluster=default={there}",
        "--unsafe-no-fsync",
    ]


def _apiserver_arguments(folder: Path, etcd: int, secure: int) -> list[str]:
    key = folder / "service-account.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    tokens = folder / "tokens.csv"
    tokens.write_text(f'{_TOKEN},admin,admin,"system:masters"\n')
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        f"--cert-dir={folder / 'certificates'}",
        f"--secure-port={secure}",
        "--bind-address=127.0.0.1",
        "--authorization-mode=RBAC",
        f"--token-auth-file={tokens}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--disable-admission-plugins=ServiceAccount",
    ]


@contextlib.contextmanager
def _process(folder: Path, binary: Path, arguments: list[str]) -> Iterator[None]:
    with (folder / f"{binary.name}.log").open("wb") as log:
        process = subprocess.Popen([str(binary), *arguments], stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _kubeconfig(folder: Path, port: int) -> Path:
    named = {"name": "envtest"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{**named, "cluster": {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}}],
        "users": [{**named, "user": {"token": _TOKEN}}],
        "contexts": [{**named, "context": {"cluster": "envtest", "user": "envtest", "namespace": "default"}}],
        "current-context": "envtest",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def _wait(url: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=1)
            return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)  # another process starts; there is nothing to listen to


def _wait_ready(config: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while KUBECTL:
        command = [KUBECTL, f"--kubeconfig={config}", "get", "namespace", "default"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(done.stderr)
        time.sleep(0.2)
