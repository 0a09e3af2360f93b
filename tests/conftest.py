"""Fixtures and rules for every test: no network but loopback, no time of day, no colour."""

import pytest
import structlog
from hypothesis import settings
from pytest_socket import socket_allow_hosts
from structlog.dev import plain_traceback

# Stacks without the values of locals: among them are whole snapshots.
structlog.configure(
    processors=[structlog.processors.add_log_level, structlog.dev.ConsoleRenderer(exception_formatter=plain_traceback)]
)
# Machines are shared: how long one example takes says nothing about the code.
settings.register_profile("muster", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("muster")


@pytest.fixture(autouse=True)
def _loopback_only() -> None:
    """Any connection beyond this machine is an error, so that no test depends on the network."""
    socket_allow_hosts(["127.0.0.1", "::1", "localhost"], allow_unix_socket=True)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials, kubeconfig or proxies of the developer leak into a test."""
    for name in ("KUBECONFIG", "AWS_PROFILE", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_COLOR", "1")
