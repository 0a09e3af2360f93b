"""What is left to do of a revision in force: the counts, when it is done, and when somebody should look."""

from dataclasses import replace

from fleet.plan.convergence import STALLED_AFTER_S, Convergence, ConvergencePhase, began, left_to_do, looked_at
from fleet.snapshot import DecisionFailure, GangState, NodeDisruption, WriteRefusal
from model.fleet import Fleet
from model.mig.layouts import config_name
from tests.support.fleets import NOW, FleetBuilder, gang
from tests.support.world import World


def fleet(**pool: object) -> Fleet:
    return FleetBuilder().pool(**pool).team().queue().build()


def changed(**pool: object) -> Fleet:
    return fleet(template={"labels": {"x": "y"}}, **pool)


def machines(count: int, now: Fleet) -> World:
    world = World(now)
    for number in range(count):
        world.machine(f"m{number}")
    return world


def look(before: Convergence, world: World, after_s: float = 0.0) -> Convergence:
    world.now_s += after_s
    return looked_at(before, world.fleet, world.snapshot())


def counts(now: Convergence) -> tuple[str, int, int]:
    return str(now.phase), now.total - now.left, now.total


def test_a_revision_that_changes_no_machine_is_done_at_once() -> None:
    now = look(began("r1", NOW), machines(2, fleet()))
    assert counts(now) == ("Done", 0, 0)
    assert now.message == "nothing was left to do"


def test_machines_that_differ_are_counted_until_the_last_has_gone() -> None:
    world = machines(3, fleet())
    world.fleet = changed()
    now = look(began("r1", NOW), world)
    assert counts(now) == ("Progressing", 0, 3)
    assert now.message.startswith("0 of 3 are as declared; left: claim/m0: the template of node pool h100 has changed")
    for number in range(3):
        del world.claims[f"m{number}"]
        now = look(now, world, 600.0)
        assert now.total - now.left == number + 1
    assert (now.phase, now.message) == (ConvergencePhase.DONE, "all 3 are as declared")


def test_what_is_done_stays_done_whatever_comes_later() -> None:
    world = machines(1, fleet())
    now = look(began("r1", NOW), world)
    world.fleet = changed()
    assert look(now, world, 60.0) == now


def test_without_progress_it_stalls_and_says_what_holds_it() -> None:
    world = machines(2, fleet(disruption={"budgets": [{"nodes": 0}]}))
    world.fleet = changed(disruption={"budgets": [{"nodes": 0}]})
    now = look(began("r1", NOW), world)
    now = look(now, world, STALLED_AFTER_S - 1)
    assert now.phase is ConvergencePhase.PROGRESSING
    assert now.stalls_at_s == world.now_s + 1
    now = look(now, world, 1)
    assert counts(now) == ("Stalled", 0, 2)
    assert "0 of 2 are as declared, none for 15 minutes; left: claim/m0: the template" in now.message
    assert "budget" in now.message, "what keeps the machine, as `muster explain node` says it"
    del world.claims["m1"]
    assert counts(look(now, world, 5)) == ("Progressing", 1, 2), "it moves again"


def test_what_keeps_failing_stalls_at_once_and_goes_on_when_it_does_not() -> None:
    world = machines(2, fleet())
    world.fleet = changed()
    now = look(began("r1", NOW), world)
    well = world.claims["m1"]
    for ill in (
        replace(well, refused=WriteRefusal("Forbidden", "the webhook says no")),
        replace(well, failure=DecisionFailure("ValueError", "the webhook says no")),
    ):
        world.claims["m1"] = ill
        stalled = look(now, world, 1.0)
        assert stalled.phase is ConvergencePhase.STALLED
        assert "it keeps failing (claim/m1: the webhook says no)" in stalled.message
        world.claims["m1"] = well
        assert look(stalled, world, 1.0).phase is ConvergencePhase.PROGRESSING


def test_of_a_fixed_pool_the_places_count_and_not_the_machines_that_come_and_go() -> None:
    world = machines(2, fleet(replicas=4))
    now = look(began("r1", NOW), world)
    assert counts(now) == ("Progressing", 0, 2)
    assert "pool/h100/2: 2 of its 4 machines are ready" in now.message
    world.claims["m2"] = replace(world.claims["m1"], name="m2", ready_at_s=0.0)
    assert counts(look(now, world, 1.0)) == ("Progressing", 0, 2), "bought is not ready"
    world.machine("m2")
    now = look(now, world, 1.0)
    assert counts(now) == ("Progressing", 1, 2)
    world.machine("m3")
    assert counts(look(now, world, 1.0)) == ("Done", 2, 2)


def test_a_fixed_pool_that_has_too_many_is_done_when_they_have_gone_and_not_when_they_are_told() -> None:
    world = machines(3, fleet(replicas=1))
    now = look(began("r1", NOW), world)
    assert counts(now) == ("Progressing", 0, 2)
    leaving = NodeDisruption("Surplus", "", NOW, NOW + 60)
    world.claims["m2"] = replace(world.claims["m2"], disruption=leaving)
    assert counts(look(now, world, 1.0)) == ("Progressing", 0, 2)
    del world.claims["m2"], world.claims["m1"]
    assert counts(look(now, world, 1.0)) == ("Done", 2, 2)


def test_a_machine_that_differs_fills_its_place_until_another_does() -> None:
    world = machines(1, fleet(replicas=1))
    world.fleet = changed(replicas=1)
    assert list(left_to_do(world.fleet, world.snapshot())) == ["claim/m0"]


def test_gangs_that_were_leaving_count_and_those_that_leave_later_do_not() -> None:
    world = machines(2, fleet())
    world.gangs["a"] = gang("a", state=GangState.EVICTING)
    now = look(began("r1", NOW), world)
    assert counts(now) == ("Progressing", 0, 1)
    world.gangs["b"] = gang("b", state=GangState.EVICTING)
    assert counts(look(now, world, 1.0)) == ("Progressing", 0, 1)
    del world.gangs["a"]
    assert counts(look(now, world, 1.0)) == ("Done", 1, 1), "b leaves for another reason"


def cut_fleet(*layouts: str) -> Fleet:
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    builder.layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
    return builder.pool(sharing={"mig": {"layouts": list(layouts)}}).team().queue().build()


def test_layouts_count_until_they_are_cut() -> None:
    world = World(cut_fleet("small"))
    small, large = (config_name(world.fleet.mig_layouts[name]) for name in ("small", "large"))
    world.machine("m0", layout=small)
    assert left_to_do(world.fleet, world.snapshot()) == {}
    world.fleet = cut_fleet("large")
    assert left_to_do(world.fleet, world.snapshot()) == {"claim/m0": f"its GPUs are cut to {small}"}
    world.claims["m0"] = replace(world.claims["m0"], layout=large, recut_at_s=NOW + 1)
    assert left_to_do(world.fleet, world.snapshot()) == {"claim/m0": f"its GPUs are being cut to {large}"}
    world.claims["m0"] = replace(world.claims["m0"], ready_at_s=NOW + 60)
    assert left_to_do(world.fleet, world.snapshot()) == {}


def test_after_a_restart_the_counts_go_on_where_they_stood() -> None:
    """Which ones were left is not kept, only how many."""
    world = machines(4, fleet())
    world.fleet = changed()
    now = look(began("r1", NOW), world)
    del world.claims["m0"]
    now = look(now, world, 10.0)
    restored = replace(now, subjects=frozenset())
    assert counts(look(restored, world, 10.0)) == ("Progressing", 1, 4)
    assert look(restored, world, STALLED_AFTER_S).phase is ConvergencePhase.STALLED, "nor does the clock start anew"
    del world.claims["m1"]
    assert counts(look(restored, world, 1.0)) == ("Progressing", 2, 4)


def test_the_same_look_twice_says_the_same() -> None:
    world = machines(5, fleet())
    world.fleet = changed()
    now = look(began("r1", NOW), world)
    assert look(now, world, 1.0) == now
    assert now.message.endswith("; and 2 more")
