"""What the review asks of a forge, in the words of GitHub; each adapter translates its own.

The port decides nothing: whose word counts, what a comment says and when one is written are questions of others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import TracebackType
from typing import Protocol, Self


class ForgeError(Exception):
    """The forge did not do what was asked: the request is wrong or not allowed, and will be so again."""


class CommitUnknown(ForgeError):
    """The forge knows no such commit, or not yet: what was pushed is told by git a while before its interface does."""


class ForgeUnreachable(ForgeError):
    """No answer, or one that says that the forge is broken (5xx). The same request may succeed later."""


class ForgeRateLimited(ForgeUnreachable):
    """The forge asks to be left alone until `until_s` (epoch): its primary or a secondary rate limit."""

    def __init__(self, message: str, until_s: float) -> None:
        super().__init__(message)
        self.until_s = until_s


class RequestState(StrEnum):
    """Where a pull request stands."""

    OPEN = "Open"
    MERGED = "Merged"
    CLOSED = "Closed"


class Permission(IntEnum):
    """What somebody may do in the repository; a higher one includes the lower."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3


class Verdict(StrEnum):
    """What a commit status says."""

    PENDING = "Pending"
    SUCCESS = "Success"
    FAILURE = "Failure"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull (merge) request as the forge tells it now; `head` and `merge_commit` are full commit ids."""

    number: int
    title: str
    author: str
    head: str
    head_ref: str
    """The ref of the base repository by which the head can be fetched (`refs/pull/7/head`)."""
    base: str
    """The branch that it is to be merged into, without `refs/heads/`."""
    from_fork: bool
    state: RequestState
    merge_commit: str
    """Empty unless merged."""
    updated_at_s: float
    url: str
    branch: str = ""
    """Where its head was, in the repository that it comes from."""
    merger: str = ""
    """Who merged it; empty unless merged, and where the forge does not say."""


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """A change of one file that we propose: one commit on a branch that we make, and a request to merge it."""

    branch: str
    base: str
    """The branch that it is to be merged into."""
    base_commit: str
    """Where the branch begins."""
    path: str
    """Of a file that is there, from the repository's root."""
    content: bytes
    """The file as it is to be."""
    title: str
    words: str


SETTLED_S = 2.0
"""A forge may write a comment in more than one step; so far apart its times may be."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of a pull request's conversation. `id` is the forge's, unique among the comments of the repository."""

    id: int
    author: str
    text: str
    created_at_s: float
    ours: bool
    """Whether the user that the adapter is signed in as wrote it."""
    updated_at_s: float = 0.0
    """When its text was changed last, by its author or by somebody else who may."""

    @property
    def edited(self) -> bool:
        """Returns whether it may say something else than its author wrote: who may write can edit others' comments."""
        return self.updated_at_s > self.created_at_s + SETTLED_S


@dataclass(frozen=True, slots=True)
class Annotation:
    """A problem at a line of a file of the head commit; lines count from 1."""

    path: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """A named verdict on a commit; one of a name replaces the one before. `summary` is a line of at most 140 signs."""

    name: str
    verdict: Verdict
    summary: str
    url: str = ""
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Deployment:
    """How far a commit has come in an environment. `summary` is a line of at most 140 signs."""

    commit: str
    branch: str
    environment: str
    """Made by the forge where there is none of this name."""
    verdict: Verdict
    """PENDING while it is under way."""
    summary: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Approval:
    """Somebody's word that a request may be merged, as it stands now."""

    user: str
    commit: str
    """The head commit that was approved; empty where the forge does not say (GitLab), and `at_s` has to decide."""
    at_s: float


class Forge(Protocol):
    """One repository on a forge. Every method may raise ForgeError; its types say whether trying again helps.

    Within a `with` block connections stay open from one question to the next.
    """

    def __enter__(self) -> Self:
        """Begins a look."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends it."""
        ...

    def open_requests(self, base: str) -> Sequence[PullRequest]:
        """Returns all open requests to merge into the branch `base`, by number."""
        ...

    def request(self, number: int) -> PullRequest | None:
        """Returns the request as it is now; None where there is none of this number."""
        ...

    def merged_by(self, commit: str) -> PullRequest | None:
        """Returns the merged request whose merge commit this is, with its merger; None: the commit came another way."""
        ...

    def merged_lately(self, base: str) -> Sequence[PullRequest]:
        """Returns merged requests into the branch `base`, of the thirty closed that changed last, newest change first.

        A comment is a change. It is one question to the forge, however many were merged.
        """
        ...

    def permission(self, user: str) -> Permission:
        """Returns what a user may do in the repository now."""
        ...

    def is_member(self, user: str, team: str) -> bool:
        """Returns whether a user is in a team now, by the name of the forge: `ORG/TEAM`, on GitLab a group's path.

        ForgeError where there is no such team, or we may not see who is in it: that is not known to be nobody.
        """
        ...

    def approvals(self, number: int) -> Sequence[Approval]:
        """Returns who approves a request now: one for each user, oldest first.

        One that was dismissed, withdrawn or followed by a request for changes is not there.
        """
        ...

    def comments(self, number: int) -> Sequence[Comment]:
        """Returns the comments of a request's conversation, oldest first."""
        ...

    def write_comment(self, number: int, text: str) -> Comment:
        """Writes a further comment."""
        ...

    def change_comment(self, number: int, comment: Comment, text: str) -> None:
        """Gives a comment of ours another text."""
        ...

    def acknowledge(self, number: int, comment: Comment, *, accepted: bool) -> None:
        """Reacts to somebody's comment: with a thumb up where what it asks for is done, else with a thumb down."""
        ...

    def put_status(self, commit: str, status: CommitStatus) -> None:
        """Sets a commit's status of this name, with its annotations where the forge shows such."""
        ...

    def put_deployment(self, deployment: Deployment) -> None:
        """Tells how far a commit has come in an environment, once for each verdict; nothing where no forge shows it."""
        ...

    def requests_from(self, branch: str) -> Sequence[PullRequest]:
        """Returns the requests from a branch of the repository itself, whatever became of them, by number."""
        ...

    def propose(self, change: ProposedChange) -> int:
        """Opens a request, and returns its number; what a call before has done of it is found and not done again.

        Nobody's branch is written but the one that is named. ForgeError where the path cannot be asked for.
        """
        ...

    def close_request(self, number: int) -> None:
        """Closes a request without merging it."""
        ...
