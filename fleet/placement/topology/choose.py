"""A search starts from a level at which some domains hold all pods, and tries domains in a certain order.

Source of the rules: Kueue, topology-aware scheduling (`pkg/cache/scheduler/tas_flavor_snapshot.go`), phase 2a,
`findLevelWithFitDomains`.
"""

from dataclasses import dataclass

import numpy as np

from fleet.placement.topology.capacity import MOST
from fleet.placement.topology.counts import LevelCounts
from fleet.placement.topology.domains import AssignmentParameters, IntArray

_RADIX = 2**15
"""Keys below this fit 16 bits, which numpy sorts by radix: ten times faster on 10,000 domains."""


@dataclass(frozen=True, slots=True)
class TopologyProfile:
    """How domains are chosen: best fit takes the most room first and the tightest last, else it is least room first."""

    best_fit: bool = True
    weigh: bool = False
    """Whether affinity scores come before room."""


@dataclass(frozen=True, slots=True)
class FitDomains:
    """The pods fit in these domains of a level, which are filled in this order."""

    level: int
    domains: IntArray


@dataclass(frozen=True, slots=True)
class NotEnoughRoom:
    """No domains of the level hold all pods; `fitting` units would have found a place."""

    level: int
    fitting: int


def choose(
    levels: list[LevelCounts], params: AssignmentParameters, profile: TopologyProfile
) -> FitDomains | NotEnoughRoom:
    """One domain of the level asked for if it holds all; else, unless it is required, of coarser ones, or several.

    Where a level is preferred the search climbs to the top before pods are spread; where none is asked for they are
    spread over the level it is at.
    """
    level = params.level
    while True:
        counts = levels[level]
        single = _single(counts, params, profile)
        if single is not None:
            return FitDomains(level, np.array([single]))
        if params.required:
            return NotEnoughRoom(level, int(counts.led_slices[counts.leads >= params.leaders].max(initial=0)))
        if level == 0 or params.unconstrained:
            return _several(counts, level, params, profile)
        level -= 1


def _single(counts: LevelCounts, params: AssignmentParameters, profile: TopologyProfile) -> int | None:
    """The domain that holds everything: the tightest one with the best score; None when none does."""
    holding = np.flatnonzero((counts.led_slices >= params.slices) & (counts.leads >= params.leaders))
    if not len(holding):
        return None
    if profile.weigh:
        best = int(counts.score[holding].max())
        if profile.best_fit and not params.required and best < _best_score(counts, params):
            return None  # the domains that are liked most do not hold all: a coarser level may
        holding = holding[counts.score[holding] == best]
    return int(ranked(holding, counts.led_slices[holding], counts.led_pods[holding])[0])


def _best_score(counts: LevelCounts, params: AssignmentParameters) -> int:
    """The score of the domains that are tried first."""
    able = counts.score[counts.leads >= params.leaders]
    return int(able.max(initial=0))


def _several(
    counts: LevelCounts, level: int, params: AssignmentParameters, profile: TopologyProfile
) -> FitDomains | NotEnoughRoom:
    """The domains of a level that hold everything together, that of the leader first."""
    everything = np.arange(len(counts.pods))
    chosen, rest, missing = everything[:0], everything, params.slices
    if params.leaders:
        ordered = by_led_room(counts, everything, profile)
        first = leader_first(counts, ordered, counts.slices[ordered], counts.led_slices[ordered], params.slices)
        ordered = ordered[first]
        if not counts.leads[ordered[0]]:
            return NotEnoughRoom(level, 0)
        with_leader = _leader_domain(counts, ordered, missing, profile)
        chosen = np.array([with_leader])
        missing -= int(counts.led_slices[with_leader])
        rest = np.sort(ordered[1:])
    if missing > 0:
        ordered = by_room(counts, rest, profile)
        found = fewest(counts, ordered, counts.slices[ordered], missing, profile, idle=bool(params.leaders))
        if found is None:
            held = int(counts.slices[rest].sum()) + params.slices - missing
            return NotEnoughRoom(level, held)
        chosen = np.append(chosen, found[0])
    return FitDomains(level, chosen)


def _leader_domain(counts: LevelCounts, ordered: IntArray, missing: int, profile: TopologyProfile) -> int:
    """The domain of the leader: the first, or one that fits more tightly if that holds everything."""
    first = int(ordered[0])
    if not profile.best_fit or counts.led_slices[first] < missing:
        return first
    able = np.where(counts.leads[ordered] > 0, counts.led_slices[ordered], -1)
    return int(ordered[tightest(counts, ordered, able, missing, profile)])


def by_room(counts: LevelCounts, domains: IntArray, profile: TopologyProfile) -> IntArray:
    """Without a leader: score, slices, then fewer loose pods, then value order."""
    slices = counts.slices[domains]
    keys = [-slices if profile.best_fit else slices, counts.pods[domains]]
    return ranked(domains, *([-counts.score[domains]] if profile.weigh else []), *keys)


def by_led_room(counts: LevelCounts, domains: IntArray, profile: TopologyProfile) -> IntArray:
    """The same with a leader: domains able to hold it come first."""
    slices = counts.led_slices[domains]
    keys = [-slices if profile.best_fit else slices, counts.led_pods[domains]]
    weighed = [-counts.score[domains]] if profile.weigh else []
    return ranked(domains, -counts.leads[domains], *weighed, *keys)


def leader_first(counts: LevelCounts, ordered: IntArray, room: IntArray, led: IntArray, needed: int) -> IntArray:
    """Positions of `ordered` with the first domain in front whose taking the leader leaves room for all.

    Without it the leader could go where it costs more than the count of the level above allowed for.
    """
    positions = np.arange(len(ordered))
    if len(ordered) < 2:
        return positions
    fitting = np.flatnonzero((counts.leads[ordered] > 0) & (int(room.sum()) - (room - led) >= needed))
    if not len(fitting) or fitting[0] == 0:
        return positions
    return np.concatenate([fitting[:1], np.delete(positions, fitting[0])])


def fewest(
    counts: LevelCounts, ordered: IntArray, room: IntArray, needed: int, profile: TopologyProfile, *, idle: bool
) -> tuple[IntArray, IntArray] | None:
    """The domains that take `needed` units in this order, and how many each; None when they do not hold so many.

    `room` has one value a position. Each gives all it has; the one that closes the count may be another of the rest,
    if it fits more tightly. Domains that give nothing are passed over, unless `idle`: then they stay as candidates for
    a leader further down.
    """
    if not needed:
        return ordered[:0], room[:0]
    before = np.cumsum(room) - room
    closing = np.flatnonzero(room >= needed - before)
    if not len(closing):
        return None
    last = int(closing[0])
    rest = needed - int(before[last])
    chosen = last
    if profile.best_fit:
        chosen = last + tightest(counts, ordered[last:], room[last:], rest, profile)
    domains = np.append(ordered[:last], ordered[chosen])
    taken = np.append(room[:last], rest)
    return (domains, taken) if idle else (domains[taken > 0], taken[taken > 0])


def tightest(counts: LevelCounts, ordered: IntArray, room: IntArray, needed: int, profile: TopologyProfile) -> int:
    """Position in `ordered` of the first domain with the least `room` (one value a position) that is enough.

    Only domains up to the first with another score are looked at: affinity comes before a tight fit. At least the first
    holds what is needed.
    """
    if profile.weigh:
        score = counts.score[ordered]
        other = np.flatnonzero(score != score[0])
        room = room[: other[0]] if len(other) else room
    return int(np.where(room >= needed, room, MOST).argmin())


def ranked(domains: IntArray, *keys: IntArray) -> IntArray:
    """`domains`, which are ascending, by `keys` (one value a domain, ascending, first key first), then index."""
    combined = np.zeros(len(domains), np.int64)
    if not len(domains):
        return domains
    span = 1
    for key in keys:
        low, high = int(key.min()), int(key.max())
        if low == high:
            continue
        span *= high - low + 1
        if span >= MOST:
            return domains[np.lexsort(keys[::-1])]
        combined = combined * (high - low + 1) + (key - low)
    if span == 1:
        return domains
    return domains[np.argsort(combined.astype(np.int16) if span < _RADIX else combined, kind="stable")]
