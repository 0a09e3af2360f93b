"""A kubeconfig of plain parts: a server, whom to trust, a token or a client certificate.

Such files are read here, since importing `kubernetes` costs a command more than all else that it does. Whatever needs
more (exec plugins, refreshed tokens, proxies, impersonation) is left to that client.
"""

import base64
import binascii
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from providers.kube.errors import BadConnection

_CLUSTER: Final = frozenset({"server", "certificate-authority", "certificate-authority-data", "extensions"})
_CERTIFICATE: Final = frozenset(
    {"client-certificate", "client-certificate-data", "client-key", "client-key-data"},
)
_USER: Final = _CERTIFICATE | {"token", "extensions"}
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True, slots=True)
class PlainServer:
    """A server and how to speak to it; `tls` is None where the system's trust is enough."""

    url: str
    token: str
    tls: ssl.SSLContext | None


def plain_server(source: str, context: str | None) -> PlainServer | None:
    """Returns what the kubeconfig says, or None where the client library has to read it, whatever the reason is.

    Raises `BadConnection` where a certificate or a key of an otherwise plain file cannot be used.
    """
    if os.pathsep in source or any(os.environ.get(it) or os.environ.get(it.upper()) for it in _PROXIES):
        return None
    import yaml

    loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        told = yaml.load(Path(source).read_bytes(), loader)  # noqa: S506 - both are safe loaders
        chosen = _named(told["contexts"], context or told["current-context"], "context")
        cluster = _named(told["clusters"], chosen["cluster"], "cluster")
        user = _named(told["users"], chosen["user"], "user") if chosen.get("user") and told.get("users") else {}
        if set(cluster) - _CLUSTER or set(user) - _USER or not isinstance(cluster["server"], str):
            return None
        token = user.get("token", "")
    except (OSError, ValueError, TypeError, KeyError, LookupError, AttributeError, yaml.YAMLError):
        return None
    try:
        return PlainServer(cluster["server"], token, _tls(cluster, user, Path(source).parent))
    except (OSError, ValueError, TypeError, binascii.Error) as error:
        raise BadConnection(f"kubeconfig {source}: {error}") from error


def _named(entries: Any, name: str, what: str) -> Mapping[str, Any]:
    """The only entry of that name; raises `TypeError` or `ValueError`."""
    [found] = [entry[what] or {} for entry in entries if entry["name"] == name] or [None]
    if not isinstance(found, Mapping):
        raise TypeError(name)
    return found


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext | None:
    authority = _content(cluster, "certificate-authority", folder)
    certificate, key = _content(user, "client-certificate", folder), _content(user, "client-key", folder)
    if not authority and not certificate:
        return None
    context = ssl.create_default_context(cadata=authority.decode() or None)
    if certificate:
        import tempfile

        # OpenSSL reads keys from files alone; this one is nobody else's, and gone at once.
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _content(entry: Mapping[str, Any], key: str, folder: Path) -> bytes:
    """What a key holds, as base64 or by the name of a file beside the kubeconfig; empty for neither."""
    if data := entry.get(f"{key}-data"):
        return base64.b64decode(data, validate=True)
    return (folder / entry[key]).read_bytes() if entry.get(key) else b""
