"""The life of gangs from submission to the last machine given back, in virtual time."""

import pytest

from agent.demo.jobs import Manifest
from agent.simulation import Tempo
from fleet.actions import Action, SaveGang
from providers.sim.ec2.market import PoolFilter
from tests.agent.scenes import (
    G5,
    G6,
    P5,
    A,
    B,
    Scene,
    doc,
    files,
    gpu_job,
    gpu_jobset,
    pool,
    queue,
    simple,
    team,
)


@pytest.mark.parametrize("manifest", [gpu_job("g", pods=2, run_s=60), gpu_jobset("g")], ids=["Job", "JobSet"])
def test_a_gang_runs_on_machines_bought_for_it_and_they_go_back(manifest: Manifest) -> None:
    scene = Scene(simple())
    scene.runs(manifest)
    assert scene.bought() == 2
    assert len(scene.nodes_of("g")) == 2
    assert len(set(scene.laws.births["g"])) == 1, "all pods at once"
    if manifest["kind"] == "Job":
        scene.until_state("g", "Finished")
    scene.sim.delete(manifest)
    scene.until(lambda: not scene.sim.machines() and not scene.sim.claims(), 900)
    scene.settle(60)
    assert scene.bought() == 2
    assert not scene.sim.objects("Workload")
    assert not scene.sim.objects("Node")


def test_nothing_is_bought_for_a_fleet_nobody_uses() -> None:
    scene = Scene(simple())
    scene.settle(3600)
    assert scene.bought() == 0


def test_a_job_without_a_queue_is_left_alone() -> None:
    scene = Scene(simple())
    manifest = gpu_job("g")
    del manifest["metadata"]["labels"]
    scene.sim.submit(manifest)
    scene.settle(300)
    assert not scene.sim.gangs()
    assert scene.sim.objects("Job")[0]["spec"]["suspend"] is True


def test_pods_are_pinned_where_the_plan_put_them_and_machines_are_shared() -> None:
    scene = Scene(simple())
    for name in ("a", "b", "c", "d"):
        scene.runs(gpu_job(name, pods=4, gpus=1))
    assert scene.bought() == 2, "sixteen GPUs are two machines"
    scene.settle()


def test_a_second_gang_takes_the_idle_machine_of_the_first() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("first", run_s=30))
    scene.until_state("first", "Finished")
    scene.runs(gpu_job("second"))
    assert scene.bought() == 1
    scene.settle()


def test_the_next_zone_serves_where_the_first_is_short() -> None:
    scene = Scene(simple())
    scene.short(zone=A)
    scene.runs(gpu_jobset("g", workers=2))
    assert scene.zones() == {B}
    assert scene.bought() == 2
    scene.settle()


def test_three_of_four_are_given_back_at_once() -> None:
    scene = Scene(simple())
    scene.capacity(3, zone=A)
    scene.lies(zone=A)
    scene.runs(gpu_jobset("g", workers=4))
    assert scene.zones() == {B}
    assert (scene.bought(zone=A), scene.bought(zone=B)) == (3, 4)
    idle = [entry for entry in scene.sim.cloud.ledger() if entry.pool.zone == A]
    assert all(e.ended_at_s is not None and e.ended_at_s - e.launched_at_s < 30 for e in idle)
    scene.settle()


def test_a_gang_whose_pods_may_be_apart_is_bought_in_one_zone_all_the_same() -> None:
    scene = Scene(simple())
    scene.capacity(3, zone=A)
    scene.runs(gpu_job("g", pods=4))
    assert len(scene.zones()) == 1
    scene.settle()


def spot_fleet() -> dict[str, str]:
    return files(
        pool("spot", (G6, G5), capacityTypes=["spot", "on-demand"]),
        pool("h100"),
        team(quotas={"spot": {"nvidia.com/gpu": 8}, "h100": {"nvidia.com/gpu": 16}}),
        queue(flavors=("spot", "h100")),
    )


def test_spot_comes_before_on_demand() -> None:
    scene = Scene(spot_fleet())
    scene.runs(gpu_job("g", gpus=4))
    assert {m.capacity_type for m in scene.sim.machines()} == {"spot"}
    scene.settle()


def test_on_demand_where_no_spot_is_left() -> None:
    scene = Scene(spot_fleet())
    scene.market.set_shortage(PoolFilter("spot", None, None))
    scene.runs(gpu_job("g", gpus=4))
    assert {m.capacity_type for m in scene.sim.machines()} == {"on-demand"}
    assert {m.instance_type for m in scene.sim.machines()} <= {G5, G6}
    assert scene.bought() == 1
    scene.settle()


def test_the_next_flavor_where_the_first_has_no_machines() -> None:
    scene = Scene(spot_fleet())
    for kind in (G5, G6):
        scene.short(kind)
    scene.runs(gpu_job("g", gpus=4))
    gang = scene.sim.gang("g")
    assert gang is not None
    assert set(gang.flavors.values()) == {("h100",)}
    assert [m.instance_type for m in scene.sim.machines()] == [P5]
    scene.settle()


def test_without_any_machine_the_quota_goes_back_and_the_gang_says_why() -> None:
    scene = Scene(simple())
    scene.short()
    scene.sim.submit(gpu_jobset("g"))
    scene.sim.advance(60)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert (gang.state, gang.reason) == ("Pending", "InsufficientCapacity")
    assert not gang.flavors
    scene.short(on=False)
    scene.until_running("g", 900)
    scene.settle()


def test_a_gang_larger_than_every_quota_never_buys() -> None:
    scene = Scene(simple())
    scene.sim.submit(gpu_job("g", pods=5))
    scene.settle(600)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert gang.reason == "ExceedsMaxQuota"
    assert scene.bought() == 0


def test_a_job_deleted_while_machines_are_bought_leaves_nothing() -> None:
    scene = Scene(simple())
    manifest = gpu_jobset("g")
    scene.sim.submit(manifest)
    scene.until_state("g", "QuotaReserved")
    scene.sim.advance(20)
    assert scene.bought() == 2
    scene.sim.delete(manifest)
    scene.until(lambda: not scene.sim.machines() and not scene.sim.claims(), 600)
    assert not scene.laws.births
    scene.settle()


def test_a_job_unsuspended_by_hand_while_machines_are_bought_is_stopped_again() -> None:
    scene = Scene(simple())
    scene.sim.submit(gpu_job("g", pods=2))
    scene.until_state("g", "QuotaReserved")
    store = scene.sim.store
    jobs = store.resource("Job")
    held = store.get(jobs, "g", "t")
    store.update(jobs, {**held, "spec": {**held["spec"], "suspend": False}}, namespace="t")
    scene.sim.advance(10)
    assert store.get(jobs, "g", "t")["spec"]["suspend"] is True
    scene.sim.advance(1)
    running = [p for p in scene.sim.objects("Pod") if p["spec"].get("nodeName")]
    assert not running
    scene.until_running("g", 900)


def test_a_job_that_ends_by_itself_while_machines_are_bought_gives_them_back() -> None:
    scene = Scene(simple())
    scene.sim.submit(gpu_job("g", pods=2))
    scene.until_state("g", "QuotaReserved")
    store = scene.sim.store
    jobs = store.resource("Job")
    held = store.get(jobs, "g", "t")
    over = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too late"}
    status = {**(held.get("status") or {}), "conditions": [over]}
    store.update(jobs, {**held, "status": status}, namespace="t", subresource="status")
    scene.until_state("g", "Finished")
    scene.until(lambda: not scene.sim.machines() and not scene.sim.claims(), 600)
    scene.settle()


def test_a_failing_pod_is_replaced_on_its_own_machine() -> None:
    scene = Scene(simple())
    manifest = gpu_job("g", pods=2, run_s=50)
    manifest["spec"]["backoffLimit"] = 3
    manifest["spec"]["template"]["metadata"]["annotations"]["sim.muster.dev/fail"] = "1"
    manifest["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    scene.runs(manifest)
    nodes = scene.nodes_of("g")
    scene.until_state("g", "Finished", 900)
    assert scene.bought() == 2
    assert len(nodes) == 2
    scene.settle()


def test_a_drained_queue_lets_its_gangs_go_and_takes_them_back() -> None:
    """All of its machines go, too: the rails have to allow that."""
    rails = doc("FleetPolicy", "p", guardRails={"maxPercentRemoved": 100})
    scene = Scene(files(pool(), team(), queue(), rails))
    scene.runs(gpu_job("g", pods=2))
    scene.sim.push(files(pool(), team(), queue(stopPolicy="HoldAndDrain"), rails))
    scene.until_state("g", "Pending")
    gang = scene.sim.gang("g")
    assert gang is not None
    scene.until(lambda: (found := scene.sim.gang("g")) is not None and found.reason == "QueueStopped", 60)
    assert not scene.sim.objects("Pod")
    scene.sim.push(simple())
    scene.until_running("g", 900)
    scene.settle()


def test_a_held_queue_keeps_what_runs_and_admits_nothing() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("a"))
    scene.sim.push(files(pool(), team(), queue(stopPolicy="Hold")))
    scene.sim.advance(5)
    scene.sim.submit(gpu_job("b"))
    scene.settle(300)
    assert scene.sim.running("a")
    assert scene.state("b") == "Pending"


def test_priority_goes_first_and_evicts_whole_gangs_of_its_queue() -> None:
    scene = Scene(simple())
    scene.runs(gpu_jobset("low", workers=4))
    scene.sim.submit(gpu_job("high", pods=2, priority="high"))
    scene.until_running("high", 900)
    assert scene.state("low") == "Pending"
    assert not [p for p in scene.sim.objects("Pod") if p["metadata"]["name"].startswith("low")]
    assert scene.bought() == 4, "it runs on the machines of its victim"
    scene.settle()


def test_a_preemptor_whose_status_is_being_written_keeps_its_turn() -> None:
    def slow_for_high(action: Action) -> float:
        return 20.0 if isinstance(action, SaveGang) and action.gang.job.name == "high" else 0.0

    scene = Scene(simple(limits={"nodes": 4}), tempo=Tempo(latency_s=slow_for_high))
    scene.runs(gpu_jobset("low", workers=4))
    scene.sim.submit(gpu_job("high", pods=2, priority="high"))
    scene.until_running("high", 900)
    assert scene.laws.evictions == {"low": 1}


def two_teams(**lender: object) -> dict[str, str]:
    gpus = {"h100": {"nvidia.com/gpu": 16}}
    return files(
        pool(limits={"nodes": 4}),
        doc("Team", "org"),
        team("prod", gpus, parent="org"),
        team("research", gpus, parent="org"),
        queue("prod", **lender),
        queue("research"),
    )


def test_a_team_takes_its_guarantee_back_and_the_borrower_goes_whole_and_returns() -> None:
    scene = Scene(two_teams())
    scene.runs(gpu_jobset("own", workers=2, namespace="research"))
    scene.runs(gpu_jobset("borrowed", workers=2, namespace="research"))
    assert scene.bought() == 4
    serve = gpu_jobset("serve", workers=2, namespace="prod")
    scene.runs(serve, 900)
    assert scene.sim.running("own")
    assert scene.state("borrowed") == "Pending"
    assert scene.bought() == 4
    scene.sim.delete(serve)
    scene.until_running("borrowed", 900)
    scene.settle()
    assert scene.laws.evictions == {"borrowed": 1}
