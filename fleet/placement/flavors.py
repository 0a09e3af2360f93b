"""Flavors and the machines behind them: ours and Kueue's, their pools, and a pod set as it looks under them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.offerings.offerings import Offerings
from fleet.placement.board import Board, Slot
from fleet.placement.provision import Need
from fleet.quota.declared import FlavorSpec
from fleet.quota.volcano import ANY_MACHINE
from fleet.snapshot import PodSet
from fleet.snapshot.memo import remembered
from model.fleet import Fleet
from model.kinds import NodePool, Taint, Toleration
from model.upstream import pools_of, wanted_labels


@dataclass(frozen=True, slots=True)
class Ground:
    """Which machines a flavor stands for: nodes with these labels, or (without labels) machines of its pools."""

    pools: tuple[NodePool, ...]
    """Machines of these may be bought; heaviest first."""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    taints: tuple[Taint, ...] = ()
    """What the flavor says its nodes are tainted with; of machines it is the placement that looks at taints."""
    any_node: bool = False
    """Nodes of no pool belong to it as well, whatever they are called."""
    levels: tuple[str, ...] = ()
    """Of its topology, coarse to fine; empty = it has none."""

    def owns(self, slot: Slot) -> bool:
        """Whether a machine belongs to the flavor."""
        if self.node_labels or self.any_node:
            return all(slot.labels.get(key) == value for key, value in self.node_labels.items())
        return slot.pool in {pool.name for pool in self.pools}


def ground_of(fleet: Fleet, name: str) -> Ground | None:
    """The machines of a flavor; None when it is not declared. A ResourceFlavor goes before what a pool implies."""
    return _grounds(fleet).get(name)


@remembered()
def _grounds(fleet: Fleet) -> Mapping[str, Ground]:
    found = {}
    for name, flavor in fleet.flavors.items():
        spec = flavor.spec
        pools = sorted((fleet.node_pools[pool] for pool in spec.node_pools), key=lambda p: (-p.spec.weight, p.name))
        levels = fleet.topologies[spec.topology].spec.levels if spec.topology else ()
        found[name] = Ground(tuple(pools), spec.node_labels, spec.tolerations, levels=levels)
    for name, upstream in fleet.resource_flavors.items():
        behind = pools_of(upstream, fleet.node_pools.values())
        taints, tolerations = upstream.spec.node_taints, upstream.spec.tolerations
        topology = upstream.spec.topology_name
        levels = fleet.topologies[topology].spec.levels if topology else ()
        found[name] = Ground(behind, wanted_labels(upstream), tolerations, taints, any_node=True, levels=levels)
    if fleet.volcano_queues:
        everything = sorted(fleet.node_pools.values(), key=lambda pool: (-pool.spec.weight, pool.name))
        found[ANY_MACHINE] = Ground(tuple(everything), any_node=True)
    return dict(sorted(found.items()))


def tolerations_of(fleet: Fleet, flavors: Iterable[str]) -> tuple[Toleration, ...]:
    """What pods of a gang that has these flavors are given to tolerate."""
    grounds = (ground_of(fleet, flavor) for flavor in flavors)
    return tuple(dict.fromkeys(toleration for ground in grounds if ground for toleration in ground.tolerations))


@dataclass(slots=True)
class Flavors:
    """Flavors of a fleet with what each can offer, computed once a cycle."""

    fleet: Fleet
    offerings: Offerings
    board: Board
    _offered: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def placing(self) -> Mapping[str, Ground]:
        """The flavors that have a topology."""
        return {name: ground for name, ground in _grounds(self.fleet).items() if ground.levels}

    def declared(self, names: Iterable[str]) -> bool:
        """Whether all of these flavors are."""
        return all(ground_of(self.fleet, name) is not None for name in names)

    def need(self, pod_set: PodSet, names: Sequence[str], *, charged: bool = True) -> Need:
        """The pod set as it looks under its flavors: on machines that belong to all of them. KeyError for others."""
        grounds = [_grounds(self.fleet)[name] for name in names]
        labels = {key: value for ground in grounds for key, value in ground.node_labels.items()}
        first, *others = grounds
        pools = tuple(pool for pool in first.pools if all(pool in other.pools for other in others))
        any_node = all(ground.any_node for ground in grounds)
        return Need(pod_set, tolerations_of(self.fleet, names), labels, pools, charged, any_node)

    def offered(self, name: str) -> frozenset[str]:
        """Every resource that some machine of the flavor has or could have."""
        if name not in self._offered:
            ground = _grounds(self.fleet)[name]
            found = {
                offer for pool in ground.pools for offering in self.offerings.of(pool) for offer in offering.allocatable
            }
            found |= {offer for slot in self.board.slots.values() if ground.owns(slot) for offer in slot.free}
            self._offered[name] = frozenset(found)
        return self._offered[name]

    def specs(self) -> Mapping[str, FlavorSpec]:
        """The flavors as the quota engine knows them."""
        return {
            name: FlavorSpec(name, _said(ground), ground.taints, ground.tolerations, offers=self.offered(name))
            for name, ground in _grounds(self.fleet).items()
        }


def _said(ground: Ground) -> Mapping[str, str]:
    """Labels that selectors of pods are compared with: those of a ResourceFlavor, as Kueue does."""
    return ground.node_labels if ground.any_node else {}
