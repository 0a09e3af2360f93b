"""The objects on a server that enforces schemas, ownership and preconditions: what is written is what is read back."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fleet.actions import PatchNode
from fleet.snapshot import Check, CheckState, Gang, GangState
from model.kinds import Taint
from providers.clock import VirtualClock
from providers.kube.objects import (
    checks_patch,
    claim_object,
    claim_status,
    deactivation_patch,
    decode_claim,
    decode_node,
    decode_pod,
    decode_standing,
    decode_sync,
    decode_workload,
    event_name,
    event_object,
    forget_patch,
    node_patch,
    node_pool_status,
    queue_status,
    release_patch,
    respecification_patch,
    sync_object,
    sync_status,
    workload_object,
    workload_status,
)
from providers.kube.objects.crds import definitions
from providers.sim.store import PatchType, Store, StoreConflict, StoreInvalid, StoreNotFound
from tests.providers.kube.objects import samples
from tests.providers.kube.objects.values import NOW_S

AS_OLD = workload_object(samples.PENDING)["spec"]["createdAt"]


@pytest.fixture
def store() -> Store:
    made = Store(VirtualClock(NOW_S))
    for definition in definitions():
        made.create(made.resource("CustomResourceDefinition"), definition)
    made.create(made.resource("Namespace"), {"metadata": {"name": "research"}})
    return made


def apply(store: Store, body: dict[str, Any], subresource: str = "") -> dict[str, Any]:
    group = body["apiVersion"].rpartition("/")[0]
    resource = store.resource(body["kind"], group)
    return store.patch(
        resource,
        body["metadata"]["name"],
        body,
        PatchType.APPLY,
        namespace=body["metadata"].get("namespace", ""),
        subresource=subresource,
        field_manager="muster",
        force=True,
    )


def test_a_gang_through_its_life(store: Store) -> None:
    """Owned by its job, without which the garbage collector takes it."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"metadata": {"name": "train"}, "spec": {"suspend": True, "template": template}}
    uid = store.create(store.resource("Job"), job, namespace="research")["metadata"]["uid"]
    evicting = samples.ADMITTED.moved(
        GangState.EVICTING, "Preempted", "For prod/serve", NOW_S, eviction=samples.BACKING_OFF.eviction
    )
    gangs = (samples.PENDING, samples.ADMITTED, evicting, samples.BACKING_OFF)
    states = [replace(gang, uid=uid, job=replace(gang.job, uid=uid)) for gang in gangs]
    apply(store, workload_object(states[0]))
    stored: dict[str, Any] = store.get(store.resource("Workload"), "job-train", "research")
    for gang in states:
        stored = apply(store, workload_status(gang, NOW_S, *decode_standing(msgspec.json.encode(stored))), "status")
        observed = {it["observedGeneration"] for it in stored["status"]["conditions"]}
        assert observed == {stored["metadata"]["generation"]}
        assert decode_workload(msgspec.json.encode(stored)) == replace(gang, workload_uid=stored["metadata"]["uid"])
    store.delete(store.resource("Job"), "train", namespace="research", propagation="Background")
    with pytest.raises(StoreNotFound):
        store.get(store.resource("Workload"), "job-train", "research")


def opened(store: Store, gang: Gang) -> dict[str, Any]:
    body = workload_object(gang)
    del body["metadata"]["ownerReferences"]
    return store.create(store.resource("Workload"), body, namespace="research")


def patched(
    store: Store, patch: list[dict[str, Any]], subresource: str = "", manager: str = "muster"
) -> dict[str, Any]:
    return store.patch(
        store.resource("Workload"),
        "job-train",
        patch,
        PatchType.JSON,
        namespace="research",
        subresource=subresource,
        field_manager=manager,
    )


def known(stored: dict[str, Any]) -> Gang:
    """The gang of a stored Workload, which is told apart by its uid only there."""
    found = decode_workload(msgspec.json.encode(stored))
    assert found.workload_uid == stored["metadata"]["uid"]
    return replace(found, workload_uid="")


def test_activity_is_shown_and_kept_apart_from_the_status(store: Store) -> None:
    assert opened(store, samples.PENDING)["spec"]["active"] is True
    stored = patched(store, deactivation_patch(store.get(store.resource("Workload"), "job-train", "research")))
    assert deactivation_patch(stored) == []
    assert decode_workload(msgspec.json.encode(stored)).active is False
    stored = apply(store, workload_status(samples.ADMITTED, NOW_S), "status")
    assert known(stored) == replace(samples.ADMITTED, active=False)
    stored = patched(store, [{"op": "replace", "path": "/spec/active", "value": True}], manager="kubectl")
    stored = apply(store, workload_status(samples.ADMITTED, NOW_S), "status")
    assert decode_workload(msgspec.json.encode(stored)).active


def test_what_a_changed_job_asks_is_written_over_what_it_asked_and_leaves_it_inactive(store: Store) -> None:
    opened(store, samples.PENDING)
    stored = patched(store, [{"op": "replace", "path": "/spec/active", "value": False}], manager="kubectl")
    assert respecification_patch(stored, samples.PENDING) == []
    more = tuple(replace(it, count=it.count + 1) for it in samples.PENDING.pod_sets)
    asked = replace(samples.PENDING, pod_sets=more, queue="other", priority_class="", priority=0)
    stored = patched(store, respecification_patch(stored, asked))
    assert respecification_patch(stored, asked) == []
    assert known(stored) == replace(asked, active=False, reason="Queued", since_s=known(stored).since_s, message="")
    assert stored["metadata"]["labels"]["muster.dev/queue"] == "other"
    assert "muster.dev/priority-class" not in stored["metadata"]["labels"]


@pytest.mark.parametrize("created_at", [None, AS_OLD.replace("Z", "+00:00")])
def test_what_a_changed_job_asks_leaves_alone_what_can_never_change(store: Store, created_at: str | None) -> None:
    """The server refuses another job or age for ever, also another text of the same instant."""
    body = workload_object(samples.PENDING)
    del body["metadata"]["ownerReferences"], body["spec"]["createdAt"]
    body["spec"] |= {"createdAt": created_at} if created_at else {}
    stored = store.create(store.resource("Workload"), body, namespace="research")
    asked = replace(samples.PENDING, queue="other", priority=0, preempts=False)
    changed = patched(store, respecification_patch(stored, asked))
    assert {key: it for key, it in changed["spec"].items() if it != stored["spec"].get(key)} == {
        "queue": "other", "priority": 0, "preempts": False,
    }  # fmt: skip
    assert "preempts" not in patched(store, respecification_patch(changed, samples.PENDING))["spec"]


def test_a_priority_alone_does_not_change(store: Store) -> None:
    stored = opened(store, samples.PENDING)
    assert respecification_patch(stored, replace(samples.PENDING, priority=7, preempts=False)) == []


def answered(store: Store, name: str, state: str, **more: Any) -> dict[str, Any]:
    """As the controller of a check does it."""
    body = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "job-train", "namespace": "research"},
        "status": {"admissionChecks": [{"name": name, "state": state, **more}]},
    }
    return store.patch(
        store.resource("Workload"),
        "job-train",
        body,
        PatchType.APPLY,
        namespace="research",
        subresource="status",
        field_manager=f"check-{name}",
        force=True,
    )


def test_answers_of_checks_are_their_writers_until_a_reservation_ends(store: Store) -> None:
    opened(store, samples.PENDING)
    apply(store, workload_status(samples.ADMITTED, NOW_S), "status")
    answered(store, "licence", "Ready")
    answered(store, "budget", "Retry", message="none left", requeueAfterSeconds=90)
    stored = apply(store, workload_status(samples.ADMITTED, NOW_S + 1), "status")
    answers = {"licence": Check(CheckState.READY), "budget": Check(CheckState.RETRY, "none left", 90.0)}
    assert known(stored) == replace(samples.ADMITTED, checks=answers)
    assert checks_patch(stored, samples.ADMITTED) == []
    stored = patched(store, checks_patch(stored, samples.BACKING_OFF), "status")
    asked = dict.fromkeys(answers, Check(CheckState.PENDING))
    assert checks_patch(stored, samples.BACKING_OFF) == []
    stored = apply(store, workload_status(samples.BACKING_OFF, NOW_S + 2), "status")
    assert known(stored) == replace(samples.BACKING_OFF, checks=asked)
    stored = answered(store, "licence", "Ready")
    assert checks_patch(stored, samples.PENDING) == [], "it holds nothing: early answers stay"
    stored = apply(store, workload_status(samples.ADMITTED, NOW_S + 3), "status")
    found = decode_workload(msgspec.json.encode(stored)).checks
    assert (found["licence"].state, found["budget"].state) == (CheckState.READY, CheckState.PENDING)


def test_an_answer_that_comes_while_it_is_asked_again_is_not_lost_unseen(store: Store) -> None:
    opened(store, samples.PENDING)
    apply(store, workload_status(samples.ADMITTED, NOW_S), "status")
    read = answered(store, "licence", "Ready")
    answered(store, "licence", "Rejected")
    with pytest.raises(StoreConflict):
        patched(store, checks_patch(read, samples.PENDING), "status")


def test_the_status_needs_its_workload(store: Store) -> None:
    with pytest.raises(StoreNotFound):
        apply(store, workload_status(samples.PENDING, NOW_S), "status")


def test_a_claim_from_intent_to_grave(store: Store) -> None:
    resource = store.resource("NodeClaim")
    uid = store.create(resource, claim_object(samples.BORN))["metadata"]["uid"]
    for claim in (samples.BORN, samples.LEAVING, replace(samples.BORN, resources={}, layout="half-1a2b")):
        stored = apply(store, claim_status(claim, NOW_S), "status")
        assert decode_claim(msgspec.json.encode(stored)) == replace(claim, uid=uid)
    store.delete(resource, "h100-full-7k2")
    marked = store.get(resource, "h100-full-7k2")
    assert decode_claim(msgspec.json.encode(marked)).deleting
    store.patch(resource, "h100-full-7k2", forget_patch(marked), PatchType.JSON)
    with pytest.raises(StoreNotFound):
        store.get(resource, "h100-full-7k2")
    assert forget_patch({"metadata": {"uid": uid}}) == []


def test_reports(store: Store) -> None:
    apply(store, sync_object("fleet", "https://git.example.com/fleet.git", "main", ""))
    stored = apply(store, sync_status(samples.SYNC, NOW_S), "status")
    assert decode_sync(msgspec.json.encode(stored)) == samples.SYNC
    recovered = replace(samples.SYNC, findings=samples.SYNC.findings[:1], problems=(), problem_count=0, plan=None)
    stored = apply(store, sync_status(recovered, NOW_S), "status")
    assert decode_sync(msgspec.json.encode(stored)) == recovered
    for kind, status in (
        ("Queue", queue_status(samples.QUEUE, NOW_S)),
        ("NodePool", node_pool_status(samples.POOL, NOW_S)),
    ):
        name = status["metadata"]["name"]
        store.create(store.resource(kind, "muster.dev"), {"metadata": {"name": name}, "spec": {"team": "research"}})
        assert apply(store, status, "status")["status"] == status["status"]


def test_equal_events_are_one_object(store: Store) -> None:
    apply(store, event_object(samples.ANNOUNCE, NOW_S))
    apply(store, event_object(samples.ANNOUNCE, NOW_S + 5))
    events = store.list(store.resource("Event", ""), "research")
    assert [event["metadata"]["name"] for event in events] == [event_name(samples.ANNOUNCE)]
    assert events[0]["lastTimestamp"] == "2027-01-15T08:00:05Z"


def node(store: Store, *taints: dict[str, str]) -> dict[str, Any]:
    body = {"metadata": {"name": "n"}, "spec": {"taints": list(taints)} if taints else {}}
    return store.create(store.resource("Node"), body)


FOREIGN = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
UNREGISTERED = {"key": "muster.dev/unregistered", "effect": "NoExecute"}
DISRUPTED = Taint(key="muster.dev/disrupted", effect="NoSchedule")


@pytest.mark.parametrize("taints", [(), (FOREIGN,), (FOREIGN, UNREGISTERED), (UNREGISTERED,)])
def test_taints_of_others_stay(store: Store, taints: tuple[dict[str, str], ...]) -> None:
    raw = node(store, *taints)
    action = PatchNode("n", {"a/b": "c"}, (DISRUPTED,), ("muster.dev/unregistered",))
    stored = store.patch(store.resource("Node"), "n", node_patch(action, raw), PatchType.JSON)
    found = decode_node(msgspec.json.encode(stored))
    assert set(found.taints) == {DISRUPTED} | ({Taint.model_validate(FOREIGN)} if FOREIGN in taints else set())
    assert found.labels["a/b"] == "c"
    assert node_patch(action, stored) == []


def test_the_last_taint_goes(store: Store) -> None:
    raw = node(store, UNREGISTERED)
    action = PatchNode("n", remove_taints=("muster.dev/unregistered",))
    stored = store.patch(store.resource("Node"), "n", node_patch(action, raw), PatchType.JSON)
    assert not stored["spec"].get("taints")


def test_labels_are_changed_and_taken_away_by_key(store: Store) -> None:
    raw = node(store)
    marks = PatchNode("n", {"a/b": "c", "d": "e"})
    stored = store.patch(store.resource("Node"), "n", node_patch(marks, raw), PatchType.JSON)
    action = PatchNode("n", {"d": "f"}, remove_labels=("a/b", "d", "missing"))
    stored = store.patch(store.resource("Node"), "n", node_patch(action, stored), PatchType.JSON)
    assert (stored["metadata"]["labels"].get("a/b"), stored["metadata"]["labels"]["d"]) == (None, "f")
    assert node_patch(action, stored) == []


@pytest.mark.parametrize("taints", [(), (FOREIGN,)])
def test_a_taint_added_in_between_is_not_wiped(store: Store, taints: tuple[dict[str, str], ...]) -> None:
    raw = node(store, *taints)
    late = {"key": "late", "effect": "NoSchedule"}
    store.update(store.resource("Node"), {**raw, "spec": {"taints": [*taints, late]}})
    with pytest.raises(Exception, match=r"testing value|modified|object has been"):
        store.patch(
            store.resource("Node"), "n", node_patch(PatchNode("n", add_taints=(DISRUPTED,)), raw), PatchType.JSON
        )
    assert late in store.get(store.resource("Node"), "n")["spec"]["taints"]


def test_a_node_gets_our_finalizer_beside_those_of_others_and_keeps_it_once(store: Store) -> None:
    raw = node(store)
    action = PatchNode("n", add_finalizer=True)
    assert not decode_node(msgspec.json.encode(raw)).has_finalizer
    stored = store.patch(store.resource("Node"), "n", node_patch(action, raw), PatchType.JSON)
    assert decode_node(msgspec.json.encode(stored)).has_finalizer
    assert node_patch(action, stored) == []
    others = store.update(store.resource("Node"), {**stored, "metadata": {**stored["metadata"], "finalizers": ["x/y"]}})
    stored = store.patch(store.resource("Node"), "n", node_patch(action, others), PatchType.JSON)
    assert stored["metadata"]["finalizers"] == ["x/y", "muster.dev/termination"]
    deleted = store.delete(store.resource("Node"), "n")
    assert deleted["metadata"]["deletionTimestamp"]
    stored = store.patch(store.resource("Node"), "n", forget_patch(deleted), PatchType.JSON)
    assert stored["metadata"]["finalizers"] == ["x/y"]


def test_a_node_that_is_being_deleted_gets_none_any_more(store: Store) -> None:
    raw = node(store)
    store.update(store.resource("Node"), {**raw, "metadata": {**raw["metadata"], "finalizers": ["x/y"]}})
    deleted = store.delete(store.resource("Node"), "n")
    assert node_patch(PatchNode("n", add_finalizer=True), deleted) == []


def test_a_changed_value_replaces_the_taint(store: Store) -> None:
    raw = node(store, {"key": "muster.dev/disrupted", "value": "old", "effect": "NoSchedule"})
    stored = store.patch(
        store.resource("Node"), "n", node_patch(PatchNode("n", add_taints=(DISRUPTED,)), raw), PatchType.JSON
    )
    assert decode_node(msgspec.json.encode(stored)).taints == (DISRUPTED,)


def gated_pod(store: Store, **spec: Any) -> dict[str, Any]:
    gates = [{"name": "muster.dev/placement"}, {"name": "example.com/other"}]
    body = {
        "metadata": {"name": samples.POD.name},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulingGates": gates, **spec},
    }
    return store.create(store.resource("Pod"), body, namespace="research")


@pytest.mark.parametrize("spec", [{}, {"nodeSelector": {"zone": "a"}}])
def test_release_pins_and_ungates_in_one_write(store: Store, spec: dict[str, Any]) -> None:
    uid = gated_pod(store, **spec)["metadata"]["uid"]
    patch = release_patch(replace(samples.RELEASE, pod=replace(samples.POD, uid=uid)))
    for _ in range(2):
        stored = store.patch(store.resource("Pod"), samples.POD.name, patch, PatchType.STRATEGIC, namespace="research")
        assert stored["spec"]["nodeSelector"] == {
            "kubernetes.io/hostname": "ip-10-0-0-1",
            **spec.get("nodeSelector", {}),
        }
        assert stored["spec"]["schedulingGates"] == [{"name": "example.com/other"}]
        assert not decode_pod(msgspec.json.encode(stored)).gated


def test_release_of_another_pod_of_the_name_is_refused(store: Store) -> None:
    gated_pod(store)
    with pytest.raises(Exception, match=r"uid|UID|Precondition") as refused:
        store.patch(
            store.resource("Pod"),
            samples.POD.name,
            release_patch(samples.RELEASE),
            PatchType.STRATEGIC,
            namespace="research",
        )
    assert not isinstance(refused.value, StoreNotFound)


def test_a_schema_refuses_what_the_agent_never_writes(store: Store) -> None:
    body = claim_object(samples.BORN)
    body["spec"]["capacityType"] = "free"
    with pytest.raises(StoreInvalid):
        store.create(store.resource("NodeClaim"), body)
