"""Amounts of resources: what a container, a pod and a node may ask for or offer.

Source: `pkg/apis/core/validation/validation.go` (ValidateResourceRequirements, validatePodResources,
ValidateNodeResources) and the helpers of `pkg/apis/core/v1/helper`.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from model.quantity import InvalidQuantity, parse_quantity
from providers.sim.store.errors import cause
from providers.sim.store.naming import Fault, invalid_value, qualified_name

Obj = dict[str, Any]
_CONTAINER: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD: Final = _CONTAINER | {"storage", "pods", "services", "replicationcontrollers", "secrets", "configmaps"}
_WHOLE: Final = frozenset({"pods", "services", "replicationcontrollers", "secrets", "configmaps"})
_HUGE: Final = "hugepages-"
_NATIVE: Final = "kubernetes.io/"


@lru_cache(maxsize=65536)
def amount(text: str | float) -> Fraction:
    """The value of a quantity; what cannot be read is refused before, and counts as nothing."""
    try:
        return parse_quantity(text)
    except InvalidQuantity:
        return Fraction(0)


def container_faults(resources: Mapping[str, Any], path: str) -> Iterator[Fault]:
    """What is wrong with the resources of a container."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, value in limits.items():
        here = f"{path}.limits[{name}]"
        yield from _name_faults(name, here)
        yield from _amount_faults(name, value, here)
    for name, value in requests.items():
        here = f"{path}.requests[{name}]"
        yield from _name_faults(name, here)
        yield from _amount_faults(name, value, here)
        yield from _against_limit(name, value, limits, path)
    names = {*limits, *requests}
    if any(name.startswith(_HUGE) for name in names) and not names & {"cpu", "memory"}:
        yield cause(path, "Forbidden: HugePages require cpu or memory", "FieldValueForbidden")


def _against_limit(name: str, value: Any, limits: Mapping[str, Any], path: str) -> Iterator[Fault]:
    if name in limits:
        limit, asked = amount(limits[name]), amount(value)
        if not _may_overcommit(name) and asked != limit:
            text = f'Invalid value: "{value}": must be equal to {name} limit of {limits[name]}'
            yield cause(f"{path}.requests", text)
        elif asked > limit:
            text = f'Invalid value: "{value}": must be less than or equal to {name} limit of {limits[name]}'
            yield cause(f"{path}.requests", text)
    elif not _may_overcommit(name):
        text = "Required value: Limit must be set for non overcommitable resources"
        yield cause(f"{path}.limits", text, "FieldValueRequired")


def _may_overcommit(name: str) -> bool:
    """Whether more may be promised than there is: native resources but huge pages."""
    return ("/" not in name or _NATIVE in name) and not name.startswith(_HUGE)


def is_extended(name: str) -> bool:
    """Whether a resource is a device plugin's: with a domain that is not Kubernetes' own."""
    return "/" in name and _NATIVE not in name and not name.startswith("requests.")


def _name_faults(name: str, path: str) -> Iterator[Fault]:
    yield from invalid_value(path, name, qualified_name(name))
    if "/" in name:
        return
    if name not in _STANDARD and not name.startswith(_HUGE):
        yield cause(path, f'Invalid value: "{name}": must be a standard resource type or fully qualified')
    if name not in _CONTAINER and not name.startswith(_HUGE):
        yield cause(path, f'Invalid value: "{name}": must be a standard resource for containers')


def _amount_faults(name: str, value: Any, path: str) -> Iterator[Fault]:
    number = amount(value)
    if number < 0:
        yield cause(path, f'Invalid value: "{value}": must be greater than or equal to 0')
    if (is_extended(name) or name in _WHOLE) and number.denominator != 1:
        yield cause(path, f'Invalid value: "{_canonical(number, value)}": must be an integer')
    if name.startswith(_HUGE):
        page = amount(name.removeprefix(_HUGE))
        if page <= 0 or number % page:
            yield cause(path, f'Invalid value: "{value}": {value} is not positive integer multiple of {name}')


def _canonical(number: Fraction, value: Any) -> str:
    """A fraction as Go prints it: in thousandths."""
    thousandths = number * 1000
    return f"{thousandths.numerator}m" if thousandths.denominator == 1 else str(value)


def pod_level_faults(spec: Obj, path: str) -> Iterator[Fault]:
    """What is wrong with the resources of a whole pod, which its containers share."""
    resources = spec.get("resources") or {}
    if not resources:
        return
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            here = f"{path}.{kind}[{name}]"
            if name not in ("cpu", "memory") and not name.startswith(_HUGE):
                text = f'Unsupported value: "{name}": supported values: "cpu", "hugepages-", "memory"'
                yield cause(here, text, "FieldValueNotSupported")
                continue
            yield from _amount_faults(name, value, here)
            if kind == "requests":
                yield from _against_limit(name, value, limits, path)
    for name, value in requests.items():
        held = sum((_asked(it, name) for it in spec.get("containers") or ()), Fraction(0))
        if name in ("cpu", "memory") and held > amount(value):
            text = f"must be greater than or equal to aggregate container requests of {_shown(held)}"
            yield cause(f"{path}.requests[{name}]", f'Invalid value: "{value}": {text}')


def _asked(container: Obj, name: str) -> Fraction:
    resources = container.get("resources") or {}
    asked = (resources.get("requests") or {}).get(name) or (resources.get("limits") or {}).get(name) or "0"
    return amount(asked)


def _shown(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else _canonical(number, float(number))


def node_faults(status: Obj) -> Iterator[Fault]:
    """What is wrong with the capacity and the allocatable amounts of a node."""
    for kind in ("capacity", "allocatable"):
        for name, value in (status.get(kind) or {}).items():
            yield from _amount_faults(name, value, f"status.{kind}.{name}")
