"""The kinds of `resource.k8s.io`, by which devices are published, claimed and tainted, as our values.

What a request asks and is not honoured is told with its path: nothing is left out in silence.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Raw, field

from fleet.snapshot.affinity import HARD_EFFECTS
from fleet.snapshot.constraints import UnsupportedConstraint
from fleet.snapshot.device_claims import AllocatedClaim, ClaimTemplate, DeviceClass, PublishedDevices
from fleet.snapshot.devices import (
    GPU_DRIVER,
    AllocatedDevice,
    AttributeValue,
    ConsumableCapacity,
    CounterSet,
    Device,
    DeviceAsk,
    DeviceTaintRule,
    DeviceVersion,
    MatchAttribute,
    RequestedDevices,
    full_name,
)
from model.quantity import canonical_amount
from providers.kube.objects.amounts import exact_amount
from providers.kube.objects.nodes import taint_of
from providers.kube.objects.pod_templates import WireToleration, tolerations_of
from providers.kube.objects.shapes import Owner, Wire, WireTaint

_COUNT_MOST: Final = 32
"""Devices of a claim (`AllocationResultsMaxSize`)."""


class _DeviceObjectMeta(Wire, frozen=True):
    name: str
    namespace: str = ""
    owner_references: list[Owner] | None = None


class _CelSelector(Wire, frozen=True):
    expression: str = ""


class _WireSelector(Wire, frozen=True):
    cel: _CelSelector | None = None


class _ClassSpec(Wire, frozen=True):
    selectors: list[_WireSelector] | None = None
    extended_resource_name: str | None = None


class _DeviceClass(Wire, frozen=True):
    metadata: _DeviceObjectMeta
    spec: _ClassSpec = _ClassSpec()


class _DeviceAttribute(Wire, frozen=True):
    string: str | None = None
    truth: bool | None = field(default=None, name="bool")
    number: int | None = field(default=None, name="int")
    version: str | None = None


class _DeviceAmount(Wire, frozen=True):
    value: str | int = 0


class _ValidRange(Wire, frozen=True):
    min: str | int = 0
    max: str | int | None = None
    step: str | int = 0


class _RequestPolicy(Wire, frozen=True):
    default: str | int | None = None
    valid_values: list[str | int] | None = None
    valid_range: _ValidRange | None = None


class _DeviceCapacity(Wire, frozen=True):
    value: str | int = 0
    request_policy: _RequestPolicy | None = None


class _CounterConsumption(Wire, frozen=True):
    counter_set: str
    counters: dict[str, _DeviceAmount] | None = None


class _SliceDevice(Wire, frozen=True):
    name: str
    attributes: dict[str, _DeviceAttribute] | None = None
    capacity: dict[str, _DeviceCapacity] | None = None
    allow_multiple_allocations: bool | None = None
    consumes_counters: list[_CounterConsumption] | None = None
    taints: list[WireTaint] | None = None


class _SlicePool(Wire, frozen=True):
    name: str
    generation: int = 0
    resource_slice_count: int = 1


class _SliceCounterSet(Wire, frozen=True):
    name: str
    counters: dict[str, _DeviceAmount] | None = None


class _SliceSpec(Wire, frozen=True):
    driver: str
    pool: _SlicePool
    node_name: str | None = None
    devices: list[_SliceDevice] | None = None
    shared_counters: list[_SliceCounterSet] | None = None


class _ResourceSlice(Wire, frozen=True):
    metadata: _DeviceObjectMeta
    spec: _SliceSpec


class _TaintSelector(Wire, frozen=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class _TaintRuleSpec(Wire, frozen=True):
    taint: WireTaint
    device_selector: _TaintSelector | None = None


class _TaintRule(Wire, frozen=True):
    metadata: _DeviceObjectMeta
    spec: _TaintRuleSpec


class _AskedCapacity(Wire, frozen=True):
    requests: dict[str, str | int] | None = None


class _WireDeviceAsk(Wire, frozen=True):
    name: str = ""
    device_class_name: str = ""
    selectors: list[_WireSelector] | None = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None
    tolerations: list[WireToleration] | None = None
    capacity: _AskedCapacity | None = None


class _ClaimRequest(Wire, frozen=True):
    name: str
    exactly: _WireDeviceAsk | None = None
    first_available: list[_WireDeviceAsk] | None = None


class _ClaimConstraint(Wire, frozen=True):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class _ClaimDevices(Wire, frozen=True):
    requests: list[_ClaimRequest] | None = None
    constraints: list[_ClaimConstraint] | None = None
    config: list[Any] | None = None


class _DeviceClaimSpec(Wire, frozen=True):
    devices: _ClaimDevices = _ClaimDevices()


class _TemplateSpec(Wire, frozen=True):
    spec: _DeviceClaimSpec = _DeviceClaimSpec()


class _ClaimTemplate(Wire, frozen=True):
    metadata: _DeviceObjectMeta
    spec: _TemplateSpec = _TemplateSpec()


class _DeviceResult(Wire, frozen=True):
    driver: str
    pool: str
    device: str
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: dict[str, str | int] | None = None


class _DeviceResults(Wire, frozen=True):
    results: list[_DeviceResult] | None = None


class _DeviceResultsOf(Wire, frozen=True):
    devices: _DeviceResults = _DeviceResults()


class _ClaimConsumer(Wire, frozen=True):
    resource: str = ""
    name: str = ""


class _DeviceClaimStatus(Wire, frozen=True):
    allocation: _DeviceResultsOf | None = None
    reserved_for: list[_ClaimConsumer] | None = None


class _ResourceClaim(Wire, frozen=True):
    metadata: _DeviceObjectMeta
    spec: _DeviceClaimSpec = _DeviceClaimSpec()
    status: _DeviceClaimStatus | None = None


_classes = msgspec.json.Decoder(_DeviceClass)
_slices = msgspec.json.Decoder(_ResourceSlice)
_taint_rules = msgspec.json.Decoder(_TaintRule)
_templates = msgspec.json.Decoder(_ClaimTemplate)
_claims = msgspec.json.Decoder(_ResourceClaim)


def decode_device_class(raw: bytes | Raw) -> DeviceClass:
    """A class of devices; one whose selector cannot be read says so instead."""
    found = _classes.decode(raw)
    texts = tuple(_expressions(found.spec.selectors))
    troubles = [words for words in map(_unreadable, texts) if words]
    words = f"DeviceClass {found.metadata.name} has a selector that cannot be read: {troubles[0]}" if troubles else ""
    return DeviceClass(found.metadata.name, texts, found.spec.extended_resource_name or "", words)


def decode_device_slice(raw: bytes | Raw) -> PublishedDevices:
    """The devices that a driver publishes of one node; those that are not of one node are left out."""
    found = _slices.decode(raw)
    spec = found.spec
    driver, pool = spec.driver, spec.pool.name
    return PublishedDevices(
        found.metadata.name,
        spec.node_name or "",
        driver,
        pool,
        spec.pool.generation,
        spec.pool.resource_slice_count,
        tuple(_device(driver, pool, device) for device in spec.devices or ()),
        {(driver, pool, it.name): _amounts(it.counters) for it in spec.shared_counters or ()},
    )


def _device(driver: str, pool: str, found: _SliceDevice) -> Device:
    consumes: dict[CounterSet, Mapping[str, int]] = {
        (driver, pool, it.counter_set): _amounts(it.counters) for it in found.consumes_counters or ()
    }
    return Device(
        driver,
        pool,
        found.name,
        {full_name(driver, name): _attribute(value) for name, value in (found.attributes or {}).items()},
        {full_name(driver, name): amount for name, amount in _amounts(found.capacity).items()},
        consumes,
        tuple(taint_of(it.key, it.value or "", it.effect) for it in found.taints or () if it.effect in HARD_EFFECTS),
        {full_name(driver, name): _consumable(it) for name, it in (found.capacity or {}).items()}
        if found.allow_multiple_allocations
        else None,
    )


def decode_device_taint_rule(raw: bytes | Raw) -> DeviceTaintRule:
    """A taint that an administrator gives to devices. Without a selector it is about none, with an empty one about all.

    An effect that is not known is none, as upstream wants it read (`DeviceTaintEffect`).
    """
    found = _taint_rules.decode(raw)
    taint, where = found.spec.taint, found.spec.device_selector
    if where is None or taint.effect not in HARD_EFFECTS:
        return DeviceTaintRule(found.metadata.name, None)
    given = taint_of(taint.key, taint.value or "", taint.effect)
    return DeviceTaintRule(found.metadata.name, given, where.driver, where.pool, where.device)


def _consumable(found: _DeviceCapacity) -> ConsumableCapacity:
    """What claims may take of a capacity. Of a policy without valid values or range any amount may be taken."""
    value, policy = exact_amount(found.value), found.request_policy or _RequestPolicy()
    bounds = policy.valid_range or _ValidRange()
    return ConsumableCapacity(
        value,
        None if policy.default is None else exact_amount(policy.default),
        tuple(sorted(map(exact_amount, policy.valid_values or ()))),
        exact_amount(bounds.min),
        None if bounds.max is None else exact_amount(bounds.max),
        exact_amount(bounds.step),
    )


def _attribute(found: _DeviceAttribute) -> AttributeValue:
    if found.version is not None:
        return DeviceVersion(found.version)
    return next((value for value in (found.string, found.truth, found.number) if value is not None), "")


def _amounts(found: Mapping[str, _DeviceAmount | _DeviceCapacity] | None) -> dict[str, int]:
    return {name: canonical_amount("memory", it.value) for name, it in (found or {}).items()}


def decode_allocated_claim(raw: bytes | Raw) -> AllocatedClaim:
    """A claim with what it was given, and the pod it is for."""
    found = _claims.decode(raw)
    meta, status = found.metadata, found.status or _DeviceClaimStatus()
    consumers = [it.name for it in status.reserved_for or () if it.resource == "pods"]
    owners = [it.name for it in meta.owner_references or () if it.kind == "Pod" and it.controller]
    results = (status.allocation.devices.results or ()) if status.allocation else ()
    devices = tuple(map(_allocated, results))
    shared = None if owners else _asks_of(meta, found.spec, "spec")
    return AllocatedClaim(meta.namespace, meta.name, next(iter((*consumers, *owners)), ""), devices, shared)


def _allocated(found: _DeviceResult) -> AllocatedDevice:
    """A device, or with the id of a share what was given of one."""
    taken = (found.consumed_capacity or {}).items()
    parts = {full_name(found.driver, name): exact_amount(value) for name, value in taken}
    return AllocatedDevice((found.driver, found.pool, found.device), parts if found.share_id is not None else None)


def decode_claim_template(raw: bytes | Raw) -> ClaimTemplate:
    """What claims of a template ask, and what of it is not honoured."""
    found = _templates.decode(raw)
    return _asks_of(found.metadata, found.spec.spec, "spec.spec")


def _asks_of(meta: _DeviceObjectMeta, spec: _DeviceClaimSpec, root: str) -> ClaimTemplate:
    asked = spec.devices
    refused: list[UnsupportedConstraint] = []
    requests = tuple(
        _request(request, f"{root}.devices.requests[{n}]", refused) for n, request in enumerate(asked.requests or ())
    )
    constraints = []
    for n, each in enumerate(asked.constraints or ()):
        path = f"{root}.devices.constraints[{n}]"
        if named := each.match_attribute or each.distinct_attribute:
            constraints.append(MatchAttribute(named, tuple(each.requests or ()), distinct=not each.match_attribute))
        else:
            refused.append(UnsupportedConstraint(path, "only matchAttribute and distinctAttribute are supported"))
    if sum(max((ask.count for ask in it.asks), default=0) for it in requests) > _COUNT_MOST:
        refused.append(UnsupportedConstraint(f"{root}.devices.requests", f"a claim has {_COUNT_MOST} devices at most"))
    return ClaimTemplate(meta.namespace, meta.name, requests, tuple(constraints), tuple(refused), root)


def _request(found: _ClaimRequest, path: str, refused: list[UnsupportedConstraint]) -> RequestedDevices:
    if found.exactly is not None:
        return RequestedDevices(found.name, (_ask(found.exactly, found.name, f"{path}.exactly", refused),))
    ways = found.first_available or ()
    if not ways:
        refused.append(UnsupportedConstraint(path, "a request says exactly or firstAvailable"))
    asks = [_ask(way, f"{found.name}/{way.name}", f"{path}.firstAvailable[{n}]", refused) for n, way in enumerate(ways)]
    return RequestedDevices(found.name, tuple(asks))


def _ask(found: _WireDeviceAsk, name: str, path: str, refused: list[UnsupportedConstraint]) -> DeviceAsk:
    refused += _refused(found, path)
    every = found.allocation_mode == "All"
    count = 1 if found.count is None else found.count
    return DeviceAsk(
        name,
        found.device_class_name,
        tuple(_expressions(found.selectors)),
        0 if every else max(1, count),
        tolerations=tolerations_of(found.tolerations),
        every=every,
        capacity=tuple((name, exact_amount(value)) for name, value in sorted(_requested(found).items())),
    )


def _requested(found: _WireDeviceAsk) -> Mapping[str, str | int]:
    return (found.capacity.requests if found.capacity else None) or {}


def _refused(found: _WireDeviceAsk, path: str) -> Iterator[UnsupportedConstraint]:
    if (mode := found.allocation_mode or "ExactCount") not in {"ExactCount", "All"}:
        yield UnsupportedConstraint(f"{path}.allocationMode", f"{mode} is not known; say ExactCount or All")
    if found.admin_access:
        yield UnsupportedConstraint(f"{path}.adminAccess", "devices that others use are not counted for anybody")
    for name in sorted(_requested(found)):
        if name.partition("/")[0] == GPU_DRIVER:
            words = f"kube-scheduler takes names as they are published: say {name.partition('/')[2]}"
            yield UnsupportedConstraint(f"{path}.capacity.requests[{name}]", words)
    for n, text in enumerate(_expressions(found.selectors)):
        if words := _unreadable(text):
            yield UnsupportedConstraint(f"{path}.selectors[{n}].cel.expression", words)


def _expressions(found: Iterable[_WireSelector] | None) -> Iterator[str]:
    for each in found or ():
        yield each.cel.expression if each.cel else ""


@lru_cache(maxsize=1024)
def _unreadable(text: str) -> str:
    """Why a selector cannot be read; empty where it can."""
    from fleet.policy.cel import InvalidExpression  # the library takes a fifth of a second to import
    from fleet.policy.device_selectors import DeviceSelector

    try:
        DeviceSelector(text)
    except InvalidExpression as error:
        return str(error)
    return ""
