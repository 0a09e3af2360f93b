"""The reviewer looks at the open pull requests of the fleet's branch, plans each in the observed world, and says so.

It has a thread of its own that nobody waits for: a forge that is down for an hour costs comments that are late. What
was said stands in the comment itself (`fleet.review.comment`), so that nothing is kept here that a restart could lose.
Only the number of a request is believed of whoever names it; all else is asked of the forge.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import structlog

from agent.backoff import Backoff
from agent.inbox import Event, MergeApproved, Pushed, ReviewTrouble
from agent.planning import PlanJob
from agent.review.approvers import Approver, Approvers
from agent.review.commands import AskedInComments, answered, asked_in, may_write
from agent.review.forecaster import Forecaster, Proposed
from agent.review.merged import WHILE_IT_WAITS, MergedRequests, commit_of, progress_of
from agent.review.proposing import ImageProposer
from agent.review.saying import DeploymentWriter, SectionWriter, UntouchedRequests
from agent.review.world import LastPass, PlannedRequest, ProposedCommits, RunsWithoutChange, said_beside, with_suspended
from agent.sync import SyncState
from agent.web.seen import Explain, explained_at_once
from fleet.plan.approvals import GivenApproval, asks_for_approval, extent_of, judge_approvals
from fleet.plan.guards import last_day
from fleet.review.commands import AskedFor
from fleet.review.comment import (
    LOOKED_AT_S,
    REPLAN_S,
    Review,
    ReviewOutcome,
    SectionMarker,
    after_merge,
    approved_review,
    has_forecast,
    is_due,
    joined,
    planned_review,
    said_in,
    with_forecast,
    with_heard,
)
from fleet.review.images import is_of_ours
from model.fleet import Fleet
from providers.clock import Clock
from providers.forge.port import (
    Comment,
    CommitUnknown,
    Forge,
    ForgeError,
    ForgeRateLimited,
    ForgeUnreachable,
    PullRequest,
)
from providers.git.errors import MergeConflict, SourceError

log = structlog.get_logger(__name__)

REQUESTS_MOST = 50
"""Open requests that are planned; of more, those that changed last."""
SOON_S = 1.0
"""The pause after a look in which a request was pushed to."""
_AGAIN = f"it is tried again in {REPLAN_S / 60:.0f} minutes"
UNKNOWN_S = 300.0
"""For how long a forge may not know a commit before that is trouble: it learns of a push after git does."""


class Deposed(Exception):
    """Another agent may lead by now: nothing more is written to the forge."""


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
    leading: Callable[[], bool] = lambda: True
    """Whether this process may write at this instant: the forge fences nobody off, and another may review by now."""
    forecasts: Forecaster | None = None
    """Has forecasts made; None where there are none."""
    explain: Explain = explained_at_once
    """Explains a gang that somebody asks about."""
    _trouble: str = ""
    _look_soon: bool = False
    """Whether a request was pushed to while it was looked at."""
    _rest_until_s: float = -inf
    """Until when the forge is left alone, by the monotonic clock."""
    _planned: dict[int, PlannedRequest] = field(default_factory=dict)
    _followed: tuple[str, str, str] = ("", "", "")
    """(revision, outcome, message) of the FleetSync that was last told of where it came from."""
    _merge: MergeApproved | None = None
    """What was last told of who approved a merge."""
    _writer: SectionWriter = field(init=False)
    _untouched: UntouchedRequests = field(init=False)
    _merged: MergedRequests = field(init=False)
    _deployments: DeploymentWriter = field(init=False)
    _images: ImageProposer = field(init=False)
    _anyway: RunsWithoutChange = field(init=False)
    _pauses: Backoff = field(default_factory=Backoff)
    _refusals: dict[str, str] = field(default_factory=dict)
    """Why a request rests, or the newest revision: what the forge said of it."""
    _unknown: dict[str, float] = field(default_factory=dict)
    """Since when the forge does not know the commit of one."""

    def __post_init__(self) -> None:
        self._writer = SectionWriter(self.cluster, self._still_leading)
        self._untouched = UntouchedRequests(self.cluster, self.commits)
        self._merged = MergedRequests(self.cluster, self.branch, self._writer, self.state, self.clock)
        self._deployments = DeploymentWriter(self.branch, self._still_leading, self.count)
        self._anyway = RunsWithoutChange(self.clock)
        self._images = ImageProposer(self.cluster, self.branch, self.commits, self._still_leading)

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
        except Deposed:
            return self.interval_s
        self._tell(trouble)
        awaited_s = self._pauses.ends_s - self.clock.now() if self._unknown else inf
        return min(self.interval_s, SOON_S if self._look_soon else max(SOON_S, awaited_s))

    def close(self) -> None:
        """End what is being made for comments; from any thread."""
        if self.forecasts is not None:
            self.forecasts.close()

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
        self._look_soon = False
        opened = sorted(forge.open_requests(self.branch), key=lambda it: (-it.updated_at_s, it.number))
        self._planned = {it.number: self._planned[it.number] for it in opened if it.number in self._planned}
        subjects = {*map(_subject, (*opened, *self._merged.known)), _MERGED, self._of_revision}
        self._refusals = {name: words for name, words in self._refusals.items() if name in subjects}
        self._unknown = {name: since_s for name, since_s in self._unknown.items() if name in subjects}
        self._writer.forget([it.number for it in opened])
        self.approvers.unknown_teams.clear()
        if self.forecasts is not None:
            self.forecasts.keep({it.number: it.head for it in opened})
        refused = self._review_all(forge, opened, world) if opened else ""
        refused = self._images.propose(forge, world, opened) or refused
        refused = self._hear_merged(forge, world) or refused
        refused = self._fenced(self._of_revision, partial(self._follow, forge, world)) or refused
        return refused or self._deployments.refused or "; ".join(self.approvers.unknown_teams.values())

    def _review_all(self, forge: Forge, opened: Sequence[PullRequest], world: LastPass) -> str:
        try:
            base = self.commits.fetch_ref(f"refs/heads/{self.branch}")
        except SourceError as error:
            self.count(type(error).__name__)
            return f"the base of requests cannot be fetched: {type(error).__name__}: {error}"
        more = len(opened) - REQUESTS_MOST
        refused = f"{more} more open requests are not looked at, those that changed least lately" if more > 0 else ""
        for request in opened[:REQUESTS_MOST]:
            refused = self._fenced(_subject(request), partial(self._review, forge, request, base, world)) or refused
        return refused

    @property
    def _of_revision(self) -> str:
        return f"revision {self.state().attempted}"

    def _fenced(self, subject: str, review: Callable[[], None]) -> str:
        """One sick request never stops the others; a forge that is down, or wants to be left alone, stops them all.

        Returns what the forge refuses, but for a commit that it may just not know yet.
        """
        if subject in self._pauses.pausing(self.clock.now()):
            return self._refusals.get(subject, "")
        try:
            review()
        except (ForgeUnreachable, Deposed):
            raise
        except CommitUnknown as error:
            now_s = self.clock.now()
            lasts = now_s - self._unknown.setdefault(subject, now_s) >= UNKNOWN_S
            return self._put_off(subject, error, f"{subject}: {error}" if lasts else "")
        except Exception as error:
            log.exception("review_failed", subject=subject)
            return self._put_off(subject, error, f"{subject}: {error}" if isinstance(error, ForgeError) else "")
        self._pauses.succeeded(subject)
        for kept in (self._refusals, self._unknown):
            kept.pop(subject, None)
        return ""

    def _put_off(self, subject: str, error: Exception, words: str) -> str:
        self._pauses.failed(subject, self.clock.now())
        self.count(type(error).__name__)
        self._refusals[subject] = words
        return words

    # -- before the merge -------------------------------------------------------------------------------------------

    def _review(self, forge: Forge, request: PullRequest, base: str, world: LastPass) -> None:
        comments, mine = self._writer.comments(forge, request.number)
        said = said_in(mine.text, self.cluster) if mine else None
        request = self._writer.as_others_left(request, comments)
        if said is None and self._untouched.passes_by(request, base, partial(self._pass_by, forge, request)):
            return
        asked = asked_in(forge, request, comments, said, request.head, self._told_in(world), self._still_leading)
        approvers = (*self._reviews(forge, request, world), *asked.approvers)
        if mine and said and not asked.plan and not self._due(request, base, said, world, approvers):
            if asked.heard != said.heard:
                heard = partial(with_heard, cluster=self.cluster, heard=asked.heard, answers=asked.answers)
                self._writer.write(forge, request.number, heard)
            self._tell_forecast(forge, request, base)
            return
        shown = self.approvers.shown(request.number, request.head)
        reviews = tuple(it for it in approvers if not it.commanded)
        beside = said_beside(self.state(), base)
        planned = PlannedRequest(world, self.clock.now(), reviews, beside)
        allowed = request.head if asked.plan or (said and said.world == request.head) else ""
        trusted = (
            bool(allowed) or is_of_ours(request.branch, from_fork=request.from_fork) or may_write(forge, request.author)
        )
        review, fleet = self._reviewed(request, base, world, trusted=trusted)
        if review is None:
            review, fleet = self._of_another_head(forge, request, base), None
        if review is None:
            self._look_soon = True
            return
        extent = None
        if fleet is not None and (plan := review.plan) is not None:
            extent = extent_of(plan)
            review = replace(review, sentence=joined(beside if trusted else "", review.sentence))
            if asks_for_approval(world.fleet, self.least_approvals):
                if shown is None and said and (said.head, said.plan) == (request.head, extent.plan_id):
                    shown = extent  # said before a restart, and still so
                given = self.approvers.given(forge, request, approvers, shown, world.fleet)
                verdict = judge_approvals(world.fleet, fleet, plan, given, least=self.least_approvals)
                review = approved_review(review, verdict)
        self._say(forge, request, mine, replace(review, world=allowed, heard=asked.heard, answers=asked.answers))
        # Only now: what the forge did not take has not been shown to anybody, and is planned and said again.
        self._planned[request.number] = planned
        if extent is not None:
            self.approvers.shows(request.number, request.head, extent, planned.at_s)
        if trusted and fleet is not None and review.plan is not None:  # others may not learn of the work of the cluster
            self._want_forecast(request, base, mine, world.fleet, fleet)

    def _told_in(self, world: LastPass) -> Callable[[AskedFor], str]:
        return partial(answered, world=world, explain=self.explain)

    def _reviews(self, forge: Forge, request: PullRequest, world: LastPass) -> tuple[Approver, ...]:
        return self.approvers.reviews(forge, request) if asks_for_approval(world.fleet, self.least_approvals) else ()

    def _due(
        self, request: PullRequest, base: str, said: SectionMarker, world: LastPass, approvers: Sequence[Approver]
    ) -> bool:
        last = self._planned.get(request.number)
        if last is None or not last.stands(world, tuple(approvers), said_beside(self.state(), base)):
            return True
        now_s, changed = self.clock.now(), last.world.snapshot is not world.snapshot
        return is_due(
            said, request.head, base, now_s - last.at_s, unchanged_s=now_s - request.updated_at_s, world_changed=changed
        )

    def _reviewed(
        self, request: PullRequest, base: str, world: LastPass, *, trusted: bool
    ) -> tuple[Review | None, Fleet | None]:
        """Returns what there is to say of a request, and the fleet that it declares where it can be read.

        Nothing, where its ref is another commit than its head.
        """
        review = Review(self.cluster, request.head, base, ReviewOutcome.FAILED)
        anyway = self._anyway.begin(world) if trusted else None
        try:
            head = self.commits.fetch_ref(request.head_ref)
            if head != request.head:
                return None, None
            files = self.commits.merged_files(base, head).files
        except MergeConflict as error:
            return replace(review, outcome=ReviewOutcome.CONFLICT, sentence=str(error)), None
        except SourceError as error:
            return replace(review, sentence=joined(str(error), _AGAIN)), None
        state = self.state()
        day = last_day(state.day, world.snapshot.now_s)
        planned = PlanJob(
            Pushed(head, files), world.fleet, state.applied, world.snapshot, day, trusted, self.cluster, anyway
        )()
        if planned.error is not None:
            log.error("review_not_planned", request=request.number, exc_info=planned.error)
            words = f"planning failed: {type(planned.error).__name__}: {planned.error}"
            return replace(review, sentence=joined(words, _AGAIN)), None
        review = planned_review(
            review, planned.plan, planned.problems, observed=trusted, suspended=trusted and state.suspended
        )
        return review, planned.fleet

    def _of_another_head(self, forge: Forge, request: PullRequest, base: str) -> Review | None:
        """Returns what there is to say of a ref that is not the head; nothing where it was pushed to meanwhile."""
        now = forge.request(request.number)
        if now is None or now.head != request.head:
            return None
        words = f"{request.head_ref} is another commit than the head that the forge tells"
        return Review(self.cluster, request.head, base, ReviewOutcome.FAILED, words)

    # -- the forecast, once the comment stands ------------------------------------------------------------------------

    def _want_forecast(
        self, request: PullRequest, base: str, mine: Comment | None, before: Fleet, after: Fleet
    ) -> None:
        """Has a forecast made where none stands; of a request that nobody touches none for each new base."""
        if self.forecasts is None or before == after or self.clock.now() - request.updated_at_s >= LOOKED_AT_S:
            return
        if mine is None or not has_forecast(mine.text, self.cluster, request.head, base):
            self.forecasts.want(request.number, Proposed(request.head, base), before, after, self.clock.now())

    def _tell_forecast(self, forge: Forge, request: PullRequest, base: str) -> None:
        if self.forecasts is None or not (found := self.forecasts.made(request.number, Proposed(request.head, base))):
            return
        self._writer.write(forge, request.number, partial(with_forecast, cluster=self.cluster, forecast=found))
        self.forecasts.said(request.number)

    # -- after the merge --------------------------------------------------------------------------------------------

    def _hear_merged(self, forge: Forge, world: LastPass) -> str:
        changed: list[PullRequest] = []
        refused = self._fenced(_MERGED, lambda: changed.extend(self._merged.look(forge)))
        for request in changed:
            hear = partial(self._merged.hear, forge, request, self._told_in(world))
            refused = self._fenced(_subject(request), hear) or refused
        return refused

    def _follow(self, forge: Forge, world: LastPass) -> None:
        """Tell the request that the newest revision came from what has become of it, and ask who approved it."""
        now = self.state()
        state = with_suspended(now)
        outcome, sentence = after_merge(state.outcome, state.message, progress_of(state))
        told = (state.attempted, outcome.value, sentence)
        commit = commit_of(state.attempted)
        waits = self._merged.takes_approvals(state)
        if not commit or (told == self._followed and not waits):
            return
        request = forge.merged_by(commit)
        if told != self._followed:
            self._deployments.tell(forge, Review(self.cluster, commit, "", outcome, sentence), request)
        if request is None:
            if waits:
                why = "it came without a pull request, and nothing else can be approved"
                self._tell_of_merge(MergeApproved(commit, (), why))
            self._followed = told
            return
        comments, mine = self._writer.comments(forge, request.number)
        said = said_in(mine.text, self.cluster) if mine else None
        if said is None and state is not now:
            return  # nobody knows yet whether it changes anything of this cluster
        heard, answers = said.heard if said else 0, tuple[str, ...]()
        if waits:
            told_of, leads = self._told_in(world), self._still_leading
            asked = asked_in(forge, request, comments, said, commit, told_of, leads, WHILE_IT_WAITS)
            self._tell_of_merge(MergeApproved(commit, self._given(forge, request, asked, state, world)))
            heard, answers = asked.heard, asked.answers
        news = self._followed[0] == state.attempted and told != self._followed
        hands = self.approvers.saw_merge(forge, request, commit)
        if news or said is None or heard != said.heard or (said.head, said.outcome) != (commit, outcome):
            sentence = joined(sentence, hands.words)
            review = Review(self.cluster, commit, "", outcome, sentence, state.plan, state.problems)
            review = replace(review, heard=heard, approvals=len(state.approved_by), answers=answers)
            self._say(forge, request, mine, review)
        if waits:
            self._merged.heard(request.number)
        self._followed = told  # told perhaps before a restart, after which the revision is planned again to nothing

    def _given(
        self, forge: Forge, request: PullRequest, asked: AskedInComments, state: SyncState, world: LastPass
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

    def _say(self, forge: Forge, request: PullRequest, mine: Comment | None, review: Review) -> None:
        self.count(review.outcome.value)
        self._writer.say(forge, request, review, mine.text if mine else "")

    def _pass_by(self, forge: Forge, request: PullRequest, review: Review) -> None:
        self.count(review.outcome.value)
        self._writer.set_status(forge, request, review)

    def _still_leading(self) -> None:
        """Raises Deposed where another agent may be reviewing by now."""
        if not self.leading():
            raise Deposed


_MERGED = "merged requests"


def _subject(request: PullRequest) -> str:
    return f"request {request.number}"
