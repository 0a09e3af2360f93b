"""Branches become pull requests, and pull requests merge commits, in a repository that a real git pushes to."""

import hashlib
import hmac
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from agent.sandbox.repository import GitFailed
from providers.git.webhook import WebhookEvent, verify
from providers.sim.forge.contents import ForgeErrorAnswer, GitContents
from providers.sim.forge.hosting import FILES_MOST, FORK, LINES_MOST, FileDiff, deliver
from tests.providers.sim.forge.conftest import HostedWorld


def test_a_pushed_branch_is_a_request(world: HostedWorld) -> None:
    head = world.push("more", {"pools.yaml": "a: 1\nb: 3\nc: 3\n"}, "More GPUs\n\nThey are needed.")
    (request,) = world.hosted.look()
    assert (request.number, request.title, request.head, request.head_branch) == (1, "More GPUs", head, "more")
    assert (request.author, request.base) == (world.state.accounts["ada"], "main")
    assert world.on_the_server("refs/pull/1/head") == head
    assert world.told == [("push", "", 0), ("pull_request", "opened", 1)]


def test_a_branch_without_a_commit_of_its_own_is_none(world: HostedWorld) -> None:
    world.git("push", "--quiet", "origin", "main:refs/heads/same")
    assert world.hosted.look() == []
    assert world.state.requests == {}


def test_a_further_push_moves_the_head(world: HostedWorld) -> None:
    world.push("more", {"new.yaml": "x: 1\n"})
    world.hosted.look()
    world.clock.advance(60)
    second = world.push("more", {"new.yaml": "x: 2\n"}, onto="work")
    (request,) = world.hosted.look()
    assert (request.number, request.head, request.updated_at_s) == (1, second, world.clock.now())
    rewritten = world.push("more", {"new.yaml": "x: 3\n"})
    assert [it.head for it in world.hosted.look()] == [rewritten]
    assert world.on_the_server("refs/pull/1/head") == rewritten
    assert list(world.state.requests) == [1]
    assert world.told[-1] == ("pull_request", "synchronize", 1)


def test_a_look_without_a_push_changes_nothing(world: HostedWorld) -> None:
    world.push("more", {"new.yaml": "x: 1\n"})
    world.hosted.look()
    assert world.hosted.look() == []
    assert list(world.state.requests) == [1]


def test_each_branch_is_a_request_of_its_own(world: HostedWorld) -> None:
    for name in ("b", "a"):
        world.push(name, {f"{name}.yaml": "x: 1\n"}, name)
    assert [(it.number, it.head_branch) for it in world.hosted.look()] == [(1, "a"), (2, "b")]


def test_a_deleted_branch_closes_its_request(world: HostedWorld) -> None:
    world.push("more", {"new.yaml": "x: 1\n"})
    world.hosted.look()
    world.git("push", "--quiet", "origin", ":refs/heads/more")
    assert world.hosted.look() == []
    request = world.state.requests[1]
    assert (request.closed_at_s, request.merged_at_s) == (world.clock.now(), None)
    assert world.told[-1] == ("pull_request", "closed", 1)


def test_a_branch_that_is_set_back_closes_its_request(world: HostedWorld) -> None:
    world.push("more", {"new.yaml": "x: 1\n"})
    world.hosted.look()
    world.git("push", "--quiet", "--force", "origin", "main:refs/heads/more")
    world.hosted.look()
    assert world.state.requests[1].merged_at_s is None
    assert world.state.requests[1].closed_at_s is not None


def test_a_closed_request_comes_back_with_further_commits_only(world: HostedWorld) -> None:
    world.push("more", {"new.yaml": "x: 1\n"})
    world.hosted.look()
    world.state.close(1)
    world.push("other", {"other.yaml": "x: 1\n"})
    assert [it.head_branch for it in world.hosted.look()] == ["other"]
    world.push("more", {"new.yaml": "x: 2\n"})
    assert [(it.number, it.head_branch) for it in world.hosted.look()] == [(3, "more")]


def test_a_merge_by_hand_is_seen(world: HostedWorld) -> None:
    world.push("more", {"new.yaml": "x: 1\n"})
    world.hosted.look()
    world.git("checkout", "--quiet", "main")
    world.git("merge", "--quiet", "--no-ff", "--message", "By hand", "work")
    world.git("push", "--quiet", "origin", "main", ":refs/heads/more")
    world.hosted.look()
    assert world.state.requests[1].merge_commit == world.git("rev-parse", "HEAD")
    assert world.state.requests[1].merged_at_s == world.clock.now()


def test_every_commit_that_was_pushed_is_known(world: HostedWorld) -> None:
    first = world.push("more", {"new.yaml": "x: 1\n"})
    second = world.push("more", {"new.yaml": "x: 2\n"}, onto="work")
    world.hosted.look()
    assert {first, second, world.git("rev-parse", "main")} <= world.state.commits


def test_a_branch_and_a_title_that_are_no_text_are_shown_all_the_same(world: HostedWorld) -> None:
    world.push("more", {"new.yaml": "x: 1\n"}, "A \x1b[31mred\u202e title")
    heads = world.repository.bare / "refs" / "heads"
    (heads / "more").rename(heads / os.fsdecode(b"m\xff"))
    (request,) = world.hosted.look()
    assert (request.head_branch, request.title) == ("m\\xff", "A \\x1b[31mred\\u202e title")
    assert world.hosted.look() == []


def test_nobody_pushes_to_the_refs_of_requests(world: HostedWorld) -> None:
    world.repository.notify("http://127.0.0.1:9")
    with pytest.raises(GitFailed, match="deny updating a hidden ref"):
        world.git("push", "--quiet", "origin", "main:refs/pull/1/head")


# -- merging ----------------------------------------------------------------------------------------------------------


def test_a_merge_is_a_commit_of_both(world: HostedWorld) -> None:
    head = world.push("more", {"new.yaml": "x: 1\n"}, "More <GPUs>")
    world.hosted.look()
    world.git("checkout", "--quiet", "main")
    world.repository.write({"pools.yaml": "a: 9\nb: 2\nc: 3\n"})
    tip = world.repository.push("Meanwhile")
    world.hosted.look()
    world.told.clear()
    world.hosted.merge(1, world.state.accounts["grace"])
    world.git("pull", "--quiet", "--ff-only", "origin", "main")
    assert world.git("log", "-1", "--format=%H %P") == f"{world.state.requests[1].merge_commit} {tip} {head}"
    assert world.git("log", "-1", "--format=%an <%ae> %ct") == f"grace <grace@example.com> {world.clock.now():.0f}"
    assert world.git("log", "-1", "--format=%B") == "Merge pull request #1 from more\n\nMore <GPUs>"
    assert (world.repository.clone / "new.yaml").read_text() == "x: 1\n"
    assert (world.repository.clone / "pools.yaml").read_text() == "a: 9\nb: 2\nc: 3\n"
    assert world.git("fsck", "--strict") == ""
    assert world.told == [("push", "", 0), ("pull_request", "closed", 1)]
    assert world.hosted.look() == []


def test_a_conflict_is_not_merged(world: HostedWorld) -> None:
    world.push("more", {"pools.yaml": "a: 1\nb: 3\nc: 3\n"})
    world.git("checkout", "--quiet", "main")
    world.repository.write({"pools.yaml": "a: 1\nb: 4\nc: 3\n"})
    tip = world.repository.push("Meanwhile")
    world.hosted.look()
    with pytest.raises(ForgeErrorAnswer, match=r"conflicts in pools\.yaml") as refused:
        world.hosted.merge(1, world.state.accounts["ada"])
    assert refused.value.status == 405
    assert world.on_the_server("refs/heads/main") == tip
    assert world.state.requests[1].closed_at_s is None


def test_a_closed_request_is_not_merged(world: HostedWorld) -> None:
    world.push("more", {"new.yaml": "x: 1\n"})
    world.hosted.look()
    world.hosted.merge(1, world.state.accounts["ada"])
    with pytest.raises(ForgeErrorAnswer, match="it is closed"):
        world.hosted.merge(1, world.state.accounts["ada"])


# -- what is shown of a request ---------------------------------------------------------------------------------------


def shown(world: HostedWorld) -> list[FileDiff]:
    return list(world.hosted.diff(world.state.requests[1]))


def test_the_diff_is_against_where_the_branch_began(world: HostedWorld) -> None:
    world.push("more", {"pools.yaml": "a: 1\nb: 3\nc: 3\n", "new.yaml": "x: 1\n"})
    world.git("checkout", "--quiet", "main")
    world.repository.write({"other.yaml": "y: 1\n"})
    world.repository.push("Meanwhile")
    world.hosted.look()
    new, pools = shown(world)
    assert (new.path, new.change, [tuple(it) for it in new.lines[1:]]) == ("new.yaml", "added", [("+", 1, "x: 1")])
    assert (pools.path, pools.change) == ("pools.yaml", "modified")
    assert [tuple(it) for it in pools.lines[1:]] == [
        (" ", 1, "a: 1"),
        ("-", 0, "b: 2"),
        ("+", 2, "b: 3"),
        (" ", 3, "c: 3"),
    ]
    world.hosted.merge(1, world.state.accounts["ada"])
    assert shown(world) == [new, pools], "after the merge as before"


def test_a_branch_without_a_common_commit_has_a_diff_and_does_not_merge(world: HostedWorld) -> None:
    world.git("checkout", "--quiet", "--orphan", "alone")
    world.git("commit", "--quiet", "--message", "Alone")
    world.git("push", "--quiet", "origin", "alone")
    world.hosted.look()
    assert [(it.path, it.change) for it in shown(world)] == [("pools.yaml", "added")]
    with pytest.raises(ForgeErrorAnswer, match="share no history"):
        world.hosted.merge(1, world.state.accounts["ada"])


def test_what_a_page_cannot_show_is_left_out_in_words(world: HostedWorld) -> None:
    many = {f"many/{number:03}.yaml": "x: 1\n" for number in range(FILES_MOST)}
    lines = "".join(f"{number}\n" for number in range(LINES_MOST + 5))
    world.push("more", {"a.bin": b"\0\1\2", "b.yaml": "x" * 600_000, "c.yaml": lines, **many})
    world.hosted.look()
    binary, large, long, *rest = shown(world)
    assert (binary.path, list(binary.lines), binary.note) == ("a.bin", [], "binary, or nothing but its mode")
    assert (large.path, list(large.lines), large.note) == ("b.yaml", [], "larger than 512 KiB")
    assert (long.path, len(long.lines), long.note) == ("c.yaml", LINES_MOST, "more lines are left out")
    assert (rest[0].path, list(rest[0].lines), rest[0].note) == ("many/000.yaml", [], "more lines are left out")
    assert (rest[-1].path, rest[-1].change) == ("3 more files", "left out")


# -- deliveries -------------------------------------------------------------------------------------------------------


def test_a_delivery_is_signed_as_the_agent_asks_for() -> None:
    heard: list[tuple[dict[str, str], bytes]] = []

    class _Agent(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(202)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), _Agent) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        deliver(f"http://127.0.0.1:{server.server_port}/webhook", "s3cret", "pull_request", "opened", 7)
        thread.join(30)
    ((headers, body),) = heard
    assert body == b'{"action": "opened", "number": 7}'
    assert headers["X-Hub-Signature-256"] == f"sha256={hmac.new(b's3cret', body, hashlib.sha256).hexdigest()}"
    assert verify(headers, body, "s3cret").event is WebhookEvent.REVIEW


def test_nobody_has_to_hear_a_delivery() -> None:
    deliver("http://127.0.0.1:9/webhook", "s3cret", "push", "", 0)


def test_a_branch_that_the_app_writes_is_a_request_of_the_app(world: HostedWorld) -> None:
    contents = GitContents(world.repository.bare, world.clock.now, world.hosted.look_at_ours)
    contents.branch("muster/images/a/v2", world.on_the_server("refs/heads/main"))
    contents.write("muster/images/a/v2", "pools.yaml", b"a: 2\n", "Newer images")
    (opened,) = world.state.requests.values()
    assert (opened.author, opened.title) == (world.state.bot, "Newer images")
    world.push("change", {"more.yaml": "d: 4\n"})
    world.hosted.look()
    assert [it.author.login for it in world.state.requests.values()] == ["muster[bot]", "ada"]


@pytest.mark.parametrize(
    ("branch", "author", "fork"),
    [
        ("fewer", "ada", None),
        ("grace/fewer", "grace", None),
        ("visitor/fewer", "visitor", FORK),
        ("visitor-fewer", "ada", None),
        ("nobody/fewer", "ada", None),
    ],
)
def test_a_branch_is_of_who_it_is_named_after(world: HostedWorld, branch: str, author: str, fork: int | None) -> None:
    world.push(branch, {"pools.yaml": "a: 5\n"})

    (request,) = world.hosted.look()

    assert request.author == world.state.accounts[author]
    assert request.fork == fork
