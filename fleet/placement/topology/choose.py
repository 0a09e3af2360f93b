"""Where a search starts: the level, and the domains of it that hold the whole wish.

Source of the rules: Kueue, topology-aware scheduling (`pkg/cache/scheduler/tas_flavor_snapshot.go`), phase 2a.
"""

from dataclasses import dataclass

import numpy as np

from fleet.placement.topology.layers import Layer
from fleet.placement.topology.ledger import IntArray
from fleet.placement.topology.order import Profile, by_led_room, by_room, fewest, leader_first, ranked, tightest
from fleet.placement.topology.wish import Wish


@dataclass(frozen=True, slots=True)
class Start:
    """Domains of one level, in the order they are to be filled."""

    level: int
    domains: IntArray


@dataclass(frozen=True, slots=True)
class Short:
    """Nothing holds the wish; `fitting` units would have found a place."""

    level: int
    fitting: int


def choose(layers: list[Layer], wish: Wish, profile: Profile) -> Start | Short:
    """One domain of the wished level if it holds all; else, unless it is required, coarser levels and then several.

    A preferred wish climbs to the top before it is spread; one without a wish is spread over the level it is at.
    """
    level = wish.level
    while True:
        layer = layers[level]
        single = _single(layer, wish, profile)
        if single is not None:
            return Start(level, np.array([single]))
        if wish.required:
            return Short(level, int(layer.led_slices[layer.leads >= wish.leaders].max(initial=0)))
        if level == 0 or wish.unconstrained:
            return _several(layer, level, wish, profile)
        level -= 1


def _single(layer: Layer, wish: Wish, profile: Profile) -> int | None:
    """The domain that holds everything: the tightest one with the best score."""
    holding = np.flatnonzero((layer.led_slices >= wish.slices) & (layer.leads >= wish.leaders))
    if not len(holding):
        return None
    if profile.weigh:
        best = int(layer.score[holding].max())
        if profile.best_fit and not wish.required and best < _best_score(layer, wish):
            return None  # the domains that are liked most do not hold all: a coarser level may
        holding = holding[layer.score[holding] == best]
    return int(ranked(holding, layer.led_slices[holding], layer.led_pods[holding])[0])


def _best_score(layer: Layer, wish: Wish) -> int:
    """The score of the domains that are tried first."""
    able = layer.score[layer.leads >= wish.leaders]
    return int(able.max(initial=0))


def _several(layer: Layer, level: int, wish: Wish, profile: Profile) -> Start | Short:
    everything = np.arange(len(layer.pods))
    chosen, rest, missing = everything[:0], everything, wish.slices
    if wish.leaders:
        ordered = by_led_room(layer, everything, profile)
        first = leader_first(layer, ordered, layer.slices[ordered], layer.led_slices[ordered], wish.slices)
        ordered = ordered[first]
        if not layer.leads[ordered[0]]:
            return Short(level, 0)
        with_leader = _leader_domain(layer, ordered, missing, profile)
        chosen = np.array([with_leader])
        missing -= int(layer.led_slices[with_leader])
        rest = np.sort(ordered[1:])
    if missing > 0:
        ordered = by_room(layer, rest, profile)
        found = fewest(layer, ordered, layer.slices[ordered], missing, profile, idle=bool(wish.leaders))
        if found is None:
            held = int(layer.slices[rest].sum()) + wish.slices - missing
            return Short(level, held)
        chosen = np.append(chosen, found[0])
    return Start(level, chosen)


def _leader_domain(layer: Layer, ordered: IntArray, missing: int, profile: Profile) -> int:
    first = int(ordered[0])
    if not profile.best_fit or layer.led_slices[first] < missing:
        return first
    able = np.where(layer.leads[ordered] > 0, layer.led_slices[ordered], -1)
    return int(ordered[tightest(layer, ordered, able, missing, profile)])
