"""What a ResourceSlice may say, and a DeviceTaintRule.

Source: `pkg/apis/resource/validation/validation.go` of 1.36 (`ValidateResourceSlice`, `ValidateDeviceTaintRule`) and
`pkg/registry/resource/devicetaintrule/strategy.go`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from providers.sim.store.celkubernetes import QuantityValue, SemanticVersion
from providers.sim.store.errors import cause
from providers.sim.store.naming import Fault, dns_label, dns_subdomain, invalid_value
from providers.sim.store.objects import Obj
from providers.sim.store.podspec import duplicate, required, taint_faults

TAINT_RULES: Final = "devicetaintrules.resource.k8s.io"
DEVICES_MOST: Final = 128
COUNTING_DEVICES_MOST: Final = 64
"""Devices of a slice of which one consumes counters or has a taint."""
COUNTER_SETS_MOST: Final = 8
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_NAMES_MOST: Final = 32
_FIXED: Final = "field is immutable"
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_VALUES: Final = ("bool", "bools", "int", "ints", "string", "strings", "version", "versions")
_NAME: Final = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z_][A-Za-z0-9_]{0,31}")


def slice_faults(new: Obj, old: Obj | None) -> Iterator[Fault]:
    """What is wrong with a slice."""
    spec, held = new.get("spec") or {}, (old or {}).get("spec") or {}
    driver, pool = spec.get("driver") or "", spec.get("pool") or {}
    if not driver:
        yield required("spec.driver")
    else:
        yield from invalid_value("spec.driver", driver, dns_subdomain(driver))
    yield from _pool(pool)
    places = [field for field in _PLACES if spec.get(field)]
    if len(places) != 1:
        text = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
        yield required("spec", text) if not places else cause("spec", f"Invalid value: {', '.join(places)}: {text}")
    if old is not None:
        fixed = {"driver": driver, "nodeName": spec.get("nodeName"), "pool.name": pool.get("name")}
        was = {"driver": held.get("driver"), "nodeName": held.get("nodeName"), "pool.name": held["pool"].get("name")}
        for field, value in fixed.items():
            if value != was[field]:
                yield cause(f"spec.{field}", f'Invalid value: "{value}": {_FIXED}')
    yield from _contents(spec)


def _pool(pool: Obj) -> Iterator[Fault]:
    name, count, generation = pool.get("name") or "", pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if not name:
        yield required("spec.pool.name")
    for part in name.split("/") if name else ():
        yield from invalid_value("spec.pool.name", name, dns_subdomain(part))
    if count <= 0:
        yield cause("spec.pool.resourceSliceCount", f"Invalid value: {count}: must be greater than zero")
    if generation < 0:
        text = "must be greater than or equal to zero"
        yield cause("spec.pool.generation", f"Invalid value: {generation}: {text}")


def _contents(spec: Obj) -> Iterator[Fault]:
    devices, counters = spec.get("devices") or [], spec.get("sharedCounters") or []
    if devices and counters:
        text = "exactly one of `sharedCounters` or `devices` is required"
        yield cause("spec", f"Invalid value: {{}}: {text}")
    counting = any(it.get("consumesCounters") or it.get("taints") for it in devices)
    most = COUNTING_DEVICES_MOST if counting else DEVICES_MOST
    for field, items, limit in (("devices", devices, most), ("sharedCounters", counters, COUNTER_SETS_MOST)):
        if len(items) > limit:
            text = f"Too many: {len(items)}: must have at most {limit} items"
            yield cause(f"spec.{field}", text, "FieldValueTooMany")
        seen: set[str] = set()
        for i, item in enumerate(items):
            here, name = f"spec.{field}[{i}]", item.get("name") or ""
            yield from invalid_value(f"{here}.name", name, dns_label(name)) if name else (required(f"{here}.name"),)
            if name in seen:
                yield duplicate(f"{here}.name", name)
            seen.add(name)
            yield from (_device if field == "devices" else _counters)(item, here)


def _device(device: Obj, path: str) -> Iterator[Fault]:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    total = len(attributes) + len(capacity)
    if total > _NAMES_MOST:
        text = f"the total number of attributes and capacities must not exceed {_NAMES_MOST}"
        yield cause(path, f"Invalid value: {total}: {text}")
    for name, value in attributes.items():
        here = f"{path}.attributes[{name}]"
        yield from _qualified(name, here)
        yield from _attribute(value, here)
    for name, held in capacity.items():
        here = f"{path}.capacity[{name}]"
        yield from _qualified(name, here)
        yield from _quantity(held.get("value"), f"{here}.value")
    for i, taint in enumerate(device.get("taints") or ()):
        yield from taint_faults(taint, f"{path}.taints[{i}]", _EFFECTS)
    for i, consumed in enumerate(device.get("consumesCounters") or ()):
        here = f"{path}.consumesCounters[{i}]"
        if not consumed.get("counterSet"):
            yield required(f"{here}.counterSet")
        yield from _counters(consumed, here)


def taint_rule_faults(new: Obj, _old: Obj | None) -> Iterator[Fault]:
    """What is wrong with a DeviceTaintRule."""
    spec = new.get("spec") or {}
    yield from taint_faults(spec.get("taint") or {}, "spec.taint", _EFFECTS)
    where = spec.get("deviceSelector") or {}
    if where.get("driver") is not None:
        yield from invalid_value("spec.deviceSelector.driver", where["driver"], dns_subdomain(where["driver"]))
    for part in (where.get("pool") or "").split("/") if where.get("pool") is not None else ():
        yield from invalid_value("spec.deviceSelector.pool", where["pool"], dns_subdomain(part))
    if where.get("device") is not None:
        yield from invalid_value("spec.deviceSelector.device", where["device"], dns_label(where["device"]))


def taint_rule_since(new: Obj, old: Obj | None = None) -> Obj:
    """A rule that says since when its taint is there: its own beginning, unless it says so.

    A change of the effect without another time is left without one, for who follows it to fill in.
    """
    taint = (new.get("spec") or {}).get("taint") or {}
    was = ((old or {}).get("spec") or {}).get("taint") or {}
    if old is None:
        taint = {"timeAdded": new["metadata"].get("creationTimestamp"), **taint}
    elif taint.get("effect") != was.get("effect") and taint.get("timeAdded") == was.get("timeAdded"):
        taint = {key: value for key, value in taint.items() if key != "timeAdded"}
    return {**new, "spec": {**(new.get("spec") or {}), "taint": taint}}


def _qualified(name: str, path: str) -> Iterator[Fault]:
    if not _NAME.fullmatch(name):
        yield cause(path, f'Invalid value: "{name}": a valid C identifier is required behind the domain')


def _attribute(value: Mapping[str, Any], path: str) -> Iterator[Fault]:
    said = [kind for kind in _VALUES if value.get(kind) is not None]
    if len(said) != 1:
        text = "exactly one value must be specified"
        yield required(path, text) if not said else cause(path, f"Invalid value: {dict(value)}: {text}")
    elif "version" in value:
        try:
            SemanticVersion(value["version"])
        except ValueError:
            text = "must be a string compatible with semver.org spec 2.0.0"
            yield cause(f"{path}.version", f'Invalid value: "{value["version"]}": {text}')


def _quantity(value: Any, path: str) -> Iterator[Fault]:
    try:
        QuantityValue(value if value is not None else "")
    except ValueError:
        yield required(path)


def _counters(held: Obj, path: str) -> Iterator[Fault]:
    if not held.get("counters"):
        yield required(f"{path}.counters")
    for name, counter in (held.get("counters") or {}).items():
        yield from invalid_value(f"{path}.counters", name, dns_label(name))
        yield from _quantity(counter.get("value"), f"{path}.counters[{name}].value")
