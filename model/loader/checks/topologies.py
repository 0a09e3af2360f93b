"""Topologies whose order of levels cannot be one of containment."""

from collections.abc import Iterator

from model.labels import HOSTNAME, REGION, ZONE
from model.loader.declarations import Declarations
from model.problem import Code, Problem

_COARSE_TO_FINE = (REGION, ZONE, HOSTNAME)


def misordered_levels(declarations: Declarations) -> Iterator[Problem]:
    """A host is in a zone and a zone in a region, never the other way; below a host there is nothing."""
    for topology in declarations.topologies.values():
        levels = topology.value.spec.levels
        finest_so_far = ""
        for index, level in enumerate(levels):
            path = ("spec", "levels", index)
            if level == HOSTNAME and index != len(levels) - 1:
                yield topology.problem(path, f"{level!r} must be the last level", Code.INVALID_VALUE)
            elif level in _COARSE_TO_FINE[:-1]:
                if finest_so_far and _COARSE_TO_FINE.index(level) < _COARSE_TO_FINE.index(finest_so_far):
                    message = f"{level!r} must stand before {finest_so_far!r}, which lies within it"
                    yield topology.problem(path, message, Code.INVALID_VALUE)
                finest_so_far = level
