"""The comment of a pull request: a section for each cluster, each written by that cluster's agent, found by markers.

The forge keeps what was said; nobody else does. So a marker tells which head and which plan its section is about, and
an agent that starts anew, or another one, goes on where the last one stood. Markers are HTML comments: whatever comes
from a repository or a cluster is escaped (`model.plain_text`), and within fences, where nothing is, `<!--` is broken.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import zip_longest
from typing import Final, NamedTuple

from fleet.plan import Plan
from fleet.plan.render import clipped, to_markdown
from model.plain_text import code_span, counted, markdown
from model.problem import Problem

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
    r"heard=(?P<heard>[0-9]{1,20}) -->"
)
_ENDS: Final = "<!-- /muster-section -->"


class ReviewOutcome(StrEnum):
    """What becomes of a pull request in one cluster."""

    APPLIES = "Applies"
    HELD = "Held"
    REFUSED = "Refused"
    INVALID = "Invalid"
    CONFLICT = "Conflict"
    FAILED = "Failed"
    IN_FORCE = "InForce"


_TITLES: Final = {
    ReviewOutcome.APPLIES: "would come into force when it is merged",
    ReviewOutcome.HELD: "would wait for a freeze window to end",
    ReviewOutcome.REFUSED: "would be refused by the guard rails",
    ReviewOutcome.INVALID: "is invalid",
    ReviewOutcome.CONFLICT: "does not merge",
    ReviewOutcome.FAILED: "could not be planned",
    ReviewOutcome.IN_FORCE: "is in force",
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

    @property
    def summary(self) -> str:
        """Returns one line of at most 140 signs, for a commit status."""
        said = self.sentence or (
            f"plan {self.plan.plan_id[:12]}" if self.plan else counted(len(self.problems), "problem")
        )
        words = clipped(f"{_TITLES[self.outcome]}: {said}", 200)
        return words if len(words) <= 140 else f"{words[:137]}..."


class SectionMarker(NamedTuple):
    """What a section that stands says it is about; all as in `Review`."""

    cluster: str
    head: str
    base: str
    outcome: str
    plan: str
    world: str
    heard: int


def said_in(text: str, cluster: str) -> SectionMarker | None:
    """Returns what the comment says of a cluster; None where it says nothing of it."""
    found = next((it for it in _BEGINS.finditer(text) if it["cluster"] == cluster), None)
    return _said(found) if found else None


def _said(it: re.Match[str]) -> SectionMarker:
    return SectionMarker(
        it["cluster"], it["head"], it["base"], it["outcome"], it["plan"], it["world"], int(it["heard"])
    )


def _marker(it: SectionMarker) -> str:
    about = f"head={it.head} base={it.base} outcome={it.outcome} plan={it.plan} world={it.world} heard={it.heard}"
    return f"<!-- muster-section {it.cluster} {about} -->"


def is_ours(text: str) -> bool:
    """Returns whether a comment is the one with the sections."""
    return text.startswith(_FIRST)


def as_said(review: Review) -> SectionMarker:
    """Returns what a section of this review will say that it is about."""
    plan = review.plan.plan_id if review.plan else ""
    return SectionMarker(
        review.cluster, review.head, review.base, review.outcome.value, plan, review.world, review.heard
    )


def with_section(text: str, review: Review) -> str:
    """Returns the comment with the section of this review in place of the one of its cluster, or added to it.

    Sections stand in the order of clusters' names. Those of others stay as they are, ours gets half of the room they
    leave: nobody knows how many clusters are to come.
    """
    others = {name: body for name, body in _sections(text) if name != review.cluster}
    room = max(SECTION_LEAST, (COMMENT_MOST - sum(map(len, others.values())) - len(_FIRST)) // 2)
    sections = others | {review.cluster: _section(review, room)}
    return "\n\n".join([_FIRST, *(sections[name] for name in sorted(sections))]) + "\n"


def with_heard(text: str, cluster: str, heard: int) -> str:
    """Returns the comment with another last comment that its cluster's agent has looked at for commands."""
    return _BEGINS.sub(lambda it: _marker(_said(it)._replace(heard=heard)) if it["cluster"] == cluster else it[0], text)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yields (cluster, whole text) of the sections; one without an end ends where the next begins."""
    begins = list(_BEGINS.finditer(text))
    for found, following in zip_longest(begins, begins[1:]):
        body = text[found.start() : following.start() if following else len(text)]
        yield found["cluster"], f"{body.partition(_ENDS)[0].rstrip()}\n{_ENDS}"


def _section(review: Review, room: int) -> str:
    begins = _marker(as_said(review))
    blocks = [f"## {code_span(review.cluster)}: {code_span(review.head[:12])} {_TITLES[review.outcome]}"]
    if review.sentence:
        blocks.append(markdown(clipped(review.sentence, _LINE_MOST)))
    if review.problems:
        blocks.append("\n".join(_problems(review.problems)))
    room -= len(begins) + len(_ENDS) + 4
    kept = "\n\n".join(blocks)
    if review.plan is not None:
        kept += f"\n\n{to_markdown(review.plan, most=room - len(kept) - 2)}"
    harmless = kept.replace("<!--", "<!-\u200b-")[:room].rstrip()
    return f"{begins}\n\n{harmless}\n\n{_ENDS}"


def _problems(problems: Sequence[Problem]) -> Iterator[str]:
    for it in problems[:PROBLEMS_MOST]:
        yield f"- {markdown(clipped(str(it), _LINE_MOST))}"
    if (more := len(problems) - PROBLEMS_MOST) > 0:
        yield f"- and {more} more"


# -- what becomes of a request ----------------------------------------------------------------------------------------

REPLAN_S: Final = 300.0
"""A request is planned again in a world that has changed, or after a failure, at most this often."""
LOOKED_AT_S: Final = 24 * 3600.0
"""Nobody looks at a request that has not changed for this long: a changed world does not have it planned again."""
_UNOBSERVED: Final = (
    "Its author may not write in this repository: declarations are compared, without a look at the cluster. Somebody "
    "who may write has it planned in the cluster by a comment: /muster plan"
)
_AFTER_MERGE: Final = {
    "Applied": ReviewOutcome.IN_FORCE,
    "Refused": ReviewOutcome.REFUSED,
    "Frozen": ReviewOutcome.HELD,
    "Invalid": ReviewOutcome.INVALID,
}


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


def planned_review(review: Review, plan: Plan | None, problems: tuple[Problem, ...], *, observed: bool) -> Review:
    """Returns the review with what planning came to; `observed`: the plan looked at the cluster."""
    if plan is None:
        return replace(review, outcome=ReviewOutcome.INVALID, problems=problems)
    held = ReviewOutcome.HELD if plan.held else ReviewOutcome.APPLIES
    outcome = ReviewOutcome.REFUSED if plan.refusals else held
    return replace(review, outcome=outcome, sentence="" if observed else _UNOBSERVED, plan=plan)


def after_merge(outcome: str) -> ReviewOutcome:
    """Returns what became of a request, by the outcome that the FleetSync has for the revision it came from."""
    return _AFTER_MERGE.get(outcome, ReviewOutcome.FAILED)


# -- what people ask for ----------------------------------------------------------------------------------------------

_COMMAND: Final = re.compile(r"^/muster[ \t]+(?P<verb>[a-z-]{1,32})(?P<rest>[^\r\n]{0,200})\r?$", re.MULTILINE)


class CommentCommand(StrEnum):
    """What a comment may ask the agent for."""

    PLAN = "plan"


def command_in(text: str) -> CommentCommand | str | None:
    """Returns the command of a comment's first line that begins with `/muster`; a str names one that there is not."""
    found = _COMMAND.search(text)
    if found is None:
        return None
    verb = found["verb"]
    return (
        CommentCommand(verb)
        if verb in list(CommentCommand) and not found["rest"].strip()
        else f"{verb}{found['rest']}".strip()
    )
