"""Server-side apply: stories from KEP-555 as examples, ownership as properties."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from providers.clock import VirtualClock
from providers.sim.store import PatchType, Store, StoreBadRequest, StoreConflict, StoreInvalid
from providers.sim.store.fields import from_fields_v1

Obj = dict[str, Any]


def deployment(**spec: Any) -> Obj:
    meta = {"name": "d", "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def full(image: str = "x", **spec: Any) -> Obj:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": image}]}}
    return deployment(selector={"matchLabels": {"a": "b"}}, template=template, **spec)


def apply(store: Store, obj: Obj, manager: str, **options: Any) -> Obj:
    resource = store.resource(obj["kind"])
    where = {"namespace": obj["metadata"].get("namespace", "")}
    name = obj["metadata"]["name"]
    return store.patch(resource, name, obj, PatchType.APPLY, field_manager=manager, **where, **options)


def owners(obj: Obj) -> dict[tuple[str, str], frozenset[Any]]:
    entries = obj["metadata"].get("managedFields", [])
    return {(e["manager"], e["operation"]): from_fields_v1(e["fieldsV1"]) for e in entries}


def test_two_appliers_of_different_fields_do_not_meet(store: Store) -> None:
    apply(store, full(), "ci")
    result = apply(store, deployment(replicas=5), "autoscaler")
    assert result["spec"]["replicas"] == 5
    assert result["spec"]["template"]["spec"]["containers"][0]["image"] == "x"
    assert owners(result)["autoscaler", "Apply"] == {("f:spec", "f:replicas")}


def test_a_conflict_names_the_manager_and_the_field_and_changes_nothing(store: Store) -> None:
    before = apply(store, full(replicas=3), "ci")
    with pytest.raises(StoreConflict) as refused:
        apply(store, deployment(replicas=5), "autoscaler")
    cause = refused.value.details["causes"][0]
    assert cause["reason"] == "FieldManagerConflict"
    assert cause["field"] == ".spec.replicas"
    assert cause["message"] == 'conflict with "ci"'  # a version is told of updates only
    assert str(refused.value) == 'Apply failed with 1 conflict: conflict with "ci": .spec.replicas'
    assert store.get(store.resource("deployments"), "d", "default") is before


def test_force_takes_the_field_away_from_its_owner(store: Store) -> None:
    apply(store, full(replicas=3), "ci")
    result = apply(store, deployment(replicas=5), "autoscaler", force=True)
    assert ("f:spec", "f:replicas") not in owners(result)["ci", "Apply"]
    assert ("f:spec", "f:replicas") in owners(result)["autoscaler", "Apply"]
    with pytest.raises(StoreConflict):
        apply(store, full(replicas=3), "ci")
    assert apply(store, full(), "ci")["spec"]["replicas"] == 5


def test_the_same_value_is_shared_and_stays_until_the_last_owner_lets_go(store: Store) -> None:
    apply(store, full(replicas=3), "ci")
    apply(store, deployment(replicas=3), "autoscaler")
    kept = apply(store, full(), "ci")
    assert kept["spec"]["replicas"] == 3
    gone = apply(store, deployment(), "autoscaler")
    assert gone["spec"]["replicas"] == 1  # nobody's any more: the default


def test_a_field_no_longer_applied_is_removed_item_and_all(store: Store) -> None:
    two = full()
    two["spec"]["template"]["spec"]["containers"].append({"name": "sidecar", "image": "y"})
    apply(store, two, "ci")
    result = apply(store, full(), "ci")
    assert [c["name"] for c in result["spec"]["template"]["spec"]["containers"]] == ["c"]


def test_an_item_with_another_owner_inside_stays_with_its_keys(store: Store) -> None:
    two = full()
    two["spec"]["template"]["spec"]["containers"].append({"name": "sidecar", "image": "y", "workingDir": "/a"})
    apply(store, two, "ci")
    inside = {"spec": {"containers": [{"name": "sidecar", "image": "y", "tty": True}]}}
    apply(store, deployment(template=inside), "injector")
    result = apply(store, full(), "ci")
    sidecar = result["spec"]["template"]["spec"]["containers"][1]
    assert sidecar["name"] == "sidecar"
    assert sidecar["tty"] is True
    assert "workingDir" not in sidecar


def test_set_lists_merge_by_value(store: Store, config: Any) -> None:
    obj = config()
    a = {**obj, "metadata": {**obj["metadata"], "finalizers": ["x.test/a"]}}
    b = {**obj, "metadata": {**obj["metadata"], "finalizers": ["x.test/b"]}}
    apply(store, a, "one")
    assert apply(store, b, "two")["metadata"]["finalizers"] == ["x.test/a", "x.test/b"]
    assert apply(store, obj, "one")["metadata"]["finalizers"] == ["x.test/b"]


def test_atomic_lists_have_one_owner(store: Store) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    apply(store, {**node, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, "one")
    with pytest.raises(StoreConflict):
        apply(store, {**node, "spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}, "two")


def test_an_update_takes_ownership_and_later_conflicts(store: Store, config: Any) -> None:
    apply(store, config(a="1"), "git")
    resource = store.resource("configmaps")
    held = store.get(resource, "cm", "default")
    store.update(resource, {**held, "data": {"a": "2"}}, namespace="default", field_manager="human")
    with pytest.raises(StoreConflict, match='"human" using v1'):
        apply(store, config(a="1"), "git")
    assert apply(store, config(a="1"), "git", force=True)["data"] == {"a": "1"}


def test_an_anonymous_update_takes_ownership_from_an_applier(store: Store, config: Any) -> None:
    apply(store, config(a="1"), "git")
    store.patch(store.resource("cm"), "cm", {"data": {"a": "2"}}, PatchType.MERGE, namespace="default")
    with pytest.raises(StoreConflict, match='"unknown" using v1'):
        apply(store, config(a="1"), "git")


def test_fields_from_before_the_first_apply_have_an_owner(store: Store, config: Any) -> None:
    store.create(store.resource("cm"), config(a="1"))
    with pytest.raises(StoreConflict, match="before-first-apply"):
        apply(store, config(a="2"), "git")
    assert apply(store, config(a="1", b="2"), "git")["data"] == {"a": "1", "b": "2"}


def test_status_is_owned_apart(store: Store) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    apply(store, {**node, "spec": {"providerID": "aws:///a/i"}}, "one")
    result = apply(
        store, {**node, "status": {"phase": "x"}, "spec": {"providerID": "other"}}, "kubelet", subresource="status"
    )
    assert result["spec"] == {"providerID": "aws:///a/i"}
    assert result["status"] == {"phase": "x"}
    entry = next(it for it in result["metadata"]["managedFields"] if it["manager"] == "kubelet")
    assert entry["subresource"] == "status"
    assert entry["fieldsV1"] == {"f:status": {"f:phase": {}}}


def test_ownership_can_be_reset(store: Store, config: Any) -> None:
    held = apply(store, config(a="1"), "git")
    wiped = {**held, "metadata": {**held["metadata"], "managedFields": [{}]}}
    result = store.update(store.resource("cm"), wiped, namespace="default", field_manager="admin")
    assert "managedFields" not in result["metadata"]


def test_an_update_without_managed_fields_keeps_them(store: Store, config: Any) -> None:
    held = apply(store, config(a="1"), "git")
    meta = {key: value for key, value in held["metadata"].items() if key != "managedFields"}
    result = store.update(
        store.resource("cm"), {**held, "metadata": meta, "data": {"a": "1", "b": "2"}}, field_manager="m"
    )
    assert set(owners(result)) == {("git", "Apply"), ("m", "Update")}


@pytest.mark.parametrize(
    ("change", "manager", "error"),
    [
        ({}, "", StoreInvalid),
        ({"managedFields": [{"manager": "x"}]}, "m", StoreBadRequest),
        ({"name": "other"}, "m", StoreBadRequest),
        ({"resourceVersion": "1"}, "m", StoreConflict),
        ({"uid": "0"}, "m", StoreInvalid),
    ],
)
def test_refused(store: Store, config: Any, change: Obj, manager: str, error: type[Exception]) -> None:
    apply(store, config(a="1"), "first")
    obj = config(a="1")
    with pytest.raises(error):
        store.patch(
            store.resource("cm"),
            "cm",
            {**obj, "metadata": {**obj["metadata"], **change}},
            PatchType.APPLY,
            namespace="default",
            field_manager=manager,
        )


def test_applying_the_same_again_writes_nothing_even_later(store: Store, clock: VirtualClock, config: Any) -> None:
    first = apply(store, config(a="1"), "git")
    clock.advance(100)
    assert apply(store, config(a="1"), "git") is first


_data = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=4)
_labels = st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), max_size=2)
_step = st.tuples(st.sampled_from(["one", "two", "three"]), _data, _labels, st.booleans())


def configuration(data: Obj, labels: Obj) -> Obj:
    meta = {"name": "cm", "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


@settings(deadline=None, max_examples=150)
@given(st.lists(_step, min_size=1, max_size=8))
def test_ownership_invariants(steps: list[tuple[str, Obj, Obj, bool]]) -> None:
    """Whatever is applied in whatever order: configurations win or are refused whole, and owners own what is there."""
    store = Store(VirtualClock())
    resource = store.resource("configmaps")
    for manager, data, labels, force in steps:
        before = store.list(resource, "default")
        try:
            after = apply(store, configuration(data, labels), manager, force=force)
        except StoreConflict:
            assert not force
            assert store.list(resource, "default") == before
            continue
        held = {k: v for k, v in (after.get("data") or {}).items() if k in data}
        assert held == data
        assert {k: v for k, v in (after["metadata"].get("labels") or {}).items() if k in labels} == labels
        _check_owners(after, manager, data, labels)
        assert apply(store, configuration(data, labels), manager) is after


def _check_owners(after: Obj, manager: str, data: Obj, labels: Obj) -> None:
    present: set[tuple[str, ...]] = {("f:data", f"f:{key}") for key in after.get("data") or {}}
    present |= {("f:metadata", "f:labels", f"f:{key}") for key in after["metadata"].get("labels") or {}}
    by_manager = owners(after)
    mine: set[tuple[str, ...]] = {("f:data", f"f:{key}") for key in data}
    mine |= {("f:metadata", "f:labels", f"f:{key}") for key in labels}
    empty = {("f:data",), ("f:metadata", "f:labels")}
    assert by_manager.get((manager, "Apply"), frozenset()) - empty == mine
    owned = frozenset().union(*by_manager.values()) - empty
    assert owned == present, "every field has an owner and every owned field is there"
