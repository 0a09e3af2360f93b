"""CEL over devices, as DeviceClasses and claims select them: the evaluator of CEL with `device` as its only variable.

`device.driver`, `device.attributes['domain'].name` and `device.capacity['domain'].name`, with versions and quantities
as values of their own types. Source: `staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go`.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from providers.sim.store.cel import compiled, constant_type
from providers.sim.store.celgrammar import InvalidCel
from providers.sim.store.celkubernetes import QuantityValue, SemanticVersion
from providers.sim.store.celvalues import CelError, type_name
from providers.sim.store.objects import Obj

EXPRESSION_BYTES: Final = 10 * 1024
_NAMES: Final = frozenset({"device"})


class InvalidDeviceSelector(ValueError):
    """The text is no expression over a device; the message is one line."""


class SelectorFails(RuntimeError):
    """The expression cannot be evaluated for a device, as where it has no such attribute."""


class DeviceExpression:
    """One expression over `device`, compiled."""

    def __init__(self, text: str) -> None:
        """Errors: InvalidDeviceSelector."""
        try:
            self._expression = compiled(text, _NAMES)
        except InvalidCel as error:
            raise InvalidDeviceSelector(" ".join(str(error).split())) from error
        if constant_type(self._expression) not in ("", "bool"):
            raise InvalidDeviceSelector(f"must evaluate to bool, not {constant_type(self._expression)}")

    def matches(self, driver: str, device: Obj) -> bool:
        """Whether a device of a slice is selected. Errors: SelectorFails."""
        try:
            found = self._expression.value({"device": device_value(driver, device)})
        except CelError as error:
            raise SelectorFails(str(error)) from error
        if not isinstance(found, bool):
            raise SelectorFails(f"expected a boolean value, got {type_name(found)}")
        return found


@lru_cache(maxsize=1024)
def device_expression(text: str) -> DeviceExpression:
    """The compiled expression. Errors: InvalidDeviceSelector."""
    return DeviceExpression(text)


def device_value(driver: str, device: Obj) -> Obj:
    """The variable `device`: an attribute without a domain has the driver's; an unknown domain has no attributes."""
    attributes = {name: _attribute(held) for name, held in (device.get("attributes") or {}).items()}
    capacity = {name: QuantityValue(held["value"]) for name, held in (device.get("capacity") or {}).items()}
    return {
        "driver": driver,
        "attributes": _by_domain(driver, attributes),
        "capacity": _by_domain(driver, capacity),
        "allowMultipleAllocations": bool(device.get("allowMultipleAllocations")),
    }


def _attribute(held: Obj) -> Any:
    if "version" in held:
        return SemanticVersion(held["version"])
    if "versions" in held:
        return [SemanticVersion(text) for text in held["versions"]]
    return next(iter(held.values()))


class _Domains(dict[str, dict[str, Any]]):
    """Domain -> name -> value; a domain that a device has nothing of is empty, not an error."""

    def __missing__(self, _domain: str) -> dict[str, Any]:
        return {}


def _by_domain(driver: str, values: Mapping[str, Any]) -> _Domains:
    found = _Domains()
    for name, value in sorted(values.items()):
        domain, _, short = name.rpartition("/")
        found.setdefault(domain or driver, {})[short] = value
    return found
