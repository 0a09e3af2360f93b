"""What ResourceQuotas count, what they refuse and in which words, and when room comes back."""

from typing import Any

import pytest

from providers.sim.store import StoreForbidden, StoreInvalid
from tests.providers.sim.controllers.world import ControllerWorld, Obj, pod_template

GPU = "requests.nvidia.com/gpu"


@pytest.fixture
def cluster(world: ControllerWorld) -> ControllerWorld:
    world.ready_node("n", cpu="20", pods="40")
    return world


def quota(cluster: ControllerWorld, hard: dict[str, str], **spec: Any) -> None:
    cluster.create("ResourceQuota", {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}})
    cluster.pass_s(1)


def status(cluster: ControllerWorld) -> Obj:
    found: Obj = cluster.the("ResourceQuota", "q")["status"]
    return found


def pod(cluster: ControllerWorld, name: str, requests: dict[str, str] | None = None, **spec: Any) -> Obj:
    resources = {"requests": requests or {}, "limits": {k: v for k, v in (requests or {}).items() if "/" in k}}
    container = {"name": "c", "image": "i", "resources": resources}
    return cluster.create("Pod", {"metadata": {"name": name}, "spec": {"containers": [container], **spec}})


@pytest.mark.parametrize(
    ("hard", "first", "second", "words"),
    [
        (
            {"requests.cpu": "3"},
            {"cpu": "2"},
            {"cpu": "1500m"},
            "exceeded quota: q, requested: requests.cpu=1500m, used: requests.cpu=2, limited: requests.cpu=3",
        ),
        (
            {"cpu": "3", "requests.memory": "2Gi"},
            {"cpu": "2", "memory": "1Gi"},
            {"cpu": "2", "memory": "2Gi"},
            (
                "exceeded quota: q, requested: cpu=2,requests.memory=2Gi, used: cpu=2,requests.memory=1Gi, "
                "limited: cpu=3,requests.memory=2Gi"
            ),
        ),
        (
            {GPU: "8"},
            {"nvidia.com/gpu": "8"},
            {"nvidia.com/gpu": "1"},
            f"exceeded quota: q, requested: {GPU}=1, used: {GPU}=8, limited: {GPU}=8",
        ),
        ({"pods": "1"}, {}, {}, "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"),
        (
            {"requests.cpu": "3", "requests.memory": "1Gi"},
            {"cpu": "1", "memory": "1"},
            {"cpu": "1"},
            "failed quota: q: must specify requests.memory for: c",
        ),
        ({GPU: "8"}, {}, {"cpu": "1"}, ""),
        ({GPU: "1"}, {"nvidia.com/gpu": "1"}, {"cpu": "100"}, ""),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}, ""),
        ({"requests.ephemeral-storage": "1Gi"}, {"ephemeral-storage": "1Gi"}, {}, ""),
    ],
)
def test_a_pod_is_taken_or_refused(
    cluster: ControllerWorld, hard: dict[str, str], first: dict[str, str], second: dict[str, str], words: str
) -> None:
    quota(cluster, hard)
    pod(cluster, "a", first)
    if not words:
        pod(cluster, "b", second)
        return
    with pytest.raises(StoreForbidden) as refused:
        pod(cluster, "b", second)
    assert refused.value.message == f'pods "b" is forbidden: {words}'


def test_two_pods_at_once_do_not_pass_beside_each_other(cluster: ControllerWorld) -> None:
    """The API server counts at once: no controller has to look in between."""
    quota(cluster, {"requests.cpu": "2"})
    pod(cluster, "a", {"cpu": "1"})
    pod(cluster, "b", {"cpu": "1"})
    with pytest.raises(StoreForbidden):
        pod(cluster, "c", {"cpu": "1"})
    assert status(cluster) == {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "2"}}


def test_a_dry_run_counts_nothing_and_is_refused_alike(cluster: ControllerWorld) -> None:
    quota(cluster, {"pods": "1"})
    pods, made = cluster.store.resource("Pod"), {"metadata": {"name": "x"}, "spec": pod_template()["spec"]}
    cluster.store.create(pods, made, namespace="default", dry_run=True)
    assert status(cluster)["used"] == {"pods": "0"}
    pod(cluster, "a")
    with pytest.raises(StoreForbidden):
        cluster.store.create(pods, made, namespace="default", dry_run=True)


@pytest.mark.parametrize("end", ["it ends", "it is deleted", "its node is lost while it is being deleted"])
def test_room_comes_back(cluster: ControllerWorld, end: str) -> None:
    quota(cluster, {"requests.cpu": "1"})
    pod(cluster, "a", {"cpu": "1"}, restartPolicy="Never", terminationGracePeriodSeconds=30)
    cluster.pass_s(5)
    if end == "it ends":
        held = cluster.the("Pod", "a")
        ended = {**held, "status": {**held["status"], "phase": "Succeeded"}}
        cluster.store.update(cluster.store.resource("Pod"), ended, subresource="status")
    elif end == "it is deleted":
        cluster.delete("Pod", "a", grace_period_s=0)
    else:
        cluster.sim.health.stop_heartbeats("n")
        cluster.delete("Pod", "a")
        cluster.pass_s(31)
        assert status(cluster)["used"] == {"requests.cpu": "1"}, "a grace period longer than it should have taken"
        cluster.pass_s(31)
        assert cluster.get("Pod", "a") is not None
    cluster.pass_s(1)
    assert status(cluster)["used"] == {"requests.cpu": "0"}
    pod(cluster, "b", {"cpu": "1"})


def test_a_changed_bound_comes_into_force(cluster: ControllerWorld) -> None:
    quota(cluster, {"pods": "1"})
    pod(cluster, "a")
    cluster.change("ResourceQuota", "q", hard={"pods": "2"})
    cluster.pass_s(1)
    pod(cluster, "b")
    cluster.change("ResourceQuota", "q", hard={"pods": "1"})
    cluster.pass_s(1)
    assert status(cluster) == {"hard": {"pods": "1"}, "used": {"pods": "2"}}, "what is there stays"
    cluster.delete("ResourceQuota", "q")
    pod(cluster, "c")


def test_a_quota_nobody_has_counted_yet_bounds_nothing(cluster: ControllerWorld) -> None:
    cluster.create("ResourceQuota", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}})
    pod(cluster, "a")


SCOPES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "no amounts": ({"scopes": ["BestEffort"]}, {}, True),
    "some amounts": ({"scopes": ["BestEffort"]}, {"requests": {"cpu": "1"}}, False),
    "not best effort": ({"scopes": ["NotBestEffort"]}, {"requests": {"cpu": "1"}}, True),
    "no deadline": ({"scopes": ["Terminating"]}, {}, False),
    "a deadline": ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 60}, True),
    "all of them": ({"scopes": ["Terminating", "BestEffort"]}, {"requests": {"cpu": "1"}}, False),
    "its class": ({"scopeSelector": [("In", ["urgent"])]}, {"priorityClassName": "urgent"}, True),
    "another class": ({"scopeSelector": [("In", ["other"])]}, {"priorityClassName": "urgent"}, False),
    "any class": ({"scopeSelector": [("Exists", [])]}, {"priorityClassName": "urgent"}, True),
    "no class": ({"scopeSelector": [("DoesNotExist", [])]}, {}, True),
    "none of these classes": ({"scopeSelector": [("NotIn", ["urgent"])]}, {}, True),
}


@pytest.mark.parametrize("name", SCOPES)
def test_scopes_tell_whose_pods_count(cluster: ControllerWorld, name: str) -> None:
    spec, of_pod, refused = SCOPES[name]
    cluster.create("PriorityClass", {"metadata": {"name": "urgent"}, "value": 9})
    if "scopeSelector" in spec:
        terms = [{"scopeName": "PriorityClass", "operator": it, "values": of} for it, of in spec["scopeSelector"]]
        spec = {"scopeSelector": {"matchExpressions": terms}}
    quota(cluster, {"pods": "0"}, **spec)
    if not refused:
        pod(cluster, "a", **of_pod)
        assert status(cluster)["used"] == {"pods": "0"}
        return
    with pytest.raises(StoreForbidden, match="exceeded quota: q, requested: pods=1, used: pods=0"):
        pod(cluster, "a", **of_pod)


def test_scopes_stay_as_they_are(cluster: ControllerWorld) -> None:
    quota(cluster, {"pods": "0"}, scopes=["BestEffort"])
    with pytest.raises(StoreInvalid, match="field is immutable"):
        cluster.change("ResourceQuota", "q", scopes=["NotBestEffort"])


def test_limits_are_bounded(cluster: ControllerWorld) -> None:
    quota(cluster, {"limits.cpu": "3"})
    container = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}
    cluster.create("Pod", {"metadata": {"name": "a"}, "spec": {"containers": [container]}})
    assert status(cluster)["used"] == {"limits.cpu": "2"}
    with pytest.raises(StoreForbidden, match=r"exceeded quota: q, requested: limits.cpu=2, used: limits.cpu=2"):
        cluster.create("Pod", {"metadata": {"name": "b"}, "spec": {"containers": [container]}})
    with pytest.raises(StoreForbidden, match=r"must specify limits.cpu for: c"):
        pod(cluster, "c", {"cpu": "1"})


@pytest.mark.parametrize(
    ("hard", "words"), [({"cpuu": "1"}, "standard resource for quota"), ({"pods": "-1"}, "greater than or equal to 0")]
)
def test_what_is_no_quota(cluster: ControllerWorld, hard: dict[str, str], words: str) -> None:
    with pytest.raises(StoreInvalid, match=words):
        quota(cluster, hard)


def test_a_job_starts_as_many_pods_as_there_is_room_for_and_goes_on(cluster: ControllerWorld) -> None:
    quota(cluster, {"requests.cpu": "2"})
    cluster.job("j", parallelism=3, completions=3, template=pod_template(notes={"run-seconds": "600"}))
    cluster.pass_s(10)
    assert cluster.phases("j") == ["Running", "Running"]
    assert cluster.the("Job", "j")["status"]["active"] == 2
    said, *_ = [it for it in cluster.all("Event") if it["reason"] == "FailedCreate"]
    assert "exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=2" in said["message"]
    cluster.change("ResourceQuota", "q", hard={"requests.cpu": "3"})
    cluster.pass_s(120)
    assert len(cluster.phases("j")) == 3
