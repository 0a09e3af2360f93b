"""Runs on a model: what becomes of pods that belong to no gang, and of one run after another."""

from dataclasses import replace

import pytest

from fleet.actions import EvictPod, SaveGang, StopJob, TerminateMachines
from fleet.disruption import multi_node
from fleet.plan.simulated_run import RunTerms, SimulatedRun, played, simulate
from fleet.snapshot import GangState, NamespaceQuota, NamespaceQuotas, Pod, Snapshot
from model.fleet import Fleet
from tests.fleet.scheduling.test_ordinary_pods import waiting
from tests.support.fleets import GPU, NOW, FleetBuilder, gang
from tests.support.world import World

HALF_AN_HOUR_S, DAY_S = 1_800.0, 86_400.0


def serving() -> Fleet:
    return FleetBuilder().pool(serves=["Gangs", "Pods"]).team().queue().build()


def with_pods(*pods: Pod) -> Snapshot:
    world = World(serving())
    world.pods = {pod.key: pod for pod in pods}
    return world.snapshot()


def standing(run: SimulatedRun) -> dict[str, str]:
    """Pod -> the machine it stands on."""
    return {pod.name: pod.node for pods in run.end.node_pods.values() for pod in pods}


def test_a_pod_runs_once_there_is_a_machine_for_it_and_not_before() -> None:
    """It was taken to run after five seconds, nowhere, so that no plan showed what becomes of it."""
    run = simulate(serving(), with_pods(waiting("p", gpu=8)), horizon_s=HALF_AN_HOUR_S)
    [claim] = run.end.claims.values()
    assert standing(run) == {"p": claim.node}
    assert not run.end.waiting_pods
    assert not any(isinstance(it.action, EvictPod) for it in run.actions)


def test_a_run_after_a_run_buys_machines_of_their_own() -> None:
    """Both made machines called alike, and the second run opened its claim again and again."""
    first = simulate(serving(), with_pods(waiting("p", gpu=8)), horizon_s=HALF_AN_HOUR_S).end
    second = replace(waiting("q", gpu=8), waits_since_s=first.now_s)
    run = simulate(serving(), replace(first, waiting_pods={second.key: second}), horizon_s=HALF_AN_HOUR_S)
    assert run.given_up_after_s is None
    assert standing(run).keys() == {"p", "q"}
    assert len(set(standing(run).values())) == 2


def test_a_fleet_at_rest_has_one_plan_for_many_sought_in_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was sought a hundred times, so that the plan of a revision took minutes with a thousand machines."""
    world = World(FleetBuilder().pool().team().queue().build())
    for n in range(3):
        world.machine(f"m{n}")
        world.runs(gang(f"g{n}", gpu=5), (f"m{n}", 1), admitted_at_s=NOW - 600, last_checkpoint_s=NOW)
    sought: list[float] = []
    original = multi_node.suggestions
    monkeypatch.setattr(
        multi_node, "suggestions", lambda *given: (sought.append(given[0].snapshot.now_s), original(*given))[1]
    )
    run = simulate(world.fleet, world.snapshot())
    assert run.actions == []
    assert len(sought) == 1


def test_what_takes_two_looks_is_not_late_because_nobody_looked() -> None:
    """Half of the time since the beginning was seen at once, so that a machine bought late never was in time."""
    world = World(FleetBuilder().pool(limits={"nodes": 1}).team(quotas={"h100": {GPU: 8}}).queue().build())
    world.machine("m0")
    world.runs(gang("first"), ("m0", 1), admitted_at_s=NOW, expected_run_s=DAY_S, pods_ready=True)
    world.jobs["uid-first"] = replace(world.jobs["uid-first"], expected_run_s=DAY_S)
    world.waits(gang("second"))
    terms = RunTerms(horizon_s=2 * DAY_S, steps_s=(600.0, DAY_S), least_part=0.5)
    *_, run = played(world.fleet, world.snapshot(), terms)
    assert run.end.gangs["uid-second"].state is GangState.ADMITTED
    assert not [it for it in run.actions if isinstance(it.action, StopJob | TerminateMachines)]


@pytest.mark.parametrize(
    ("ran_s", "ends"),
    [
        pytest.param(590.0, True, id="in ten seconds"),
        pytest.param(604.0, True, id="its pods started a little after it was admitted"),
        pytest.param(700.0, False, id="it has outrun what it said"),
    ],
)
def test_a_gang_ends_when_its_pods_have_run_for_as_long_as_it_said(ran_s: float, ends: bool) -> None:
    world = World(serving())
    world.machine("m0")
    world.runs(gang("g"), ("m0", 1), admitted_at_s=NOW - ran_s, expected_run_s=600.0, pods_ready=True)
    world.jobs["uid-g"] = replace(world.jobs["uid-g"], expected_run_s=600.0)
    run = simulate(serving(), world.snapshot(), horizon_s=HALF_AN_HOUR_S)
    assert (run.end.gangs["uid-g"].state is GangState.FINISHED) is ends


def test_a_run_follows_the_resource_quotas_of_namespaces() -> None:
    """Pods that the model makes count in them, and those that end no more: one gang after the other."""
    world = World(FleetBuilder().pool().team().queue().build())
    world.machine("m0")
    world.machine("m1")
    world.waits(gang("a", expected_run_s=600.0), gang("b", created_s=NOW - 60, expected_run_s=600.0))
    world.jobs = {uid: replace(it, expected_run_s=600.0) for uid, it in world.jobs.items()}
    bounded = NamespaceQuotas({"ns": (NamespaceQuota("ns", "gpus", {f"requests.{GPU}": 8}),)})
    snapshot = replace(world.snapshot(), namespace_quotas=bounded)
    run = simulate(world.fleet, snapshot, horizon_s=HALF_AN_HOUR_S)
    started = {it.action.gang.job.name: it.at_s for it in run.actions
               if isinstance(it.action, SaveGang) and it.action.gang.state is GangState.ADMITTED}  # fmt: skip
    assert started["b"] - started["a"] >= 600
    assert run.end.namespace_quotas.by_namespace["ns"][0].used[f"requests.{GPU}"] == 0
