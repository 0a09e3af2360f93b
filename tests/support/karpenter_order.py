"""Muster's pools and pod sets in the words of the engine that buys in Karpenter's order, so that both can be compared.

A machine there is an instance type cut by one MIG layout: `p4d.24xlarge` whole and `p4d.24xlarge/halves` are two.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from bench.reference.karpenter.buy import Ask, Machine, Offering, Outcome, Pod, Template, solve
from bench.reference.karpenter.buy.values import NODES
from fleet.offerings.pools import Headroom
from fleet.offerings.shapes import Shape, Shapes
from fleet.placement.stock import build_supply
from fleet.snapshot import CapacityPool, Gang, PodSet, Snapshot
from model import labels
from model.fleet import Fleet
from model.kinds import NodePool
from model.requirements import Requirement, Requirements

MICRO_USD_H = "muster.dev/micro-usd-per-hour"
"""Among limits: what a pool may spend. A machine counts with its dearest offering: limits are held pessimistically."""
MICRO = 1_000_000
_OR_NONE = Requirement(frozenset({""}), complement=True)
"""Any value, or no label at all."""
_BY_OFFER = frozenset({labels.ZONE, labels.CAPACITY_TYPE})


def ordered(gangs: Iterable[Gang], fleet: Fleet, snapshot: Snapshot) -> Outcome:
    """What Karpenter's order would buy for all pods of the gangs, each by itself, with nothing standing."""
    supply = build_supply(fleet, snapshot)
    templates = templates_of(supply.shapes, fleet.node_pools.values(), supply.headroom, supply.shortages)
    return solve((pod for gang in gangs for pod in _pods(gang)), templates)


def _pods(gang: Gang) -> Iterator[Pod]:
    for pod_set in gang.pod_sets:
        for number in range(pod_set.count):
            yield Pod(f"{gang.job.name}/{pod_set.name}/{number:04d}", _ask(pod_set))


def templates_of(
    shapes: Shapes, pools: Iterable[NodePool], headroom: Mapping[str, Headroom], short: Collection[CapacityPool] = ()
) -> list[Template]:
    """Every pool with its machines, within what its limits leave, without what is short at present."""
    templates: list[Template] = []
    for pool in pools:
        cuts: dict[str, list[Shape]] = {}
        for shape in shapes.of(pool):
            cuts.setdefault(_named(shape), []).append(shape)
        told = _telling(shapes.of(pool))
        machines = tuple(_machine(name, cut, short, told) for name, cut in sorted(cuts.items()))
        templates.append(_template(pool, machines, headroom[pool.name], told))
    return templates


def _ask(pod_set: PodSet) -> Ask:
    return Ask(
        pod_set.requests,
        selector=Requirements.from_labels(pod_set.node_selector),
        required=tuple(Requirements.from_terms(terms) for terms in pod_set.required_affinity),
        tolerations=pod_set.tolerations,
    )


def _named(shape: Shape) -> str:
    machine = shape.offer.instance_type.name
    return f"{machine}/{shape.layout}" if shape.layout else machine


def _telling(shapes: Iterable[Shape]) -> frozenset[str]:
    """Labels of the pool's machines that nobody else knows, such as their cut: some may have them, others not."""
    return frozenset(key for shape in shapes for key in shape.labels) - labels.WELL_KNOWN


def _machine(name: str, cut: list[Shape], short: Collection[CapacityPool], told: frozenset[str]) -> Machine:
    first = cut[0]
    carried = {key: Requirement.one_of(value) for key, value in first.labels.items() if key not in _BY_OFFER}
    absent = dict.fromkeys(told - carried.keys(), Requirement.NONE)
    dearest = max(shape.offer.price_usd_h for shape in cut)
    return Machine(
        name,
        Requirements({**carried, **absent}),
        {**first.offer.instance_type.capacity, MICRO_USD_H: round(MICRO * dearest)},
        first.allocatable,
        tuple(_offerings(cut, short)),
    )


def _offerings(cut: list[Shape], short: Collection[CapacityPool]) -> Iterator[Offering]:
    for shape in cut:
        offer = shape.offer
        differs = shape.allocatable if shape.allocatable != cut[0].allocatable else None
        yield Offering(
            offer.capacity_type, offer.zone, offer.price_usd_h, offer.pool_key not in short, allocatable=differs
        )


def _template(pool: NodePool, machines: tuple[Machine, ...], headroom: Headroom, told: frozenset[str]) -> Template:
    """The shapes have met the pool's requirements already; flexibility, zones and capacity types are still to keep."""
    wanted = {
        term.key: Requirement(complement=True, min_values=term.min_values)
        for term in pool.spec.requirements
        if term.min_values
    }
    own = Requirements.from_labels({**pool.spec.template.labels, labels.NODE_POOL: pool.name})
    return Template(
        pool.name,
        machines,
        Requirements({**dict.fromkeys(told, _OR_NONE), **own}) & Requirements(wanted),
        pool.spec.template.taints,
        pool.spec.weight,
        _remaining(headroom),
    )


def _remaining(headroom: Headroom) -> dict[str, int]:
    left = dict(headroom.resources)
    if headroom.nodes is not None:
        left[NODES] = headroom.nodes
    if headroom.usd_h is not None:
        left[MICRO_USD_H] = int(MICRO * headroom.usd_h + 1e-3)
    return left
