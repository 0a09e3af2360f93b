"""What is read of GitHub's answers, checked as it is read: types, bounds, full commit ids; all else is left alone.

The structs are of our own and narrow on purpose. Those of githubkit ask for every field that github.com sends today,
which an Enterprise Server of last year does not send.
"""

from datetime import datetime
from typing import Annotated, Literal, TypeVar

import msgspec

from model.plain_text import plain
from providers.forge.port import Comment, ForgeError, Permission, PullRequest, RequestState

_T = TypeVar("_T")
_Number = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_Commit = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})\Z")]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]
_Login = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_Line = Annotated[str, msgspec.Meta(max_length=1024)]
_Text = Annotated[str, msgspec.Meta(max_length=262_144)]

_DELETED_USER = "ghost"
"""Whom GitHub names where the author has been deleted."""


class GitHubUser(msgspec.Struct, frozen=True):
    """A user or bot."""

    id: _Number
    login: _Login


class GitHubSlug(msgspec.Struct, frozen=True):
    """An App by the name that its bot bears."""

    slug: _Login


class GitHubId(msgspec.Struct, frozen=True):
    """Anything that has been made."""

    id: _Number


class GitHubBranch(msgspec.Struct, frozen=True):
    """An end of a pull request. The fork may be deleted."""

    sha: _Commit
    ref: _Line
    repo: GitHubId | None


class GitHubRequest(msgspec.Struct, frozen=True):
    """A pull request, in a list or alone."""

    number: _Number
    title: _Line
    user: GitHubUser | None
    state: Literal["open", "closed"]
    head: GitHubBranch
    base: GitHubBranch
    merged_at: _Time | None
    merge_commit_sha: _Commit | None
    updated_at: _Time
    html_url: _Line

    def translated(self) -> PullRequest:
        """Returns it in the words of the port. Of an open one GitHub tells a trial merge, which is no merge commit."""
        merged = self.merged_at is not None
        if merged and self.merge_commit_sha is None:
            raise ForgeError(f"GitHub says that {self.number} is merged, but not by which commit")
        return PullRequest(
            number=self.number,
            title=self.title,
            author=_author(self.user),
            head=self.head.sha,
            head_ref=f"refs/pull/{self.number}/head",
            base=self.base.ref,
            from_fork=self.head.repo is None or self.head.repo != self.base.repo,
            state=RequestState.MERGED if merged else RequestState(self.state.capitalize()),
            merge_commit=(self.merge_commit_sha or "") if merged else "",
            updated_at_s=self.updated_at.timestamp(),
            url=self.html_url,
        )


class GitHubComment(msgspec.Struct, frozen=True):
    """A comment of an issue's or a pull request's conversation."""

    id: _Number
    user: GitHubUser | None
    created_at: _Time
    body: _Text | None = None

    def translated(self, ourselves: "GitHubUser | GitHubSlug") -> Comment:
        """Returns it in the words of the port."""
        return Comment(
            id=self.id,
            author=_author(self.user),
            text=self.body or "",
            created_at_s=self.created_at.timestamp(),
            ours=self.user is not None and _is_same(self.user, ourselves),
        )


class GitHubPermission(msgspec.Struct, frozen=True):
    """What somebody may do; GitHub says of a custom role what it builds on."""

    permission: Literal["admin", "maintain", "write", "triage", "read", "none"]

    def translated(self) -> Permission:
        """Returns it in the words of the port."""
        return _PERMISSIONS[self.permission]


_PERMISSIONS = {
    "admin": Permission.ADMIN,
    "maintain": Permission.WRITE,
    "write": Permission.WRITE,
    "triage": Permission.READ,
    "read": Permission.READ,
    "none": Permission.NONE,
}


class GitHubRefusal(msgspec.Struct, frozen=True):
    """Why GitHub did not do something; `errors` are words or objects, by endpoint."""

    message: str = ""
    errors: msgspec.Raw = msgspec.Raw(b"")

    def words(self) -> str:
        """Returns what it says, with whatever it says more closely."""
        more = bytes(self.errors).decode("utf-8", "replace")
        return f"{self.message} {more}" if more else self.message


def read(body: bytes, answer: type[_T]) -> _T:
    """Returns an answer; ForgeError where it is not what GitHub's description of the API promises."""
    try:
        return msgspec.json.decode(body, type=answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # a ValidationError is a DecodeError
        raise ForgeError(f"GitHub's answer cannot be read: {plain(str(error)[:300])}") from error


def _author(user: GitHubUser | None) -> str:
    return _DELETED_USER if user is None else user.login


def _is_same(user: GitHubUser, ourselves: "GitHubUser | GitHubSlug") -> bool:
    """A user is known by the id, since names pass on; no user can bear the name of an App's bot."""
    if isinstance(ourselves, GitHubSlug):
        return user.login.casefold() == f"{ourselves.slug}[bot]".casefold()
    return user.id == ourselves.id
