"""One flavor's topology over the shared hosts: its tree, what fits in it, and the search for one set of pods."""

from collections.abc import Sequence

import numpy as np

from fleet.placement.topology.balance import balance
from fleet.placement.topology.choose import Short, choose
from fleet.placement.topology.descend import NOBODY, Shares, descend, fill
from fleet.placement.topology.layers import Layer
from fleet.placement.topology.ledger import IntArray, Ledger
from fleet.placement.topology.order import Profile
from fleet.placement.topology.tree import Tree, leaves_of
from fleet.placement.topology.values import Ask, Options, Placement, Refusal, RefusalKind, TopologyFlavor
from fleet.placement.topology.views import Range, View, Views
from fleet.placement.topology.wish import Wish
from fleet.snapshot import Node, PodSet
from model.quantity import Resources


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
        self._views = Views(self.tree, self.ledger, self._leaf_of_row, nodes, flavor.tolerations)

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

    # -- the search ---------------------------------------------------------------------------------------------------

    def search(
        self, ask: Ask, wish: Wish, leader: PodSet | None, *, empty: bool, within: Range | None = None
    ) -> tuple[Placement, ...] | Refusal:
        """Places for the pods of `ask` as `wish` says, and for the leader: its placement comes second.

        `empty`: as if no gang took anything. `within`: only these leaves.
        """
        if not self.tree.leaves:
            return Refusal(RefusalKind.NO_DOMAINS, wish.pod_set, self.tree.levels[wish.level])
        view = self._views.of(ask.pod_set, leader, empty=empty)
        preferences = ask.preferences if self._options.weigh_preferences else ()
        layers = view.layers(wish.cut, self._views.scores(preferences), within)
        shares = self._shares(layers, wish)
        if isinstance(shares, Short):
            return self._refused(view, wish, shares, within)
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

    def _refused(self, view: View, wish: Wish, short: Short, within: Range | None) -> Refusal:
        where = f"in one domain of {self.tree.levels[short.level]}" if wish.required else "anywhere"
        excluded = view.excluded()
        if within is not None:
            where, excluded = "where the others of its domain or slice are", ()
        hosts = len(self.tree.leaves)
        return Refusal(RefusalKind.NO_ROOM, wish.pod_set, where, short.fitting, wish.slices, wish.unit, hosts, excluded)


def _summed(members: Sequence[tuple[int, ...]], amounts: Sequence[Resources]) -> list[dict[str, int]]:
    found = []
    for rows in members:
        total: dict[str, int] = {}
        for row in rows:
            for name, amount in amounts[row].items():
                total[name] = total.get(name, 0) + amount
        found.append(total)
    return found
