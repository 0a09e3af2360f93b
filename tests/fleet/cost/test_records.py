"""Hours of machines cut into records, and the meter that watches them through silences, crashes and two agents."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.cost.machine_use import IDLE, NOT_READY, UNOBSERVED, Holding, MachineUse
from fleet.cost.meter import MOST_SEGMENTS, SETTLED_S, Meter
from fleet.cost.open_hours import AS_BEFORE, READ_AFTERWARDS, MeterState, SpotSilence
from fleet.cost.records import (
    HOUR_S,
    LedgerRecord,
    LostWork,
    MachineSpan,
    Segment,
    by_machine_hour,
    cut_hour,
)
from fleet.cost.silence import SILENCE_S
from fleet.markets import PastPrice, PriceSource
from fleet.snapshot import CapacityPool, Claim, Gang, GangState, Instance, NodeDisruption, Snapshot
from tests.support.fleets import NOW, P5, A, catalog, gang, offering, ready_claim, small_fleet

H0 = NOW // HOUR_S * HOUR_S
USD_H = 36.0
"""A cent a second."""


def held(subject: str, share: float = 0.5, **more: Any) -> Holding:
    facts: dict[str, Any] = {
        "name": subject,
        "namespace": "ns",
        "queue": "q",
        "team": "t",
        "user": "",
        "borrowed": False,
        "devices": "",
        "since_s": 0.0,
    }
    return Holding(subject=subject, share=share, **facts | more)


def use(*holdings: Holding, machine: str = "i-0", launched_s: float = H0, **more: Any) -> MachineUse:
    facts: dict[str, Any] = {"usd_h": USD_H, "rest": IDLE}
    where = CapacityPool("on-demand", "p5.48xlarge", A)
    facts |= more
    return MachineUse(
        machine, "h100", where, "h100", 8, priced=PriceSource("list", "", H0), launched_s=launched_s,
        holdings=holdings, **facts,
    )  # fmt: skip


def costs(records: Sequence[LedgerRecord]) -> dict[str, float]:
    return {it.subject: it.cost_micro_usd / 1e6 for it in records}


def span(*segments: tuple[float, MachineUse], **more: Any) -> MachineSpan:
    return MachineSpan(tuple(Segment(H0 + at_s, it) for at_s, it in segments), **more)


# -- one hour ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("it", "found"),
    [
        pytest.param(span((0, use())), {IDLE: 36.0}, id="nobody"),
        pytest.param(span((0, use(rest=NOT_READY)), (600, use())), {IDLE: 30.0, NOT_READY: 6.0}, id="boots"),
        pytest.param(span((0, use(held("g")))), {"g": 18.0, IDLE: 18.0}, id="half"),
        pytest.param(span((-500, use(held("g", 1.0)))), {"g": 36.0}, id="from the hour before"),
        pytest.param(span((1800, use(held("g", 1.0)))), {"g": 18.0}, id="launched within it"),
        pytest.param(span((0, use()), ended_s=H0 + 60), {IDLE: 0.6}, id="ended within it"),
        pytest.param(span((0, use()), ended_s=H0 - 1), {}, id="ended before"),
        pytest.param(span((0, use(held("g", 1.0))), (900, use(held("h", 1.0)))), {"g": 9.0, "h": 27.0}, id="turns"),
        pytest.param(span((0, use(usd_h=10.0)), (1800, use(usd_h=20.0))), {IDLE: 15.0}, id="the price changes"),
        pytest.param(span((0, use(held("g", 1.0), held("h", 1.0)))), {"g": 18.0, "h": 18.0}, id="over-full"),
    ],
)
def test_an_hour_of_a_machine(it: MachineSpan, found: dict[str, float]) -> None:
    assert costs(cut_hour("c", it, H0)) == found


def test_what_is_lost_stands_beside_the_cost() -> None:
    it = span((0, use(held("g", 0.5))), (1800, use()), lost=(LostWork(H0 + 1800, H0 + 1200, held("g", 0.5)),))
    found = {each.subject: each for each in cut_hour("c", it, H0)}
    assert (found["g"].lost_s, found["g"].lost_micro_usd, found["g"].cost_micro_usd) == (600.0, 3_000_000, 9_000_000)
    assert (found["g"].gpu_s, found["g"].held_s) == (1800 * 4.0, 1800.0)
    assert found[IDLE].lost_s == 0


# -- the meter --------------------------------------------------------------------------------------------------------


class MeterWatch:
    """A meter with the cloud it looks at."""

    def __init__(self, *uses: MachineUse, at_s: float = 0.0) -> None:
        self.meter = Meter("c")
        self.records: list[LedgerRecord] = []
        self.instances: dict[str, Instance] = {}
        self.gangs: dict[str, Gang] = {}
        self.claims: dict[str, Claim] = {}
        self.look(at_s, *uses)

    def look(self, at_s: float, *uses: MachineUse) -> None:
        now_s = H0 + at_s
        seen = Snapshot(now_s, instances=dict(self.instances), gangs=dict(self.gangs), claims=dict(self.claims))
        self.meter.look(seen, {it.machine: it for it in uses})
        while (hour_s := self.meter.due(now_s)) is not None:
            self.records += self.meter.state().records(hour_s)
            self.meter.done(hour_s)

    def until(self, at_s: float, *uses: MachineUse, from_s: float, every_s: float = 60.0) -> None:
        while from_s < at_s:
            from_s = min(at_s, from_s + every_s)
            self.look(from_s, *uses)

    def crash(self) -> None:
        """What was kept is read again, from its bytes."""
        kept = msgspec.json.decode(msgspec.json.encode(self.meter.state()), type=MeterState)
        self.meter = Meter("c")
        self.meter.restore(kept)

    def ended(self, at_s: float, machine: str = "i-0") -> None:
        self.instances[machine] = Instance(
            machine, "p5.48xlarge", A, "on-demand", "terminated", H0, {}, ended_at_s=H0 + at_s
        )


def test_an_hour_is_cut_once_when_it_is_over_and_settled() -> None:
    it = MeterWatch(use(held("g", 1.0)))
    it.until(HOUR_S + SETTLED_S - 1, use(held("g", 1.0)), from_s=0)
    assert it.records == []
    it.until(2 * HOUR_S, use(held("g", 1.0)), from_s=HOUR_S + SETTLED_S)
    assert costs(it.records) == {"g": 36.0}


def test_an_end_that_is_heard_of_late_counts_when_it_was() -> None:
    it = MeterWatch(use())
    it.until(HOUR_S - 10, use(), from_s=0)
    it.ended(HOUR_S - 100)
    it.until(HOUR_S + 400, from_s=HOUR_S - 10)
    assert costs(it.records) == {IDLE: 35.0}
    it.until(3 * HOUR_S, from_s=HOUR_S + 400)
    assert costs(it.records) == {IDLE: 35.0}, "nothing of it is left"


def test_an_end_that_is_still_to_come_is_now() -> None:
    """EC2 tells in words when a machine ended, and clocks differ: who is gone bills no further."""
    it = MeterWatch(use())
    it.until(100, use(), from_s=0)
    it.ended(5 * HOUR_S)
    it.until(7 * HOUR_S, from_s=100)
    assert costs(it.records) == {IDLE: 1.6}


def test_a_machine_that_came_and_went_bills_nothing_of_what_is_still_to_come() -> None:
    it = MeterWatch()
    it.look(10)
    it.meter.look(Snapshot(H0 + 600), {}, ended=[(use(launched_s=H0 + 500), H0 + 9000)])
    it.meter.look(Snapshot(H0 + 1000), {}, ended=[(use(machine="i-1", launched_s=H0 + 5000), H0 + 9000)])
    it.until(4 * HOUR_S, from_s=1000)
    assert costs(it.records) == {IDLE: 1.0}


def test_a_launch_counts_from_the_clouds_word_which_comes_later() -> None:
    it = MeterWatch()
    it.look(100, use(launched_s=H0 + 100))
    it.look(130, use(launched_s=H0 + 97))
    it.until(HOUR_S + 400, use(launched_s=H0 + 97), from_s=130)
    assert costs(it.records) == {IDLE: pytest.approx((3600 - 97) / 100)}


def test_a_silence_is_told_of_who_is_there_afterwards_and_of_nobody_else() -> None:
    """Down from 10:10 to 10:40: g held it all the while, h since it was admitted, and of f nobody knows how long."""
    it = MeterWatch(use(held("f"), held("g")))
    it.until(600, use(held("f"), held("g")), from_s=0)
    it.crash()
    after = use(held("g"), held("h", since_s=H0 + 1800))
    it.look(2400, after)
    it.until(HOUR_S + 400, after, from_s=2400)
    assert costs(it.records) == {"f": 3.0, "g": 18.0, "h": 9.0, UNOBSERVED: 6.0}


def test_a_short_silence_is_none() -> None:
    it = MeterWatch(use(held("f")))
    it.look(SILENCE_S - 1, use(held("f")))
    it.crash()
    it.look(2 * SILENCE_S - 2, use())
    it.until(HOUR_S + 400, use(), from_s=2 * SILENCE_S - 2)
    assert costs(it.records) == {"f": pytest.approx(18.0 * 238 / 3600), IDLE: pytest.approx(36.0 - 18.0 * 238 / 3600)}


def test_machines_that_come_and_go_in_a_silence_bill_by_the_clouds_times() -> None:
    it = MeterWatch(use())
    it.look(60, use())
    it.ended(1200)
    it.look(3000, use(machine="i-1", launched_s=H0 + 600))
    it.until(HOUR_S + 400, use(machine="i-1", launched_s=H0 + 600), from_s=3000)
    by_machine = {key[1]: costs(records) for key, records in by_machine_hour(it.records).items()}
    assert by_machine == {"i-0": {IDLE: 0.6, UNOBSERVED: 11.4}, "i-1": {IDLE: 6.0, UNOBSERVED: 24.0}}


def test_whose_end_nobody_tells_bills_until_it_was_seen_last() -> None:
    it = MeterWatch(use())
    it.look(60, use())
    it.look(3000)
    it.until(HOUR_S + 400, from_s=3000)
    assert costs(it.records) == {IDLE: 0.6}


def test_days_of_silence_are_hours_like_others() -> None:
    it = MeterWatch(use(held("g", 1.0)))
    it.look(60, use(held("g", 1.0)))
    it.crash()
    it.look(50 * HOUR_S + 400, use(held("g", 1.0)))
    assert len(it.records) == 50
    assert {each.hour_s for each in it.records} == {H0 + n * HOUR_S for n in range(50)}
    assert {each.subject for each in it.records} == {"g"}


SPOT = CapacityPool("spot", "p5.48xlarge", A)


def spot_use(*holdings: Holding, **more: Any) -> MachineUse:
    return replace(use(*holdings, **({"spot_part": 1.0} | more)), where=SPOT)


def after_a_silence(*uses: MachineUse) -> MeterWatch:
    """Nobody looks from a minute on for almost three hours."""
    it = MeterWatch(*uses)
    it.look(60, *uses)
    it.crash()
    it.look(3 * HOUR_S - 60, *uses)
    return it


@pytest.mark.parametrize(
    ("prices", "spot_part", "usd"),
    [
        pytest.param([(0, 10.0), (HOUR_S, 20.0), (2 * HOUR_S, 30.0)], 1.0, 59 / 6 + 20 + 29.5 + 1.2, id="each hour's"),
        pytest.param([(-9, 10.0), (1800, 10.0), (HOUR_S, 20.0)], 0.5, 59 / 12 + 10 + 59 / 6 + 1.2, id="by a rate"),
        pytest.param([(HOUR_S, 10.0)], 1.0, 35.4 + 10 + 59 / 6 + 1.2, id="until the first known the one from before"),
        pytest.param([], 1.0, 3 * 36.0, id="none known"),
    ],
)
def test_a_silence_costs_what_spot_did(prices: list[tuple[float, float]], spot_part: float, usd: float) -> None:
    mine = spot_use(held("g"), spot_part=spot_part)
    it = after_a_silence(mine)
    silence = it.meter.silence()
    assert silence == SpotSilence(frozenset({SPOT}), H0 + 60, H0 + 3 * HOUR_S - 60)
    assert it.records == [], "hours wait for their prices"
    it.meter.priced(silence, {SPOT: [PastPrice(H0 + at_s, usd_h) for at_s, usd_h in prices]})
    assert it.meter.silence() is None
    it.crash()
    it.until(3 * HOUR_S + 400, mine, from_s=3 * HOUR_S - 60)
    assert sum(each.cost_micro_usd for each in it.records) == round(usd * 1e6)
    told = f"{READ_AFTERWARDS if prices else AS_BEFORE}{'' if spot_part == 1 else ', list'}"
    assert {each.price_source for each in it.records if each.subject == "g" and each.hour_s > H0} == {told}


def test_only_what_follows_the_spot_price_awaits_one() -> None:
    assert after_a_silence(use(held("g"))).meter.silence() is None
    assert after_a_silence(spot_use(spot_part=0.0)).meter.silence() is None


def test_two_agents_and_a_crash_make_the_same_keys() -> None:
    """Each has heard of a change at another time; whichever hour comes first stands (`Ledger.append`)."""
    found = []
    for late_s in (0, 7):
        it = MeterWatch(use(held("g")))
        it.until(1800 + late_s, use(held("g")), from_s=0)
        it.crash()
        it.until(HOUR_S + 400, use(held("h")), from_s=1800 + late_s)
        found.append(it.records)
    assert [each.key for each in found[0]] == [each.key for each in found[1]]
    assert sum(each.cost_micro_usd for each in found[0]) == sum(each.cost_micro_usd for each in found[1]) == 36_000_000


def test_stopped_gangs_lose_their_work_since_the_last_checkpoint() -> None:
    it = MeterWatch(use(held("uid-g", 1.0)))
    running = gang("g", state=GangState.ADMITTED, admitted_at_s=H0, last_checkpoint_s=H0 + 1000)
    it.gangs["uid-g"] = running
    it.look(60, use(held("uid-g", 1.0)))
    it.until(1600, use(held("uid-g", 1.0)), from_s=60)
    it.gangs["uid-g"] = replace(running, state=GangState.EVICTING)
    it.look(1600, use(held("uid-g", 1.0)))
    it.until(HOUR_S + 400, use(), from_s=1600)
    (found,) = (each for each in it.records if each.subject == "uid-g")
    assert (found.lost_s, found.lost_micro_usd) == (600.0, 6_000_000)


def test_a_gang_that_is_stopped_and_started_between_two_looks_has_lost_its_work_as_well() -> None:
    it = MeterWatch(use(held("uid-g", 1.0)))
    running = gang("g", state=GangState.ADMITTED, admitted_at_s=H0, pods_ready=True)
    it.gangs["uid-g"] = running
    it.look(60, use(held("uid-g", 1.0)))
    it.until(1600, use(held("uid-g", 1.0)), from_s=60)
    it.gangs["uid-g"] = replace(running, admitted_at_s=H0 + 1603, ran_before_s=1601)
    it.until(HOUR_S + 400, use(held("uid-g", 1.0)), from_s=1600)
    (found,) = it.records
    assert found.lost_s == pytest.approx(1603, abs=60)


def test_why_a_machine_ended_is_told_in_its_last_hour() -> None:
    it = MeterWatch(use(), use(machine="i-1"), use(machine="i-2"))
    fleet = small_fleet()
    bought = ready_claim(offering(fleet, catalog(), "h100", P5.name, A, "on-demand"), "m", instance_id="i-0")
    it.claims["m"] = bought.with_disruption(NodeDisruption("Interrupted", "", H0))
    it.look(90, use(), use(machine="i-1"), use(machine="i-2"))
    del it.claims["m"]  # gone before its machine is seen ended
    it.look(120, use(machine="i-2"))
    so_far = {each.machine: each.ended for each in it.meter.state().so_far()}
    it.until(HOUR_S + 400, use(machine="i-2"), from_s=120)
    assert (
        {each.machine: each.ended for each in it.records} == {"i-0": "Interrupted", "i-1": "Ended", "i-2": ""} == so_far
    )


@pytest.mark.parametrize(
    ("claimed", "returned", "why"),
    [
        ("two looks before the end", False, "Interrupted"),
        ("never, for it was quick", True, "Interrupted"),
        ("and stays after all", False, "Ended"),
        ("never", False, "Ended"),
    ],
)
def test_why_a_machine_ended_is_told_however_the_looks_fall(claimed: str, returned: bool, why: str) -> None:
    it = MeterWatch(use())
    bought = ready_claim(offering(small_fleet(), catalog(), "h100", P5.name, A, "on-demand"), "m", instance_id="i-0")
    if not claimed.startswith("never"):
        it.claims["m"] = bought.with_disruption(NodeDisruption("Interrupted", "", H0))
        it.look(90, use())
    if "stays" in claimed:
        it.claims["m"] = bought
        it.look(95, use())
    it.claims.clear()
    if not returned:
        it.look(100, use())  # it still bills
    else:
        it.meter.returned(("i-0",), "Interrupted")
    it.look(120)
    assert {each.ended for each in it.meter.state().so_far()} == {why}


def test_gangs_start_when_their_pods_are_ready_and_once() -> None:
    it = MeterWatch()
    waiting = gang("g", state=GangState.PENDING, created_s=H0 + 10)
    early = gang("early", state=GangState.ADMITTED, admitted_at_s=H0 - 500, pods_ready=True)
    it.gangs |= {"uid-g": waiting, "uid-early": early}
    it.meter = Meter("c")
    it.look(20)
    admitted = replace(waiting, state=GangState.ADMITTED, admitted_at_s=H0 + 90, quota_reserved_at_s=H0 + 40)
    for at_s, now in (
        (100, admitted),
        (130, replace(admitted, pods_ready=True)),
        (160, replace(admitted, pods_ready=True)),
    ):
        it.gangs["uid-g"] = now
        it.look(at_s)
    it.crash()
    it.look(170)
    (found,) = it.meter.state().started(H0)
    assert (found.submitted_s - H0, found.reserved_s - H0, found.admitted_s - H0, found.running_s - H0) == (
        10,
        40,
        90,
        130,
    )
    assert (found.uid, found.again) == ("uid-g", False)
    it.until(HOUR_S + 400, from_s=170)
    assert it.meter.starts == (), "they are in the ledger now"


def test_work_that_ends_by_itself_loses_nothing() -> None:
    it = MeterWatch(use(held("uid-g", 1.0)))
    it.gangs["uid-g"] = gang("g", state=GangState.ADMITTED, admitted_at_s=H0)
    it.look(60, use(held("uid-g", 1.0)))
    it.gangs["uid-g"] = replace(it.gangs["uid-g"], state=GangState.FINISHED)
    it.look(90, use())
    it.until(HOUR_S + 400, use(), from_s=90)
    assert {each.lost_s for each in it.records} == {0.0}


def test_the_running_hour_can_be_told_before_it_is_over() -> None:
    it = MeterWatch(use(held("g")))
    it.until(HOUR_S + 200, use(held("g")), from_s=0)
    so_far = it.meter.state().so_far()
    assert sum(each.cost_micro_usd for each in so_far) == 38_000_000
    assert {each.hour_s for each in so_far} == {H0, H0 + HOUR_S}
    assert it.meter.due(H0 + HOUR_S + 200) is None


def test_a_machine_that_changes_all_the_time_is_remembered_in_bounds() -> None:
    it = MeterWatch(use())
    for n in range(1, 1000):
        it.look(n * 3.0, use(held(f"g{n % 2}", 0.5)))
    it.until(HOUR_S + 200, use(), from_s=3000)
    assert len(it.meter.spans["i-0"].segments) < MOST_SEGMENTS + 100
    it.until(HOUR_S + 400, use(), from_s=HOUR_S + 200)
    assert sum(each.cost_micro_usd for each in it.records) == 36_000_000


def test_a_ledger_that_takes_nothing_for_days_does_not_fill_the_memory() -> None:
    it = Meter("c")
    for n in range(3000):
        it.look(Snapshot(H0 + n * 60.0), {"i-0": use(held(f"g{n % 2}", 0.5))})
    assert len(it.spans["i-0"].segments) == 4 * MOST_SEGMENTS
    hours = [it.state().records(H0 + n * HOUR_S) for n in range(49)]
    assert {sum(each.cost_micro_usd for each in records) for records in hours} == {36_000_000}


def test_a_clock_that_goes_back_changes_nothing_until_it_is_past() -> None:
    it = MeterWatch(use(held("g", 1.0)))
    it.look(100, use(held("g", 1.0)))
    it.look(40, use())
    it.until(HOUR_S + 400, use(held("g", 1.0)), from_s=100)
    assert costs(it.records) == {"g": 36.0}


@pytest.mark.parametrize("again", [False, True], ids=["by one agent", "by the next one"])
def test_a_clock_that_was_a_day_ahead_is_not_waited_for(*, again: bool) -> None:
    """What it wrote of hours that were still to come stays as it is; machines that come then are added to them."""
    it = MeterWatch(use(held("g", 1.0)))
    it.until(600, use(held("g", 1.0)), from_s=0)
    it.look(24 * HOUR_S, use(held("g", 1.0)))
    assert {each.hour_s - H0 for each in it.records} == {n * HOUR_S for n in range(23)}
    if again:
        it.crash()
    it.records.clear()
    new = use(held("h", 1.0), machine="i-1", launched_s=H0 + 650)
    it.until(2 * HOUR_S + 400, use(held("g", 1.0)), new, from_s=600)
    assert it.meter.until_s == H0 + 2 * HOUR_S + 400
    by_machine = {key[1:]: costs(records) for key, records in by_machine_hour(it.records).items()}
    assert by_machine["i-1", H0] == {"h": 29.5}
    assert by_machine["i-0", H0 + HOUR_S] == {"g": 36.0}
    assert {each.hour_s - H0 for each in it.records} == {0, HOUR_S}


def test_what_ended_by_a_clock_that_was_a_day_ahead_is_seen_anew() -> None:
    it = MeterWatch(use())
    it.until(600, use(), from_s=0)
    it.ended(23.9 * HOUR_S)
    it.look(24 * HOUR_S)
    assert it.meter.spans["i-0"].ended_s == H0 + 23.9 * HOUR_S
    it.records.clear()
    it.instances.clear()
    it.until(HOUR_S + 400, use(), from_s=600)
    assert costs(it.records) == {IDLE: 29.4, UNOBSERVED: 6.6}, "the look before was forgotten with its hour"


def bereft_gang() -> MeterWatch:
    """A gang on two machines, of which one ended a minute after the last look, and the next agent after an hour."""
    both = use(held("uid-g", 1.0, since_s=H0)), use(held("uid-g", 1.0, since_s=H0), machine="i-1")
    it = MeterWatch(*both)
    it.gangs["uid-g"] = gang("g", state=GangState.ADMITTED, admitted_at_s=H0, pods_ready=True)
    it.look(60, *both)
    it.crash()
    it.ended(120)
    it.look(HOUR_S + 100, both[1])
    return it


def test_a_crash_forgets_no_end_that_a_gang_is_still_to_be_stopped_for() -> None:
    it = bereft_gang()
    it.crash()
    it.gangs["uid-g"] = replace(it.gangs["uid-g"], state=GangState.EVICTING)
    it.look(HOUR_S + 110, use(held("uid-g", 1.0, since_s=H0), machine="i-1"))
    lost = {key: [each.at_s - H0 for each in found.lost] for key, found in it.meter.spans.items()}
    assert lost == {"i-0": [120.0], "i-1": [120.0]}


def test_a_crash_cuts_no_hour_before_gangs_were_told_of_ends() -> None:
    it = bereft_gang()
    it.crash()
    it.look(HOUR_S + SETTLED_S + 99, use(held("uid-g", 1.0, since_s=H0), machine="i-1"))
    assert it.records == []
    it.look(HOUR_S + SETTLED_S + 100, use(held("uid-g", 1.0, since_s=H0), machine="i-1"))
    assert {each.hour_s for each in it.records} == {H0}


def test_what_was_kept_by_an_older_agent_is_read() -> None:
    it = bereft_gang()
    kept = msgspec.json.decode(msgspec.json.encode(it.meter.state()))
    fields = {"cluster", "spans", "until_s", "cut_until_s"}
    text = msgspec.json.encode({key: value for key, value in kept.items() if key in fields})
    again = Meter("c")
    again.restore(msgspec.json.decode(text, type=MeterState))
    assert again.due(H0 + 2 * HOUR_S) is None
    assert again.spans == it.meter.spans


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_the_records_of_all_hours_are_the_bill(data: st.DataObject) -> None:
    """Whatever is seen and missed: each machine costs its price from launch to end, to the micro-USD an hour."""
    it, at_s, machines = MeterWatch(), 0.0, {}
    ends: dict[str, float] = {}
    for n in range(data.draw(st.integers(1, 25))):
        at_s += data.draw(st.sampled_from([1.0, 5.0, 60.0, 119.0, 500.0, 4000.0]))
        action = data.draw(st.sampled_from(["launch", "end", "change", "crash", "nothing"]))
        if action == "launch" and len(machines) < 4:
            launched_s = H0 + at_s - data.draw(st.floats(0, 1)) * (H0 + at_s - it.meter.until_s)
            machines[f"i-{n}"] = use(machine=f"i-{n}", launched_s=launched_s, usd_h=data.draw(st.floats(0, 100)))
        elif action == "end" and machines:
            name = data.draw(st.sampled_from(sorted(machines)))
            gone = machines.pop(name)
            earliest = max(0.0, gone.launched_s - H0, it.meter.until_s - H0)
            ends[name] = earliest + data.draw(st.floats(0, 1)) * (at_s - earliest)
            it.ended(ends[name], name)
        elif action == "change" and machines:
            name = data.draw(st.sampled_from(sorted(machines)))
            shares = data.draw(st.lists(st.floats(0, 1), max_size=4))
            holdings = tuple(held(f"g{k}", share, since_s=H0 + at_s) for k, share in enumerate(shares))
            machines[name] = replace(machines[name], holdings=holdings)
        elif action == "crash":
            it.crash()
        before = {**machines}
        it.look(at_s, *before.values())
    end_s = (at_s // HOUR_S + 1) * HOUR_S
    seen = {key: each.segments[0].use for key, each in it.meter.spans.items()}
    it.until(end_s + SETTLED_S, *machines.values(), from_s=at_s)
    for name, last in {**seen, **machines}.items():
        own = [each for each in it.records if each.machine == name]
        until_s = H0 + min(end_s, ends.get(name, end_s))
        exact = last.usd_h * 1e6 * max(0.0, until_s - last.launched_s) / 3600
        hours = len({each.hour_s for each in own})
        assert abs(sum(each.cost_micro_usd for each in own) - exact) <= hours + 1
        assert all(each.cost_micro_usd >= 0 for each in own)
    assert len({each.key for each in it.records}) == len(it.records)
