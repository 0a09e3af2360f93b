"""What comments of a request ask the agent for, answered by who may ask."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from agent.explanation import Otherwise, told_of
from agent.review.approvers import Approver
from agent.review.world import LastPass
from agent.web.seen import Explain
from fleet.explain.gang import GangExplanation
from fleet.review.commands import AskedFor, CommentCommand, NoCommand, commands_in
from fleet.review.comment import ANSWERS_MOST, SectionMarker, answer
from fleet.snapshot import Gang, GangState, Snapshot
from model.fleet import Fleet
from providers.forge.port import Comment, Forge, Permission, PullRequest

_STILL_TRIED: Final = "  what would help is still being tried; ask again in a minute"
_EDITED: Final = "a comment that was edited approves nothing, since others may have edited it; write another one"
_NOT_SHOWN: Final = "its head was not told of here when that was asked; look at what is said of it now, and ask again"
_QUESTIONS = frozenset({CommentCommand.WHY, CommentCommand.WHATIF})


class AskedInComments(NamedTuple):
    """What comments that nobody had heard asked for."""

    heard: int
    """The last of them, by id."""
    plan: bool = False
    approvers: tuple[Approver, ...] = ()
    answers: tuple[str, ...] = ()


def asked_in(
    forge: Forge,
    request: PullRequest,
    comments: Sequence[Comment],
    said: SectionMarker | None,
    head: str,
    told: Callable[[AskedFor], str],
    still_leading: Callable[[], None],
    after: Mapping[CommentCommand, str] = MappingProxyType({}),
) -> AskedInComments:
    """Answers commands that nobody has heard yet, questions by `told`; returns what they ask for.

    `after` the merge some are not done any more, for the reason there.

    Who may not write in the repository gets a thumb down, and so does who asks for something that is not done; why it
    is not is told those who may write.
    """
    heard, shown = said.heard if said else 0, said is not None and said.head == head
    undone = partial(_declined, forge, request, shown=shown, after=after)
    plan, approvers, answers = False, list[Approver](), list[str]()
    for comment in comments:
        if comment.ours or comment.id <= heard or not (commands := commands_in(comment.text)):
            continue
        may = may_write(forge, comment.author)
        declined = {it: why for it in commands if may and (why := undone(comment, it))}
        still_leading()
        forge.acknowledge(request.number, comment, accepted=may and not declined)
        heard = max(heard, comment.id)
        answers += (answer(it, [f"not done: {why}"]) for it, why in declined.items())
        done = [it for it in commands if may and it not in declined and isinstance(it, AskedFor)]
        plan = plan or any(it.command is CommentCommand.PLAN for it in done)
        if any(it.command is CommentCommand.APPROVE for it in done):
            approvers.append(Approver(comment.author, comment.created_at_s, commanded=True))
        answers += (told(it) for it in done if it.command in _QUESTIONS)
    return AskedInComments(heard, plan, tuple(approvers), tuple(answers[-ANSWERS_MOST:]))


def _declined(
    forge: Forge,
    request: PullRequest,
    comment: Comment,
    asked: AskedFor | NoCommand,
    *,
    shown: bool,
    after: Mapping[CommentCommand, str],
) -> str:
    """Returns why a command of somebody who may write is not done; empty where it is.

    A stranger's head is not planned, and none is approved, that was not told of before: another one may have been
    meant.
    """
    if isinstance(asked, NoCommand):
        return asked.why
    if asked.command in after:
        return after[asked.command]
    if asked.command is CommentCommand.APPROVE and comment.edited:
        return _EDITED
    if shown or asked.command in _QUESTIONS:
        return ""
    return "" if asked.command is CommentCommand.PLAN and may_write(forge, request.author) else _NOT_SHOWN


def answered(asked: AskedFor, world: LastPass, explain: Explain) -> str:
    """Returns what is said of the gang that a question is about, in the fleet in force."""
    wanted, found = dict(asked.changes), list[GangExplanation]()
    gpus = int(wanted["gpus"]) if "gpus" in wanted else None
    question = Otherwise(wanted.get("priority", ""), wanted.get("queue", ""), gpus)

    def noted(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> GangExplanation:
        found.append(explain(fleet, snapshot, gang))
        return found[-1]

    lines = list(told_of(asked.gang, question, world.fleet, world.snapshot, noted))
    waits = any(it.state == GangState.PENDING and it.advice is None for it in found)
    return answer(asked, [*lines, _STILL_TRIED] if waits else lines)


def may_write(forge: Forge, user: str) -> bool:
    """Returns whether somebody may write in the repository now."""
    return forge.permission(user) >= Permission.WRITE
