"""Errors of the kinds that know more than pydantic does: a place further down, or what to do instead."""

from pydantic_core import PydanticCustomError

Path = tuple[str | int, ...]
"""YAML keys and indexes, from the value that a validator looks at."""


def misplaced(below: Path, reason: str) -> PydanticCustomError:
    """A broken rule of a whole part, shown at `below` of it."""
    return PydanticCustomError("below", "{reason}", {"below": below, "reason": reason})


def unsupported(below: Path, reason: str, advice: str) -> PydanticCustomError:
    """Something upstream allows and we have no behaviour for, at `below`; `advice` says what to write instead."""
    return PydanticCustomError("unsupported", "{reason}", {"below": below, "reason": reason, "advice": advice})
