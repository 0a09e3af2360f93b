"""A pretended GitHub before a real repository that is pushed to, with its pages."""

import http.client
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pytest

from agent.sandbox.repository import Repository, git
from providers.clock import VirtualClock
from providers.sim.forge import ForgeServer, ForgeState, GitHubDialect, InstalledApp
from providers.sim.forge.hosting import HostedRepository
from providers.sim.forge.page import ForgePage

NOW_S = 1_790_000_000.0
REQUEST = "/acme/fleet/pull/1"


@dataclass
class HostedWorld:
    """The repository and its clone, what the forge knows, and whom it told of what."""

    repository: Repository
    state: ForgeState
    clock: VirtualClock
    told: list[tuple[str, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        people = [self.state.account("ada", "write"), self.state.account("grace", "maintain")]
        self.state.account("visitor", "read")
        self.hosted = HostedRepository(self.repository.bare, self.state, people[0], self._tell)

    def _tell(self, event: str, action: str, number: int) -> None:
        self.told.append((event, action, number))

    def git(self, *arguments: str) -> str:
        """Runs git in the clone."""
        return git(self.repository.clone, *arguments).strip()

    def push(self, branch: str, files: Mapping[str, str | bytes], message: str = "More", *, onto: str = "main") -> str:
        """Pushes a commit on a branch that begins at `onto`, as somebody would; returns its id."""
        self.git("checkout", "--quiet", "-B", "work", onto)
        for name, text in files.items():
            path = self.repository.clone / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        self.git("push", "--quiet", "--force", "origin", f"work:refs/heads/{branch}")
        return self.git("rev-parse", "HEAD")

    def on_the_server(self, revision: str) -> str:
        """Returns the commit of a revision where it was pushed to; empty where there is none."""
        return git(self.repository.bare, "for-each-ref", "--format=%(objectname)", revision).strip()


@pytest.fixture
def world(tmp_path: Path) -> HostedWorld:
    """A fleet on main, and nothing else."""
    repository = Repository(tmp_path)
    example = tmp_path / "example"
    example.mkdir()
    (example / "pools.yaml").write_text("a: 1\nb: 2\nc: 3\n")
    repository.create(example)
    clock = VirtualClock(NOW_S)
    state = ForgeState("acme", "fleet", clock, app=InstalledApp(7, "muster", 70, ""))
    made = HostedWorld(repository, state, clock)
    repository.push("The fleet")
    made.hosted.look()
    made.told.clear()
    return made


@dataclass(frozen=True)
class Shown:
    """An answer of the pages."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def words(self) -> str:
        """What somebody sees of it, in one line."""
        return " ".join(re.sub(r"<[^>]*>", " ", self.text).split())


@dataclass
class PageBrowser:
    """Asks for pages as a browser would, and as one would not."""

    server: ForgeServer

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> Shown:
        """Asks with these headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        shown = Shown(answer.status, dict(answer.getheaders()), answer.read().decode())
        connection.close()
        return shown

    @property
    def port(self) -> int:
        """The server's port."""
        return int(self.server.url.rsplit(":", 1)[1].partition("/")[0])

    @property
    def origin(self) -> str:
        """Where its pages come from."""
        return f"http://127.0.0.1:{self.port}"

    def read(self, path: str = REQUEST) -> Shown:
        """Reads a page."""
        return self.ask("GET", path)

    def press(self, button: str, who: str = "ada", path: str = REQUEST, **form: str) -> Shown:
        """Presses a button of a request's page."""
        return self.ask("POST", f"{path}/{button}", urlencode({"as": who, **form}), Origin=self.origin)


@pytest.fixture
def browser(world: HostedWorld) -> Iterator[PageBrowser]:
    """Reads the pages of `world`."""
    with ForgeServer(world.state, GitHubDialect, prefix="/api/v3", pages=ForgePage(world.hosted).answer) as server:
        yield PageBrowser(server)
