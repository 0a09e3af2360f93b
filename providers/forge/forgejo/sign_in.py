"""Who we are to Forgejo or Gitea, and what is meant by names; wrong ones are refused before anything is sent."""

import re
from dataclasses import dataclass, field

from providers.forge.checks import checked_secret
from providers.forge.port import ForgeError

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_NOT_NAMES = {".", ".."}


@dataclass(frozen=True, slots=True)
class ForgejoToken:
    """An access token of a user."""

    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        checked_secret(self.secret, "Forgejo")


def checked_pair(what: str, text: str) -> tuple[str, str]:
    """Returns both names of `OWNER/NAME`; ForgeError, which says `what` it should be, where it is none."""
    first, _, second = text.partition("/")
    if not (_is_name(first) and _is_name(second)):
        raise ForgeError(f"{what}, not {text[:200]!r}")
    return first, second


def checked_user(name: str) -> str:
    """Returns the name of a user; ForgeError for what is given to nobody."""
    if not _is_name(name):
        raise ForgeError(f"{name[:200]!r} is no user of Forgejo")
    return name


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text not in _NOT_NAMES
