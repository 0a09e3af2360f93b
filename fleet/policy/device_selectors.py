"""Reads CEL selectors of devices, as `resource.k8s.io/v1` has them, and asks them of devices.

`device` has `driver`, `allowMultipleAllocations`, `attributes` and `capacity`, the last two by domain and name. Beside
the standard functions there are `quantity`, `semver`, `compareTo`, `isGreaterThan`, `isLessThan` and `lowerAscii`; a
selector that needs another one is refused when it is read. Source: `k8s.io/dynamic-resource-allocation/cel`.
"""

from collections.abc import Mapping
from typing import Any, Final

from celpy import celtypes

from fleet.policy.cel import Expression, Functions, InvalidExpression
from fleet.snapshot.devices import AttributeValue, Device, DeviceVersion
from model.quantity import InvalidQuantity, canonical_amount

_STEPS_MOST: Final = 10_000
"""Of one selector for one device."""
_UNKNOWN: Final = "undeclared reference"


class _Version(celtypes.StringType):
    """A version, which has an order."""

    __slots__ = ()

    @property
    def order(self) -> tuple[int, ...]:
        """Returns its numbers; what follows a `-` or a `+` is left out."""
        return tuple(int(part) for part in self.partition("+")[0].partition("-")[0].split(".") if part.isdigit())


def _semver(text: str) -> _Version:
    return _Version(text)


def _quantity(text: str) -> celtypes.IntType:
    try:
        return celtypes.IntType(canonical_amount("memory", str(text)))
    except InvalidQuantity as error:
        raise ValueError(str(error)) from error


def _order(value: Any) -> Any:
    return value.order if isinstance(value, _Version) else value


def _compare(one: Any, other: Any) -> celtypes.IntType:
    return celtypes.IntType((_order(one) > _order(other)) - (_order(one) < _order(other)))


_FUNCTIONS: Final[Functions] = {
    "quantity": _quantity,
    "semver": _semver,
    "compareTo": _compare,
    "isGreaterThan": lambda one, other: celtypes.BoolType(_order(one) > _order(other)),
    "isLessThan": lambda one, other: celtypes.BoolType(_order(one) < _order(other)),
    "lowerAscii": lambda text: celtypes.StringType(str(text).lower()),
}


class DeviceSelector:
    """A `DeviceSelector` is one CEL expression over a device."""

    def __init__(self, text: str) -> None:
        """Errors: InvalidExpression, also for functions and variables that it names and that are not there."""
        self._expression = Expression(text, _FUNCTIONS)
        self._text = text
        _, trouble = self._expression.holds_of({"device": _value(Device("", "", ""))}, [_STEPS_MOST])
        if trouble.startswith(_UNKNOWN):
            raise InvalidExpression(trouble.partition(" (")[0])

    def selects(self, device: Device) -> tuple[bool, str]:
        """Returns whether it is true of a device, and if that cannot be said why."""
        return self._expression.holds_of({"device": _value(device)}, [_STEPS_MOST])

    def reads(self, device: Device) -> tuple[object, ...]:
        """Returns what of a device it may look at: it is the same of two devices of which this is the same."""
        named = (*device.attributes.items(), *device.capacity.items())
        shared = device.parts is not None
        return device.driver, shared, *((name, value) for name, value in named if name.rpartition("/")[2] in self._text)


def _value(device: Device) -> celtypes.MapType:
    return celtypes.MapType(
        {
            celtypes.StringType("driver"): celtypes.StringType(device.driver),
            celtypes.StringType("attributes"): _by_domain(device.attributes),
            celtypes.StringType("capacity"): _by_domain(device.capacity),
            celtypes.StringType("allowMultipleAllocations"): celtypes.BoolType(device.parts is not None),
        }
    )


def _by_domain(named: Mapping[str, AttributeValue]) -> celtypes.MapType:
    """Domain -> name -> value."""
    domains: dict[str, dict[Any, Any]] = {}
    for name, value in named.items():
        domain, _, last = name.rpartition("/")
        domains.setdefault(domain, {})[celtypes.StringType(last)] = _cel(value)
    return celtypes.MapType({celtypes.StringType(it): celtypes.MapType(found) for it, found in domains.items()})


def _cel(value: AttributeValue) -> Any:
    if isinstance(value, bool):
        return celtypes.BoolType(value)
    if isinstance(value, int):
        return celtypes.IntType(value)
    return _Version(value) if isinstance(value, DeviceVersion) else celtypes.StringType(value)
