"""Chooses which pods of a gang start first where there is a choice: k of n sub-groups, any k of unlike pods.

Sources: KAI `subGroups` with `minSubGroup` (`pkg/scheduler/api/podgroup_info/subgroup_info`), Volcano `subGroupPolicy`
(`minSubGroups`, `subGroupSize`) and `minMember`. Both take sub-groups in order, one after the other, and so does this:
what is possible beside those chosen before is chosen. Finding the most by trying all combinations is nobody's rule.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

Counts = Mapping[str, int]
"""Pod set -> pods."""
Possible = Callable[[Counts], bool]
"""Whether so many pods could start together."""
NOTHING: Final[Counts] = {}


class RolePods(NamedTuple):
    """`RolePods` are the pods of one pod set in a sub-group, and how many of them it needs at least."""

    pod_set: str
    pods: int
    least: int = 0


@dataclass(frozen=True, slots=True)
class SubGroup:
    """A `SubGroup` starts whole or not at all: `least` of its parts, and `together` pods in all.

    A gang with a choice is a sub-group, too. Pods that the parts do not bring come from `roles`, their minima first.
    """

    name: str
    roles: tuple[RolePods, ...] = ()
    together: int = 0
    parts: tuple["SubGroup", ...] = ()
    least: int = 0

    def leaves(self) -> Iterator["SubGroup"]:
        """Yields the sub-groups that are made of pods."""
        for part in self.parts:
            yield from part.leaves()
        if not self.parts:
            yield self


def first_choice(group: SubGroup) -> Counts:
    """Returns the pods that start if all of them could; of a group that lacks pods, what there is."""
    found = chosen(group, lambda _counts: True)
    return {role.pod_set: role.pods for role in _roles(group)} if found is None else found


def filled(group: SubGroup, held: Counts) -> Mapping[str, tuple[float, ...]]:
    """Returns pod set -> how much of what it needs each sub-group above it has, from the gang's own down to its leaf.

    Of parts those count that are whole, of a leaf its pods.
    """
    if not group.parts:
        here = sum(held.get(role.pod_set, 0) for role in group.roles)
        return {role.pod_set: (here / max(1, group.together),) for role in group.roles}
    has = sum(_is_whole(part, held) for part in group.parts) / max(1, group.least)
    return {name: (has, *below) for part in group.parts for name, below in filled(part, held).items()}


def _is_whole(group: SubGroup, held: Counts) -> bool:
    if not group.parts:
        return sum(held.get(role.pod_set, 0) for role in group.roles) >= group.together
    return sum(_is_whole(part, held) for part in group.parts) >= group.least


def chosen(group: SubGroup, possible: Possible, before: Counts = NOTHING) -> Counts | None:
    """Returns `before` with the pods of the group that can start with them, the first in order; None if too few can."""
    found, whole, had = before, 0, sum(before.values())
    for number, part in enumerate(group.parts):
        if whole >= group.least and sum(found.values()) - had >= group.together:
            break
        if whole + len(group.parts) - number < group.least:
            return None
        if (more := chosen(part, possible, found)) is not None:
            found, whole = more, whole + 1
    return None if whole < group.least else _filled(group, possible, found, group.together + had)


def _filled(group: SubGroup, possible: Possible, found: Counts, total: int) -> Counts | None:
    """Returns the counts with pods of the group's own roles, so that they are `total`; None where too few can start."""
    least = {role.pod_set: max(found.get(role.pod_set, 0), role.least) for role in group.roles if role.least}
    if least and not possible(found := {**found, **least}):
        return None
    for name, pods, _ in group.roles:
        found = _with_more(name, min(pods - found.get(name, 0), total - sum(found.values())), found, possible)
    return found if sum(found.values()) >= total else None


def _with_more(name: str, wanted: int, found: Counts, possible: Possible) -> Counts:
    """Returns the counts with as many more pods of a set as are possible."""
    has = found.get(name, 0)
    more = _most(wanted, lambda number: possible({**found, name: has + number}))
    return {**found, name: has + more} if more else found


def _most(wanted: int, possible: Callable[[int], bool]) -> int:
    """Returns the largest number up to `wanted` that is possible, by bisection; 0 is."""
    low, high = 0, max(0, wanted)
    if not high or possible(high):
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if possible(middle) else (low, middle)
    return low


def _roles(group: SubGroup) -> Iterator[RolePods]:
    for leaf in group.leaves():
        yield from leaf.roles
    if group.parts:
        yield from group.roles
