"""How to reach and authenticate to an API server. `kubernetes` (0.4-0.8 s to import) is loaded only when asked for."""

import os
import re
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import InsecureRequestWarning

from providers.kube.errors import BadConnection
from providers.kube.kubeconfig import plain_server

if TYPE_CHECKING:
    from kubernetes.client import Configuration

POOL_SIZE: Final = 32
"""Idle connections kept: a few reflectors and the workers. A watch holds a connection of its own beyond that."""

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@dataclass(frozen=True, slots=True)
class Connection:
    """A pool of connections to one server. `auth_headers` is asked for each request: tokens are refreshed there."""

    pool: urllib3.PoolManager
    base_url: str
    auth_headers: Callable[[], Mapping[str, str]]
    new_pool: Callable[[], urllib3.PoolManager]

    def apart(self) -> "Connection":
        """Returns the same server and the same user over connections that nobody else uses."""
        return replace(self, pool=self.new_pool())


def connect(url: str = "", kubeconfig: Path | None = None, context: str | None = None) -> Connection:
    """The first that applies: plain `url`, an explicit or default kubeconfig, the pod's service account.

    Raises `BadConnection` when none does.
    """
    if url:
        return from_url(url)
    explicit = kubeconfig is not None or context is not None or bool(os.environ.get("KUBECONFIG"))
    if explicit or not SERVICE_ACCOUNT.exists():
        return from_kubeconfig(kubeconfig, context)
    return in_cluster()


def from_url(
    url: str, *, token: str = "", ca_file: Path | None = None, tls: ssl.SSLContext | None = None
) -> Connection:
    """A server at a known address, without a proxy.

    `ca_file` is a PEM bundle to trust instead of the system's; `tls` says that and who we are.
    """
    pool = partial(
        urllib3.PoolManager,
        maxsize=POOL_SIZE,
        socket_options=keepalive_options(),
        ca_certs=str(ca_file) if ca_file else None,
        ssl_context=tls,
    )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return Connection(pool(), url.rstrip("/"), lambda: headers, pool)


def from_kubeconfig(path: Path | None = None, context: str | None = None) -> Connection:
    """A kubeconfig file (default: `$KUBECONFIG`, then `~/.kube/config`); exec plugins and TLS as kubectl has them.

    The file is never written. Raises `BadConnection`.
    """
    source = str(path) if path else os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    if (plain := plain_server(source, context)) is not None:
        return from_url(plain.url, token=plain.token, tls=plain.tls)
    import yaml
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_kube_config

    settings = Configuration()
    try:
        load_kube_config(config_file=source, context=context, client_configuration=settings, persist_config=False)
    except (ConfigException, OSError, ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise BadConnection(f"kubeconfig {source}: {error}") from error
    return from_configuration(settings)


def in_cluster() -> Connection:
    """The pod's own service account; its token is read again every minute. Raises `BadConnection` outside a pod."""
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_incluster_config

    settings = Configuration()
    try:
        load_incluster_config(client_configuration=settings)
    except (ConfigException, OSError) as error:
        raise BadConnection(f"service account: {error}") from error
    return from_configuration(settings)


def from_configuration(settings: "Configuration") -> Connection:
    """A connection with everything `kubernetes.client.Configuration` knows: TLS, client certificate, proxy, token."""
    from kubernetes.client import ApiClient

    if not settings.verify_ssl:
        _say_once_that_nothing_is_verified(settings.host)
    settings.connection_pool_maxsize = POOL_SIZE
    settings.socket_options = keepalive_options()
    settings.retries = False
    api = ApiClient(settings)

    def new_pool() -> urllib3.PoolManager:
        pool: urllib3.PoolManager = ApiClient(settings).rest_client.pool_manager
        return pool

    return Connection(api.rest_client.pool_manager, settings.host.rstrip("/"), _refreshing_headers(api), new_pool)


def _say_once_that_nothing_is_verified(server: str) -> None:
    """Tell it in our words; urllib3 would warn at every request. Only of this host, which somebody chose to trust."""
    host = urlsplit(server).hostname or server
    import structlog  # slower to import than most commands may take

    structlog.get_logger(__name__).warning(
        "server_not_verified", server=server, why="the kubeconfig says insecure-skip-tls-verify"
    )
    said = re.escape(f"Unverified HTTPS request is being made to host '{host}'")
    warnings.filterwarnings("ignore", message=said, category=InsecureRequestWarning)


def _refreshing_headers(api: Any) -> Callable[[], Mapping[str, str]]:
    # The client's refresh hooks are not thread-safe: two threads would run the exec plugin at once.
    lock = threading.Lock()

    def headers() -> Mapping[str, str]:
        with lock:
            found: dict[str, str] = {}
            api.update_params_for_auth(found, [], ["BearerToken"], "", "", None)
        # A token file may end in a newline, which no header may.
        return {name: value.strip() for name, value in found.items()}

    return headers


def keepalive_options(idle_s: int = 30, interval_s: int = 15, probes: int = 9) -> list[tuple[int, int, int]]:
    """Socket options that find a dead peer in `idle_s + interval_s * probes` seconds (the values are client-go's)."""
    options: list[tuple[int, int, int]] = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    ]
    wanted = {"TCP_KEEPIDLE": idle_s, "TCP_KEEPINTVL": interval_s, "TCP_KEEPCNT": probes}
    # Platforms define different subsets of these.
    options += [
        (socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in wanted.items() if hasattr(socket, name)
    ]
    return options
