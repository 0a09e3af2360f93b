"""Room made by moving: who goes elsewhere so that a waiting gang finds a place, and that all of them run in the end."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import Action, SaveGang
from fleet.gangs.transitions import released
from fleet.reasons import Reason
from fleet.scheduling import cycle
from fleet.scheduling.moves import stays_until_s
from fleet.snapshot import Gang, GangState, PodBudget, PodSet
from model.upstream.selectors import LabelSelector
from tests.support.fleets import GPU, NOW, FleetBuilder, amounts, gang
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


def test_nobody_moves_where_machines_can_be_bought() -> None:
    made = world()
    made.fleet = FleetBuilder().pool().team("t", {"h100": {GPU: 64}}).queue("q").build()
    assert told(turn(halves(made))) == []
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


def to_rest(made: World, *, late: bool) -> dict[str, float]:
    """Plays passes until nothing happens; returns who has moved. Nobody moves twice within a short time."""
    moved: dict[str, float] = {}
    for number in range(40):
        leaving = any(it.state is GangState.EVICTING for it in made.gangs.values())
        actions = turn(made, leave=not late or bool(number % 3))
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
@given(fragmented(2), st.booleans())
def test_moves_and_evictions_come_to_an_end_together(made: World, late: bool) -> None:
    to_rest(made, late=late)
