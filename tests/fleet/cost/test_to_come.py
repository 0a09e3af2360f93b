"""What the rest of a month comes to: one sum, by team for the page and as records for statements."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.cost.allocation import bill_to_come
from fleet.cost.machine_use import IDLE, RESERVED, Commitment, MachineUse
from fleet.cost.open_hours import MeterState
from fleet.cost.records import DAY_S, HOUR_S, MachineSpan, Segment
from fleet.cost.uses import CostTerms, uses
from fleet.quota.queue_binding import payer_of
from fleet.snapshot import CapacityPool, Reservation
from model.index import Index
from tests.fleet.cost.test_records import H0, held, use
from tests.support.fleets import NOW, P5, A, FleetBuilder
from tests.support.world import World

END_S = H0 + 10 * HOUR_S
BLOCK = CapacityPool("reserved", P5.name, A, "cr-1")


def reserved(machine: str = "i-0", **more: Any) -> MachineUse:
    return replace(use(held("g", 1.0), machine=machine, **more), where=BLOCK)


def state(*machines: MachineUse, ended: bool = False, fees: tuple[Commitment, ...] = ()) -> MeterState:
    spans = {it.machine: MachineSpan((Segment(H0 - 60, it),), H0 - 1 if ended else None) for it in machines}
    return MeterState("c", spans, H0, H0, commitments=fees)


@pytest.mark.parametrize(
    ("machine", "parts"),
    [
        pytest.param(use(held("g", 0.25)), {"t": 90.0, IDLE: 270.0}, id="runs on"),
        pytest.param(reserved(), {"t": 360.0}, id="in a reservation without an end"),
        pytest.param(reserved(until_s=H0 + 4 * HOUR_S), {"t": 144.0}, id="it ends, and all with it"),
        pytest.param(reserved(until_s=H0 + 4 * HOUR_S, then_usd_h=50.0), {"t": 444.0}, id="and then on demand"),
        pytest.param(reserved(until_s=END_S + 1, then_usd_h=50.0), {"t": 360.0}, id="it ends in another month"),
        pytest.param(reserved(until_s=H0 - 5, then_usd_h=50.0), {"t": 500.0}, id="it has ended a moment ago"),
        pytest.param(reserved(until_s=H0 - 5), {}, id="has ended, and nothing comes"),
    ],
)
def test_all_that_runs_runs_on_and_what_is_reserved_until_its_reservation_ends(
    machine: MachineUse, parts: dict[str, float]
) -> None:
    bill = bill_to_come(Index(), {machine.machine: machine}, H0, END_S)
    assert {team: micro / 1e6 for team, micro in bill.by_team.items()} == parts
    told: Counter[str] = Counter()
    for it in state(machine).to_come(END_S):
        told[it.team or it.subject] += it.cost_micro_usd
        assert it.capacity_type == "on-demand" if it.usd_h == 50.0 else it.usd_h == 36.0
    assert {team: micro / 1e6 for team, micro in told.items()} == parts


def test_what_has_ended_does_not_come_again() -> None:
    assert state(use(), ended=True).to_come(END_S) == []


def test_a_reservation_that_is_paid_for_costs_its_fee_until_its_end_used_or_not() -> None:
    fee = Commitment("cr-1", P5.name, A, 2, H0 - HOUR_S, H0 + 4 * HOUR_S, 360.0, 0.0, "invoice")
    found = state(reserved(until_s=fee.end_s, then_usd_h=50.0), fees=(fee,)).to_come(END_S)
    told = [(it.subject, it.reservation, it.cost_micro_usd / 1e6) for it in found]
    assert told == [("g", "cr-1", 144.0), ("g", "", 300.0), (RESERVED, "cr-1", 144.0)]


@pytest.mark.parametrize("ends_h", [None, 3.0, 30.0, 90.0])
def test_days_told_apart_are_the_whole(ends_h: float | None) -> None:
    seen = state(use(held("g", 0.5)), reserved("i-1", until_s=H0 + (ends_h or 0) * HOUR_S, then_usd_h=7.0))
    whole, parted = (seen.to_come(H0 + 4 * DAY_S, by_day=by_day) for by_day in (False, True))
    assert sum(it.cost_micro_usd for it in parted) == pytest.approx(sum(it.cost_micro_usd for it in whole), abs=4)
    today = sum(it.cost_micro_usd for it in parted if it.hour_s == H0)
    assert today == pytest.approx(sum(it.cost_micro_usd for it in seen.to_come((H0 // DAY_S + 1) * DAY_S)))
    assert {it.hour_s for it in parted} == {H0, float("inf")}


def fleet(*capacity_types: str) -> Any:
    return FleetBuilder().pool(capacityTypes=list(capacity_types)).team("t").queue("q").build()


@pytest.mark.parametrize(
    ("ends", "capacity_types", "fees", "told"),
    [
        pytest.param({}, ["reserved", "on-demand"], (), (0.0, 0.0), id="no end"),
        pytest.param({"ends_s": NOW + 500}, ["reserved", "on-demand"], (), (NOW + 500, 98.0), id="runs on, on demand"),
        pytest.param({"ends_s": NOW + 500}, ["reserved"], (), (NOW + 500, 0.0), id="its pool buys none so"),
        pytest.param(
            {"ends_s": NOW + 5000, "terminates_s": NOW + 3200, "kind": "capacity-block"},
            ["reserved"],
            (),
            (NOW + 3200, 0.0),
            id="a block takes its machines before its end",
        ),
        pytest.param(
            {},
            ["reserved", "on-demand"],
            (Commitment("cr-1", P5.name, A, 1, NOW - 100, NOW + 900, 1.0, 0.0, ""),),
            (NOW + 900, 98.0),
            id="the invoice says until when",
        ),
    ],
)
def test_when_a_machine_leaves_its_reservation_and_for_what(
    ends: dict[str, Any], capacity_types: list[str], fees: tuple[Commitment, ...], told: tuple[float, float]
) -> None:
    world = World(fleet("on-demand"))
    world.machine("m0")
    world.fleet = fleet(*capacity_types)
    world.claims["m0"] = replace(world.claims["m0"], capacity_pool=BLOCK, price_usd_h=0.0, list_usd_h=98.0)
    seen = replace(world.snapshot(), reservations={"cr-1": Reservation("cr-1", P5.name, A, 2, 1, **ends)})
    (found,) = uses(world.fleet, seen, CostTerms(payer_of, commitments=fees)).values()
    assert (found.until_s, found.then_usd_h) == told


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_page_and_statement_foresee_the_same(data: st.DataObject) -> None:
    machines = []
    for n in range(data.draw(st.integers(1, 6))):
        holdings = [
            held(f"g{k}", data.draw(st.sampled_from([0.125, 0.3, 0.5])), team=data.draw(st.sampled_from("ab")))
            for k in range(data.draw(st.integers(0, 2)))
        ]
        ends_s = data.draw(st.sampled_from([0.0, H0 - 10, H0 + 1234, H0 + 20 * HOUR_S]))
        more = {"until_s": ends_s, "then_usd_h": data.draw(st.sampled_from([0.0, 41.7]))} if ends_s else {}
        machines.append(
            replace(use(*holdings, machine=f"i-{n}", usd_h=data.draw(st.sampled_from([1.3, 36.0])), **more))
        )
    bill = bill_to_come(Index(), {it.machine: it for it in machines}, H0, END_S)
    told: Counter[str] = Counter()
    for it in state(*machines).to_come(END_S):
        told[it.team or it.subject] += it.cost_micro_usd
    assert told.total() == bill.total
    for team in {*told, *bill.by_team}:
        assert told[team] == pytest.approx(bill.by_team.get(team, 0), abs=4 * len(machines))
