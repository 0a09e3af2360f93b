"""The comment of a pull request: a section for each cluster, each written by that cluster's agent, found by markers.

The forge keeps what was said; nobody else does. So a marker tells which head and which plan its section is about, and
an agent that starts anew, or another one, goes on where the last one stood. Markers are HTML comments: whatever comes
from a repository or a cluster is escaped (`model.plain_text`), and within fences, where nothing is, `<!--` is broken.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from itertools import zip_longest
from typing import Final, NamedTuple

from fleet.plan import Plan
from fleet.plan.approvals import ApprovalState, ApprovalVerdict
from fleet.plan.convergence import Convergence, ConvergencePhase
from fleet.plan.render import clipped, to_markdown
from fleet.review.commands import AskedFor, NoCommand
from fleet.review.forecast import forecast_in, without_forecast
from model.plain_text import code_span, counted, fenced, markdown
from model.problem import Problem, errors_first

COMMENT_MOST: Final = 65_000
"""Signs of a comment: GitHub takes 65,536."""
SECTION_LEAST: Final = 600
"""So much room has a section whatever the others take: its verdict."""
PROBLEMS_MOST: Final = 50
_LINE_MOST: Final = 500
_FIRST: Final = "<!-- muster -->"
_BEGINS: Final = re.compile(
    r"<!-- muster-section (?P<cluster>[a-zA-Z0-9-]{1,63}) head=(?P<head>[0-9a-f]{40,64}) base=(?P<base>[0-9a-f]{0,64}) "
    r"outcome=(?P<outcome>[A-Za-z]+) plan=(?P<plan>[0-9a-f]{0,64}) world=(?P<world>[0-9a-f]{0,64}) "
    r"heard=(?P<heard>[0-9]{1,20}) approvals=(?P<approvals>[0-9]{1,4})(?: words=(?P<words>[0-9a-f]{0,16}))? -->"
)
_ENDS: Final = "<!-- /muster-section -->"
_ANSWER: Final = re.compile(r"<!-- muster-answer -->\n.*?\n<!-- /muster-answer -->", re.DOTALL)
ANSWERS_MOST: Final = 3
"""Answers that a section keeps: the last ones."""
ANSWER_MOST: Final = 4_000
"""Signs of an answer."""
MOVED: Final = "What Muster has to say stands in the first of its comments here.\n"
"""The text of a second comment, which two agents made that looked at the same moment."""


class ReviewOutcome(StrEnum):
    """What becomes of a pull request in one cluster."""

    APPLIES = "Applies"
    UNOBSERVED = "Unobserved"
    HELD = "Held"
    UNAPPROVED = "Unapproved"
    STALE = "Stale"
    REFUSED = "Refused"
    INVALID = "Invalid"
    CONFLICT = "Conflict"
    FAILED = "Failed"
    IN_FORCE = "InForce"
    DONE = "Done"
    STALLED = "Stalled"
    UNTOUCHED = "Untouched"


_TITLES: Final = {
    ReviewOutcome.APPLIES: "would come into force when it is merged",
    ReviewOutcome.UNOBSERVED: "waits to be planned in the cluster",
    ReviewOutcome.HELD: "is held back for now",
    ReviewOutcome.UNAPPROVED: "waits for approval",
    ReviewOutcome.STALE: "waits to be approved again",
    ReviewOutcome.REFUSED: "is refused by the guard rails",
    ReviewOutcome.INVALID: "is invalid",
    ReviewOutcome.CONFLICT: "does not merge",
    ReviewOutcome.FAILED: "could not be planned",
    ReviewOutcome.IN_FORCE: "is in force",
    ReviewOutcome.DONE: "is in force, and nothing of it is left to do",
    ReviewOutcome.STALLED: "is in force, and does not come forward",
    ReviewOutcome.UNTOUCHED: "changes nothing",
}


@dataclass(frozen=True, slots=True)
class Review:
    """What one cluster's agent has to say of a pull request."""

    cluster: str
    head: str
    """The commit it is about, in full."""
    base: str
    """The commit that it was merged into for this; empty once it is merged."""
    outcome: ReviewOutcome
    sentence: str = ""
    """What there is to say beside the plan."""
    plan: Plan | None = None
    problems: tuple[Problem, ...] = ()
    world: str = ""
    """The head for which somebody who may allowed a plan in the observed world, where its author may not ask."""
    heard: int = 0
    """The last comment that has been looked at for commands, by its id."""
    approvals: int = 0
    """How many approvals count."""
    answers: tuple[str, ...] = ()
    """New ones (`answer`) to questions in comments."""

    @property
    def summary(self) -> str:
        """Returns one line of at most 140 signs, for a commit status."""
        errors = sum(it.severity == "error" for it in self.problems)
        found = counted(errors, "problem") if errors else ""
        said = joined(self._why_not, self.sentence) or (f"plan {self.plan.plan_id[:12]}" if self.plan else found)
        words = clipped(": ".join(filter(None, (_TITLES[self.outcome], said))), 200)
        return words if len(words) <= 140 else f"{words[:137]}..."

    @property
    def _why_not(self) -> str:
        """Returns what keeps it from coming into force by its plan: the window with its end, or the first refusal."""
        if self.plan is None or not self.base:
            return ""
        if self.outcome is ReviewOutcome.HELD:
            return self.plan.held.removeprefix("held: ")
        return self.plan.refusals[0] if self.outcome is ReviewOutcome.REFUSED else ""


class SectionMarker(NamedTuple):
    """What a section that stands says it is about; all as in `Review`, but for `words`: a digest of its sentence."""

    cluster: str
    head: str
    base: str
    outcome: str
    plan: str
    world: str
    heard: int
    approvals: int
    words: str


def said_in(text: str, cluster: str) -> SectionMarker | None:
    """Returns what the comment says of a cluster; None where it says nothing of it."""
    found = next((it for it in _BEGINS.finditer(text) if it["cluster"] == cluster), None)
    return _said(found) if found else None


def _said(it: re.Match[str]) -> SectionMarker:
    return SectionMarker(
        it["cluster"],
        it["head"],
        it["base"],
        it["outcome"],
        it["plan"],
        it["world"],
        int(it["heard"]),
        int(it["approvals"]),
        it["words"] or "",
    )


def _marker(it: SectionMarker) -> str:
    about = f"head={it.head} base={it.base} outcome={it.outcome} plan={it.plan} world={it.world} heard={it.heard}"
    return f"<!-- muster-section {it.cluster} {about} approvals={it.approvals} words={it.words} -->"


def is_ours(text: str) -> bool:
    """Returns whether a comment is the one with the sections."""
    return text.startswith(_FIRST)


def as_said(review: Review) -> SectionMarker:
    """Returns what a section of this review will say that it is about."""
    plan = review.plan.plan_id if review.plan else ""
    return SectionMarker(
        review.cluster,
        review.head,
        review.base,
        review.outcome.value,
        plan,
        review.world,
        review.heard,
        review.approvals,
        _digest(review.sentence),
    )


def _digest(sentence: str) -> str:
    return blake2b(sentence.encode(errors="surrogatepass"), digest_size=8).hexdigest() if sentence else ""


def with_section(text: str, review: Review) -> str:
    """Returns the comment with the section of this review in place of the one of its cluster, or added to it.

    Sections stand in the order of clusters' names. Those of others stay as they are, ours gets half of the room they
    leave: nobody knows how many clusters are to come.
    """
    bodies = dict(_sections(text))
    before = bodies.get(review.cluster, "")
    kept = [*filter(None, [forecast_in(before, review.head, review.base)]), *_kept_answers(before, review.answers)]
    others = {name: body for name, body in bodies.items() if name != review.cluster}
    room = max(SECTION_LEAST, (COMMENT_MOST - sum(map(len, others.values())) - len(_FIRST)) // 2)
    sections = others | {review.cluster: _section(review, room, kept)}
    return "\n\n".join([_FIRST, *(sections[name] for name in sorted(sections))]) + "\n"


def with_heard(text: str, cluster: str, heard: int, answers: Sequence[str] = ()) -> str:
    """Returns the comment with another last comment that its cluster's agent has looked at, and what it answers."""
    bodies = dict(_sections(text))
    body = _BEGINS.sub(lambda it: _marker(_said(it)._replace(heard=heard)), bodies[cluster], count=1)
    if answers:
        kept = _kept_answers(body, answers)
        body = "\n\n".join([_ANSWER.sub("", body.removesuffix(_ENDS)).rstrip(), *kept, _ENDS])
    return "\n\n".join([_FIRST, *((bodies | {cluster: body})[name] for name in sorted(bodies))]) + "\n"


def with_forecast(text: str, cluster: str, forecast: str) -> str:
    """Returns the comment with a forecast (`forecast_block`) in its cluster's section, before the answers.

    Unchanged where the section is gone, or there is no room.
    """
    bodies = dict(_sections(text))
    if cluster not in bodies:
        return text
    answers = _ANSWER.findall(bodies[cluster])
    body = without_forecast(_ANSWER.sub("", bodies[cluster].removesuffix(_ENDS))).rstrip()
    sections = bodies | {cluster: "\n\n".join([body, forecast, *answers, _ENDS])}
    whole = "\n\n".join([_FIRST, *(sections[name] for name in sorted(sections))]) + "\n"
    return whole if len(whole) <= COMMENT_MOST else text


def has_forecast(text: str, cluster: str, head: str, base: str) -> bool:
    """Returns whether the comment has a forecast of this head and base in its cluster's section."""
    return bool(forecast_in(dict(_sections(text)).get(cluster, ""), head, base))


def section_of(text: str, cluster: str) -> str:
    """Returns the section of a cluster as it stands in the comment; empty where there is none."""
    return dict(_sections(text)).get(cluster, "")


def with_kept(text: str, cluster: str, section: str) -> str:
    """Returns the comment with a section as it stood, in its place."""
    sections = dict(_sections(text)) | {cluster: section}
    return "\n\n".join([_FIRST, *(sections[name] for name in sorted(sections))]) + "\n"


def gathered(texts: Sequence[str]) -> str:
    """Returns the first of several comments with the sections that only later ones have; empty for none."""
    whole = texts[0] if texts else ""
    for text in texts[1:]:
        for cluster, section in _sections(text):
            whole = whole if section_of(whole, cluster) else with_kept(whole, cluster, section)
    return whole


def answer(asked: AskedFor | NoCommand, lines: Sequence[str]) -> str:
    """Returns what a section shows of a command and the answer to it, folded."""
    told = fenced(clipped_lines("\n".join(lines), ANSWER_MOST)).replace("<!--", "<!-\u200b-")
    title = f"<summary>{code_span(str(asked))}</summary>"
    return f"<!-- muster-answer -->\n<details>{title}\n\n{told}\n\n</details>\n<!-- /muster-answer -->"


def clipped_lines(text: str, most: int) -> str:
    """Returns as many whole lines as have room."""
    if len(text) <= most:
        return text
    shown = text[:most].rpartition("\n")[0]
    return f"{shown}\n... {text.count(chr(10)) - shown.count(chr(10))} more lines"


def _kept_answers(body: str, new: Sequence[str]) -> list[str]:
    return [*_ANSWER.findall(body), *new][-ANSWERS_MOST:]


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yields (cluster, whole text) of the sections; one without an end ends where the next begins."""
    begins = list(_BEGINS.finditer(text))
    for found, following in zip_longest(begins, begins[1:]):
        body = text[found.start() : following.start() if following else len(text)]
        yield found["cluster"], f"{body.partition(_ENDS)[0].rstrip()}\n{_ENDS}"


def _section(review: Review, room: int, more: Sequence[str]) -> str:
    """Returns the section; `more` blocks, which are harmless already, follow what there is to say."""
    begins = _marker(as_said(review))
    blocks = [f"## {code_span(review.cluster)}: {code_span(review.head[:12])} {_TITLES[review.outcome]}"]
    if review.sentence:
        blocks.append(markdown(clipped(review.sentence, _LINE_MOST)))
    if review.problems:
        blocks.append("\n".join(_problems(review.problems)))
    room = max(SECTION_LEAST, room - len(begins) - len(_ENDS) - 4 - sum(len(it) + 2 for it in more))
    kept = "\n\n".join(blocks)
    if review.plan is not None:
        kept += f"\n\n{to_markdown(review.plan, most=room - len(kept) - 2)}"
    harmless = kept.replace("<!--", "<!-\u200b-")[:room].rstrip()
    return "\n\n".join([begins, harmless, *more, _ENDS])


def _problems(problems: Sequence[Problem]) -> Iterator[str]:
    for it in errors_first(problems)[:PROBLEMS_MOST]:
        kind = "warning: " if it.severity == "warning" else ""
        yield f"- {markdown(clipped(f'{kind}{it}', _LINE_MOST))}"
    if (more := len(problems) - PROBLEMS_MOST) > 0:
        yield f"- and {more} more"


# -- what becomes of a request ----------------------------------------------------------------------------------------

REPLAN_S: Final = 300.0
"""A request is planned again in a world that has changed, or after a failure, at most this often."""
LOOKED_AT_S: Final = 24 * 3600.0
"""Nobody looks at a request that has not changed for this long: a changed world does not have it planned again."""
_UNOBSERVED: Final = (
    "Its author may not write here; somebody who may has it planned by a comment: /muster plan. Until then "
    "declarations are compared, without a look at the cluster"
)
_WAIT_FOR_APPROVAL: Final = frozenset({ReviewOutcome.APPLIES, ReviewOutcome.HELD, ReviewOutcome.UNOBSERVED})
"""Outcomes before which a missing approval goes."""
_AFTER_MERGE: Final = {
    "Applied": ReviewOutcome.IN_FORCE,
    "Refused": ReviewOutcome.REFUSED,
    "Frozen": ReviewOutcome.HELD,
    "Suspended": ReviewOutcome.HELD,
    "Unapproved": ReviewOutcome.UNAPPROVED,
    "Stale": ReviewOutcome.STALE,
    "Invalid": ReviewOutcome.INVALID,
}

_IS_IN_FORCE: Final = re.compile(r"\S+ is in force")


def is_due(
    said: SectionMarker, head: str, base: str, planned_s: float, *, unchanged_s: float, world_changed: bool
) -> bool:
    """Returns whether what was said of a request may not be so any more.

    `planned_s` ago it was planned last, and the request has not changed for `unchanged_s`.
    """
    if (said.head, said.base) != (head, base):
        return True
    if planned_s < REPLAN_S:
        return False
    return said.outcome == ReviewOutcome.FAILED or (world_changed and unchanged_s < LOOKED_AT_S)


def planned_review(
    review: Review, plan: Plan | None, problems: tuple[Problem, ...], *, observed: bool, suspended: bool = False
) -> Review:
    """Returns the review with what planning came to; `observed`: the plan looked at the cluster.

    `suspended`: somebody has asked that no revision comes into force there.
    """
    if plan is None:
        return replace(review, outcome=ReviewOutcome.INVALID, problems=problems)
    held = ReviewOutcome.HELD if plan.held or suspended else ReviewOutcome.APPLIES
    found = held if observed else ReviewOutcome.UNOBSERVED
    outcome = ReviewOutcome.REFUSED if plan.refusals else found
    return replace(review, outcome=outcome, sentence="" if observed else _UNOBSERVED, plan=plan)


def approved_review(review: Review, verdict: ApprovalVerdict) -> Review:
    """Returns the review of a plan with what those have to say of it who have to agree."""
    outcome = review.outcome
    if verdict.holds_back and outcome in _WAIT_FOR_APPROVAL:
        outcome = ReviewOutcome.STALE if verdict.state is ApprovalState.STALE else ReviewOutcome.UNAPPROVED
    words = " ".join(f"{it.rstrip('.')}." for it in (verdict.sentence, review.sentence) if it)
    return replace(review, outcome=outcome, sentence=words, approvals=len(verdict.by))


def after_merge(outcome: str, message: str, progress: Convergence | None) -> tuple[ReviewOutcome, str]:
    """Returns what became of a request, and the sentence to it, by what the FleetSync has of the revision it came from.

    `progress` is how far that has come, once it is in force. That it is so is the outcome, and needs no sentence.
    """
    found = _AFTER_MERGE.get(outcome, ReviewOutcome.FAILED)
    message = "" if found is ReviewOutcome.IN_FORCE and _IS_IN_FORCE.fullmatch(message) else message
    if found is not ReviewOutcome.IN_FORCE or progress is None or not progress.counted:
        return found, message
    if progress.phase is ConvergencePhase.DONE:
        return ReviewOutcome.DONE, message
    told = joined(message, progress.message)
    return (ReviewOutcome.STALLED if progress.phase is ConvergencePhase.STALLED else found), told


def stands(commit: str, outcome: ReviewOutcome) -> str:
    """Returns the words for what became of a revision, as of the title of its section."""
    return f"revision {commit[:12]} {_TITLES[outcome]}"


def base_not_in_force(base: str, attempted: str, applied: str, outcome: str) -> str:
    """Returns the sentence to a plan whose base changes something itself: a revision that was attempted in vain.

    Nothing where the base is in force, or nobody has attempted it yet.
    """
    if attempted == applied or attempted.rpartition(":")[2] != base:
        return ""
    return f"Its base {base[:12]} is not in force ({outcome}), and what that changes is counted as well"


def joined(*clauses: str) -> str:
    """Returns clauses as one sentence, without those that say nothing."""
    return "; ".join(filter(None, clauses))
