"""Which revision is in force: a pushed one is loaded, planned, held against the guard rails, and only then adopted.

An invalid or refused revision changes nothing: the last good one stays. A refused one is looked at again when the
world has changed, since the plan may be harmless by then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import structlog
import yaml

from agent.inbox import Pushed, SourceTrouble
from fleet.actions import Action, PublishLayouts
from fleet.capacity.disrupt import frozen
from fleet.plan import Plan, make_plan
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.loader import InvalidFleet, Problem, load
from model.mig.layouts import mig_parted_config

log = structlog.get_logger(__name__)

RECONSIDER_S = 30.0
"""A refused or frozen revision is planned again this often."""


@dataclass(frozen=True, slots=True)
class SyncState:
    """How git and the fleet stand to each other; revisions are written as Flux does (`main@sha1:<commit>`)."""

    observed: str = ""
    attempted: str = ""
    applied: str = ""
    signer: str = ""
    outcome: str = "Waiting"
    """Applied, Invalid, Refused, Frozen, Unsigned, SourceFailed or Waiting."""
    message: str = "no revision read yet"
    problems: tuple[Problem, ...] = ()
    plan: Plan | None = None
    at_s: float = 0.0
    stalled: bool = False
    """Nothing but a new push will help."""


@dataclass(slots=True)
class Sync:
    """The revision in force and the one that wants to be."""

    fleet: Fleet | None = None
    state: SyncState = field(default_factory=SyncState)
    _restored: Pushed | None = None
    _waiting: Pushed | None = None
    _look_again_s: float = 0.0
    _layouts_of: str = ""

    def hear(self, event: Pushed | SourceTrouble) -> None:
        """A new revision, or the news that none can be read."""
        if isinstance(event, SourceTrouble):
            outcome = self.state.outcome if self.fleet else "SourceFailed"
            self.state = replace(self.state, outcome=outcome, message=event.message)
            return
        if event.restored:
            self._restored = event
            return
        self._waiting = event
        self._look_again_s = 0.0
        self.state = replace(self.state, observed=event.revision)

    def settle(self, snapshot: Snapshot, now_s: float) -> Sequence[Action]:
        """Try to bring a revision into force, what was in force before a restart first; what must be written then."""
        restored, self._restored = self._restored, None
        event = restored or self._waiting
        if event is None or (restored is None and now_s < self._look_again_s):
            return ()
        try:
            fleet = load(event.files)
        except InvalidFleet as invalid:
            self._waiting = self._waiting if restored else None
            first = invalid.problems[0]
            text = f"{len(invalid.problems)} problems; first: {first.file}:{first.line}:{first.column}: {first.message}"
            self._attempt(event, "Invalid", text, now_s, problems=invalid.problems, stalled=True)
            return ()
        refusal = self._held_back(event, now_s)
        plan = make_plan(
            self.fleet or Fleet(), fleet, snapshot, base_revision=self.state.applied, head_revision=event.revision
        )
        if refusal is None and plan.refusals and not event.restored:
            refusal = ("Refused", "; ".join(plan.refusals))
        if refusal is not None:
            self._look_again_s = now_s + RECONSIDER_S
            self._attempt(event, *refusal, now_s, plan=plan, stalled=refusal[0] != "Frozen")
            return ()
        self._waiting = self._waiting if restored else None
        self.fleet = fleet
        self._attempt(event, "Applied", f"{event.revision} is in force", now_s, plan=plan)
        self.state = replace(self.state, applied=event.revision, signer=event.signer or "")
        return self._layouts(fleet)

    def _held_back(self, event: Pushed, now_s: float) -> tuple[str, str] | None:
        """Signature and freeze rules, by the policy already in force."""
        if self.fleet is None or event.restored:
            return None
        if self.fleet.policy.spec.signatures.required and not event.signer:
            return "Unsigned", "the policy in force requires a signature by an allowed signer; this revision has none"
        if window := frozen(self.fleet, now_s, "Sync"):
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

    def _layouts(self, fleet: Fleet) -> Sequence[Action]:
        """The mig-parted configuration of all layouts, when it has changed."""
        if not fleet.mig_layouts:
            return ()
        layouts = [layout for _, layout in sorted(fleet.mig_layouts.items())]
        text = yaml.safe_dump(mig_parted_config(layouts), sort_keys=True)
        if text == self._layouts_of:
            return ()
        self._layouts_of = text
        return (PublishLayouts(text),)
