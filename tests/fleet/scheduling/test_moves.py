"""Room made by moving: who goes elsewhere so that a waiting gang finds a place, and that all of them run in the end."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import Action, SaveGang
from fleet.cost.lost_work import RESTART_S
from fleet.gangs.lost_machines import BOOT_S
from fleet.gangs.transitions import released
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason
from fleet.scheduling import cycle
from fleet.scheduling.moves import RoomByMoving, stays_until_s
from fleet.snapshot import Gang, GangState, PodBudget, PodSet
from fleet.snapshot.gangs import LIVE_FIELDS
from model.upstream.selectors import LabelSelector
from tests.support.fleets import GPU, NOW, P5, FleetBuilder, amounts, gang
from tests.support.world import World


def world(machines: int = 2, quota: int = 64, *, policy: dict[str, Any] | None = None, **queue: Any) -> World:
    """Machines of eight GPUs, and no more to be had."""
    builder = FleetBuilder().pool(limits={"nodes": 0}).team("t", {"h100": {GPU: quota}}).queue("q", **queue)
    builder = builder.priority("stays", 0, preemptible=False)
    made = World((builder.policy(**policy) if policy else builder).build())
    for n in range(machines):
        made.machine(f"m{n}")
    return made


def of(name: str, gpus: int, pods: int = 1, **more: Any) -> Gang:
    return gang(name, PodSet("main", pods, {**amounts(), GPU: gpus}), **more)


def halves(made: World, **more: Any) -> World:
    """A gang of four GPUs on each of two machines, and one of eight that waits."""
    for n in range(2):
        made.runs(of(f"g{n}", 4, **more), (f"m{n}", 1))
    made.waits(of("large", 8))
    return made


def turn(made: World, *, leave: bool = True) -> list[Action]:
    """One pass; then everybody has left who was told to."""
    actions = list(cycle.decide(made.fleet, made.snapshot()))
    made.apply(actions)
    for uid, it in list(made.gangs.items()) if leave else ():
        if it.state is GangState.EVICTING:
            made.gangs[uid] = released(it, made.jobs[uid], it.reason, it.message, made.now_s)
            made.jobs[uid] = replace(made.jobs[uid], suspended=True, ready_pods=0, active_pods=0)
            made.pods = {name: pod for name, pod in made.pods.items() if pod.workload != it.workload}
    made.now_s += 1
    return actions


def told(actions: list[Action]) -> list[tuple[str, Reason]]:
    """(gang, reason) of those that an action stops."""
    found = (it.gang for it in actions if isinstance(it, SaveGang))
    return [(it.job.name, it.reason) for it in found if it.state is GangState.EVICTING]


def places(made: World) -> dict[str, str]:
    return {it.job.name: it.pins[0].claim if it.pins else "" for it in made.gangs.values()}


def test_one_of_two_halves_moves_and_all_three_run() -> None:
    made = halves(world())
    assert told(turn(made)) == [("g0", Reason.MADE_ROOM)]
    assert "makes room for ns/large" in made.gang("g0").message
    assert "starts again elsewhere" in made.gang("g0").message
    assert made.gang("large").reason == Reason.WAITING_FOR_PREEMPTED
    turn(made)
    assert places(made) == {"g0": "m1", "g1": "m1", "large": "m0"}
    assert turn(made) == []


@pytest.mark.parametrize(("dear", "goes"), [("g0", "g1"), ("g1", "g0")])
def test_what_loses_less_work_moves(dear: str, goes: str) -> None:
    made = halves(world())
    written = made.gang(dear).uid
    made.jobs[written] = replace(made.jobs[written], last_checkpoint_s=NOW - 60)
    made.gangs[written] = replace(made.gangs[written], last_checkpoint_s=NOW - 60, admitted_at_s=NOW - 600)
    assert told(turn(made)) == [(goes, Reason.MADE_ROOM)]


def test_who_says_when_it_checkpoints_is_not_moved_before_who_says_nothing() -> None:
    made = halves(world())
    said = made.gang("g0").uid
    made.jobs[said] = replace(made.jobs[said], checkpoint_interval_s=500.0)
    made.gangs[said] = replace(made.gangs[said], checkpoint_interval_s=500.0, admitted_at_s=NOW - 600)
    assert told(turn(made)) == [("g1", Reason.MADE_ROOM)]


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        ({}, False),
        ({"preemption": {"moveOthers": False}}, True),
        ({"policy": {"freezeWindows": [{"name": "w", "schedule": "* * * * *", "duration": "1h"}]}}, True),
    ],
)
def test_the_policy_of_the_queue_and_freeze_windows_keep_everybody(how: dict[str, Any], kept: bool) -> None:
    assert (told(turn(halves(world(**how)))) == []) is kept


@pytest.mark.parametrize(
    "facts", [{"do_not_disrupt": "true"}, {"priority_class": "stays"}, {"replacing_since_s": NOW - 9}]
)
def test_who_may_not_be_disrupted_does_not_move(facts: dict[str, Any]) -> None:
    made = halves(world())
    for uid, it in made.gangs.items():
        made.gangs[uid] = replace(it, **facts) if it.pins else it
        made.jobs[uid] = replace(made.jobs[uid], do_not_disrupt=facts.get("do_not_disrupt", "") if it.pins else "")
    assert told(turn(made)) == []
    assert made.gang("large").state is GangState.PENDING


def test_nobody_moves_where_quota_is_short() -> None:
    assert told(turn(halves(world(quota=12)))) == []


def shop(machines: int = 2, **queue: Any) -> World:
    """Machines of eight GPUs, and more to be had."""
    made = world(machines)
    made.fleet = FleetBuilder().pool().team("t", {"h100": {GPU: 64}}).queue("q", **queue).build()
    return made


def changed(made: World, name: str, **facts: Any) -> None:
    """Writes facts into a gang, and those that it states into its job."""
    it = made.gang(name)
    made.gangs[it.uid] = replace(it, **facts)
    stated = {key: value for key, value in facts.items() if key in LIVE_FIELDS}
    made.jobs[it.uid] = replace(made.jobs[it.uid], **stated)


HOUR_S = 3600
P5_USD_H = 98.0


@pytest.mark.parametrize(
    ("ran_s", "checkpoint_s", "needed_s", "moves"),
    [
        (600, None, None, True),  # little is lost, and a machine would be needed for PAYBACK_S
        (3 * HOUR_S, None, None, True),
        (9 * HOUR_S, None, None, False),  # silent jobs lose all since their start: of half a machine
        (9 * HOUR_S, 600, None, True),
        (600, None, 60, False),  # over before the move has paid for itself
        (9 * HOUR_S, None, 20 * HOUR_S, True),
        (9 * HOUR_S, None, 4 * HOUR_S, False),
        (9 * HOUR_S, 4 * HOUR_S + 240, 2 * HOUR_S, False),  # the restart is the difference
        (9 * HOUR_S, 4 * HOUR_S + 240, 2 * HOUR_S + 120, True),
    ],
)
def test_a_move_competes_with_a_purchase_in_usd(
    ran_s: float, checkpoint_s: float | None, needed_s: float | None, *, moves: bool
) -> None:
    made = halves(shop())
    for name in ("g0", "g1"):
        said = None if checkpoint_s is None else NOW - checkpoint_s
        changed(made, name, admitted_at_s=NOW - ran_s, last_checkpoint_s=said)
    changed(made, "large", expected_run_s=needed_s)
    assert (told(turn(made)) == [("g0", Reason.MADE_ROOM)]) is moves
    assert (made.gang("large").state is GangState.RESERVED) is not moves


def test_the_choice_and_what_was_rejected_are_told() -> None:
    made = halves(shop())
    changed(made, "g0", last_checkpoint_s=NOW - 100)
    changed(made, "g1", last_checkpoint_s=NOW - 200)
    turn(made, leave=False)
    usd = P5_USD_H / 2 * (100 + RESTART_S) / HOUR_S
    words = f"moved ns/g0 at {usd:.2f} USD of lost work instead of buying 1 x {P5.name} at {P5_USD_H:.2f} USD/h"
    assert words in made.gang("large").message
    assert words in made.gang("g0").message
    turn(made, leave=False)
    assert words in made.gang("large").message, "it is still told while they leave"

    made = halves(shop())
    changed(made, "g0", admitted_at_s=NOW - 9.5 * HOUR_S)
    changed(made, "g1", admitted_at_s=NOW - 9 * HOUR_S)
    turn(made)
    usd = P5_USD_H / 2 * (9 * HOUR_S + RESTART_S) / HOUR_S
    assert f"instead of moving ns/g1 at {usd:.2f} USD of lost work" in made.gang("large").message
    assert f"bought 1 x {P5.name} at {P5_USD_H:.2f} USD/h" in made.gang("large").message


def test_the_cheapest_in_usd_moves_instead_of_a_purchase_though_silence_comes_first_elsewhere() -> None:
    made = halves(shop())
    changed(made, "g0", admitted_at_s=NOW - 3 * HOUR_S)
    changed(made, "g1", admitted_at_s=NOW - 3 * HOUR_S, last_checkpoint_s=NOW - 60)
    assert told(turn(made)) == [("g1", Reason.MADE_ROOM)]


def test_who_is_like_one_that_found_room_has_others_moved_where_that_costs_less_than_a_machine() -> None:
    made = halves(shop(3))
    made.waits(of("larger", 8))
    assert told(turn(made)) == [("g0", Reason.MADE_ROOM)]
    assert (made.gang("large").state, set(made.claims)) == (GangState.ADMITTED, {"m0", "m1", "m2"})


def test_to_ask_whether_anybody_may_move_notes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked of the second and third of a shape, which buy as the first does; all are told what was rejected."""
    made = halves(shop())
    made.waits(of("more", 8), of("most", 8))
    for name in ("g0", "g1"):
        changed(made, name, admitted_at_s=NOW - 9.5 * HOUR_S)
    asked, question = list[str](), RoomByMoving.compares

    def noting_nothing(mover: RoomByMoving, workload: Workload, place: Sequence[PodSetAssignment]) -> bool:
        asked.append(workload.name)
        before = dict(mover.compared), dict(mover.ends.awaited)
        found = question(mover, workload, place)
        assert (mover.compared, mover.ends.awaited) == before
        return found

    monkeypatch.setattr(RoomByMoving, "compares", noting_nothing)
    turn(made)
    assert asked == ["ns/more", "ns/most"]
    assert all("instead of moving" in made.gang(name).message for name in ("large", "more", "most"))


def test_nothing_is_bought_for_whom_others_leave() -> None:
    made = halves(shop())
    for _ in range(3):
        turn(made, leave=False)
    assert set(made.claims) == {"m0", "m1"}
    for _ in range(3):
        turn(made)
    assert set(made.claims) == {"m0", "m1"}
    assert places(made) == {"g0": "m1", "g1": "m1", "large": "m0"}


@pytest.mark.parametrize(
    "how", [{"preemption": {"moveOthers": False}}, {"protectedRunTime": "1h"}, {"fairness": "GuaranteeShare"}]
)
def test_policies_bound_moves_that_would_be_cheaper(how: dict[str, Any]) -> None:
    made = halves(shop(**how))
    assert bool(told(turn(made))) is ("fairness" in how)


@pytest.mark.parametrize(
    ("ends_in_s", "waited_s", "waits"),
    [(100, 0, True), (BOOT_S - 1, 0, True), (BOOT_S + 1, 0, False), (100, 100, True), (100, 200, False)],
)
def test_who_says_that_it_ends_before_a_machine_boots_is_waited_for(
    ends_in_s: float, waited_s: float, *, waits: bool
) -> None:
    made = shop(1)
    made.claims["m0"] = replace(made.claims["m0"], launched_at_s=0.0)  # nothing is known of boots
    made.runs(of("short", 8), ("m0", 1))
    changed(made, "short", admitted_at_s=NOW - 1000, expected_run_s=1000 + ends_in_s)
    made.waits(of("large", 8, created_s=NOW - waited_s))
    turn(made)
    assert told(turn(made)) == []
    assert (made.gang("large").state is GangState.PENDING) is waits
    assert (set(made.claims) == {"m0"}) is waits
    if waits:
        assert "ns/short will have left room for it by" in made.gang("large").message


def test_what_somebody_waits_for_is_not_waited_for_by_others() -> None:
    made = shop(1)
    made.claims["m0"] = replace(made.claims["m0"], launched_at_s=0.0)
    made.runs(of("short", 8), ("m0", 1))
    changed(made, "short", admitted_at_s=NOW - 1000, expected_run_s=1100)
    made.waits(*(of(name, 8, created_s=NOW - 5) for name in "ab"))
    turn(made)
    assert (made.gang("a").state, made.gang("b").state) == (GangState.PENDING, GangState.RESERVED)
    assert len(made.claims) == 2


def test_who_has_waited_for_an_end_that_did_not_come_buys() -> None:
    made = shop(1)
    made.claims["m0"] = replace(made.claims["m0"], launched_at_s=0.0)
    made.runs(of("short", 8), ("m0", 1))
    changed(made, "short", admitted_at_s=NOW - 1000, expected_run_s=1100)
    made.waits(of("large", 8, created_s=NOW))
    turn(made)
    assert made.gang("large").state is GangState.PENDING
    made.now_s = NOW + 101
    turn(made)
    assert made.gang("large").state is GangState.RESERVED


def test_nobody_moves_without_a_place_elsewhere() -> None:
    made = world()
    made.runs(of("g0", 4), ("m0", 1))
    made.runs(of("g1", 5), ("m1", 1))
    made.waits(of("large", 7))
    assert told(turn(made)) == []


def test_several_move_where_one_is_not_enough() -> None:
    """Two machines have to be empty, and each of the others takes one."""
    made = world(4)
    for n in range(4):
        made.runs(of(f"g{n}", 4), (f"m{n}", 1))
    made.waits(of("large", 8, pods=2))
    assert len(told(turn(made))) == 2
    for _ in range(2):
        turn(made)
    assert {it.state for it in made.gangs.values()} == {GangState.ADMITTED}


def test_a_pod_disruption_budget_keeps_its_pods() -> None:
    made = halves(world())
    kept = PodBudget("ns", "keep", LabelSelector(), 0)
    made.pod_budgets = {kept.key: kept}
    assert told(turn(made)) == []


def test_the_new_place_is_kept_while_they_leave() -> None:
    made = halves(world())
    turn(made, leave=False)
    made.waits(of("quick", 4))
    turn(made, leave=False)
    assert made.gang("quick").state is GangState.PENDING
    for _ in range(3):
        turn(made)
    assert places(made) == {"g0": "m1", "g1": "m1", "large": "m0", "quick": ""}


def test_who_was_evicted_before_stays_a_while() -> None:
    ran = replace(of("g", 1), admitted_at_s=NOW)
    waits = [stays_until_s(replace(ran, evictions=n)) - NOW for n in (0, 1, 2, 3, 99)]
    assert waits == [0.0, 600.0, 1200.0, 2400.0, 86_400.0]


@st.composite
def fragmented(draw: st.DrawFn, priorities: int) -> World:
    """Machines with gangs of one to six GPUs here and there, and others that wait."""
    made = world(draw(st.integers(2, 4)), draw(st.sampled_from((16, 64))))
    free = dict.fromkeys(made.claims, 8)
    for n in range(draw(st.integers(1, 6))):
        size, machine = draw(st.integers(1, 6)), draw(st.sampled_from(sorted(free)))
        if free[machine] >= size:
            free[machine] -= size
            made.runs(of(f"g{n}", size, priority=draw(st.integers(0, priorities))), (machine, 1))
    for n in range(draw(st.integers(1, 3))):
        asked = of(f"w{n}", draw(st.integers(1, 8)), draw(st.integers(1, 2)), priority=draw(st.integers(0, priorities)))
        made.waits(replace(asked, created_at_s=NOW - 100 + n))
    return made


def boot(made: World) -> None:
    """What was bought is there, and who waited for it runs."""
    for name, claim in list(made.claims.items()):
        if not claim.ready_at_s:
            where = claim.capacity_pool
            del made.claims[name]
            made.machine(name, claim.node_pool, where.instance_type, where.zone, where.capacity_type)
    for uid, it in made.gangs.items():
        if it.state is GangState.RESERVED:
            pins = tuple(replace(pin, node=made.claims[pin.claim].node) for pin in it.pins)
            made.gangs[uid] = replace(it, state=GangState.ADMITTED, pins=pins, admitted_at_s=made.now_s)


def to_rest(made: World, *, late: bool) -> dict[str, float]:
    """Plays passes until nothing happens; returns who has moved. Nobody moves twice within a short time."""
    moved: dict[str, float] = {}
    for number in range(40):
        leaving = any(it.state is GangState.EVICTING for it in made.gangs.values())
        actions = turn(made, leave=not late or bool(number % 3))
        boot(made)
        for name, reason in told(actions):
            if reason == Reason.MADE_ROOM:
                assert name not in moved or made.now_s - moved[name] >= 600
                moved[name] = made.now_s
        if not actions and not leaving:
            return moved
    raise AssertionError("it does not come to rest")


@settings(max_examples=300, deadline=None)
@given(fragmented(0), st.booleans())
def test_whoever_moves_runs_again_beside_more_than_before(made: World, late: bool) -> None:
    before = {it.job.name for it in made.gangs.values() if it.state is GangState.ADMITTED}
    moved = to_rest(made, late=late)
    after = {it.job.name for it in made.gangs.values() if it.state is GangState.ADMITTED}
    assert before <= after, moved
    assert not moved or before < after


@settings(max_examples=300, deadline=None)
@given(fragmented(1), st.booleans(), st.sampled_from((64, 16)), st.integers(0, 2))
def test_moves_and_purchases_come_to_an_end_together(made: World, late: bool, quota: int, nodes: int) -> None:
    """Up to two machines may be bought. Among equals, whoever ran before runs after."""
    limits = {"nodes": len(made.claims) + nodes}
    made.fleet = FleetBuilder().pool(limits=limits).team("t", {"h100": {GPU: quota}}).queue("q").build()
    before = {it.job.name for it in made.gangs.values() if it.state is GangState.ADMITTED}
    to_rest(made, late=late)
    assert made.claims.keys() >= {pin.claim for it in made.gangs.values() for pin in it.pins}
    assert len(made.claims) <= limits["nodes"]
    after = {it.job.name for it in made.gangs.values() if it.state is GangState.ADMITTED}
    assert before <= after or any(it.priority for it in made.gangs.values())


@settings(max_examples=300, deadline=None)
@given(fragmented(2), st.booleans())
def test_moves_and_evictions_come_to_an_end_together(made: World, late: bool) -> None:
    to_rest(made, late=late)
