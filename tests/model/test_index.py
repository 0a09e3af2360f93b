"""What is remembered is what would be found again."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.index import (
    MOST_LOGGED,
    Index,
    LoggedTable,
    TableChanges,
    derived,
    derived_each,
    differing,
    followed,
    followed_each,
)


def test_the_same_values_are_asked_once() -> None:
    index = Index()
    asked: list[Mapping[str, int]] = []

    @derived()
    def total(_index: Index, values: Mapping[str, int]) -> int:
        asked.append(values)
        return sum(values.values())

    values = {"a": 1}
    assert (total(index, values), total(index, values), total(index, {"a": 1})) == (1, 1, 1)
    assert len(asked) == 2  # equal is not the same: only identity is cheap to compare


def test_only_the_last_few_are_kept() -> None:
    index = Index()
    asked: list[object] = []

    @derived(2)
    def found(_index: Index, value: object) -> int:
        asked.append(value)
        return len(asked)

    one, two, three = object(), object(), object()
    assert [found(index, it) for it in (one, two, one, three, two, one)] == [1, 2, 1, 3, 2, 4]


def test_an_identity_is_not_taken_over_by_another_value() -> None:
    index = Index()

    @derived(2)
    def copy(_index: Index, value: list[int]) -> list[int]:
        return list(value)

    for number in range(1000):  # each list is freed before the next one is made, unless it is kept
        assert copy(index, [number]) == [number]


def test_a_steady_result_is_the_same_object_while_it_is_equal() -> None:
    index = Index()

    @derived(1, steady=True)
    def even(_index: Index, values: tuple[int, ...]) -> list[int]:
        return [value for value in values if value % 2 == 0]

    first = even(index, (1, 2))
    assert even(index, (2, 3)) is first
    assert even(index, (4,)) == [4]


def test_a_failure_is_not_remembered() -> None:
    index = Index()
    asked: list[int] = []

    @derived()
    def fails(_index: Index, value: object) -> None:
        asked.append(1)
        raise ValueError(value)

    value = object()
    for _ in range(2):
        with pytest.raises(ValueError, match="object"):
            fails(index, value)
    assert len(asked) == 2


def test_arguments_go_by_position() -> None:
    index = Index()

    @derived()
    def same(_index: Index, value: int) -> int:
        return value

    with pytest.raises(TypeError, match="position"):
        same(index, value=1)


@pytest.mark.parametrize("count", range(5))
def test_a_view_takes_as_many_values_as_its_function(count: int) -> None:
    index, values = Index(), [object() for _ in range(count)]

    @derived()
    def gathered(_index: Index, *held: object) -> list[object]:
        return list(held)

    found = gathered(index, *values)
    assert found == values
    assert gathered(index, *values) is found


def test_a_view_of_two_values_tells_them_apart() -> None:
    index, one, other = Index(), object(), object()

    @derived()
    def paired(_index: Index, first: object, second: object) -> tuple[object, object]:
        return first, second

    assert paired(index, one, other) == (one, other)
    assert paired(index, other, one) == (other, one)
    assert paired(index, one, other) is paired(index, one, other)


def test_each_key_is_worked_out_anew_for_another_value_or_context_only() -> None:
    index = Index()
    asked: list[tuple[object, object]] = []

    @derived_each
    def found(context: object, value: object) -> int:
        asked.append((context, value))
        return len(asked)

    one, two, here, there = object(), object(), object(), object()
    assert (found(index, here, {"a": one, "b": two}, "a"), found(index, here, {"a": one}, "a")) == (1, 1)
    assert (found(index, here, {"a": one, "b": two}, "b"), found(index, here, {"a": one, "b": one}, "b")) == (2, 3)
    assert (
        found(index, there, {"a": one}, "a"),
        found(index, there, {"a": one}, "a"),
        found(index, here, {"a": one}, "a"),
    ) == (4, 4, 5)
    with pytest.raises(KeyError):
        found(index, here, {}, "a")


def test_keys_that_are_gone_are_forgotten() -> None:
    index = Index()
    asked: list[object] = []

    @derived_each
    def found(_context: object, value: object) -> int:
        asked.append(value)
        return len(asked)

    context, values = object(), {str(n): object() for n in range(10)}
    assert [found(index, context, values, key) for key in values] == list(range(1, 11))
    few = {key: values[key] for key in "01234"}
    assert found(index, context, few | {"x": 0}, "x") == 11  # eleven are kept, and six are there
    assert found(index, context, values, "9") == 10
    assert found(index, context, {"y": 1}, "y") == 12
    assert [found(index, context, values, key) for key in "09"] == [13, 14], "only what was there is kept"


def test_two_engines_share_nothing() -> None:
    asked: list[object] = []

    @derived()
    def found(_index: Index, value: object) -> int:
        asked.append(value)
        return len(asked)

    value, one, another = object(), Index(), Index()
    assert (found(one, value), found(another, value), found(one, value)) == (1, 2, 1)


tables = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), max_size=6)


@given(st.lists(tables, min_size=1, max_size=6))
def test_what_follows_a_table_is_what_would_be_found_anew(history: list[dict[str, int]]) -> None:
    @followed(dict[int, tuple[str, ...]])
    def keys_of(before: dict[int, tuple[str, ...]], changes: TableChanges[int]) -> dict[int, tuple[str, ...]]:
        found = dict(before)
        for key, value in changes.gone():
            found[value] = tuple(it for it in found[value] if it != key)
        for key, value in changes.came():
            found[value] = tuple(sorted((*found.get(value, ()), key)))
        return {value: keys for value, keys in found.items() if keys}

    index, shown = Index(), []
    for table in history:
        found = keys_of(index, table)
        assert found == keys_of(Index(), table)
        assert keys_of(index, table) is found
        shown.append((found, dict(found)))
    assert all(found == as_it_was for found, as_it_was in shown)  # nobody changes what was handed out


@given(st.lists(st.tuples(tables, tables, st.sampled_from("xy")), min_size=1, max_size=6))
def test_what_follows_the_keys_of_tables_is_what_would_be_found_anew(
    history: list[tuple[dict[str, int], dict[str, int], str]],
) -> None:
    @followed_each(2)
    def pairs(one: int, other: int | None, context: str) -> tuple[int, int | None, str] | None:
        return None if one == other else (one, other, context)

    index, shown = Index(), []
    for one, other, context in history:
        found = pairs(index, one, other, context)
        asked = {key: (one[key], other.get(key), context) for key in sorted(one) if one[key] != other.get(key)}
        assert list(found.items()) == list(asked.items())
        assert pairs(index, one, other, context) is found
        shown.append((found, dict(found)))
    assert all(found == as_it_was for found, as_it_was in shown)  # nobody changes what was handed out


def test_only_keys_that_changed_are_looked_at_and_what_comes_to_the_same_is_the_same_object() -> None:
    index, asked = Index(), []

    @followed_each()
    def is_odd(value: int) -> bool | None:
        asked.append(value)
        return value % 2 == 1 or None

    table = {"a": 1, "b": 2, "c": 3}
    before = is_odd(index, table)
    asked.clear()
    assert is_odd(index, table | {"b": 4}) is before
    assert is_odd(index, table | {"b": 5}) == {"a": True, "b": True, "c": True}
    assert asked == [4, 5]


@given(tables, tables)
def test_what_differs_is_another_object_or_gone(before: dict[str, int], now: dict[str, int]) -> None:
    expected = {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
    assert sorted(differing(before, now)) == sorted(expected)


def test_another_context_makes_everything_new() -> None:
    index, seen = Index(), []

    @followed(list[str])
    def named(before: list[str], changes: TableChanges[int], prefix: object) -> list[str]:
        seen.append(list(changes.keys))
        return [*before, *changes.keys]

    one, other, table = object(), object(), {"a": 1, "b": 2}
    assert named(index, table, one) == ["a", "b"]
    assert named(index, table | {"c": 3}, one) == ["a", "b", "c"]
    assert named(index, table, other) == ["a", "b"]
    assert seen == [["a", "b"], ["c"], ["a", "b"]]


def test_what_is_handed_on_is_taken_once() -> None:
    index, work = Index(), [1]
    index.hand_on("use", work)
    assert index.take("use") is work
    assert index.take("use") is None


_WRITES = st.lists(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([None, 1, 2]), max_size=3), max_size=8)


@given(_WRITES, st.data())
def test_a_table_tells_what_was_written_since_an_earlier_one(
    writes: list[dict[str, int | None]], data: st.DataObject
) -> None:
    """As comparing all keys does, and whichever two of a line, or of two lines, are compared."""
    line: list[Mapping[str, int]] = [{"a": 1, "b": 1}]
    for changes in writes:
        before = data.draw(st.sampled_from(line))
        line.append(LoggedTable.after(before, changes))
        expected = {**before, **{key: it for key, it in changes.items() if it is not None}}
        assert line[-1] == {key: it for key, it in expected.items() if changes.get(key, it) is not None}
    one, other = data.draw(st.sampled_from(line)), data.draw(st.sampled_from(line))
    assert sorted(differing(one, other)) == sorted(differing(dict(one), dict(other)))


def test_a_log_does_not_grow_without_end() -> None:
    table: Mapping[str, int] = {}
    for number in range(2 * MOST_LOGGED):
        table = LoggedTable.after(table, {"a": number})
    assert isinstance(table, LoggedTable)
    assert len(table.log) <= MOST_LOGGED
