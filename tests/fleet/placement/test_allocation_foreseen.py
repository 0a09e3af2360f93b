"""What is foreseen of claims on a machine is what the simulated scheduler allocates, claim by claim."""

from collections import Counter
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.placement.device_allocator import DeviceAllocator, DevicesInUse
from fleet.snapshot.device_claims import ClaimableDevices, cluster_devices, pods_with_claims
from fleet.snapshot.gangs import ClaimRef, PodSet
from model.index import Index
from providers.kube.objects.devices import (
    decode_allocated_claim,
    decode_claim_template,
    decode_device_class,
    decode_device_slice,
)
from providers.sim.controllers.dra.devices import announced
from providers.sim.controllers.gpus import PhysicalGpu
from tests.fleet.placement.test_device_allocator import machine
from tests.providers.sim.controllers.dra.test_allocation import Devices, device
from tests.providers.sim.controllers.dra.test_nvidia_driver import H100
from tests.providers.sim.controllers.world import Obj


def raw(obj: Any) -> bytes:
    return msgspec.json.encode(obj)


G = "gpu.nvidia.com"
CLASS = {"metadata": {"name": G}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{G}'"}}]}}
KNOWN = decode_device_class(raw(CLASS))
ATTRIBUTES = f"device.attributes['{G}']"
TAINTS = [
    {"key": "xid", "value": "79", "effect": "NoExecute"},
    {"key": "team", "value": "a", "effect": "NoSchedule"},
    {"key": "seen", "effect": "None"},
]
TOLERATIONS = [
    {"operator": "Exists"},
    {"key": "xid", "operator": "Exists"},
    {"key": "xid", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "team", "value": "a"},
    {"key": "team", "operator": "Equal", "value": "b"},
]
SELECTORS = [f"{ATTRIBUTES}.model == 'big'", f"{ATTRIBUTES}.index > 1", f"{ATTRIBUTES}.index < 3"]


POLICIES = [
    None,
    {"default": "0", "validRange": {"min": "0", "max": "8Gi", "step": "1Mi"}},
    {"default": "8Gi", "validRange": {"min": "1Mi", "max": "8Gi", "step": "1Mi"}},
    {"default": "2Gi", "validRange": {"min": "1Gi", "step": "3Gi"}},
    {"default": "1Gi", "validValues": ["1Gi", "4Gi"]},
]
SHARES = {"value": "3", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "2", "step": "1"}}}


@st.composite
def capacities(draw: st.DrawFn) -> Obj:
    """What there is of a GPU, and whether several may have it."""
    value = draw(st.sampled_from(["4Gi", "8Gi"]))
    if not draw(st.booleans()):
        return {"capacity": {"memory": {"value": value}}}
    policy = draw(st.sampled_from(POLICIES))
    found: Obj = {"memory": {"value": value, **({"requestPolicy": policy} if policy else {})}}
    if draw(st.booleans()):
        found["shares"] = SHARES
    return {"allowMultipleAllocations": True, "capacity": found}


@st.composite
def gpus(draw: st.DrawFn) -> list[Obj]:
    """Up to six GPUs, some with taints, some for several claims."""
    found = []
    for n in range(draw(st.integers(1, 6))):
        model, parent = draw(st.sampled_from(["big", "small"])), draw(st.sampled_from(["p", "q"]))
        taints = draw(st.lists(st.sampled_from(TAINTS), unique_by=lambda it: str(it["key"]), max_size=2))
        made = device(f"gpu-{n}", type="gpu", model=model, parent=parent, index=n)
        found.append(made | draw(capacities()) | ({"taints": taints} if taints else {}))
    return found


@st.composite
def ways(draw: st.DrawFn) -> Obj:
    """One way to meet a request."""
    asked: Obj = {"deviceClassName": G}
    if draw(st.integers(0, 3)):
        asked |= {"allocationMode": "ExactCount", "count": draw(st.integers(1, 3))}
    else:
        asked["allocationMode"] = "All"
    selectors = draw(st.lists(st.sampled_from(SELECTORS), max_size=1))
    if selectors:
        asked["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    asked_of = {"memory": st.sampled_from(["1", "1Gi", "1500Mi", "3Gi", "5Gi"]), "shares": st.sampled_from(["1", "2"])}
    if wanted := draw(st.fixed_dictionaries({}, optional=asked_of)):
        asked["capacity"] = {"requests": wanted}
    tolerations = draw(st.lists(st.sampled_from(TOLERATIONS), max_size=2, unique_by=str))
    return asked | ({"tolerations": tolerations} if tolerations else {})


@st.composite
def claims(draw: st.DrawFn) -> Obj:
    """What a claim asks of devices."""
    requests: list[Obj] = []
    for n in range(draw(st.integers(1, 2))):
        if draw(st.integers(0, 3)):
            requests.append({"name": f"r{n}", "exactly": draw(ways())})
        else:
            either = [{"name": f"w{m}", **draw(ways())} for m in range(2)]
            requests.append({"name": f"r{n}", "firstAvailable": either})
    asked: Obj = {"requests": requests}
    if draw(st.integers(0, 2)) == 0:
        kind = draw(st.sampled_from(["matchAttribute", "distinctAttribute"]))
        asked["constraints"] = [{kind: f"{G}/parent"}]
    return asked


@settings(max_examples=150, deadline=None)
@given(devices=gpus(), asked=st.lists(claims(), min_size=1, max_size=4))
def test_each_claim_gets_what_was_foreseen(devices: list[Obj], asked: list[Obj]) -> None:
    scheduler = Devices(*devices, driver=G)
    scheduler.add("DeviceClass", CLASS)
    slices = [decode_device_slice(raw(it)) for it in stored(scheduler, "resourceslices")]
    machine = cluster_devices(Index(), {it.name: it for it in slices}, {}).machines["n1"]
    allocator, use = DeviceAllocator(), DevicesInUse(machine)
    for n, claim in enumerate(asked):
        template = {"metadata": {"name": f"t{n}", "namespace": "n"}, "spec": {"spec": {"devices": claim}}}
        read = decode_claim_template(raw(template))
        pods = PodSet("main", 1, {}, namespace="n", resource_claims=(ClaimRef("p", "c", read.name),))
        joined = pods_with_claims(pods, ClaimableDevices({read.key: read}, {KNOWN.name: KNOWN}))
        assert joined.unsupported == ()
        before = Counter(had(use))
        foreseen = allocator.allocate(use, joined.constraints.devices)
        given_ = scheduler.take(*claim["requests"], constraints=claim.get("constraints", []))
        assert foreseen == (given_ is not None), claim
        assert sorted((Counter(had(use)) - before).elements()) == sorted(given_ or ())
        allocated = [decode_allocated_claim(raw(it)).devices for it in stored(scheduler, "resourceclaims")]
        known = DevicesInUse(machine)
        known.take_known(it for devices in allocated for it in devices)
        assert (known.taken, known.shared, known.counted) == (use.taken, use.shared, use.counted)


def had(use: DevicesInUse) -> list[str]:
    """The devices that somebody has, as often as they are had."""
    shared = [name for (*_, name), parts in use.shared.items() for _ in parts]
    return [*(name for *_, name in use.taken), *shared]


def stored(scheduler: Devices, resource: str) -> list[Obj]:
    found: list[Obj] = scheduler.store.list(scheduler.store.resource(resource, "resource.k8s.io"))
    return found


@pytest.mark.parametrize(("shares", "flag"), [(None, ""), ("memory", "memory"), ("unlimited", "unlimited"), (3, "3")])
def test_what_is_foreseen_of_devices_for_several_claims_is_what_the_driver_publishes_and_less_memory(
    shares: str | int | None, flag: str
) -> None:
    """Of the memory that a type names a driver may report less."""
    assert H100 is not None
    said = announced("m", H100, [PhysicalGpu()] * 8, shares=flag)
    spec = {"driver": G, "pool": {"name": "n"}, "nodeName": "n", "devices": [it for gpu in said.devices for it in gpu]}
    published = decode_device_slice(raw({"metadata": {"name": "s"}, "spec": spec})).devices
    foreseen = [it for it in machine(dynamic=False, shares=shares).devices if it.driver == G]
    assert [it.name for it in foreseen] == [it.name for it in published]
    memory = f"{G}/memory"
    for ours, theirs in zip(foreseen, published, strict=True):
        if ours.parts is None or theirs.parts is None:
            assert ours.parts is theirs.parts
            continue
        assert ours.parts == {**theirs.parts, memory: ours.parts[memory]}
        assert ours.parts[memory].value <= theirs.parts[memory].value * Fraction(15, 16)
        for way in ("default", "most"):
            ends = [getattr(it[memory], way) == it[memory].value for it in (ours.parts, theirs.parts)]
            assert ends[0] is ends[1]
