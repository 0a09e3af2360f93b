"""What is remembered is what would be found again."""

from collections.abc import Mapping

import pytest

from fleet.memo import remembered


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
