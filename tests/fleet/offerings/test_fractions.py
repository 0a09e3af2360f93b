"""Parts of GPUs (g6f): bought by pools that require them, where they count as one GPU each."""

from typing import Any

import pytest

from fleet.offerings.offerings import Offerings
from model import labels
from providers.aws.catalog import package_catalog
from tests.support.fleets import GPU, FleetBuilder

SOLD = package_catalog("us-east-1").catalog


def offered(**pool: Any) -> dict[str, int]:
    """Instance type -> GPUs, of all that the pool may buy."""
    fleet = FleetBuilder().pool("p", **pool).build()
    return {
        it.offer.instance_type.name: it.allocatable.get(GPU, 0)
        for it in Offerings(fleet, SOLD).of(fleet.node_pools["p"])
    }


def fraction(operator: str, *values: str) -> list[dict[str, Any]]:
    return [{"key": labels.GPU_FRACTION, "operator": operator, "values": list(values)}]


@pytest.mark.parametrize(
    ("requirements", "found"),
    [
        (fraction("In", "0.125"), {"g6f.large": 1, "g6f.xlarge": 1}),
        (fraction("In", "0.25", "0.5"), {"g6f.2xlarge": 1, "g6f.4xlarge": 1, "gr6f.4xlarge": 1}),
        (fraction("DoesNotExist"), {"g6.xlarge": 1}),
    ],
)
def test_pools_ask_for_the_part_they_want(requirements: list[dict[str, Any]], found: dict[str, int]) -> None:
    families = ["g6f", "gr6f"] if requirements[0]["operator"] == "In" else ["g6f"]
    types = [] if requirements[0]["operator"] == "In" else ["g6f.large", "g6.xlarge"]
    extra: dict[str, Any] = {"instanceTypes": types} if types else {"instanceFamilies": families}
    assert offered(requirements=requirements, **extra) == found


def test_without_a_word_they_have_no_gpu() -> None:
    """Only the pool knows whether its image has the driver that parts of GPUs need."""
    assert offered(instanceTypes=["g6f.large"]) == {"g6f.large": 0}
    assert offered(instanceFamilies=["g6f"], gpu={"models": ["l4"]}) == {}


def test_parts_can_be_shared_further() -> None:
    sharing = {"timeSlicing": {"replicas": 4}}
    assert offered(instanceTypes=["g6f.large"], requirements=fraction("Exists"), sharing=sharing) == {"g6f.large": 4}
