"""A running API server and a plain HTTP client for it."""

import hashlib
import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from providers.clock import SystemClock
from providers.sim.apiserver import ApiServer
from providers.sim.store import Store
from tests.providers.sim.apiserver.clusters import Kubectl, embedded, envtest, kubectl_of

Obj = dict[str, Any]
TIMEOUT_S = 10.0


CLUSTERS: dict[str, Callable[[Path], AbstractContextManager[Path]]] = {"embedded": embedded, "envtest": envtest}


class Client:
    """One connection a request; `watch` returns a reader of lines."""

    def __init__(self, server: ApiServer) -> None:
        self._address = server.url.removeprefix("http://")
        self._open: list[http.client.HTTPConnection] = []

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        media: str = "application/json",
        timeout_s: float = TIMEOUT_S,
        **headers: str,
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self._address, timeout=timeout_s)
        self._open.append(connection)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, data, {"Content-Type": media, "User-Agent": "tester/1.0", **given})
        return connection.getresponse()

    def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Obj]:
        response = self.send(method, path, body, **options)
        return response.status, json.loads(response.read())

    def get(self, path: str, **options: Any) -> Obj:
        status, body = self("GET", path, **options)
        assert status == 200, body
        return body

    def watch(self, path: str, **options: Any) -> Iterator[Obj]:
        response = self.send("GET", path, **options)
        assert response.status == 200, response.read()

        def lines() -> Iterator[Obj]:
            while line := response.readline():
                yield json.loads(line)

        return lines()

    def close(self) -> None:
        for connection in self._open:
            connection.close()


@pytest.fixture
def store() -> Store:
    return Store(SystemClock())


@pytest.fixture
def server(store: Store) -> Iterator[ApiServer]:
    with ApiServer(store, bookmark_every_s=0.05) as running:
        yield running


@pytest.fixture
def http_client(server: ApiServer) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.close()


@pytest.fixture
def config() -> Callable[..., Obj]:
    def make(name: str = "cm", **data: str) -> Obj:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"},
            "data": data,
        }

    return make


@pytest.fixture(scope="module", params=["embedded", pytest.param("envtest", marks=pytest.mark.envtest)])
def kubeconfig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a running cluster API, one of each kind a module."""
    with CLUSTERS[request.param](tmp_path_factory.mktemp(request.param)) as path:
        yield path


@pytest.fixture
def namespace(kubeconfig: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of one test's own."""
    import kubernetes.client
    import kubernetes.config

    api = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(kubeconfig)))
    digest = hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    name = f"t-{digest}"
    api.create_namespace({"metadata": {"name": name}})
    yield name
    api.delete_namespace(name)


@pytest.fixture
def kubectl(kubeconfig: Path, namespace: str, tmp_path: Path) -> Kubectl:
    """kubectl in the test's namespace."""
    return kubectl_of(kubeconfig, namespace, tmp_path)
