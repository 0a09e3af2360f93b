"""What claims, classes and slices may say, in the words of the API server."""

from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.sim.store import LATEST, RELEASES, Store
from providers.sim.store.devicecel import InvalidDeviceSelector, SelectorFails, device_expression
from providers.sim.store.errors import StoreInvalid

Obj = dict[str, Any]
GROUP = "resource.k8s.io"


@pytest.fixture
def store() -> Store:
    return Store(VirtualClock())


def create(store: Store, kind: str, spec: Obj, name: str = "x") -> Obj:
    resource = store.resource(kind, GROUP)
    obj = {"metadata": {"name": name}, "spec": spec}
    return store.create(resource, obj, namespace="default" if resource.namespaced else "")


def refused(store: Store, kind: str, spec: Obj) -> str:
    with pytest.raises(StoreInvalid) as error:
        create(store, kind, spec)
    return error.value.message.partition("is invalid: ")[2]


def request(name: str = "r", **wanted: Any) -> Obj:
    return {"name": name, "exactly": {"deviceClassName": "c", **wanted}}


def devices(*requests: Obj, **more: Any) -> Obj:
    return {"devices": {"requests": list(requests), **more}}


NOT_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
CLAIMS = [
    (devices({"name": "r"}), "Required value: exactly one of `exactly` or `firstAvailable` is required"),
    (devices({"name": ""}), "spec.devices.requests[0].name: Required value"),
    (devices(request(), request()), 'spec.devices.requests[1].name: Duplicate value: "r"'),
    (devices({"name": "r", "exactly": {}}), "spec.devices.requests[0].exactly.deviceClassName: Required value"),
    (
        devices(request(count=-1)),
        "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
    ),
    (
        devices(request(count=2, allocationMode="All")),
        "exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
    ),
    (
        devices(request(allocationMode="Some")),
        'exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"',
    ),
    (
        devices(request(adminAccess=True)),
        "exactly.adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access:",
    ),
    (
        devices(request(selectors=[{"cel": {"expression": "device."}}])),
        'exactly.selectors[0].cel.expression: Invalid value: "device.": compilation failed: ERROR: <input>:1:1:',
    ),
    (devices(request(selectors=[{}])), "exactly.selectors[0].cel: Required value"),
    (
        devices(request(), constraints=[{"requests": ["s"], "matchAttribute": "a/b"}]),
        f'spec.devices.constraints[0].requests[0]: Invalid value: "s": {NOT_A_REQUEST}',
    ),
    (
        devices(request(), constraints=[{"matchAttribute": "b"}]),
        'spec.devices.constraints[0].matchAttribute: Invalid value: "b": must include a domain prefix',
    ),
    (devices(request(), constraints=[{}]), "spec.devices.constraints[0].matchAttribute: Required value"),
    (
        devices(request(), config=[{"requests": ["s"], "opaque": {"driver": "d", "parameters": {}}}]),
        f'spec.devices.config[0].requests[0]: Invalid value: "s": {NOT_A_REQUEST}',
    ),
    (
        devices(request(tolerations=[{"operator": "In"}])),
        'tolerations[0].operator: Unsupported value: "In": supported values: "Equal", "Exists"',
    ),
    (devices(request(tolerations=[{"key": "a b"}])), 'tolerations[0].key: Invalid value: "a b": name part must'),
    (
        devices(request(tolerations=[{"key": "k", "value": "a b"}])),
        'tolerations[0].value: Invalid value: "a b": a valid label must be',
    ),
    (
        devices(*(request(f"r{n}") for n in range(33))),
        "spec.devices.requests: Too many: 33: must have at most 32 items",
    ),
]


@pytest.mark.parametrize(("spec", "said"), CLAIMS)
def test_claims_that_are_refused(store: Store, spec: Obj, said: str) -> None:
    assert said in refused(store, "ResourceClaim", spec)
    assert said.replace("spec.devices", "spec.spec.devices") in refused(store, "ResourceClaimTemplate", {"spec": spec})


def test_what_is_left_out_of_a_request(store: Store) -> None:
    wishes = {"name": "s", "firstAvailable": [{"name": "a", "deviceClassName": "c"}]}
    made = create(store, "ResourceClaim", devices(request(tolerations=[{"key": "k"}]), wishes))["spec"]["devices"][
        "requests"
    ]
    assert made[0]["exactly"] == {
        "deviceClassName": "c",
        "allocationMode": "ExactCount",
        "count": 1,
        "tolerations": [{"key": "k", "operator": "Equal"}],
    }
    assert made[1]["firstAvailable"] == [
        {"name": "a", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}
    ]


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_what_is_asked_for_never_changes(store: Store, kind: str) -> None:
    spec = devices(request()) if kind == "ResourceClaim" else {"spec": devices(request())}
    made = create(store, kind, spec)
    other = devices(request("s")) if kind == "ResourceClaim" else {"spec": devices(request("s"))}
    with pytest.raises(StoreInvalid, match=r"spec: Invalid value: .*: field is immutable"):
        store.update(store.resource(kind, GROUP), {**made, "spec": other}, namespace="default")


RESULT = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "v"}]}}
USER = {"resource": "pods", "name": "p", "uid": "u"}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"reservedFor": [USER]}, "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"),
        ({"allocation": RESULT, "reservedFor": [USER, USER]}, 'status.reservedFor[1].uid: Duplicate value: "u"'),
        ({"allocation": RESULT, "reservedFor": [{**USER, "uid": ""}]}, "status.reservedFor[0].uid: Required value"),
    ],
)
def test_states_that_are_refused(store: Store, status: Obj, said: str) -> None:
    made = create(store, "ResourceClaim", devices(request()))
    with pytest.raises(StoreInvalid) as error:
        store.update(
            store.resource("ResourceClaim", GROUP),
            {**made, "status": status},
            namespace="default",
            subresource="status",
        )
    assert said in error.value.message


def slice_of(**spec: Any) -> Obj:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {"driver": "d.example.com", "pool": pool, "nodeName": "n", **spec}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            slice_of(nodeName=""),
            "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ),
        (
            slice_of(allNodes=True),
            "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ),
        (slice_of(driver=""), "spec.driver: Required value"),
        (slice_of(pool={"name": "p"}), "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"),
        (slice_of(devices=[{"name": "A"}]), 'spec.devices[0].name: Invalid value: "A"'),
        (slice_of(devices=[{"name": "a"}, {"name": "a"}]), 'spec.devices[1].name: Duplicate value: "a"'),
        (
            slice_of(devices=[{"name": f"d{n}"} for n in range(129)]),
            "spec.devices: Too many: 129: must have at most 128 items",
        ),
        (
            slice_of(devices=[{"name": f"d{n}", "taints": [{"key": "k", "effect": "NoSchedule"}]} for n in range(65)]),
            "spec.devices: Too many: 65: must have at most 64 items",
        ),
        (
            slice_of(devices=[{"name": "a", "taints": [{"key": "k", "value": "-", "effect": "NoSchedule"}]}]),
            'spec.devices[0].taints[0].value: Invalid value: "-"',
        ),
        (
            slice_of(devices=[{"name": "a", "attributes": {"v": {"version": "1.2"}}}]),
            'spec.devices[0].attributes[v].version: Invalid value: "1.2": must be a string compatible',
        ),
        (
            slice_of(devices=[{"name": "a", "attributes": {"v": {"int": 1, "bool": True}}}]),
            "exactly one value must be specified",
        ),
        (
            slice_of(devices=[{"name": "a"}], sharedCounters=[{"name": "s", "counters": {"c": {"value": "1"}}}]),
            "exactly one of `sharedCounters` or `devices` is required",
        ),
    ],
)
def test_slices_that_are_refused(store: Store, spec: Obj, said: str) -> None:
    assert said in refused(store, "ResourceSlice", spec)


def test_a_slice_stays_where_it_is(store: Store) -> None:
    made = create(store, "ResourceSlice", slice_of())
    with pytest.raises(StoreInvalid, match=r'spec.nodeName: Invalid value: "m": field is immutable'):
        store.update(store.resource("ResourceSlice", GROUP), {**made, "spec": {**made["spec"], "nodeName": "m"}})


CONTAINER = {"name": "c", "image": "i"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"resourceClaims": [{"name": "g"}]}, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
        (
            {"resourceClaims": [{"name": "g", "resourceClaimName": "a", "resourceClaimTemplateName": "b"}]},
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        ),
        (
            {"resourceClaims": [{"name": "g", "resourceClaimName": "a"}] * 2},
            'spec.resourceClaims[1].name: Duplicate value: "g"',
        ),
        (
            {"containers": [{**CONTAINER, "resources": {"claims": [{"name": "g"}]}}]},
            'spec.containers[0].resources.claims[0].name: Not found: "g"',
        ),
    ],
)
def test_pods_that_are_refused(store: Store, spec: Obj, said: str) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [CONTAINER], **spec}}
    with pytest.raises(StoreInvalid) as error:
        store.create(store.resource("Pod"), pod, namespace="default")
    assert said in error.value.message


# -- CEL ---------------------------------------------------------------------------------------

DEVICE = {
    "name": "d",
    "attributes": {
        "kind": {"string": "mig"},
        "size": {"int": 3},
        "fast": {"bool": True},
        "driver": {"version": "580.95.5"},
        "versions": {"versions": ["1.0.0", "2.0.0"]},
        "sizes": {"ints": [1, 2]},
        "other.example.com/root": {"string": "pci"},
    },
    "capacity": {"memory": {"value": "40Gi"}},
}
OWN = "device.attributes['d.example.com']"
MEMORY = "device.capacity['d.example.com'].memory"


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("device.driver == 'd.example.com'", True),
        (f"{OWN}.kind == 'mig' && {OWN}.fast", True),
        (f"{OWN}.size + 1 == 4", True),
        ("device.attributes['other.example.com'].root.startsWith('p')", True),
        ("'nope' in device.attributes", False),
        (f"has({OWN}.nope)", False),
        (f"has({OWN}.nope) && {OWN}.nope == 1", False),
        (f"{OWN}.driver.isGreaterThan(semver('580.9.0'))", True),
        (f"{OWN}.driver.isLessThan(semver('580.95.5'))", False),
        (f"{OWN}.driver.compareTo(semver('580.95.5-rc.1')) == 1", True),
        (f"{OWN}.driver.major() == 580", True),
        (f"{MEMORY} == quantity('40960Mi')", True),
        (f"{MEMORY}.compareTo(quantity('41Gi')) < 0", True),
        (f"{MEMORY}.sub(quantity('1Gi')).isLessThan(quantity('40Gi'))", True),
        (f"{MEMORY}.asInteger() == 42949672960", True),
        (f"{OWN}.kind.lowerAscii().matches('^m.g$')", True),
        ("device.allowMultipleAllocations", False),
        (f"{OWN}.?size.orValue(0) == 3 && !{OWN}.?nope.hasValue()", True),
        (f"{OWN}.versions.exists(v, v == semver('2.0.0')) && {OWN}.sizes == [1, 2]", True),
        (f"{OWN}.size == 3.0 && {OWN}.size < 3.5 && type({OWN}.size) == int", True),
        (f"sets.contains(['mig', 'gpu'], [{OWN}.kind]) && size({OWN}) == 6", True),
        (f"{OWN}.kind.startsWith('m') || {OWN}.nope == 1", True),
    ],
)
def test_expressions(expression: str, found: bool) -> None:
    assert device_expression(expression).matches("d.example.com", DEVICE) is found


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (f"{OWN}.nope == 1", "no such key: nope"),
        ("device.attributes['nope'].x == 1", "no such key: x"),
        (f"{OWN}.kind", "expected a boolean value, got string"),
        (MEMORY, r"expected a boolean value, got kubernetes\.Quantity"),
        (f"'{'x' * 9000}'.replace('x', '{'y' * 900}') == {OWN}.kind", "cost limit exceeded"),
        (f"{OWN}.driver.compareTo(quantity('1')) == 0", "no such overload"),
    ],
)
def test_expressions_that_fail(expression: str, said: str) -> None:
    with pytest.raises(SelectorFails, match=said):
        device_expression(expression).matches("d.example.com", DEVICE)


def test_an_expression_that_takes_too_long() -> None:
    many = "[" + ",".join("1" for _ in range(60)) + "]"
    text = f"{many}.all(a, {many}.all(b, {many}.all(c, a + b + c > 0)))"
    with pytest.raises(SelectorFails, match="cost limit exceeded"):
        device_expression(text).matches("d.example.com", DEVICE)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1 +", "1"),
        ("gpu.driver == 'x'", "undeclared reference to 'gpu'"),
        ("(" * 50 + "true" + ")" * 50, "more than 40 parentheses"),
        (f"cel.bind(own, {OWN}, own.size == 3)", "'cel' is not supported here"),
        ("!" * 200 + "true", "expression recursion limit exceeded"),
        ("device.driver" + " + 'x'" * 200 + " == ''", "expression recursion limit exceeded"),
        ("'true'", "must evaluate to bool, not string"),
        ("device.driver.frob()", "undeclared reference to 'frob'"),
    ],
)
def test_expressions_that_are_refused(expression: str, said: str) -> None:
    with pytest.raises(InvalidDeviceSelector, match=said):
        device_expression(expression)


RULED = LATEST.with_betas("resource.k8s.io/v1beta2")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"taint": {"effect": "NoSchedule"}}, 'spec.taint.key: Invalid value: "": name part must be non-empty'),
        ({"taint": {"key": "a b", "effect": "NoSchedule"}}, 'spec.taint.key: Invalid value: "a b": name part must'),
        ({"taint": {"key": "A_/b", "effect": "NoSchedule"}}, 'spec.taint.key: Invalid value: "A_/b": prefix part a'),
        ({"taint": {"key": "a/b/c", "effect": "NoSchedule"}}, "spec.taint.key: Invalid value"),
        (
            {"taint": {"key": "k", "value": "a b", "effect": "None"}},
            'spec.taint.value: Invalid value: "a b": a valid label must be',
        ),
        ({"taint": {"key": "k", "value": "v" * 64, "effect": "None"}}, "must be no more than 63 bytes"),
        ({"taint": {"key": "k"}}, "spec.taint.effect: Required value"),
        ({"taint": {"key": "k", "effect": "PreferNoSchedule"}}, 'Unsupported value: "PreferNoSchedule"'),
        ({"taint": {"key": "k", "effect": "Never"}}, 'spec.taint.effect: Unsupported value: "Never"'),
        (
            {"taint": {"key": "k", "effect": "NoSchedule"}, "deviceSelector": {"driver": "a_b"}},
            'spec.deviceSelector.driver: Invalid value: "a_b"',
        ),
        (
            {"taint": {"key": "k", "effect": "NoSchedule"}, "deviceSelector": {"device": "gpu 0"}},
            'spec.deviceSelector.device: Invalid value: "gpu 0"',
        ),
    ],
)
def test_what_taint_rules_may_say(spec: Obj, said: str) -> None:
    assert said in refused(Store(VirtualClock(), release=RULED), "DeviceTaintRule", spec)


def test_a_taint_rule_says_since_when_and_its_selector_may_change() -> None:
    store = Store(VirtualClock(), release=RULED)
    made = create(
        store, "DeviceTaintRule", {"taint": {"key": "k", "effect": "None"}, "deviceSelector": {"pool": "a/b"}}
    )
    assert made["spec"]["taint"]["timeAdded"] == made["metadata"]["creationTimestamp"]
    changed = {**made, "spec": {**made["spec"], "taint": {**made["spec"]["taint"], "effect": "NoExecute"}}}
    stored = store.update(store.resource("DeviceTaintRule", GROUP), changed)
    assert stored["spec"]["taint"] == {"key": "k", "effect": "NoExecute"}, "its time is for who follows it to say"
    assert stored["metadata"]["generation"] == 2


@pytest.mark.parametrize(("release", "serves"), [("1.33", False), ("1.35", False), ("1.36", True)])
def test_taint_rules_are_beta_since_1_36_and_served_where_that_is_switched_on(release: str, serves: bool) -> None:
    for known in (RELEASES[release], RELEASES[release].with_betas("resource.k8s.io/v1beta2")):
        kinds = {it.kind for it in Store(VirtualClock(), release=known).resources()}
        assert ("DeviceTaintRule" in kinds) is (serves and bool(known.switched_on))
