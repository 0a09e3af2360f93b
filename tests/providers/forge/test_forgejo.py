"""What is Forgejo's and Gitea's own: teams that are searched for, reviews that keep their words, who may ask."""

import json
from typing import Any

import pytest

from providers.forge.port import CommitStatus, ForgeError, ForgeUnreachable, Permission, Verdict
from providers.sim.forge import ForgeFault
from providers.sim.forge.forgejo import ForgejoDocuments
from tests.providers.forge.conftest import MakeWorld, PretendedWorld
from tests.providers.forge.contract import HEAD, MERGE, OTHER_HEAD


@pytest.fixture
def world(make_forgejo: MakeWorld) -> PretendedWorld:
    return make_forgejo()


def answer(world: PretendedWorld, document: Any, path: str = "") -> None:
    """Answers the next request of this path."""
    body = json.dumps(document).encode()
    world.server.fail(ForgeFault(200, {"Content-Type": "application/json"}, (body,), path))


@pytest.mark.parametrize("permission", ["owner", "admin", "write", "read", "none"])
def test_permissions(world: PretendedWorld, permission: str) -> None:
    answer(world, {"permission": permission, "user": None})
    told = {"owner": Permission.ADMIN, "admin": Permission.ADMIN, "write": Permission.WRITE, "read": Permission.READ}
    assert world.forge.permission("zoe") is told.get(permission, Permission.NONE)


@pytest.mark.parametrize("permission", ["OWNER", "", None, 5])
def test_a_permission_that_is_none_gives_nothing(world: PretendedWorld, permission: Any) -> None:
    answer(world, {"permission": permission})
    with pytest.raises(ForgeError, match="cannot be read"):
        world.forge.permission("zoe")


def test_who_does_not_administrate_is_told_that_it_takes_that(world: PretendedWorld) -> None:
    world.state.account("robot", "write")
    with pytest.raises(ForgeError, match="the right to administrate the repository"):
        world.forge.permission("acme")


def test_words_neither_approve_nor_object(world: PretendedWorld) -> None:
    number = world.state.open("t", world.state.owner, HEAD).number
    for state in ("COMMENTED", "APPROVED", "COMMENTED", "PENDING", "REQUEST_REVIEW"):
        world.state.review(number, world.state.owner, state)
    assert [each.user for each in world.forge.approvals(number)] == ["acme"]
    documents = ForgejoDocuments(world.state, "https://api", "https://web")
    told = [documents.review(each) for each in world.state.reviews.values()]
    answer(world, [*told, {**told[-1], "id": told[-1]["id"] + 1, "state": "SOMETHING_NEW"}], "reviews")
    assert world.forge.approvals(number) == ()


def test_a_review_that_a_team_is_asked_for_is_of_nobody(world: PretendedWorld) -> None:
    number = world.state.open("t", world.state.owner, HEAD).number
    documents = ForgejoDocuments(world.state, "https://api", "https://web")
    told = documents.review(world.state.review(number, world.state.owner, "APPROVED"))
    asked = {**told, "id": 9, "user": None, "team": documents.team(1, "gpu"), "state": "REQUEST_REVIEW"}
    answer(world, [asked, {**told, "commit_id": ""}, {**told, "submitted_at": None}], "reviews")
    assert world.forge.approvals(number) == ()


def test_a_team_is_known_by_its_whole_name_without_case(world: PretendedWorld) -> None:
    world.state.account("zoe")
    world.state.teams |= {"acme/gpu-owners": {}, "acme/GPU": {"zoe": "active"}, "other/gpu": {}}
    documents = ForgejoDocuments(world.state, "https://api", "https://web")
    answer(world, {"ok": True, "data": [documents.team(1, "gpu-owners"), documents.team(2, "GPU")]}, "search")
    assert world.forge.is_member("zoe", "acme/gpu")
    answer(world, {"ok": True, "data": None}, "search")
    with pytest.raises(ForgeError, match=r"no team acme/gpu.*`read:organization`"):
        world.forge.is_member("zoe", "acme/gpu")


def test_a_forge_that_is_broken_while_a_status_is_set_is_not_a_missing_commit(world: PretendedWorld) -> None:
    world.state.open("t", world.state.owner, HEAD)
    world.break_down()
    with pytest.raises(ForgeUnreachable):
        world.forge.put_status(HEAD, CommitStatus("muster", Verdict.SUCCESS, "fine"))
    with pytest.raises(ForgeError, match="there is no commit") as caught:
        world.forge.put_status(OTHER_HEAD, CommitStatus("muster", Verdict.SUCCESS, "fine"))
    assert not isinstance(caught.value, ForgeUnreachable)


def test_a_page_may_be_shorter_than_asked_for(world: PretendedWorld) -> None:
    """`MAX_RESPONSE_ITEMS` of the server's settings."""
    documents = ForgejoDocuments(world.state, "https://api", "https://web")
    requests = [documents.request(world.state.open("t", world.state.owner, HEAD)) for _ in range(2)]
    link = {"Content-Type": "application/json", "Link": '<https://x/?page=2>; rel="next"'}
    world.server.fail(ForgeFault(200, link, (json.dumps(requests[:1]).encode(),)))
    answer(world, requests[1:])
    assert [each.number for each in world.forge.open_requests("main")] == [1, 2]


def test_merged_by_a_commit_that_is_not_told(world: PretendedWorld) -> None:
    request = world.state.open("t", world.state.owner, HEAD)
    world.state.close(request.number, merge_commit=MERGE)
    told = ForgejoDocuments(world.state, "https://api", "https://web").request(request)
    answer(world, {**told, "merge_commit_sha": None})
    with pytest.raises(ForgeError, match="by which commit"):
        world.forge.merged_by(MERGE)
    answer(world, told)
    assert world.forge.merged_by("e" * 40) is None
