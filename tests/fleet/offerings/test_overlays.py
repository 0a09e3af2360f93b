"""What overlays make of the offers of a pool, and which of them hold at all."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.offerings.offerings import Offering, Offerings
from fleet.offerings.overlays import InvalidPrice, adjusted_usd_h, applied_overlays, price_usd_h
from fleet.offerings.reservations import ReservationSelector
from fleet.snapshot import Reservation
from model import labels
from model.fleet import Fleet
from model.index import Index
from model.kinds import NodeOverlay
from tests.support.fleets import A, B, FleetBuilder, catalog

CATALOG = catalog()


def term(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


H100 = term(labels.INSTANCE_FAMILY, "p5")
ON_DEMAND = term(labels.CAPACITY_TYPE, "on-demand")


def overlay(name: str, *requirements: dict[str, Any], **spec: Any) -> NodeOverlay:
    body = {"apiVersion": "muster.dev/v1alpha1", "metadata": {"name": name}}
    return NodeOverlay.model_validate({**body, "spec": {"requirements": list(requirements), **spec}})


def fleet_of(*overlays: NodeOverlay) -> Fleet:
    both = {"capacityTypes": ["spot", "on-demand"]}
    built = FleetBuilder().pool("h100", **both).pool("other", template={"labels": {"team": "x"}}, **both)
    return replace(built.team().queue().build(), node_overlays={each.name: each for each in overlays})


def offerings(fleet: Fleet, pool: str = "h100") -> tuple[Offering, ...]:
    return Offerings(fleet, CATALOG).of(fleet.node_pools[pool])


def prices(fleet: Fleet, pool: str = "h100") -> dict[tuple[str, str, str], float]:
    found = (offering.offer for offering in offerings(fleet, pool))
    return {(each.instance_type.name, each.zone, each.capacity_type): each.price_usd_h for each in found}


LISTED = prices(fleet_of())
TWO = {"a/b": 2}
FIRST = f"p5.48xlarge:on-demand:{A}"
P5_SPOT, P5_BOUGHT = ("p5.48xlarge", A, "spot"), ("p5.48xlarge", A, "on-demand")


@pytest.mark.parametrize(
    ("said", "spot", "bought"),
    [
        ([], 40.0, 98.0),
        ([overlay("a", H100, price="50")], 50.0, 50.0),
        ([overlay("a", H100, priceAdjustment="+1.5")], 41.5, 99.5),
        ([overlay("a", H100, priceAdjustment="-50%")], 20.0, 49.0),
        ([overlay("a", H100, priceAdjustment="-60")], 0.0, 38.0),
        ([overlay("a", H100, ON_DEMAND, price="50")], 40.0, 50.0),
        ([overlay("a", H100, term(labels.ZONE, B), price="50")], 40.0, 98.0),
        ([overlay("a", term(labels.NODE_POOL, "other"), price="50")], 40.0, 98.0),
        ([overlay("a", term("team", "x"), price="50")], 40.0, 98.0),
        ([overlay("a", term("team", "x", operator="NotIn"), price="50")], 50.0, 50.0),
        ([overlay("a", term(labels.INSTANCE_GPU_COUNT, "4", operator="Gt"), price="50")], 50.0, 50.0),
        ([overlay("a", H100, price="50", weight=1), overlay("b", H100, price="60", weight=2)], 60.0, 60.0),
        ([overlay("a", H100, price="50", weight=1), overlay("b", ON_DEMAND, price="60", weight=2)], 50.0, 60.0),
    ],
)
def test_prices(said: list[NodeOverlay], spot: float, bought: float) -> None:
    found = prices(fleet_of(*said))
    assert (found[P5_SPOT], found[P5_BOUGHT]) == (spot, bought)


def test_the_order_of_purchase_follows() -> None:
    assert offerings(fleet_of())[0].offer.capacity_type == "spot"
    dear = fleet_of(overlay("a", H100, term(labels.CAPACITY_TYPE, "spot"), price="500"))
    assert offerings(dear)[0].offer.capacity_type == "on-demand"
    assert prices(dear, "other")[P5_SPOT] == 500.0


def test_resources() -> None:
    said = fleet_of(
        overlay("a", H100, capacity={"smarter-devices/fuse": 20, "a/b": 1}, weight=1),
        overlay("b", term(labels.NODE_POOL, "other"), capacity={"smarter-devices/fuse": 3}, weight=2),
    )
    for pool, fuse in (("h100", 20), ("other", 3)):
        [machine] = {
            id(each): each for each in (offering.offer.instance_type for offering in offerings(said, pool))
        }.values()
        assert machine.capacity["smarter-devices/fuse"] == machine.allocatable["smarter-devices/fuse"] == fuse
        assert all(offering.allocatable["smarter-devices/fuse"] == fuse for offering in offerings(said, pool))
    assert all("a/b" in offering.allocatable for offering in offerings(said))
    assert "a/b" not in CATALOG.types["p5.48xlarge"].capacity


def test_a_resource_of_some_offers_is_found_on_their_machines_alone() -> None:
    said = fleet_of(overlay("a", H100, ON_DEMAND, term(labels.ZONE, A), capacity={"a/b": 1}))
    found = {(it.offer.zone, it.offer.capacity_type): it.allocatable.get("a/b", 0) for it in offerings(said)}
    assert found.pop((A, "on-demand")) == 1
    assert not any(found.values())


@pytest.mark.parametrize(
    ("terms", "amount"), [([], 1), ([term(labels.CAPACITY_TYPE, "reserved")], 1), ([ON_DEMAND], 0)]
)
def test_resources_of_reserved_machines(terms: list[dict[str, Any]], amount: int) -> None:
    built = FleetBuilder().pool("h100", capacityTypes=["reserved"]).team().queue().build()
    said = overlay("a", H100, *terms, capacity={"a/b": 1}, price="50")
    fleet = replace(built, node_overlays={"a": said})
    held = ReservationSelector("", {"cr-a": Reservation("cr-a", "p5.48xlarge", A, 2, 2, tags={labels.CLUSTER: ""})})
    [found] = Offerings(fleet, CATALOG, reserved=held).of(fleet.node_pools["h100"])
    assert found.allocatable.get("a/b", 0) == amount
    assert found.offer.price_usd_h < 1e-4  # the price of a reserved machine is never an overlay's


@pytest.mark.parametrize(
    ("said", "holds_not"),
    [
        ([overlay("a", H100, price="1"), overlay("b", H100, price="2")], [("a", "b", FIRST)]),
        ([overlay("a", H100, price="1"), overlay("b", H100, price="1")], [("a", "b", FIRST)]),
        ([overlay("a", H100, price="1"), overlay("b", H100, price="2", weight=1)], []),
        ([overlay("a", H100, price="1"), overlay("b", term(labels.INSTANCE_FAMILY, "g6"), price="2")], []),
        ([overlay("a", H100, price="1"), overlay("b", H100, capacity={"a/b": 1})], []),
        ([overlay("a", H100, capacity=TWO), overlay("b", ON_DEMAND, capacity=TWO)], [("a", "b", "a/b of p5.48xlarge")]),
        ([overlay("a", term(labels.ZONE, A), capacity=TWO), overlay("b", term(labels.ZONE, B), capacity=TWO)], []),
        ([overlay("a", H100, capacity={"a/c": 2}), overlay("b", H100, capacity={"a/b": 1})], []),
    ],
)  # fmt: skip
def test_conflicts(said: list[NodeOverlay], holds_not: list[tuple[str, str, str]]) -> None:
    fleet = fleet_of(*said)
    assert [tuple(each) for each in applied_overlays(Index(), fleet, CATALOG).conflicts] == holds_not


def test_what_contradicts_holds_nowhere() -> None:
    one = overlay("a", H100, term(labels.NODE_POOL, "h100"), price="1")
    fleet = fleet_of(one, overlay("b", H100, term(labels.ZONE, A), price="2"))
    assert prices(fleet)[P5_SPOT] == 2.0
    assert prices(fleet)["p5.48xlarge", B, "spot"] == LISTED["p5.48xlarge", B, "spot"]


def test_without_overlays_offers_are_the_catalogues_own() -> None:
    assert {id(offering.offer) for offering in offerings(fleet_of())} <= {id(offer) for offer in CATALOG.offers}


SAID = st.builds(
    overlay,
    st.sampled_from("abcdef"),
    st.sampled_from([H100, ON_DEMAND, term(labels.ZONE, A), term(labels.NODE_POOL, "other")]),
    priceAdjustment=st.sampled_from(["+1", "-1", "+10%", "-10%"]),
    weight=st.integers(0, 2),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(SAID, max_size=5, unique_by=lambda each: each.name), st.randoms())
def test_the_order_of_declaration_does_not_matter(said: list[NodeOverlay], random: Any) -> None:
    shuffled = list(said)
    random.shuffle(shuffled)
    first, second = fleet_of(*said), fleet_of(*shuffled)
    assert prices(first) == prices(second)
    assert applied_overlays(Index(), first, CATALOG) == applied_overlays(Index(), second, CATALOG)
    assert all(price >= 0 for price in prices(first).values())


@pytest.mark.parametrize(
    ("price", "adjustment", "expected"),
    [
        (10, "+1.5", 11.5),
        (10, "-1.5", 8.5),
        (10, "+10%", 11),
        (10, "-10%", 9),
        (10, "-11", 0),
        (10, "-300%", 0),
        (0.1, "+0.2", 0.3),
        (10, "+.5", 10.5),
    ],
)
def test_adjusted(price: float, adjustment: str, expected: float) -> None:
    assert adjusted_usd_h(price, adjustment) == expected


@pytest.mark.parametrize("adjustment", ["1", "10%", "", "+", "-%", "+1e3", "+-1", " +1"])
def test_no_adjustment(adjustment: str) -> None:
    with pytest.raises(InvalidPrice):
        adjusted_usd_h(1.0, adjustment)


def test_price() -> None:
    assert [price_usd_h(text) for text in ("0", "42", "3.14")] == [0, 42, 3.14]


@pytest.mark.parametrize("text", ["", "+1", "-1", ".5", "5.", "1e3", "1,5", "1%", "1 ", "nan", "٣"])
def test_no_price(text: str) -> None:
    with pytest.raises(InvalidPrice):
        price_usd_h(text)
