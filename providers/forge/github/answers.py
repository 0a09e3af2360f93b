"""What is read of GitHub's answers, checked as it is read: types, bounds, full commit ids; all else is left alone.

The structs are of our own and narrow on purpose. Those of githubkit ask for every field that github.com sends today,
which an Enterprise Server of last year does not send.
"""

from typing import Literal

import msgspec

from providers.forge.port import Comment, ForgeError, Permission, PullRequest, RequestState
from providers.forge.reading import CommitId, Instant, Line, Login, Number, Text
from providers.forge.sorting import GivenReview

_DELETED_USER = "ghost"
"""Whom GitHub names where the author has been deleted."""


class GitHubUser(msgspec.Struct, frozen=True):
    """A user or bot."""

    id: Number
    login: Login


class GitHubSlug(msgspec.Struct, frozen=True):
    """An App by the name that its bot bears."""

    slug: Login


class GitHubId(msgspec.Struct, frozen=True):
    """Anything that has been made."""

    id: Number


class GitHubBranch(msgspec.Struct, frozen=True):
    """An end of a pull request. The fork may be deleted."""

    sha: CommitId
    ref: Line
    repo: GitHubId | None


class GitHubRequest(msgspec.Struct, frozen=True):
    """A pull request, in a list or alone; who merged it stands only there."""

    number: Number
    title: Line
    user: GitHubUser | None
    state: Literal["open", "closed"]
    head: GitHubBranch
    base: GitHubBranch
    merged_at: Instant | None
    merge_commit_sha: CommitId | None
    updated_at: Instant
    html_url: Line
    merged_by: GitHubUser | None = None

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
            branch=self.head.ref,
            merger=self.merged_by.login if merged and self.merged_by is not None else "",
        )


class GitHubFile(msgspec.Struct, frozen=True):
    """A file of a commit, by the id of its content."""

    sha: CommitId


class GitHubNumber(msgspec.Struct, frozen=True):
    """A pull request that has been opened."""

    number: Number


class GitHubDone(msgspec.Struct, frozen=True):
    """Anything that has been done, of which nothing else is asked."""


class GitHubComment(msgspec.Struct, frozen=True):
    """A comment of an issue's or a pull request's conversation."""

    id: Number
    user: GitHubUser | None
    created_at: Instant
    updated_at: Instant
    body: Text | None = None

    def translated(self, ourselves: "GitHubUser | GitHubSlug") -> Comment:
        """Returns it in the words of the port."""
        return Comment(
            id=self.id,
            author=_author(self.user),
            text=self.body or "",
            created_at_s=self.created_at.timestamp(),
            ours=self.user is not None and _is_same(self.user, ourselves),
            updated_at_s=self.updated_at.timestamp(),
        )


class GitHubReview(msgspec.Struct, frozen=True):
    """What somebody thought of a pull request; a pending one has no time, and one whose commit is gone no commit."""

    id: Number
    user: GitHubUser | None
    state: Line
    commit_id: CommitId | None = None
    submitted_at: Instant | None = None


_MERE_WORDS = {"COMMENTED", "PENDING"}


def given_reviews(reviews: list[GitHubReview]) -> list[GivenReview]:
    """Returns the reviews that approve or object; words alone do neither.

    A dismissed one stands in its place as that, and so objects
    (docs.github.com/pull-requests/collaborating-with-pull-requests/reviewing-changes-in-pull-requests).
    """
    return [
        GivenReview(at, it.id, it.user.id, it.user.login, (it.state == "APPROVED" and it.commit_id) or "")
        for it in reviews
        if (at := it.submitted_at) and it.user and it.state not in _MERE_WORDS
    ]


class GitHubDeploymentState(msgspec.Struct, frozen=True):
    """What was said of a deployment."""

    id: Number
    state: Line


class GitHubMembership(msgspec.Struct, frozen=True):
    """What somebody is to a team: one who is invited is pending."""

    state: Literal["active", "pending"]


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


def _author(user: GitHubUser | None) -> str:
    return _DELETED_USER if user is None else user.login


def _is_same(user: GitHubUser, ourselves: "GitHubUser | GitHubSlug") -> bool:
    """A user is known by the id, since names pass on; no user can bear the name of an App's bot."""
    if isinstance(ourselves, GitHubSlug):
        return user.login.casefold() == f"{ourselves.slug}[bot]".casefold()
    return user.id == ourselves.id
