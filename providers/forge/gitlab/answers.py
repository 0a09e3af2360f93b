"""What is read of GitLab's answers, checked as it is read: types, bounds, full commit ids; all else is left alone."""

from typing import Literal

import msgspec

from providers.forge.port import Approval, Comment, ForgeError, Permission, PullRequest, RequestState
from providers.forge.reading import CommitId, Instant, Line, Login, Number, Text

_STATES = {
    "opened": RequestState.OPEN,
    "locked": RequestState.OPEN,  # while it is being merged
    "closed": RequestState.CLOSED,
    "merged": RequestState.MERGED,
}
_LEVELS = ((40, Permission.ADMIN), (30, Permission.WRITE), (10, Permission.READ))
"""The least access level of each permission (docs.gitlab.com/api/access_requests): Maintainer, Developer, Guest."""


class GitLabUser(msgspec.Struct, frozen=True):
    """A user; the bot of a project's token is one."""

    id: Number
    username: Login


class GitLabMember(msgspec.Struct, frozen=True):
    """A member of a project or group, by membership or inheritance. Who is blocked may do nothing."""

    id: Number
    state: Line
    access_level: int

    def translated(self) -> Permission:
        """Returns it in the words of the port."""
        if self.state != "active":
            return Permission.NONE
        return next((permission for least, permission in _LEVELS if self.access_level >= least), Permission.NONE)


class GitLabGroup(msgspec.Struct, frozen=True):
    """A group that is there."""

    id: Number


class GitLabRequest(msgspec.Struct, frozen=True):
    """A merge request, in a list or alone. It has no head before GitLab has prepared it."""

    iid: Number
    title: Line
    author: GitLabUser
    state: Literal["opened", "closed", "locked", "merged"]
    sha: CommitId | None
    source_branch: Line
    target_branch: Line
    source_project_id: int | None
    target_project_id: int
    merge_commit_sha: CommitId | None
    squash_commit_sha: CommitId | None
    updated_at: Instant
    web_url: Line
    merge_user: GitLabUser | None = None
    merged_by: GitLabUser | None = None
    """The name of `merge_user` before GitLab 14.7."""

    def translated(self) -> PullRequest:
        """Returns it in the words of the port.

        A merge without a commit of its own puts the squashed commit on the branch, or the head itself.
        """
        if self.sha is None:
            raise ForgeError(f"GitLab does not know the head of the merge request {self.iid} yet")
        state = _STATES[self.state]
        merger = self.merge_user or self.merged_by
        merged = self.merge_commit_sha or self.squash_commit_sha or self.sha
        return PullRequest(
            number=self.iid,
            title=self.title,
            author=self.author.username,
            head=self.sha,
            head_ref=f"refs/merge-requests/{self.iid}/head",
            base=self.target_branch,
            from_fork=self.source_project_id != self.target_project_id,
            state=state,
            merge_commit=merged if state is RequestState.MERGED else "",
            updated_at_s=self.updated_at.timestamp(),
            url=self.web_url,
            branch=self.source_branch,
            merger=merger.username if state is RequestState.MERGED and merger is not None else "",
        )


class GitLabFile(msgspec.Struct, frozen=True):
    """A file of a commit, by the id of its content."""

    blob_id: CommitId


class GitLabDone(msgspec.Struct, frozen=True):
    """Anything that has been done, of which nothing else is asked."""


class GitLabNumber(msgspec.Struct, frozen=True):
    """A merge request that has been opened; GitLab finds its head a little later."""

    iid: Number


class GitLabNote(msgspec.Struct, frozen=True):
    """A note: a comment, or the system's word of what happened."""

    id: Number
    body: Text
    author: GitLabUser
    created_at: Instant
    updated_at: Instant
    system: bool

    def translated(self, ourselves: GitLabUser) -> Comment:
        """Returns it in the words of the port."""
        at_s, ours = self.created_at.timestamp(), self.author.id == ourselves.id
        return Comment(self.id, self.author.username, self.body, at_s, ours, self.updated_at.timestamp())


class GitLabGivenApproval(msgspec.Struct, frozen=True):
    """An approval that stands. Older GitLabs do not tell since when."""

    user: GitLabUser
    approved_at: Instant | None = None


class GitLabApprovals(msgspec.Struct, frozen=True):
    """Who approves a merge request."""

    approved_by: list[GitLabGivenApproval]


class GitLabReviewer(msgspec.Struct, frozen=True):
    """Somebody who was asked for a review, or gave one, and what came of it."""

    user: GitLabUser
    state: Line


class GitLabAward(msgspec.Struct, frozen=True):
    """A reaction."""

    name: Line
    user: GitLabUser


class GitLabId(msgspec.Struct, frozen=True):
    """Anything that has been made."""

    id: Number


class GitLabDeployment(msgspec.Struct, frozen=True):
    """How far a commit has come in an environment."""

    id: Number
    sha: CommitId
    status: Line


class GitLabRefusal(msgspec.Struct, frozen=True):
    """Why GitLab did not do something: words, or words by field."""

    message: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")
    error_description: msgspec.Raw = msgspec.Raw(b"")

    def words(self) -> str:
        """Returns what it says."""
        said = (bytes(each).decode("utf-8", "replace") for each in (self.message, self.error, self.error_description))
        return " ".join(_unquoted(each) for each in said if each)


def standing_approvals(
    given: list[GitLabGivenApproval], reviewers: list[GitLabReviewer], notes: list[GitLabNote]
) -> list[Approval]:
    """Returns the approvals that stand, oldest first, without those of who asks for changes.

    Where GitLab does not tell since when one stands, its own note does: the last that says that the user approved.
    Where that is gone as well the approval is as old as can be, so that it counts for nothing that came later.
    """
    object_to = {each.user.id for each in reviewers if each.state == "requested_changes"}
    noted = {
        each.author.id: each.created_at.timestamp()
        for each in sorted(notes, key=lambda it: (it.created_at, it.id))
        if each.system and each.body.startswith("approved this merge request")
    }
    found = [
        Approval(
            each.user.username, "", each.approved_at.timestamp() if each.approved_at else noted.get(each.user.id, 0.0)
        )
        for each in given
        if each.user.id not in object_to
    ]
    return sorted(found, key=lambda it: (it.at_s, it.user))


def _unquoted(json: str) -> str:
    try:
        return msgspec.json.decode(json, type=str)
    except msgspec.DecodeError:
        return json
