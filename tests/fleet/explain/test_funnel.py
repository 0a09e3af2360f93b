"""The way from the catalogue to a pool's offers ends at the pool's offerings, and each condition shows its part."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.explain.pool import FunnelStep, funnel
from fleet.offerings.offerings import Offerings
from fleet.placement.inventory import build_capacity
from model.fleet import Fleet
from providers.aws.catalog import package_catalog
from tests.support.fleets import NOW, P5, P5S, A, B, FleetBuilder
from tests.support.world import World

WHOLE = package_catalog("us-east-1").catalog
PACKAGE = replace(WHOLE, offers=WHOLE.offers[::23])
"""Some of everything."""
SMALL = [{"devices": "all", "profiles": {"1g.10gb": 7}}]


def steps_of(world: World, name: str = "h100") -> tuple[FunnelStep, ...]:
    snapshot = world.snapshot()
    supply = build_capacity(world.fleet, snapshot)
    return funnel(world.fleet.node_pools[name], supply)


def fleet_of(**spec: Any) -> Fleet:
    return FleetBuilder().layout("small", h100_80gb=SMALL).pool(**spec).build()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"on sale": 0, "instanceTypes p5.48xlarge": 16, "capacityTypes on-demand": 2}),
        ({"gpu": {"models": ["h100"]}}, {"gpu models h100": 12}),
        ({"gpu": {"minCount": 4, "maxCount": 4}}, {"gpu minCount 4; maxCount 4": 16}),
        ({"instanceTypes": [P5.name, P5S.name], "placement": {"efa": True}}, {"placement.efa": 4}),
        ({"zones": [A]}, {"zones us-east-1a": 2}),
        (
            {"requirements": [{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["100"]}]},
            {"requirement karpenter.k8s.aws/instance-cpu >= 101": 16},
        ),
        ({"instanceFamilies": ["g6", "p5"]}, {"instanceFamilies g6, p5": 8}),
        ({"instanceFamilies": ["g6", "p5"], "sharing": {"mig": {"layouts": ["small"]}}}, {"sharing.mig small": 2}),
        ({"limits": {"nodes": 0}}, {"room within the limits": 2}),
        ({"instanceTypes": ["x9.large"]}, {"instanceTypes x9.large": 20}),
    ],
)
def test_what_each_condition_rules_out(spec: dict[str, Any], expected: dict[str, int]) -> None:
    found = {step.condition: step.ruled_out for step in steps_of(World(fleet_of(**spec)))}
    assert {condition: found.get(condition) for condition in expected} == expected


def test_what_is_short_is_left_out_last() -> None:
    world = World(fleet_of(instanceTypes=[P5.name, P5S.name]))
    world.shortages = {offer.pool_key: NOW + 60 for offer in world.catalog.offers if offer.zone == A}
    *_, last = steps_of(world)
    assert last == FunnelStep("not short now", offers=2, types=2, zones=1, ruled_out=2)
    assert not last.empties
    world.shortages |= {offer.pool_key: NOW + 60 for offer in world.catalog.offers if offer.zone == B}
    assert steps_of(world)[-1].empties


terms = st.lists(
    st.sampled_from(
        (
            {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["31"]},
            {"key": "karpenter.k8s.aws/instance-generation", "operator": "Lt", "values": ["6"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
            {"key": "karpenter.k8s.aws/instance-category", "operator": "NotIn", "values": ["g"]},
            {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": [A]},
            {"key": "example.com/own", "operator": "DoesNotExist"},
            {"key": "example.com/own", "operator": "Exists"},
        )
    ),
    max_size=3,
)
specs = st.fixed_dictionaries(
    {"requirements": terms},
    optional={
        "instanceFamilies": st.sampled_from((["p5"], ["g6", "g5"], ["m7i", "p4d"])),
        "zones": st.sampled_from(([A], [A, B])),
        "capacityTypes": st.sampled_from((["spot"], ["spot", "on-demand"], ["reserved"])),
        "gpu": st.sampled_from(({"models": ["h100", "l4"]}, {"minCount": 4}, {"maxCount": 1}, {"minMemoryMiB": 40000})),
        "placement": st.just({"efa": True}),
        "sharing": st.sampled_from(({"mig": {"layouts": ["small"]}}, {"mps": {"replicas": 2}})),
        "template": st.just({"labels": {"example.com/own": "x"}}),
    },
)


@settings(max_examples=15, deadline=None)
@given(specs)
def test_what_the_declaration_leaves_is_what_the_pool_buys(spec: dict[str, Any]) -> None:
    world = World(fleet_of(**spec))
    world.catalog = PACKAGE
    steps = steps_of(world)
    sold = {offering.offer.pool_key for offering in Offerings(world.fleet, PACKAGE).of(world.fleet.node_pools["h100"])}
    declared = steps[-3]
    assert declared.offers == len(sold)
    assert declared.types == len({pool.instance_type for pool in sold})
    assert declared.zones == len({pool.zone for pool in sold})
    assert steps[0].offers - sum(step.ruled_out for step in steps) == steps[-1].offers
