"""Amounts as the cases write them."""

from collections.abc import Mapping

CANONICAL = {"cpu_m": "cpu", "memory_bytes": "memory"}


def amounts(given: Mapping[str, int]) -> dict[str, int]:
    """Resources in canonical amounts."""
    return {CANONICAL.get(name, name): amount for name, amount in given.items()}
