"""Consolidation looks twice: it proposes, waits, and carries out what still holds; and it does not look in vain."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet import disruption as disrupt
from fleet.actions import Action, Consider, OpenClaims, SaveClaim
from fleet.disruption import consolidation, multi_node
from fleet.disruption.consolidation import AGAIN_S
from fleet.disruption.context import DisruptionContext
from fleet.disruption.evaluation import evaluate
from fleet.disruption.outcomes import Blocked
from fleet.disruption.pending import VALIDATE_AFTER_S
from fleet.disruption.simulation import ROUND_S
from fleet.snapshot import DaemonOverhead, InterruptionHistory, Outlook, PodBudget
from tests.support.fleets import GPU, NOW, P5, P5S, A, B, FleetBuilder, capacity_pool, foreign_pod, gang, offers
from tests.support.fleets import catalog as sold
from tests.support.world import World

BOTH = [P5.name, P5S.name]


def declare(world: World, gpus: int = 64, disruption: dict[str, Any] | None = None, **pool: Any) -> None:
    policy = pool.pop("policy", {})
    spec = {"instanceTypes": BOTH, "disruption": {"budgets": [{"nodes": "100%"}], **(disruption or {})}, **pool}
    builder = FleetBuilder().pool(**spec).team(quotas={"h100": {GPU: gpus}}).queue()
    world.fleet = builder.policy(**policy).build()


def small_on_large(machines: int = 1) -> World:
    """Gangs of one GPU, each alone on a machine of eight; the pool also buys machines with one."""
    world = World(FleetBuilder().build())
    declare(world)
    for n in range(machines):
        world.machine(f"m{n}")
        world.runs(gang(f"g{n}", gpu=1), (f"m{n}", 1), admitted_at_s=NOW - 600)
    return world


def fits_elsewhere() -> World:
    """Two half-full machines whose gangs fit on one of them."""
    world = World(FleetBuilder().build())
    declare(world, instanceTypes=[P5.name])
    for n in range(2):
        world.machine(f"m{n}")
        world.runs(gang(f"g{n}", gpu=4), (f"m{n}", 1), admitted_at_s=NOW - 600)
    return world


def looks(world: World, after_s: float = 0.0) -> tuple[list[Action], list[str]]:
    """What is done on a further look, and why proposals are withdrawn."""
    world.now_s += after_s
    asked = disrupt.decide(world.fleet, world.snapshot())
    remembered = [it for it in asked if isinstance(it, Consider)]
    assert len(remembered) <= 1
    world.apply(remembered)
    return [it for it in asked if not isinstance(it, Consider)], [w.why for it in remembered for w in it.withdrawn]


def proposed(world: World) -> list[tuple[str, ...]]:
    return [it.claims for it in world.outlook.proposals]


# -- the wait ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machines", [1, 3])
def test_nothing_is_done_before_it_has_waited(machines: int) -> None:
    world = small_on_large(machines)
    assert looks(world) == ([], [])
    named = [(f"m{n}",) for n in range(machines)]
    assert sorted(proposed(world)) == named
    for _ in range(14):
        assert looks(world, 1.0) == ([], [])
        assert sorted(proposed(world)) == named
    done, withdrawn = looks(world, 1.0)
    assert sorted(claim.replaces for it in done if isinstance(it, OpenClaims) for claim in it.claims) == named
    assert (withdrawn, proposed(world)) == ([], [])


def test_machines_whose_work_fits_elsewhere_wait_as_well() -> None:
    world = fits_elsewhere()
    assert looks(world) == ([], [])
    [(name,)] = proposed(world)
    [save] = looks(world, VALIDATE_AFTER_S)[0]
    assert isinstance(save, SaveClaim)
    assert save.claim.name == name


def test_a_restart_forgets_and_proposes_anew() -> None:
    world = small_on_large()
    looks(world)
    world.now_s += 14
    world.outlook = Outlook()
    assert looks(world) == ([], [])
    assert looks(world, 14) == ([], [])
    assert len(looks(world, 1)[0]) == 1


Change = Callable[[World], object]


def of_gang(**facts: Any) -> Change:
    return lambda world: world.gangs.update({"uid-g0": replace(world.gang("g0"), **facts)})


def of_node(**facts: Any) -> Change:
    return lambda world: world.nodes.update({"node-m0": replace(world.nodes["node-m0"], **facts)})


def priced(usd_h: float) -> Change:
    """A small machine costs so much."""

    def change(world: World) -> None:
        world.catalog = sold([it if it.instance_type is not P5S else replace(it, price_usd_h=usd_h) for it in offers()])

    return change


def has_room(world: World) -> None:
    world.machine("m1")
    world.runs(gang("new", gpu=1), ("m1", 1), admitted_at_s=NOW)


FREEZE = {"freezeWindows": [{"name": "always", "schedule": "* * * * *", "duration": "10m", "blocks": ["Disruption"]}]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(
            lambda w: w.runs(gang("new", gpu=1), ("m0", 1), admitted_at_s=NOW), "no candidate", id="somebody has come"
        ),
        pytest.param(
            lambda w: w.runs(gang("new", gpu=1), ("m0", 1), admitted_at_s=NOW - 600), "come or gone", id="and is quiet"
        ),
        pytest.param(lambda w: w.gangs.pop("uid-g0"), "m0 is no candidate", id="its gang has ended"),
        pytest.param(of_node(do_not_disrupt="true"), "m0 is no candidate", id="its node is to be spared"),
        pytest.param(lambda w: declare(w, replicas=1), "m0 is no candidate", id="its pool is fixed now"),
        pytest.param(
            lambda w: declare(w, disruption={"budgets": [{"nodes": 0}]}), "budgets", id="the budgets are closed"
        ),
        pytest.param(lambda w: declare(w, template={"labels": {"a": "b"}}), "no candidate", id="drift takes it"),
        pytest.param(lambda w: declare(w, policy=FREEZE), "freeze window always is open", id="a freeze window opens"),
        pytest.param(of_gang(do_not_disrupt="true"), "may not move", id="its gang is not to be disturbed"),
        pytest.param(lambda w: w.stands(foreign_pod("x", "node-m0")), "may not move", id="a pod of nobody"),
        pytest.param(lambda w: declare(w, gpus=0), "no quota to come back to", id="its quota is gone"),
        pytest.param(lambda w: declare(w, limits={"nodes": 1}), "no other place", id="nothing may be bought"),
        pytest.param(lambda w: w.shortages.update(_nowhere()), "no other place", id="nothing can be had"),
        pytest.param(priced(15.0), "costs 15.00 USD/h by now, not 14.00", id="the purchase is dearer"),
        pytest.param(of_gang(admitted_at_s=NOW - 9e5), "no candidate", id="the work is worth more"),
        pytest.param(priced(13.0), "", id="the purchase is cheaper"),
        pytest.param(lambda w: w.machine("idle", emptied_at_s=NOW), "no cheaper", id="another one is idle, and goes"),
        pytest.param(has_room, "", id="there is room now"),
    ],
)
def test_what_becomes_of_a_proposal(change: Change, why: str) -> None:
    world = small_on_large()
    looks(world)
    assert proposed(world) == [("m0",)]
    change(world)
    world.now_s += VALIDATE_AFTER_S
    done, withdrawn = looks(world)
    if why:
        assert len(withdrawn) == 1
        assert why in withdrawn[0]
        assert all(isinstance(it, OpenClaims) for it in done), "drift replaces it, first"
    else:
        assert (len(done), withdrawn) == (1, [])


def _nowhere() -> dict[Any, float]:
    return {capacity_pool(kind, zone): NOW + 600 for kind in BOTH for zone in (A, B)}


def test_of_several_proposals_those_that_hold_are_carried_out() -> None:
    world = small_on_large(3)
    looks(world)
    world.gangs["uid-g1"] = replace(world.gang("g1"), do_not_disrupt="true")
    done, withdrawn = looks(world, VALIDATE_AFTER_S)
    assert sorted(claim.replaces for it in done if isinstance(it, OpenClaims) for claim in it.claims) == [
        ("m0",),
        ("m2",),
    ]
    assert len(withdrawn) == 1


def test_what_is_withdrawn_early_is_free_for_another_plan() -> None:
    world = small_on_large(2)
    looks(world)
    world.runs(gang("new", gpu=1), ("m0", 1))
    assert looks(world, 1)[1] == ["gangs have come or gone"]
    assert proposed(world) == [("m1",)]


# -- looking no more often than there is something to see --------------------------------------------------------------


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When a plan for many machines was sought."""
    times: list[float] = []
    original = multi_node.suggestions

    def counted(context: DisruptionContext, candidates: Any) -> Any:
        times.append(context.snapshot.now_s - NOW)
        return original(context, candidates)

    monkeypatch.setattr(multi_node, "suggestions", counted)
    return times


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Machines that were tried one by one."""
    tried: list[str] = []

    def counted(context: DisruptionContext, claims: Any, **more: Any) -> Any:
        tried.extend(claim.name for claim in claims)
        return evaluate(context, claims, **more)

    monkeypatch.setattr(consolidation, "evaluate", counted)
    return tried


def well_used(machines: int = 3) -> World:
    """Five of eight GPUs in use on each: nothing can be done, but a look has to find that out."""
    world = World(FleetBuilder().build())
    declare(world, instanceTypes=[P5.name])
    for n in range(machines):
        world.machine(f"m{n}")
        world.runs(gang(f"g{n}", gpu=5), (f"m{n}", 1), admitted_at_s=NOW - 600, last_checkpoint_s=NOW)
    return world


def test_a_fleet_at_rest_is_looked_at_one_by_one_once_in_a_long_while(searches: list[float], trials: list[str]) -> None:
    world = well_used()
    world.now_s += 0.4  # whatever the second
    for _ in range(int(AGAIN_S)):
        assert looks(world) == ([], [])
        world.now_s += 1
    assert searches == [pytest.approx(0.4)]
    once = sorted(trials)
    assert once == sorted(set(trials))
    looks(world)
    assert sorted(trials) == sorted(2 * once)
    assert searches == [pytest.approx(0.4)], "a plan for many is sought when something has changed"


UNSEEN = {
    "measured": lambda world: world.measured.update({("p5.48xlarge", ""): {"cpu": 1}}),
    "interruptions": lambda world: world.interruptions.update(
        {capacity_pool(P5.name, A, "spot"): InterruptionHistory(1.0, NOW)}
    ),
    "pod budgets": lambda world: world.pod_budgets.update({"prod/b": PodBudget("prod", "b", None, 1)}),
    "daemons": lambda world: setattr(world, "daemon_overheads", (DaemonOverhead({}, {"cpu": 1}),)),
}


@pytest.mark.parametrize("change", UNSEEN.values(), ids=UNSEEN)
def test_what_a_plan_for_many_goes_by_is_looked_at_when_it_changes(
    searches: list[float], change: Callable[[World], None]
) -> None:
    world = well_used()
    looks(world)
    looks(world, ROUND_S)
    assert searches == [0.0]
    change(world)
    looks(world, ROUND_S)
    assert searches == [0.0, 2 * ROUND_S]


def test_a_change_is_looked_at_but_not_at_once(searches: list[float]) -> None:
    world = well_used()
    looks(world)
    for second in range(1, 30):
        world.nodes["node-m0"] = replace(world.nodes["node-m0"], created_at_s=float(second))
        looks(world, 1.0)
    assert searches == [0.0, ROUND_S, 2 * ROUND_S]


def test_while_proposals_wait_nothing_else_is_sought(searches: list[float], trials: list[str]) -> None:
    world = small_on_large(2)
    looks(world)
    trials.clear()
    for _ in range(int(VALIDATE_AFTER_S) - 1):
        looks(world, 1.0)
    assert len(searches) == 1
    assert trials == []


def test_work_that_loses_less_since_its_checkpoint_is_a_change() -> None:
    world = small_on_large()
    world.gangs["uid-g0"] = replace(world.gang("g0"), admitted_at_s=NOW - 9e5)
    looks(world)
    assert proposed(world) == []
    world.gangs["uid-g0"] = replace(world.gang("g0"), last_checkpoint_s=NOW)
    looks(world, ROUND_S)
    assert proposed(world) == [("m0",)]


# -- what-ifs leave nothing behind -------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=8),
    st.lists(st.sets(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=6),
)
def test_a_what_if_comes_to_the_same_however_many_there_were_before(
    gangs: list[tuple[int, int]], asked: list[set[int]]
) -> None:
    world = World(FleetBuilder().build())
    declare(world, limits={"nodes": 6})
    for n in range(5):
        world.machine(f"m{n}")
    for n, (place, gpu) in enumerate(gangs):
        world.runs(gang(f"g{n}", gpu=gpu), (f"m{place}", 1), admitted_at_s=NOW - 600)
    used = DisruptionContext.of(world.fleet, world.snapshot())
    for names in asked:
        claims = [world.claims[f"m{n}"] for n in sorted(names)]
        others = {f"m{n}" for n in range(0, 5, 2)}
        for avoid in ((), others):
            fresh = DisruptionContext.of(world.fleet, world.snapshot())
            assert _said(evaluate(used, claims, avoid=avoid)) == _said(evaluate(fresh, claims, avoid=avoid))


def _said(found: Any) -> Any:
    if isinstance(found, Blocked):
        return None
    seats = {
        uid: [(it.pod_set, it.slot.name, it.count) for it in plan.assignments] for uid, plan in found.plans.items()
    }
    return seats, [(lot.offering.key, lot.count) for lot in found.purchases], found.saving_usd_h


@pytest.mark.parametrize("whose", ["a gang", "an ordinary pod"])
def test_machines_are_looked_at_when_a_protection_has_run_out(whose: str) -> None:
    """Nothing but the time changes with it: such a machine was left alone for minutes, told that others go first."""
    world = small_on_large()
    world.gangs["uid-g0"] = replace(world.gang("g0"), do_not_disrupt="11m" if whose == "a gang" else "")
    if whose != "a gang":
        pod = replace(foreign_pod("p", "node-m0"), started_at_s=NOW - 600, controlled=True, do_not_disrupt="11m")
        world.stands(pod)
    assert looks(world, 59.0 - ROUND_S) == ([], [])
    assert looks(world, ROUND_S) == ([], [])
    assert world.outlook.proposals == ()
    looks(world, ROUND_S)
    assert [it.claims for it in world.outlook.proposals] == [("m0",)]
