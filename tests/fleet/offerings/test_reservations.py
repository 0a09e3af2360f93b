"""Capacity reservations as rules: what a pool selects, what is left, what it costs, and when it closes."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet import disruption as disrupt
from fleet.actions import OpenClaims, SaveClaim
from fleet.cost.allocation import allocate
from fleet.cost.uses import CostTerms, uses
from fleet.nodeclaims import interruption
from fleet.nodeclaims.launch import launch_request
from fleet.offerings.offerings import Offering
from fleet.offerings.reservations import (
    DISCOUNT,
    ReservationCapacity,
    ReservationSelector,
    closes_s,
    converted_to_on_demand,
    offer_of,
    terminates_s,
)
from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.inventory import build_capacity, build_cluster_state
from fleet.placement.place import place_gang
from fleet.placement.plan import PlacementPlan
from fleet.quota.queue_binding import payer_of
from fleet.reasons import Reason, Refusal
from fleet.snapshot import CapacityPool, Claim, Reservation, Snapshot
from model import labels
from model.kinds import NodePool
from providers.aws.capacity_blocks import market_of
from providers.aws.capacity_blocks import terminates_s as begins_to_terminate_s
from tests.support.disruption import drift_of
from tests.support.fleets import GPU, NOW, P4, P5, P5S, A, B, FleetBuilder, gang, instance_of, pod_set
from tests.support.world import World

OURS = {labels.CLUSTER: "default"}
HOUR_S = 3600.0
P5_USD_H = 98.0


def reservation(name: str = "cr-a", total: int = 4, available: int | None = None, **more: Any) -> Reservation:
    facts = {"instance_type": P5.name, "zone": A, "tags": OURS} | more
    if "ends_s" in facts:
        facts["terminates_s"] = begins_to_terminate_s(facts.get("kind", "default"), facts.pop("ends_s"))
    return Reservation(id=name, total=total, available=total if available is None else available, **facts)


def pool_of(**spec: Any) -> NodePool:
    return fleet_of(**spec).node_pools["h100"]


def fleet_of(**spec: Any) -> Any:
    defaults = {"capacityTypes": ["reserved", "on-demand"], "instanceTypes": [P5.name]}
    builder = FleetBuilder().pool("h100", **defaults | spec)
    return builder.team(quotas={"h100": {GPU: 99}}).queue(flavors=["h100"]).build()


def seen(world: World, *reservations: Reservation, at_s: float = NOW - 30) -> Snapshot:
    return replace(world.snapshot(), reservations={it.id: it for it in reservations}, reservations_at_s=at_s)


def reserved_claim(name: str = "m", reserved: str = "cr-a", **more: Any) -> Claim:
    world = World(fleet_of())
    made = world.machine(name, **more)
    return replace(
        made, capacity_pool=CapacityPool("reserved", P5.name, A, reserved), price_usd_h=0.0, list_usd_h=P5_USD_H
    )


FACTS = {"tags": {"team": "llm", "env": "prod"}, "owner": "123456789012", "kind": "default", "match": "open"}


@pytest.mark.parametrize(
    ("select", "chosen"),
    [
        ([], False),
        ([{"id": "cr-a"}], True),
        ([{"id": "cr-b"}], False),
        ([{"id": "cr-b"}, {"id": "cr-a"}], True),
        ([{"tags": {"team": "llm"}}], True),
        ([{"tags": {"team": "*"}}], True),
        ([{"tags": {"team": "llm", "env": "test"}}], False),
        ([{"tags": {"stage": "*"}}], False),
        ([{"owner": "123456789012"}], True),
        ([{"owner": "210987654321"}], False),
        ([{"type": "default", "match": "open"}], True),
        ([{"type": "capacity-block"}], False),
        ([{"match": "targeted"}], False),
        ([{"tags": {"team": "llm"}, "match": "targeted"}, {"owner": "123456789012", "type": "default"}], True),
    ],
)
def test_what_a_pool_selects(select: list[dict[str, Any]], *, chosen: bool) -> None:
    pool = pool_of(reservations={"select": select})
    assert ReservationSelector("default", {"cr-a": reservation(**FACTS)}).of(pool) == (
        [reservation(**FACTS)] if chosen else []
    )


@pytest.mark.parametrize(
    ("cluster", "state", "capacity_types", "chosen"),
    [
        ("default", "active", ["reserved"], True),
        ("other", "active", ["reserved"], False),
        ("default", "expired", ["reserved"], False),
        ("default", "scheduled", ["reserved"], False),
        ("default", "active", ["on-demand"], False),
    ],
)
def test_without_a_word_it_is_those_tagged_for_the_cluster(
    cluster: str, state: str, capacity_types: list[str], *, chosen: bool
) -> None:
    found = ReservationSelector(cluster, {"cr-a": reservation(state=state)}).of(pool_of(capacityTypes=capacity_types))
    assert bool(found) is chosen


@pytest.mark.parametrize(
    ("available", "total", "claims", "left"),
    [
        (4, 4, [], 4),
        (4, 4, [{}], 3),
        (4, 4, [{"launched_at_s": NOW - 10.0}], 3),
        (3, 4, [{"launched_at_s": NOW - 60.0}], 3),
        (2, 4, [{"launched_at_s": NOW - 60.0}], 2),
        (1, 4, [{}, {}], 0),
        (4, 4, [{"launched_at_s": NOW - 60.0}] * 3, 1),
        (0, 4, [], 0),
    ],
    ids=["free", "intended", "after-the-read", "before-it", "others-too", "never-below-none", "stale-count", "full"],
)
def test_what_is_left(available: int, total: int, claims: list[dict[str, float]], left: int) -> None:
    """30 s ago the cloud said what was available; claims younger than that it did not know."""
    world = World(fleet_of())
    base = replace(reserved_claim(), launched_at_s=0.0, ready_at_s=0.0, registered_at_s=0.0)
    for number, facts in enumerate(claims):
        world.claims[f"c{number}"] = replace(base, name=f"c{number}", **facts)  # type: ignore[arg-type]
    places = ReservationCapacity.of(seen(world, reservation(total=total, available=available)))
    assert places.left == {"cr-a": left}


def requires(label: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": f"karpenter.k8s.aws/{label}", "operator": operator, "values": list(values)}


def offerings_in(world: World, *reservations: Reservation) -> list[Offering]:
    supply = build_capacity(world.fleet, seen(world, *reservations))
    return [it for it in supply.offerings.of(world.fleet.node_pools["h100"]) if it.offer.reservation]


def test_the_price_is_next_to_nothing_and_the_charge_is_the_list_price() -> None:
    (found,) = offerings_in(World(fleet_of()), reservation())
    listed = found.offer.charged_usd_h
    assert listed == next(o.price_usd_h for o in World(fleet_of()).catalog.offers if o.instance_type == P5)
    assert found.offer.price_usd_h == listed / DISCOUNT
    assert found.labels[labels.CAPACITY_RESERVATION_ID] == "cr-a"
    assert found.offer.pool_key == CapacityPool("reserved", P5.name, A, "cr-a")
    assert str(found.offer.pool_key) == f"{P5.name}:reserved:{A}:cr-a"


@pytest.mark.parametrize(
    ("facts", "spec"),
    [
        ({"instance_type": P4.name}, {}),
        ({"instance_type": "p9.huge"}, {}),
        ({"zone": "us-east-1z"}, {}),
        ({}, {"zones": [B]}),
        ({}, {"requirements": [requires("capacity-reservation-type", "In", "capacity-block")]}),
        ({}, {"requirements": [requires("capacity-reservation-id", "DoesNotExist")]}),
    ],
    ids=["type", "unknown-type", "no-subnet", "zone", "kind", "none-wanted"],
)
def test_what_is_no_offer_of_the_pool(facts: dict[str, Any], spec: dict[str, Any]) -> None:
    assert offerings_in(World(fleet_of(**spec)), reservation(**facts)) == []


def test_a_requirement_on_reservations_leaves_no_other_machine() -> None:
    spec = {"requirements": [requires("capacity-reservation-interruptible", "In", "false")]}
    world = World(fleet_of(**spec))
    supply = build_capacity(world.fleet, seen(world, reservation()))
    assert [it.offer.capacity_type for it in supply.offerings.of(world.fleet.node_pools["h100"])] == ["reserved"]


@pytest.mark.parametrize(
    ("kind", "closes", "terminates"),
    [("default", inf, inf), ("capacity-block", NOW + 2400.0, NOW + 3000.0)],
)
def test_only_blocks_close(kind: str, closes: float, terminates: float) -> None:
    found = reservation(kind=kind, ends_s=NOW + 4800.0)
    assert (closes_s(pool_of(), found), terminates_s(found)) == (closes, terminates)
    assert closes_s(pool_of(reservations={"leaveBefore": "20m"}), found) == closes - (600 if closes < inf else 0)
    assert terminates_s(None) == inf


# Buying


def provided(world: World, count: int, *reservations: Reservation, until_s: float = 0.0) -> PlacementPlan | Refusal:
    snapshot = seen(world, *reservations)
    supply = build_capacity(world.fleet, snapshot)
    board = build_cluster_state(snapshot, (), pools=world.fleet.node_pools)
    need = FleetFlavors(world.fleet, supply.offerings, board).need(pod_set(count=count, gpu=8), ("h100",))
    return place_gang(board, supply, "uid-g", [replace(need, until_s=until_s)])


def bought(found: PlacementPlan | Refusal) -> list[tuple[str, int]]:
    assert isinstance(found, PlacementPlan), found
    return [
        (lot.offering.offer.reservation.id if lot.offering.offer.reservation else "", lot.count)
        for lot in found.purchases
    ]


@pytest.mark.parametrize(
    ("count", "reservations", "lots"),
    [
        (3, [reservation()], [("cr-a", 3)]),
        (5, [reservation()], [("cr-a", 4), ("", 1)]),
        (2, [reservation(available=0)], [("", 2)]),
        (4, [reservation("cr-a", 2), reservation("cr-b", 4)], [("cr-b", 4)]),
        (6, [reservation("cr-a", 2), reservation("cr-b", 4)], [("cr-b", 4), ("cr-a", 2)]),
        (4, [reservation("cr-a", 4, zone=B), reservation("cr-b", 2)], [("cr-a", 4)]),
        (1, [reservation("cr-a", kind="capacity-block", ends_s=NOW * 2), reservation("cr-b")], [("cr-b", 1)]),
        (1, [reservation("cr-a", interruptible=True), reservation("cr-b")], [("cr-b", 1)]),
        (
            1,
            [reservation("cr-a", interruptible=True), reservation("cr-b", kind="capacity-block", ends_s=NOW * 2)],
            [("cr-b", 1)],
        ),
        (1, [reservation("cr-a", 2), reservation("cr-b", 3)], [("cr-b", 1)]),
        (2, [reservation(kind="capacity-block", ends_s=NOW + 40 * 60)], [("", 2)]),
    ],
    ids=[
        "fits",
        "rest-on-demand",
        "full",
        "whole-first",
        "both",
        "better-zone",
        "no-end-first",
        "kept-first",
        "an-end-before-one-that-may-be-taken-back",
        "most-left-first",
        "closing",
    ],
)
def test_what_is_bought(count: int, reservations: list[Reservation], lots: list[tuple[str, int]]) -> None:
    assert bought(provided(World(fleet_of()), count, *reservations)) == lots


def test_of_reserved_types_the_cheaper_one_comes_first() -> None:
    """As dear ones are reserved too: their prices keep their order, tiny as they are."""
    world = World(fleet_of(instanceTypes=[P5.name, P5S.name]))
    listed = {o.instance_type.name: o.price_usd_h for o in world.catalog.offers if o.capacity_type == "on-demand"}
    cheaper, dearer = sorted((P5.name, P5S.name), key=lambda name: listed[name])
    held = reservation("cr-a", instance_type=dearer), reservation("cr-b", instance_type=cheaper)
    snapshot = seen(world, *held)
    supply, board = build_capacity(world.fleet, snapshot), build_cluster_state(snapshot, ())
    need = FleetFlavors(world.fleet, supply.offerings, board).need(pod_set(count=1, gpu=1), ("h100",))
    assert bought(place_gang(board, supply, "uid-g", [need])) == [("cr-b", 1)]


def test_the_order_of_capacity_types_is_the_pools() -> None:
    world = World(fleet_of(capacityTypes=["on-demand", "reserved"]))
    assert bought(provided(world, 2, reservation())) == [("", 2)]


def test_a_rest_that_cannot_be_completed_is_left() -> None:
    """Two reserved machines and a pool that may have no others: all or nothing."""
    world = World(fleet_of(capacityTypes=["reserved"]))
    found = provided(world, 3, reservation(total=2))
    assert isinstance(found, Refusal)
    assert found.reason is Reason.NO_CAPACITY
    assert "too few are left in p5.48xlarge:reserved:us-east-1a:cr-a" in found.message


@pytest.mark.parametrize(("hours", "lots"), [(2.0, [("cr-a", 1)]), (4.0, [("", 1)])])
def test_a_long_run_is_not_started_on_a_block(hours: float, lots: list[tuple[str, int]]) -> None:
    found = reservation(kind="capacity-block", ends_s=NOW + 4 * HOUR_S)
    assert bought(provided(World(fleet_of()), 1, found, until_s=NOW + hours * HOUR_S)) == lots


def test_a_long_run_waits_where_there_is_nothing_but_a_block() -> None:
    found = reservation(kind="capacity-block", ends_s=NOW + 4 * HOUR_S)
    refused = provided(World(fleet_of(capacityTypes=["reserved"])), 1, found, until_s=NOW + 5 * HOUR_S)
    assert isinstance(refused, Refusal)
    assert (refused.reason, "run past the end of" in refused.message) == (Reason.NO_CAPACITY, True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from((A, B))), max_size=4),
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.none() | st.integers(0, 6),
    st.sampled_from((["reserved"], ["reserved", "on-demand"], ["on-demand", "reserved"])),
)
def test_no_reservation_is_ever_oversold(
    sizes: list[tuple[int, str]], gangs: list[int], nodes: int | None, capacity_types: list[str]
) -> None:
    limits = {} if nodes is None else {"limits": {"nodes": nodes}}
    world = World(fleet_of(capacityTypes=capacity_types, **limits))
    held = [reservation(f"cr-{n}", total, zone=zone) for n, (total, zone) in enumerate(sizes)]
    snapshot = seen(world, *held)
    supply, board = build_capacity(world.fleet, snapshot), build_cluster_state(snapshot, ())
    flavors, taken = FleetFlavors(world.fleet, supply.offerings, board), {it.id: 0 for it in held}
    for number, count in enumerate(gangs):
        before = dict(supply.headroom["h100"].reserved.left)
        found = place_gang(board, supply, f"uid-{number}", [flavors.need(pod_set(count=count, gpu=8), ("h100",))])
        if isinstance(found, Refusal):
            assert supply.headroom["h100"].reserved.left == before
            continue
        assert sum(lot.count for lot in found.purchases) == count
        assert len({lot.offering.offer.zone for lot in found.purchases}) == 1
        for name, machines in bought(found):
            if name:
                taken[name] += machines
        for slot in [slot for slot in board.slots if slot.startswith("new/")]:
            board.rename(board.slots[slot], f"kept/{number}/{slot}")
    assert all(taken[it.id] <= it.total for it in held)


# Launching


@pytest.mark.parametrize(
    ("facts", "market"),
    [
        ({}, ""),
        ({"kind": "capacity-block", "ends_s": NOW * 2}, "capacity-block"),
        ({"interruptible": True}, "interruptible-capacity-reservation"),
    ],
)
def test_a_launch_names_its_reservation(facts: dict[str, Any], market: str) -> None:
    world, claim = World(fleet_of()), reserved_claim()
    request = launch_request(world.fleet, seen(world, reservation(**facts)), [claim])
    assert (request.pool.reservation, market_of(request), request.closed) == ("cr-a", market, False)
    assert request.labels[labels.CAPACITY_RESERVATION_ID] == "cr-a"


@pytest.mark.parametrize(("capacity_types", "closed"), [(["reserved", "on-demand"], True), (["on-demand"], False)])
def test_on_demand_machines_beside_reserved_ones_stay_out_of_open_reservations(
    capacity_types: list[str], *, closed: bool
) -> None:
    world = World(fleet_of(capacityTypes=capacity_types))
    request = launch_request(world.fleet, world.snapshot(), [world.machine("m")])
    assert (request.closed, request.pool.reservation, market_of(request)) == (closed, "", "")


# Living and leaving


def test_a_team_is_charged_the_list_price() -> None:
    world = World(fleet_of())
    world.machine("m")
    world.claims["m"] = replace(world.claims["m"], price_usd_h=0.0, list_usd_h=36.0)
    world.runs(gang("g", count=1), ("m", 1))
    seen = world.snapshot()
    used = uses(world.fleet, seen, CostTerms(payer_of))
    assert allocate(seen.index, used, 3600.0).total == 36_000_000


@pytest.mark.parametrize(
    ("facts", "select", "why"),
    [
        ({}, [{"id": "cr-a"}], ""),
        ({}, [{"id": "cr-b"}], "no longer selects its capacity reservation cr-a"),
        ({"state": "expired"}, [{"id": "cr-a"}], ""),
    ],
)
def test_drift(facts: dict[str, Any], select: list[dict[str, str]], why: str) -> None:
    world = World(fleet_of(reservations={"select": select}))
    assert why in drift_of(world.fleet, seen(world, reservation(**facts)), reserved_claim()).words
    assert drift_of(world.fleet, world.snapshot(), reserved_claim()).words == "", "one that is not known is no drift"


@pytest.mark.parametrize(
    ("instance", "changes"),
    [
        ({"reservation": "", "capacity_type": "on-demand"}, True),
        ({"reservation": "cr-a"}, False),
        ({"reservation": "", "capacity_type": "on-demand", "state": "terminated"}, False),
        (None, False),
    ],
    ids=["on-demand-now", "still-reserved", "gone", "unlisted"],
)
def test_a_machine_outlives_its_reservation(instance: dict[str, Any] | None, *, changes: bool) -> None:
    world, claim = World(fleet_of()), reserved_claim()
    if instance is not None:
        world.instances[claim.instance_id] = instance_of(claim, **instance)
    plain = converted_to_on_demand(world.snapshot(), claim)
    assert (plain is not None) is changes
    if plain is not None:
        assert plain.capacity_pool == CapacityPool("on-demand", P5.name, A)
        assert (plain.price_usd_h, plain.list_usd_h) == (P5_USD_H, None)


def test_a_claim_says_what_was_bought_even_when_its_reservation_is_forgotten() -> None:
    world, claim = World(fleet_of()), reserved_claim()
    assert offer_of(claim, seen(world, reservation())).reservation == reservation()
    forgotten = offer_of(claim, world.snapshot())
    assert forgotten.pool_key == claim.capacity_pool
    assert forgotten.charged_usd_h == P5_USD_H


def closing_world(minutes_left: float, **spec: Any) -> tuple[World, Snapshot]:
    """A machine of a block that ends in so many minutes, with a gang on it."""
    world = World(fleet_of(**spec))
    world.machine("m")
    world.claims["m"] = replace(reserved_claim(), name="m", node=world.claims["m"].node)
    world.instances[world.claims["m"].instance_id] = instance_of(world.claims["m"])
    world.runs(gang("g", count=1), ("m", 1))
    return world, seen(world, reservation(kind="capacity-block", ends_s=NOW + minutes_left * 60))


@pytest.mark.parametrize(
    ("minutes_left", "replaced", "told"),
    [(45, False, False), (40, True, False), (36, True, False), (35, True, True), (31, True, True)],
)
def test_a_block_ends_in_two_steps(minutes_left: float, *, replaced: bool, told: bool) -> None:
    """From 40 minutes before the end replacements are bought, from 35 on the gang goes whatever happens."""
    world, snapshot = closing_world(minutes_left)
    opened = [action for action in disrupt.decide(world.fleet, snapshot) if isinstance(action, OpenClaims)]
    assert bool(opened) is replaced
    forced = interruption.decide(world.fleet, snapshot)
    assert bool(forced) is told
    for action in forced:
        assert isinstance(action, SaveClaim)
        assert action.claim.disruption is not None
        assert action.claim.disruption.reason is Reason.BLOCK_ENDS
        assert action.claim.disruption.deadline_s == NOW + (minutes_left - 30) * 60


def test_the_pool_says_how_long_before() -> None:
    world, snapshot = closing_world(50, reservations={"leaveBefore": "40m"})
    assert interruption.decide(world.fleet, snapshot)
