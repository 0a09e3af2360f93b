"""Which of equally dear machines is bought, and what a lower price overrules."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.catalog import InstanceOffer, InstanceType
from fleet.offerings.offerings import Offerings, is_exotic, preference
from fleet.placement.candidate_offerings import CandidateOffering
from fleet.snapshot import Catalog, Reservation
from model import labels
from model.kinds import CapacityType
from tests.support.fleets import A, FleetBuilder

ROOM = {"cpu": 4000, "memory": 1 << 34, "pods": 58}


def machine(name: str, size: str = "large", **more: int) -> InstanceType:
    room = {**ROOM, **more}
    return InstanceType(name, room, room, {labels.INSTANCE_TYPE: name, labels.INSTANCE_SIZE: size})


def offer(kind: InstanceType, capacity_type: CapacityType = "on-demand", **reserved: Any) -> InstanceOffer:
    held = Reservation("cr", kind.name, A, 1, 1, **reserved) if capacity_type == "reserved" else None
    return InstanceOffer(kind, A, capacity_type, 1.0, held)


PLAIN = machine("z")


@pytest.mark.parametrize(
    ("kind", "exotic"),
    [
        (PLAIN, False),
        (machine("m", "metal"), True),
        (machine("m", "metal-24xl"), True),
        *((machine("m", **{name: 1}), True) for name in ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi")),
        *((machine("m", **{name: 1}), True) for name in ("aws.amazon.com/neuron", "aws.amazon.com/neuroncore")),
        (machine("m", **{"nvidia.com/gpu": 0, "vpc.amazonaws.com/efa": 1}), False),
    ],
)
def test_what_is_exotic(kind: InstanceType, exotic: bool) -> None:
    assert is_exotic(kind) is exotic


def test_the_order_of_equally_dear_offers() -> None:
    ordered = [
        offer(PLAIN, "reserved"),
        offer(PLAIN, "reserved", terminates_s=9e9),
        offer(PLAIN, "reserved", interruptible=True),
        offer(PLAIN, "reserved", terminates_s=9e9, interruptible=True),
        offer(machine("a", "metal")),
        offer(machine("a", "metal"), "spot"),
    ]
    ranks = [preference(it) for it in ordered]
    assert ranks == sorted(set(ranks))
    assert preference(offer(PLAIN)) == preference(ordered[0])
    assert preference(offer(PLAIN, "spot")) == preference(ordered[2])


@pytest.mark.parametrize(
    ("gpu_usd_h", "spot_usd_h", "bought"),
    [
        (1.0, 1.0, ("z", "on-demand")),
        (1.0, 0.9, ("z", "spot")),
        (0.9, 1.0, ("a", "on-demand")),  # the price decides, unlike upstream
    ],
)
def test_prices_go_before(gpu_usd_h: float, spot_usd_h: float, bought: tuple[str, str]) -> None:
    offers = (
        replace(offer(machine("a", **{"nvidia.com/gpu": 1})), price_usd_h=gpu_usd_h),
        offer(PLAIN),
        replace(offer(PLAIN, "spot"), price_usd_h=spot_usd_h),
    )
    fleet = FleetBuilder().pool("p", gpu=None, capacityTypes=["spot", "on-demand"]).build()
    sold = Catalog("r", {it.instance_type.name: it.instance_type for it in offers}, offers)
    found = Offerings(fleet, sold).of(fleet.node_pools["p"])
    ranked = [CandidateOffering(it, 1, 0, 0, it.offer.price_usd_h, preference(it.offer)) for it in found]
    best = min(ranked, key=lambda it: it.rank(1, 1)).offering.offer
    assert (best.instance_type.name, best.capacity_type) == bought
