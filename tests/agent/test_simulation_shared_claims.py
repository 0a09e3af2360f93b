"""Pods of gangs that share a ResourceClaim stand on one machine, and what it asks counts once."""

import random
from typing import Any

import pytest

from agent.demo.jobs import Manifest, training
from tests.agent.scenes import G6, P5, Scene, gpu_job
from tests.agent.test_simulation_dra import Obj, claiming, devices, dra, exactly, template
from tests.agent.test_simulation_ledger import SLOW
from tests.agent.test_simulation_replacement import instance_of
from tests.agent.test_simulation_stateful_sets import stateful
from tests.support.work import group_pod


def shared_claim(name: str, *requests: Obj, **more: Any) -> Obj:
    made = template(name, *requests, **more)
    return made | {"kind": "ResourceClaim", "spec": made["spec"]["spec"]}


def share(spec: Obj, claim: str) -> None:
    """The pods of a template name a claim, and no GPUs beside it."""
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}


def sharing(name: str, claim: str, *, pods: int = 1, **more: Any) -> Manifest:
    """A Job all of whose pods name one ResourceClaim."""
    manifest = claiming(name, "", pods=pods, **more)
    share(manifest["spec"]["template"]["spec"], claim)
    return manifest


def nodes(scene: Scene, name: str) -> list[str]:
    """Where the pods are whose names begin so, one entry a pod that runs."""
    found = (pod for pod in scene.sim.objects("Pod") if pod["metadata"]["name"].startswith(name))
    return sorted(pod["spec"].get("nodeName", "") for pod in found if pod["status"]["phase"] == "Running")


def pod_sets(scene: Scene, name: str) -> dict[str, tuple[int, int]]:
    """Pod set -> pods, and GPUs of each."""
    gang = scene.sim.gang(name)
    assert gang is not None
    return {it.name: (it.count, it.requests.get("nvidia.com/gpu", 0)) for it in gang.pod_sets}


def test_all_pods_of_a_job_stand_on_one_machine_and_the_devices_count_once() -> None:
    scene = Scene(dra(instanceTypes=[G6, P5], quota={"nvidia.com/gpu": 3}))
    scene.sim.submit(shared_claim("two", exactly("gpus", count=2)))
    scene.runs(sharing("a", "two", pods=3))
    assert pod_sets(scene, "a") == {"main-claim": (1, 2), "main": (2, 0)}
    assert len(set(nodes(scene, "a-"))) == 1
    assert list(map(tuple, devices(scene).values())) == [("gpu-0", "gpu-1")] * 3
    scene.sim.submit(template("one", exactly("gpu")))
    scene.runs(claiming("b", "one"))
    assert scene.bought() == 1, "the third GPU of the quota, in the other half of the machine"
    scene.settle()


def test_of_pod_sets_that_share_a_claim_that_of_one_pod_asks_for_it() -> None:
    manifest = training("a", "t", "normal", workers=3, gpus=1)
    workers = manifest["spec"]["replicatedJobs"][0]
    server = {"name": "server", "replicas": 1, "template": {"spec": {**workers["template"]["spec"]}}}
    server["template"]["spec"] |= {"parallelism": 1, "completions": 1}
    manifest["spec"]["replicatedJobs"].append(server)
    share(workers["template"]["spec"]["template"]["spec"], "one")
    server["template"]["spec"]["template"] = {"spec": workers["template"]["spec"]["template"]["spec"]}
    scene = Scene(dra(instanceTypes=[G6, P5]))
    scene.sim.submit(shared_claim("one", exactly("gpu")))
    scene.runs(manifest)
    assert pod_sets(scene, "a") == {"server": (1, 1), "workers": (3, 0)}
    assert (len(nodes(scene, "a-")), len(set(nodes(scene, "a-")))) == (4, 1)
    scene.settle()


def test_plain_pods_of_a_group_share_a_claim() -> None:
    scene = Scene(dra())
    scene.sim.submit(shared_claim("one", exactly("gpu")))
    for name in "abc":
        body = group_pod(name, 3)
        share(body["spec"], "one")
        scene.sim.submit(body)
    scene.until_running("g")
    labels = [pod["metadata"]["labels"]["muster.dev/pod-set"] for pod in scene.sim.objects("Pod")]
    assert len(set(labels)) == 1, "pods are marked with the role that is theirs"
    assert set(devices(scene)) == set("abc")
    scene.settle(settled=False)


def test_a_machine_has_to_have_room_for_all_who_share() -> None:
    """Of the GPUs that stand free one is enough; but the pods together ask for more processors than are left there."""
    scene = Scene(dra(instanceTypes=[G6]))
    scene.sim.submit(
        template("one", exactly("gpu")),
    )
    crowd = claiming("crowd", "one")
    crowd["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "20"
    scene.runs(crowd)
    scene.sim.submit(shared_claim("shared", exactly("gpu")))
    together = sharing("a", "shared", pods=5)
    together["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "7"
    scene.runs(together)
    assert scene.bought() == 2
    assert len(set(nodes(scene, "a-"))) == 1
    scene.settle()


def test_a_gang_that_loses_its_machine_comes_back_with_its_claim() -> None:
    scene = Scene(dra(instanceTypes=[G6]))
    scene.sim.submit(shared_claim("one", exactly("gpu")))
    scene.runs(sharing("a", "one", pods=3))
    [node] = scene.nodes_of("a")
    scene.sim.cloud.kill(instance_of(scene, node))
    scene.until(
        lambda: scene.nodes_of("a") not in ({node}, set()) and scene.sim.running("a"), 1800, "it runs elsewhere"
    )
    assert len(set(nodes(scene, "a-"))) == 1
    scene.settle(300)


def test_of_gangs_that_share_a_claim_the_later_goes_where_the_devices_are() -> None:
    scene = Scene(dra(instanceTypes=[G6], quota={"nvidia.com/gpu": 1}))
    scene.sim.submit(shared_claim("one", exactly("gpu")))
    scene.sim.submit(sharing("a", "one", pods=2, run_s=900))
    scene.sim.advance(1)
    scene.sim.submit(sharing("b", "one", pods=2))
    scene.sim.advance(20)
    gang = scene.sim.gang("b")
    assert gang is not None
    assert "not before job t/a has the devices of ResourceClaim one" in gang.message
    scene.until_running("a")
    scene.until_running("b")
    assert scene.bought() == 1
    assert set(nodes(scene, "a-")) == set(nodes(scene, "b-"))
    scene.sim.advance(1200)
    assert scene.state("a") == "Finished"
    assert scene.sim.running("b")
    scene.settle()


@pytest.mark.parametrize(
    ("claim", "change", "words"),
    [
        ("none", lambda job: None, "there is no ResourceClaim none in namespace t that pods may share"),
        ("nine", lambda job: None, "no machine has what request gpus of claim gpu asks: 9 of gpu.nvidia.com"),
        (
            "one",
            lambda job: job["metadata"].update(annotations={"muster.dev/job-min-parallelism": "1"}),
            "pods that share a claim start together",
        ),
        (
            "one",
            lambda job: job["spec"]["template"]["spec"]["containers"][0]["resources"].update(
                limits={"nvidia.com/gpu": "1"}
            ),
            "a machine gives GPUs to claims or by name, not both",
        ),
    ],
)
def test_what_is_not_honoured_of_a_shared_claim_is_told(claim: str, change: Any, words: str) -> None:
    scene = Scene(dra())
    scene.sim.submit(shared_claim("one", exactly("gpu")))
    scene.sim.submit(shared_claim("nine", exactly("gpus", count=9)))
    manifest = sharing("a", claim, pods=3)
    change(manifest)
    scene.sim.submit(manifest)
    scene.sim.advance(60)
    gang = scene.sim.gang("a")
    assert gang is not None
    assert words in gang.message, gang.message
    assert scene.bought() == 0
    scene.settle()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_whoever_shares_is_allocated_what_was_foreseen(seed: int) -> None:
    """Gangs with shared claims and with their own, big and small, come and go; each that starts has its devices."""
    rng = random.Random(seed)
    scene = Scene(dra(instanceTypes=[G6, P5], quota={"nvidia.com/gpu": 24}, limits={"nodes": 4}), tempo=SLOW)
    names = []
    for number in range(10):
        name, run_s = f"j{number}", rng.choice([None, 60.0, 300.0])
        gpus, pods = exactly("g", count=rng.randint(1, 4)), rng.randint(1, 5)
        if rng.random() < 0.6:
            scene.sim.submit(shared_claim(f"c{number}", gpus))
            manifest = sharing(name, f"c{rng.randint(max(0, number - 1), number)}", pods=pods, run_s=run_s)
        else:
            scene.sim.submit(template(f"c{number}", gpus))
            manifest = claiming(name, f"c{number}", pods=pods, run_s=run_s)
        cpu = str(rng.choice([1, 4, 12]))
        manifest["spec"]["template"]["spec"]["containers"][0]["resources"].setdefault("requests", {})["cpu"] = cpu
        scene.sim.submit(manifest)
        names.append(name)
        scene.sim.advance(rng.choice([0, 30, 200]))
        if rng.random() < 0.2 and (machines := [it for it in scene.sim.claims().values() if it.node]):
            scene.sim.cloud.kill(rng.choice(sorted(machines, key=lambda it: it.name)).instance_id)
    scene.sim.advance(1500)
    for gang in (it for name in names if (it := scene.sim.gang(name)) is not None):
        if gang.state == "Admitted":
            assert gang.pods_ready, f"{gang.name} has started and its pods are not all ready: {scene.story()}"
            assert gang.timeouts == 0, f"{gang.name} was started in vain once: its pods did not get their devices"
        if any(pods.part_of for pods in gang.pod_sets):
            assert len(set(nodes(scene, f"{gang.job.name}-"))) <= 1
    assert sum(gang.state in {"Admitted", "Finished"} for gang in scene.sim.gangs().values()) >= 5
    scene.settle(settled=False)


def test_pods_that_name_gpus_are_not_mixed_with_those_that_share() -> None:
    scene = Scene(dra())
    scene.sim.submit(gpu_job("named", gpus=1))
    scene.sim.submit(shared_claim("one", exactly("gpu")))
    scene.runs(sharing("a", "one", pods=2))
    assert scene.state("named") == "Pending"


def test_pods_of_a_stateful_set_share_a_claim() -> None:
    scene = Scene(dra(instanceTypes=[G6]))
    scene.sim.submit(shared_claim("one", exactly("gpu")))
    made = stateful(3, podManagementPolicy="OrderedReady")
    share(made["spec"]["template"]["spec"], "one")
    scene.sim.submit(made)
    scene.until(lambda: len(nodes(scene, "web-")) == 3, 900, "all of them run")
    assert len(set(nodes(scene, "web-"))) == 1
    assert pod_sets(scene, "web") == {"main-claim": (1, 1), "main": (2, 0)}
    [first] = [pod for pod in scene.sim.objects("Pod") if pod["metadata"]["name"] == "web-0"]
    scene.sim.delete(first)
    scene.sim.advance(10)
    scene.until(lambda: len(nodes(scene, "web-")) == 3, 900, "it is made anew, and runs beside the others")
    assert scene.bought() == 1
    assert len(set(nodes(scene, "web-"))) == 1
