"""Commands in comments of merged requests whose revision waits for nobody: they are answered all the same.

The forge is asked once a look for the merged requests that changed last, and a comment is a change. So many merged
requests cost no more than one does, and of one that has changed its comments are read until no further change of the
same second can have been missed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from agent.review.commands import asked_in
from agent.review.saying import SectionWriter
from agent.review.world import with_suspended
from agent.sync import SyncState
from fleet.plan.convergence import Convergence
from fleet.review.commands import AskedFor, CommentCommand, commands_in, not_after_merge
from fleet.review.comment import after_merge, said_in, stands, with_heard
from providers.clock import Clock
from providers.forge.port import SETTLED_S, Comment, Forge, PullRequest

HEARD_S: Final = 24 * 3600.0
"""A command is answered for so long after it was written: nobody waits for an answer to older ones."""
JUDGED_S: Final = 300.0
"""A merge that the repository has not shown as its newest revision for so long is one that others came after."""
_WAITS: Final = frozenset({"Unapproved", "Stale"})
"""Outcomes of a merged revision that an approval ends."""
_TAKES_APPROVALS: Final = _WAITS | {"Frozen"}
"""Outcomes in which an approval counts: of a revision that a window holds, once that ends."""


class _Read(NamedTuple):
    """When a request had changed whose comments were read, and since when they are read as of then."""

    changed_s: float
    since_s: float
    settled: bool = False
    """Whether they were read long enough after that for no other change to have the same time."""


@dataclass(slots=True)
class MergedRequests:
    """Hears what is asked in comments of merged requests, of which this cluster has a section."""

    cluster: str
    branch: str
    writer: SectionWriter
    state: Callable[[], SyncState]
    clock: Clock
    _lately: Sequence[PullRequest] = ()
    _read: dict[int, _Read] = field(default_factory=dict)
    _since_s: dict[int, float] = field(default_factory=dict)
    """Since when a request is known to be merged, by the monotonic clock."""

    @property
    def known(self) -> Sequence[PullRequest]:
        """Returns the requests of the last look, those that changed within `HEARD_S`."""
        return self._lately

    def look(self, forge: Forge) -> Sequence[PullRequest]:
        """Returns the requests whose comments are to be read: those that changed since that was done."""
        told, now_s, at_s = forge.merged_lately(self.branch), self.clock.now(), self.clock.monotonic()
        self._lately = [it for it in told if now_s - it.updated_at_s < HEARD_S]
        self._since_s = {it.number: self._since_s.get(it.number, at_s) for it in told}
        self._read = {number: it for number, it in self._read.items() if number in self._since_s}
        return [it for it in self._lately if not self._is_read(it)]

    def takes_approvals(self, state: SyncState) -> bool:
        """Returns whether comments and reviews are to be looked at for approvals of the revision that was attempted.

        It waits for them, or is held by a window, and its request has changed.
        """
        if state.outcome in _WAITS:
            return True
        commit = commit_of(state.attempted)
        new = any(it.merge_commit == commit and not self._is_read(it) for it in self._lately)
        return new and state.outcome in _TAKES_APPROVALS

    def hear(self, forge: Forge, request: PullRequest, told: Callable[[AskedFor], str]) -> None:
        """Answers what nobody has heard; nothing of a merge that is not judged yet, or whose approvals are heard."""
        now = self.state()
        words = self._stands(request, now)
        if not words:
            return
        comments, mine = self.writer.comments(forge, request.number)
        said = said_in(mine.text, self.cluster) if mine else None
        if said is None:
            self.heard(request.number)
            return
        held = commit_of(now.attempted) != request.merge_commit == commit_of(with_suspended(now).attempted)
        fresh = [it for it in comments if self.clock.now() - it.created_at_s < HEARD_S]
        asks = _before_approval(fresh, said.heard) if held else fresh
        still_leading, after = self.writer.still_leading, not_after_merge(words)
        asked = asked_in(forge, request, asks, said, said.head, told, still_leading, after)
        if asked.heard != said.heard:
            heard = partial(with_heard, cluster=self.cluster, heard=asked.heard, answers=asked.answers)
            self.writer.write(forge, request.number, heard)
        if len(asks) == len(fresh):
            self.heard(request.number)

    def heard(self, number: int) -> None:
        """The comments of a request have been read, as of the last look."""
        request = next((it for it in self._lately if it.number == number), None)
        if request is None:
            return
        before, at_s = self._read.get(number), self.clock.monotonic()
        since_s = before.since_s if before and before.changed_s == request.updated_at_s else at_s
        self._read[number] = _Read(request.updated_at_s, since_s, at_s - since_s >= SETTLED_S)

    def _is_read(self, request: PullRequest) -> bool:
        known = self._read.get(request.number)
        return known is not None and known.settled and known.changed_s == request.updated_at_s

    def _stands(self, request: PullRequest, now: SyncState) -> str:
        """Returns the words for what became of a merge; none where that is to come, or approvals of it are heard."""
        state, commit = with_suspended(now), request.merge_commit
        if commit == commit_of(state.attempted):
            outcome, _ = after_merge(state.outcome, state.message, progress_of(state))
            return "" if state.outcome in _TAKES_APPROVALS else stands(commit, outcome)
        if commit == commit_of(state.observed):
            passed = f"revision {commit[:12]} changes nothing for this cluster"
            return passed if state.passed_by == state.observed else ""
        lasts_s = self.clock.monotonic() - self._since_s.get(request.number, self.clock.monotonic())
        return f"others have come after revision {commit[:12]}" if lasts_s >= JUDGED_S else ""


def _before_approval(comments: Sequence[Comment], heard: int) -> Sequence[Comment]:
    """Returns the comments until one that approves, which is heard when somebody can say of what."""
    for number, it in enumerate(comments):
        asked = commands_in(it.text) if it.id > heard and not it.ours else ()
        if any(isinstance(each, AskedFor) and each.command is CommentCommand.APPROVE for each in asked):
            return comments[:number]
    return comments


def commit_of(revision: str) -> str:
    """Returns the commit of a revision (`main@sha1:<commit>`)."""
    return revision.rpartition(":")[2]


def progress_of(state: SyncState) -> Convergence | None:
    """Returns how far the revision in force has come, where that is the one that was attempted last."""
    found = state.convergence
    return found if found is not None and found.revision == state.attempted == state.applied else None


WHILE_IT_WAITS: Final[Mapping[CommentCommand, str]] = {
    CommentCommand.PLAN: "it is merged, and its revision is planned again without being asked"
}
"""What is not done of a merged request whose revision takes approvals, and why."""
