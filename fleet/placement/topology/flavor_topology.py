"""A flavor has one topology over the shared hosts: its domains, what fits in them, and the search for a pod set.

It is Kueue's `TASFlavorSnapshot`. Sources of the rules for pods that run already: node replacement
(`tas_flavor_snapshot.go`) and elastic workloads with topology (`tas_elastic_workloads.go`).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fleet.placement.topology.balance import balance
from fleet.placement.topology.capacity import CapacityMatrix
from fleet.placement.topology.choose import NotEnoughRoom, TopologyProfile, choose
from fleet.placement.topology.counts import LevelCounts
from fleet.placement.topology.descend import NOBODY, DomainShares, descend, fill
from fleet.placement.topology.domains import AssignmentParameters, DomainTree, IntArray, SliceSpec, leaf_domains
from fleet.placement.topology.pod_classes import LeafRange, PodClassCache, PodClassCounts
from fleet.placement.topology.request import (
    RefusalKind,
    TopologyAssignment,
    TopologyFlavor,
    TopologyOptions,
    TopologyRefusal,
    TopologyRequest,
)
from fleet.snapshot import Node, PodSet, Slice
from model.quantity import Resources


class FlavorTopology:
    """The topology of a flavor knows its domains and what is free in them.

    `capacity` is that of the hosts where the topology ends in hosts, else of the flavor's own lowest domains.
    """

    def __init__(
        self,
        flavor: TopologyFlavor,
        nodes: Sequence[Node],
        hosts: CapacityMatrix,
        taken: Sequence[Resources],
        options: TopologyOptions,
    ) -> None:
        """`nodes` are all nodes in the order of the rows of `hosts`; `taken` is what pods of nobody take on them."""
        self.flavor = flavor
        self._options = options
        self.tree = DomainTree(flavor.levels, leaf_domains(flavor, nodes))
        self.leaf_of_host: IntArray = np.full(len(nodes), NOBODY, np.int64)
        for leaf, it in enumerate(self.tree.leaves):
            self.leaf_of_host[list(it.rows)] = leaf
        if self.tree.on_hosts:
            self.capacity, self._leaf_of_row = hosts, self.leaf_of_host
        else:
            members = [it.rows for it in self.tree.leaves]
            there = [node.allocatable for node in nodes]
            self.capacity = CapacityMatrix(_summed(members, there), _summed(members, taken))
            self._leaf_of_row = np.arange(len(members))
        self._rows = np.zeros(len(self.tree.leaves), np.int64)
        mine = np.flatnonzero(self._leaf_of_row >= 0)
        self._rows[self._leaf_of_row[mine]] = mine
        self._classes = PodClassCache(self.tree, self.capacity, self._leaf_of_row, nodes, flavor.tolerations)

    # -- the search ---------------------------------------------------------------------------------------------------

    def search(
        self,
        request: TopologyRequest,
        params: AssignmentParameters,
        leader: PodSet | None,
        *,
        empty: bool,
        within: LeafRange | None = None,
    ) -> tuple[TopologyAssignment, ...] | TopologyRefusal:
        """Places for the pods of a request as `params` say, and for the leader: its assignment comes second.

        `empty`: as if no gang took anything. `within`: only these leaves.
        """
        if not self.tree.leaves:
            return TopologyRefusal(RefusalKind.NO_DOMAINS, params.pod_set, self.tree.levels[params.level])
        pods = self._classes.of(request.pod_set, leader, empty=empty)
        preferred = request.preferred if self._options.weigh_preferences else ()
        levels = pods.levels(params.slicing, self._classes.scores(preferred), within)
        shares = self._shares(levels, params)
        if isinstance(shares, NotEnoughRoom):
            return self._refusal(pods, params, shares, within)
        placed = self._assignment(request.pod_set, shares.domains, shares.pods)
        if leader is None:
            return (placed,)
        return placed, self._assignment(leader, np.array([shares.leader]), np.array([1]))

    def _shares(self, levels: list[LevelCounts], params: AssignmentParameters) -> DomainShares | NotEnoughRoom:
        best_fit = not (params.unconstrained and self._options.least_free_first)
        profile = TopologyProfile(best_fit, self._options.weigh_preferences)
        if self._options.balanced and not params.required and not params.unconstrained:
            even = balance(self.tree, levels, params, profile)
            found = even and descend(self.tree, even.levels, even.level, even.shares, params, profile, pooled=False)
            if found:
                return found
        start = choose(levels, params, profile)
        if isinstance(start, NotEnoughRoom):
            return start
        shares = fill(levels, start.level, start.domains, params, profile)
        found = shares and descend(self.tree, levels, start.level, shares, params, profile)
        return found or NotEnoughRoom(start.level, 0)

    def _refusal(
        self, pods: PodClassCounts, params: AssignmentParameters, short: NotEnoughRoom, within: LeafRange | None
    ) -> TopologyRefusal:
        where = f"in one domain of {self.tree.levels[short.level]}" if params.required else "anywhere"
        excluded = pods.excluded()
        if within is not None:
            where, excluded = "where the others of its domain or slice are", ()
        fitting, wanted, hosts = short.fitting, params.slices, len(self.tree.leaves)
        return TopologyRefusal(
            RefusalKind.NO_ROOM, params.pod_set, where, fitting, wanted, params.unit, hosts, excluded
        )

    def _assignment(self, pod_set: PodSet, leaves: IntArray, pods: IntArray) -> TopologyAssignment:
        """The assignment of pods of a set to these leaves."""
        order = np.argsort(leaves)
        shown = self.tree.shown
        domains = {
            shown[leaf]: count
            for leaf, count in zip(leaves[order].tolist(), pods[order].tolist(), strict=True)
            if count
        }
        return TopologyAssignment(pod_set.name, self.flavor.name, pod_set.requests, self.tree.shown_levels, domains)

    # -- assignments that stand ---------------------------------------------------------------------------------------

    def rows_of(self, assignment: TopologyAssignment) -> tuple[IntArray, IntArray]:
        """Rows of its domains in `capacity` and the pods on each; domains that are gone are left out."""
        leaf_of = self.tree.leaf_of
        found = [(leaf, n) for values, n in assignment.domains.items() if (leaf := leaf_of.get(values)) is not None]
        leaves = np.array([leaf for leaf, _ in found], np.int64)
        return self._rows[leaves], np.array([n for _, n in found], np.int64)

    def gone(self, assignment: TopologyAssignment) -> str:
        """The first of its domains that the topology does not have any more, as text; empty when all are there."""
        missing = (values for values in assignment.domains if values not in self.tree.leaf_of)
        return "/".join(next(missing, ()))

    def merged(self, one: TopologyAssignment, other: TopologyAssignment) -> TopologyAssignment:
        """Both together, in value order."""
        total = dict(one.domains)
        for values, count in other.domains.items():
            total[values] = total.get(values, 0) + count
        ordered = sorted(total, key=lambda values: self.tree.leaf_of[values])
        return replace(one, domains={values: total[values] for values in ordered})

    def domain_of(self, assignment: TopologyAssignment, params: AssignmentParameters) -> LeafRange | None:
        """The leaves of the domain that pods keep to where one is required; None where they may go anywhere.

        KeyError for a domain that is gone.
        """
        if not params.required or not assignment.domains:
            return None
        return self._around(min(self.tree.leaf_of[values] for values in assignment.domains), params.level)

    def replacing(
        self, pod_set: PodSet, kept: TopologyAssignment, lost: int, params: AssignmentParameters
    ) -> tuple[AssignmentParameters, LeafRange | None]:
        """What `lost` pods of a running set ask for, and the leaves they are confined to.

        Where a slice is broken, the pods go where the rest of it is, in inner slices if those were lost whole. Else
        they keep to the domain the others are in, where one is required.
        """
        params = replace(params, count=lost)
        if not kept.domains:
            return params, None
        broken = next((layer for layer in reversed(pod_set.slices) if lost % layer.size), None)
        if broken is None:
            return params, self.domain_of(kept, params)
        whole = next((layer for layer in reversed(pod_set.slices) if lost % layer.size == 0), None)
        slicing = SliceSpec(self.tree.lowest)
        if whole is not None:
            slicing = SliceSpec(self.tree.levels.index(whole.level), whole.size)
        place = self._broken_slice(broken, kept, lost)
        return (replace(params, slicing=slicing), place) if place is not None else (params, (0, 0))

    def _broken_slice(self, layer: Slice, kept: TopologyAssignment, lost: int) -> LeafRange | None:
        """The first domain in which `lost` more pods make whole slices; None when no domain lacks so many."""
        level = self.tree.levels.index(layer.level)
        running: dict[LeafRange, int] = {}
        for values, count in kept.domains.items():
            place = self._around(self.tree.leaf_of[values], level)
            running[place] = running.get(place, 0) + count
        return next((place for place, count in sorted(running.items()) if (count + lost) % layer.size == 0), None)

    def _around(self, leaf: int, level: int) -> LeafRange:
        """The leaves of the domain of `level` that a leaf is in."""
        return self.tree.span(level, int(self.tree.parent_of_leaf[level][leaf]), self.tree.lowest)


def _summed(members: Sequence[tuple[int, ...]], amounts: Sequence[Resources]) -> list[dict[str, int]]:
    found = []
    for rows in members:
        total: dict[str, int] = {}
        for row in rows:
            for name, amount in amounts[row].items():
                total[name] = total.get(name, 0) + amount
        found.append(total)
    return found
