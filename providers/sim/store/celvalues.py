"""Values of CEL as Python holds them: JSON as it is, and beside it what cel-python has types for.

Integers, floats, strings, booleans, null, lists and maps are plain; unsigned integers, bytes, timestamps and durations
are those of cel-python, whose arithmetic is asked for the others, too: it knows the bounds of 64 bits.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from celpy.celtypes import BytesType, DoubleType, DurationType, IntType, TimestampType, UintType

_SIZE_MOST: Final = 1_000_000
"""Signs or elements of a value that `+` makes."""


class CelError(RuntimeError):
    """An expression has no value for what it was asked of, in the words of the API server."""


@dataclass(frozen=True, slots=True)
class CelType:
    """What `type(x)` gives, and what `int`, `string` and the like are by themselves."""

    name: str


@dataclass(frozen=True, slots=True)
class OptionalValue:
    """A value that may not be there: `object.?metadata.?labels`, `optional.of(1)`."""

    held: tuple[Any, ...] = ()


def type_name(value: Any) -> str:
    """The name of a value's type."""
    for kind, name in _NAMES.items():
        if isinstance(value, kind):
            return name
    return type(value).__name__


_NAMES: Final[Mapping[type, str]] = {
    bool: "bool",
    UintType: "uint",
    int: "int",
    float: "double",
    BytesType: "bytes",
    str: "string",
    list: "list",
    dict: "map",
    type(None): "null_type",
    TimestampType: "google.protobuf.Timestamp",
    DurationType: "google.protobuf.Duration",
    OptionalValue: "optional_type",
    CelType: "type",
}


def same(left: Any, right: Any) -> bool:
    """`==`: numbers of different types compare, everything else only with its own type."""
    if left is right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, OptionalValue) and isinstance(right, OptionalValue):
        return same(list(left.held), list(right.held))
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    alike = type(left) is type(right) or (numbers and not isinstance(left, bool) and not isinstance(right, bool))
    return alike and bool(left == right)


def holds(item: Any, container: Any) -> bool:
    """`in`: an element of a list, or a key of a map. Errors: TypeError."""
    if isinstance(container, dict):
        return item in container
    if isinstance(container, list):
        return any(same(item, it) for it in container)
    raise TypeError(container)


def comparison(ordered: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """An order: of numbers, strings, booleans, timestamps or durations. Errors: TypeError."""

    def compared(left: Any, right: Any) -> bool:
        for kind in (bool, str, TimestampType, DurationType, BytesType, int | float):
            if isinstance(left, kind) or isinstance(right, kind):
                if isinstance(left, kind) and isinstance(right, kind):
                    return bool(ordered(left, right))
                break
        raise TypeError(left)

    return compared


def arithmetic(computed: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operation on numbers of one type, and by `+` on strings and lists. Errors: TypeError, ValueError."""

    def result(left: Any, right: Any) -> Any:
        for joined in _JOINED if computed is operator.add else ():
            if isinstance(left, joined) and isinstance(right, joined):
                return _joined(left, right)
        if isinstance(left, TimestampType | DurationType):
            return computed(left, right)
        for kind, bounded in _NUMBERS.items():
            if _is(kind, left) and _is(kind, right):
                return number(computed(bounded(left), bounded(right)))
        raise TypeError(left)

    return result


def _joined(left: Any, right: Any) -> Any:
    if len(left) + len(right) > _SIZE_MOST:
        raise CelError("operation cancelled: actual cost limit exceeded")
    return left + right


_JOINED: Final[tuple[type, ...]] = (str, list, BytesType)
_NUMBERS: Final[Mapping[type, Callable[[Any], Any]]] = {UintType: UintType, int: IntType, float: DoubleType}


def _is(kind: type, value: Any) -> bool:
    """Whether a value is a number of that very type: cel-python's unsigned integers are Python's, too."""
    if isinstance(value, bool):
        return False
    return isinstance(value, kind) and (kind is UintType or not isinstance(value, UintType))


def number(value: Any) -> Any:
    """A number of cel-python as a plain one, where there is one."""
    if isinstance(value, UintType):
        return value
    return float(value) if isinstance(value, float) else int(value)


def negative(value: Any) -> Any:
    """`-`. Errors: TypeError, ValueError."""
    if _is(float, value):
        return -value
    if _is(int, value):
        return -value if value == 2**63 else int(-IntType(value))
    raise TypeError(value)


def item(held: Any, at: Any) -> Any:
    """`[]`: an element of a list, or the value of a key. Errors: CelError, TypeError."""
    if isinstance(held, dict):
        try:
            return held[at]
        except KeyError:
            raise CelError(f"no such key: {at}") from None
    if not isinstance(held, list) or isinstance(at, bool) or not isinstance(at, int):
        raise TypeError(held)
    if not 0 <= at < len(held):
        raise CelError(f"index out of bounds: {at}")
    return held[at]
