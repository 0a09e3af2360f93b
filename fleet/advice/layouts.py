"""Which MIG layouts the pools of a fleet should have: the cheapest machines that give what is asked for at once.

The programme knows slices and prices, and neither CPU, quota nor boot times: what a change does to waits is replayed.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fleet.mig.layouts import cut, layout_name, pool_layouts
from fleet.offerings.offerings import Offering, Offerings
from fleet.optimize.cutting import CuttableMachine, MachineCut, Pattern, SliceDemand, StockCut, cut_stock
from fleet.quota.queue_binding import binding_of
from fleet.replay.submissions import PodShape, SubmittedGang
from fleet.scheduling.prefilter import behind_queue
from fleet.snapshot import Catalog
from model.fleet import Fleet
from model.kinds import API_VERSION, MigLayout, NodePool
from model.labels import GPU_RESOURCE, MIG_RESOURCE_PREFIX
from model.mig import MigModel, best_multisets, models_for_instance_gpu


class NothingToCut(Exception):
    """No pool of those asked for cuts its GPUs, or nobody asks for slices; the message says which."""


@dataclass(frozen=True, slots=True)
class CutKind:
    """A `CutKind` is one type of machine that a pool may buy and cut, at its cheapest offer."""

    pool: NodePool
    offering: Offering
    model: MigModel

    @property
    def name(self) -> str:
        """Returns `pool/type`."""
        return f"{self.pool.name}/{self.offering.offer.instance_type.name}"

    @property
    def gpus(self) -> int:
        """Returns how many GPUs a machine has."""
        return self.offering.offer.instance_type.gpu_count

    @property
    def usd_h(self) -> float:
        """Returns what a machine costs an hour."""
        return self.offering.offer.price_usd_h

    def cuttable(self, resources: frozenset[str]) -> CuttableMachine:
        """Returns it with every way to cut a GPU into slices that are asked for."""
        names = {profile.resource: name for name, profile in self.model.profiles.items()}
        wanted = tuple(names[it] for it in sorted(resources & names.keys()))
        resource = {name: profile.resource for name, profile in self.model.profiles.items()}
        patterns = best_multisets(self.model, wanted)
        kept = tuple({resource[name]: many for name, many in it.items()} for it in patterns)
        return CuttableMachine(self.name, self.gpus, self.usd_h, kept)


def cut_kinds(fleet: Fleet, catalog: Catalog, pool: str = "") -> tuple[CutKind, ...]:
    """Returns the machines that may be cut: of all pools that cut their GPUs, or of one. Raises `NothingToCut`."""
    offerings = Offerings(fleet, catalog)
    pools = [it for name, it in sorted(fleet.node_pools.items()) if it.spec.sharing.mig and pool in ("", name)]
    found = tuple(kind for it in pools for kind in _kinds(fleet, offerings, it))
    if not found:
        which = f"node pool {pool!r} does not cut its GPUs" if pool else "no node pool cuts its GPUs"
        raise NothingToCut(f"{which} with what is on sale; `sharing.mig.layouts` makes it one that does")
    return found


def _kinds(fleet: Fleet, offerings: Offerings, pool: NodePool) -> Iterator[CutKind]:
    layouts, seen = pool_layouts(fleet, pool), set()
    for offering in offerings.of(pool):  # by price
        machine = offering.offer.instance_type
        models = models_for_instance_gpu(machine.gpu_name, machine.gpu_memory_mib)
        named = [it for it in models if it.id in layouts[offering.layout].spec.models]
        if machine.name not in seen and named:
            seen.add(machine.name)
            yield CutKind(pool, offering, named[0])


# -- what is asked for ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlicesAsked:
    """What the queues asked for at once, and how many gangs are not in it because they ask for whole GPUs alone."""

    demands: tuple[SliceDemand, ...]
    whole: int = 0
    unserved: int = 0
    """Gangs that ask for slices which none of the machines can be cut into, or may not go there."""


def asked_of(kinds: Sequence[CutKind], counts: Mapping[str, int]) -> SlicesAsked:
    """Returns so many slices at once, of whatever machines can give them: profile (`1g.10gb`) or resource -> count."""
    named = {name if "/" in name else MIG_RESOURCE_PREFIX + name.replace("+", "."): it for name, it in counts.items()}
    every = frozenset(kind.name for kind in kinds)
    return SlicesAsked(tuple(SliceDemand(name, count, every) for name, count in sorted(named.items())))


def asked_by(
    fleet: Fleet, kinds: Sequence[CutKind], work: Iterable[SubmittedGang], until_s: float, cover: float
) -> SlicesAsked:
    """Returns what submitted gangs ask for at once if none waits: so much or less in `cover` (of 1) of the time.

    At least what the largest gang asks for. Until `until_s` (epoch seconds), from the first arrival.
    """
    homes = _Homes(fleet, kinds)
    spans: dict[tuple[str, frozenset[str]], list[tuple[float, float, int]]] = defaultdict(list)
    whole = unserved = 0
    begin_s = until_s
    for gang in work:
        begin_s, wants = min(begin_s, gang.submitted_s), list(homes.slices(gang))
        whole += any(it.requests.get(GPU_RESOURCE) for it in gang.shapes) and not wants
        unserved += any(not machines for _, machines, _ in wants)
        for key, count in _served(wants).items():
            spans[key].append((gang.submitted_s, min(until_s, gang.submitted_s + gang.run_s), count))
    found = (
        SliceDemand(resource, _level(it, begin_s, until_s, cover), machines)
        for (resource, machines), it in sorted(spans.items(), key=lambda it: (it[0][0], sorted(it[0][1])))
    )
    return SlicesAsked(tuple(found), whole, unserved)


def _served(wants: Iterable[tuple[str, frozenset[str], int]]) -> Mapping[tuple[str, frozenset[str]], int]:
    """Returns how many slices of a resource are asked for of the same machines, where any could give them."""
    amounts = Counter[tuple[str, frozenset[str]]]()
    for resource, machines, count in wants:
        if machines:
            amounts[resource, machines] += count
    return amounts


def _level(spans: Iterable[tuple[float, float, int]], begin_s: float, until_s: float, cover: float) -> int:
    """The least amount that is enough for a part of the time, and for the largest of the spans."""
    changes: Counter[float] = Counter({begin_s: 0, until_s: 0})
    largest = 0
    for from_s, to_s, amount in spans:
        changes[from_s] += amount
        changes[to_s] -= amount
        largest = max(largest, amount)
    lasting: dict[int, float] = defaultdict(float)
    level = 0
    for (at_s, change), (next_s, _) in pairwise(sorted(changes.items())):
        level += change
        lasting[level] += next_s - at_s
    enough = (until_s - begin_s) * cover
    for level, seconds in sorted(lasting.items()):
        enough -= seconds
        if enough <= 0:
            return max(level, largest)
    return largest


@dataclass(slots=True)
class _Homes:
    """Which machines the pods of a gang may go to."""

    fleet: Fleet
    kinds: Sequence[CutKind]

    _pools: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """By namespace and queue."""

    def slices(self, gang: SubmittedGang) -> Iterator[tuple[str, frozenset[str], int]]:
        """Yields (resource, names of machines that could give it, count) of what a gang asks for."""
        for shape in gang.shapes:
            for resource, amount in sorted(shape.requests.items()):
                if resource.startswith(MIG_RESOURCE_PREFIX) and amount:
                    yield resource, self._machines(gang, shape, resource), amount * shape.count

    def _machines(self, gang: SubmittedGang, shape: PodShape, resource: str) -> frozenset[str]:
        pools = self._of_queue(gang.namespace, gang.queue)
        return frozenset(
            kind.name
            for kind in self.kinds
            if kind.pool.name in pools
            and any(it.resource == resource for it in kind.model.profiles.values())
            and all(kind.offering.labels.get(key, value) == value for key, value in shape.selector.items())
        )

    def _of_queue(self, namespace: str, queue: str) -> frozenset[str]:
        if (namespace, queue) not in self._pools:
            binding = binding_of(self.fleet, namespace, queue)
            behind = behind_queue(self.fleet, binding) if binding else ()
            self._pools[namespace, queue] = frozenset(pool.name for nodes in behind for pool in nodes.pools)
        return self._pools[namespace, queue]


# -- what is advised --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AdvisedCut:
    """An `AdvisedCut` is a number of machines of a pool that would have a layout."""

    pool: str
    instance_type: str
    model: str
    """Of its GPUs, as layouts name it."""
    layout: MigLayout
    new: bool
    """Whether the fleet does not declare it yet."""
    count: int
    gpus: int
    """Of each machine."""
    usd_h: float
    """Of each machine."""
    most_machines: int | None
    """The pool's `limits.nodes`."""


@dataclass(frozen=True, slots=True)
class LayoutAdvice:
    """Which layouts the pools should have; machines by pool, those of the most frequent layout first."""

    asked: SlicesAsked
    cuts: tuple[AdvisedCut, ...]
    usd_h: float
    bound_usd_h: float
    """No machines of these pools give the same for less."""

    @property
    def gpus(self) -> int:
        """Returns the GPUs of all machines."""
        return sum(it.count * it.gpus for it in self.cuts)

    def names(self, fleet: Fleet, pool: NodePool) -> tuple[str, ...]:
        """Returns the layouts that a pool should name, in its order.

        Present ones that give what the advised ones do not stay behind them: quotas may name these slices.
        """
        cuts = self.of_pool(pool.name)
        given = {it for one in cuts for it in _profiles(one.layout)}
        others = [it for it in pool_layouts(fleet, pool).values() if _profiles(it) - given]
        return tuple(dict.fromkeys((*(it.layout.name for it in cuts), *(it.name for it in others))))

    def of_pool(self, pool: str) -> tuple[AdvisedCut, ...]:
        """Returns the machines of one pool."""
        return tuple(it for it in self.cuts if it.pool == pool)


def advised(fleet: Fleet, kinds: Sequence[CutKind], asked: SlicesAsked) -> LayoutAdvice:
    """Returns the cheapest machines and their layouts. Raises `NothingToCut`, `Uncuttable` and `SolverFailed`."""
    if not any(it.count for it in asked.demands):
        raise NothingToCut("nobody asks for slices that these node pools could give")
    resources = frozenset(it.resource for it in asked.demands)
    found = cut_stock([kind.cuttable(resources) for kind in kinds], asked.demands)
    by_name = {kind.name: kind for kind in kinds}
    cuts = (_advised_cut(fleet, by_name[it.machine], it) for it in found.cuts)
    return LayoutAdvice(asked, tuple(sorted(cuts, key=_order)), found.usd_h, found.bound_usd_h)


def _profiles(layout: MigLayout) -> frozenset[str]:
    return frozenset(it for groups in layout.spec.models.values() for group in groups for it in group.profiles)


def _order(it: AdvisedCut) -> tuple[str, int, str, str]:
    return it.pool, -it.count, it.instance_type, it.layout.name


def as_declared(fleet: Fleet, kinds: Sequence[CutKind], asked: SlicesAsked) -> StockCut:
    """Returns the cheapest machines that give the same with the layouts that there are now. Raises as `advised`."""
    machines: list[CuttableMachine] = []
    names: dict[str, set[str]] = defaultdict(set)
    for kind in kinds:
        for config, layout in pool_layouts(fleet, kind.pool).items():
            gives = cut(kind.offering.offer.instance_type, layout)
            if gives is not None:
                name = f"{kind.name}/{layout_name(config)}"
                names[kind.name].add(name)
                machines.append(CuttableMachine(name, 1, kind.usd_h, (dict(gives),)))
    able = {it: frozenset[str]().union(*(names[name] for name in it.machines)) for it in asked.demands}
    return cut_stock(machines, [SliceDemand(it.resource, it.count, named) for it, named in able.items()])


def _advised_cut(fleet: Fleet, kind: CutKind, it: MachineCut) -> AdvisedCut:
    groups = _groups(kind.model, it.gpus)
    made = MigLayout.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": "MigLayout",
            "metadata": {"name": _name_of(kind.model.id, groups)},
            "spec": {"models": {kind.model.id: groups}},
        }
    )
    wanted = _gpu_by_gpu(made, kind)
    allowed = pool_layouts(fleet, kind.pool).values()
    others = (layout for _, layout in sorted(fleet.mig_layouts.items()))
    known = next((layout for layout in (*allowed, *others) if _gpu_by_gpu(layout, kind) == wanted), None)
    machine, most = kind.offering.offer.instance_type.name, kind.pool.spec.limits.nodes
    return AdvisedCut(
        kind.pool.name, machine, kind.model.id, known or made, known is None, it.count, kind.gpus, kind.usd_h, most
    )


def _groups(model: MigModel, gpus: Sequence[Pattern]) -> list[dict[str, object]]:
    """The device groups of a machine, GPU by GPU: neighbours that are cut alike are one."""
    names = {profile.resource: name for name, profile in model.profiles.items()}
    by_cut: dict[tuple[tuple[str, int], ...], list[int]] = defaultdict(list)
    for index, pattern in enumerate(gpus):
        by_cut[tuple(sorted((names[resource], count) for resource, count in pattern.items()))].append(index)
    if len(by_cut) == 1:
        return [{"devices": "all", "profiles": dict(next(iter(by_cut)))}]
    return [{"devices": devices, "profiles": dict(profiles)} for profiles, devices in by_cut.items()]


def _name_of(model: str, groups: Sequence[Mapping[str, object]]) -> str:
    content = json.dumps([model, groups], sort_keys=True, separators=(",", ":"))
    return f"advised-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def _gpu_by_gpu(layout: MigLayout, kind: CutKind) -> list[list[tuple[str, int]]] | None:
    """What each GPU of a machine is cut into, in no order of GPUs; None where the layout does not fit the machine."""
    groups = layout.spec.models.get(kind.model.id)
    if groups is None or cut(kind.offering.offer.instance_type, layout) is None:
        return None
    return sorted(
        sorted(group.profiles.items())
        for group in groups
        for _ in range(kind.gpus if group.devices == "all" else len(group.devices))
    )
