"""What comments of a pull request may ask the agent for."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

_LINE: Final = re.compile(r"^/muster(?![^ \t\r\n])[ \t]*(?P<verb>[^ \t\r\n]*)(?P<rest>[^\r\n]*)", re.MULTILINE)
_FENCED: Final = re.compile(
    r"^ {0,3}(?P<fence>(?P<sign>[`~])(?P=sign){2,}+)(?!(?<=`)[^\n]*`)"
    r".*?(?:^ {0,3}(?P=fence)(?P=sign)*[ \t]*\r?$|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""A fenced block of Markdown: what stands in it is shown, and not said."""
COMMANDS_MOST: Final = 5
"""Commands of one comment."""
_SHOWN_MOST: Final = 200
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


_FORMS: Final = {
    CommentCommand.PLAN: "/muster plan",
    CommentCommand.APPROVE: "/muster approve",
    CommentCommand.WHY: "/muster why GANG",
    CommentCommand.WHATIF: "/muster whatif GANG priority=CLASS queue=QUEUE gpus=N (any of the three)",
}


class AskedFor(NamedTuple):
    """A command with what it is about."""

    command: CommentCommand
    gang: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    """How the gang would be otherwise: (`priority`, `queue` or `gpus`, value)."""

    def __str__(self) -> str:
        return " ".join((f"/muster {self.command}", *filter(None, (self.gang,)), *map("=".join, self.changes)))


class NoCommand(NamedTuple):
    """A line that reads as a command, and is none."""

    line: str
    """As it was written, of a long one the beginning."""
    why: str

    def __str__(self) -> str:
        return self.line


def commands_in(text: str) -> tuple[AskedFor | NoCommand, ...]:
    """Returns the commands of a comment: its lines that begin with `/muster`, but for those within a fence.

    Those beyond `COMMANDS_MOST` are told as one that is none.
    """
    lines = list(_LINE.finditer(_FENCED.sub("", text)))
    found = tuple(map(_command, lines[:COMMANDS_MOST]))
    if len(lines) <= COMMANDS_MOST:
        return found
    return *found, NoCommand(_shown(lines[COMMANDS_MOST]), f"a comment has at most {COMMANDS_MOST} commands")


def _command(line: re.Match[str]) -> AskedFor | NoCommand:
    verb, rest = line["verb"], line["rest"].strip()
    if verb not in list(CommentCommand):
        return NoCommand(_shown(line), f"there is no such command; there are {', '.join(_FORMS.values())}")
    command = CommentCommand(verb)
    form = _ARGUMENTS[command].fullmatch(rest)
    if form is None:
        return NoCommand(_shown(line), f"it is written {_FORMS[command]}")
    groups = form.groupdict()
    changes = tuple((key, value) for key, _, value in (it.partition("=") for it in groups.get("changes", "").split()))
    return AskedFor(command, groups.get("name", ""), changes)


def _shown(line: re.Match[str]) -> str:
    return line[0].rstrip()[:_SHOWN_MOST]


def not_after_merge(stands: str) -> Mapping[CommentCommand, str]:
    """Returns the commands that come to nothing once a revision is judged, with why; `stands` says how it was."""
    return {
        CommentCommand.PLAN: f"nothing is planned of it any more: {stands}",
        CommentCommand.APPROVE: f"nothing waits for an approval: {stands}",
    }
