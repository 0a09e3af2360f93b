"""Which types and offers a launch may name, and in what order."""

import pytest

from bench.reference.karpenter.buy import MachineType, ReferenceOffering
from bench.reference.karpenter.buy.values import RESERVED
from bench.reference.karpenter.launch import filters
from bench.reference.karpenter.launch.filters import Filter, Wanted
from model import labels
from model.requirements import Requirement, Requirements

CPU = {"cpu": 4000}
MANY = Requirements({labels.INSTANCE_TYPE: Requirement(complement=True, min_values=2)})


def types(*allowed: str) -> Requirements:
    return Requirements({labels.CAPACITY_TYPE: Requirement.one_of(*allowed)})


def machine(name: str, *offers: ReferenceOffering, **capacity: int) -> MachineType:
    own = {labels.INSTANCE_TYPE: name, labels.INSTANCE_SIZE: name.partition(".")[2] or "large"}
    return MachineType(name, Requirements.from_labels(own), {**CPU, **capacity}, {**CPU, **capacity}, offers)


def od(price: float = 1.0, zone: str = "a") -> ReferenceOffering:
    return ReferenceOffering("on-demand", zone, price)


def spot(price: float = 1.0, zone: str = "a") -> ReferenceOffering:
    return ReferenceOffering("spot", zone, price)


def kept(
    price: float, kind: str = "default", *, interruptible: bool = False, which: str = "r", left: int = 1
) -> ReferenceOffering:
    told = {
        labels.CAPACITY_RESERVATION_TYPE: kind,
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE: str(interruptible).lower(),
    }
    return ReferenceOffering(RESERVED, "a", price, reservation_id=which, reserved_left=left, labels=told)


def left(filter_: Filter, machines: list[MachineType], wanted: Wanted) -> dict[str, list[float]]:
    return {each.name: [offer.price_usd_h for offer in each.offerings] for each in filter_(machines, wanted)}


ANY = Wanted()
CASES = [
    pytest.param(
        filters.compatible_available,
        [machine("m", od(zone="b")), machine("n", od())],
        Wanted(Requirements({labels.ZONE: Requirement.one_of("a")})),
        {"n": [1]},
        id="zone",
    ),
    pytest.param(
        filters.compatible_available, [machine("m", od())], Wanted(requests={"cpu": 5000}), {}, id="too small"
    ),
    pytest.param(
        filters.compatible_available,
        [machine("m", od())],
        Wanted(Requirements.from_labels({"team": "x"})),
        {"m": [1]},
        id="labels of the pool are nobody's here",
    ),
    pytest.param(
        filters.reservation_type,
        [machine("m", kept(2)), machine("n", kept(1, "capacity-block"), od()), machine("o", od())],
        ANY,
        {"n": [1]},
        id="one kind of reservation, the cheapest",
    ),
    pytest.param(
        filters.reservation_type,
        [machine("m", kept(1, interruptible=True)), machine("n", kept(1, "capacity-block"))],
        ANY,
        {"n": [1]},
        id="at one price what stays goes before what may be taken back",
    ),
    pytest.param(
        filters.capacity_block,
        [machine("m", kept(2, "capacity-block")), machine("n", kept(1, "capacity-block"), kept(3, "capacity-block"))],
        ANY,
        {"n": [1]},
        id="one capacity block",
    ),
    pytest.param(
        filters.reserved_offering,
        [machine("m", kept(1, which="few", left=1), kept(2, which="many", left=5), od()), machine("n", od())],
        ANY,
        {"m": [2]},
        id="the reservation with most left",
    ),
    pytest.param(
        filters.reserved_offering, [machine("m", od())], ANY, {"m": [1]}, id="nothing reserved: nothing changes"
    ),
    pytest.param(
        filters.exotic,
        [machine("m", od()), machine("m.metal-24xl", od()), machine("g", od(), **{"nvidia.com/gpu": 1})],
        ANY,
        {"m": [1]},
        id="no accelerators, no metal",
    ),
    pytest.param(
        filters.exotic,
        [machine("m", od()), machine("g", od(), **{"nvidia.com/gpu": 1})],
        Wanted(MANY),
        {"m": [1], "g": [1]},
        id="unless a choice is asked for",
    ),
    pytest.param(
        filters.spot_offering,
        [machine("m", od(2)), machine("n", spot(1), spot(3)), machine("o", spot(4))],
        ANY,
        {"m": [2], "n": [1]},
        id="no spot dearer than on-demand",
    ),
    pytest.param(
        filters.spot_offering,
        [machine("m", od(2)), machine("o", spot(4))],
        Wanted(types("spot")),
        {"m": [2], "o": [4]},
        id="spot only: whatever it costs",
    ),
]


@pytest.mark.parametrize(("filter_", "machines", "wanted", "expected"), CASES)
def test_filters(
    filter_: Filter, machines: list[MachineType], wanted: Wanted, expected: dict[str, list[float]]
) -> None:
    assert left(filter_, machines, wanted) == expected


def test_the_whole_chain() -> None:
    machines = [machine("m", od(2), spot(1), spot(9)), machine("g", od(1), **{"nvidia.com/gpu": 1})]
    assert {each.name: len(each.offerings) for each in filters.launchable(machines, ANY)} == {"m": 2}


# -- what a launch names ----------------------------------------------------------------------------------------------
