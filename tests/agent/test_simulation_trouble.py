"""What goes wrong with machines, messages and the API, in virtual time."""

import random

import pytest

from agent.demo.jobs import Manifest, job
from agent.simulation import Tempo
from fleet.snapshot import NoticeKind
from providers.sim.ec2.vm import Signal
from tests.agent.scenes import (
    G5,
    G6,
    P4DE,
    P5,
    A,
    B,
    C,
    Scene,
    files,
    gpu_job,
    gpu_jobset,
    layout,
    pool,
    queue,
    simple,
    team,
)


def spot_only() -> dict[str, str]:
    quotas = {"spot": {"nvidia.com/gpu": 16}}
    return files(pool("spot", (G6, G5), capacityTypes=["spot"]), team(quotas=quotas), queue(flavors=("spot",)))


def victim_of(scene: Scene, name: str) -> str:
    """The instance under one of the gang's nodes."""
    node = min(scene.nodes_of(name))
    return next(claim.instance_id for claim in scene.sim.claims().values() if claim.node == node)


def pods_of(scene: Scene, name: str) -> set[str]:
    return {p["metadata"]["uid"] for p in scene.sim.objects("Pod") if p["metadata"]["name"].startswith(f"{name}-")}


# -- interruptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late_s", [0.0, 60.0])
def test_an_interrupted_gang_leaves_whole_before_the_deadline_and_resumes_elsewhere(late_s: float) -> None:
    scene = Scene(spot_only())
    scene.runs(gpu_job("g", pods=2, gpus=4))
    instance, first = victim_of(scene, "g"), pods_of(scene, "g")
    if late_s:
        scene.faults.late_messages, scene.faults.late_by_s = 1, late_s
    noticed_s = scene.sim.now_s
    scene.sim.cloud.interrupt(instance)
    scene.until(lambda: not first & pods_of(scene, "g"), 120)
    assert scene.sim.now_s - noticed_s < 105, "with a margin before EC2 takes it"
    scene.sim.advance(150)
    ended = next(entry for entry in scene.sim.cloud.ledger() if entry.instance_id == instance)
    assert ended.reason == "Client.UserInitiatedShutdown", "given back before it was taken"
    scene.until(lambda: scene.sim.running("g") and victim_of(scene, "g") != instance, 900)
    assert pods_of(scene, "g").isdisjoint(first)
    assert scene.laws.evictions == {"g": 1}
    scene.settle(300)


def test_a_slow_pod_is_cut_short_at_the_deadline() -> None:
    scene = Scene(spot_only())
    slow = gpu_job("g", gpus=4)
    spec = slow["spec"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 3600
    slow["spec"]["template"]["metadata"] = {"annotations": {"sim.muster.dev/stop-seconds": "3000"}}
    scene.runs(slow)
    instance, first = victim_of(scene, "g"), pods_of(scene, "g")
    noticed_s = scene.sim.now_s
    scene.sim.cloud.interrupt(instance)
    scene.until(lambda: not first & pods_of(scene, "g"), 300)
    assert 100 <= scene.sim.now_s - noticed_s <= 150
    scene.until_running("g", 900)
    scene.settle(300)


def test_a_message_that_comes_twice_is_acted_on_once() -> None:
    scene = Scene(spot_only())
    scene.runs(gpu_job("g", gpus=4))
    scene.faults.duplicate_messages = 10
    scene.sim.cloud.interrupt(victim_of(scene, "g"))
    scene.until(lambda: scene.state("g") != "Admitted", 60)
    scene.until_running("g", 900)
    scene.settle(300)
    assert scene.laws.evictions == {"g": 1}
    assert scene.bought() == 2


def test_a_message_that_comes_after_the_machine_has_gone_does_no_harm() -> None:
    scene = Scene(spot_only())
    scene.runs(gpu_job("g", gpus=4))
    scene.faults.late_messages, scene.faults.late_by_s = 10, 600.0
    scene.sim.cloud.interrupt(victim_of(scene, "g"))
    scene.sim.advance(400)
    scene.until_running("g", 1200)
    at = scene.bought()
    scene.settle(1200)
    assert scene.sim.running("g")
    assert scene.bought() == at


def test_a_message_about_a_machine_of_somebody_else_is_ignored_and_acknowledged() -> None:
    scene = Scene(spot_only())
    scene.runs(gpu_job("g", gpus=4))
    signal = Signal("event-1", NoticeKind.SPOT_INTERRUPTED, "i-0123456789abcdef0", scene.sim.now_s)
    scene.sim.cloud.account._deliver(signal)
    scene.settle(120)
    assert scene.sim.running("g")
    assert not scene.sim.cloud._queue._messages


def test_a_rebalance_recommendation_moves_nobody() -> None:
    scene = Scene(spot_only())
    scene.runs(gpu_job("g", gpus=4))
    scene.sim.cloud.rebalance(victim_of(scene, "g"))
    scene.settle(300)
    assert scene.laws.evictions == {}


def test_an_interruption_while_machines_are_bought_starts_the_purchase_anew() -> None:
    scene = Scene(spot_only())
    scene.sim.submit(gpu_job("g", pods=2, gpus=4))
    scene.until(lambda: len(scene.sim.machines()) == 2, 60)
    scene.sim.cloud.interrupt(scene.sim.machines()[0].id)
    scene.until_running("g", 1200)
    scene.settle(300)
    assert scene.laws.evictions == {}
    assert len(scene.sim.machines()) == 2


# -- machines ---------------------------------------------------------------------------------------------------------


def test_a_machine_that_dies_under_a_gang_takes_the_gang_elsewhere() -> None:
    scene = Scene(simple())
    scene.runs(gpu_jobset("g"))
    scene.sim.cloud.kill(victim_of(scene, "g"))
    scene.until(lambda: scene.laws.evictions["g"] == 1, 300)
    scene.until_running("g", 1200)
    scene.settle(300)
    assert len(scene.sim.machines()) == 2


@pytest.mark.parametrize("fault", ["make_unready", "fail_node", "stop_heartbeats"])
def test_a_node_that_falls_silent_is_left_after_a_minute(fault: str) -> None:
    scene = Scene(simple())
    scene.runs(gpu_jobset("g"))
    node = min(scene.nodes_of("g"))
    getattr(scene.sim.health, fault)(node)
    scene.sim.advance(50)
    assert scene.laws.evictions == {}, "a hiccup is not a failure"
    scene.until(lambda: scene.laws.evictions["g"] == 1, 300)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert gang.eviction is not None
    assert gang.eviction.reason == "NodeFailures"
    scene.until(lambda: scene.sim.running("g") and node not in scene.nodes_of("g"), 1800)
    scene.until(lambda: scene.sim.object("Node", node) is None, 1800)
    scene.settle(300)


def test_a_hiccup_of_a_node_moves_nobody() -> None:
    scene = Scene(simple())
    scene.runs(gpu_jobset("g"))
    node = min(scene.nodes_of("g"))
    scene.sim.health.make_unready(node)
    scene.sim.advance(30)
    scene.sim.health.heal(node)
    scene.settle(300)
    assert scene.laws.evictions == {}


def test_a_machine_that_never_joins_is_given_back_and_another_bought() -> None:
    scene = Scene(simple())
    scene.faults.never_boots = 1
    scene.sim.submit(gpu_jobset("g"))
    scene.until_running("g", 1800)
    scene.settle(300)
    assert scene.bought() in {3, 4}
    assert len(scene.sim.machines()) == 2
    first = scene.sim.cloud.ledger()[0]
    assert first.ended_at_s is not None
    assert 900 <= first.ended_at_s - first.launched_at_s < 1000


def test_slow_boots_only_take_longer() -> None:
    scene = Scene(simple())
    scene.faults.slow_boots, scene.faults.slow_boot_s = 1, 400.0
    scene.sim.submit(gpu_jobset("g"))
    scene.sim.advance(300)
    assert not scene.sim.objects("Pod"), "no pod before every machine is ready"
    scene.until_running("g", 600)
    assert scene.bought() == 2
    scene.settle()


def test_late_listings_do_not_make_a_machine_look_gone() -> None:
    scene = Scene(simple())
    scene.faults.late_listings, scene.faults.late_listing_s = 2, 30.0
    scene.runs(gpu_jobset("g"))
    assert scene.bought() == 2
    scene.settle()


def test_a_machine_nobody_claims_is_given_back_after_a_while() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("g"))
    claim = next(iter(scene.sim.claims().values()))
    store = scene.sim.store
    claims = store.resource("NodeClaim")
    raw = store.get(claims, claim.name)
    store.update(claims, {**raw, "metadata": {**raw["metadata"], "finalizers": []}})
    store.delete(claims, claim.name)
    scene.until(lambda: claim.instance_id not in {m.id for m in scene.sim.machines()}, 180)
    scene.until_running("g", 1200)
    scene.settle(300)


# -- the cut of GPUs --------------------------------------------------------------------------------------------------


def mig() -> dict[str, str]:
    slices = {"nvidia.com/mig-3g.40gb": 32, "nvidia.com/mig-1g.10gb": 112}
    return files(
        pool("mig", (P4DE,), zones=[B, C], sharing={"mig": {"layouts": ["thick", "thin"]}}, limits={"nodes": 2}),
        layout("thick", **{"3g_40gb": 2}),
        layout("thin", **{"1g_10gb": 7}),
        team(quotas={"mig": slices}),
        queue(flavors=("mig",)),
    )


def slices(name: str, profile: str, pods: int = 1, run_s: float | None = None) -> Manifest:
    return job(name, "t", "normal", pods=pods, requests={f"nvidia.com/mig-{profile}": "1"}, run_s=run_s)


def test_an_idle_machine_is_cut_anew_for_another_profile() -> None:
    scene = Scene(mig())
    scene.runs(slices("thick", "3g.40gb", pods=4, run_s=20))
    scene.until_state("thick", "Finished")
    scene.sim.submit(slices("thin", "1g.10gb", pods=7))
    seen = []

    def watch(event: object) -> None:
        """Between the new label and the manager's waking, the state would still say success of the cut before."""
        node = event.object  # type: ignore[attr-defined]
        carried = node["metadata"].get("labels") or {}
        if carried.get("nvidia.com/mig.config", "").startswith("thin"):
            seen.append(carried.get("nvidia.com/mig.config.state"))

    scene.sim.store.subscribe(watch, resource=scene.sim.store.resource("Node"))
    scene.until_running("thin", 600)
    assert seen[0] is None, "the state of the cut before is taken away with its label"
    assert "pending" in seen
    assert scene.bought() == 1
    scene.settle()


def test_a_wedged_mig_manager_costs_the_machine_its_place() -> None:
    scene = Scene(mig())
    scene.runs(slices("thick", "3g.40gb", run_s=20))
    scene.until_state("thick", "Finished")
    node = scene.sim.objects("Node")[0]["metadata"]["name"]
    scene.sim.mig_manager.hanging.add(node)
    scene.sim.submit(slices("thin", "1g.10gb"))
    scene.until_running("thin", 3600)
    assert scene.nodes_of("thin") != {node}
    scene.settle(300)
    assert scene.bought() == 2


def test_a_machine_in_use_is_never_cut() -> None:
    scene = Scene(mig())
    scene.runs(slices("thick", "3g.40gb"))
    scene.runs(slices("thin", "1g.10gb"))
    assert scene.bought() == 2
    assert scene.nodes_of("thick").isdisjoint(scene.nodes_of("thin"))
    assert scene.sim.running("thick")
    scene.settle()


# -- the cloud's and the cluster's API --------------------------------------------------------------------------------


def test_lost_answers_of_the_cloud_buy_nothing_twice() -> None:
    scene = Scene(simple())
    scene.faults.lost_answers = 3
    scene.runs(gpu_jobset("g"))
    assert scene.bought() == 2
    scene.settle()


def test_a_cloud_that_never_answers_costs_at_most_the_launches_it_hid() -> None:
    scene = Scene(simple())
    scene.faults.lost_answers = 10_000
    scene.sim.submit(gpu_jobset("g"))
    scene.sim.advance(900)
    scene.faults.lost_answers = 0
    scene.until_running("g", 1800)
    scene.settle(600)
    assert len(scene.sim.machines()) == 2


@pytest.mark.parametrize("fault", ["throttled_calls", "dropped_calls"])
def test_bursts_of_refused_calls_to_the_cloud_only_cost_time(fault: str) -> None:
    scene = Scene(simple())
    setattr(scene.faults, fault, 8)
    manifest = gpu_jobset("g")
    scene.runs(manifest, 900)
    assert scene.bought() == 2
    setattr(scene.faults, fault, 8)
    scene.sim.delete(manifest)
    scene.until(lambda: not scene.sim.machines() and not scene.sim.claims(), 900)
    scene.settle()


@pytest.mark.parametrize("fault", ["conflicts", "throttled", "errors", "lost_answers"])
@pytest.mark.parametrize("attempts", [1, 6])
def test_bursts_of_api_errors_only_cost_time(fault: str, attempts: int) -> None:
    scene = Scene(simple(), tempo=Tempo(attempts=attempts))
    rng = random.Random(fault)
    manifest = gpu_jobset("g")
    scene.sim.submit(manifest)
    for _ in range(60):
        setattr(scene.sim.api_faults, fault, rng.randrange(6))
        scene.sim.advance(3)
    setattr(scene.sim.api_faults, fault, 0)
    scene.until_running("g", 900)
    assert scene.bought() == 2
    setattr(scene.sim.api_faults, fault, 20)
    scene.sim.delete(manifest)
    scene.until(lambda: not scene.sim.machines() and not scene.sim.claims(), 900)
    scene.settle()


@pytest.mark.parametrize("seed", range(4))
def test_slow_hands_that_work_in_any_order_come_to_the_same_end(seed: int) -> None:
    rng = random.Random(seed)
    tempo = Tempo(latency_s=lambda _action: rng.choice([0.0, 0.1, 2.0, 7.0]), shuffle=seed)
    scene = Scene(simple(), tempo=tempo)
    scene.capacity(3, zone=A)
    scene.lies(zone=A)
    first, second = gpu_jobset("g", workers=4), gpu_job("high", pods=1, priority="high")
    scene.runs(first, 900)
    scene.sim.submit(second)
    scene.until_running("high", 900)
    assert scene.bought(P5, A) == 3
    assert scene.bought(P5, B) == 4
    for manifest in (first, second):
        scene.sim.delete(manifest)
    scene.until(lambda: not scene.sim.machines() and not scene.sim.claims(), 900)
    scene.settle()
