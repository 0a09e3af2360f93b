# ruff: noqa: E501 - a row of a table is a line
"""The pod: defaults, gates, what may change, binding."""

from typing import Any

import pytest

from providers.sim.store import PatchType, Store, StoreConflict, StoreForbidden, StoreInvalid

Obj = dict[str, Any]
GATES = [{"name": "muster.dev/placed"}, {"name": "other.test/gate"}]


def node_affinity(*expressions: Obj) -> Obj:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


A = {"key": "a", "operator": "Exists"}
B = {"key": "b", "operator": "Exists"}


def test_defaults(store: Store, pod: Any) -> None:
    made = store.create(store.resource("pods"), {**pod(), "status": {"phase": "Running"}})
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    spec = made["spec"]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"], spec["priority"]) == ("Always", 30, 0)
    assert [t["key"] for t in spec["tolerations"]] == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


@pytest.mark.parametrize(
    ("resources", "qos"),
    [
        ({}, "BestEffort"),
        ({"limits": {"nvidia.com/gpu": "8"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
    ],
)
def test_quality_of_service_and_requests_from_limits(store: Store, pod: Any, resources: Obj, qos: str) -> None:
    body = pod()
    body["spec"]["containers"][0]["resources"] = resources
    made = store.create(store.resource("pods"), body)
    assert made["status"]["qosClass"] == qos
    held = made["spec"]["containers"][0]["resources"]
    assert set(held.get("requests", {})) >= set(resources.get("limits", {}))


def test_priority_comes_from_the_class(store: Store, pod: Any) -> None:
    pods = store.resource("pods")
    store.create(store.resource("pc"), {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})
    made = store.create(pods, pod(priorityClassName="high"))["spec"]
    assert (made["priority"], made["preemptionPolicy"]) == (1000, "Never")
    assert store.create(pods, pod("q", priorityClassName="system-node-critical"))["spec"]["priority"] == 2_000_001_000
    with pytest.raises(StoreForbidden, match="no PriorityClass"):
        store.create(pods, pod("r", priorityClassName="missing"))


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": []},
        {"containers": [{"image": "x"}]},
        {"containers": [{"name": "a"}]},
        {"containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]},
        {"schedulingGates": GATES, "nodeName": "n"},
        {"schedulingGates": [GATES[0], GATES[0]]},
    ],
)
def test_creation_is_refused(store: Store, pod: Any, spec: Obj) -> None:
    with pytest.raises(StoreInvalid):
        store.create(store.resource("pods"), pod(**spec))


# name -> (spec at creation, merge patch of the spec, words of the refusal or None)
CHANGES: dict[str, tuple[Obj, Obj, str | None]] = {
    "image": ({}, {"containers": [{"name": "c", "image": "new"}]}, None),
    "command": ({}, {"containers": [{"name": "c", "image": "x", "command": ["y"]}]}, "may not change fields"),
    "node name": ({}, {"nodeName": "n"}, "may not change fields"),
    "another container": ({}, {"containers": [{"name": "c", "image": "x"}, {"name": "d", "image": "x"}]}, "may not add or remove containers"),
    "node selector": ({}, {"nodeSelector": {"a": "b"}}, "may not change fields"),
    "deadline": ({}, {"activeDeadlineSeconds": 5}, None),
    "a gate goes": ({"schedulingGates": GATES}, {"schedulingGates": GATES[:1]}, None),
    "all gates go": ({"schedulingGates": GATES}, {"schedulingGates": None}, None),
    "a gate comes": ({}, {"schedulingGates": GATES}, "only deletion is allowed"),
    "another gate comes": ({"schedulingGates": GATES[:1]}, {"schedulingGates": GATES}, "only deletion is allowed"),
    "gated: selector added": ({"schedulingGates": GATES}, {"nodeSelector": {"a": "b"}}, None),
    "gated: selector added as the gate goes": ({"schedulingGates": GATES}, {"nodeSelector": {"a": "b"}, "schedulingGates": None}, None),
    "gated: selector changed": ({"schedulingGates": GATES, "nodeSelector": {"a": "b"}}, {"nodeSelector": {"a": "c"}}, "only additions"),
    "gated: selector removed": ({"schedulingGates": GATES, "nodeSelector": {"a": "b"}}, {"nodeSelector": None}, "only additions"),
    "gated: affinity set": ({"schedulingGates": GATES}, {"affinity": node_affinity(A)}, None),
    "gated: affinity narrowed": ({"schedulingGates": GATES, "affinity": node_affinity(A)}, {"affinity": node_affinity(A, B)}, None),
    "gated: affinity changed": ({"schedulingGates": GATES, "affinity": node_affinity(A)}, {"affinity": node_affinity(B)}, "only additions"),
    "gated: affinity dropped": ({"schedulingGates": GATES, "affinity": node_affinity(A)}, {"affinity": None}, "no additions/deletions"),
    "gated: restart policy": ({"schedulingGates": GATES}, {"restartPolicy": "Never"}, "may not change fields"),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES)
def test_changes(store: Store, pod: Any, case: str) -> None:
    spec, patch, refusal = CHANGES[case]
    pods = store.resource("pods")
    before = store.create(pods, pod(**spec))
    # a merge patch replaces the container, so the defaults have to come along
    if patch.get("containers"):
        held = before["spec"]["containers"][0]
        patch = {**patch, "containers": [{**held, **c} if c["name"] == "c" else c for c in patch["containers"]]}
    if refusal is None:
        store.patch(pods, "p", {"spec": patch}, PatchType.MERGE, namespace="default")
    else:
        with pytest.raises(StoreInvalid, match=refusal):
            store.patch(pods, "p", {"spec": patch}, PatchType.MERGE, namespace="default")
        assert store.get(pods, "p", "default") is before


def test_tolerations_may_only_be_added(store: Store, pod: Any) -> None:
    pods = store.resource("pods")
    held = store.create(pods, pod())["spec"]["tolerations"]
    more = {"spec": {"tolerations": [*held, {"key": "k", "operator": "Exists"}]}}
    store.patch(pods, "p", more, PatchType.MERGE, namespace="default")
    with pytest.raises(StoreInvalid, match="existing toleration"):
        store.patch(pods, "p", {"spec": {"tolerations": held[:1]}}, PatchType.MERGE, namespace="default")


def test_a_gated_pod_says_so_until_it_is_released(store: Store, pod: Any) -> None:
    pods = store.resource("pods")
    made = store.create(pods, pod(schedulingGates=GATES))
    assert made["status"]["conditions"][0]["reason"] == "SchedulingGated"
    with pytest.raises(StoreConflict, match="schedulingGates"):
        store.bind("p", "default", "n1")
    after = store.patch(pods, "p", {"spec": {"schedulingGates": None}}, PatchType.MERGE, namespace="default")
    assert after["status"]["conditions"][0]["reason"] == "SchedulingGated"  # until the scheduler has seen it
    store.bind("p", "default", "n1")


def test_binding_happens_once(store: Store, pod: Any) -> None:
    pods = store.resource("pods")
    store.create(pods, pod())
    store.bind("p", "default", "n1")
    held = store.get(pods, "p", "default")
    assert held["spec"]["nodeName"] == "n1"
    assert [(c["type"], c["status"]) for c in held["status"]["conditions"]] == [("PodScheduled", "True")]
    with pytest.raises(StoreConflict, match="already assigned"):
        store.bind("p", "default", "n2")
    store.delete(pods, "p", namespace="default")
    with pytest.raises(StoreConflict, match="being deleted"):
        store.bind("p", "default", "n1")
    assert store.list(pods, field_selector="spec.nodeName=n1")[0] is store.get(pods, "p", "default")


def test_ephemeral_containers_go_through_their_own_door(store: Store, pod: Any) -> None:
    pods = store.resource("pods")
    store.create(pods, pod())
    patch = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "x"}], "nodeName": "sneaky"}}
    after = store.patch(pods, "p", patch, PatchType.STRATEGIC, namespace="default", subresource="ephemeralcontainers")
    assert after["spec"]["ephemeralContainers"] == [{"name": "debug", "image": "x"}]
    assert "nodeName" not in after["spec"]
