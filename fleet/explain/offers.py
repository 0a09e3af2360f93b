"""What could serve so many GPUs of a kind: every way the pools may buy them, cheapest first, and what is against it."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fleet.catalog import InstanceType
from fleet.mig.layouts import layout_name
from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.min_values import flexible
from fleet.offerings.offerings import Offering
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.inventory import build_capacity
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Catalog, Snapshot
from model import labels
from model.fleet import Fleet
from model.hints import listing, near
from model.kinds import NodePool
from model.mig.geometry import mig_models, models_for_instance_gpu, resource_name

_PROFILE: Final = re.compile(r"\d+g\.\d+gb(\+[a-z.]+)?")
_FRACTION: Final = re.compile(r"(?P<model>.+)/(?P<parts>[1-9]\d{0,2})")
_TOLERANCE_MIB: Final = 64
"""EC2 rounds the memory of a fraction down."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """The GPUs that somebody wants; empty text = any."""

    gpu: str
    """As `unit_of` reads it."""
    count: int
    pool: str = ""
    zone: str = ""
    capacity_type: str = ""


class OfferObstacle(StrEnum):
    """Why an offer cannot be bought now."""

    NONE = ""
    SHORT = "Short"
    """The cloud had none when it was last asked."""
    LIMIT = "Limit"
    """The pool's limits do not allow so many machines any more."""
    STOPPED = "Stopped"
    """Machines of the pool could not be cut lately, and none is bought."""
    FIXED = "Fixed"
    """A pool with replicas buys nothing on demand."""
    MIN_VALUES = "MinValues"
    """Too few kinds of machines are left for the pool's `minValues`."""


@dataclass(frozen=True, slots=True)
class PurchaseOption:
    """One way to buy what is asked: a pool's offer, cut or shared in one way, and how many machines."""

    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    sharing: str
    """`whole`, the name of a MigLayout, `time-slicing x4` or `mps x4`."""
    each: int
    """Of what is asked, on one machine."""
    machines: int
    usd_h: float
    """Of one machine."""
    allowed: int | None
    """Machines the pool's limits still allow; None = no limit bounds it."""
    short_until_s: float
    """Until when the cloud counts as short of it (epoch seconds); 0 = it does not."""
    obstacle: OfferObstacle

    @property
    def total_usd_h(self) -> float:
        """Returns the price of all machines together."""
        return self.usd_h * self.machines

    @property
    def unit_usd_h(self) -> float:
        """Returns the price of one GPU, instance or fraction."""
        return self.usd_h / self.each

    @property
    def order(self) -> tuple[object, ...]:
        """Orders options cheapest first; what ends every tie is the name."""
        names = self.pool, self.instance_type, self.zone, self.capacity_type, self.sharing
        return (round(self.total_usd_h, 6), round(self.unit_usd_h, 6), *names)


@dataclass(frozen=True, slots=True)
class PurchaseOptions:
    """All options, cheapest first; where none can be bought now, with the refusals that say why."""

    options: tuple[PurchaseOption, ...]
    refusals: tuple[Refusal, ...] = ()

    @property
    def open(self) -> tuple[PurchaseOption, ...]:
        """Returns the options that nothing is against."""
        return tuple(option for option in self.options if option.obstacle is OfferObstacle.NONE)


@dataclass(frozen=True, slots=True)
class GpuUnit:
    """The unit that is counted for a request, and how many of it machines have."""

    types: Mapping[str, int]
    """Instance type -> whole GPUs or fractions on it; for a MIG profile its GPUs that could be cut so."""
    resource: str = ""
    """The resource that is counted, where that depends on how a machine is cut."""

    def on(self, offering: Offering) -> int:
        """Counts the units on one machine of an offering; 0 = it has none."""
        if self.resource:
            return offering.allocatable.get(self.resource, 0)
        return self.types.get(offering.offer.instance_type.name, 0)


class UnknownGpu(ValueError):
    """Nothing on sale has a GPU of this name; the message says what is near, or what there is."""


def offers_for(fleet: Fleet, snapshot: Snapshot, request: GpuRequest) -> PurchaseOptions:
    """Returns the options for `request`; raises `UnknownGpu` for a name that nothing in the catalogue has."""
    unit = unit_of(snapshot.catalog, request.gpu)
    capacity = build_capacity(fleet, snapshot, may_buy=False)
    pools = [pool for name, pool in sorted(fleet.node_pools.items()) if request.pool in {"", name}]
    found = (option for pool in pools for option in _of_pool(capacity, pool, request, unit))
    options = tuple(sorted(found, key=lambda option: option.order))
    if any(not option.obstacle for option in options):
        return PurchaseOptions(options)
    return PurchaseOptions(options, tuple(_refusals(fleet, snapshot.catalog, request, unit, options)))


def _meant(capacity: BuyableCapacity, pool: NodePool, request: GpuRequest) -> Iterator[Offering]:
    for offering in capacity.offerings.of(pool):
        offer = offering.offer
        if offering.fabric_on_request:
            continue  # the same machine
        if request.zone in {"", offer.zone} and request.capacity_type in {"", offer.capacity_type}:
            yield offering


def _of_pool(capacity: BuyableCapacity, pool: NodePool, request: GpuRequest, unit: GpuUnit) -> Iterator[PurchaseOption]:
    offerings = [offering for offering in _meant(capacity, pool, request) if unit.on(offering)]
    choice = flexible(pool, offerings)
    headroom = capacity.headroom[pool.name]
    for offering in offerings:
        offer, each = offering.offer, unit.on(offering)
        machines = -(-request.count // each)
        allowed, until_s = headroom.most(offering), capacity.shortages.get(offer.pool_key, 0.0)
        against = (
            (OfferObstacle.FIXED, pool.spec.replicas is not None),
            (OfferObstacle.STOPPED, bool(headroom.stopped)),
            (OfferObstacle.LIMIT, allowed < machines),
            (OfferObstacle.SHORT, bool(until_s)),
            (OfferObstacle.MIN_VALUES, not choice),
        )
        yield PurchaseOption(
            pool.name,
            offer.instance_type.name,
            offer.zone,
            offer.capacity_type,
            sharing_of(offering),
            each,
            machines,
            offer.price_usd_h,
            allowed if _bounded(pool, headroom) else None,
            until_s,
            next((obstacle for obstacle, holds in against if holds), OfferObstacle.NONE),
        )


def _bounded(pool: NodePool, headroom: PoolHeadroom) -> bool:
    return headroom.nodes is not None or headroom.usd_h is not None or bool(pool.spec.limits.resources)


def sharing_of(offering: Offering) -> str:
    """Says how the GPUs of a machine are divided."""
    sharing = offering.pool.spec.sharing
    if offering.layout:
        return layout_name(offering.layout)
    if sharing.replicas == 1:
        return "whole"
    renamed = " renamed" if sharing.resource != labels.GPU_RESOURCE else ""
    return f"{'time-slicing' if sharing.time_slicing else 'mps'} x{sharing.replicas}{renamed}"


# -- why there is none ------------------------------------------------------------------------------------------------


def _refusals(
    fleet: Fleet, catalog: Catalog, request: GpuRequest, unit: GpuUnit, options: Sequence[PurchaseOption]
) -> Iterator[Refusal]:
    """Tells what stands in the way, the nearest miss first: a shortage passes, a limit can be raised."""
    if not options:
        yield Refusal(Reason.NO_OFFER, _nobody_buys(fleet, catalog, request, unit))
    for obstacle, told in _TOLD.items():
        hit = [option for option in options if option.obstacle is obstacle]
        if hit:
            yield told(hit, request.count)


def _short(options: Sequence[PurchaseOption], _count: int) -> Refusal:
    named = _named(f"{it.instance_type}:{it.capacity_type}:{it.zone}" for it in options)
    return Refusal(Reason.NO_CAPACITY, f"the cloud is short of {named}", min(it.short_until_s for it in options))


def _limited(options: Sequence[PurchaseOption], count: int) -> Refusal:
    most = max(options, key=lambda it: ((it.allowed or 0) * it.each, it.order))
    left = f"at most {(most.allowed or 0) * most.each} of {count} ({most.allowed} x {most.instance_type})"
    return Refusal(Reason.POOL_LIMIT, f"the limits of {_named(it.pool for it in options)} still allow {left}")


def _stopped(options: Sequence[PurchaseOption], _count: int) -> Refusal:
    words = f"machines of {_named(it.pool for it in options)} could not be cut, and none is bought (see the FleetSync)"
    return Refusal(Reason.LAYOUT_FAILED, words)


def _too_few_kinds(options: Sequence[PurchaseOption], _count: int) -> Refusal:
    words = f"too few kinds of machines for the minValues of {_named(it.pool for it in options)}"
    return Refusal(Reason.NO_OFFER, words)


def _fixed(options: Sequence[PurchaseOption], _count: int) -> Refusal:
    words = f"{_named(it.pool for it in options)} has replicas: nothing is bought on demand"
    return Refusal(Reason.NO_OFFER, words)


_TOLD: Mapping[OfferObstacle, Callable[[Sequence[PurchaseOption], int], Refusal]] = {
    OfferObstacle.SHORT: _short,
    OfferObstacle.STOPPED: _stopped,
    OfferObstacle.LIMIT: _limited,
    OfferObstacle.MIN_VALUES: _too_few_kinds,
    OfferObstacle.FIXED: _fixed,
}


def _nobody_buys(fleet: Fleet, catalog: Catalog, request: GpuRequest, unit: GpuUnit) -> str:
    """Says which of the conditions of the request nothing meets."""
    if request.pool and request.pool not in fleet.node_pools:
        return f"there is no pool {request.pool!r}; declared are {_named(fleet.node_pools) or 'none'}"
    who = f"pool {request.pool} buys no" if request.pool else "no pool buys"
    capacity = build_capacity(fleet, Snapshot(0.0, catalog=catalog), may_buy=False)
    pools = [name for name, pool in fleet.node_pools.items() if any(map(unit.on, capacity.offerings.of(pool)))]
    if pools:
        asked = [request.gpu, request.capacity_type, f"in {request.zone}" if request.zone else ""]
        return f"{who} {' '.join(filter(None, asked))}; without that condition there is {_named(pools)}"
    return f"{who} {request.gpu}; {_on_sale(catalog, unit)}"


def _on_sale(catalog: Catalog, unit: GpuUnit) -> str:
    sold = sorted({offer.instance_type.name for offer in catalog.offers} & unit.types.keys())
    if not sold:
        return f"nor is it on sale in {catalog.region}"
    cut = ", to be cut by a MigLayout" if unit.resource else ""
    return f"on sale in {catalog.region} are {', '.join(sold[:6])}{cut}"


def _named(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names))[:4])


# -- what people mean by a GPU: a model, a MIG profile or a fraction of a model ----------------------------------------


def unit_of(catalog: Catalog, name: str) -> GpuUnit:
    """Returns what is counted when somebody asks for GPUs of this name; raises `UnknownGpu`.

    A model is as in the label `karpenter.k8s.aws/instance-gpu-name` (`h100`) or as in a MigLayout (`a100-80gb`), in any
    case of letters, and counted in whole GPUs however they are shared; a MIG profile (`1g.10gb`) is counted in
    instances; a fraction (`l4/8`) is an eighth of a GPU, of machines that are sold with no more.
    """
    asked = name.strip().lower().replace(" ", "-").replace("_", "-")
    machines = [kind for _, kind in sorted(catalog.types.items()) if kind.gpu_name]
    if _PROFILE.fullmatch(asked):
        return _instances(machines, asked)
    fraction = _FRACTION.fullmatch(asked)
    found = _fractions(machines, fraction["model"], int(fraction["parts"])) if fraction else _whole(machines, asked)
    if not found:
        known = names_of(machines)
        hint = near(asked, known)
        there = f"did you mean {hint!r}?" if hint else f"there are {listing(known, most=20)}"
        raise UnknownGpu(f"no machine in {catalog.region or 'the catalogue'} has a GPU called {name!r}; {there}")
    return GpuUnit(found)


def names_of(machines: Iterable[InstanceType]) -> set[str]:
    """Returns every name that `unit_of` knows some of these machines by, but for MIG profiles."""
    known = [kind for kind in machines if kind.gpu_name]
    sizes = _sizes(known)
    whole = {alias for kind in known if kind.gpu_count for alias in _aliases(kind)}
    return whole | {f"{kind.gpu_name}/{parts}" for kind in known if (parts := _parts(kind, sizes))}


def _instances(machines: Iterable[InstanceType], profile: str) -> GpuUnit:
    known = {each for model in mig_models().values() for each in model.profiles}
    if profile not in known:
        hint = near(profile, known)
        there = f"did you mean {hint!r}?" if hint else f"there are {listing(known, most=20)}"
        raise UnknownGpu(f"no GPU can be cut into {profile!r}; {there}")
    able = {kind.name: kind.gpu_count for kind in machines if kind.gpu_count and _can_be_cut(kind, profile)}
    return GpuUnit(able, resource_name(profile))


def _can_be_cut(kind: InstanceType, profile: str) -> bool:
    models = models_for_instance_gpu(kind.gpu_name, kind.gpu_memory_mib)
    return any(profile in model.profiles for model in models)


def _whole(machines: Iterable[InstanceType], asked: str) -> dict[str, int]:
    return {kind.name: kind.gpu_count for kind in machines if kind.gpu_count and asked in _aliases(kind)}


def _fractions(machines: Iterable[InstanceType], model: str, parts: int) -> dict[str, int]:
    known = list(machines)
    sizes = _sizes(known)
    return {kind.name: 1 for kind in known if kind.gpu_name == model and _parts(kind, sizes) == parts}


def _aliases(kind: InstanceType) -> set[str]:
    return {kind.gpu_name, *(model.id for model in models_for_instance_gpu(kind.gpu_name, kind.gpu_memory_mib))}


def _sizes(machines: Iterable[InstanceType]) -> dict[str, int]:
    """Returns for each model the MiB of a whole GPU."""
    sizes: dict[str, int] = {}
    for kind in machines:
        if kind.gpu_count:
            sizes[kind.gpu_name] = max(sizes.get(kind.gpu_name, 0), kind.gpu_memory_mib)
    return sizes


def _parts(kind: InstanceType, sizes: dict[str, int]) -> int:
    """Returns into how many parts the GPU is divided of which the machine has one; 0 = it has whole ones."""
    whole = sizes.get(kind.gpu_name, 0)
    if kind.gpu_count or not whole or not kind.gpu_memory_mib:
        return 0
    parts = round(whole / kind.gpu_memory_mib)
    return parts if abs(parts * kind.gpu_memory_mib - whole) <= _TOLERANCE_MIB else 0
