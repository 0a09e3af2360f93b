"""From the domains chosen down to the lowest ones, taking as few as possible on the way.

Source of the rules: Kueue, topology-aware scheduling (`pkg/cache/scheduler/tas_flavor_snapshot.go`), phase 2b.
"""

from dataclasses import dataclass

import numpy as np

from fleet.placement.topology.layers import Layer
from fleet.placement.topology.ledger import IntArray
from fleet.placement.topology.order import Profile, by_room, fewest, leader_first, tightest
from fleet.placement.topology.tree import Tree
from fleet.placement.topology.wish import Wish

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Shares:
    """Domains of one level with the pods that go there, perhaps none; `leader` takes the leader, or is `NOBODY`."""

    domains: IntArray
    pods: IntArray
    leader: int = NOBODY


def fill(layers: list[Layer], level: int, ordered: IntArray, wish: Wish, profile: Profile) -> Shares | None:
    """The whole wish in slices over the domains of a level, in this order; None when they do not hold it."""
    layer, size = layers[level], wish.cut.size
    room, led = layer.slices[ordered], layer.led_slices[ordered]
    return _in_units(_share(layer, ordered, room, led, wish.slices, wish.leaders, profile), size)


def descend(
    tree: Tree, layers: list[Layer], level: int, shares: Shares, wish: Wish, profile: Profile, *, pooled: bool = True
) -> Shares | None:
    """Shares of the lowest level.

    Down to the level of the slices the children of all domains are one pool (`pooled`): what each parent was given
    only said which children to look at. From there on every domain shares out what it was given.
    """
    while pooled and level < min(wish.cut.level, tree.lowest):
        pool = tree.children_of_all(level, shares.domains)
        level += 1
        found = fill(layers, level, by_room(layers[level], pool, profile), wish, profile)
        if found is None:
            return None
        shares = found
    while level < tree.lowest:
        found = _each(tree, layers, level, shares, wish, profile)
        if found is None:
            return None
        shares, level = found, level + 1
    return shares


def _each(tree: Tree, layers: list[Layer], level: int, shares: Shares, wish: Wish, profile: Profile) -> Shares | None:
    """One level down, every domain for itself: in slices above their level, then in inner slices or single pods."""
    layer, inner = layers[level + 1], wish.cut.inner
    size = wish.cut.size if level < wish.cut.level else max(1, inner[level + 1] if inner else 1)
    domains, pods, leader = [], [], NOBODY
    for parent, count in zip(shares.domains.tolist(), shares.pods.tolist(), strict=True):
        leaders = int(parent == shares.leader)
        if not count and not leaders:
            continue
        ordered = by_room(layer, tree.children(level, parent), profile)
        room, led = layer.pods[ordered] // size, layer.led_pods[ordered] // size
        found = _in_units(_share(layer, ordered, room, led, count // size, leaders, profile), size)
        if found is None:
            return None
        domains.append(found.domains)
        pods.append(found.pods)
        leader = max(leader, found.leader)
    if not domains:
        return Shares(np.zeros(0, np.int64), np.zeros(0, np.int64))
    return Shares(np.concatenate(domains), np.concatenate(pods), leader)


def _in_units(shares: Shares | None, size: int) -> Shares | None:
    return shares if shares is None or size == 1 else Shares(shares.domains, shares.pods * size, shares.leader)


def _share(
    layer: Layer, ordered: IntArray, room: IntArray, led: IntArray, needed: int, leaders: int, profile: Profile
) -> Shares | None:
    """`needed` units, counted by `room` (with the leader: `led`), one value a position of `ordered`."""
    if not leaders:
        found = fewest(layer, ordered, room, needed, profile, idle=False)
        return None if found is None else Shares(*found)
    front = leader_first(layer, ordered, room, led, needed)
    ordered, room, led = ordered[front], room[front], led[front]
    leads = layer.leads[ordered] > 0
    taken: list[tuple[int, int]] = []
    for position, domain in enumerate(ordered.tolist()):
        if leads[position] and led[position] >= needed:
            closing = _closing(layer, ordered[position:], led[position:], needed, profile)
            return _listed([*taken, (closing, needed)], leader=closing)
        given = min(int(led[position]), needed)
        needed -= given
        taken.append((domain, given))
        if leads[position]:
            after = position + 1
            rest = fewest(layer, ordered[after:], room[after:], needed, profile, idle=True)
            if rest is None:
                return None
            return _listed([*taken, *zip(*(part.tolist() for part in rest), strict=True)], leader=domain)
    return None


def _closing(layer: Layer, ordered: IntArray, led: IntArray, needed: int, profile: Profile) -> int:
    """The domain that takes the leader and all that is left: the first, or a tighter one."""
    if not profile.best_fit:
        return int(ordered[0])
    able = np.where(layer.leads[ordered] > 0, led, -1)
    return int(ordered[tightest(layer, ordered, able, needed, profile)])


def _listed(taken: list[tuple[int, int]], leader: int) -> Shares:
    return Shares(np.array([d for d, _ in taken], np.int64), np.array([n for _, n in taken], np.int64), leader)
