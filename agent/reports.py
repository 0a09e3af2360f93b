"""How queues, pools and the sync stand, as the reports that `kubectl get` shows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest

from agent.asked import suspended_words
from agent.failures import Failures, SetAside
from agent.refused_writes import RefusedWrite
from agent.sync import SyncState
from fleet.actions import pool_subject, queue_subject
from fleet.disruption.pool_rollout import paused_words
from fleet.mig.records import rolled_back_words, stopped_words
from fleet.nodeclaims.drift import drifts
from fleet.nodeclaims.drift_facts import Drift
from fleet.nodeclaims.repair import registers
from fleet.offerings.offerings import Offerings
from fleet.placement.pod_quota import ordinary_usage
from fleet.plan import Plan
from fleet.plan.convergence import ConvergencePhase
from fleet.plan.sections import summary
from fleet.plan.withdrawals import UncountedGang
from fleet.quota.build_tree import QueueUsage, QuotaSpecs, current_quota_specs, tree_charged_with
from fleet.quota.tree import QuotaTree
from fleet.snapshot import (
    CapacityPool,
    Catalog,
    Claim,
    ClaimState,
    Gang,
    GangState,
    Node,
    RegistrationOutcome,
    Snapshot,
)
from fleet.snapshot.lookups import claims_by_pool
from model.fleet import Fleet
from model.index import Index, derived
from model.kinds import NodePool
from model.plain_text import counted, number_of
from model.problem import Problem, errors_first
from providers.kube.objects import (
    DriftReport,
    Finding,
    FlavorUsage,
    NodePoolReport,
    PlanSummary,
    QueueReport,
    SyncAttempt,
    SyncProblem,
    SyncReport,
    remembered,
)
from providers.kube.objects.conditions import WRITE_REFUSED, failure_findings
from providers.kube.objects.instants import format_instant
from providers.kube.objects.reports import HISTORY_WORDS

_RUNNING = frozenset({GangState.ADMITTED, GangState.EVICTING})


def queue_reports(fleet: Fleet, snapshot: Snapshot, failures: Failures) -> Sequence[QueueReport]:
    """One report a queue: gangs by state and use of the flavors it may take, against its team's guarantee."""
    specs, others = current_quota_specs(fleet, snapshot), ordinary_usage(fleet, snapshot)
    reports = _queue_reports(snapshot.index, fleet, specs, snapshot.gangs, others)
    if not failures:
        return reports
    failed = {it.name: _told_of(failures, queue_subject(it.name)) for it in reports}
    return [replace(it, findings=(*it.findings, *failed.get(it.name, ()))) for it in reports]


@derived(1)
def _queue_reports(
    _index: Index, fleet: Fleet, specs: QuotaSpecs, gangs: Mapping[str, Gang], others: QueueUsage
) -> Sequence[QueueReport]:
    tree = tree_charged_with(fleet, specs, gangs.values(), others)
    by_queue: dict[str, list[Gang]] = {name: [] for name in fleet.queues}
    for gang in gangs.values():
        if gang.queue in by_queue:
            by_queue[gang.queue].append(gang)
    return [_queue(fleet, tree, name, held) for name, held in sorted(by_queue.items())]


def _queue(fleet: Fleet, tree: QuotaTree, name: str, gangs: list[Gang]) -> QueueReport:
    node = tree.queues[name]
    team = node.owner
    shown = (c for c, named in enumerate(tree.cells) if named.flavor in fleet.queues[name].spec.flavors)
    cells = sorted((c for c in shown if team.nominal[c] or node.usage[c]), key=lambda cell: tree.cells[cell])
    stopped = fleet.queues[name].spec.stop_policy
    active = Finding("Active", stopped == "None", "Ready" if stopped == "None" else "Stopped", _stop_words(stopped))
    return QueueReport(
        name,
        pending=sum(1 for gang in gangs if gang.state is GangState.PENDING),
        reserving=sum(1 for gang in gangs if gang.state is GangState.RESERVED),
        admitted=sum(1 for gang in gangs if gang.state in _RUNNING),
        usage=tuple(
            FlavorUsage(
                *tree.cells[cell],
                quota=team.subtree[cell],
                used=node.usage[cell],
                borrowed=max(0, -team.unused(cell)) if node.usage[cell] else 0,
            )
            for cell in cells
        ),
        findings=(active,),
    )


def _stop_words(policy: str) -> str:
    return "admits work" if policy == "None" else f"stopPolicy is {policy}"


def pool_reports(fleet: Fleet, snapshot: Snapshot, failures: Failures) -> Sequence[NodePoolReport]:
    """One report a pool: machines, what they offer, what they cost, and what is short of what it could buy."""
    reports = _pool_reports(
        snapshot.index, fleet, claims_by_pool(snapshot), snapshot.nodes, _gpu_counts(snapshot.index, snapshot.catalog)
    )
    if drifted := _drifted(snapshot.claims, drifts(fleet, snapshot)):
        reports = [replace(report, drifted=drifted.get(report.name, ())) for report in reports]
    if failures:
        told = {it.name: _told_of(failures, pool_subject(it.name)) for it in reports}
        reports = [replace(it, findings=(*it.findings, *told[it.name])) for it in reports]
    reports = [
        replace(it, findings=(*it.findings, *_registers(snapshot.registrations.get(it.name, ())))) for it in reports
    ]
    short = {pool: until for pool, until in snapshot.shortages.items() if until > snapshot.now_s}
    priced_at_s = snapshot.catalog.priced_at_s
    if not short and not priced_at_s:
        return reports
    sold = _sold(snapshot.index, fleet, snapshot.catalog) if short else {}
    return [
        replace(
            report,
            shortages={pool: until for pool, until in short.items() if pool in sold[report.name]},
            priced_at_s=priced_at_s,
        )
        for report in reports
    ]


def _registers(outcomes: Sequence[RegistrationOutcome]) -> Iterator[Finding]:
    """Whether the machines of a pool join at all, by Karpenter's condition; nothing where none was bought."""
    joined = registers(outcomes)
    if joined is not None:
        count = sum(it.registered for it in outcomes)
        words = f"{count} of the last {counted(len(outcomes), 'machine')} joined"
        yield Finding("NodeRegistrationHealthy", joined, "Registered" if joined else "RegistrationFailed", words)


SHOWN_FAILURES = 3
SHOWN_WARNINGS = 3
"""Failures that the sync tells of one by one."""
NAMED = 100
"""Most machines of one difference whose names are shown."""


def _drifted(claims: Mapping[str, Claim], found: Mapping[str, Drift]) -> Mapping[str, tuple[DriftReport, ...]]:
    """Pool -> its machines that differ from it, by how they do."""
    alike: dict[tuple[str, Drift], list[str]] = {}
    for name, how in found.items():
        alike.setdefault((claims[name].node_pool, how), []).append(name)
    pools: dict[str, list[DriftReport]] = {}
    for (pool, how), names in sorted(alike.items()):
        first = tuple(nsmallest(NAMED, names))
        pools.setdefault(pool, []).append(DriftReport(how.reason, how.words, len(names), first))
    return {pool: tuple(reports) for pool, reports in pools.items()}


@derived(1)
def _sold(_index: Index, fleet: Fleet, catalog: Catalog) -> Mapping[str, frozenset[CapacityPool]]:
    """Pool -> the capacity pools of its offers."""
    offerings = Offerings(fleet, catalog)
    return {
        name: frozenset(offering.offer.pool_key for offering in offerings.of(pool))
        for name, pool in fleet.node_pools.items()
    }


@derived(1)
def _pool_reports(
    _index: Index,
    fleet: Fleet,
    claims: Mapping[str, Sequence[Claim]],
    nodes: Mapping[str, Node],
    gpus: Mapping[str, int],
) -> Sequence[NodePoolReport]:
    return [_pool(pool, claims.get(name, ()), nodes, gpus) for name, pool in sorted(fleet.node_pools.items())]


@derived(1, steady=True)
def _gpu_counts(_index: Index, catalog: Catalog) -> Mapping[str, int]:
    """Instance type -> GPUs that a machine carries, whatever they are cut into."""
    return {name: known.gpu_count for name, known in catalog.types.items() if known.gpu_count}


def _pool(
    pool: NodePool, claims: Sequence[Claim], nodes: Mapping[str, Node], gpus: Mapping[str, int]
) -> NodePoolReport:
    ready = [claim for claim in claims if claim.state is ClaimState.READY]
    resources: dict[str, int] = {}
    for claim in ready:
        node = nodes.get(claim.node)
        for resource, amount in (node.allocatable if node else {}).items():
            resources[resource] = resources.get(resource, 0) + amount
    limits = pool.spec.limits
    return NodePoolReport(
        pool.name,
        nodes=len(claims),
        ready=len(ready),
        gpus=sum(gpus.get(claim.capacity_pool.instance_type, 0) for claim in ready),
        resources={name: amount for name, amount in resources.items() if "/" in name or name in {"cpu", "memory"}},
        usd_per_hour=sum(claim.charged_usd_h for claim in claims if claim.launched_at_s),
        limit_resources=limits.resources,
        limit_nodes=limits.nodes,
        limit_usd_per_hour=limits.usd_per_hour,
        findings=(Finding("Ready", holds=True, reason="Declared", message="the pool is in force"),),
    )


def sync_report(
    name: str,
    state: SyncState,
    drifting: int,
    before: SyncReport,
    failures: Failures,
    refused: Sequence[RefusedWrite] = (),
    uncounted: Sequence[UncountedGang] = (),
    unread: str = "",
) -> SyncReport:
    """The sync's report; `before` carries the history on."""
    findings = (
        *_standing(state),
        _drift(drifting),
        *_planning(state),
        *_failed(failures),
        *_refused(refused),
        *_troubles(failures, unread),
        *_uncounted(uncounted),
        *_of_revision(state),
    )
    shown = tuple(SyncProblem(p.file, p.line, p.column, _words(p)) for p in errors_first(state.problems))
    return SyncReport(
        name,
        observed=state.observed,
        attempted=state.attempted,
        applied=state.applied,
        applied_plan=state.applied_plan or (before.applied_plan if state.applied == before.applied else ""),
        verified=state.applied if state.signer else "",
        verified_signer=state.signer,
        findings=findings,
        history=_history(state, before.history),
        plan=_summary(state.plan) if state.plan else None if state.attempted else before.plan,
        handled_request=state.handled_request or before.handled_request,
        problems=shown,
        problem_count=sum(it.severity == "error" for it in state.problems),
        day=state.day,
        approved=state.approved,
        convergence=state.convergence,
        rollout=state.rollout,
        layouts=state.layouts,
    )


def _stalled(state: SyncState) -> bool:
    """Whether nothing goes on by itself: the revision, its source or trust in it is such that somebody has to act."""
    return state.stalled or (state.trouble is not None and not state.trouble.transient) or bool(state.distrust)


def _standing(state: SyncState) -> Iterator[Finding]:
    """Whether what is wanted is in force, and if not, whether it comes; `_planning` tells of what is being planned."""
    applied = state.outcome == "Applied" and state.trouble is None and not state.distrust
    stalled, held = _stalled(state), state.outcome == "Suspended"
    reason, message = state.standing
    yield Finding("Ready", applied, reason, message)
    if stalled:
        yield Finding("Stalled", True, reason, message)
    if not (applied or stalled or held or state.planning):
        yield Finding("Reconciling", True, reason, message)


def _planning(state: SyncState) -> Iterator[Finding]:
    """Which revision is being planned, and since when."""
    if state.planning:
        words = f"{state.planning} is being planned since {format_instant(state.planning_since_s)}"
        yield Finding("Reconciling", True, "Planning", words)


def _of_revision(state: SyncState) -> Iterator[Finding]:
    """Who vouches for the revision in force, what is said of it, and what holds it up."""
    yield from _verified(state)
    if state.review_trouble:
        yield Finding("ReviewFailed", True, "ForgeFailed", state.review_trouble)
    yield from _suspended(state)
    yield from _converging(state)
    if state.rollout is not None and state.rollout.paused:
        yield Finding("RolloutPaused", True, "MachineFailed", paused_words(state.rollout))
    yield from _layouts(state)


def _history(state: SyncState, before: tuple[SyncAttempt, ...]) -> tuple[SyncAttempt, ...]:
    """The attempts so far, newest first; whoever had a hand in the last one may come to be known later."""
    if not state.attempted:
        return before
    if not before or (before[0].revision, before[0].outcome) != (state.attempted, state.outcome):
        return remembered(before, _attempt(state))
    return (_by_hands(before[0], state), *before[1:]) if state.hands.words else before


def _troubles(failures: Failures, unread: str) -> Iterator[Finding]:
    """What keeps the agent's own helpers from their work, by condition; `unread`: of whom no GPU is read."""
    told = (
        ("LedgerFailed", "NotWritten", failures.ledger),
        ("BooksFailed", "NotRead", failures.books),
        ("NotificationsFailed", "NotSent", failures.notifications),
        ("ReadingsFailed", "NotRead", failures.readings),
        ("ReadingsMissing", "NotRead", unread),
    )
    return (Finding(condition, True, reason, words) for condition, reason, words in told if words)


def _layouts(state: SyncState) -> list[Finding]:
    """Pools that buy nothing as machines could not be cut, and those that went back to the layout of before."""
    records = [record for _, record in sorted(state.layouts.items())]
    stopped = [words for it in records if (words := stopped_words(it))]
    back = [rolled_back_words(it) for it in records if it.rolled_back]
    found = [Finding("LayoutsFailing", True, "CutFailed", "; ".join(stopped))] if stopped else []
    return found + ([Finding("LayoutRolledBack", True, "CutFailed", "; ".join(back))] if back else [])


def _attempt(state: SyncState) -> SyncAttempt:
    """The last attempt as the history keeps it."""
    plan = state.plan.plan_id if state.plan else ""
    attempt = SyncAttempt(
        state.attempted,
        state.outcome,
        state.at_s,
        state.at_s,
        plan=plan,
        author=state.author,
        signer=state.attempted_signer,
        message=state.message[:HISTORY_WORDS] if state.outcome != "Applied" else "",
    )
    return _by_hands(attempt, state)


def _by_hands(attempt: SyncAttempt, state: SyncState) -> SyncAttempt:
    """An attempt with those who had a hand in it; the forge may be slower than the source to tell of it."""
    hands = state.hands
    return replace(attempt, request=hands.request, merged_by=hands.merger, approved_by=hands.approved_by)


def _suspended(state: SyncState) -> list[Finding]:
    """Whether somebody has asked that no revision comes into force."""
    if not state.suspended:
        told = f"no revision comes into force: {state.message}"
        return [Finding("Suspended", True, "SuspendedInGit", told)] if state.outcome == "Suspended" else []
    waits = f", {state.observed} waits" if state.observed and state.observed != state.applied else ""
    stays = f"{state.applied} stays in force and is carried out" if state.applied else "nothing is in force yet"
    return [Finding("Suspended", True, "Suspended", f"{suspended_words(state.suspend_reason)} {stays}{waits}")]


def _converging(state: SyncState) -> list[Finding]:
    """How far the revision in force is done; `Stalled` has one reason, and that of a revision comes first."""
    now = state.convergence
    if now is None:
        return []
    done = Finding("Done", now.phase is ConvergencePhase.DONE, str(now.phase), now.message)
    if now.phase is ConvergencePhase.PROGRESSING:
        return [done, Finding("Progressing", True, "Converging", now.message)]
    if now.phase is ConvergencePhase.STALLED and not _stalled(state):
        return [done, Finding("Stalled", True, "NotConverging", now.message)]
    return [done]


def _drift(drifting: int) -> Finding:
    words = f"{drifting} {number_of(drifting, 'machine differs', 'machines differ')}"
    return Finding("DriftDetected", bool(drifting), "Drifted" if drifting else "InSync", words)


def _verified(state: SyncState) -> list[Finding]:
    """Whether somebody who may sign vouches for the revision in force, where that is asked."""
    if state.distrust:
        return [Finding("SourceVerified", False, "Untrusted", state.distrust)]
    if state.signer:
        return [Finding("SourceVerified", True, "Verified", f"signed by {state.signer}")]
    if state.outcome in {"Unsigned", "Untrusted"}:
        return [Finding("SourceVerified", False, state.outcome, state.message)]
    return []


def _uncounted(gangs: Sequence[UncountedGang]) -> list[Finding]:
    """Running gangs that no quota counts: a revision that leaves some is refused, but they may be there before any."""
    run = number_of(len(gangs), "gang runs", "gangs run")
    told = f"{len(gangs)} {run} outside any quota: {_first([str(it) for it in gangs])}"
    return [Finding("OutsideQuota", True, "NotDeclared", told)] if gangs else []


def _failed(failures: Iterable[SetAside]) -> list[Finding]:
    """Whom nothing can be decided about at present; a revision has conditions of its own."""
    told = [it for it in failures if it.kind != "revision"]
    words = _first([it.words for it in told])
    return [Finding("DecisionFailed", True, told[0].failure.error, words)] if told else []


def _refused(writes: Sequence[RefusedWrite]) -> list[Finding]:
    """What the API keeps refusing to write at present."""
    words = _first([f"{it.subject}: {it.refusal.message}" for it in writes])
    return [Finding(WRITE_REFUSED, True, writes[0].refusal.reason, words)] if writes else []


def _first(told: Sequence[str]) -> str:
    """The first few of many, and how many more there are."""
    more = f", and {len(told) - SHOWN_FAILURES} more" if len(told) > SHOWN_FAILURES else ""
    return "; ".join(told[:SHOWN_FAILURES]) + more


def _told_of(failures: Failures, subject: str) -> tuple[Finding, ...]:
    """The condition of a queue or pool that nothing can be decided about."""
    found = failures.about(subject)
    return failure_findings(found.failure) if found is not None else ()


def _words(problem: Problem) -> str:
    text = f"{problem.path}: {problem.message}" if problem.path else problem.message
    text = f"warning: {text}" if problem.severity == "warning" else text
    return f"{text} (hint: {problem.hint})" if problem.hint else text


def _summary(plan: Plan) -> PlanSummary:
    verbs = [change.verb for change in plan.machines if not change.when.held]
    return PlanSummary(
        nodes_added=verbs.count("create") + verbs.count("replace"),
        nodes_removed=verbs.count("delete") + verbs.count("replace"),
        gangs_evicted=sum(gang.stopped for gang in plan.gangs),
        usd_per_hour_before=plan.now.usd_h if plan.now else None,
        usd_per_hour_after=plan.then.usd_h if plan.then else None,
        text=_plan_words(plan),
        id=plan.plan_id,
    )


def _plan_words(plan: Plan) -> str:
    """The closing line, why it is refused, and what could not be foreseen or has no effect: the first of many."""
    refused = f" Refused: {'; '.join(plan.refusals)}" if plan.refusals else ""
    more = f"; and {len(plan.warnings) - SHOWN_WARNINGS} more" if len(plan.warnings) > SHOWN_WARNINGS else ""
    warned = f" Warnings: {'; '.join(plan.warnings[:SHOWN_WARNINGS])}{more}" if plan.warnings else ""
    return f"{summary(plan)}{refused}{warned}"
