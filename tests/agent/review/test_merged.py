"""Commands in comments of merged requests: all are answered, and those that come to nothing say why."""

from dataclasses import replace

import pytest

from agent.review.merged import HEARD_S, JUDGED_S
from agent.review.world import LastPass
from agent.sync import SyncState
from fleet.plan import make_plan
from model.loader import load
from providers.forge.port import ForgeError, Permission
from tests.agent.review.forge import commit
from tests.agent.review.place import HEAD, NEXT, ReviewPlace, encoded, follows, two_pools
from tests.agent.review.test_approving import asking, changed
from tests.agent.scenes import CATALOG, simple
from tests.support.fleets import NOW, gang
from tests.support.world import World

REVISION = f"main@sha1:{NEXT}"


def merged_place(phase: str = "Done") -> ReviewPlace:
    """The request was shown and merged, and its revision stands so."""
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()
    place.forge.merges(7, NEXT)
    follows(place, 0 if phase == "Done" else 2, phase)
    return place


def asks(place: ReviewPlace, text: str, author: str = "ada", number: int = 7) -> None:
    place.clock.advance(60.0)
    place.forge.comment(number, author, text, place.clock.now())
    place.reviewer.look()


def text_of(place: ReviewPlace) -> str:
    return place.forge.text(7).replace("\\", "")


@pytest.mark.parametrize(
    ("phase", "stands"),
    [
        ("Done", "is in force, and nothing of it is left to do"),
        ("Progressing", "is in force"),
        ("Stalled", "is in force, and does not come forward"),
    ],
)
def test_nothing_waits_for_an_approval_any_more_and_that_is_said(phase: str, stands: str) -> None:
    place = merged_place(phase)
    asks(place, "/muster approve")
    assert [accepted for _, accepted in place.forge.answers] == [False]
    assert f"not done: nothing waits for an approval: revision {NEXT[:12]} {stands}\n" in text_of(place)
    asks(place, "/muster plan\n/muster aprove")
    assert "not done: nothing is planned of it any more: revision" in text_of(place)
    assert "not done: there is no such command" in text_of(place)
    writes = place.forge.writes
    for _ in range(3):
        place.clock.advance(60.0)
        place.reviewer.look()
    place.restarted().look()
    assert (len(place.forge.answers), place.forge.writes) == (2, writes), "each is answered once, by whatever agent"


def test_a_revision_that_was_refused_waits_for_nobody_either() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()
    place.forge.merges(7, NEXT)
    follows(place, 2, "Progressing", "Refused")
    asks(place, "/muster approve")
    assert f"revision {NEXT[:12]} is refused by the guard rails" in text_of(place)


def test_why_a_gang_waits_is_answered_after_the_merge_as_before_it() -> None:
    place = merged_place()
    world = World(place.world.fleet, NOW, CATALOG)
    world.waits(gang("train", queue=next(iter(place.world.fleet.queues))))
    place.world = LastPass(place.world.fleet, world.snapshot())
    asks(place, "/muster why train")
    asks(place, "/muster why train", "mallory")
    assert [accepted for _, accepted in place.forge.answers] == [True, False]
    assert text_of(place).count("state:    Pending") == 1


def test_merged_requests_cost_one_question_a_look_and_their_comments_none() -> None:
    place = ReviewPlace()
    for number in range(1, 25):
        place.proposes(two_pools(), commit(100 + number), number)
    place.reviewer.look()
    for number in range(1, 25):
        place.forge.merges(number, commit(200 + number))
    follows(place, 0, "Done")
    for _ in range(8):  # until the merges are known to have been followed by others, and all have been read
        place.clock.advance(60.0)
        place.reviewer.look()
    listed, read = place.forge.listed, place.forge.read
    for _ in range(10):
        place.clock.advance(60.0)
        place.reviewer.look()
    assert (place.forge.listed - listed, place.forge.read - read) == (10, 0)
    asks(place, "/muster approve", number=3)
    assert [accepted for _, accepted in place.forge.answers] == [False]
    assert f"others have come after revision {commit(203)[:12]}" in place.forge.text(3)


def test_a_comment_of_the_same_second_is_not_missed() -> None:
    """The forge tells times in seconds; deliveries have it looked at again before the second is over."""
    place = merged_place()
    place.clock.advance(60.0)
    now_s = place.clock.now()
    place.forge.comment(7, "ada", "Thanks!", now_s)
    place.reviewer.look()
    place.clock.advance(0.2)
    place.reviewer.look()
    place.clock.advance(0.2)
    place.forge.comment(7, "ada", "/muster approve", now_s)
    place.reviewer.look()
    assert [accepted for _, accepted in place.forge.answers] == [False]


@pytest.mark.parametrize(("after_s", "answers"), [(HEARD_S - 60.0, 1), (HEARD_S + 60.0, 0)])
def test_what_was_asked_while_no_agent_ran_is_answered_for_a_day(after_s: float, answers: int) -> None:
    place = merged_place()
    place.forge.comment(7, "ada", "/muster approve", place.clock.now())
    place.clock.advance(after_s)
    place.forge.comment(7, "bob", "Any news?", place.clock.now())
    place.restarted().look()
    assert len(place.forge.answers) == answers


def test_what_is_asked_before_the_merge_is_judged_is_answered_once_it_is() -> None:
    place = ReviewPlace(asking())
    place.forge.may["eve"] = Permission.WRITE
    place.proposes(changed())
    place.reviewer.look()
    place.forge.merges(7, NEXT)
    asks(place, "/muster approve", "eve")
    place.state = replace(place.state, observed=REVISION)
    place.clock.advance(2 * JUDGED_S)
    place.reviewer.look()
    assert place.forge.answers == []
    plan = make_plan(place.world.fleet, load(encoded(changed())), place.world.snapshot, head_revision=NEXT)
    place.state = replace(place.state, attempted=REVISION, outcome="Unapproved", message="waits", plan=plan)
    place.reviewer.look()
    assert "not done: its head was not told of here" in text_of(place), "the plan of the merge is shown only now"
    asks(place, "/muster approve", "eve")
    assert [accepted for _, accepted in place.forge.answers] == [False, True]
    assert [it.user for it in place.merges[-1].given] == ["eve"]
    asks(place, "/muster plan", "eve")
    assert "planned again without being asked" in text_of(place), "and a plan is not passed over in silence"


def test_an_approval_while_a_window_holds_the_revision_counts_and_costs_nothing_until_then() -> None:
    place = ReviewPlace(asking())
    place.forge.may["eve"] = Permission.WRITE
    place.proposes(changed())
    place.reviewer.look()
    place.forge.merges(7, NEXT)
    plan = make_plan(place.world.fleet, load(encoded(changed())), place.world.snapshot, head_revision=NEXT)
    place.state = SyncState(attempted=REVISION, outcome="Frozen", message="nights", plan=plan)
    for _ in range(3):
        place.clock.advance(60.0)
        place.reviewer.look()
    read = place.forge.read
    place.clock.advance(60.0)
    place.reviewer.look()
    assert place.forge.read == read
    asks(place, "/muster approve", "eve")
    assert [accepted for _, accepted in place.forge.answers] == [True]
    assert [it.user for it in place.merges[-1].given] == ["eve"]


def test_while_the_cluster_is_suspended_questions_are_answered_and_an_approval_waits() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()
    place.forge.merges(7, NEXT)
    place.state = replace(place.state, suspended=True, observed=REVISION)
    asks(place, "/muster why nobody")
    asks(place, "/muster approve")
    asks(place, "/muster why anybody")
    assert [accepted for _, accepted in place.forge.answers] == [True]
    place.state = replace(place.state, suspended=False)
    follows(place, 0, "Done")
    assert [accepted for _, accepted in place.forge.answers] == [True, False, True]
    assert "nothing waits for an approval" in text_of(place)


def test_a_merge_that_changes_nothing_for_the_cluster_is_told_so() -> None:
    place = ReviewPlace()
    place.proposes(two_pools())
    place.reviewer.look()
    place.forge.merges(7, NEXT)
    place.state = replace(place.state, observed=REVISION, passed_by=REVISION)
    asks(place, "/muster approve")
    assert f"revision {NEXT[:12]} changes nothing for this cluster" in text_of(place)


def test_a_request_of_which_this_cluster_says_nothing_is_for_others_to_answer() -> None:
    place = merged_place()
    place.proposes(simple(), HEAD, 8)
    place.forge.merges(8, commit(8))
    place.clock.advance(JUDGED_S)
    place.reviewer.look()
    asks(place, "/muster approve", number=8)
    place.clock.advance(JUDGED_S)
    place.reviewer.look()
    assert place.forge.answers == []


def test_a_forge_that_does_not_list_merged_requests_keeps_nothing_else_back() -> None:
    place = merged_place()
    refusal = ForgeError("403: the token may not list closed pull requests")
    place.forge.refuses_lists = refusal
    place.clock.advance(60.0)
    place.proposes(two_pools(), commit(9), 9)
    place.reviewer.look()
    assert place.told[-1] == f"merged requests: {refusal}"
    assert "would come into force" in place.forge.text(9)
    place.forge.refuses_lists = None
    place.clock.advance(120.0)
    place.reviewer.look()
    assert place.told[-1] == ""
