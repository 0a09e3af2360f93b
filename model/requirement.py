"""`Requirement`: the set of values one label may have.

The set is finite or the complement of a finite set, optionally bounded to integers. Semantics are Karpenter's
(`pkg/scheduling/requirement.go`, v1.14).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

from model.kinds.base import RequirementTerm

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_MAX_INT = 2**63 - 1
_MIN_INT = -(2**63)
_BOUND_STEPS = {"Gt": 1, "Gte": 0, "Lt": -1, "Lte": 0}
_EMPTY: frozenset[str] = frozenset()


class InvalidRequirement(ValueError):
    """A requirement term whose operator and values do not go together."""


@lru_cache(maxsize=4096)
def _integer(text: str) -> int | None:
    """`text` as Go's `strconv.Atoi` reads it, None where that fails."""
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if _MIN_INT <= value <= _MAX_INT else None


@dataclass(frozen=True, slots=True)
class Requirement:
    """A set of label values: `values` or, with `complement`, everything but `values` within the integer bounds."""

    values: frozenset[str] = _EMPTY
    complement: bool = False
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None
    """At least this many distinct values must remain possible when a machine is chosen."""

    ANY: ClassVar["Requirement"]
    NONE: ClassVar["Requirement"]

    @classmethod
    def one_of(cls, *values: str) -> Self:
        """`In values`."""
        return cls(frozenset(values))

    @classmethod
    def of(cls, operator: str, values: Iterable[str] = (), min_values: int | None = None) -> Self:
        """The set that `operator` (In, NotIn, Exists, DoesNotExist, Gt, Gte, Lt, Lte) and `values` describe.

        Raises `InvalidRequirement` when the number or form of the values does not fit the operator.
        """
        given = frozenset(values)
        if operator in {"In", "NotIn"}:
            if not given:
                raise InvalidRequirement(f"{operator} needs at least one value")
            return cls(given, complement=operator == "NotIn", min_values=min_values)
        if operator in {"Exists", "DoesNotExist"}:
            if given:
                raise InvalidRequirement(f"{operator} takes no values")
            return cls(complement=operator == "Exists", min_values=min_values)
        return cls._bounded(operator, given, min_values)

    @classmethod
    def _bounded(cls, operator: str, given: frozenset[str], min_values: int | None) -> Self:
        if operator not in _BOUND_STEPS:
            raise InvalidRequirement(f"unknown operator {operator!r}")
        number = _integer(next(iter(given))) if len(given) == 1 else None
        if number is None:
            raise InvalidRequirement(f"{operator} needs exactly one integer")
        bound = number + _BOUND_STEPS[operator]
        if not _MIN_INT <= bound <= _MAX_INT:
            return cls(min_values=min_values)
        if operator in {"Gt", "Gte"}:
            return cls(complement=True, gte=bound, min_values=min_values)
        return cls(complement=True, lte=bound, min_values=min_values)

    @property
    def operator(self) -> str:
        """In, NotIn, Exists or DoesNotExist; bounds count as Exists."""
        if self.complement:
            return "NotIn" if self.values else "Exists"
        return "In" if self.values else "DoesNotExist"

    @property
    def is_empty(self) -> bool:
        """Whether no value is allowed (DoesNotExist)."""
        return not self.complement and not self.values

    @property
    def allows_absent(self) -> bool:
        """Whether an object without the label satisfies it (NotIn and DoesNotExist, as in Kubernetes)."""
        return self.complement == bool(self.values)

    @property
    def only(self) -> str | None:
        """The single allowed value, None when there are several or none."""
        return next(iter(self.values)) if not self.complement and len(self.values) == 1 else None

    def within(self, value: str) -> bool:
        """Whether `value` is inside the bounds; with bounds, only integers are (leaving `values` aside)."""
        if self.gte is None and self.lte is None:
            return True
        number = _integer(value)
        if number is None or (self.gte is not None and number < self.gte):
            return False
        return self.lte is None or number <= self.lte

    def has(self, value: str) -> bool:
        """Whether `value` is allowed."""
        return (value in self.values) != self.complement and self.within(value)

    def __and__(self, other: "Requirement") -> "Requirement":
        """The values both allow; `minValues` is the larger of the two."""
        if self is other or self == other:
            return self
        min_values = _largest(self.min_values, other.min_values)
        gte, lte = _largest(self.gte, other.gte), _smallest(self.lte, other.lte)
        if gte is not None and lte is not None and gte > lte:
            return Requirement(min_values=min_values)
        complement = self.complement and other.complement
        bounded = Requirement(_combine(self, other), complement, gte, lte, min_values)
        if gte is None and lte is None:
            return bounded
        kept = frozenset(value for value in bounded.values if bounded.within(value))
        return replace(bounded, values=kept) if complement else Requirement(kept, min_values=min_values)

    def overlaps(self, other: "Requirement") -> bool:
        """Whether some value is allowed by both; the cheap form of `not (self & other).is_empty`."""
        if self.complement and other.complement:
            gte, lte = _largest(self.gte, other.gte), _smallest(self.lte, other.lte)
            return gte is None or lte is None or gte <= lte
        finite, filter_ = (other, self) if self.complement else (self, other)
        return any(finite.within(value) and filter_.has(value) for value in finite.values)

    def satisfiable_with(self, incoming: "Requirement") -> bool:
        """Whether the two can meet: some common value, or both accept the label's absence."""
        return self.overlaps(incoming) or (self.allows_absent and incoming.allows_absent)

    def terms(self, key: str) -> tuple[RequirementTerm, ...]:
        """The terms that mean this set, in a fixed order: values first, then bounds."""
        out: list[tuple[str, tuple[str, ...]]] = []
        if self.values or (self.gte is None and self.lte is None):
            out.append((self.operator, tuple(sorted(self.values))))
        if self.gte is not None:
            out.append(("Gte", (str(self.gte),)))
        if self.lte is not None:
            out.append(("Lte", (str(self.lte),)))
        return tuple(
            RequirementTerm.model_validate(
                {"key": key, "operator": operator, "values": values, "min_values": self.min_values}
            )
            for operator, values in out
        )

    def __str__(self) -> str:
        values = sorted(self.values)
        shown = [*values[:5], f"and {len(values) - 5} others"] if len(values) > 5 else values
        parts = []
        if values or (self.gte is None and self.lte is None):
            parts.append(f"{self.operator} [{', '.join(shown)}]" if values else self.operator)
        parts += [f">= {self.gte}"] if self.gte is not None else []
        parts += [f"<= {self.lte}"] if self.lte is not None else []
        return " ".join(parts)


Requirement.ANY = Requirement(complement=True)
Requirement.NONE = Requirement()


def _largest(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return max(left, right)


def _smallest(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def _combine(left: Requirement, right: Requirement) -> frozenset[str]:
    """Excluded values of two complements, else the finite values both sides list or do not exclude."""
    if left.complement:
        return left.values | right.values if right.complement else right.values - left.values
    return left.values - right.values if right.complement else left.values & right.values
