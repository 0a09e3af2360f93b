"""The opportunity cost of a place is what pods take away from other work by standing there, by what all gangs ask for.

What is free on a machine is worth to the work that may still come, resource by resource. Gangs count from their arrival
to their end, whether they run or wait, so that no decision changes what it was decided by. The rule is that of
`bench.reference.fragmentation` for machines as the deciders see them: so many free units of each extended resource
(whole GPUs, MIG slices, replicas of shared GPUs), CPU and memory, without a notion of which device. It is in whole
numbers and needs no numpy, so that a pass which places little stays cheap. See `docs/design/0003-packing.md`, "In
production".
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from fleet.mig.layouts import is_gpu_resource
from fleet.placement.cluster_state import NodeSlot
from fleet.placement.flavor_nodes import FlavorNodes, nodes_of_flavor
from fleet.placement.free_capacity import SlotCost
from fleet.quota.build_tree import quota_specs
from fleet.quota.queue_binding import binding_of
from fleet.snapshot import Gang, GangState
from fleet.snapshot.affinity import selects_any
from model import labels
from model.fleet import Fleet
from model.index import Index, TableChanges, derived, followed
from model.kinds import NodePool, RequirementTerm
from model.quantity import CPU, Resources

MEMORY = "memory"
HORIZON = 30
"""How many further requests a device is expected to see. Results hardly differ between 10 and 60."""
MICRO, PER_MILLI = 1_000_000, 1_000
"""Worth is counted in whole millionths of a GPU, so that sums are exact; losses are told apart by thousandths."""
COMPUTE_SLICES = 7
"""Of a GPU that can be cut (NVIDIA MIG user guide); the few models with fewer are not told apart."""
_SLICE = re.compile(re.escape(labels.MIG_RESOURCE_PREFIX) + r"(?:\d+c\.)?(\d+)g\.")

PodRequests = tuple[tuple[str, int], ...]
"""What one pod requests, in canonical amounts, by name of the resource."""
_Stated = tuple[str, str, PodRequests, tuple[tuple[str, str], ...], tuple[tuple[RequirementTerm, ...], ...]]
"""Namespace, queue, requests, node selector and affinity of pods."""


@dataclass(slots=True)
class OpportunityCosts:
    """Tells what places cost, by the gangs of a snapshot. Nothing is worked out before somebody has a choice."""

    fleet: Fleet
    gangs: Mapping[str, Gang]
    index: Index
    """Of the snapshot that the gangs are from."""
    _values: "MachineValues | None" = None

    def priced(self, requests: Resources) -> SlotCost:
        """What pods with these requests cost a slot; worked out once for equal slots, of which there are many.

        What waits for one gang alone is not kept empty: nobody else can use it, and it was bought for that gang.
        """
        known: dict[tuple[object, ...], tuple[bool, int]] = {}

        def cost(slot: NodeSlot, count: int) -> tuple[bool, int]:
            values = self._values or self._current()
            kind, free = map(slot.labels.get, values.keys), map(slot.free.get, values.resources)
            alike = count, slot.pool, *kind, *free
            found = known.get(alike)
            if found is None:
                value = values.of(slot)
                found = known[alike] = value.keep_empty, value.worth.loss(slot.free, requests, count)
            return found if not found[0] or (slot.empty and not slot.only_for) else (False, found[1])

        return cost

    def regret(self, standing: NodeSlot, cut: NodeSlot, requests: Resources, count: int) -> int:
        """What an idle machine would be worth less, with so many pods on it, if it was cut otherwise.

        In whole thousandths of a GPU; less than 0 where what the other layout leaves is worth more than all there is.
        """
        values = self._values or self._current()
        had, worth = values.of(standing).worth.of(standing.free), values.of(cut).worth
        return (had - worth.of(cut.free)) // PER_MILLI + worth.loss(cut.free, requests, count)

    def _current(self) -> "MachineValues":
        mix = request_mix(self.index, self.fleet, self.gangs)
        self._values = _machine_values(self.index, self.fleet, mix)
        return self._values


# -- what gangs ask for -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchedulingConstraints:
    """Pods with these constraints may stand on nodes of one flavor of each group that selector and affinity admit."""

    flavors: tuple[tuple[str, ...], ...]
    node_selector: tuple[tuple[str, str], ...]
    affinity: tuple[tuple[RequirementTerm, ...], ...]

    @property
    def keys(self) -> set[str]:
        """The labels that selector and affinity look at."""
        return {key for key, _ in self.node_selector} | {term.key for terms in self.affinity for term in terms}

    def selects(self, carried: Mapping[str, str]) -> bool:
        """Whether selector and affinity admit a node with these labels."""
        if any(carried.get(key) != value for key, value in self.node_selector):
            return False
        return selects_any(self.affinity, carried)


RequestMix = Mapping[tuple[SchedulingConstraints, PodRequests], int]
"""Constraints and requests -> how many pods have them; only of pods that ask for GPUs."""


@derived(steady=True)
def request_mix(index: Index, fleet: Fleet, gangs: Mapping[str, Gang]) -> RequestMix:
    """Counts the pods of all unfinished gangs. Who names a host says nothing about others and is left out."""
    mix: Counter[tuple[SchedulingConstraints, PodRequests]] = Counter()
    for (namespace, queue, requests, selector, affinity), pods in _counted_as_stated(index, gangs).items():
        allowed = SchedulingConstraints(_flavors(fleet, namespace, queue), tuple(sorted(selector)), affinity)
        if wants_gpus(requests) and labels.HOSTNAME not in allowed.keys:
            mix[allowed, tuple(sorted(requests))] += pods
    return dict(mix)


@followed(dict[_Stated, int])
def _counted_as_stated(before: dict[_Stated, int], changes: TableChanges[Gang]) -> dict[_Stated, int]:
    """Pods counted by what their gangs state: thousands of gangs state only a few different things."""
    counted = before.copy()
    for gangs, sign in ((changes.gone(), -1), (changes.came(), 1)):
        for gang in (gang for _, gang in gangs if gang.state is not GangState.FINISHED and gang.active):
            for pods in gang.pod_sets:
                requests, selector = (*pods.requests.items(),), (*pods.node_selector.items(),)
                stated = gang.namespace, gang.queue, requests, selector, pods.required_affinity
                counted[stated] = counted.get(stated, 0) + sign * pods.count
    return {stated: pods for stated, pods in counted.items() if pods}


def _flavors(fleet: Fleet, namespace: str, queue: str) -> tuple[tuple[str, ...], ...]:
    line = binding_of(fleet, namespace, queue)
    spec = quota_specs(fleet).queues.get(line.name) if line is not None else None
    return tuple(group.flavors for group in spec.groups) if spec is not None else ()


def wants_gpus(requests: Iterable[tuple[str, int]]) -> bool:
    """Whether a pod asks for a GPU or a part of one."""
    return any(amount > 0 and is_gpu_resource(resource) for resource, amount in requests)


# -- what machines are worth to them ----------------------------------------------------------------------------------


class _MachineValue(NamedTuple):
    """The value of machines of one kind."""

    worth: "CapacityValue"
    keep_empty: bool
    """Whether a machine is worth more while nothing stands on it."""


@dataclass(slots=True)
class MachineValues:
    """The values of the machines of a fleet under a mix, worked out when the first machine of a kind is seen."""

    fleet: Fleet
    mix: RequestMix
    keys: tuple[str, ...] = field(init=False)
    """Labels that tell kinds of machines apart, within a pool."""
    resources: tuple[str, ...] = field(init=False)
    """Resources that tell apart what is free on machines of a kind."""
    _flavors: Mapping[str, FlavorNodes] = field(init=False)
    _known: dict[tuple[str | None, ...], _MachineValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        constraints = dict.fromkeys(allowed for allowed, _ in self.mix)
        names = sorted({name for allowed in constraints for group in allowed.flavors for name in group})
        flavors = ((name, nodes_of_flavor(self.fleet, name)) for name in names)
        self._flavors = {name: flavor for name, flavor in flavors if flavor is not None}
        looked_at = [it.keys for it in constraints] + [set(flavor.node_labels) for flavor in self._flavors.values()]
        self.keys = tuple(sorted({labels.CAPACITY_TYPE}.union(*looked_at)))
        self.resources = _told_apart_by(self.mix)

    def of(self, slot: NodeSlot) -> _MachineValue:
        """The value of the machine of a slot."""
        kind = slot.pool, *map(slot.labels.get, self.keys)
        if kind not in self._known:
            self._known[kind] = self._worked_out(slot)
        return self._known[kind]

    def _worked_out(self, slot: NodeSlot) -> _MachineValue:
        pool = self.fleet.node_pools.get(slot.pool)
        keep = pool is not None and (_may_shrink(pool, slot) or _may_be_recut(pool))
        return _MachineValue(CapacityValue(self._wanting(slot), sum(self.mix.values()), _part_of_gpu(pool)), keep)

    def _wanting(self, slot: NodeSlot) -> Mapping[PodRequests, int]:
        """The pods of the mix that may stand on the machine of a slot."""
        owners = {name for name, flavor in self._flavors.items() if flavor.owns(slot)}
        wanting: Counter[PodRequests] = Counter()
        for (allowed, requests), pods in self.mix.items():
            owned = all(not owners.isdisjoint(group) for group in allowed.flavors)
            if owned and allowed.selects(slot.labels):
                wanting[requests] += pods
        return wanting


def _told_apart_by(mix: RequestMix) -> tuple[str, ...]:
    """The resources by which what is free on two machines of a kind can differ in worth."""
    asked_for = {name for _, requests in mix for name, _ in requests}
    return tuple(sorted({CPU, MEMORY} | {name for name in asked_for if is_gpu_resource(name)}))


@derived(2)
def _machine_values(_index: Index, fleet: Fleet, mix: RequestMix) -> MachineValues:
    return MachineValues(fleet, mix)


def _may_shrink(pool: NodePool, slot: NodeSlot) -> bool:
    """Whether an empty machine can be given back, and money with it."""
    return pool.spec.replicas is None and slot.labels.get(labels.CAPACITY_TYPE) != "reserved"


def _may_be_recut(pool: NodePool) -> bool:
    return pool.spec.sharing.mig is not None and len(pool.spec.sharing.mig.layouts) > 1


def _part_of_gpu(pool: NodePool | None) -> Callable[[str], float]:
    """What part of a GPU one unit of a resource is."""
    replicas = pool.spec.sharing.replicas if pool is not None else 1

    def part(resource: str) -> float:
        cut = _SLICE.match(resource)
        return int(cut[1]) / COMPUTE_SLICES if cut else 1 / replicas

    return part


class _UnitValue(NamedTuple):
    """A unit that pods ask for one at a time, with its worth and what they ask for beside it."""

    resource: str
    worth: int
    asked_cpu: "_Asked"
    asked_memory: "_Asked"


class _Asked(NamedTuple):
    """Amounts that pods ask for, sorted; of the pods that ask for no more than each, their part and what they ask."""

    amounts: tuple[int, ...]
    parts: tuple[int, ...]
    """Of all pods, in millionths."""
    means: tuple[int, ...]
    """What a unit takes for them on average, by the chance that one of all pods comes for it."""

    @classmethod
    def of(cls, asked: Iterable[tuple[int, int]], chance: float) -> "_Asked":
        """Of (amount, pods)."""
        pods: Counter[int] = Counter()
        for amount, count in asked:
            pods[amount] += count
        amounts, total = tuple(sorted(pods)), pods.total()
        so_far = tuple(accumulate(pods[each] for each in amounts))
        sums = accumulate(each * pods[each] for each in amounts)
        means = (round(chance * amount / count) for amount, count in zip(sums, so_far, strict=True))
        return cls(amounts, tuple(MICRO * count // total for count in so_far), tuple(means))

    def fitting(self, free: int) -> tuple[int, int]:
        """What part of the pods (millionths) could stand where so much is free, and what they ask for on average."""
        index = bisect_right(self.amounts, free)
        return (self.parts[index - 1], self.means[index - 1]) if index else (0, 0)


class _BundleValue(NamedTuple):
    """Units that pods ask for together, in that amount, with what all of them are worth and need."""

    resource: str
    amount: int
    worth: int
    cpu: int
    memory: int


class CapacityValue:
    """Measures what is free on one kind of machine, by the pods that may stand there (requests -> how many ask so).

    `total` counts the pods that ask for GPUs anywhere; `part` says what part of a GPU one unit of a resource is.
    """

    __slots__ = ("_resources", "_several", "_single")

    def __init__(
        self,
        mix: Mapping[PodRequests, int],
        total: int,
        part: Callable[[str], float] = lambda _resource: 1.0,
        horizon: int = HORIZON,
    ) -> None:
        sums = _sums(mix)
        single, several = [], []
        for (resource, amount), (pods, cpu, memory) in sorted(sums.items()):
            share = pods / total
            chance = share / (share + 1 / horizon)
            worth = round(share * chance * amount * MICRO * part(resource))
            if amount == 1:
                single.append(_UnitValue(resource, worth, *_asked_beside(mix, resource, chance)))
            else:
                several.append(_BundleValue(resource, amount, worth, round(cpu / pods), round(memory / pods)))
        self._single, self._several = tuple(single), tuple(several)
        self._resources = tuple({resource: None for resource, _ in sums})

    def of(self, free: Resources) -> int:
        """Millionths of a GPU that those who come are expected to fill of what is free on a machine."""
        free_cpu, free_memory = max(0, free.get(CPU, 0)), max(0, free.get(MEMORY, 0))
        worth = cpu = memory = 0
        for one in self._single:
            if (count := free.get(one.resource, 0)) > 0:
                (by_cpu, each_cpu), (by_memory, each_memory) = (
                    one.asked_cpu.fitting(free_cpu),
                    one.asked_memory.fitting(free_memory),
                )
                worth += count * one.worth * min(by_cpu, by_memory) // MICRO
                cpu += count * each_cpu
                memory += count * each_memory
        worth = min(_fed(worth, free_cpu, cpu), _fed(worth, free_memory, memory))
        for many in self._several:
            if (times := free.get(many.resource, 0) // many.amount) > 0:
                times = min(times, _times(free_cpu, many.cpu, times), _times(free_memory, many.memory, times))
                worth += times * many.worth
        return worth

    def loss(self, free: Resources, requests: Resources, count: int) -> int:
        """What so many pods take away, in whole thousandths of a GPU; less than 0 where what is left is worth more."""
        if not any(free.get(resource, 0) > 0 for resource in self._resources):
            return 0
        left = {**free, **{name: free.get(name, 0) - count * each for name, each in requests.items()}}
        return (self.of(free) - self.of(left)) // PER_MILLI


def _asked_beside(mix: Mapping[PodRequests, int], resource: str, chance: float) -> tuple[_Asked, _Asked]:
    """What CPU and memory the pods ask for that ask for one unit of the resource."""
    alike = [(dict(requests), pods) for requests, pods in mix.items() if pods > 0]
    ones = [(amounts, pods) for amounts, pods in alike if amounts.get(resource) == 1]
    cpu, memory = (
        _Asked.of(((amounts.get(name, 0), pods) for amounts, pods in ones), chance) for name in (CPU, MEMORY)
    )
    return cpu, memory


def _sums(mix: Mapping[PodRequests, int]) -> Mapping[tuple[str, int], Sequence[int]]:
    """(GPU resource, amount) -> pods that ask for it, and all the CPU and memory they ask for."""
    sums: defaultdict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for requests, pods in mix.items():
        amounts = dict(requests)
        for resource, amount in requests:
            if amount > 0 and pods > 0 and is_gpu_resource(resource):
                entry = sums[resource, amount]
                entry[0] += pods
                entry[1] += pods * amounts.get(CPU, 0)
                entry[2] += pods * amounts.get(MEMORY, 0)
    return sums


def _fed(worth: int, free: int, needed: int) -> int:
    """The part of the worth that the free amount of a resource can feed."""
    return worth + worth * min(free - needed, 0) // max(needed, 1)


def _times(free: int, each: int, most: int) -> int:
    return free // each if each else most
