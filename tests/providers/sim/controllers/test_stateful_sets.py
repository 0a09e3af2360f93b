"""StatefulSets as a real cluster runs them: numbers, order, partitions and claims."""

from itertools import groupby
from typing import Any

import pytest

from providers.sim.controllers.apps.statefulpods import StatefulWork, ordinal_of
from tests.providers.sim.controllers.world import ControllerWorld, Obj, pod_template

# -- which pods an update replaces, as data ---------------------------------------------------------------------------


def work(replicas: int, *, start: int = 0, kind: str = "RollingUpdate", **rolling: Any) -> StatefulWork:
    strategy: Obj = {"type": kind, **({"rollingUpdate": rolling} if rolling else {})}
    return StatefulWork.of({"spec": {"replicas": replicas, "ordinals": {"start": start}, "updateStrategy": strategy}})


def pods(told: str, *, start: int = 0) -> list[Obj]:
    """A letter a pod: o(ld), n(ew); in capitals where it is not ready; d is an old one on its way out."""
    found = []
    for i, letter in enumerate(told, start):
        ready = "True" if letter in "on" else "False"
        metadata: Obj = {"name": f"web-{i}", "labels": {"controller-revision-hash": letter.lower()}}
        if letter == "d":
            metadata = {**metadata, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
        found.append({"metadata": metadata, "spec": {}, "status": status})
    return found


@pytest.mark.parametrize(
    ("told", "rolling", "replaced"),
    [
        ("ooo", {}, [2]),
        ("oon", {}, [1]),
        ("ooN", {}, []),  # one after the other, each ready first
        ("ood", {}, []),
        ("ooO", {}, [2]),  # one that is not ready is out of date as well
        ("oOo", {}, [2]),
        ("nnn", {}, []),
        ("ooo", {"partition": 2}, [2]),
        ("oon", {"partition": 2}, []),
        ("oooo", {"maxUnavailable": 2}, [3, 2]),
        ("ooon", {"maxUnavailable": 2, "partition": 2}, [2]),
        ("oooN", {"maxUnavailable": 2}, [2]),
        ("oooooooo", {"maxUnavailable": "30%"}, [7, 6, 5]),
        ("ood", {"maxUnavailable": 2}, [1]),
    ],
)
def test_the_highest_numbers_are_replaced_first(told: str, rolling: dict[str, Any], replaced: list[int]) -> None:
    chosen = work(len(told), **rolling).replaced(pods(told), "n")
    assert [ordinal_of(pod) for pod in chosen] == replaced


def test_numbers_may_start_anywhere() -> None:
    moved = work(3, start=5, partition=1)
    assert list(moved.ordinals) == [5, 6, 7]
    assert [ordinal_of(pod) for pod in moved.replaced(pods("oon", start=5), "n")] == [6]
    assert not moved.replaced(pods("onn", start=5), "n")


def test_on_delete_replaces_nothing_by_itself() -> None:
    assert not work(3, kind="OnDelete").replaced(pods("ooo"), "n")


@pytest.mark.parametrize(
    ("of", "ordinal", "current", "old"),
    [
        (work(3, partition=2), 1, 3, True),
        (work(3, partition=2), 2, 3, False),
        (work(3, partition=0), 0, 3, False),
        (work(3), 1, 2, True),
        (work(3), 2, 2, False),
        (work(3, start=5, partition=1), 5, 0, True),
        (work(3, kind="OnDelete"), 0, 3, False),
    ],
)
def test_a_lost_pod_comes_back_in_its_revision(of: StatefulWork, ordinal: int, current: int, old: bool) -> None:
    assert of.keeps_old(ordinal, current) is old


# -- stories ----------------------------------------------------------------------------------------------------------

CLAIM: Obj = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def database(image: str = "x:1", cpu: str = "1") -> Obj:
    template = pod_template(cpu=cpu, labels={"app": "db"}, restartPolicy="Always")
    template["spec"]["containers"][0]["image"] = image
    return template


def stateful(world: ControllerWorld, replicas: int = 3, **spec: Any) -> Obj:
    wanted = {
        "replicas": replicas,
        "serviceName": "peers",
        "selector": {"matchLabels": {"app": "db"}},
        "template": database(),
        **spec,
    }
    return world.create("StatefulSet", {"metadata": {"name": "db"}, "spec": wanted})


def names(world: ControllerWorld) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in world.pods(app="db"))


def running(world: ControllerWorld) -> list[str]:
    held = (pod for pod in world.pods(app="db") if pod["status"]["phase"] == "Running")
    return sorted(pod["metadata"]["name"] for pod in held)


def images(world: ControllerWorld) -> str:
    """The versions of the pods' images, by number."""
    held = sorted(world.pods(app="db"), key=ordinal_of)
    return "".join(pod["spec"]["containers"][0]["image"][-1] for pod in held)


def status(world: ControllerWorld) -> Obj:
    found: Obj = world.the("StatefulSet", "db")["status"]
    return found


@pytest.fixture
def roomy(world: ControllerWorld) -> ControllerWorld:
    storage = {"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"}
    marks = {"storageclass.kubernetes.io/is-default-class": "true"}
    world.create("StorageClass", {"metadata": {"name": "gp3", "annotations": marks}, **storage})
    for zone in "ab":
        world.ready_node(f"n-{zone}", cpu="20", pods="50", labels={"topology.kubernetes.io/zone": zone})
    return world


def test_each_pod_waits_for_the_one_before(roomy: ControllerWorld) -> None:
    stateful(roomy, 3)
    seen = []
    for _ in range(12):
        roomy.pass_s(0.5)
        seen.append((len(names(roomy)), len(running(roomy))))
    assert all(there <= up + 1 for there, up in seen)
    assert seen[-1] == (3, 3)
    first = roomy.the("Pod", "db-0")
    assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("db-0", "peers")
    assert first["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "0"
    counts = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas")
    assert [status(roomy)[field] for field in counts] == [3] * 5
    assert status(roomy)["currentRevision"] == status(roomy)["updateRevision"]
    assert first["metadata"]["labels"]["controller-revision-hash"] == status(roomy)["updateRevision"]


def test_a_template_may_mount_the_claims_of_the_set(roomy: ControllerWorld) -> None:
    mounting = database()
    mounting["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    stateful(roomy, 1, template=mounting, volumeClaimTemplates=[CLAIM])
    roomy.pass_s(10)
    assert running(roomy) == ["db-0"]
    roomy.change("StatefulSet", "db", template={**mounting, "metadata": {"labels": {"app": "db", "new": "1"}}})


def test_pods_in_parallel_do_not_wait(world: ControllerWorld) -> None:
    stateful(world, 4, podManagementPolicy="Parallel")
    world.pass_s(1)
    assert names(world) == ["db-0", "db-1", "db-2", "db-3"]
    assert not running(world)


def test_scaling_down_takes_the_highest_numbers(roomy: ControllerWorld) -> None:
    stateful(roomy, 5)
    roomy.pass_s(20)
    roomy.change("StatefulSet", "db", replicas=2)
    left = []
    for _ in range(40):
        roomy.pass_s(0.5)
        left.append(len(names(roomy)))
        assert names(roomy) == [f"db-{i}" for i in range(left[-1])]
    assert [count for count, _ in groupby(left)] == [*range(left[0], 1, -1)]  # one after the other


def test_an_update_goes_from_the_highest_number_down(roomy: ControllerWorld) -> None:
    stateful(roomy, 3)
    roomy.pass_s(20)
    before = status(roomy)["currentRevision"]
    roomy.change("StatefulSet", "db", template=database("x:2"))
    seen = []
    for _ in range(60):
        roomy.pass_s(0.5)
        seen.append(images(roomy))
        assert len(running(roomy)) >= 2
    assert all(now == "".join(sorted(now)) for now in seen)
    assert seen[-1] == "222"
    assert status(roomy)["currentRevision"] == status(roomy)["updateRevision"] != before
    assert len(roomy.all("ControllerRevision")) == 2
    roomy.change("StatefulSet", "db", template=database("x:1"))
    roomy.pass_s(60)
    assert status(roomy)["currentRevision"] == before
    assert sorted(one["revision"] for one in roomy.all("ControllerRevision")) == [2, 3]


def test_a_partition_keeps_the_lower_numbers(roomy: ControllerWorld) -> None:
    partition = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    stateful(roomy, 4, updateStrategy=partition)
    roomy.pass_s(20)
    roomy.change("StatefulSet", "db", template=database("x:2"))
    roomy.pass_s(60)
    assert images(roomy) == "1122"
    assert status(roomy)["updatedReplicas"] == status(roomy)["currentReplicas"] == 2
    roomy.delete("Pod", "db-0")
    roomy.pass_s(30)
    assert images(roomy) == "1122"  # it came back as it was


def test_on_delete_waits_for_people(roomy: ControllerWorld) -> None:
    stateful(roomy, 2, updateStrategy={"type": "OnDelete"})
    roomy.pass_s(20)
    roomy.change("StatefulSet", "db", template=database("x:2"))
    roomy.pass_s(60)
    assert images(roomy) == "11"
    roomy.delete("Pod", "db-1")
    roomy.pass_s(30)
    assert images(roomy) == "12"


def test_a_pod_that_cannot_start_holds_up_the_update(roomy: ControllerWorld) -> None:
    stateful(roomy, 3)
    roomy.pass_s(20)
    roomy.change("StatefulSet", "db", template=database("x:2", cpu="90"))
    roomy.pass_s(60)
    assert running(roomy) == ["db-0", "db-1"]
    assert images(roomy) == "112"


def test_each_pod_has_its_claim_and_finds_its_volume_again(roomy: ControllerWorld) -> None:
    stateful(roomy, 3, volumeClaimTemplates=[CLAIM])
    roomy.pass_s(20)
    assert running(roomy) == ["db-0", "db-1", "db-2"]
    claims = {claim["metadata"]["name"]: claim for claim in roomy.all("PersistentVolumeClaim")}
    assert sorted(claims) == ["data-db-0", "data-db-1", "data-db-2"]
    assert {claim["status"]["phase"] for claim in claims.values()} == {"Bound"}
    assert {claim["spec"]["storageClassName"] for claim in claims.values()} == {"gp3"}
    zone = roomy.the("Pod", "db-0")["spec"]["nodeName"]
    roomy.change("Node", zone, unschedulable=True)
    roomy.delete("Pod", "db-0")
    roomy.pass_s(30)
    assert not roomy.the("Pod", "db-0")["spec"].get("nodeName")  # its volume is not where there is room
    roomy.change("Node", zone, unschedulable=False)
    roomy.pass_s(30)
    assert roomy.the("Pod", "db-0")["spec"]["nodeName"] == zone
    roomy.change("StatefulSet", "db", replicas=0)
    roomy.pass_s(60)
    assert not names(roomy)
    assert len(roomy.all("PersistentVolumeClaim")) == 3  # they outlive their pods


@pytest.mark.parametrize(
    ("policy", "scaled", "deleted"),
    [
        ({"whenScaled": "Delete"}, 1, 1),
        ({"whenDeleted": "Delete"}, 3, 0),
        ({"whenScaled": "Delete", "whenDeleted": "Delete"}, 1, 0),
    ],
)
def test_claims_go_where_the_policy_says_so(
    roomy: ControllerWorld, policy: dict[str, str], scaled: int, deleted: int
) -> None:
    stateful(roomy, 3, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=policy)
    roomy.pass_s(20)
    roomy.change("StatefulSet", "db", replicas=1)
    roomy.pass_s(60)
    assert len(roomy.all("PersistentVolumeClaim")) == len(roomy.all("PersistentVolume")) == scaled
    roomy.delete("StatefulSet", "db")
    roomy.pass_s(60)
    assert len(roomy.all("PersistentVolumeClaim")) == len(roomy.all("PersistentVolume")) == deleted


def test_a_pod_that_ended_is_made_anew(roomy: ControllerWorld) -> None:
    stateful(roomy, 2)
    roomy.pass_s(20)
    pod = roomy.the("Pod", "db-0")
    failed = {**pod, "status": {**pod["status"], "phase": "Failed"}}
    roomy.store.update(roomy.store.resource("Pod"), failed, namespace="default", subresource="status")
    roomy.pass_s(30)
    assert running(roomy) == ["db-0", "db-1"]
    assert roomy.the("Pod", "db-0")["metadata"]["uid"] != pod["metadata"]["uid"]


def test_a_stateful_set_at_rest_is_not_written_to(roomy: ControllerWorld) -> None:
    stateful(roomy, 2, minReadySeconds=30, volumeClaimTemplates=[CLAIM])
    roomy.pass_s(120)
    kinds = ("StatefulSet", "ControllerRevision", "PersistentVolumeClaim", "PersistentVolume")
    before = [roomy.all(kind) for kind in kinds]
    assert status(roomy)["availableReplicas"] == 2
    roomy.pass_s(3000)
    assert [roomy.all(kind) for kind in kinds] == before


def test_pods_that_are_refused_are_told(world: ControllerWorld) -> None:
    template = database()
    template["spec"]["priorityClassName"] = "urgent"
    stateful(world, 1, template=template)
    world.pass_s(5)
    told = [event for event in world.all("Event") if event["reason"] == "FailedCreate"]
    assert told
    assert told[0]["message"].startswith("create Pod db-0 in StatefulSet db failed error: ")
    world.create("PriorityClass", {"metadata": {"name": "urgent"}, "value": 7})
    world.pass_s(60)
    assert names(world) == ["db-0"]
