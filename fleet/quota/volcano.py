"""Puts Volcano's queues into the quota tree: what a queue deserves is its quota, its capability bounds its borrowing.

Volcano shares out the machines there are; here more can be bought. So nothing but its capability keeps a queue from
growing, and what it deserves says who leaves where machines are short: a queue below it takes back from those above. A
queue that says what it deserves is taken at its word (plugin `capacity`), the others share by weight (plugin
`proportion`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fleet.quota.fair_share import WeightedQueue, deserved
from fleet.quota.specs import (
    EVERY_RESOURCE,
    UNLIMITED,
    CandidatePolicy,
    CellQuota,
    FlavorResource,
    QueuePreemption,
    QuotaCohortSpec,
    QuotaQueueSpec,
    QuotaResourceGroup,
)
from model.quantity import Resources
from model.upstream.volcano import ROOT, VolcanoQueue

ANY_MACHINE = "any-machine"
"""The one flavor of Volcano's queues: whatever machine there is, or can be bought."""
_PREEMPTION = QueuePreemption(CandidatePolicy.LOWER, CandidatePolicy.ANY)


@dataclass(frozen=True, slots=True)
class VolcanoDemand:
    """A `VolcanoDemand` is the total that Volcano's queues share, and what the gangs of each hold and wait for."""

    total: Resources = field(default_factory=dict)
    requests: Mapping[str, Resources] = field(default_factory=dict)
    """Queue -> amounts."""


def volcano_specs(
    queues: Mapping[str, VolcanoQueue], demand: VolcanoDemand
) -> tuple[list[QuotaCohortSpec], dict[str, QuotaQueueSpec]]:
    """Returns cohorts for queues with others below them, queues for the rest (only these take work, as upstream)."""
    if not queues:
        return [], {}
    below = _children(queues)
    deserves = _deserved(queues, below, demand)
    cohorts = [_root(queues, demand)]
    leaves = {}
    for name, queue in sorted(queues.items()):
        if queue.parent is None:
            continue
        quotas = _quotas(queue, deserves[name], [deserves[child] for child in below.get(name, ())])
        if name in below:
            cohorts.append(QuotaCohortSpec(name, queue.parent, quotas, queue.spec.weight))
            continue
        leaves[name] = QuotaQueueSpec(
            name,
            queue.parent,
            (QuotaResourceGroup((EVERY_RESOURCE,), (ANY_MACHINE,)),),
            quotas,
            queue.spec.weight,
            preemption=replace(_PREEMPTION, by_any_resource=bool(queue.spec.deserved)),
            reclaimable=queue.spec.reclaimable,
            rank=queue.spec.priority,
        )
    return cohorts, leaves


def _children(queues: Mapping[str, VolcanoQueue]) -> dict[str, list[str]]:
    """Returns queue -> the queues right below it."""
    below: dict[str, list[str]] = {}
    for name, queue in sorted(queues.items()):
        if queue.parent is not None:
            below.setdefault(queue.parent, []).append(name)
    return below


def _root(queues: Mapping[str, VolcanoQueue], demand: VolcanoDemand) -> QuotaCohortSpec:
    """Returns the root, which lends every resource that anybody names without bound: more machines can be bought."""
    names = {*demand.total, *(name for asked in demand.requests.values() for name in asked)}
    names |= {name for queue in queues.values() for name in (*queue.spec.capability, *queue.spec.deserved)}
    everything = {FlavorResource(ANY_MACHINE, name): CellQuota(UNLIMITED) for name in sorted(names)}
    return QuotaCohortSpec(ROOT, "", everything)


def _quotas(queue: VolcanoQueue, deserves: Resources, children: list[Resources]) -> dict[FlavorResource, CellQuota]:
    """Returns a node's own quota: what it deserves beyond its children, which bring theirs."""
    found = {}
    for name in sorted({*deserves, *queue.spec.capability}):
        amount = deserves.get(name, 0)
        own = max(0, amount - sum(child.get(name, 0) for child in children))
        most = queue.spec.capability.get(name)
        limit = None if most is None else max(0, most - amount)
        found[FlavorResource(ANY_MACHINE, name)] = CellQuota(own, limit)
    return found


def _deserved(
    queues: Mapping[str, VolcanoQueue], below: Mapping[str, list[str]], demand: VolcanoDemand
) -> dict[str, Resources]:
    """Returns queue -> what it deserves, level by level from the root."""
    found: dict[str, Resources] = {ROOT: demand.total}
    todo = [ROOT]
    while todo:
        parent = todo.pop()
        children = below.get(parent, [])
        shares = _by_weight(queues, below, demand, found[parent], children)
        for child in children:
            spec = queues[child].spec
            free = dict.fromkeys(demand.total, UNLIMITED)  # it cannot lack a resource that it does not name
            said = {**free, **spec.capability, **spec.deserved} if spec.deserved else shares[child]
            names = {*said, *spec.guarantee.resource}
            found[child] = {name: max(said.get(name, 0), spec.guarantee.resource.get(name, 0)) for name in names}
        todo += children
    return found


def _by_weight(
    queues: Mapping[str, VolcanoQueue],
    below: Mapping[str, list[str]],
    demand: VolcanoDemand,
    total: Resources,
    children: list[str],
) -> dict[str, Resources]:
    weighted = {
        child: WeightedQueue(
            queues[child].spec.weight,
            _asked(below, demand, child),
            queues[child].spec.capability,
            queues[child].spec.guarantee.resource,
        )
        for child in children
    }
    shares = deserved(total, weighted)
    return {child: {name: int(amount) for name, amount in shares[child].items()} for child in children}


def _asked(below: Mapping[str, list[str]], demand: VolcanoDemand, queue: str) -> Resources:
    """Returns what gangs ask of a queue and of all below it."""
    asked = dict(demand.requests.get(queue, {}))
    for child in below.get(queue, ()):
        for name, amount in _asked(below, demand, child).items():
            asked[name] = asked.get(name, 0) + amount
    return asked
