"""Balanced placement: the pods of a preferred set evenly over as few domains as possible, instead of filling them up.

Source of the rules: Kueue, `TASBalancedPlacement` (`pkg/cache/scheduler/tas_balanced_placement.go`). The threshold is
the least number of slices a used domain gets; it is made as large as a greedy placement allows.
"""

from dataclasses import dataclass
from math import log2

import numpy as np

from fleet.placement.topology.descend import NOBODY, Shares
from fleet.placement.topology.layers import Layer, layers_of
from fleet.placement.topology.ledger import IntArray
from fleet.placement.topology.order import Profile, by_led_room, by_room
from fleet.placement.topology.tree import Tree
from fleet.placement.topology.wish import Wish

_PROFILE = Profile()


@dataclass(frozen=True, slots=True)
class Balanced:
    """An even start: what each domain of `level` gets, and the layers with everything below the threshold cleared."""

    level: int
    shares: Shares
    layers: list[Layer]


@dataclass(frozen=True, slots=True)
class _Greedy:
    """What a greedy placement over some domains would use; the last domains are `NOBODY` where there are none."""

    used: int
    last: int = NOBODY
    last_led: int = NOBODY


@dataclass(frozen=True, slots=True)
class _Site:
    """Siblings of the wished level that hold everything with at least `threshold` slices a domain."""

    threshold: int
    used: int
    siblings: IntArray
    layers: list[Layer]


def balance(tree: Tree, layers: list[Layer], wish: Wish, profile: Profile) -> Balanced | None:
    """The even placement of a preferred wish; None when there is none and it should be placed as any other."""
    if not wish.slices:
        return None
    site = _best_site(tree, layers, wish, profile)
    if site is None:
        return None
    level, domains = wish.level, site.siblings
    if wish.level < wish.cut.level:
        chosen = _fewest_exact(tree, site.layers, level, domains, wish, profile, spread_last=True)
        if chosen is None:
            return None
        level, domains = level + 1, tree.children_of_all(level, chosen)
    shares = _even(tree, site, level, domains, wish, profile)
    return None if shares is None else Balanced(level, shares, site.layers)


def _best_site(tree: Tree, layers: list[Layer], wish: Wish, profile: Profile) -> _Site | None:
    """Among the children of each domain one level up: the highest threshold, then the fewest domains, then order."""
    level, best = wish.level, None
    groups = (
        [tree.everything[0]]
        if level == 0
        else [tree.children(level - 1, up) for up in tree.everything[level - 1].tolist()]
    )
    for siblings in groups:
        under, below = siblings, level
        if level < wish.cut.level:
            under, below = tree.children_of_all(level, siblings), level + 1
        greedy = _greedy(layers[below], under, wish, profile)
        if greedy is None:
            continue
        for threshold in _thresholds(layers[below], greedy, wish):
            if threshold < (best.threshold if best else 1):
                break
            pruned = _pruned(tree, layers, level, siblings, threshold, wish)
            after = _greedy(pruned[level], siblings, wish, profile)
            if after is not None:
                if best is None or threshold > best.threshold or after.used < best.used:
                    best = _Site(threshold, after.used, siblings, pruned)
                break
    return best


def _thresholds(layer: Layer, greedy: _Greedy, wish: Wish) -> list[int]:
    """The most slices every used domain can have; then, if that is less, the most that leaves room for the leader."""
    most = wish.slices // greedy.used
    if greedy.last_led != NOBODY:
        most = min(most, int(layer.led_slices[greedy.last_led]))
    if greedy.last == NOBODY:
        return [most]
    most = min(most, int(layer.slices[greedy.last]))
    reserving = min(most, int(layer.led_slices[greedy.last])) if wish.leaders else most
    return [most] if reserving == most else [most, reserving]


def _greedy(layer: Layer, domains: IntArray, wish: Wish, profile: Profile) -> _Greedy | None:
    """Fill the roomiest first, the leader's domain before the others; None when they do not hold everything.

    A domain without room that comes first because it is preferred ends it: no even placement where nobody likes to be.
    """
    missing, used, last_led = wish.slices, 0, NOBODY
    if wish.leaders:
        ordered = by_led_room(layer, domains, profile)
        if not len(ordered) or not layer.leads[ordered[0]]:
            return None
        last_led, domains = int(ordered[0]), np.sort(ordered[1:])
        missing, used = missing - int(layer.led_slices[last_led]), 1
    if missing <= 0:
        return _Greedy(used, last_led=last_led)
    ordered = by_room(layer, domains, profile)
    room = layer.slices[ordered]
    filled = np.flatnonzero((np.cumsum(room) >= missing) & (np.minimum.accumulate(room) > 0))
    if not len(filled):
        return None
    last = int(filled[0])
    return _Greedy(used + last + 1, int(ordered[last]), last_led)


def _pruned(tree: Tree, layers: list[Layer], level: int, siblings: IntArray, threshold: int, wish: Wish) -> list[Layer]:
    """Layers of their own in which what cannot take `threshold` slices among the children, then the siblings, is 0."""
    leaf = layers[-1].copied()
    if level < tree.lowest:
        _prune(tree, layers, level + 1, tree.children_of_all(level, siblings), threshold, [leaf], tree.lowest)
    counted = [layer.copied() for layer in layers_of(tree, leaf, wish.cut, led=bool(wish.leaders))]
    _prune(tree, counted, level, siblings, threshold, counted[level:], level)
    return counted


def _prune(
    tree: Tree, layers: list[Layer], level: int, domains: IntArray, threshold: int, cleared: list[Layer], first: int
) -> None:
    """Clear the domains below the threshold, and the leaders of those that reach it only without one.

    `cleared` are the layers to clear in, the first of them of level `first`.
    """
    layer = layers[level]
    short = layer.slices[domains] < threshold
    leaderless = ~short & (layer.leads[domains] > 0) & (layer.led_slices[domains] < threshold)
    for domain in domains[short].tolist():
        for below, target in enumerate(cleared, first):
            start, end = tree.span(level, domain, below)
            for array in (target.pods, target.slices, target.led_pods, target.led_slices, target.leads):
                array[start:end] = 0
    for domain in domains[leaderless].tolist():
        for below, target in enumerate(cleared, first):
            start, end = tree.span(level, domain, below)
            for array in (target.led_pods, target.led_slices, target.leads):
                array[start:end] = 0


def _entropy(counts: IntArray) -> float:
    total = int(counts.sum())
    return sum(-count / total * log2(count / total) for count in counts.tolist() if count) if total else 0.0


def _fewest_exact(
    tree: Tree, layers: list[Layer], level: int, domains: IntArray, wish: Wish, profile: Profile, *, spread_last: bool
) -> IntArray | None:
    """As many domains as a greedy placement uses, with the least room beyond what is needed; ascending order kept.

    `spread_last`: domains that can lead, have more room, and whose room is spread more evenly are tried first.
    """
    layer = layers[level]
    greedy = _greedy(layer, domains, wish, profile)
    if greedy is None:
        return None
    ordered = domains.tolist()
    if spread_last:
        even = {domain: _entropy(_children_pods(tree, layers, level, domain)) for domain in ordered}
        ordered.sort(key=lambda it: (-int(layer.leads[it]), -int(layer.led_slices[it]), -even[it], it))
    # reached[n][(leaders left, pods left)] = the first n domains found that leave so much to place
    reached: list[dict[tuple[int, int], tuple[int, ...]]] = [{} for _ in range(greedy.used + 1)]
    reached[0][wish.leaders, wish.slices * wish.cut.size] = ()
    for domain in ordered:
        led, pods, led_pods = (int(values[domain]) for values in (layer.leads, layer.pods, layer.led_pods))
        for used in range(greedy.used, 0, -1):
            for (leaders, missing), before in sorted(reached[used - 1].items()):
                if leaders <= 0 and missing <= 0:
                    continue
                if leaders > 0 and led:
                    reached[used].setdefault((leaders - led, missing - led_pods), (*before, domain))
                if layer.slices[domain] > 0:
                    reached[used].setdefault((leaders, missing - pods), (*before, domain))
    left = [missing for leaders, missing in reached[-1] if leaders == 0 and missing <= 0]
    return np.array(reached[-1][0, max(left)], np.int64) if left else None


def _children_pods(tree: Tree, layers: list[Layer], level: int, domain: int) -> IntArray:
    if level == tree.lowest:
        return np.zeros(0, np.int64)
    start, end = tree.span(level, domain, level + 1)
    return layers[level + 1].pods[start:end]


def _even(tree: Tree, site: _Site, level: int, domains: IntArray, wish: Wish, profile: Profile) -> Shares | None:
    """The threshold to every domain of the exact set, what is beyond it to the first that have room."""
    chosen = _fewest_exact(tree, site.layers, level, domains, wish, profile, spread_last=False)
    if chosen is None:
        return None
    layer, threshold = site.layers[level], site.threshold
    extra, leaders, leader = wish.slices - len(chosen) * threshold, wish.leaders, NOBODY
    if extra < 0:
        return None
    ordered = by_led_room(layer, np.sort(chosen), profile)
    given = []
    for domain in ordered.tolist():
        room = layer.slices[domain]
        if leaders:
            room, leader, leaders = layer.led_slices[domain], domain, 0
        more = min(int(room) - threshold, extra) if extra or domain == leader else 0
        given.append(threshold + more)
        extra -= more
    return None if extra > 0 else Shares(ordered, np.array(given, np.int64) * wish.cut.size, leader)
