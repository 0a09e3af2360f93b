"""The one definition of what a revision changes. CLI, review, reconcile and simulation all call `make_plan`."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isinf
from typing import Any

from fleet.disruption import frozen_until
from fleet.disruption.pool_rollout import rollout_order
from fleet.hard_fence import unfenced, waiting_in_new_fences
from fleet.offerings.overlays import applied_overlays
from fleet.plan.changes import PlannedChange, declared_changes, only_windows, suspension
from fleet.plan.consequences import (
    Consequences,
    GangImpact,
    bill,
    caused,
    consequences,
    impacts,
    peak_of,
    stopped_anyway,
)
from fleet.plan.exposure import exposure_of
from fleet.plan.guards import Foreseen, GuardedRevision, RevisionTally, refusals, tally_of
from fleet.plan.plan import Allowed, Plan, WithoutRevision
from fleet.plan.quotas import (
    beyond_new_budgets,
    beyond_new_limits,
    new_overcommitments,
    quota_changes,
)
from fleet.plan.render import to_json
from fleet.plan.withdrawals import quota_withdrawn, unconfirmed_deletions
from fleet.policy.checks import judge_plan
from fleet.snapshot import GangState, Snapshot
from model.fleet import Fleet
from model.kinds.base import format_duration
from model.plain_text import instant


def declared_plan(
    before: Fleet,
    after: Fleet,
    snapshot: Snapshot,
    *,
    base_revision: str = "",
    head_revision: str = "",
    confirmed: frozenset[str] = frozenset(),
) -> Plan:
    """Returns the plan without a look at the world: declarations, and what they allow at the prices of the catalogue.

    What becomes of machines and gangs is not known, and None. `confirmed` has the declarations (`nodepool/h100`) that
    the commit says may go.
    """
    plan = _of_declarations(before, after, snapshot, base_revision, head_revision)
    guarded = GuardedRevision(before, after, not base_revision, exposed=plan.allowed.exposed)
    return _checked(_named(replace(plan, refusals=_refusals(guarded, snapshot, confirmed)), before, after), before)


def _of_declarations(before: Fleet, after: Fleet, snapshot: Snapshot, base_revision: str, head_revision: str) -> Plan:
    """Returns what needs no look at the world, without a name and before the rails have spoken."""
    plan = Plan(
        "", base_revision, head_revision, snapshot.now_s,
        tuple(declared_changes(before, after)), (), (), WithoutRevision(), None, None, None,
        _allowed(before, after, snapshot), (),
        tuple(_conflicts(after, snapshot)),
        snapshot.catalog.region,
        snapshot.catalog.price_source,
    )  # fmt: skip
    plan = replace(plan, rollout=rollout_order(before, after))
    held = "" if only_windows(before, after) else _held(before, snapshot.now_s)
    if suspended := suspension(after):
        held = f"held: {suspended}"
    return replace(plan, held=held if base_revision and plan.declared else "")


def make_plan(
    before: Fleet,
    after: Fleet,
    snapshot: Snapshot,
    *,
    base_revision: str = "",
    head_revision: str = "",
    day: Sequence[RevisionTally] = (),
    confirmed: frozenset[str] = frozenset(),
    anyway: Consequences | None = None,
) -> Plan:
    """Returns the plan from one fleet to another in the world of `snapshot`.

    `base_revision` empty means that nothing is in force yet: the guard rails of `after` itself then apply. `day` is
    what came of the revisions of the last 24 hours; `confirmed` has the declarations (`nodepool/h100`) that the commit
    says may go. `anyway` is what `happens_anyway` under `before`, where that is known already for this very snapshot.
    """
    from fleet.plan.simulated_run import simulate  # the deciders, which a plan of declarations alone does not ask

    base = _untouched(snapshot) if not base_revision else anyway or happens_anyway(before, snapshot)
    head = consequences(after, simulate(after, snapshot, before=before))
    machines, shared = caused(head.machines, base.machines)
    gangs = impacts(head.gangs, base.gangs, snapshot)
    given_up = head.given_up_after_s is not None and base.given_up_after_s is None
    restless = given_up or not _never_at_rest(head) <= _never_at_rest(base)
    now, counts = bill(snapshot), (_existing(snapshot), _running(snapshot))
    seen = Foreseen(
        snapshot.now_s, machines, gangs, now, base.bill, head.bill, *counts, restless=restless,
        more_nodes_at_peak=head.peak.nodes - base.peak.nodes,
        more_usd_h_at_peak=round(head.peak.usd_h - base.peak.usd_h, 6),
    )  # fmt: skip
    declared = _of_declarations(before, after, snapshot, base_revision, head_revision)
    beyond = (
        *beyond_new_limits(before, after, snapshot),
        *beyond_new_budgets(before, after, snapshot),
        *waiting_in_new_fences(before, after, snapshot),
    )
    plan = replace(
        declared,
        machines=machines,
        gangs=gangs,
        without=WithoutRevision(shared, stopped_anyway(head.gangs, base.gangs, snapshot), base.bill),
        now=now,
        then=head.bill,
        peak=head.peak,
        refusals=_refusals(
            GuardedRevision(before, after, not base_revision, seen, day, declared.allowed.exposed), snapshot, confirmed
        ),
        warnings=(*declared.warnings, *beyond, *_unsettled(head)),
        purchase=head.tally,
        tally=tally_of(seen, declared.allowed.exposed),
    )
    return _checked(_named(plan, before, after), before)


def _checked(plan: Plan, before: Fleet) -> Plan:
    """Returns the plan with what the checks of the policy in force say of it."""
    if not before.policy.spec.checks:
        return plan
    found = judge_plan(before, to_json(plan))
    refusals, warnings = (*plan.refusals, *found.refusals), (*plan.warnings, *found.warnings)
    return replace(plan, refusals=refusals, denials=found.denials, warnings=warnings)


def _held(before: Fleet, now_s: float) -> str:
    """Returns which window holds every new revision back now, by the policy in force; empty = none does."""
    words, until_s = frozen_until(before, now_s, "Sync")
    if not words:
        return ""
    if isinf(until_s):
        return f"held: {words}, with no end in sight"
    return f"held: {words}, until {instant(until_s)}; then it comes into force"


def _refusals(guarded: GuardedRevision, snapshot: Snapshot, confirmed: frozenset[str]) -> tuple[str, ...]:
    before, after = guarded.before, guarded.after
    withdrawn = quota_withdrawn(before, after, snapshot) if guarded.seen else ""
    return (*refusals(guarded), *filter(None, (unconfirmed_deletions(before, after, confirmed), withdrawn)))


def _allowed(before: Fleet, after: Fleet, snapshot: Snapshot) -> Allowed:
    priced = bool(snapshot.catalog.offers)
    return Allowed(
        exposure_of(before, snapshot) if priced else None,
        exposure_of(after, snapshot) if priced else None,
        quota_changes(before, after),
        new_overcommitments(before, after, snapshot) if priced else (),
    )


def _conflicts(after: Fleet, snapshot: Snapshot) -> Iterator[str]:
    yield from map(str, applied_overlays(snapshot.index, after, snapshot.catalog).conflicts)
    yield from unfenced(after, snapshot)


def happens_anyway(fleet: Fleet, snapshot: Snapshot) -> Consequences:
    """Returns what the fleet in force does from a snapshot on without any change: one half of each plan there."""
    from fleet.plan.simulated_run import simulate

    return consequences(fleet, simulate(fleet, snapshot))


def _unsettled(head: Consequences) -> Iterator[str]:
    if head.given_up_after_s is not None:
        yield f"it does not come to rest; shown are the first {format_duration(round(head.given_up_after_s))}"
    yield from _expiring(head)
    yield from (f"nothing can be decided about {words}" for words in head.undecided)


def _expiring(head: Consequences) -> Iterator[str]:
    for pool, age_s in sorted(head.expire_again.items()):
        never = " does not come to rest" if pool in _never_at_rest(head) else " goes on"
        yield f"node pool {pool}{never}: what is bought expires as well after {format_duration(round(age_s))}"


def _never_at_rest(seen: Consequences) -> frozenset[str]:
    """Returns the pools whose machines are replaced again and again, with hardly a pause."""
    from fleet.plan.simulated_run import RESTLESS_S

    return frozenset(pool for pool, age_s in seen.expire_again.items() if age_s < RESTLESS_S)


def _untouched(snapshot: Snapshot) -> Consequences:
    """Returns what happens while no revision is in force: nothing."""
    return Consequences((), (), bill(snapshot), peak_of(snapshot), None, ())


def _existing(snapshot: Snapshot) -> int:
    return sum(1 for claim in snapshot.claims.values() if not claim.deleting and claim.disruption is None)


def _running(snapshot: Snapshot) -> int:
    return sum(1 for gang in snapshot.gangs.values() if gang.state is GangState.ADMITTED)


def _named(plan: Plan, before: Fleet, after: Fleet) -> Plan:
    """Returns the plan with its id: the sha256 of both fleets as declared and of what becomes of machines, gangs, bill.

    Times are in it as they are told, money in cents. The time of the observation and what the observed world is made
    of are not, nor are names that the future has yet to make: who looks later at a world that is still the same, or
    from elsewhere, makes the same plan.
    """
    bills = [bill and (round(bill.usd_h, 2), bill.gpus) for bill in (plan.now, plan.without.bill, plan.then)]
    peak = plan.peak and (plan.peak.nodes, round(plan.peak.usd_h, 2))
    consequences = [sorted(map(_machine_told, plan.machines)), sorted(map(_gang_told, plan.gangs)), bills, peak]
    text = _canonical([bool(plan.base_revision), _declarations(before), _declarations(after), consequences])
    return replace(plan, plan_id=hashlib.sha256(text.encode()).hexdigest())


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _declarations(fleet: Fleet) -> list[Any]:
    """Returns all that a fleet declares, by kind and name, whatever the files are called."""
    ours = (fleet.node_pools, fleet.node_overlays, fleet.mig_layouts, fleet.flavors, fleet.teams, fleet.queues)
    upstream = (fleet.cluster_queues, fleet.cohorts, fleet.local_queues, fleet.resource_flavors)
    others = (fleet.admission_checks, fleet.volcano_queues, fleet.priority_classes, fleet.topologies)
    buffers = (fleet.capacity_buffers, fleet.pod_templates)
    cluster = ({"": fleet.cluster},) if fleet.cluster is not None else ()
    return [
        [resource.model_dump(mode="json", by_alias=True) for _, resource in sorted(table.items())]
        for table in (*ours, *upstream, *others, *buffers, {"": fleet.policy}, *cluster)
    ]


def _machine_told(change: PlannedChange) -> str:
    """Returns what becomes of a machine; why only by its code, as the sentence may tell of time that has passed."""
    address = change.address if change.before else ""
    facts = [
        facts and {**facts, "usdPerHour": round(facts["usdPerHour"], 2)} for facts in (change.before, change.after)
    ]
    return _canonical([change.verb, address, change.reason.partition(":")[0], str(change.when), facts])


def _gang_told(gang: GangImpact) -> str:
    """Returns what becomes of a gang, without the work it loses: that grows as it runs."""
    return _canonical([gang.name, gang.queue, dict(gang.resources), gang.reason, gang.stopped, str(gang.when)])


__all__ = ["Consequences", "Plan", "PlannedChange", "declared_plan", "happens_anyway", "make_plan"]
