"""The topologies of all flavors over the hosts they share find places for gangs, take them and give them back."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from fleet.placement.topology.capacity import CapacityMatrix
from fleet.placement.topology.domains import AssignmentParameters, IntArray, parameters_of
from fleet.placement.topology.flavor_topology import FlavorTopology
from fleet.placement.topology.pod_classes import LeafRange
from fleet.placement.topology.request import (
    NodeReplacement,
    PreviousAssignment,
    RefusalKind,
    TopologyAssignment,
    TopologyFlavor,
    TopologyOptions,
    TopologyRefusal,
    TopologyRequest,
    TopologyResult,
)
from fleet.snapshot import Node, PodSet
from model.quantity import Resources

_Found = tuple[TopologyAssignment, ...] | TopologyRefusal


class Topologies:
    """Topologies are what-if state: `take` and `give` change it and undo each other; `find` leaves it as it was.

    Usage lives on hosts, so that flavors which share hosts see each other's pods. A flavor whose topology ends above
    hosts cannot say which host its pods are on: only it sees them.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        foreign_use: Mapping[str, Resources],
        flavors: Iterable[TopologyFlavor],
        options: TopologyOptions | None = None,
    ) -> None:
        """`foreign_use`: node -> what pods that are not placed here take on it, `pods` included."""
        ordered = sorted(nodes, key=lambda node: node.name)
        taken = [foreign_use.get(node.name, {}) for node in ordered]
        self._hosts = CapacityMatrix([node.allocatable for node in ordered], taken)
        self._row_of = {node.name: row for row, node in enumerate(ordered)}
        self._flavors = {
            flavor.name: FlavorTopology(flavor, ordered, self._hosts, taken, options or TopologyOptions())
            for flavor in sorted(flavors, key=lambda flavor: flavor.name)
        }

    def levels(self, flavor: str) -> tuple[str, ...]:
        """The levels of a flavor, coarse to fine; KeyError when it has no topology."""
        return self._flavors[flavor].tree.levels

    def find(self, requests: Sequence[TopologyRequest], *, empty: bool = False) -> TopologyResult:
        """Places for the pod sets in order, each seeing what those before it took; stops at the first refusal.

        `empty`: as if no gang took anything (pods of nobody stay). KeyError for a flavor without topology.
        """
        return TopologySearch(self._flavors, partial(self._charge, base=True), empty=empty).find(requests)

    # -- what-if ------------------------------------------------------------------------------------------------------

    def take(self, assignment: TopologyAssignment) -> None:
        """Lets the pods of an assignment use their domains. Domains that are gone are passed over."""
        self._charge(assignment, 1, base=False)

    def give(self, assignment: TopologyAssignment) -> None:
        """Undoes `take`."""
        self._charge(assignment, -1, base=False)

    def set_used(self, node: str, used: Resources) -> None:
        """Sets all that gangs take on a node. Only topologies that end in hosts see it."""
        self._hosts.set_used(self._row_of[node], used)

    def fits(self, assignments: Iterable[TopologyAssignment]) -> bool:
        """Whether there is still room for all of these together, just where they are."""
        assignments = tuple(assignments)
        if any(self._flavors[assignment.flavor].gone(assignment) for assignment in assignments):
            return False
        needed: dict[tuple[int, int, int], tuple[CapacityMatrix, int]] = {}
        for capacity, rows, counts, requests in (it for assignment in assignments for it in self._charges(assignment)):
            for column, amount in capacity.columns_of(requests).columns:
                for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                    slot = (id(capacity), column, row)
                    needed[slot] = (capacity, needed.get(slot, (capacity, 0))[1] + amount * count)
        return all(
            total <= capacity.base[column, row] - capacity.used[column, row]
            for (_, column, row), (capacity, total) in needed.items()
        )

    def _charge(self, assignment: TopologyAssignment, sign: int, *, base: bool) -> None:
        """Counts an assignment in (1) or out (-1); `base`: as pods of nobody, which `find(empty=True)` sees too."""
        for capacity, rows, counts, requests in self._charges(assignment):
            side, signed = (capacity.base, -sign) if base else (capacity.used, sign)
            capacity.charge(side, rows, requests, counts * signed)

    def _charges(
        self, assignment: TopologyAssignment
    ) -> Iterator[tuple[CapacityMatrix, IntArray, IntArray, Resources]]:
        """Rows and pods in every matrix that counts them: the flavor's own, and the sums over hosts of coarser ones."""
        topology = self._flavors[assignment.flavor]
        rows, counts = topology.rows_of(assignment)
        yield topology.capacity, rows, counts, assignment.requests
        for other in self._flavors.values() if topology.tree.on_hosts else ():
            if not other.tree.on_hosts:
                leaves = other.leaf_of_host[rows]
                inside = leaves >= 0
                yield other.capacity, leaves[inside], counts[inside], assignment.requests


class TopologySearch:
    """One search for all pod sets of a workload, group by group.

    What earlier pod sets take is held while later ones are placed, and released at the end.

    `hold(assignment, sign)` adds (1) or takes off (-1) pods that even a search on empty hosts has to see.
    """

    def __init__(
        self, flavors: Mapping[str, FlavorTopology], hold: Callable[[TopologyAssignment, int], None], *, empty: bool
    ) -> None:
        self._flavors = flavors
        self._hold = hold
        self._empty = empty
        self._assumed: list[TopologyAssignment] = []
        self._held = 0
        """The first so many of `_assumed` are held; the others follow when somebody searches again."""

    def find(self, requests: Sequence[TopologyRequest]) -> TopologyResult:
        """Assignments in the order of `requests` up to the first group that finds no place."""
        try:
            return self._result(requests)
        finally:
            while self._held:
                self._held -= 1
                self._hold(self._assumed[self._held], -1)

    def _result(self, requests: Sequence[TopologyRequest]) -> TopologyResult:
        placed: dict[str, TopologyAssignment] = {}
        refusal = None
        for group in _groups(requests):
            lost_a_host = any(isinstance(request.previous, NodeReplacement) for request in group)
            found = self._replace_each(group) if lost_a_host else self._place(group)
            if isinstance(found, TopologyRefusal):
                refusal = found
                break
            placed |= {assignment.pod_set: assignment for assignment in found}
        names = (request.pod_set.name for request in requests)
        return TopologyResult(tuple(placed[name] for name in names if name in placed), refusal)

    def _search(
        self,
        request: TopologyRequest,
        params: AssignmentParameters,
        leader: PodSet | None = None,
        within: LeafRange | None = None,
    ) -> _Found:
        for assignment in self._assumed[self._held :]:
            self._hold(assignment, 1)
            self._held += 1
        topology = self._flavors[request.flavor]
        empty = self._empty and not isinstance(request.previous, NodeReplacement)
        return topology.search(request, params, leader, empty=empty, within=within)

    # -- sets that start ----------------------------------------------------------------------------------------------

    def _place(self, group: Sequence[TopologyRequest]) -> _Found:
        workers, leader = _workers_and_leader(group)
        if len(group) > 2 or (leader is not None and leader.pod_set.count != 1):
            counts = ", ".join(f"{request.pod_set.name} has {request.pod_set.count}" for request in group)
            return TopologyRefusal(RefusalKind.INVALID_GROUP, workers.pod_set.name, counts)
        params = parameters_of(self._flavors[workers.flavor].tree, workers.pod_set)
        if isinstance(params, TopologyRefusal):
            return params
        if (found := self._scale(workers, leader, params)) is not None:
            return found
        found = self._search(workers, params.with_leader() if leader else params, leader.pod_set if leader else None)
        if not isinstance(found, TopologyRefusal):
            self._assumed += found
        return found

    # -- sets that grow or shrink -------------------------------------------------------------------------------------

    def _scale(
        self, workers: TopologyRequest, leader: TopologyRequest | None, params: AssignmentParameters
    ) -> _Found | None:
        """Keeps the places they have, more or fewer of them; None when everything has to be placed anew."""
        before, leads = _before(workers), _before(leader) if leader else None
        leads = leads.first(1) if leads else None
        topology, size = self._flavors[workers.flavor], params.slicing.size
        if before is None or any(topology.gone(it) for it in (before, leads) if it):
            return None
        if before.count % size or params.count % size:
            return None
        if params.count > before.count:
            return self._grow(workers, leader, params, before, leads)
        if leader is not None and leads is None:
            return None
        kept = before.first(params.count)
        found = (kept,) if leads is None else (kept, leads)
        self._assumed += found
        return found

    def _grow(
        self,
        workers: TopologyRequest,
        leader: TopologyRequest | None,
        params: AssignmentParameters,
        before: TopologyAssignment,
        leads: TopologyAssignment | None,
    ) -> _Found:
        """Places only the difference, and a leader without a place; a required domain is the present one."""
        self._assumed += [before] if leads is None else [before, leads]
        anew = leader.pod_set if leader is not None and leads is None else None
        more = replace(params, count=params.count - before.count, leaders=int(anew is not None))
        topology = self._flavors[workers.flavor]
        found = self._search(workers, more, anew, topology.domain_of(before, params))
        if isinstance(found, TopologyRefusal):
            return found
        self._assumed += found
        total = topology.merged(found[0], before)
        return (total, *found[1:]) if leads is None else (total, leads)

    # -- sets that lost a host ----------------------------------------------------------------------------------------

    def _replace_each(self, group: Sequence[TopologyRequest]) -> _Found:
        """Keeps, set by set, the places that are left, and finds others for the pods that lost theirs."""
        placed: list[TopologyAssignment] = []
        for request in group:
            lost = request.previous
            found = self._replace(request, lost) if isinstance(lost, NodeReplacement) else self._place([request])
            if isinstance(found, TopologyRefusal):
                return found
            placed += found
        return tuple(placed)

    def _replace(self, request: TopologyRequest, lost_host: NodeReplacement) -> _Found:
        kept, lost = lost_host.assignment.without(lost_host.host)
        if not lost_host.movable or not lost:
            return (lost_host.assignment,)
        topology = self._flavors[request.flavor]
        if gone := topology.gone(kept):
            return TopologyRefusal(RefusalKind.STALE, request.pod_set.name, gone)
        params = parameters_of(topology.tree, request.pod_set)
        if isinstance(params, TopologyRefusal):
            return params
        params, within = topology.replacing(request.pod_set, kept, lost, params)
        found = self._search(request, params, within=within)
        if isinstance(found, TopologyRefusal):
            return found
        self._assumed += found
        return (topology.merged(found[0], kept),)


def _before(request: TopologyRequest) -> TopologyAssignment | None:
    return request.previous.assignment if isinstance(request.previous, PreviousAssignment) else None


def _workers_and_leader(group: Sequence[TopologyRequest]) -> tuple[TopologyRequest, TopologyRequest | None]:
    """The first two sets of a group, the larger first; a set by itself has no leader."""
    workers, leader = group[0], group[1] if len(group) > 1 else None
    if leader is not None and leader.pod_set.count > workers.pod_set.count:
        return leader, workers
    return workers, leader


def _groups(requests: Sequence[TopologyRequest]) -> list[list[TopologyRequest]]:
    """Sets of one group and flavor together, in the order of their first member."""
    groups: dict[tuple[str, str, int], list[TopologyRequest]] = {}
    for number, request in enumerate(requests):
        group = request.pod_set.group
        groups.setdefault((request.flavor, group, -1) if group else (request.flavor, "", number), []).append(request)
    return list(groups.values())
