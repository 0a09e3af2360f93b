"""A search descends from the domains chosen to the lowest ones, taking as few as possible on the way.

Source of the rules: Kueue, topology-aware scheduling (`pkg/cache/scheduler/tas_flavor_snapshot.go`), phase 2b.
"""

from dataclasses import dataclass

import numpy as np

from fleet.placement.topology.choose import TopologyProfile, by_room, fewest, leader_first, tightest
from fleet.placement.topology.counts import LevelCounts
from fleet.placement.topology.domains import AssignmentParameters, DomainTree, IntArray

NOBODY = -1


@dataclass(frozen=True, slots=True)
class DomainShares:
    """Shares say how many pods, perhaps none, domains of a level get; `leader` takes the leader, or is `NOBODY`."""

    domains: IntArray
    pods: IntArray
    leader: int = NOBODY


def fill(
    levels: list[LevelCounts], level: int, ordered: IntArray, params: AssignmentParameters, profile: TopologyProfile
) -> DomainShares | None:
    """All pods, in slices, over the domains of a level in this order; None when they do not hold them."""
    counts, size = levels[level], params.slicing.size
    room, led = counts.slices[ordered], counts.led_slices[ordered]
    return _in_units(_share(counts, ordered, room, led, params.slices, params.leaders, profile), size)


def descend(
    tree: DomainTree,
    levels: list[LevelCounts],
    level: int,
    shares: DomainShares,
    params: AssignmentParameters,
    profile: TopologyProfile,
    *,
    pooled: bool = True,
) -> DomainShares | None:
    """The shares of the lowest level, from those of a level above; None when somewhere the pods do not fit.

    Down to the level of the slices the children of all domains are one pool (`pooled`): what each parent was given
    only said which children to look at. From there on every domain shares out what it was given.
    """
    while pooled and level < min(params.slicing.level, tree.lowest):
        pool = tree.children_of_all(level, shares.domains)
        level += 1
        found = fill(levels, level, by_room(levels[level], pool, profile), params, profile)
        if found is None:
            return None
        shares = found
    while level < tree.lowest:
        found = _each(tree, levels, level, shares, params, profile)
        if found is None:
            return None
        shares, level = found, level + 1
    return shares


def _each(
    tree: DomainTree,
    levels: list[LevelCounts],
    level: int,
    shares: DomainShares,
    params: AssignmentParameters,
    profile: TopologyProfile,
) -> DomainShares | None:
    """One level down, every domain for itself: in slices above their level, then in inner slices or single pods."""
    counts, inner = levels[level + 1], params.slicing.inner
    size = params.slicing.size if level < params.slicing.level else max(1, inner[level + 1] if inner else 1)
    domains, pods, leader = [], [], NOBODY
    for parent, count in zip(shares.domains.tolist(), shares.pods.tolist(), strict=True):
        leaders = int(parent == shares.leader)
        if not count and not leaders:
            continue
        ordered = by_room(counts, tree.children(level, parent), profile)
        room, led = counts.pods[ordered] // size, counts.led_pods[ordered] // size
        found = _in_units(_share(counts, ordered, room, led, count // size, leaders, profile), size)
        if found is None:
            return None
        domains.append(found.domains)
        pods.append(found.pods)
        leader = max(leader, found.leader)
    if not domains:
        return DomainShares(np.zeros(0, np.int64), np.zeros(0, np.int64))
    return DomainShares(np.concatenate(domains), np.concatenate(pods), leader)


def _in_units(shares: DomainShares | None, size: int) -> DomainShares | None:
    return shares if shares is None or size == 1 else DomainShares(shares.domains, shares.pods * size, shares.leader)


def _share(
    counts: LevelCounts,
    ordered: IntArray,
    room: IntArray,
    led: IntArray,
    needed: int,
    leaders: int,
    profile: TopologyProfile,
) -> DomainShares | None:
    """`needed` units, counted by `room` (with the leader: `led`), one value a position of `ordered`."""
    if not leaders:
        found = fewest(counts, ordered, room, needed, profile, idle=False)
        return None if found is None else DomainShares(*found)
    front = leader_first(counts, ordered, room, led, needed)
    ordered, room, led = ordered[front], room[front], led[front]
    leads = counts.leads[ordered] > 0
    taken: list[tuple[int, int]] = []
    for position, domain in enumerate(ordered.tolist()):
        if leads[position] and led[position] >= needed:
            closing = _closing(counts, ordered[position:], led[position:], needed, profile)
            return _listed([*taken, (closing, needed)], leader=closing)
        given = min(int(led[position]), needed)
        needed -= given
        taken.append((domain, given))
        if leads[position]:
            after = position + 1
            rest = fewest(counts, ordered[after:], room[after:], needed, profile, idle=True)
            if rest is None:
                return None
            return _listed([*taken, *zip(*(part.tolist() for part in rest), strict=True)], leader=domain)
    return None


def _closing(counts: LevelCounts, ordered: IntArray, led: IntArray, needed: int, profile: TopologyProfile) -> int:
    """The domain that takes the leader and all that is left: the first, or a tighter one."""
    if not profile.best_fit:
        return int(ordered[0])
    able = np.where(counts.leads[ordered] > 0, led, -1)
    return int(ordered[tightest(counts, ordered, able, needed, profile)])


def _listed(taken: list[tuple[int, int]], leader: int) -> DomainShares:
    return DomainShares(np.array([d for d, _ in taken], np.int64), np.array([n for _, n in taken], np.int64), leader)
