"""Fixtures and rules for every test: no network but loopback, no time of day, no colour."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import is_hypothesis_test, settings
from pytest_socket import socket_allow_hosts
from structlog.dev import plain_traceback

# Stacks without the values of locals: among them are whole snapshots.
structlog.configure(
    processors=[structlog.processors.add_log_level, structlog.dev.ConsoleRenderer(exception_formatter=plain_traceback)]
)
# Garbage is looked for seldom.
_THRESHOLD = (20_000, 5, 5)
gc.set_threshold(*_THRESHOLD)
# Machines are shared: how long one example takes says nothing about the code.
settings.register_profile("muster", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("muster")


def pytest_collectstart() -> None:
    """All that is made while tests are found stays: looking for garbage in it takes a twelfth of the time.

    Not before: the process that hands tests to others finds none, and has garbage to the end.
    """
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """All tests and modules stay to the end: looking for garbage among them takes an eighth of the time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _garbage_is_collected() -> Iterator[None]:
    """Commands that end soon collect none, the agent seldom; run in a test's process, that outlives the test."""
    yield
    gc.enable()
    gc.set_threshold(*_THRESHOLD)


@pytest.fixture
def deep_texts() -> None:
    """Nothing is collected while a text is read that uses up the stack: finalizers of other tests' garbage fail there.

    pytest makes a failure of that, of whichever test it comes in.
    """
    gc.disable()


@pytest.fixture(autouse=True)
def _logs_are_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands set the log up once for their process; run in a test's process, neither that nor caches outlive it."""
    before, configure = structlog.get_config(), structlog.configure

    def uncached(**settings: Any) -> None:
        configure(**{**settings, "cache_logger_on_first_use": False})

    monkeypatch.setattr(structlog, "configure", uncached)
    yield
    configure(**before)


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


SLOW = (
    "agent/review/test_agent_processes",
    "agent/review/test_clusters_process",
    "agent/review/test_hostile_requests",
    "agent/review/test_review_process",
    "agent/test_process",
    "agent/test_resolutions",
    "agent/test_simulation_",
    "bench/",
    "conformance/",
    "deploy/test_image",
    "e2e/",
    "fuzz/",
    "model/loader/test_hostile",
    "providers/git/test_hostile",
    "providers/aws/",
    "providers/forge/",
    "providers/sim/apiserver/test_conformance_kubectl",
    "providers/sim/ec2/",
    "reference/",
)
"""How the paths begin of tests that take their time: whole programs, long simulations, moto, recorded suites."""
LONGEST = ("agent/review/test_agent_processes", "agent/test_process", "bench/", "e2e/", "fuzz/")
"""Of these, where one test may take a minute."""
BUT = ("agent/test_simulation_life", "agent/test_simulation_published")
"""Of these, what stands for the others in `make check`."""


def _takes_its_time(path: Path, config: pytest.Config) -> bool:
    inside = path.relative_to(config.rootpath / "tests").as_posix()
    return inside.startswith(SLOW) and not inside.startswith(BUT)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import what would be left out: that alone takes seconds."""
    left_out = config.option.markexpr == "not slow" and collection_path.suffix == ".py"
    return (left_out and _takes_its_time(collection_path, config)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what `make check` leaves out: tests that take their time, and properties, which draw many examples.

    The longest come first: the worker that gets them has the others' work taken off it, and nobody ends alone.
    """
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)) or _takes_its_time(item.path, config):
            item.add_marker("slow")
    inside = config.rootpath / "tests"
    items.sort(key=lambda item: not item.path.relative_to(inside).as_posix().startswith(LONGEST))
