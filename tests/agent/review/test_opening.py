"""The forge that the settings name: which adapter, which secret, and which mistake is told by which field."""

from pathlib import Path

import pytest

from agent.config import ReviewSettings
from agent.review.opening import OpenForge
from providers.clock import VirtualClock
from providers.forge.forgejo import ForgejoForge
from providers.forge.github import GitHubForge
from providers.forge.gitlab import GitLabForge
from providers.forge.port import ForgeError
from providers.sim.forge import ForgejoDialect, ForgeServer, ForgeState, GitHubDialect, GitLabDialect

FORGES = {
    "GitHub": (GitHubForge, GitHubDialect, ""),
    "GitLab": (GitLabForge, GitLabDialect, "/api/v4"),
    "Forgejo": (ForgejoForge, ForgejoDialect, "/api/v1"),
    "Gitea": (ForgejoForge, ForgejoDialect, "/api/v1"),
}


@pytest.mark.parametrize("name", FORGES)
def test_each_forge_is_asked_with_the_secret_as_it_is_now(tmp_path: Path, name: str) -> None:
    kind, dialect, prefix = FORGES[name]
    secret = tmp_path / "token"
    clock = VirtualClock(1.8e9)
    state = ForgeState("acme", "fleet", clock)
    state.account("robot", "admin", token="second")
    with ForgeServer(state, dialect, prefix=prefix) as server:
        said = ReviewSettings(forge=name, repository="acme/fleet", url=server.root, token_file=secret)
        opened = OpenForge(said, clock)
        with pytest.raises(ForgeError, match=r"review\.tokenFile"):
            opened()
        secret.write_text("first\n")
        first = opened()
        assert isinstance(first, kind)
        assert opened() is first
        with pytest.raises(ForgeError, match="wrong, expired or revoked"):
            first.open_requests("main")
        secret.write_text("second\n")
        second = opened()
        assert second is not first
        assert second.open_requests("main") == ()


@pytest.mark.parametrize("name", FORGES)
def test_an_address_that_takes_no_secret_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_TOKEN", "t")
    said = ReviewSettings(forge=name, repository="acme/fleet", url="http://forge.example.com", token_env="FORGE_TOKEN")
    with pytest.raises(ForgeError, match="https://"):
        OpenForge(said, VirtualClock())()
