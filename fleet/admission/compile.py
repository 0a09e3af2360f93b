"""From Teams and Queues to the quota engine: a Team is a cohort with quota of its own, a Queue a leaf below it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fleet.admission.quota.declared import (
    EVERY_RESOURCE,
    CohortSpec,
    FairStrategy,
    FlavorResource,
    Policy,
    Preemption,
    QueueSpec,
    Quota,
    ResourceGroup,
    Rules,
)
from fleet.admission.quota.tree import Cell, Node, QuotaTree, charge
from fleet.admission.quota.workload import Given
from fleet.memo import remembered
from fleet.snapshot import Gang
from model.fleet import Fleet
from model.kinds import Queue, Team


@dataclass(frozen=True, slots=True)
class Declared:
    """A fleet's teams and queues as the quota engine knows them."""

    cohorts: tuple[CohortSpec, ...]
    queues: Mapping[str, QueueSpec]
    rules: Rules

    def tree(self) -> QuotaTree:
        """A tree without usage."""
        return QuotaTree(self.cohorts, tuple(self.queues.values()))


@remembered()
def declared(fleet: Fleet) -> Declared:
    """The quota engine's view of a fleet. The fleet's references resolve and teams have no circle."""
    cohorts = tuple(_cohort(team) for _, team in sorted(fleet.teams.items()))
    queues = {name: _queue(queue) for name, queue in sorted(fleet.queues.items())}
    fair = frozenset(_root(fleet, q.spec.team) for q in fleet.queues.values() if q.spec.fairness == "DominantShare")
    rules = Rules(
        fair=tuple(FairStrategy) if fair else (),
        fair_trees=fair,
        preemptors_first=True,
        wait_for_leaving=True,
        every_flavor=True,
        count_declared_only=True,
    )
    return Declared(cohorts, queues, rules)


def _root(fleet: Fleet, team: str) -> str:
    while above := fleet.teams[team].spec.parent:
        team = above
    return team


def _cohort(team: Team) -> CohortSpec:
    cells = {}
    for flavor, quota in team.spec.quotas.items():
        for resource, nominal in quota.guaranteed.items():
            cells[FlavorResource(flavor, resource)] = Quota(
                nominal, (quota.borrowing_limit or {}).get(resource), (quota.lending_limit or {}).get(resource)
            )
    return CohortSpec(team.name, team.spec.parent or "", cells, team.spec.weight)


def _queue(queue: Queue) -> QueueSpec:
    spec = queue.spec
    return QueueSpec(
        queue.name,
        spec.team,
        (ResourceGroup((EVERY_RESOURCE,), spec.flavors),),
        strict=spec.order == "StrictFIFO",
        preemption=Preemption(
            Policy(spec.preemption.within_queue),
            Policy(spec.preemption.reclaim),
            Policy(spec.preemption.while_borrowing),
        ),
        through_team=True,
    )


def usage_of(tree: QuotaTree, queue: Node, gang: Gang) -> dict[Cell, int]:
    """What a gang with flavors takes of the cells that quotas of its queue's tree count."""
    usage: dict[Cell, int] = {}
    for pod_set in gang.pod_sets:
        flavor = gang.flavors.get(pod_set.name, "")
        for resource, amount in pod_set.requests.items():
            named = FlavorResource(flavor, resource)
            if amount and tree.counts(queue, named):
                cell = tree.cell(named)
                usage[cell] = usage.get(cell, 0) + amount * pod_set.count
    return usage


class Share(NamedTuple):
    """What a gang holds, as the quota engine knows it."""

    given: tuple[Given, ...]
    usage: Mapping[Cell, int]
    """By the cells of `Declared.tree`."""


@remembered()
def takes(fleet: Fleet, gangs: Sequence[Gang]) -> Mapping[str, Share]:
    """What each holds, by uid, for gangs whose queue is declared: worked out anew when these or the fleet change."""
    tree = declared(fleet).tree()
    return {
        gang.uid: Share(
            tuple(
                Given(p.name, p.count, dict.fromkeys(p.requests, gang.flavors.get(p.name, ""))) for p in gang.pod_sets
            ),
            usage_of(tree, tree.queues[gang.queue], gang),
        )
        for gang in gangs
        if gang.queue in tree.queues
    }


def charged_tree(fleet: Fleet, gangs: Iterable[Gang]) -> QuotaTree:
    """The tree with what these gangs hold charged to it."""
    tree = declared(fleet).tree()
    for gang in gangs:
        queue = tree.queues.get(gang.queue)
        if queue is not None and gang.holds_capacity:
            charge(queue, usage_of(tree, queue, gang))
    return tree
