"""The rules of custom kinds (`x-kubernetes-validations`): what they let through, and which rules are let in."""

from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.kube.objects.crds import definitions
from providers.sim.store import PatchType, Store, StoreInvalid

Obj = dict[str, Any]
FIELDS: Obj = {
    "a": {"type": "integer"},
    "b": {"type": "integer"},
    "names": {"type": "array", "items": {"type": "string"}},
    "parts": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n", "message": "n may not shrink"}],
        },
    },
}


def definition(*rules: Obj) -> Obj:
    spec = {"type": "object", "properties": FIELDS, "x-kubernetes-validations": list(rules)}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "kind": "Thing"}
    body = {"group": "test.dev", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "things.test.dev"}, "spec": body}


def store_with(*rules: Obj) -> Store:
    store = Store(VirtualClock())
    store.create(store.resource("customresourcedefinitions"), definition(*rules))
    return store


def made(store: Store, **spec: Any) -> Obj:
    return store.create(store.resource("things"), {"metadata": {"name": "x"}, "spec": spec}, namespace="default")


def changed(store: Store, **spec: Any) -> Obj:
    patch = {"spec": spec}
    return store.patch(store.resource("things"), "x", patch, PatchType.MERGE, namespace="default")


@pytest.mark.parametrize(
    ("rule", "spec", "told"),
    [
        ({"rule": "self.a > 1"}, {"a": 2}, ""),
        ({"rule": "self.a > 1"}, {"a": 1}, "spec: Invalid value: failed rule: self.a > 1"),
        ({"rule": "self.a > 1", "message": "more"}, {"a": 1}, "spec: Invalid value: more"),
        ({"rule": "self.a > 1", "messageExpression": "'not ' + string(self.a)"}, {"a": 1}, "not 1"),
        ({"rule": "self.a > 1", "message": "m", "messageExpression": "string(self.b)"}, {"a": 1}, "m"),
        ({"rule": "self.a > 1", "fieldPath": ".a", "reason": "FieldValueForbidden"}, {"a": 1}, "spec.a: Forbidden"),
        ({"rule": "!has(self.a) || self.?b.orValue(1) == 1"}, {"a": 1}, ""),
        ({"rule": "self.b == 1"}, {"a": 1}, 'Invalid value: "object": no such key: b'),
        ({"rule": "self.names.all(n, n.matches('^[a-z]+$'))"}, {"names": ["a", "B"]}, "failed rule"),
        ({"rule": "self == oldSelf"}, {"a": 1}, ""),
    ],
)
def test_a_new_object(rule: Obj, spec: Obj, told: str) -> None:
    store = store_with(rule)
    if not told:
        made(store, **spec)
        return
    with pytest.raises(StoreInvalid) as caught:
        made(store, **spec)
    assert told in caught.value.message


def test_a_transition_rule_compares_with_what_was() -> None:
    store = store_with({"rule": "self.a == oldSelf.a", "message": "a never changes"})
    made(store, a=1, b=1)
    changed(store, b=2)
    with pytest.raises(StoreInvalid, match="a never changes"):
        changed(store, a=2)


def test_the_rules_of_an_object_may_cost_so_much_together() -> None:
    one = "self.names.all(x, self.names.all(y, x == y || x != y))"
    names = [f"n{i}" for i in range(200)]
    with pytest.raises(
        StoreInvalid, match="no further validation rules will be run due to call cost exceeds limit for"
    ):
        made(store_with({"rule": one}, {"rule": "false"}), names=names)
    rules = [{"rule": f"{one} && {n} >= 0"} for n in range(100)]
    made(store_with(*rules[:5]), names=names[:90])
    with pytest.raises(
        StoreInvalid, match=r"validation failed due to running out of cost budget|call cost exceeds limit"
    ):
        made(store_with(*rules), names=names[:90])


def test_items_of_a_keyed_list_are_known_again_and_new_ones_have_nothing_to_be_compared_with() -> None:
    store = store_with()
    made(store, parts=[{"name": "x", "n": 2}])
    changed(store, parts=[{"name": "new", "n": 0}, {"name": "x", "n": 3}])
    with pytest.raises(StoreInvalid, match=r"spec\.parts\[1\]: Invalid value: n may not shrink"):
        changed(store, parts=[{"name": "new", "n": 0}, {"name": "x", "n": 1}])


def test_what_was_wrong_before_its_rule_came_may_stay_until_it_changes() -> None:
    store = store_with()
    made(store, a=1)
    definitions_, rules = store.resource("customresourcedefinitions"), [{"rule": "self.a > 1"}]
    held = store.get(definitions_, "things.test.dev")
    held = {**held, "spec": definition(*rules)["spec"]}
    store.update(definitions_, held)
    store.patch(
        store.resource("things"), "x", {"metadata": {"labels": {"l": "1"}}}, PatchType.MERGE, namespace="default"
    )
    with pytest.raises(StoreInvalid, match="failed rule"):
        changed(store, b=1)
    changed(store, a=2)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"rule": "self.a.frob()"}, "compilation failed: ERROR: <input>:1:1: undeclared reference to 'frob'"),
        ({"rule": "cel.bind(x, self.a, x > 1)"}, "'cel' is not supported here"),
        ({"rule": "self.a >"}, "Syntax error"),
        ({"rule": "1 + 1"}, "must evaluate to a bool"),
        ({"rule": "self.nope > 1"}, "undefined field 'nope'"),
        ({"rule": "object.a > 1"}, "undeclared reference to 'object'"),
        ({"rule": " "}, "rule is not specified"),
        ({"rule": "true", "messageExpression": "1"}, "must evaluate to a string"),
        ({"rule": "true", "messageExpression": "nope"}, r"messageExpression: .*undeclared reference to 'nope'"),
        ({"rule": "self == oldSelf", "optionalOldSelf": True}, "optionalOldSelf is not supported here"),
    ],
)
def test_a_rule_that_cannot_be_asked_is_refused_with_its_definition(rule: Obj, words: str) -> None:
    with pytest.raises(StoreInvalid, match=words):
        store_with(rule)


def test_our_own_definitions_are_let_in_and_a_claim_never_changes() -> None:
    store = Store(VirtualClock())
    for it in definitions():
        store.create(store.resource("customresourcedefinitions"), it)
    claims = store.resource("nodeclaims", "muster.dev")
    launch = {"group": "g", "lot": 0, "size": 1}
    spec = {"nodePool": "p", "poolHash": "h", "instanceType": "t", "zone": "z", "capacityType": "spot", "usdPerHour": 1}
    store.create(claims, {"metadata": {"name": "c"}, "spec": {**spec, "launch": launch}})
    store.patch(claims, "c", {"metadata": {"labels": {"a": "b"}}}, PatchType.MERGE)
    with pytest.raises(StoreInvalid, match="the specification of a NodeClaim never changes"):
        store.patch(claims, "c", {"spec": {"zone": "other"}}, PatchType.MERGE)
