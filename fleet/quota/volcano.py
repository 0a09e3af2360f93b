"""Volcano's queues in the quota tree: what a queue deserves is its quota, its capability bounds what it borrows.

Volcano shares out the machines there are; here more can be bought. So nothing but its capability keeps a queue from
growing, and what it deserves says who leaves where machines are short: a queue below it takes back from those above. A
queue that says what it deserves is taken at its word (`capacity`), the others share by weight (`proportion`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.quota.declared import (
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
from fleet.quota.proportion import WeightedQueue, deserved
from model.quantity import Resources
from model.upstream import VolcanoQueue
from model.upstream.volcano import ROOT

ANY_MACHINE = "any-machine"
"""The one flavor of Volcano's queues: whatever machine there is, or can be bought."""
_PREEMPTION = QueuePreemption(CandidatePolicy.LOWER, CandidatePolicy.ANY)


@dataclass(frozen=True, slots=True)
class VolcanoDemand:
    """What Volcano's queues share out, and what each asks: holding and waiting together."""

    total: Resources = field(default_factory=dict)
    requests: Mapping[str, Resources] = field(default_factory=dict)
    """Queue -> amounts."""


def volcano_specs(
    queues: Mapping[str, VolcanoQueue], market: VolcanoDemand
) -> tuple[list[QuotaCohortSpec], dict[str, QuotaQueueSpec]]:
    """Cohorts for queues with others below them, queues for the rest (only these take work, as upstream)."""
    if not queues:
        return [], {}
    below: dict[str, list[str]] = {}
    for name, queue in sorted(queues.items()):
        if queue.parent is not None:
            below.setdefault(queue.parent, []).append(name)
    deserves = _deserved(queues, below, market)
    names = {*market.total, *(name for asked in market.requests.values() for name in asked)}
    names |= {name for queue in queues.values() for name in (*queue.spec.capability, *queue.spec.deserved)}
    everything = {FlavorResource(ANY_MACHINE, name): CellQuota(UNLIMITED) for name in sorted(names)}
    cohorts = [QuotaCohortSpec(ROOT, "", everything)]
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
            preemption=_PREEMPTION,
            reclaimable=queue.spec.reclaimable,
            rank=queue.spec.priority,
        )
    return cohorts, leaves


def _quotas(queue: VolcanoQueue, deserves: Resources, children: list[Resources]) -> dict[FlavorResource, CellQuota]:
    """A node's own quota is what it deserves beyond its children, which bring theirs."""
    found = {}
    for name in sorted({*deserves, *queue.spec.capability}):
        amount = deserves.get(name, 0)
        own = max(0, amount - sum(child.get(name, 0) for child in children))
        most = queue.spec.capability.get(name)
        limit = None if most is None else max(0, most - amount)
        found[FlavorResource(ANY_MACHINE, name)] = CellQuota(own, limit)
    return found


def _deserved(
    queues: Mapping[str, VolcanoQueue], below: Mapping[str, list[str]], market: VolcanoDemand
) -> dict[str, Resources]:
    """Queue -> what it deserves, level by level from the root."""
    found: dict[str, Resources] = {ROOT: market.total}
    todo = [ROOT]
    while todo:
        parent = todo.pop()
        children = below.get(parent, [])
        shares = _by_weight(queues, below, market, found[parent], children)
        for child in children:
            spec = queues[child].spec
            free = dict.fromkeys(market.total, UNLIMITED)  # of what it does not name it is never short
            said = {**free, **spec.capability, **spec.deserved} if spec.deserved else shares[child]
            names = {*said, *spec.guarantee.resource}
            found[child] = {name: max(said.get(name, 0), spec.guarantee.resource.get(name, 0)) for name in names}
        todo += children
    return found


def _by_weight(
    queues: Mapping[str, VolcanoQueue],
    below: Mapping[str, list[str]],
    market: VolcanoDemand,
    total: Resources,
    children: list[str],
) -> dict[str, Resources]:
    weighted = {
        child: WeightedQueue(
            queues[child].spec.weight,
            _asked(below, market, child),
            queues[child].spec.capability,
            queues[child].spec.guarantee.resource,
        )
        for child in children
    }
    shares = deserved(total, weighted)
    return {child: {name: int(amount) for name, amount in shares[child].items()} for child in children}


def _asked(below: Mapping[str, list[str]], market: VolcanoDemand, queue: str) -> Resources:
    """What is asked of a queue and of all below it."""
    asked = dict(market.requests.get(queue, {}))
    for child in below.get(queue, ()):
        for name, amount in _asked(below, market, child).items():
            asked[name] = asked.get(name, 0) + amount
    return asked
