"""A revision whose policy asks for approval comes into force once those who have to agree to the plan it has then."""

from typing import Any

import msgspec

from agent.announce_sync import SyncAnnouncer
from agent.failures import Failures
from agent.inbox import ApprovalsSeen, MergeApproved, MergeSeen
from agent.reports import sync_report
from agent.sync import RECONSIDER_S, Sync
from fleet.actions import Announce
from fleet.plan.approvals import ApprovedPlan, GivenApproval, PlanExtent, extent_of
from providers.kube.objects import SyncReport, decode_sync, sync_status
from tests.agent.scenes import doc, files, pool, queue, team
from tests.agent.test_sync import EMPTY, in_force, push, settle
from tests.support.fleets import NOW

MERGED = "2" * 40


def asking(*more: dict[str, Any], **spec: Any) -> dict[str, str]:
    policy = doc("FleetPolicy", "p", **(spec or {"approvals": {"required": 1}}))
    return files(pool(), *more, team(), queue(), policy)


def waiting(**spec: Any) -> Sync:
    """A revision was merged, and the policy in force asks for approval."""
    sync = in_force(asking(**spec))
    sync.hear(push(f"main@sha1:{MERGED}", asking(pool("more"), **spec)))
    settle(sync, EMPTY, NOW)
    assert sync.state.outcome == "Unapproved", sync.state
    return sync


def approval(sync: Sync, user: str = "eve", **more: Any) -> GivenApproval:
    assert sync.state.plan is not None
    return GivenApproval(user, extent=extent_of(sync.state.plan), **more)


def hears(sync: Sync, *given: GivenApproval, commit: str = MERGED, words: str = "") -> None:
    sync.hear(MergeApproved(commit, given, words))
    settle(sync, EMPTY, NOW + 1.0)


def test_it_waits_until_the_forge_says_who_approved() -> None:
    sync = waiting()
    assert "the forge is asked" in sync.state.message
    assert not sync.state.stalled, "an approval helps"
    assert sync.state.applied == "r1"
    hears(sync, approval(sync))
    assert (sync.state.outcome, sync.state.applied) == ("Applied", f"main@sha1:{MERGED}")
    assert sync.state.approved_by == ("eve",)


def test_what_was_said_of_another_commit_does_not_count() -> None:
    sync = waiting()
    hears(sync, approval(sync), commit="3" * 40)
    assert sync.state.outcome == "Unapproved"


def test_nothing_new_of_the_forge_plans_nothing_anew() -> None:
    sync = waiting()
    hears(sync, words="nobody could")
    assert "nobody could" in sync.state.message
    sync.hear(MergeApproved(MERGED, (), "nobody could"))
    assert sync.due(EMPTY, NOW + 2.0) is None
    assert sync.due(EMPTY, NOW + 3 * RECONSIDER_S) is not None, "but the world may have changed"


def test_a_worse_plan_than_was_approved_is_stale_until_it_is_approved_again() -> None:
    sync = waiting()
    seen = approval(sync)
    assert seen.extent is not None
    hears(sync, GivenApproval("eve", extent=PlanExtent("0" * 64, "another")))
    assert (sync.state.outcome, sync.state.stalled) == ("Stale", False)
    assert "/muster approve" in sync.state.message
    assert sync.state.applied == "r1"
    hears(sync, seen)
    assert sync.state.outcome == "Applied"


def test_owners_agree_by_signature_without_a_forge() -> None:
    owners = [{"name": "leads", "signers": ["ada@acme.com"]}]
    sync = in_force(asking(owners=owners))
    sync.forge = False
    sync.hear(push("r2", asking(pool("more"), owners=owners), signer="eve@acme.com"))
    settle(sync, EMPTY, NOW)
    assert sync.state.outcome == "Unapproved"
    assert "nodepool/more: an owner of leads has to agree" in sync.state.message
    assert "name no forge" in sync.state.message
    sync.hear(push("r3", asking(pool("more"), owners=owners), signer="ada@acme.com"))
    settle(sync, EMPTY, NOW)
    assert sync.state.outcome == "Applied"


def test_a_policy_that_nobody_could_satisfy_is_refused() -> None:
    sync = in_force(files(pool(), team(), queue()))
    sync.forge = False
    sync.hear(push("r2", asking()))
    settle(sync, EMPTY, NOW)
    assert sync.state.outcome == "Refused"
    assert "name no forge" in sync.state.message


def test_what_was_in_force_before_a_restart_asks_nobody() -> None:
    sync = Sync()
    sync.expect("r1", approved=[ApprovedPlan(7, "h", "eve", NOW)])
    sync.hear(push("r1", asking(), restored=True))
    settle(sync, EMPTY, NOW)
    assert sync.state.outcome == "Applied"
    assert [it.user for it in sync.state.approved] == ["eve"]


def test_approvals_stand_in_the_status_and_are_read_back() -> None:
    sync = waiting()
    extent = PlanExtent("p", "d", 1, 2, 3, 4.0, 5.0, 6, ("g",), observed=True)
    known = (ApprovedPlan(7, "h", "eve", NOW, extent), ApprovedPlan(8, "i", "ada", NOW + 1, None, commanded=True))
    sync.hear(ApprovalsSeen(known))
    report = sync_report("prod", sync.state, 0, SyncReport("prod"), Failures())
    body = sync_status(report, NOW)
    assert decode_sync(msgspec.json.encode(body)).approved == known


def announced(sync: Sync, before: SyncReport) -> tuple[SyncReport, list[tuple[str, str]]]:
    """What is shown of a sync, and announced of it by a process that takes over what was shown before."""
    said: list[Announce] = []
    announcer = SyncAnnouncer(said.append)
    announcer.continue_from(before)
    report = sync_report("prod", sync.state, 0, before, Failures())
    announcer.tell(sync.state, report)
    return report, [(it.reason, it.message) for it in said]


def test_who_merged_and_who_approved_stands_in_the_history_once_the_forge_has_said_it() -> None:
    sync = in_force(files(pool(), team(), queue()))
    sync.hear(push(f"main@sha1:{MERGED}", files(pool(), pool("more"), team(), queue())))
    settle(sync, EMPTY, NOW)
    shown, _ = announced(sync, SyncReport("prod"))
    assert (shown.history[0].outcome, shown.history[0].merged_by, shown.history[0].request) == ("Applied", "", 0)
    sync.hear(MergeSeen(MERGED, 3, "grace", ("ada", "eve")))
    shown, news = announced(sync, shown)
    words = f"main@sha1:{MERGED} came by request 3, merged by grace, approved by ada, eve"
    assert news == [("Merged", words)]
    newest = decode_sync(msgspec.json.encode(sync_status(shown, NOW))).history[0]
    assert (newest.request, newest.merged_by, newest.approved_by) == (3, "grace", ("ada", "eve"))
    assert len(shown.history) == 1, "it is the same attempt"
    _, news = announced(sync, shown)
    assert news == [], "told once, whoever leads"


def test_whose_approval_counted_is_told_with_who_merged() -> None:
    sync = waiting()
    shown, _ = announced(sync, SyncReport("prod"))
    sync.hear(MergeSeen(MERGED, 3, "grace", ("eve",)))
    hears(sync, approval(sync))
    shown, news = announced(sync, shown)
    ((reason, message),) = news
    assert reason == "Applied"
    assert message.endswith(", merged by grace, approved by eve)")
    assert [(it.outcome, it.approved_by) for it in shown.history] == [("Applied", ("eve",)), ("Unapproved", ())]


def test_what_is_known_of_an_earlier_merge_is_not_said_of_a_later_revision() -> None:
    sync = in_force(files(pool(), team(), queue()))
    sync.hear(MergeSeen(MERGED, 3, "grace"))
    sync.hear(push("main@sha1:" + "3" * 40, files(pool(), pool("more"), team(), queue())))
    settle(sync, EMPTY, NOW)
    shown, news = announced(sync, SyncReport("prod"))
    assert (shown.history[0].merged_by, shown.history[0].request) == ("", 0)
    assert "Merged" not in dict(news)


def test_who_takes_back_what_was_not_approved_needs_no_approval() -> None:
    sync = waiting()
    sync.hear(push("main@sha1:" + "4" * 40, asking()))
    settle(sync, EMPTY, NOW + 60.0)
    assert (sync.state.outcome, sync.state.applied) == ("Applied", "main@sha1:" + "4" * 40)
