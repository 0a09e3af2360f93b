"""The way from everything on sale to what a pool could buy now: condition by condition, and what each rules out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fleet.capacity.provision import Supply
from fleet.capacity.shapes import DECIDED_LATER
from fleet.mig.layouts import cut, pool_layouts
from fleet.snapshot import Catalog, Offer
from model import labels
from model.fleet import Fleet
from model.kinds import NodePool
from model.pools import pool_requirements
from model.requirements import Requirements


@dataclass(frozen=True, slots=True)
class Step:
    """What is left after one more condition."""

    condition: str
    offers: int
    types: int
    zones: int
    ruled_out: int
    """Offers that met every condition before this one."""

    @property
    def empties(self) -> bool:
        """Whether this condition is the one that leaves nothing."""
        return not self.offers and bool(self.ruled_out)


def funnel(fleet: Fleet, catalog: Catalog, pool: NodePool, supply: Supply) -> tuple[Step, ...]:
    """From all offers of the catalogue to those the pool could buy one machine of now.

    Conditions on types come first, then zones, capacity types, sharing; then limits and shortages. The offers left
    after the declared conditions are those of the pool's shapes.
    """
    left = list(catalog.offers)
    steps = [_step("on sale", left, 0)]
    for condition, holds in (*_declared(fleet, pool), *_present(pool, supply)):
        kept = [offer for offer in left if holds(offer)]
        steps.append(_step(condition, kept, len(left) - len(kept)))
        left = kept
    return tuple(steps)


def _step(condition: str, offers: Sequence[Offer], ruled_out: int) -> Step:
    types = len({offer.instance_type.name for offer in offers})
    return Step(condition, len(offers), types, len({offer.zone for offer in offers}), ruled_out)


_Condition = tuple[str, Callable[[Offer], bool]]


def _declared(fleet: Fleet, pool: NodePool) -> Iterator[_Condition]:
    """What the declaration says, in the order in which it is told; together they are `Shapes.of`."""
    spec, wanted = pool.spec, pool_requirements(pool)
    if spec.gpu is not None:
        yield "a whole GPU", lambda offer: bool(offer.instance_type.gpu_count)
    for key in sorted(wanted.keys() - {labels.ZONE, labels.CAPACITY_TYPE, labels.NODE_POOL}):
        one = Requirements({key: wanted[key]})
        if key not in spec.template.labels:
            yield f"{key} {wanted[key]}", _suits(pool, one)
    if spec.placement.efa:
        yield "placement.efa", lambda offer: bool(offer.instance_type.efa_interfaces)
    if labels.ZONE in wanted:
        yield f"{labels.ZONE} {wanted[labels.ZONE]}", lambda offer: wanted.of(labels.ZONE).has(offer.zone)
    yield f"capacityTypes {', '.join(spec.capacity_types)}", lambda offer: offer.capacity_type in spec.capacity_types
    if layouts := pool_layouts(fleet, pool):
        named = ", ".join(layout.name for layout in layouts.values())
        yield (
            f"sharing.mig {named}",
            lambda offer: any(cut(offer.instance_type, layout) is not None for layout in layouts.values()),
        )


def _suits(pool: NodePool, wanted: Requirements) -> Callable[[Offer], bool]:
    known: dict[str, bool] = {}

    def suits(offer: Offer) -> bool:
        machine = offer.instance_type
        if machine.name not in known:
            carried = {**machine.labels, **pool.spec.template.labels, labels.NODE_POOL: pool.name}
            known[machine.name] = Requirements.from_labels(carried).compatible(wanted, undefined=DECIDED_LATER)
        return known[machine.name]

    return suits


def _present(pool: NodePool, supply: Supply) -> Iterator[_Condition]:
    """What stands against one machine more at present."""
    headroom = supply.headroom[pool.name]
    room = {shape.offer.pool_key: headroom.most(shape) for shape in supply.shapes.of(pool)}
    yield "room within the limits", lambda offer: room.get(offer.pool_key, 0) > 0
    yield "not short now", lambda offer: offer.pool_key not in supply.shortages
