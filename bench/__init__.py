"""Numbers: each module here measures one thing in its `run() -> dict[str, float]`; `python -m bench` runs them all."""

from pkgutil import iter_modules

HELPERS = frozenset({"__main__", "cluster", "farm", "packing", "production", "published", "reference", "streams"})
"""Modules that measure nothing."""


def names() -> list[str]:
    """The benchmarks, sorted."""
    return sorted(module.name for module in iter_modules(__path__) if module.name not in HELPERS)
