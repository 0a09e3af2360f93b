"""One flavor's topology over the shared hosts: its tree, what fits in it, and the search for one set of pods."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fleet.placement.topology.balance import balance
from fleet.placement.topology.choose import Short, choose
from fleet.placement.topology.descend import NOBODY, Shares, descend, fill
from fleet.placement.topology.layers import Layer, layers_of
from fleet.placement.topology.ledger import IntArray, Ledger
from fleet.placement.topology.order import Profile
from fleet.placement.topology.rooms import Rooms
from fleet.placement.topology.suits import Suit, SuitKey, scores, suit, suit_key
from fleet.placement.topology.tree import Tree, leaves_of
from fleet.placement.topology.values import Ask, Options, Placement, Preference, Refusal, RefusalKind, TopologyFlavor
from fleet.placement.topology.wish import Cut, Wish
from fleet.snapshot import Node, PodSet
from model.quantity import Resources

_VIEWS = 64
"""Classes of pods whose rooms are kept; one takes some 8 bytes a host and array."""

Range = tuple[int, int]
"""Leaves from the first to before the second."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _Class:
    """Pod sets of one class have the same rooms. `leader` belongs to it in a group."""

    requests: tuple[tuple[str, int], ...]
    suit: SuitKey
    leader: tuple[tuple[tuple[str, int], ...], SuitKey] | None
    empty: bool


class Ground:
    """`ledger` counts hosts where the topology ends in hosts, else the flavor's own lowest domains."""

    def __init__(
        self, flavor: TopologyFlavor, nodes: Sequence[Node], hosts: Ledger, taken: Sequence[Resources], options: Options
    ) -> None:
        """`nodes` are all nodes in the order of the rows of `hosts`; `taken` is what pods of nobody take on them."""
        self.flavor = flavor
        self._options = options
        self.tree = Tree(flavor.levels, leaves_of(flavor, nodes))
        self.leaf_of_host: IntArray = np.full(len(nodes), NOBODY, np.int64)
        for leaf, it in enumerate(self.tree.leaves):
            self.leaf_of_host[list(it.rows)] = leaf
        if self.tree.on_hosts:
            self.ledger, self._leaf_of_row = hosts, self.leaf_of_host
        else:
            members = [it.rows for it in self.tree.leaves]
            self.ledger = Ledger(_summed(members, [node.allocatable for node in nodes]), _summed(members, taken))
            self._leaf_of_row = np.arange(len(members))
        self._rows = np.zeros(len(self.tree.leaves), np.int64)
        mine = np.flatnonzero(self._leaf_of_row >= 0)
        self._rows[self._leaf_of_row[mine]] = mine
        self._hosts = [nodes[it.rows[0]] for it in self.tree.leaves] if self.tree.on_hosts else []
        self._suits: dict[SuitKey, Suit] = {}
        self._scores: dict[tuple[Preference, ...], IntArray] = {}
        self._rooms: dict[_Class, Rooms] = {}
        self._layers: dict[tuple[_Class, Cut, tuple[Preference, ...]], tuple[int, list[Layer]]] = {}

    # -- what is where ------------------------------------------------------------------------------------------------

    def rows_of(self, placement: Placement) -> tuple[IntArray, IntArray]:
        """Ledger rows of its domains and the pods on each; domains that are gone are left out."""
        found = [
            (leaf, n) for values, n in placement.domains.items() if (leaf := self.tree.leaf_of.get(values)) is not None
        ]
        leaves = np.array([leaf for leaf, _ in found], np.int64)
        return self._rows[leaves], np.array([n for _, n in found], np.int64)

    def leaves_in_order(self, placement: Placement) -> list[int]:
        """Leaves of its domains, ascending; KeyError for a domain that is gone."""
        return sorted(self.tree.leaf_of[values] for values in placement.domains)

    def placement(self, pod_set: PodSet, leaves: IntArray, pods: IntArray) -> Placement:
        """The pods of a set on these leaves."""
        order = np.argsort(leaves)
        shown = self.tree.shown
        domains = {
            shown[leaf]: count
            for leaf, count in zip(leaves[order].tolist(), pods[order].tolist(), strict=True)
            if count
        }
        return Placement(pod_set.name, self.flavor.name, pod_set.requests, self.tree.shown_levels, domains)

    # -- what fits ----------------------------------------------------------------------------------------------------

    def _suit(self, pod_set: PodSet, key: SuitKey) -> Suit:
        """Suitable leaves; where the lowest domains are not hosts, labels and taints of hosts are not looked at."""
        if not self.tree.on_hosts:
            return Suit(np.ones(len(self.tree.leaves), np.bool_))
        if key not in self._suits:
            _bounded(self._suits, key, suit(self._hosts, pod_set, self.flavor.tolerations))
        return self._suits[key]

    def _score(self, preferences: tuple[Preference, ...]) -> IntArray:
        if not (preferences and self._options.weigh_preferences and self.tree.on_hosts):
            preferences = ()
        if preferences not in self._scores:
            found = scores(self._hosts, preferences) if preferences else np.zeros(len(self.tree.leaves), np.int64)
            _bounded(self._scores, preferences, found)
        return self._scores[preferences]

    def _rooms_of(self, key: _Class, pods: PodSet, leader: PodSet | None) -> Rooms:
        rooms = self._rooms.get(key)
        if rooms is None:
            mine = self.ledger.need(pods.requests), self._suit(pods, key.suit).mask
            its = None
            if leader is not None and key.leader is not None:
                its = self.ledger.need(leader.requests), self._suit(leader, key.leader[1]).mask
            rooms = Rooms(self.ledger, self._leaf_of_row, mine, its, empty=key.empty)
            _bounded(self._rooms, key, rooms)
        rooms.refresh()
        return rooms

    def _layers_of(
        self, key: _Class, rooms: Rooms, wish: Wish, preferences: tuple[Preference, ...], within: Range | None
    ) -> list[Layer]:
        if within is not None:
            inside = np.zeros(len(rooms.pods), np.int64)
            inside[within[0] : within[1]] = 1
            return self._counted(key, rooms, wish, preferences, inside)
        slot = (key, wish.cut, preferences)
        version, layers = self._layers.get(slot, (NOBODY, []))
        if version != rooms.version:
            layers = self._counted(key, rooms, wish, preferences, None)
            _bounded(self._layers, slot, (rooms.version, layers))
        return layers

    def _counted(
        self, key: _Class, rooms: Rooms, wish: Wish, preferences: tuple[Preference, ...], inside: IntArray | None
    ) -> list[Layer]:
        pods, led_pods, leads = rooms.pods, rooms.led_pods, rooms.leads
        if inside is not None:
            pods, led_pods, leads = pods * inside, led_pods * inside, leads * inside
        score = self._score(preferences)
        if score.any():
            score = score * self._suits[key.suit].mask
        leaf = Layer(pods, pods, led_pods, led_pods, leads, score)
        return layers_of(self.tree, leaf, wish.cut, led=bool(wish.leaders))

    # -- the search ---------------------------------------------------------------------------------------------------

    def search(
        self, ask: Ask, wish: Wish, leader: PodSet | None, *, empty: bool, within: Range | None = None
    ) -> tuple[Placement, ...] | Refusal:
        """Places for the pods of `ask` as `wish` says, and for the leader: its placement comes second.

        `empty`: as if no gang took anything. `within`: only these leaves.
        """
        if not self.tree.leaves:
            return Refusal(RefusalKind.NO_DOMAINS, wish.pod_set, self.tree.levels[wish.level])
        key = _class_of(ask.pod_set, leader, empty=empty)
        rooms = self._rooms_of(key, ask.pod_set, leader)
        layers = self._layers_of(key, rooms, wish, ask.preferences, within)
        shares = self._shares(layers, wish)
        if isinstance(shares, Short):
            return self._refused(key, rooms, wish, shares, within)
        placed = self.placement(ask.pod_set, shares.domains, shares.pods)
        if leader is None:
            return (placed,)
        return placed, self.placement(leader, np.array([shares.leader]), np.array([1]))

    def _shares(self, layers: list[Layer], wish: Wish) -> Shares | Short:
        best_fit = not (wish.unconstrained and self._options.least_free_first)
        profile = Profile(best_fit, self._options.weigh_preferences)
        if self._options.balanced and not wish.required and not wish.unconstrained:
            even = balance(self.tree, layers, wish, profile)
            found = even and descend(self.tree, even.layers, even.level, even.shares, wish, profile, pooled=False)
            if found:
                return found
        start = choose(layers, wish, profile)
        if isinstance(start, Short):
            return start
        shares = fill(layers, start.level, start.domains, wish, profile)
        found = shares and descend(self.tree, layers, start.level, shares, wish, profile)
        return found or Short(start.level, 0)

    def _refused(self, key: _Class, rooms: Rooms, wish: Wish, short: Short, within: Range | None) -> Refusal:
        excluded = list(self._suits[key.suit].excluded) if self.tree.on_hosts else []
        excluded += [(f"have too little {resource}", count) for resource, count in sorted(rooms.short_of().items())]
        where = f"in one domain of {self.tree.levels[short.level]}" if wish.required else "anywhere"
        if within is not None:
            where = f"where the others run ({where})"
        return Refusal(
            RefusalKind.NO_ROOM,
            wish.pod_set,
            where,
            short.fitting,
            wish.slices,
            wish.unit,
            len(self.tree.leaves),
            tuple(excluded),
        )


def _class_of(pods: PodSet, leader: PodSet | None, *, empty: bool) -> _Class:
    beside = None if leader is None else (tuple(sorted(leader.requests.items())), suit_key(leader))
    return _Class(tuple(sorted(pods.requests.items())), suit_key(pods), beside, empty)


def _summed(members: Sequence[tuple[int, ...]], amounts: Sequence[Resources]) -> list[dict[str, int]]:
    found = []
    for rows in members:
        total: dict[str, int] = {}
        for row in rows:
            for name, amount in amounts[row].items():
                total[name] = total.get(name, 0) + amount
        found.append(total)
    return found


def _bounded(kept: dict[K, V], key: K, value: V) -> None:
    """Keep a value; the one kept first goes when there are too many."""
    kept[key] = value
    if len(kept) > _VIEWS:
        del kept[next(iter(kept))]
