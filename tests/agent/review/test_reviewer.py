"""Pull requests are planned in the observed world and answered in one comment each, whatever the forge does."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.explanation import explanation_lines
from agent.explanations import ExplanationKeeper
from agent.review.reviewer import REQUESTS_MOST, SOON_S
from agent.review.saying import WORDS_MOST
from agent.review.statuses import commit_status
from agent.review.world import LastPass
from agent.sync import SyncState
from fleet.cost.uses import CostTerms
from fleet.plan.convergence import Convergence, ConvergencePhase
from fleet.quota.queue_binding import payer_of
from fleet.review.comment import LOOKED_AT_S, REPLAN_S, Review, ReviewOutcome
from fleet.snapshot import Snapshot
from model.loader import load
from model.problem import Code, Problem
from providers.forge.port import ForgeError, ForgeRateLimited, ForgeUnreachable, Verdict
from tests.agent.review.forge import CommitsInMemory, commit
from tests.agent.review.place import BASE, HEAD, NEXT, STATUS, ReviewPlace, WhilePlanning, encoded, follows, two_pools
from tests.agent.scenes import CATALOG, doc, files, pool, queue, simple, team
from tests.fleet.plan.test_render import plan
from tests.support.fleets import NOW, gang
from tests.support.world import World

GUARDED = doc("FleetPolicy", "policy", guardRails={"maxNodesAdded": 1})


def fixed(replicas: int) -> dict[str, str]:
    quotas = {"fixed": {"nvidia.com/gpu": 64}}
    return files(pool("fixed", replicas=replicas), team(quotas=quotas), queue(flavors=("fixed",)), GUARDED)


def test_a_request_is_planned_once_and_answered_in_one_comment_and_a_status() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    assert place.reviewer.look() == 60.0
    text = place.forge.text(7)
    assert text.index("would come into force") < text.index("more") < text.index("<!-- /muster-section -->")
    assert place.verdict()[0] is Verdict.SUCCESS
    place.reviewer.look()
    assert place.restarted().look() == 60.0
    assert place.forge.writes == 1, "what is said already is not said again, by no agent"
    assert len(place.forge.statuses[HEAD]) == 1


def test_a_thousand_pushes_are_one_comment_and_only_the_last_is_planned() -> None:
    place = ReviewPlace()
    for number in range(1000):
        place.proposes(two_pools(), commit(100 + number))
    place.reviewer.look()
    assert (place.forge.writes, place.counted) == (1, ["Applies"])
    place.proposes(simple(limits={"nodes": 3}), NEXT)
    place.reviewer.look()
    assert NEXT[:12] in place.forge.text(7)
    assert place.forge.writes == 2


@pytest.mark.parametrize(
    ("before", "after", "verdict", "words"),
    [
        pytest.param(fixed(1), fixed(9), Verdict.FAILURE, "refused by the guard rails", id="a rail refuses it"),
        pytest.param(simple(), {"fleet.yaml": "kind: Nothing\n"}, Verdict.FAILURE, "is invalid", id="invalid"),
        pytest.param(simple(), None, Verdict.FAILURE, "does not merge", id="in conflict with the base"),
        pytest.param(
            files(pool(), team(), queue(), doc("FleetPolicy", "p", freezeWindows=[
                {"name": "always", "schedule": "* * * * *", "duration": "1h", "blocks": ["Sync"]}])),
            files(pool(), pool("more"), team(), queue()), Verdict.PENDING, "is held back", id="a window holds it"),
    ],
)  # fmt: skip
def test_what_is_said_first(before: dict[str, str], after: dict[str, str] | None, verdict: Verdict, words: str) -> None:
    place = ReviewPlace(before)
    place.proposes(after)
    place.reviewer.look()
    assert words in place.forge.text(7).splitlines()[4]
    assert place.verdict()[0] is verdict
    assert words in place.verdict()[1]


def test_a_status_names_the_rail_that_refuses() -> None:
    place = ReviewPlace(fixed(1))
    place.proposes(fixed(9))
    place.reviewer.look()
    assert place.verdict()[1].startswith("is refused by the guard rails: it adds 8 machines, guardRails.")


def test_a_status_names_the_window_that_holds_a_request_back() -> None:
    window = {"name": "fair", "schedule": "* * * * *", "duration": "1h", "blocks": ["Sync"]}
    place = ReviewPlace(files(pool(), team(), queue(), doc("FleetPolicy", "p", freezeWindows=[window])))
    place.proposes(two_pools())
    place.reviewer.look()
    words = "is held back for now: freeze window fair is open, with no end in sight"
    assert place.verdict() == (Verdict.PENDING, words)


def test_problems_stand_at_their_lines() -> None:
    place = ReviewPlace()
    place.proposes({"clusters/prod/pools/a.yaml": "\n\nkind: Nothing\n"})
    place.reviewer.look()
    found = place.forge.statuses[HEAD][-1].annotations[0]
    assert (found.path, found.line) == ("clusters/prod/pools/a.yaml", 3)


def test_a_warning_of_before_stands_behind_what_makes_a_change_invalid() -> None:
    old = Problem("a.yaml", 1, 1, "", "too much", Code.QUOTA_BEYOND_LIMITS, severity="warning")
    new = Problem("z.yaml", 2, 1, "kind", "no such kind", Code.UNKNOWN_KIND, hint="did you mean 'Team'?")
    status = commit_status(Review("prod", HEAD, BASE, ReviewOutcome.INVALID, problems=(old, new)), "")
    assert [(it.path, it.message) for it in status.annotations] == [
        ("z.yaml", "kind: no such kind (did you mean 'Team'?)"),
        ("a.yaml", "warning: too much"),
    ]


def test_a_stranger_learns_nothing_of_the_cluster_until_somebody_who_may_asks() -> None:
    place = ReviewPlace(fixed(1))
    place.proposes(fixed(2), author="mallory")
    place.reviewer.look()
    assert "without a look at the cluster" in place.forge.text(7)
    assert place.verdict()[0] is Verdict.PENDING, "nobody knows what it would do there"
    assert "waits to be planned in the cluster" in place.verdict()[1]
    assert "/muster plan" in place.verdict()[1], "what is to be done is not cut off"
    assert "would come into force" not in place.forge.text(7)
    place.forge.comment(7, "mallory", "/muster plan")
    place.reviewer.look()
    assert "without a look at the cluster" in place.forge.text(7)
    place.forge.comment(7, "ada", "Fine.\n/muster plan")
    place.reviewer.look()
    assert "without a look at the cluster" not in place.forge.text(7)
    assert place.verdict()[0] is Verdict.SUCCESS
    place.restarted().look()
    assert [accepted for _, accepted in place.forge.answers] == [False, True], "each is answered once"
    assert "without a look at the cluster" not in place.forge.text(7)
    place.proposes(fixed(3), NEXT, author="mallory")
    place.reviewer.look()
    assert "without a look at the cluster" in place.forge.text(7), "what was allowed was another commit"


def test_why_a_gang_waits_is_answered_in_the_one_comment_for_who_may_know() -> None:
    place = ReviewPlace()
    world = World(place.world.fleet, NOW, CATALOG)
    world.waits(gang("train", queue=next(iter(place.world.fleet.queues))))
    place.world = LastPass(place.world.fleet, world.snapshot())
    place.proposes(two_pools())
    place.reviewer.look()
    place.forge.comment(7, "mallory", "/muster why train")
    place.forge.comment(7, "ada", "/muster why train")
    place.forge.comment(7, "ada", "/muster whatif train gpus=4")
    place.forge.comment(7, "ada", "/muster why nobody")
    place.reviewer.look()
    assert [accepted for _, accepted in place.forge.answers] == [False, True, True, True]
    text = place.forge.text(7)
    assert "state:    Pending" in text
    assert "with 4 GPUs a pod:" in text
    assert "no workload 'nobody'" in text
    writes = place.forge.writes
    place.reviewer.look()
    assert place.forge.writes == writes, "it is answered once"


def test_what_was_found_in_idle_time_is_answered_as_well_as_on_the_command_line() -> None:
    place = ReviewPlace()
    world = World(place.world.fleet, NOW, CATALOG)
    world.waits(gang("train", queue=next(iter(place.world.fleet.queues))))
    place.world = LastPass(place.world.fleet, world.snapshot())
    place.proposes(two_pools())
    place.reviewer.look()
    place.forge.comment(7, "ada", "/muster why train")
    place.reviewer.look()
    assert "still being tried; ask again" in place.forge.text(7)
    keeper = ExplanationKeeper(place.clock.monotonic, CostTerms(payer_of))
    keeper.turned(*place.world)
    while keeper.work():
        pass
    place.reviewer.explain = keeper.explain
    place.forge.comment(7, "ada", "/muster whatif train priority=none")
    place.reviewer.look()
    (gang_now,) = place.world.snapshot.gangs.values()
    told = list(explanation_lines(keeper.explain(*place.world, gang_now)))
    assert any("would help:" in line for line in told), told
    for line in told:
        assert line in place.forge.text(7)
    assert "no ledger" in place.forge.text(7)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/muster apply", "there is no such command; there are /muster plan, "),
        ("/muster plan now", "it is written /muster plan"),
        ("/muster", "there is no such command"),
        ("/muster approve", "its head was not told of here"),
    ],
)
def test_a_command_that_is_not_done_gets_a_thumb_down_and_a_reason(text: str, why: str) -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.forge.comment(7, "mallory", text)
    place.reviewer.look()
    assert "not done" not in place.forge.text(7), "who may not write has nothing written"
    place = ReviewPlace()
    place.proposes(two_pools())
    place.forge.comment(7, "ada", text)
    place.reviewer.look()
    assert [accepted for _, accepted in place.forge.answers] == [False]
    assert f"not done: {why}" in place.forge.text(7)
    assert f"<code>{text}</code>" in place.forge.text(7) or f"`{text}`" in place.forge.text(7)


def test_an_edited_approval_is_told_to_be_none() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()
    place.forge.comment(7, "ada", "/muster approve")
    place.forge.said[7] = [replace(it, updated_at_s=100.0) for it in place.forge.said[7]]
    place.reviewer.look()
    assert [accepted for _, accepted in place.forge.answers] == [False]
    assert "not done: a comment that was edited approves nothing" in place.forge.text(7)


def test_of_several_commands_each_is_done_or_told_not_to_be() -> None:
    place = ReviewPlace(fixed(1))
    place.proposes(fixed(2), author="mallory")
    place.reviewer.look()
    place.forge.comment(7, "ada", "/muster why a\n/muster plan\n/muster aprove")
    place.reviewer.look()
    assert [accepted for _, accepted in place.forge.answers] == [False]
    text = place.forge.text(7)
    assert "without a look at the cluster" not in text
    assert "no workload 'a'" in text
    assert "not done: there is no such command" in text


def test_a_changed_world_is_planned_again_now_and_then_while_somebody_looks() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()

    def changed(after_s: float) -> int:
        place.clock.advance(after_s)
        place.world = LastPass(place.world.fleet, Snapshot(now_s=place.clock.now(), catalog=CATALOG))
        place.reviewer.look()
        return len(place.counted)

    assert changed(REPLAN_S - 1.0) == 1
    assert changed(1.0) == 2
    assert place.forge.writes == 1, "the plan is the same"
    assert changed(LOOKED_AT_S) == 2


def test_what_we_write_ourselves_is_nobody_who_looks() -> None:
    """GitHub counts the edit of a comment as a change of its request."""
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()

    def changed(after_s: float) -> int:
        place.clock.advance(after_s)
        place.world = LastPass(place.world.fleet, Snapshot(now_s=place.clock.now(), catalog=CATALOG))
        place.forge.requests[7] = replace(place.forge.requests[7], updated_at_s=place.clock.now() - 1.0)
        place.reviewer.look()
        return len(place.counted)

    assert changed(REPLAN_S) == 2
    assert changed(LOOKED_AT_S) == 2
    place.forge.comment(7, "grace", "What of this?", place.clock.now())
    assert changed(REPLAN_S) == 3


def test_another_base_is_planned_at_once() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()
    place.commits.refs["refs/heads/main"] = NEXT
    place.reviewer.look()
    assert place.counted == ["Applies", "Applies"]


def test_a_base_that_comes_into_force_after_the_request_was_planned_is_not_told_as_its_own() -> None:
    """The forge tells of a push before the agent has planned it: requests are then planned in the fleet of before."""
    place = ReviewPlace()
    place.proposes(two_pools())
    place.commits.refs["refs/heads/main"] = NEXT
    place.reviewer.look()
    assert "nodepool/more" in place.forge.text(7)

    place.world = LastPass(load(encoded(two_pools())), place.world.snapshot)
    place.state = replace(place.state, attempted=f"main@sha1:{NEXT}", applied=f"main@sha1:{NEXT}")
    place.reviewer.look()

    assert "nodepool/more" not in place.forge.text(7)
    assert place.counted == ["Applies", "Applies"]
    place.reviewer.look()
    assert place.counted == ["Applies", "Applies"], "once"


def test_a_base_that_is_not_in_force_is_told_of() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.commits.refs["refs/heads/main"] = NEXT
    place.reviewer.look()
    assert "is not in force" not in place.forge.text(7), "nobody has attempted it yet"

    place.state = replace(place.state, attempted=f"main@sha1:{NEXT}", outcome="Refused")
    place.reviewer.look()
    said = place.forge.text(7).replace("\\", "")
    assert f"Its base {NEXT[:12]} is not in force (Refused), and what that changes is counted as well" in said

    place.state = replace(place.state, applied=place.state.attempted, outcome="Applied")
    place.reviewer.look()
    assert "is not in force" not in place.forge.text(7)


def test_while_the_cluster_is_suspended_nothing_would_come_into_force() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()
    place.state = replace(place.state, suspended=True, suspend_reason="an audit")
    place.reviewer.look()
    words = "is held back for now"
    assert place.verdict() == (Verdict.PENDING, f"{words}: No revision comes into force for now: an audit")
    assert "nodepool/more" in place.forge.text(7)

    place.forge.merges(7, NEXT)
    place.state = replace(place.state, observed=f"main@sha1:{NEXT}")
    place.reviewer.look()
    assert place.verdict(NEXT) == (Verdict.PENDING, f"{words}: No revision comes into force for now: an audit")
    assert f"`{NEXT[:12]}` {words}" in place.forge.text(7)

    revision = f"main@sha1:{NEXT}"
    place.state = replace(place.state, suspended=False, attempted=revision, applied=revision, message="in force now")
    place.reviewer.look()
    assert place.verdict(NEXT)[0] is Verdict.SUCCESS


def test_a_stranger_does_not_learn_why_a_cluster_is_suspended() -> None:
    place = ReviewPlace()
    place.state = replace(place.state, suspended=True, suspend_reason="an audit")
    place.proposes(two_pools(), author="stranger")
    place.reviewer.look()
    assert "an audit" not in place.forge.text(7)
    assert place.verdict()[0] is Verdict.PENDING
    place.reviewer.look()
    assert place.counted == ["Unobserved"], "it is planned once"


def test_a_merge_that_waits_for_resume_and_was_never_told_of_is_left_alone() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.forge.merges(7, NEXT)
    place.state = replace(place.state, suspended=True, observed=f"main@sha1:{NEXT}")
    place.reviewer.look()
    assert place.forge.writes == 0


def test_a_head_that_moved_meanwhile_is_not_told_of_and_looked_at_soon() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())

    class PushedTo(CommitsInMemory):
        def fetch_ref(self, name: str) -> str:
            if name != "refs/heads/main":
                place.proposes(two_pools(), NEXT)
            return super().fetch_ref(name)

    place.reviewer.commits = PushedTo(place.commits.refs, place.commits.merged)
    assert place.reviewer.look() == SOON_S
    assert (place.forge.writes, place.forge.statuses) == (0, {})
    assert place.reviewer.look() == 60.0
    assert (place.forge.writes, list(place.forge.statuses)) == (1, [NEXT])


def test_a_ref_that_is_not_the_head_is_told_of() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.commits.refs["refs/pull/7/head"] = NEXT
    place.reviewer.look()
    assert place.verdict()[0] is Verdict.FAILURE
    assert "another commit than the head" in place.verdict()[1]
    place.proposes(two_pools(), NEXT)
    place.reviewer.look()
    assert place.verdict(NEXT)[0] is Verdict.SUCCESS


def test_clusters_write_their_sections_into_the_same_comment() -> None:
    one = ReviewPlace()
    other = ReviewPlace(cluster="dev", forge=one.forge, commits=one.commits, clock=one.clock)
    one.proposes(two_pools())
    for _ in range(2):
        one.reviewer.look()
        other.reviewer.look()
    text = one.forge.text(7)
    assert text.index("`dev`") < text.index("`prod`")
    assert one.forge.writes == 2
    assert {it.name for it in one.forge.statuses[HEAD]} == {STATUS, "muster/dev"}


def test_an_agent_that_is_deposed_while_it_plans_leaves_the_forge_alone() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.forge.comment(7, "ada", "/muster plan")

    def deposed() -> None:
        place.leads = False

    place.reviewer.commits = WhilePlanning(place.commits, deposed)
    place.reviewer.look()
    assert (place.forge.writes, place.forge.statuses) == (0, {})
    assert place.told == []
    place.forge.comment(7, "ada", "/muster why train")
    place.reviewer.look()
    assert place.forge.answers == [(1, True)], "what was asked later is the next one's to answer"


@pytest.mark.parametrize("cluster", ["prod", "dev"])
def test_agents_that_plan_a_request_at_the_same_time_write_one_comment(cluster: str) -> None:
    """Of the same cluster, one of them deposed and not knowing it yet; or of another one, which is in its right."""
    one = ReviewPlace()
    other = ReviewPlace(cluster=cluster, forge=one.forge, commits=one.commits, clock=one.clock)
    one.proposes(two_pools())
    one.reviewer.commits = WhilePlanning(one.commits, other.reviewer.look)
    one.reviewer.look()
    text = one.forge.text(7)
    assert "`prod`" in text
    assert f"`{cluster}`" in text


def merged(outcome: str, message: str) -> Callable[[ReviewPlace], None]:
    def then(place: ReviewPlace) -> None:
        place.forge.merges(7, NEXT)
        place.state = SyncState(attempted=f"main@sha1:{NEXT}", outcome=outcome, message=message)

    return then


@pytest.mark.parametrize(
    ("then", "verdict", "words"),
    [
        (merged("Applied", "it is in force"), Verdict.SUCCESS, "is in force"),
        (merged("Refused", "removes 9 of 10 machines"), Verdict.FAILURE, "removes 9 of 10 machines"),
        (merged("Frozen", "window nights"), Verdict.PENDING, "window nights"),
        (merged("PlanningFailed", "KeyError"), Verdict.FAILURE, "could not be planned"),
    ],
)
def test_the_comment_follows_what_was_merged(then: Callable[[ReviewPlace], None], verdict: Verdict, words: str) -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()
    then(place)
    place.reviewer.look()
    place.state = replace(place.state, message="after a restart", plan=plan("another", 1))
    place.restarted().look()
    assert words in place.forge.text(7)
    assert place.verdict(NEXT)[0] is verdict
    assert place.forge.writes == 2


def test_the_comment_counts_what_is_left_to_do_until_it_is_done() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()
    place.forge.merges(7, NEXT)
    revision = f"main@sha1:{NEXT}"

    def stands(left: int, phase: str, message: str = "left: m1") -> str:
        told = f"{3 - left} of 3 are as declared; {message}"
        far = Convergence(revision, NOW, NOW, ConvergencePhase(phase), 3, left, told)
        place.state = SyncState(
            attempted=revision, applied=revision, outcome="Applied", message="it is in force", convergence=far
        )
        place.reviewer.look()
        place.reviewer.look()
        return place.forge.text(7)

    assert "1 of 3 are as declared; left: m1" in stands(2, "Progressing")
    assert "2 of 3 are as declared" in stands(1, "Progressing")
    assert "does not come forward" in stands(1, "Stalled")
    assert place.verdict(NEXT)[0] is Verdict.FAILURE
    assert "nothing of it is left to do" in stands(0, "Done", "")
    assert place.verdict(NEXT)[0] is Verdict.SUCCESS
    assert place.forge.writes == 5, "each is said once"
    assert [it.summary.partition("; left")[0] for it in place.forge.statuses[NEXT]] == [
        "is in force: 1 of 3 are as declared",
        "is in force: 2 of 3 are as declared",
        "is in force, and does not come forward: 2 of 3 are as declared",
        "is in force, and nothing of it is left to do",
    ], "and so does the status, once each"
    place.restarted().look()
    assert place.forge.writes == 5, "by whatever agent"


def test_words_alone_do_not_use_up_what_a_forge_takes_of_statuses_of_a_commit() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.forge.merges(7, NEXT)
    for left in range(WORDS_MOST + 20):
        follows(place, left, "Progressing", words=f"{left} are left")
    assert len(place.forge.statuses[NEXT]) == WORDS_MOST
    assert f"{left} are left" in place.forge.text(7), "the comment goes on"
    follows(place, 1, "Stalled")
    assert place.verdict(NEXT)[0] is Verdict.FAILURE
    assert len(place.forge.statuses[NEXT]) == WORDS_MOST + 1


def test_another_base_of_the_same_plan_is_no_other_status() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()
    place.commits.refs["refs/heads/main"] = NEXT
    place.reviewer.look()
    assert f"base={NEXT}" in place.forge.text(7)
    assert len(place.forge.statuses[HEAD]) == 1


def test_words_that_the_forge_did_not_take_are_said_once_it_does() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()
    place.state = replace(place.state, suspended=True)
    place.forge.fails_to_write = ForgeUnreachable("no answer")
    place.reviewer.look()
    assert place.verdict()[0] is Verdict.SUCCESS
    place.forge.fails_to_write = None
    place.reviewer.look()
    assert place.verdict()[0] is Verdict.PENDING
    assert "No revision comes into force" in place.forge.text(7)
    place.reviewer.look()
    assert place.forge.writes == 2


def test_a_sentence_that_changed_while_nobody_looked_is_said_by_the_next_agent() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.state = replace(place.state, suspended=True, suspend_reason="an audit")
    place.reviewer.look()
    place.state = replace(place.state, suspend_reason="a second audit")
    place.restarted().look()
    assert "for now: a second audit" in place.forge.text(7)
    assert place.verdict()[1].endswith("for now: a second audit")


@pytest.mark.parametrize("by_request", [True, False])
def test_a_deployment_follows_the_revision_until_it_is_done(by_request: bool) -> None:
    place = ReviewPlace()
    if by_request:
        place.proposes(two_pools())
        place.forge.merges(7, NEXT)
    for left, phase in ((2, "Progressing"), (1, "Stalled"), (0, "Done"), (0, "Done")):
        follows(place, left, phase)
    told = place.forge.deployed
    assert [it.verdict for it in told] == [Verdict.PENDING, Verdict.FAILURE, Verdict.SUCCESS]
    assert {(it.commit, it.environment, it.branch) for it in told} == {(NEXT, STATUS, "main")}
    assert all(bool(it.url) == by_request and len(it.summary) <= 140 for it in told)


@pytest.mark.parametrize("outcome", ["Refused", "Frozen", "Unapproved", "Invalid"])
def test_what_is_not_in_force_is_no_deployment(outcome: str) -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.forge.merges(7, NEXT)
    follows(place, 2, "Progressing", outcome)
    assert place.forge.deployed == []


def test_a_forge_that_takes_no_deployments_keeps_nothing_else_back() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.forge.merges(7, NEXT)
    place.forge.refuses_deployments = True
    follows(place, 2, "Progressing")
    assert "m1 is drifted" in place.forge.text(7)
    assert "may not deploy" in place.told[-1]
    place.forge.refuses_deployments = False
    follows(place, 0, "Done")
    assert "nothing of it is left to do" in place.forge.text(7)
    assert place.told[-1] == ""


def test_a_commit_that_came_without_a_request_is_nobodys() -> None:
    place = ReviewPlace()
    place.reviewer.look()
    assert (place.forge.writes, place.forge.statuses) == (0, {})


@pytest.mark.parametrize(
    ("error", "pause_s"),
    [
        (ForgeUnreachable("no answer"), 60.0),
        (ForgeRateLimited("secondary rate limit", NOW + 900.0), 900.0),
        (ForgeError("403: the token may not read pull requests"), 60.0),
    ],
)
def test_a_forge_that_fails_is_told_of_once_and_left_alone(error: ForgeError, pause_s: float) -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.forge.fails = error
    assert place.reviewer.look() == pause_s
    place.reviewer.look()
    place.clock.advance(pause_s)
    assert place.told == [f"{type(error).__name__}: {error}"]
    place.forge.fails = None
    place.reviewer.look()
    assert place.told[1:] == [""]
    assert place.verdict()[0] is Verdict.SUCCESS, "what was missed is caught up"


def test_a_forge_that_is_dead_for_an_hour_is_asked_now_and_then_and_caught_up_with() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()
    place.forge.fails = ForgeUnreachable("no answer")
    place.proposes(simple(limits={"nodes": 3}), NEXT)
    place.forge.comment(7, "ada", "/muster plan")
    asked, until_s = 0, place.clock.now() + 3600.0
    while place.clock.now() < until_s:
        place.clock.advance(place.reviewer.look())
        asked += 1
    assert asked == 60
    assert place.told == ["ForgeUnreachable: no answer"]
    place.forge.fails = None
    assert place.reviewer.look() == 60.0
    assert NEXT[:12] in place.forge.text(7)
    assert place.forge.answers == [(2, True)], "what was asked meanwhile is answered"
    assert place.verdict(NEXT)[0] is Verdict.SUCCESS
    assert place.told[1:] == [""]


def test_a_forge_that_wants_to_be_left_alone_is_whoever_delivers_meanwhile() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.forge.fails = ForgeRateLimited("secondary rate limit", NOW + 900.0)
    place.reviewer.look()
    place.forge.fails = None
    place.clock.advance(899.0)
    assert place.reviewer.look() == 1.0
    assert place.forge.writes == 0
    place.clock.advance(1.0)
    place.reviewer.look()
    assert place.forge.writes == 1


def test_a_strangers_head_that_nobody_was_shown_is_not_planned_in_the_cluster() -> None:
    place = ReviewPlace(fixed(1))
    place.proposes(fixed(2), author="mallory")
    place.reviewer.look()
    place.forge.comment(7, "ada", "/muster plan")
    place.proposes(fixed(3), NEXT, author="mallory")
    place.reviewer.look()
    assert [accepted for _, accepted in place.forge.answers] == [False]
    assert "without a look at the cluster" in place.forge.text(7)


def test_requests_beyond_the_most_are_told_of() -> None:
    place = ReviewPlace()
    for number in range(1, REQUESTS_MOST + 4):
        place.proposes(None, commit(number), number)
    place.reviewer.look()
    assert place.forge.writes == REQUESTS_MOST
    assert place.told == ["3 more open requests are not looked at, those that changed least lately"]


def test_a_base_that_cannot_be_fetched_is_told_of() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    del place.commits.refs["refs/heads/main"]
    place.reviewer.look()
    assert place.told == ["the base of requests cannot be fetched: RevisionNotFound: there is no refs/heads/main"]


def test_a_sick_request_does_not_stop_the_others() -> None:
    place = ReviewPlace()
    place.proposes(two_pools(), number=7)
    place.proposes(two_pools(), NEXT, number=8)
    place.forge.sick = frozenset({8})
    for _ in range(3):
        place.reviewer.look()
    assert place.verdict()[0] is Verdict.SUCCESS
    assert place.counted.count("ValueError") == 1, "it is left alone for a while"
    place.forge.sick = frozenset()
    place.clock.advance(60.0)
    place.reviewer.look()
    assert place.verdict(NEXT)[0] is Verdict.SUCCESS


def test_what_the_forge_refuses_of_one_request_is_told_until_it_is_done() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.forge.sick, place.forge.sickness = frozenset({7}), ForgeError("403: the token may not read comments")
    for _ in range(3):
        place.reviewer.look()
    assert place.told == ["request 7: 403: the token may not read comments"]
    place.forge.sick = frozenset()
    place.clock.advance(60.0)
    place.reviewer.look()
    assert place.told[1:] == [""]
    assert place.verdict()[0] is Verdict.SUCCESS


def test_a_status_that_was_refused_is_set_after_all() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.forge.refuses_statuses = True
    place.reviewer.look()
    assert place.forge.writes == 0, "the comment says that all is said"
    place.forge.refuses_statuses = False
    place.clock.advance(60.0)
    place.reviewer.look()
    assert (place.forge.writes, place.verdict()[0]) == (1, Verdict.SUCCESS)


def test_nothing_is_said_before_the_world_is_known() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.world = None  # type: ignore[assignment]
    assert place.reviewer.look() == 5.0
    assert place.forge.writes == 0
