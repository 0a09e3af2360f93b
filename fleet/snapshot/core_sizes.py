"""Says how many pods of each role belong to the core of a gang, by the minima that jobs and PodGroups state."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fleet.snapshot.gangs import PodSet
from fleet.snapshot.sub_groups import RolePods, SubGroup, first_choice


class Minimum(NamedTuple):
    """A `Minimum` is the number of pods of a role, and the least of them that the gang needs; None = not stated."""

    pods: int
    least: int | None = None

    def needed(self, *, unsaid: int) -> int:
        """Returns the least number of pods, no more than there are; `unsaid` where the role states none."""
        return unsaid if self.least is None else min(self.pods, self.least)


def core_sizes(roles: Sequence[Minimum], together: int | None) -> list[int | None]:
    """Returns for each role how many of its pods belong to the core; None = all of them.

    `together` (`minAvailable`, `minMember`) is how many are needed in all; not said, it is the sum of the minima of
    roles, and of all pods of roles that say none. The minima of roles come first; what is still missing is taken from
    the roles in order. Minima that add up to more than `together` do not count. At least one pod is always needed.
    """
    if together is None:
        full = [role.needed(unsaid=role.pods) for role in roles]
        return _elastic(roles, full) if any(full) else core_sizes(roles, 1)
    together = max(1, together)
    minima = [role.needed(unsaid=0) for role in roles]
    core = minima if sum(minima) <= together else [0] * len(roles)
    missing = together - sum(core)
    for index, role in enumerate(roles):
        more = min(role.pods - core[index], missing)
        core[index] += more
        missing -= more
    return _elastic(roles, core)


def _elastic(roles: Sequence[Minimum], core: Sequence[int]) -> list[int | None]:
    return [None if most >= role.pods else most for role, most in zip(roles, core, strict=True)]


def choice_of(name: str, roles: Mapping[str, Minimum], together: int | None) -> SubGroup | None:
    """Returns the choice that unlike pods leave: any so many of them; None where there is none, or all are needed."""
    most = sum(role.pods for role in roles.values())
    if together is None or len(roles) < 2 or not 0 < together < most:
        return None
    minima = {key: role.needed(unsaid=0) for key, role in roles.items()}
    counts = sum(minima.values()) <= together
    found = [RolePods(key, role.pods, minima[key] if counts else 0) for key, role in roles.items()]
    return SubGroup(name, tuple(found), together)


def with_cores(pod_sets: Iterable[PodSet], choice: SubGroup) -> tuple[PodSet, ...]:
    """Returns the pod sets with the cores that are chosen if all pods could start."""
    first = first_choice(choice)
    return tuple(replace(pods, core=first.get(pods.name, 0)) for pods in pod_sets)
