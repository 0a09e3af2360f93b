"""What a revision may not just take away: pools and teams that want it confirmed, and the quota of running gangs."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.plan import declared_plan, make_plan
from fleet.plan.withdrawals import SHOWN, outside_quota
from fleet.snapshot import GangState, Snapshot
from model.fleet import Fleet
from tests.fleet.plan.worlds import LIFTED
from tests.support.fleets import GPU, NOW, FleetBuilder, gang
from tests.support.world import World

# -- confirmed deletions ----------------------------------------------------------------------------------------------


def guarded(pool: str = "Confirm", team: str = "Confirm", *, pools: tuple[str, ...] = ("a",)) -> Fleet:
    builder = FleetBuilder().pool("other")
    for name in pools:
        builder.pool(name, deletion=pool)
    builder.team("t", quotas={"other": {GPU: 8}}, deletion=team).queue("q", "t", flavors=["other"])
    return builder.policy(guardRails=LIFTED).build()


REST = FleetBuilder().pool("other").policy(guardRails=LIFTED).build()
WAY = "set deletion: Delete in an earlier revision, or write Muster-Confirm-Deletion: {} into the commit"
WANT = ", which want that confirmed (deletion: Confirm): "
DELETIONS: list[tuple[str, Fleet, Fleet, tuple[str, ...], str]] = [
    ("nothing goes", guarded(), guarded(), (), ""),
    ("a pool goes", guarded(team="Delete"), REST, (), f"it deletes nodepool/a{WANT}{WAY.format('nodepool/a')}"),
    ("a team goes", guarded("Delete"), REST, (), f"it deletes team/t{WANT}{WAY.format('team/t')}"),
    ("a revision before", guarded("Delete", "Delete"), REST, (), ""),
    ("a trailer", guarded(), REST, ("nodepool/a", "team/t"), ""),
    ("a trailer for one", guarded(), REST, ("nodepool/a",), f"it deletes team/t{WANT}{WAY.format('team/t')}"),
    ("a trailer for another", guarded("Delete"), REST, ("team/x",), f"it deletes team/t{WANT}{WAY.format('team/t')}"),
    (
        "a pool renamed",
        guarded(),
        guarded(pools=("b",)),
        (),
        f"it deletes nodepool/a{WANT}{WAY.format('nodepool/a')}",
    ),
    (
        "many",
        guarded(pools=("a", "b", "c", "d")),
        REST,
        (),
        f"it deletes nodepool/a, nodepool/b, nodepool/c and 2 more{WANT}{WAY.format('nodepool/a')}, a line for each",
    ),
]


@pytest.mark.parametrize(
    ("before", "after", "confirmed", "refusal"), [it[1:] for it in DELETIONS], ids=[it[0] for it in DELETIONS]
)
def test_what_wants_its_deletion_confirmed(
    before: Fleet, after: Fleet, confirmed: tuple[str, ...], refusal: str
) -> None:
    """With a world and without."""
    said = {"base_revision": "aaa", "confirmed": frozenset(confirmed)}
    for plan in (
        declared_plan(before, after, Snapshot(now_s=NOW), **said),  # type: ignore[arg-type]
        make_plan(before, after, World(before).snapshot(), **said),  # type: ignore[arg-type]
    ):
        assert plan.refusals == ((refusal,) if refusal else ())


def test_one_revision_cannot_lift_it_and_delete() -> None:
    """What counts is what is in force before; a declaration that goes has no word in it any more."""
    assert make_plan(guarded(), guarded("Delete"), World(guarded()).snapshot(), base_revision="aaa").refusals == ()
    assert make_plan(guarded("Delete"), guarded(), World(guarded()).snapshot(), base_revision="aaa").refusals == ()


# -- gangs outside any quota ------------------------------------------------------------------------------------------

COUNTED: dict[str, Any] = {"h100": {GPU: 99, "cpu": 999}}


def counting(quotas: dict[str, Any], *queues: str, **queue: Any) -> Fleet:
    """One pool, one team with these quotas, and queues of it."""
    builder = FleetBuilder().pool().team(quotas=quotas)
    for name in queues or ("q",):
        builder.queue(name, **queue)
    return builder.policy(guardRails=LIFTED).build()


def busy(before: Fleet, *queues: str) -> World:
    world = World(before)
    for n, queue in enumerate(queues or ("q", "q")):
        world.machine(f"m{n}")
        world.runs(gang(f"g{n}", queue=queue), (f"m{n}", 1))
    return world


STOP = "set `stopPolicy: HoldAndDrain` there in an earlier revision, or `Hold` and wait until they have ended"


def both_left(why: str) -> str:
    return f"it leaves 2 running gangs outside any quota: ns/g0 ({why}), ns/g1 ({why}); stop queue q first: {STOP}"


WITHDRAWN: list[tuple[str, Fleet, Fleet, str]] = [
    ("nothing", counting(COUNTED), counting(COUNTED), ""),
    ("less of it", counting(COUNTED), counting({"h100": {GPU: 0, "cpu": 0}}), ""),
    (
        "a queue",
        counting(COUNTED, "q", "r"),
        counting(COUNTED, "r"),
        both_left("queue 'q' goes"),
    ),
    ("a queue of nobody", counting(COUNTED, "q", "r"), counting(COUNTED, "q"), ""),
    (
        "the quota of GPUs",
        counting(COUNTED),
        counting({"h100": {"cpu": 999}}),
        both_left("no quota counts nvidia.com/gpu of h100 any more"),
    ),
    ("the quota of CPUs, where GPUs still count", counting(COUNTED), counting({"h100": {GPU: 99}}), ""),
    (
        "the last quota",
        counting({"h100": {"cpu": 999}}),
        counting({}),
        both_left("no quota counts cpu of h100 any more"),
    ),
    ("what nobody counted before", counting({}), counting({}, "other"), ""),
    ("a queue that is drained with it", counting(COUNTED), counting({}, stopPolicy="HoldAndDrain"), ""),
    (
        "a pool with its quota",
        counting(COUNTED),
        FleetBuilder().pool("new").team(quotas={"new": {GPU: 9}}).queue(flavors=["new"]).build(),
        both_left("no quota counts nvidia.com/gpu of h100 any more"),
    ),
]


@pytest.mark.parametrize(("before", "after", "refusal"), [it[1:] for it in WITHDRAWN], ids=[it[0] for it in WITHDRAWN])
def test_running_gangs_are_never_left_outside_any_quota(before: Fleet, after: Fleet, refusal: str) -> None:
    plan = make_plan(before, after, busy(before).snapshot(), base_revision="aaa")
    assert [it for it in plan.refusals if "outside any quota" in it] == ([refusal] if refusal else [])


@pytest.mark.parametrize("state", [GangState.EVICTING, GangState.PENDING])
def test_gangs_that_do_not_run_hold_no_queue(state: GangState) -> None:
    before = counting(COUNTED, "q", "r")
    world = busy(before, "q")
    world.gangs["uid-g0"] = replace(world.gang("g0"), state=state)
    assert make_plan(before, counting(COUNTED, "r"), world.snapshot(), base_revision="aaa").refusals == ()


def test_the_first_of_many_are_named() -> None:
    before = counting(COUNTED, "q", "r", "s")
    world = busy(before, *["q", "r"] * SHOWN)
    [refusal] = make_plan(before, counting(COUNTED, "s"), world.snapshot(), base_revision="aaa").refusals
    assert refusal.startswith(
        "it leaves 6 running gangs outside any quota: ns/g0 (queue 'q' goes), ns/g1 (queue 'r' goes)"
    )
    assert "and 3 more; stop queues q, r first" in refusal


def test_who_runs_outside_any_quota_all_the_same_is_told_of() -> None:
    """Under the first revision of a cluster that has gangs, and one that was restored."""
    before = counting(COUNTED, "q", "r")
    world = busy(before, "q", "r")
    assert outside_quota(before, world.snapshot()) == ()
    [told] = map(str, outside_quota(counting(COUNTED, "r"), world.snapshot()))
    assert told == "ns/g0 (queue 'q' is not declared)"
    other = FleetBuilder().pool("new").team(quotas={"new": {GPU: 9}}).queue(flavors=["new"]).queue("r", flavors=["new"])
    assert [it.why for it in outside_quota(other.build(), world.snapshot())] == ["flavor 'h100' is not declared"] * 2
    first = make_plan(Fleet(), counting(COUNTED, "r"), world.snapshot())
    assert not [it for it in first.refusals if "quota" in it]
