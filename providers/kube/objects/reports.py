"""What the agent tells people in `Queue`, `NodePool` and `FleetSync` status, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from fleet.plan.approvals import ApprovedPlan
from fleet.plan.convergence import Convergence
from fleet.plan.guards import RevisionTally
from fleet.snapshot import CapacityPool, LayoutRecord, RolloutProgress
from model.quantity import Resources
from providers.kube.objects.conditions import Finding

HISTORY_MAX: Final = 20
HISTORY_WORDS: Final = 500
"""Signs of an attempt's message that are kept."""
PROBLEMS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class FlavorUsage:
    """One resource of one flavor in a queue, in canonical amounts. `borrowed` is the part of `used` above the quota."""

    flavor: str
    resource: str
    quota: int
    used: int
    borrowed: int = 0


@dataclass(frozen=True, slots=True)
class QueueReport:
    """A queue now: gangs waiting, holding quota without running, and admitted; and what they use."""

    name: str
    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    usage: tuple[FlavorUsage, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Machines that differ from their pool in the same way: how many, and the first of them by name."""

    reason: str
    message: str
    nodes: int
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodePoolReport:
    """A pool now: machines (ready ones among them), what they offer and cost, and the limits that bound them."""

    name: str
    nodes: int = 0
    ready: int = 0
    gpus: int = 0
    """GPUs that its ready machines carry, whatever they are cut into."""
    resources: Resources = field(default_factory=dict)
    usd_per_hour: float = 0.0
    limit_resources: Resources = field(default_factory=dict)
    limit_nodes: int | None = None
    limit_usd_per_hour: float | None = None
    shortages: Mapping[CapacityPool, float] = field(default_factory=dict)
    """Capacity pool of one of its offers -> until when it is not tried (epoch seconds)."""
    priced_at_s: float = 0.0
    """How old the oldest price is that it is bought by (epoch seconds); 0 = there are none."""
    drifted: tuple[DriftReport, ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncProblem:
    """One fault of a revision, or a warning, which says that it is one.

    `line` and `column` count from 1, 0 where there is none.
    """

    file: str
    line: int
    column: int
    message: str


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """What the last revision planned to change; amounts in USD an hour before and after."""

    nodes_added: int = 0
    nodes_removed: int = 0
    gangs_evicted: int = 0
    usd_per_hour_before: float | None = None
    usd_per_hour_after: float | None = None
    text: str = ""
    id: str = ""
    """Of the plan: `muster plan` by whoever plans the same in the same world has the same."""


@dataclass(frozen=True, slots=True)
class SyncAttempt:
    """Counts equal attempts in a row (same revision and outcome): first, last, how many, how long the last took."""

    revision: str
    outcome: str
    first_at_s: float
    last_at_s: float
    count: int = 1
    duration_s: float = 0.0
    plan: str = ""
    """Id of the plan it was judged by."""
    author: str = ""
    """Of the commit, as it says itself."""
    signer: str = ""
    """Who vouches for it."""
    message: str = ""
    """Why it is not in force."""
    request: int = 0
    """Number of the pull request that it came by; 0 = none that is known."""
    merged_by: str = ""
    """Who merged that, as the forge says."""
    approved_by: tuple[str, ...] = ()
    """Who approves what it merged, by name."""


@dataclass(frozen=True, slots=True)
class SyncReport:
    """How far git and the fleet agree. Revisions are written as Flux does: `main@sha1:<commit>`.

    `applied` is the revision in force; a failure never changes it. `findings` are kept in the order given.
    """

    name: str
    observed: str = ""
    """The newest revision seen at the remote."""
    attempted: str = ""
    """The last one that was loaded and planned, whatever came of it."""
    applied: str = ""
    applied_plan: str = ""
    """Id of the plan with which the revision in force came into force."""
    verified: str = ""
    """The last one with an accepted signature."""
    verified_signer: str = ""
    handled_request: str = ""
    """Echo of the last manual request, so that who asked sees it was done."""
    findings: tuple[Finding, ...] = ()
    history: tuple[SyncAttempt, ...] = ()
    """Newest first."""
    plan: PlanSummary | None = None
    problems: tuple[SyncProblem, ...] = ()
    problem_count: int = 0
    """How many errors there are in all, as in the sentence of `Ready`. `problems` holds the first of them, and warnings
    after them where there is room."""
    day: tuple[RevisionTally, ...] = ()
    """What came of the revisions of the last 24 hours, oldest first."""
    approved: tuple[ApprovedPlan, ...] = ()
    """Approvals of pull requests and the plans they are of, oldest first."""
    convergence: Convergence | None = None
    """What is left to do of the revision in force."""
    rollout: RolloutProgress | None = None
    """What is remembered of the roll-out pool by pool."""
    layouts: Mapping[str, LayoutRecord] = field(default_factory=dict)


def remembered(history: tuple[SyncAttempt, ...], attempt: SyncAttempt) -> tuple[SyncAttempt, ...]:
    """The history with one more attempt in front; an attempt equal to the newest is counted, not repeated (Flux)."""
    newest = history[0] if history else None
    if newest and (newest.revision, newest.outcome) == (attempt.revision, attempt.outcome):
        again = replace(attempt, first_at_s=newest.first_at_s, count=newest.count + attempt.count)
        return (again, *history[1:HISTORY_MAX])
    return (attempt, *history)[:HISTORY_MAX]
