"""The core of a gang by Volcano's minima: which pods start together or not at all.

Source: volcano `pkg/scheduler/api/job_info.go` (task minima count only as far as the whole asks for that many).
"""

from collections.abc import Sequence
from typing import NamedTuple


class Minimum(NamedTuple):
    """A role's pods, and how many of them the gang needs at least; None = not said."""

    pods: int
    least: int | None = None


def cores(roles: Sequence[Minimum], together: int | None) -> list[int | None]:
    """For each role how many of its pods belong to the core; None = all of them.

    `together` (`minAvailable`, `minMember`) is how many are needed in all; not said, it is the sum of the minima of
    roles, and of all pods of roles that say none. The minima of roles come first; what is still missing is taken from
    the roles in order. Minima that add up to more than `together` do not count. One pod is needed whatever is said.
    """
    said = [min(role.pods, role.least) if role.least is not None else None for role in roles]
    if together is None:
        full = [role.pods if least is None else least for role, least in zip(roles, said, strict=True)]
        return _elastic(roles, full) if any(full) else cores(roles, 1)
    together = max(1, together)
    minima = [least or 0 for least in said]
    core = minima if sum(minima) <= together else [0] * len(roles)
    missing = together - sum(core)
    for index, role in enumerate(roles):
        more = min(role.pods - core[index], missing)
        core[index] += more
        missing -= more
    return _elastic(roles, core)


def _elastic(roles: Sequence[Minimum], core: Sequence[int]) -> list[int | None]:
    return [None if most >= role.pods else most for role, most in zip(roles, core, strict=True)]
