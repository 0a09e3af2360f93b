"""Capacity reservations and blocks: what any cloud must say and do about them, without a wire and on the EC2 API."""

from dataclasses import replace

import pytest

from fleet.snapshot import CapacityPool, LaunchError, LaunchOutcome, LaunchRequest, Reservation
from model.kinds import ReservationKind
from providers.sim.ec2 import FakeAws, HeldReservation
from providers.sim.ec2.account import Ec2Error
from tests.providers.sim.ec2.api import Api
from tests.providers.sim.ec2.rigs import NOW_S, CloudRig, launch_request, pool

TYPE, ZONE = "p5.48xlarge", "us-east-1a"
HOUR_S = 3600.0


def reserve(rig: CloudRig, name: str = "cr-a", total: int = 4, **more: object) -> HeldReservation:
    held = HeldReservation(name, TYPE, ZONE, total, **more)  # type: ignore[arg-type]
    rig.account.reserve(held)
    return held


def into(
    held: HeldReservation,
    token: str = "a",
    count: int = 1,
    kind: ReservationKind = "default",
    *,
    interruptible: bool = False,
) -> LaunchRequest:
    plain = launch_request(token, count, held.pool)
    return replace(plain, reservation_kind=kind, interruptible=interruptible)


def listed(rig: CloudRig) -> dict[str, Reservation]:
    return {found.id: found for found in rig.cloud.reservations()}


def codes(outcome: LaunchOutcome) -> list[str]:
    return [failure.code for failure in outcome.failures]


def test_what_is_listed(rig: CloudRig) -> None:
    reserve(rig, tags={"team": "llm"}, owner="123456789012")
    reserve(rig, "cr-b", 2, kind="capacity-block", match="open", ends_s=rig.clock.now() + HOUR_S, interruptible=False)
    first, second = rig.cloud.reservations()
    assert (first.id, first.instance_type, first.zone, first.total, first.available) == ("cr-a", TYPE, ZONE, 4, 4)
    assert (first.kind, first.match, first.owner, first.tags) == (
        "default",
        "targeted",
        "123456789012",
        {"team": "llm"},
    )
    assert (first.active, first.terminates_s, first.interruptible) == (True, float("inf"), False)
    assert (second.kind, second.match, second.terminates_s) == ("capacity-block", "open", rig.clock.now() + HOUR_S / 2)
    assert second.owner == rig.account.account_id


def test_a_launch_takes_from_the_reservation_it_names(rig: CloudRig) -> None:
    held = reserve(rig)
    other = reserve(rig, "cr-b")
    outcome = rig.cloud.launch(into(held, count=3))
    assert (len(outcome.instances), outcome.failures) == (3, ())
    assert {found.reservation for found in rig.cloud.instances()} == {"cr-a"}
    assert {found.capacity_type for found in rig.cloud.instances()} == {"reserved"}
    assert {name: found.available for name, found in listed(rig).items()} == {"cr-a": 1, other.id: 4}


def test_more_than_is_left_is_none_and_a_shortage_of_that_reservation(rig: CloudRig) -> None:
    held = reserve(rig)
    outcome = rig.cloud.launch(into(held, count=5))
    assert (outcome.instances, codes(outcome)) == ((), ["ReservationCapacityExceeded"])
    assert outcome.failures[0].error is LaunchError.SHORTAGE
    assert listed(rig)["cr-a"].available == 4


def test_a_machine_given_back_is_there_for_the_next(rig: CloudRig) -> None:
    held = reserve(rig, total=1)
    first = rig.cloud.launch(into(held))
    rig.wait(60)
    rig.cloud.terminate(first.instances)
    rig.wait(60)
    assert listed(rig)["cr-a"].available == 1
    assert rig.cloud.launch(into(held, "b")).instances


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        (CapacityPool("reserved", TYPE, ZONE, "cr-none"), "default"),
        (CapacityPool("reserved", "g6.xlarge", ZONE, "cr-a"), "default"),
        (CapacityPool("reserved", TYPE, "us-east-1b", "cr-a"), "default"),
        (CapacityPool("reserved", TYPE, ZONE, "cr-a"), "capacity-block"),
    ],
    ids=["unknown", "type", "zone", "no-block"],
)
def test_a_launch_that_does_not_fit_the_reservation_is_a_mistake(
    rig: CloudRig, where: CapacityPool, kind: ReservationKind
) -> None:
    reserve(rig)
    outcome = rig.cloud.launch(replace(launch_request("a", 1, where), reservation_kind=kind))
    assert outcome.instances == ()
    assert [failure.error for failure in outcome.failures] == [LaunchError.MISCONFIGURED]
    assert rig.account.ledger() == []


@pytest.mark.parametrize(
    ("match", "closed", "reserved"), [("open", False, 4), ("open", True, 0), ("targeted", False, 0)]
)
def test_on_demand_machines_fill_an_open_reservation_first(
    rig: CloudRig, match: str, closed: bool, reserved: int
) -> None:
    reserve(rig, match=match)
    outcome = rig.cloud.launch(replace(launch_request("a", 6, pool("on-demand", TYPE, ZONE)), closed=closed))
    assert len(outcome.instances) == 6
    where = sorted(found.reservation for found in rig.cloud.instances())
    assert where == [""] * (6 - reserved) + ["cr-a"] * reserved
    assert listed(rig)["cr-a"].available == 4 - reserved


def test_an_open_reservation_adds_to_what_the_market_has(rig: CloudRig) -> None:
    reserve(rig, match="open")
    rig.market.set_capacity(pool("on-demand", TYPE, ZONE), 2)
    assert rig.cloud.launch(launch_request("a", 7, pool("on-demand", TYPE, ZONE))).instances == ()
    assert listed(rig)["cr-a"].available == 4
    assert len(rig.cloud.launch(launch_request("b", 6, pool("on-demand", TYPE, ZONE))).instances) == 6


def test_a_block_wants_its_market_and_is_cleared_half_an_hour_before_its_end(rig: CloudRig) -> None:
    block = reserve(rig, kind="capacity-block", ends_s=rig.clock.now() + 2 * HOUR_S)
    assert codes(rig.cloud.launch(into(block, "wrong"))) == ["InvalidParameterCombination"]
    outcome = rig.cloud.launch(into(block, "right", 4, "capacity-block"))
    assert len(outcome.instances) == 4
    rig.wait(1.5 * HOUR_S - 1)
    assert {found.state for found in rig.cloud.instances()} == {"running"}
    rig.wait(1)
    assert {found.state for found in rig.cloud.instances()} == {"shutting-down"}
    rig.wait(0.5 * HOUR_S)
    assert listed(rig)["cr-a"].state == "expired"
    assert codes(rig.cloud.launch(into(block, "late", 1, "capacity-block"))) == [
        "InvalidCapacityReservationId.NotFound"
    ]


def test_a_block_brings_what_it_has(rig: CloudRig) -> None:
    """EC2 knows no minimum for blocks; the agent gives back what is fewer than it asked for."""
    if rig.kind != "ec2":
        pytest.skip("without a wire all launches are all or nothing")
    block = reserve(rig, total=2, kind="capacity-block", ends_s=rig.clock.now() + 2 * HOUR_S)
    outcome = rig.cloud.launch(into(block, "a", 3, "capacity-block"))
    assert (len(outcome.instances), codes(outcome)) == (2, ["ReservationCapacityExceeded"])


def test_an_interruptible_reservation_wants_its_market_and_warns(rig: CloudRig) -> None:
    held = reserve(rig, interruptible=True)
    outcome = rig.cloud.launch(into(held, interruptible=True))
    (instance,) = rig.cloud.instances()
    assert (instance.id,) == outcome.instances
    assert (instance.capacity_type, instance.reservation) == ("reserved", "cr-a")
    rig.wait(60)
    rig.account.interrupt(instance.id)
    assert [notice.kind for notice in rig.drain()] == ["capacity_reservation_interrupted"]


@pytest.mark.parametrize("how", ["expires", "cancelled"])
def test_machines_outlive_a_reservation_as_on_demand_ones(rig: CloudRig, how: str) -> None:
    held = reserve(rig, ends_s=rig.clock.now() + HOUR_S if how == "expires" else None)
    rig.cloud.launch(into(held, count=2))
    rig.wait(HOUR_S - 1)
    assert {found.capacity_type for found in rig.cloud.instances()} == {"reserved"}
    if how == "cancelled":
        rig.account.cancel_reservation("cr-a")
    rig.wait(1)
    assert {(found.capacity_type, found.reservation, found.state) for found in rig.cloud.instances()} == {
        ("on-demand", "", "running")
    }
    assert (listed(rig)["cr-a"].active, listed(rig)["cr-a"].available) == (False, 0)
    assert rig.market.in_use(pool("on-demand", TYPE, ZONE)) == 2
    with pytest.raises(Ec2Error):
        rig.account.cancel_reservation("cr-none")


def test_pages_filters_and_ids(fake: FakeAws) -> None:
    api = Api(fake)
    for number in range(5):
        api.fake.account.reserve(HeldReservation(f"cr-{number}", TYPE, ZONE, 1))
    api.fake.account.cancel_reservation("cr-3")
    pages = api.ec2.get_paginator("describe_capacity_reservations").paginate(PaginationConfig={"PageSize": 2})
    rows = [[row["CapacityReservationId"] for row in page["CapacityReservations"]] for page in pages]
    assert rows == [["cr-0", "cr-1"], ["cr-2", "cr-3"], ["cr-4"]]
    active = api.ec2.describe_capacity_reservations(Filters=[{"Name": "state", "Values": ["active"]}])
    assert len(active["CapacityReservations"]) == 4
    one = api.ec2.describe_capacity_reservations(CapacityReservationIds=["cr-3"])["CapacityReservations"]
    assert [row["State"] for row in one] == ["cancelled"]


def test_the_fleet_has_to_say_what_the_template_does(fake: FakeAws) -> None:
    api = Api(fake)
    api.fake.account.reserve(HeldReservation("cr-b", TYPE, ZONE, 1, kind="capacity-block", ends_s=NOW_S * 2))
    target = {"CapacityReservationTarget": {"CapacityReservationId": "cr-b"}}
    market = {"MarketType": "capacity-block"}
    api.template("muster/block", CapacityReservationSpecification=target, InstanceMarketOptions=market)
    wrong = api.fleet(1, api.override(TYPE), template="muster/block")
    assert [error["ErrorCode"] for error in wrong["Errors"]] == ["InvalidParameterCombination"]
    right = api.fleet(1, api.override(TYPE), template="muster/block", capacity_type="capacity-block")
    assert len(right["Instances"][0]["InstanceIds"]) == 1
    assert api.described()[0]["InstanceLifecycle"] == "capacity-block"
