"""Jobs whose pods ask something of other pods, of ports and of volumes run where kube-scheduler lets them.

The simulated scheduler, written apart and held to the recorded worlds, binds every pod: where a place was wrong it
would stay pending, on machines that are paid for.
"""

from collections import Counter
from typing import Any

import pytest

from agent.demo.jobs import Manifest
from tests.agent.scenes import G6, P5, A, B, Scene, files, gpu_job, pool, queue, simple, team
from tests.agent.test_simulation_ordinary_pods import deployment, plain, pods, running

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def asking(name: str, pods: int, gpus: int = 1, labels: dict[str, str] | None = None, **spec: Any) -> Manifest:
    """A job of so many pods with the label `app: x`."""
    manifest = gpu_job(name, pods=pods, gpus=gpus)
    template = manifest["spec"]["template"]
    template.setdefault("metadata", {}).setdefault("labels", {}).update(labels or {"app": "x"})
    template["spec"] |= spec
    return manifest


def term(key: str, app: str = "x") -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def apart(key: str = HOST, app: str = "x") -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: [term(key, app)]}}


def together(key: str = ZONE, app: str = "x") -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: [term(key, app)]}}


def spread(key: str = ZONE, skew: int = 1) -> list[dict[str, Any]]:
    return [{**term(key), "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule"}]


def zones(scene: Scene, name: str) -> Counter[str]:
    """Zone -> pods of a job."""
    gang = scene.sim.gang(name)
    assert gang is not None
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in scene.sim.objects("Node")}
    return Counter(nodes[pin.node] for pin in gang.pins for _ in range(pin.count))


def test_two_pods_that_keep_apart_run_on_two_machines() -> None:
    """One machine would hold both; a real scheduler refuses the second there, and the gang would time out."""
    scene = Scene(simple())
    scene.runs(asking("g", 2, affinity=apart()))
    assert (len(scene.nodes_of("g")), scene.bought()) == (2, 2)
    scene.settle()


def test_pods_are_spread_over_the_zones_in_which_machines_are_bought() -> None:
    scene = Scene(simple())
    scene.runs(asking("g", 6, topologySpreadConstraints=spread()))
    assert (zones(scene, "g"), scene.bought()) == ({A: 3, B: 3}, 2)
    scene.settle()


def test_a_job_follows_another_into_its_zone() -> None:
    scene = Scene(simple())
    scene.runs(asking("leader", 1, 8, labels={"app": "leader"}, nodeSelector={ZONE: B}))
    scene.runs(asking("g", 1, 8, affinity=together(ZONE, "leader")))
    assert zones(scene, "g") == {B: 1}


def test_who_runs_keeps_others_away_that_ask_nothing() -> None:
    scene = Scene(simple())
    scene.runs(asking("first", 1, affinity=apart(app="y")))
    scene.runs(asking("second", 1, labels={"app": "y"}))
    assert scene.nodes_of("first").isdisjoint(scene.nodes_of("second"))
    assert scene.bought() == 2


def test_a_host_port_is_taken_once_a_machine() -> None:
    scene = Scene(simple())
    made = asking("g", 2)
    made["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    scene.runs(made)
    assert len(scene.nodes_of("g")) == 2


@pytest.mark.parametrize("volume_zone", [A, B])
def test_a_volume_says_in_which_zone_its_job_runs(volume_zone: str) -> None:
    scene = Scene(simple())
    reach = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [volume_zone]}]}
    scene.sim.submit(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "pv"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteMany"],
                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [reach]}},
            },
        }
    )
    scene.sim.submit(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "t"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeName": "pv",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    mount = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    scene.runs(asking("g", 2, 8, volumes=mount))
    assert zones(scene, "g") == {volume_zone: 2}


def test_a_claim_that_is_missing_is_told_and_nothing_is_bought() -> None:
    scene = Scene(simple())
    mount = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    scene.sim.submit(asking("g", 1, volumes=mount))
    scene.sim.advance(120)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert (gang.state, scene.bought()) == ("Pending", 0)
    assert 'persistentvolumeclaim "data" not found' in gang.message


def test_when_a_machine_drifts_its_gang_moves_where_its_constraints_allow() -> None:
    """Replacements keep pods apart as the first machines did."""
    scene = Scene(files(pool(), team(), queue()))
    scene.runs(asking("g", 2, affinity=apart()))
    drifted = pool(template={"labels": {"made": "anew"}})
    scene.sim.push(files(drifted, team(), queue()))
    scene.sim.advance(1800)
    assert scene.state("g") == "Admitted"
    assert len(scene.nodes_of("g")) == 2
    scene.settle()


# -- all that wait together -------------------------------------------------------------------------------------------

BOTH = files(pool(types=(P5, G6), serves=["Gangs", "Pods"]), team(), queue())


def machines(scene: Scene) -> Counter[str]:
    """Kind -> machines that run now."""
    return Counter(machine.instance_type for machine in scene.sim.machines())


def test_jobs_of_one_pod_that_keep_near_each_other_get_one_machine_for_all() -> None:
    """The first alone would be bought a machine of four GPUs, and the fifth would wait for ever."""
    scene = Scene(BOTH)
    for n in range(6):
        scene.sim.submit(asking(f"g{n}", 1, affinity=together(HOST)))
    for n in range(6):
        scene.until_running(f"g{n}")
    assert machines(scene) == {P5: 1}
    scene.settle()


def test_who_finds_no_room_on_the_machine_of_its_like_is_told_so() -> None:
    scene = Scene(BOTH)
    for n in range(9):
        scene.sim.submit(asking(f"g{n}", 1, affinity=together(HOST)))
    scene.until(lambda: sum(scene.sim.running(f"g{n}") for n in range(9)) == 8)
    scene.sim.advance(120)
    [waits] = [gang for gang in scene.sim.gangs().values() if not gang.pins]
    assert "pods like it keep to one machine, and theirs has no room for more" in waits.message
    assert scene.bought() == 1
    scene.settle()


def jobset(name: str, **roles: Manifest) -> Manifest:
    """A JobSet of such jobs, one a role; the pods of each carry its name as `app`."""
    made = gpu_job(name)
    jobs = []
    for role, manifest in roles.items():
        spec = {key: value for key, value in manifest["spec"].items() if key != "suspend"}
        jobs.append({"name": role, "replicas": 1, "template": {"spec": spec}})
    made |= {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return {**made, "spec": {"suspend": True, "replicatedJobs": jobs}}


def following(count: int, app: str, leader: str, gpus: int = 1) -> Manifest:
    return asking(app, count, gpus, labels={"app": app}, affinity=together(HOST, leader))


def on(scene: Scene, *apps: str) -> list[set[str]]:
    """The nodes of the pods with each of these labels."""
    found = scene.sim.objects("Pod")
    return [
        {pod["spec"]["nodeName"] for pod in found if pod["metadata"].get("labels", {}).get("app") == app}
        for app in apps
    ]


@pytest.mark.parametrize(
    ("leaders", "workers", "kinds"),
    [
        pytest.param(1, 7, {P5: 1}, id="one leader, where a smaller machine would do for it alone"),
        pytest.param(2, 6, {G6: 2}, id="two that keep apart, three workers with each"),
        pytest.param(3, 3, {G6: 3}, id="three"),
    ],
)
def test_workers_of_a_gang_run_on_the_machines_of_its_leaders(
    leaders: int, workers: int, kinds: dict[str, int]
) -> None:
    scene = Scene(BOTH)
    lead = asking("lead", leaders, labels={"app": "lead"}, affinity=apart(HOST, "lead"))
    scene.runs(jobset("g", lead=lead, work=following(workers, "work", "lead")))
    leading, working = on(scene, "lead", "work")
    assert (len(leading), working <= leading, machines(scene)) == (leaders, True, kinds)
    scene.settle()


def test_workers_start_on_machines_that_stand_where_they_have_room_beside_their_leader() -> None:
    """Room for the leader alone is elsewhere, and would be taken by whoever looks for one pod after another."""
    scene = Scene(BOTH)
    scene.runs(asking("small", 3, labels={"app": "small"}, affinity=together(HOST, "small")))
    scene.runs(asking("large", 8, labels={"app": "large"}, affinity=together(HOST, "large")))
    scene.sim.delete(asking("large", 8))
    scene.sim.advance(30)
    before = scene.bought()
    lead = asking("lead", 1, labels={"app": "lead"})
    scene.runs(jobset("g", lead=lead, work=following(4, "work", "lead")))
    leading, working = on(scene, "lead", "work")
    assert (leading == working, scene.bought()) == (True, before)
    scene.settle()


@pytest.mark.parametrize("first", ["lead", "work"])
def test_jobs_run_on_the_machine_of_the_job_they_follow(first: str) -> None:
    """Machines with four GPUs would do for the leader, and for one of the others beside it."""
    scene = Scene(BOTH)
    jobs = [asking("lead", 1, labels={"app": "lead"})]
    for n in range(2):
        jobs.append(asking(f"work{n}", 1, 3, labels={"app": "work"}, affinity=together(HOST, "lead")))
    for job in jobs if first == "lead" else reversed(jobs):
        scene.sim.submit(job)
    for name in ("lead", "work0", "work1"):
        scene.until_running(name)
    leading, working = on(scene, "lead", "work")
    assert (leading == working, machines(scene)) == (True, {P5: 1})
    scene.settle()


@pytest.mark.parametrize(
    ("leader", "workers", "words"),
    [
        (asking("lead", 1, labels={"app": "lead"}), 8, "keeps pods of work on machines of lead"),
        (following(1, "lead", "work"), 1, "pods of lead and work wait for each other"),
    ],
    ids=["no machine is that large", "a circle"],
)
def test_who_cannot_follow_is_told_by_which_field(leader: Manifest, workers: int, words: str) -> None:
    scene = Scene(BOTH)
    scene.sim.submit(jobset("g", lead=leader, work=following(workers, "work", "lead")))
    scene.sim.advance(120)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert (gang.state, scene.bought()) == ("Pending", 0)
    assert "spec.affinity.podAffinity" in gang.message
    assert words in gang.message


def test_pods_of_deployments_run_on_the_machines_of_the_leaders_they_follow() -> None:
    scene = Scene(BOTH)
    scene.sim.submit(deployment("lead", 2, affinity=apart(HOST, "lead")))
    scene.sim.submit(deployment("work", 6, affinity=together(HOST, "lead")))
    scene.until(lambda: running(scene) == 8)
    leading, working = on(scene, "lead", "work")
    assert (working <= leading, machines(scene)) == (True, {G6: 2})


def test_pods_of_no_gang_that_keep_near_each_other_get_one_machine_for_all() -> None:
    scene = Scene(BOTH)
    for n in range(6):
        scene.sim.submit(plain(f"p{n}", affinity=together(HOST)))
    scene.until(lambda: running(scene) == 6)
    assert machines(scene) == {P5: 1}


def test_what_is_bought_together_is_where_kube_scheduler_lets_pods_run() -> None:
    """Three machines of four GPUs hold all; bought one by one, the pods that keep apart would have a second kind."""
    scene = Scene(BOTH)
    scene.sim.submit(asking("apart", 3, affinity=apart()))
    scene.sim.submit(asking("even", 4, labels={"app": "y"}, topologySpreadConstraints=spread(HOST, 2)))
    for n in range(4):
        scene.sim.submit(asking(f"g{n}", 1, labels={"app": "z"}))
    for name in ("apart", "even", *(f"g{n}" for n in range(4))):
        scene.until_running(name)
    assert machines(scene) == {G6: 3}
    scene.settle()


def test_pods_that_take_a_port_or_keep_apart_are_moved_together() -> None:
    """Of the machines that others have left two are enough, and fewer would not do."""
    underused = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "60s"}
    scene = Scene(
        files(
            pool(types=(G6,), serves=["Gangs", "Pods"], disruption={**underused, "budgets": [{"nodes": "100%"}]}),
            team(),
            queue(),
        )
    )
    scene.sim.submit(deployment("apart", 2, affinity=apart(HOST, "apart")))
    port = deployment("port", 2)
    port["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    scene.sim.submit(port)
    scene.sim.submit(deployment("full", 4, gpus=3))
    scene.until(lambda: running(scene) == 8)
    assert machines(scene)[G6] >= 4
    scene.sim.delete(deployment("full", 4))
    scene.until(lambda: len(scene.sim.machines()) == 2 and running(scene) == 4, 3600)
    scene.sim.advance(1200)
    assert (machines(scene), running(scene)) == ({G6: 2}, 4)
    for name in ("apart", "port"):
        assert len({pod["spec"]["nodeName"] for key, pod in pods(scene).items() if key.startswith(name)}) == 2
