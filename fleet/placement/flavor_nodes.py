"""A flavor, ours or Kueue's, stands for nodes and for the pools that buy more of them; a pod set needs some of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fleet.mig.layouts import is_gpu_resource
from fleet.offerings.offerings import Offerings
from fleet.placement.cluster_state import ClusterState, NodeSlot
from fleet.placement.plan import Need
from fleet.placement.shared_domains import sold_by_the_block
from fleet.quota.specs import QuotaFlavorSpec
from fleet.quota.volcano import ANY_MACHINE
from fleet.snapshot import Gang, PodSet
from fleet.snapshot.affinity import FOR_GANGS
from fleet.snapshot.device_claims import without_undecided
from model.fleet import Fleet
from model.gpu_sharing import plugin_config_name
from model.index import Index, derived
from model.kinds import NodePool, RequirementTerm, Taint, Toleration
from model.labels import DEVICE_PLUGIN_CONFIG, DRA_PLUGIN, GPU_RESOURCE, SHARED_GPU_RESOURCE
from model.upstream.capacity import pools_of, wanted_labels


@dataclass(frozen=True, slots=True)
class FlavorNodes:
    """A flavor stands for the nodes with these labels or, where it has no labels, for the machines of its pools."""

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

    def owns(self, slot: NodeSlot) -> bool:
        """Whether a machine belongs to the flavor."""
        return self.stands_for(slot.labels, slot.pool)

    def stands_for(self, labels: Mapping[str, str], pool: str) -> bool:
        """Whether a machine with these labels, of this pool (empty = of none), belongs to the flavor."""
        if self.node_labels or self.any_node:
            return all(labels.get(key) == value for key, value in self.node_labels.items())
        return pool in {each.name for each in self.pools}


def nodes_of_flavor(fleet: Fleet, name: str) -> FlavorNodes | None:
    """The machines of a flavor; None when it is not declared. A ResourceFlavor goes before what a pool implies."""
    return _flavors(fleet.index, fleet).get(name)


@derived()
def _flavors(_index: Index, fleet: Fleet) -> Mapping[str, FlavorNodes]:
    found = {}
    for name, flavor in fleet.flavors.items():
        spec = flavor.spec
        pools = sorted((fleet.node_pools[pool] for pool in spec.node_pools), key=lambda p: (-p.spec.weight, p.name))
        levels = fleet.topologies[spec.topology].spec.levels if spec.topology else ()
        found[name] = FlavorNodes(tuple(pools), spec.node_labels, spec.tolerations, levels=levels)
    for name, upstream in fleet.resource_flavors.items():
        behind = pools_of(upstream, fleet.node_pools.values())
        taints, tolerations = upstream.spec.node_taints, upstream.spec.tolerations
        topology = upstream.spec.topology_name
        levels = fleet.topologies[topology].spec.levels if topology else ()
        found[name] = FlavorNodes(behind, wanted_labels(upstream), tolerations, taints, any_node=True, levels=levels)
    if fleet.volcano_queues:
        everything = sorted(fleet.node_pools.values(), key=lambda pool: (-pool.spec.weight, pool.name))
        found[ANY_MACHINE] = FlavorNodes(tuple(everything), any_node=True)
    return dict(sorted(found.items()))


def gpus_asked(pod_set: PodSet) -> int:
    """How many GPUs that are not cut, or replicas of such, one pod asks for."""
    return max(pod_set.requests.get(GPU_RESOURCE, 0), pod_set.requests.get(SHARED_GPU_RESOURCE, 0))


def admitted_by_plugin(fleet: Fleet, pod_set: PodSet) -> PodSet:
    """The pod set, kept from machines where its pods get no GPUs.

    These are those whose device plugin would refuse them, as they ask for several replicas; those of the DRA driver for
    pods that name GPUs as resources, and those of the device plugin for pods that claim them.
    """
    term = _offered_to(fleet, pod_set)
    if pod_set.constraints.devices:
        pod_set = without_undecided(pod_set)
    if term is None:
        return pod_set
    return replace(pod_set, required_affinity=tuple((*all_of, term) for all_of in pod_set.required_affinity or ((),)))


def _offered_to(fleet: Fleet, pod_set: PodSet) -> RequirementTerm | None:
    if pod_set.constraints.devices:
        return RequirementTerm(key=DRA_PLUGIN, operator="In", values=("true",))
    if _some_dra(fleet.index, fleet.node_pools) and any(map(is_gpu_resource, pod_set.requests)):
        return RequirementTerm(key=DRA_PLUGIN, operator="NotIn", values=("true",))
    names = one_each_configs(fleet.index, fleet.node_pools) if gpus_asked(pod_set) > 1 else ()
    return RequirementTerm(key=DEVICE_PLUGIN_CONFIG, operator="NotIn", values=names) if names else None


@derived()
def _some_dra(_index: Index, pools: Mapping[str, NodePool]) -> bool:
    return any(pool.spec.sharing.dra is not None for pool in pools.values())


@derived()
def one_each_configs(_index: Index, pools: Mapping[str, NodePool]) -> tuple[str, ...]:
    """The configurations of the device plugin under which it gives a pod one replica at most."""
    shared = (pool.spec.sharing for pool in pools.values())
    return tuple(sorted({plugin_config_name(sharing) for sharing in shared if sharing.one_each}))


def pools_for_pods(fleet: Fleet) -> tuple[NodePool, ...]:
    """The pools that machines are bought of for pods of no gang, heaviest first."""
    return _pools_for_pods(fleet.index, fleet.node_pools)


@derived()
def _pools_for_pods(_index: Index, pools: Mapping[str, NodePool]) -> tuple[NodePool, ...]:
    serving = (pool for pool in pools.values() if "Pods" in pool.spec.serves)
    return tuple(sorted(serving, key=lambda pool: (-pool.spec.weight, pool.name)))


def sells(pool: NodePool, need: Need) -> bool:
    """Returns whether machines of a pool are bought on demand, and for such pods."""
    return pool.spec.replicas is None and serves(pool, need)


def serves(pool: NodePool, need: Need) -> bool:
    """Returns whether a pool serves such pods: those of gangs, or ordinary ones."""
    return ("Pods" if need.ordinary else "Gangs") in pool.spec.serves


def tolerations_of(fleet: Fleet, flavors: Iterable[str]) -> tuple[Toleration, ...]:
    """The tolerations that pods of a gang with these flavors are given."""
    known = [nodes for flavor in flavors if (nodes := nodes_of_flavor(fleet, flavor)) is not None]
    found = (toleration for nodes in known for toleration in nodes.tolerations)
    return tuple(dict.fromkeys((*found, *_KEPT)))


_KEPT: Final = (Toleration(key=FOR_GANGS.key, operator="Exists", effect="NoSchedule"),)
"""Of gangs whose machines are kept from ordinary pods until they start."""


def need_of_flavors(fleet: Fleet, pod_set: PodSet, names: Sequence[str], *, charged: bool = True) -> Need:
    """What a pod set needs once it has flavors: machines that belong to all of them. KeyError for unknown ones."""
    chosen = [_flavors(fleet.index, fleet)[name] for name in names]
    labels = {key: value for nodes in chosen for key, value in nodes.node_labels.items()}
    first, *others = chosen
    pools = tuple(pool for pool in first.pools if all(pool in other.pools for other in others))
    any_node = all(nodes.any_node for nodes in chosen)
    pod_set = admitted_by_plugin(fleet, pod_set)
    return Need(pod_set, tolerations_of(fleet, names), labels, pools, charged, any_node)


@dataclass(slots=True)
class FleetFlavors:
    """The flavors of a fleet, with the resources that each can offer; made once a pass."""

    fleet: Fleet
    offerings: Offerings
    state: ClusterState
    there: "Callable[[str, FlavorNodes], Iterable[frozenset[str]]] | None" = None
    """What the machines of a flavor have resources of, where that is known; None = the state is looked through."""
    _offered: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def placing(self) -> Mapping[str, FlavorNodes]:
        """The flavors that have a topology."""
        return {name: nodes for name, nodes in _flavors(self.fleet.index, self.fleet).items() if nodes.levels}

    def declared(self, gang: Gang) -> bool:
        """Whether each of its pod sets has flavors, and all that its pods were admitted with are declared still."""
        if not gang.ordinary and any(pods.name not in gang.flavors for pods in gang.pod_sets):
            return False
        return all(nodes_of_flavor(self.fleet, name) is not None for given in gang.flavors.values() for name in given)

    def need(self, pod_set: PodSet, names: Sequence[str], *, charged: bool = True) -> Need:
        """What a pod set needs once it has flavors (`need_of_flavors`)."""
        return need_of_flavors(self.fleet, pod_set, names, charged=charged)

    def ordinary(self, pod_set: PodSet, flavor: str = "") -> Need:
        """What pods of no gang need: any node will do, and machines of the pools that serve pods may be bought.

        Of one flavor alone where one is given, as their quota is of it. KeyError for one that is not declared.
        """
        pod_set = admitted_by_plugin(self.fleet, pod_set)
        if not flavor:
            return Need(pod_set, (), {}, pools_for_pods(self.fleet), any_node=True, ordinary=True)
        nodes = _flavors(self.fleet.index, self.fleet)[flavor]
        return Need(pod_set, (), nodes.node_labels, nodes.pools, any_node=nodes.any_node, ordinary=True)

    def need_of(self, gang: Gang, pod_set: PodSet) -> Need:
        """What a pod set of a gang that has its flavors needs, or of ordinary pods. KeyError for unknown flavors."""
        return self.ordinary(pod_set) if gang.ordinary else self.need(pod_set, gang.flavors[pod_set.name])

    def offered(self, name: str) -> frozenset[str]:
        """Every resource that some machine of the flavor has or could have."""
        if name not in self._offered:
            nodes = _flavors(self.fleet.index, self.fleet)[name]
            sold = map(self.offerings.resources, nodes.pools)
            self._offered[name] = frozenset[str]().union(*sold, *self._there(name, nodes))
        return self._offered[name]

    def _there(self, name: str, nodes: FlavorNodes) -> Iterable[Iterable[str]]:
        if self.there is not None:
            return self.there(name, nodes)
        return (slot.free for slot in self.state.slots.values() if nodes.owns(slot))

    def specs(self) -> Mapping[str, QuotaFlavorSpec]:
        """The flavors as the quota engine knows them."""
        return {
            name: QuotaFlavorSpec(
                *(name, _said(nodes), nodes.taints, nodes.tolerations),
                offers=self.offered(name),
                unsold="" if self.offered(name) else sold_by_the_block(self.offerings, nodes.pools),
            )
            for name, nodes in _flavors(self.fleet.index, self.fleet).items()
        }


def _said(nodes: FlavorNodes) -> Mapping[str, str]:
    """The labels that selectors of pods are compared with: those of a ResourceFlavor, as Kueue does."""
    return nodes.node_labels if nodes.any_node else {}
