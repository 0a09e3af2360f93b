# ruff: noqa: E501 - a row of a table is a line
"""Job and JobSet: defaults and what may change when."""

from typing import Any

import pytest

from providers.sim.store import PatchType, Store, StoreInvalid

Obj = dict[str, Any]


def test_defaults(store: Store, job: Any) -> None:
    made = store.create(store.resource("jobs"), job())
    spec, uid = made["spec"], made["metadata"]["uid"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"], spec["suspend"]) == (1, 1, 6, False)
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = spec["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == "j"
    assert labels["batch.kubernetes.io/controller-uid"] == uid
    work_queue = store.create(store.resource("jobs"), job("q", parallelism=3))
    assert "completions" not in work_queue["spec"]


@pytest.mark.parametrize(
    ("template", "spec"),
    [
        ({"restartPolicy": "Always"}, {}),
        ({"containers": []}, {}),
        ({}, {"completionMode": "Indexed", "parallelism": 2}),
    ],
)
def test_creation_is_refused(store: Store, job: Any, template: Obj, spec: Obj) -> None:
    with pytest.raises(StoreInvalid):
        store.create(store.resource("jobs"), job(template=template, **spec))


TOLERATION = [{"key": "k", "operator": "Exists"}]
# name -> (spec at creation, started, patch of the spec, allowed)
CHANGES: dict[str, tuple[Obj, bool, Obj, bool]] = {
    "parallelism": ({}, True, {"parallelism": 4}, True),
    "suspend": ({}, True, {"suspend": True}, True),
    "completions": ({}, False, {"completions": 4}, False),
    "elastic index": ({"completionMode": "Indexed", "completions": 2, "parallelism": 2}, True, {"completions": 3, "parallelism": 3}, True),
    "completion mode": ({}, False, {"completionMode": "Indexed"}, False),
    "selector": ({}, False, {"selector": {"matchLabels": {"a": "b"}}}, False),
    "directives while running": ({}, True, {"template": {"spec": {"nodeSelector": {"a": "b"}}}}, False),
    "directives before it ever ran, not suspended": ({}, False, {"template": {"spec": {"nodeSelector": {"a": "b"}}}}, False),
    "directives while suspended": ({"suspend": True}, False, {"template": {"spec": {"nodeSelector": {"a": "b"}, "tolerations": TOLERATION}}}, True),
    "directives as it resumes": ({"suspend": True}, False, {"suspend": False, "template": {"spec": {"nodeSelector": {"a": "b"}}}}, True),
    "gates and labels while suspended": ({"suspend": True}, False, {"template": {"metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}}, "spec": {"schedulingGates": [{"name": "g"}]}}}, True),
    "affinity while suspended": ({"suspend": True}, False, {"template": {"spec": {"affinity": {"nodeAffinity": {}}}}}, True),
    "image while suspended": ({"suspend": True}, False, {"template": {"spec": {"containers": [{"name": "c", "image": "z"}]}}}, False),
    "directives of a suspended job that had started": ({"suspend": True}, True, {"template": {"spec": {"nodeSelector": {"a": "b"}}}}, False),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_changes(store: Store, job: Any, case: str) -> None:
    spec, started, patch, allowed = CHANGES[case]
    jobs = store.resource("jobs")
    store.create(jobs, job(**spec))
    if started:
        status = {"status": {"startTime": "2027-01-15T08:00:00Z"}}
        store.patch(jobs, "j", status, PatchType.MERGE, namespace="default", subresource="status")
    if allowed:
        after = store.patch(jobs, "j", {"spec": patch}, PatchType.STRATEGIC, namespace="default")
        assert after["metadata"]["generation"] == 2
    else:
        with pytest.raises(StoreInvalid, match="immutable"):
            store.patch(jobs, "j", {"spec": patch}, PatchType.STRATEGIC, namespace="default")


def jobset(**spec: Any) -> Obj:
    pod = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
    job = {"name": "workers", "template": {"spec": {"parallelism": 2, "template": pod}}}
    return {"metadata": {"name": "js", "namespace": "default"}, "spec": {"replicatedJobs": [job], **spec}}


def test_jobset_defaults(store: Store) -> None:
    spec = store.create(store.resource("jobsets"), jobset())["spec"]
    job = spec["replicatedJobs"][0]
    assert (spec["suspend"], spec["successPolicy"], job["replicas"]) == (False, {"operator": "All"}, 1)
    inner = job["template"]["spec"]
    assert (inner["completionMode"], inner["completions"]) == ("Indexed", 2)
    assert inner["template"]["spec"]["restartPolicy"] == "OnFailure"


@pytest.mark.parametrize(
    ("suspended", "change", "allowed"),
    [
        (True, {"nodeSelector": {"a": "b"}}, True),
        (True, {"tolerations": TOLERATION}, True),
        (True, {"schedulingGates": [{"name": "g"}]}, True),
        (True, {"affinity": {}}, False),
        (False, {"nodeSelector": {"a": "b"}}, False),
    ],
)
def test_jobset_changes(store: Store, suspended: bool, change: Obj, allowed: bool) -> None:
    resource = store.resource("jobsets")
    made = store.create(resource, jobset(suspend=suspended))
    job = made["spec"]["replicatedJobs"][0]
    pod = job["template"]["spec"]["template"]
    changed_pod = {"metadata": {"labels": {"x": "y"}}, "spec": {**pod["spec"], **change}}
    inner = {**job["template"]["spec"], "template": changed_pod}
    patch = {"spec": {"suspend": False, "replicatedJobs": [{**job, "template": {"spec": inner}}]}}
    if allowed:
        after = store.patch(resource, "js", patch, PatchType.MERGE, namespace="default")
        held = after["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        assert held["metadata"] == {"labels": {"x": "y"}}
    else:
        with pytest.raises(StoreInvalid, match="immutable"):
            store.patch(resource, "js", patch, PatchType.MERGE, namespace="default")


@pytest.mark.parametrize("jobs", [[{"template": {}}], [{"name": "a"}], [{"name": "a"}, {"name": "a"}]])
def test_jobset_creation_is_refused(store: Store, jobs: list[Obj]) -> None:
    with pytest.raises(StoreInvalid):
        store.create(store.resource("jobsets"), jobset(replicatedJobs=jobs))


def test_a_jobset_may_be_written_again_without_its_defaults(store: Store) -> None:
    resource = store.resource("jobsets")
    made = store.create(resource, jobset())
    after = store.patch(resource, "js", {"spec": jobset()["spec"]}, PatchType.MERGE, namespace="default")
    assert after["spec"] == made["spec"]
    assert after["metadata"]["generation"] == made["metadata"]["generation"]


@pytest.mark.parametrize(
    "jobs",
    [[{}], [{"name": "workers"}], [{"name": "workers", "template": {}}], [{"name": "w", "template": {"spec": {}}}], []],
)
def test_a_jobset_does_not_lose_its_jobs(store: Store, jobs: list[Obj]) -> None:
    resource = store.resource("jobsets")
    store.create(resource, jobset())
    with pytest.raises(StoreInvalid):
        store.patch(resource, "js", {"spec": {"replicatedJobs": jobs}}, PatchType.MERGE, namespace="default")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"suspend": "yes"}, "spec.suspend"),
        ({"successPolicy": {"operator": "Most"}}, "spec.successPolicy.operator"),
        ({"failurePolicy": {"rules": [{"name": "r"}]}}, "spec.failurePolicy.rules[0].action"),
        ({"startupPolicy": {}}, "spec.startupPolicy.startupPolicyOrder"),
        ({"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished"),
    ],
)
def test_the_schema_of_jobset(store: Store, spec: Obj, field: str) -> None:
    with pytest.raises(StoreInvalid) as refused:
        store.create(store.resource("jobsets"), jobset(**spec))
    assert [cause["field"] for cause in refused.value.details["causes"]] == [field]


def test_what_the_schema_of_jobset_does_not_know_is_dropped_outside_pod_templates(store: Store) -> None:
    given = jobset(invented=1)
    given["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["later"] = {"kept": True}
    spec = store.create(store.resource("jobsets"), given)["spec"]
    assert "invented" not in spec
    assert spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["later"] == {"kept": True}
