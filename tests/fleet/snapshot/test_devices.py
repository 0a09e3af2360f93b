"""What of a device a claim takes: amounts are rounded up to what its policy allows."""

from fractions import Fraction

import pytest

from fleet.snapshot.devices import ConsumableCapacity, Device

G = "gpu.nvidia.com"


def numbers(*values: float) -> tuple[Fraction, ...]:
    return tuple(map(Fraction, values))


ALL = ConsumableCapacity(Fraction(10))
BY_DEFAULT = ConsumableCapacity(*numbers(10, 3))
VALUES = ConsumableCapacity(*numbers(10, 1), numbers(1, 4, 12))
RANGE = ConsumableCapacity(Fraction(10), Fraction(0), (), *numbers(2, 8))
STEPS = ConsumableCapacity(Fraction(10), Fraction(2), (), *numbers(2, 9, 3))
HALVES = ConsumableCapacity(Fraction(10), None, (), Fraction(1), None, Fraction(1, 2))


@pytest.mark.parametrize(
    ("capacity", "asked", "taken"),
    [
        *((ALL, None, 10), (ALL, 4, 4), (ALL, 10, 10), (ALL, 11, None)),
        *((BY_DEFAULT, None, 3), (BY_DEFAULT, 4, 4), (BY_DEFAULT, 0, 0)),
        *((VALUES, None, 1), (VALUES, 0, 1), (VALUES, 1, 1), (VALUES, 2, 4), (VALUES, 5, None), (VALUES, 13, None)),
        *((RANGE, None, 0), (RANGE, 1, 2), (RANGE, 3, 3), (RANGE, 8, 8), (RANGE, 9, None)),
        *((STEPS, None, 2), (STEPS, 1, 2), (STEPS, 2, 2), (STEPS, 3, 5), (STEPS, 8, 8), (STEPS, 9, None)),
        *((HALVES, None, 10), (HALVES, 1.25, 1.5), (HALVES, 9.75, 10), (HALVES, 10.25, None)),
    ],
)
def test_what_is_taken_of_a_capacity(capacity: ConsumableCapacity, asked: float | None, taken: float | None) -> None:
    assert capacity.taken(None if asked is None else Fraction(asked)) == taken


WHOLE = Device(G, "n", "gpu-0", {}, {f"{G}/memory": 10})
SHARED = Device(G, "n", "gpu-0", parts={f"{G}/memory": RANGE, f"{G}/x": ALL})


@pytest.mark.parametrize(
    ("device", "asked", "taken"),
    [
        (WHOLE, {}, {}),
        (WHOLE, {"memory": 10}, {}),
        (WHOLE, {"memory": 11}, None),
        (WHOLE, {"shares": 0}, None),
        (SHARED, {}, {f"{G}/memory": 0, f"{G}/x": 10}),
        (SHARED, {"memory": 1, "x": 2}, {f"{G}/memory": 2, f"{G}/x": 2}),
        (SHARED, {"memory": 9}, None),
        (SHARED, {"d/memory": 1}, None),
    ],
)
def test_what_is_taken_of_a_device(device: Device, asked: dict[str, int], taken: dict[str, int] | None) -> None:
    assert device.taken_by((name, Fraction(amount)) for name, amount in asked.items()) == taken
