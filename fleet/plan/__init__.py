"""The one definition of what a revision changes. CLI, review, reconcile and simulation all call `make_plan`."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fleet.actions import PurchaseTally
from fleet.offerings.overlays import applied_overlays
from fleet.plan.changes import PlannedChange, declared_changes
from fleet.plan.consequences import (
    Consequences,
    GangImpact,
    HourlyBill,
    bill,
    caused,
    consequences,
    impacts,
    stopped_anyway,
)
from fleet.plan.exposure import Exposure, exposure_of
from fleet.plan.guards import Foreseen, GuardedRevision, RevisionTally, refusals, tally_of
from fleet.plan.quotas import (
    Overcommitment,
    QuotaChange,
    beyond_new_budgets,
    beyond_new_limits,
    new_overcommitments,
    quota_changes,
)
from fleet.plan.simulated_run import simulate
from fleet.snapshot import GangState, Snapshot
from model.fleet import Fleet
from model.kinds.base import format_duration


@dataclass(frozen=True, slots=True)
class WithoutRevision:
    """What happens as well if the revision does not come into force."""

    machines: tuple[PlannedChange, ...] = ()
    gangs: tuple[GangImpact, ...] = ()
    """Gangs that are stopped."""
    bill: HourlyBill | None = None
    """Once nothing changes any more; None without a world."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a revision allows from now on, whatever the cluster asks for at present."""

    exposed_before: Exposure | None = None
    """What the pools may cost at most; None where no prices are known."""
    exposed_after: Exposure | None = None
    quotas: tuple[QuotaChange, ...] = ()
    overcommitted: tuple[Overcommitment, ...] = ()
    """Where the revision guarantees more than the limits of its pools let them hold."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a revision causes, and why it may not: the difference of two runs of the deciders, under base and head.

    `plan_id` is a hash of what is desired and what is observed. Without a world only declarations are compared, and
    what is not known is None.
    """

    plan_id: str
    base_revision: str
    head_revision: str
    observed_at_s: float
    declared: tuple[PlannedChange, ...]
    machines: tuple[PlannedChange, ...]
    """What becomes of machines because of the revision."""
    gangs: tuple[GangImpact, ...]
    """Gangs that fare otherwise because of the revision."""
    without: WithoutRevision
    now: HourlyBill | None
    then: HourlyBill | None
    """Once nothing changes any more, or at the horizon."""
    allowed: Allowed
    refusals: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """What is declared and does not hold, or not as one would think."""
    region: str = ""
    """Of the prices; empty where none are known."""
    price_source: str = ""
    purchase: PurchaseTally | None = None
    """What waiting gangs would buy, and how near that is to the least possible."""
    tally: RevisionTally | None = None
    """What it causes, in numbers; None without a world."""

    @property
    def empty(self) -> bool:
        """Returns whether no declaration and no machine would change."""
        return not self.declared and not self.machines and not self.gangs

    def counts(self) -> dict[str, int]:
        """Returns Terraform's three numbers by verb: a replacement counts as one to create and one to delete.

        What is held does not happen, and is not counted.
        """
        verbs = [change.verb for change in (*self.declared, *self.machines) if not change.when.held]
        replaced = verbs.count("replace")
        return {
            "create": verbs.count("create") + replaced,
            "update": verbs.count("update"),
            "delete": verbs.count("delete") + replaced,
        }


def declared_plan(
    before: Fleet, after: Fleet, snapshot: Snapshot, *, base_revision: str = "", head_revision: str = ""
) -> Plan:
    """Returns the plan without a look at the world: declarations, and what they allow at the prices of the catalogue.

    What becomes of machines and gangs is not known, and None.
    """
    allowed = _allowed(before, after, snapshot)
    return Plan(
        _identity(after, snapshot), base_revision, head_revision, snapshot.now_s,
        tuple(declared_changes(before, after)), (), (), WithoutRevision(), None, None, allowed,
        refusals(GuardedRevision(before, after, not base_revision)),
        tuple(_conflicts(after, snapshot)),
        snapshot.catalog.region,
        snapshot.catalog.price_source,
    )  # fmt: skip


def make_plan(
    before: Fleet,
    after: Fleet,
    snapshot: Snapshot,
    *,
    base_revision: str = "",
    head_revision: str = "",
    day: Sequence[RevisionTally] = (),
) -> Plan:
    """Returns the plan from one fleet to another in the world of `snapshot`.

    `base_revision` empty means that nothing is in force yet: the guard rails of `after` itself then apply. `day` is
    what came of the revisions of the last 24 hours.
    """
    base = _consequences(before, snapshot) if base_revision else _untouched(snapshot)
    head = _consequences(after, snapshot)
    machines, anyway = caused(head.machines, base.machines)
    gangs = impacts(head.gangs, base.gangs, snapshot)
    restless = head.given_up_after_s is not None and base.given_up_after_s is None
    now, counts = bill(snapshot), (_existing(snapshot), _running(snapshot))
    seen = Foreseen(snapshot.now_s, machines, gangs, now, base.bill, head.bill, *counts, restless=restless)
    declared = declared_plan(before, after, snapshot, base_revision=base_revision, head_revision=head_revision)
    beyond = (*beyond_new_limits(before, after, snapshot), *beyond_new_budgets(before, after, snapshot))
    return replace(
        declared,
        machines=machines,
        gangs=gangs,
        without=WithoutRevision(anyway, stopped_anyway(head.gangs, base.gangs, snapshot), base.bill),
        now=now,
        then=head.bill,
        refusals=refusals(GuardedRevision(before, after, not base_revision, seen, day)),
        warnings=(*declared.warnings, *beyond, *_unsettled(head)),
        purchase=head.tally,
        tally=tally_of(seen),
    )


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


def _consequences(fleet: Fleet, snapshot: Snapshot) -> Consequences:
    return consequences(fleet, simulate(fleet, snapshot))


def _unsettled(head: Consequences) -> Iterator[str]:
    if head.given_up_after_s is not None:
        yield f"it does not come to rest; shown are the first {format_duration(round(head.given_up_after_s))}"
    yield from (f"nothing can be decided about {words}" for words in head.undecided)


def _untouched(snapshot: Snapshot) -> Consequences:
    """Returns what happens while no revision is in force: nothing."""
    return Consequences((), (), bill(snapshot), None, ())


def _existing(snapshot: Snapshot) -> int:
    return sum(1 for claim in snapshot.claims.values() if not claim.deleting and claim.disruption is None)


def _running(snapshot: Snapshot) -> int:
    return sum(1 for gang in snapshot.gangs.values() if gang.state is GangState.ADMITTED)


def _identity(after: Fleet, snapshot: Snapshot) -> str:
    """Returns the sha256 of what is desired and what was observed: an approval of a plan holds for exactly these."""
    ours = (after.node_pools, after.node_overlays, after.mig_layouts, after.flavors, after.teams, after.queues)
    upstream = (after.cluster_queues, after.cohorts, after.local_queues, after.resource_flavors)
    others = (after.admission_checks, after.volcano_queues, after.priority_classes, after.topologies)
    desired = [
        resource.model_dump(mode="json", by_alias=True)
        for table in (*ours, *upstream, *others, {"": after.policy})
        for _, resource in sorted(table.items())
    ]
    observed = [
        [(name, claim.state, claim.instance_id) for name, claim in sorted(snapshot.claims.items())],
        [
            (uid, gang.state, [list(map(str, (p.node, p.count))) for p in gang.pins])
            for uid, gang in sorted(snapshot.gangs.items())
        ],
    ]
    text = json.dumps([desired, observed], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


__all__ = ["Plan", "PlannedChange", "declared_plan", "make_plan"]
