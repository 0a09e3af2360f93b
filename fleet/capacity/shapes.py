"""Machine shapes: every way a pool may buy a machine, with what pods will find on it.

A shape is (offer x MIG layout) of a pool: type, zone, capacity type, price, allocatable after the cut and after what
DaemonSets take, and the labels and taints the node will carry.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fleet.memo import remembered
from fleet.mig.layouts import WHOLE, cut, layout_name, pool_layouts, with_gpus
from fleet.placement.board import Slot
from fleet.snapshot import Catalog, DaemonOverhead, InstanceType, Offer
from model import labels
from model.fleet import Fleet
from model.kinds import NodePool, Taint
from model.pools import pool_requirements
from model.quantity import Resources
from model.requirements import Requirements


@dataclass(frozen=True, slots=True)
class Shape:
    """One way to buy a machine from a pool."""

    pool: NodePool
    offer: Offer
    layout: str
    """MIG configuration name; empty = GPUs whole."""
    allocatable: Resources
    """Without what DaemonSets take."""
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    layout_rank: int = 0
    """Place of the layout in the pool's order."""

    @property
    def key(self) -> tuple[str, str, str, str, int, str]:
        """Ends every tie between shapes: machines are born with the pool's first layout that does."""
        offer = self.offer
        return (
            self.pool.name,
            offer.instance_type.name,
            offer.zone,
            offer.capacity_type,
            self.layout_rank,
            self.layout,
        )

    def slot(self, name: str, only_for: str) -> Slot:
        """A fresh machine of this shape, for the board."""
        return Slot(name, "", name, self.labels, self.taints, dict(self.allocatable), self.pool.name, only_for)


@dataclass(slots=True)
class Shapes:
    """All shapes of a fleet, computed once a pool; see `shapes_of`."""

    fleet: Fleet
    catalog: Catalog
    daemons: tuple[DaemonOverhead, ...] = ()
    _by_pool: dict[str, tuple[Shape, ...]] = field(default_factory=dict)

    def of(self, pool: NodePool) -> tuple[Shape, ...]:
        """Every shape of the pool, whatever is short or full at present; sorted by price, then key."""
        if pool.name not in self._by_pool:
            found = sorted(self._build(pool), key=lambda shape: (shape.offer.price_usd_h, shape.key))
            self._by_pool[pool.name] = tuple(found)
        return self._by_pool[pool.name]

    @staticmethod
    def flexible(pool: NodePool, shapes: Iterable[Shape]) -> bool:
        """Whether these shapes leave as many distinct values open as the pool's `minValues` ask (Karpenter 2.6)."""
        known = list(shapes)
        return all(
            len({shape.labels.get(term.key) for shape in known}) >= term.min_values
            for term in pool.spec.requirements
            if term.min_values
        )

    def _build(self, pool: NodePool) -> Iterator[Shape]:
        wanted = pool_requirements(pool)
        layouts = pool_layouts(self.fleet, pool)
        compatible: dict[str, bool] = {}
        for offer in self.catalog.offers:
            machine = offer.instance_type
            if machine.name not in compatible:
                compatible[machine.name] = self._suits(pool, wanted, machine)
            if not compatible[machine.name] or offer.capacity_type not in pool.spec.capacity_types:
                continue
            if not wanted.of(labels.ZONE).has(offer.zone):
                continue
            for layout in layouts or (WHOLE,):
                gpus = cut(machine, layouts[layout]) if layout else whole_gpus(pool, machine)
                if gpus is not None:
                    offered = with_gpus(machine.allocatable, gpus)
                    if not pool.spec.placement.efa:
                        offered.pop(labels.EFA_RESOURCE, None)  # the type has EFA, but it is not asked for
                    yield self._shape(pool, offer, layout, offered)

    @staticmethod
    def _suits(pool: NodePool, wanted: Requirements, machine: InstanceType) -> bool:
        if pool.spec.placement.efa and not machine.efa_interfaces:
            return False
        if pool.spec.gpu is not None and not machine.gpu_count:
            return False  # fractional GPUs (g6f) carry a GPU's name but no whole GPU
        carried = {**machine.labels, **pool.spec.template.labels, labels.NODE_POOL: pool.name}
        return Requirements.from_labels(carried).compatible(wanted, undefined=_DECIDED_LATER)

    def _shape(self, pool: NodePool, offer: Offer, layout: str, allocatable: Resources) -> Shape:
        node_labels = node_labels_of(pool, offer, layout, self.catalog.region)
        left = dict(allocatable)
        for daemon in self.daemons:
            if all(node_labels.get(key) == value for key, value in daemon.node_selector.items()):
                for resource, amount in (*daemon.requests.items(), ("pods", 1)):
                    left[resource] = left.get(resource, 0) - amount
        rank = list(pool_layouts(self.fleet, pool)).index(layout) if layout else 0
        return Shape(pool, offer, layout, left, node_labels, pool.spec.template.taints, rank)


@remembered(4)
def shapes_of(fleet: Fleet, catalog: Catalog, daemons: tuple[DaemonOverhead, ...] = ()) -> Shapes:
    """The shapes of a fleet: the same until revision, prices or DaemonSets change, whatever happens in the cluster."""
    return Shapes(fleet, catalog, daemons)


_DECIDED_LATER = labels.WELL_KNOWN | {labels.MIG_LAYOUT}
"""Labels that the offer and the layout decide, not the type."""


def whole_gpus(pool: NodePool, machine: InstanceType) -> dict[str, int]:
    """The GPU resources of a machine that is not cut: whole GPUs, or replicas of them under time-slicing and MPS."""
    amount = machine.allocatable.get(labels.GPU_RESOURCE, 0) * pool.spec.sharing.replicas
    return {labels.GPU_RESOURCE: amount} if amount else {}


def node_labels_of(pool: NodePool, offer: Offer, layout: str, region: str) -> dict[str, str]:
    """The labels a node of this pool and offer will carry."""
    found = dict(offer.instance_type.labels)
    found |= {
        labels.ZONE: offer.zone,
        labels.REGION: region,
        labels.CAPACITY_TYPE: offer.capacity_type,
        labels.NODE_POOL: pool.name,
    }
    sharing = pool.spec.sharing
    if layout:
        found |= {labels.MIG_CONFIG: layout, labels.MIG_LAYOUT: layout_name(layout)}
    elif sharing.time_slicing is not None:
        found[labels.DEVICE_PLUGIN_CONFIG] = f"time-slicing-{sharing.replicas}"
    elif sharing.mps is not None:
        found[labels.DEVICE_PLUGIN_CONFIG] = f"mps-{sharing.replicas}"
    return found | pool.spec.template.labels
