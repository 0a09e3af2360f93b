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


TYPED: Obj = {
    "when": {"type": "string", "format": "date-time"},
    "day": {"type": "string", "format": "date"},
    "long": {"type": "string", "format": "duration"},
    "raw": {"type": "string", "format": "byte"},
    "ratio": {"type": "number"},
    "count": {"type": "integer"},
    "port": {"x-kubernetes-int-or-string": True},
    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "more": {"type": "array", "items": {"type": "string"}},
    "ports": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "n": {"type": "number"}},
        },
    },
    "limits": {"type": "object", "additionalProperties": {"type": "number"}},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"type": "number"}}},
    "held": {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    },
    "x-y": {"type": "number", "nullable": True},
}


def typed_store(rule: str) -> Store:
    store = Store(VirtualClock())
    made_of = definition({"rule": rule})
    schema = made_of["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {**schema["properties"]["spec"], "properties": TYPED}
    store.create(store.resource("customresourcedefinitions"), made_of)
    return store


AB: list[Obj] = [{"name": "a", "n": 1}, {"name": "b", "n": 2}]


@pytest.mark.parametrize(
    ("rule", "spec"),
    [
        ("self.when > timestamp('2026-01-01T00:00:00Z')", {"when": "2026-01-02T00:00:00+01:00"}),
        ("type(self.when) == type(timestamp(0)) && self.when.getFullYear() == 2026", {"when": "2026-01-02T00:00:00Z"}),
        ("self.day + duration('24h') == timestamp('2026-01-02T00:00:00Z')", {"day": "2026-01-01"}),
        ("self.long == duration('90s')", {"long": "1m30s"}),
        ("self.long == duration('50h')", {"long": "2 days 2 hours"}),
        ("self.long < duration('0s')", {"long": "-1.5h"}),
        ("self.raw == b'abc' && size(self.raw) == 3", {"raw": "YWJj"}),
        ("type(self.ratio) == double && self.ratio / 2.0 == 0.5", {"ratio": 1}),
        ("type(self.count) == int && self.count / 2 == 1", {"count": 3.0}),
        ("type(self.port) == int && self.port == 80", {"port": 80}),
        ("type(self.port) == string", {"port": "http"}),
        ("self.tags == ['b', 'a'] && self.tags != ['a'] && 'a' in self.tags", {"tags": ["a", "b"]}),
        ("self.tags + ['b', 'c'] == ['c', 'b', 'a'] && (self.tags + ['b', 'c']).size() == 3", {"tags": ["a", "b"]}),
        ("self.more != ['b', 'a'] && (self.more + ['b']).size() == 3", {"more": ["a", "b"]}),
        ("self.ports == [{'name': 'b', 'n': 2.0}, {'name': 'a', 'n': 1.0}]", {"ports": AB}),
        ("self.ports != [{'name': 'b', 'n': 2.0}, {'name': 'a', 'n': 2.0}]", {"ports": AB}),
        ("(self.ports + [{'name': 'c'}, {'name': 'a', 'n': 9.0}]).map(p, p.name) == ['a', 'b', 'c']", {"ports": AB}),
        ("(self.ports + [{'name': 'a', 'n': 9.0}])[0].n == 9.0", {"ports": AB}),
        ("type(self.ports[0].n) == double && type(self.limits.x) == double", {"ports": AB, "limits": {"x": 1}}),
        ("type(self.free.a) == double && size(self.free) == 1", {"free": {"a": 1, "b": 2}}),
        (
            "self.held.kind == 'K' && self.held.metadata.name == 'n' && size(self.held.metadata) == 1",
            {"held": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}}, "x": 1}},
        ),
        ("type(self.x__dash__y) == double", {"x-y": 1}),
        ("self.x__dash__y == null", {"x-y": None}),
    ],
)
def test_rules_see_values_of_the_types_that_the_schema_says(rule: str, spec: Obj) -> None:
    made(typed_store(rule), **spec)
    with pytest.raises(StoreInvalid, match="failed rule"):
        made(typed_store(f"!({rule})"), **spec)


def test_the_order_of_a_set_or_of_a_keyed_list_is_no_change() -> None:
    store = typed_store("self == oldSelf")
    made(store, tags=["a", "b"], ports=AB)
    changed(store, tags=["b", "a"], ports=AB[::-1])
    with pytest.raises(StoreInvalid, match="failed rule"):
        changed(store, tags=["b", "c"])


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"long": "soon"}, "must be of type duration"),
        ({"long": "1h x"}, "must be of type duration"),
        ({"raw": "a!"}, "must be of type byte"),
        ({"day": "2026-02-31"}, "Invalid date 2026-02-31"),
    ],
)
def test_a_value_that_is_not_of_its_format_is_refused(spec: Obj, words: str) -> None:
    with pytest.raises(StoreInvalid, match=words):
        made(typed_store("true"), **spec)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("self.free.b == 1", "undefined field 'b'"),
        ("self.held.spec == 1", "undefined field 'spec'"),
        ("self.held.metadata.labels.size() == 0", "undefined field 'labels'"),
        ("has(self.held.status)", "undefined field 'status'"),
    ],
)
def test_what_a_rule_cannot_see_is_refused_with_its_definition(rule: str, words: str) -> None:
    with pytest.raises(StoreInvalid, match=words):
        typed_store(rule)


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
