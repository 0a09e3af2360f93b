"""What could serve so many GPUs: every way the pools may buy them, in order of cost, and why there is none."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.catalog import InstanceOffer
from fleet.explain.offers import (
    GpuRequest,
    OfferObstacle,
    PurchaseOption,
    PurchaseOptions,
    UnknownGpu,
    names_of,
    offers_for,
    unit_of,
)
from fleet.reasons import Reason
from model.fleet import Fleet
from providers.aws.catalog import package_catalog
from tests.support.fleets import G6, M7, NOW, P4, P5, P5S, A, B, FleetBuilder, catalog, machine, offers
from tests.support.world import World

PART = machine("g6f.large", gpu="l4", gpu_memory=2861)
PACKAGE = package_catalog("us-east-1").catalog
ALL_1G = [{"devices": "all", "profiles": {"1g.10gb": 7}}]


def asked(fleet: Fleet, ask: GpuRequest, world: World | None = None) -> PurchaseOptions:
    return offers_for(fleet, (world or World(fleet)).snapshot(), ask)


def row(option: PurchaseOption) -> tuple[str, str, str, int, float]:
    return option.pool, option.instance_type, option.zone, option.machines, option.total_usd_h


def both(**spec: Any) -> Fleet:
    kinds = {"instanceTypes": [P5.name, P5S.name], "zones": [A]}
    return FleetBuilder().pool(**{**kinds, **spec}).pool("l4", instanceTypes=[G6.name]).build()


# -- units ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("h100", "p5.48xlarge", 8),
        ("H100", "p5.4xlarge", 1),
        ("h100-80gb", "p5.48xlarge", 8),
        ("a100", "p4d.24xlarge", 8),
        ("A100 80GB", "p4de.24xlarge", 8),
        ("a100-80gb", "p4d.24xlarge", 0),
        ("a100-40gb", "p4d.24xlarge", 8),
        ("l4", "g6f.large", 0),
        ("l4/8", "g6f.large", 1),
        ("l4/4", "g6f.2xlarge", 1),
        ("L4/2", "g6f.4xlarge", 1),
        ("l4/2", "g6f.large", 0),
        ("1g.10gb", "p5.48xlarge", 8),
        ("1g.10gb", "g6.12xlarge", 0),
    ],
)
def test_names_of_gpus(name: str, kind: str, expected: int) -> None:
    assert unit_of(PACKAGE, name).types.get(kind, 0) == expected


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("h10", "did you mean 'h100'"),
        ("quantum", "there are"),
        ("l4/3", "no machine in us-east-1"),
        ("9g.10gb", "no GPU can be cut into"),
        ("", "no machine"),
        ("/8", "no machine"),
        ("l4/0", "no machine"),
    ],
)
def test_names_that_nothing_has(name: str, hint: str) -> None:
    with pytest.raises(UnknownGpu, match=hint):
        unit_of(PACKAGE, name)


def test_every_known_name_is_known() -> None:
    assert {"h100", "h100-80gb", "l4", "l4/8", "a10g", "v100"} <= names_of(PACKAGE.types.values())
    assert all(unit_of(PACKAGE, name).types for name in names_of(PACKAGE.types.values()))


# -- choices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [(P5S.name, 1, 14.0), (P5.name, 1, 98.0)]),
        (7, [(P5S.name, 7, 98.0), (P5.name, 1, 98.0)]),
        (8, [(P5.name, 1, 98.0), (P5S.name, 8, 112.0)]),
        (9, [(P5S.name, 9, 126.0), (P5.name, 2, 196.0)]),
    ],
)
def test_cheapest_for_all_of_it_first(count: int, expected: list[tuple[str, int, float]]) -> None:
    found = asked(both(), GpuRequest("h100", count)).open
    # at the same total the cheaper GPU comes first
    by_price = sorted(expected, key=lambda it: it[2]) if count != 7 else [expected[1], expected[0]]
    assert [(c.instance_type, c.machines, c.total_usd_h) for c in found] == by_price


def test_prices_of_a_gpu() -> None:
    (option,) = asked(both(instanceTypes=[P5.name]), GpuRequest("h100", 8)).options
    assert (option.each, option.usd_h, option.unit_usd_h, option.sharing) == (8, 98.0, 12.25, "whole")


@pytest.mark.parametrize(
    ("sharing", "gpu", "expected"),
    [
        ({"mig": {"layouts": ["small"]}}, "h100", ("small", 8)),
        ({"mig": {"layouts": ["small"]}}, "1g.10gb", ("small", 56)),
        ({"timeSlicing": {"replicas": 4}}, "h100", ("time-slicing x4", 8)),
        ({"mps": {"replicas": 2}}, "h100", ("mps x2", 8)),
        ({"timeSlicing": {"replicas": 4}}, "1g.10gb", None),
    ],
)
def test_how_gpus_are_shared(sharing: dict[str, Any], gpu: str, expected: tuple[str, int] | None) -> None:
    fleet = FleetBuilder().layout("small", h100_80gb=ALL_1G).pool(zones=[A], sharing=sharing).build()
    found = [(option.sharing, option.each) for option in asked(fleet, GpuRequest(gpu, 8)).options]
    assert found == ([expected] if expected else [])


def test_fractions_are_sold_by_the_machine() -> None:
    world = World(FleetBuilder().pool("parts", instanceTypes=[PART.name]).build())
    sold = (*offers(), InstanceOffer(PART, A, "on-demand", 0.2))
    world.catalog = catalog(sold)
    (option,) = asked(world.fleet, GpuRequest("l4/8", 3), world).options
    assert row(option) == ("parts", PART.name, A, 3, pytest.approx(0.6))


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (GpuRequest("l4", 4), {("l4", A), ("l4", B)}),
        (GpuRequest("l4", 4, zone=B), {("l4", B)}),
        (GpuRequest("l4", 4, pool="l4"), {("l4", A), ("l4", B)}),
        (GpuRequest("l4", 4, pool="h100"), set()),
        (GpuRequest("l4", 4, capacity_type="spot"), set()),
    ],
)
def test_what_is_asked_narrows(ask: GpuRequest, expected: set[tuple[str, str]]) -> None:
    assert {(option.pool, option.zone) for option in asked(both(), ask).options} == expected


# -- what is against it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "count", "obstacle", "reason", "words"),
    [
        ({}, 8, OfferObstacle.NONE, None, ""),
        ({"limits": {"nodes": 1}}, 8, OfferObstacle.NONE, None, ""),
        ({"limits": {"nodes": 1}}, 16, OfferObstacle.LIMIT, Reason.POOL_LIMIT, "at most 8 of 16 (1 x p5.48xlarge)"),
        ({"limits": {"usdPerHour": 97.0}}, 8, OfferObstacle.LIMIT, Reason.POOL_LIMIT, "at most 0 of 8"),
        ({"limits": {"resources": {"nvidia.com/gpu": 8}}}, 9, OfferObstacle.LIMIT, Reason.POOL_LIMIT, "of h100 still"),
        ({"replicas": 1}, 8, OfferObstacle.FIXED, Reason.NO_OFFER, "h100 has replicas"),
        (
            {"requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 2}]},
            8,
            OfferObstacle.MIN_VALUES,
            Reason.NO_OFFER,
            "minValues of h100",
        ),
    ],
)
def test_obstacles(
    spec: dict[str, Any], count: int, obstacle: OfferObstacle, reason: Reason | None, words: str
) -> None:
    answer = asked(both(instanceTypes=[P5.name], **spec), GpuRequest("h100", count))
    assert [option.obstacle for option in answer.options] == [obstacle]
    assert [refusal.reason for refusal in answer.refusals] == ([reason] if reason else [])
    assert all(words in refusal.message for refusal in answer.refusals)


def test_limits_count_what_stands() -> None:
    world = World(both(instanceTypes=[P5.name], limits={"nodes": 2}))
    world.machine("m0")
    assert [option.allowed for option in asked(world.fleet, GpuRequest("h100", 8), world).options] == [1]
    assert asked(world.fleet, GpuRequest("h100", 16), world).refusals[0].reason == Reason.POOL_LIMIT


def test_a_shortage_says_until_when() -> None:
    world = World(both())
    world.shortages = {offer.pool_key: NOW + 90 for offer in world.catalog.offers if offer.instance_type is P5}
    found = {
        c.instance_type: (c.obstacle, c.short_until_s) for c in asked(world.fleet, GpuRequest("h100", 8), world).options
    }
    assert found == {P5.name: (OfferObstacle.SHORT, NOW + 90), P5S.name: (OfferObstacle.NONE, 0.0)}
    world.shortages = {offer.pool_key: NOW + 90 for offer in world.catalog.offers}
    (refusal,) = asked(world.fleet, GpuRequest("h100", 8), world).refusals
    assert (refusal.reason, refusal.retry_at_s) == (Reason.NO_CAPACITY, NOW + 90)
    assert "p5.48xlarge:on-demand:us-east-1a" in refusal.message


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (GpuRequest("a100", 8), "no pool buys a100; on sale in us-east-1 are p4d.24xlarge"),
        (GpuRequest("1g.10gb", 8), "on sale in us-east-1 are p4d.24xlarge, p5.48xlarge, p5.4xlarge, to be cut"),
        (GpuRequest("h100", 8, zone=B), "no pool buys h100 in us-east-1b; without that condition there is h100"),
        (GpuRequest("h100", 8, pool="l4"), "pool l4 buys no h100; without that condition there is h100"),
        (GpuRequest("h100", 8, capacity_type="spot"), "no pool buys h100 spot"),
        (GpuRequest("h100", 8, pool="no"), "there is no pool 'no'; declared are h100, l4"),
    ],
)
def test_why_there_is_none(ask: GpuRequest, words: str) -> None:
    (refusal,) = asked(both(), ask).refusals
    assert refusal.reason == Reason.NO_OFFER
    assert words in refusal.message


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 200), st.sampled_from(("h100", "a100", "l4")), st.sampled_from(({}, {"nodes": 3})))
def test_choices_hold_what_is_asked_in_order_of_cost(count: int, gpu: str, limits: dict[str, int]) -> None:
    fleet = FleetBuilder().pool(instanceTypes=[P5.name, P5S.name, P4.name, G6.name, M7.name], limits=limits).build()
    answer = asked(fleet, GpuRequest(gpu, count))
    totals = [option.total_usd_h for option in answer.options]
    assert totals == sorted(totals)
    for option in answer.options:
        assert option.each * (option.machines - 1) < count <= option.each * option.machines
        assert (option.obstacle is OfferObstacle.NONE) == (option.allowed is None or option.allowed >= option.machines)
    assert bool(answer.refusals) == (not answer.open)
