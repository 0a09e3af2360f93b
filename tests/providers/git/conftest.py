"""Real repositories made by the git command line, isolated from whoever runs the tests."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from providers.clock import VirtualClock
from providers.git.auth import Remote
from providers.git.limits import MirrorLimits
from providers.git.repository import BareMirror
from tests.providers.git.support import GitHttpServer, WorkTree


@pytest.fixture
def make_work(tmp_path: Path) -> Callable[[str], WorkTree]:
    def make(name: str, *flags: str) -> WorkTree:
        path = tmp_path / name
        path.mkdir()
        work = WorkTree(path)
        work.git("init", "-q", "-b", "main", *flags)
        return work

    return make


@pytest.fixture
def work(make_work: Callable[[str], WorkTree]) -> WorkTree:
    """A repository with one commit of `a.yaml` on main."""
    made = make_work("work")
    made.commit()
    return made


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def make_mirror(tmp_path: Path, clock: VirtualClock) -> Iterator[Callable[..., BareMirror]]:
    made: list[BareMirror] = []

    def make(remote: Remote | str, **limits: float) -> BareMirror:
        where = remote if isinstance(remote, Remote) else Remote(remote)
        made.append(BareMirror(where, tmp_path / "cache", clock, MirrorLimits(**limits)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for mirror in made:
        mirror.close()


@pytest.fixture
def http_git(tmp_path: Path) -> Iterator[GitHttpServer]:
    server = GitHttpServer(tmp_path)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.stopping.set()
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections (the kernel does) and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield listener.getsockname()[1]
