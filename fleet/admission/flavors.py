"""Which flavors a gang may be given: assignments in the queue's order, one flavor a pod set."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product

from fleet.admission.tree import QuotaTree
from fleet.capacity.provision import Need
from fleet.capacity.shapes import Shapes
from fleet.placement.board import Board, Slot
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Gang, PodSet
from model.fleet import Fleet
from model.kinds import Flavor, NodePool, Queue

MAX_ASSIGNMENTS = 64
"""Combinations tried for a gang of several pod sets: a bound in steps, so that the same input gives the same answer."""

Assignment = Mapping[str, str]
"""Pod set -> flavor."""


@dataclass(slots=True)
class Flavors:
    """Flavors of a fleet with what each can offer, computed once a cycle."""

    fleet: Fleet
    shapes: Shapes
    board: Board
    _offered: dict[str, frozenset[str]] = field(default_factory=dict)

    def pools(self, flavor: Flavor) -> tuple[NodePool, ...]:
        """The flavor's pools, heaviest first."""
        pools = [self.fleet.node_pools[name] for name in flavor.spec.node_pools]
        return tuple(sorted(pools, key=lambda pool: (-pool.spec.weight, pool.name)))

    def need(self, pod_set: PodSet, flavor_name: str) -> Need:
        """The pod set as it looks under this flavor."""
        flavor = self.fleet.flavors[flavor_name]
        return Need(pod_set, flavor.spec.tolerations, flavor.spec.node_labels, self.pools(flavor))

    def offered(self, flavor_name: str) -> frozenset[str]:
        """Every resource that some machine of the flavor has or could have."""
        if flavor_name not in self._offered:
            flavor = self.fleet.flavors[flavor_name]
            found = {
                name for pool in self.pools(flavor) for shape in self.shapes.of(pool) for name in shape.allocatable
            }
            found |= {name for slot in self.board.slots.values() if _belongs(flavor, slot) for name in slot.free}
            self._offered[flavor_name] = frozenset(found)
        return self._offered[flavor_name]

    def assignments(self, gang: Gang, queue: Queue, tree: QuotaTree) -> Iterator[Assignment] | Refusal:
        """Assignments in the queue's order; a refusal when some pod set fits no flavor at all."""
        choices = []
        for pod_set in gang.pod_sets:
            wanted = {name for name, amount in pod_set.requests.items() if amount}
            suitable = [
                name
                for name in queue.spec.flavors
                if tree.offers_flavor(queue.name, name) and wanted <= self.offered(name)
            ]
            if not suitable:
                return _no_flavor(self, pod_set, queue, tree, wanted)
            choices.append(suitable)
        names = [pod_set.name for pod_set in gang.pod_sets]
        return (dict(zip(names, chosen, strict=True)) for chosen in islice(product(*choices), MAX_ASSIGNMENTS))


def _belongs(flavor: Flavor, slot: Slot) -> bool:
    wanted = flavor.spec.node_labels
    if wanted:
        return all(slot.labels.get(key) == value for key, value in wanted.items())
    return slot.pool in flavor.spec.node_pools


def _no_flavor(flavors: Flavors, pod_set: PodSet, queue: Queue, tree: QuotaTree, wanted: set[str]) -> Refusal:
    details = []
    for name in queue.spec.flavors:
        if not tree.offers_flavor(queue.name, name):
            details.append(f"{name}: no team of its tree has quota")
        else:
            details.append(f"{name}: no machine offers {', '.join(sorted(wanted - flavors.offered(name)))}")
    return Refusal(
        Reason.NO_MATCHING_FLAVOR, f"{pod_set.name} fits no flavor of queue {queue.name} ({'; '.join(details)})"
    )
