"""The reviewer looks at the open pull requests of the fleet's branch, plans each in the observed world, and says so.

It has a thread of its own that nobody waits for: a forge that is down for an hour costs comments that are late. What
was said stands in the comment itself (`fleet.review.comment`), so that nothing is kept here that a restart could lose.
Only the number of a request is believed of whoever names it; all else is asked of the forge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import NamedTuple, Protocol

import structlog

from agent.backoff import Backoff
from agent.inbox import Pushed, ReviewTrouble
from agent.planning import PlanJob
from agent.sync import SyncState
from agent.watch import Watcher
from fleet.plan.guards import last_day
from fleet.review.comment import (
    CommentCommand,
    Review,
    ReviewOutcome,
    SectionMarker,
    after_merge,
    as_said,
    command_in,
    is_due,
    is_ours,
    planned_review,
    said_in,
    with_heard,
    with_section,
)
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from providers.clock import Clock
from providers.forge.port import (
    Annotation,
    Comment,
    CommitStatus,
    Forge,
    ForgeError,
    ForgeRateLimited,
    ForgeUnreachable,
    Permission,
    PullRequest,
    Verdict,
)
from providers.git.errors import MergeConflict, SourceError
from providers.git.files import Files

log = structlog.get_logger(__name__)

REQUESTS_MOST = 50
"""Open requests that are planned; of more, those that changed last."""
ANNOTATIONS_MOST = 50
_VERDICTS = {
    ReviewOutcome.APPLIES: Verdict.SUCCESS,
    ReviewOutcome.IN_FORCE: Verdict.SUCCESS,
    ReviewOutcome.HELD: Verdict.PENDING,
    ReviewOutcome.REFUSED: Verdict.FAILURE,
    ReviewOutcome.INVALID: Verdict.FAILURE,
    ReviewOutcome.CONFLICT: Verdict.FAILURE,
    ReviewOutcome.FAILED: Verdict.FAILURE,
}


class ProposedCommits(Protocol):
    """The fleet repository, for commits that are not in force: fetched and read by a bounded child, never run."""

    def fetch_ref(self, name: str) -> str:
        """Fetches a ref by full name and returns its commit. Errors: SourceError."""
        ...

    def merged_files(self, base_oid: str, head_oid: str) -> Files:
        """Returns the files after merging a commit into another, by path from the repository's root.

        Errors: MergeConflict and other SourceErrors.
        """
        ...


class LastPass(NamedTuple):
    """What a request is planned in."""

    fleet: Fleet
    snapshot: Snapshot


class LatestWorld(Watcher):
    """Keeps what the last pass of all deciders saw: values, which another thread may look at."""

    def __init__(self) -> None:
        self.now: LastPass | None = None

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """A pass of all deciders is over."""
        self.now = LastPass(fleet, snapshot)


@dataclass(frozen=True, slots=True)
class _Planned:
    """When a request was last planned, and in which world."""

    snapshot: Snapshot
    at_s: float


@dataclass(slots=True)
class Reviewer:
    """Reviews the requests to merge into one branch. `look` is called again and again by one thread."""

    cluster: str
    branch: str
    open_forge: Callable[[], Forge]
    """The forge, with the secrets as they are now. Errors: ForgeError."""
    commits: ProposedCommits
    world: Callable[[], LastPass | None]
    state: Callable[[], SyncState]
    clock: Clock
    interval_s: float
    count: Callable[[str], None]
    """Counts what came of reviewing a request: a ReviewOutcome, or the name of an error."""
    tell: Callable[[ReviewTrouble], None]
    """Hears why requests cannot be reviewed, and, with no message, that they can be again."""
    _trouble: str = ""
    _rest_until_s: float = -inf
    """Until when the forge is left alone, by the monotonic clock."""
    _planned: dict[int, _Planned] = field(default_factory=dict)
    _followed: tuple[str, str, str] = ("", "", "")
    """(revision, outcome, message) of the FleetSync that was last told of where it came from."""
    _pauses: Backoff = field(default_factory=Backoff)
    _refusals: dict[str, str] = field(default_factory=dict)
    """Why a request rests: what the forge said of it."""

    def look(self) -> float:
        """Review what is open and follow what was merged; returns the pause until the next look in seconds."""
        if (rest_s := self._rest_until_s - self.clock.monotonic()) > 0:
            return rest_s  # a delivery to the webhook is no reason to ask a forge that wants to be left alone
        world = self.world()
        if world is None:
            return min(5.0, self.interval_s)  # cluster and cloud are still being read
        try:
            with self.open_forge() as forge:
                trouble = self._look(forge, world)
        except ForgeRateLimited as error:
            pause_s = max(1.0, error.until_s - self.clock.now())
            self._rest_until_s = self.clock.monotonic() + pause_s
            return self._rest(error, pause_s)
        except ForgeError as error:
            return self._rest(error, self.interval_s)
        self._tell(trouble)
        return self.interval_s

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self.tell(ReviewTrouble(trouble))

    def _rest(self, error: ForgeError, pause_s: float) -> float:
        self._tell(f"{type(error).__name__}: {error}")
        self.count(type(error).__name__)
        log.warning("forge_failed", error=type(error).__name__, why=str(error), pause_s=round(pause_s))
        return pause_s

    def _look(self, forge: Forge, world: LastPass) -> str:
        """Looks at everything once; returns what keeps one request or another from being reviewed."""
        opened = sorted(forge.open_requests(self.branch), key=lambda it: (-it.updated_at_s, it.number))
        self._planned = {it.number: self._planned[it.number] for it in opened if it.number in self._planned}
        self._refusals = {name: words for name, words in self._refusals.items() if name in map(_subject, opened)}
        refused = self._review_all(forge, opened, world) if opened else ""
        self._follow(forge)
        return refused

    def _review_all(self, forge: Forge, opened: Sequence[PullRequest], world: LastPass) -> str:
        try:
            base = self.commits.fetch_ref(f"refs/heads/{self.branch}")
        except SourceError as error:
            self.count(type(error).__name__)
            return f"the base of requests cannot be fetched: {type(error).__name__}: {error}"
        more = len(opened) - REQUESTS_MOST
        refused = f"{more} more open requests are not looked at, those that changed least lately" if more > 0 else ""
        for request in opened[:REQUESTS_MOST]:
            refused = self._fenced(request, partial(self._review, forge, request, base, world)) or refused
        return refused

    def _fenced(self, request: PullRequest, review: Callable[[], None]) -> str:
        """One sick request never stops the others; a forge that is down, or wants to be left alone, stops them all.

        Returns what the forge refuses.
        """
        subject = _subject(request)
        if subject in self._pauses.pausing(self.clock.now()):
            return self._refusals.get(subject, "")
        try:
            review()
        except ForgeUnreachable:
            raise
        except Exception as error:
            self._pauses.failed(subject, self.clock.now())
            self.count(type(error).__name__)
            log.exception("review_failed", request=request.number)
            words = f"request {request.number}: {error}" if isinstance(error, ForgeError) else ""
            self._refusals[subject] = words
            return words
        self._pauses.succeeded(subject)
        self._refusals.pop(subject, None)
        return ""

    # -- before the merge -------------------------------------------------------------------------------------------

    def _review(self, forge: Forge, request: PullRequest, base: str, world: LastPass) -> None:
        comments = forge.comments(request.number)
        mine = _mine(comments)
        said = said_in(mine.text, self.cluster) if mine else None
        asked, heard = self._commands(forge, request, comments, said)
        if mine and said and not asked and not self._due(request, base, said, world):
            if heard != said.heard:
                forge.change_comment(request.number, mine, with_heard(mine.text, self.cluster, heard))
            return
        self._planned[request.number] = _Planned(world.snapshot, self.clock.now())
        allowed = request.head if asked or (said and said.world == request.head) else ""
        trusted = bool(allowed) or _may_write(forge, request.author)
        review = self._reviewed(request, base, world, trusted=trusted)
        self._say(forge, request, mine, replace(review, world=allowed, heard=heard))

    def _commands(
        self, forge: Forge, request: PullRequest, comments: Sequence[Comment], said: SectionMarker | None
    ) -> tuple[bool, int]:
        """Answers commands that nobody has heard yet; returns whether a plan is asked for, and the last comment heard.

        Who may not write in the repository gets a thumb down, and so does a command that there is not, and one for a
        stranger's head that was not yet told of: another one may have been meant.
        """
        heard, asked = said.heard if said else 0, False
        shown = said is not None and said.head == request.head
        for comment in comments:
            if comment.ours or comment.id <= heard or (command := command_in(comment.text)) is None:
                continue
            accepted = isinstance(command, CommentCommand) and _may_write(forge, comment.author)
            accepted = accepted and (shown or _may_write(forge, request.author))
            forge.acknowledge(request.number, comment, accepted=accepted)
            asked, heard = asked or accepted, max(heard, comment.id)
        return asked, heard

    def _due(self, request: PullRequest, base: str, said: SectionMarker, world: LastPass) -> bool:
        last = self._planned.get(request.number)
        if last is None:
            return True
        now_s, changed = self.clock.now(), last.snapshot is not world.snapshot
        return is_due(
            said, request.head, base, now_s - last.at_s, unchanged_s=now_s - request.updated_at_s, world_changed=changed
        )

    def _reviewed(self, request: PullRequest, base: str, world: LastPass, *, trusted: bool) -> Review:
        review = Review(self.cluster, request.head, base, ReviewOutcome.FAILED)
        try:
            head = self.commits.fetch_ref(request.head_ref)
            if head != request.head:
                return replace(review, sentence=f"{request.head_ref} has moved to {head}, which is looked at next")
            files = self.commits.merged_files(base, head).files
        except MergeConflict as error:
            return replace(review, outcome=ReviewOutcome.CONFLICT, sentence=str(error))
        except SourceError as error:
            return replace(review, sentence=str(error))
        state = self.state()
        day = last_day(state.day, world.snapshot.now_s)
        planned = PlanJob(Pushed(head, files), world.fleet, state.applied, world.snapshot, day, trusted)()
        if planned.error is not None:
            log.error("review_not_planned", request=request.number, exc_info=planned.error)
            return replace(review, sentence=f"planning failed: {type(planned.error).__name__}: {planned.error}")
        return planned_review(review, planned.plan, planned.problems, observed=trusted)

    # -- after the merge --------------------------------------------------------------------------------------------

    def _follow(self, forge: Forge) -> None:
        """Tell the request that the newest revision came from what has become of it."""
        state = self.state()
        told = (state.attempted, state.outcome, state.message)
        commit = state.attempted.rpartition(":")[2]
        if told == self._followed or not commit:
            return
        request = forge.merged_by(commit)
        if request is not None:
            mine = _mine(forge.comments(request.number))
            said = said_in(mine.text, self.cluster) if mine else None
            outcome = after_merge(state.outcome)
            if said is not None and (said.head, said.outcome) == (commit, outcome):
                self._followed = told  # told before a restart, after which the revision is planned again to nothing
                return
            review = Review(self.cluster, commit, "", outcome, state.message, state.plan, state.problems)
            self._say(forge, request, mine, replace(review, heard=said.heard if said else 0))
        self._followed = told

    # -- saying it --------------------------------------------------------------------------------------------------

    def _say(self, forge: Forge, request: PullRequest, mine: Comment | None, review: Review) -> None:
        """Writes comment and status where they say something else than what stands there."""
        before = mine.text if mine else ""
        said = said_in(before, self.cluster)
        self.count(review.outcome.value)
        if said == as_said(review):
            return
        if said is None or said._replace(heard=0, world="") != as_said(review)._replace(heard=0, world=""):
            forge.put_status(review.head, self._status(review, request))  # first: the comment says that all is said
        text = with_section(before, review)
        if mine is None:
            forge.write_comment(request.number, text)
        else:
            forge.change_comment(request.number, mine, text)

    def _status(self, review: Review, request: PullRequest) -> CommitStatus:
        found = tuple(Annotation(it.file, max(1, it.line), it.message) for it in review.problems[:ANNOTATIONS_MOST])
        name = f"muster/{self.cluster}"
        return CommitStatus(name, _VERDICTS[review.outcome], review.summary, request.url, found)


def _subject(request: PullRequest) -> str:
    return f"request/{request.number}"


def _may_write(forge: Forge, user: str) -> bool:
    return forge.permission(user) >= Permission.WRITE


def _mine(comments: Sequence[Comment]) -> Comment | None:
    """The one comment with the sections, of our user; the oldest where a race has made two."""
    return next((it for it in comments if it.ours and is_ours(it.text)), None)
