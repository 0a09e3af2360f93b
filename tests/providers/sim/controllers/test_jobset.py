import pytest

from providers.sim.controllers.objects import condition_of
from tests.providers.sim.controllers.world import ControllerWorld, Obj, pod_template

PREFIX = "jobset.sigs.k8s.io/"


@pytest.fixture
def cluster(world: ControllerWorld) -> ControllerWorld:
    world.ready_node("n1", cpu="16", pods="50")
    return world


def entry(name: str, replicas: int = 1, *, pods: int = 1, template: Obj | None = None, **job: object) -> Obj:
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, **job, "template": template or pod_template()}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def jobset(cluster: ControllerWorld, *entries: Obj, **spec: object) -> None:
    cluster.create("JobSet", {"metadata": {"name": "js"}, "spec": {"replicatedJobs": list(entries), **spec}})


def jobs(cluster: ControllerWorld) -> list[str]:
    return [job["metadata"]["name"] for job in cluster.all("Job")]


def counts(cluster: ControllerWorld, name: str) -> Obj:
    rows = cluster.the("JobSet", "js")["status"]["replicatedJobsStatus"]
    return next({k: v for k, v in row.items() if k != "name" and v} for row in rows if row["name"] == name)


def test_children_carry_names_labels_and_owner(cluster: ControllerWorld) -> None:
    jobset(cluster, entry("leader"), entry("worker", 2, pods=2))
    cluster.pass_s(5)
    assert jobs(cluster) == ["js-leader-0", "js-worker-0", "js-worker-1"]
    child = cluster.the("Job", "js-worker-1")
    expected = {
        "jobset-name": "js",
        "replicatedjob-name": "worker",
        "replicatedjob-replicas": "2",
        "job-index": "1",
        "job-global-index": "2",
        "global-replicas": "3",
        "restart-attempt": "0",
    }
    pod = next(p for p in cluster.pods_of("js-worker-1"))
    for holder in (child["metadata"], pod["metadata"]):
        for key, value in expected.items():
            assert holder["labels"][PREFIX + key] == holder["annotations"][PREFIX + key] == value
    assert child["metadata"]["ownerReferences"][0]["kind"] == "JobSet"
    assert pod["spec"]["subdomain"] == "js"
    assert counts(cluster, "worker") == {"ready": 2, "active": 2}


def test_suspended_children_exist_without_pods(cluster: ControllerWorld) -> None:
    jobset(cluster, entry("w", 2), suspend=True)
    cluster.pass_s(5)
    assert [cluster.the("Job", name)["spec"]["suspend"] for name in jobs(cluster)] == [True, True]
    assert cluster.all("Pod") == []
    assert cluster.condition("JobSet", "js", "Suspended") == ("True", "SuspendedJobs")
    assert counts(cluster, "w") == {"suspended": 2}


def test_resume_carries_template_changes(cluster: ControllerWorld) -> None:
    cluster.ready_node("gold", labels={"pool": "gold"})
    jobset(cluster, entry("w", 2), suspend=True)
    cluster.pass_s(5)
    (held,) = cluster.the("JobSet", "js")["spec"]["replicatedJobs"]
    template = held["template"]["spec"]["template"]
    changed = {
        "metadata": {**template["metadata"], "annotations": {**template["metadata"]["annotations"], "plan": "7"}},
        "spec": {**template["spec"], "nodeSelector": {"pool": "gold"}, "tolerations": [{"operator": "Exists"}]},
    }
    pinned = {**held, "template": {**held["template"], "spec": {**held["template"]["spec"], "template": changed}}}
    cluster.change("JobSet", "js", replicatedJobs=[pinned], suspend=False)
    cluster.pass_s(5)
    assert {(p["spec"]["nodeName"], p["metadata"]["annotations"]["plan"]) for p in cluster.all("Pod")} == {
        ("gold", "7")
    }
    assert cluster.condition("JobSet", "js", "Suspended") == ("False", "ResumeJobs")


def test_suspend_stops_everything_and_resume_starts_it_again(cluster: ControllerWorld) -> None:
    jobset(cluster, entry("w", 2, pods=2))
    cluster.pass_s(5)
    for _ in range(3):
        cluster.change("JobSet", "js", suspend=True)
        cluster.pass_s(5)
        assert cluster.all("Pod") == []
        assert counts(cluster, "w") == {"suspended": 2}
        cluster.change("JobSet", "js", suspend=False)
        cluster.pass_s(5)
        assert counts(cluster, "w") == {"ready": 2, "active": 2}
    assert cluster.the("JobSet", "js")["status"]["restarts"] == 0


def test_a_quick_resume_does_not_wait_for_the_suspension_to_settle(cluster: ControllerWorld) -> None:
    jobset(cluster, entry("w"))
    cluster.pass_s(5)
    cluster.change("JobSet", "js", suspend=True)
    cluster.settle()
    cluster.change("JobSet", "js", suspend=False)
    cluster.pass_s(5)
    assert counts(cluster, "w") == {"ready": 1, "active": 1}


SHORT, LONG, BAD = ({"run-seconds": "5"}, {"run-seconds": "500"}, {"run-seconds": "5", "fail": "true"})


@pytest.mark.parametrize(
    ("policy", "notes", "outcome"),
    [
        ({}, (SHORT, SHORT), "Completed"),
        ({}, (SHORT, LONG), None),
        ({"operator": "Any"}, (SHORT, LONG), "Completed"),
        ({"operator": "All", "targetReplicatedJobs": ["a"]}, (SHORT, LONG), "Completed"),
        ({"operator": "All", "targetReplicatedJobs": ["b"]}, (SHORT, LONG), None),
        ({"operator": "Any", "targetReplicatedJobs": ["b"]}, (SHORT, LONG), None),
    ],
)
def test_success_policy(cluster: ControllerWorld, policy: Obj, notes: tuple[Obj, Obj], outcome: str | None) -> None:
    a, b = (entry(name, template=pod_template(notes=n)) for name, n in zip("ab", notes, strict=True))
    jobset(cluster, a, b, **({"successPolicy": {"operator": "All", **policy}} if policy else {}))
    cluster.pass_s(60)
    assert cluster.the("JobSet", "js")["status"].get("terminalState") == outcome
    running = [pod for pod in cluster.all("Pod") if pod["status"]["phase"] == "Running"]
    assert bool(running) == (outcome is None)  # what still ran is taken away with its job


@pytest.mark.parametrize(
    ("policy", "outcome", "reason", "restarts"),
    [
        (None, "Failed", "FailedJobs", 0),
        ({"maxRestarts": 0}, "Failed", "ReachedMaxRestarts", 0),
        ({"maxRestarts": 2}, "Failed", "ReachedMaxRestarts", 2),
        (
            {"maxRestarts": 3, "rules": [{"name": "r", "action": "FailJobSet"}]},
            "Failed",
            "FailJobSetFailurePolicyAction",
            0,
        ),
        (
            {"maxRestarts": 1, "rules": [{"name": "r", "action": "FailJobSet", "targetReplicatedJobs": ["a"]}]},
            "Failed",
            "ReachedMaxRestarts",
            1,
        ),
        (
            {
                "maxRestarts": 1,
                "rules": [{"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}],
            },
            "Failed",
            "ReachedMaxRestarts",
            1,
        ),
    ],
)
def test_failure_policy(cluster: ControllerWorld, policy: Obj | None, outcome: str, reason: str, restarts: int) -> None:
    spec = {} if policy is None else {"failurePolicy": policy}
    jobset(cluster, entry("a"), entry("b", template=pod_template(notes=BAD)), **spec)
    cluster.pass_s(200)
    assert cluster.condition("JobSet", "js", outcome) == ("True", reason)
    assert cluster.the("JobSet", "js")["status"]["restarts"] == restarts
    assert all(pod["status"]["phase"] != "Running" for pod in cluster.all("Pod"))


def test_restarts_that_do_not_count_go_on(cluster: ControllerWorld) -> None:
    rules = [{"name": "r", "action": "RestartJobSetAndIgnoreMaxRestarts"}]
    jobset(cluster, entry("b", template=pod_template(notes=BAD)), failurePolicy={"maxRestarts": 1, "rules": rules})
    cluster.pass_s(100)
    status = cluster.the("JobSet", "js")["status"]
    assert status["restarts"] > 5
    assert status.get("restartsCountTowardsMax", 0) == 0


def test_a_restart_renews_every_job(cluster: ControllerWorld) -> None:
    jobset(cluster, entry("a"), entry("b"), failurePolicy={"maxRestarts": 5})
    cluster.pass_s(5)
    before = {job["metadata"]["name"]: job["metadata"]["uid"] for job in cluster.all("Job")}
    cluster.delete("Pod", cluster.pods_of("js-b-0")[0]["metadata"]["name"])  # backoffLimit 0: the job fails
    cluster.pass_s(20)
    after = {job["metadata"]["name"]: job["metadata"]["uid"] for job in cluster.all("Job")}
    assert before.keys() == after.keys()
    assert all(before[name] != after[name] for name in before)
    assert {job["metadata"]["labels"][PREFIX + "restart-attempt"] for job in cluster.all("Job")} == {"1"}
    assert counts(cluster, "a") == counts(cluster, "b") == {"ready": 1, "active": 1}


def test_a_restart_waits_until_the_old_pods_are_gone(cluster: ControllerWorld) -> None:
    slow = pod_template(notes={"stop-seconds": "20"})
    jobset(cluster, entry("a", template=slow), entry("b", template=slow), failurePolicy={"maxRestarts": 5})
    cluster.pass_s(5)
    cluster.delete("Pod", cluster.pods_of("js-b-0")[0]["metadata"]["name"], grace_period_s=0)
    cluster.pass_s(10)
    (old,) = cluster.pods_of("js-a-0")
    assert "deletionTimestamp" in old["metadata"]
    cluster.pass_s(20)
    (new,) = cluster.pods_of("js-a-0")
    assert new["metadata"]["labels"][PREFIX + "restart-attempt"] == "1"


def test_in_order_startup(cluster: ControllerWorld) -> None:
    blocked = entry("a", template=pod_template(nodeSelector={"pool": "late"}))
    jobset(cluster, blocked, entry("b"), startupPolicy={"startupPolicyOrder": "InOrder"})
    cluster.pass_s(10)
    assert jobs(cluster) == ["js-a-0"]
    assert cluster.condition("JobSet", "js", "StartupPolicyInProgress") == ("True", "InOrderStartupPolicyInProgress")
    cluster.ready_node("late", labels={"pool": "late"})
    cluster.pass_s(5)
    assert jobs(cluster) == ["js-a-0", "js-b-0"]
    assert cluster.condition("JobSet", "js", "StartupPolicyCompleted") == ("True", "InOrderStartupPolicyCompleted")


def test_expiry_and_deletion_leave_nothing(cluster: ControllerWorld) -> None:
    jobset(cluster, entry("a", template=pod_template(notes=SHORT)), ttlSecondsAfterFinished=10)
    cluster.pass_s(60)
    assert cluster.get("JobSet", "js") is None
    assert jobs(cluster) == cluster.all("Pod") == []
    jobset(cluster, entry("a", 2))
    cluster.pass_s(5)
    cluster.delete("JobSet", "js")
    cluster.pass_s(5)
    assert jobs(cluster) == cluster.all("Pod") == []


def test_a_child_deleted_by_hand_is_made_again(cluster: ControllerWorld) -> None:
    jobset(cluster, entry("a"))
    cluster.pass_s(5)
    cluster.delete("Job", "js-a-0", propagation="Background")
    cluster.pass_s(5)
    assert counts(cluster, "a") == {"ready": 1, "active": 1}
    assert condition_of(cluster.the("JobSet", "js"), "Failed") is None
