"""Which pods of a gang start together or not at all, by Volcano's minima."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.snapshot.core_sizes import Minimum, core_sizes

Roles = list[tuple[int, int | None]]


@pytest.mark.parametrize(
    ("roles", "together", "expected"),
    [
        ([], 3, []),
        ([(4, None)], None, [None]),
        ([(4, None)], 4, [None]),
        ([(4, None)], 9, [None]),
        ([(4, None)], 3, [3]),
        ([(4, None)], 0, [1]),
        ([(4, 0), (2, 0)], None, [1, 0]),
        ([(4, 2)], None, [2]),
        ([(1, 1), (4, 2)], 3, [None, 2]),
        ([(1, 1), (4, 2)], 4, [None, 3]),
        ([(2, None), (4, 3)], 4, [1, 3]),
        ([(2, None), (4, None)], 3, [None, 1]),
        ([(2, 0), (4, 4)], 5, [1, None]),
        ([(2, 2), (4, 4)], 3, [None, 1]),  # the minima ask for more than the whole: they do not count
        ([(2, 9)], 2, [None]),
    ],
)
def test_cores(roles: Roles, together: int | None, expected: list[int | None]) -> None:
    assert core_sizes([Minimum(*role) for role in roles], together) == expected


roles = st.lists(st.builds(Minimum, st.integers(0, 9), st.none() | st.integers(0, 9)), max_size=5)


@given(roles=roles, together=st.integers(0, 50))
def test_the_core_is_as_large_as_was_asked(roles: list[Minimum], together: int) -> None:
    found = [role.pods if core is None else core for role, core in zip(roles, core_sizes(roles, together), strict=True)]
    assert sum(found) == min(max(1, together), sum(role.pods for role in roles))
    minima = [min(role.pods, role.least or 0) for role in roles]
    if sum(minima) <= max(1, together):
        assert all(core >= least for core, least in zip(found, minima, strict=True))
