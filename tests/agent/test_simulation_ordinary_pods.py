"""Pods of no gang: machines are bought for those that kube-scheduler finds no place for, and given back."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from providers.sim.store import PatchType
from tests.agent.scenes import G6, P5, A, B, Scene, files, gpu_job, pool, queue, sold, team

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
Pod = dict[str, Any]


def plain(name: str, gpus: int = 1, **spec: Any) -> Pod:
    """A pod of its own, with the label `app: x`."""
    asks = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
    container = {"name": "c", "image": "i", "resources": {"requests": asks, "limits": asks}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "t", "labels": {"app": "x"}},
        "spec": {"containers": [container], **spec},
    }


def served(**spec: Any) -> dict[str, str]:
    return files(pool(serves=["Gangs", "Pods"], **spec), team(), queue())


def pods(scene: Scene) -> dict[str, Pod]:
    return {pod["metadata"]["name"]: pod for pod in scene.sim.objects("Pod")}


def running(scene: Scene) -> int:
    return sum(pod.get("status", {}).get("phase") == "Running" for pod in pods(scene).values())


def test_a_pod_that_finds_no_place_gets_a_machine() -> None:
    scene = Scene(served())
    scene.sim.submit(plain("p"))
    scene.until(lambda: running(scene) == 1)
    assert scene.bought(P5) == 1


def test_pods_of_a_batch_share_machines() -> None:
    scene = Scene(served())
    for n in range(12):
        scene.sim.submit(plain(f"p{n}"))
    scene.until(lambda: running(scene) == 12)
    assert scene.bought(P5) == 2


def test_none_is_bought_where_no_pool_serves_pods() -> None:
    scene = Scene(files(pool(), team(), queue()))
    scene.sim.submit(plain("p"))
    scene.sim.advance(120)
    assert scene.bought() == 0


def test_pods_are_spread_over_zones() -> None:
    scene = Scene(served())
    spread = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
    for n in range(6):
        scene.sim.submit(plain(f"p{n}", topologySpreadConstraints=[spread]))
    scene.until(lambda: running(scene) == 6)
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in scene.sim.objects("Node")}
    assert Counter(nodes[pod["spec"]["nodeName"]] for pod in pods(scene).values()) == {A: 3, B: 3}
    assert scene.bought(P5) == 2


def test_a_machine_whose_pods_have_ended_is_given_back() -> None:
    scene = Scene(served())
    scene.sim.submit(plain("p"))
    scene.until(lambda: running(scene) == 1)
    scene.sim.delete(plain("p"))
    scene.until(lambda: not scene.sim.machines())


def deployment(name: str, replicas: int, gpus: int = 1, **spec: Any) -> Pod:
    """A Deployment of such pods."""
    pod = plain(name, gpus, **spec)
    template = {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "t"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


UNDERUSED = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "60s",
    "budgets": [{"nodes": "100%"}],
}


def scale(scene: Scene, name: str, replicas: int) -> None:
    deployments = scene.sim.store.resource("Deployment", "apps")
    scene.sim.store.patch(deployments, name, {"spec": {"replicas": replicas}}, PatchType.MERGE, namespace="t")


def test_a_deployment_that_shrinks_moves_onto_fewer_machines() -> None:
    scene = Scene(served(disruption=UNDERUSED))
    scene.sim.submit(deployment("web", 12))
    scene.until(lambda: running(scene) == 12)
    assert len(scene.sim.machines()) == 2
    scale(scene, "web", 4)
    scene.until(lambda: len(scene.sim.machines()) == 1 and running(scene) == 4, 1800)


def test_a_drifted_machine_is_replaced_before_its_pods_move() -> None:
    scene = Scene(served())
    scene.sim.submit(deployment("web", 8))
    scene.until(lambda: running(scene) == 8)
    scene.sim.push(served(template={"labels": {"new": "yes"}}))
    scene.until(lambda: scene.bought() == 2, 300)
    assert running(scene) == 8
    scene.until(lambda: len(scene.sim.machines()) == 1 and running(scene) == 8, 1800)
    assert scene.bought() == 2


@pytest.mark.parametrize(("late_s", "moves"), [(0, 1), (60, 1), (600, 2)])
def test_pods_move_once_where_the_template_changes_before_they_have_moved_to_a_cheaper_machine(
    late_s: int, moves: int
) -> None:
    """What was bought by the old template is given back; once they have moved they move again, as the pool says."""
    types = ("c6i.xlarge", "m6i.4xlarge")

    def fleet(**template: Any) -> dict[str, str]:
        cpus = pool(types=types, serves=["Gangs", "Pods"], disruption=UNDERUSED, template=template)
        return files(cpus, team(), queue())

    scene = Scene(fleet(), catalog=sold("m6i.4xlarge"))
    web = deployment("web", 10, 0)
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "5Gi"}}
    scene.sim.submit(web)
    scene.until(lambda: running(scene) == 10)
    assert [it.instance_type for it in scene.sim.machines()] == ["m6i.4xlarge"]
    scale(scene, "web", 1)
    scene.until(lambda: scene.bought("c6i.xlarge") == 1, 900)
    evicted: set[str] = set()
    scene.sim.on_write(lambda write: evicted.add(write.subject) if write.subject.endswith("/eviction") else None)
    scene.sim.advance(late_s)
    scene.sim.push(fleet(labels={"new": "yes"}))

    def settled() -> bool:
        nodes = scene.sim.objects("Node")
        return len(nodes) == running(scene) == 1 and nodes[0]["metadata"]["labels"].get("new") == "yes"

    scene.until(settled, 1800)
    assert len(evicted) == moves
    assert scene.bought("c6i.xlarge") == 2


def test_pods_that_must_not_be_disrupted_keep_their_machine() -> None:
    scene = Scene(served())
    manifest = deployment("web", 8)
    manifest["spec"]["template"]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "20m"}
    scene.sim.submit(manifest)
    scene.until(lambda: running(scene) == 8)
    scene.sim.push(served(template={"labels": {"new": "yes"}}))
    scene.sim.advance(900)
    assert scene.bought() == 1
    scene.until(lambda: scene.bought() == 2, 900)


def budget(name: str, least: int) -> Pod:
    """A PodDisruptionBudget over the pods of the Deployment `web`."""
    spec = {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}}
    metadata = {"name": name, "namespace": "t"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def daemon() -> Pod:
    """A DaemonSet whose pods say that they must not be disrupted."""
    made = deployment("agent", 1, gpus=0)
    del made["spec"]["replicas"]
    made["spec"]["template"]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    return made | {"kind": "DaemonSet"}


KEEPS = [
    pytest.param({"karpenter.sh/do-not-disrupt": "true"}, [], id="do-not-disrupt"),
    pytest.param({}, [budget("one", 8)], id="a budget that allows no eviction"),
    pytest.param({}, [budget("one", 1), budget("two", 1)], id="two budgets over a pod"),
    pytest.param({}, [daemon()], id="do-not-disrupt of a DaemonSet"),
    pytest.param({}, [plain("bare")], id="a pod without a controller"),
]


@pytest.mark.parametrize(("says", "beside"), KEEPS)
def test_what_keeps_a_machine_keeps_one_that_has_drifted(says: dict[str, str], beside: list[Pod]) -> None:
    scene = Scene(served())
    manifest = deployment("web", 8 - sum(it["kind"] == "Pod" for it in beside))
    manifest["spec"]["template"]["metadata"]["annotations"] = says
    for it in (manifest, *beside):
        scene.sim.submit(it)
    scene.until(lambda: running(scene) >= 8)
    scene.sim.push(served(template={"labels": {"new": "yes"}}))
    scene.sim.advance(900)
    assert scene.bought() == 1
    assert running(scene) >= 8


@pytest.mark.parametrize(("says", "beside"), KEEPS[:4])
def test_with_a_grace_period_what_pods_say_does_not_keep_a_drifted_machine(
    says: dict[str, str], beside: list[Pod]
) -> None:
    """Evictions that a budget refuses, too, end with the period."""
    scene = Scene(served(template={"terminationGracePeriod": "10m"}))
    manifest = deployment("web", 8)
    manifest["spec"]["template"]["metadata"]["annotations"] = says
    for it in (manifest, *beside):
        scene.sim.submit(it)
    scene.until(lambda: running(scene) >= 8)
    (before,) = scene.sim.machines()
    scene.sim.push(served(template={"terminationGracePeriod": "10m", "labels": {"new": "yes"}}))
    scene.until(lambda: before.id not in {it.id for it in scene.sim.machines()}, 1200)
    scene.until(lambda: running(scene) >= 8)
    assert scene.bought() == 2


def test_pods_run_on_a_fixed_pool_that_serves_them_and_buy_none() -> None:
    scene = Scene(served(replicas=1))
    scene.until(lambda: len(scene.sim.objects("Node")) == 1)
    scene.sim.submit(deployment("web", 9))
    scene.until(lambda: running(scene) == 8)
    scene.sim.advance(300)
    assert (scene.bought(), running(scene)) == (1, 8)


CHEAP = {"zones": [A, B, "us-east-1c"], "disruption": UNDERUSED}
STORAGE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "ebs"},
    "provisioner": "ebs.csi.aws.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def stateful_set(name: str, replicas: int) -> Pod:
    """A StatefulSet with a volume a pod."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "ebs"}
    found = deployment(name, replicas)
    found["kind"] = "StatefulSet"
    found["spec"] |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    found["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    return found


def test_everything_at_once_is_bought_for_once_and_runs() -> None:
    scene = Scene(files(pool(serves=["Gangs", "Pods"], types=(P5, G6), **CHEAP), team(), queue()))
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    spread = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spread |= {"labelSelector": {"matchLabels": {"app": "web"}}}
    scene.sim.submit(STORAGE)
    scene.sim.submit(deployment("web", 6, affinity=apart, topologySpreadConstraints=[spread]))
    scene.sim.submit(stateful_set("db", 3))
    scene.sim.submit(plain("notebook"))
    scene.sim.submit(gpu_job("train", pods=2, gpus=4))
    scene.until(lambda: running(scene) == 12, 900)
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in scene.sim.objects("Node")}
    web = [pod["spec"]["nodeName"] for name, pod in pods(scene).items() if name.startswith("web")]
    assert len(set(web)) == 6
    assert set(Counter(nodes[node] for node in web).values()) == {2}
    assert scene.bought() == len(scene.sim.machines()) <= 8
    machines = len(scene.sim.machines())
    scene.sim.delete(deployment("web", 6))
    scene.until(lambda: len(scene.sim.machines()) < machines / 2 and running(scene) == 6, 3600)


def test_spread_pods_go_to_machines_on_their_way_before_more_are_bought() -> None:
    """Of two machines of a gang in one zone the second is open once other zones have pods: an eleventh was claimed."""
    gangs, others = pool(zones=[A]), pool("cpu", ("c6i.xlarge",), serves=["Gangs", "Pods"])
    scene = Scene(files(gangs, others, team(), queue()))
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    spread = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    spread |= {"labelSelector": {"matchLabels": {"app": "web"}}}
    scene.sim.submit(gpu_job("train", pods=2))
    scene.sim.submit(deployment("web", 12, 0, affinity=apart, topologySpreadConstraints=[spread]))
    scene.until(lambda: running(scene) == 14, 900)
    assert (scene.bought(P5), scene.bought("c6i.xlarge")) == (2, 10)
    assert len(scene.sim.claims()) == 12
    scene.settle()


def test_while_the_watch_of_pods_stands_still_a_pod_is_evicted_twice_a_minute_at_most() -> None:
    """Found by `--profile faults --seed 31003`: the same eviction as fast as the API answered."""
    scene = Scene(served())
    scene.sim.submit(plain("p", terminationGracePeriodSeconds=20))
    scene.until(lambda: running(scene) == 1)
    evictions: list[float] = []
    scene.sim.on_write(lambda write: evictions.append(write.at_s) if write.subject.endswith("/eviction") else None)
    scene.sim.stalled_tables |= {"pods"}
    (node,) = scene.sim.objects("Node")
    scene.sim.delete(node)
    scene.sim.advance(100)
    assert 2 <= len(evictions) <= 4, "one that was lost would be asked for again"
    assert all(later - earlier >= 30 for earlier, later in pairwise(evictions))
    scene.sim.stalled_tables -= {"pods"}
    scene.until(lambda: not scene.sim.machines(), 120)
