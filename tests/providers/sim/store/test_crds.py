"""Custom resources: the definition makes the endpoint, the schema guards it."""

from typing import Any

import pytest

from providers.sim.store import PatchType, Store, StoreEvent, StoreExpired, StoreInvalid

Obj = dict[str, Any]


def definition(**version: Any) -> Obj:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1},
                    "mode": {"type": "string", "default": "a"},
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["id"],
                        "items": {
                            "type": "object",
                            "required": ["id"],
                            "properties": {"id": {"type": "integer"}, "v": {"type": "string"}},
                        },
                    },
                    "words": {"type": "array", "items": {"type": "string"}},
                },
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    served = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    names = {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]}
    spec = {"group": "example.test", "scope": "Namespaced", "names": names, "versions": [served]}
    return {"metadata": {"name": "widgets.example.test"}, "spec": spec}


def widget(name: str = "w", **spec: Any) -> Obj:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"size": 1, **spec}}


@pytest.fixture
def crd(store: Store) -> Obj:
    return store.create(store.resource("crd"), definition(subresources={"status": {}}))


def test_a_definition_is_established_and_served(store: Store, crd: Obj) -> None:
    assert {c["type"]: c["status"] for c in crd["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert crd["status"]["storedVersions"] == ["v1"]
    resource = store.resource("wd")
    assert (resource.api_version, resource.kind, resource.subresources) == (
        "example.test/v1",
        "Widget",
        frozenset({"status"}),
    )
    assert store.served("example.test", "v1", "widgets") == resource
    assert store.served("example.test", "v2", "widgets") is None


def test_objects_are_pruned_defaulted_and_checked(store: Store, crd: Obj) -> None:
    made = store.create(store.resource("wd"), widget(junk=1))
    assert made["spec"] == {"size": 1, "mode": "a"}
    assert made["metadata"]["generation"] == 1
    with pytest.raises(StoreInvalid) as refused:
        store.create(store.resource("wd"), widget("x", size=0))
    assert [c["field"] for c in refused.value.details["causes"]] == ["spec.size"]
    with pytest.raises(StoreInvalid):
        store.patch(store.resource("wd"), "w", {"spec": {"size": "big"}}, PatchType.MERGE, namespace="default")


def test_status_is_apart(store: Store, crd: Obj) -> None:
    resource = store.resource("wd")
    made = store.create(resource, {**widget(), "status": {"x": 1}})
    assert "status" not in made
    after = store.patch(
        resource,
        "w",
        {"status": {"x": 1}, "spec": {"size": 5}},
        PatchType.MERGE,
        namespace="default",
        subresource="status",
    )
    assert (after["status"], after["spec"]["size"], after["metadata"]["generation"]) == ({"x": 1}, 1, 1)


def test_put_needs_a_version(store: Store, crd: Obj) -> None:
    store.create(store.resource("wd"), widget())
    with pytest.raises(StoreInvalid, match="must be specified"):
        store.update(store.resource("wd"), widget(size=2))


def test_apply_merges_lists_as_the_schema_says(store: Store, crd: Obj) -> None:
    resource = store.resource("wd")

    def apply(manager: str, **spec: Any) -> Obj:
        body = {"metadata": {"name": "w"}, "spec": spec}
        return store.patch(resource, "w", body, PatchType.APPLY, namespace="default", field_manager=manager)

    apply("one", size=1, parts=[{"id": 1, "v": "a"}], words=["x"])
    after = apply("two", parts=[{"id": 2, "v": "b"}])
    assert after["spec"]["parts"] == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    entry = after["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
    assert set(entry["f:parts"]) == {'k:{"id":1}'}
    assert entry["f:words"] == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "name"), "other.example.test"),
        (("spec", "scope"), "Galaxy"),
        (("spec", "group"), ""),
        (("spec", "versions"), []),
        (("spec", "versions"), [{"name": "v1", "served": True, "storage": True}]),
    ],
)
def test_broken_definitions_are_refused(store: Store, path: tuple[str, str], value: Any) -> None:
    broken = definition()
    broken[path[0]] = {**broken[path[0]], path[1]: value}
    with pytest.raises(StoreInvalid):
        store.create(store.resource("crd"), broken)


@pytest.mark.parametrize(
    "schema",
    [{"type": "thing"}, {"type": "string", "pattern": "("}, {"type": "array", "items": 5}, {"anyOf": [{"type": 7}]}],
)
def test_schemas_that_cannot_be_used_are_refused_early(store: Store, schema: Obj) -> None:
    whole = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}}
    with pytest.raises(StoreInvalid, match="openAPIV3Schema"):
        store.create(store.resource("crd"), definition(schema={"openAPIV3Schema": whole}))


def test_a_changed_definition_changes_the_rules(store: Store, crd: Obj) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = definition(schema=schema)["spec"]
    store.patch(store.resource("crd"), "widgets.example.test", {"spec": spec}, PatchType.MERGE)
    assert store.create(store.resource("wd"), widget(size=0, junk=1))["spec"] == {"size": 0, "junk": 1}


def test_a_definition_takes_its_objects_along_and_waits_for_finalizers(
    store: Store, crd: Obj, events: list[StoreEvent]
) -> None:
    resource = store.resource("wd")
    held = widget("held")
    held["metadata"]["finalizers"] = ["x.test/a"]
    for body in (widget(), held):
        store.create(resource, body)
    version = store.resource_version
    marked = store.delete(store.resource("crd"), "widgets.example.test")
    assert "deletionTimestamp" in marked["metadata"]
    assert [w["metadata"]["name"] for w in store.list(resource)] == ["held"]
    store.patch(resource, "held", {"metadata": {"finalizers": None}}, PatchType.MERGE, namespace="default")
    with pytest.raises(KeyError):
        store.resource("wd")
    with pytest.raises(StoreExpired):
        store.changes(resource, version)
    store.create(store.resource("crd"), definition())
    assert store.list(store.resource("wd")) == []


def test_scale_and_selectable_fields(store: Store) -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.sel"}
    body = definition(subresources={"scale": scale, "status": {}}, selectableFields=[{"jsonPath": ".spec.mode"}])
    store.create(store.resource("crd"), body)
    resource = store.resource("wd")
    store.create(resource, widget())
    store.create(resource, widget("v", mode="b"))
    store.patch(resource, "w", {"spec": {"replicas": 7}}, PatchType.MERGE, namespace="default", subresource="scale")
    assert store.get(resource, "w", "default")["spec"]["size"] == 7
    assert [w["metadata"]["name"] for w in store.list(resource, field_selector="spec.mode=b")] == ["v"]
