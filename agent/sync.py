"""Which revision is in force: a pushed one is loaded, planned, held against the guard rails, and only then adopted.

One that does not follow the revision in force in history is refused before anything is made of it.

Loading and planning happen elsewhere (`agent.planning`), one revision at a time, while the one in force stays.

An invalid or refused revision changes nothing: the last good one stays. A refused one is looked at again when the
world has changed, since the plan may be harmless by then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from agent.inbox import Planned, Pushed, ReviewTrouble, RevisionLost, SourceTrouble, SourceWell, TrustJudged
from agent.planning import PlanJob
from fleet.actions import Action
from fleet.disruption import frozen_until
from fleet.fence import DecisionFailed
from fleet.plan import Plan
from fleet.plan.changes import only_freeze_windows
from fleet.plan.guards import RevisionTally, day_with, last_day
from fleet.scheduling.prefilter import frozen
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.problem import Problem

log = structlog.get_logger(__name__)

RECONSIDER_S = 30.0
RECONSIDER_MOST_S = 600.0
"""A refused or frozen revision is planned again after this long, then after twice as long, up to the most."""
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
    """Applied, Invalid, Refused, Rewound, Frozen, Unsigned, PlanningFailed, RevisionLost, Untrusted or Waiting."""
    message: str = "no revision read yet"
    problems: tuple[Problem, ...] = ()
    plan: Plan | None = None
    at_s: float = 0.0
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

    @property
    def standing(self) -> tuple[str, str]:
        """The reason and the sentence that say how the repository stands: the nearest trouble first."""
        if self.trouble:
            return "SourceFailed", self.trouble.message
        if self.distrust and self.outcome == "Applied":
            return "Untrusted", f"{self.applied} stays in force, but nobody vouches for it any more: {self.distrust}"
        return self.outcome, self.message


@dataclass(slots=True)
class Sync:
    """Keeps the revision in force, and decides whether one that was pushed takes its place."""

    fleet: Fleet | None = None
    state: SyncState = field(default_factory=SyncState)
    adopted: Callable[[str], None] = lambda _revision: None
    """Hears of each revision that comes into force, before anybody else."""
    _expected: str = ""
    """The revision in force before this process; nothing else is looked at until it is in force again."""
    _restored: Pushed | None = None
    _waiting: Pushed | None = None
    _look_again_s: float = 0.0
    _planning: Pushed | None = None
    """What is being planned at present."""
    _held: int = 0
    """How often in a row what was pushed has been refused or frozen."""
    _failures: int = 0
    """How often planning has failed since it last succeeded."""
    _catches_up: bool = False
    """Whether nothing that was pushed has been judged since what was in force before a restart is so again."""

    def expect(self, revision: str, day: Sequence[RevisionTally] = ()) -> None:
        """Start where an earlier process stood: `revision` must be in force again before any other is judged."""
        self._expected = revision
        message = f"{revision} is being restored and verified again"
        self.state = replace(self.state, applied=revision, message=message, day=tuple(day))

    def hear(self, event: Pushed | SourceTrouble | SourceWell | RevisionLost | TrustJudged | ReviewTrouble) -> None:
        """A new revision, or how the repository is."""
        match event:
            case SourceTrouble():
                self.state = replace(self.state, trouble=event)
            case ReviewTrouble():
                self.state = replace(self.state, review_trouble=event.message)
            case SourceWell():
                self.state = replace(self.state, trouble=None)
            case RevisionLost():
                outcome, message = _lost(event)
                self.state = replace(self.state, outcome=outcome, message=message, stalled=True)
            case TrustJudged() if event.revision == self.state.applied:
                self._judge_trust(event)
            case TrustJudged():
                pass
            case Pushed():
                self._pushed(event)

    def _judge_trust(self, event: TrustJudged) -> None:
        if event.distrust and event.distrust != self.state.distrust:
            log.warning("revision_distrusted", revision=event.revision, why=event.distrust)
        self.state = replace(self.state, signer=event.signer, distrust=event.distrust)

    def _pushed(self, event: Pushed) -> None:
        self.state = replace(self.state, trouble=None)
        if event.restored:
            self._restored = event
            return
        self._waiting = event
        self._look_again_s = 0.0 if self._restored is None else self._look_again_s
        self._held = 0
        self.state = replace(self.state, observed=event.revision)

    @property
    def holds_decisions(self) -> bool:
        """Whether nothing is decided yet: between what was in force before a restart and what has been pushed since.

        Machines bought under the newer one would else go under the older one, and come again.
        """
        return self._catches_up and self._waiting is not None

    def due(self, snapshot: Snapshot, now_s: float) -> PlanJob | None:
        """The revision to be planned now, what was in force before a restart first; one at a time."""
        event = self._restored or (None if self._expected else self._waiting)
        if event is None or self._planning is not None or now_s < self._look_again_s:
            return None
        if event.lineage is not None and (refusal := event.lineage.refusal(self.state.applied)):
            self._settled(event)
            self._attempt(event, "Rewound", refusal, now_s, stalled=True)
            return None
        self._planning = event
        day = last_day(self.state.day, now_s)
        self.state = replace(self.state, planning=event.revision, planning_since_s=now_s, day=day)
        return PlanJob(event, self.fleet, self.state.applied, snapshot, day)

    def judge(self, planned: Planned, now_s: float) -> Sequence[Action]:
        """Bring a planned revision into force, or say why not; what must be written then."""
        event, self._planning = planned.pushed, None
        self.state = replace(self.state, planning="")
        if event is not self._restored and event is not self._waiting:
            return ()  # another one was pushed meanwhile
        if planned.error is not None:
            self._failures += 1
            self._look_again_s = now_s + min(RETRY_MOST_S, 2.0 ** min(self._failures, 10))
            failure = DecisionFailed("", planned.error).failure
            text = f"{event.revision} could not be planned ({failure.error}: {failure.cause}); it is tried again"
            self._attempt(event, "PlanningFailed", text, now_s, stalled=True)
            self._catches_up = False
            return ()
        self._failures = 0
        if planned.fleet is None or planned.plan is None:
            self._settled(event)
            self._attempt(event, "Invalid", _told(planned.problems), now_s, problems=planned.problems, stalled=True)
            return ()
        fleet, plan = planned.fleet, planned.plan
        refusal = self._held_back(event, fleet, now_s)
        if refusal is None and plan.refusals and not event.restored:
            refusal = ("Refused", "; ".join(plan.refusals))
        if refusal is not None:
            self._catches_up = False
            self._look_again_s = self._reconsidered_s(now_s)
            self._held += 1
            self._attempt(event, *refusal, now_s, plan=plan, stalled=refusal[0] != "Frozen")
            return ()
        self._settled(event)
        self.fleet = fleet
        self._attempt(event, "Applied", f"{event.revision} is in force", now_s, plan=plan)
        named = "" if event.restored else plan.plan_id
        self.state = replace(
            self.state, applied=event.revision, applied_plan=named, signer=event.signer or "", distrust=""
        )
        if plan.tally is not None and not event.restored:
            self.state = replace(self.state, day=day_with(self.state.day, replace(plan.tally, at_s=now_s)))
        self.adopted(event.revision)
        return ()

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

    def _held_back(self, event: Pushed, fleet: Fleet, now_s: float) -> tuple[str, str] | None:
        """Signature and freeze rules, by the policy already in force."""
        if self.fleet is None or event.restored:
            return None
        if self.fleet.policy.spec.signatures.required and not event.signer:
            return "Unsigned", "the policy in force requires a signature by an allowed signer; this revision has none"
        if (window := frozen(self.fleet, now_s, "Sync")) and not only_freeze_windows(self.fleet, fleet):
            return "Frozen", f"freeze window {window!r} holds new revisions back"
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
    ) -> None:
        if (self.state.attempted, self.state.outcome) != (event.revision, outcome):
            log.info("revision", revision=event.revision, outcome=outcome, message=message)
        self.state = replace(
            self.state,
            attempted=event.revision,
            outcome=outcome,
            message=message,
            problems=problems,
            plan=plan,
            at_s=now_s,
            stalled=stalled,
        )


def _lost(event: RevisionLost) -> tuple[str, str]:
    """The outcome and its sentence."""
    if event.why:
        return "Untrusted", (
            f"{event.revision} was in force and cannot be verified: {event.why}. Nothing is decided without it. "
            "List who signed it, or delete the FleetSync and the agent's pod to begin with what is in the repository"
        )
    return "RevisionLost", (
        f"{event.revision}, the revision in force, is not in the repository any more; nothing is decided without it. "
        "Push it again, or delete the FleetSync and the agent's pod to begin with what is there"
    )


def _told(problems: Sequence[Problem]) -> str:
    """How many problems a revision has, and the first of them with its place."""
    first, count = problems[0], len(problems)
    shown = f"{first.path}: {first.message}" if first.path else first.message
    place = f"{first.file}:{first.line}:{first.column}"
    return f"{'1 problem:' if count == 1 else f'{count} problems; first:'} {place}: {shown}"
