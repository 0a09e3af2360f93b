"""What could serve so many GPUs of a kind: every way the pools may buy them, cheapest first, and what is against it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from fleet.explain.unit import Unit, unit_of
from fleet.mig.layouts import layout_name
from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.offerings import Offering
from fleet.placement.inventory import BuyableCapacity, build_capacity
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Catalog, Snapshot
from model.fleet import Fleet
from model.kinds import NodePool


@dataclass(frozen=True, slots=True)
class Ask:
    """GPUs somebody wants; empty text = any."""

    gpu: str
    """As `fleet.explain.unit.unit_of` reads it."""
    count: int
    pool: str = ""
    zone: str = ""
    capacity_type: str = ""


class Obstacle(StrEnum):
    """Why an offer cannot be bought now."""

    NONE = ""
    SHORT = "Short"
    """The cloud had none when it was last asked."""
    LIMIT = "Limit"
    """The pool's limits do not allow so many machines any more."""
    FIXED = "Fixed"
    """A pool with replicas buys nothing on demand."""
    MIN_VALUES = "MinValues"
    """Too few kinds of machines are left for the pool's `minValues`."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to buy what is asked: a pool's offer, cut or shared in one way, with machines for all of it."""

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
    obstacle: Obstacle

    @property
    def total_usd_h(self) -> float:
        """Of all machines together."""
        return self.usd_h * self.machines

    @property
    def unit_usd_h(self) -> float:
        """Of one GPU, instance or fraction."""
        return self.usd_h / self.each

    @property
    def order(self) -> tuple[object, ...]:
        """Cheapest first; what ends every tie is the name."""
        names = self.pool, self.instance_type, self.zone, self.capacity_type, self.sharing
        return (round(self.total_usd_h, 6), round(self.unit_usd_h, 6), *names)


@dataclass(frozen=True, slots=True)
class Answer:
    """Every choice, cheapest first, and where none can be bought now, why."""

    choices: tuple[Choice, ...]
    refusals: tuple[Refusal, ...] = ()

    @property
    def open(self) -> tuple[Choice, ...]:
        """Those that nothing is against."""
        return tuple(choice for choice in self.choices if choice.obstacle is Obstacle.NONE)


def offers_for(fleet: Fleet, snapshot: Snapshot, ask: Ask) -> Answer:
    """The choices for `ask`; raises `UnknownGpu` for a name that nothing in the catalogue has."""
    unit = unit_of(snapshot.catalog, ask.gpu)
    supply = build_capacity(fleet, snapshot, may_buy=False)
    choices: list[Choice] = []
    for name, pool in sorted(fleet.node_pools.items()):
        if not ask.pool or name == ask.pool:
            choices += _of_pool(
                supply, pool, [(offering, unit.on(offering)) for offering in _meant(supply, pool, ask)], ask.count
            )
    answer = tuple(sorted(choices, key=lambda choice: choice.order))
    return Answer(
        answer,
        () if any(not c.obstacle for c in answer) else tuple(_refusals(fleet, snapshot.catalog, ask, unit, answer)),
    )


def _meant(supply: BuyableCapacity, pool: NodePool, ask: Ask) -> Iterator[Offering]:
    for offering in supply.offerings.of(pool):
        offer = offering.offer
        if ask.zone in {"", offer.zone} and ask.capacity_type in {"", offer.capacity_type}:
            yield offering


def _of_pool(
    supply: BuyableCapacity, pool: NodePool, offerings: list[tuple[Offering, int]], count: int
) -> Iterator[Choice]:
    held = [(offering, each) for offering, each in offerings if each]
    flexible = {
        zone: supply.offerings.flexible(pool, [offering for offering, _ in held if offering.offer.zone == zone])
        for zone in {offering.offer.zone for offering, _ in held}
    }
    headroom = supply.headroom[pool.name]
    for offering, each in held:
        offer, machines = offering.offer, -(-count // each)
        allowed, until_s = headroom.most(offering), supply.shortages.get(offer.pool_key, 0.0)
        against = (
            (Obstacle.FIXED, pool.spec.replicas is not None),
            (Obstacle.LIMIT, allowed < machines),
            (Obstacle.SHORT, bool(until_s)),
            (Obstacle.MIN_VALUES, not flexible[offer.zone]),
        )
        yield Choice(
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
            next((obstacle for obstacle, holds in against if holds), Obstacle.NONE),
        )


def _bounded(pool: NodePool, headroom: PoolHeadroom) -> bool:
    return headroom.nodes is not None or headroom.usd_h is not None or bool(pool.spec.limits.resources)


def sharing_of(offering: Offering) -> str:
    """How the GPUs of a machine are divided, in words."""
    sharing = offering.pool.spec.sharing
    if offering.layout:
        return layout_name(offering.layout)
    if sharing.replicas == 1:
        return "whole"
    return f"{'time-slicing' if sharing.time_slicing else 'mps'} x{sharing.replicas}"


# -- why there is none ------------------------------------------------------------------------------------------------


def _refusals(fleet: Fleet, catalog: Catalog, ask: Ask, unit: Unit, choices: Iterable[Choice]) -> Iterator[Refusal]:
    """What stands in the way, the nearest miss first: a shortage passes, a limit can be raised."""
    by_obstacle: dict[Obstacle, list[Choice]] = {}
    for choice in choices:
        by_obstacle.setdefault(choice.obstacle, []).append(choice)
    if not by_obstacle:
        yield Refusal(Reason.NO_OFFER, _nobody_buys(fleet, catalog, ask, unit))
    if short := by_obstacle.get(Obstacle.SHORT):
        named = _named(f"{c.instance_type}:{c.capacity_type}:{c.zone}" for c in short)
        yield Refusal(Reason.NO_CAPACITY, f"the cloud is short of {named}", min(c.short_until_s for c in short))
    if over := by_obstacle.get(Obstacle.LIMIT):
        most = max(over, key=lambda c: ((c.allowed or 0) * c.each, c.order))
        left = f"at most {(most.allowed or 0) * most.each} of {ask.count} ({most.allowed} x {most.instance_type})"
        yield Refusal(Reason.POOL_LIMIT, f"the limits of {_named(c.pool for c in over)} still allow {left}")
    if stiff := by_obstacle.get(Obstacle.MIN_VALUES):
        yield Refusal(
            Reason.NO_OFFER, f"too few kinds of machines for the minValues of {_named(c.pool for c in stiff)}"
        )
    if fixed := by_obstacle.get(Obstacle.FIXED):
        yield Refusal(Reason.NO_OFFER, f"{_named(c.pool for c in fixed)} has replicas: nothing is bought on demand")


def _nobody_buys(fleet: Fleet, catalog: Catalog, ask: Ask, unit: Unit) -> str:
    """Which of the conditions of the question nothing meets."""
    if ask.pool and ask.pool not in fleet.node_pools:
        return f"there is no pool {ask.pool!r}; declared are {_named(fleet.node_pools) or 'none'}"
    where = " ".join(it for it in (ask.capacity_type, f"in {ask.zone}" if ask.zone else "") if it)
    who = f"pool {ask.pool} buys no" if ask.pool else "no pool buys"
    supply = build_capacity(fleet, Snapshot(0.0, catalog=catalog), may_buy=False)
    pools = {name: pool for name, pool in fleet.node_pools.items() if any(map(unit.on, supply.offerings.of(pool)))}
    if pools:
        shown = f"{ask.gpu} {where}" if where else ask.gpu
        return f"{who} {shown}; without that condition there is {_named(pools)}"
    sold = sorted({offer.instance_type.name for offer in catalog.offers} & unit.types.keys())
    cut = ", to be cut by a MigLayout" if unit.resource else ""
    there = (
        f"on sale in {catalog.region} are {', '.join(sold[:6])}{cut}"
        if sold
        else f"nor is it on sale in {catalog.region}"
    )
    return f"{who} {ask.gpu}; {there}"


def _named(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names))[:4])
