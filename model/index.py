"""Views derived from immutable values, kept beside the values they were derived from.

An `Index` belongs to one engine: a fleet brings its own, and the snapshots of one engine hand theirs on from each to
the next. A view is looked up by the identity of the values it was derived from, which costs nothing however large they
are: as long as nothing in a mapping has changed it is the same object in the next snapshot, and so are all views of it.
The values are kept alive with the view, so that an identity is never taken over by another object. What a view returns
is shared: nobody changes it. Two threads that ask at once may derive a view twice, never a wrong one.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import update_wrapper, wraps
from inspect import Parameter, signature
from itertools import compress, islice, repeat
from operator import is_, is_not
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
V = TypeVar("V")
_BY_POSITION = (Parameter.POSITIONAL_OR_KEYWORD,)
_Kept = dict[object, tuple[tuple[object, ...], R]]
"""Identities of values -> the values and what was derived from them."""


class Index:
    """The views that one engine has derived so far, by the function that derives them."""

    __slots__ = ("_handed_on", "_kept")

    def __init__(self) -> None:
        self._kept: dict[object, dict[Any, Any]] = {}
        self._handed_on: dict[object, object] = {}

    def kept(self, view: object) -> dict[Any, Any]:
        """What is kept of one view; its decorator alone writes it."""
        found = self._kept.get(view)
        return self._kept.setdefault(view, {}) if found is None else found

    def hand_on(self, key: object, work: object) -> None:
        """Keeps a working state for whoever needs one next. Unlike a view it is changed by whom it is handed to."""
        self._handed_on[key] = work

    def take(self, key: object) -> object | None:
        """Returns what was handed on, and keeps it no more: of two that ask at once one gets it, the other None."""
        return self._handed_on.pop(key, None)


def derived(
    most: int = 4, *, steady: bool = False
) -> Callable[[Callable[Concatenate[Index, P], R]], Callable[Concatenate[Index, P], R]]:
    """Makes a view of a pure function of immutable values: results for the last `most` of them are kept in the index.

    The function gets the index as well, to ask other views; it is not part of what is compared. `steady`: a result that
    equals the one before is that very object, so that views of it stay good in turn. TypeError for keyword arguments:
    the order is part of what is compared.
    """

    def decorate(function: Callable[Concatenate[Index, P], R]) -> Callable[Concatenate[Index, P], R]:
        """Returns the view; one of a single value or of two looks it up in less time."""

        def anew(index: Index, kept: _Kept[R], key: object, *values: P.args, **named: P.kwargs) -> R:
            """Works a result out, and keeps it in place of the oldest. TypeError for keyword arguments."""
            if named:
                raise TypeError(f"{function.__name__} takes its arguments by position")
            result = function(index, *values, **named)
            if steady:
                result = next((old for _, old in list(kept.values())[-1:] if old == result), result)
            kept[key] = (values, result)
            if len(kept) > most:
                for oldest in list(islice(kept, len(kept) - most)):
                    kept.pop(oldest, None)
            return result

        # Asked a hundred times and more a turn: to take one value or two by name costs half of what a list does.
        def of_one(index: Index, value: Any, /, **named: Any) -> R:
            kept: _Kept[R] = index._kept.get(view) or index.kept(view)  # noqa: SLF001
            held = kept.get(key := id(value))
            return held[1] if held is not None and not named else anew(index, kept, key, value, **named)

        def of_two(index: Index, one: Any, other: Any, /, **named: Any) -> R:
            kept: _Kept[R] = index._kept.get(view) or index.kept(view)  # noqa: SLF001
            held = kept.get(key := (id(one), id(other)))
            return held[1] if held is not None and not named else anew(index, kept, key, one, other, **named)

        def of_many(index: Index, /, *values: P.args, **named: P.kwargs) -> R:
            kept: _Kept[R] = index._kept.get(view) or index.kept(view)  # noqa: SLF001
            held = kept.get(key := tuple(map(id, values)))
            return held[1] if held is not None and not named else anew(index, kept, key, *values, **named)

        kinds = tuple(it.kind for it in signature(function).parameters.values())
        fixed: dict[object, Callable[..., R]] = {_BY_POSITION * 2: of_one, _BY_POSITION * 3: of_two}
        view: Callable[Concatenate[Index, P], R] = fixed.get(kinds, of_many)
        update_wrapper(view, function)
        return view

    return decorate


def derived_each(function: Callable[[C, V], R]) -> Callable[[Index, C, Mapping[str, V], str], R]:
    """Makes of a pure function of a context and a value a view that looks the value up by its key.

    For every key the result for the context and value it last had is kept, however many there are: what changes here
    and there is worked out anew there only. Keys that are gone are forgotten when they are as many as those that are
    there. KeyError for a key without a value.
    """

    @wraps(function)
    def view(index: Index, context: C, values: Mapping[str, V], key: str) -> R:
        """Returns what is kept of the key; asks anew where context or value is another object."""
        kept: dict[str, tuple[C, V, R]] = index.kept(view)
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

    return view


def _differing(index: Index, before: Mapping[str, object], now: Mapping[str, object]) -> Sequence[str]:
    """Returns what `differing` does; many views ask it of the same two tables."""
    kept: dict[Any, Any] = index.kept(_differing)
    if (held := kept.get(pair := (id(before), id(now)))) is None:
        if len(kept) >= _MOST_PAIRS:
            for oldest in list(islice(kept, 1)):
                kept.pop(oldest, None)
        held = kept[pair] = before, now, differing(before, now)
    found: Sequence[str] = held[2]
    return found


_MOST_PAIRS = 16
"""Pairs of tables of which it is kept how they differ."""


class TableChanges(NamedTuple, Generic[V]):
    """`TableChanges` are a table as it was and as it is, and the keys under which another object is found, or none."""

    before: Mapping[str, V]
    now: Mapping[str, V]
    keys: Sequence[str]

    def gone(self) -> list[tuple[str, V]]:
        """Returns what is there no more, by key, or is another object now."""
        return [(key, self.before[key]) for key in self.keys if key in self.before]

    def came(self) -> list[tuple[str, V]]:
        """Returns what is there now, by key, and was not, or was another object."""
        return [(key, self.now[key]) for key in self.keys if key in self.now]


MOST_LOGGED = 4096
"""Keys in a log: then a line of tables begins anew, and what follows it looks at all keys once."""


class LoggedTable(dict[str, V]):
    """A table that knows which keys were written since an earlier one of its line. Like other tables nobody changes it.

    `log` has the keys that were written, in order, and is shared by all tables of a line; `written`: how many of them
    are in this one.
    """

    __slots__ = ("log", "written")

    def __init__(self, objects: Mapping[str, V] | Iterable[tuple[str, V]], log: list[str]) -> None:
        super().__init__(objects)
        self.log = log
        self.written = len(log)

    @classmethod
    def after(cls, before: Mapping[str, V], changes: Mapping[str, V | None]) -> "LoggedTable[V]":
        """Returns the table that comes after another of its line, with these changes; None removes a key."""
        newest = isinstance(before, LoggedTable) and before.written == len(before.log) < MOST_LOGGED
        log: list[str] = before.log if newest else []  # type: ignore[attr-defined]
        log.extend(changes)
        found = cls(before, log)
        for key, value in changes.items():
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        return found

    def written_since(self, before: Mapping[str, object]) -> set[str] | None:
        """Returns the keys that were written since an earlier table; None where it is no earlier one of the line."""
        if not isinstance(before, LoggedTable) or before.log is not self.log or before.written > self.written:
            return None
        return set(self.log[before.written : self.written])


def differing(before: Mapping[str, object], now: Mapping[str, object]) -> Sequence[str]:
    """Returns the keys under which another object is found than before, or none any more: those that went come last."""
    if before is now:
        return ()
    written = now.written_since(before) if isinstance(now, LoggedTable) else None
    if written is not None:
        if len(written) > 1:
            changed = [key for key in sorted(written) if now.get(key) is not before.get(key)]
            gone = [key for key in changed if key not in now]
            return [key for key in changed if key in now] + gone if gone else changed
        return [key for key in written if now.get(key) is not before.get(key)]
    changed = list(compress(now, map(is_not, now.values(), map(before.get, now))))  # thousands of keys, often
    there = len(before) + len([key for key in changed if key not in before])
    return changed if there == len(now) else changed + sorted(before.keys() - now.keys())


def followed(
    empty: Callable[[], R],
) -> Callable[[Callable[Concatenate[R, TableChanges[V], P], R]], Callable[Concatenate[Index, Mapping[str, V], P], R]]:
    """Makes a view of a table that follows its changes: a function gets its last result and says what it is now.

    It has to return what it would for a table of which all keys are new, from what `empty` makes, and to leave its last
    result as it is. What else it gets is compared by identity: where that is another, everything is new.
    """

    def decorate(
        function: Callable[Concatenate[R, TableChanges[V], P], R],
    ) -> Callable[Concatenate[Index, Mapping[str, V], P], R]:
        """Returns the view, which keeps the last table only, with its context."""

        @wraps(function)
        def view(index: Index, table: Mapping[str, V], /, *context: P.args, **named: P.kwargs) -> R:
            """Returns what the function makes of the keys that differ. TypeError for keyword arguments."""
            if named:
                raise TypeError(f"{function.__name__} takes its arguments by position")
            kept = index._kept.get(view) or index.kept(view)  # noqa: SLF001
            held: tuple[Mapping[str, V], tuple[object, ...], R] | None = kept.get(0)
            if held is not None and (not context or all(map(is_, held[1], context))):
                if held[0] is table:
                    return held[2]
                old, before = held[0], held[2]
            else:
                old, before = {}, empty()
            changes = TableChanges(old, table, _differing(index, old, table))
            result = function(before, changes, *context, **named) if changes.keys else before
            kept[0] = table, context, result
            return result

        return view

    return decorate


def followed_each(tables: int = 1) -> Callable[[Callable[..., R | None]], Callable[..., Mapping[str, R]]]:
    """Makes of a pure function of what `tables` have under one key a view: key -> what it returns, without None.

    The view takes the index, the tables, and the context, which is compared by identity; the function gets the values
    in the same order, None where another than the first table has none. Keys are those of the first table, sorted.
    Only keys under which some table has another object are looked at anew; where all of them come to the same as
    before, the result is that very mapping, so that views of it stay good in turn.
    """

    def decorate(function: Callable[..., R | None]) -> Callable[..., Mapping[str, R]]:
        """Returns the view, which keeps the last tables only, with their context."""

        @wraps(function)
        def view(index: Index, /, *values: Any) -> Mapping[str, R]:
            """Returns the last result, brought up to date; all of it is made anew for another context."""
            kept: dict[Any, Any] = index._kept.get(view) or index.kept(view)  # noqa: SLF001
            held: tuple[tuple[Any, ...], dict[str, R]] | None = kept.get(0)
            if held is not None and all(map(is_, held[0], values)):
                return held[1]
            now, context = values[:tables], values[tables:]
            if held is None or (context and not all(map(is_, held[0][tables:], context))):
                keys = sorted(now[0])  # thousands, often
                found = dict(_present(zip(keys, _of_all(function, keys, now, context), strict=True)))
            else:
                news = news_of_one if tables == 1 else news_of_several
                found = _brought_up_to_date(held[1], news(index, held, now, context))
            kept[0] = values, found
            return found

        def news_of_one(
            index: Index, held: tuple[Any, dict[str, R]], now: Sequence[Any], context: Sequence[object]
        ) -> dict[str, R | None]:
            news: dict[str, R | None] = {}  # not `dict[...]()`: to make the type takes longer than the rest of it
            get, before = now[0].get, held[1].get
            for key in _differing(index, held[0][0], now[0]):
                result = None if (value := get(key)) is None else function(value, *context)
                if before(key) != result:
                    news[key] = result
            return news

        def news_of_several(
            index: Index, held: tuple[Any, dict[str, R]], now: Sequence[Any], context: Sequence[object]
        ) -> dict[str, R | None]:
            news: dict[str, R | None] = {}
            before, (first, *others) = held[1].get, now
            for key in {key for old, new in zip(held[0], now, strict=False) for key in _differing(index, old, new)}:
                there = key in first
                result = function(first[key], *[it.get(key) for it in others], *context) if there else None
                if before(key) != result:
                    news[key] = result
            return news

        return view

    return decorate


def _of_all(
    function: Callable[..., R | None], keys: Sequence[str], tables: Sequence[Any], context: Sequence[object]
) -> Iterator[R | None]:
    return map(function, *(map(table.get, keys) for table in tables), *map(repeat, context))


def _present(found: Iterable[tuple[str, R | None]]) -> Iterator[tuple[str, R]]:
    return ((key, value) for key, value in found if value is not None)


def _brought_up_to_date(before: dict[str, R], news: Mapping[str, R | None]) -> dict[str, R]:
    """Returns what was found with these changes, in order of the keys; `before` itself where nothing is another."""
    if not news:
        return before
    found = LoggedTable.after(before, news)
    came = [key for key in news if key not in before]
    if not came or (len(came) == 1 and before and came[0] > next(reversed(before))):
        return found  # in order as it is
    keys = [key for key in before if key in found] if len(news) > len(came) else list(before)
    for key in came:
        insort(keys, key)
    return LoggedTable(zip(keys, map(found.__getitem__, keys), strict=True), found.log)
