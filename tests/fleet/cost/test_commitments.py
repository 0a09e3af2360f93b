"""Fees of reservations: machines that run in them take their part, and the records of the term are the fees."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.cost.commitments import with_fees
from fleet.cost.machine_use import RESERVED, Commitment, MachineUse
from fleet.cost.meter import Meter
from fleet.cost.records import HOUR_S, LedgerRecord
from fleet.cost.uses import CostTerms, uses
from fleet.snapshot import CapacityPool, Snapshot
from tests.fleet.cost.test_records import H0, held, use
from tests.support.fleets import A, small_fleet
from tests.support.world import World

BLOCK = Commitment("cr-1", "p5.48xlarge", A, 4, H0 + 600, H0 + 600 + 10 * HOUR_S, 1440.0, 0.0, "invoice 7")
"""Four machines for ten hours at 36 USD an hour each."""


def in_block(machine: str, it: Commitment = BLOCK, share: float = 1.0) -> MachineUse:
    where = CapacityPool("reserved", "p5.48xlarge", A, it.reservation)
    made = use(held("g", share), machine=machine, usd_h=it.machine_usd_h)
    return replace(made, where=where, launched_s=it.begin_s)


def metered(it: Commitment, looks: list[tuple[float, int]], until_s: float) -> list[LedgerRecord]:
    """What a meter cuts that sees so many machines from each instant on (epoch seconds)."""
    meter, records = Meter("c", (it,)), []
    for now_s, machines in [*looks, (until_s, 0)]:
        used = {f"i-{n}": in_block(f"i-{n}", it) for n in range(machines)}
        meter.look(Snapshot(now_s), used)
        while (hour_s := meter.due(now_s)) is not None:
            records += meter.state().records(hour_s)
            meter.done(hour_s)
    return records


def usd(records: list[LedgerRecord]) -> dict[str, float]:
    found: dict[str, float] = {}
    for it in records:
        found[it.subject] = found.get(it.subject, 0.0) + it.cost_micro_usd / 1e6
    return found


def test_what_no_machine_takes_is_told_and_all_is_the_fee() -> None:
    records = metered(BLOCK, [(H0 + 600 + n * 60, 3) for n in range(5 * 60)], H0 + 12 * HOUR_S)
    found = usd(records)
    assert sum(it.cost_micro_usd for it in records) == 1440 * 10**6
    assert found["g"] == pytest.approx(3 * 36.0 * 5, rel=0.05)
    assert found[RESERVED] == pytest.approx(1440 - found["g"] - found.get("(unobserved)", 0.0), rel=1e-6)
    assert {(it.machine, it.price_source, it.capacity_type) for it in records if it.subject == RESERVED} == {
        ("cr-1", "invoice 7", "reserved")
    }


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5),
    st.floats(0, 1e6).map(lambda it: round(it, 2)),
    st.floats(0.0, 100.0),
    st.floats(0, 3 * HOUR_S),
    st.floats(60, 20 * HOUR_S),
    st.lists(st.tuples(st.floats(1, 3 * HOUR_S), st.integers(0, 8)), min_size=1, max_size=12),
)
def test_the_records_of_a_term_are_what_was_paid(
    machines: int, upfront: float, usd_h: float, late_s: float, lasts_s: float, steps: list[tuple[float, int]]
) -> None:
    begin_s = H0 + late_s
    it = Commitment("cr-1", "p5.48xlarge", A, machines, begin_s, begin_s + lasts_s, upfront, usd_h, "contract")
    now_s, looks = H0, [(H0, 0)]
    for step_s, count in steps:
        now_s += step_s
        looks.append((now_s, count if begin_s <= now_s < it.end_s else 0))
    records = metered(it, looks, max(now_s, it.end_s) + 2 * HOUR_S)
    inside = [each for each in records if begin_s // HOUR_S * HOUR_S <= each.hour_s < it.end_s]
    paid = 1e6 * (upfront + usd_h * machines * lasts_s / 3600)
    assert sum(each.cost_micro_usd for each in inside) == pytest.approx(paid, abs=1, rel=0)
    assert all(each.cost_micro_usd >= 0 for each in records)


def test_more_machines_than_were_paid_for_share_the_fee() -> None:
    own = [
        replace(record, reservation="cr-1", cost_micro_usd=36 * 10**6, machine=f"i-{n}", hour_s=H0 + HOUR_S)
        for n in range(5)
        for record in metered(BLOCK, [(H0 + 600, 1)], H0 + 2 * HOUR_S)[:1]
    ]
    found = with_fees("c", own, (BLOCK,), H0 + HOUR_S, H0 + 2 * HOUR_S)
    assert [it.cost_micro_usd for it in found] == [28_800_000] * 5


def test_machines_cost_what_the_commitment_says_before_any_rate() -> None:
    world = World(small_fleet())
    world.machine("m0")
    claim = world.claims["m0"]
    where = CapacityPool("reserved", claim.capacity_pool.instance_type, claim.capacity_pool.zone, "cr-1")
    world.claims["m0"] = replace(claim, capacity_pool=where)
    terms = CostTerms(lambda *_: "t", commitments=(BLOCK,))
    found = uses(world.fleet, world.snapshot(), terms)[claim.instance_id]
    assert (found.usd_h, found.priced.source) == (36.0, "invoice 7")


def test_hours_that_are_open_have_the_fee_so_far() -> None:
    meter = Meter("c", (BLOCK,))
    meter.look(Snapshot(H0 + 600), {})
    meter.look(Snapshot(H0 + 600 + 1800), {})
    (only,) = meter.state().so_far()
    assert (only.subject, only.cost_micro_usd) == (RESERVED, 72_000_000)
