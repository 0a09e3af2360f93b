"""Objects of `resource.k8s.io/v1` are read: what of them is not honoured is told with its path."""

from typing import Any

import msgspec
import pytest

from fleet.snapshot.devices import DeviceAsk, DeviceVersion, MatchAttribute
from model.kinds import Taint, Toleration
from providers.kube.objects.devices import (
    decode_allocated_claim,
    decode_claim_template,
    decode_device_class,
    decode_device_slice,
)

Obj = dict[str, Any]
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
        ({"capacity": {"requests": {"memory": "1Gi"}}}, {}, "requests[0].exactly.capacity"),
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
            ((G, "n1", "gpu-0"),),
        ),
    ],
)
def test_a_claim_is_what_it_was_given_and_for_whom(status: Obj, owners: list[Obj], pod: str, devices: Any) -> None:
    meta = {"name": "x", "namespace": "n", "ownerReferences": [{"apiVersion": "v1", **it} for it in owners]}
    found = decode_allocated_claim(msgspec.json.encode({"metadata": meta, "status": status}))
    assert (found.key, found.pod, found.devices) == ("n/x", pod, devices)
