"""What fits where for every class of pods asked for lately, kept so that the next search need not count anew."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from fleet.placement.topology.layers import Layer, layers_of
from fleet.placement.topology.ledger import IntArray, Ledger
from fleet.placement.topology.rooms import Rooms
from fleet.placement.topology.suits import Suit, SuitKey, scores, suit, suit_key
from fleet.placement.topology.tree import Tree
from fleet.placement.topology.values import Preference
from fleet.placement.topology.wish import Cut
from fleet.snapshot import Node, PodSet
from model.kinds import Toleration

CLASSES = 64
"""Classes of pods that are kept; one takes some 8 bytes a host and array, with a leader five arrays."""
CUTS = 4
"""Ways to cut the pods of a class into slices that are kept."""

Range = tuple[int, int]
"""Leaves from the first to before the second."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Scores:
    """Affinity weights of the leaves for some preferences."""

    preferences: tuple[Preference, ...]
    leaves: IntArray


@dataclass(slots=True)
class View:
    """Pods of one class (and their leader): their rooms, and what the domains above hold for each cut."""

    tree: Tree
    rooms: Rooms
    suit: Suit
    led: bool
    _kept: dict[tuple[Cut, tuple[Preference, ...]], tuple[int, list[Layer]]] = field(default_factory=dict)

    def layers(self, cut: Cut, scores: Scores, within: Range | None) -> list[Layer]:
        """Every level, coarsest first; `within`: as if only these leaves were there. Callers do not change them."""
        if within is not None:
            return self._counted(cut, scores, within)
        key = (cut, scores.preferences)
        version, layers = self._kept.get(key, (-1, []))
        if version != self.rooms.version:
            layers = self._counted(cut, scores, (0, len(self.rooms.pods)))
            bounded(self._kept, key, (self.rooms.version, layers), CUTS)
        return layers

    def _counted(self, cut: Cut, scores: Scores, within: Range) -> list[Layer]:
        inside, rooms = slice(*within), self.rooms
        arrays = [rooms.pods, rooms.led_pods, rooms.leads]
        if within != (0, len(rooms.pods)):
            arrays = [np.zeros_like(array) for array in arrays]
            for array, counted in zip(arrays, (rooms.pods, rooms.led_pods, rooms.leads), strict=True):
                array[inside] = counted[inside]
        pods, led_pods, leads = arrays
        score = scores.leaves * self.suit.mask if scores.preferences else scores.leaves
        return layers_of(self.tree, Layer(pods, pods, led_pods, led_pods, leads, score), cut, led=self.led)

    def excluded(self) -> tuple[tuple[str, int], ...]:
        """Why leaves take no pod of the class -> how many; first what they are, then what they are short of."""
        return (*self.suit.excluded, *self.rooms.short_of())


class Views:
    """The views of one flavor."""

    def __init__(
        self,
        tree: Tree,
        ledger: Ledger,
        leaf_of_row: IntArray,
        nodes: Sequence[Node],
        tolerations: tuple[Toleration, ...],
    ) -> None:
        """`leaf_of_row`: row of the ledger -> leaf of the tree, -1 for rows that are none of its own."""
        self._tree = tree
        self._ledger = ledger
        self._leaf_of_row = leaf_of_row
        self._hosts = [nodes[leaf.rows[0]] for leaf in tree.leaves] if tree.on_hosts else []
        self._tolerations = tolerations
        self._suits: dict[SuitKey, Suit] = {}
        self._scores: dict[tuple[Preference, ...], Scores] = {}
        self._views: dict[object, View] = {}

    def of(self, pods: PodSet, leader: PodSet | None, *, empty: bool) -> View:
        """The view of pods like these, up to date. `empty`: as if no gang took anything."""
        key = (_class_of(pods), None if leader is None else _class_of(leader), empty)
        view = self._views.get(key)
        if view is None:
            suited = self._suit(pods)
            its = None if leader is None else (self._ledger.need(leader.requests), self._suit(leader).mask)
            mine = (self._ledger.need(pods.requests), suited.mask)
            rooms = Rooms(self._ledger, self._leaf_of_row, mine, its, empty=empty)
            view = View(self._tree, rooms, suited, led=leader is not None)
            bounded(self._views, key, view, CLASSES)
        view.rooms.refresh()
        return view

    def scores(self, preferences: tuple[Preference, ...]) -> Scores:
        """How much the leaves are liked; nothing where the lowest domains are not hosts."""
        if not self._tree.on_hosts:
            preferences = ()
        found = self._scores.get(preferences)
        if found is None:
            weights = scores(self._hosts, preferences) if preferences else np.zeros(len(self._tree.leaves), np.int64)
            found = Scores(preferences, weights)
            bounded(self._scores, preferences, found, CLASSES)
        return found

    def _suit(self, pod_set: PodSet) -> Suit:
        """Suitable leaves; where the lowest domains are not hosts, labels and taints of hosts are not looked at."""
        if not self._tree.on_hosts:
            return Suit(np.ones(len(self._tree.leaves), np.bool_))
        key = suit_key(pod_set)
        found = self._suits.get(key)
        if found is None:
            found = suit(self._hosts, pod_set, self._tolerations)
            bounded(self._suits, key, found, CLASSES)
        return found


def _class_of(pod_set: PodSet) -> tuple[tuple[tuple[str, int], ...], SuitKey]:
    """Equal for pods that need the same and suit the same hosts."""
    return tuple(sorted(pod_set.requests.items())), suit_key(pod_set)


def bounded(kept: dict[K, V], key: K, value: V, most: int) -> None:
    """Keep a value; the one kept first goes when there are too many."""
    kept[key] = value
    if len(kept) > most:
        del kept[next(iter(kept))]
