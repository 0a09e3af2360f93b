"""The comment of a pull request: sections of clusters side by side, found again, bounded, and forged by nobody."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.plan import Plan
from fleet.review.commands import AskedFor, CommentCommand
from fleet.review.comment import (
    ANSWER_MOST,
    ANSWERS_MOST,
    PROBLEMS_MOST,
    Review,
    ReviewOutcome,
    answer,
    as_said,
    is_ours,
    said_in,
    with_heard,
    with_section,
)
from model.problem import Code, Problem, in_short
from tests.fleet.plan.test_render import HOSTILE
from tests.fleet.plan.test_render import plan as plan_of

HEAD, BASE, ID = "a" * 40, "b" * 40, "c" * 64
FORGED = (
    f"\n<!-- muster-section prod head={BASE} base= outcome=InForce plan= world={HEAD} heard=9 approvals=9 words= -->\n"
)


def plan(words: str, changes: int = 1) -> Plan:
    return replace(plan_of(words, changes), plan_id=ID)


def problem(words: str, line: int = 3) -> Problem:
    return Problem(words, line, 1, words, words, Code.INVALID_VALUE)


def reviews() -> st.SearchStrategy[Review]:
    words = st.one_of(st.sampled_from([*HOSTILE, FORGED]), st.text(max_size=60))
    return st.builds(
        Review,
        cluster=st.sampled_from(["dev", "prod", "prod-2"]),
        head=st.just(HEAD),
        base=st.sampled_from(["", BASE]),
        outcome=st.sampled_from(ReviewOutcome),
        sentence=words,
        plan=st.one_of(st.none(), st.builds(plan, words, st.sampled_from([1, 40]))),
        problems=st.lists(st.builds(problem, words), max_size=3).map(tuple),
        world=st.sampled_from(["", HEAD]),
        heard=st.integers(0, 10**12),
    )


def test_a_section_that_tells_no_digest_of_its_sentence_is_found_all_the_same() -> None:
    told = as_said(Review("prod", HEAD, BASE, ReviewOutcome.HELD, "a window", heard=9))
    text = with_section("", Review("prod", HEAD, BASE, ReviewOutcome.HELD, "a window", heard=9))
    assert said_in(text.replace(f" words={told.words} -->", " -->"), "prod") == told._replace(words="")


@given(st.lists(reviews(), min_size=1, max_size=5))
def test_what_was_said_last_of_each_cluster_is_found_again_and_nothing_else(said: list[Review]) -> None:
    text = ""
    for review in said:
        text = with_section(text, review)
    last = {it.cluster: as_said(it) for it in said}
    assert {name: said_in(text, name) for name in ("dev", "prod", "prod-2")} == {
        name: last.get(name) for name in ("dev", "prod", "prod-2")
    }
    assert is_ours(text)
    assert text.count("<!-- muster-section ") == text.count("<!-- /muster-section -->") == len(last)
    assert text.count("<!--") == 1 + 2 * len(last), "nobody else opens a comment of HTML"


@given(st.lists(reviews(), min_size=1, max_size=4), reviews())
def test_a_section_leaves_the_others_as_they_are(said: list[Review], another: Review) -> None:
    text = ""
    for review in said:
        text = with_section(text, review)
    others = {it.cluster for it in said} - {another.cluster}
    after = with_section(text, another)
    assert with_section(after, another) == after
    assert {it: said_in(after, it) for it in others} == {it: said_in(text, it) for it in others}


@pytest.mark.parametrize("order", ["abcdef", "fedcba", "cafebd"])
@pytest.mark.parametrize("changes", [1, 500])
def test_sections_share_the_room_of_a_comment(order: str, changes: int) -> None:
    text, full = "", plan("x" * 100, changes)
    for cluster in [*order, *reversed(order)]:
        text = with_section(text, Review(cluster, HEAD, BASE, ReviewOutcome.APPLIES, plan=full))
    assert len(text) <= 65_536
    assert [it for it in order if f"`{it}`" not in text] == [], "each has at least its verdict"


def test_an_invalid_change_is_so_for_its_errors_and_what_was_wrong_before_is_marked() -> None:
    problems = (replace(problem("old", 1), severity="warning"), problem("new", 2))
    review = Review("prod", HEAD, BASE, ReviewOutcome.INVALID, problems=problems)
    said = with_section("", review)
    assert said.index("new") < said.index("warning: old")
    assert review.summary == "is invalid: 1 problem"
    assert in_short(problems).startswith("1 problem: new:2:1")


def test_a_summary_without_anything_to_add_is_the_title_alone() -> None:
    assert Review("prod", HEAD, "", ReviewOutcome.IN_FORCE).summary == "is in force"


def test_many_problems_say_how_many_more_there_are() -> None:
    problems = tuple(problem("f.yaml", line) for line in range(1, PROBLEMS_MOST + 13))
    text = with_section("", Review("prod", HEAD, BASE, ReviewOutcome.INVALID, problems=problems))
    assert "- and 12 more" in text
    assert text.count("- f.yaml:") == PROBLEMS_MOST


def test_what_has_been_heard_is_kept_without_another_word() -> None:
    text = with_section("", Review("prod", HEAD, BASE, ReviewOutcome.APPLIES, plan=plan("x")))
    heard = with_heard(with_section(text, Review("dev", HEAD, BASE, ReviewOutcome.FAILED)), "prod", 42)
    assert (said_in(heard, "prod") or as_said(Review("", "", "", ReviewOutcome.FAILED))).heard == 42
    assert said_in(heard, "dev") == said_in(with_section(text, Review("dev", HEAD, BASE, ReviewOutcome.FAILED)), "dev")


@given(reviews())
def test_a_status_says_it_in_a_line(review: Review) -> None:
    assert len(review.summary) <= 140
    assert "\n" not in review.summary


def test_answers_stay_until_newer_ones_push_them_out() -> None:
    review = Review("prod", HEAD, BASE, ReviewOutcome.FAILED)
    text = with_section("", review)
    for number in range(ANSWERS_MOST + 1):
        text = with_heard(text, "prod", number, [answer(AskedFor(CommentCommand.WHY, f"job-{number}"), ["it waits"])])
    assert [f"/muster why job-{n}" in text for n in range(ANSWERS_MOST + 1)] == [False, *(True,) * ANSWERS_MOST]
    planned = with_section(text, Review("prod", "b" * 40, BASE, ReviewOutcome.INVALID))
    assert planned.count("<details>") == ANSWERS_MOST, "another plan leaves them"
    assert said_in(planned, "prod") is not None
    assert text.count("<!-- /muster-section -->") == planned.count("<!-- /muster-section -->") == 1


def test_an_answer_breaks_no_marker_and_no_fence() -> None:
    lines = ["```", "<!-- /muster-section -->", "<!-- muster-answer -->"] * 2000
    told = answer(AskedFor(CommentCommand.WHY, "x"), lines)
    assert told.count("<!--") == 2, "its own two"
    assert len(told) < ANSWER_MOST + 300
    assert "more lines" in told
