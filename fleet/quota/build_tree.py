"""Builds the quota tree of a fleet: specs of Teams and Cohorts, of Queues and ClusterQueues, and what gangs hold.

A Team is a cohort with quota of its own, and a Queue below it uses that quota as if it were the queue's.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from fleet.quota.fair_share import Demand, share_out
from fleet.quota.queue_binding import binding_of
from fleet.quota.specs import (
    EVERY_RESOURCE,
    AdmissionRules,
    CandidatePolicy,
    CellQuota,
    FlavorResource,
    FungibilityPolicy,
    PreemptionStrategy,
    QueueFungibility,
    QueuePreemption,
    QuotaCohortSpec,
    QuotaQueueSpec,
    QuotaResourceGroup,
)
from fleet.quota.tree import Cell, QuotaTree, charge
from fleet.quota.volcano import VolcanoDemand, volcano_specs
from fleet.quota.workload import PodSetAssignment
from fleet.snapshot import Gang, GangState, Job, Node, Snapshot
from fleet.snapshot.elastic_parts import parts
from fleet.snapshot.lookups import holders
from model.fleet import Fleet
from model.index import Index, TableChanges, derived, followed
from model.kinds import Queue, Team
from model.labels import GPU_EQUIVALENT
from model.mig.layouts import gpu_equivalents
from model.quantity import Resources
from model.upstream.quotas import ResourceGroup as UpstreamGroup
from model.upstream.quotas import cells
from model.upstream.volcano import ROOT

if TYPE_CHECKING:  # most fleets hold none of them
    from model.upstream.cluster_queue import ClusterQueue
    from model.upstream.tenancy import Cohort


@dataclass(frozen=True, slots=True)
class QuotaSpecs:
    """The cohorts, queues and rules that the quota engine takes from a fleet."""

    cohorts: tuple[QuotaCohortSpec, ...]
    queues: Mapping[str, QuotaQueueSpec]
    rules: AdmissionRules
    demand: Demand = field(default_factory=dict)
    """By which fair shares are divided, of queues in trees where these order heads."""

    def tree(self) -> QuotaTree:
        """Returns a tree without usage."""
        made = QuotaTree(self.cohorts, tuple(self.queues.values()))
        if self.demand:
            share_out(made, self.demand)
        return made


def quota_specs(fleet: Fleet) -> QuotaSpecs:
    """Returns the specs of a fleet without Volcano's queues, whose quotas depend on the machines there are.

    Assumes a checked fleet: references resolve, and teams and cohorts form no circle.
    """
    return _quota_specs(fleet.index, fleet)


def current_quota_specs(fleet: Fleet, snapshot: Snapshot) -> QuotaSpecs:
    """Returns the specs of a fleet as it stands: Volcano's quotas by the machines, fair shares by what is asked."""
    specs = quota_specs(fleet)
    if fleet.volcano_queues:
        specs = _with_volcano(
            snapshot.index, fleet, specs, snapshot.nodes, snapshot.foreign_use, snapshot.gangs, snapshot.jobs
        )
    return _with_demand(snapshot.index, fleet, specs, snapshot.gangs, snapshot.jobs) if _by_fair_share(fleet) else specs


QueueUsage = Mapping[str, Mapping[FlavorResource, int]]
"""Queue -> (flavor, resource) -> amount."""


def charged_tree(fleet: Fleet, snapshot: Snapshot, gangs: Iterable[Gang], others: QueueUsage) -> QuotaTree:
    """Returns the tree with what these gangs hold, and what `others` than gangs take, charged to it."""
    return tree_charged_with(fleet, current_quota_specs(fleet, snapshot), gangs, others)


def tree_charged_with(fleet: Fleet, specs: QuotaSpecs, gangs: Iterable[Gang], others: QueueUsage) -> QuotaTree:
    """Returns the tree of these specs with what the gangs hold, and what `others` take, charged to it."""
    tree = specs.tree()
    charge_others(tree, others)
    for gang in gangs:
        binding = binding_of(fleet, gang.namespace, gang.queue)
        if binding is not None and gang.holds_capacity:
            charge(tree.queues[binding.name], usage_of(specs, tree, binding.name, gang))
    return tree


def charge_others(tree: QuotaTree, others: QueueUsage) -> None:
    """Charges what others than gangs take to their queues, as far as the tree counts it."""
    for name, usage in others.items():
        node = tree.queues[name]
        charge(node, {tree.cell(named): amount for named, amount in usage.items() if tree.counts(node, named)})


def usages(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, Mapping[FlavorResource, int]]:
    """Returns uid -> (flavor, resource) -> amount, of each part of the gangs that hold capacity in declared queues.

    Cells of a tree are numbered anew for each tree, so they are named here.
    """
    specs = current_quota_specs(fleet, snapshot)
    return _usages(snapshot.index, snapshot.gangs, fleet, specs, _nobodys_tree(snapshot.index, specs))


@derived(1)
def _nobodys_tree(_index: Index, specs: QuotaSpecs) -> QuotaTree:
    """Returns a tree that nothing is charged to: it tells what is counted."""
    return specs.tree()


@followed(dict[str, Mapping[FlavorResource, int]])
def _usages(
    before: dict[str, Mapping[FlavorResource, int]],
    changes: TableChanges[Gang],
    fleet: Fleet,
    specs: QuotaSpecs,
    tree: QuotaTree,
) -> dict[str, Mapping[FlavorResource, int]]:
    found = before.copy()
    for part in (part for _, gang in changes.gone() if gang.holds_capacity for part in parts(gang)):
        found.pop(part.uid, None)
    for gang in (gang for _, gang in changes.came() if gang.holds_capacity):
        if (binding := binding_of(fleet, gang.namespace, gang.queue)) is not None:
            found |= {part.uid: _usage(specs, tree, binding.name, part) for part in parts(gang)}
    return found


def borrowing(fleet: Fleet, snapshot: Snapshot) -> frozenset[str]:
    """Returns the uids of gangs on quota that their team has borrowed: those admitted when its own was used up."""
    specs = current_quota_specs(fleet, snapshot)
    return _borrowing(snapshot.index, fleet, specs, holders(snapshot), usages(fleet, snapshot))


@derived(1, steady=True)
def _borrowing(
    _index: Index,
    fleet: Fleet,
    specs: QuotaSpecs,
    gangs: Sequence[Gang],
    taken: Mapping[str, Mapping[FlavorResource, int]],
) -> frozenset[str]:
    tree, found = specs.tree(), set()
    for gang in sorted(gangs, key=lambda it: (it.admitted_at_s or inf, it.created_at_s, it.uid)):
        binding = binding_of(fleet, gang.namespace, gang.queue)
        if binding is None:
            continue
        node = tree.queues[binding.name]
        asked = usage_of_all_parts(gang, taken).items()
        usage = {tree.cell(named): amount for named, amount in asked if amount and tree.counts(node, named)}
        if any(node.owner.borrows_with(cell, amount) for cell, amount in usage.items()):
            found.add(gang.uid)
        charge(node, usage)
    return frozenset(found)


def usage_of(specs: QuotaSpecs, tree: QuotaTree, queue: str, gang: Gang) -> dict[Cell, int]:
    """Returns cell -> amount that a gang takes of its flavors, as far as its queue's tree counts them.

    Pods that have succeeded for good take nothing any more.
    """
    return {tree.cell(named): amount for named, amount in _usage(specs, tree, queue, gang).items()}


def _usage(specs: QuotaSpecs, tree: QuotaTree, queue: str, gang: Gang) -> dict[FlavorResource, int]:
    spec, node = specs.queues[queue], tree.queues[queue]
    usage: dict[FlavorResource, int] = {}
    spare = gang.reclaimable
    for pod_set in gang.pod_sets:
        chosen = gang.flavors.get(pod_set.name, ())
        for resource, amount in spec.asked_of(pod_set).items():
            named = FlavorResource(_flavor_of(spec, chosen, resource), resource)
            if amount and named.flavor and (not spec.declared_only or tree.counts(node, named)):
                usage[named] = usage.get(named, 0) + amount * (pod_set.count - spare.get(pod_set.name, 0))
    return usage


def usage_of_all_parts(gang: Gang, taken: Mapping[str, Mapping[FlavorResource, int]]) -> Mapping[FlavorResource, int]:
    """Returns what all parts of a gang take of each flavor and resource."""
    total: Counter[FlavorResource] = Counter()
    for part in parts(gang):
        total.update(taken.get(part.uid, {}))
    return total


def pod_set_assignments(specs: QuotaSpecs, queue: str, gang: Gang) -> tuple[PodSetAssignment, ...]:
    """Returns the flavors and amounts that each pod set of a gang holds."""
    spec, given = specs.queues[queue], []
    for pod_set in gang.pod_sets:
        chosen, asked = gang.flavors.get(pod_set.name, ()), spec.asked_of(pod_set)
        flavors = {resource: flavor for resource in asked if (flavor := _flavor_of(spec, chosen, resource))}
        amounts = {resource: asked[resource] * pod_set.count for resource in flavors}
        given.append(PodSetAssignment(pod_set.name, pod_set.count, flavors, amounts))
    return tuple(given)


def _flavor_of(spec: QuotaQueueSpec, chosen: Sequence[str], resource: str) -> str:
    """Returns the flavor that gives a resource: of several chosen ones that in the resource's group; empty if none."""
    if len(chosen) == 1:
        return chosen[0]
    group = spec.group_of(resource)
    return next((flavor for flavor in chosen if group is not None and flavor in group.flavors), "")


@derived()
def _quota_specs(_index: Index, fleet: Fleet) -> QuotaSpecs:
    cohorts = [_team(team) for _, team in sorted(fleet.teams.items())]
    cohorts += [_cohort(cohort) for _, cohort in sorted(fleet.cohorts.items())]
    remembers = fleet.policy.spec.admission_fair_sharing is not None
    parts = equivalents(fleet)
    queues = {
        name: replace(_queue(queue, remembers=remembers), equivalents=parts) for name, queue in fleet.queues.items()
    }
    queues |= {name: _cluster_queue(queue, remembers=remembers) for name, queue in fleet.cluster_queues.items()}
    above = {cohort.name: cohort.parent for cohort in cohorts}
    fair = frozenset(_root(above, name) for name in _fair(fleet))
    guaranteed = {queue.spec.team for queue in fleet.queues.values() if queue.spec.fairness == "GuaranteeShare"}
    rules = AdmissionRules(
        guarantee_trees=frozenset(_root(above, name) for name in guaranteed),
        fair=tuple(PreemptionStrategy) if fair else (),
        fair_trees=fair,
        preemptors_first=True,
        wait_for_leaving=True,
        every_flavor=True,
        victims_elsewhere=True,
    )
    return QuotaSpecs(tuple(cohorts), dict(sorted(queues.items())), rules)


def equivalents(fleet: Fleet) -> Mapping[str, int]:
    """Returns resource -> parts of a GPU, where some quota of a Team counts GPU-equivalents."""
    return _equivalents(fleet.index, fleet)


@derived()
def _equivalents(_index: Index, fleet: Fleet) -> Mapping[str, int]:
    quotas = (quota.guaranteed for team in fleet.teams.values() for quota in team.spec.quotas.values())
    if not any(GPU_EQUIVALENT in guaranteed for guaranteed in quotas):
        return {}
    every = any(pool.spec.sharing.dynamic_mig for pool in fleet.node_pools.values())
    return gpu_equivalents([*fleet.mig_layouts.values(), *fleet.former_layouts.values()], every=every)


def _fair(fleet: Fleet) -> Iterator[str]:
    """Yields cohorts in whose trees fair sharing is on: a Queue asks for it, or a Kueue object states a weight."""
    yield from (queue.spec.team for queue in fleet.queues.values() if queue.spec.fairness != "None")
    yield from (cohort.name for cohort in fleet.cohorts.values() if "fair_sharing" in cohort.spec.model_fields_set)
    for queue in fleet.cluster_queues.values():
        if queue.spec.cohort_name and "fair_sharing" in queue.spec.model_fields_set:
            yield queue.spec.cohort_name


def _root(above: Mapping[str, str], cohort: str) -> str:
    while parent := above.get(cohort):
        cohort = parent
    return cohort


def _cohort(cohort: "Cohort") -> QuotaCohortSpec:
    spec = cohort.spec
    return QuotaCohortSpec(cohort.name, spec.parent_name or "", _cells(spec.resource_groups), spec.fair_sharing.weight)


def _cluster_queue(queue: "ClusterQueue", *, remembers: bool) -> QuotaQueueSpec:
    """Returns the spec of a ClusterQueue.

    Usage orders it only with `remembers`: the fleet declares admission fair sharing.
    """
    spec = queue.spec
    groups = (
        QuotaResourceGroup(group.covered_resources, tuple(flavor.name for flavor in group.flavors))
        for group in spec.resource_groups
    )
    preemption, fungibility = spec.preemption, spec.flavor_fungibility
    return QuotaQueueSpec(
        queue.name,
        spec.cohort_name or "",
        tuple(groups),
        _cells(spec.resource_groups),
        spec.fair_sharing.weight,
        strict=spec.queueing_strategy == "StrictFIFO",
        preemption=QueuePreemption(
            CandidatePolicy(preemption.within_cluster_queue),
            CandidatePolicy(preemption.reclaim_within_cohort),
            CandidatePolicy(preemption.borrow_within_cohort.policy),
            preemption.borrow_within_cohort.max_priority_threshold,
        ),
        fungibility=QueueFungibility(
            FungibilityPolicy(fungibility.when_can_borrow),
            FungibilityPolicy(fungibility.when_can_preempt),
            prefer_preemption=fungibility.preference == "PreemptionOverBorrowing",
        ),
        usage_ordered=remembers and spec.usage_ordered,
    )


def _cells(groups: Sequence[UpstreamGroup]) -> dict[FlavorResource, CellQuota]:
    return {
        FlavorResource(cell.flavor, cell.quota.name): CellQuota(
            cell.quota.nominal_quota, cell.quota.borrowing_limit, cell.quota.lending_limit
        )
        for cell in cells(groups)
    }


def _team(team: Team) -> QuotaCohortSpec:
    cells = {}
    for flavor, quota in team.spec.quotas.items():
        for resource, nominal in quota.guaranteed.items():
            cells[FlavorResource(flavor, resource)] = CellQuota(
                nominal, (quota.borrowing_limit or {}).get(resource), (quota.lending_limit or {}).get(resource)
            )
    return QuotaCohortSpec(team.name, team.spec.parent or "", cells, team.spec.weight)


def _queue(queue: Queue, *, remembers: bool) -> QuotaQueueSpec:
    spec = queue.spec
    return QuotaQueueSpec(
        queue.name,
        spec.team,
        (QuotaResourceGroup((EVERY_RESOURCE,), spec.flavors),),
        strict=spec.order == "StrictFIFO",
        preemption=QueuePreemption(
            CandidatePolicy(spec.preemption.within_queue),
            CandidatePolicy(spec.preemption.reclaim),
            CandidatePolicy(spec.preemption.while_borrowing),
            moves=spec.preemption.move_others,
        ),
        through_team=True,
        usage_ordered=remembers and spec.admission_fair_sharing is not None,
    )


def _by_fair_share(fleet: Fleet) -> bool:
    return any(queue.spec.fairness == "GuaranteeShare" for queue in fleet.queues.values())


@derived(2)
def _with_demand(
    _index: Index, fleet: Fleet, specs: QuotaSpecs, gangs: Mapping[str, Gang], jobs: Mapping[str, Job]
) -> QuotaSpecs:
    return replace(specs, demand=_requests(fleet, gangs, jobs, fleet.queues))


@derived(2)
def _with_volcano(
    _index: Index,
    fleet: Fleet,
    specs: QuotaSpecs,
    nodes: Mapping[str, Node],
    foreign_use: Mapping[str, Resources],
    gangs: Mapping[str, Gang],
    jobs: Mapping[str, Job],
) -> QuotaSpecs:
    demand = VolcanoDemand(_free(nodes, foreign_use), _requests(fleet, gangs, jobs, fleet.volcano_queues))
    cohorts, queues = volcano_specs(fleet.volcano_queues, demand)
    rules = replace(specs.rules, guarantee_trees=specs.rules.guarantee_trees | {ROOT})
    return QuotaSpecs((*specs.cohorts, *cohorts), dict(sorted({**specs.queues, **queues}.items())), rules)


def _free(nodes: Mapping[str, Node], foreign_use: Mapping[str, Resources]) -> Resources:
    """Returns the allocatable of ready nodes less what pods outside of queues take."""
    total: dict[str, int] = {}
    for name, node in nodes.items():
        if node.ready and not node.unschedulable:
            for resource, amount in node.allocatable.items():
                free = amount - foreign_use.get(name, {}).get(resource, 0)
                total[resource] = total.get(resource, 0) + max(0, free)
    return total


def _requests(
    fleet: Fleet, gangs: Mapping[str, Gang], jobs: Mapping[str, Job], queues: Container[str]
) -> Mapping[str, Resources]:
    """Returns queue -> what its gangs ask for: what runs, what waits, and pods that may join what runs."""
    requests: dict[str, dict[str, int]] = {}
    for uid, gang in gangs.items():
        binding = binding_of(fleet, gang.namespace, gang.queue)
        if binding is None or binding.name not in queues or gang.state is GangState.FINISHED:
            continue
        asked = requests.setdefault(binding.name, {})
        wanted = {pods.name: pods.count for pods in jobs[uid].pod_sets} if uid in jobs else {}
        for pod_set in gang.pod_sets:
            count = max(pod_set.count, wanted.get(pod_set.name, 0))
            for resource, amount in pod_set.requests.items():
                asked[resource] = asked.get(resource, 0) + amount * count
    return requests
