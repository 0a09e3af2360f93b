"""Judges which machines may be adopted: a table of checks, of which the first that fails is reported.

Every rule asks for what the machine has now. Nothing is left to wait for once the claim is written: a claim that waits
in vain gives its machine back, and one that was not bought here is not to be lost for that.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fleet.catalog import InstanceOffer
from fleet.mig.layouts import owed
from fleet.nodeclaims.drift_facts import wrong_key
from fleet.nodeclaims.fixed import remaining
from fleet.offerings.limits import PoolHeadroom, headroom_of_pools
from fleet.offerings.offerings import Offering, node_labels_of, offerings_now
from fleet.reasons import Reason, Refusal
from fleet.snapshot import CapacityPool, Claim, Instance, Launch, Node, Snapshot
from fleet.snapshot.lookups import claims_by_pool, nodes_by_instance
from model import labels
from model.fleet import Fleet
from model.kinds import NodePool
from model.pools import pool_requirements
from model.requirements import Requirements

KARPENTERS: Final = "karpenter.sh/nodeclaim"
"""Tag of instances that Karpenter manages, on any cloud."""


def asks(instance: Instance) -> bool:
    """Returns whether the instance's tag asks for adoption, by this cluster or another."""
    return labels.ADOPT in instance.tags


def asked_pool(instance: Instance, cluster: str) -> str:
    """Returns the node pool of this cluster that the instance is to join; empty when its tag names none."""
    named, _, pool = instance.tags.get(labels.ADOPT, "").partition("/")
    return pool if named == cluster else ""


def claim_name(instance_id: str) -> str:
    """Returns the name of the claim that adopts an instance, whatever pool it joins."""
    return f"adopted-{instance_id}"


def claim_for(instance: Instance, offering: Offering, now_s: float) -> Claim:
    """Returns the claim that adopts a machine as this offering. Its pool hash is empty: it is not judged as drifted."""
    name = claim_name(instance.id)
    return Claim(
        name=name,
        uid="",
        node_pool=offering.pool.name,
        pool_hash="",
        capacity_pool=offering.offer.pool_key,
        price_usd_h=offering.offer.price_usd_h,
        list_usd_h=offering.offer.list_usd_h,
        launch=Launch(name, 0, 1),
        created_at_s=now_s,
        purpose=f"adopted, as the tag {labels.ADOPT} of instance {instance.id} asks",
        adopts=instance.id,
        resources=offering.allocatable,
        layout=offering.layout,
        startup_taints=offering.pool.spec.template.startup_taints,
        instance_id=instance.id,
        launched_at_s=now_s,
    )


@dataclass(frozen=True, slots=True)
class _AdoptionRequest:
    """An `_AdoptionRequest` is a machine that is to join a pool, with what the pool may still have."""

    snapshot: Snapshot
    instance: Instance
    pool: NodePool
    node: Node
    offerings: tuple[Offering, ...]
    """Offerings of the pool that the machine could be: one for each MIG layout."""
    headroom: PoolHeadroom
    replicas_left: int | None
    """Machines that a fixed pool lacks; None = the pool is not fixed."""

    @property
    def where(self) -> CapacityPool:
        """Returns the capacity pool that the machine is of."""
        return capacity_pool_of(self.instance)


@dataclass(slots=True)
class AdoptionPass:
    """An `AdoptionPass` judges the machines that ask for adoption; `take` counts those adopted in it."""

    fleet: Fleet
    snapshot: Snapshot
    _headroom: dict[str, PoolHeadroom] = field(default_factory=dict)
    """Pool -> what it may still buy; computed for all pools at once, for they may share a placement group."""
    _taken: Counter[str] = field(default_factory=Counter)

    def judge(self, instance: Instance) -> Offering | Refusal:
        """Returns the offering that the machine is adopted as, or why it is not adopted."""
        snapshot = self.snapshot
        for reason, find in _BEFORE:
            if message := find(self.fleet, snapshot, instance):
                return Refusal(reason, message)
        pool = self.fleet.node_pools[asked_pool(instance, snapshot.cluster)]
        offerings = offerings_now(self.fleet, snapshot).of(pool)
        request = _AdoptionRequest(
            snapshot,
            instance,
            pool,
            nodes_by_instance(snapshot)[instance.id],
            tuple(offering for offering in offerings if offering.offer.pool_key == capacity_pool_of(instance)),
            self._headroom_of(pool),
            self._replicas_left(pool),
        )
        for reason, look in _CHECKS:
            if message := look(request):
                return Refusal(reason, message)
        return next(offering for offering in request.offerings if not _owed(request, offering))

    def take(self, offering: Offering) -> None:
        """Counts a machine that is adopted against the limits and replicas of its pool."""
        self._headroom_of(offering.pool).spend(offering, 1)
        self._taken[offering.pool.name] += 1

    def _headroom_of(self, pool: NodePool) -> PoolHeadroom:
        if not self._headroom:
            self._headroom = headroom_of_pools(self.fleet, self.snapshot)
        return self._headroom[pool.name]

    def _replicas_left(self, pool: NodePool) -> int | None:
        if pool.spec.replicas is None:
            return None
        staying = remaining(claims_by_pool(self.snapshot).get(pool.name, ()))
        return pool.spec.replicas - len(staying) - self._taken[pool.name]


def capacity_pool_of(instance: Instance) -> CapacityPool:
    """Returns the capacity pool that a machine was launched from."""
    return CapacityPool(instance.capacity_type, instance.instance_type, instance.zone, instance.reservation)


# -- what stands against it, in words that say what would change it; empty = nothing ---------------------------------


def _misnamed(_fleet: Fleet, snapshot: Snapshot, instance: Instance) -> str:
    if asked_pool(instance, snapshot.cluster):
        return ""
    said = instance.tags[labels.ADOPT]
    return f"its tag {labels.ADOPT} says {said!r}; to join this cluster it has to be {snapshot.cluster}/<node pool>"


def _kept(_fleet: Fleet, snapshot: Snapshot, instance: Instance) -> str:
    cluster = instance.tags.get(labels.CLUSTER, snapshot.cluster)
    if cluster != snapshot.cluster:
        return f"it belongs to cluster {cluster}: take its tag {labels.CLUSTER} away once nothing there answers for it"
    if instance.managed_by or KARPENTERS not in instance.tags:
        return instance.managed_by
    return f"its tag {KARPENTERS} says that it belongs to Karpenter (stop it, then take this tag away)"


def _undeclared(fleet: Fleet, snapshot: Snapshot, instance: Instance) -> str:
    name = asked_pool(instance, snapshot.cluster)
    return "" if name in fleet.node_pools else f"node pool {name} is not declared: declare it, or name another"


def _absent(_fleet: Fleet, snapshot: Snapshot, instance: Instance) -> str:
    if instance.state not in {"pending", "running"}:
        return f"it is {instance.state}: it has to run"
    if instance.state == "running" and instance.id in nodes_by_instance(snapshot):
        return ""
    return f"no node of this cluster is it: one has to join with providerID {instance.provider_id}"


def _claimed(_fleet: Fleet, snapshot: Snapshot, instance: Instance) -> str:
    node = nodes_by_instance(snapshot)[instance.id]
    known = [node.labels.get(labels.NODE_CLAIM, ""), claim_name(instance.id)]
    owner = next((name for name in known if name in snapshot.claims), "")
    return f"NodeClaim {owner} answers for its node {node.name}: it has to go first" if owner else ""


_BEFORE: Final[Sequence[tuple[Reason, Callable[[Fleet, Snapshot, Instance], str]]]] = (
    (Reason.ADOPTION_TAG, _misnamed),
    (Reason.MANAGED_ELSEWHERE, _kept),
    (Reason.POOL_NOT_FOUND, _undeclared),
    (Reason.NOT_JOINED, _absent),
    (Reason.MANAGED_ELSEWHERE, _claimed),
)


def _unwell(request: _AdoptionRequest) -> str:
    node = request.node
    if node.deleting or not node.ready:
        return f"node {node.name} is {'being deleted' if node.deleting else 'not ready'}"
    return f"node {node.name} is cordoned: uncordon it" if node.unschedulable else ""


def _unsold(request: _AdoptionRequest) -> str:
    """Says that a machine has no known size or price, without which nothing can be decided about it."""
    where = request.where
    if where.instance_type not in request.snapshot.catalog.types:
        return f"nothing is known of instance type {where.instance_type}"
    if request.offerings or where.reservation:
        return ""
    on_sale = any(offer.pool_key == where for offer in request.snapshot.catalog.offers)
    return "" if on_sale else f"{where} is not on sale, so that it has no price"


def _foreign(request: _AdoptionRequest) -> str:
    """Says which requirement of the pool the machine does not meet, by the cloud's word and its node's own labels.

    How its GPUs are cut is looked at on the node (`_lacking`).
    """
    pool, where = request.pool, request.where
    wanted = Requirements({key: term for key, term in pool_requirements(pool).items() if key != labels.MIG_LAYOUT})
    carried = _carried(request)
    if key := wrong_key(carried, wanted):
        return f"{key}={carried.get(key, '')} does not meet the requirements of node pool {pool.name}"
    group = pool.spec.placement.group
    if group and request.instance.placement_group != group:
        return f"it does not stand in placement group {group} of node pool {pool.name}"
    if request.offerings:
        return ""
    return f"node pool {pool.name} has no machines of {where}: its requirements rule them out"


def _carried(request: _AdoptionRequest) -> Mapping[str, str]:
    """Returns the labels of the node once it is registered."""
    where, catalog = request.where, request.snapshot.catalog
    if request.offerings:
        planned = request.offerings[0].labels
    else:
        plain = InstanceOffer(catalog.types[where.instance_type], where.zone, where.capacity_type, 0.0)
        planned = node_labels_of(request.pool, plain, "", catalog.region)
    said = request.pool.spec.template.labels
    return {**planned, **{key: text for key, text in request.node.labels.items() if key not in planned or key in said}}


def _lacking(request: _AdoptionRequest) -> str:
    """Says what the machine owes: nobody waits for it, since a claim that waits in vain gives its machine back."""
    missing = [_owed(request, offering) for offering in request.offerings]
    if not all(missing):
        return ""
    return f"node {request.node.name} lacks what machines of node pool {request.pool.name} offer: {missing[0]}"


def _owed(request: _AdoptionRequest, offering: Offering) -> str:
    return owed(claim_for(request.instance, offering, 0.0), request.node)


def _full(request: _AdoptionRequest) -> str:
    """Says that limits or replicas leave no room: a machine too many would be given back at once."""
    if request.replicas_left is not None and request.replicas_left <= 0:
        return f"node pool {request.pool.name} has its {request.pool.spec.replicas} replicas: raise `replicas` first"
    if request.headroom.allowed(request.offerings[0]) > 0:
        return ""
    return f"the limits of node pool {request.pool.name} leave no room for {request.where}: raise them, or wait"


_CHECKS: Final[Sequence[tuple[Reason, Callable[[_AdoptionRequest], str]]]] = (
    (Reason.NODE_NOT_READY, _unwell),
    (Reason.NO_OFFER, _unsold),
    (Reason.NOT_OF_POOL, _foreign),
    (Reason.NODE_NOT_READY, _lacking),
    (Reason.POOL_LIMIT, _full),
)
