"""Machines that go because nobody needs them, because they are not what git says, or because they are old."""

from typing import Any

from agent.simulation import Tempo
from providers.sim.ec2.market import PoolFilter
from tests.agent.scenes import G5, G6, P5, A, B, Scene, doc, files, gpu_job, gpu_jobset, pool, queue, simple, team

ONE_BY_ONE = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "60s", "budgets": [{"nodes": 1}]}
THRIFTY = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "120s",
    "budgets": [{"nodes": "100%"}],
}


def fixed(replicas: int, **rails: Any) -> dict[str, str]:
    docs = [pool("fixed", replicas=replicas), team(quotas={"fixed": {"nvidia.com/gpu": 64}}), queue(flavors=("fixed",))]
    if rails:
        spec = {"guardRails": rails}
        docs.append(
            {"apiVersion": "muster.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "p"}, "spec": spec}
        )
    return files(*docs)


def test_an_idle_machine_goes_after_the_quiet_time_and_not_before() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("g", run_s=30))
    scene.until_state("g", "Finished")
    idle_from_s = scene.sim.now_s
    scene.sim.advance(50)
    assert len(scene.sim.machines()) == 1
    scene.until(lambda: not scene.sim.machines(), 60)
    assert 60 <= scene.sim.now_s - idle_from_s <= 90
    scene.settle()


def test_one_more_gang_within_the_quiet_time_keeps_the_machine() -> None:
    scene = Scene(simple())
    for number in range(4):
        scene.runs(gpu_job(f"g{number}", run_s=30))
        scene.until_state(f"g{number}", "Finished")
        scene.sim.advance(40)
    assert scene.bought() == 1


def test_a_changed_pool_replaces_its_machines_first_and_moves_gangs_whole() -> None:
    scene = Scene(simple(disruption=ONE_BY_ONE))
    for name in ("a", "b", "c"):
        scene.runs(gpu_job(name))
    before = {machine.id for machine in scene.sim.machines()}
    least_running, most_machines = 3, 0

    def watch(_event: object) -> None:
        nonlocal least_running, most_machines
        least_running = min(least_running, sum(scene.sim.running(name) for name in "abc"))
        most_machines = max(most_machines, len(scene.sim.machines()))

    scene.sim.store.subscribe(watch, resource=scene.sim.store.resource("Workload"))
    scene.sim.push(simple(disruption=ONE_BY_ONE, template={"labels": {"example.com/generation": "2"}}))
    scene.until(lambda: not before & {machine.id for machine in scene.sim.machines()}, 3600)
    for name in ("a", "b", "c"):
        scene.until_running(name)
    scene.until(lambda: len(scene.sim.objects("Node")) == 3, 120, "the last one is terminated")
    labels = [node["metadata"]["labels"].get("example.com/generation") for node in scene.sim.objects("Node")]
    assert labels == ["2"] * 3
    assert least_running >= 2, "the budget is one machine at a time"
    assert most_machines <= 4, "replacement first, one at a time"
    assert scene.bought() == 6
    assert scene.laws.evictions == {"a": 1, "b": 1, "c": 1}
    scene.settle()


def test_drift_of_a_gang_of_two_machines_replaces_both_before_it_moves() -> None:
    scene = Scene(simple())
    scene.runs(gpu_jobset("g"))
    scene.sim.push(simple(template={"labels": {"example.com/generation": "2"}}))
    scene.until(lambda: scene.laws.evictions["g"] == 1, 900)
    ready = [claim for claim in scene.sim.claims().values() if claim.ready_at_s and not claim.disruption]
    assert len(ready) >= 2, "both replacements stood ready before the gang was told to go"
    scene.until_running("g", 600)
    scene.settle(300)
    assert len(scene.sim.machines()) == 2
    assert scene.bought() == 4


def test_drift_waits_while_no_replacement_can_be_had() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("g"))
    scene.market.set_shortage(PoolFilter(None, None, None))
    scene.sim.push(simple(template={"labels": {"example.com/generation": "2"}}))
    scene.sim.advance(1200)
    assert scene.sim.running("g")
    assert scene.laws.evictions == {}
    scene.market.set_shortage(PoolFilter(None, None, None), on=False)
    scene.until(lambda: scene.laws.evictions["g"] == 1, 900)
    scene.until_running("g")
    scene.settle(300)


def test_a_gang_that_must_not_be_disrupted_keeps_its_drifted_machine() -> None:
    scene = Scene(simple())
    manifest = gpu_job("g")
    manifest["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    scene.runs(manifest)
    scene.sim.push(simple(template={"labels": {"example.com/generation": "2"}}))
    scene.settle(1200)
    assert scene.laws.evictions == {}
    assert scene.bought() == 1


def test_an_old_machine_is_replaced_under_its_gang() -> None:
    scene = Scene(simple(template={"expireAfter": "1h"}))
    scene.runs(gpu_job("g"))
    first = scene.sim.machines()[0].id
    scene.sim.advance(3000)
    assert scene.sim.machines()[0].id == first
    scene.until(lambda: first not in {machine.id for machine in scene.sim.machines()}, 1800)
    scene.until_running("g")
    scene.settle()
    assert scene.bought() == 2


def test_two_half_empty_machines_become_one() -> None:
    scene = Scene(simple(disruption=THRIFTY))
    long, short = gpu_job("long", gpus=4), gpu_job("short", gpus=4)
    filler = gpu_job("filler", gpus=4, run_s=100)
    scene.runs(long)
    scene.runs(filler)
    scene.runs(short)
    assert len(scene.sim.machines()) == 2
    scene.until_state("filler", "Finished")
    scene.until(lambda: len(scene.sim.machines()) == 1, 1200)
    for name in ("long", "short"):
        scene.until_running(name)
    assert scene.laws.evictions.total() == 1
    scene.settle(600)
    assert scene.bought() == 2


def test_a_dearer_machine_is_replaced_by_a_cheaper_one() -> None:
    scene = on_a_dearer_machine()
    assert [machine.instance_type for machine in scene.sim.machines()] == [P5]
    scene.until(lambda: [m.instance_type for m in scene.sim.machines()] == [G6], 1800)
    scene.until_running("g")
    scene.settle(900)
    assert scene.bought() == 2
    assert scene.laws.evictions == {"g": 1}


def on_a_dearer_machine() -> Scene:
    """A gang on the machine that could be had when it started; the cheaper one can be had again."""
    fleet = files(
        pool("any", (P5, G6), zones=[A, B], disruption=THRIFTY),
        team(quotas={"any": {"nvidia.com/gpu": 32}}),
        queue(flavors=("any",)),
    )
    scene = Scene(fleet)
    scene.short(G6)
    scene.runs(gpu_job("g", gpus=4))
    scene.short(G6, on=False)
    return scene


def waits(scene: Scene) -> bool:
    return bool(scene.sim.brain.mirror.outlook.proposals)


def test_an_agent_that_dies_while_a_proposal_waits_has_lost_the_wait() -> None:
    scene = on_a_dearer_machine()
    scene.until(lambda: waits(scene), 1800)
    scene.sim.advance(10)
    scene.sim.crash()
    scene.sim.advance(60)
    scene.sim.restart()
    scene.until(lambda: waits(scene), 60)
    scene.sim.advance(13)
    assert scene.bought() == 1
    scene.until(lambda: scene.bought() == 2, 5)
    scene.until(lambda: [m.instance_type for m in scene.sim.machines()] == [G6], 1800)
    scene.settle(900)
    assert scene.laws.evictions == {"g": 1}


def test_a_gang_that_comes_while_a_proposal_waits_keeps_its_machine() -> None:
    scene = on_a_dearer_machine()
    scene.until(lambda: waits(scene), 1800)
    scene.runs(gpu_job("late", gpus=4))
    assert not waits(scene)
    assert [machine.instance_type for machine in scene.sim.machines()] == [P5]
    assert scene.laws.evictions == {}


def test_spot_is_not_traded_for_cheaper_spot() -> None:
    fleet = files(
        pool("spot", (G5, G6), capacityTypes=["spot"], disruption=THRIFTY),
        team(quotas={"spot": {"nvidia.com/gpu": 8}}),
        queue(flavors=("spot",)),
    )
    scene = Scene(fleet, tempo=Tempo(tick_s=10.0))
    scene.runs(gpu_job("g", gpus=4))
    scene.settle(6 * 3600)
    assert scene.bought() == 1


def test_a_fixed_pool_stands_without_work_and_follows_its_number() -> None:
    scene = Scene(fixed(2))
    scene.until(lambda: len([c for c in scene.sim.claims().values() if c.ready_at_s]) == 2, 600)
    scene.settle(600)
    assert len(scene.sim.machines()) == 2
    scene.sim.push(fixed(3))
    scene.until(lambda: len([c for c in scene.sim.claims().values() if c.ready_at_s]) == 3, 600)
    scene.sim.push(fixed(2))
    scene.until(lambda: len(scene.sim.machines()) == 2, 600)
    scene.settle(600)
    assert scene.bought() == 3


def test_a_fixed_pool_shrinks_by_its_idle_machines_first() -> None:
    scene = Scene(fixed(3))
    scene.until(lambda: len([c for c in scene.sim.claims().values() if c.ready_at_s]) == 3, 600)
    scene.runs(gpu_job("g"))
    scene.sim.push(fixed(2))
    scene.until(lambda: len(scene.sim.machines()) == 2, 600)
    assert scene.sim.running("g")
    assert scene.laws.evictions == {}
    scene.settle()


def test_a_budget_of_one_lets_the_next_machine_go_when_the_one_before_is_terminated() -> None:
    """They stand idle, so that nothing else holds them: EC2 takes some seconds to terminate each."""
    kept = {"budgets": [{"nodes": 1}], "consolidateAfter": "Never"}
    open_rails = doc("FleetPolicy", "p", guardRails={"maxPercentRemoved": 100})

    def fleet(**spec: Any) -> dict[str, str]:
        return files(open_rails, pool(disruption=kept, **spec), team(), queue())

    scene = Scene(fleet())
    scene.runs(gpu_job("g", pods=4))
    scene.sim.delete(gpu_job("g", pods=4))
    scene.settle(300)
    old = {it.id for it in scene.sim.machines()}
    assert len(old) == 4
    scene.sim.push(fleet(template={"labels": {"x": "y"}}))
    leaving: set[int] = set()

    def all_gone() -> bool:
        states = {it.id: it.state for it in scene.sim.cloud.instances()}
        leaving.add(sum(states.get(name) == "shutting-down" for name in old))
        return not any(states.get(name, "terminated") == "running" for name in old)

    assert scene.sim.advance_until(all_gone, 1800)
    assert leaving == {0, 1}


def test_a_lost_machine_of_a_fixed_pool_is_bought_anew() -> None:
    scene = Scene(fixed(2))
    scene.until(lambda: len([c for c in scene.sim.claims().values() if c.ready_at_s]) == 2, 600)
    scene.sim.cloud.kill(scene.sim.machines()[0].id)
    scene.sim.advance(60)
    scene.until(lambda: len([c for c in scene.sim.claims().values() if c.ready_at_s and not c.deleting]) == 2, 900)
    scene.settle(300)
    assert len(scene.sim.machines()) == 2
    assert scene.bought() == 3


def test_a_revision_beyond_the_rails_is_refused_and_comes_into_force_once_it_is_harmless() -> None:
    scene = Scene(fixed(4, maxPercentRemoved=30))
    scene.until(lambda: len([c for c in scene.sim.claims().values() if c.ready_at_s]) == 4, 600)
    first = scene.sim.sync()["appliedRevision"]
    refused = scene.sim.push(fixed(1, maxPercentRemoved=30))
    scene.sim.advance(300)
    sync = scene.sim.sync()
    assert (sync["appliedRevision"], sync["attemptedRevision"]) == (first, refused)
    assert "maxPercentRemoved" in sync["summary"]
    assert len(scene.sim.machines()) == 4
    smaller = scene.sim.push(fixed(3, maxPercentRemoved=30))
    scene.until(lambda: len(scene.sim.machines()) == 3, 600)
    scene.sim.advance(2)
    assert scene.sim.sync()["appliedRevision"] == smaller
    scene.settle()


def test_a_revision_that_deletes_every_pool_is_refused() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("g"))
    applied = scene.sim.sync()["appliedRevision"]
    scene.sim.push(files(team(quotas={})))
    scene.settle(60)
    assert scene.sim.sync()["appliedRevision"] == applied
    assert scene.sim.running("g")


def test_the_idle_machines_of_a_removed_pool_go_and_the_others_stay() -> None:
    quiet = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "24h", "budgets": [{"nodes": "100%"}]}
    kept = [pool(), team(quotas={"h100": {"nvidia.com/gpu": 16}, "other": {"nvidia.com/gpu": 4}})]
    scene = Scene(files(*kept, pool("other", (G6,), disruption=quiet), queue(flavors=("other", "h100"))))
    scene.runs(gpu_job("small", gpus=4, run_s=10))
    scene.runs(gpu_job("g"))
    scene.until_state("small", "Finished")
    scene.sim.push(simple())
    scene.until(lambda: [machine.instance_type for machine in scene.sim.machines()] == [P5], 300)
    scene.settle(300)
    assert scene.sim.running("g")


def test_an_invalid_revision_changes_nothing_and_says_where() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("g"))
    applied = scene.sim.sync()["appliedRevision"]
    text = simple()["fleet.yaml"].replace("instanceTypes", "instanceTyps")
    wrong = scene.sim.push({"fleet.yaml": text})
    scene.sim.advance(5)
    sync = scene.sim.sync()
    assert (sync["appliedRevision"], sync["attemptedRevision"]) == (applied, wrong)
    assert sync["problems"][0]["file"] == "fleet.yaml"
    assert sync["problems"][0]["line"] > 1
    scene.settle(300)
    assert scene.sim.running("g")


def test_a_frozen_fleet_keeps_idle_machines_and_old_revisions() -> None:
    window = {"name": "always", "schedule": "* * * * *", "duration": "2h", "blocks": ["Sync", "Disruption"]}
    policy = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "FleetPolicy",
        "metadata": {"name": "p"},
        "spec": {"freezeWindows": [window]},
    }
    scene = Scene(files(pool(), team(), queue(), policy))
    scene.runs(gpu_job("g", run_s=30))
    scene.until_state("g", "Finished")
    scene.sim.push(simple())
    scene.sim.advance(1800)
    assert len(scene.sim.machines()) == 1
    assert "Frozen" in str(scene.sim.sync()["conditions"])
    scene.settle()


def test_machines_of_pods_that_have_done_their_part_are_given_back_while_the_others_run() -> None:
    """Found by 90 simulated days: after a drain one pod ran half an hour longer, beside two machines without a pod."""
    often = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1m", "budgets": [{"nodes": "100%"}]}
    scene = Scene(files(pool(disruption=often), team(), queue()))
    work = gpu_job("g", pods=3, run_s=3600)
    work["spec"]["backoffLimit"] = 6
    scene.runs(work)
    scene.sim.advance(1800)
    first = next(it for it in scene.sim.objects("Pod") if it["spec"].get("nodeName") == min(scene.nodes_of("g")))
    scene.sim.api.evict(first["metadata"]["name"], "t", uid=first["metadata"]["uid"])
    scene.until(lambda: scene.sim.object("Job", "g", "t")["status"].get("succeeded") == 2, 3600)  # type: ignore[index]
    scene.sim.advance(900)
    assert scene.state("g") == "Admitted"
    assert len(scene.sim.machines()) == 1
    scene.until_state("g", "Finished", 3600)
    assert scene.bought() == 3, "nothing was bought in place of what was given back"
    assert scene.laws.evictions == {}
