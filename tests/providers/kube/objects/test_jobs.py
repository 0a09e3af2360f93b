"""Jobs and JobSets as the API writes them -> what they ask for and how far they are."""

from typing import Any

import msgspec
import pytest

from fleet.snapshot import Job, JobRef, JobResult
from model.kinds import RequirementTerm, Toleration
from providers.kube.objects import DECODERS

decode_job, decode_jobset = DECODERS["batch", "Job"], DECODERS["jobset.x-k8s.io", "JobSet"]
CREATED = "2027-01-15T08:00:00Z"
CONTAINER = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 8}, "requests": {"cpu": "90"}}}


def template(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [CONTAINER], **spec}}


def job(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> Job:
    meta = {"name": "train", "namespace": "research", "uid": "u", "resourceVersion": "5", "creationTimestamp": CREATED}
    body = {
        "metadata": {**meta, "labels": {"muster.dev/queue": "q"}, **metadata},
        "spec": {"suspend": True, "template": template(), **(spec or {})},
        "status": status or {},
    }
    return decode_job(msgspec.json.encode(body))


def test_a_suspended_job() -> None:
    found = job({"parallelism": 4, "completions": 4})
    assert found.ref == JobRef("batch/v1", "Job", "research", "train", "u")
    assert (found.queue, found.suspended, found.resource_version) == ("q", True, "5")
    assert (found.created_at_s, found.result, found.ready_pods, found.active_pods) == (1_800_000_000.0, None, 0, 0)
    (pod_set,) = found.pod_sets
    assert (pod_set.name, pod_set.count) == ("main", 4)
    assert pod_set.requests == {"nvidia.com/gpu": 8, "cpu": 90_000}


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 4}, 4),
        ({"parallelism": 4, "completions": 2}, 2),
        ({"parallelism": 2, "completions": 8}, 2),
        ({"parallelism": 0, "completions": 8}, 0),
        ({"parallelism": None, "completions": None}, 1),
    ],
)
def test_pods_at_once(spec: dict[str, Any], count: int) -> None:
    assert job(spec).pod_sets[0].count == count


@pytest.mark.parametrize(
    ("labels", "queue", "priority"),
    [
        ({"muster.dev/queue": "a", "kueue.x-k8s.io/queue-name": "b"}, "a", ""),
        ({"kueue.x-k8s.io/queue-name": "b", "kueue.x-k8s.io/priority-class": "p"}, "b", "p"),
        ({"muster.dev/queue": "", "muster.dev/priority-class": "m", "kueue.x-k8s.io/priority-class": "p"}, "", "m"),
        (None, "", ""),
    ],
)
def test_queue_and_priority(labels: dict[str, str] | None, queue: str, priority: str) -> None:
    found = job(labels=labels)
    assert (found.queue, found.priority_class) == (queue, priority)


@pytest.mark.parametrize(
    ("owner", "queue"),
    [
        ({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "controller": True}, ""),
        ({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}, "q"),
        ({"apiVersion": "batch/v1", "kind": "CronJob", "controller": True}, "q"),
        ({"apiVersion": "example.com/v1", "kind": "JobSet", "controller": True}, "q"),
    ],
)
def test_a_job_of_a_jobset_is_not_managed_twice(owner: dict[str, Any], queue: str) -> None:
    assert job(ownerReferences=[{"name": "o", "uid": "x", **owner}]).queue == queue


@pytest.mark.parametrize(
    ("conditions", "result", "at_s"),
    [
        ([{"type": "Complete", "status": "True", "lastTransitionTime": CREATED}], JobResult.SUCCEEDED, 1_800_000_000.0),
        ([{"type": "Failed", "status": "True", "lastTransitionTime": CREATED}], JobResult.FAILED, 1_800_000_000.0),
        ([{"type": "Complete", "status": "False"}, {"type": "Suspended", "status": "True"}], None, 0.0),
        ([{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "FailureTarget", "status": "True"}], None, 0.0),
        (None, None, 0.0),
    ],
)
def test_how_it_ended(conditions: Any, result: JobResult | None, at_s: float) -> None:
    found = job(status={"conditions": conditions, "active": 2, "ready": 1})
    assert (found.result, found.finished_at_s, found.active_pods, found.ready_pods) == (result, at_s, 2, 1)


@pytest.mark.parametrize(
    ("annotations", "checkpoint_s", "interval_s"),
    [
        (
            {"muster.dev/last-checkpoint-time": CREATED, "muster.dev/checkpoint-interval": "30m"},
            1_800_000_000.0,
            1800.0,
        ),
        ({"volcano.sh/last-checkpoint-time": "2027-01-15T09:00:00+01:00"}, 1_800_000_000.0, None),
        ({"muster.dev/last-checkpoint-time": "yesterday", "muster.dev/checkpoint-interval": "often"}, None, None),
        ({"muster.dev/checkpoint-interval": "Never"}, None, None),
        ({"muster.dev/checkpoint-interval": "0s"}, None, None),
        (None, None, None),
    ],
)
def test_checkpoints(annotations: dict[str, str] | None, checkpoint_s: float | None, interval_s: float | None) -> None:
    found = job(annotations=annotations)
    assert (found.last_checkpoint_s, found.checkpoint_interval_s) == (checkpoint_s, interval_s)


OWN, KUEUE = "muster.dev/", "kueue.x-k8s.io/"
SAID = [
    ({}, {}, (None, None, None, 0)),
    ({f"{OWN}expected-run-time": "2h"}, {}, (7200.0, None, None, 0)),
    ({f"{OWN}max-run-time": "1h30m"}, {}, (None, 5400.0, None, 0)),
    ({}, {f"{KUEUE}max-exec-time-seconds": "90"}, (None, 90.0, None, 0)),
    ({f"{OWN}max-run-time": "1h"}, {f"{KUEUE}max-exec-time-seconds": "90"}, (None, 3600.0, None, 0)),
    ({f"{OWN}max-run-time": "long"}, {f"{KUEUE}max-exec-time-seconds": "90"}, (None, 90.0, None, 0)),
    ({f"{OWN}sla-waiting-time": "10m", "sla-waiting-time": "1h"}, {}, (None, None, 600.0, 0)),
    ({"sla-waiting-time": "1h2m3s"}, {}, (None, None, 3723.0, 0)),
    ({f"{OWN}priority-boost": "-5", f"{KUEUE}priority-boost": "7"}, {}, (None, None, None, -5)),
    ({f"{KUEUE}priority-boost": "+7"}, {}, (None, None, None, 7)),
    (
        {f"{OWN}expected-run-time": "soon", "sla-waiting-time": "Never", f"{OWN}priority-boost": "1.5"},
        {f"{KUEUE}max-exec-time-seconds": "-1"},
        (None, None, None, 0),
    ),
    ({f"{OWN}priority-boost": "12345678901"}, {f"{KUEUE}max-exec-time-seconds": "0"}, (None, None, None, 0)),
]


@pytest.mark.parametrize(("annotations", "labels", "expected"), SAID)
def test_what_a_job_says_of_its_run(
    annotations: dict[str, str], labels: dict[str, str], expected: tuple[float | None, float | None, float | None, int]
) -> None:
    found = job(annotations=annotations, labels=labels)
    assert (found.expected_run_s, found.max_run_s, found.sla_waiting_s, found.priority_boost) == expected


def test_labels_of_a_job_are_its_own() -> None:
    """Whose work it is may stand there alone (`fleet.cost.uses.user_of`)."""
    found = job(labels={"muster.dev/user": "ada", "a": "b"})
    assert found.labels == (("a", "b"), ("muster.dev/user", "ada"))
    assert not any(("muster.dev/user", "ada") in pods.labels for pods in found.pod_sets)


UNREAD = [
    (
        {f"{OWN}max-run-time": "2 hours"},
        {},
        ["metadata.annotations[muster.dev/max-run-time]: '2 hours' is not a duration"],
    ),
    ({f"{OWN}expected-run-time": "0s"}, {}, ["metadata.annotations[muster.dev/expected-run-time]: '0s'"]),
    ({"sla-waiting-time": "-1h"}, {}, ["metadata.annotations[sla-waiting-time]: '-1h'"]),
    (
        {f"{KUEUE}priority-boost": "1.5"},
        {},
        ["metadata.annotations[kueue.x-k8s.io/priority-boost]: '1.5' is not a whole"],
    ),
    (
        {f"{OWN}on-node-failure": "replace"},
        {},
        ["metadata.annotations[muster.dev/on-node-failure]: 'replace' is not Repl"],
    ),
    (
        {},
        {f"{KUEUE}max-exec-time-seconds": "1h"},
        ["metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: '1h' is not a"],
    ),
    ({f"{OWN}max-run-time": "Never", f"{OWN}priority-boost": "-3", f"{OWN}on-node-failure": "Evict"}, {}, []),
    ({f"{OWN}max-run-time": "", f"{OWN}last-checkpoint-time": "yesterday"}, {}, []),
]


@pytest.mark.parametrize(("annotations", "labels", "expected"), UNREAD)
def test_what_cannot_be_read_is_told(annotations: dict[str, str], labels: dict[str, str], expected: list[str]) -> None:
    told = job(annotations=annotations, labels=labels).unread
    assert [f"{it.path}: {it.words}"[: len(words)] for it, words in zip(told, expected, strict=True)] == expected


LOWERED = {"muster.dev/asked": '{"/spec/parallelism":8}'}
ELASTIC = {"muster.dev/asked": '{"/spec/completions":8,"/spec/parallelism":8}'}


@pytest.mark.parametrize(
    ("spec", "succeeded", "annotations", "expected"),
    [
        ({"parallelism": 4, "completions": 4}, 0, {}, None),
        ({"parallelism": 4, "completions": 4}, 1, {}, 3),
        ({"parallelism": 4, "completions": 4}, 4, {}, 0),
        ({"parallelism": 4, "completions": 10}, 6, {}, None),
        ({"parallelism": 4, "completions": 10}, 7, {}, 3),
        ({"parallelism": 4}, 1, {}, 3),
        ({"parallelism": 4}, 9, {}, 0),
        ({"parallelism": 8, "completions": 2}, 1, {}, 1),
        ({}, 1, {}, 0),
        ({"parallelism": 4, "completions": 8}, 2, LOWERED, 6),
        ({"parallelism": 4, "completions": 4}, 1, ELASTIC, 3),
    ],
)
def test_pods_it_still_needs(
    spec: dict[str, Any], succeeded: int, annotations: dict[str, str], expected: int | None
) -> None:
    found = job(spec, {"succeeded": succeeded}, annotations=annotations)
    assert found.remaining == ({} if expected is None else {"main": expected})


def test_a_pod_is_done_from_when_its_end_was_noted() -> None:
    noted = {"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["uid-1"]}}
    assert job({"parallelism": 4, "completions": 4}, noted).remaining == {"main": 2}


@pytest.mark.parametrize(("name", "expected"), [("training", "training"), (None, ""), ("", "")])
def test_the_priority_of_its_pods(name: str | None, expected: str) -> None:
    assert job({"template": template(priorityClassName=name)}).pod_priority_class == expected


@pytest.mark.parametrize(
    ("own", "of_template", "expected"),
    [
        ({}, {}, ""),
        ({"muster.dev/do-not-disrupt": "true"}, {}, "true"),
        ({"muster.dev/do-not-disrupt": "false"}, {}, ""),
        ({"karpenter.sh/do-not-disrupt": "true"}, {}, "true"),
        ({}, {"karpenter.sh/do-not-disrupt": "true"}, "true"),
        ({"muster.dev/do-not-disrupt": "90m"}, {"karpenter.sh/do-not-disrupt": "1h"}, "90m"),
        ({"muster.dev/do-not-disrupt": "90m"}, {"karpenter.sh/do-not-disrupt": "true"}, "true"),
    ],
)
def test_do_not_disrupt(own: dict[str, str], of_template: dict[str, str], expected: str) -> None:
    assert job({"template": template(of_template)}, annotations=own).do_not_disrupt == expected


def test_where_its_pods_may_run() -> None:
    terms = [
        {
            "matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["a", "b"]},
                {"key": "gpu", "operator": "Exists"},
            ]
        },
        {"matchExpressions": []},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
    ]
    tolerations = [
        {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"operator": "Exists"},
        {"key": "k", "value": "v", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "size", "operator": "Gt", "value": "5"},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    spec = template(
        {"kueue.x-k8s.io/podset-required-topology": "rack"},
        nodeSelector={"arch": "amd64"},
        affinity={"nodeAffinity": required, "podAffinity": {}},
        tolerations=tolerations,
    )
    (found,) = job({"template": spec}).pod_sets
    assert found.node_selector == {"arch": "amd64"}
    assert found.required_topology == "rack"
    assert found.required_affinity == (
        (RequirementTerm(key="zone", operator="In", values=("a", "b")), RequirementTerm(key="gpu", operator="Exists")),
        (RequirementTerm(key="metadata.name", operator="In", values=("n1",)),),
    )
    assert found.tolerations == (
        Toleration(key="gpu", operator="Exists", effect="NoSchedule"),
        Toleration(operator="Exists"),
        Toleration(key="k", value="v", effect="NoExecute", toleration_seconds=300),
    )


def test_an_affinity_that_allows_nothing_allows_nothing() -> None:
    required: dict[str, Any] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
    (found,) = job({"template": template(affinity={"nodeAffinity": required})}).pod_sets
    assert found.required_affinity == ((RequirementTerm(key="kubernetes.io/hostname", operator="DoesNotExist"),),)


def jobset(status: dict[str, Any] | None = None, **spec: Any) -> Job:
    replicated = [
        {"name": "driver", "template": {"spec": {"template": template()}}},
        {
            "name": "workers",
            "replicas": 3,
            "template": {"spec": {"parallelism": 4, "completions": 4, "template": template()}},
        },
    ]
    body = {
        "metadata": {"name": "llm", "namespace": "research", "uid": "u", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"suspend": False, "replicatedJobs": replicated, **spec},
        "status": status,
    }
    return decode_jobset(msgspec.json.encode({key: value for key, value in body.items() if value is not None}))


def test_a_jobset() -> None:
    found = jobset(
        {"replicatedJobsStatus": [{"name": "workers", "ready": 2, "active": 3}, {"name": "driver", "ready": 1}]}
    )
    assert found.ref == JobRef("jobset.x-k8s.io/v1alpha2", "JobSet", "research", "llm", "u")
    assert [(one.name, one.count) for one in found.pod_sets] == [("driver", 1), ("workers", 12)]
    assert (found.queue, found.suspended, found.ready_pods, found.active_pods) == ("q", False, 9, 12)


@pytest.mark.parametrize(
    ("kind", "result"), [("Completed", JobResult.SUCCEEDED), ("Failed", JobResult.FAILED), ("Suspended", None)]
)
def test_how_a_jobset_ended(kind: str, result: JobResult | None) -> None:
    assert jobset({"conditions": [{"type": kind, "status": "True", "lastTransitionTime": CREATED}]}).result is result


def test_a_jobset_without_jobs_or_status() -> None:
    found = jobset(replicatedJobs=None)
    assert (found.pod_sets, found.ready_pods) == ((), 0)


@pytest.mark.parametrize(
    ("annotations", "least"),
    [
        ({}, None),
        ({"kueue.x-k8s.io/job-min-parallelism": "2"}, 2),
        ({"muster.dev/job-min-parallelism": "3", "kueue.x-k8s.io/job-min-parallelism": "2"}, 3),
        ({"muster.dev/job-min-parallelism": "4"}, None),
        ({"muster.dev/job-min-parallelism": "0"}, None),
        ({"muster.dev/job-min-parallelism": "few"}, None),
    ],
)
def test_fewest_pods_of_a_job(annotations: dict[str, str], least: int | None) -> None:
    assert job({"parallelism": 4}, annotations=annotations).pod_sets[0].min_count == least
