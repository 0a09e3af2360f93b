"""What the adapter writes, read by PyGithub, which shares no code with it."""

from collections.abc import Iterator

import pytest
from github import Auth, Github
from github.CommitStatus import CommitStatus as CommitStatusRead
from github.PaginatedList import PaginatedList

from providers.forge.port import Annotation, CommitStatus, Verdict
from tests.providers.forge.conftest import TOKEN, MakeWorld, PretendedWorld
from tests.providers.forge.contract import HEAD


@pytest.fixture(params=["token", "app"])
def world(request: pytest.FixtureRequest, make_world: MakeWorld) -> PretendedWorld:
    return make_world(request.param)


@pytest.fixture
def reader(world: PretendedWorld) -> Iterator[Github]:
    with Github(
        auth=Auth.Token(TOKEN), base_url=world.server.url, retry=None, lazy=True, seconds_between_requests=0
    ) as it:
        yield it


def test_comments_and_reactions(world: PretendedWorld, reader: Github) -> None:
    number = world.state.open("t", world.state.owner, HEAD).number
    ours = world.forge.write_comment(number, "one")
    world.forge.change_comment(number, ours, "two ü")
    world.say(number, "acme", "/muster approve")
    world.forge.acknowledge(number, world.forge.comments(number)[1], accepted=True)
    pull = reader.get_repo("acme/fleet").get_pull(number)
    first, second = pull.get_issue_comments()
    assert (first.body, first.user.login) == ("two ü", "muster[bot]" if world.shows_annotations else "robot")
    assert [each.content for each in second.get_reactions()] == ["+1"]
    assert (pull.number, pull.head.sha) == (number, world.forge.request(number).head)


def test_statuses(world: PretendedWorld, reader: Github) -> None:
    world.state.open("t", world.state.owner, HEAD)
    annotations = tuple(Annotation("a.yaml", line, f"wrong {line}") for line in range(1, 76))
    said = CommitStatus("muster/plan", Verdict.FAILURE, "wrong", "https://muster.example", annotations)
    world.forge.put_status(HEAD, said)
    commit = reader.get_repo("acme/fleet").get_commit(HEAD)
    if world.shows_annotations:
        (run,) = commit.get_check_runs()
        assert (run.name, run.status, run.conclusion, run.output.title) == (
            "muster/plan",
            "completed",
            "failure",
            "wrong",
        )
        assert run.output.annotations_count == 75
        shown = tuple(Annotation(each.path, each.start_line, each.message) for each in run.get_annotations())
        assert shown == annotations
    else:
        # Its own method asks an address that GitHub no longer describes.
        (status,) = PaginatedList(CommitStatusRead, reader.requester, f"{commit.url}/statuses", None)
        assert (status.context, status.state, status.description) == ("muster/plan", "failure", "wrong")
        assert status.target_url == "https://muster.example"


def test_permissions_and_requests(world: PretendedWorld, reader: Github) -> None:
    world.state.account("zoe", "maintain")
    for _ in range(45):
        world.state.open("t", world.state.accounts["zoe"], HEAD)
    repository = reader.get_repo("acme/fleet")
    assert repository.get_collaborator_permission("zoe") == "write"
    theirs = [each.number for each in repository.get_pulls(state="open", base="main", direction="asc")]
    assert theirs == [each.number for each in world.forge.open_requests("main")]
