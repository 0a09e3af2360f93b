"""A gang's needs are asked, and a plan is the answer: where every pod goes and what has to be bought or re-cut."""

from collections.abc import Hashable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

from fleet.mig.layouts import cut_anew, gpu_part
from fleet.mig.mixed_cuts import beside_work
from fleet.offerings.offerings import Offering
from fleet.placement.cluster_state import NodeAssignment, NodeSlot
from fleet.snapshot import Claim, Pin, PodSet
from fleet.snapshot.affinity import admits
from model.kinds import NodePool, Toleration
from model.mig.layouts import GpuCuts
from model.quantity import CPU, Resources


class HashedOnce(tuple[object, ...]):  # noqa: SLOT001  a tuple has no room for slots
    """A tuple whose hash is kept: it is a key again and again, and hashing tolerations takes its time."""

    _hash: int | None = None

    def __hash__(self) -> int:
        """Returns the hash of the tuple."""
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash


@dataclass(frozen=True, slots=True)
class Need:
    """A need is a pod set with the flavor assigned to it: it says which slots and pools may serve the pods."""

    pod_set: PodSet
    tolerations: tuple[Toleration, ...]
    node_labels: Mapping[str, str]
    """A slot must carry these (flavors over existing nodes)."""
    pools: tuple[NodePool, ...]
    """Heaviest first; a slot must be of one of them unless `node_labels` is given."""
    charged: bool = True
    """Whether quota counts any of what it asks; what nobody's quota counts may use machines, never cause a purchase."""
    any_node: bool = False
    """Slots of no pool will do as well, if the labels are there."""
    ordinary: bool = False
    """Whether these are pods of no gang, each by itself: nothing ties them to one zone or one GPU model."""
    until_s: float = 0.0
    """A slot that closes before this will not do (epoch seconds): the pods would not come to their end there."""
    kind: Hashable = field(init=False, repr=False, compare=False)
    """Equal for needs that accept the same slots."""
    asks: Hashable = field(init=False, repr=False, compare=False)
    """Equal for those that ask the same of them, too."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", HashedOnce(self._kind()))
        amounts = tuple(sorted(self.pod_set.requests.items()))
        object.__setattr__(self, "asks", HashedOnce((self.kind, amounts, self.pod_set.constraints.devices)))

    def of(self, pod_set: PodSet) -> "Need":
        """Returns the need of a gang of the same shape: with the labels of its own pods."""
        if pod_set.labels is self.pod_set.labels:
            return self
        own = copy(self)
        object.__setattr__(own, "pod_set", replace(self.pod_set, labels=pod_set.labels, namespace=pod_set.namespace))
        return own

    def _kind(self) -> tuple[object, ...]:
        pod_set = self.pod_set
        return (
            tuple(sorted(self.node_labels.items())),
            tuple(pool.name for pool in self.pools),
            self.any_node,
            self.ordinary,
            self.until_s,
            tuple(sorted(pod_set.node_selector.items())),
            pod_set.required_affinity,
            (*pod_set.tolerations, *self.tolerations),
        )

    def rank(self, pool: NodePool) -> int:
        """The place of one of the pools in the order of preference: pools of equal weight share it."""
        return len({it.spec.weight for it in self.pools if it.spec.weight > pool.spec.weight})

    def accepts(self, slot: NodeSlot) -> bool:
        """Whether a pod of the set may stand on the slot."""
        if slot.closes_s <= self.until_s:
            return False
        if self.node_labels or self.any_node:
            for key, value in self.node_labels.items():  # a loop, for it is asked of every machine there is
                if slot.labels.get(key) != value:
                    return False
        elif slot.pool not in [pool.name for pool in self.pools]:
            return False
        return admits(self.pod_set, self.tolerations, slot.labels, slot.taints)


@dataclass(frozen=True, slots=True)
class Recut:
    """A re-cut gives an idle machine another MIG layout of its pool; `slot` is the machine as it would be."""

    claim: str
    layout: str
    gpus: Resources
    """The GPU resources the machine would offer."""
    slot: NodeSlot
    cuts: GpuCuts = ()
    """How each GPU would be cut where only idle ones are, beside work on the others; else empty."""
    busy: bool = False
    """Whether its claim is being written: it is cut by a later pass, and kept until then."""

    def of(self, claim: Claim, now_s: float) -> Claim:
        """Returns the claim of the machine, to be cut so."""
        return cut_anew(claim, self.layout, self.gpus, now_s, beside_work(claim, self.cuts, now_s), self.cuts)


@dataclass(frozen=True, slots=True)
class PlannedNodeClaims:
    """Node claims that a plan asks for: `count` equal machines of one offering."""

    offering: Offering
    count: int
    room: Resources | None = None
    """What of each may be filled, for `minValues` of its pool; None = all of it."""


@dataclass(slots=True)  # never changed; frozen ones take three times as long to make, and there are many
class PlacementPlan:
    """A plan says where every pod of a gang goes and what must be done first. Slots bought are `new/<purchase>/<n>`."""

    assignments: tuple[NodeAssignment, ...] = ()
    recuts: tuple[Recut, ...] = ()
    purchases: tuple[PlannedNodeClaims, ...] = ()

    @property
    def cost_usd_h(self) -> float:
        """What the purchase costs an hour."""
        return sum(bought.offering.offer.price_usd_h * bought.count for bought in self.purchases)

    @property
    def busy(self) -> bool:
        """Whether a machine that it cuts is being written, so that it cannot begin in this pass."""
        return bool(self.recuts) and any(recut.busy for recut in self.recuts)

    @property
    def ready(self) -> bool:
        """Whether nothing has to be bought, cut or waited for first."""
        return not self.purchases and not self.recuts and all(it.slot.node for it in self.assignments)

    def pins(self) -> tuple[Pin, ...]:
        """The assignments as a gang's status has them."""
        return tuple(sorted([Pin(it.pod_set, it.slot.node, it.slot.claim, it.count) for it in self.assignments]))


def hardest_first(need: Need) -> tuple[object, ...]:
    """Returns a key for the order in which needs are placed.

    Who needs nobody comes first; what may buy before what may not, GPUs before the rest, then by size and name.
    """
    requests, looks = need.pod_set.requests, _looks_for_others(need.pod_set)
    gpus, most = sum(gpu_part(requests).values()), max(requests.values(), default=0)
    return looks, not need.charged, -gpus, -requests.get(CPU, 0), -most, need.pod_set.name


def _looks_for_others(pod_set: PodSet) -> bool:
    """Whether pods want company that is not of their own set: perhaps of another of the gang, which then goes first."""
    own = dict(pod_set.labels)
    return any(not it.means(pod_set.namespace, own, {}) for it in pod_set.constraints.affinity)
