"""The way from everything on sale to what a pool could buy now: condition by condition, and what each rules out.

Each step asks for the offerings of a pool that declares no more than the conditions so far: the same function that says
what is bought, so that the way ends where the pool's own offerings are.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from fleet.offerings.offerings import Offering, Offerings
from fleet.placement.inventory import BuyableCapacity
from model.kinds import CapacityType, NodePool, RequirementTerm
from model.kinds.node_pool import GpuSelector, NodePoolSpec, Sharing
from model.requirements import Requirements


@dataclass(frozen=True, slots=True)
class Step:
    """What is left after one more condition."""

    condition: str
    """In the words of the declaration."""
    offers: int
    types: int
    zones: int
    ruled_out: int
    """Offers that met every condition before this one."""

    @property
    def empties(self) -> bool:
        """Whether this condition is the one that leaves nothing."""
        return not self.offers and bool(self.ruled_out)


def funnel(pool: NodePool, supply: BuyableCapacity) -> tuple[Step, ...]:
    """From all offers to those the pool could buy one machine of now.

    Conditions on types come first, then zones, capacity types, sharing; limits and shortages are the last two steps.
    """
    steps: list[Step] = []
    for condition, left in (*_declared(pool, supply.offerings), *_present(pool, supply)):
        offers = {offering.offer.pool_key: offering.offer for offering in left}
        before = steps[-1].offers if steps else len(offers)
        types, zones = {key.instance_type for key in offers}, {key.zone for key in offers}
        steps.append(Step(condition, len(offers), len(types), len(zones), before - len(offers)))
    return tuple(steps)


def _declared(pool: NodePool, offerings: Offerings) -> Iterator[tuple[str, Iterable[Offering]]]:
    said: dict[str, Any] = {**_OPEN, "placement": pool.spec.placement.model_copy(update={"efa": False})}
    yield "on sale", _offerings(offerings, pool, said)
    for condition, field, value in _conditions(pool.spec):
        said[field] = value
        yield condition, _offerings(offerings, pool, said)


_OPEN: Mapping[str, Any] = {
    "instance_types": (),
    "instance_families": (),
    "gpu": None,
    "requirements": (),
    "zones": (),
    "capacity_types": get_args(CapacityType),
    "sharing": Sharing(),
}
"""What the fields that choose machines are where they rule nothing out."""


def _offerings(offerings: Offerings, pool: NodePool, said: Mapping[str, Any]) -> Iterable[Offering]:
    """The offerings of the pool as if it said no more than that."""
    partly = pool.model_copy(update={"spec": pool.spec.model_copy(update=dict(said))})
    return offerings.of_variant(partly)


def _conditions(spec: NodePoolSpec) -> Iterator[tuple[str, str, Any]]:
    """(in words, field, its value once the condition holds), of the conditions that the declaration has."""
    if spec.gpu is not None:
        yield f"gpu {_gpu(spec.gpu)}", "gpu", spec.gpu
    if spec.instance_types:
        yield f"instanceTypes {', '.join(spec.instance_types)}", "instance_types", spec.instance_types
    if spec.instance_families:
        yield f"instanceFamilies {', '.join(spec.instance_families)}", "instance_families", spec.instance_families
    for number, term in enumerate(spec.requirements):
        yield f"requirement {_term(term)}", "requirements", spec.requirements[: number + 1]
    if spec.placement.efa:
        yield "placement.efa", "placement", spec.placement
    if spec.zones:
        yield f"zones {', '.join(spec.zones)}", "zones", spec.zones
    yield f"capacityTypes {', '.join(spec.capacity_types)}", "capacity_types", spec.capacity_types
    if spec.sharing.mig is not None:
        yield f"sharing.mig {', '.join(spec.sharing.mig.layouts)}", "sharing", spec.sharing


def _gpu(gpu: GpuSelector) -> str:
    told = gpu.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    parts = (f"{key} {', '.join(value) if isinstance(value, list) else value}" for key, value in told.items())
    return "; ".join(parts) or "any"


def _term(term: RequirementTerm) -> str:
    return str(Requirements.from_terms((term,)))


def _present(pool: NodePool, supply: BuyableCapacity) -> Iterator[tuple[str, Iterable[Offering]]]:
    """What stands against one machine more at present."""
    headroom = supply.headroom[pool.name]
    affordable = [offering for offering in supply.offerings.of(pool) if headroom.most(offering) > 0]
    yield "room within the limits", affordable
    yield "not short now", [offering for offering in affordable if offering.offer.pool_key not in supply.shortages]
