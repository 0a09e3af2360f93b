"""Values of CEL as Python holds them, and what operators make of them in the way of cel-go.

Integers, floats, strings, booleans, null, lists and maps are plain JSON; unsigned integers, bytes, timestamps and
durations are of cel-python's types. Lists of custom kinds that are sets, or maps by some of their fields, have types of
their own. Source: cel-spec `doc/langdef.md`, cel-go `common/types`, apiserver `pkg/cel/common/values.go`.
"""

import base64
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from celpy.celtypes import BytesType, DurationType, TimestampType, UintType

_MOST_DURATION_S: Final = 2**63 / 1e9


class CelError(RuntimeError):
    """An expression has no value for what it was asked of, in the words of the API server."""


class CostExceeded(Exception):
    """An evaluation costs more than it may; neither `||` nor `exists` goes on for all that."""


class CelBudget:
    """Counts what an evaluation may still cost: a step for each operation, and for ten signs or one element it reads.

    cel-go counts in the same units, of which the API server allows an expression a million (`PerCallLimit`).
    """

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, steps: int) -> None:
        """Errors: CostExceeded."""
        self.left -= steps
        if self.left < 0:
            raise CostExceeded


@dataclass(frozen=True, slots=True)
class CelType:
    """What `type(x)` gives, and what `int`, `string` and the like are by themselves."""

    name: str


@dataclass(frozen=True, slots=True)
class OptionalValue:
    """A value that may not be there: `object.?metadata.?labels`, `optional.of(1)`."""

    held: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class BoolKey:
    """The key of a map that is `true` or `false`, which in Python would be 1 or 0."""

    value: bool


class SetList(list[Any]):
    """A list with `x-kubernetes-list-type: set`: its order does not count, and `+` is a union."""

    __slots__ = ()


class MapList(list[Any]):
    """A list with `x-kubernetes-list-type: map`: its order does not count, and `+` replaces and appends."""

    __slots__ = ("keys",)

    def __init__(self, items: Iterable[Any], keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self.keys = keys

    def by_key(self, items: Iterable[Any]) -> dict[Any, Any]:
        """Items by the fields that are their key."""
        return {tuple(mark(it.get(key)) for key in self.keys) if isinstance(it, dict) else mark(it): it for it in items}


def key_of(value: Any) -> Any:
    """A value as the key of a map."""
    return BoolKey(value) if isinstance(value, bool) else value


def keys_of(held: Mapping[Any, Any]) -> list[Any]:
    """The keys of a map as values."""
    return [key.value if isinstance(key, BoolKey) else key for key in held]


def type_name(value: Any) -> str:
    """The name of a value's type."""
    for kind, name in _NAMES.items():
        if isinstance(value, kind):
            return name
    return str(getattr(value, "cel_type", type(value).__name__))


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


def size_of(value: Any, most: int) -> int:
    """What it costs to read a value whole: a step for each part, and for ten signs; what is beyond `most` is left."""
    cost, waiting = 0, [value]
    while waiting and cost <= most:
        it = waiting.pop()
        cost += 1
        if isinstance(it, str | BytesType):
            cost += len(it) // 10
        elif isinstance(it, list):
            cost += max(0, len(it) - most)
            waiting += it[:most]
        elif isinstance(it, dict):
            waiting += it.values()
    return cost


def same(left: Any, right: Any) -> bool:
    """`==`: numbers of different types compare, everything else only with its own type; NaN equals nothing."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and _same_items(left, right)
    if isinstance(left, OptionalValue) and isinstance(right, OptionalValue):
        return same(list(left.held), list(right.held))
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    alike = type(left) is type(right) or (numbers and not isinstance(left, bool) and not isinstance(right, bool))
    return alike and bool(left == right)


def _same_items(left: list[Any], right: list[Any]) -> bool:
    if isinstance(left, SetList):
        return set(map(mark, left)) == set(map(mark, right))
    if isinstance(left, MapList):
        ours, theirs = left.by_key(left), left.by_key(right)
        return ours.keys() == theirs.keys() and all(same(it, theirs[key]) for key, it in ours.items())
    return all(map(same, left, right))


def mark(value: Any) -> Any:
    """Something hashable that two values share exactly if they are the same."""
    for kinds, name, marked in _MARKS:
        if isinstance(value, kinds):
            return name, marked(value)
    return type(value), value


_MARKS: Final[tuple[tuple[Any, str, Callable[[Any], Any]], ...]] = (
    (bool, "bool", lambda it: it),
    (int | float, "number", lambda it: object() if it != it else it),  # noqa: PLR0124 - NaN is no other NaN
    (SetList | MapList, "set", lambda it: frozenset(map(mark, it))),
    (list, "list", lambda it: tuple(map(mark, it))),
    (dict, "map", lambda it: frozenset((key, mark(below)) for key, below in it.items())),
    (OptionalValue, "optional", lambda it: tuple(map(mark, it.held))),
)
"""Types -> name and content of the mark of a value."""


def holds(item: Any, container: Any) -> bool:
    """`in`: an element of a list, or a key of a map. Errors: TypeError."""
    if isinstance(container, dict):
        return key_of(item) in container
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


# -- arithmetic -------------------------------------------------------------------------------------------------------


def int64(value: int) -> int:
    """An integer that has 64 bits. Errors: CelError."""
    if not -(2**63) <= value < 2**63:
        raise CelError("integer overflow")
    return value


def uint64(value: int) -> Any:
    """An unsigned integer that has 64 bits. Errors: CelError."""
    if not 0 <= value < 2**64:
        raise CelError("unsigned integer overflow")
    return UintType(value)


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise CelError("division by zero")
    found = abs(left) // abs(right)
    return found if (left < 0) is (right < 0) else -found


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise CelError("modulus by zero")
    int64(_quotient(left, right))
    found = abs(left) % abs(right)
    return -found if left < 0 else found


def _ratio(left: float, right: float) -> float:
    if right:
        return left / right
    return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1.0, right)


_WHOLE: Final[Mapping[Any, Callable[[int, int], int]]] = {
    operator.add: operator.add,
    operator.sub: operator.sub,
    operator.mul: operator.mul,
    operator.truediv: _quotient,
    operator.mod: _remainder,
}
_DOUBLE: Final[Mapping[Any, Callable[[float, float], float]]] = {
    operator.add: operator.add,
    operator.sub: operator.sub,
    operator.mul: operator.mul,
    operator.truediv: _ratio,
}


def arithmetic(computed: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operation on numbers of one type, on times, and by `+` on strings and lists. Errors: CelError, TypeError."""

    def result(left: Any, right: Any) -> Any:
        """What comes of two operands. CelError beyond what its type holds, TypeError for types that do not match."""
        if _is(int, left) and _is(int, right):
            return int64(_WHOLE[computed](left, right))
        if isinstance(left, UintType) and isinstance(right, UintType):
            return uint64(_WHOLE[computed](int(left), int(right)))
        if isinstance(left, float) and isinstance(right, float) and computed in _DOUBLE:
            return _DOUBLE[computed](left, right)
        if isinstance(left, TimestampType | DurationType) and computed in (operator.add, operator.sub):
            return time_of(computed(left, right))
        if computed is operator.add:
            return _joined(left, right)
        raise TypeError(left)

    return result


def _joined(left: Any, right: Any) -> Any:
    if isinstance(left, list) and isinstance(right, list):
        return _added(left, right)
    if not any(isinstance(left, kind) and isinstance(right, kind) for kind in (str, BytesType)):
        raise TypeError(left)
    return left + right


def _added(left: list[Any], right: list[Any]) -> list[Any]:
    if isinstance(left, SetList):
        held = {mark(it): it for it in left}
        return SetList([*left, *{at: it for it in right if (at := mark(it)) not in held}.values()])
    if isinstance(left, MapList):
        return MapList({**left.by_key(left), **left.by_key(right)}.values(), left.keys)
    return [*left, *right]


def time_of(value: Any) -> Any:
    """A time or duration of Python's as one of CEL. Errors: CelError."""
    if isinstance(value, timedelta):
        if not -_MOST_DURATION_S < value.total_seconds() < _MOST_DURATION_S:
            raise CelError("integer overflow")
        return value if isinstance(value, DurationType) else DurationType(value)
    return TimestampType(value) if isinstance(value, datetime) and not isinstance(value, TimestampType) else value


def time_text(value: Any) -> str:
    """A timestamp as RFC 3339 has it, a duration in seconds."""
    if isinstance(value, TimestampType):
        return str(value)
    micros = value // timedelta(microseconds=1)
    sign, (whole, part) = "-" if micros < 0 else "", divmod(abs(micros), 10**6)
    return f"{sign}{whole}{f'.{part:06}'.rstrip('0') if part else ''}s"


def _is(kind: type, value: Any) -> bool:
    """Whether a value is a number of that very type: cel-python's unsigned integers are Python's, too."""
    return isinstance(value, kind) and not isinstance(value, bool | UintType)


def number(value: Any) -> Any:
    """A number of cel-python as a plain one, where there is one."""
    if isinstance(value, UintType):
        return value
    return float(value) if isinstance(value, float) else int(value)


def negative(value: Any) -> Any:
    """`-`. Errors: CelError, TypeError."""
    if isinstance(value, float):
        return -value
    if _is(int, value):
        return int64(-value)
    raise TypeError(value)


def item(held: Any, at: Any) -> Any:
    """`[]`: an element of a list, or the value of a key. Errors: CelError, TypeError."""
    if isinstance(held, dict):
        try:
            return held[key_of(at)]
        except KeyError:
            raise CelError(f"no such key: {at}") from None
    if not isinstance(held, list) or isinstance(at, bool) or not isinstance(at, int | float) or at != int(at):
        raise TypeError(held)
    if not 0 <= at < len(held):
        raise CelError(f"index out of bounds: {at}")
    return held[int(at)]


def selected_field(held: Any, field: str) -> Any:
    """`a.b`. Errors: CelError."""
    if isinstance(held, dict):
        if field in held:
            return held[field]
        if (escaped := unescaped(field)) in held:
            return held[escaped]
        raise CelError(f"no such key: {field}")
    if isinstance(held, OptionalValue):
        return perhaps(held, field)
    raise CelError("no such overload")


def at_index(held: Any, at: Any) -> Any:
    """`a[b]`. Errors: CelError, TypeError."""
    return perhaps(held, at) if isinstance(held, OptionalValue) else item(held, at)


def perhaps(held: Any, at: Any) -> OptionalValue:
    """A field or an element, if there. Errors: CelError, TypeError."""
    if isinstance(held, OptionalValue):
        return perhaps(held.held[0], at) if held.held else held
    if isinstance(held, dict):
        at = key_of(at)
        at = at if at in held or not isinstance(at, str) else unescaped(at)
        return OptionalValue((held[at],)) if at in held else OptionalValue()
    if isinstance(held, list) and isinstance(at, int):
        return OptionalValue((held[at],)) if 0 <= at < len(held) else OptionalValue()
    raise CelError("no such overload")


def unescaped(field: str) -> str:
    """A field that CEL could not name otherwise (`x__dash__y`). Source: apiserver `pkg/cel/escaping.go`."""
    if "__" not in field:
        return field
    if field.startswith("__") and field.endswith("__") and field[2:-2].isalpha():
        return field[2:-2]
    for escape, sign in (("__dot__", "."), ("__dash__", "-"), ("__slash__", "/"), ("__underscores__", "__")):
        field = field.replace(escape, sign)
    return field


def as_json(value: Any) -> Any:
    """A value as it is written into an object. Errors: CelError, where there is no such JSON."""
    if isinstance(value, dict):
        return {_as_name(key): as_json(it) for key, it in value.items()}
    if isinstance(value, list):
        return [as_json(it) for it in value]
    if isinstance(value, BytesType):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, TimestampType | DurationType):
        return time_text(value)
    if value is None or isinstance(value, bool | int | float | str):
        if isinstance(value, float) and not math.isfinite(value):
            raise CelError(f"unsupported JSON value: {value}")
        return int(value) if isinstance(value, UintType) else value
    raise CelError(f"type conversion error from '{type_name(value)}' to 'google.protobuf.Value'")


def _as_name(key: Any) -> str:
    if isinstance(key, BoolKey):
        return "true" if key.value else "false"
    return str(key)
