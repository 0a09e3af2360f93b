"""Machines that are taken away with notice: left in time, replaced first where that comes in time; and the way back."""

from typing import Any

import pytest

from agent.demo.jobs import Manifest
from agent.simulation import Moment
from providers.sim.machines import MachineTimings
from tests.agent.scenes import A, B, Scene, files, gpu_job, pool, queue, team
from tests.agent.test_simulation_crashes import Nurse
from tests.agent.test_simulation_replacement import PATIENT, goes_on, hardy, instance_of, where
from tests.agent.test_simulation_trouble import pods_of

SPOT_FIRST = ["spot", "on-demand"]
QUICK = MachineTimings(boot_s=15)
"""A machine is ready 70 seconds after its launch, the device plug-in included."""


def fleet(disruption: dict[str, Any] | None = None, **spec: Any) -> dict[str, str]:
    quiet = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "60s", "budgets": [{"nodes": "100%"}]}
    buys = {"capacityTypes": SPOT_FIRST, "disruption": quiet | (disruption or {})}
    return files(pool(**buys | spec), team(), queue(**PATIENT))


def quick(name: str = "g", pods: int = 2) -> Manifest:
    """A job whose pods end fast, and that makes lost ones anew."""
    made = hardy(gpu_job(name, pods=pods))
    made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 5
    return made


def working(scene: Scene) -> list[str]:
    """Nodes on which pods of the gang run that nobody has told to go."""
    pods = (pod for pod in scene.sim.objects("Pod") if pod["metadata"]["name"].startswith("g-"))
    runs = (pod for pod in pods if pod["status"].get("phase") == "Running")
    return sorted(pod["spec"]["nodeName"] for pod in runs if not pod["metadata"].get("deletionTimestamp"))


def kinds(scene: Scene) -> list[str]:
    """Capacity types of the machines that run."""
    return sorted(machine.capacity_type for machine in scene.sim.machines())


# -- the deadline, and who comes first --------------------------------------------------------------------------------


def test_a_pod_runs_on_until_the_replacement_is_ready_and_is_gone_by_the_deadline() -> None:
    scene = Scene(fleet(), timings=QUICK)
    scene.runs(quick(pods=3))
    lost = min(scene.nodes_of("g"))
    kept = {uid: node for uid, node in where(scene, "g").items() if node != lost}
    noticed_s = scene.sim.now_s
    scene.sim.cloud.interrupt(instance_of(scene, lost))
    scene.until(lambda: scene.bought() == 4, 10)
    scene.sim.advance(45)
    assert lost in working(scene), "it works while the next machine boots"
    assert len(working(scene)) == 3
    scene.until(lambda: lost not in working(scene), 60)
    assert 65 < scene.sim.now_s - noticed_s < 105, "with a margin before EC2 takes it"
    scene.until(lambda: scene.sim.running("g"), 15, "the next machine was ready by then")
    goes_on(scene, lost, kept)
    scene.settle(300)
    ended = next(it for it in scene.sim.cloud.ledger() if it.ended_at_s is not None)
    assert ended.reason == "Client.UserInitiatedShutdown", "given back before it was taken"
    assert len(scene.sim.machines()) == 3


@pytest.mark.parametrize("boots_s", [0.0, 300.0], ids=["in time", "late"])
def test_a_gang_of_one_machine_goes_over_where_the_next_one_comes_in_time(boots_s: float) -> None:
    """Whether it comes in time is judged by how long the machines of the pool have taken."""
    scene = Scene(fleet(), timings=QUICK)
    scene.faults.slow_boots, scene.faults.slow_boot_s = (1, boots_s) if boots_s else (0, 0.0)
    scene.runs(quick(pods=1))
    [lost] = scene.nodes_of("g")
    scene.sim.cloud.interrupt(instance_of(scene, lost))
    scene.until(lambda: scene.sim.running("g") and lost not in scene.nodes_of("g"), 900)
    assert scene.laws.evictions == ({"g": 1} if boots_s else {})
    scene.settle(300)


def test_maintenance_is_gone_out_of_the_way_of_without_a_gap() -> None:
    scene = Scene(fleet(capacityTypes=["on-demand"]))
    scene.runs(quick(pods=1))
    [lost] = scene.nodes_of("g")
    scene.faults.slow_boots, scene.faults.slow_boot_s = 1, 500.0
    scene.sim.cloud.schedule_change(instance_of(scene, lost))
    scene.sim.advance(400)
    assert working(scene) == [lost], "it runs on for as long as the next machine takes"
    goes_on(scene, lost, {})
    scene.settle(300)
    assert (scene.bought(), len(scene.sim.machines())) == (2, 1)


def test_where_the_replacement_is_lost_as_well_the_pod_still_leaves_in_time() -> None:
    scene = Scene(fleet(), timings=QUICK)
    scene.runs(quick(pods=2))
    lost = min(scene.nodes_of("g"))
    noticed_s = scene.sim.now_s
    scene.sim.cloud.interrupt(instance_of(scene, lost))
    scene.until(lambda: scene.bought() == 3, 10)
    scene.sim.advance(20)
    scene.sim.cloud.kill(max(scene.sim.machines(), key=lambda machine: machine.launched_at_s).id)
    scene.until(lambda: lost not in working(scene), 120)
    assert scene.sim.now_s - noticed_s < 105
    goes_on(scene, lost, {})
    scene.settle(300)


def _warned(more: list[Any]) -> tuple[Scene, str]:
    """A gang of two machines, one of which EC2 is about to announce that it takes it. No books are kept."""
    scene = Scene(timings=QUICK, more=more, publishes=False)
    if more:
        more[0].sim = scene.sim
    scene.sim.push(fleet())
    scene.sim.advance(1)
    scene.runs(quick())
    return scene, min(scene.nodes_of("g"))


def _writes_of_handing_over() -> tuple[int, int]:
    scene, lost = _warned([])
    first = scene.sim.writes
    scene.sim.cloud.interrupt(instance_of(scene, lost))
    goes_on(scene, lost, {})
    return first, scene.sim.writes


BEGUN, OVER = _writes_of_handing_over()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("write", range(BEGUN + 1, OVER + 1))
def test_killed_while_handing_over(write: int, moment: Moment) -> None:
    nurse = Nurse()
    scene, lost = _warned([nurse])
    kept = {uid: node for uid, node in where(scene, "g").items() if node != lost}
    scene.sim.crash_at(write, moment)
    noticed_s = scene.sim.now_s
    scene.sim.cloud.interrupt(instance_of(scene, lost))
    scene.until(lambda: lost not in working(scene), 120)
    stayed_s = scene.sim.now_s - noticed_s
    assert 60 < stayed_s < 105 or 30 <= stayed_s < 31, "or the warning was lost, and came again too late for a purchase"
    goes_on(scene, lost, kept, within_s=300)
    scene.until(lambda: scene.sim.alive, 60)
    scene.settle(300)
    assert (nurse.deaths, scene.bought(), len(scene.sim.machines())) == (1, 3, 2)


# -- advice -----------------------------------------------------------------------------------------------------------


def test_advice_is_acted_on_where_the_pool_asks_for_it() -> None:
    scene = Scene(fleet({"onRebalance": "Replace"}))
    scene.runs(quick(pods=2))
    before = scene.nodes_of("g")
    advised = min(before)
    scene.sim.cloud.rebalance(instance_of(scene, advised))
    scene.until(lambda: scene.bought() == 3, 30)
    assert scene.sim.running("g"), "the replacement comes first"
    scene.until(lambda: scene.sim.running("g") and advised not in scene.nodes_of("g"), 600)
    scene.settle(300)
    assert (scene.bought(), len(scene.sim.machines()), scene.laws.evictions["g"]) == (3, 2, 1)


# -- standing ---------------------------------------------------------------------------------------------------------


def test_an_interrupted_capacity_pool_stands_lower_for_a_while_whatever_becomes_of_the_agent() -> None:
    scene = Scene(fleet(zones=[A, "us-east-1e"]))  # there spot costs five percent more
    scene.runs(quick(pods=1))
    [first] = scene.sim.machines()
    scene.sim.cloud.interrupt(first.id)
    scene.until(lambda: scene.sim.running("g") and first.id not in {m.id for m in scene.sim.machines()}, 600)
    scene.sim.advance(600)
    scene.sim.crash()
    scene.sim.restart()
    scene.sim.advance(5)
    scene.runs(gpu_job("later"))
    assert [machine.zone for machine in scene.sim.machines()].count(first.zone) == 0, "no shortage holds for so long"
    scene.sim.delete(gpu_job("later"))
    scene.settle(300)


# -- fallback, and the way back ---------------------------------------------------------------------------------------

BACK = {"returnToPreferred": {"after": "30m"}}


def fallen_back(scene: Scene, pods: int = 2) -> None:
    """A gang on demand, as spot is short; it writes checkpoints all the time."""
    scene.short(capacity="spot")
    made = quick(pods=pods)
    made["metadata"]["annotations"]["muster.dev/checkpoint-interval"] = "1m"
    began_s = scene.sim.now_s
    scene.runs(made)
    assert kinds(scene) == ["on-demand"] * pods
    assert scene.sim.now_s - began_s < 110, "one boot: bought in the same pass in which spot fell short"


def test_on_demand_is_bought_while_spot_is_short_and_left_when_it_can_be_had_again() -> None:
    scene = Scene(fleet(BACK))
    fallen_back(scene)
    first = pods_of(scene, "g")
    scene.sim.advance(1700)
    assert pods_of(scene, "g") == first
    scene.sim.advance(1800)
    assert pods_of(scene, "g") == first, "spot is still short: it was tried, and nothing has moved"
    assert kinds(scene) == ["on-demand"] * 2
    scene.short(capacity="spot", on=False)
    scene.until(lambda: kinds(scene) == ["spot"] * 2 and scene.sim.running("g"), 900)
    assert scene.laws.evictions == {"g": 1}, "once, as a whole"
    scene.settle(600)
    assert kinds(scene) == ["spot"] * 2


def test_without_the_policy_it_stays_on_demand() -> None:
    scene = Scene(fleet())
    fallen_back(scene, pods=1)
    scene.short(capacity="spot", on=False)
    scene.settle(3600)
    assert kinds(scene) == ["on-demand"]


def test_half_of_the_spot_machines_are_no_way_back() -> None:
    scene = Scene(fleet(BACK))
    fallen_back(scene)
    scene.short(capacity="spot", on=False)
    for zone in (A, B):
        scene.capacity(1, zone=zone, capacity="spot")
    scene.settle(3700)
    assert kinds(scene) == ["on-demand"] * 2
    assert scene.laws.evictions == {}


def _on_the_way_back(more: list[Any]) -> Scene:
    """Just before the minimum stay is over, with spot to be had. No books are kept: every write is about machines."""
    scene = Scene(more=more, publishes=False)
    if more:
        more[0].sim = scene.sim
    scene.sim.push(fleet(BACK))
    scene.sim.advance(1)
    fallen_back(scene)
    scene.short(capacity="spot", on=False)
    scene.sim.advance(1700)
    return scene


def _back(scene: Scene, within_s: float) -> None:
    scene.until(lambda: scene.sim.alive and kinds(scene) == ["spot"] * 2 and scene.sim.running("g"), within_s)


def _writes() -> tuple[int, int]:
    scene = _on_the_way_back([])
    first = scene.sim.writes
    _back(scene, 900)
    return first, scene.sim.writes


FIRST, LAST = _writes()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("write", range(FIRST + 1, LAST + 1, 2))
def test_killed_on_the_way_back(write: int, moment: Moment) -> None:
    nurse = Nurse()
    scene = _on_the_way_back([nurse])
    scene.sim.crash_at(write, moment)
    _back(scene, 2400)
    scene.settle(600)
    assert nurse.deaths == 1
    assert scene.bought(capacity="spot") == 2
    assert scene.laws.evictions == {"g": 1}
