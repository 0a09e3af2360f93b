"""Which revision is in force: a pushed one is loaded, planned, held against the guard rails, and only then adopted.

One that does not follow the revision in force in history is refused before anything is made of it.

Loading and planning happen elsewhere (`agent.planning`), one revision at a time, while the one in force stays.

An invalid or refused revision changes nothing: the last good one stays. A refused one is looked at again when the
world has changed, since the plan may be harmless by then. While somebody has suspended the sync, nothing new is judged:
what is in force stays, and goes on being carried out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isinf

import structlog

from agent.asked import Operated
from agent.inbox import (
    ApprovalsSeen,
    MergeApproved,
    MergeSeen,
    Planned,
    Pushed,
    RequestHandled,
    ReviewTrouble,
    RevisionLost,
    SourceTrouble,
    SourceWell,
    TrustJudged,
)
from agent.planning import PlanJob
from fleet.actions import Action
from fleet.disruption import frozen_until
from fleet.disruption.pool_rollout import paused_words, rollout_begun, rollout_progress
from fleet.fence import DecisionFailed
from fleet.mig.records import LayoutRecords, with_former_layouts
from fleet.plan import Plan
from fleet.plan.approvals import ApprovalState, ApprovalVerdict, ApprovedPlan, judge_approvals, needs_a_forge
from fleet.plan.changes import only_windows, says_the_same, suspension
from fleet.plan.convergence import Convergence, ConvergencePhase, began, looked_at
from fleet.plan.guards import RevisionTally, day_with, last_day
from fleet.snapshot import RolloutProgress, Snapshot
from model.fleet import Fleet
from model.plain_text import instant
from model.problem import Problem, in_short

log = structlog.get_logger(__name__)

RECONSIDER_S, RECONSIDER_MOST_S = 30.0, 600.0
"""A refused or frozen revision is planned again after this long, then after twice as long, up to the most."""
_WAITS = frozenset({"Frozen", "Unapproved", "Stale"})
"""Outcomes that end without another push."""
RETRY_MOST_S = 300.0
"""Longest pause before a revision whose planning failed is planned again."""


@dataclass(frozen=True, slots=True)
class SyncState:
    """How git and the fleet stand to each other; revisions are written as Flux does (`main@sha1:<commit>`)."""

    observed: str = ""
    attempted: str = ""
    applied: str = ""
    signer: str = ""
    applied_plan: str = ""
    """Id of the plan with which the revision in force came into force; empty for one restored after a restart."""
    outcome: str = "Waiting"
    """Applied, Invalid, Refused, Unapproved, Stale, Rewound, Frozen, Suspended, Unsigned, PlanningFailed, RevisionLost,
    Untrusted or Waiting."""
    message: str = "no revision read yet"
    problems: tuple[Problem, ...] = ()
    plan: Plan | None = None
    at_s: float = 0.0
    passed_by: str = ""
    """The last revision that changes nothing for this cluster, and so is no other than the one in force here."""
    stalled: bool = False
    """Nothing but a new push will help."""
    planning: str = ""
    """The revision that is being loaded and planned at present."""
    planning_since_s: float = 0.0
    trouble: SourceTrouble | None = None
    """Why the repository cannot be read at present; the revision in force stays."""
    review_trouble: str = ""
    """Why pull requests cannot be reviewed at present; what is in force does not care."""
    distrust: str = ""
    """Why nobody vouches any more for the revision in force; what runs goes on."""
    day: tuple[RevisionTally, ...] = ()
    """What came of the revisions of the last 24 hours, oldest first."""
    approved: tuple[ApprovedPlan, ...] = ()
    """Approvals of pull requests, oldest first."""
    approved_by: tuple[str, ...] = ()
    """Whose approvals the revision that was attempted has."""
    merge: MergeSeen | None = None
    """By which request the newest revision came that is known to have come by one."""
    author: str = ""
    """Who wrote the commit that was attempted, as it says itself."""
    attempted_signer: str = ""
    """Who vouches for the revision that was attempted; empty where nobody does, or nobody was asked."""
    suspended: bool = False
    """Somebody has asked that no revision comes into force for now."""
    suspend_reason: str = ""
    handled_request: str = ""
    """The last request by hand after which the repository has been looked at."""
    convergence: Convergence | None = None
    """What is left to do of the revision in force; None before there is one."""
    rollout: RolloutProgress | None = None
    """What is remembered of the roll-out pool by pool; None where there is none."""
    layouts: LayoutRecords = field(default_factory=dict)

    @property
    def hands(self) -> MergeSeen:
        """Returns by whose hands the revision that was attempted came; nobody's, where that is not known."""
        commit = self.attempted.rpartition(":")[2]
        seen = self.merge if self.merge is not None and self.merge.commit == commit else MergeSeen(commit, 0)
        return replace(seen, approved_by=tuple(sorted({*seen.approved_by, *self.approved_by})))

    @property
    def standing(self) -> tuple[str, str]:
        """The reason and the sentence that say how the repository stands: the nearest trouble first."""
        if self.trouble:
            return "SourceFailed", self.trouble.message
        if self.distrust and self.outcome == "Applied":
            return "Untrusted", f"{self.applied} stays in force, but nobody vouches for it any more: {self.distrust}"
        if self.passed_by and self.passed_by == self.observed:
            return self.outcome, f"{self.message}; {self.passed_by} changes nothing for this cluster"
        return self.outcome, self.message


SyncEvent = (
    Pushed
    | SourceTrouble
    | SourceWell
    | RevisionLost
    | TrustJudged
    | ReviewTrouble
    | ApprovalsSeen
    | MergeApproved
    | MergeSeen
    | Operated
    | RequestHandled
)


@dataclass(slots=True)
class Sync:
    """Keeps the revision in force, and decides whether one that was pushed takes its place."""

    adopted: Callable[[str, Fleet], None] = lambda _revision, _fleet: None
    """Hears of each revision that comes into force, before anybody else."""
    forge: bool = True
    """Whether there is a forge that can be asked who approved what."""
    least_approvals: int = 0
    """Approvals that each revision but the first needs, whatever the policy in force asks for."""
    cluster: str = ""
    """Whose part of the repository is in force, where that holds several clusters."""
    fleet: Fleet | None = None
    state: SyncState = field(default_factory=SyncState)
    _expected: str = ""
    """The revision in force before this process; nothing else is looked at until it is in force again."""
    _restored: Pushed | None = None
    _waiting: Pushed | None = None
    look_again_s: float = 0.0
    _planning: Pushed | None = None
    """What is being planned at present."""
    _held: int = 0
    """How often in a row what was pushed has been refused or frozen."""
    _failures: int = 0
    """How often planning has failed since it last succeeded."""
    _unapproved_says: tuple[Pushed, Fleet] | None = None
    """What waits for approval, and what it declares."""
    _merge: MergeApproved | None = None
    """What the forge says of who approved what waits."""
    _catches_up: bool = False
    """Whether nothing that was pushed has been judged since what was in force before a restart is so again."""

    def expect(
        self,
        revision: str,
        day: Sequence[RevisionTally] = (),
        convergence: Convergence | None = None,
        approved: Sequence[ApprovedPlan] = (),
        rollout: RolloutProgress | None = None,
    ) -> None:
        """Start where an earlier process stood: `revision` must be in force again before any other is judged."""
        self._expected = revision
        message = f"{revision} is being restored and verified again"
        self.state = replace(
            self.state, applied=revision, message=message,
            day=tuple(day), convergence=convergence, approved=tuple(approved), rollout=rollout,
        )  # fmt: skip

    def hear(self, event: SyncEvent) -> None:
        """A new revision, how the repository and its forge are, or what people ask for."""
        match event:
            case Operated():
                self._operated(event)
            case RequestHandled():
                self.state = replace(self.state, handled_request=event.request)
            case SourceTrouble():
                self.state = replace(self.state, trouble=event)
            case ReviewTrouble():
                self.state = replace(self.state, review_trouble=event.message)
            case ApprovalsSeen():
                self.state = replace(self.state, approved=event.approved)
            case MergeApproved():
                self._approved(event)
            case MergeSeen():
                self.state = replace(self.state, merge=event)
            case SourceWell():
                self.state = replace(self.state, trouble=None)
            case RevisionLost():
                outcome, message = event.standing
                self.state = replace(self.state, outcome=outcome, message=message, stalled=True)
            case TrustJudged():
                self._judge_trust(event)
            case Pushed():
                self._pushed(event)

    def _operated(self, event: Operated) -> None:
        if self.state.suspended != event.suspended:
            log.info("sync_suspended" if event.suspended else "sync_resumed", reason=event.reason)
            self.look_again_s = 0.0
        self.state = replace(self.state, suspended=event.suspended, suspend_reason=event.reason)

    def _approved(self, event: MergeApproved) -> None:
        if self._waiting is not None and event != self._merge:
            self.look_again_s = 0.0
        self._merge = event

    def _judge_trust(self, event: TrustJudged) -> None:
        if event.revision != self.state.applied:
            return
        if event.distrust and event.distrust != self.state.distrust:
            log.warning("revision_distrusted", revision=event.revision, why=event.distrust)
        self.state = replace(self.state, signer=event.signer, distrust=event.distrust)

    def _pushed(self, event: Pushed) -> None:
        self.state = replace(self.state, trouble=None)
        if event.restored:
            self._restored = event
            return
        self._waiting = event
        self.look_again_s = 0.0 if self._restored is None else self.look_again_s
        self._held = 0
        self.state = replace(self.state, observed=event.revision)

    @property
    def holds_decisions(self) -> bool:
        """Whether nothing is decided yet: between what was in force before a restart and what has been pushed since.

        Machines bought under the newer one would else go under the older one, and come again.
        """
        return self._catches_up and self._waiting is not None and not self.state.suspended

    def due(self, snapshot: Snapshot, now_s: float) -> PlanJob | None:
        """The revision to be planned now, what was in force before a restart first; one at a time."""
        event = self._restored or (None if self._expected or self.state.suspended else self._waiting)
        if event is None or self._planning is not None or now_s < self.look_again_s:
            return None
        if event.lineage is not None and (refusal := event.lineage.refusal(self.state.applied)):
            self._settled(event)
            self._attempt(event, "Rewound", refusal, now_s, stalled=True)
            return None
        self._planning = event
        day = last_day(self.state.day, now_s)
        self.state = replace(self.state, planning=event.revision, planning_since_s=now_s, day=day)
        return PlanJob(event, self.fleet, self.state.applied, snapshot, day, cluster=self.cluster)

    def judge(self, planned: Planned, now_s: float) -> Sequence[Action]:
        """Bring a planned revision into force, or say why not; what must be written then."""
        event, self._planning = planned.pushed, None
        self.state = replace(self.state, planning="")
        expected = self._restored, None if self.state.suspended else self._waiting
        if not any(event is it for it in expected):
            return ()  # another one was pushed meanwhile; or it is planned anew when the sync is resumed
        if planned.error is not None:
            self._failures += 1
            self.look_again_s = now_s + min(RETRY_MOST_S, 2.0 ** min(self._failures, 10))
            failure = DecisionFailed("", planned.error).failure
            text = f"{event.revision} could not be planned ({failure.error}: {failure.cause}); it is tried again"
            self._attempt(event, "PlanningFailed", text, now_s, stalled=True)
            self._catches_up = False
            return ()
        self._failures = 0
        if planned.fleet is None or planned.plan is None:
            self._settled(event)
            self._attempt(event, "Invalid", in_short(planned.problems), now_s, problems=planned.problems, stalled=True)
            return ()
        fleet, plan = planned.fleet, planned.plan
        if not event.restored and any(it(event, fleet, plan, now_s) for it in (self._passes_by, self._suspended)):
            return ()
        refusal = self._held_back(event, fleet, now_s)
        if refusal is None and plan.refusals and not event.restored:
            refusal = ("Refused", "; ".join(plan.refusals))
        verdict = self._approval(event, fleet, plan)
        if refusal is None and verdict.holds_back:
            refusal = self._unapproved(event, verdict)
        if refusal is not None:
            self._catches_up = False
            self.look_again_s = self._reconsidered_s(now_s)
            self._held += 1
            self._unapproved_says = (event, fleet) if refusal[0] in {"Unapproved", "Stale"} else None
            self._attempt(event, *refusal, now_s, plan=plan, stalled=refusal[0] not in _WAITS, approved_by=verdict.by)
            return ()
        self._settled(event)
        self.fleet = with_former_layouts(fleet, self.state.layouts)
        self._attempt(event, "Applied", f"{event.revision} is in force", now_s, plan=plan, approved_by=verdict.by)
        named = "" if event.restored else plan.plan_id
        begun = rollout_begun(self.state.rollout, self.fleet, now_s)  # before anything is bought by it in this turn
        state = replace(self.state, applied=event.revision, applied_plan=named, rollout=begun)
        self.state = replace(state, signer=event.signer or "", distrust="")
        if plan.tally is not None and not event.restored:
            self.state = replace(self.state, day=day_with(self.state.day, replace(plan.tally, at_s=now_s)))
        known = self.state.convergence
        if not event.restored or known is None or known.revision != event.revision:
            self.state = replace(self.state, convergence=began(event.revision, now_s))
        self.adopted(event.revision, fleet)
        return ()

    def _passes_by(self, event: Pushed, fleet: Fleet, plan: Plan, now_s: float) -> bool:
        """Whether a revision says for this cluster what is in force, or waits for approval, and needs neither."""
        known = self._unapproved_says
        if self.fleet is not None and event.revision == self.state.applied:  # a restart, or the branch went back to it
            self._settled(event)
            self._attempt(event, "Applied", f"{event.revision} is in force", now_s, plan=plan)
            return True
        if says_the_same(self.fleet, fleet):
            self._settled(event)
            if self.state.outcome != "Applied":
                words = f"{event.revision} declares for this cluster what {self.state.applied} does, which is in force"
                self._attempt(event, "Applied", words, now_s)
        elif (
            known is not None
            and self.state.outcome in {"Unapproved", "Stale"}
            and says_the_same(known[1], fleet)
            and known[0].revision != event.revision
            and event.lineage is not None
            and not event.lineage.refusal(known[0].revision)
            and event.confirms <= known[0].confirms
        ):
            self._waiting = known[0]
        else:
            return False
        log.info("revision_passes_by", revision=event.revision)
        self.state = replace(self.state, passed_by=event.revision)
        return True

    def _suspended(self, event: Pushed, fleet: Fleet, plan: Plan, now_s: float) -> bool:
        """Whether a revision suspends the cluster that it is of, and so stays out of force there."""
        if words := suspension(fleet):
            self._settled(event)
            stays = f"{self.state.applied} stays in force" if self.state.applied else "nothing is in force yet"
            self._attempt(event, "Suspended", f"{words}; {stays}", now_s, plan=plan)
        return bool(words)

    def follow(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Count what is left to do of the revision in force, until nothing is."""
        before = self.state.convergence
        if before is None or before.phase is ConvergencePhase.DONE:
            return
        after = looked_at(before, fleet, snapshot)
        if after.phase is not before.phase:
            log.info("convergence", revision=after.revision, phase=str(after.phase), message=after.message)
        self.state = replace(self.state, convergence=after)

    def roll_out(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Remember since when pools take over a change one after the other, and what stops that."""
        after = rollout_progress(self.state.rollout, fleet, snapshot)
        if after is self.state.rollout:
            return
        if after and after.paused:
            log.warning("rollout_paused", pool=after.pool, why=paused_words(after))
        self.state = replace(self.state, rollout=after)

    def _reconsidered_s(self, now_s: float) -> float:
        """When a revision that is held back is looked at again: plans cost, and the end of a window is known."""
        pause_s = min(RECONSIDER_MOST_S, RECONSIDER_S * 2.0 ** min(self._held, 10))
        _, opens_s = frozen_until(self.fleet or Fleet(), now_s, "Sync")
        return min(now_s + pause_s, opens_s) if opens_s > now_s else now_s + pause_s

    def _settled(self, event: Pushed) -> None:
        """The event has been judged for good."""
        if event.restored:
            self._restored, self._expected, self._catches_up = None, "", True
        else:
            self._waiting, self._catches_up = None, False

    def _approval(self, event: Pushed, fleet: Fleet, plan: Plan) -> ApprovalVerdict:
        """Whether those agree who have to, as far as the forge has been heard."""
        if self.fleet is None or event.restored:
            return ApprovalVerdict(ApprovalState.NOT_ASKED)
        given = self._merge.given if self._merge and event.revision.endswith(f":{self._merge.commit}") else ()
        return judge_approvals(self.fleet, fleet, plan, given, event.signer or "", least=self.least_approvals)

    def _unapproved(self, event: Pushed, verdict: ApprovalVerdict) -> tuple[str, str]:
        """The outcome and its sentence, where somebody has yet to agree."""
        if verdict.state is ApprovalState.STALE:
            return "Stale", f"{verdict.sentence}. Approve it again with /muster approve, or push another revision"
        if not self.forge:
            return "Unapproved", f"{verdict.sentence}; the agent's settings name no forge (review) to ask"
        if self._merge is None or not event.revision.endswith(f":{self._merge.commit}"):
            return "Unapproved", f"the forge is asked who approved it; so far {verdict.sentence}"
        return "Unapproved", "; ".join(filter(None, (verdict.sentence, self._merge.words)))

    def _held_back(self, event: Pushed, fleet: Fleet, now_s: float) -> tuple[str, str] | None:
        """Signature and freeze rules, by the policy already in force."""
        if self.fleet is None or event.restored:
            return None
        if self.fleet.policy.spec.signatures.required and not event.signer:
            return "Unsigned", "the policy in force requires a signature by an allowed signer; this revision has none"
        if not self.forge and needs_a_forge(fleet) and not needs_a_forge(self.fleet):
            return (
                "Refused",
                "asks for approvals, and the agent's settings name no forge: no later revision could start",
            )
        words, until_s = frozen_until(self.fleet, now_s, "Sync")
        if words and not only_windows(self.fleet, fleet):
            until = "" if isinf(until_s) else f" until {instant(until_s)}"
            return "Frozen", f"{words}: new revisions are held back{until}"
        return None

    def _attempt(
        self,
        event: Pushed,
        outcome: str,
        message: str,
        now_s: float,
        *,
        problems: tuple[Problem, ...] = (),
        plan: Plan | None = None,
        stalled: bool = False,
        approved_by: tuple[str, ...] = (),
    ) -> None:
        if (self.state.attempted, self.state.outcome) != (event.revision, outcome):
            told = {"plan": plan.plan_id if plan else "", "author": event.author, "signer": event.signer or ""}
            log.info("revision", revision=event.revision, outcome=outcome, message=message, **told)
        self.state = replace(
            self.state,
            attempted=event.revision,
            outcome=outcome,
            message=message,
            problems=problems,
            plan=plan,
            at_s=now_s,
            stalled=stalled,
            approved_by=approved_by,
            author=event.author,
            attempted_signer=event.signer or "",
        )
