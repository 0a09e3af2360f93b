"""What comments of a request ask the agent for, answered by who may ask."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from agent.explanation import Otherwise, told_of
from agent.review.approvers import Approver
from agent.review.world import LastPass
from agent.web.seen import Explain
from fleet.explain.gang import GangExplanation
from fleet.review.commands import AskedFor, CommentCommand, command_in
from fleet.review.comment import ANSWERS_MOST, SectionMarker, answer
from fleet.snapshot import Gang, GangState, Snapshot
from model.fleet import Fleet
from providers.forge.port import Comment, Forge, Permission, PullRequest

_STILL_TRIED: Final = "  what would help is still being tried; ask again in a minute"
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
) -> AskedInComments:
    """Answers commands that nobody has heard yet, questions by `told`; returns what they ask for.

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
                answers.append(told(asked))
    return AskedInComments(heard, plan, tuple(approvers), tuple(answers[-ANSWERS_MOST:]))


def _accepts(forge: Forge, request: PullRequest, comment: Comment, command: CommentCommand, *, shown: bool) -> bool:
    if not may_write(forge, comment.author) or (command is CommentCommand.APPROVE and comment.edited):
        return False
    return shown or command in _QUESTIONS or (command is CommentCommand.PLAN and may_write(forge, request.author))


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
