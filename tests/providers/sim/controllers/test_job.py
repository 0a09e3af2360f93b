from itertools import pairwise

import pytest

from providers.sim.controllers.jobpolicy import format_indexes, indexes
from providers.sim.controllers.objects import condition_of, instant, is_active
from tests.providers.sim.controllers.world import ControllerWorld, pod_template

INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.fixture
def cluster(world: ControllerWorld) -> ControllerWorld:
    world.ready_node("n1", cpu="8", pods="20")
    return world


def numbers(world: ControllerWorld, name: str, *wanted: str) -> tuple[int, ...]:
    """Counters of a job; the API leaves out most that are zero."""
    return tuple(world.the("Job", name)["status"].get(counter, 0) for counter in wanted)


def run_for(seconds: int, **notes: str) -> dict:
    return pod_template(notes={"run-seconds": str(seconds), **notes})


@pytest.mark.parametrize(
    ("spec", "peak", "succeeded"),
    [
        ({"completions": 1}, 1, 1),
        ({"completions": 3}, 1, 3),
        ({"completions": 3, "parallelism": 3}, 3, 3),
        ({"completions": 5, "parallelism": 2}, 2, 5),
        ({"completions": 2, "parallelism": 6}, 2, 2),
        ({"completions": 3, "parallelism": 2, "completionMode": "Indexed"}, 2, 3),
        ({"parallelism": 3}, 3, 3),  # a work queue: no new pods after the first success
        ({"completions": 0, "parallelism": 2}, 0, 0),
    ],
)
def test_runs_to_completion(cluster: ControllerWorld, spec: dict, peak: int, succeeded: int) -> None:
    cluster.job("j", template=run_for(10), **spec)
    seen = 0
    for _ in range(80):
        cluster.pass_s(1)
        cluster.check_invariants()
        seen = max(seen, sum(map(is_active, cluster.pods_of("j"))))
    status = cluster.the("Job", "j")["status"]
    assert seen == peak
    assert numbers(cluster, "j", "succeeded", "active", "ready", "terminating", "failed") == (succeeded, 0, 0, 0, 0)
    assert cluster.condition("Job", "j", "SuccessCriteriaMet") == ("True", "CompletionsReached")
    assert cluster.condition("Job", "j", "Complete") == ("True", "CompletionsReached")
    assert instant(status["completionTime"]) >= instant(status["startTime"])
    assert all(not pod["metadata"].get("finalizers") for pod in cluster.pods_of("j"))


def test_a_work_queue_starts_nothing_after_its_first_success(cluster: ControllerWorld) -> None:
    template = pod_template(cpu="4", notes={"run-seconds": "10"})  # two fit, the third waits
    cluster.job("j", parallelism=3, template=template)
    cluster.pass_s(60)
    assert cluster.phases("j") == ["Succeeded"] * 3
    assert cluster.condition("Job", "j", "Complete") == ("True", "CompletionsReached")


def test_indexed_pods_say_who_they_are(cluster: ControllerWorld) -> None:
    cluster.job("train", completions=3, parallelism=3, completionMode="Indexed")
    cluster.pass_s(3)
    pods = sorted(cluster.pods_of("train"), key=lambda pod: pod["metadata"]["name"])
    uid = cluster.the("Job", "train")["metadata"]["uid"]
    for index, pod in enumerate(pods):
        meta = pod["metadata"]
        assert meta["name"].startswith(f"train-{index}-")
        assert meta["labels"][INDEX] == meta["annotations"][INDEX] == str(index)
        assert meta["labels"]["batch.kubernetes.io/job-name"] == meta["labels"]["job-name"] == "train"
        assert meta["labels"]["batch.kubernetes.io/controller-uid"] == uid
        assert meta["ownerReferences"][0]["uid"] == uid
        assert meta["ownerReferences"][0]["controller"]
        assert "batch.kubernetes.io/job-tracking" in meta["finalizers"]
        assert pod["spec"]["hostname"] == f"train-{index}"
        (variable,) = [e for e in pod["spec"]["containers"][0]["env"] if e["name"] == "JOB_COMPLETION_INDEX"]
        assert variable["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{INDEX}']"
    assert cluster.the("Job", "train")["status"]["ready"] == 3


def test_a_failed_index_is_tried_again_after_the_backoff(cluster: ControllerWorld) -> None:
    cluster.job("j", completions=2, parallelism=2, completionMode="Indexed", template=pod_template())
    cluster.pass_s(3)
    victim = cluster.pods_of("j")[1]
    cluster.delete("Pod", victim["metadata"]["name"])
    cluster.pass_s(5)
    assert cluster.phases("j") == ["Failed", "Running"]
    assert numbers(cluster, "j", "active", "ready", "failed") == (2, 2, 0)  # not told while the sibling is ready
    cluster.pass_s(10)
    assert numbers(cluster, "j", "active", "ready", "failed") == (2, 2, 1)
    assert [p["metadata"]["annotations"][INDEX] for p in cluster.pods_of("j")] == ["0", "1"]


@pytest.mark.parametrize(
    ("spec", "notes", "reason", "failed"),
    [
        ({"backoffLimit": 0}, {"run-seconds": "5", "fail": "true"}, "BackoffLimitExceeded", 1),
        ({"backoffLimit": 2}, {"run-seconds": "5", "exit-code": "3"}, "BackoffLimitExceeded", 3),
        ({"activeDeadlineSeconds": 20}, {}, "DeadlineExceeded", 1),  # what still ran counts as failed
    ],
)
def test_fails(cluster: ControllerWorld, spec: dict, notes: dict, reason: str, failed: int) -> None:
    cluster.job("j", completions=1, template=pod_template(notes=notes), **spec)
    cluster.pass_s(200)
    assert cluster.condition("Job", "j", "FailureTarget") == ("True", reason)
    assert cluster.condition("Job", "j", "Failed") == ("True", reason)
    assert numbers(cluster, "j", "failed") == (failed,)
    assert not any(map(is_active, cluster.pods_of("j")))


def test_new_pods_wait_ever_longer_after_failures(cluster: ControllerWorld) -> None:
    cluster.job("j", completions=1, backoffLimit=3, template=run_for(0, fail="true"))
    cluster.pass_s(200)
    births = sorted(instant(pod["metadata"]["creationTimestamp"]) for pod in cluster.pods_of("j"))
    assert [round(b - a) for a, b in pairwise(births)] == [
        11,
        21,
        41,
    ]  # a second to start, then 10, 20, 40


def test_a_success_ends_the_backoff(cluster: ControllerWorld) -> None:
    cluster.job("j", completions=8, parallelism=1, backoffLimit=20, template=run_for(5))
    births = []
    for _ in range(4):  # two good runs between any two bad ones
        cluster.pass_s(8)
        victim = next(pod for pod in cluster.pods_of("j") if is_active(pod))
        cluster.delete("Pod", victim["metadata"]["name"], grace_period_s=0)
        cluster.pass_s(9)
        assert not any(map(is_active, cluster.pods_of("j")))
        cluster.pass_s(2)
        births.append(sum(map(is_active, cluster.pods_of("j"))))
    assert births == [1, 1, 1, 1]  # ten seconds each time, never twenty


def test_a_failed_job_is_not_failed_before_its_pods_are_gone(cluster: ControllerWorld) -> None:
    template = pod_template(notes={"stop-seconds": "15"})
    cluster.job("j", completions=2, parallelism=2, activeDeadlineSeconds=10, template=template)
    cluster.pass_s(20)
    assert cluster.condition("Job", "j", "FailureTarget") == ("True", "DeadlineExceeded")
    assert cluster.condition("Job", "j", "Failed") is None
    assert cluster.the("Job", "j")["status"]["terminating"] == 2
    cluster.pass_s(10)
    assert cluster.condition("Job", "j", "Failed") == ("True", "DeadlineExceeded")


def test_restarts_in_place_count_against_the_limit(cluster: ControllerWorld) -> None:
    template = pod_template(notes={"run-seconds": "5", "fail": "true"}, restartPolicy="OnFailure")
    cluster.job("j", completions=1, backoffLimit=2, template=template)
    cluster.pass_s(300)
    assert cluster.condition("Job", "j", "Failed") == ("True", "BackoffLimitExceeded")


def test_failed_only_waits_until_the_pod_is_gone(cluster: ControllerWorld) -> None:
    template = pod_template(notes={"stop-seconds": "20"})
    cluster.job("j", completions=1, podReplacementPolicy="Failed", template=template)
    cluster.pass_s(3)
    cluster.delete("Pod", cluster.pods_of("j")[0]["metadata"]["name"])
    cluster.pass_s(15)
    assert numbers(cluster, "j", "active", "terminating", "failed") == (0, 1, 0)
    cluster.pass_s(20)
    assert numbers(cluster, "j", "active", "terminating", "failed") == (1, 0, 1)


class TestSuspension:
    def test_a_suspended_job_has_no_pods(self, cluster: ControllerWorld) -> None:
        cluster.job("j", completions=2, parallelism=2, suspend=True)
        cluster.pass_s(5)
        assert cluster.pods_of("j") == []
        assert cluster.condition("Job", "j", "Suspended") == ("True", "JobSuspended")
        assert "startTime" not in cluster.the("Job", "j")["status"]

    def test_suspending_stops_pods_gracefully_and_counts_nothing(self, cluster: ControllerWorld) -> None:
        template = pod_template(notes={"stop-seconds": "7"})
        cluster.job("j", completions=2, parallelism=2, template=template)
        cluster.pass_s(5)
        cluster.change("Job", "j", suspend=True)
        cluster.pass_s(5)
        status = cluster.the("Job", "j")["status"]
        assert numbers(cluster, "j", "active", "terminating") == (0, 2)
        assert "startTime" not in status
        assert all("deletionTimestamp" in pod["metadata"] for pod in cluster.pods_of("j"))
        cluster.pass_s(5)
        assert cluster.pods_of("j") == []
        assert numbers(cluster, "j", "terminating", "failed") == (0, 0)

    def test_resuming_starts_again_with_what_was_changed_meanwhile(self, cluster: ControllerWorld) -> None:
        cluster.ready_node("n2", labels={"pool": "gold"})
        cluster.job("j", completions=2, parallelism=2)
        cluster.pass_s(5)
        first = cluster.the("Job", "j")["status"]["startTime"]
        cluster.change("Job", "j", suspend=True)
        cluster.pass_s(5)
        template = cluster.the("Job", "j")["spec"]["template"]
        pinned = {**template, "spec": {**template["spec"], "nodeSelector": {"pool": "gold"}}}
        cluster.change("Job", "j", suspend=False, template=pinned)
        cluster.pass_s(5)
        assert {pod["spec"]["nodeName"] for pod in cluster.pods_of("j")} == {"n2"}
        assert cluster.condition("Job", "j", "Suspended") == ("False", "JobResumed")
        assert instant(cluster.the("Job", "j")["status"]["startTime"]) > instant(first)

    def test_the_deadline_does_not_run_while_suspended(self, cluster: ControllerWorld) -> None:
        cluster.job("j", completions=1, suspend=True, activeDeadlineSeconds=10)
        cluster.pass_s(100)
        cluster.change("Job", "j", suspend=False)
        cluster.pass_s(5)
        assert condition_of(cluster.the("Job", "j"), "Failed") is None
        cluster.pass_s(30)
        assert cluster.condition("Job", "j", "Failed") == ("True", "DeadlineExceeded")

    def test_finished_indexes_are_kept_over_a_suspension(self, cluster: ControllerWorld) -> None:
        cluster.job("j", completions=4, parallelism=2, completionMode="Indexed", template=run_for(10))
        cluster.pass_s(15)
        cluster.change("Job", "j", suspend=True)
        cluster.pass_s(15)
        assert cluster.the("Job", "j")["status"]["completedIndexes"] == "0,1"
        cluster.change("Job", "j", suspend=False)
        cluster.pass_s(40)
        assert cluster.the("Job", "j")["status"]["completedIndexes"] == "0-3"
        assert cluster.condition("Job", "j", "Complete") == ("True", "CompletionsReached")


def test_lower_parallelism_takes_the_least_advanced_pods(cluster: ControllerWorld) -> None:
    cluster.job("j", completions=12, parallelism=9)  # 8 CPUs: one pod stays unscheduled
    cluster.pass_s(5)
    assert cluster.the("Job", "j")["status"]["active"] == 9
    cluster.change("Job", "j", parallelism=8)
    cluster.pass_s(5)
    assert cluster.phases("j") == ["Running"] * 8


def test_a_finished_job_expires(cluster: ControllerWorld) -> None:
    cluster.job("j", completions=1, template=run_for(5), ttlSecondsAfterFinished=30)
    cluster.pass_s(25)
    assert cluster.get("Job", "j") is not None
    cluster.pass_s(30)
    assert cluster.get("Job", "j") is None
    assert cluster.all("Pod") == []


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_deleting_a_job_takes_its_pods(cluster: ControllerWorld, propagation: str) -> None:
    cluster.job("j", completions=3, parallelism=3)
    cluster.pass_s(5)
    cluster.delete("Job", "j", propagation=propagation)
    assert (cluster.get("Job", "j") is None) == (propagation == "Background")
    cluster.pass_s(5)
    assert cluster.get("Job", "j") is None
    assert cluster.all("Pod") == []


def test_a_job_managed_by_another_controller_is_left_alone(cluster: ControllerWorld) -> None:
    cluster.job("j", completions=1, managedBy="example.com/other")
    cluster.pass_s(5)
    assert cluster.all("Pod") == []


def test_every_pod_is_counted_once_however_it_goes(cluster: ControllerWorld) -> None:
    cluster.job("j", completions=6, parallelism=3, backoffLimit=100, template=run_for(20))
    for _ in range(4):
        cluster.pass_s(12)
        for pod in cluster.pods_of("j")[:1]:
            cluster.delete("Pod", pod["metadata"]["name"], grace_period_s=0)
    cluster.pass_s(3000)
    status = cluster.the("Job", "j")["status"]
    assert status["succeeded"] == 6
    assert cluster.condition("Job", "j", "Complete") == ("True", "CompletionsReached")


@pytest.mark.parametrize(
    ("found", "text"),
    [((), ""), ((0,), "0"), ((0, 1), "0,1"), ((0, 1, 2), "0-2"), ((0, 2, 3, 4, 7, 8), "0,2-4,7,8")],
)
def test_indexes_as_text(found: tuple[int, ...], text: str) -> None:
    assert format_indexes(found) == text
    assert indexes(text) == set(found)
    assert indexes(text, 3) == {index for index in found if index < 3}
