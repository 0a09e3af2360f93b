"""Two clusters of one repository: git, a pretended forge, an agent's process for each, one comment."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli import exits
from agent.sandbox.repository import git
from agent.sandbox.world import SandboxWorld
from fleet.review.comment import MOVED, said_in
from providers.sim.forge import ForgeServer
from tests.agent.cli.test_operate import muster
from tests.agent.processes import AgentPlace, until
from tests.agent.review.test_review_process import bodies, github, settings
from tests.agent.scenes import simple

__all__ = ["github"]
CLUSTER = "apiVersion: muster.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {name}}}\nspec: {spec}\n"
PATCH = "apiVersion: muster.dev/v1alpha1\nkind: NodePool\nmetadata: {name: h100}\nspec: {limits: {nodes: 1}}\n"


@pytest.fixture
def other(place: AgentPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentPlace]:
    """A second cluster, whose agent reads the same repository."""
    (tmp_path / "second").mkdir()
    with SandboxWorld(tmp_path / "second" / "world", cluster="other", speed=60.0) as world:
        made = AgentPlace(tmp_path / "second", world, monkeypatch)
        made.repository, made.cluster = place.repository, "other"
        yield made
        for running in made.agents:
            if running.thread.is_alive():
                running.stop()
        world.api.drop_connections()


def committed(place: AgentPlace, fleet: dict[str, str], *refs: str) -> str:
    clone = place.repository.clone
    for path, text in fleet.items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_text(text, encoding="utf-8")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "A change")
    git(clone, "push", "--quiet", "--force", "origin", *refs)
    return git(clone, "rev-parse", "HEAD").strip()


def told_by(server: ForgeServer) -> list[set[str]]:
    """Whose sections stand in each comment."""
    return [{it for it in ("test", "other") if said_in(text, it)} for text in bodies(server) if text != MOVED]


@pytest.mark.slow
def test_one_request_two_agents_one_comment(place: AgentPlace, other: AgentPlace, github: ForgeServer) -> None:
    clone = place.repository.clone
    git(clone, "mv", "fleet.yaml", "moved.yaml")
    git(clone, "rm", "--quiet", "--force", "moved.yaml")
    spec = "{bases: [../../base], patches: [patch.yaml]}"
    two = {
        "base/fleet.yaml": simple()["fleet.yaml"],
        "clusters/test/cluster.yaml": CLUSTER.format(name="test", spec="{bases: [../../base]}"),
        "clusters/other/cluster.yaml": CLUSTER.format(name="other", spec=spec),
        "clusters/other/patch.yaml": PATCH,
    }
    first = committed(place, two, "HEAD:refs/heads/main")
    running = [it.start("agent", review=settings(github)) for it in (place, other)]
    until(lambda: all(it.get("/readyz")[0] == 200 for it in running), "both fleets are in force")
    until(lambda: all(first in it.applied() for it in (place, other)), "by the same commit")
    nodes = [it.agent._brain.sync.fleet.node_pools["h100"].spec.limits.nodes for it in running]  # type: ignore[union-attr]
    assert nodes == [None, 1], "each its own"

    state, ada = github.state, github.state.account("ada", "write")
    git(clone, "checkout", "--quiet", "-B", "change")
    head = committed(place, {"base/fleet.yaml": two["base/fleet.yaml"] + "# for all\n"}, "HEAD:refs/pull/1/head")
    state.open("For all", ada, head)
    until(lambda: len(state.latest_statuses(head)) == 2, "both say so in a status")
    assert set(state.latest_statuses(head)) == {"muster/test", "muster/other"}
    until(lambda: told_by(github) == [{"test", "other"}], "in one comment, be there two at first")

    git(clone, "checkout", "--quiet", "-B", "one", "main")
    patch = PATCH.replace("nodes: 1", "nodes: 2")
    mine = committed(place, {"clusters/other/patch.yaml": patch}, "HEAD:refs/pull/2/head")
    state.open("For the other", ada, mine)
    until(lambda: len(state.latest_statuses(mine)) == 2, "both have looked")
    until(lambda: told_by(github) == [{"test", "other"}, {"other"}], "the one that it touches has commented")
    assert "changes nothing" in str(state.latest_statuses(mine)["muster/test"].description)

    git(clone, "push", "--quiet", "origin", "HEAD:refs/heads/main")
    until(lambda: mine in other.applied(), "it comes into force in its cluster")
    until(lambda: running[0].agent._brain.sync.state.passed_by.endswith(mine), "and is no revision of the other one")
    assert first in place.applied()

    for each in (place, other):
        told = muster("plan", clone, "--world", "--kubeconfig", each.world.api.kubeconfig(each.folder / "kubeconfig"))
        assert told.exit_code == exits.OK, told.stdout
        assert "No changes" in told.stdout, "it plans its own cluster, whichever the other holds"
    told = muster("rollback", first, clone, "--kubeconfig", other.folder / "kubeconfig")
    assert told.exit_code == exits.OK, told.stdout
    assert "spec.limits.nodes: 2 -> 1" in told.stdout
    assert "takes back the files of all of them" in told.stdout
