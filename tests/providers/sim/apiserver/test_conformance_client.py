"""The Kubernetes client for Python against the embedded server, and against a real one where it is installed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes.client
import kubernetes.config
import kubernetes.dynamic
import kubernetes.watch
import pytest
from kubernetes.client.exceptions import ApiException

Obj = dict[str, Any]
LABELS = {"app": "x"}


@pytest.fixture
def api(kubeconfig: Path) -> Iterator[Any]:
    with kubernetes.config.new_client_from_config(str(kubeconfig)) as client:
        yield client


def pod(name: str = "p", **spec: Any) -> Obj:
    body = {"containers": [{"name": "c", "image": "registry.test/c:1"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": LABELS}, "spec": body}


def code(error: pytest.ExceptionInfo[ApiException]) -> int:
    return int(error.value.status)


def test_typed_objects_round_trip(api: Any, namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(api)
    made = core.create_namespaced_pod(namespace, pod())
    assert (made.metadata.name, made.status.phase) == ("p", "Pending")
    assert core.read_namespaced_pod("p", namespace).metadata.uid == made.metadata.uid
    listed = core.list_namespaced_pod(namespace, label_selector="app=x", field_selector="status.phase=Pending")
    assert [item.metadata.name for item in listed.items] == ["p"]
    with pytest.raises(ApiException) as again:
        core.create_namespaced_pod(namespace, pod())
    assert code(again) == 409


def test_patches_by_content_type(api: Any, namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(api)
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "c"}, "data": {"a": "1"}})
    merged = core.patch_namespaced_config_map("c", namespace, {"data": {"b": "2"}})
    assert merged.data == {"a": "1", "b": "2"}
    jsonp = core.patch_namespaced_config_map("c", namespace, [{"op": "remove", "path": "/data/a"}])
    assert jsonp.data == {"b": "2"}


def test_pages_cover_everything_once(api: Any, namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(api)
    for i in range(7):
        core.create_namespaced_config_map(namespace, {"metadata": {"name": f"c{i}", "labels": LABELS}})
    names: list[str] = []
    token = None
    while True:
        page = core.list_namespaced_config_map(namespace, limit=3, _continue=token, label_selector="app=x")
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"c{i}" for i in range(7)]


def test_watch_from_a_list(api: Any, namespace: str) -> None:
    core = kubernetes.client.CoreV1Api(api)
    version = core.list_namespaced_pod(namespace).metadata.resource_version
    core.create_namespaced_pod(namespace, pod())
    core.patch_namespaced_pod("p", namespace, {"metadata": {"labels": {"app": "y"}}})
    core.delete_namespaced_pod("p", namespace, grace_period_seconds=0)
    watch = kubernetes.watch.Watch()
    stream = watch.stream(core.list_namespaced_pod, namespace, resource_version=version, timeout_seconds=20)
    seen = []
    for event in stream:
        seen.append(event["type"])
        if event["type"] == "DELETED":
            watch.stop()
    assert seen[0] == "ADDED"
    assert seen[-1] == "DELETED"
    assert "MODIFIED" in seen


def test_a_lease_is_renewed_and_guarded(api: Any, namespace: str) -> None:
    leases = kubernetes.client.CoordinationV1Api(api)
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000001Z"}
    held = leases.create_namespaced_lease(namespace, {"metadata": {"name": "l"}, "spec": spec})
    stale = api.sanitize_for_serialization(held)
    renewed = {**stale, "spec": {**stale["spec"], "renewTime": "2026-01-02T03:04:06.000001Z"}}
    after = leases.replace_namespaced_lease("l", namespace, renewed)
    assert after.spec.renew_time.second == 6
    with pytest.raises(ApiException) as late:
        leases.replace_namespaced_lease("l", namespace, {**stale, "spec": {**spec, "holderIdentity": "two"}})
    assert code(late) == 409


def test_eviction_meets_the_budget(api: Any, namespace: str) -> None:
    core, policy = kubernetes.client.CoreV1Api(api), kubernetes.client.PolicyV1Api(api)
    core.create_namespaced_pod(namespace, pod())
    binding = {"metadata": {"name": "p"}, "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}
    core.create_namespaced_binding(namespace, binding, _preload_content=False)
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    core.patch_namespaced_pod_status("p", namespace, status)
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": LABELS}}}
    policy.create_namespaced_pod_disruption_budget(namespace, budget)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": namespace}}
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_pod_eviction("p", namespace, eviction)
    assert code(refused) == 429
    allowed = {
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": 1,
            "expectedPods": 2,
            "currentHealthy": 2,
            "desiredHealthy": 1,
        }
    }
    policy.patch_namespaced_pod_disruption_budget_status("b", namespace, allowed)
    core.create_namespaced_pod_eviction("p", namespace, eviction)
    assert core.read_namespaced_pod("p", namespace).metadata.deletion_timestamp is not None
    assert policy.read_namespaced_pod_disruption_budget("b", namespace).status.disruptions_allowed == 0
    core.delete_namespaced_pod("p", namespace, grace_period_seconds=0)


def test_server_side_apply_through_the_dynamic_client(api: Any, namespace: str) -> None:
    dynamic = kubernetes.dynamic.DynamicClient(api)
    maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    maps.server_side_apply(body, namespace=namespace, field_manager="one")
    with pytest.raises(ApiException) as refused:
        maps.server_side_apply({**body, "data": {"a": "2"}}, namespace=namespace, field_manager="two")
    assert code(refused) == 409
    taken = maps.server_side_apply(
        {**body, "data": {"a": "2"}}, namespace=namespace, field_manager="two", force_conflicts=True
    )
    assert taken.data.a == "2"


def test_gated_pods_and_suspended_jobs(api: Any, namespace: str) -> None:
    core, batch = kubernetes.client.CoreV1Api(api), kubernetes.client.BatchV1Api(api)
    core.create_namespaced_pod(namespace, pod(schedulingGates=[{"name": "x.test/gate"}]))
    with pytest.raises(ApiException) as refused:
        core.patch_namespaced_pod("p", namespace, {"spec": {"schedulingGates": [{"name": "x.test/more"}]}})
    assert code(refused) == 422
    release = [
        {"op": "add", "path": "/spec/nodeSelector", "value": {"a": "b"}},
        {"op": "remove", "path": "/spec/schedulingGates"},
    ]
    assert core.patch_namespaced_pod("p", namespace, release).spec.node_selector == {"a": "b"}
    template = {"spec": {"restartPolicy": "Never", "containers": pod()["spec"]["containers"]}}
    batch.create_namespaced_job(namespace, {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}})
    pin = {"spec": {"suspend": False, "template": {"spec": {"nodeSelector": {"a": "b"}}}}}
    batch.patch_namespaced_job("j", namespace, pin)
    with pytest.raises(ApiException) as late:
        batch.patch_namespaced_job("j", namespace, {"spec": {"template": {"spec": {"nodeSelector": {"c": "d"}}}}})
    assert code(late) == 422


@pytest.mark.parametrize("expected", [404])
def test_missing_things(api: Any, namespace: str, expected: int) -> None:
    core = kubernetes.client.CoreV1Api(api)
    with pytest.raises(ApiException) as missing:
        core.read_namespaced_pod("nobody", namespace)
    assert code(missing) == expected
    with pytest.raises(ApiException) as nowhere:
        core.create_namespaced_pod("no-such-namespace", pod())
    assert code(nowhere) == expected
