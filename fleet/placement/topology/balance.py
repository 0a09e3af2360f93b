"""Balanced placement spreads pods evenly over as few domains as possible, instead of filling one after the other.

Source of the rules: Kueue, `TASBalancedPlacement` (`pkg/cache/scheduler/tas_balanced_placement.go`). The threshold is
the least number of slices a used domain gets; it is made as large as a greedy placement allows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log2

import numpy as np

from fleet.placement.topology.choose import TopologyProfile, by_led_room, by_room
from fleet.placement.topology.counts import LevelCounts, count_levels
from fleet.placement.topology.descend import NOBODY, DomainShares
from fleet.placement.topology.domains import AssignmentParameters, DomainTree, IntArray


@dataclass(frozen=True, slots=True)
class BalancedDomains:
    """An even start gives each domain of `level` its share; in `levels` everything below the threshold is cleared."""

    level: int
    shares: DomainShares
    levels: list[LevelCounts]


def balance(
    tree: DomainTree, levels: list[LevelCounts], params: AssignmentParameters, profile: TopologyProfile
) -> BalancedDomains | None:
    """The even placement of a set that prefers a level; None when there is none and it goes as any other."""
    return _Balance(tree, params, profile).found(levels) if params.slices else None


@dataclass(frozen=True, slots=True)
class _GreedyFill:
    """A greedy placement uses so many domains, the last of them these; `NOBODY` = there is none."""

    used: int
    last: int = NOBODY
    last_led: int = NOBODY


@dataclass(frozen=True, slots=True)
class _BalancedSiblings:
    """Siblings of the preferred level hold all pods with at least `threshold` slices in each domain used."""

    threshold: int
    used: int
    siblings: IntArray
    levels: list[LevelCounts]


@dataclass(frozen=True, slots=True)
class _Balance:
    """The search for the balanced placement of one pod set."""

    tree: DomainTree
    params: AssignmentParameters
    profile: TopologyProfile

    def found(self, levels: list[LevelCounts]) -> BalancedDomains | None:
        """Returns the most even spread over the fewest sibling domains; None where none holds all pods."""
        best = self._best_siblings(levels)
        if best is None:
            return None
        level, domains = self.params.level, best.siblings
        if level < self.params.slicing.level:
            chosen = self._fewest_exact(best.levels, level, self._leading_first(best.levels, level, domains))
            if chosen is None:
                return None
            level, domains = level + 1, self.tree.children_of_all(level, chosen)
        shares = self._even(best, level, domains)
        return None if shares is None else BalancedDomains(level, shares, best.levels)

    def _best_siblings(self, levels: list[LevelCounts]) -> _BalancedSiblings | None:
        """Of all siblings those with the highest threshold, then the fewest domains, then the first."""
        best = None
        for siblings in self._groups():
            least = best.threshold if best else 1
            found = self._highest_threshold(levels, siblings, least)
            if found is not None and (best is None or found.threshold > best.threshold or found.used < best.used):
                best = found
        return best

    def _groups(self) -> Iterable[IntArray]:
        """The domains of the preferred level, with those that share a parent together."""
        level, tree = self.params.level, self.tree
        if level == 0:
            return [tree.everything[0]]
        return (tree.children(level - 1, parent) for parent in tree.everything[level - 1].tolist())

    def _highest_threshold(self, levels: list[LevelCounts], siblings: IntArray, least: int) -> _BalancedSiblings | None:
        """What the siblings hold with the highest threshold, of at least `least`, that leaves room for all."""
        level, under, below = self.params.level, siblings, self.params.level
        if level < self.params.slicing.level:
            under, below = self.tree.children_of_all(level, siblings), level + 1
        greedy = self._greedy(levels[below], under)
        for threshold in self._thresholds(levels[below], greedy) if greedy else ():
            if threshold < least:
                break
            pruned = self._pruned(levels, siblings, threshold)
            after = self._greedy(pruned[level], siblings)
            if after is not None:
                return _BalancedSiblings(threshold, after.used, siblings, pruned)
        return None

    def _thresholds(self, counts: LevelCounts, greedy: _GreedyFill) -> list[int]:
        """The most slices every used domain can have; then, if that is less, the most that leaves the leader room."""
        most = self.params.slices // greedy.used
        if greedy.last_led != NOBODY:
            most = min(most, int(counts.led_slices[greedy.last_led]))
        if greedy.last == NOBODY:
            return [most]
        most = min(most, int(counts.slices[greedy.last]))
        reserving = min(most, int(counts.led_slices[greedy.last])) if self.params.leaders else most
        return [most] if reserving == most else [most, reserving]

    def _greedy(self, counts: LevelCounts, domains: IntArray) -> _GreedyFill | None:
        """Fills the roomiest first, the leader's domain before the others; None when they do not hold everything.

        A domain without room that comes first because it is preferred ends it: no even placement where nobody likes
        to be.
        """
        missing, used, last_led = self.params.slices, 0, NOBODY
        if self.params.leaders:
            ordered = by_led_room(counts, domains, self.profile)
            if not len(ordered) or not counts.leads[ordered[0]]:
                return None
            last_led, domains = int(ordered[0]), np.sort(ordered[1:])
            missing, used = missing - int(counts.led_slices[last_led]), 1
        if missing <= 0:
            return _GreedyFill(used, last_led=last_led)
        ordered = by_room(counts, domains, self.profile)
        room = counts.slices[ordered]
        filled = np.flatnonzero((np.cumsum(room) >= missing) & (np.minimum.accumulate(room) > 0))
        if not len(filled):
            return None
        last = int(filled[0])
        return _GreedyFill(used + last + 1, int(ordered[last]), last_led)

    def _pruned(self, levels: list[LevelCounts], siblings: IntArray, threshold: int) -> list[LevelCounts]:
        """Counts of their own in which what cannot take `threshold` slices is 0: among the children, then siblings."""
        tree, level = self.tree, self.params.level
        leaves = levels[-1].copied()
        if level < tree.lowest:
            _prune(tree, levels, level + 1, tree.children_of_all(level, siblings), threshold, [leaves])
        counted = count_levels(tree, leaves, self.params.slicing, led=bool(self.params.leaders))
        counted = [counts.copied() for counts in counted]
        _prune(tree, counted, level, siblings, threshold, counted[level:])
        return counted

    def _leading_first(self, levels: list[LevelCounts], level: int, domains: IntArray) -> list[int]:
        """Domains that can lead, have more room, and whose room is spread more evenly come first."""
        counts, tree = levels[level], self.tree

        def evenness(domain: int) -> float:
            if level == tree.lowest:
                return 0.0
            start, end = tree.span(level, domain, level + 1)
            return _entropy(levels[level + 1].pods[start:end])

        def order(domain: int) -> tuple[int, int, float, int]:
            return -int(counts.leads[domain]), -int(counts.led_slices[domain]), -evenness(domain), domain

        return sorted(domains.tolist(), key=order)

    def _fewest_exact(self, levels: list[LevelCounts], level: int, ordered: list[int]) -> IntArray | None:
        """As many domains as a greedy placement uses, with the least room beyond what is needed, in the order given."""
        counts, params = levels[level], self.params
        greedy = self._greedy(counts, np.sort(np.array(ordered, np.int64)))
        if greedy is None:
            return None
        # reached[n][(leaders left, pods left)] = the first n domains found that leave so much to place
        reached: list[dict[tuple[int, int], tuple[int, ...]]] = [{} for _ in range(greedy.used + 1)]
        reached[0][params.leaders, params.slices * params.slicing.size] = ()
        for domain in ordered:
            led, pods, led_pods = (int(values[domain]) for values in (counts.leads, counts.pods, counts.led_pods))
            for used in range(greedy.used, 0, -1):
                for (leaders, missing), before in sorted(reached[used - 1].items()):
                    if leaders <= 0 and missing <= 0:
                        continue
                    if leaders > 0 and led:
                        reached[used].setdefault((leaders - led, missing - led_pods), (*before, domain))
                    if counts.slices[domain] > 0:
                        reached[used].setdefault((leaders, missing - pods), (*before, domain))
        left = [missing for leaders, missing in reached[-1] if leaders == 0 and missing <= 0]
        return np.array(reached[-1][0, max(left)], np.int64) if left else None

    def _even(self, best: _BalancedSiblings, level: int, domains: IntArray) -> DomainShares | None:
        """The threshold to every domain of the exact set, what is beyond it to the first that have room."""
        chosen = self._fewest_exact(best.levels, level, domains.tolist())
        if chosen is None:
            return None
        counts, threshold = best.levels[level], best.threshold
        extra, leaders, leader = self.params.slices - len(chosen) * threshold, self.params.leaders, NOBODY
        if extra < 0:
            return None
        ordered = by_led_room(counts, np.sort(chosen), self.profile)
        given = []
        for domain in ordered.tolist():
            room = counts.slices[domain]
            if leaders:
                room, leader, leaders = counts.led_slices[domain], domain, 0
            more = min(int(room) - threshold, extra) if extra or domain == leader else 0
            given.append(threshold + more)
            extra -= more
        pods = np.array(given, np.int64) * self.params.slicing.size
        return None if extra > 0 else DomainShares(ordered, pods, leader)


def _prune(
    tree: DomainTree,
    levels: list[LevelCounts],
    level: int,
    domains: IntArray,
    threshold: int,
    cleared: list[LevelCounts],
) -> None:
    """Clears the domains below the threshold, and the leaders of those that reach it only without one.

    `cleared` are the lowest levels, in which it is done.
    """
    counts = levels[level]
    short = counts.slices[domains] < threshold
    leaderless = ~short & (counts.leads[domains] > 0) & (counts.led_slices[domains] < threshold)
    for below, target in enumerate(cleared, len(levels) - len(cleared)):
        with_leader = (target.led_pods, target.led_slices, target.leads)
        for these, arrays in ((short, (target.pods, target.slices, *with_leader)), (leaderless, with_leader)):
            for domain in domains[these].tolist():
                start, end = tree.span(level, domain, below)
                for array in arrays:
                    array[start:end] = 0


def _entropy(counts: IntArray) -> float:
    total = int(counts.sum())
    return sum(-count / total * log2(count / total) for count in counts.tolist() if count) if total else 0.0
