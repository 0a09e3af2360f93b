"""Who we are to GitLab, and which project or group is meant; wrong ones are refused before anything is sent."""

import re
from dataclasses import dataclass, field

from providers.forge.checks import checked_secret
from providers.forge.port import ForgeError

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}"
_GROUP = re.compile(rf"{_PART}(/{_PART}){{0,20}}")
_PROJECT = re.compile(rf"{_PART}(/{_PART}){{1,21}}")
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,254}")


@dataclass(frozen=True, slots=True)
class GitLabToken:
    """An access token: of a user, a project or a group."""

    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        checked_secret(self.secret, "GitLab")


def checked_project(path: str) -> str:
    """Returns the path of a project; ForgeError where it is none."""
    if not _PROJECT.fullmatch(path):
        raise ForgeError(f"a project on GitLab is written GROUP/NAME, not {path[:200]!r}")
    return path


def checked_group(path: str) -> str:
    """Returns the path of a group; ForgeError where it is none."""
    if not _GROUP.fullmatch(path):
        raise ForgeError(f"a group on GitLab is written GROUP or GROUP/SUBGROUP, not {path[:200]!r}")
    return path


def checked_user(name: str) -> str:
    """Returns the name of a user; ForgeError for what GitLab gives to nobody."""
    if not _USER.fullmatch(name) or name in {".", ".."}:
        raise ForgeError(f"{name[:200]!r} is no user of GitLab")
    return name
