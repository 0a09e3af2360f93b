"""What one launch names: the offers of one capacity type, cheapest first, of not too many machine types."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.reference.karpenter.buy import min_values
from bench.reference.karpenter.buy.rows import described
from bench.reference.karpenter.buy.values import RESERVED, MachineType, ReferenceOffering
from bench.reference.karpenter.launch.filters import ON_DEMAND, SPOT, Wanted

MOST_TYPES = 60
"""Machine types in one launch: EC2 takes 300 overrides, a type has one in each of up to five zones."""
PREFERRED = (RESERVED, SPOT, ON_DEMAND)
"""A launch is of the first capacity type that it may have and that is to be had."""


class Inflexible(ValueError):
    """The longest list a launch may name is less flexible than the claim asks: as good as no capacity."""


@dataclass(frozen=True, slots=True)
class Override:
    """One way in which EC2 may fulfil the launch."""

    machine: str
    offer: ReferenceOffering


@dataclass(frozen=True, slots=True)
class Named:
    """A launch's capacity type and its overrides, cheapest first; none where nothing is to be had."""

    capacity_type: str
    overrides: tuple[Override, ...]


def named(machines: Sequence[MachineType], wanted: Wanted, most_types: int = MOST_TYPES) -> Named:
    """What to ask EC2 for. Raises `Inflexible` where `minValues` do not survive the cut to `most_types`."""
    ranked = sorted((price, each.name, each) for each in machines if (price := _cheapest(each, wanted)) is not None)
    cut = [machine for _, _, machine in ranked[:most_types]]
    least = min_values.least(wanted.requirements)
    short = [key for key, count in least.items() if len(_values(cut, key)) < count]
    if short:
        raise Inflexible(f"truncating instance types to {most_types}: {min_values.sentence(dict.fromkeys(short, 0))}")
    offered = {offer.capacity_type for machine in cut for offer in machine.offerings if wanted.takes(offer)}
    capacity_type = next((each for each in PREFERRED if each in offered), "")
    entries = [
        (offer.price_usd_h, machine.name, offer.zone, offer.reservation_id, offer)
        for machine in cut
        for offer in machine.offerings
        if wanted.takes(offer) and offer.capacity_type == capacity_type
    ]
    ordered = sorted(entries, key=lambda entry: entry[:4])
    return Named(capacity_type, tuple(Override(name, offer) for _, name, _, _, offer in ordered))


def _cheapest(machine: MachineType, wanted: Wanted) -> float | None:
    return min((offer.price_usd_h for offer in machine.offerings if wanted.takes(offer)), default=None)


def _values(machines: Sequence[MachineType], key: str) -> frozenset[str]:
    return frozenset().union(*(described(machine).of(key).values for machine in machines if key in described(machine)))
