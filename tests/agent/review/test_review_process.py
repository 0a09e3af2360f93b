"""A pull request over the wire: git push, a pretended GitHub, the agent's process, its comment, the merge."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.sandbox.repository import git
from providers.clock import SystemClock
from providers.sim.forge import GitHubServer, GitHubState
from tests.agent.processes import AgentPlace, until
from tests.agent.scenes import files, pool, queue, simple, team


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubServer]:
    state = GitHubState("acme", "fleet", SystemClock())
    state.account("muster-bot", "write", token="t0ken")
    monkeypatch.setenv("FORGE_TOKEN", "t0ken")
    with GitHubServer(state) as server:
        yield server


def settings(github: GitHubServer) -> dict[str, Any]:
    return {"repository": "acme/fleet", "url": github.url, "tokenEnv": "FORGE_TOKEN", "pollIntervalS": 1.0}


def proposed(place: AgentPlace, fleet: dict[str, str], number: int) -> str:
    """Pushes a fleet on a branch, which the forge shows as the head of a request, too; the clone is on main again."""
    clone = place.repository.clone
    git(clone, "checkout", "--quiet", "-B", "change", "main")
    for path, text in fleet.items():
        Path(clone / path).write_text(text, encoding="utf-8")
    git(clone, "commit", "--quiet", "--all", "--message", "More")
    git(clone, "push", "--quiet", "--force", "origin", "change", f"HEAD:refs/pull/{number}/head")
    head = git(clone, "rev-parse", "HEAD").strip()
    git(clone, "checkout", "--quiet", "main")
    return head


def bodies(github: GitHubServer) -> list[str]:
    return [it.body for it in github.state.comments.values()]


def test_a_pull_request_is_reviewed_merged_and_followed(place: AgentPlace, github: GitHubServer) -> None:
    running = place.start("first", review=settings(github))
    until(lambda: running.get("/readyz")[0] == 200 and place.applied(), "the fleet is in force")
    state = github.state
    ada = state.account("ada", "write")

    head = proposed(place, files(pool(), pool("more"), team(), queue()), 1)
    request = state.open("A pool more", ada, head)
    until(lambda: bodies(github), "a comment is written")
    assert "would come into force" in bodies(github)[0]
    assert "nodepool/more" in bodies(github)[0]
    until(lambda: state.latest_statuses(head), "and a status")
    assert {name: it.state for name, it in state.latest_statuses(head).items()} == {"muster/test": "success"}

    wrong = proposed(place, {"fleet.yaml": simple()["fleet.yaml"].replace("NodePool", "NodePol", 1)}, 1)
    state.push(request.number, wrong)
    until(lambda: "is invalid" in bodies(github)[0], "what is wrong is said in the same comment")
    assert {it.state for it in state.latest_statuses(wrong).values()} <= {"failure"}

    head = proposed(place, files(pool(), pool("more"), team(), queue()), 1)
    state.push(request.number, head)
    until(lambda: "would come into force" in bodies(github)[0], "it is right again")
    git(place.repository.clone, "merge", "--quiet", "--no-ff", "--message", "Merge request 1", "change")
    merged = place.repository.push("Merged")
    state.close(request.number, merge_commit=merged)
    until(lambda: "is in force" in bodies(github)[0], "the comment follows the merge")
    assert place.applied().endswith(merged)
    assert len(bodies(github)) == 1
    assert state.latest_statuses(merged)["muster/test"].state == "success"


def test_a_forge_that_is_down_is_told_of_and_disturbs_nobody(place: AgentPlace, github: GitHubServer) -> None:
    said = settings(github) | {"url": "http://127.0.0.1:9"}
    running = place.start("first", review=said)
    until(lambda: running.get("/readyz")[0] == 200 and place.applied(), "the fleet is in force")

    def conditions() -> dict[str, str]:
        found = (place.sync().get("status") or {}).get("conditions", ())
        return {it["type"]: it["message"] for it in found}

    until(lambda: "ReviewFailed" in conditions(), "the FleetSync tells of it")
    assert "ForgeUnreachable" in conditions()["ReviewFailed"]
    place.submit("job")
    until(lambda: place.running("job"), "work goes on")
