"""The topology placer finds places on standing machines for pods that ask for racks, slices or to be near a leader.

The cluster state stays the one truth of what is free: before every search the topologies are told of the slots that
have changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.placement.cluster_state import ChangePosition, ClusterState, NodeAssignment, NodeSlot
from fleet.placement.flavor_nodes import FlavorNodes
from fleet.placement.topology import (
    NodeReplacement,
    Topologies,
    TopologyAssignment,
    TopologyFlavor,
    TopologyRequest,
    TopologyResult,
)
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Node, PodSet
from model import labels
from model.quantity import Resources

_MEMBER = "muster.dev/member-of-flavor."
"""Put on copies of nodes, so that a flavor selects its own whatever its pools are called."""
_MOST_DOMAINS = 32
"""Domains tried for a group of several pod sets."""
_NOWHERE = ""
"""The host of pods that have lost theirs: no node is called that."""


@dataclass(slots=True)
class TopologyPlacer:
    """Finds places in the topologies of a cluster state, which are made when the first gang asks for them."""

    state: ClusterState
    flavors: Mapping[str, FlavorNodes]
    """Those that have a topology."""
    _topologies: Topologies | None = None
    _initial: dict[str, Resources] = field(default_factory=dict)
    """Slot -> what was free on it when the topologies were made."""
    _seen: ChangePosition = (-1, 0)

    def find(self, pod_sets: Sequence[tuple[PodSet, Sequence[str]]]) -> list[NodeAssignment] | Refusal:
        """Places on standing machines for all pods of pod sets with their flavors; nothing is taken."""
        if group := next(filter(None, (_larger_group(pods, pod_sets) for pods, _ in pod_sets)), ""):
            return self._in_one_domain(pod_sets, group)
        return self._assignments([self._request(pod_set, flavors) for pod_set, flavors in pod_sets])

    def _in_one_domain(
        self, pod_sets: Sequence[tuple[PodSet, Sequence[str]]], group: str
    ) -> list[NodeAssignment] | Refusal:
        """Places for pod sets of which several, more than a leader and its workers, have to share a domain.

        The domains with room are tried one after the other, the tightest first, `_MOST_DOMAINS` at most: in each the
        sets are placed as if each were by itself, with its own slices.
        """
        sets = [pods for pods, _ in pod_sets if pods.group == group]
        label = sets[0].required_topology
        for value in self._domains_with_room(label, sets)[:_MOST_DOMAINS]:
            tied = [(_tied(it, label, value) if it.group == group else it, flavors) for it, flavors in pod_sets]
            if not isinstance(found := self.find(tied), Refusal):
                return found
        names = ", ".join(f"{pods.name} ({pods.count})" for pods in sets)
        return Refusal(Reason.TOPOLOGY, f"no domain of {label} has places for {names}, which have to share one")

    def _domains_with_room(self, label: str, sets: Sequence[PodSet]) -> list[str]:
        """Domains that hold each set, if the others were not there; the tightest for the first set first."""
        rooms: dict[str, list[int]] = {}
        for slot in self.state.slots.values():
            if slot.node and not slot.only_for and (value := slot.labels.get(label)):
                room = rooms.setdefault(value, [0] * len(sets))
                for n, pods in enumerate(sets):
                    room[n] += max(0, slot.room_for(pods.requests))
        fitting = (it for it in rooms if all(has >= pods.count for has, pods in zip(rooms[it], sets, strict=True)))
        return sorted(fitting, key=lambda it: (rooms[it], it))

    def find_replacements(
        self, lost: Sequence[tuple[PodSet, Sequence[str], int]], kept: Mapping[str, Mapping[str, int]]
    ) -> list[NodeAssignment] | Refusal:
        """Places for the lost pods of pod sets that run: (set, flavors, pods lost); `kept`: set -> node -> its others.

        Slices are made whole again, and who has to share a domain stays in it.
        """
        requests = []
        for pod_set, flavors, count in lost:
            request = self._request(pod_set, flavors)
            if not isinstance(request, Refusal):
                request = replace(request, previous=_replacement(request, kept.get(pod_set.name, {}), count))
            requests.append(request)
        found = self._assignments(requests)
        if isinstance(found, Refusal):
            return found
        more = [(it, it.count - kept.get(it.pod_set, {}).get(it.slot.name, 0)) for it in found]
        return [replace(it, count=count) for it, count in more if count > 0]

    def _request(self, pod_set: PodSet, flavors: Sequence[str]) -> TopologyRequest | Refusal:
        flavor = next((name for name in flavors if name in self.flavors), "")
        if not flavor:
            message = f"{' and '.join(flavors)} has no topology to place {pod_set.name} on"
            return Refusal(Reason.TOPOLOGY, message)
        asks = pod_set.required_topology or pod_set.wishes
        return TopologyRequest(pod_set if asks else replace(pod_set, any_topology=True), flavor)

    def _assignments(self, asked: Sequence[TopologyRequest | Refusal]) -> list[NodeAssignment] | Refusal:
        requests: list[TopologyRequest] = []
        for request in asked:
            if isinstance(request, Refusal):
                return request
            requests.append(request)
        found = self._found(requests)
        if found.refusal is not None:
            return Refusal(Reason.TOPOLOGY, found.refusal.message)
        return [
            NodeAssignment(assignment.pod_set, self.state.slots[values[-1]], count)
            for assignment in found.assignments
            for values, count in assignment.domains.items()
        ]

    def _found(self, requests: Sequence[TopologyRequest]) -> TopologyResult:
        """The best places, on machines that are to leave only where there are none without them."""
        leaving = [slot.name for slot in self.state.slots.values() if slot.leaving]
        if leaving:
            mark = self.state.mark()
            for name in leaving:
                self.state.close(name)
            found = self._caught_up().find(requests)
            self.state.undo(mark)
            if found.refusal is None:
                return found
        return self._caught_up().find(requests)

    def _caught_up(self) -> Topologies:
        changed = self.state.touched(self._seen) if self._topologies is not None else None
        if self._topologies is None or changed is None:
            self._topologies = self._made()
        else:
            for slot in changed:
                if slot.name in self._initial:
                    self._topologies.set_used(slot.name, _used(self._initial[slot.name], slot))
        self._seen = self.state.now()
        return self._topologies

    def _made(self) -> Topologies:
        standing = [slot for _, slot in sorted(self.state.slots.items()) if slot.node and not slot.only_for]
        self._initial = {slot.name: dict(slot.free) for slot in standing}
        flavors = [
            TopologyFlavor(name, _to_hosts(nodes.levels), {_MEMBER + name: "true"}, nodes.tolerations)
            for name, nodes in sorted(self.flavors.items())
        ]
        return Topologies([self._node(slot) for slot in standing], {}, flavors)

    def _node(self, slot: NodeSlot) -> Node:
        member = {_MEMBER + name: "true" for name, nodes in self.flavors.items() if nodes.owns(slot)}
        carried = {**slot.labels, labels.HOSTNAME: slot.name, **member}
        free = dict(slot.free)
        return Node(
            slot.name, slot.name, "", carried, slot.taints, free, ready=True, unschedulable=False, created_at_s=0.0
        )


def _larger_group(pods: PodSet, pod_sets: Sequence[tuple[PodSet, Sequence[str]]]) -> str:
    """Returns the group of a set that shares a required domain with others, where these are not a leader's workers."""
    mates = [other for other, _ in pod_sets if other.group == pods.group]
    if not pods.group or _is_led(mates):
        return ""
    required = {other.required_topology for other in mates}
    return pods.group if len(required) == 1 and pods.required_topology else ""


def _is_led(mates: Sequence[PodSet]) -> bool:
    return len(mates) == 1 or (len(mates) == 2 and min(it.count for it in mates) <= 1)


def _tied(pods: PodSet, label: str, value: str) -> PodSet:
    selector = {**pods.node_selector, label: value}
    return replace(pods, group="", required_topology="", any_topology=True, node_selector=selector)


def _replacement(request: TopologyRequest, kept: Mapping[str, int], lost: int) -> NodeReplacement:
    """The set as it runs, with its lost pods on one host that is not there, however many hosts they were on."""
    domains: dict[tuple[str, ...], int] = {(node,): count for node, count in sorted(kept.items())}
    domains[_NOWHERE,] = lost
    pod_set = request.pod_set
    assignment = TopologyAssignment(pod_set.name, request.flavor, pod_set.requests, (labels.HOSTNAME,), domains)
    return NodeReplacement(assignment, _NOWHERE)


def _to_hosts(levels: tuple[str, ...]) -> tuple[str, ...]:
    return levels if levels[-1] == labels.HOSTNAME else (*levels, labels.HOSTNAME)


def _used(initial: Resources, slot: NodeSlot) -> dict[str, int]:
    return {name: initial.get(name, 0) - slot.free.get(name, 0) for name in {*initial, *slot.free}}
