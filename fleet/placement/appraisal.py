"""The price of a place: what pods take from the machine they stand on, by what all gangs of the cluster ask for.

The rule is in `docs/design/0003-packing.md`, "In production". Gangs count from their arrival to their end, whether they
run or wait, so that no decision changes what it was decided by.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.mig.layouts import is_gpu_resource
from fleet.placement.board import Slot
from fleet.placement.flavors import Ground, ground_of
from fleet.placement.shelf import Price
from fleet.placement.worth import MEMORY, Asked, Worth, wants_gpus
from fleet.quota.compile import declared
from fleet.quota.queue_binding import line_of
from fleet.snapshot import Gang, GangState
from fleet.snapshot.affinity import requirements_of
from fleet.snapshot.memo import remembered
from model import labels
from model.fleet import Fleet
from model.kinds import NodePool, RequirementTerm
from model.quantity import CPU, Resources

COMPUTE_SLICES = 7
"""Of a GPU that can be cut (NVIDIA MIG user guide); the few models with fewer are not told apart."""
_SLICE = re.compile(re.escape(labels.MIG_RESOURCE_PREFIX) + r"(?:\d+c\.)?(\d+)g\.")


@dataclass(frozen=True, slots=True)
class Wish:
    """Where pods may stand: flavors, one of each group, and what their nodes must be called."""

    flavors: tuple[tuple[str, ...], ...]
    node_selector: tuple[tuple[str, str], ...]
    affinity: tuple[tuple[RequirementTerm, ...], ...]

    @property
    def keys(self) -> set[str]:
        """The labels that selector and affinity look at."""
        return {key for key, _ in self.node_selector} | {term.key for terms in self.affinity for term in terms}

    def selects(self, carried: Mapping[str, str]) -> bool:
        """Whether a node with these labels is called so."""
        if any(carried.get(key) != value for key, value in self.node_selector):
            return False
        return not self.affinity or any(requirements_of(terms).matches(carried) for terms in self.affinity)


_Class = tuple[str, str, Asked, tuple[tuple[str, str], ...], tuple[tuple[RequirementTerm, ...], ...]]
"""Namespace, queue, requests, node selector and affinity of pods."""
Mix = Mapping[tuple[Wish, Asked], int]
"""Wish and requests -> how many pods have them; only of pods that ask for GPUs."""


@remembered(steady=True)
def mix_of(fleet: Fleet, gangs: Mapping[str, Gang]) -> Mix:
    """The pods of all gangs that are not finished. Who names a host says nothing about others and is left out."""
    mix: Counter[tuple[Wish, Asked]] = Counter()
    for (namespace, queue, requests, selector, affinity), pods in _classes(gangs).items():
        wish = Wish(_flavors(fleet, namespace, queue), tuple(sorted(selector)), affinity)
        if wants_gpus(requests) and labels.HOSTNAME not in wish.keys:
            mix[wish, tuple(sorted(requests))] += pods
    return dict(mix)


def _classes(gangs: Mapping[str, Gang]) -> Mapping[_Class, int]:
    """Pods by what is said of them, as it is said: thousands of gangs are a few classes."""
    classes: defaultdict[_Class, int] = defaultdict(int)
    for gang in gangs.values():
        if gang.state is not GangState.FINISHED and gang.active:
            for pods in gang.pod_sets:
                requests, selector = (*pods.requests.items(),), (*pods.node_selector.items(),)
                classes[gang.namespace, gang.queue, requests, selector, pods.required_affinity] += pods.count
    return classes


def _flavors(fleet: Fleet, namespace: str, queue: str) -> tuple[tuple[str, ...], ...]:
    line = line_of(fleet, namespace, queue)
    spec = declared(fleet).queues.get(line.name) if line is not None else None
    return tuple(group.flavors for group in spec.groups) if spec is not None else ()


class _Standard(NamedTuple):
    """What goes for machines of one kind."""

    worth: Worth
    keep_empty: bool
    """Whether a machine is worth more while nothing stands on it."""


@dataclass(slots=True)
class Standards:
    """What machines of a fleet are worth under a mix. Each kind is worked out when the first such machine is seen."""

    fleet: Fleet
    mix: Mix
    keys: tuple[str, ...] = field(init=False)
    """Labels that tell kinds of machines apart, within a pool."""
    resources: tuple[str, ...] = field(init=False)
    """Resources that tell apart what is free on machines of a kind."""
    _grounds: Mapping[str, Ground] = field(init=False)
    _known: dict[tuple[str | None, ...], _Standard] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wishes = dict.fromkeys(wish for wish, _ in self.mix)
        names = sorted({name for wish in wishes for group in wish.flavors for name in group})
        grounds = ((name, ground_of(self.fleet, name)) for name in names)
        self._grounds = {name: ground for name, ground in grounds if ground is not None}
        looked_at = [wish.keys for wish in wishes] + [set(ground.node_labels) for ground in self._grounds.values()]
        self.keys = tuple(sorted({labels.CAPACITY_TYPE}.union(*looked_at)))
        asked_for = {name for _, requests in self.mix for name, _ in requests}
        self.resources = tuple(sorted({CPU, MEMORY} | {name for name in asked_for if is_gpu_resource(name)}))

    def of(self, slot: Slot) -> _Standard:
        """The standard for a slot."""
        kind = slot.pool, *map(slot.labels.get, self.keys)
        if kind not in self._known:
            self._known[kind] = self._made(slot)
        return self._known[kind]

    def _made(self, slot: Slot) -> _Standard:
        owns = {name: ground.owns(slot) for name, ground in self._grounds.items()}
        mine: Counter[Asked] = Counter()
        for (wish, requests), pods in self.mix.items():
            owned = all(any(owns.get(name) for name in group) for group in wish.flavors)
            if owned and wish.selects(slot.labels):
                mine[requests] += pods
        pool = self.fleet.node_pools.get(slot.pool)
        keep = pool is not None and (_may_shrink(pool, slot) or _may_be_recut(pool))
        return _Standard(Worth(mine, sum(self.mix.values()), _part_of_gpu(pool)), keep)


_standards = remembered(2)(Standards)


@dataclass(slots=True)
class Appraiser:
    """Prices by the gangs there are. Nothing is worked out before somebody has a choice."""

    fleet: Fleet
    gangs: Mapping[str, Gang]
    _standards: Standards | None = None

    def priced(self, requests: Resources) -> Price:
        """What pods with these requests cost a slot; remembered for equal slots, of which there are many.

        What waits for one gang alone is not kept empty: nobody else can use it, and it was bought for that gang.
        """
        known: dict[tuple[object, ...], tuple[bool, int]] = {}

        def price(slot: Slot, count: int) -> tuple[bool, int]:
            standards = self._standards or self._current()
            kind, free = map(slot.labels.get, standards.keys), map(slot.free.get, standards.resources)
            alike = count, slot.pool, *kind, *free
            found = known.get(alike)
            if found is None:
                standard = standards.of(slot)
                found = known[alike] = standard.keep_empty, standard.worth.loss(slot.free, requests, count)
            return found if not found[0] or (slot.empty and not slot.only_for) else (False, found[1])

        return price

    def _current(self) -> Standards:
        self._standards = _standards(self.fleet, mix_of(self.fleet, self.gangs))
        return self._standards


def _may_shrink(pool: NodePool, slot: Slot) -> bool:
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
