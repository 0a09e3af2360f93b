"""What an agent says on a pull request: its status, and its section of the comment that all clusters' agents share.

No forge writes a comment only where it is as it was read. So a section is written into the comment as it stands at that
moment, looked for afterwards, and written again where another agent has overwritten it meanwhile. One that is lost
later is found missing at the next look, and written back as it was: nothing is planned or answered twice for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agent.review.statuses import commit_status, deployment_of
from agent.review.world import ProposedCommits
from fleet.review.comment import (
    MOVED,
    Review,
    ReviewOutcome,
    as_said,
    gathered,
    is_ours,
    said_in,
    section_of,
    with_kept,
    with_section,
)
from model.loader import cluster_digest
from providers.forge.port import (
    Comment,
    CommitStatus,
    CommitUnknown,
    Forge,
    ForgeError,
    ForgeUnreachable,
    PullRequest,
)
from providers.git.errors import SourceError

WRITES_MOST = 5
"""Tries to write a section that others overwrite, in one look."""
WORDS_MOST = 500
"""Statuses of one commit, after which no words alone are changed: GitHub takes 1000 of a name, and refuses any more."""
STATED_MOST = 200
"""Commits whose last status is remembered."""


class _Stated(NamedTuple):
    last: CommitStatus
    times: int


class _Touched(NamedTuple):
    """The head of a request and the last comment of others, and when it had changed when these were first seen."""

    head: str
    comment: int
    at_s: float


@dataclass(slots=True)
class SectionWriter:
    """Writes one cluster's section and status."""

    cluster: str
    still_leading: Callable[[], None]
    """Raises where another agent may be reviewing by now: asked before each write."""
    _kept: dict[int, str] = field(default_factory=dict)
    """Request -> the section as it was last written."""
    _touched: dict[int, _Touched] = field(default_factory=dict)
    _stated: dict[str, _Stated] = field(default_factory=dict)
    """Commit -> the status that it was last given here."""

    def forget(self, numbers: Sequence[int]) -> None:
        """Keep nothing of any other request."""
        self._kept = {number: self._kept[number] for number in numbers if number in self._kept}
        self._touched = {number: self._touched[number] for number in numbers if number in self._touched}

    def as_others_left(self, request: PullRequest, comments: Sequence[Comment]) -> PullRequest:
        """Returns the request as of its last change by others: to forges what we write is a change of it as well."""
        last = max((it.id for it in comments if not it.ours), default=0)
        found = _Touched(request.head, last, request.updated_at_s)
        if (known := self._touched.get(request.number)) and known[:2] == found[:2]:
            found = known
        self._touched[request.number] = found
        return replace(request, updated_at_s=found.at_s)

    def comments(self, forge: Forge, number: int) -> tuple[Sequence[Comment], Comment | None]:
        """Returns a request's comments, and the one with the sections once ours, where it was lost, is back in it."""
        comments = forge.comments(number)
        mine = mine_of(comments)
        if number in self._kept and (mine is None or said_in(mine.text, self.cluster) is None):
            self.write(forge, number, lambda text: text)
            comments = forge.comments(number)
            mine = mine_of(comments)
        return comments, mine

    def write(self, forge: Forge, number: int, change: Callable[[str], str]) -> None:
        """Changes our section in the comment as it stands now, until it stands there."""
        for _ in range(WRITES_MOST):
            ours = _ours(forge.comments(number))
            before = gathered([it.text for it in ours])
            if number in self._kept and said_in(before, self.cluster) is None:
                before = with_kept(before, self.cluster, self._kept[number])
            text = change(before)
            self.still_leading()
            if not ours:
                forge.write_comment(number, text)
            elif text != ours[0].text:
                forge.change_comment(number, ours[0], text)
            for other in ours[1:]:
                forge.change_comment(number, other, MOVED)
            self._kept[number] = section_of(text, self.cluster)
            now = _ours(forge.comments(number))
            if len(now) == 1 and said_in(now[0].text, self.cluster) == said_in(text, self.cluster):
                return

    def say(self, forge: Forge, request: PullRequest, review: Review, before: str) -> None:
        """Writes comment and status where they say something else than `before`."""
        said = said_in(before, self.cluster)
        if said == as_said(review):
            return
        if said is None or said._replace(heard=0, world="") != as_said(review)._replace(heard=0, world=""):
            self.set_status(forge, request, review)  # first: the comment says that all is said
        self.write(forge, request.number, lambda text: with_section(text, review))

    def set_status(self, forge: Forge, request: PullRequest, review: Review) -> None:
        """Sets the cluster's own status of the commit where this process has not set the same one.

        Once there are many of a commit, only another verdict is told, and no other words.
        """
        status, stated = commit_status(review, request.url), self._stated.get(review.head)
        if stated and (stated.last == status or (stated.last.verdict is status.verdict and stated.times >= WORDS_MOST)):
            return
        self.still_leading()
        forge.put_status(review.head, status)
        self._stated[review.head] = _Stated(status, stated.times + 1 if stated else 1)
        while len(self._stated) > STATED_MOST:
            del self._stated[next(iter(self._stated))]


@dataclass(slots=True)
class DeploymentWriter:
    """Shows on the forge how far a revision in force has come."""

    branch: str
    still_leading: Callable[[], None]
    """As in `SectionWriter`."""
    count: Callable[[str], None]
    """Counts what the forge refuses, by the error's name: that keeps nothing else back."""
    refused: str = ""
    """Why it takes no deployment of the newest revision."""

    def tell(self, forge: Forge, review: Review, request: PullRequest | None) -> None:
        """Tells how far the revision of a review has come, where it is in force."""
        told = deployment_of(review, self.branch, request.url if request else "")
        if told is None:
            return
        self.still_leading()
        try:
            forge.put_deployment(told)
        except (ForgeUnreachable, CommitUnknown):
            raise
        except ForgeError as error:
            self.count(type(error).__name__)
            self.refused = str(error)
        else:
            self.refused = ""


@dataclass(slots=True)
class UntouchedRequests:
    """Knows the requests that change no file of one cluster of several: they get a status and no section."""

    cluster: str
    commits: ProposedCommits
    _known: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Request -> the head and base for which its status was set."""
    _base: tuple[str, str] = ("", "")
    """A base, and the digest of what the cluster reads there."""

    def passes_by(self, request: PullRequest, base: str, tell: Callable[[Review], None]) -> bool:
        """Returns whether a request changes nothing of the cluster; `tell` hears of it once for each head and base."""
        if self._known.get(request.number) == (request.head, base):
            return True
        self._known.pop(request.number, None)
        try:
            if self.commits.fetch_ref(request.head_ref) != request.head:
                return False
            digest = cluster_digest(self.commits.merged_files(base, request.head).files, self.cluster)
            if digest and self._base[0] != base:
                self._base = base, cluster_digest(self.commits.merged_files(base, base).files, self.cluster)
        except SourceError:
            return False  # it is told of where the request is planned
        if not digest or digest != self._base[1]:
            return False
        words = "no file that this cluster reads is changed"
        tell(Review(self.cluster, request.head, base, ReviewOutcome.UNTOUCHED, words))
        self._known[request.number] = request.head, base
        return True


def mine_of(comments: Sequence[Comment]) -> Comment | None:
    """Returns the one comment with the sections, of our user; the oldest where a race has made two."""
    return next(iter(_ours(comments)), None)


def _ours(comments: Sequence[Comment]) -> list[Comment]:
    return [it for it in comments if it.ours and is_ours(it.text)]
