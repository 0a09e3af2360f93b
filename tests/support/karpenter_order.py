"""Muster's pools and pod sets in the words of the engine that buys in Karpenter's order, so that both can be compared.

A machine there is an instance type cut by one MIG layout: `p4d.24xlarge` whole and `p4d.24xlarge/halves` are two.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from bench.reference.karpenter.buy import (
    MachineType,
    PodSpecification,
    PoolTemplate,
    ReferenceOffering,
    SchedulingResults,
    WaitingPod,
    solve,
)
from bench.reference.karpenter.buy.values import NODES
from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.offerings import Offering, Offerings
from fleet.placement.inventory import build_capacity
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


def ordered(gangs: Iterable[Gang], fleet: Fleet, snapshot: Snapshot) -> SchedulingResults:
    """What Karpenter's order would buy for all pods of the gangs, each by itself, with nothing standing."""
    supply = build_capacity(fleet, snapshot)
    templates = templates_of(supply.offerings, fleet.node_pools.values(), supply.headroom, supply.shortages)
    return solve((pod for gang in gangs for pod in _pods(gang)), templates)


def _pods(gang: Gang) -> Iterator[WaitingPod]:
    for pod_set in gang.pod_sets:
        for number in range(pod_set.count):
            yield WaitingPod(f"{gang.job.name}/{pod_set.name}/{number:04d}", _ask(pod_set))


def templates_of(
    offerings: Offerings,
    pools: Iterable[NodePool],
    headroom: Mapping[str, PoolHeadroom],
    short: Collection[CapacityPool] = (),
) -> list[PoolTemplate]:
    """Every pool with its machines, within what its limits leave, without what is short at present."""
    templates: list[PoolTemplate] = []
    for pool in pools:
        cuts: dict[str, list[Offering]] = {}
        for offering in offerings.of(pool):
            cuts.setdefault(_named(offering), []).append(offering)
        told = _telling(offerings.of(pool))
        machines = tuple(_machine(name, cut, short, told) for name, cut in sorted(cuts.items()))
        templates.append(_template(pool, machines, headroom[pool.name], told))
    return templates


def _ask(pod_set: PodSet) -> PodSpecification:
    return PodSpecification(
        pod_set.requests,
        selector=Requirements.from_labels(pod_set.node_selector),
        required=tuple(Requirements.from_terms(terms) for terms in pod_set.required_affinity),
        tolerations=pod_set.tolerations,
    )


def _named(offering: Offering) -> str:
    machine = offering.offer.instance_type.name
    return f"{machine}/{offering.layout}" if offering.layout else machine


def _telling(offerings: Iterable[Offering]) -> frozenset[str]:
    """Labels of the pool's machines that nobody else knows, such as their cut: some may have them, others not."""
    return frozenset(key for offering in offerings for key in offering.labels) - labels.WELL_KNOWN


def _machine(name: str, cut: list[Offering], short: Collection[CapacityPool], told: frozenset[str]) -> MachineType:
    first = cut[0]
    carried = {key: Requirement.one_of(value) for key, value in first.labels.items() if key not in _BY_OFFER}
    absent = dict.fromkeys(told - carried.keys(), Requirement.NONE)
    dearest = max(offering.offer.price_usd_h for offering in cut)
    return MachineType(
        name,
        Requirements({**carried, **absent}),
        {**first.offer.instance_type.capacity, MICRO_USD_H: round(MICRO * dearest)},
        first.allocatable,
        tuple(_offerings(cut, short)),
    )


def _offerings(cut: list[Offering], short: Collection[CapacityPool]) -> Iterator[ReferenceOffering]:
    for offering in cut:
        offer = offering.offer
        differs = offering.allocatable if offering.allocatable != cut[0].allocatable else None
        yield ReferenceOffering(
            offer.capacity_type, offer.zone, offer.price_usd_h, offer.pool_key not in short, allocatable=differs
        )


def _template(
    pool: NodePool, machines: tuple[MachineType, ...], headroom: PoolHeadroom, told: frozenset[str]
) -> PoolTemplate:
    """Offerings have met the pool's requirements already; flexibility, zones and capacity types are still to keep."""
    wanted = {
        term.key: Requirement(complement=True, min_values=term.min_values)
        for term in pool.spec.requirements
        if term.min_values
    }
    own = Requirements.from_labels({**pool.spec.template.labels, labels.NODE_POOL: pool.name})
    return PoolTemplate(
        pool.name,
        machines,
        Requirements({**dict.fromkeys(told, _OR_NONE), **own}) & Requirements(wanted),
        pool.spec.template.taints,
        pool.spec.weight,
        _remaining(headroom),
    )


def _remaining(headroom: PoolHeadroom) -> dict[str, int]:
    left = dict(headroom.resources)
    if headroom.nodes is not None:
        left[NODES] = headroom.nodes
    if headroom.usd_h is not None:
        left[MICRO_USD_H] = int(MICRO * headroom.usd_h + 1e-3)
    return left
