"""The wire: verbs, codes, media types, lists, watches."""

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from providers.clock import SystemClock
from providers.sim.apiserver import ApiServer
from providers.sim.apiserver.bodies import warning_headers
from providers.sim.store import PatchType, Store

Obj = dict[str, Any]
CMS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def make(store: Store, *names: str, **labels: str) -> None:
    for name in names:
        meta = {"name": name, "namespace": "default", "labels": labels}
        store.create(store.resource("cm"), {"metadata": meta})


def a_pod(name: str = "p") -> Obj:
    return {"metadata": {"name": name, "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}


def test_the_life_of_an_object(http_client: Any, config: Any) -> None:
    status, made = http_client("POST", CMS, config(a="1"))
    assert (status, made["metadata"]["managedFields"][0]["manager"]) == (201, "tester")
    assert http_client.get(f"{CMS}/cm") == made
    status, replaced = http_client("PUT", f"{CMS}/cm", {**made, "data": {"a": "2"}})
    assert (status, replaced["data"]) == (200, {"a": "2"})
    status, refused = http_client("PUT", f"{CMS}/cm", made)
    assert (status, refused["kind"], refused["reason"]) == (409, "Status", "Conflict")
    status, gone = http_client("DELETE", f"{CMS}/cm")
    assert (status, gone["status"], gone["details"]["uid"]) == (200, "Success", made["metadata"]["uid"])
    status, missing = http_client("GET", f"{CMS}/cm")
    assert (status, missing["reason"], missing["message"]) == (404, "NotFound", 'configmaps "cm" not found')


@pytest.mark.parametrize(
    ("media", "patch"),
    [
        (PatchType.JSON, [{"op": "replace", "path": "/data/a", "value": "2"}]),
        (PatchType.MERGE, {"data": {"a": "2"}}),
        (PatchType.STRATEGIC, {"data": {"a": "2"}}),
        (PatchType.APPLY, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata:\n  a: '2'\n"),
    ],
)
def test_every_patch_type(http_client: Any, config: Any, media: PatchType, patch: Any) -> None:
    http_client("POST", CMS, config(a="1"))
    force = "&force=true" if media is PatchType.APPLY else ""
    status, after = http_client("PATCH", f"{CMS}/cm?fieldManager=m{force}", patch, media=media.value)
    assert (status, after["data"]["a"]) == (200, "2")


def test_an_apply_creates_with_201(http_client: Any, config: Any) -> None:
    apply = {"media": PatchType.APPLY.value}
    path = f"{CMS}/cm?fieldManager=m"
    assert http_client("PATCH", path, config(a="1"), **apply)[0] == 201
    assert http_client("PATCH", path, config(a="1"), **apply)[0] == 200
    status, conflict = http_client("PATCH", f"{CMS}/cm?fieldManager=n", config(a="2"), **apply)
    assert (status, conflict["details"]["causes"][0]["field"]) == (409, ".data.a")


# method, path, body, options -> code, reason
REFUSALS: list[tuple[str, str, Any, Obj, int, str]] = [
    ("POST", CMS, b"{", {}, 400, "BadRequest"),
    ("POST", CMS, [1], {}, 400, "BadRequest"),
    ("POST", CMS, b"x", {"media": "application/cbor"}, 415, "UnsupportedMediaType"),
    ("POST", f"{CMS}/x", {}, {}, 405, "MethodNotAllowed"),
    ("POST", "/api/v1/configmaps", {"metadata": {"name": "x"}}, {}, 405, "MethodNotAllowed"),
    ("PUT", CMS, {}, {}, 405, "MethodNotAllowed"),
    ("GET", f"{CMS}/x/nothing", None, {}, 404, "NotFound"),
    ("GET", "/apis/batch/v9/jobs", None, {}, 404, "NotFound"),
    ("GET", f"{CMS}?limit=x", None, {}, 400, "BadRequest"),
    ("GET", f"{CMS}?fieldSelector=data.x%3D1", None, {}, 400, "BadRequest"),
    ("GET", f"{CMS}?resourceVersion=99999", None, {}, 504, "Timeout"),
    ("GET", f"{CMS}?watch=1&sendInitialEvents=true", None, {}, 422, "Invalid"),
    ("POST", f"{CMS}?dryRun=Some", {"metadata": {"name": "x"}}, {}, 422, "Invalid"),
    ("PATCH", f"{CMS}/x", {}, {"media": "application/json"}, 415, "UnsupportedMediaType"),
    ("PATCH", f"{CMS}/x?force=true", {}, {"media": PatchType.MERGE.value}, 422, "Invalid"),
    ("PATCH", f"{CMS}/x", {}, {"media": PatchType.APPLY.value}, 422, "Invalid"),
    ("DELETE", f"{CMS}/x?propagationPolicy=Sideways", None, {}, 400, "BadRequest"),
    ("POST", CMS, {"metadata": {"name": "X"}}, {}, 422, "Invalid"),
    ("POST", "/api/v1/namespaces/missing/configmaps", {"metadata": {"name": "x"}}, {}, 404, "NotFound"),
]


@pytest.mark.parametrize(("method", "path", "body", "options", "code", "reason"), REFUSALS)
def test_refusals_are_statuses(
    http_client: Any, method: str, path: str, body: Any, options: Obj, code: int, reason: str
) -> None:
    status, refused = http_client(method, path, body, **options)
    assert (status, refused["kind"], refused["reason"], refused["code"]) == (code, "Status", reason, code)


@pytest.mark.parametrize("path", ["/apis/none.test/v1/things", "/nonsense"])
def test_a_path_that_nobody_has_registered_is_plain_text(http_client: Any, path: str) -> None:
    response = http_client.send("GET", path)
    assert (response.status, response.read()) == (404, b"404 page not found\n")


def test_an_error_without_a_kind_has_no_reason(http_client: Any) -> None:
    status, refused = http_client("GET", f"{CMS}?watch=1&resourceVersion=x")
    assert (status, refused["code"], "reason" in refused) == (500, 500, False)


def decoding(kind: str) -> str:
    return f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error'


def test_dry_run_and_field_validation(http_client: Any, config: Any) -> None:
    assert http_client("POST", f"{CMS}?dryRun=All", config())[0] == 201
    assert http_client("GET", f"{CMS}/cm")[0] == 404
    odd = {**config(), "metadata": {"name": "cm", "colour": "red"}, "dta": {}}
    status, refused = http_client("POST", f"{CMS}?fieldValidation=Strict", odd)
    assert (status, refused["message"]) == (
        400,
        f'{decoding("ConfigMap")}: unknown field "dta", unknown field "metadata.colour"',
    )
    response = http_client.send("POST", f"{CMS}?fieldValidation=Warn", odd)
    assert response.status == 201
    assert 'unknown field \\"dta\\"' in response.headers.get_all("Warning")[0]


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ('no "data"', r"no \"data\""),
        ("a\\b", r"a\\b"),
        ("a\tb\x7f\x85", r"a\\tb\\x7f\\x85"),
        ("gr\u00fc\u00df \u6f22", "gr\u00fc\u00df \u6f22"),
        ("one\r\nSet-Cookie: two", r"one\\r\\nSet-Cookie: two"),
        ("\ud800", r"\\ud800"),
    ],
)
def test_a_warning_is_quoted(told: str, shown: str) -> None:
    assert warning_headers([told]) == [f'299 - "{shown}"']


def test_warnings_are_told_once_and_cut_where_they_are_too_long_together() -> None:
    assert warning_headers(["a", "", "b", "a"]) == ['299 - "a"', '299 - "b"']
    long = "x" * 4096
    assert warning_headers([long]) == [f'299 - "{long}"']
    assert warning_headers([long, "y"]) == [f'299 - "{"x" * 256}"', '299 - "y"']
    assert len(warning_headers([f"{n}{long}" for n in range(100)])) == 16


def test_whatever_a_policy_warns_of_reaches_the_client(http_client: Any, config: Any) -> None:
    group = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    told = {"expression": "false", "messageExpression": "object.data.told"}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [told]}
    assert (
        http_client("POST", f"{group}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})[0] == 201
    )
    binding = {"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Warn"]}}
    assert http_client("POST", f"{group}/validatingadmissionpolicybindings", binding)[0] == 201
    body = {**config(told="a\rb \x00 \u6f22"), "metadata": {"name": "c"}}
    response = http_client.send("POST", CMS, body)
    (warning,) = response.headers.get_all("Warning")
    assert response.status == 201
    assert warning.encode("latin-1").decode().endswith("p': a\\\\rb \\\\x00 \u6f22\"")


def test_what_a_policy_warns_of_is_a_header_and_what_it_denies_a_status(http_client: Any, config: Any) -> None:
    group = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    told = {"expression": "has(object.data)", "message": 'no "data"', "reason": "Forbidden"}
    for name, action in (("loud", "Warn"), ("strict", "Deny")):
        selector = {"matchLabels": {"how": name}}
        spec = {"matchConstraints": {"resourceRules": [rule], "objectSelector": selector}, "validations": [told]}
        made = {"metadata": {"name": name}, "spec": spec}
        assert http_client("POST", f"{group}/validatingadmissionpolicies", made)[0] == 201
        binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": [action]}}
        assert http_client("POST", f"{group}/validatingadmissionpolicybindings", binding)[0] == 201
    loud = {"metadata": {"name": "a", "labels": {"how": "loud"}}}
    response = http_client.send("POST", CMS, loud)
    warning = "Validation failed for ValidatingAdmissionPolicy 'loud' with binding 'loud': no "
    assert (response.status, response.headers.get_all("Warning")) == (201, [f'299 - "{warning}\\"data\\""'])
    assert (
        http_client.send("POST", CMS, {**config(a="1"), "metadata": {"name": "b"}}).headers.get_all("Warning") is None
    )
    strict = {"metadata": {"name": "c", "labels": {"how": "strict"}}}
    status, refused = http_client("POST", CMS, strict)
    denied = "ValidatingAdmissionPolicy 'strict' with binding 'strict' denied request: no \"data\""
    assert (status, refused["reason"]) == (403, "Forbidden")
    assert refused["message"] == f'configmaps "c" is forbidden: {denied}'


def test_strict_validation_reaches_into_built_in_kinds(http_client: Any) -> None:
    pod = a_pod()
    pod["spec"]["containers"][0]["imagePullPolcy"] = "x"
    status, refused = http_client("POST", f"{PODS}?fieldValidation=Strict", pod)
    assert (status, refused["message"]) == (
        400,
        f'{decoding("Pod")}: unknown field "spec.containers[0].imagePullPolcy"',
    )
    good = a_pod()
    good["spec"] |= {"nodeSelector": {"any": "x"}, "volumes": [{"name": "v", "emptyDir": {}}]}
    good["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1", "cpu": 1}}
    assert http_client("POST", f"{PODS}?fieldValidation=Strict", good)[0] == 201


def test_lists_page_and_select(http_client: Any, store: Store) -> None:
    make(store, "a", "b", "c", side="left")
    make(store, "d")
    first = http_client.get(f"{CMS}?limit=2")
    assert (first["kind"], [i["metadata"]["name"] for i in first["items"]]) == ("ConfigMapList", ["a", "b"])
    assert first["metadata"]["remainingItemCount"] == 2
    second = http_client.get(f"{CMS}?limit=2&continue={first['metadata']['continue']}")
    assert [i["metadata"]["name"] for i in second["items"]] == ["c", "d"]
    assert "continue" not in second["metadata"]
    chosen = http_client.get("/api/v1/configmaps?labelSelector=side%3Dleft&fieldSelector=metadata.name!%3Db")
    assert [i["metadata"]["name"] for i in chosen["items"]] == ["a", "c"]
    http_client("POST", CMS, {"metadata": {"name": "e"}})
    store.compact()
    status, gone = http_client("GET", f"{CMS}?limit=2&continue={first['metadata']['continue']}")
    assert (status, gone["reason"]) == (410, "Expired")


def test_a_long_list_is_streamed_whole(http_client: Any, store: Store) -> None:
    make(store, *(f"n{i:04}" for i in range(1234)))
    response = http_client.send("GET", CMS)
    assert response.headers["Transfer-Encoding"] == "chunked"
    assert [i["metadata"]["name"] for i in json.loads(response.read())["items"]] == [f"n{i:04}" for i in range(1234)]
    table = http_client.get(CMS, Accept=TABLE)
    assert len(table["rows"]) == 1234


def test_deletecollection_takes_what_is_selected(http_client: Any, store: Store) -> None:
    make(store, "a", "b", side="left")
    make(store, "c")
    status, gone = http_client("DELETE", f"{CMS}?labelSelector=side%3Dleft")
    assert (status, len(gone["items"])) == (200, 2)
    assert [i["metadata"]["name"] for i in http_client.get(CMS)["items"]] == ["c"]


def test_delete_options_in_the_body(http_client: Any, store: Store) -> None:
    http_client("POST", PODS, a_pod())
    store.bind("p", "default", "n")
    wrong = {"preconditions": {"uid": "other"}}
    assert http_client("DELETE", f"{PODS}/p", wrong)[0] == 409
    assert http_client("DELETE", f"{PODS}/p", {"dryRun": ["All"]})[0] == 200
    status, marked = http_client("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 9})
    assert (status, marked["metadata"]["deletionGracePeriodSeconds"]) == (200, 9)
    assert http_client("DELETE", f"{PODS}/p?gracePeriodSeconds=0")[0] == 200
    assert http_client("GET", f"{PODS}/p")[0] == 404


def test_subresources(http_client: Any, store: Store) -> None:
    http_client("POST", PODS, a_pod())
    bind = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    assert http_client("POST", f"{PODS}/p/binding", bind)[0] == 201
    assert http_client("POST", f"{PODS}/p/binding", bind)[0] == 409
    status = {"status": {"phase": "Running"}}
    code, after = http_client("PATCH", f"{PODS}/p/status", status, media=PatchType.MERGE.value)
    assert (code, after["status"]["phase"]) == (200, "Running")
    assert http_client.get(f"{PODS}/p/status") == after
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    http_client("POST", budgets, budget)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    response = http_client.send("POST", f"{PODS}/p/eviction", eviction)
    assert (response.status, response.headers["Retry-After"]) == (429, "10")  # nobody has observed the budget yet
    assert json.loads(response.read())["details"]["causes"][0]["reason"] == "DisruptionBudget"
    observed = {"status": {"observedGeneration": 1, "disruptionsAllowed": 0}}
    http_client("PATCH", f"{budgets}/b/status", observed, media=PatchType.MERGE.value)
    response = http_client.send("POST", f"{PODS}/p/eviction", eviction)
    assert (response.status, response.headers["Retry-After"]) == (429, None)  # or clients would sit it out
    http_client("DELETE", f"{budgets}/b")
    assert http_client("POST", f"{PODS}/p/eviction", eviction)[0] == 201
    http_client("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "sa"}})
    status_code, token = http_client("POST", "/api/v1/namespaces/default/serviceaccounts/sa/token", {"spec": {}})
    assert (status_code, token["status"]["token"]) == (201, "test.default.sa")


def test_the_namespace_object_is_not_a_namespace_of_things(http_client: Any) -> None:
    assert http_client.get("/api/v1/namespaces/default")["kind"] == "Namespace"
    assert http_client.get("/api/v1/namespaces/default/status")["kind"] == "Namespace"
    assert http_client.get("/api/v1/namespaces")["kind"] == "NamespaceList"


def test_reviews_are_answered(http_client: Any) -> None:
    review = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}}
    status, answer = http_client("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert (status, answer["status"]["allowed"], answer["spec"]) == (201, True, review["spec"])
    assert http_client("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")[0] == 405


# -- forms ------------------------------------------------------------------------------------------------------


def test_tables_for_people(http_client: Any) -> None:
    http_client("POST", PODS, a_pod())
    table = http_client.get(PODS, Accept=TABLE)
    assert [c["name"] for c in table["columnDefinitions"]][:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["cells"][:4] == ["p", "0/1", "Pending", "0"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    one = http_client.get(f"{PODS}/p?includeObject=Object", Accept=TABLE)
    assert one["rows"][0]["object"]["kind"] == "Pod"


def test_partial_metadata(http_client: Any, store: Store) -> None:
    make(store, "a")
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    found = http_client.get(CMS, Accept=accept)
    assert (found["kind"], found["items"][0]["kind"]) == ("PartialObjectMetadataList", "PartialObjectMetadata")
    assert found["items"][0].keys() == {"kind", "apiVersion", "metadata"}


def test_protobuf_is_declined_but_never_forced(http_client: Any) -> None:
    both = "application/vnd.kubernetes.protobuf,application/json"
    assert http_client.get(CMS, Accept=both)["kind"] == "ConfigMapList"
    only = http_client.send("GET", CMS, Accept="application/vnd.kubernetes.protobuf")
    assert only.status == 406


def test_discovery_in_both_forms(http_client: Any) -> None:
    assert http_client.get("/api")["versions"] == ["v1"]
    groups = {group["name"] for group in http_client.get("/apis")["groups"]}
    assert {"batch", "policy", "jobset.x-k8s.io", "coordination.k8s.io"} <= groups
    assert http_client.get("/apis/batch")["preferredVersion"]["groupVersion"] == "batch/v1"
    rows = {row["name"]: row for row in http_client.get("/api/v1")["resources"]}
    assert rows["pods"]["shortNames"] == ["po"]
    assert rows["pods/eviction"]["kind"] == "Eviction"
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    items = http_client.get("/apis", Accept=accept)["items"]
    assert {item["metadata"]["name"] for item in items} == groups
    assert http_client.send("GET", "/healthz").read() == b"ok"
    assert http_client.get("/version")["major"] == "1"
    assert "/apis/batch/v1" in http_client.get("/")["paths"]


def test_openapi_describes_what_is_served(http_client: Any) -> None:
    index = http_client.get("/openapi/v3")["paths"]
    core = http_client.get(index["api/v1"]["serverRelativeURL"])
    schemas = core["components"]["schemas"]
    pod = schemas["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "version": "v1", "kind": "Pod"}]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["items"] == {"$ref": "#/components/schemas/io.k8s.api.core.v1.Container"}
    text = json.dumps(core)
    assert all(f'"{ref.split("/")[-1]}": {{' in text for ref in _references(core))
    operation = core["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert {p["name"] for p in operation["parameters"]} >= {"dryRun", "fieldValidation"}


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(_references(v) for v in value.values()))
    return set().union(*map(_references, value)) if isinstance(value, list) else set()


# -- watches ----------------------------------------------------------------------------------------------------


def brief(event: Obj) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


def test_a_watch_without_a_version_begins_with_what_there_is(http_client: Any, store: Store) -> None:
    make(store, "a")
    lines = http_client.watch(f"{CMS}?watch=1")
    assert brief(next(lines)) == ("ADDED", "a")
    make(store, "b")
    assert brief(next(lines)) == ("ADDED", "b")


def test_a_watch_goes_on_from_a_version(http_client: Any, store: Store) -> None:
    make(store, "a")
    version = store.resource_version
    store.patch(store.resource("cm"), "a", {"data": {"x": "y"}}, PatchType.MERGE, namespace="default")
    store.delete(store.resource("cm"), "a", namespace="default")
    lines = http_client.watch(f"{CMS}?watch=1&resourceVersion={version}")
    modified, deleted = next(lines), next(lines)
    assert (brief(modified), brief(deleted)) == (("MODIFIED", "a"), ("DELETED", "a"))
    assert deleted["object"]["metadata"]["resourceVersion"] == str(version + 2)
    assert deleted["object"]["data"] == {"x": "y"}


def test_a_selecting_watch_sees_things_come_and_go(http_client: Any, store: Store) -> None:
    resource = store.resource("cm")
    version = store.resource_version
    make(store, "a")
    for labels in ({"on": "1"}, {"on": "1", "x": "1"}, {"on": None}):
        store.patch(resource, "a", {"metadata": {"labels": labels}}, PatchType.MERGE, namespace="default")
    lines = http_client.watch(f"{CMS}?watch=1&resourceVersion={version}&labelSelector=on")
    assert [next(lines)["type"] for _ in range(3)] == ["ADDED", "MODIFIED", "DELETED"]


def test_a_watch_of_one_object(http_client: Any, store: Store) -> None:
    version = store.resource_version
    make(store, "a", "b")
    lines = http_client.watch(f"{CMS}?watch=1&resourceVersion={version}&fieldSelector=metadata.name%3Db")
    assert brief(next(lines)) == ("ADDED", "b")


def test_a_watch_ends_when_told(http_client: Any, store: Store) -> None:
    lines = http_client.watch(f"{CMS}?watch=1&resourceVersion={store.resource_version}&timeoutSeconds=1")
    assert list(lines) == []


def test_bookmarks_carry_the_version_of_quiet_resources_on(http_client: Any, store: Store) -> None:
    query = f"watch=1&resourceVersion={store.resource_version}&allowWatchBookmarks=true"
    lines = http_client.watch(f"/api/v1/secrets?{query}")
    make(store, "a")
    wanted = str(store.resource_version)
    marks = (next(lines) for _ in range(100))
    found = next(m for m in marks if m["object"]["metadata"]["resourceVersion"] == wanted)
    assert (found["type"], found["object"]["kind"]) == ("BOOKMARK", "Secret")


def test_a_streaming_list_says_where_it_ends(http_client: Any, store: Store) -> None:
    make(store, "a", "b")
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    lines = http_client.watch(f"{CMS}?{query}")
    assert [brief(next(lines)) for _ in range(2)] == [("ADDED", "a"), ("ADDED", "b")]
    end = next(lines)
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert end["object"]["metadata"]["resourceVersion"] == str(store.resource_version)


def test_without_initial_events_a_watch_begins_now(http_client: Any, store: Store) -> None:
    make(store, "a")
    lines = http_client.watch(f"{CMS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
    make(store, "b")
    assert brief(next(lines)) == ("ADDED", "b")


def test_a_forgotten_version_is_an_error_event(http_client: Any, store: Store) -> None:
    version = store.resource_version
    make(store, "a")
    store.compact()
    (event,) = list(http_client.watch(f"{CMS}?watch=1&resourceVersion={version}"))
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_compaction_leaves_a_watch_alone_that_missed_nothing(http_client: Any, store: Store) -> None:
    lines = http_client.watch(f"{CMS}?watch=1&resourceVersion={store.resource_version}")
    store.create(store.resource("secrets"), {"metadata": {"name": "s", "namespace": "default"}})
    store.compact()
    make(store, "a")
    assert brief(next(lines)) == ("ADDED", "a")


def test_tables_are_watched_too(http_client: Any, store: Store) -> None:
    make(store, "a")
    lines = http_client.watch(f"{CMS}?watch=1", Accept=TABLE)
    first = next(lines)["object"]
    make(store, "b")
    second = next(lines)["object"]
    assert (first["kind"], first["rows"][0]["cells"][0], second["rows"][0]["cells"][0]) == ("Table", "a", "b")
    assert first["columnDefinitions"]
    assert not second["columnDefinitions"]


def test_no_event_is_lost_between_many_writers_and_watchers(http_client: Any, store: Store) -> None:
    version = store.resource_version
    watches = [http_client.watch(f"{CMS}?watch=1&resourceVersion={version}") for _ in range(3)]

    def write(prefix: str) -> None:
        make(store, *(f"{prefix}-{i}" for i in range(200)))

    threads = [threading.Thread(target=write, args=(prefix,)) for prefix in "xyz"]
    for thread in threads:
        thread.start()
    for lines in watches:
        seen = [int(next(lines)["object"]["metadata"]["resourceVersion"]) for _ in range(600)]
        assert seen == list(range(version + 1, version + 601))
    for thread in threads:
        thread.join()


def test_a_reader_that_is_too_slow_gets_410_and_not_a_gap() -> None:
    store = Store(SystemClock(), event_log_capacity=20)
    with ApiServer(store) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            path = f"{CMS}?watch=1&resourceVersion={store.resource_version}"
            raw.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert raw.recv(1)
            body = {"metadata": {"name": "big", "namespace": "default"}, "data": {"x": "y" * 100_000}}
            store.create(store.resource("cm"), body)
            for i in range(150):
                store.patch(store.resource("cm"), "big", {"data": {"n": str(i)}}, PatchType.MERGE, namespace="default")
            received = bytearray()
            while b'"ERROR"' not in received and (chunk := raw.recv(1 << 20)):
                received += chunk
    assert b'"code":410' in received or b'"code": 410' in received
    assert received.count(b'"MODIFIED"') < 150


# -- the server -------------------------------------------------------------------------------------------------


def test_it_starts_and_stops_and_writes_a_kubeconfig(tmp_path: Path) -> None:
    server = ApiServer(Store(SystemClock()))
    with pytest.raises(RuntimeError):
        _ = server.url
    server.start()
    config = yaml.safe_load(server.kubeconfig(tmp_path / "config").read_text())
    assert config["clusters"][0]["cluster"]["server"] == server.url
    with pytest.raises(RuntimeError):
        server.start()
    server.stop()
    server.stop()
    with pytest.raises(RuntimeError):
        _ = server.url


def test_a_taken_port_is_an_error(server: ApiServer) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(OSError, match="address"):
        ApiServer(Store(SystemClock()), port=port).start()


def test_stopping_ends_open_watches(store: Store, http_client: Any, server: ApiServer) -> None:
    lines = http_client.watch(f"{CMS}?watch=1&resourceVersion={store.resource_version}")
    server.stop()
    with pytest.raises((ConnectionError, OSError, ValueError, StopIteration)):
        next(lines)


def test_bodies_have_a_limit(http_client: Any) -> None:
    def sized(mebibytes: int) -> bytes:
        return b'{"metadata":{"name":"x"},"data":{"x":"' + b"y" * (mebibytes << 20) + b'"}}'

    assert http_client("POST", CMS, sized(2))[0] == 422  # understood, and more than a ConfigMap may hold
    try:
        status, refused = http_client("POST", CMS, sized(4))
    except ConnectionError:
        return  # hung up on in the middle of the body, which is also an answer
    assert (status, refused["reason"]) == (413, "RequestEntityTooLarge")
