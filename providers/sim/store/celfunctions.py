"""The functions of CEL that expressions in Kubernetes may call, as a table; `UNSUPPORTED` are refused by name.

Standard ones and conversions (cel-spec), and of Kubernetes' libraries: strings, lists, sets, regular expressions,
quantities, versions, optionals and the keys of JSON patches. Source: apiserver `pkg/cel/environment/base.go`,
`pkg/cel/library`, cel-go `ext/strings.go`.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import re2  # type: ignore[import-untyped]
from celpy.celtypes import BytesType, DurationType, IntType, TimestampType, UintType
from celpy.evaluation import base_functions

from providers.sim.store.celkubernetes import KUBERNETES_VALUES
from providers.sim.store.celvalues import (
    CelError,
    CelType,
    OptionalValue,
    arithmetic,
    comparison,
    int64,
    mark,
    number,
    same,
    size_of,
    time_of,
    time_text,
    type_name,
    uint64,
)

Function = Callable[..., Any]


def _size(value: Any) -> int:
    if not isinstance(value, str | list | dict | BytesType):
        raise TypeError(value)
    return len(value)


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, BytesType):
        return bytes(value).decode()
    if isinstance(value, TimestampType | DurationType):
        return time_text(value)
    if not isinstance(value, str | int):
        raise TypeError(value)
    return str(int(value)) if isinstance(value, int) else value


def _float_text(value: float) -> str:
    """As Go formats it (`strconv.FormatFloat` with `g` and as few digits as tell it)."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    found = Decimal(repr(value)).normalize()
    exponent = found.adjusted() if found else 0
    if -4 <= exponent < _PLAIN_BELOW:
        return f"{found:f}"
    mantissa = f"{found.scaleb(-exponent):f}"
    return f"{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


_PLAIN_BELOW: Final = 6


def _int(value: Any) -> int:
    if isinstance(value, TimestampType):
        return int64(int(IntType(value)))
    return int64(_whole(value, math.nextafter(-(2.0**63), 0), _SIGNED))


def _uint(value: Any) -> Any:
    return uint64(_whole(value, 0.0, _UNSIGNED))


def _whole(value: Any, least: float, form: re.Pattern[str]) -> int:
    if isinstance(value, float):
        if not least <= value < 2.0**64:
            raise CelError("integer overflow")
        return int(value)
    if isinstance(value, str) and not form.fullmatch(value):
        raise CelError(f"type conversion error: invalid literal '{value[:64]}'")
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(value)
    return int(value)


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(value)
    if isinstance(value, str) and not _FLOAT.fullmatch(value):
        raise CelError(f"type conversion error: invalid literal '{value[:64]}'")
    found = float(value)
    if isinstance(value, str) and math.isinf(found) and "i" not in value.lower():
        raise CelError("type conversion error: value out of range")
    return found


_SIGNED: Final = re.compile(r"[+-]?[0-9]{1,64}")
_UNSIGNED: Final = re.compile(r"[0-9]{1,64}")
_FLOAT: Final = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)", re.IGNORECASE)


def _timestamp(value: Any) -> Any:
    if isinstance(value, TimestampType):
        return value
    if isinstance(value, int) and not isinstance(value, bool | UintType):
        return TimestampType(datetime.fromtimestamp(value, UTC))
    return TimestampType(value)


def _duration(value: Any) -> Any:
    return value if isinstance(value, DurationType) else time_of(DurationType(value))


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if value in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise TypeError(value)


def _texts(function: Function) -> Function:
    """A function of strings, and of nothing else."""

    def called(*arguments: Any) -> Any:
        if not isinstance(arguments[0], str) or not all(isinstance(it, str | int) for it in arguments[1:]):
            raise TypeError(arguments)
        return function(*arguments)

    return called


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if not separator:
        letters = list(text)
        return letters if most < 0 or most >= len(letters) else [*letters[: most - 1], "".join(letters[most - 1 :])]
    return text.split(separator, most - 1 if most > 0 else -1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= end <= len(text):
        raise CelError(f"index out of range: {start if not 0 <= start <= len(text) else end}")
    return text[start:end]


def _char_at(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise CelError(f"index out of range: {at}")
    return text[at : at + 1]


def _index_of(held: Any, wanted: Any, start: int = 0) -> int:
    if isinstance(held, str):
        return held.find(wanted, start)
    return next((at for at, it in enumerate(held) if same(it, wanted)), -1)


def _last_index_of(held: Any, wanted: Any, end: int | None = None) -> int:
    if isinstance(held, str):
        return held.rfind(wanted) if end is None else held.rfind(wanted, 0, end + len(wanted))
    return next((at for at in reversed(range(len(held))) if same(held[at], wanted)), -1)


def _listed(function: Function) -> Function:
    def called(items: Any, *rest: Any) -> Any:
        if not isinstance(items, list):
            raise TypeError(items)
        return function(items, *rest)

    return called


_ADDED: Final = arithmetic(operator.add)
_LESS: Final = comparison(lambda a, b: a < b)


def _chosen(items: list[Any], better: Callable[[Any, Any], bool], name: str) -> Any:
    if not items:
        raise CelError(f"{name} called on empty list")
    found = items[0]
    for it in items[1:]:
        found = it if better(it, found) else found
    return found


def _sum(items: list[Any]) -> Any:
    total: Any = items[0] if items else 0
    if isinstance(total, bool) or not isinstance(total, int | float | DurationType):
        raise TypeError(total)
    for it in items[1:]:
        total = _ADDED(total, it)
    return total


def _matches(text: str, pattern: str) -> bool:
    return _pattern(pattern).search(text) is not None


def _pattern(pattern: str) -> Any:
    try:
        return re2.compile(pattern)
    except re2.error as error:
        raise CelError(f"error parsing regexp: {error}") from error


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    found = [it.group() for it in _pattern(pattern).finditer(text)]
    return found if most < 0 else found[:most]


def _find(text: str, pattern: str) -> str:
    return next(iter(_find_all(text, pattern, 1)), "")


def _or_value(held: OptionalValue, other: Any) -> Any:
    return held.held[0] if held.held else other


def _of_optional(held: OptionalValue) -> Any:
    if not held.held:
        raise CelError("optional.none() dereference")
    return held.held[0]


def _time(name: str) -> Function:
    """A part of a timestamp or duration, computed by cel-python."""
    return lambda value, *zone: number(base_functions[name](value, *zone))


def _any_of(**by_type: Function) -> Function:
    def called(held: Any, *rest: Any) -> Any:
        return by_type["text" if isinstance(held, str) else "items"](held, *rest)

    return called


def _sets(decided: Callable[[set[Any], set[Any]], bool]) -> Function:
    def called(items: Any, other: Any) -> bool:
        if not isinstance(items, list) or not isinstance(other, list):
            raise TypeError(items)
        return decided(set(map(mark, items)), set(map(mark, other)))

    return called


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    return text.replace(old, new, most)


def _join(items: list[Any], separator: str = "") -> str:
    return separator.join(items)


_PARTS: Final = (
    *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"),
    *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
)
_BOTH: Final[Mapping[str, Function]] = {"size": _size, "matches": _texts(_matches)}

FUNCTIONS: Final[Mapping[str, Function]] = {
    **_BOTH,
    "bool": _bool,
    "bytes": lambda text: BytesType(text.encode()),
    "double": _double,
    "duration": _duration,
    "dyn": lambda value: value,
    "int": _int,
    "isQuantity": KUBERNETES_VALUES["isQuantity"],
    "isSemver": KUBERNETES_VALUES["isSemver"],
    "quantity": KUBERNETES_VALUES["quantity"],
    "semver": KUBERNETES_VALUES["semver"],
    "string": _string,
    "timestamp": _timestamp,
    "type": lambda value: CelType(type_name(value)),
    "uint": _uint,
}
"""Name -> what computes a function."""

METHODS: Final[Mapping[str, Function]] = {
    **_BOTH,
    **{name: KUBERNETES_VALUES[name] for name in ("compareTo", "isGreaterThan", "isLessThan", "sign", "isInteger")},
    **{name: KUBERNETES_VALUES[name] for name in ("asInteger", "asApproximateFloat", "add", "sub")},
    **{name: KUBERNETES_VALUES[name] for name in ("major", "minor", "patch")},
    **{name: _time(name) for name in _PARTS},
    "charAt": _texts(_char_at),
    "contains": _texts(lambda text, part: part in text),
    "endsWith": _texts(lambda text, end: text.endswith(end)),
    "find": _texts(_find),
    "findAll": _texts(_find_all),
    "hasValue": lambda held: bool(held.held),
    "indexOf": _any_of(text=_texts(_index_of), items=_listed(_index_of)),
    "isSorted": _listed(lambda items: not any(_LESS(b, a) for a, b in pairwise(items))),
    "join": _listed(_join),
    "lastIndexOf": _any_of(text=_texts(_last_index_of), items=_listed(_last_index_of)),
    "lowerAscii": _texts(lambda text: "".join(it.lower() if it.isascii() else it for it in text)),
    "max": _listed(lambda items: _chosen(items, lambda a, b: _LESS(b, a), "max")),
    "min": _listed(lambda items: _chosen(items, _LESS, "min")),
    "or": lambda held, other: held if held.held else other,
    "orValue": _or_value,
    "replace": _texts(_replace),
    "split": _texts(_split),
    "startsWith": _texts(lambda text, start: text.startswith(start)),
    "substring": _texts(_substring),
    "sum": _listed(_sum),
    "trim": _texts(lambda text: text.strip()),
    "upperAscii": _texts(lambda text: "".join(it.upper() if it.isascii() else it for it in text)),
    "value": _of_optional,
}
"""Name -> what computes a method; its first argument is what it is called on."""

NAMESPACED: Final[Mapping[str, Mapping[str, Function]]] = {
    "jsonpatch": {"escapeKey": _texts(lambda key: key.replace("~", "~0").replace("/", "~1"))},
    "optional": {
        "of": lambda value: OptionalValue((value,)),
        "none": OptionalValue,
        "ofNonZeroValue": lambda value: OptionalValue((value,)) if value else OptionalValue(),
    },
    "sets": {
        "contains": _sets(lambda items, part: part <= items),
        "equivalent": _sets(lambda a, b: a == b),
        "intersects": _sets(lambda a, b: bool(a & b)),
    },
}
"""Library -> name -> what computes a function that is called as `library.name(...)`."""


def _length_replaced(most: int, text: Any, old: Any, new: Any, times: int = -1) -> int:
    """What the result is long, which may be much more than what is read."""
    count: int = text.count(old)
    return size_of(text, most) + (count if times < 0 else min(times, count)) * len(new) // 10


COSTS: Final[Mapping[Function, Callable[..., int]]] = {
    METHODS["replace"]: _length_replaced,
    METHODS["join"]: lambda most, items, separator="": size_of(items, most) + len(items) * len(separator) // 10,
    METHODS["matches"]: lambda most, text, pattern: size_of(text, most) * (len(pattern) // 4 + 1),
    METHODS["find"]: lambda most, text, pattern: size_of(text, most) * (len(pattern) // 4 + 1),
    METHODS["findAll"]: lambda most, text, pattern, *_: size_of(text, most) * (len(pattern) // 4 + 1),
    **{it: lambda most, a, b: size_of(a, most) * len(b) + size_of(b, most) for it in NAMESPACED["sets"].values()},
    **dict.fromkeys((_size, METHODS["orValue"], METHODS["or"], METHODS["value"], METHODS["hasValue"]), lambda *_: 1),
    **dict.fromkeys((FUNCTIONS["dyn"], FUNCTIONS["type"], *NAMESPACED["optional"].values()), lambda *_: 1),
}
"""Function -> what it costs, of at `most` that many steps; others cost what reading their arguments does."""

UNSUPPORTED: Final = frozenset(
    {
        "authorizer",
        "params",
        "format",
        "url",
        "isURL",
        "ip",
        "isIP",
        "cidr",
        "isCIDR",
        "isCanonical",
        "quote",
        "cel",
        "bind",
    }
    | {
        "math",
        "base64",
        "transformList",
        "transformMap",
        "transformMapEntry",
        "optMap",
        "optFlatMap",
        "named",
        "unwrap",
    }
)
"""What Kubernetes knows and is not known here."""
