"""Standing machines as topologies: places for pods that wish for racks, slices or their leader's neighbourhood.

The board stays the one truth of what is free: before every search the topologies are told of the slots that changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.placement.cluster_state import ChangePosition, ClusterState, NodeAssignment, NodeSlot
from fleet.placement.flavor_nodes import FlavorNodes
from fleet.placement.topology import Ask, Broken, Placement, Topologies, TopologyFlavor
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Node, PodSet
from model import labels
from model.quantity import Resources

_MEMBER = "muster.dev/member-of-flavor."
"""Put on copies of nodes, so that a flavor selects its own whatever its pools are called."""
_NOWHERE = ""
"""The host of pods that have lost theirs: no node is called that."""


@dataclass(slots=True)
class TopologyPlacer:
    """The topologies of a pass, made when the first gang asks for them."""

    board: ClusterState
    grounds: Mapping[str, FlavorNodes]
    """Flavors that have a topology."""
    _topologies: Topologies | None = None
    _initial: dict[str, Resources] = field(default_factory=dict)
    _seen: ChangePosition = (-1, 0)

    def find(self, pod_sets: Sequence[tuple[PodSet, Sequence[str]]]) -> list[NodeAssignment] | Refusal:
        """Seats on standing machines for all pods of pod sets with their flavors; nothing is taken."""
        return self._seats([self._ask(pod_set, flavors) for pod_set, flavors in pod_sets])

    def mend(
        self, lost: Sequence[tuple[PodSet, Sequence[str], int]], kept: Mapping[str, Mapping[str, int]]
    ) -> list[NodeAssignment] | Refusal:
        """Seats for the lost pods of pod sets that run: (set, flavors, pods lost); `kept`: set -> node -> its others.

        Slices are made whole again, and who has to share a domain stays in it.
        """
        asks = []
        for pod_set, flavors, count in lost:
            ask = self._ask(pod_set, flavors)
            if not isinstance(ask, Refusal):
                ask = replace(ask, standing=_broken(ask, kept.get(pod_set.name, {}), count))
            asks.append(ask)
        seats = self._seats(asks)
        if isinstance(seats, Refusal):
            return seats
        more = [(seat, seat.count - kept.get(seat.pod_set, {}).get(seat.slot.name, 0)) for seat in seats]
        return [replace(seat, count=count) for seat, count in more if count > 0]

    def _ask(self, pod_set: PodSet, flavors: Sequence[str]) -> Ask | Refusal:
        flavor = next((name for name in flavors if name in self.grounds), "")
        if not flavor:
            message = f"{' and '.join(flavors)} has no topology to place {pod_set.name} on"
            return Refusal(Reason.TOPOLOGY, message)
        wishing = pod_set.required_topology or pod_set.wishes
        return Ask(pod_set if wishing else replace(pod_set, any_topology=True), flavor)

    def _seats(self, asked: Sequence[Ask | Refusal]) -> list[NodeAssignment] | Refusal:
        asks: list[Ask] = []
        for ask in asked:
            if isinstance(ask, Refusal):
                return ask
            asks.append(ask)
        found = self._caught_up().find(asks)
        if found.refusal is not None:
            return Refusal(Reason.TOPOLOGY, found.refusal.message)
        return [
            NodeAssignment(placement.pod_set, self.board.slots[values[-1]], count)
            for placement in found.placements
            for values, count in placement.domains.items()
        ]

    def _caught_up(self) -> Topologies:
        changed = self.board.touched(self._seen) if self._topologies is not None else None
        if self._topologies is None or changed is None:
            self._topologies = self._made()
        else:
            for slot in changed:
                if slot.name in self._initial:
                    self._topologies.stand(slot.name, _taken(self._initial[slot.name], slot))
        self._seen = self.board.now()
        return self._topologies

    def _made(self) -> Topologies:
        standing = [slot for _, slot in sorted(self.board.slots.items()) if slot.node and not slot.only_for]
        self._initial = {slot.name: dict(slot.free) for slot in standing}
        flavors = [
            TopologyFlavor(name, _to_hosts(ground.levels), {_MEMBER + name: "true"}, ground.tolerations)
            for name, ground in sorted(self.grounds.items())
        ]
        return Topologies([self._node(slot) for slot in standing], {}, flavors)

    def _node(self, slot: NodeSlot) -> Node:
        member = {_MEMBER + name: "true" for name, ground in self.grounds.items() if ground.owns(slot)}
        carried = {**slot.labels, labels.HOSTNAME: slot.name, **member}
        return Node(
            slot.name,
            slot.name,
            "",
            carried,
            slot.taints,
            dict(slot.free),
            ready=True,
            unschedulable=False,
            created_at_s=0.0,
        )


def _broken(ask: Ask, kept: Mapping[str, int], lost: int) -> Broken:
    """The set as it runs: its lost pods on a host that is not there, whatever many they were on."""
    domains: dict[tuple[str, ...], int] = {(node,): count for node, count in sorted(kept.items())}
    domains[_NOWHERE,] = lost
    return Broken(Placement(ask.pod_set.name, ask.flavor, ask.pod_set.requests, (labels.HOSTNAME,), domains), _NOWHERE)


def _to_hosts(levels: tuple[str, ...]) -> tuple[str, ...]:
    return levels if levels[-1] == labels.HOSTNAME else (*levels, labels.HOSTNAME)


def _taken(initial: Resources, slot: NodeSlot) -> dict[str, int]:
    return {name: initial.get(name, 0) - slot.free.get(name, 0) for name in {*initial, *slot.free}}
