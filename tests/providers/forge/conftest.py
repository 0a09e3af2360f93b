"""Pretended forges on loopback, each exchange of which is held to the forge's description."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from providers.clock import VirtualClock
from providers.forge.forgejo import ForgejoForge, ForgejoToken
from providers.forge.github import GitHubApp, GitHubForge, GitHubToken
from providers.forge.gitlab import GitLabForge, GitLabToken
from providers.forge.port import Annotation, CommitStatus, Permission, Verdict
from providers.sim.forge import (
    ForgeExchange,
    ForgeFault,
    ForgejoDialect,
    ForgeServer,
    ForgeState,
    GitHubDialect,
    GitLabDialect,
    InstalledApp,
)
from providers.sim.forge.contents import MemoryContents
from tests.providers.forge.description import problems

NOW_S = 1_790_000_000.0
TOKEN = "ghp_secret"
_ROLES = {Permission.NONE: "none", Permission.READ: "read", Permission.WRITE: "write", Permission.ADMIN: "admin"}
_VERDICTS = {"success": Verdict.SUCCESS, "failure": Verdict.FAILURE, "failed": Verdict.FAILURE}


class HurriedClock(VirtualClock):
    """Seven seconds go by whenever somebody looks."""

    def monotonic(self) -> float:
        self.advance(7)
        return super().monotonic()


@pytest.fixture(scope="session")
def keys() -> tuple[str, str]:
    """An App's private key and its public one."""
    key = rsa.generate_private_key(65537, 2048)
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


@dataclass
class PretendedWorld:
    """A `ForgeWorld` of a pretended forge, and more for its own tests."""

    forge: Any
    state: ForgeState
    server: ForgeServer
    clock: VirtualClock
    shows_annotations: bool = False
    shows_deployments: bool = True
    tells_what_was_approved: bool = True
    thumbs: Mapping[str, str] = field(default_factory=lambda: {"+1": "up", "-1": "down"})

    def add_user(self, login: str, permission: Permission) -> None:
        self.state.account(login, _ROLES[permission])

    def open(self, author: str, head: str, *, base: str = "main", title: str = "", fork: bool = False) -> int:
        account = self.state.accounts[author]
        return self.state.open(title, account, head, base=base, fork=2000 if fork else None).number

    def push(self, number: int, head: str) -> None:
        self.state.push(number, head)

    def close(self, number: int, *, merge_commit: str = "", by: str = "") -> None:
        self.state.close(number, merge_commit=merge_commit or None, by=self.state.accounts.get(by))

    def say(self, number: int, author: str, text: str) -> int:
        return self.state.comment(number, self.state.accounts[author], text).id

    def approve(self, number: int, login: str) -> None:
        self.state.review(number, self.state.accounts[login], "APPROVED")

    def object_to(self, number: int, login: str) -> None:
        self.state.review(number, self.state.accounts[login], "CHANGES_REQUESTED")

    def dismiss(self, number: int, login: str) -> None:
        self.state.dismiss(number, self.state.accounts[login])

    def add_team(self, team: str, *logins: str) -> None:
        self.state.teams[team] = dict.fromkeys(logins, "active")

    def reactions(self, comment: int) -> list[str]:
        return [self.thumbs[content] for _, content in self.state.comments[comment].reactions]

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

    def deployments(self, environment: str) -> list[tuple[str, list[str]]]:
        words = {"in_progress": "in progress", "running": "in progress", "failed": "failure"}
        return [
            (it.commit, [words.get(state, state) for _, state, _, _ in it.statuses])
            for it in self.state.deployments.values()
            if it.environment == environment
        ]

    def refuse(self, *, for_s: float) -> None:
        self.server.fail(ForgeFault.saying(429, "You have exceeded a rate limit.", retry_after=f"{for_s:.0f}"))

    def break_down(self) -> None:
        self.server.fail(ForgeFault.saying(502, "Server Error"))

    def cut(self, *, after: int = 0) -> None:
        self.server.fail(ForgeFault(None, is_done=True, after=after))

    def put_file(self, path: str, content: bytes) -> str:
        commit = "9" * 40
        self.state.contents = MemoryContents({commit: {path: content}}, {"main": commit})
        return commit

    def file_on(self, branch: str, path: str) -> bytes | None:
        return self.state.contents.read(branch, path)

    def now_s(self) -> float:
        return self.clock.now()

    def pass_s(self, seconds: float) -> None:
        self.clock.advance(seconds)


MakeWorld = Callable[..., PretendedWorld]


@pytest.fixture
def make_server() -> Iterator[Callable[..., ForgeServer]]:
    """Starts a server of a state in a dialect, and holds what goes to and fro to the description of that name."""
    servers: list[ForgeServer] = []
    wrong: list[str] = []

    def hear(forge: str, exchange: ForgeExchange) -> None:
        wrong.extend(problems(exchange, forge))

    def make(state: ForgeState, dialect: Any, described: str, **more: Any) -> ForgeServer:
        servers.append(ForgeServer(state, dialect, on_exchange=partial(hear, described), **more).start())
        return servers[-1]

    yield make
    for server in servers:
        server.stop()
    assert wrong == []


@pytest.fixture
def make_world(keys: tuple[str, str], make_server: Callable[..., ForgeServer]) -> MakeWorld:
    """Makes a GitHub and an adapter: `signed_in` as `app` or `token`, `prefix` as of an Enterprise Server."""

    def make(signed_in: str = "token", *, prefix: str = "", clock: VirtualClock | None = None) -> PretendedWorld:
        clock = clock or VirtualClock(NOW_S)
        state = ForgeState("acme", "fleet", clock, app=InstalledApp(7, "muster", 70, keys[1]))
        state.account("robot", "write", token=TOKEN)
        server = make_server(state, GitHubDialect, "github", prefix=prefix)
        sign_in = GitHubApp(7, keys[0], 70) if signed_in == "app" else GitHubToken(TOKEN)
        forge = GitHubForge("acme/fleet", sign_in, clock=clock, url=server.url)
        return PretendedWorld(forge, state, server, clock, signed_in == "app")

    return make


@pytest.fixture
def make_gitlab(make_server: Callable[..., ForgeServer]) -> MakeWorld:
    """Makes a GitLab and an adapter; `path` as of one that is not at the root of its host."""

    def make(*, path: str = "", clock: VirtualClock | None = None) -> PretendedWorld:
        clock = clock or VirtualClock(NOW_S)
        state = ForgeState("acme", "fleet", clock)
        state.account("robot", "write", token=TOKEN)
        server = make_server(state, GitLabDialect, "gitlab", prefix=f"{path}/api/v4")
        forge = GitLabForge("acme/fleet", GitLabToken(TOKEN), clock=clock, url=f"{server.root}{path}")
        return PretendedWorld(
            forge,
            state,
            server,
            clock,
            tells_what_was_approved=False,
            thumbs={"thumbsup": "up", "thumbsdown": "down"},
        )

    return make


@pytest.fixture
def make_forgejo(make_server: Callable[..., ForgeServer]) -> MakeWorld:
    """Makes a Forgejo and an adapter; `path` as of one that is not at the root of its host."""

    def make(*, path: str = "", clock: VirtualClock | None = None) -> PretendedWorld:
        clock = clock or VirtualClock(NOW_S)
        state = ForgeState("acme", "fleet", clock)
        state.account("robot", "admin", token=TOKEN)
        server = make_server(state, ForgejoDialect, "gitea", prefix=f"{path}/api/v1")
        forge = ForgejoForge("acme/fleet", ForgejoToken(TOKEN), clock=clock, url=f"{server.root}{path}")
        return PretendedWorld(forge, state, server, clock, shows_deployments=False)

    return make
