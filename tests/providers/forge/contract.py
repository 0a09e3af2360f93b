"""What every adapter of the port does, whatever the forge: a test file per forge derives from `ForgeContract`.

The forge of the test is a `ForgeWorld`: people act in it as they do on the forge's web page, and it tells what stands
there now.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import pytest

from providers.forge.port import (
    Annotation,
    Comment,
    CommitStatus,
    Deployment,
    Forge,
    ForgeError,
    ForgeRateLimited,
    ForgeUnreachable,
    Permission,
    ProposedChange,
    RequestState,
    Verdict,
)

HEAD, OTHER_HEAD, MERGE, UNRELATED = "a" * 40, "b" * 40, "c" * 40, "d" * 40


class ForgeWorld(Protocol):
    """A pretended forge with one repository, and an adapter that is signed in to it."""

    forge: Forge
    shows_annotations: bool
    """Whether statuses have annotations."""
    shows_deployments: bool
    """Whether the forge has such."""
    tells_what_was_approved: bool
    """Whether approvals name a commit."""

    def add_user(self, login: str, permission: Permission) -> None:
        """Somebody who has this permission."""
        ...

    def open(self, author: str, head: str, *, base: str = "main", title: str = "", fork: bool = False) -> int:
        """A request, by its number."""
        ...

    def push(self, number: int, head: str) -> None: ...

    def close(self, number: int, *, merge_commit: str = "", by: str = "") -> None:
        """By merging where a merge commit is given."""
        ...

    def say(self, number: int, author: str, text: str) -> int:
        """A comment, by its id."""
        ...

    def approve(self, number: int, login: str) -> None: ...

    def object_to(self, number: int, login: str) -> None:
        """Asks for changes, which takes back the own approval."""
        ...

    def dismiss(self, number: int, login: str) -> None:
        """Takes somebody's approval away."""
        ...

    def add_team(self, team: str, *logins: str) -> None: ...

    def reactions(self, comment: int) -> list[str]:
        """`up` and `down` of the user we are, in any order."""
        ...

    def status(self, commit: str, name: str) -> CommitStatus | None:
        """The status that is shown."""
        ...

    def deployments(self, environment: str) -> list[tuple[str, list[str]]]:
        """Commits and what was said of each, the oldest first: `in progress`, `success` or `failure`."""
        ...

    def put_file(self, path: str, content: bytes) -> str:
        """A file on the branch `main`, by the commit."""
        ...

    def file_on(self, branch: str, path: str) -> bytes | None: ...

    def refuse(self, *, for_s: float) -> None:
        """Answers the next request by asking to be left alone for so long."""
        ...

    def break_down(self) -> None:
        """Answers the next request with an error of its own."""
        ...

    def cut(self, *, after: int = 0) -> None:
        """Cuts the connection in the place of the next answer, or after so many."""
        ...

    def now_s(self) -> float: ...

    def pass_s(self, seconds: float) -> None: ...


class ForgeContract:
    """Derive, and give a fixture `world`; see `ForgeWorld`."""

    @pytest.fixture
    def people(self, world: ForgeWorld) -> Iterator[ForgeWorld]:
        """The world with an owner, a colleague and a stranger."""
        world.add_user("ann", Permission.ADMIN)
        world.add_user("ben", Permission.WRITE)
        world.add_user("eve", Permission.READ)
        return world

    # -- requests -------------------------------------------------------------------------------------------------

    def test_without_requests_there_are_none(self, world):
        assert world.forge.open_requests("main") == ()
        assert world.forge.request(1) is None

    def test_a_request_as_it_is(self, people):
        number = people.open("ben", HEAD, title="Buy more")
        (listed,) = people.forge.open_requests("main")
        assert listed == people.forge.request(number)
        assert (listed.number, listed.title, listed.author, listed.head) == (number, "Buy more", "ben", HEAD)
        assert (listed.base, listed.from_fork, listed.state) == ("main", False, RequestState.OPEN)
        assert listed.merge_commit == ""
        assert listed.updated_at_s == people.now_s()
        assert str(number) in listed.head_ref
        assert listed.head_ref.startswith("refs/")
        assert listed.url.startswith("http")

    def test_only_open_ones_into_the_branch_are_listed_by_number(self, people):
        first, second = people.open("ben", HEAD), people.open("eve", OTHER_HEAD, fork=True)
        people.open("ben", HEAD, base="release")
        closed = people.open("ben", HEAD)
        people.close(closed)
        assert [each.number for each in people.forge.open_requests("main")] == [first, second]
        assert people.forge.request(closed).state is RequestState.CLOSED

    def test_more_requests_than_a_page_has(self, people):
        numbers = [people.open("ben", HEAD) for _ in range(203)]
        assert [each.number for each in people.forge.open_requests("main")] == numbers

    def test_a_fork_is_told(self, people):
        people.open("eve", HEAD, fork=True)
        (listed,) = people.forge.open_requests("main")
        assert listed.from_fork

    def test_a_push_is_seen_though_nothing_was_a_moment_ago(self, people):
        number = people.open("ben", HEAD)
        for _ in range(3):
            assert people.forge.open_requests("main")[0].head == HEAD
        people.pass_s(60)
        people.push(number, OTHER_HEAD)
        (listed,) = people.forge.open_requests("main")
        assert (listed.head, listed.updated_at_s) == (OTHER_HEAD, people.now_s())

    def test_which_request_a_commit_came_by(self, people):
        number = people.open("ben", HEAD)
        people.open("eve", OTHER_HEAD, fork=True)
        assert people.forge.merged_by(HEAD) is None
        people.close(number, merge_commit=MERGE, by="eve")
        merged = people.forge.merged_by(MERGE)
        assert merged == people.forge.request(number)
        assert (merged.number, merged.state, merged.merge_commit) == (number, RequestState.MERGED, MERGE)
        assert merged.merger == "eve"
        assert people.forge.merged_by(HEAD) is None  # it came by the request, and merged nothing

    def test_merged_requests_come_by_their_last_change_and_a_comment_is_one(self, people):
        first, second, other = (people.open("ben", HEAD) for _ in range(3))
        people.open("ben", HEAD)
        elsewhere = people.open("ben", HEAD, base="release")
        for number, commit in ((first, MERGE), (second, OTHER_HEAD), (elsewhere, UNRELATED)):
            people.pass_s(1)
            people.close(number, merge_commit=commit)
        people.close(other)
        found = people.forge.merged_lately("main")
        assert [(it.number, it.merge_commit) for it in found] == [(second, OTHER_HEAD), (first, MERGE)]
        assert {it.state for it in found} == {RequestState.MERGED}
        people.pass_s(60)
        people.say(first, "eve", "/muster why train")
        found = people.forge.merged_lately("main")
        assert [it.number for it in found] == [first, second]
        assert found[0].updated_at_s == people.now_s()

    def test_of_many_merged_requests_those_that_changed_last_are_told(self, people):
        numbers = [people.open("ben", HEAD) for _ in range(35)]
        for number in numbers:
            people.pass_s(1)
            people.close(number, merge_commit=MERGE)
        assert [it.number for it in people.forge.merged_lately("main")] == numbers[:-31:-1]

    # -- requests of our own --------------------------------------------------------------------------------------

    def test_a_change_of_a_file_is_proposed_once(self, people):
        base = people.put_file("pools/a.yaml", b"old\n")
        change = self._change(base)
        number = people.forge.propose(change)
        (opened,) = people.forge.open_requests("main")
        assert (opened.number, opened.title, opened.branch, opened.from_fork) == (number, "Newer", "muster/x/1", False)
        assert people.file_on("muster/x/1", "pools/a.yaml") == b"new \xc3\xbc\n"
        assert people.file_on("main", "pools/a.yaml") == b"old\n"
        assert people.forge.propose(change) == number
        assert people.forge.requests_from("muster/x/1") == (opened,)
        assert people.forge.requests_from("muster/x/2") == ()

    @pytest.mark.parametrize("answers", range(6))
    def test_a_proposal_that_breaks_off_anywhere_is_taken_up_again(self, people, answers):
        """The connection is cut in the place of one answer after the other, with what was asked for done."""
        change = self._change(people.put_file("pools/a.yaml", b"old\n"))
        people.cut(after=answers)
        for _ in range(2):  # one asks fewer questions than the other
            with suppress(ForgeUnreachable):
                people.forge.propose(change)
        number = people.forge.propose(change)
        assert [each.number for each in people.forge.open_requests("main")] == [number]
        assert people.file_on("muster/x/1", "pools/a.yaml") == b"new \xc3\xbc\n"

    def test_a_proposal_that_is_closed_is_told_as_closed(self, people):
        number = people.forge.propose(self._change(people.put_file("pools/a.yaml", b"old\n")))
        people.forge.close_request(number)
        (closed,) = people.forge.requests_from("muster/x/1")
        assert (closed.number, closed.state) == (number, RequestState.CLOSED)
        assert people.forge.open_requests("main") == ()

    def test_a_fork_s_branch_of_the_same_name_is_not_ours(self, people):
        people.open("eve", HEAD, fork=True)
        (theirs,) = people.forge.open_requests("main")
        assert people.forge.requests_from(theirs.branch) == ()

    @pytest.mark.parametrize("path", ["", "/a", "a/", "../a", "a/../b", "a?b", "a#b", "a b", "a%2fb", "ü", "a\n"])
    def test_a_path_that_leads_elsewhere_is_never_sent(self, people, path):
        change = replace(self._change(people.put_file("pools/a.yaml", b"old\n")), path=path)
        people.break_down()
        with pytest.raises(ForgeError) as caught:
            people.forge.propose(change)
        assert not isinstance(caught.value, ForgeUnreachable)

    @staticmethod
    def _change(base: str) -> ProposedChange:
        return ProposedChange(
            "muster/x/1", "main", base, "pools/a.yaml", "new ü\n".encode(), "Newer", "Because.\n\n/close"
        )

    # -- people ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("permission", Permission)
    def test_what_somebody_may_do(self, world, permission):
        world.add_user("zoe", permission)
        assert world.forge.permission("zoe") is permission

    def test_who_is_unknown_may_nothing(self, world):
        assert world.forge.permission("nobody") is Permission.NONE

    def test_a_permission_is_the_one_of_now(self, people):
        assert people.forge.permission("ben") is Permission.WRITE
        people.add_user("ben", Permission.READ)
        assert people.forge.permission("ben") is Permission.READ

    @pytest.mark.parametrize("user", ["", "../../user", "a/b", "a b", "a\n", "a?x=1", "a#b", "%2e%2e", "x" * 300])
    def test_a_name_that_leads_elsewhere_is_never_sent(self, world, user):
        world.break_down()
        with pytest.raises(ForgeError) as caught:
            world.forge.permission(user)
        assert not isinstance(caught.value, ForgeUnreachable)

    def test_who_is_in_a_team(self, people):
        people.add_team("acme/gpu", "ben")
        people.add_team("acme/nobody")
        assert people.forge.is_member("ben", "acme/gpu")
        assert not people.forge.is_member("ann", "acme/gpu")
        assert not people.forge.is_member("nobody", "acme/gpu")
        assert not people.forge.is_member("ben", "acme/nobody")
        people.add_team("acme/gpu", "ann")
        assert not people.forge.is_member("ben", "acme/gpu")

    def test_a_team_that_is_not_there_is_an_error(self, people):
        with pytest.raises(ForgeError) as caught:
            people.forge.is_member("ben", "acme/gpus")
        assert not isinstance(caught.value, ForgeUnreachable)

    @pytest.mark.parametrize(
        ("user", "team"), [("ben", name) for name in ("", "/", "../x", "acme/..", "a/b?c", "a b/c", "a/b\n")]
    )
    def test_a_team_that_leads_elsewhere_is_never_sent(self, people, user, team):
        people.break_down()
        with pytest.raises(ForgeError) as caught:
            people.forge.is_member(user, team)
        assert not isinstance(caught.value, ForgeUnreachable)

    # -- approvals ------------------------------------------------------------------------------------------------

    def test_who_approves_of_what(self, people):
        number, other = people.open("eve", HEAD), people.open("eve", HEAD)
        assert people.forge.approvals(number) == ()
        people.approve(other, "eve")
        people.approve(number, "ben")
        people.pass_s(60)
        people.push(number, OTHER_HEAD)
        people.approve(number, "ann")
        first, second = people.forge.approvals(number)
        assert (first.user, first.at_s) == ("ben", people.now_s() - 60)
        assert (second.user, second.at_s) == ("ann", people.now_s())
        commits = (HEAD, OTHER_HEAD) if people.tells_what_was_approved else ("", "")
        assert (first.commit, second.commit) == commits

    def test_the_last_word_of_each_counts(self, people):
        number = people.open("eve", HEAD)
        for login in ("ann", "ben"):
            people.approve(number, login)
        people.pass_s(1)
        people.object_to(number, "ann")
        people.dismiss(number, "ben")
        assert people.forge.approvals(number) == ()
        people.pass_s(1)
        people.approve(number, "ben")
        (approval,) = people.forge.approvals(number)
        assert (approval.user, approval.at_s) == ("ben", people.now_s())

    # -- comments -------------------------------------------------------------------------------------------------

    def test_a_conversation(self, people):
        number, other = people.open("ben", HEAD), people.open("eve", OTHER_HEAD)
        people.say(other, "eve", "elsewhere")
        assert people.forge.comments(number) == ()
        people.say(number, "eve", "/muster plan")
        people.pass_s(5)
        ours = people.forge.write_comment(number, "The plan:\n\n| a | b |\n|---|---|\n| ü | 🙂 |")
        people.pass_s(5)
        people.say(number, "ann", "/muster approve")
        comments = people.forge.comments(number)
        assert [(each.author, each.ours) for each in comments if not each.ours] == [("eve", False), ("ann", False)]
        assert comments[1] == ours
        assert ours.ours
        assert ours.text.endswith("| ü | 🙂 |")
        assert [each.created_at_s for each in comments] == [people.now_s() - back for back in (10, 5, 0)]

    def test_ours_is_changed_in_its_place(self, people):
        number = people.open("ben", HEAD)
        ours = people.forge.write_comment(number, "one")
        people.forge.comments(number)
        people.forge.change_comment(number, ours, "two")
        assert people.forge.comments(number) == (replace(ours, text="two"),)
        people.pass_s(60)
        people.forge.change_comment(number, ours, "three")
        (changed,) = people.forge.comments(number)
        assert (ours.edited, changed.edited) == (False, True), "the forge tells that it was changed"

    def test_the_comment_of_another_is_left_alone(self, people):
        number = people.open("ben", HEAD)
        people.say(number, "eve", "mine")
        (theirs,) = people.forge.comments(number)
        with pytest.raises(ForgeError):
            people.forge.change_comment(number, theirs, "yours")
        assert people.forge.comments(number) == (theirs,)

    def test_more_comments_than_a_page_has(self, people):
        number = people.open("ben", HEAD)
        for count in range(200):
            people.say(number, "eve", f"{count}")
        assert [each.text for each in people.forge.comments(number)] == [str(count) for count in range(200)]
        people.say(number, "eve", "200")  # on a page that was not there
        assert people.forge.comments(number)[-1].text == "200"

    @pytest.mark.parametrize(("accepted", "shown"), [(True, "up"), (False, "down")])
    def test_acknowledging_twice_is_once(self, people, accepted, shown):
        number = people.open("ben", HEAD)
        comment = people.say(number, "ann", "/muster approve")
        (command,) = people.forge.comments(number)
        for _ in range(2):
            people.forge.acknowledge(number, command, accepted=accepted)
        assert people.reactions(comment) == [shown]

    # -- deployments ----------------------------------------------------------------------------------------------

    def test_how_far_a_commit_has_come(self, people):
        people.open("ben", HEAD)
        people.open("ben", OTHER_HEAD)

        def tell(commit: str, verdict: Verdict, environment: str = "muster/prod") -> None:
            link = "https://forge.test/7"
            people.forge.put_deployment(Deployment(commit, "main", environment, verdict, "3 of 5 done", link))

        for verdict in (Verdict.PENDING, Verdict.PENDING, Verdict.FAILURE, Verdict.FAILURE, Verdict.SUCCESS):
            tell(HEAD, verdict)
        tell(HEAD, Verdict.PENDING, "muster/test")
        tell(OTHER_HEAD, Verdict.PENDING)
        assert people.deployments("muster/prod") == (
            [(HEAD, ["in progress", "failure", "success"]), (OTHER_HEAD, ["in progress"])]
            if people.shows_deployments
            else []
        )
        assert people.deployments("muster/test") == ([(HEAD, ["in progress"])] if people.shows_deployments else [])

    def test_a_deployment_of_an_unknown_commit_is_an_error(self, people):
        told = Deployment(UNRELATED, "main", "muster/prod", Verdict.PENDING, "begun")
        if not people.shows_deployments:
            people.forge.put_deployment(told)
            return
        with pytest.raises(ForgeError) as caught:
            people.forge.put_deployment(told)
        assert not isinstance(caught.value, ForgeUnreachable)

    # -- statuses -------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("verdict", Verdict)
    def test_a_status_replaces_the_one_of_its_name(self, people, verdict):
        people.open("ben", HEAD)
        people.forge.put_status(HEAD, CommitStatus("muster/other", Verdict.SUCCESS, "fine"))
        people.forge.put_status(HEAD, CommitStatus("muster/plan", Verdict.PENDING, "planning"))
        last = CommitStatus("muster/plan", verdict, "s" * 140, "https://muster.example/plans/1")
        people.forge.put_status(HEAD, last)
        assert people.status(HEAD, "muster/plan") == last
        assert people.status(HEAD, "muster/other").summary == "fine"

    @pytest.mark.parametrize("count", [1, 50, 51, 120])
    def test_every_annotation_is_shown_where_any_is(self, people, count):
        people.open("ben", HEAD)
        annotations = tuple(Annotation(f"pools/{line}.yaml", line, f"wrong {line}") for line in range(1, count + 1))
        people.forge.put_status(HEAD, CommitStatus("muster", Verdict.FAILURE, "wrong", annotations=annotations))
        shown = people.status(HEAD, "muster").annotations
        assert shown == (annotations if people.shows_annotations else ())

    def test_annotations_go_with_the_status_that_had_them(self, people):
        people.open("ben", HEAD)
        wrong = (Annotation("a.yaml", 1, "wrong"),)
        people.forge.put_status(HEAD, CommitStatus("muster", Verdict.FAILURE, "wrong", annotations=wrong))
        people.forge.put_status(HEAD, CommitStatus("muster", Verdict.SUCCESS, "right"))
        assert people.status(HEAD, "muster") == CommitStatus("muster", Verdict.SUCCESS, "right")

    @pytest.mark.parametrize("commit", ["", "a" * 39, "A" * 40, "main", "../" + "a" * 37])
    def test_what_is_no_commit_is_never_sent(self, world, commit):
        world.break_down()
        for question in (
            lambda: world.forge.merged_by(commit),
            lambda: world.forge.put_status(commit, CommitStatus("muster", Verdict.SUCCESS, "fine")),
        ):
            with pytest.raises(ForgeError) as caught:
                question()
            assert not isinstance(caught.value, ForgeUnreachable)

    def test_a_status_of_an_unknown_commit_is_an_error(self, world):
        with pytest.raises(ForgeError) as caught:
            world.forge.put_status(UNRELATED, CommitStatus("muster", Verdict.SUCCESS, "fine"))
        assert not isinstance(caught.value, ForgeUnreachable)

    # -- a forge that is not well ---------------------------------------------------------------------------------

    def test_being_asked_to_wait(self, people):
        people.refuse(for_s=90)
        with pytest.raises(ForgeRateLimited) as caught:
            people.forge.open_requests("main")
        assert caught.value.until_s == people.now_s() + 90
        assert people.forge.open_requests("main") == ()

    def test_a_broken_forge_is_unreachable_and_asked_once(self, people):
        for wrong in (people.break_down, people.cut):
            wrong()
            with pytest.raises(ForgeUnreachable) as caught:
                people.forge.open_requests("main")
            assert not isinstance(caught.value, ForgeRateLimited)
            assert people.forge.open_requests("main") == ()

    def test_a_comment_whose_answer_is_lost_is_found_later(self, people):
        number = people.open("ben", HEAD)
        assert people.forge.comments(number) == ()
        people.cut()
        with pytest.raises(ForgeUnreachable):
            people.forge.write_comment(number, "one")
        assert [each.text for each in people.forge.comments(number)] in ([], ["one"])

    def test_a_request_that_is_not_there_takes_no_comment(self, world):
        ghost = Comment(10**6, "ben", "", 0.0, ours=True)
        for question in (
            lambda: world.forge.comments(999),
            lambda: world.forge.approvals(999),
            lambda: world.forge.write_comment(999, "x"),
            lambda: world.forge.change_comment(999, ghost, "x"),
            lambda: world.forge.acknowledge(999, ghost, accepted=True),
        ):
            with pytest.raises(ForgeError) as caught:
                question()
            assert not isinstance(caught.value, ForgeUnreachable)
