"""What a claim asks for, and whether a device is that: classes, selectors, tolerations, constraints."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import msgspec

from providers.sim.controllers.dra.inventory import PooledDevice
from providers.sim.controllers.matching import tolerates
from providers.sim.controllers.mirror import InformerCache
from providers.sim.controllers.objects import Obj, key_of
from providers.sim.store.amounts import amount
from providers.sim.store.devicecel import InvalidDeviceSelector, SelectorFails, device_expression

_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
_WHOLE_DEVICE: Final = re.compile(r"\b(all|exists|exists_one|filter|map|size|string)\b")
_KEPT: Final = 16_384


class AllocationError(Exception):
    """Nothing can be allocated for the pod on any node, and trying again does not help; the text is upstream's."""


class ClassMissing(Exception):
    """A DeviceClass is not there; the text is kube-scheduler's."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request of a claim, or one of its alternatives."""

    name: str
    """With its alternative: `gpu/large`."""
    parent: str
    """The name of the request itself."""
    device_class: Obj
    claim: Obj
    wanted: Obj

    @property
    def count(self) -> int | None:
        """How many devices; None: all that there are."""
        return None if self.wanted.get("allocationMode") == "All" else int(self.wanted.get("count") or 1)

    def selects(self, device: PooledDevice) -> bool:
        """Whether a device is what is asked for. Raises AllocationError where an expression fails."""
        owner = f"class {self.device_class['metadata']['name']}"
        if not _selected(self.device_class["spec"].get("selectors"), device, owner):
            return False
        return _selected(self.wanted.get("selectors"), device, f"claim {'/'.join(key_of(self.claim))}")

    def tolerates(self, device: PooledDevice) -> bool:
        """Whether no taint of a device keeps the request away."""
        given = self.wanted.get("tolerations") or ()
        return all(
            taint["effect"] not in _REPELLING or any(tolerates(it, taint) for it in given)
            for taint in device.body.get("taints") or ()
        )


def requests_of_claim(claim: Obj, classes: InformerCache) -> list[list[DeviceRequest]]:
    """The requests of a claim, each with its alternatives in order of preference. Raises ClassMissing."""
    found = []
    for request in claim["spec"]["devices"].get("requests") or ():
        parent = request["name"]
        wishes = [(f"{parent}/{it['name']}", it) for it in request.get("firstAvailable") or ()]
        wishes = wishes or [(parent, request["exactly"])]
        found.append([DeviceRequest(name, parent, _class(classes, name, it), claim, it) for name, it in wishes])
    return found


def _class(classes: InformerCache, request: str, wanted: Obj) -> Obj:
    name = wanted["deviceClassName"]
    held = classes.get(("", name))
    if held is None:
        raise ClassMissing(f"request {request}: device class {name} does not exist")
    return held


def _selected(selectors: Sequence[Obj] | None, device: PooledDevice, owner: str) -> bool:
    for i, selector in enumerate(selectors or ()):
        try:
            if not _holds(selector["cel"]["expression"], device):
                return False
        except (SelectorFails, InvalidDeviceSelector) as error:
            raise AllocationError(f"{owner}: selector #{i}: CEL runtime error: {error}") from error
    return True


def _holds(expression: str, device: PooledDevice) -> bool:
    """Whether an expression holds for a device. Of devices that differ in nothing that it names, one is asked."""
    body, all_of_it = device.body, _WHOLE_DEVICE.search(expression) is not None
    seen: Obj = {
        field: {name: held for name, held in (body.get(field) or {}).items() if all_of_it or _named(name, expression)}
        for field in ("attributes", "capacity")
    }
    seen["allowMultipleAllocations"] = body.get("allowMultipleAllocations") or False
    return _evaluated(expression, device.id.driver, msgspec.json.encode(seen, order="sorted"))


def _named(name: str, expression: str) -> bool:
    return name.rpartition("/")[2] in expression


@lru_cache(maxsize=_KEPT)
def _evaluated(expression: str, driver: str, seen: bytes) -> bool:
    return device_expression(expression).matches(driver, msgspec.json.decode(seen))


def attribute_of(device: PooledDevice, name: str) -> Any:
    """The value of an attribute by its full name, with its type; None where a device has none."""
    attributes = device.body.get("attributes") or {}
    domain, _, short = name.partition("/")
    held = attributes.get(name) or (attributes.get(short) if domain == device.id.driver else None)
    return None if not held else next((kind, value) for kind, value in held.items())


@dataclass(slots=True)
class DeviceConstraint:
    """What devices of some requests of a claim must have in common, or must not."""

    attribute: str
    requests: frozenset[str]
    """Empty: of all."""
    distinct: bool
    values: list[Any] = field(default_factory=list)

    def concerns(self, request: DeviceRequest) -> bool:
        """Whether it is about the devices of a request."""
        return not self.requests or bool(self.requests & {request.name, request.parent})

    def admits(self, device: PooledDevice) -> bool:
        """Whether a device may join those that are there."""
        value = attribute_of(device, self.attribute)
        if value is None:
            return False
        return value not in self.values if self.distinct else value in self.values[:1] or not self.values


def constraints_of(claim: Obj) -> Iterator[DeviceConstraint]:
    """The constraints of a claim."""
    for constraint in claim["spec"]["devices"].get("constraints") or ():
        names = frozenset(constraint.get("requests") or ())
        for field_name, distinct in (("matchAttribute", False), ("distinctAttribute", True)):
            if constraint.get(field_name):
                yield DeviceConstraint(constraint[field_name], names, distinct)


def consumed_capacity(request: DeviceRequest, device: PooledDevice) -> dict[str, Fraction] | None:
    """How much of each capacity of a shared device a request takes; None where its policy has no such amount.

    Source: `structured/internal/*/consumable_capacity.go`: what is asked for is rounded up to what the policy allows.
    """
    asked = ((request.wanted.get("capacity") or {}).get("requests")) or {}
    capacity: Mapping[str, Obj] = device.body.get("capacity") or {}
    if not set(asked) <= set(capacity):
        return None
    found: dict[str, Fraction] = {}
    for name, held in capacity.items():
        value = _taken(held, asked.get(name))
        if value is None or value > amount(held["value"]):
            return None
        found[name] = value
    return found


def _taken(held: Obj, asked: Any) -> Fraction | None:
    policy = held.get("requestPolicy")
    if policy is None:
        return amount(held["value"] if asked is None else asked)
    if asked is None:
        return amount(policy["default"])
    wanted = amount(asked)
    if policy.get("validValues"):
        return min((it for it in map(amount, policy["validValues"]) if it >= wanted), default=None)
    bounds = policy.get("validRange")
    if not bounds:
        return wanted
    wanted = max(wanted, amount(bounds["min"]))
    if bounds.get("step"):
        step, least = amount(bounds["step"]), amount(bounds["min"])
        wanted = least + -((least - wanted) // step) * step
    return None if bounds.get("max") and wanted > amount(bounds["max"]) else wanted
