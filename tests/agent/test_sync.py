"""Which revision is in force: every way a pushed one may fare, and what a restart makes of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.announce_sync import SyncAnnouncer
from agent.asked import Operated
from agent.failures import Failures
from agent.inbox import Pushed, RevisionLost, SourceTrouble, SourceWell
from agent.reports import sync_report
from agent.sync import RECONSIDER_S, Sync, SyncState
from fleet.actions import Action, Announce
from fleet.snapshot import Snapshot
from model.problem import Code, Problem, in_short
from providers.kube.objects import SyncReport, sync_status
from providers.kube.objects.reports import PROBLEMS_MAX
from tests.agent.scenes import CATALOG, P5, A, doc, files, pool, queue, simple, team
from tests.support.fleets import NOW
from tests.support.world import World


def push(revision: str, fleet: dict[str, str], **more: Any) -> Pushed:
    return Pushed(revision, {path: text.encode() for path, text in fleet.items()}, **more)


def settle(sync: Sync, snapshot: Snapshot, now_s: float) -> Sequence[Action]:
    """Plan and judge at once the revision that is due."""
    job = sync.due(snapshot, now_s)
    return sync.judge(job(), now_s) if job is not None else ()


def policy(**spec: Any) -> dict[str, Any]:
    return doc("FleetPolicy", "p", **spec)


EMPTY = Snapshot(now_s=NOW, catalog=CATALOG)
FIXED = [team(quotas={"fixed": {"nvidia.com/gpu": 64}}), queue(flavors=("fixed",))]


def fixed(replicas: int, *more: dict[str, Any]) -> dict[str, str]:
    return files(pool("fixed", replicas=replicas), *FIXED, *more)


def in_force(fleet: dict[str, str], snapshot: Snapshot = EMPTY, **more: Any) -> Sync:
    sync = Sync()
    sync.hear(push("r1", fleet, **more))
    settle(sync, snapshot, NOW)
    assert sync.state.outcome == "Applied", sync.state
    return sync


def machines(sync: Sync, count: int) -> Snapshot:
    assert sync.fleet is not None
    world = World(sync.fleet, NOW, CATALOG)
    for n in range(count):
        world.machine(f"m{n}", "fixed", P5, A)
    return world.snapshot()


def test_a_valid_revision_comes_into_force() -> None:
    sync = in_force(simple(), signer="ada")
    assert sync.fleet is not None
    assert list(sync.fleet.node_pools) == ["h100"]
    assert (sync.state.applied, sync.state.attempted, sync.state.observed) == ("r1", "r1", "r1")
    assert (sync.state.signer, sync.state.stalled) == ("ada", False)


def test_nothing_pushed_nothing_done() -> None:
    sync = Sync()
    assert settle(sync, EMPTY, NOW) == ()
    assert sync.state.outcome == "Waiting"


def test_an_invalid_revision_names_every_problem_and_changes_nothing() -> None:
    sync = in_force(simple())
    before = sync.fleet
    text = (
        simple()["fleet.yaml"]
        .replace("instanceTypes", "instanceTyps")
        .replace("nvidia.com/gpu: 32", "nvidia.com/gpu: x")
    )
    sync.hear(push("r2", {"fleet.yaml": text}))
    settle(sync, EMPTY, NOW + 1)
    assert sync.fleet is before
    state = sync.state
    assert (state.applied, state.attempted, state.outcome, state.stalled) == ("r1", "r2", "Invalid", True)
    assert len(state.problems) >= 2
    assert state.message.startswith(f"{len(state.problems)} problems; first: fleet.yaml:")
    settle(sync, EMPTY, NOW + 1000)
    assert sync.state.at_s == NOW + 1, "an invalid revision is not read again"


def test_the_first_revision_may_be_invalid_and_mended() -> None:
    sync = Sync()
    sync.hear(push("r1", {"fleet.yaml": "kind: Nonsense"}))
    settle(sync, EMPTY, NOW)
    assert (sync.fleet, sync.state.outcome) == (None, "Invalid")
    sync.hear(push("r2", simple()))
    settle(sync, EMPTY, NOW)
    assert (sync.state.applied, sync.state.problems) == ("r2", ())


def test_a_refused_revision_is_looked_at_again_when_the_world_may_have_changed() -> None:
    sync = in_force(fixed(4))
    sync.hear(push("r2", fixed(0)))
    settle(sync, machines(sync, 4), NOW)
    assert (sync.state.applied, sync.state.outcome) == ("r1", "Refused")
    assert "maxPercentRemoved" in sync.state.message
    settle(sync, machines(sync, 0), NOW + RECONSIDER_S - 1)
    assert sync.state.outcome == "Refused"
    settle(sync, machines(sync, 0), NOW + RECONSIDER_S)
    assert (sync.state.applied, sync.state.outcome) == ("r2", "Applied")


def planned_at(sync: Sync, snapshot: Snapshot, until_s: float) -> list[float]:
    """When the revision that waits is planned, in seconds from now."""
    found = []
    for after_s in range(0, int(until_s), 10):
        before = sync.state.at_s
        settle(sync, snapshot, NOW + after_s)
        if sync.state.at_s != before:
            found.append(float(after_s))
    return found


def test_a_refused_revision_is_looked_at_less_often_the_longer_it_is_refused() -> None:
    """A plan of a thousand machines takes seconds: every half minute for days would be a core."""
    sync = in_force(fixed(4))
    snapshot = machines(sync, 4)
    sync.hear(push("r2", fixed(0)))
    assert planned_at(sync, snapshot, 2400) == [30, 90, 210, 450, 930, 1530, 2130]
    sync.hear(push("r3", fixed(0)))
    assert planned_at(sync, snapshot, 100) == [0, 30, 90], "a new one begins anew"


def test_a_frozen_revision_comes_into_force_when_the_window_ends() -> None:
    """NOW is 08:00; the window ends at 08:20, between two looks at what is held back."""
    window = {"name": "w", "schedule": "0 7 * * *", "duration": "80m", "blocks": ["Sync"]}
    frozen = policy(freezeWindows=[window])
    sync = in_force(fixed(0, frozen))
    sync.hear(push("r2", fixed(0, frozen, doc("PriorityClass", "x", value=1))))
    settle(sync, machines(sync, 0), NOW)
    words = "freeze window w is open: new revisions are held back until 2027-01-15T08:20:00Z"
    assert (sync.state.outcome, sync.state.message) == ("Frozen", words)
    found = planned_at(sync, machines(sync, 0), 1300)
    assert (found[-1], sync.state.outcome, sync.state.applied) == (1200.0, "Applied", "r2")


def test_a_newer_push_takes_the_place_of_a_refused_one_at_once() -> None:
    sync = in_force(fixed(4))
    sync.hear(push("r2", fixed(0)))
    snapshot = machines(sync, 4)
    settle(sync, snapshot, NOW)
    sync.hear(push("r3", fixed(3)))
    settle(sync, snapshot, NOW + 1)
    assert (sync.state.applied, sync.state.observed) == ("r3", "r3")
    settle(sync, machines(sync, 0), NOW + 100)
    assert sync.state.applied == "r3", "the refused one does not come back"


def test_one_push_cannot_lift_a_rail_and_run_through_it() -> None:
    sync = in_force(fixed(4))
    sync.hear(push("r2", fixed(0, policy(guardRails={"maxPercentRemoved": 100}))))
    settle(sync, machines(sync, 4), NOW)
    assert sync.state.outcome == "Refused"


SIGNED = policy(signatures={"required": True})


@pytest.mark.parametrize(("signer", "outcome"), [(None, "Unsigned"), ("ada", "Applied")])
def test_where_signatures_are_required_the_others_wait(signer: str | None, outcome: str) -> None:
    sync = in_force(files(pool(), team(), queue(), SIGNED), signer="ada")
    sync.hear(push("r2", simple(), signer=signer))
    settle(sync, EMPTY, NOW)
    assert sync.state.outcome == outcome
    assert sync.state.applied == ("r2" if signer else "r1")


def test_a_revision_cannot_lift_the_demand_for_signatures_unsigned() -> None:
    sync = in_force(files(pool(), team(), queue(), SIGNED), signer="ada")
    sync.hear(push("r2", files(pool(), team(), queue(), policy(signatures={"required": False}))))
    settle(sync, EMPTY, NOW)
    assert (sync.state.outcome, sync.state.applied) == ("Unsigned", "r1")


def test_a_freeze_holds_revisions_back_until_it_thaws() -> None:
    window = {"name": "night", "schedule": "0 8 * * *", "duration": "1h", "blocks": ["Sync"]}
    sync = in_force(files(pool(), team(), queue(), policy(freezeWindows=[window])))
    sync.hear(push("r2", simple()))
    settle(sync, EMPTY, NOW + 60)
    assert (sync.state.outcome, sync.state.stalled) == ("Frozen", False)
    assert "night" in sync.state.message
    settle(sync, EMPTY, NOW + 3601)
    assert sync.state.applied == "r2"


# -- a restart --------------------------------------------------------------------------------------------------------


def test_what_was_in_force_comes_back_past_rails_signatures_and_freezes() -> None:
    window = {"name": "always", "schedule": "* * * * *", "duration": "1h"}
    everything = policy(signatures={"required": True}, freezeWindows=[window], guardRails={"maxNodesAdded": 0})
    sync = Sync()
    sync.hear(push("r1", fixed(4, everything), restored=True))
    settle(sync, EMPTY, NOW)
    assert (sync.state.applied, sync.state.outcome) == ("r1", "Applied")


def test_what_is_in_force_is_not_judged_again_when_it_is_pushed_after_a_restart() -> None:
    """With its own plan, so that its status does not tell of a fleet that is bought anew."""
    window = {"name": "always", "schedule": "* * * * *", "duration": "1h"}
    everything = policy(signatures={"required": True}, freezeWindows=[window], guardRails={"maxNodesAdded": 0})
    sync = Sync()
    sync.hear(push("r1", fixed(4, everything)))
    sync.hear(push("r1", fixed(4, everything), restored=True))
    settle(sync, EMPTY, NOW)
    settle(sync, machines(sync, 4), NOW)
    assert (sync.state.applied, sync.state.outcome, sync.holds_decisions) == ("r1", "Applied", False)
    assert sync.state.plan is not None
    assert (sync.state.plan.base_revision, sync.state.plan.head_revision) == ("r1", "r1")


def test_a_branch_that_goes_back_to_what_is_in_force_ends_a_refusal() -> None:
    window = {"name": "always", "schedule": "* * * * *", "duration": "1h"}
    sync = in_force(fixed(1, policy(freezeWindows=[window])))
    before = sync.state
    sync.hear(push("r2", fixed(2, policy(freezeWindows=[window]))))
    settle(sync, EMPTY, NOW)
    assert sync.state.outcome == "Frozen"
    sync.hear(push("r1", fixed(1, policy(freezeWindows=[window]))))
    settle(sync, EMPTY, NOW + 1)
    assert (sync.state.applied, sync.state.attempted, sync.state.outcome) == ("r1", "r1", "Applied")
    assert (sync.state.convergence, sync.state.day) == (before.convergence, before.day)


def test_what_was_refused_before_the_restart_is_refused_after_it() -> None:
    sync = Sync()
    sync.hear(push("r1", fixed(4), restored=True))
    sync.hear(push("r2", fixed(0)))
    snapshot = Snapshot(now_s=NOW, catalog=CATALOG)
    settle(sync, snapshot, NOW)
    assert sync.state.applied == "r1"
    settle(sync, machines(sync, 4), NOW)
    assert (sync.state.applied, sync.state.attempted, sync.state.outcome) == ("r1", "r2", "Refused")


def test_a_day_is_kept_across_a_restart_and_what_is_restored_does_not_count_again() -> None:
    sync = in_force(fixed(4, policy(guardRails={"maxPercentRemoved": 50})))
    world = machines(sync, 4)
    sync.hear(push("r2", fixed(2, policy(guardRails={"maxPercentRemoved": 50}))))
    settle(sync, world, NOW + 60)
    assert [(it.at_s, it.nodes_removed, it.nodes) for it in sync.state.day] == [(NOW, 0, 0), (NOW + 60, 2, 4)]
    again = Sync()
    again.expect("r2", sync.state.day)
    again.hear(push("r2", fixed(2, policy(guardRails={"maxPercentRemoved": 50})), restored=True))
    settle(again, world, NOW + 120)
    assert (again.state.applied, again.state.day) == ("r2", sync.state.day)


def test_a_clock_that_jumps_backwards_erases_no_day_and_one_that_comes_back_does_not_prolong_it() -> None:
    sync = in_force(fixed(4))
    before = sync.state.day
    sync.hear(push("r2", fixed(3)))
    settle(sync, replace(machines(sync, 4), now_s=NOW - 7200), NOW - 7200)
    assert [it.at_s for it in sync.state.day] == [NOW - 7200, NOW - 7200]
    assert sync.state.day[0] == replace(before[0], at_s=NOW - 7200)
    sync.hear(push("r3", fixed(3, policy())))
    later = NOW - 7200 + 24 * 3600
    settle(sync, replace(machines(sync, 3), now_s=later), later)
    assert (sync.state.outcome, sync.state.day) == ("Applied", ())


def test_nothing_else_is_judged_before_what_was_in_force_is_back() -> None:
    sync = Sync()
    sync.expect("r1")
    assert sync.state.applied == "r1"
    sync.hear(push("r2", simple()))
    settle(sync, EMPTY, NOW)
    assert (sync.fleet, sync.state.applied) == (None, "r1")
    sync.hear(RevisionLost("r1"))
    settle(sync, EMPTY, NOW)
    assert (sync.fleet, sync.state.outcome, sync.state.stalled) == (None, "RevisionLost", True)
    sync.hear(push("r1", simple(weight=3), restored=True))
    settle(sync, EMPTY, NOW)
    settle(sync, EMPTY, NOW)
    assert sync.state.applied == "r2"


def test_a_window_without_end_can_be_lifted_and_nothing_else_with_it() -> None:
    window = {"name": "always", "schedule": "* * * * *", "duration": "1h"}
    sync = in_force(fixed(1, policy(freezeWindows=[window])))
    sync.hear(push("r2", fixed(2, policy())))
    settle(sync, EMPTY, NOW)
    assert sync.state.outcome == "Frozen"
    sync.hear(push("r3", fixed(1, policy())))
    settle(sync, EMPTY, NOW)
    assert sync.state.applied == "r3"


def test_the_newest_does_not_get_lost_whatever_order_they_are_heard_in() -> None:
    sync = Sync()
    sync.hear(push("r2", simple()))
    sync.hear(push("r1", simple(weight=3), restored=True))
    settle(sync, EMPTY, NOW)
    assert sync.state.applied == "r1"
    settle(sync, EMPTY, NOW)
    assert sync.state.applied == "r2"


def test_a_restored_revision_that_no_longer_loads_leaves_the_newest_its_chance() -> None:
    sync = Sync()
    sync.hear(push("r1", {"fleet.yaml": "kind: OfAnOlderRelease"}, restored=True))
    sync.hear(push("r2", simple()))
    settle(sync, EMPTY, NOW)
    assert sync.fleet is None
    settle(sync, EMPTY, NOW)
    assert sync.state.applied == "r2"


# -- trouble with the source ------------------------------------------------------------------------------------------


def test_a_source_that_cannot_be_read_changes_nothing_that_is_in_force() -> None:
    sync = in_force(simple())
    before = sync.fleet
    sync.hear(SourceTrouble("Unreachable: no answer", transient=True))
    assert sync.fleet is before
    assert (sync.state.applied, sync.state.outcome) == ("r1", "Applied")
    assert sync.state.trouble == SourceTrouble("Unreachable: no answer", transient=True)
    sync.hear(SourceWell())
    assert sync.state.trouble is None


def test_a_source_that_cannot_be_read_at_the_start_says_so() -> None:
    sync = Sync()
    trouble = SourceTrouble("AuthenticationFailed: no", transient=False)
    sync.hear(trouble)
    assert (sync.state.outcome, sync.state.trouble) == ("Waiting", trouble)


# -- planning elsewhere, and planning that fails ----------------------------------------------------------------------


def test_what_is_in_force_stays_while_another_is_planned() -> None:
    sync = in_force(simple())
    sync.hear(push("r2", fixed(2)))
    job = sync.due(EMPTY, NOW)
    assert job is not None
    assert (sync.state.planning, sync.state.applied, sync.state.outcome) == ("r2", "r1", "Applied")
    assert sync.due(EMPTY, NOW + 100) is None, "one at a time"
    sync.judge(job(), NOW + 100)
    assert (sync.state.planning, sync.state.applied) == ("", "r2")


def test_a_plan_of_what_is_not_wanted_any_more_is_dropped() -> None:
    sync = in_force(simple())
    sync.hear(push("r2", fixed(2)))
    old = sync.due(EMPTY, NOW)
    sync.hear(push("r3", fixed(3)))
    assert old is not None
    assert sync.judge(old(), NOW) == ()
    assert sync.state.applied == "r1"
    settle(sync, EMPTY, NOW)
    assert (sync.state.applied, sync.state.attempted) == ("r3", "r3")


def test_a_revision_whose_planning_fails_is_stalled_and_tried_again_later_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sync = in_force(simple())

    def broken(*_args: object, **_named: object) -> None:
        raise RecursionError("too deep\nfor words")

    with monkeypatch.context() as patch:
        patch.setattr("agent.planning.make_plan", broken)
        sync.hear(push("r2", fixed(2)))
        at_s, pauses = NOW, []
        for _ in range(12):
            began_s = at_s
            settle(sync, EMPTY, at_s)
            assert (sync.state.outcome, sync.state.stalled) == ("PlanningFailed", True)
            assert (sync.state.observed, sync.state.attempted, sync.state.applied) == ("r2", "r2", "r1")
            assert "RecursionError: too deep" in sync.state.message
            assert "\n" not in sync.state.message
            while sync.due(EMPTY, at_s) is None:
                at_s += 1.0
            sync._planning = None
            pauses.append(at_s - began_s)
    assert pauses[:3] == [2, 4, 8]
    assert pauses[-1] == 300
    settle(sync, EMPTY, at_s)
    assert (sync.state.outcome, sync.state.applied) == ("Applied", "r2")


def test_a_restored_revision_whose_planning_fails_is_tried_again_before_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_files: object) -> None:
        raise ZeroDivisionError

    sync = Sync()
    sync.expect("r1")
    sync.hear(push("r1", simple(), restored=True))
    sync.hear(push("r2", fixed(2)))
    with monkeypatch.context() as patch:
        patch.setattr("agent.planning.load", broken)
        settle(sync, EMPTY, NOW)
    assert (sync.state.outcome, sync.state.attempted, sync.state.applied) == ("PlanningFailed", "r1", "r1")
    settle(sync, EMPTY, NOW + 10)
    assert (sync.state.applied, sync.holds_decisions) == ("r1", True), "nothing is decided before r2 was judged"
    settle(sync, EMPTY, NOW + 10)
    assert (sync.state.applied, sync.holds_decisions) == ("r2", False)


@pytest.mark.parametrize(("applied", "named"), [("r1", "abc"), ("r2", "")])
def test_the_plan_of_what_is_in_force_outlives_the_process(applied: str, named: str) -> None:
    """What is restored is planned again, against nothing: its own plan stays the one of old."""
    before = SyncReport("s", applied="r1", applied_plan="abc")
    assert sync_report("s", SyncState(applied=applied), 0, before, Failures()).applied_plan == named
    assert sync_report("s", SyncState(applied=applied, applied_plan="new"), 0, before, Failures()).applied_plan == "new"


# -- by hand ----------------------------------------------------------------------------------------------------------

SUSPEND, RESUME = Operated(suspended=True, reason="an audit"), Operated(suspended=False)


def test_a_suspended_sync_sees_what_is_pushed_and_judges_nothing_until_it_is_resumed() -> None:
    sync = in_force(simple())
    sync.hear(SUSPEND)
    sync.hear(push("r2", simple(weight=2)))
    settle(sync, EMPTY, NOW + 1)
    assert (sync.state.applied, sync.state.observed, sync.state.attempted) == ("r1", "r2", "r1")
    sync.hear(RESUME)
    settle(sync, EMPTY, NOW + 2)
    assert (sync.state.applied, sync.state.outcome) == ("r2", "Applied")


def test_what_was_being_planned_when_the_sync_was_suspended_does_not_come_into_force() -> None:
    sync = in_force(simple())
    sync.hear(push("r2", simple(weight=2)))
    job = sync.due(EMPTY, NOW)
    assert job is not None
    sync.hear(SUSPEND)
    sync.judge(job(), NOW + 5)
    assert (sync.state.applied, sync.state.planning) == ("r1", "")
    sync.hear(RESUME)
    settle(sync, EMPTY, NOW + 6)
    assert sync.state.applied == "r2"


def test_a_refused_revision_is_looked_at_at_once_when_the_sync_is_resumed() -> None:
    sync = in_force(fixed(4))
    sync.hear(push("r2", fixed(0)))
    settle(sync, machines(sync, 4), NOW)
    sync.hear(SUSPEND)
    settle(sync, machines(sync, 0), NOW + RECONSIDER_S)
    assert (sync.state.applied, sync.state.outcome) == ("r1", "Refused")
    sync.hear(RESUME)
    settle(sync, machines(sync, 0), NOW + RECONSIDER_S)
    assert sync.state.applied == "r2"


def test_a_suspended_sync_that_restarts_takes_up_what_was_in_force_and_decides() -> None:
    """Suspended is the coming of revisions: jobs are admitted and interruptions answered as before."""
    sync = Sync()
    sync.hear(SUSPEND)
    sync.expect("r1")
    sync.hear(push("r2", simple(weight=2)))
    sync.hear(push("r1", simple(), restored=True))
    settle(sync, EMPTY, NOW)
    assert sync.fleet is not None
    assert (sync.state.applied, sync.state.observed, sync.holds_decisions) == ("r1", "r2", False)


def findings(state: SyncState) -> dict[str, tuple[bool | None, str, str]]:
    report = sync_report("s", state, 0, SyncReport("s"), Failures())
    return {it.type: (it.holds, it.reason, it.message) for it in report.findings}


def test_the_fleet_sync_counts_and_shows_errors_before_warnings() -> None:
    """One number: that of the sentence. Warnings of more places than are shown hide none of the errors."""
    old = [
        Problem("a.yaml", line, 1, "spec", "too much", Code.QUOTA_BEYOND_LIMITS, severity="warning")
        for line in range(1, 31)
    ]
    new = [Problem("z.yaml", line, 1, "kind", "no such kind", Code.UNKNOWN_KIND) for line in (1, 2)]
    state = SyncState(attempted="r2", outcome="Invalid", message=in_short((*old, *new)), problems=(*old, *new))
    status = sync_status(sync_report("s", state, 0, SyncReport("s"), Failures()), NOW)["status"]
    assert state.message.startswith(f"{status['problemCount']} problems; first: z.yaml:1:1")
    shown = [(it["file"], it["message"]) for it in status["problems"]]
    assert shown[:3] == [("z.yaml", "kind: no such kind")] * 2 + [("a.yaml", "warning: spec: too much")]
    assert len(shown) == PROBLEMS_MAX


def test_the_fleet_sync_says_that_it_is_suspended_why_and_what_waits() -> None:
    sync = in_force(simple())
    assert "Suspended" not in findings(sync.state)
    sync.hear(SUSPEND)
    words = "no revision comes into force: an audit; r1 stays in force and is carried out"
    assert findings(sync.state)["Suspended"] == (True, "Suspended", words)
    assert findings(sync.state)["Ready"][0] is True, "as Flux leaves it"
    sync.hear(push("r2", simple(weight=2)))
    assert findings(sync.state)["Suspended"][2] == f"{words}, r2 waits"


def followed(sync: Sync, snapshot: Snapshot, after_s: float) -> dict[str, tuple[bool | None, str, str]]:
    assert sync.fleet is not None
    sync.follow(sync.fleet, replace(snapshot, now_s=NOW + after_s))
    return findings(sync.state)


def test_applied_is_not_done() -> None:
    sync = in_force(fixed(4))
    assert findings(sync.state)["Ready"][:2] == (True, "Applied")
    assert findings(sync.state)["Done"][:2] == (False, "Progressing"), "before anybody has counted"
    words = "0 of 4 are as declared; left: " + "; ".join(
        f"pool/fixed/{n}: 0 of its 4 machines are ready" for n in range(3)
    )
    shown = followed(sync, machines(sync, 0), 1)
    assert shown["Done"] == (False, "Progressing", f"{words}; and 1 more")
    assert shown["Progressing"] == (True, "Converging", f"{words}; and 1 more")
    shown = followed(sync, machines(sync, 0), 901)
    assert (shown["Done"][:2], shown["Stalled"][:2]) == ((False, "Stalled"), (True, "NotConverging"))
    assert shown["Ready"][0] is True
    shown = followed(sync, machines(sync, 4), 1000)
    assert shown["Done"] == (True, "Done", "all 4 are as declared")
    assert not {"Progressing", "Stalled"} & shown.keys()
    sync.hear(push("r2", fixed(5)))
    settle(sync, machines(sync, 4), NOW + 1001)
    assert findings(sync.state)["Done"][1] == "Progressing", "another revision begins anew"


def test_a_revision_that_was_done_before_a_restart_is_not_done_again() -> None:
    sync = in_force(fixed(1))
    followed(sync, machines(sync, 1), 1)
    again = Sync()
    again.expect("r1", convergence=sync.state.convergence)
    again.hear(push("r1", fixed(1), restored=True))
    settle(again, EMPTY, NOW)
    assert followed(again, machines(again, 0), 60)["Done"][:2] == (True, "Done")


def test_a_stalled_revision_has_the_first_word_about_stalled() -> None:
    sync = in_force(fixed(4))
    followed(sync, machines(sync, 0), 1)
    followed(sync, machines(sync, 0), 901)
    sync.hear(push("r2", {"fleet.yaml": "kind: Nonsense"}))
    settle(sync, EMPTY, NOW + 902)
    shown = findings(sync.state)
    assert (shown["Stalled"][1], shown["Done"][1]) == ("Invalid", "Stalled")


def test_the_history_tells_who_and_by_which_plan() -> None:
    sync = in_force(simple(), author="Ada <ada@example.com>", signer="ada")
    assert sync.state.plan is not None
    report = sync_report("s", sync.state, 0, SyncReport("s"), Failures())
    (first,) = report.history
    assert (first.outcome, first.plan, first.author, first.signer, first.message) == (
        "Applied",
        sync.state.plan.plan_id,
        "Ada <ada@example.com>",
        "ada",
        "",
    )
    sync.hear(push("r2", {"fleet.yaml": "kind: Nonsense"}, author="Eve"))
    settle(sync, EMPTY, NOW + 1)
    second = sync_report("s", sync.state, 0, report, Failures()).history[0]
    assert (second.outcome, second.plan, second.author, second.signer) == ("Invalid", "", "Eve", "")
    assert second.message.startswith("2 problems; first: fleet.yaml:1:")


class Telling:
    """What is announced of a sync, as a publisher lets it be."""

    def __init__(self, sync: Sync, before: SyncReport | None = None) -> None:
        self.sync = sync
        self.said: list[Announce] = []
        self._announcer = SyncAnnouncer(self.said.append)
        self.report = before or SyncReport("s")
        self._announcer.continue_from(self.report)

    def events(self, failures: Failures | None = None) -> list[tuple[str, str]]:
        """Reason and type of each event since the last time."""
        self.said.clear()
        self.report = sync_report("s", self.sync.state, 0, self.report, failures or Failures())
        self._announcer.tell(self.sync.state, self.report)
        assert {it.about.kind for it in self.said} <= {"FleetSync"}
        return [(it.reason, it.type) for it in self.said]


def test_every_change_of_state_is_one_event() -> None:
    sync = Sync()
    telling = Telling(sync)
    assert telling.events() == [], "a process that starts is no news"
    sync.hear(push("r1", fixed(1), author="Ada", signer="ada@example.com"))
    settle(sync, EMPTY, NOW)
    assert telling.events() == [("Applied", "Normal")]
    assert sync.state.plan is not None
    told = f"r1 is in force (plan {sync.state.plan.plan_id}, by Ada, signed by ada@example.com)"
    assert telling.said[0].message == told
    assert telling.events() == []
    followed(sync, machines(sync, 0), 1)
    assert telling.events() == [("Progressing", "Normal")]
    followed(sync, machines(sync, 0), 901)
    assert telling.events() == [("Stalled", "Warning")]
    followed(sync, machines(sync, 1), 902)
    assert telling.events() == [("Done", "Normal")]
    sync.hear(SUSPEND)
    assert telling.events() == [("Suspended", "Normal")]
    sync.hear(push("r2", {"fleet.yaml": "kind: Nonsense"}))
    assert telling.events() == [], "what waits changes a sentence, no state"
    sync.hear(RESUME)
    settle(sync, EMPTY, NOW)
    assert telling.events() == [("Invalid", "Warning"), ("Resumed", "Normal")]
    sync.hear(push("r3", {"fleet.yaml": "kind: Nonsense"}))
    settle(sync, EMPTY, NOW)
    assert telling.events() == [("Invalid", "Warning")], "of another revision it is news"


def test_trouble_that_passes_is_no_event_and_trouble_that_stays_is_one() -> None:
    sync = in_force(simple())
    telling = Telling(sync)
    telling.events()
    sync.hear(SourceTrouble("Timeout", transient=True))
    assert telling.events() == []
    sync.hear(SourceWell())
    assert telling.events() == []
    sync.hear(SourceTrouble("HostKeyRejected", transient=False))
    assert telling.events() == [("SourceFailed", "Warning")]
    sync.hear(SourceWell())
    assert telling.events() == [("Applied", "Normal")]


def test_a_restart_tells_nothing_again() -> None:
    sync = in_force(fixed(1))
    telling = Telling(sync)
    telling.events()
    followed(sync, machines(sync, 1), 1)
    telling.events()
    again = Sync()
    later = Telling(again, telling.report)
    again.expect("r1", convergence=telling.report.convergence)
    assert later.events() == []
    again.hear(push("r1", fixed(1), restored=True))
    settle(again, EMPTY, NOW)
    assert later.events() == []


def test_a_roll_out_begins_with_its_revision_so_that_the_first_machine_bought_by_it_counts() -> None:
    """Deciders buy in the turn in which it comes into force, and the watchers hear of that turn a little later."""
    rollout = {"pools": ["fixed"], "pauseOnFailure": True}
    sync = in_force(fixed(1, policy(rollout=rollout)))
    assert sync.fleet is not None
    assert sync.state.rollout is not None
    assert sync.state.rollout.began_s == NOW
    before = sync.state.rollout
    sync.roll_out(sync.fleet, replace(EMPTY, now_s=NOW + 0.003))
    assert sync.state.rollout is before
    template = {"labels": {"mark": "new"}}
    sync.hear(push("r2", files(pool("fixed", replicas=1, template=template), *FIXED, policy(rollout=rollout))))
    settle(sync, EMPTY, NOW + 60.0)
    assert sync.state.rollout.began_s == NOW + 60.0
