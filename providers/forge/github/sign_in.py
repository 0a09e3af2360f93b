"""Who we are to GitHub, and where GitHub and the repository are; wrong ones are refused before anything is sent."""

import re
from dataclasses import dataclass, field

from providers.forge.checks import checked_secret
from providers.forge.port import ForgeError

_REPOSITORY = re.compile(r"(?P<owner>[A-Za-z0-9][A-Za-z0-9_-]{0,99})/(?P<name>[A-Za-z0-9._-]{1,100})")
_TEAM = re.compile(r"(?P<organization>[A-Za-z0-9][A-Za-z0-9_-]{0,99})/(?P<slug>[A-Za-z0-9_][A-Za-z0-9_-]{0,254})")
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}(\[bot\])?")


@dataclass(frozen=True, slots=True)
class GitHubToken:
    """A token of a user: fine-grained or classic."""

    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        checked_secret(self.secret, "GitHub")


@dataclass(frozen=True, slots=True)
class GitHubApp:
    """An App as it is installed with the repository's owner; the key is PEM."""

    id: int
    private_key: str = field(repr=False)
    installation: int


@dataclass(frozen=True, slots=True)
class GitHubRepository:
    """A repository by its owner and name."""

    owner: str
    name: str

    @classmethod
    def of(cls, text: str) -> "GitHubRepository":
        """Returns the repository that `OWNER/NAME` says; ForgeError where it says none."""
        match = _REPOSITORY.fullmatch(text)
        if match is None or match["name"] in {".", ".."}:
            raise ForgeError(f"a repository on GitHub is written OWNER/NAME, not {text[:200]!r}")
        return cls(match["owner"], match["name"])

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"


def checked_login(user: str) -> str:
    """Returns the name of a user or bot; ForgeError for what GitHub gives to nobody."""
    if not _LOGIN.fullmatch(user):
        raise ForgeError(f"{user[:200]!r} is no user of GitHub")
    return user


def checked_team(team: str) -> tuple[str, str]:
    """Returns the organization and the slug of a team; ForgeError for what names none."""
    match = _TEAM.fullmatch(team)
    if match is None:
        raise ForgeError(f"a team on GitHub is written ORGANIZATION/SLUG, not {team[:200]!r}")
    return match["organization"], match["slug"]
