"""A pretended GitHub on loopback, each exchange of which is held to GitHub's description."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from providers.clock import VirtualClock
from providers.forge.github import GitHubApp, GitHubForge, GitHubToken
from providers.forge.port import Annotation, CommitStatus, Permission, Verdict
from providers.sim.forge import GitHubExchange, GitHubFault, GitHubServer, GitHubState, InstalledApp
from tests.providers.forge.description import problems

NOW_S = 1_790_000_000.0
TOKEN = "ghp_secret"
_ROLES = {Permission.NONE: "none", Permission.READ: "read", Permission.WRITE: "write", Permission.ADMIN: "admin"}
_VERDICTS = {"success": Verdict.SUCCESS, "failure": Verdict.FAILURE}


@pytest.fixture(scope="session")
def keys() -> tuple[str, str]:
    """An App's private key and its public one."""
    key = rsa.generate_private_key(65537, 2048)
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


@dataclass
class GitHubWorld:
    """A `ForgeWorld` of GitHub, and more for its own tests."""

    forge: GitHubForge
    state: GitHubState
    server: GitHubServer
    clock: VirtualClock
    shows_annotations: bool

    def add_user(self, login: str, permission: Permission) -> None:
        self.state.account(login, _ROLES[permission])

    def open(self, author: str, head: str, *, base: str = "main", title: str = "", fork: bool = False) -> int:
        account = self.state.accounts[author]
        return self.state.open(title, account, head, base=base, fork=2000 if fork else None).number

    def push(self, number: int, head: str) -> None:
        self.state.push(number, head)

    def close(self, number: int, *, merge_commit: str = "") -> None:
        self.state.close(number, merge_commit=merge_commit or None)

    def say(self, number: int, author: str, text: str) -> int:
        return self.state.comment(number, self.state.accounts[author], text).id

    def reactions(self, comment: int) -> list[str]:
        return [{"+1": "up", "-1": "down"}[content] for _, content in self.state.comments[comment].reactions]

    def status(self, commit: str, name: str) -> CommitStatus | None:
        if self.shows_annotations:
            run = self.state.latest_checks(commit).get(name)
            if run is None:
                return None
            found = tuple(Annotation(said["path"], said["start_line"], said["message"]) for said in run.annotations)
            verdict = _VERDICTS.get(run.conclusion or "", Verdict.PENDING)
            return CommitStatus(name, verdict, run.summary, run.details_url or "", found)
        status = self.state.latest_statuses(commit).get(name)
        if status is None:
            return None
        verdict = _VERDICTS.get(status.state, Verdict.PENDING)
        return CommitStatus(name, verdict, status.description or "", status.target_url or "")

    def refuse(self, *, for_s: float) -> None:
        self.server.fail(
            GitHubFault.saying(403, "You have exceeded a secondary rate limit.", retry_after=f"{for_s:.0f}")
        )

    def break_down(self) -> None:
        self.server.fail(GitHubFault.saying(502, "Server Error"))

    def cut(self) -> None:
        self.server.fail(GitHubFault(None, is_done=True))

    def now_s(self) -> float:
        return self.clock.now()

    def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)


MakeWorld = Callable[..., GitHubWorld]


@pytest.fixture
def make_world(keys: tuple[str, str]) -> Iterator[MakeWorld]:
    """Makes a GitHub and an adapter: `signed_in` as `app` or `token`, `prefix` as of an Enterprise Server."""
    servers: list[GitHubServer] = []
    wrong: list[str] = []

    def hear(exchange: GitHubExchange) -> None:
        wrong.extend(problems(exchange))

    def make(signed_in: str = "token", *, prefix: str = "", clock: VirtualClock | None = None) -> GitHubWorld:
        clock = clock or VirtualClock(NOW_S)
        state = GitHubState("acme", "fleet", clock, app=InstalledApp(7, "muster", 70, keys[1]))
        state.account("robot", "write", token=TOKEN)
        server = GitHubServer(state, prefix=prefix, on_exchange=hear).start()
        servers.append(server)
        sign_in = GitHubApp(7, keys[0], 70) if signed_in == "app" else GitHubToken(TOKEN)
        forge = GitHubForge("acme/fleet", sign_in, clock=clock, url=server.url)
        return GitHubWorld(forge, state, server, clock, signed_in == "app")

    yield make
    for server in servers:
        server.stop()
    assert wrong == []
