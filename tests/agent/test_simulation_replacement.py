"""A gang loses a machine and goes on: only its pods there move, whatever happens meanwhile."""

import random
from typing import Any

import pytest

from agent.demo.jobs import Manifest
from agent.simulation import Moment, Tempo
from tests.agent.scenes import P4DE, A, B, Scene, files, gpu_job, gpu_jobset, layout, pool, queue, simple, team
from tests.agent.test_simulation_crashes import Nurse
from tests.agent.test_simulation_trouble import pods_of, slices, spot_only

PATIENT = {"podsReady": {"recoveryTimeout": "20m"}}


def hardy(manifest: Manifest, limit: int = 6, **annotations: str) -> Manifest:
    """The job, now making lost pods anew `limit` times."""
    spec = manifest["spec"]
    for one in [spec, *(job["template"]["spec"] for job in spec.get("replicatedJobs") or ())]:
        if "backoffLimit" in one:
            one["backoffLimit"] = limit
    manifest["metadata"].setdefault("annotations", {}).update(annotations)
    return manifest


def fleet(**queued: Any) -> dict[str, str]:
    return files(pool(), team(), queue(**PATIENT | queued))


def where(scene: Scene, name: str) -> dict[str, str]:
    """Pod uid -> node, of pods that have one."""
    found = {}
    for pod in scene.sim.objects("Pod"):
        if pod["metadata"]["name"].startswith(f"{name}-") and pod["spec"].get("nodeName"):
            found[pod["metadata"]["uid"]] = pod["spec"]["nodeName"]
    return found


def instance_of(scene: Scene, node: str) -> str:
    return next(claim.instance_id for claim in scene.sim.claims().values() if claim.node == node)


def started(scene: Scene, name: str = "g", pods: int = 3, **more: Any) -> tuple[str, dict[str, str]]:
    """A running gang: one of its nodes, and where the pods on the others stand."""
    scene.runs(hardy(gpu_job(name, pods=pods, **more)))
    lost = min(scene.nodes_of(name))
    return lost, {uid: node for uid, node in where(scene, name).items() if node != lost}


def goes_on(scene: Scene, lost: str, kept: dict[str, str], name: str = "g", within_s: float = 1200) -> None:
    """It is whole again elsewhere, and was never told to leave; who was not hit has not moved."""
    scene.until(lambda: scene.sim.running(name) and lost not in scene.nodes_of(name), within_s, "it goes on")
    assert scene.laws.evictions == {}
    assert kept.items() <= where(scene, name).items()


# -- what is lost -----------------------------------------------------------------------------------------------------


def test_a_machine_that_dies_is_replaced_and_the_others_go_on() -> None:
    scene = Scene(fleet())
    lost, kept = started(scene)
    scene.sim.cloud.kill(instance_of(scene, lost))
    scene.until(lambda: (it := scene.sim.gang("g")) is not None and it.reason == "NodeReplacement", 300)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert gang.message.startswith(f"1 of 3 pods lost node {lost} (")
    assert "; buying 1 x p5.48xlarge (on-demand, us-east-1" in gang.message
    goes_on(scene, lost, kept)
    assert scene.bought() == 4
    scene.settle(300)
    assert len(scene.sim.machines()) == 3


@pytest.mark.parametrize("fault", ["make_unready", "fail_node", "stop_heartbeats"])
def test_a_node_that_falls_silent_is_replaced_after_a_minute(fault: str) -> None:
    scene = Scene(fleet())
    lost, kept = started(scene)
    getattr(scene.sim.health, fault)(lost)
    scene.sim.advance(50)
    assert scene.bought() == 3, "a hiccup is not a failure"
    goes_on(scene, lost, kept)
    scene.until(lambda: scene.sim.object("Node", lost) is None, 1800)
    scene.settle(300)
    assert (scene.bought(), len(scene.sim.machines())) == (4, 3)


@pytest.mark.parametrize("copies", [0, 10])
def test_an_interrupted_machine_is_left_in_time_and_replaced(copies: int) -> None:
    scene = Scene(spot_only() | {"queue.yaml": ""})
    lost, kept = started(scene, gpus=4)
    scene.faults.duplicate_messages = copies
    noticed_s = scene.sim.now_s
    scene.sim.cloud.interrupt(instance_of(scene, lost))
    scene.until(lambda: lost not in where(scene, "g").values(), 120)
    assert scene.sim.now_s - noticed_s < 105, "with a margin before EC2 takes it"
    goes_on(scene, lost, kept)
    assert scene.bought() == 4
    scene.settle(300)


def test_two_machines_at_once() -> None:
    scene = Scene(fleet())
    scene.runs(hardy(gpu_job("g", pods=4)))
    first, second, *_ = sorted(scene.nodes_of("g"))
    kept = {uid: node for uid, node in where(scene, "g").items() if node not in {first, second}}
    for node in (first, second):
        scene.sim.cloud.kill(instance_of(scene, node))
    scene.until(lambda: scene.sim.running("g") and not {first, second} & scene.nodes_of("g"), 1200)
    goes_on(scene, first, kept)
    assert scene.bought() == 6
    scene.settle(300)


def test_of_a_gang_that_loses_every_machine_nothing_is_left_to_keep() -> None:
    scene = Scene(fleet())
    scene.runs(hardy(gpu_job("g", pods=2)))
    for node in scene.nodes_of("g"):
        scene.sim.cloud.kill(instance_of(scene, node))
    scene.until(lambda: scene.laws.evictions["g"] == 1, 300)
    scene.until_running("g", 1800)
    scene.settle(600)


def test_a_set_that_restarts_as_a_whole_keeps_its_machines() -> None:
    scene = Scene(fleet())
    manifest = gpu_jobset("g", workers=3)
    manifest["spec"]["failurePolicy"] = {"maxRestarts": 2}
    scene.runs(manifest)
    nodes, lost = scene.nodes_of("g"), min(scene.nodes_of("g"))
    scene.sim.cloud.kill(instance_of(scene, lost))
    scene.until(lambda: scene.sim.running("g") and lost not in scene.nodes_of("g"), 1200)
    assert scene.laws.evictions == {}
    assert nodes - {lost} < scene.nodes_of("g")
    assert scene.bought() == 4
    scene.settle(300)


def test_pods_on_slices_move_to_slices() -> None:
    quotas = {"mig": {"nvidia.com/mig-1g.10gb": 112}}
    cut = pool("mig", (P4DE,), zones=[B], sharing={"mig": {"layouts": ["thin"]}})
    scene = Scene(files(cut, layout("thin", **{"1g_10gb": 7}), team(quotas=quotas), queue(flavors=("mig",), **PATIENT)))
    scene.runs(hardy(slices("thin", "1g.10gb", pods=70), 100), 900)
    lost = min(scene.nodes_of("thin"))
    kept = {uid: node for uid, node in where(scene, "thin").items() if node != lost}
    scene.sim.cloud.kill(instance_of(scene, lost))
    goes_on(scene, lost, kept, "thin")
    scene.settle(300)


def test_a_part_of_a_job_stays_a_part() -> None:
    scene = Scene(fleet())
    scene.runs(gpu_job("other", pods=1))
    scene.runs(hardy(gpu_job("g", pods=4), **{"muster.dev/job-min-parallelism": "2"}))
    lost = min(scene.nodes_of("g"))
    kept = {uid: node for uid, node in where(scene, "g").items() if node != lost}
    assert len(kept) == 2
    scene.sim.cloud.kill(instance_of(scene, lost))
    goes_on(scene, lost, kept)
    assert len(where(scene, "g")) == 3
    scene.settle(300)


# -- who leaves all the same ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queued", "limit", "says"),
    [
        ({"onNodeFailure": "Evict"}, 6, {}),
        ({}, 6, {"muster.dev/on-node-failure": "Evict"}),
        ({}, 0, {}),
    ],
    ids=["the queue says so", "the job says so", "the job would fail"],
)
def test_who_may_not_go_on_leaves_as_a_whole(queued: dict[str, Any], limit: int, says: dict[str, str]) -> None:
    scene = Scene(fleet(**queued))
    scene.runs(hardy(gpu_job("g", pods=2), limit, **says))
    scene.sim.health.make_unready(min(scene.nodes_of("g")))
    scene.until(lambda: scene.laws.evictions["g"] == 1, 300)
    scene.until_running("g", 1800)
    scene.settle(600)


def test_without_a_replacement_it_leaves_at_once_and_says_why() -> None:
    scene = Scene(files(pool(limits={"nodes": 3}), team(), queue(**PATIENT)))
    lost, _ = started(scene)
    scene.sim.health.make_unready(lost)
    scene.until(lambda: scene.laws.evictions["g"] == 1, 120)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert gang.eviction is not None
    assert gang.eviction.reason == "NodeFailures"
    assert "and there is no replacement: 1 more pod of main needs machines beyond the limits" in gang.eviction.message
    scene.until_running("g", 1800)
    scene.settle(300)


def test_a_shortage_is_met_once_and_the_next_offer_taken() -> None:
    scene = Scene(fleet())
    lost, kept = started(scene)
    zone = next(iter(scene.zones()))
    scene.capacity(3, zone=zone)
    scene.sim.cloud.kill(instance_of(scene, lost))
    scene.short(zone=zone)
    goes_on(scene, lost, kept)
    assert scene.zones() == {A, B}
    scene.settle(300)


def test_where_every_offer_falls_short_it_leaves() -> None:
    scene = Scene(fleet())
    lost, _ = started(scene)
    scene.short()
    scene.sim.health.make_unready(lost)
    scene.until(lambda: scene.laws.evictions["g"] == 1, 300)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert gang.eviction is not None
    assert "there is no replacement: no machine for 1 more pod of main: the cloud is short" in gang.eviction.message
    scene.short(on=False)
    scene.until_running("g", 1800)
    scene.settle(600)


def test_a_machine_that_never_comes_is_waited_for_no_longer_than_recovery_may_take() -> None:
    scene = Scene(simple())
    lost, _ = started(scene)
    scene.faults.never_boots = 1
    noticed_s = scene.sim.now_s
    scene.sim.health.make_unready(lost)
    scene.until(lambda: scene.laws.evictions["g"] == 1, 900)
    assert 300 <= scene.sim.now_s - noticed_s < 315, "measured from the loss"
    scene.until_running("g", 1800)
    scene.settle(600)


# -- meanwhile --------------------------------------------------------------------------------------------------------


def test_a_node_that_comes_back_takes_its_pod_again_and_the_new_machine_is_given_back() -> None:
    scene = Scene(fleet())
    lost, kept = started(scene)
    scene.faults.slow_boots, scene.faults.slow_boot_s = 1, 300.0
    scene.sim.health.make_unready(lost)
    scene.until(lambda: scene.bought() == 4, 120)
    scene.sim.health.heal(lost)
    scene.until(lambda: scene.sim.running("g"), 600)
    assert scene.laws.evictions == {}
    assert lost in scene.nodes_of("g")
    assert kept.items() <= where(scene, "g").items()
    scene.settle(900)
    assert len(scene.sim.machines()) == 3


def test_an_idle_machine_is_taken_before_one_is_bought() -> None:
    scene = Scene(files(pool(disruption={"consolidateAfter": "1h"}), team(), queue(**PATIENT)))
    scene.runs(gpu_job("short", run_s=30))
    scene.until_state("short", "Finished")
    scene.runs(gpu_job("filler"))
    lost, kept = started(scene)
    scene.sim.delete(gpu_job("filler"))
    scene.until(lambda: not scene.state("filler"), 120)
    at = scene.bought()
    scene.sim.health.make_unready(lost)
    goes_on(scene, lost, kept, within_s=200)
    assert scene.bought() == at


def test_the_replacement_dies_as_well() -> None:
    scene = Scene(fleet())
    lost, kept = started(scene)
    scene.sim.cloud.kill(instance_of(scene, lost))
    scene.until(lambda: scene.bought() == 4, 120)
    newest = max(scene.sim.machines(), key=lambda machine: machine.launched_at_s)
    scene.sim.advance(10)
    scene.sim.cloud.kill(newest.id)
    goes_on(scene, lost, kept)
    assert scene.bought() == 5
    scene.settle(300)


def test_a_disruption_budget_delays_it_and_does_not_prevent_it() -> None:
    """An interruption does not wait: the lost pod is asked to go for a while, and then told."""
    scene = Scene(spot_only())
    lost, kept = started(scene, gpus=4)
    budget = {
        "metadata": {"name": "all", "namespace": "t"},
        "spec": {"minAvailable": "100%", "selector": {"matchExpressions": [{"key": "job-name", "operator": "Exists"}]}},
    }
    scene.sim.store.create(scene.sim.store.resource("PodDisruptionBudget"), budget)
    scene.sim.advance(1)
    scene.sim.cloud.interrupt(instance_of(scene, lost))
    scene.sim.advance(8)
    assert lost in where(scene, "g").values()
    scene.until(lambda: lost not in where(scene, "g").values(), 50)
    goes_on(scene, lost, kept)
    scene.settle(300)


@pytest.mark.parametrize("seed", range(4))
def test_slow_hands_that_work_in_any_order_come_to_the_same_end(seed: int) -> None:
    rng = random.Random(seed)
    tempo = Tempo(latency_s=lambda _action: rng.choice([0.0, 0.1, 2.0, 7.0]), shuffle=seed)
    scene = Scene(fleet(), tempo=tempo)
    lost, kept = started(scene)
    scene.sim.cloud.kill(instance_of(scene, lost))
    goes_on(scene, lost, kept)
    assert scene.bought() == 4
    scene.settle(300)


def _writes() -> tuple[int, int]:
    """The first and the last write from the loss until all is well again."""
    scene = Scene(fleet())
    lost, kept = started(scene)
    first = scene.sim.writes
    scene.sim.cloud.kill(instance_of(scene, lost))
    goes_on(scene, lost, kept)
    return first, scene.sim.writes


FIRST, LAST = _writes()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("write", range(FIRST + 1, LAST + 1))
def test_killed_at_any_write_of_it(write: int, moment: Moment) -> None:
    nurse = Nurse()
    scene = Scene(more=[nurse])
    nurse.sim = scene.sim
    scene.sim.push(fleet())
    scene.sim.advance(1)
    lost, kept = started(scene)
    assert scene.sim.writes == FIRST
    scene.sim.crash_at(write, moment)
    scene.sim.cloud.kill(instance_of(scene, lost))
    goes_on(scene, lost, kept, within_s=2400)
    scene.until(lambda: scene.sim.alive, 60)
    scene.settle(300)
    assert nurse.deaths == 1
    assert scene.bought() == 4
    assert len(scene.sim.machines()) == 3
    assert len(pods_of(scene, "g")) == 3
