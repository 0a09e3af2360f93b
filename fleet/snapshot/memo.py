"""Remembering what a pure function found for the values it was last given.

Values are compared by identity, which costs nothing however large they are: a snapshot's mappings, a fleet, a catalogue
stay the same objects as long as nothing in them has changed. The arguments are kept alive with the result, so that an
identity is never taken over by another object. What is returned is shared: callers do not change it.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from itertools import islice
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
V = TypeVar("V")


def remembered(most: int = 4, *, steady: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a pure function of immutable values: results for the last `most` of them are kept.

    `steady`: a result equal to the one before is that very object, so that what is kept of it in turn stays good.
    TypeError for keyword arguments: the order is part of what is compared.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        kept: dict[tuple[int, ...], tuple[tuple[object, ...], R]] = {}

        @wraps(function)
        def recall(*values: P.args, **named: P.kwargs) -> R:
            if named:
                raise TypeError(f"{function.__name__} takes its arguments by position")
            key = tuple(map(id, values))
            held = kept.get(key)
            if held is not None:
                return held[1]
            result = function(*values, **named)
            if steady:
                result = next((old for _, old in list(kept.values())[-1:] if old == result), result)
            kept[key] = (values, result)
            for oldest in list(islice(kept, max(0, len(kept) - most))):
                kept.pop(oldest, None)
            return result

        return recall

    return decorate


def remembered_each(function: Callable[[C, V], R]) -> Callable[[C, Mapping[str, V], str], R]:
    """Makes of a pure function of a context and a value one that looks the value up by its key.

    For every key the result for the context and value it last had is kept, however many there are: what changes here
    and there is worked out anew there only. Keys that are gone are forgotten when they are as many as those that are
    there. KeyError for a key without a value.
    """
    kept: dict[str, tuple[C, V, R]] = {}

    @wraps(function)
    def recall(context: C, values: Mapping[str, V], key: str) -> R:
        value = values[key]
        held = kept.get(key)
        if held is not None and held[0] is context and held[1] is value:
            return held[2]
        result = function(context, value)
        kept[key] = (context, value, result)
        if len(kept) > 2 * len(values):
            for gone in list(kept):
                if gone not in values:
                    kept.pop(gone, None)
        return result

    return recall
