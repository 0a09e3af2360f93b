"""`SyncReport` <-> the FleetSync object: which revision of the repository is in force, and why not a newer one."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from fleet.plan.approvals import APPROVALS_MOST, ApprovedPlan, PlanExtent
from fleet.plan.convergence import Convergence, ConvergencePhase
from fleet.plan.guards import MOST_TALLIES, RevisionTally
from fleet.snapshot import CutFailure, LayoutRecord, RolloutProgress
from model.addresses import without_secrets
from model.plain_text import plain
from providers.kube.objects.conditions import Condition, Finding, conditions_of, written
from providers.kube.objects.instants import format_instant, instant_of
from providers.kube.objects.names import API_VERSION
from providers.kube.objects.reports import (
    HISTORY_MAX,
    PROBLEMS_MAX,
    PlanSummary,
    SyncAttempt,
    SyncProblem,
    SyncReport,
)
from providers.kube.objects.shapes import JsonObject, Wire, WireCondition, WireMeta, set_fields

KIND: Final = "FleetSync"


class _RevisionAttempt(Wire, frozen=True):
    revision: str
    outcome: str
    first_at: str
    last_at: str
    count: int = 1
    duration_seconds: float = 0.0
    plan: str = ""
    author: str = ""
    signer: str = ""
    message: str = ""
    request: int = 0
    merged_by: str = ""
    approved_by: tuple[str, ...] = ()


class _Convergence(Wire, frozen=True):
    revision: str
    began_at: str = ""
    moved_at: str = ""
    phase: str = ""
    total: int = 0
    left: int = 0
    message: str = ""


class _Plan(Wire, frozen=True):
    nodes_added: int = 0
    nodes_removed: int = 0
    gangs_evicted: int = 0
    usd_per_hour_before: float | None = None
    usd_per_hour_after: float | None = None
    text: str = ""
    id: str = ""


class _Problem(Wire, frozen=True):
    file: str = ""
    line: int = 0
    column: int = 0
    message: str = ""


class _Tally(Wire, frozen=True):
    at: str
    nodes_removed: int = 0
    nodes_added: int = 0
    usd_per_hour_added: float = 0.0
    gangs_evicted: int = 0
    nodes: int = 0
    revisions: int = 1
    usd_per_hour_exposed: float = 0.0


class _ApprovedExtent(Wire, frozen=True):
    id: str = ""
    declared: str = ""
    nodes_added: int = 0
    nodes_removed: int = 0
    nodes_replaced: int = 0
    usd_per_hour_added: float = 0.0
    usd_per_hour_exposed: float = 0.0
    gangs_stopped: int = 0
    stopped: list[str] | None = None
    observed: bool = True


class _Approval(Wire, frozen=True):
    request: int
    head: str
    user: str
    at: str
    plan: _ApprovedExtent | None = None
    commanded: bool = False


class _WireCutFailure(Wire, frozen=True):
    at: str = ""
    claim: str = ""
    message: str = ""


class _WireLayoutRecord(Wire, frozen=True):
    pool: str
    declared: list[str]
    content: str = ""
    since: str = ""
    failures: list[_WireCutFailure] | None = None
    proven: bool = False
    former: str = ""
    rolled_back: bool = False


class _Rollout(Wire, frozen=True):
    templates: str = ""
    began_at: str = ""
    stopped_at: str = ""
    failure: str = ""


class _FleetSyncStatus(Wire, frozen=True):
    observed_revision: str = ""
    attempted_revision: str = ""
    applied_revision: str = ""
    applied_plan: str = ""
    verified_revision: str = ""
    verified_signer: str = ""
    last_handled_request: str = ""
    conditions: list[WireCondition] | None = None
    history: list[_RevisionAttempt] | None = None
    plan: _Plan | None = None
    problems: list[_Problem] | None = None
    problem_count: int = 0
    last_day: list[_Tally] | None = None
    approvals: list[_Approval] | None = None
    convergence: _Convergence | None = None
    rollout: _Rollout | None = None
    layouts: list[_WireLayoutRecord] | None = None


class _FleetSync(Wire, frozen=True):
    metadata: WireMeta
    status: _FleetSyncStatus | None = None


_decoder = msgspec.json.Decoder(_FleetSync)


def sync_object(name: str, url: str, reference: str, path: str) -> JsonObject:
    """The FleetSync of an agent: where it reads from. Credentials in the address stay out of the cluster."""
    spec = {"url": without_secrets(url), "reference": reference, "path": path}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}


def sync_status(
    report: SyncReport, now_s: float, previous: Sequence[Condition] = (), generation: int = 0
) -> JsonObject:
    """The body for server-side apply to a FleetSync's status. Conditions left out of `findings` disappear."""
    status = {
        "conditions": written(report.findings, previous, now_s, generation),
        "problemCount": report.problem_count,
        "summary": plain(report.plan.text) if report.plan else "",
    } | set_fields(
        observedRevision=report.observed,
        attemptedRevision=report.attempted,
        appliedRevision=report.applied,
        appliedPlan=report.applied_plan,
        verifiedRevision=report.verified,
        verifiedSigner=report.verified_signer,
        lastHandledRequest=report.handled_request,
        history=[_attempt_object(attempt) for attempt in report.history[:HISTORY_MAX]],
        plan=_plan_object(report.plan) if report.plan else None,
        problems=[_problem_object(problem) for problem in report.problems[:PROBLEMS_MAX]],
        convergence=_convergence_object(report.convergence) if report.convergence else None,
        rollout=_rollout_object(report.rollout) if report.rollout else None,
        layouts=[_layout_record_object(it) for _, it in sorted(report.layouts.items())],
        lastDay=[_tally_object(tally) for tally in report.day[-MOST_TALLIES:]],
        approvals=[_approval_object(it) for it in report.approved[-APPROVALS_MOST:]],
    )
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": report.name}, "status": status}


def decode_sync(raw: bytes | Raw) -> SyncReport:
    """The report a FleetSync holds: after a restart it says which revision is in force."""
    found = _decoder.decode(raw)
    status = found.status or _FleetSyncStatus()
    conditions = conditions_of(status.conditions)
    return SyncReport(
        name=found.metadata.name,
        observed=status.observed_revision,
        attempted=status.attempted_revision,
        applied=status.applied_revision,
        applied_plan=status.applied_plan,
        verified=status.verified_revision,
        verified_signer=status.verified_signer,
        handled_request=status.last_handled_request,
        findings=tuple(Finding(one.type, one.holds, one.reason, one.message) for one in conditions),
        history=tuple(_attempt(one) for one in status.history or ()),
        plan=PlanSummary(*msgspec.structs.astuple(status.plan)) if status.plan else None,
        problems=tuple(SyncProblem(*msgspec.structs.astuple(one)) for one in status.problems or ()),
        problem_count=status.problem_count,
        day=tuple(_tally(one) for one in (status.last_day or ())[-MOST_TALLIES:]),
        approved=tuple(_approval(one) for one in (status.approvals or ())[-APPROVALS_MOST:]),
        convergence=_convergence(status.convergence) if status.convergence else None,
        rollout=_rollout(status.rollout) if status.rollout else None,
        layouts={it.pool: _layout_record(it) for it in status.layouts or ()},
    )


def _attempt_object(attempt: SyncAttempt) -> JsonObject:
    return {
        "revision": attempt.revision,
        "outcome": attempt.outcome,
        "firstAt": format_instant(attempt.first_at_s),
        "lastAt": format_instant(attempt.last_at_s),
        "count": attempt.count,
        "durationSeconds": attempt.duration_s,
    } | set_fields(
        plan=attempt.plan,
        author=plain(attempt.author),
        signer=plain(attempt.signer),
        message=plain(attempt.message),
        request=attempt.request,
        mergedBy=plain(attempt.merged_by),
        approvedBy=[plain(it) for it in attempt.approved_by[:APPROVALS_MOST]],
    )


def _attempt(found: _RevisionAttempt) -> SyncAttempt:
    return SyncAttempt(
        revision=found.revision,
        outcome=found.outcome,
        first_at_s=instant_of(found.first_at),
        last_at_s=instant_of(found.last_at),
        count=found.count,
        duration_s=found.duration_seconds,
        plan=found.plan,
        author=found.author,
        signer=found.signer,
        message=found.message,
        request=found.request,
        merged_by=found.merged_by,
        approved_by=found.approved_by,
    )


def _convergence_object(now: Convergence) -> JsonObject:
    return {
        "revision": now.revision,
        "beganAt": format_instant(now.began_s),
        "movedAt": format_instant(now.moved_at_s),
        "phase": str(now.phase),
        "total": now.total,
        "left": now.left,
        "message": plain(now.message),
    }


def _convergence(found: _Convergence) -> Convergence | None:
    """What a status says is left to do; nothing where it says what no agent writes."""
    if found.phase not in set(ConvergencePhase) or not 0 <= found.left <= found.total:
        return None
    began_s, moved_s = instant_of(found.began_at), instant_of(found.moved_at)
    phase = ConvergencePhase(found.phase)
    return Convergence(found.revision, began_s, moved_s, phase, found.total, found.left, found.message)


def _rollout_object(now: RolloutProgress) -> JsonObject:
    told = {"templates": now.templates, "beganAt": format_instant(now.began_s)}
    return told | set_fields(stoppedAt=now.pool, failure=plain(now.failure))


def _rollout(found: _Rollout) -> RolloutProgress:
    return RolloutProgress(found.templates, instant_of(found.began_at), found.stopped_at, found.failure)


def _layout_record_object(record: LayoutRecord) -> JsonObject:
    failed = [
        {"at": format_instant(it.at_s), "claim": it.claim, "message": plain(it.message)} for it in record.failures
    ]
    told: JsonObject = {
        "pool": record.pool,
        "declared": list(record.declared),
        "content": record.content,
        "since": format_instant(record.since_s),
    }
    flags = {"proven": record.proven, "former": record.former, "rolledBack": record.rolled_back}
    return told | set_fields(failures=failed, **flags)


def _layout_record(found: _WireLayoutRecord) -> LayoutRecord:
    failures = tuple(CutFailure(instant_of(it.at), it.claim, it.message) for it in found.failures or ())
    return LayoutRecord(
        found.pool, tuple(found.declared), found.content, instant_of(found.since), failures,
        found.proven, found.former, found.rolled_back,
    )  # fmt: skip


def _tally_object(tally: RevisionTally) -> JsonObject:
    return {
        "at": format_instant(tally.at_s),
        "nodesRemoved": tally.nodes_removed,
        "nodesAdded": tally.nodes_added,
        "usdPerHourAdded": tally.usd_h_added,
        "gangsEvicted": tally.gangs_evicted,
        "nodes": tally.nodes,
        "revisions": tally.revisions,
        "usdPerHourExposed": tally.usd_h_exposed,
    }


def _approval_object(approved: ApprovedPlan) -> JsonObject:
    it = approved.extent
    plan = it and {
        "id": it.plan_id,
        "declared": it.declared,
        "nodesAdded": it.nodes_added,
        "nodesRemoved": it.nodes_removed,
        "nodesReplaced": it.nodes_replaced,
        "usdPerHourAdded": it.usd_h_added,
        "usdPerHourExposed": it.usd_h_exposed,
        "gangsStopped": it.gangs_stopped,
        "stopped": list(it.stopped),
        "observed": it.observed,
    }
    return {
        "request": approved.request,
        "head": approved.head,
        "user": plain(approved.user),
        "at": format_instant(approved.at_s),
        "commanded": approved.commanded,
    } | set_fields(plan=plan)


def _approval(found: _Approval) -> ApprovedPlan:
    it, extent = found.plan, None
    if it is not None:
        extent = PlanExtent(
            it.id, it.declared, it.nodes_added, it.nodes_removed, it.nodes_replaced, it.usd_per_hour_added,
            it.usd_per_hour_exposed, it.gangs_stopped, tuple(it.stopped or ()), it.observed,
        )  # fmt: skip
    return ApprovedPlan(found.request, found.head, found.user, instant_of(found.at), extent, found.commanded)


def _tally(found: _Tally) -> RevisionTally:
    """What a status says came of a revision; less than nothing would pay for others, and counts as nothing."""
    return RevisionTally(
        instant_of(found.at),
        max(0, found.nodes_removed),
        max(0, found.nodes_added),
        max(0.0, found.usd_per_hour_added),
        max(0, found.gangs_evicted),
        max(0, found.nodes),
        max(1, found.revisions),
        max(0.0, found.usd_per_hour_exposed),
    )


def _plan_object(plan: PlanSummary) -> JsonObject:
    bills = {"usdPerHourBefore": plan.usd_per_hour_before, "usdPerHourAfter": plan.usd_per_hour_after}
    return {
        "nodesAdded": plan.nodes_added,
        "nodesRemoved": plan.nodes_removed,
        "gangsEvicted": plan.gangs_evicted,
        **{name: usd_h for name, usd_h in bills.items() if usd_h is not None},
        "text": plain(plan.text),
    } | set_fields(id=plan.id)


def _problem_object(problem: SyncProblem) -> JsonObject:
    file, message = plain(problem.file), plain(problem.message)
    return {"file": file, "line": problem.line, "column": problem.column, "message": message}
