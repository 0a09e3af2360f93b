"""Approvals of pull requests: bound to the plan that was shown, and told of when the merge waits for them."""

from dataclasses import replace
from typing import Any

import pytest

from agent.inbox import MergeApproved, MergeSeen
from fleet.plan import make_plan
from fleet.plan.approvals import extent_of
from fleet.review.comment import REPLAN_S
from fleet.snapshot import Snapshot
from model.loader import load
from providers.forge.port import Approval, ForgeError, Permission, Verdict
from tests.agent.review.place import HEAD, NEXT, ReviewPlace, commit, encoded
from tests.agent.scenes import CATALOG, doc, files, pool, queue, team
from tests.support.fleets import NOW

MERGED = commit(9)


def asking(**policy: object) -> dict[str, str]:
    return files(pool(), team(), queue(), doc("FleetPolicy", "p", **(policy or {"approvals": {"required": 1}})))


def changed(**policy: object) -> dict[str, str]:
    said = policy or {"approvals": {"required": 1}}
    return files(pool(), pool("more"), team(), queue(), doc("FleetPolicy", "p", **said))


def place_with(before: dict[str, str], after: dict[str, str]) -> ReviewPlace:
    place = ReviewPlace(before)
    place.forge.may |= {"eve": Permission.WRITE}
    place.proposes(after)
    place.reviewer.look()
    return place


def approves(place: ReviewPlace, user: str, head: str = HEAD, at_s: float | None = None) -> None:
    at_s = place.clock.now() if at_s is None else at_s
    place.forge.approved.setdefault(7, []).append(Approval(user, head, at_s))


def waits(place: ReviewPlace, outcome: str = "Unapproved") -> None:
    """The request was merged, and the revision waits."""
    place.forge.merges(7, MERGED)
    head = load(place.commits.merged[HEAD] or {})
    plan = make_plan(place.world.fleet, head, place.world.snapshot, base_revision="b", head_revision=MERGED)
    place.state = replace(place.state, attempted=f"main@sha1:{MERGED}", outcome=outcome, message="waits", plan=plan)
    place.reviewer.look()


def given(place: ReviewPlace) -> list[tuple[str, bool]]:
    """Who approved what was merged, and whether it is known of which plan."""
    assert place.merges[-1].commit == MERGED
    return [(it.user, it.extent is not None) for it in place.merges[-1].given]


def test_a_request_waits_for_approval_and_its_status_follows() -> None:
    place = place_with(asking(), changed())
    assert "waits for approval" in place.forge.text(7)
    assert "0 of 1 approval by others than its author" in place.forge.text(7)
    assert place.verdict()[0] is Verdict.PENDING
    approves(place, "eve")
    place.reviewer.look()
    assert "would come into force" in place.forge.text(7)
    assert "approved by eve" in place.forge.text(7)
    assert place.verdict()[0] is Verdict.SUCCESS
    place.reviewer.look()
    assert len(place.forge.statuses[HEAD]) == 2
    assert place.forge.writes == 2, "what is said already is not said again"
    place.forge.approved[7].clear()
    place.reviewer.look()
    assert place.verdict()[0] is Verdict.PENDING, "a dismissed approval does not count"


def test_approvals_of_who_may_not_write_and_of_other_heads_do_not_count() -> None:
    place = place_with(asking(), changed())
    approves(place, "stranger")
    approves(place, "eve", NEXT)
    place.reviewer.look()
    assert place.verdict()[0] is Verdict.PENDING
    assert place.state.approved == ()


def test_a_forge_that_tells_no_commit_is_believed_by_the_time() -> None:
    place = place_with(asking(), changed())
    approves(place, "eve", "", NOW - 60.0)
    place.reviewer.look()
    assert place.verdict()[0] is Verdict.PENDING, "it was given before this head was shown"
    place.clock.advance(10.0)
    approves(place, "ada", "")
    place.forge.requests[7] = replace(place.forge.requests[7], author="bob")
    place.reviewer.look()
    assert [it.user for it in place.state.approved] == ["ada"]


def test_a_command_approves_and_the_authors_own_counts_for_owners_alone() -> None:
    owners = [{"name": "leads", "users": ["ada"]}]
    place = place_with(asking(approvals={"required": 1}), changed(approvals={"required": 1}))
    place.forge.comment(7, "ada", "/muster approve")
    place.reviewer.look()
    assert place.forge.answers[-1][1], "it is heard"
    assert place.verdict()[0] is Verdict.PENDING
    place = place_with(asking(owners=owners), changed(owners=owners))
    assert "an owner of leads has to agree" in place.forge.text(7)
    place.forge.comment(7, "ada", "/muster approve")
    place.reviewer.look()
    assert place.verdict()[0] is Verdict.SUCCESS


def test_nobody_approves_what_was_not_shown() -> None:
    place = place_with(asking(), changed())
    place.proposes(asking(), NEXT)
    place.forge.comment(7, "eve", "/muster approve")
    place.reviewer.look()
    assert place.forge.answers == [(2, False)]


def test_a_comment_that_somebody_has_edited_approves_nothing() -> None:
    place = place_with(asking(), changed())
    place.forge.comment(7, "eve", "Looks fine")
    place.reviewer.look()
    written = place.forge.said[7][-1]
    place.forge.said[7][-1] = replace(written, text="/muster approve", updated_at_s=written.created_at_s + 60.0)
    place.reviewer.look()
    assert place.forge.answers == [(written.id, False)]
    assert place.state.approved == ()
    assert place.verdict()[0] is Verdict.PENDING


@pytest.mark.parametrize("commit", [HEAD, ""], ids=["a forge that tells the commit", "one that does not"])
def test_an_approval_survives_a_push_that_leaves_the_plan_as_it_is(commit: str) -> None:
    place = place_with(asking(), changed())
    approves(place, "eve", commit)
    place.reviewer.look()
    place.clock.advance(10.0)
    place.proposes(changed(), NEXT)
    place.reviewer = place.restarted()
    place.reviewer.look()
    assert place.verdict(NEXT)[0] is Verdict.SUCCESS
    assert "approved by eve" in place.forge.text(7)
    place.forge.approved[7].clear()
    place.reviewer.look()
    assert place.verdict(NEXT)[0] is Verdict.PENDING, "a dismissed approval does not count"


def test_a_command_survives_a_push_that_leaves_the_plan_as_it_is() -> None:
    place = place_with(asking(), changed())
    place.forge.comment(7, "eve", "/muster approve")
    place.reviewer.look()
    place.proposes(changed(), NEXT)
    place.reviewer.look()
    assert place.verdict(NEXT)[0] is Verdict.SUCCESS
    place.forge.may["eve"] = Permission.READ
    place.proposes(changed(), commit(4))
    place.reviewer.look()
    assert place.verdict(commit(4))[0] is Verdict.PENDING, "who may not write any more"


def test_an_approval_does_not_survive_a_push_that_declares_something_else() -> None:
    place = place_with(asking(), changed())
    approves(place, "eve")
    place.reviewer.look()
    place.proposes(changed(approvals={"required": 2}), NEXT)
    place.reviewer.look()
    assert place.verdict(NEXT)[0] is Verdict.PENDING
    assert "not the plan that was approved any more: it declares something else" in place.forge.text(7)
    approves(place, "eve", NEXT)
    place.reviewer.look()
    assert place.verdict(NEXT)[0] is Verdict.SUCCESS


def test_an_approval_is_of_the_plan_that_stood_there() -> None:
    place = place_with(asking(), changed())
    seen = extent_of_head(place)
    approves(place, "eve")
    place.world = place.world._replace(snapshot=Snapshot(now_s=NOW + REPLAN_S, catalog=CATALOG))
    place.clock.advance(REPLAN_S)
    place.reviewer.look()
    assert [it.extent for it in place.state.approved] == [seen]
    place.reviewer = place.restarted()
    place.reviewer.look()
    assert [it.extent for it in place.state.approved] == [seen], "a restart does not forget it"


def extent_of_head(place: ReviewPlace) -> object:
    head = load(encoded(changed()))
    return extent_of(make_plan(place.world.fleet, head, place.world.snapshot, base_revision="b", head_revision=HEAD))


def test_a_merge_that_waits_is_told_who_approved_what() -> None:
    place = place_with(asking(), changed())
    approves(place, "eve")
    place.reviewer.look()
    waits(place)
    assert given(place) == [("eve", True)]
    assert "waits for approval" in place.forge.text(7)
    place.reviewer.look()
    assert len(place.merges) == 1, "it is told once"


def test_an_approval_that_came_just_before_the_merge_is_of_what_was_shown() -> None:
    place = place_with(asking(), changed())
    approves(place, "eve")
    waits(place)
    assert given(place) == [("eve", True)]


def test_an_approval_of_a_head_that_nobody_planned_is_of_no_known_plan() -> None:
    place = ReviewPlace(asking())
    place.forge.may |= {"eve": Permission.WRITE}
    place.proposes(changed())
    approves(place, "eve")
    waits(place)
    assert given(place) == [("eve", False)]
    place.forge.comment(7, "eve", "/muster approve")
    place.reviewer.look()
    assert given(place) == [("eve", True)], "whoever approves again approves what is shown now"


def test_a_stale_merge_is_approved_again_by_a_command() -> None:
    place = place_with(asking(), changed())
    approves(place, "eve")
    place.reviewer.look()
    waits(place, "Stale")
    assert "waits to be approved again" in place.forge.text(7)
    before = place.merges[-1].given[0].extent
    assert place.state.plan is not None
    place.state = replace(place.state, plan=replace(place.state.plan, plan_id="f" * 64))
    place.clock.advance(60.0)
    place.forge.said[7].append(replace(place.forge.said[7][0], id=90, author="eve", ours=False, text="/muster approve",
                                       created_at_s=place.clock.now()))  # fmt: skip
    place.reviewer.look()
    again = place.merges[-1].given[0].extent
    assert again != before
    assert again == extent_of(place.state.plan)


def test_questions_are_answered_while_a_merge_waits() -> None:
    place = place_with(asking(), changed())
    waits(place)
    place.forge.comment(7, "eve", "/muster why nobody\n/muster aprove")
    place.reviewer.look()
    assert "no workload 'nobody'" in place.forge.text(7)
    assert "not done: there is no such command" in place.forge.text(7)
    assert place.forge.answers[-1][1] is False


def test_a_commit_without_a_request_is_told_of() -> None:
    place = ReviewPlace(asking())
    place.state = replace(place.state, attempted=f"main@sha1:{MERGED}", outcome="Unapproved", message="waits")
    place.reviewer.look()
    place.reviewer.look()
    why = "it came without a pull request, and nothing else can be approved"
    assert place.merges == [MergeApproved(MERGED, (), why)]


def test_members_of_teams_that_rules_name_are_asked_for() -> None:
    owners = [{"name": "leads", "teams": ["acme/leads"]}]
    place = place_with(asking(owners=owners), changed(owners=owners))
    approves(place, "eve")
    place.reviewer.look()
    assert place.verdict()[0] is Verdict.PENDING
    assert "there is no team acme/leads" in place.told[-1]
    place.forge.teams["acme/leads"] = frozenset({"eve"})
    place.clock.advance(REPLAN_S)
    place.forge.approved[7] = [Approval("eve", HEAD, place.clock.now())]
    place.reviewer.look()
    assert place.told[-1] == ""
    assert place.verdict()[0] is Verdict.SUCCESS


def test_after_the_merge_it_says_who_merged_and_who_approved_though_no_policy_asks() -> None:
    place = place_with(files(pool(), team(), queue()), files(pool(), pool("more"), team(), queue()))
    approves(place, "eve")
    approves(place, "stranger")
    approves(place, "ada", NEXT)
    place.forge.merges(7, MERGED, by="grace")
    revision = f"main@sha1:{MERGED}"
    place.state = replace(
        place.state, attempted=revision, applied=revision, outcome="Applied", message=f"{revision} is in force"
    )
    place.reviewer.look()
    place.reviewer.look()
    assert place.hands == [MergeSeen(MERGED, 7, "grace", ("eve",))]
    assert "merged by grace, approved by eve" in place.forge.text(7)
    assert place.forge.text(7).count("is in force") == 1, "said once"
    place.restarted().look()
    assert place.forge.writes == 2
    assert place.hands[1:] == place.hands[:1], "the FleetSync may not have it"


def test_a_plan_that_was_shown_before_anybody_asked_for_approval_is_what_is_approved() -> None:
    place = place_with(files(pool(), team(), queue()), files(pool(), pool("more"), team(), queue()))
    approves(place, "eve")
    place.reviewer.least_approvals = 1
    place.reviewer.look()
    assert "approved by eve" in place.forge.text(7)
    assert place.verdict()[0] is Verdict.SUCCESS
    assert [it.extent is not None for it in place.state.approved] == [True]


def test_a_forge_that_does_not_tell_who_approves_keeps_nothing_of_the_comment_back(monkeypatch: Any) -> None:
    def refused(_number: int) -> Any:
        raise ForgeError("403: not yours to see")

    place = place_with(files(pool(), team(), queue()), files(pool(), pool("more"), team(), queue()))
    monkeypatch.setattr(place.forge, "approvals", refused)
    place.forge.merges(7, MERGED, by="grace")
    revision = f"main@sha1:{MERGED}"
    place.state = replace(place.state, attempted=revision, applied=revision, outcome="Applied", message="so it is")
    place.reviewer.look()
    assert "so it is; merged by grace" in place.forge.text(7)
    assert place.told == []
