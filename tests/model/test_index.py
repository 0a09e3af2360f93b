"""What is remembered is what would be found again."""

from collections.abc import Mapping

import pytest

from model.index import Index, derived, derived_each


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
