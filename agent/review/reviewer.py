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
from agent.explanation import Otherwise, told_of
from agent.inbox import Event, MergeApproved, Pushed, ReviewTrouble
from agent.planning import PlanJob
from agent.review.approvers import Approver, Approvers
from agent.review.statuses import commit_status, deployment_of
from agent.review.world import LastPass
from agent.sync import SyncState
from fleet.plan.approvals import GivenApproval, asks_for_approval, extent_of, judge_approvals
from fleet.plan.convergence import Convergence
from fleet.plan.guards import last_day
from fleet.review.commands import AskedFor, CommentCommand, command_in
from fleet.review.comment import (
    ANSWERS_MOST,
    Review,
    ReviewOutcome,
    SectionMarker,
    after_merge,
    answer,
    approved_review,
    as_said,
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
    Comment,
    Forge,
    ForgeError,
    ForgeRateLimited,
    ForgeUnreachable,
    Permission,
    PullRequest,
)
from providers.git.errors import MergeConflict, SourceError
from providers.git.files import Files

log = structlog.get_logger(__name__)

REQUESTS_MOST = 50
"""Open requests that are planned; of more, those that changed last."""


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


@dataclass(frozen=True, slots=True)
class _Planned:
    """When a request was last planned, and in which world."""

    snapshot: Snapshot
    at_s: float
    approvers: tuple[Approver, ...] = ()


class _Asked(NamedTuple):
    """What comments that nobody had heard asked for."""

    heard: int
    """The last of them, by id."""
    plan: bool = False
    approvers: tuple[Approver, ...] = ()
    answers: tuple[str, ...] = ()


_QUESTIONS = frozenset({CommentCommand.WHY, CommentCommand.WHATIF})
WAITS_FOR_APPROVAL = frozenset({"Unapproved", "Stale"})
"""Outcomes of a merged revision that an approval ends."""


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
    tell: Callable[[Event], None]
    """Hears why requests cannot be reviewed (with no message: that they can be again), and who approved what."""
    approvers: Approvers
    least_approvals: int = 0
    """As in `Sync`."""
    _trouble: str = ""
    _rest_until_s: float = -inf
    """Until when the forge is left alone, by the monotonic clock."""
    _planned: dict[int, _Planned] = field(default_factory=dict)
    _followed: tuple[str, str, str] = ("", "", "")
    """(revision, outcome, message) of the FleetSync that was last told of where it came from."""
    _merge: MergeApproved | None = None
    """What was last told of who approved a merge."""
    _pauses: Backoff = field(default_factory=Backoff)
    _undeployed: str = ""
    """Why the forge takes no deployment of the newest revision."""
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
        self.approvers.unknown_teams.clear()
        refused = self._review_all(forge, opened, world) if opened else ""
        self._follow(forge, world)
        return refused or self._undeployed or "; ".join(self.approvers.unknown_teams.values())

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
        asked = self._commands(forge, request, comments, said, request.head, world)
        approvers = (*self._reviews(forge, request, world), *asked.approvers)
        if mine and said and not asked.plan and not self._due(request, base, said, world, approvers):
            if asked.heard != said.heard:
                text = with_heard(mine.text, self.cluster, asked.heard, asked.answers)
                forge.change_comment(request.number, mine, text)
            return
        shown = self.approvers.shown(request.number, request.head)
        self._planned[request.number] = _Planned(world.snapshot, self.clock.now(), self._reviews_of(approvers))
        allowed = request.head if asked.plan or (said and said.world == request.head) else ""
        trusted = bool(allowed) or _may_write(forge, request.author)
        review, fleet = self._reviewed(request, base, world, trusted=trusted)
        if fleet is not None and review.plan is not None and asks_for_approval(world.fleet, self.least_approvals):
            extent = extent_of(review.plan)
            if shown is None and said and (said.head, said.plan) == (request.head, extent.plan_id):
                shown = extent  # said before a restart, and still so
            given = self.approvers.given(forge, request, approvers, shown, world.fleet)
            review = approved_review(
                review, judge_approvals(world.fleet, fleet, review.plan, given, least=self.least_approvals)
            )
            self.approvers.shows(request.number, request.head, extent, self.clock.now())
        self._say(forge, request, mine, replace(review, world=allowed, heard=asked.heard, answers=asked.answers))

    def _reviews(self, forge: Forge, request: PullRequest, world: LastPass) -> tuple[Approver, ...]:
        return self.approvers.reviews(forge, request) if asks_for_approval(world.fleet, self.least_approvals) else ()

    @staticmethod
    def _reviews_of(approvers: Sequence[Approver]) -> tuple[Approver, ...]:
        return tuple(it for it in approvers if not it.commanded)

    def _commands(
        self,
        forge: Forge,
        request: PullRequest,
        comments: Sequence[Comment],
        said: SectionMarker | None,
        head: str,
        world: LastPass,
    ) -> _Asked:
        """Answers commands that nobody has heard yet; returns what they ask for.

        Who may not write in the repository gets a thumb down, and so does a command that there is not, one for a
        stranger's head that was not yet told of, and an approval of what was not: another one may have been meant.
        """
        heard, shown = said.heard if said else 0, said is not None and said.head == head
        plan, approvers, answers = False, [], []
        for comment in comments:
            if comment.ours or comment.id <= heard or (asked := command_in(comment.text)) is None:
                continue
            accepted = not isinstance(asked, str) and self._accepts(forge, request, comment, asked.command, shown=shown)
            forge.acknowledge(request.number, comment, accepted=accepted)
            heard = max(heard, comment.id)
            if isinstance(asked, str) or not accepted:
                continue
            match asked.command:
                case CommentCommand.PLAN:
                    plan = True
                case CommentCommand.APPROVE:
                    approvers.append(Approver(comment.author, comment.created_at_s, commanded=True))
                case _:
                    answers.append(_answered(asked, world))
        return _Asked(heard, plan, tuple(approvers), tuple(answers[-ANSWERS_MOST:]))

    def _accepts(
        self, forge: Forge, request: PullRequest, comment: Comment, command: CommentCommand, *, shown: bool
    ) -> bool:
        if not _may_write(forge, comment.author) or (command is CommentCommand.APPROVE and comment.edited):
            return False
        return shown or command in _QUESTIONS or (command is CommentCommand.PLAN and _may_write(forge, request.author))

    def _due(
        self, request: PullRequest, base: str, said: SectionMarker, world: LastPass, approvers: Sequence[Approver]
    ) -> bool:
        last = self._planned.get(request.number)
        if last is None or last.approvers != tuple(approvers):
            return True
        now_s, changed = self.clock.now(), last.snapshot is not world.snapshot
        return is_due(
            said, request.head, base, now_s - last.at_s, unchanged_s=now_s - request.updated_at_s, world_changed=changed
        )

    def _reviewed(
        self, request: PullRequest, base: str, world: LastPass, *, trusted: bool
    ) -> tuple[Review, Fleet | None]:
        """Returns what there is to say of a request, and the fleet that it declares where it can be read."""
        review = Review(self.cluster, request.head, base, ReviewOutcome.FAILED)
        try:
            head = self.commits.fetch_ref(request.head_ref)
            if head != request.head:
                return replace(
                    review, sentence=f"{request.head_ref} has moved to {head}, which is looked at next"
                ), None
            files = self.commits.merged_files(base, head).files
        except MergeConflict as error:
            return replace(review, outcome=ReviewOutcome.CONFLICT, sentence=str(error)), None
        except SourceError as error:
            return replace(review, sentence=str(error)), None
        state = self.state()
        day = last_day(state.day, world.snapshot.now_s)
        planned = PlanJob(Pushed(head, files), world.fleet, state.applied, world.snapshot, day, trusted)()
        if planned.error is not None:
            log.error("review_not_planned", request=request.number, exc_info=planned.error)
            words = f"planning failed: {type(planned.error).__name__}: {planned.error}"
            return replace(review, sentence=words), None
        return planned_review(review, planned.plan, planned.problems, observed=trusted), planned.fleet

    # -- after the merge --------------------------------------------------------------------------------------------

    def _follow(self, forge: Forge, world: LastPass) -> None:
        """Tell the request that the newest revision came from what has become of it, and ask who approved it."""
        state = self.state()
        outcome, sentence = after_merge(state.outcome, state.message, _progress(state))
        told = (state.attempted, outcome.value, sentence)
        commit = state.attempted.rpartition(":")[2]
        waits = state.outcome in WAITS_FOR_APPROVAL
        if not commit or (told == self._followed and not waits):
            return
        request = forge.merged_by(commit)
        if told != self._followed:
            self._deploy(forge, commit, Review(self.cluster, commit, "", outcome, sentence), request)
        if request is None:
            if waits:
                why = "it came without a pull request, and nothing else can be approved"
                self._tell_of_merge(MergeApproved(commit, (), why))
            self._followed = told
            return
        comments = forge.comments(request.number)
        mine = _mine(comments)
        said = said_in(mine.text, self.cluster) if mine else None
        heard = said.heard if said else 0
        if waits:
            asked = self._commands(forge, request, comments, said, commit, world)
            self._tell_of_merge(MergeApproved(commit, self._given(forge, request, asked, state, world)))
            heard = asked.heard
        news = self._followed[0] == state.attempted and told != self._followed
        if news or said is None or heard != said.heard or (said.head, said.outcome) != (commit, outcome):
            review = Review(self.cluster, commit, "", outcome, sentence, state.plan, state.problems)
            review = replace(review, heard=heard, approvals=len(state.approved_by))
            self._say(forge, request, mine, review, news=news)
        self._followed = told  # told perhaps before a restart, after which the revision is planned again to nothing

    def _deploy(self, forge: Forge, commit: str, review: Review, request: PullRequest | None) -> None:
        """Shows on the forge how far a revision in force has come. What the forge refuses keeps nothing else back."""
        told = deployment_of(review, self.branch, request.url if request else "")
        if told is None:
            return
        try:
            forge.put_deployment(told)
        except ForgeUnreachable:
            raise
        except ForgeError as error:
            self.count(type(error).__name__)
            self._undeployed = str(error)
        else:
            self._undeployed = ""

    def _given(
        self, forge: Forge, request: PullRequest, asked: _Asked, state: SyncState, world: LastPass
    ) -> tuple[GivenApproval, ...]:
        """Returns the approvals of what was merged: reviews are of what was shown before, commands of what is now."""
        reviews = self.approvers.reviews(forge, request)
        shown = self.approvers.shown(request.number, request.head)
        given = self.approvers.given(forge, request, reviews, shown, world.fleet)
        if asked.approvers and state.plan is not None:
            again = (*reviews, *asked.approvers)
            given = self.approvers.given(forge, request, again, extent_of(state.plan), world.fleet)
        return given

    def _tell_of_merge(self, merge: MergeApproved) -> None:
        if merge != self._merge:
            self._merge = merge
            self.tell(merge)

    # -- saying it --------------------------------------------------------------------------------------------------

    def _say(
        self, forge: Forge, request: PullRequest, mine: Comment | None, review: Review, *, news: bool = False
    ) -> None:
        """Writes comment and status where they say something else than what stands there; `news`: the sentence does."""
        before = mine.text if mine else ""
        said = said_in(before, self.cluster)
        self.count(review.outcome.value)
        if said == as_said(review) and not news:
            return
        if said is None or said._replace(heard=0, world="") != as_said(review)._replace(heard=0, world=""):
            forge.put_status(
                review.head, commit_status(review, request.url)
            )  # first: the comment says that all is said
        text = with_section(before, review)
        if mine is None:
            forge.write_comment(request.number, text)
        else:
            forge.change_comment(request.number, mine, text)


def _progress(state: SyncState) -> Convergence | None:
    """Returns how far the revision in force has come, where that is the one that was attempted last."""
    found = state.convergence
    return found if found is not None and found.revision == state.attempted == state.applied else None


def _answered(asked: AskedFor, world: LastPass) -> str:
    wanted = dict(asked.changes)
    gpus = int(wanted["gpus"]) if "gpus" in wanted else None
    question = Otherwise(wanted.get("priority", ""), wanted.get("queue", ""), gpus)
    return answer(asked, list(told_of(asked.gang, question, world.fleet, world.snapshot)))


def _subject(request: PullRequest) -> str:
    return f"request/{request.number}"


def _may_write(forge: Forge, user: str) -> bool:
    return forge.permission(user) >= Permission.WRITE


def _mine(comments: Sequence[Comment]) -> Comment | None:
    """The one comment with the sections, of our user; the oldest where a race has made two."""
    return next((it for it in comments if it.ours and is_ours(it.text)), None)
