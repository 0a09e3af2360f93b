"""Objects of `resource.k8s.io/v1` are read: what of them is not honoured is told with its path."""

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from fleet.snapshot.devices import (
    AllocatedDevice,
    ConsumableCapacity,
    DeviceAsk,
    DeviceTaintRule,
    DeviceVersion,
    MatchAttribute,
)
from model.kinds import Taint, Toleration
from providers.kube.objects.devices import (
    decode_allocated_claim,
    decode_claim_template,
    decode_device_class,
    decode_device_slice,
    decode_device_taint_rule,
)

Obj = dict[str, Any]
GIB = 1024**3
G = "gpu.nvidia.com"


def raw(**fields: Any) -> bytes:
    return msgspec.json.encode({"metadata": {"name": "x", "namespace": "n"}, **fields})


def template(*requests: Obj, **more: Any) -> bytes:
    return raw(spec={"spec": {"devices": {"requests": list(requests), **more}}})


def exactly(**asked: Any) -> Obj:
    return {"name": "r", "exactly": {"deviceClassName": "gpu.nvidia.com", **asked}}


def selecting(text: str) -> list[Obj]:
    return [{"cel": {"expression": text}}]


def test_a_slice_is_its_devices_with_attributes_by_their_full_names() -> None:
    device = {
        "name": "gpu-0-mig-1g10gb-19-0",
        "attributes": {
            "type": {"string": "mig"},
            "index": {"int": 3},
            "healthy": {"bool": False},
            "driverVersion": {"version": "580.1.2"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:44"},
        },
        "capacity": {"memory": {"value": "10Gi"}, "copyEngines": {"value": "1"}},
        "consumesCounters": [{"counterSet": "gpu-0-counter-set", "counters": {"memory-slice-0": {"value": "1"}}}],
        "taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "c", "effect": "None"}],
    }
    pool = {"name": "node-1", "generation": 4, "resourceSliceCount": 2}
    counters = [{"name": "gpu-0-counter-set", "counters": {"memory-slice-0": {"value": "1"}}}]
    spec = {"driver": G, "pool": pool, "nodeName": "node-1", "devices": [device], "sharedCounters": counters}
    found = decode_device_slice(raw(spec=spec))
    assert (found.node, found.pool, found.generation, found.slices) == ("node-1", "node-1", 4, 2)
    [read] = found.devices
    assert read.attributes == {
        f"{G}/type": "mig",
        f"{G}/index": 3,
        f"{G}/healthy": False,
        f"{G}/driverVersion": "580.1.2",
        "resource.kubernetes.io/pcieRoot": "pci0000:44",
    }
    assert isinstance(read.attributes[f"{G}/driverVersion"], DeviceVersion)
    assert read.capacity == {f"{G}/memory": 10 * 1024**3, f"{G}/copyEngines": 1}
    assert read.consumes == {(G, "node-1", "gpu-0-counter-set"): {"memory-slice-0": 1}}
    assert read.taints == (Taint(key="a", effect="NoSchedule"),)
    assert found.counters == {(G, "node-1", "gpu-0-counter-set"): {"memory-slice-0": 1}}


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (None, ConsumableCapacity(Fraction(24 * GIB))),
        ({"default": "1Gi"}, ConsumableCapacity(Fraction(24 * GIB), Fraction(GIB))),
        (
            {"default": "1Gi", "validValues": ["1Gi", "12Gi"]},
            ConsumableCapacity(Fraction(24 * GIB), Fraction(GIB), (Fraction(GIB), Fraction(12 * GIB))),
        ),
        (
            {"default": "0", "validRange": {"min": "1Mi", "max": "12Gi", "step": "1Mi"}},
            ConsumableCapacity(
                *(Fraction(24 * GIB), Fraction(0), ()), Fraction(2**20), Fraction(12 * GIB), Fraction(2**20)
            ),
        ),
    ],
)
def test_a_device_for_several_claims_has_capacities_of_which_they_take(policy: Obj, found: Any) -> None:
    capacity = {"memory": {"value": "24Gi", **({"requestPolicy": policy} if policy else {})}}
    listed = [{"name": "whole", "capacity": capacity}, {"name": "shared", "capacity": capacity}]
    listed[1]["allowMultipleAllocations"] = True
    spec = {"driver": G, "pool": {"name": "n"}, "nodeName": "n", "devices": listed}
    assert [it.parts for it in decode_device_slice(raw(spec=spec)).devices] == [None, {f"{G}/memory": found}]


def test_what_a_request_asks_of_capacities() -> None:
    found = decode_claim_template(template(exactly(capacity={"requests": {"shares": "1", "memory": "1500Mi"}})))
    [ask] = found.requests[0].asks
    assert (ask.capacity, found.unsupported) == ((("memory", Fraction(1500 * 2**20)), ("shares", Fraction(1))), ())


def test_a_template_is_its_requests() -> None:
    ways = [{"name": "a", "deviceClassName": "x"}, {"name": "b", "deviceClassName": "y", "count": 2}]
    constraints = [{"matchAttribute": f"{G}/parentUUID", "requests": ["r"]}]
    either = {"name": "e", "firstAvailable": ways}
    every = {"name": "all", "exactly": {"deviceClassName": "x", "allocationMode": "All"}}
    asked = exactly(
        count=3, selectors=selecting("device.driver == 'd'"), tolerations=[{"key": "k", "operator": "Exists"}]
    )
    found = decode_claim_template(template(asked, either, every, constraints=constraints))
    assert found.key == "n/x"
    assert found.unsupported == ()
    assert [it.asks for it in found.requests] == [
        (
            DeviceAsk(
                "r", "gpu.nvidia.com", ("device.driver == 'd'",), 3, "", (Toleration(key="k", operator="Exists"),)
            ),
        ),
        (DeviceAsk("e/a", "x"), DeviceAsk("e/b", "y", count=2)),
        (DeviceAsk("all", "x", count=0, every=True),),
    ]
    assert found.constraints == (MatchAttribute(f"{G}/parentUUID", ("r",)),)


@pytest.mark.parametrize(
    ("asked", "more", "path"),
    [
        ({"allocationMode": "Some"}, {}, "requests[0].exactly.allocationMode"),
        ({"adminAccess": True}, {}, "requests[0].exactly.adminAccess"),
        (
            {"capacity": {"requests": {f"{G}/memory": "1Gi", "memory": "1Gi"}}},
            {},
            f"requests[0].exactly.capacity.requests[{G}/memory]",
        ),
        ({"selectors": selecting("device.driver ==")}, {}, "requests[0].exactly.selectors[0].cel.expression"),
        ({"selectors": selecting("nobody(device)")}, {}, "requests[0].exactly.selectors[0].cel.expression"),
        ({"count": 33}, {}, "requests"),
        ({}, {"constraints": [{"requests": ["gpu"]}]}, "constraints[0]"),
    ],
)
def test_what_is_not_honoured_is_told_with_its_path(asked: Obj, more: Obj, path: str) -> None:
    [told] = decode_claim_template(template(exactly(**asked), **more)).unsupported
    assert told.path == f"spec.spec.devices.{path}"
    assert told.words


def test_a_request_without_a_way_is_told() -> None:
    [told] = decode_claim_template(template({"name": "r"})).unsupported
    assert told.path == "spec.spec.devices.requests[0]"


def test_a_class_is_its_selectors() -> None:
    found = decode_device_class(raw(spec={"selectors": selecting("true"), "extendedResourceName": "nvidia.com/gpu"}))
    assert (found.selectors, found.extended_resource, found.unsupported) == (("true",), "nvidia.com/gpu", "")
    assert "cannot be read" in decode_device_class(raw(spec={"selectors": selecting("(")})).unsupported


@pytest.mark.parametrize(
    ("status", "owners", "pod", "devices"),
    [
        ({}, [], "", ()),
        ({}, [{"kind": "Pod", "name": "p", "uid": "u", "controller": True}], "p", ()),
        (
            {
                "allocation": {
                    "devices": {"results": [{"request": "r", "driver": G, "pool": "n1", "device": "gpu-0"}]}
                },
                "reservedFor": [{"resource": "pods", "name": "q", "uid": "u"}],
            },
            [],
            "q",
            (AllocatedDevice((G, "n1", "gpu-0")),),
        ),
        (
            {
                "allocation": {
                    "devices": {
                        "results": [
                            {
                                "request": "r",
                                "driver": G,
                                "pool": "n1",
                                "device": "gpu-0",
                                "shareID": "5a",
                                "consumedCapacity": {"memory": "20Gi", "d/x": "500m"},
                            }
                        ]
                    }
                },
            },
            [],
            "",
            (AllocatedDevice((G, "n1", "gpu-0"), {f"{G}/memory": Fraction(20 * GIB), "d/x": Fraction(1, 2)}),),
        ),
    ],
)
def test_a_claim_is_what_it_was_given_and_for_whom(status: Obj, owners: list[Obj], pod: str, devices: Any) -> None:
    meta = {"name": "x", "namespace": "n", "ownerReferences": [{"apiVersion": "v1", **it} for it in owners]}
    found = decode_allocated_claim(msgspec.json.encode({"metadata": meta, "status": status}))
    assert (found.key, found.pod, found.devices) == ("n/x", pod, devices)


@pytest.mark.parametrize(
    ("selector", "effect", "repels"),
    [
        ({"driver": G, "pool": "node-1", "device": "gpu-0"}, "NoExecute", True),
        ({}, "NoSchedule", True),
        ({}, "None", False),
        ({}, "PreferNoSchedule", False),
        (None, "NoSchedule", False),
    ],
)
def test_a_taint_rule_is_its_taint_and_what_it_selects(selector: Obj | None, effect: str, repels: bool) -> None:
    """Without a selector it is about nothing; an effect that is not known is none."""
    spec = {"taint": {"key": "k", "value": "v", "effect": effect, "timeAdded": "2026-11-27T10:00:00Z"}}
    read = decode_device_taint_rule(raw(spec=spec if selector is None else {**spec, "deviceSelector": selector}))
    given = Taint.model_validate({"key": "k", "value": "v", "effect": effect}) if repels else None
    assert read == DeviceTaintRule("x", given, **(selector or {}))
