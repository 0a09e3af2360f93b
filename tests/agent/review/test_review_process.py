"""A pull request over the wire: git push, a pretended forge, the agent's process, its comment, the merge."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.journal import latest_lines
from agent.sandbox.repository import git
from providers.clock import SystemClock
from providers.sim.forge import ForgejoDialect, ForgeServer, ForgeState, GitHubDialect, GitLabDialect
from providers.sim.forge.contents import GitContents
from providers.sim.forge.hosting import HostedRepository
from providers.sim.forge.server import ForgeFault
from tests.agent.processes import AgentPlace, until
from tests.agent.scenes import doc, files, pool, queue, simple, team


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgeServer]:
    state = ForgeState("acme", "fleet", SystemClock())
    state.account("muster-bot", "write", token="t0ken")
    monkeypatch.setenv("FORGE_TOKEN", "t0ken")
    with ForgeServer(state, GitHubDialect) as server:
        yield server


FORGES = {"GitHub": (GitHubDialect, ""), "GitLab": (GitLabDialect, "/api/v4"), "Forgejo": (ForgejoDialect, "/api/v1")}


@pytest.fixture(params=FORGES)
def forge(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ForgeServer]]:
    dialect, prefix = FORGES[request.param]
    state = ForgeState("acme", "fleet", SystemClock())
    state.account("muster-bot", "admin", token="t0ken")
    monkeypatch.setenv("FORGE_TOKEN", "t0ken")
    with ForgeServer(state, dialect, prefix=prefix) as server:
        yield request.param, server


def settings(server: ForgeServer, name: str = "GitHub") -> dict[str, Any]:
    said = {"repository": "acme/fleet", "url": server.root, "tokenEnv": "FORGE_TOKEN", "pollIntervalS": 1.0}
    return {**said, "forge": name}


def proposed(place: AgentPlace, fleet: dict[str, str], number: int) -> str:
    """Pushes a fleet on a branch, which the forge shows as the head of a request, too; the clone is on main again."""
    clone = place.repository.clone
    git(clone, "checkout", "--quiet", "-B", "change", "main")
    for path, text in fleet.items():
        Path(clone / path).write_text(text, encoding="utf-8")
    git(clone, "commit", "--quiet", "--all", "--message", "More")
    refs = (f"HEAD:refs/{where}/{number}/head" for where in ("pull", "merge-requests"))
    git(clone, "push", "--quiet", "--force", "origin", "change", *refs)
    head = git(clone, "rev-parse", "HEAD").strip()
    git(clone, "checkout", "--quiet", "main")
    return head


def bodies(github: ForgeServer) -> list[str]:
    return [it.body for it in github.state.comments.values()]


def test_a_pull_request_is_reviewed_merged_and_followed(place: AgentPlace, forge: tuple[str, ForgeServer]) -> None:
    name, server = forge
    running = place.start("first", review=settings(server, name))
    until(lambda: running.get("/readyz")[0] == 200 and place.applied(), "the fleet is in force")
    state = server.state
    ada = state.account("ada", "write")

    head = proposed(place, files(pool(), pool("more"), team(), queue()), 1)
    request = state.open("A pool more", ada, head)
    until(lambda: bodies(server), "a comment is written")
    assert "would come into force" in bodies(server)[0]
    assert "nodepool/more" in bodies(server)[0]
    until(lambda: state.latest_statuses(head), "and a status")
    assert {name: it.state for name, it in state.latest_statuses(head).items()} == {"muster/test": "success"}

    wrong = proposed(place, {"fleet.yaml": simple()["fleet.yaml"].replace("NodePool", "NodePol", 1)}, 1)
    state.push(request.number, wrong)
    until(lambda: "is invalid" in bodies(server)[0], "what is wrong is said in the same comment")
    assert {it.state for it in state.latest_statuses(wrong).values()} <= {"failure", "failed"}

    head = proposed(place, files(pool(), pool("more"), team(), queue()), 1)
    state.push(request.number, head)
    until(lambda: "would come into force" in bodies(server)[0], "it is right again")
    git(place.repository.clone, "merge", "--quiet", "--no-ff", "--message", "Merge request 1", "change")
    merged = place.repository.push("Merged")
    state.close(request.number, merge_commit=merged)
    until(lambda: "is in force" in bodies(server)[0], "the comment follows the merge")
    until(lambda: place.applied().endswith(merged), "and the FleetSync says so")
    assert len(bodies(server)) == 1
    assert state.latest_statuses(merged)["muster/test"].state == "success"

    asked = state.comment(request.number, ada, "/muster approve\n/muster why nobody")
    until(lambda: "nothing waits for an approval: revision" in bodies(server)[0], "what comes to nothing is answered")
    assert "no workload 'nobody'" in bodies(server)[0]
    assert {name for _, name in asked.reactions} <= {"-1", "thumbsdown"}
    assert asked.reactions


def test_a_forge_that_is_down_is_told_of_and_disturbs_nobody(place: AgentPlace, github: ForgeServer) -> None:
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


FAULTS = {
    "no answer": ForgeFault(None),
    "a page of a proxy": ForgeFault(502, {"Content-Type": "text/html"}, (b"<html><h1>Bad gateway</h1>",)),
    "a rate limit": ForgeFault.saying(429, "slow down", retry_after="1"),
    "half an answer": ForgeFault(200, {"Content-Type": "application/json"}, (b'[{"number": 1, "tit',)),
}


@pytest.mark.slow
def test_a_forge_that_fails_in_whatever_way_is_caught_up_with(place: AgentPlace, github: ForgeServer) -> None:
    """Meanwhile gangs start and commits come into force; what was pushed and asked is answered afterwards, once."""
    running = place.start("first", review=settings(github))
    until(lambda: running.get("/readyz")[0] == 200 and place.applied(), "the fleet is in force")
    state = github.state
    ada = state.account("ada", "write")
    request = state.open("A pool more", ada, proposed(place, files(pool(), pool("more"), team(), queue()), 1))
    until(lambda: bodies(github), "a comment is written")

    def troubled() -> bool:
        return any(it["type"] == "ReviewFailed" for it in (place.sync().get("status") or {}).get("conditions", ()))

    for number, (words, fault) in enumerate(FAULTS.items()):
        until(lambda: not troubled(), f"before {words} all is well")
        github.fail(*[fault] * 4)
        until(troubled, f"the FleetSync tells of {words}")
        fleet = files(pool(), pool("more", limits={"nodes": 2 + number}), team(), queue())
        head = proposed(place, fleet, 1)
        state.push(request.number, head)
        state.comment(request.number, ada, f"/muster why job{number}")
        place.submit(f"job{number}")
        until(lambda number=number: place.running(f"job{number}"), f"work goes on in spite of {words}")
        (place.repository.clone / f"note{number}.md").write_text(words, encoding="utf-8")
        merged = place.repository.push("A note")
        until(lambda merged=merged: place.applied().endswith(merged), "and so do revisions")
        until(lambda head=head: head[:12] in ours(github)[0], f"after {words} the comment is caught up")
        until(lambda number=number: f"why job{number}" in ours(github)[0], "with the answer")
    asked = [it for it in state.comments.values() if it.author is ada]
    assert len(ours(github)) == 1
    assert [len(it.reactions) for it in asked] == [1] * len(FAULTS)


def ours(github: ForgeServer) -> list[str]:
    return [it.body for it in github.state.comments.values() if it.author is not None and it.author.login != "ada"]


def test_a_merge_waits_for_its_approval_and_a_worse_one_for_another(place: AgentPlace, github: ForgeServer) -> None:
    state, clone = github.state, place.repository.clone
    asking = doc("FleetPolicy", "p", approvals={"required": 1})
    (clone / "fleet.yaml").write_text(files(pool(), team(), queue(), asking)["fleet.yaml"], encoding="utf-8")
    place.repository.push("Ask for approval")
    running = place.start("first", review=settings(github))
    until(lambda: running.get("/readyz")[0] == 200 and place.applied(), "the fleet is in force")
    first = place.applied()
    ada, eve = state.account("ada", "write"), state.account("eve", "write")
    head = proposed(place, files(pool(), pool("more"), team(), queue(), asking), 1)
    request = state.open("A pool more", ada, head)
    until(lambda: bodies(github) and "waits for approval" in bodies(github)[0], "the comment says that it waits")
    until(lambda: state.latest_statuses(head), "and the status")
    assert state.latest_statuses(head)["muster/test"].state == "pending"
    state.review(request.number, eve, "APPROVED")
    until(lambda: "approved by `eve`" in bodies(github)[0] or "approved by eve" in bodies(github)[0], "it is approved")
    until(lambda: state.latest_statuses(head)["muster/test"].state == "success", "the status follows")

    # what is merged declares more than what was approved
    (clone / "fleet.yaml").write_text(
        files(pool(), pool("more"), pool("another"), team(), queue(), asking)["fleet.yaml"], encoding="utf-8"
    )
    merged = place.repository.push("Merge request 1 and more")
    state.close(request.number, merge_commit=merged)
    until(lambda: "waits to be approved again" in bodies(github)[0], "the merge is stale")
    assert place.applied() == first
    state.comment(request.number, ada, "/muster approve")
    state.comment(request.number, eve, "/muster approve")
    until(lambda: "is in force" in bodies(github)[0], "it was approved again")
    assert place.applied().endswith(merged)
    assert len([it for it in bodies(github) if not it.startswith("/muster")]) == 1
    history = place.sync()["status"]["history"]
    assert [it["outcome"] for it in history[:2]] == ["Applied", "Stale"]
    assert history[0]["approvedBy"] == ["ada", "eve"]
    assert {it["mergedBy"] for it in history[:2]} == {state.owner.login}
    lines = [it["message"] for _, it in latest_lines(running.journal) if it["event"] == "sync"]
    assert any(f"merged by {state.owner.login}, approved by ada, eve" in it for it in lines), lines


def test_a_newer_release_of_images_is_proposed_planned_and_merged(place: AgentPlace, github: ForgeServer) -> None:
    """The pool has machines of an older release; the agent opens the request, its comment has the plan."""
    state, clone = github.state, place.repository.clone
    hosted = HostedRepository(place.repository.bare, state, state.account("ada", "write"), lambda *_: None)
    state.contents = GitContents(place.repository.bare, SystemClock().now, hosted.look)
    template = {"amis": [{"alias": "al2023@v20250505"}], "images": "ProposeChange"}
    (clone / "fleet.yaml").write_text(files(pool(template=template), team(), queue())["fleet.yaml"], encoding="utf-8")
    place.repository.push("Images by review")
    hosted.look()
    running = place.start("first", review=settings(github))
    until(lambda: running.get("/readyz")[0] == 200 and place.applied(), "the fleet is in force")
    place.submit("job")
    until(lambda: place.running("job"), "a machine of the pool stands")
    until(lambda: state.requests, "a request is opened")
    (request,) = state.requests.values()
    assert request.title == "Node pool h100: images al2023@v20250505 to v20251112"
    until(lambda: bodies(github), "and answered")
    assert "would come into force" in bodies(github)[0]
    assert "v20251112" in bodies(github)[0]
    hosted.merge(request.number, state.accounts["ada"])
    until(lambda: "is in force" in bodies(github)[0], "the comment follows the merge")
    assert place.applied().endswith(request.merge_commit)
    git(clone, "pull", "--quiet")
    before, after = (git(clone, "show", f"{commit}:fleet.yaml") for commit in ("HEAD^1", "HEAD"))
    assert after == before.replace("v20250505", "v20251112")
