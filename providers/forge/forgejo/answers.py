"""What is read of Forgejo's and Gitea's answers, checked as it is read: types, bounds, full commit ids.

Their description promises no field; what is not optional here both have sent since Gitea 1.19.
"""

from typing import Literal

import msgspec

from providers.forge.port import Comment, ForgeError, Permission, PullRequest, RequestState
from providers.forge.reading import CommitId, Instant, Line, Login, Number, Text
from providers.forge.sorting import GivenReview


class ForgejoUser(msgspec.Struct, frozen=True):
    """A user; one who is deleted is `Ghost`, of the id -1."""

    id: int
    login: Login


class ForgejoId(msgspec.Struct, frozen=True):
    """Anything that is there."""

    id: Number


class ForgejoDone(msgspec.Struct, frozen=True):
    """Anything that has been made, or is there, and of which nothing else is asked."""


class ForgejoBranch(msgspec.Struct, frozen=True):
    """An end of a pull request. The fork may be deleted."""

    sha: CommitId
    ref: Line
    repo: ForgejoId | None


class ForgejoRequest(msgspec.Struct, frozen=True):
    """A pull request, in a list or alone."""

    number: Number
    title: Line
    user: ForgejoUser
    state: Literal["open", "closed"]
    merged: bool
    merge_commit_sha: CommitId | None
    head: ForgejoBranch
    base: ForgejoBranch
    updated_at: Instant
    html_url: Line
    merged_by: ForgejoUser | None = None

    def translated(self) -> PullRequest:
        """Returns it in the words of the port."""
        if self.merged and self.merge_commit_sha is None:
            raise ForgeError(f"Forgejo says that {self.number} is merged, but not by which commit")
        return PullRequest(
            number=self.number,
            title=self.title,
            author=self.user.login,
            head=self.head.sha,
            head_ref=f"refs/pull/{self.number}/head",
            base=self.base.ref,
            from_fork=self.head.repo is None or self.head.repo != self.base.repo,
            state=RequestState.MERGED if self.merged else RequestState(self.state.capitalize()),
            merge_commit=(self.merge_commit_sha or "") if self.merged else "",
            updated_at_s=self.updated_at.timestamp(),
            url=self.html_url,
            branch=self.head.ref,
            merger=self.merged_by.login if self.merged and self.merged_by is not None else "",
        )


class ForgejoFile(msgspec.Struct, frozen=True):
    """A file of a commit, by the id of its content."""

    sha: CommitId


class ForgejoNumber(msgspec.Struct, frozen=True):
    """A pull request that has been opened."""

    number: Number


class ForgejoComment(msgspec.Struct, frozen=True):
    """A comment of an issue's or a pull request's conversation."""

    id: Number
    user: ForgejoUser
    created_at: Instant
    updated_at: Instant
    body: Text

    def translated(self, ourselves: ForgejoUser) -> Comment:
        """Returns it in the words of the port."""
        at_s, ours = self.created_at.timestamp(), self.user.id == ourselves.id
        return Comment(self.id, self.user.login, self.body, at_s, ours, self.updated_at.timestamp())


class ForgejoPermission(msgspec.Struct, frozen=True):
    """What somebody may do."""

    permission: Literal["owner", "admin", "write", "read", "none"]

    def translated(self) -> Permission:
        """Returns it in the words of the port."""
        return _PERMISSIONS[self.permission]


_PERMISSIONS = {
    "owner": Permission.ADMIN,
    "admin": Permission.ADMIN,
    "write": Permission.WRITE,
    "read": Permission.READ,
    "none": Permission.NONE,
}


class ForgejoTeam(msgspec.Struct, frozen=True):
    """A team of an organization."""

    id: Number
    name: Line


class ForgejoTeams(msgspec.Struct, frozen=True):
    """What a search found."""

    data: list[ForgejoTeam] | None


class ForgejoReview(msgspec.Struct, frozen=True):
    """What somebody thought of a pull request, or who was asked to say it: a team has no user."""

    id: Number
    user: ForgejoUser | None
    state: Line
    dismissed: bool
    commit_id: str
    submitted_at: Instant | None = None


class ForgejoRefusal(msgspec.Struct, frozen=True):
    """Why Forgejo did not do something."""

    message: str = ""
    errors: list[str] | None = None

    def words(self) -> str:
        """Returns what it says."""
        return " ".join((self.message, *(self.errors or ())))


_MERE_WORDS = {"COMMENT", "PENDING", "REQUEST_REVIEW"}


def given_reviews(reviews: list[ForgejoReview]) -> list[GivenReview]:
    """Returns the reviews that approve or object; words alone, and being asked again, do neither.

    A dismissed one keeps its state and its place, and objects.
    """
    return [
        GivenReview(at, it.id, it.user.id, it.user.login, it.commit_id if _approves(it) else "")
        for it in reviews
        if (at := it.submitted_at) and it.user and it.state not in _MERE_WORDS
    ]


def _approves(review: ForgejoReview) -> bool:
    return review.state == "APPROVED" and not review.dismissed
