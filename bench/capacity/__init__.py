"""What to buy and what to give back: against what the real Karpenter paid, and on drawn pods.

`python -m bench.capacity [GROUP...]` prints a line of JSON for each group of entries.
"""

from importlib import import_module

GROUPS = ("saving", "purchases", "repack", "consolidation", "passes", "lists")
"""Modules here with `run() -> dict[str, float]` and the `SEEDS` they draw from."""


def run() -> dict[str, float]:
    """All groups, each number with its group's name before it."""
    return {f"{group}.{name}": value for group in GROUPS for name, value in measured(group).items()}


def measured(group: str) -> dict[str, float]:
    """The numbers of one group."""
    numbers: dict[str, float] = import_module(f"{__name__}.{group}").run()
    return numbers


def seeds(group: str) -> list[int]:
    """What the group's pods are drawn from."""
    return list(import_module(f"{__name__}.{group}").SEEDS)
