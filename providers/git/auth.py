"""How we prove who we are to a remote, and how we know that it is the right one. Secrets stay in memory."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from model.addresses import without_secrets
from providers.git.errors import InvalidSelector

_SHORT_SSH = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!:)\S+", re.ASCII)
_SCHEMES = frozenset({"http", "https", "ssh", "git", "file"})


@dataclass(frozen=True)
class UserPassword:
    """HTTP basic authentication, or an SSH password. A forge token goes in as the password."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class ForgeToken:
    """A forge token over HTTP basic authentication; `user` is what the forge ignores or asks for."""

    token: str = field(repr=False)
    user: str = "x-access-token"


@dataclass(frozen=True)
class Bearer:
    """A token sent as `Authorization: Bearer`, without waiting to be asked."""

    token: str = field(repr=False)

    def __post_init__(self) -> None:
        # A line break would smuggle further headers into the request.
        if not self.token.isascii() or not self.token.isprintable() or " " in self.token:
            raise ValueError("a bearer token is printable ASCII without blanks")


@dataclass(frozen=True)
class SshKey:
    """An SSH private key in memory (OpenSSH or PEM text); `user` is used where the URL names none."""

    private: str = field(repr=False)
    public: str = ""
    passphrase: str = field(default="", repr=False)
    user: str = "git"


Auth = UserPassword | ForgeToken | Bearer | SshKey


@dataclass(frozen=True)
class Remote:
    """A repository elsewhere: its address, our credentials, and what we trust it by.

    `known_hosts` is the text of an OpenSSH known_hosts file; without the server's key in it an SSH remote is refused.
    `ca_file` adds certificate authorities to the system's, for the whole process. `proxy` is the URL of an HTTP proxy,
    for https only: libgit2 goes straight to an http remote whatever it is told (libgit2 #5650).
    Errors: InvalidSelector for an address of an unknown kind or a proxy that would be passed over.
    """

    url: str = field(repr=False)
    auth: Auth | None = None
    known_hosts: str = ""
    ca_file: Path | None = None
    proxy: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        scheme = self.scheme
        if scheme not in _SCHEMES or not self.url.isprintable():
            raise InvalidSelector(
                f"{self.shown!r} is not a repository address; use one of {', '.join(sorted(_SCHEMES))}"
            )
        if self.proxy is not None and scheme != "https":
            raise InvalidSelector(f"a proxy is only used for https, not for {self.shown!r}")
        if scheme == "file" and not Path(self.path).is_absolute():
            raise InvalidSelector(f"{self.shown!r} must be an absolute path")

    @property
    def scheme(self) -> str:
        """`file` for a plain path, `ssh` for the short form `git@host:path`."""
        head, separator, _ = self.url.partition("://")
        if separator:
            return head.lower()
        return "ssh" if _SHORT_SSH.fullmatch(self.url) else "file"

    @property
    def path(self) -> str:
        """The path on this machine; only meaningful for the scheme `file`."""
        return self.url.removeprefix("file://")

    @property
    def host(self) -> str:
        """The host's name in lower case, empty for a path."""
        return host_of(self.url)

    @property
    def shown(self) -> str:
        """The address without user, password or query, fit for logs and messages."""
        return without_secrets(self.url)


def host_of(url: str) -> str:
    """The host of an address, in lower case; of the short form `git@host:path` too."""
    if "://" in url:
        return (urlsplit(url).hostname or "").lower()
    return url.partition(":")[0].rpartition("@")[2].lower() if _SHORT_SSH.fullmatch(url) else ""
