"""What a pool can buy: every offer that all of its conditions leave."""

from typing import Any

import pytest

from fleet.offerings.offerings import Offerings
from model import labels
from tests.support.fleets import P5, P5S, A, B, FleetBuilder, catalog, offers


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        pytest.param({}, {("on-demand", A), ("on-demand", B)}, id="on demand where nothing is said"),
        pytest.param(
            {"capacityTypes": ["spot", "on-demand"], "requirements": [term(labels.CAPACITY_TYPE, "In", "spot")]},
            {("spot", A), ("spot", B)},
            id="a requirement narrows capacity types",
        ),
        pytest.param(
            {"capacityTypes": ["spot", "on-demand"], "requirements": [term(labels.CAPACITY_TYPE, "NotIn", "spot")]},
            {("on-demand", A), ("on-demand", B)},
            id="or leaves one out",
        ),
        pytest.param(
            {"requirements": [term(labels.ZONE, "In", B)]}, {("on-demand", B)}, id="a requirement narrows zones"
        ),
    ],
)
def test_offers(pool: dict[str, Any], expected: set[tuple[str, str]]) -> None:
    fleet = FleetBuilder().pool(**pool).build()
    offerings = Offerings(fleet, catalog(offers((P5, P5S))))
    found = offerings.of(fleet.node_pools["h100"])
    assert {(offering.offer.capacity_type, offering.offer.zone) for offering in found} == expected
    assert offerings.zones(fleet.node_pools["h100"]) == {zone for _, zone in expected}


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        pytest.param({}, "all-disabled", id="MIG could cut it"),
        pytest.param({"sharing": {"timeSlicing": {"replicas": 2}}}, "all-disabled", id="shared otherwise"),
        pytest.param({"template": {"labels": {labels.MIG_CONFIG: "mine"}}}, "mine", id="the pool says otherwise"),
    ],
)
def test_whole_gpus_that_could_be_cut_say_so_from_birth(pool: dict[str, Any], said: str) -> None:
    fleet = FleetBuilder().pool(**pool).build()
    (offering, *_) = Offerings(fleet, catalog(offers())).of(fleet.node_pools["h100"])
    assert offering.labels[labels.MIG_CONFIG] == said
