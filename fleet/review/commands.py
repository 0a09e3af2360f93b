"""What comments of a pull request may ask the agent for."""

import re
from enum import StrEnum
from typing import Final, NamedTuple

_COMMAND: Final = re.compile(r"^/muster[ \t]+(?P<verb>[a-z-]{1,32})(?P<rest>[^\r\n]{0,200})\r?$", re.MULTILINE)
_NAME: Final = r"(?P<name>[a-z0-9][a-z0-9./-]{0,252})"
_CHANGE: Final = r"(?:priority=[a-z0-9.-]{1,63}|queue=[a-z0-9.-]{1,63}|gpus=[0-9]{1,4})"


class CommentCommand(StrEnum):
    """What a comment may ask the agent for."""

    PLAN = "plan"
    APPROVE = "approve"
    WHY = "why"
    WHATIF = "whatif"


_ARGUMENTS: Final = {
    CommentCommand.PLAN: re.compile(""),
    CommentCommand.APPROVE: re.compile(""),
    CommentCommand.WHY: re.compile(_NAME),
    CommentCommand.WHATIF: re.compile(rf"{_NAME}(?P<changes>(?:[ \t]+{_CHANGE}){{1,3}})"),
}


class AskedFor(NamedTuple):
    """A command with what it is about."""

    command: CommentCommand
    gang: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    """How the gang would be otherwise: (`priority`, `queue` or `gpus`, value)."""

    def __str__(self) -> str:
        return " ".join((f"/muster {self.command}", *filter(None, (self.gang,)), *map("=".join, self.changes)))


def command_in(text: str) -> AskedFor | str | None:
    """Returns the command of a comment's first line that begins with `/muster`; a str names one that there is not."""
    found = _COMMAND.search(text)
    if found is None:
        return None
    verb, rest = found["verb"], found["rest"].strip()
    form = _ARGUMENTS[CommentCommand(verb)].fullmatch(rest) if verb in list(CommentCommand) else None
    if form is None:
        return f"{verb} {rest}".strip()
    groups = form.groupdict()
    changes = tuple((key, value) for key, _, value in (it.partition("=") for it in groups.get("changes", "").split()))
    return AskedFor(CommentCommand(verb), groups.get("name", ""), changes)
