"""What one pass buys, as one purchase: the same pods on the cheapest machines there are for all of them together.

`provide` finds machines for one gang at a time, one kind for each pod set, and by that decides the pool, the capacity
type and the zone. Here the kinds and numbers are chosen anew within those, by `fleet.capacity.purchase`, and never for
more money. Pods of one set that use GPUs stay on one GPU model: a gang is as fast as its slowest member.

Machines are chosen by what they are expected to cost, interruptions included (`fleet.capacity.standing`); limits and
the tally count prices.
"""

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fleet.actions import Tally
from fleet.capacity.provision import Lot, Need, Supply
from fleet.capacity.purchase import GREEDY, Effort, Limit, MachineKind, PodClass, Problem, Purchase, solve
from fleet.capacity.purchase.problem import MACHINES
from fleet.capacity.shapes import Shape, Shapes
from fleet.mig.layouts import gpu_part
from fleet.placement.board import PODS
from fleet.placement.fit import admits
from fleet.snapshot import PodSet
from model import labels
from model.quantity import CPU, Resources

EPSILON_USD_H = 1e-6
"""Less is not a saving."""
_MICRO = 1_000_000
_PRICE = "micro-USD an hour"
"""The price as limits count it: what machines are chosen by may be more."""


class Member(NamedTuple):
    """Whose pods they are."""

    gang: str
    """uid"""
    pod_set: str


@dataclass(frozen=True, slots=True)
class Line:
    """Pods of one pod set for which machines are bought."""

    member: Member
    need: Need
    count: int
    shapes: tuple[Shape, ...]
    """What `provide` would buy for them: machines of the same pools, capacity types and zones will do."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine to buy and the pods it is for."""

    shape: Shape
    pods: Mapping[Member, int]
    """In order of admission."""

    @property
    def owner(self) -> str:
        """Uid of the gang whose pods come first."""
        return next(iter(self.pods)).gang


@dataclass(frozen=True, slots=True)
class Bargain:
    """The purchase, by machine in order of their first pods; no machines where `provide` did as well."""

    machines: tuple[Machine, ...]
    tally: Tally


def bargain(lines: Sequence[Line], lots: Sequence[Lot], supply: Supply, effort: Effort) -> Bargain:
    """Machines for all `lines`, instead of the `lots` that `provide` found for them (and spent of the headroom)."""
    market = Market(supply)
    classes = [_class(number, line, market.kinds_for(line)) for number, line in enumerate(lines)]
    problem = Problem(
        resources=_resources(classes, lots, market),
        classes=tuple(classes),
        kinds=tuple(market.kinds.values()),
        limits=tuple(market.limits_of(_pools(lots), lots)),
    )
    found = solve(problem, effort)
    expected_usd_h = sum(lot.count * supply.expected_usd_h(lot.shape.offer) for lot in lots)
    better = not found.left and found.cost_usd_h < expected_usd_h - EPSILON_USD_H
    machines = tuple(_machines(found, lines, market.shapes)) if better else ()
    return Bargain(machines, _tally(problem, found, market, machines, lots))


def _tally(
    problem: Problem, found: Purchase, market: "Market", machines: Sequence[Machine], lots: Sequence[Lot]
) -> Tally:
    """In prices, as they will be on the bill; the search went by expected costs, which are never less."""
    known_usd_h = sum(lot.count * lot.shape.offer.price_usd_h for lot in lots)
    cost_usd_h = sum(it.shape.offer.price_usd_h for it in machines) if machines else known_usd_h
    bound_usd_h, baseline_usd_h = found.bound_usd_h, found.baseline_usd_h
    dearest = max((market.premium(kind) for kind in problem.kinds), default=0.0)
    if dearest:
        priced = (replace(it, price_usd_h=market.shapes[it.name].offer.price_usd_h) for it in problem.kinds)
        plain = solve(replace(problem, kinds=tuple(priced)), GREEDY)
        bound_usd_h = max(plain.bound_usd_h, bound_usd_h / (1.0 + dearest))
        baseline_usd_h = plain.baseline_usd_h
    bound_usd_h = min(bound_usd_h, cost_usd_h) if not found.left else 0.0
    return Tally(cost_usd_h, bound_usd_h, known_usd_h, baseline_usd_h)


def _machines(found: Purchase, lines: Sequence[Line], shapes: Mapping[str, Shape]) -> list[Machine]:
    made: list[tuple[int, Machine]] = []
    for batch in found.batches:
        numbers = sorted((int(name), pods) for name, pods in batch.pods.items())
        pods = {
            lines[n].member: lines[n].count if _on_one_host(lines[n].need.pod_set) else count for n, count in numbers
        }
        made += [(numbers[0][0], Machine(shapes[batch.kind], pods))] * batch.machines
    return [machine for _, machine in sorted(made, key=lambda it: (it[0], it[1].shape.key, sorted(it[1].pods.items())))]


def _class(number: int, line: Line, kinds: frozenset[str]) -> PodClass:
    requests = {**line.need.pod_set.requests, PODS: 1}
    if _on_one_host(line.need.pod_set):
        return PodClass(f"{number:06d}", {name: it * line.count for name, it in requests.items()}, 1, kinds)
    return PodClass(f"{number:06d}", requests, line.count, kinds)


def _on_one_host(pod_set: PodSet) -> bool:
    return pod_set.required_topology == labels.HOSTNAME


def _resources(classes: Iterable[PodClass], lots: Sequence[Lot], market: "Market") -> tuple[str, ...]:
    """What pods ask for, and what limits count, which is apart: capacities."""
    asked = {name for it in classes for name, amount in it.requests.items() if amount}
    return (*in_order(asked), *market.limited(_pools(lots)))


def in_order(resources: Iterable[str]) -> list[str]:
    """GPUs first, then CPU and memory: what orders pods, the dearest in front."""
    first = {CPU: 1, "memory": 2}
    return sorted(resources, key=lambda name: (0 if gpu_part({name: 1}) else first.get(name, 3), name))


def _limited(resource: str) -> str:
    """The resource as limits count it: the machine's capacity, before any cut and without overhead."""
    return f"capacity of {resource}"


def _pools(lots: Sequence[Lot]) -> list[str]:
    return sorted({lot.shape.pool.name for lot in lots})


@dataclass(slots=True)
class Market:
    """The shapes that come into question, each a kind of machine by its name."""

    supply: Supply
    kinds: dict[str, MachineKind] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    _known: dict[Hashable, frozenset[str]] = field(default_factory=dict)

    def kinds_for(self, line: Line) -> frozenset[str]:
        """Names of the kinds that pods of a line may stand on."""
        tiers = {_tier(shape): shape.pool for shape in line.shapes}
        models = _models(line)
        asked = (line.need.kind, frozenset(tiers), models)
        if asked not in self._known:
            found = [
                shape
                for tier, pool in sorted(tiers.items(), key=lambda it: it[0])
                for shape in self.supply.shapes.of(pool)
                if _tier(shape) == tier
                and (models is None or _model(shape) in models)
                and self._to_be_had(shape, line.need)
            ]
            enough = Shapes.flexible(line.shapes[0].pool, found)
            self._known[asked] = frozenset(self._name(shape) for shape in (found if enough else line.shapes))
        return self._known[asked]

    def _to_be_had(self, shape: Shape, need: Need) -> bool:
        """Whether a machine of a shape may be bought for pods of a need, limits aside."""
        return (
            shape.offer.pool_key not in self.supply.shortages
            and shape.closes_s > need.until_s
            and not self.supply.headroom[shape.pool.name].bound_to(shape)
            and admits(need.pod_set, need.tolerations, shape.labels, shape.taints)
        )

    def _name(self, shape: Shape) -> str:
        name = "/".join(map(str, shape.key))
        if name not in self.kinds:
            room = {resource: max(0, amount) for resource, amount in shape.allocatable.items()}
            limited = self.supply.headroom[shape.pool.name].resources
            capacity = shape.offer.instance_type.capacity
            room |= {_limited(resource): capacity.get(resource, 0) for resource in limited}
            room[_PRICE] = round(_MICRO * shape.offer.price_usd_h)
            self.kinds[name] = MachineKind(name, self.supply.expected_usd_h(shape.offer), room)
            self.shapes[name] = shape
        return name

    def premium(self, kind: MachineKind) -> float:
        """The part of its price that a kind is expected to cost beside it."""
        return self.supply.premiums.get(self.shapes[kind.name].offer.pool_key, 0.0)

    def limits_of(self, pools: Iterable[str], spent: Sequence[Lot] = ()) -> Iterator[Limit]:
        """What these pools may still buy, with what was `spent` of it already."""
        for pool in pools:
            mine = [lot for lot in spent if lot.shape.pool.name == pool]
            kinds = frozenset(name for name, shape in self.shapes.items() if shape.pool.name == pool)
            left = self.supply.headroom[pool]
            if left.nodes is not None:
                most = left.nodes + sum(lot.count for lot in mine)
                yield Limit(f"machines of {pool}", MACHINES, max(0, most), kinds)
            if left.usd_h is not None:
                usd_h = sum(lot.count * lot.shape.offer.price_usd_h for lot in mine)
                most_usd_h = max(0.0, left.usd_h + usd_h)
                yield Limit(f"price of {pool}", _PRICE, int(_MICRO * most_usd_h + 1e-3), kinds)
            for resource, amount in left.resources.items():
                most = amount + sum(lot.count * _capacity(lot.shape).get(resource, 0) for lot in mine)
                yield Limit(f"{resource} of {pool}", _limited(resource), max(0, most), kinds)
        yield from self._reserved(spent)

    def _reserved(self, spent: Sequence[Lot]) -> Iterator[Limit]:
        """What the reservations still have."""
        by_reservation: dict[str, list[str]] = {}
        for name, shape in self.shapes.items():
            if shape.offer.reservation is not None:
                by_reservation.setdefault(shape.offer.reservation.id, []).append(name)
        for reservation, kinds in sorted(by_reservation.items()):
            of_it = [lot for lot in spent if lot.shape.offer.pool_key.reservation == reservation]
            left = max(
                self.supply.headroom[self.shapes[it].pool.name].reserved_left(self.shapes[it]) or 0 for it in kinds
            )
            most = left + sum(lot.count for lot in of_it)
            yield Limit(f"reservation {reservation}", MACHINES, max(0, most), frozenset(kinds))

    def limited(self, pools: Iterable[str]) -> list[str]:
        """The resources as the limits of these pools count them."""
        found = [self.supply.headroom[pool] for pool in pools]
        counted = {_limited(name) for left in found for name in left.resources}
        return sorted(counted | {_PRICE for left in found if left.usd_h is not None})

    def kinds_in(
        self, need: Need, zones: Container[str], capacity_types: Mapping[str, Container[str]]
    ) -> frozenset[str]:
        """Names of the kinds that pods of a need may stand on in these zones, of capacity types by pool."""
        found: list[Shape] = []
        for pool in need.pools:
            if pool.spec.replicas is None and pool.name in capacity_types:
                able = [
                    shape
                    for shape in self.supply.shapes.of(pool)
                    if shape.offer.zone in zones
                    and shape.offer.capacity_type in capacity_types[pool.name]
                    and self._to_be_had(shape, need)
                ]
                found += able if Shapes.flexible(pool, able) else []
        return frozenset(self._name(shape) for shape in found)


def _capacity(shape: Shape) -> Resources:
    return shape.offer.instance_type.capacity


class _Tier(NamedTuple):
    """What `provide` has decided by its order of preference."""

    pool: str
    capacity_type: str
    zone: str


def _tier(shape: Shape) -> _Tier:
    return _Tier(shape.pool.name, shape.offer.capacity_type, shape.offer.zone)


def _models(line: Line) -> frozenset[str] | None:
    """The GPU models that pods of a line stay on; None = any."""
    if line.need.pod_set.count == 1 or not gpu_part(line.need.pod_set.requests):
        return None
    return frozenset(_model(shape) for shape in line.shapes)


def _model(shape: Shape) -> str:
    return shape.labels.get(labels.INSTANCE_GPU_NAME, "")


def runner_up(machine: Machine, needs: Mapping[Member, Need], supply: Supply) -> Shape | None:
    """The next best other kind of machine in its zone and capacity type that holds the same pods, GPU model aside."""
    total: dict[str, int] = {PODS: sum(machine.pods.values())}
    for member, count in machine.pods.items():
        for resource, amount in needs[member].pod_set.requests.items():
            total[resource] = total.get(resource, 0) + amount * count
    here = _tier(machine.shape)
    others = (
        shape
        for shape in supply.shapes.of(machine.shape.pool)
        if shape.offer.instance_type.name != machine.shape.offer.instance_type.name
        and _tier(shape) == here
        and shape.offer.pool_key not in supply.shortages
        and not supply.headroom[shape.pool.name].bound_to(shape)
        and all(shape.allocatable.get(resource, 0) >= amount for resource, amount in total.items())
        and all(admits(needs[m].pod_set, needs[m].tolerations, shape.labels, shape.taints) for m in machine.pods)
    )
    return min(others, key=lambda it: (round(supply.expected_usd_h(it.offer), 6), it.key), default=None)
