"""Create, read, replace, patch: what the server stamps, keeps and refuses."""

import threading
from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.sim.store import (
    PatchType,
    Store,
    StoreAlreadyExists,
    StoreBadRequest,
    StoreConflict,
    StoreEvent,
    StoreForbidden,
    StoreInvalid,
    StoreNotFound,
    StoreUnknownError,
    StoreUnsupportedMediaType,
)

Obj = dict[str, Any]


def test_a_new_object_is_stamped(store: Store, config: Any) -> None:
    obj = store.create(store.resource("cm"), config(a="1"))
    meta = obj["metadata"]
    assert obj["apiVersion"], obj["kind"] == ("v1", "ConfigMap")
    assert meta["creationTimestamp"] == "2027-01-15T08:00:00Z"
    assert len(meta["uid"]) == 36
    assert meta["resourceVersion"] == str(store.resource_version)
    assert "generation" not in meta
    assert store.get(store.resource("cm"), "cm", "default") is obj


def test_client_values_of_server_fields_are_dropped(store: Store, config: Any) -> None:
    obj = config()
    obj["metadata"] |= {
        "uid": "mine",
        "creationTimestamp": "1999-01-01T00:00:00Z",
        "generation": 7,
        "deletionTimestamp": "x",
    }
    meta = store.create(store.resource("cm"), obj)["metadata"]
    assert meta["uid"] != "mine"
    assert meta["creationTimestamp"].startswith("2027")
    assert not {"generation", "deletionTimestamp"} & meta.keys()


def test_the_same_run_gives_the_same_names_and_ids(config: Any) -> None:
    def run(seed: int) -> list[tuple[str, str]]:
        store = Store(VirtualClock(), seed=seed)
        obj = config()
        obj["metadata"] = {"generateName": "cm-", "namespace": "default"}
        made = [store.create(store.resource("cm"), obj)["metadata"] for _ in range(3)]
        return [(meta["name"], meta["uid"]) for meta in made]

    assert run(1) == run(1)
    assert run(1) != run(2)
    names = [name for name, _ in run(1)]
    assert len(set(names)) == 3
    assert all(len(name) == 8 and name.startswith("cm-") for name in names)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"name": ""}, StoreInvalid),
        ({"name": "Upper"}, StoreInvalid),
        ({"name": "-x"}, StoreInvalid),
        ({"name": "x" * 254}, StoreInvalid),
        ({"namespace": "missing"}, StoreNotFound),
        ({"namespace": ""}, StoreBadRequest),
        ({"resourceVersion": "1"}, StoreUnknownError),
        ({"labels": {"a": "not valid!"}}, StoreInvalid),
        ({"labels": {"/": "x"}}, StoreInvalid),
        ({"labels": {"a": 1}}, StoreInvalid),
        ({"annotations": {"a": 1}}, StoreInvalid),
        ({"ownerReferences": [{"name": "x"}]}, StoreInvalid),
    ],
)
def test_creation_is_refused(store: Store, config: Any, change: Obj, error: type[Exception]) -> None:
    obj = config()
    obj["metadata"] |= change
    version = store.resource_version
    with pytest.raises(error):
        store.create(store.resource("cm"), obj)
    assert store.resource_version == version


def test_kind_version_and_scope_must_fit(store: Store, config: Any) -> None:
    with pytest.raises(StoreBadRequest, match="does not match"):
        store.create(store.resource("secrets"), config())
    with pytest.raises(StoreBadRequest, match="namespace"):
        store.create(store.resource("cm"), config(namespace="default"), namespace="kube-system")
    with pytest.raises(StoreBadRequest, match="not namespaced"):
        store.create(store.resource("nodes"), {"metadata": {"name": "n"}}, namespace="default")
    with pytest.raises(StoreBadRequest, match="not JSON"):
        store.create(store.resource("cm"), {"metadata": {"name": "x"}, "data": object()}, namespace="default")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("cm", []),
        ("cm", {"metadata": []}),
        ("cm", {"metadata": {"name": 5}}),
        ("cm", {"metadata": {"name": "x", "labels": "no"}}),
        ("cm", {"metadata": {"name": "x", "finalizers": {}}}),
        ("cm", {"metadata": {"name": "x"}, "data": []}),
        ("pods", {"metadata": {"name": "x"}, "spec": []}),
        ("nodes", {"metadata": {"name": "x"}, "status": "fine"}),
    ],
)
def test_bodies_of_the_wrong_form_are_bad_requests(store: Store, kind: str, body: Any) -> None:
    resource = store.resource(kind)
    with pytest.raises(StoreBadRequest):
        store.create(resource, body, namespace="default" if resource.namespaced else "")


def test_a_name_is_taken_once(store: Store, config: Any) -> None:
    store.create(store.resource("cm"), config())
    with pytest.raises(StoreAlreadyExists) as refused:
        store.create(store.resource("cm"), config())
    status = refused.value.status()
    assert (status["code"], status["reason"], status["details"]["kind"]) == (409, "AlreadyExists", "configmaps")


def test_not_found_says_what(store: Store) -> None:
    with pytest.raises(StoreNotFound) as refused:
        store.get(store.resource("jobs"), "x", "default")
    assert str(refused.value) == 'jobs.batch "x" not found'
    assert refused.value.status()["details"] == {"name": "x", "group": "batch", "kind": "jobs"}


def test_callers_share_no_structure_with_the_store(store: Store, config: Any) -> None:
    given = config(a="1")
    held = store.create(store.resource("cm"), given)
    given["data"]["a"] = "changed"
    assert held["data"] == {"a": "1"}
    patch = {"data": {"b": {"c": 1}}}
    after = store.patch(store.resource("cm"), "cm", patch, PatchType.MERGE, namespace="default")
    patch["data"]["b"]["c"] = 2
    assert after["data"]["b"] == {"c": 1}
    assert held["data"] == {"a": "1"}


def test_replace_needs_the_current_version(store: Store, config: Any) -> None:
    resource = store.resource("cm")
    first = store.create(resource, config(a="1"))
    second = store.update(resource, {**first, "data": {"a": "2"}})
    with pytest.raises(StoreConflict) as refused:
        store.update(resource, {**first, "data": {"a": "3"}})
    assert "the object has been modified" in str(refused.value)
    assert store.get(resource, "cm", "default") is second
    unconditional = {**first, "metadata": {"name": "cm", "namespace": "default"}, "data": {"a": "4"}}
    assert store.update(resource, unconditional)["data"] == {"a": "4"}
    with pytest.raises(StoreConflict, match="UID"):
        store.update(resource, {**unconditional, "metadata": {**unconditional["metadata"], "uid": "other"}})


def test_leases_are_never_replaced_blindly(store: Store) -> None:
    resource = store.resource("leases")
    body = {
        "metadata": {"name": "l", "namespace": "default"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    }
    held = store.create(resource, body)
    with pytest.raises(StoreInvalid, match="must be specified for an update"):
        store.update(resource, body)
    store.update(resource, {**held, "spec": {**held["spec"], "holderIdentity": "b"}})
    with pytest.raises(StoreConflict):
        store.update(resource, held)
    with pytest.raises(StoreInvalid, match="leaseDurationSeconds"):
        store.create(resource, {"metadata": {"name": "m", "namespace": "default"}, "spec": {"leaseDurationSeconds": 0}})


def test_a_write_that_changes_nothing_is_no_event(store: Store, config: Any, events: list[StoreEvent]) -> None:
    resource = store.resource("cm")
    held = store.create(resource, config(a="1"))
    assert store.update(resource, held) is held
    assert store.patch(resource, "cm", {"data": {"a": "1"}}, PatchType.MERGE, namespace="default") is held
    assert len(events) == 1


@pytest.mark.parametrize("dry", [True])
def test_a_dry_run_stores_nothing(store: Store, config: Any, events: list[StoreEvent], dry: bool) -> None:
    resource, version = store.resource("cm"), store.resource_version
    assert store.create(resource, config(), dry_run=dry)["metadata"]["uid"]
    with pytest.raises(StoreNotFound):
        store.get(resource, "cm", "default")
    assert store.resource_version == version
    held = store.create(resource, config(a="1"))
    patched = store.patch(resource, "cm", {"data": {"a": "2"}}, PatchType.MERGE, namespace="default", dry_run=dry)
    assert patched["data"] == {"a": "2"}
    assert store.update(resource, {**held, "data": {}}, dry_run=dry)["data"] == {}
    assert store.delete(resource, "cm", namespace="default", dry_run=dry) is held
    assert store.get(resource, "cm", "default") is held
    assert len(events) == 1


def test_status_and_spec_are_written_through_their_own_doors(store: Store, job: Any) -> None:
    resource = store.resource("jobs")
    made = store.create(resource, {**job(), "status": {"active": 9}})
    assert made["status"] == {}
    assert made["metadata"]["generation"] == 1
    spec_only = store.update(resource, {**made, "spec": {**made["spec"], "suspend": True}, "status": {"active": 9}})
    assert spec_only["status"] == {}
    assert spec_only["metadata"]["generation"] == 2
    changed = {**spec_only, "spec": {}, "status": {"active": 1}}
    changed["metadata"] = {**changed["metadata"], "labels": {"x": "y"}}
    status_only = store.update(resource, changed, subresource="status")
    assert status_only["status"] == {"active": 1}
    assert status_only["spec"] == spec_only["spec"]
    assert "x" not in status_only["metadata"]["labels"]
    assert status_only["metadata"]["generation"] == 2


def test_nodes_keep_their_first_status_and_report_labels_with_it(store: Store) -> None:
    resource = store.resource("nodes")
    node = store.create(resource, {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "1"}}})
    assert node["status"] == {"capacity": {"cpu": "1"}}
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"unschedulable": True}, "status": {"phase": "x"}}
    after = store.patch(resource, "n", patch, PatchType.STRATEGIC, subresource="status")
    assert after["metadata"]["labels"] == {"a": "b"}
    assert after["spec"] == {}
    assert after["status"]["phase"] == "x"


def test_provider_ids_are_for_life(store: Store) -> None:
    resource = store.resource("nodes")
    store.create(resource, {"metadata": {"name": "n"}})
    store.patch(resource, "n", {"spec": {"providerID": "aws:///a/i-1"}}, PatchType.MERGE)
    with pytest.raises(StoreInvalid, match="providerID"):
        store.patch(resource, "n", {"spec": {"providerID": "aws:///a/i-2"}}, PatchType.MERGE)


def test_patches_meet_the_same_conflicts(store: Store, config: Any) -> None:
    resource = store.resource("cm")
    held = store.create(resource, config(a="1"))
    stale = {"metadata": {"resourceVersion": "1"}, "data": {"a": "2"}}
    with pytest.raises(StoreConflict):
        store.patch(resource, "cm", stale, PatchType.MERGE, namespace="default")
    fresh = {"metadata": {"resourceVersion": held["metadata"]["resourceVersion"]}, "data": {"a": "2"}}
    store.patch(resource, "cm", fresh, PatchType.MERGE, namespace="default")
    guarded = [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "remove", "path": "/data"}]
    with pytest.raises(StoreInvalid):
        store.patch(resource, "cm", guarded, PatchType.JSON, namespace="default")
    with pytest.raises(StoreBadRequest, match="name"):
        store.patch(resource, "cm", {"metadata": {"name": "x"}}, PatchType.MERGE, namespace="default")
    with pytest.raises(StoreBadRequest):
        store.patch(resource, "cm", [], PatchType.MERGE, namespace="default")
    with pytest.raises(StoreBadRequest):
        store.patch(resource, "cm", {"metadata": None}, PatchType.MERGE, namespace="default")


def test_custom_resources_take_no_strategic_merge(store: Store) -> None:
    body = {"metadata": {"name": "js", "namespace": "default"}, "spec": {"replicatedJobs": []}}
    store.create(store.resource("jobsets"), body)
    with pytest.raises(StoreUnsupportedMediaType):
        store.patch(store.resource("jobsets"), "js", {}, PatchType.STRATEGIC, namespace="default")


def test_secrets_and_frozen_config(store: Store, config: Any) -> None:
    secret = {"metadata": {"name": "s", "namespace": "default"}, "stringData": {"a": "x"}}
    assert store.create(store.resource("secrets"), secret)["data"] == {"a": "eA=="}
    store.create(store.resource("cm"), {**config(a="1"), "immutable": True})
    with pytest.raises(StoreInvalid, match="immutable"):
        store.patch(store.resource("cm"), "cm", {"data": {"a": "2"}}, PatchType.MERGE, namespace="default")


def test_scale_reads_and_writes_replicas(store: Store) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    body = {
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    resource = store.resource("deploy")
    store.create(resource, body)
    scale = store.scale(resource, "d", "default")
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 1},
        {"replicas": 0, "selector": "a=b"},
    )
    store.update(resource, {**scale, "spec": {"replicas": 4}}, namespace="default", subresource="scale")
    after = store.patch(
        resource, "d", {"spec": {"replicas": 5}}, PatchType.MERGE, namespace="default", subresource="scale"
    )
    assert after["spec"]["replicas"] == 5
    assert after["metadata"]["generation"] == 3
    with pytest.raises(StoreInvalid):
        store.patch(
            resource, "d", {"spec": {"replicas": -1}}, PatchType.MERGE, namespace="default", subresource="scale"
        )
    with pytest.raises(StoreConflict):
        store.update(resource, scale, namespace="default", subresource="scale")
    with pytest.raises(StoreNotFound):
        store.scale(store.resource("cm"), "d", "default")


def test_resources_have_many_names(store: Store) -> None:
    names = ["pods", "pod", "Pod", "po"]
    assert len({store.resource(name).key for name in names}) == 1
    assert store.resource("events").group == ""
    assert store.resource("Event", "events.k8s.io").group == "events.k8s.io"
    with pytest.raises(KeyError):
        store.resource("gadgets")


def test_subscribers_hear_of_each_write_in_order_until_they_leave(store: Store, config: Any) -> None:
    seen: list[StoreEvent] = []
    only: list[StoreEvent] = []
    stop = store.subscribe(seen.append)
    store.subscribe(only.append, resource=store.resource("secrets"))
    resource = store.resource("cm")
    held = store.create(resource, config(a="1"))
    store.update(resource, {**held, "data": {"a": "2"}})
    store.delete(resource, "cm", namespace="default")
    assert [(e.type, e.object["data"]) for e in seen] == [
        ("ADDED", {"a": "1"}),
        ("MODIFIED", {"a": "2"}),
        ("DELETED", {"a": "2"}),
    ]
    assert [e.resource_version for e in seen] == sorted({e.resource_version for e in seen})
    assert all(e.object["metadata"]["resourceVersion"] == str(e.resource_version) for e in seen)
    assert (seen[0].previous, seen[1].previous) == (None, held)
    stop()
    store.create(resource, config())
    assert len(seen) == 3
    assert only == []


def test_priority_classes_and_values(store: Store) -> None:
    resource = store.resource("priorityclasses")
    store.create(resource, {"metadata": {"name": "high"}, "value": 1000})
    with pytest.raises(StoreInvalid, match="update"):
        store.patch(resource, "high", {"value": 5}, PatchType.MERGE)
    with pytest.raises(StoreInvalid, match="maximum"):
        store.create(resource, {"metadata": {"name": "toohigh"}, "value": 2_000_000_000})


def test_parallel_writers_lose_nothing(store: Store, config: Any) -> None:
    resource = store.resource("cm")
    store.create(resource, config(n="0"))
    versions: list[int] = []
    store.subscribe(lambda event: versions.append(event.resource_version))

    def count() -> None:
        for _ in range(50):
            while True:
                held = store.get(resource, "cm", "default")
                try:
                    store.update(resource, {**held, "data": {"n": str(int(held["data"]["n"]) + 1)}})
                    break
                except StoreConflict:
                    continue

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get(resource, "cm", "default")["data"]["n"] == "200"
    assert versions == sorted(versions)
    assert len(versions) == 200


def test_the_first_namespaces_stay(store: Store) -> None:
    names = [ns["metadata"]["name"] for ns in store.list(store.resource("ns"))]
    assert names == ["default", "kube-system", "muster-system"]
    with pytest.raises(StoreForbidden):
        store.delete(store.resource("ns"), "default")
