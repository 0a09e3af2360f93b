"""What is GitLab's own: pipelines, quick actions, groups, approvals without a commit."""

import json
from dataclasses import replace
from typing import Any

import pytest

from providers.forge.port import CommitStatus, ForgeError, ForgeUnreachable, Permission, RequestState, Verdict
from providers.sim.forge import ForgeFault
from providers.sim.forge.gitlab.documents import GitLabDocuments, stamp
from tests.providers.forge.conftest import NOW_S, MakeWorld, PretendedWorld
from tests.providers.forge.contract import HEAD, MERGE, OTHER_HEAD
from tests.providers.forge.description import problems


@pytest.fixture
def world(make_gitlab: MakeWorld) -> PretendedWorld:
    return make_gitlab()


def answer(world: PretendedWorld, path: str, document: Any) -> None:
    """Answers the next request of this path."""
    body = json.dumps(document).encode()
    world.server.fail(ForgeFault(200, {"Content-Type": "application/json"}, (body,), path))


@pytest.mark.parametrize("text", ["/merge", "plan\n/close\n/assign @eve\nend", "```\n/merge\n```"])
def test_no_line_of_a_comment_is_carried_out(world: PretendedWorld, text: str) -> None:
    number = world.state.open("t", world.state.owner, HEAD).number
    ours = world.forge.write_comment(number, text)
    assert ours.text.replace("\u2060", "") == text
    world.forge.change_comment(number, ours, ours.text)
    world.forge.change_comment(number, ours, f"{text}\n/approve")
    (comment,) = world.forge.comments(number)
    assert comment.text.replace("\u2060", "") == f"{text}\n/approve"


def test_the_head_of_a_fork_is_on_no_branch_of_the_project(world: PretendedWorld) -> None:
    world.state.open("t", world.state.owner, HEAD, branch="theirs", fork=2000)
    status = CommitStatus("muster/plan", Verdict.SUCCESS, "fine")
    with pytest.raises(ForgeError, match="References for commit"):
        world.forge.put_status(HEAD, status)
    world.forge.open_requests("main")
    world.forge.put_status(HEAD, status)
    sent = json.loads(world.server.exchanges[-1].request_body)
    assert sent == {"state": "success", "name": "muster/plan", "description": "fine", "ref": "theirs"}


def test_a_pending_status_is_made_pending_again(world: PretendedWorld) -> None:
    world.state.open("t", world.state.owner, HEAD, fork=2000)
    world.forge.open_requests("main")
    for summary in ("one", "two", "three"):
        world.forge.put_status(HEAD, CommitStatus("muster", Verdict.PENDING, summary))
    assert world.status(HEAD, "muster") == CommitStatus("muster", Verdict.PENDING, "three")
    assert [each.state for each in world.state.statuses] == ["pending", "canceled", "pending", "canceled", "pending"]


def test_a_status_that_somebody_else_is_setting_may_be_asked_for_again(world: PretendedWorld) -> None:
    world.state.open("t", world.state.owner, HEAD)
    world.server.fail(ForgeFault.saying(409, "Another update to this commit status is in progress"))
    with pytest.raises(ForgeUnreachable, match="in progress"):
        world.forge.put_status(HEAD, CommitStatus("muster", Verdict.SUCCESS, "fine"))
    world.forge.put_status(HEAD, CommitStatus("muster", Verdict.SUCCESS, "fine"))
    assert world.status(HEAD, "muster") == CommitStatus("muster", Verdict.SUCCESS, "fine")


def test_a_conflict_is_no_reason_to_ask_again(world: PretendedWorld) -> None:
    number = world.state.open("t", world.state.owner, HEAD).number
    world.server.fail(ForgeFault.saying(409, "Conflict"))
    with pytest.raises(ForgeError, match="Conflict") as refused:
        world.forge.close_request(number)
    assert not isinstance(refused.value, ForgeUnreachable)


def test_all_reviewers_come_in_one_answer(world: PretendedWorld) -> None:
    number = world.state.open("t", world.state.owner, HEAD).number
    everybody = [world.state.account(f"user{each}") for each in range(120)]
    for each in everybody:
        world.state.review(number, each, "APPROVED")
    for each in everybody[1:]:
        world.state.review(number, each, "CHANGES_REQUESTED")
    assert [each.user for each in world.forge.approvals(number)] == ["user0"]


UNDESCRIBED: dict[str, tuple[dict[str, Any], str]] = {
    "a field of the answer": ({"body": b'{"id": 1, "attachment": null}'}, "attachment"),
    "a parameter": ({"query": {"page": "1"}}, "no parameter page"),
    "a field of the body": ({"request_body": b'{"body": "fine", "text": "fine"}'}, "no field text"),
    "a body without what it takes": ({"request_body": b"{}"}, "required"),
    "a status": ({"status": 200}, "not described"),
}


@pytest.mark.parametrize("changed", UNDESCRIBED)
def test_what_gitlab_does_not_describe_is_told(world: PretendedWorld, changed: str) -> None:
    world.forge.write_comment(world.state.open("t", world.state.owner, HEAD).number, "fine")
    exchange = world.server.exchanges[-1]
    assert list(problems(exchange, "gitlab")) == []
    said, told = UNDESCRIBED[changed]
    assert any(told in each for each in problems(replace(exchange, **said), "gitlab"))


LEVELS = {
    0: Permission.NONE,
    5: Permission.NONE,
    10: Permission.READ,
    15: Permission.READ,
    20: Permission.READ,
    30: Permission.WRITE,
    40: Permission.ADMIN,
    50: Permission.ADMIN,
    60: Permission.ADMIN,
}


@pytest.mark.parametrize("level", LEVELS)
def test_access_levels(world: PretendedWorld, level: int) -> None:
    zoe = world.state.account("zoe", "read")
    documents = GitLabDocuments(world.state, "https://web")
    answer(world, "members", documents.member(zoe, level))
    assert world.forge.permission("zoe") is LEVELS[level]
    answer(world, "members", documents.member(zoe, level, "blocked"))
    assert world.forge.permission("zoe") is Permission.NONE


def test_names_are_compared_without_case_and_whole(world: PretendedWorld) -> None:
    world.state.account("Zoe", "write")
    assert world.forge.permission("zoe") is Permission.WRITE
    documents = GitLabDocuments(world.state, "https://web")
    answer(world, "users", [documents.user(world.state.accounts["Zoe"])])
    assert world.forge.permission("zo") is Permission.NONE


def test_groups_by_their_path(world: PretendedWorld) -> None:
    world.state.account("zoe")
    world.state.teams |= {
        "acme": {"zoe": "active"},
        "acme/gpu/owners": {"zoe": "active"},
        "acme/new": {"zoe": "pending"},
    }
    assert world.forge.is_member("zoe", "acme")
    assert world.forge.is_member("zoe", "acme/gpu/owners")
    assert not world.forge.is_member("zoe", "acme/new")
    with pytest.raises(ForgeError, match="a group that the token's user may see"):
        world.forge.is_member("zoe", "acme/secret")


def approved(world: PretendedWorld, **changed: Any) -> dict[str, Any]:
    """What GitLab tells of the approvals of the first request."""
    documents = GitLabDocuments(world.state, "https://web")
    whole = documents.approvals(world.state.requests[1], {})
    user = documents.user(world.state.owner)
    return {**whole, "approved_by": [{"user": user, **changed}]}


def test_an_older_gitlab_tells_in_a_note_since_when_somebody_approves(world: PretendedWorld) -> None:
    number = world.state.open("t", world.state.owner, HEAD).number
    for _ in range(2):
        world.pass_s(10)
        world.state.review(number, world.state.owner, "APPROVED")
    world.state.comment(number, world.state.account("eve"), "approved this merge request")
    answer(world, "approvals", approved(world))
    (approval,) = world.forge.approvals(number)
    assert (approval.user, approval.commit, approval.at_s) == ("acme", "", NOW_S + 20)


def test_an_approval_that_nobody_can_date_is_as_old_as_can_be(world: PretendedWorld) -> None:
    number = world.state.open("t", world.state.owner, HEAD).number
    answer(world, "approvals", approved(world))
    assert [each.at_s for each in world.forge.approvals(number)] == [0.0]
    answer(world, "approvals", approved(world, approved_at=stamp(NOW_S)))
    assert [each.at_s for each in world.forge.approvals(number)] == [NOW_S]


def test_notes_of_the_system_are_no_comments(world: PretendedWorld) -> None:
    number = world.state.open("t", world.state.owner, HEAD).number
    world.state.review(number, world.state.owner, "APPROVED")
    assert world.forge.comments(number) == ()


MERGES = {
    "by a merge commit": ({"merge_commit_sha": MERGE}, MERGE),
    "squashed": ({"merge_commit_sha": None, "squash_commit_sha": MERGE}, MERGE),
    "squashed and merged": ({"merge_commit_sha": MERGE, "squash_commit_sha": OTHER_HEAD}, MERGE),
    "fast-forward": ({"merge_commit_sha": None, "squash_commit_sha": None}, HEAD),
}


@pytest.mark.parametrize("case", MERGES)
def test_by_which_commit_a_request_was_merged(world: PretendedWorld, case: str) -> None:
    changed, commit = MERGES[case]
    request = world.state.open("t", world.state.owner, HEAD)
    world.state.close(request.number, merge_commit=MERGE)
    told = {**GitLabDocuments(world.state, "https://web").request(request, whole=False), **changed}
    for asked in (commit, "e" * 40):
        answer(world, "repository/commits", [told])
        found = world.forge.merged_by(asked)
        assert (found.merge_commit if found else None) == (commit if asked == commit else None)


def test_what_gitlab_still_prepares_is_not_listed(world: PretendedWorld) -> None:
    request = world.state.open("t", world.state.owner, HEAD)
    told = GitLabDocuments(world.state, "https://web").request(request, whole=True)
    answer(world, "merge_requests", [{**told, "sha": None}, {**told, "iid": 2}])
    assert [each.number for each in world.forge.open_requests("main")] == [2]
    answer(world, "merge_requests", {**told, "sha": None})
    with pytest.raises(ForgeError, match="head"):
        world.forge.request(1)


def test_a_request_is_open_while_it_is_being_merged(world: PretendedWorld) -> None:
    request = world.state.open("t", world.state.owner, HEAD)
    told = GitLabDocuments(world.state, "https://web").request(request, whole=True)
    answer(world, "merge_requests", {**told, "state": "locked"})
    assert world.forge.request(1).state is RequestState.OPEN


def test_words_by_field_are_told(world: PretendedWorld) -> None:
    body = json.dumps({"message": {"note": ["can't be blank"]}}).encode()
    world.server.fail(ForgeFault(400, {"Content-Type": "application/json"}, (body,)))
    with pytest.raises(ForgeError, match="can't be blank"):
        world.forge.open_requests("main")
