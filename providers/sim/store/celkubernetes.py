"""Quantities and versions as values of CEL, and what Kubernetes' own libraries make of them.

Source: apiserver `pkg/cel/library/quantity.go`, `semverlib.go`.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from model.quantity import InvalidQuantity, parse_quantity

_SEMVER: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)


class SemanticVersion:
    """A version (semver.org) as a value of CEL."""

    cel_type: Final = "kubernetes.Semver"

    def __init__(self, text: str) -> None:
        found = _SEMVER.fullmatch(text)
        if found is None:
            raise ValueError(f"No Major.Minor.Patch elements found in {text!r}")
        self.numbers = tuple(int(found[n]) for n in (1, 2, 3))
        parts = found[4].split(".") if found[4] else None
        # A release goes after all its candidates; of these numbers go before words.
        self.order = (self.numbers, parts is None, [(not p.isdecimal(), p.zfill(20)) for p in parts or ()])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SemanticVersion) and self.order == other.order

    def __hash__(self) -> int:
        return hash((self.numbers, self.order[1]))


class QuantityValue:
    """A quantity as a value of CEL."""

    cel_type: Final = "kubernetes.Quantity"

    def __init__(self, text: str | float) -> None:
        try:
            self.order = parse_quantity(text)
        except InvalidQuantity as error:
            raise ValueError(f"{text!r} is no quantity") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuantityValue) and self.order == other.order

    def __hash__(self) -> int:
        return hash(self.order)


def _compared(a: Any, b: Any) -> int:
    if type(a) is not type(b):
        raise TypeError("no such overload")
    return int(a.order > b.order) - int(a.order < b.order)


def _whole(value: QuantityValue) -> int:
    if value.order.denominator != 1:
        raise ValueError("cannot convert value to integer")
    return value.order.numerator


def _sum(a: QuantityValue, b: Any, sign: int) -> QuantityValue:
    more = b.order if isinstance(b, QuantityValue) else Fraction(int(b))
    found = QuantityValue(0)
    found.order = a.order + sign * more
    return found


KUBERNETES_VALUES: Final[Mapping[str, Callable[..., Any]]] = {
    "compareTo": _compared,
    "isGreaterThan": lambda a, b: _compared(a, b) > 0,
    "isLessThan": lambda a, b: _compared(a, b) < 0,
    "sign": lambda a: int(a.order > 0) - int(a.order < 0),
    "isInteger": lambda a: a.order.denominator == 1,
    "asInteger": _whole,
    "asApproximateFloat": lambda a: float(a.order),
    "add": lambda a, b: _sum(a, b, 1),
    "sub": lambda a, b: _sum(a, b, -1),
    "major": lambda a: a.numbers[0],
    "minor": lambda a: a.numbers[1],
    "patch": lambda a: a.numbers[2],
    "semver": lambda text: SemanticVersion(str(text)),
    "isSemver": lambda text: _SEMVER.fullmatch(str(text)) is not None,
    "quantity": lambda text: QuantityValue(str(text)),
    "isQuantity": lambda text: _is_quantity(str(text)),
}
"""Name -> what computes a function, or a method, of Kubernetes' own libraries."""


def _is_quantity(text: str) -> bool:
    try:
        QuantityValue(text)
    except ValueError:
        return False
    return True
