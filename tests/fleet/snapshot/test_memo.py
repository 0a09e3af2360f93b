"""What is remembered is what would be found again."""

from collections.abc import Mapping

import pytest

from fleet.snapshot.memo import remembered, remembered_each


def test_the_same_values_are_asked_once() -> None:
    asked: list[Mapping[str, int]] = []

    @remembered()
    def total(values: Mapping[str, int]) -> int:
        asked.append(values)
        return sum(values.values())

    values = {"a": 1}
    assert (total(values), total(values), total({"a": 1})) == (1, 1, 1)
    assert len(asked) == 2  # equal is not the same: only identity is cheap to compare


def test_only_the_last_few_are_kept() -> None:
    asked: list[object] = []

    @remembered(2)
    def found(value: object) -> int:
        asked.append(value)
        return len(asked)

    one, two, three = object(), object(), object()
    assert [found(it) for it in (one, two, one, three, two, one)] == [1, 2, 1, 3, 2, 4]


def test_an_identity_is_not_taken_over_by_another_value() -> None:
    @remembered(2)
    def copy(value: list[int]) -> list[int]:
        return list(value)

    for number in range(1000):  # each list is freed before the next one is made, unless it is kept
        assert copy([number]) == [number]


def test_a_steady_result_is_the_same_object_while_it_is_equal() -> None:
    @remembered(1, steady=True)
    def even(values: tuple[int, ...]) -> list[int]:
        return [value for value in values if value % 2 == 0]

    first = even((1, 2))
    assert even((2, 3)) is first
    assert even((4,)) == [4]


def test_a_failure_is_not_remembered() -> None:
    asked: list[int] = []

    @remembered()
    def fails(value: object) -> None:
        asked.append(1)
        raise ValueError(value)

    value = object()
    for _ in range(2):
        with pytest.raises(ValueError, match="object"):
            fails(value)
    assert len(asked) == 2


def test_arguments_go_by_position() -> None:
    @remembered()
    def same(value: int) -> int:
        return value

    with pytest.raises(TypeError, match="position"):
        same(value=1)


def test_each_key_is_worked_out_anew_for_another_value_or_context_only() -> None:
    asked: list[tuple[object, object]] = []

    @remembered_each
    def found(context: object, value: object) -> int:
        asked.append((context, value))
        return len(asked)

    one, two, here, there = object(), object(), object(), object()
    assert (found(here, {"a": one, "b": two}, "a"), found(here, {"a": one}, "a")) == (1, 1)
    assert (found(here, {"a": one, "b": two}, "b"), found(here, {"a": one, "b": one}, "b")) == (2, 3)
    assert (found(there, {"a": one}, "a"), found(there, {"a": one}, "a"), found(here, {"a": one}, "a")) == (4, 4, 5)
    with pytest.raises(KeyError):
        found(here, {}, "a")


def test_keys_that_are_gone_are_forgotten() -> None:
    asked: list[object] = []

    @remembered_each
    def found(_context: object, value: object) -> int:
        asked.append(value)
        return len(asked)

    context, values = object(), {str(n): object() for n in range(10)}
    assert [found(context, values, key) for key in values] == list(range(1, 11))
    few = {key: values[key] for key in "01234"}
    assert found(context, few | {"x": 0}, "x") == 11  # eleven are kept, and six are there
    assert found(context, values, "9") == 10
    assert found(context, {"y": 1}, "y") == 12
    assert [found(context, values, key) for key in "09"] == [13, 14], "only what was there is kept"
