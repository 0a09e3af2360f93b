"""A StatefulSet on a queue: its pods are one gang, admitted together and not at all, and made one after the other."""

from typing import Any

import pytest
import yaml

from agent.explanation import find
from fleet.explain.gang_notes import gang_notes
from fleet.plan.simulated_run import simulate
from model.loader import load
from providers.sim.store import PatchType
from tests.agent.scenes import G5, P5, A, B, Doc, Scene, doc, files, gpu_job, pool, queue, team
from tests.agent.test_simulation_ordinary_pods import ZONE, pods, running
from tests.agent.test_simulation_plan import LIFTED, state
from tests.agent.test_simulation_queued_pods import POLICIES, on_queue, states, world

BOTH_POLICIES = pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
ADMITTED = ["Admitted PodsReady"]
RAILS = yaml.safe_dump(doc("FleetPolicy", "p", guardRails=LIFTED))


def stateful(replicas: int, gpus: int = 2, name: str = "web", **spec: Any) -> Doc:
    """A StatefulSet on the queue whose pods come with the label and the gate."""
    made = on_queue(replicas, gpus, name)
    made["metadata"]["labels"] = {"muster.dev/queue": "t"}
    return {**made, "kind": "StatefulSet", "spec": {**made["spec"], "serviceName": name, **spec}}


def change(scene: Scene, name: str = "web", **spec: Any) -> None:
    sets = scene.sim.store.resource("StatefulSet", "apps")
    scene.sim.store.patch(sets, name, {"spec": spec}, PatchType.MERGE, namespace="t")


def started(replicas: int, gpus: int = 2, policy: str = "OrderedReady", quota: int = 8) -> Scene:
    """A scene in which the set runs."""
    scene = Scene(world(gpus=quota))
    scene.sim.submit(stateful(replicas, gpus, podManagementPolicy=policy))
    scene.until(lambda: running(scene) == replicas and states(scene) == ADMITTED)
    return scene


def nodes(scene: Scene) -> dict[str, str]:
    return {name: pod["spec"].get("nodeName", "") for name, pod in pods(scene).items()}


def gpus_of(pod: Doc) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])


def held(scene: Scene) -> dict[str, int]:
    """Job -> pods that its gang holds quota for."""
    gangs = scene.sim.gangs().values()
    return {str(it.job): sum(pods.count for pods in it.pod_sets) for it in gangs if it.holds_capacity}


@BOTH_POLICIES
def test_all_of_its_pods_are_one_gang(policy: str) -> None:
    scene = started(3, policy=policy)
    assert held(scene) == {"statefulset/t/web": 3}
    assert scene.bought(P5) == 1
    (workload,) = scene.sim.objects("Workload")
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet"
    scene.settle()


@BOTH_POLICIES
def test_none_starts_where_the_quota_is_not_for_all(policy: str) -> None:
    scene = Scene(world(gpus=4))
    scene.sim.submit(stateful(3, podManagementPolicy=policy))
    scene.sim.advance(300)
    assert (scene.bought(), running(scene)) == (0, 0)
    assert [it.reason for it in scene.sim.gangs().values()] == ["ExceedsMaxQuota"]
    scene.sim.push(world(gpus=6))
    scene.until(lambda: running(scene) == 3)
    scene.settle()


def test_pods_that_are_made_one_after_the_other_are_not_late() -> None:
    patient = files(pool(), team(), queue(podsReady={"startTimeout": "2m"}))
    scene = Scene(patient)
    scene.sim.submit(stateful(4, minReadySeconds=60))
    scene.until(lambda: running(scene) == 4 and states(scene) == ADMITTED)
    gang = scene.sim.gang("web")
    assert gang is not None
    assert scene.sim.now_s - gang.admitted_at_s > 180
    assert gang.evictions == 0


@BOTH_POLICIES
def test_scaling_down_gives_back_what_the_highest_numbers_held(policy: str) -> None:
    scene = started(4, policy=policy)
    change(scene, replicas=2)
    scene.until(lambda: held(scene) == {"statefulset/t/web": 2})
    assert sorted(pods(scene)) == ["web-0", "web-1"]
    scene.until(lambda: states(scene) == ADMITTED)
    scene.sim.submit(on_queue(2, 2, "other"))
    scene.until(lambda: running(scene) == 4)
    assert scene.laws.evictions.total() == 0
    scene.settle()


@BOTH_POLICIES
def test_pods_that_come_by_scaling_up_ask_for_themselves(policy: str) -> None:
    scene = started(2, policy=policy, quota=6)
    change(scene, replicas=4)
    scene.until(lambda: running(scene) == 3)
    scene.sim.advance(120)
    waiting = [it for it in scene.sim.gangs().values() if it.state == "Pending"]
    assert [it.reason for it in waiting] == ["WaitingForQuota"]
    assert held(scene).keys() - {"pod/t/web-2", "pod/t/web-3"} == {"statefulset/t/web"}
    assert held(scene)["statefulset/t/web"] == 2
    scene.sim.push(world(gpus=8))
    scene.until(lambda: running(scene) == 4)
    change(scene, replicas=1)
    scene.until(lambda: held(scene) == {"statefulset/t/web": 1})
    scene.settle()


def told(scene: Scene, name: str) -> str:
    """What `muster explain workload` says."""
    found = scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset())
    return "\n".join(line for gang in find(found, name) for line in gang_notes(found, gang))


@BOTH_POLICIES
def test_scaled_up_down_and_up_again_while_it_runs(policy: str) -> None:
    """What is beyond the gang's number asks for itself, and says so; nobody who runs is disturbed by any of it."""
    scene = started(2, policy=policy, quota=6)
    change(scene, replicas=4)
    scene.until(lambda: running(scene) == 3)
    scene.sim.advance(30)
    words = told(scene, "web").partition("2 pods that came by scaling up ask each for themselves: ")[2]
    states = sorted(each.split(" ")[1] for each in words.split("), "))  # which of two alike comes first is by uid
    assert states == ["(Admitted:", "(Pending:"]
    assert "by scaling up t/web while that runs" in told(scene, "web-3")
    change(scene, replicas=2)
    scene.until(lambda: held(scene) == {"statefulset/t/web": 2} and len(pods(scene)) == 2)
    assert "scaling up" not in told(scene, "web")
    change(scene, replicas=3)
    scene.until(lambda: running(scene) == 3)
    assert held(scene) == {"statefulset/t/web": 2, "pod/t/web-2": 1}
    change(scene, replicas=1)
    scene.until(lambda: held(scene) == {"statefulset/t/web": 1})
    change(scene, replicas=3)
    scene.until(lambda: running(scene) == 3)
    assert held(scene) == {"statefulset/t/web": 1, "pod/t/web-1": 1, "pod/t/web-2": 1}
    assert scene.laws.evictions.total() == 0
    scene.settle()


@BOTH_POLICIES
def test_scaling_to_zero_ends_the_gang_and_it_begins_anew(policy: str) -> None:
    scene = started(3, policy=policy)
    change(scene, replicas=0)
    scene.until(lambda: not scene.sim.gangs() and not scene.sim.machines(), 900)
    change(scene, replicas=2)
    scene.until(lambda: running(scene) == 2)
    assert held(scene) == {"statefulset/t/web": 2}
    scene.settle()


def test_deleting_the_set_gives_everything_back() -> None:
    scene = started(3)
    scene.sim.delete(stateful(3))
    scene.until(lambda: not scene.sim.gangs() and not scene.sim.machines() and not pods(scene), 900)
    assert scene.laws.evictions.total() == 0
    scene.settle()


@BOTH_POLICIES
def test_a_pod_that_is_deleted_comes_back_to_its_seat(policy: str) -> None:
    scene = started(3, gpus=8, policy=policy, quota=24)
    before, gang = nodes(scene), scene.sim.gang("web")
    uid = pods(scene)["web-1"]["metadata"]["uid"]
    scene.sim.delete(pods(scene)["web-1"])
    scene.until(lambda: running(scene) == 3 and pods(scene)["web-1"]["metadata"]["uid"] != uid)
    scene.until(lambda: states(scene) == ADMITTED)
    assert nodes(scene) == before
    assert scene.bought(P5) == 3
    after = scene.sim.gang("web")
    assert gang is not None
    assert after is not None
    assert after.admitted_at_s == gang.admitted_at_s
    scene.settle()


@BOTH_POLICIES
def test_a_lost_node_is_replaced_for_its_pod_alone(policy: str) -> None:
    scene = started(3, gpus=8, policy=policy, quota=24)
    before = nodes(scene)
    lost = next(it for it in scene.sim.claims().values() if it.node == before["web-1"])
    scene.sim.cloud.kill(lost.instance_id)
    scene.until(lambda: nodes(scene).get("web-1") not in {before["web-1"], "", None} and running(scene) == 3, 1800)
    scene.until(lambda: states(scene) == ADMITTED)
    after = nodes(scene)
    assert (after["web-0"], after["web-2"]) == (before["web-0"], before["web-2"])
    assert scene.laws.evictions.total() == 0
    scene.settle()


def test_it_leaves_whole_for_a_gang_of_higher_priority_and_comes_back_whole() -> None:
    fleet = files(
        pool(), team(quotas={"h100": {"nvidia.com/gpu": 8}}), queue(preemption={"withinQueue": "LowerPriority"})
    )
    scene = Scene(fleet)
    scene.sim.submit(stateful(3))
    scene.until(lambda: running(scene) == 3)
    urgent = gpu_job("urgent", gpus=8, priority="high", run_s=300)
    scene.sim.submit(urgent)
    scene.until(lambda: scene.sim.running("urgent"))
    assert held(scene) == {"job/t/urgent": 1}
    assert running(scene) == 1
    scene.until(lambda: running(scene) == 3 and held(scene) == {"statefulset/t/web": 3}, 1800)
    scene.settle()


def test_a_template_that_asks_for_more_makes_it_queue_anew_as_a_whole() -> None:
    scene = started(2, gpus=2, quota=8)
    template = stateful(2, gpus=4)["spec"]["template"]
    change(scene, template=template)
    most = 0
    for _ in range(120):
        scene.sim.advance(5)
        most = max(most, sum(gpus_of(pod) for pod in pods(scene).values() if pod["spec"].get("nodeName")))
    assert most <= 8
    assert running(scene) == 2
    assert states(scene) == ADMITTED
    gang = scene.sim.gang("web")
    assert gang is not None
    assert gang.pod_sets[0].requests["nvidia.com/gpu"] == 4
    scene.settle()


def test_a_template_that_asks_for_the_same_is_rolled_out_in_place() -> None:
    scene = started(2)
    before = nodes(scene)
    template = stateful(2)["spec"]["template"]
    template["spec"]["containers"][0]["image"] = "other"
    change(scene, template=template)
    scene.until(
        lambda: (
            running(scene) == 2
            and {it["spec"]["containers"][0]["image"] for it in pods(scene).values()} == {"other"}
            and states(scene) == ADMITTED
        )
    )
    assert nodes(scene) == before
    assert scene.laws.evictions.total() == 0
    scene.settle()


@BOTH_POLICIES
@pytest.mark.parametrize("write", range(1, 14))
def test_an_agent_that_dies_in_the_middle_goes_on(write: int, policy: str) -> None:
    scene = Scene(world())
    scene.sim.crash_at(write)
    scene.sim.submit(stateful(3, podManagementPolicy=policy))
    scene.until(lambda: not scene.sim.alive or running(scene) == 3)
    if not scene.sim.alive:
        scene.sim.advance(3)
        scene.sim.restart()
    scene.until(lambda: running(scene) == 3 and states(scene) == ADMITTED)
    assert held(scene) == {"statefulset/t/web": 3}
    assert scene.bought(P5) == 1


def test_pods_that_ran_before_as_gangs_of_their_own_run_on() -> None:
    scene = Scene(world())
    made = stateful(3)
    del made["metadata"]["labels"]
    scene.sim.submit(made)
    scene.until(lambda: running(scene) == 3)
    assert set(held(scene)) == {"pod/t/web-0", "pod/t/web-1", "pod/t/web-2"}
    uids = {pod["metadata"]["uid"] for pod in pods(scene).values()}
    sets = scene.sim.store.resource("StatefulSet", "apps")
    labels = {"metadata": {"labels": {"muster.dev/queue": "t"}}}
    scene.sim.store.patch(sets, "web", labels, PatchType.MERGE, namespace="t")
    scene.sim.advance(300)
    assert {pod["metadata"]["uid"] for pod in pods(scene).values()} == uids
    assert set(held(scene)) == {"pod/t/web-0", "pod/t/web-1", "pod/t/web-2"}
    change(scene, replicas=0)
    scene.until(lambda: not scene.sim.gangs())
    change(scene, replicas=3)
    scene.until(lambda: running(scene) == 3)
    assert held(scene) == {"statefulset/t/web": 3}
    scene.settle()


def test_pods_that_outlive_their_set_keep_its_quota_until_they_end() -> None:
    scene = started(2)
    sets = scene.sim.store.resource("StatefulSet", "apps")
    scene.sim.store.delete(sets, "web", namespace="t", propagation="Orphan")
    scene.sim.advance(120)
    assert running(scene) == 2
    assert held(scene) == {"statefulset/t/web": 2}
    for pod in pods(scene).values():
        scene.sim.delete(pod)
    scene.until(lambda: not scene.sim.gangs() and not scene.sim.machines(), 900)
    scene.settle()


def test_the_policies_make_a_stateful_set_on_a_queue_one_gang() -> None:
    scene = Scene(world(gpus=4))
    for name in ("pods.yaml", "templates.yaml"):
        for document in yaml.safe_load_all((POLICIES / name).read_text("utf-8")):
            scene.sim.submit(document)
    made = stateful(3)
    del made["spec"]["template"]["spec"]["schedulingGates"]
    del made["spec"]["template"]["metadata"]["labels"]["muster.dev/queue"]
    scene.sim.submit(made)
    scene.sim.advance(120)
    assert running(scene) == 0
    scene.sim.push(world(gpus=6))
    scene.until(lambda: running(scene) == 3)
    assert held(scene) == {"statefulset/t/web": 3}


def test_without_the_gate_nothing_is_held_for_it() -> None:
    scene = Scene(world())
    made = stateful(2)
    del made["spec"]["template"]["spec"]["schedulingGates"]
    scene.sim.submit(made)
    scene.sim.advance(120)
    assert (scene.bought(), scene.sim.gangs()) == (0, {})


# -- claims of their own ----------------------------------------------------------------------------------------------

STORAGE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "ebs"},
    "provisioner": "ebs.csi.aws.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def claiming(replicas: int, gpus: int = 2, **spec: Any) -> Doc:
    """A StatefulSet on the queue, with a claim for each pod."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "ebs"}
    return stateful(replicas, gpus, volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": claim}], **spec)


def test_more_volumes_than_one_machine_attaches_are_bought_two() -> None:
    """Each kubelet says of its node how many volumes it attaches, and kube-scheduler holds to it; the agent knew."""
    scene = Scene(files(pool(types=(G5,)), team(quotas={"h100": {"nvidia.com/gpu": 4}}), queue()))
    scene.sim.submit(STORAGE)
    many = claiming(2, gpus=1, podManagementPolicy="Parallel")
    (claim,) = many["spec"]["volumeClaimTemplates"]
    claims = [{**claim, "metadata": {"name": f"data-{n}"}} for n in range(10)]
    scene.sim.submit({**many, "spec": {**many["spec"], "volumeClaimTemplates": claims}})
    scene.until(lambda: running(scene) == 2 and states(scene) == ADMITTED)
    assert (scene.bought(), len(set(nodes(scene).values()))) == (2, 2)
    told = {it["metadata"]["name"]: it["spec"]["drivers"] for it in scene.sim.objects("CSINode")}
    assert set(told) == set(nodes(scene).values())
    assert {(driver["name"], driver["allocatable"]["count"]) for (driver,) in told.values()} == {
        ("ebs.csi.aws.com", 17)
    }
    scene.sim.delete(scene.sim.objects("StatefulSet")[0])
    scene.until(lambda: not scene.sim.machines() and not scene.sim.objects("Node"), 900)
    assert scene.sim.objects("CSINode") == []


def kept_volume(scene: Scene, number: int, zone: str) -> None:
    """A claim of a former life of the set, whose volume is in that zone."""
    name = f"data-web-{number}"
    reach = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": "ebs"}
    size = {"storage": "1Gi"}
    csi = {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{number}"}
    claimed = {"namespace": "t", "name": name}
    volume = {**common, "capacity": size, "csi": csi, "claimRef": claimed, "nodeAffinity": {"required": reach}}
    claim = {**common, "resources": {"requests": size}, "volumeName": f"pv-{number}"}
    core = {"apiVersion": "v1"}
    scene.sim.submit({**core, "kind": "PersistentVolume", "metadata": {"name": f"pv-{number}"}, "spec": volume})
    scene.sim.submit(
        {**core, "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "t"}, "spec": claim}
    )


def zones_of_pods(scene: Scene) -> dict[str, str]:
    zones = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in scene.sim.objects("Node")}
    return {name: zones[node] for name, node in nodes(scene).items()}


@BOTH_POLICIES
def test_with_claims_of_their_own_they_are_one_gang_with_a_pod_set_a_number(policy: str) -> None:
    scene = Scene(world(gpus=8))
    scene.sim.submit(STORAGE)
    scene.sim.submit(claiming(3, podManagementPolicy=policy))
    scene.until(lambda: running(scene) == 3 and states(scene) == ADMITTED)
    gang = scene.sim.gang("web")
    assert gang is not None
    assert [(it.name, it.count) for it in gang.pod_sets] == [("main-0", 1), ("main-1", 1), ("main-2", 1)]
    assert scene.bought(P5) == 1
    scene.settle()


@BOTH_POLICIES
def test_with_claims_of_their_own_none_starts_where_the_quota_is_not_for_all(policy: str) -> None:
    scene = Scene(world(gpus=4))
    scene.sim.submit(STORAGE)
    scene.sim.submit(claiming(3, podManagementPolicy=policy))
    scene.sim.advance(300)
    assert (scene.bought(), running(scene)) == (0, 0)
    assert [it.reason for it in scene.sim.gangs().values()] == ["ExceedsMaxQuota"]


@BOTH_POLICIES
def test_each_number_goes_where_its_volume_is(policy: str) -> None:
    """The volumes of a former life are in two zones: machines are bought in both, in one pass."""
    scene = Scene(world(gpus=32))
    scene.sim.submit(STORAGE)
    for number, zone in enumerate((B, A, B)):
        kept_volume(scene, number, zone)
    scene.sim.submit(claiming(4, podManagementPolicy=policy))
    scene.until(lambda: running(scene) == 4 and states(scene) == ADMITTED, 900)
    assert {name: zone for name, zone in zones_of_pods(scene).items() if name != "web-3"} == {
        "web-0": B,
        "web-1": A,
        "web-2": B,
    }
    assert scene.bought(P5) == 2
    before = zones_of_pods(scene)
    for name in ("web-0", "web-1"):
        scene.sim.delete(pods(scene)[name])
    scene.until(lambda: running(scene) == 4 and states(scene) == ADMITTED and zones_of_pods(scene) == before)
    assert scene.bought(P5) == 2
    scene.settle()


@BOTH_POLICIES
def test_with_claims_of_their_own_they_are_scaled_down_up_and_down_again(policy: str) -> None:
    scene = Scene(world(gpus=8))
    scene.sim.submit(STORAGE)
    scene.sim.submit(claiming(3, podManagementPolicy=policy))
    scene.until(lambda: running(scene) == 3 and states(scene) == ADMITTED)
    change(scene, replicas=1)
    scene.until(lambda: held(scene) == {"statefulset/t/web": 1})
    change(scene, replicas=3)
    scene.until(lambda: running(scene) == 3)
    assert held(scene) == {"statefulset/t/web": 1, "pod/t/web-1": 1, "pod/t/web-2": 1}
    change(scene, replicas=1)
    scene.until(lambda: held(scene) == {"statefulset/t/web": 1})
    change(scene, replicas=0)
    scene.until(lambda: not scene.sim.gangs() and not scene.sim.machines(), 900)
    change(scene, replicas=2)
    scene.until(lambda: running(scene) == 2 and held(scene) == {"statefulset/t/web": 2})
    assert scene.laws.evictions.total() == 0
    scene.settle()


def test_a_lost_node_of_a_set_with_claims_is_replaced_in_the_zone_of_the_volume() -> None:
    scene = Scene(world(gpus=32))
    scene.sim.submit(STORAGE)
    scene.sim.submit(claiming(2, 8))
    scene.until(lambda: running(scene) == 2 and states(scene) == ADMITTED)
    before = zones_of_pods(scene)
    lost = next(it for it in scene.sim.claims().values() if it.node == nodes(scene)["web-1"])
    scene.sim.cloud.kill(lost.instance_id)
    scene.until(lambda: scene.bought(P5) == 3 and running(scene) == 2 and states(scene) == ADMITTED, 1200)
    assert zones_of_pods(scene) == before
    scene.settle()


def test_with_claims_of_volumes_that_exist_each_is_a_gang_of_its_own() -> None:
    scene = Scene(world(gpus=4))
    scene.sim.submit(STORAGE)
    made = claiming(3)
    made["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = ""
    scene.sim.submit(made)
    scene.sim.advance(120)
    assert all(str(it.job).startswith("pod/t/web-") for it in scene.sim.gangs().values())
    assert scene.sim.gangs()


@pytest.mark.parametrize("made", [stateful, claiming])
@pytest.mark.parametrize(("before", "after"), [(4, 20), (20, 4), (20, 0)])
@BOTH_POLICIES
def test_the_plan_says_what_becomes_of_it(policy: str, before: int, after: int, made: Any) -> None:
    scene = Scene(world(gpus=before) | {"p.yaml": RAILS})
    scene.sim.submit(STORAGE)
    scene.sim.submit(made(4, 4, podManagementPolicy=policy))
    scene.sim.submit(stateful(2, 2, name="small", podManagementPolicy=policy))
    scene.sim.advance(400)
    pushed = world(gpus=after, template={"labels": {"new": "yes"}}) | {"p.yaml": RAILS}
    head = load({path: text.encode() for path, text in pushed.items()})
    run = simulate(head, scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset()))
    scene.sim.push(pushed)
    scene.sim.advance(1800)
    assert run.given_up_after_s is None
    assert state(run.end.claims, run.end.gangs) == state(scene.sim.claims(), scene.sim.gangs())
