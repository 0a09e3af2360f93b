"""Kubernetes quantities as exact numbers (apimachinery `pkg/api/resource/quantity.go`).

A quantity is `<signed decimal><suffix>`; the suffix is binary (Ki..Ei), decimal (n u m "" k M G T P E) or a decimal
exponent (e3, E-2). Nothing is ever rounded through a float.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from model.labels import GPU_EQUIVALENT, GPU_PARTS, GPU_RESOURCE, MIG_RESOURCE_PREFIX

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SYNTAX = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)

MAX_AMOUNT = 2**63 - 1
"""What a larger quantity counts as."""

CPU = "cpu"
"""Counted in thousandths; nearly every other resource is counted in whole units (bytes, devices, pods)."""

_PARTS = {CPU: 1000, GPU_EQUIVALENT: GPU_PARTS}

Resources = Mapping[str, int]
"""Resource name -> canonical integer amount: milli-CPU for `cpu`, 840ths for GPU-equivalents, whole units for all else.
"""


class InvalidQuantity(ValueError):
    """The text is not a Kubernetes quantity."""


def parse_quantity(value: str | float) -> Fraction:
    """The exact value of a quantity such as `"1500m"`, `"2Gi"`, `"1e3"`, `8` or `1.5`; raises `InvalidQuantity`.

    A float stands for the shortest decimal that it prints as, which is what a YAML or JSON file said.
    """
    if isinstance(value, bool):
        raise InvalidQuantity(f"{str(value).lower()} is a truth value, not a quantity")
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, float):
        value = repr(value)
    if not isinstance(value, str):
        raise InvalidQuantity(f"{value!r} is neither text nor a number")
    match = _SYNTAX.fullmatch(value) if len(value) <= 64 else None
    if match is None:
        raise InvalidQuantity(
            f"{value!r} is not a quantity; write a number with an optional suffix, such as 500m, 2, 64Gi or 1e3"
        )
    number, suffix, exponent = Fraction(match["number"]), match["suffix"] or "", match["exponent"]
    if exponent is not None:
        return number * _power(10, int(exponent))
    if suffix in _BINARY:
        return number * _power(1024, _BINARY[suffix])
    return number * _power(10, _DECIMAL[suffix])


def _power(base: int, exponent: int) -> Fraction:
    return Fraction(int(base**exponent)) if exponent >= 0 else Fraction(1, int(base**-exponent))


def canonical_amount(resource: str, value: str | float) -> int:
    """The integer amount of `resource`, rounded up and capped at 2^63-1 as in Kubernetes.

    Raises `InvalidQuantity` for what is no quantity and for what is negative.
    """
    exact = parse_quantity(value) * _PARTS.get(resource, 1)
    if exact < 0:
        raise InvalidQuantity(f"{value!r} is negative")
    return min(ceil(exact), MAX_AMOUNT)


def canonical_resources(amounts: Mapping[str, str | float]) -> dict[str, int]:
    """Canonical integer amounts of a resource list as it stands in YAML or JSON."""
    return {name: canonical_amount(name, value) for name, value in amounts.items()}


def format_amount(resource: str, amount: int) -> str:
    """The shortest exact quantity for a canonical amount: milli for `cpu`, binary suffixes for whole powers of 1024.

    GPU-equivalents are rounded to three places: a seventh has no exact one.
    """
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource == GPU_EQUIVALENT:
        return f"{amount / GPU_PARTS:.3f}".rstrip("0").rstrip(".")
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        for suffix, power in reversed(_BINARY.items()):
            if amount and amount % 1024**power == 0:
                return f"{amount // 1024**power}{suffix}"
    return str(amount)


def plus(left: Resources, right: Resources) -> dict[str, int]:
    """Returns the sum by resource, in order of their names."""
    return {name: left.get(name, 0) + right.get(name, 0) for name in sorted({*left, *right})}


def devices_in_sight(layout: str, offered: Mapping[str, int], used: Mapping[str, int]) -> dict[str, int]:
    """The GPUs and slices of a machine as people count them: of one cut on demand, its GPUs and the slices in use.

    Such a machine has no `layout` and offers whole GPUs beside every slice that they could be cut into: a long list,
    and in sum more than there is.
    """
    if layout or GPU_RESOURCE not in offered:
        return dict(offered)
    cut = {name: used[name] for name in offered if name.startswith(MIG_RESOURCE_PREFIX) and used.get(name)}
    return {name: it for name, it in offered.items() if not name.startswith(MIG_RESOURCE_PREFIX)} | cut
