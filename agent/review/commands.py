"""What comments of a request ask the agent for, answered by who may ask."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from agent.explanation import Otherwise, told_of
from agent.review.approvers import Approver
from agent.review.world import LastPass
from agent.web.seen import explained_at_once
from fleet.review.commands import AskedFor, CommentCommand, command_in
from fleet.review.comment import ANSWERS_MOST, SectionMarker, answer
from providers.forge.port import Comment, Forge, Permission, PullRequest

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
    world: LastPass,
    still_leading: Callable[[], None],
) -> AskedInComments:
    """Answers commands that nobody has heard yet; returns what they ask for.

    Who may not write in the repository gets a thumb down, and so does a command that there is not, one for a
    stranger's head that was not yet told of, and an approval of what was not: another one may have been meant.
    """
    heard, shown = said.heard if said else 0, said is not None and said.head == head
    plan, approvers, answers = False, [], []
    for comment in comments:
        if comment.ours or comment.id <= heard or (asked := command_in(comment.text)) is None:
            continue
        accepted = not isinstance(asked, str) and _accepts(forge, request, comment, asked.command, shown=shown)
        still_leading()
        forge.acknowledge(request.number, comment, accepted=accepted)
        heard = max(heard, comment.id)
        if isinstance(asked, str) or not accepted:
            continue
        match asked.command:
            case CommentCommand.PLAN:
                plan = True
            case CommentCommand.APPROVE:
                approvers.append(Approver(comment.author, comment.created_at_s, commanded=True))
            case _:
                answers.append(_answered(asked, world))
    return AskedInComments(heard, plan, tuple(approvers), tuple(answers[-ANSWERS_MOST:]))


def _accepts(forge: Forge, request: PullRequest, comment: Comment, command: CommentCommand, *, shown: bool) -> bool:
    if not may_write(forge, comment.author) or (command is CommentCommand.APPROVE and comment.edited):
        return False
    return shown or command in _QUESTIONS or (command is CommentCommand.PLAN and may_write(forge, request.author))


def _answered(asked: AskedFor, world: LastPass) -> str:
    wanted = dict(asked.changes)
    gpus = int(wanted["gpus"]) if "gpus" in wanted else None
    question = Otherwise(wanted.get("priority", ""), wanted.get("queue", ""), gpus)
    return answer(asked, list(told_of(asked.gang, question, world.fleet, world.snapshot, explained_at_once)))


def may_write(forge: Forge, user: str) -> bool:
    """Returns whether somebody may write in the repository now."""
    return forge.permission(user) >= Permission.WRITE
