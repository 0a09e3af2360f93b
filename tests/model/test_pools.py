"""NodePool sugar as label requirements."""

from typing import Any

import pytest

from model import labels
from model.kinds import NodePool
from model.pools import pool_requirements
from model.requirements import Requirement


def pool(spec: dict[str, Any]) -> NodePool:
    return NodePool.model_validate({"apiVersion": "muster.dev/v1alpha1", "metadata": {"name": "p"}, "spec": spec})


@pytest.mark.parametrize(
    ("spec", "key", "expected"),
    [
        ({}, labels.NODE_POOL, Requirement.one_of("p")),
        ({}, labels.CAPACITY_TYPE, Requirement.one_of("on-demand")),
        ({}, labels.ZONE, Requirement.ANY),
        ({"instanceTypes": ["a.x", "b.x"]}, labels.INSTANCE_TYPE, Requirement.one_of("a.x", "b.x")),
        ({"instanceFamilies": ["p5"]}, labels.INSTANCE_FAMILY, Requirement.one_of("p5")),
        ({"zones": ["us-east-1a"]}, labels.ZONE, Requirement.one_of("us-east-1a")),
        ({"gpu": {}}, labels.INSTANCE_GPU_COUNT, Requirement.of("Gte", ["1"])),
        ({"gpu": {"minCount": 4}}, labels.INSTANCE_GPU_COUNT, Requirement.of("Gte", ["4"])),
        ({"gpu": {"maxCount": 4}}, labels.INSTANCE_GPU_COUNT, Requirement(complement=True, gte=1, lte=4)),
        ({"gpu": {"models": ["h100"]}}, labels.INSTANCE_GPU_NAME, Requirement.one_of("h100")),
        ({"gpu": {"minMemoryMiB": 81920}}, labels.INSTANCE_GPU_MEMORY, Requirement.of("Gte", ["81920"])),
        ({"sharing": {"mig": {"layouts": ["x", "y"]}}}, labels.MIG_LAYOUT, Requirement.one_of("x", "y")),
        ({"template": {"labels": {"team": "a"}}}, "team", Requirement.one_of("a")),
        (
            {
                "zones": ["us-east-1a", "us-east-1b"],
                "requirements": [{"key": labels.ZONE, "operator": "NotIn", "values": ["us-east-1a"]}],
            },
            labels.ZONE,
            Requirement.one_of("us-east-1b"),
        ),
        (
            {"requirements": [{"key": "k", "operator": "In", "values": ["a", "b"], "minValues": 2}]},
            "k",
            Requirement.of("In", ["a", "b"], 2),
        ),
    ],
)
def test_pool_requirements(spec: dict[str, Any], key: str, expected: Requirement) -> None:
    assert pool_requirements(pool(spec)).of(key) == expected
