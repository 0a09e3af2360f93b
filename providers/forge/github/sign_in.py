"""Who we are to GitHub, and where GitHub and the repository are; wrong ones are refused before anything is sent."""

import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from providers.forge.port import ForgeError

_SECRET = re.compile(r"[!-~]{1,1024}")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9a-f:.]{2,45}")
_REPOSITORY = re.compile(r"(?P<owner>[A-Za-z0-9][A-Za-z0-9_-]{0,99})/(?P<name>[A-Za-z0-9._-]{1,100})")
_LOGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}(\[bot\])?")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class GitHubToken:
    """A token of a user: fine-grained or classic."""

    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        if not _SECRET.fullmatch(self.secret):
            raise ForgeError("GitHub's token is empty, or holds signs that no token has: a space, the end of a line")


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


def checked_url(url: str) -> str:
    """Returns the address of an API; ForgeError unless secrets may be sent there: TLS, or this machine."""
    try:
        parts = urlsplit(url)
        is_whole = bool(_HOST.fullmatch(parts.hostname or "")) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or parts.username is not None or parts.query or parts.fragment or not url.isascii():
        raise ForgeError("GitHub's address is an URL without user, password and query, as https://HOST/api/v3")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        raise ForgeError(f"GitHub's address begins with https://, not {parts.scheme}://: a secret is sent there")
    return url


def checked_commit(commit: str) -> str:
    """Returns a full commit id; ForgeError for anything else, which could lead to another address."""
    if not _COMMIT.fullmatch(commit):
        raise ForgeError(f"{commit[:80]!r} is no full commit id")
    return commit


def checked_number(number: int) -> int:
    """Returns the number of a request or a comment; ForgeError unless it is positive."""
    if number < 1:
        raise ForgeError(f"{number} is no number of a pull request or comment")
    return number


def checked_login(user: str) -> str:
    """Returns the name of a user or bot; ForgeError for what GitHub gives to nobody."""
    if not _LOGIN.fullmatch(user):
        raise ForgeError(f"{user[:200]!r} is no user of GitHub")
    return user


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
