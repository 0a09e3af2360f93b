"""What is GitHub's own: rates, refusals, Apps, pages that did not change, and answers of a GitHub that means ill."""

import gzip
import json
import socket
import ssl
import subprocess
import sys
import traceback
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.forge.github import GitHubApp, GitHubForge, GitHubToken
from providers.forge.port import (
    CommitStatus,
    ForgeError,
    ForgeRateLimited,
    ForgeUnreachable,
    Permission,
    RequestState,
    Verdict,
)
from providers.sim.forge import ForgeExchange, ForgeFault, ForgeServer, ForgeState, GitHubDialect, InstalledApp
from providers.sim.forge.github.documents import GitHubDocuments
from providers.sim.forge.state import StoredRequest
from tests.providers.forge.conftest import NOW_S, TOKEN, HurriedClock, MakeWorld
from tests.providers.forge.contract import HEAD, MERGE, OTHER_HEAD
from tests.providers.forge.description import problems
from tests.support.certificates import write_loopback_certificate

_JSON = {"Content-Type": "application/json"}


def saying(document: Any, status: int = 200, **headers: str) -> ForgeFault:
    """An answer that is well-formed JSON, whatever it says."""
    return ForgeFault(status, {**_JSON, **headers}, (json.dumps(document).encode(),))


def request_document(**changed: Any) -> dict[str, Any]:
    """A pull request as GitHub tells it, with some of it changed."""
    state = ForgeState("acme", "fleet", VirtualClock(NOW_S))
    request = state.open("t", state.owner, HEAD)
    return {**GitHubDocuments(state, "https://api", "https://web").request(request, whole=False), **changed}


# -- what it costs ----------------------------------------------------------------------------------------------------


def test_what_did_not_change_costs_nothing_of_the_rate(make_world: MakeWorld) -> None:
    world = make_world()
    number = world.state.open("t", world.state.owner, HEAD).number
    for _ in range(150):
        world.say(number, "acme", "words")
    world.forge.open_requests("main")
    world.forge.comments(number)
    world.forge.permission("acme")
    world.forge.request(number)
    before, asked = world.state.remaining, len(world.server.exchanges)
    for _ in range(10):
        assert len(world.forge.open_requests("main")) == 1
        assert len(world.forge.comments(number)) == 150
        assert world.forge.permission("acme") is Permission.ADMIN
        assert world.forge.request(number).head == HEAD
    assert world.state.remaining == before
    assert {each.status for each in world.server.exchanges[asked:]} == {304}
    assert len(world.server.exchanges) - asked == 10 * 5
    world.say(number, "acme", "more")
    assert len(world.forge.comments(number)) == 151
    assert world.state.remaining == before - 1  # of its two pages the one that changed


def test_who_we_are_is_asked_once(make_world: MakeWorld) -> None:
    for signed_in in ("token", "app"):
        world = make_world(signed_in)
        number = world.state.open("t", world.state.owner, HEAD).number
        for _ in range(3):
            world.forge.comments(number)
            world.forge.write_comment(number, "words")
        paths = [each.path for each in world.server.exchanges]
        assert paths.count("/user") + paths.count("/app") == 1
        assert paths.count("/app/installations/70/access_tokens") == (signed_in == "app")


def test_no_comment_is_written_twice_for_not_knowing_who_we_are(make_world: MakeWorld) -> None:
    world = make_world()
    number = world.state.open("t", world.state.owner, HEAD).number
    world.server.fail(ForgeFault.saying(502, "Server Error"))
    with pytest.raises(ForgeUnreachable):
        world.forge.write_comment(number, "words")
    assert world.state.comments == {}


def test_pages_are_kept_up_to_a_bound(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.forge.github.client.MOST_KEPT_BYTES", 10_000)
    world = make_world()
    numbers = [world.state.open("t", world.state.owner, HEAD).number for _ in range(4)]
    for number in numbers:
        world.say(number, "acme", "x" * 4000)
    for number in (*numbers, numbers[0], numbers[0]):
        assert len(world.forge.comments(number)) == 1
    statuses = [each.status for each in world.server.exchanges if "comments" in each.path]
    assert statuses == [200, 200, 200, 200, 200, 304]


# -- rates ------------------------------------------------------------------------------------------------------------

RATES = {
    "secondary, told how long": (403, "secondary rate limit", {"Retry-After": "30"}, 30),
    "429, told how long": (429, "slow down", {"Retry-After": "30"}, 30),
    "429, not told": (429, "slow down", {}, 60),
    "secondary, not told": (403, "You have exceeded a secondary rate limit", {}, 60),
    "primary": (403, "API rate limit exceeded", {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "+900"}, 900),
    "primary as 429": (429, "API rate limit", {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "+900"}, 900),
    "both": (
        403,
        "rate limit",
        {"Retry-After": "30", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "+900"},
        30,
    ),
    "a reset that is past": (403, "x", {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "-5"}, 1),
    "at once": (429, "x", {"Retry-After": "0"}, 1),
    "a year": (429, "x", {"Retry-After": "31536000"}, 7200),
    "the end of time": (429, "x", {"Retry-After": "9" * 400}, 60),
    "a date": (429, "x", {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, 60),
    "nothing that is a time": (403, "x", {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "soon"}, 60),
    "a time beyond all": (403, "x", {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9" * 30}, 60),
    "no message": (403, 3, {"X-RateLimit-Remaining": "0"}, 60),
    "other digits": (429, "x", {"Retry-After": "\u0663"}, 60),
    "below zero": (429, "x", {"Retry-After": "-3"}, 60),
}


@pytest.mark.parametrize("case", RATES)
def test_how_long_to_rest(make_world: MakeWorld, case: str) -> None:
    status, message, headers, rest_s = RATES[case]
    if headers.get("X-RateLimit-Reset", "")[:1] in {"+", "-"}:
        headers = {**headers, "X-RateLimit-Reset": str(int(NOW_S) + int(headers["X-RateLimit-Reset"]))}
    world = make_world()
    world.server.fail(saying({"message": message}, status, **headers))
    with pytest.raises(ForgeRateLimited) as caught:
        world.forge.open_requests("main")
    assert caught.value.until_s == NOW_S + rest_s
    assert not isinstance(message, str) or message in str(caught.value)
    until = datetime.fromtimestamp(NOW_S + rest_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert str(caught.value).endswith(f"; it is left alone until {until}")


def test_the_rate_of_the_hour_is_used_up(make_world: MakeWorld) -> None:
    world = make_world()
    world.state.remaining = 1
    assert world.forge.open_requests("main") == ()
    with pytest.raises(ForgeRateLimited) as caught:
        world.forge.open_requests("main")
    assert caught.value.until_s == NOW_S + 3600
    world.pass_s(3600)
    assert world.forge.open_requests("main") == ()


def test_an_app_is_asked_to_rest_while_it_signs_in(make_world: MakeWorld) -> None:
    world = make_world("app")
    world.server.fail(ForgeFault.saying(403, "rate limit", Retry_After="40"))
    with pytest.raises(ForgeRateLimited) as caught:
        world.forge.open_requests("main")
    assert caught.value.until_s == NOW_S + 40


# -- refusals ---------------------------------------------------------------------------------------------------------

REFUSALS = {
    "a bad token": (401, "Bad credentials", ("Bad credentials", "expired or revoked")),
    "a lacking permission": (
        403,
        "Resource not accessible by integration",
        ("not accessible by integration", "`Pull requests: read`"),
    ),
    "hidden": (404, "Not Found", ("Not Found", "`Pull requests: read`")),
    "wrong": (422, "Validation Failed", ("Validation Failed", "HTTP 422")),
    "long and coloured": (422, "\x1b[31m\n@all " + "x" * 5000, (r"\x1b[31m\n@all xxx",)),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_says_why_and_what_to_do(make_world: MakeWorld, case: str) -> None:
    status, message, said = REFUSALS[case]
    world = make_world()
    world.server.fail(ForgeFault.saying(status, message))
    with pytest.raises(ForgeError) as caught:
        world.forge.open_requests("main")
    assert not isinstance(caught.value, ForgeUnreachable)
    text = str(caught.value)
    assert all(part in text for part in ("list open pull requests of acme/fleet", *said))
    assert len(text) < 600
    assert text.isprintable()
    assert TOKEN not in text


def test_the_details_of_a_refusal_are_told(make_world: MakeWorld) -> None:
    world = make_world()
    world.server.fail(
        saying({"message": "Validation Failed", "errors": [{"code": "custom", "message": "too odd"}]}, 422)
    )
    with pytest.raises(ForgeError, match="too odd"):
        world.forge.open_requests("main")


@pytest.mark.parametrize(
    "body", [b"", b"<html>Bad Gateway</html>", b"[1]", b'{"message": 3}', b"\xff\xfe", b'{"errors":' + b"[" * 200_000]
)
@pytest.mark.parametrize(("status", "kind"), [(403, ForgeError), (503, ForgeUnreachable)])
@pytest.mark.usefixtures("deep_texts")
def test_a_refusal_of_somebody_in_between(make_world: MakeWorld, body: bytes, status: int, kind: type) -> None:
    world = make_world()
    world.server.fail(ForgeFault(status, {"Content-Type": "text/html"}, (body,)))
    with pytest.raises(ForgeError) as caught:
        world.forge.open_requests("main")
    assert type(caught.value) is kind
    assert str(status) in str(caught.value)


def test_a_token_is_told_that_only_apps_make_check_runs_by_never_asking(make_world: MakeWorld) -> None:
    world = make_world()
    world.state.open("t", world.state.owner, HEAD)
    world.forge.put_status(HEAD, CommitStatus("muster", Verdict.SUCCESS, "fine"))
    assert not [each for each in world.server.exchanges if "check-runs" in each.path]


def test_nobody_listens(make_world: MakeWorld) -> None:
    world = make_world()
    world.server.stop()
    with pytest.raises(ForgeUnreachable, match="ConnectError"):
        world.forge.open_requests("main")


def test_somebody_listens_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.forge.github.client.TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        forge = GitHubForge("acme/fleet", GitHubToken(TOKEN), clock=VirtualClock(), url=url)
        with pytest.raises(ForgeUnreachable, match="ReadTimeout"):
            forge.open_requests("main")


# -- Apps -------------------------------------------------------------------------------------------------------------


def test_an_apps_token_is_for_the_one_repository(make_world: MakeWorld) -> None:
    world = make_world("app")
    world.forge.open_requests("main")
    (issued,) = [each for each in world.server.exchanges if each.path.endswith("access_tokens")]
    assert json.loads(issued.request_body) == {"repositories": ["fleet"]}


def test_an_apps_token_that_is_revoked_is_asked_for_anew(make_world: MakeWorld) -> None:
    world = make_world("app")
    world.forge.open_requests("main")
    world.state.tokens.clear()
    with pytest.raises(ForgeError, match="Bad credentials"):
        world.forge.open_requests("main")
    assert world.forge.open_requests("main") == ()


def test_the_tokens_of_one_host_are_never_sent_to_another(make_world: MakeWorld) -> None:
    """The App's number may be the same on two servers."""
    first, second = make_world("app"), make_world("app")
    first.forge.open_requests("main")
    second.forge.open_requests("main")
    assert second.server.exchanges[0].path.endswith("access_tokens")


def test_a_key_of_another_app_is_refused(make_world: MakeWorld, keys: tuple[str, str]) -> None:
    world = make_world("app")
    world.state.app = replace(world.state.app, id=8)
    with pytest.raises(ForgeError, match="expired or revoked") as caught:
        world.forge.open_requests("main")
    assert not isinstance(caught.value, ForgeUnreachable)


@pytest.mark.parametrize("key", ["", "no key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_is_an_error_that_does_not_tell_it(make_world: MakeWorld, key: str) -> None:
    world = make_world("app")
    forge = GitHubForge("acme/fleet", GitHubApp(7, key, 70), clock=world.clock, url=world.server.url)
    with pytest.raises(ForgeError) as caught:
        forge.open_requests("main")
    assert not isinstance(caught.value, ForgeUnreachable)
    assert not key or key not in str(caught.value)
    assert world.server.exchanges == []


@pytest.mark.parametrize(
    "answer", [{}, {"token": 3, "expires_at": "soon"}, {"token": "t", "expires_at": "2026-10-01"}, []]
)
def test_signing_in_is_answered_with_nonsense(make_world: MakeWorld, answer: Any) -> None:
    world = make_world("app")
    world.server.fail(saying(answer, 201))
    with pytest.raises(ForgeError):
        world.forge.open_requests("main")


@pytest.mark.parametrize("token", ["ghs_secret\n", "ghs_secret\r\nX-Evil: 1", "ghs_\u00fc_secret"])
def test_no_error_tells_a_token(make_world: MakeWorld, token: str) -> None:
    """httpx and pydantic do, of one that they refuse."""
    world = make_world("app")
    for answer in ({"token": token, "expires_at": "2096-01-01T00:00:00Z"}, {"token": token}):
        world.server.fail(saying(answer, 201))
        with pytest.raises(ForgeError) as caught:
            world.forge.open_requests("main")
        told = "".join(traceback.format_exception(caught.value))
        assert "ghs_" not in told


@pytest.mark.parametrize("token", ["", " ", "ghp_x\n", "ghp x", "ghp_\u00fc"])
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(ForgeError, match="token"):
        GitHubToken(token)


def test_secrets_are_in_no_representation() -> None:
    shown = repr((GitHubToken(TOKEN), GitHubApp(7, TOKEN, 70)))
    assert TOKEN not in shown


# -- who ---------------------------------------------------------------------------------------------------------------


def test_a_user_who_takes_our_former_name_is_not_us(make_world: MakeWorld) -> None:
    world = make_world()
    number = world.state.open("t", world.state.owner, HEAD).number
    ours = world.forge.write_comment(number, "ours")
    robot = world.state.accounts["robot"]
    world.state.comment(number, replace(robot, id=999), "theirs")
    world.state.comments[ours.id].author = replace(robot, login="renamed")
    assert [(each.text, each.ours) for each in world.forge.comments(number)] == [("ours", True), ("theirs", False)]


def test_a_user_named_like_our_app_is_not_us(make_world: MakeWorld) -> None:
    world = make_world("app")
    number = world.state.open("t", world.state.owner, HEAD).number
    world.state.comment(number, world.state.account("muster"), "theirs")
    assert [each.ours for each in world.forge.comments(number)] == [False]


def test_those_who_are_deleted(make_world: MakeWorld) -> None:
    world = make_world()
    number = world.state.open("t", None, HEAD, fork=0).number
    world.state.comment(number, None, "gone")
    (request,) = world.forge.open_requests("main")
    assert (request.author, request.from_fork) == ("ghost", True)
    assert world.forge.request(number) == request
    (comment,) = world.forge.comments(number)
    assert (comment.author, comment.ours) == ("ghost", False)


ROLES = {
    "admin": Permission.ADMIN,
    "maintain": Permission.WRITE,
    "write": Permission.WRITE,
    "triage": Permission.READ,
    "read": Permission.READ,
    "none": Permission.NONE,
}


@pytest.mark.parametrize("role", ROLES)
def test_roles(make_world: MakeWorld, role: Any) -> None:
    world = make_world()
    world.state.account("zoe", role)
    assert world.forge.permission("zoe") is ROLES[role]


@pytest.mark.parametrize("role", ["owner", "ADMIN", "", None, 5])
def test_a_role_that_is_none_gives_nothing(make_world: MakeWorld, role: Any) -> None:
    world = make_world()
    world.server.fail(saying({"permission": role}))
    with pytest.raises(ForgeError, match="cannot be read"):
        world.forge.permission("zoe")


def test_words_neither_approve_nor_object(make_world: MakeWorld) -> None:
    world = make_world()
    number = world.state.open("t", world.state.owner, HEAD).number
    for state in ("COMMENTED", "APPROVED", "COMMENTED", "PENDING"):
        world.state.review(number, world.state.owner, state)
    assert [each.user for each in world.forge.approvals(number)] == ["acme"]
    world.state.review(number, world.state.owner, "SOMETHING_NEW")
    assert world.forge.approvals(number) == ()


def test_the_approval_of_who_or_what_is_gone_is_none(make_world: MakeWorld) -> None:
    world = make_world()
    number = world.state.open("t", world.state.owner, HEAD).number
    world.state.review(number, None, "APPROVED")
    review = GitHubDocuments(world.state, "https://api", "https://web").review(
        world.state.review(number, world.state.owner, "APPROVED")
    )
    assert [each.user for each in world.forge.approvals(number)] == ["acme"]
    world.server.fail(saying([{**review, "commit_id": None}]))
    assert world.forge.approvals(number) == ()


def test_who_is_invited_is_in_no_team_yet(make_world: MakeWorld) -> None:
    world = make_world()
    world.state.account("zoe")
    world.state.teams["acme/gpu"] = {"zoe": "pending"}
    assert not world.forge.is_member("zoe", "acme/gpu")


def test_a_team_that_is_hidden_names_the_permission(make_world: MakeWorld) -> None:
    world = make_world()
    with pytest.raises(ForgeError, match="organization permission `Members: read`"):
        world.forge.is_member("acme", "acme/gpu")


# -- merges -----------------------------------------------------------------------------------------------------------


def test_a_trial_merge_is_no_merge(make_world: MakeWorld) -> None:
    """Of an open request GitHub names the commit that merging it would make, which anybody can have made."""
    world = make_world()
    request = world.state.open("t", world.state.owner, HEAD)
    request.merge_commit = MERGE
    world.state.commits |= {MERGE}
    assert world.forge.merged_by(MERGE) is None
    assert world.forge.request(request.number).merge_commit == ""
    world.state.close(request.number)
    assert world.forge.merged_by(MERGE) is None
    assert world.forge.request(request.number).state is RequestState.CLOSED


# -- answers that cannot be ------------------------------------------------------------------------------------------

MALFORMED = {
    "no list": {"message": "hello"},
    "no number": [{"title": "x"}],
    "a number of text": [request_document(number="1")],
    "a number of nothing": [request_document(number=0)],
    "a number beyond": [request_document(number=2**70)],
    "half a number": [request_document(number=1.5)],
    "a short commit": [request_document(head={"sha": "abc", "ref": "x", "repo": None})],
    "a commit in capitals": [request_document(head={"sha": "A" * 40, "ref": "x", "repo": None})],
    "a commit and a line": [request_document(head={"sha": HEAD + "\n", "ref": "x", "repo": None})],
    "a path for a commit": [request_document(head={"sha": "../" + "a" * 37, "ref": "x", "repo": None})],
    "no time": [request_document(updated_at="yesterday")],
    "a time of no zone": [request_document(updated_at="2026-01-01T00:00:00")],
    "an endless title": [request_document(title="x" * 2000)],
    "a title that is none": [request_document(title=None)],
    "a state of its own": [request_document(state="merged")],
    "merged by nothing": [request_document(merged_at="2026-01-01T00:00:00Z", merge_commit_sha=None)],
    "a nameless author": [request_document(user={"id": 1, "login": ""})],
    "nesting": None,
    "nesting where nobody looks": None,
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.usefixtures("deep_texts")
def test_a_malformed_answer_is_an_error(make_world: MakeWorld, case: str) -> None:
    world = make_world()
    answer = saying(MALFORMED[case])
    if case.startswith("nesting"):
        answer = ForgeFault(200, _JSON, (b'[{"_links":' * ("nobody" in case) + b"[" * 200_000,))
    world.server.fail(answer)
    with pytest.raises(ForgeError) as caught:
        world.forge.open_requests("main")
    assert not isinstance(caught.value, ForgeUnreachable)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b"\xff", b'["\\ud800"]', b"[NaN]"])
@pytest.mark.usefixtures("deep_texts")
def test_what_is_no_json_is_an_error(make_world: MakeWorld, body: bytes) -> None:
    world = make_world()
    world.server.fail(ForgeFault(200, _JSON, (body,)))
    with pytest.raises(ForgeError, match="cannot be read"):
        world.forge.open_requests("main")


def test_what_was_not_asked_for_is_left_out(make_world: MakeWorld) -> None:
    world = make_world()
    answers = [request_document(number=3, state="closed"), request_document(number=2), request_document(number=1)]
    answers += [request_document(number=4, base={"sha": HEAD, "ref": "other", "repo": None})]
    world.server.fail(saying(answers))
    assert [each.number for each in world.forge.open_requests("main")] == [1, 2]


def test_another_request_than_the_one_that_was_asked_for(make_world: MakeWorld) -> None:
    world = make_world()
    world.server.fail(saying(request_document(number=8)))
    with pytest.raises(ForgeError, match="8 where 7"):
        world.forge.request(7)


def test_nothing_changed_of_what_was_never_asked(make_world: MakeWorld) -> None:
    world = make_world()
    world.server.fail(ForgeFault(304))
    with pytest.raises(ForgeError, match="never asked"):
        world.forge.open_requests("main")


def test_an_answer_without_end(make_world: MakeWorld) -> None:
    world = make_world()
    world.server.fail(ForgeFault(200, _JSON, (b"[" + b" " * 2**20,) * 40))
    with pytest.raises(ForgeError, match="longer than 16 MiB"):
        world.forge.open_requests("main")
    assert world.forge.open_requests("main") == ()


def test_a_refusal_without_end(make_world: MakeWorld) -> None:
    world = make_world()
    world.server.fail(ForgeFault(403, _JSON, (b" " * 2**20,) * 40))
    with pytest.raises(ForgeError, match="longer than 16 MiB"):
        world.forge.open_requests("main")


def test_a_packed_answer(make_world: MakeWorld) -> None:
    """A MiB of it may be a GiB."""
    world = make_world()
    packed = gzip.compress(b"[" + b" " * 2**20 + b"]")
    world.server.fail(ForgeFault(200, {**_JSON, "Content-Encoding": "gzip"}, (packed,)))
    with pytest.raises(ForgeError, match="packed"):
        world.forge.open_requests("main")


def test_an_answer_that_drips(make_world: MakeWorld) -> None:
    world = make_world(clock=HurriedClock(NOW_S))
    world.server.fail(ForgeFault(200, _JSON, (b"[" + b" " * 2**17,) * 100))
    with pytest.raises(ForgeUnreachable, match="longer than 30 s"):
        world.forge.open_requests("main")


def test_pages_without_end(make_world: MakeWorld) -> None:
    world = make_world()
    endless = saying([], Link='<https://api.github.com/repos/acme/fleet/pulls?page=2>; rel="next"')
    world.server.fail(*[endless] * 101)
    with pytest.raises(ForgeError, match="more than 100 pages"):
        world.forge.open_requests("main")


def test_pages_too_large_together(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.forge.github.client.MOST_LISTING_BYTES", 300_000)
    world = make_world()
    for _ in range(300):
        world.state.open("t", world.state.owner, HEAD)
    with pytest.raises(ForgeError, match="MiB"):
        world.forge.open_requests("main")
    assert len(world.server.exchanges) < 3


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_is_followed(make_world: MakeWorld, status: int) -> None:
    world, elsewhere = make_world(), make_world()
    target = f"{elsewhere.server.url}/repos/acme/fleet/pulls"
    world.server.fail(saying({"message": "Moved Permanently"}, status, Location=target))
    with pytest.raises(ForgeError, match="has moved"):
        world.forge.open_requests("main")
    assert elsewhere.server.exchanges == []


# -- where GitHub is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "repository",
    [
        "",
        "fleet",
        "acme/",
        "/fleet",
        "acme/fleet/x",
        "acme/..",
        "acme/.",
        "../x",
        "a b/c",
        "acme/fl?et",
        "acme/fleet\n",
    ],
)
def test_what_is_no_repository(repository: str) -> None:
    with pytest.raises(ForgeError, match="OWNER/NAME"):
        GitHubForge(repository, GitHubToken(TOKEN), clock=VirtualClock())


@pytest.mark.parametrize(
    "url",
    [
        "",
        "github.example.com",
        "http://github.example.com/api/v3",
        "http://127.0.0.1.example.com",
        "ftp://127.0.0.1",
        "https://",
        "https://user:password@github.example.com/api/v3",
        "https://github.example.com/api/v3?x=1",
        "https://github.example.com:99999",
        "https://github.example.com:x",
        "https://git hub.example.com",
        "https://[::1",
        "https://g\u00fcthub.example.com",
    ],
)
def test_where_no_secret_is_sent(url: str) -> None:
    with pytest.raises(ForgeError, match="address"):
        GitHubForge("acme/fleet", GitHubToken(TOKEN), clock=VirtualClock(), url=url)


def test_a_proxy_of_the_environment(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world()
    monkeypatch.setenv("HTTP_PROXY", world.server.url)
    forge = GitHubForge("acme/fleet", GitHubToken(TOKEN), clock=world.clock, url="http://127.0.0.1:1")
    assert forge.open_requests("main") == ()
    assert [each.path for each in world.server.exchanges] == ["/repos/acme/fleet/pulls"]


def test_a_certificate_authority_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, clock = write_loopback_certificate(tmp_path / "server.pem"), VirtualClock(NOW_S)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    state = ForgeState("acme", "fleet", clock)
    state.account("robot", "write", token=TOKEN)
    with ForgeServer(state, GitHubDialect, prefix="/api/v3", tls=tls) as server:
        stranger = GitHubForge("acme/fleet", GitHubToken(TOKEN), clock=clock, url=server.url)
        with pytest.raises(ForgeUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
            stranger.open_requests("main")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        friend = GitHubForge("acme/fleet", GitHubToken(TOKEN), clock=clock, url=server.url)
        assert friend.open_requests("main") == ()


def test_the_client_is_loaded_when_it_is_used() -> None:
    script = "import providers.forge.github, sys; print(*{'githubkit', 'httpx', 'aiohttp'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


# -- the yardstick ----------------------------------------------------------------------------------------------------


def exchange(**changed: Any) -> ForgeExchange:
    """A list of one request, which is as it should be, with some of it changed."""
    document = [request_document(**changed.pop("document", {}))]
    given = {"method": "GET", "path": "/repos/acme/fleet/pulls", "query": {"state": "open"}, "request_headers": {}}
    given |= {"request_body": b"", "status": 200, "headers": {}, "body": json.dumps(document).encode()}
    return ForgeExchange(**{**given, **changed})


STATUSES = f"/repos/acme/fleet/statuses/{HEAD}"
ODD = {
    "a path": {"path": "/repos/acme/fleet/pullrequests"},
    "a method": {"method": "DELETE"},
    "a parameter": {"query": {"status": "open"}},
    "the value of a parameter": {"query": {"state": "opened"}},
    "a body": {"request_body": b"{}"},
    "a field that is missing": {"body": b'[{"number": 1}]'},
    "the type of a field": {"document": {"number": "1"}},
    "a null": {"document": {"title": None}},
    "a time": {"document": {"updated_at": "yesterday"}},
    "a status": {"status": 202},
    "a field that is sent": {"method": "POST", "path": STATUSES, "request_body": b'{"state": "success", "name": "x"}'},
    "a value that is sent": {"method": "POST", "path": STATUSES, "request_body": b'{"state": "fine"}'},
}


@pytest.mark.parametrize("case", ODD)
def test_the_description_tells_what_is_odd(case: str) -> None:
    assert list(problems(exchange())) == []
    changed = dict(ODD[case])
    if changed.get("method") == "POST":
        changed |= {"query": {}, "status": 422, "body": b'{"message": "x"}'}
    assert len(list(problems(exchange(**changed)))) >= 1


def test_a_request_is_stored_as_it_is_told() -> None:
    state = ForgeState("acme", "fleet", VirtualClock(NOW_S), app=InstalledApp(7, "muster", 70, ""))
    request: StoredRequest = state.open("t", state.owner, HEAD)
    state.push(request.number, OTHER_HEAD)
    told = GitHubDocuments(state, "https://api", "https://web").request(request, whole=True)
    assert (told["head"]["sha"], told["merged"]) == (OTHER_HEAD, False)
