"""Puts Volcano's queues into the quota tree: what a queue deserves is its quota, its capability bounds its borrowing.

Volcano shares out the machines there are; here more can be bought. So nothing but its capability keeps a queue from
growing, and what it deserves says who leaves where machines are short: a queue below it takes back from those above. A
queue that says what it deserves is taken at its word (plugin `capacity`), the others share by weight (plugin
`proportion`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
from model.upstream import VolcanoQueue
from model.upstream.volcano import ROOT

ANY_MACHINE = "any-machine"
"""The one flavor of Volcano's queues: whatever machine there is, or can be bought."""
TOLERANCE = 0.1
"""Amounts closer than this (a thousandth of a core, a byte, a device) are equal."""
Amounts = Mapping[str, float]
"""Resource -> amount."""
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
            preemption=_PREEMPTION,
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


@dataclass(frozen=True, slots=True)
class WeightedQueue:
    """A `WeightedQueue` takes part in sharing by weight; `request` is what its gangs hold and wait for."""

    weight: int
    request: Amounts
    capability: Amounts = field(default_factory=dict)
    """The most that it may hold; a resource not named is unlimited."""
    guarantee: Amounts = field(default_factory=dict)
    """Held back for it, whether it asks or not."""


def within(amounts: Amounts, bound: Amounts) -> bool:
    """Returns whether every amount is at most the bound; a resource the bound does not name counts as zero."""
    return all(value <= bound.get(name, 0.0) + TOLERANCE for name, value in amounts.items())


def ceilings(total: Amounts, queues: Mapping[str, WeightedQueue]) -> dict[str, dict[str, float]]:
    """Returns the most that each queue may hold: all not guaranteed to others, and never above its capability."""
    guaranteed = {name: sum(q.guarantee.get(name, 0.0) for q in queues.values()) for name in total}
    found: dict[str, dict[str, float]] = {}
    for key, queue in queues.items():
        open_to_it = {
            name: max(0.0, amount - guaranteed[name]) + queue.guarantee.get(name, 0.0) for name, amount in total.items()
        }
        named = {**dict.fromkeys(queue.capability, float("inf")), **open_to_it}
        found[key] = {name: min(value, queue.capability.get(name, float("inf"))) for name, value in named.items()}
    return found


def deserved(total: Amounts, queues: Mapping[str, WeightedQueue]) -> dict[str, dict[str, float]]:
    """Returns what each queue deserves of `total`, for all resources of it: shares by weight (water filling).

    Every round pours what is left over the queues that are not yet met, by weight, and takes back what a queue cannot
    use. All queues of a round see the same remainder, so the order of the queues does not matter.
    """
    most = ceilings(total, queues)
    shares = {key: dict.fromkeys(total, 0.0) for key in queues}
    remaining = {name: float(amount) for name, amount in total.items()}
    met: set[str] = set()
    while weights := sum(queue.weight for key, queue in queues.items() if key not in met):
        poured = dict(remaining)
        for key in sorted(queues.keys() - met):
            queue, before = queues[key], shares[key]
            after = {
                name: _bounded(before[name] + poured[name] * queue.weight / weights, name, queue, most[key])
                for name in total
            }
            for name in total:
                remaining[name] -= after[name] - before[name]
            if within(queue.request, after) or _same(before, after):
                met.add(key)
            shares[key] = after
        remaining = {name: max(0.0, amount) for name, amount in remaining.items()}
        if all(amount <= TOLERANCE for amount in remaining.values()) or _same(remaining, poured):
            break
    return shares


def _bounded(amount: float, name: str, queue: WeightedQueue, most: Amounts) -> float:
    wanted = min(amount, most.get(name, float("inf")), queue.request.get(name, 0.0))
    return max(wanted, queue.guarantee.get(name, 0.0))


def _same(one: Amounts, other: Amounts) -> bool:
    return all(abs(value - other[name]) < TOLERANCE for name, value in one.items())
