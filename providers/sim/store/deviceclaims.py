"""What the kinds of resource.k8s.io may say: DeviceClasses, claims and their templates, and slices.

Source: `pkg/apis/resource/validation/validation.go`, `pkg/apis/resource/v1/defaults.go` of 1.36. A claim with
`adminAccess` is refused wherever it is written: nothing here gives it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from providers.sim.store.devicecel import EXPRESSION_BYTES, InvalidDeviceSelector, device_expression
from providers.sim.store.errors import cause
from providers.sim.store.naming import Fault, dns_label, dns_subdomain, invalid_value, label_value, qualified_name
from providers.sim.store.objects import Obj
from providers.sim.store.podspec import duplicate, required, unsupported

CLAIMS: Final = "resourceclaims.resource.k8s.io"
_MODES: Final = ("All", "ExactCount")
_LIST_MOST: Final = 32
_ALTERNATIVES_MOST: Final = 8
_RESERVED_MOST: Final = 256
_FORBIDDEN: Final = "FieldValueForbidden"
_ONE_KIND: Final = "exactly one of `exactly` or `firstAvailable` is required"
_NO_ADMIN: Final = (
    "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the "
    "containing namespace"
)
_NOT_A_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)
_ATTRIBUTE: Final = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z_][A-Za-z0-9_]{0,31}")


# -- defaults ------------------------------------------------------------------------------------


def defaulted_claim(obj: Obj) -> Obj:
    """A claim as it is stored: each request says how many devices it is for."""
    return {**obj, "spec": _defaulted_spec(obj.get("spec") or {})}


def defaulted_template(obj: Obj) -> Obj:
    """A template as it is stored."""
    spec = obj.get("spec") or {}
    return {**obj, "spec": {**spec, "spec": _defaulted_spec(spec.get("spec") or {})}}


def _defaulted_spec(spec: Obj) -> Obj:
    devices = spec.get("devices") or {}
    if not isinstance(devices.get("requests"), list):
        return {**spec, "devices": devices}
    return {**spec, "devices": {**devices, "requests": [_defaulted_request(it) for it in devices["requests"]]}}


def _defaulted_request(request: Obj) -> Obj:
    found = dict(request)
    if isinstance(request.get("exactly"), dict):
        found["exactly"] = _defaulted_count(request["exactly"])
    if isinstance(request.get("firstAvailable"), list):
        found["firstAvailable"] = [_defaulted_count(it) for it in request["firstAvailable"]]
    return found


def _defaulted_count(wanted: Obj) -> Obj:
    found = {**wanted, "allocationMode": wanted.get("allocationMode") or "ExactCount"}
    if found["allocationMode"] == "ExactCount" and not found.get("count"):
        found["count"] = 1
    if wanted.get("tolerations"):
        found["tolerations"] = [{"operator": "Equal", **it} for it in wanted["tolerations"]]
    return found


# -- rules ------------------------------------------------------------------------------------


def class_faults(new: Obj, _: Obj | None) -> Iterator[Fault]:
    """What is wrong with a DeviceClass."""
    spec = new.get("spec") or {}
    yield from _selectors(spec.get("selectors"), "spec.selectors")
    yield from _configs(spec.get("config"), "spec.config", None)
    name = spec.get("extendedResourceName")
    if name is not None and ("/" not in name or name.startswith("requests.") or "kubernetes.io/" in name):
        text = "must be a valid extended resource name"
        yield cause("spec.extendedResourceName", f'Invalid value: "{name}": {text}')


def claim_faults(new: Obj, old: Obj | None) -> Iterator[Fault]:
    """What is wrong with a claim: what it asks for never changes, and who has it is written down in order."""
    if old is None:
        yield from _claim_spec(new.get("spec") or {}, "spec")
        return
    if new.get("spec") != old.get("spec"):
        yield _immutable("spec", new.get("spec"))
    yield from _claim_status(new, old.get("status") or {})


def template_faults(new: Obj, old: Obj | None) -> Iterator[Fault]:
    """What is wrong with a template: nothing of it ever changes."""
    if old is None:
        yield from _claim_spec((new.get("spec") or {}).get("spec") or {}, "spec.spec")
    elif new.get("spec") != old.get("spec"):
        yield _immutable("spec", new.get("spec"))


def _immutable(path: str, value: Any) -> Fault:
    return cause(path, f"Invalid value: {json.dumps(value, separators=(',', ':'))}: field is immutable")


def _claim_spec(spec: Obj, path: str) -> Iterator[Fault]:
    devices, here = spec.get("devices") or {}, f"{path}.devices"
    requests = devices.get("requests") or []
    yield from _too_many(requests, f"{here}.requests", _LIST_MOST)
    yield from _named_once(requests, f"{here}.requests")
    for i, request in enumerate(requests):
        yield from _request(request, f"{here}.requests[{i}]")
    names = {str(it.get("name")) for it in requests}
    names |= {f"{it.get('name')}/{sub.get('name')}" for it in requests for sub in it.get("firstAvailable") or ()}
    yield from _too_many(devices.get("constraints") or (), f"{here}.constraints", _LIST_MOST)
    for i, constraint in enumerate(devices.get("constraints") or ()):
        yield from _constraint(constraint, f"{here}.constraints[{i}]", names)
    yield from _configs(devices.get("config"), f"{here}.config", names)


def _too_many(items: Sequence[Any], path: str, most: int) -> Iterator[Fault]:
    if len(items) > most:
        yield cause(path, f"Too many: {len(items)}: must have at most {most} items", "FieldValueTooMany")


def _named_once(items: Sequence[Obj], path: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for i, item in enumerate(items):
        name = item.get("name") or ""
        if not name:
            yield required(f"{path}[{i}].name")
        else:
            yield from invalid_value(f"{path}[{i}].name", name, dns_label(name))
        if name in seen:
            yield duplicate(f"{path}[{i}].name", name)
        seen.add(name)


def _request(request: Obj, path: str) -> Iterator[Fault]:
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        yield required(path, _ONE_KIND)
    elif exactly is not None and alternatives:
        yield cause(path, f"Invalid value: null: {_ONE_KIND}, but multiple fields are set")
    if exactly is not None:
        yield from _wanted(exactly, f"{path}.exactly")
    yield from _too_many(alternatives, f"{path}.firstAvailable", _ALTERNATIVES_MOST)
    yield from _named_once(alternatives, f"{path}.firstAvailable")
    for i, wanted in enumerate(alternatives):
        yield from _wanted(wanted, f"{path}.firstAvailable[{i}]")


def _wanted(wanted: Obj, path: str) -> Iterator[Fault]:
    name, mode, count = wanted.get("deviceClassName") or "", wanted.get("allocationMode"), wanted.get("count")
    if not name:
        yield required(f"{path}.deviceClassName")
    else:
        yield from invalid_value(f"{path}.deviceClassName", name, dns_subdomain(name))
    yield from _selectors(wanted.get("selectors"), f"{path}.selectors")
    if mode not in _MODES:
        yield unsupported(f"{path}.allocationMode", mode, _MODES)
    elif mode == "ExactCount" and (count or 0) <= 0:
        yield cause(f"{path}.count", f"Invalid value: {count or 0}: must be greater than zero")
    elif mode == "All" and count:
        text = "must not be specified when allocationMode is 'All'"
        yield cause(f"{path}.count", f"Invalid value: {count}: {text}")
    if wanted.get("adminAccess"):
        yield cause(f"{path}.adminAccess", _NO_ADMIN, _FORBIDDEN)
    for i, toleration in enumerate(wanted.get("tolerations") or ()):
        yield from _toleration(toleration, f"{path}.tolerations[{i}]")


def _toleration(toleration: Obj, path: str) -> Iterator[Fault]:
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect")
    if operator not in ("Exists", "Equal"):
        yield unsupported(f"{path}.operator", operator, ("Equal", "Exists"))
    elif operator == "Equal" and not toleration.get("key"):
        yield required(f"{path}.key")
    elif toleration.get("key"):
        yield from invalid_value(f"{path}.key", toleration["key"], qualified_name(toleration["key"]))
    if operator == "Exists" and toleration.get("value"):
        text = "must be empty for operator `Exists`"
        yield cause(f"{path}.value", f'Invalid value: "{toleration["value"]}": {text}')
    elif operator == "Equal" and toleration.get("value"):
        yield from invalid_value(f"{path}.value", toleration["value"], label_value(toleration["value"]))
    if effect and effect not in ("NoExecute", "NoSchedule"):
        yield unsupported(f"{path}.effect", effect, ("NoExecute", "NoSchedule"))


def _selectors(selectors: Sequence[Obj] | None, path: str) -> Iterator[Fault]:
    yield from _too_many(selectors or (), path, _LIST_MOST)
    for i, selector in enumerate(selectors or ()):
        here = f"{path}[{i}].cel"
        if not selector.get("cel"):
            yield required(here)
            continue
        text = selector["cel"].get("expression") or ""
        if not text:
            yield required(f"{here}.expression")
        elif len(text.encode()) > EXPRESSION_BYTES:
            many = f"Too long: may not be more than {EXPRESSION_BYTES} bytes"
            yield cause(f"{here}.expression", many, "FieldValueTooLong")
        else:
            yield from _expression(text, f"{here}.expression")


def _expression(text: str, path: str) -> Iterator[Fault]:
    try:
        device_expression(text)
    except InvalidDeviceSelector as error:
        yield cause(path, f"Invalid value: {json.dumps(text)}: compilation failed: ERROR: <input>:1:1: {error}")


def _constraint(constraint: Obj, path: str, names: set[str]) -> Iterator[Fault]:
    yield from _request_names(constraint.get("requests"), f"{path}.requests", names)
    kinds = [field for field in ("matchAttribute", "distinctAttribute") if constraint.get(field)]
    if not kinds:
        yield required(f"{path}.matchAttribute")
    for field in kinds:
        name = constraint[field]
        if "/" not in name:
            text = "must include a domain prefix"
            yield cause(f"{path}.{field}", f'Invalid value: "{name}": {text}')
        elif not _ATTRIBUTE.fullmatch(name):
            text = "a valid C identifier must start with alphabetic character or '_', followed by a string of"
            tail = "alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for "
            form = "validation is '[A-Za-z_][A-Za-z0-9_]*')"
            yield cause(f"{path}.{field}", f'Invalid value: "{name.rpartition("/")[2]}": {text} {tail}{form}')


def _request_names(given: Sequence[str] | None, path: str, names: set[str] | None) -> Iterator[Fault]:
    for i, name in enumerate(given or ()):
        if names is not None and name not in names:
            yield cause(f"{path}[{i}]", f'Invalid value: "{name}": {_NOT_A_REQUEST}')


def _configs(configs: Sequence[Obj] | None, path: str, names: set[str] | None) -> Iterator[Fault]:
    yield from _too_many(configs or (), path, _LIST_MOST)
    for i, config in enumerate(configs or ()):
        yield from _request_names(config.get("requests"), f"{path}[{i}].requests", names)
        opaque = config.get("opaque")
        if not opaque:
            yield required(f"{path}[{i}].opaque")
            continue
        driver = opaque.get("driver") or ""
        if not driver:
            yield required(f"{path}[{i}].opaque.driver")
        else:
            yield from invalid_value(f"{path}[{i}].opaque.driver", driver, dns_subdomain(driver))
        if not isinstance(opaque.get("parameters"), dict):
            yield required(f"{path}[{i}].opaque.parameters")


def _claim_status(new: Obj, held: Obj) -> Iterator[Fault]:
    status, leaving = new.get("status") or {}, "deletionTimestamp" in new["metadata"]
    allocation, users = status.get("allocation"), status.get("reservedFor") or []
    before = {it.get("uid") for it in held.get("reservedFor") or ()}
    if held.get("allocation") is not None and allocation not in (None, held["allocation"]):
        yield _immutable("status.allocation", allocation)
    yield from _too_many(users, "status.reservedFor", _RESERVED_MOST)
    if users and allocation is None:
        text = "Forbidden: may not be specified when `allocated` is not set"
        yield cause("status.reservedFor", text, _FORBIDDEN)
    elif leaving and {it.get("uid") for it in users} - before:
        text = "Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield cause("status.reservedFor", text, _FORBIDDEN)
    seen: set[Any] = set()
    for i, user in enumerate(users):
        for field in ("resource", "name", "uid"):
            if not user.get(field):
                yield required(f"status.reservedFor[{i}].{field}")
        if user.get("uid") in seen:
            yield duplicate(f"status.reservedFor[{i}].uid", user.get("uid"))
        seen.add(user.get("uid"))
