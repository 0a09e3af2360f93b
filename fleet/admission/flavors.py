"""Flavors and the machines behind them: pools, what they offer, and a pod set as it looks under a flavor."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.admission.quota.declared import FlavorSpec
from fleet.capacity.provision import Need
from fleet.capacity.shapes import Shapes
from fleet.placement.board import Board, Slot
from fleet.snapshot import PodSet
from model.fleet import Fleet
from model.kinds import Flavor, NodePool


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

    def need(self, pod_set: PodSet, flavor_name: str, *, charged: bool = True) -> Need:
        """The pod set as it looks under this flavor."""
        flavor = self.fleet.flavors[flavor_name]
        return Need(pod_set, flavor.spec.tolerations, flavor.spec.node_labels, self.pools(flavor), charged)

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

    def specs(self) -> Mapping[str, FlavorSpec]:
        """The flavors as the quota engine knows them. Labels and taints of machines are the placement's business."""
        return {
            name: FlavorSpec(name, tolerations=flavor.spec.tolerations, offers=self.offered(name))
            for name, flavor in sorted(self.fleet.flavors.items())
        }


def _belongs(flavor: Flavor, slot: Slot) -> bool:
    wanted = flavor.spec.node_labels
    if wanted:
        return all(slot.labels.get(key) == value for key, value in wanted.items())
    return slot.pool in flavor.spec.node_pools
