"""Which version of Kubernetes images are asked for."""

from typing import Any

import pytest

from agent.cli.run import ClusterVersion, minor_version
from providers.clock import VirtualClock
from providers.kube.errors import Unreachable


class Server:
    """Answers `/version` with what is next, or fails."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def get(self, path: str) -> bytes:
        assert path == "/version"
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bytes(answer)


def said(minor: str) -> bytes:
    return f'{{"major": "1", "minor": "{minor}"}}'.encode()


@pytest.mark.parametrize(("minor", "version"), [("34", "1.34"), ("34+", "1.34")])
def test_a_version(minor: str, version: str) -> None:
    assert minor_version(said(minor)) == version


def test_it_is_asked_for_now_and_then_and_what_was_said_last_stands() -> None:
    clock = VirtualClock()
    server: Any = Server(Unreachable("no"), said("33"), Unreachable("no"), b"{}", said("34"))
    version = ClusterVersion(server, clock)
    assert [version(), version(), version()] == ["", "1.33", "1.33"]
    clock.advance(601.0)
    assert [version(), version(), version(), version()] == ["1.33", "1.33", "1.34", "1.34"]
    assert server.answers == []
