"""Which machine types and offers a launch may name (aws/karpenter-provider-aws `pkg/providers/instance/filter`, v1.14).

Each filter takes the machines the ones before have left, and leaves machines with the offers that may still be used.
`launchable` asks them all, in upstream's order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from bench.reference.karpenter.buy.values import ANYTHING, RESERVED, MachineType, ReferenceOffering
from model import labels
from model.quantity import Resources
from model.requirements import Requirements

SPOT, ON_DEMAND = "spot", "on-demand"
CAPACITY_BLOCK = "capacity-block"
DEFAULT_RESERVATION = "default"
EXOTIC = frozenset(
    {
        labels.GPU_RESOURCE,
        "amd.com/gpu",
        "habana.ai/gaudi",
        "aws.amazon.com/neuron",
        "aws.amazon.com/neuroncore",
    }
)
"""Resources nobody gets who did not ask."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a claim asks of its launch."""

    requirements: Requirements = ANYTHING
    requests: Resources = field(default_factory=dict)

    @property
    def flexible(self) -> bool:
        """Whether `minValues` ask for a choice, which thrift must not narrow."""
        return any(each.min_values is not None for each in self.requirements.values())

    def may_be(self, capacity_type: str) -> bool:
        """Whether a capacity type is allowed."""
        return self.requirements.of(labels.CAPACITY_TYPE).has(capacity_type)

    def takes(self, offer: ReferenceOffering) -> bool:
        """Whether an offer is to be had and has the labels wanted."""
        return offer.available and self.meets(offer_labels(offer))

    def meets(self, there: Requirements) -> bool:
        """Whether labels that are known already are among those wanted; the others are the pool's, or decided later."""
        return all(self.requirements.of(key).satisfiable_with(value) for key, value in there.items())


Filter = Callable[[Sequence[MachineType], Wanted], list[MachineType]]


def offer_labels(offer: ReferenceOffering) -> Requirements:
    """What is known of a machine from the way it is bought. An offer without a zone could be in any."""
    own = {
        labels.CAPACITY_TYPE: offer.capacity_type,
        labels.ZONE: offer.zone,
        labels.CAPACITY_RESERVATION_ID: offer.reservation_id,
    }
    return Requirements.from_labels({**{key: value for key, value in own.items() if value}, **offer.labels})


def compatible_available(machines: Sequence[MachineType], wanted: Wanted) -> list[MachineType]:
    """Machines of the labels wanted with an offer that is to be had and, bought that way, holds what is requested."""
    return [each for each in machines if wanted.meets(each.requirements) and any(_fitting(each, wanted))]


def reservation_type(machines: Sequence[MachineType], wanted: Wanted) -> list[MachineType]:
    """A launch names one kind of reservation: that of the cheapest reserved offer, with nothing but its offers."""
    if not wanted.may_be(RESERVED):
        return list(machines)
    reserved = [offer for machine in machines for offer in _reserved(machine, wanted)]
    if not reserved:
        return list(machines)
    best = _kind(min(reserved, key=lambda offer: (offer.price_usd_h, _KINDS.index(_kind(offer)))))
    return _with(machines, lambda machine: [each for each in _reserved(machine, wanted) if _kind(each) == best])


def capacity_block(machines: Sequence[MachineType], wanted: Wanted) -> list[MachineType]:
    """A launch names one capacity block at most: the cheapest."""
    blocks = [
        (offer.price_usd_h, machine.name, offer.reservation_id, offer)
        for machine in machines
        for offer in _reserved(machine, wanted)
        if wanted.may_be(RESERVED) and _kind(offer)[0] == CAPACITY_BLOCK
    ]
    if not blocks:
        return list(machines)
    _, name, _, best = min(blocks, key=lambda each: each[:3])
    return [replace(each, offerings=(best,)) for each in machines if each.name == name]


def reserved_offering(machines: Sequence[MachineType], wanted: Wanted) -> list[MachineType]:
    """What is paid for already goes first; of several reservations of a type and zone the one with most left."""
    if not wanted.may_be(RESERVED):
        return list(machines)
    return _with(machines, lambda machine: list(_roomiest(_reserved(machine, wanted)))) or list(machines)


def exotic(machines: Sequence[MachineType], wanted: Wanted) -> list[MachineType]:
    """No accelerators and no bare metal for those who could do without."""
    plain = [] if wanted.flexible else [each for each in machines if not _is_exotic(each)]
    return plain or list(machines)


def spot_offering(machines: Sequence[MachineType], wanted: Wanted) -> list[MachineType]:
    """Where both are allowed, no spot offer that costs more than the cheapest on-demand one."""
    if wanted.flexible or not (wanted.may_be(SPOT) and wanted.may_be(ON_DEMAND)):
        return list(machines)
    taken = [offer for machine in machines for offer in machine.offerings if wanted.takes(offer)]
    on_demand = [offer.price_usd_h for offer in taken if offer.capacity_type == ON_DEMAND]
    if not on_demand or all(offer.capacity_type != SPOT for offer in taken):
        return list(machines)
    most = min(on_demand)

    def kept(machine: MachineType) -> list[ReferenceOffering]:
        return [offer for offer in machine.offerings if offer.capacity_type != SPOT or offer.price_usd_h <= most]

    return _with(machines, kept)


CHAIN: tuple[Filter, ...] = (
    compatible_available,
    reservation_type,
    capacity_block,
    reserved_offering,
    exotic,
    spot_offering,
)


def launchable(machines: Iterable[MachineType], wanted: Wanted) -> list[MachineType]:
    """What all filters leave, in the order given."""
    left = list(machines)
    for each in CHAIN:
        left = each(left, wanted)
    return left


# -- what the filters ask ---------------------------------------------------------------------------------------------

_KINDS = (
    (DEFAULT_RESERVATION, False),
    (CAPACITY_BLOCK, False),
    (DEFAULT_RESERVATION, True),
    (CAPACITY_BLOCK, True),
)
"""(reservation type, interruptible): which comes first at one price."""


def _kind(offer: ReferenceOffering) -> tuple[str, bool]:
    interruptible = offer.labels.get(labels.CAPACITY_RESERVATION_INTERRUPTIBLE) == "true"
    return offer.labels.get(labels.CAPACITY_RESERVATION_TYPE, DEFAULT_RESERVATION), interruptible


def _fitting(machine: MachineType, wanted: Wanted) -> Iterator[ReferenceOffering]:
    for offer in machine.offerings:
        here = {**machine.allocatable, **(offer.allocatable or {})}
        if wanted.takes(offer) and all(here.get(name, 0) >= amount for name, amount in wanted.requests.items()):
            yield offer


def _reserved(machine: MachineType, wanted: Wanted) -> list[ReferenceOffering]:
    return [offer for offer in machine.offerings if offer.capacity_type == RESERVED and wanted.takes(offer)]


def _roomiest(offers: Iterable[ReferenceOffering]) -> Iterator[ReferenceOffering]:
    ordered = sorted(offers, key=attrgetter("zone", "reservation_id"))
    for zone in sorted({offer.zone for offer in ordered}):
        yield max((offer for offer in ordered if offer.zone == zone), key=attrgetter("reserved_left"))


def _is_exotic(machine: MachineType) -> bool:
    sizes = machine.requirements.of(labels.INSTANCE_SIZE).values
    return any("metal" in size for size in sizes) or any(machine.capacity.get(name) for name in EXOTIC)


def _with(machines: Iterable[MachineType], kept: Callable[[MachineType], list[ReferenceOffering]]) -> list[MachineType]:
    """The machines with the offers kept, without those that have none left."""
    return [replace(each, offerings=tuple(offers)) for each in machines if (offers := kept(each))]
