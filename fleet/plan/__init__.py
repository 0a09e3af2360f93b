"""The one definition of what a revision changes. CLI, review, reconcile and simulation all call `make_plan`."""

import hashlib
import json
from dataclasses import dataclass

from fleet.actions import PurchaseTally
from fleet.offerings.overlays import applied_overlays
from fleet.plan.changes import PlannedChange, declared_changes
from fleet.plan.forecast import Forecast, GangImpact, HourlyBill, forecast
from fleet.plan.guards import refusals
from fleet.snapshot import Snapshot
from model.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Plan:
    """What a revision would change, and why it may not. `plan_id` is a hash of what is desired and what is observed."""

    plan_id: str
    base_revision: str
    head_revision: str
    observed_at_s: float
    declared: tuple[PlannedChange, ...]
    machines: tuple[PlannedChange, ...]
    gangs: tuple[GangImpact, ...]
    now: HourlyBill
    then: HourlyBill
    refusals: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """What is declared and does not hold."""
    purchase: PurchaseTally | None = None
    """What waiting gangs would buy, and how near that is to the least possible."""

    @property
    def empty(self) -> bool:
        """Returns whether no declaration and no machine would change."""
        return not self.declared and not self.machines

    def counts(self) -> dict[str, int]:
        """Returns Terraform's three numbers by verb: a replacement counts as one to create and one to delete."""
        verbs = [change.verb for change in (*self.declared, *self.machines)]
        replaced = verbs.count("replace")
        return {
            "create": verbs.count("create") + replaced,
            "update": verbs.count("update"),
            "delete": verbs.count("delete") + replaced,
        }


def make_plan(
    before: Fleet, after: Fleet, snapshot: Snapshot, *, base_revision: str = "", head_revision: str = ""
) -> Plan:
    """Returns the plan from one fleet to another in the world of `snapshot`; an empty one compares declarations only.

    `base_revision` empty means that nothing is in force yet: the guard rails of `after` itself then apply.
    """
    seen: Forecast = forecast(before, after, snapshot)
    return Plan(
        plan_id=_identity(after, snapshot),
        base_revision=base_revision,
        head_revision=head_revision,
        observed_at_s=snapshot.now_s,
        declared=tuple(declared_changes(before, after)),
        machines=seen.machines,
        gangs=seen.gangs,
        now=seen.now,
        then=seen.then,
        refusals=refusals(before, after, seen, first=not base_revision),
        warnings=(
            *map(str, applied_overlays(snapshot.index, after, snapshot.catalog).conflicts),
            *(f"nothing can be decided about {words}" for words in seen.undecided),
        ),
        purchase=seen.tally,
    )


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


__all__ = ["Plan", "PlannedChange", "make_plan"]
