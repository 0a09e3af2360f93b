"""The inventory is what a snapshot offers to pods: machines with what is free, and what can be bought or re-cut."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from fleet.actions import claim_subject
from fleet.mig.layouts import cut, gpu_part, layout_name, pool_layouts, with_gpus
from fleet.mig.mixed_cuts import mixed_cuts
from fleet.offerings.device_templates import machine_devices
from fleet.offerings.interruption_rate import premiums
from fleet.offerings.limits import headroom_of_pools
from fleet.offerings.offerings import node_labels_of, offerings_now
from fleet.offerings.reservations import closes_s, offer_of, reservation_of
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.candidate_offerings import KnownCandidates, candidates_at_list_price
from fleet.placement.cluster_state import ANYBODY, PODS, ClusterState, NodeSlot
from fleet.placement.device_allocator import DevicesThere, allocated_on
from fleet.placement.domains import ClosedNode, Place
from fleet.placement.neighbours import Neighbours, PodsPut
from fleet.placement.opportunity_cost import OpportunityCosts
from fleet.placement.plan import Recut
from fleet.reasons import Reason
from fleet.snapshot import FOR_PODS, Claim, ClaimState, Gang, GangState, Node, Pod, Snapshot
from fleet.snapshot.affinity import OWN_KEYS
from fleet.snapshot.lookups import claims_by_node, claims_by_pool, machines_held
from fleet.snapshot.seats import seated
from model import labels
from model.fleet import Fleet
from model.kinds import NodePool

MOVES_WITHIN_S: Final = 900.0
"""For so long a machine that was bought to move gangs waits for each; then anybody may use it, and it goes if idle."""
MOVED: Final = frozenset(
    {
        *(Reason.UNDERUTILIZED, Reason.DRIFTED, Reason.EXPIRED, Reason.REBALANCED, Reason.PREFERRED),
        *(Reason.BLOCK_ENDS, Reason.POOL_REMOVED, Reason.MADE_ROOM, Reason.LAYOUT_DRIFT, Reason.LAYOUT_ROLLOUT),
    }
)
"""Reasons for which a gang is stopped although nothing is against its running: only its machine has to go."""
_PREEMPTED: Final = frozenset(
    {Reason.PREEMPTED, Reason.RECLAIMED, Reason.RECLAIMED_WHILE_BORROWING, Reason.FAIR_SHARING}
)


def usable(node: Node, claim: Claim | None) -> bool:
    """Whether new pods may go to a node: it is ready, not leaving or being re-cut, and initialised if claimed."""
    if not node.ready or node.unschedulable or node.deleting:
        return False
    if claim is None:
        return labels.NODE_CLAIM not in node.labels and not any(taint.key in OWN_KEYS for taint in node.taints)
    return claim.state is ClaimState.READY and claim.disruption is None and claim.recut_at_s <= claim.ready_at_s


def build_cluster_state(
    snapshot: Snapshot,
    held_by: Iterable[Gang],
    coming: Iterable[NodeSlot] = (),
    pools: Mapping[str, NodePool] | None = None,
    leaving: Container[str] = (),
) -> ClusterState:
    """The state of every usable node after pods of no gang and those of the gangs `held_by` are put on it.

    `coming` are machines on their way (`coming_machines`): whoever is placed on one waits for it. `pools` say when
    machines of a capacity block have to be left; `leaving` are the claims of machines that are to be replaced.
    """
    owner = claims_by_node(snapshot)
    closed: dict[str, Place] = {}
    slots: dict[str, NodeSlot] = {}
    state = ClusterState(slots, neighbours=who_stands_where(snapshot, slots, closed))
    by_claim: dict[str, NodeSlot] = {}
    for name in sorted(snapshot.nodes):
        node, claim = snapshot.nodes[name], owner.get(name)
        if usable(node, claim):
            slot = node_slot(snapshot, node, claim, pools or {}, leaving)
            state.add(slot)
            if claim is not None:
                by_claim[claim.name] = slot
        else:
            closed[name] = ClosedNode(name, node.labels, node.taints)
            state.neighbours.add_place(closed[name])
    for slot in coming:
        state.add(slot)
        by_claim[slot.claim] = slot
    for gang in held_by:
        pod_sets = {pods.name: pods for pods in gang.pod_sets}
        for pin in seated(snapshot, gang).pins:
            standing = by_claim.get(pin.claim) if pin.claim else state.slots.get(pin.node)
            if standing is None:
                continue
            if pin.pod_set in pod_sets:
                state.place(standing, pod_sets[pin.pod_set], pin.count)
            else:  # somebody has edited the Workload: nobody knows what stands there, so that nothing else goes there
                state.close(standing.name)
    return state


def who_stands_where(
    snapshot: Snapshot,
    state: Mapping[str, NodeSlot],
    closed: Mapping[str, Place],
    held: Callable[[], Iterable[PodsPut]] = tuple,
    *,
    repel: bool = False,
) -> Neighbours:
    """Who stands where besides gangs on usable machines, which are put there by their pins; `held` are those who are.

    `repel`: whether some of them keep others away.

    Machines that are closed have still to be added.
    """

    def where(node: str, pod: Pod) -> Place | None:
        if node in closed:
            return closed[node]
        return None if pod.workload else state.get(node)

    def found(*tables: Mapping[str, tuple[Pod, ...]]) -> Iterator[tuple[Pod, Place, bool]]:
        for table in tables:
            for node, pods in table.items():
                for pod in pods:
                    if (place := where(node, pod)) is not None:
                        yield pod, place, pod.deleting

    def standing() -> Iterator[tuple[Pod, Place, bool]]:
        return found(snapshot.node_pods, snapshot.daemon_pods)

    def repelling() -> Iterator[tuple[Pod, Place, bool]]:
        return found(snapshot.repelling_pods)

    known = snapshot.devices
    devices = DevicesThere(known, partial(allocated_on, snapshot), snapshot.index)
    return Neighbours(
        snapshot.namespaces,
        snapshot.volumes,
        standing,
        repelling,
        held,
        repel=repel,
        devices=devices,
        types=snapshot.catalog.types,
    )


def node_slot(
    snapshot: Snapshot, node: Node, claim: Claim | None, pools: Mapping[str, NodePool], leaving: Container[str]
) -> NodeSlot:
    """A usable node as a slot on which no gang stands, with what its claim says of it."""
    slot = _slot(snapshot, node, claim)
    slot.leaving = claim is not None and claim.name in leaving
    if claim is not None and claim.capacity_pool.reservation:
        slot.closes_s = closes_s(pools.get(claim.node_pool), reservation_of(snapshot, claim))
    return slot


def _slot(snapshot: Snapshot, node: Node, claim: Claim | None) -> NodeSlot:
    """A node as a slot, before any gang stands on it."""
    free = _after_foreign_use(snapshot, node, _there(snapshot, node))
    return NodeSlot(
        node.name,
        node.name,
        claim.name if claim else "",
        node.labels,
        tuple(taint for taint in node.taints if taint.key not in OWN_KEYS),
        free,
        claim.node_pool if claim else "",
        _reserved_for(snapshot, claim) if claim else ANYBODY,
        None if claim is None or _kept_by_others(snapshot, node) else free.get(PODS, 0),
    )


def _there(snapshot: Snapshot, node: Node) -> dict[str, int]:
    """What a node has to give, devices with taints among it: whether a claim tolerates them is judged by its filter."""
    devices = snapshot.devices.machines.get(node.name)
    tainted = devices.tainted if devices is not None and node.labels.get(labels.DRA_PLUGIN) == "true" else {}
    return {**node.allocatable, **{name: node.allocatable.get(name, 0) + amount for name, amount in tainted.items()}}


def _after_foreign_use(snapshot: Snapshot, node: Node, free: dict[str, int]) -> dict[str, int]:
    """What is left of these amounts after pods of no gang on the node."""
    for resource, amount in snapshot.foreign_use.get(node.name, {}).items():
        free[resource] = free.get(resource, 0) - amount
    return free


def _kept_by_others(snapshot: Snapshot, node: Node) -> bool:
    """Whether pods of no gang, but not of a DaemonSet, stand on a node: it is not empty whatever gangs do."""
    return node.name in snapshot.ordinary_pods


def coming_machines(fleet: Fleet, snapshot: Snapshot) -> Iterator[NodeSlot]:
    """Machines on their way as slots: bought or being re-cut, with the resources they will have; in order of claim.

    Without them every waiting gang would buy machines of its own while those of others still boot half empty. A machine
    that is being adopted is none of them: what stands on it already counts, and it is ready within seconds.
    """
    coming = (coming_machine(fleet, snapshot, claim) for _, claim in sorted(snapshot.claims.items()))
    return (slot for slot in coming if slot is not None)


def coming_machine(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> NodeSlot | None:
    """The machine of a claim as a slot, if it is on its way."""
    if not _on_its_way(claim):
        return None
    pool, known = fleet.node_pools.get(claim.node_pool), claim.capacity_pool.instance_type in snapshot.catalog.types
    return _coming_slot(fleet, snapshot, claim, pool) if pool is not None and known else None


def _on_its_way(claim: Claim) -> bool:
    if claim.deleting or claim.disruption is not None or (claim.adopts and not claim.ready_at_s):
        return False
    return claim.state is not ClaimState.READY or being_recut(claim)


def being_recut(claim: Claim) -> bool:
    """Whether the GPUs of a machine that has joined are cut anew at present."""
    return claim.state is ClaimState.READY and claim.recut_at_s > claim.ready_at_s


def _coming_slot(fleet: Fleet, snapshot: Snapshot, claim: Claim, pool: NodePool) -> NodeSlot:
    """A claimed machine as the node that it will be."""
    node = snapshot.nodes.get(claim.node) if being_recut(claim) else None
    free = dict(claim.resources)
    if node:
        free = _after_foreign_use(snapshot, node, with_gpus(node.allocatable, gpu_part(claim.resources)))
    offer = offer_of(claim, snapshot)
    return NodeSlot(
        f"coming/{claim.name}",
        "",
        claim.name,
        node_labels_of(pool, offer, claim.layout, snapshot.catalog.region) | {labels.HOSTNAME: claim.name},
        pool.spec.template.taints,
        free,
        pool.name,
        _reserved_for(snapshot, claim),
        None if node and _kept_by_others(snapshot, node) else free.get(PODS, 0),
        closes_s=closes_s(pool, offer.reservation),
        devices=machine_devices(snapshot.index, fleet, pool, offer.instance_type, claim.layout, snapshot.devices.rules)
        if pool.spec.sharing.dra is not None
        else None,
    )


def _reserved_for(snapshot: Snapshot, claim: Claim) -> frozenset[str]:
    """The gangs that alone may use a machine: one bought to move gangs waits for those until they run on it.

    One for ordinary pods as well is open to all, since nobody says of such a pod whether it is the one that has moved.
    """
    if FOR_PODS in claim.also_for:
        return ANYBODY
    return frozenset(uid for uid in claim.gangs if _to_come(snapshot, claim, uid)) if claim.replaces else ANYBODY


def comes_too_late(snapshot: Snapshot, claim: Claim, gang: Gang) -> bool:
    """Whether a gang has been free to move to a ready machine for longer than it is kept for any: it may not start.

    One that lost its old place before it was moved has its turn like anybody else, and is waited for from then on.
    """
    lost = gang.eviction is not None and gang.eviction.reason not in MOVED
    since_s = max(claim.ready_at_s, gang.eviction.at_s if gang.eviction and lost else gang.since_s)
    return gang.state is GangState.PENDING and bool(claim.ready_at_s) and snapshot.now_s >= since_s + MOVES_WITHIN_S


def _to_come(snapshot: Snapshot, claim: Claim, uid: str) -> bool:
    gang = snapshot.gangs.get(uid)
    if gang is None or gang.state is GangState.FINISHED or _gave_way(gang) or comes_too_late(snapshot, claim, gang):
        return False
    if gang.eviction is not None and gang.eviction.admitted_at_s >= claim.ready_at_s > 0:
        return False  # it has run since the machine was ready: now it leaves another one, and has its turn there
    here = {pin.claim for pin in gang.pins}
    return claim.name not in here and (not gang.holds_capacity or not here.isdisjoint(claim.replaces))


def _gave_way(gang: Gang) -> bool:
    """Whether a gang was last evicted to make room for another: kept for it, the room would help nobody."""
    return gang.eviction is not None and gang.eviction.reason in _PREEMPTED and not gang.holds_capacity


def build_capacity(fleet: Fleet, snapshot: Snapshot, *, may_buy: bool = True) -> BuyableCapacity:
    """The capacity of a snapshot: offerings, limits, shortages in force, and idle machines that may be cut anew."""
    offerings, dearer = offerings_now(fleet, snapshot), premiums(snapshot.interruptions, snapshot.now_s)
    costs = OpportunityCosts(fleet, snapshot.gangs, snapshot.index)
    return BuyableCapacity(
        offerings,
        headroom_of_pools(fleet, snapshot),
        {pool: until for pool, until in snapshot.shortages.items() if until > snapshot.now_s},
        list(_recuts(fleet, snapshot)),
        may_buy,
        costs.priced,
        costs.regret,
        any(known.ends_machines for known in snapshot.reservations.values()),
        dearer,
        fleet.policy.spec.usd_per_hour_per_machine,
        KnownCandidates() if dearer else candidates_at_list_price(offerings.index, offerings),
    )


def _recuts(fleet: Fleet, snapshot: Snapshot) -> Iterator[Recut]:
    """Every other layout that a machine could be cut to, by claim and in the pool's order.

    Also of one that gangs hold: it counts for who has others evicted there, once nobody is left on it.
    """
    cutting = {name: pool_layouts(fleet, pool) for name, pool in fleet.node_pools.items() if pool.spec.sharing.mig}
    if not cutting:
        return
    held = machines_held(snapshot)
    able = (claim for pool in cutting for claim in claims_by_pool(snapshot).get(pool, ()))
    for claim in sorted(able, key=lambda claim: claim.name):
        node = snapshot.nodes.get(claim.node)
        machine = snapshot.catalog.types.get(claim.capacity_pool.instance_type)
        if node is None or machine is None or not usable(node, claim):
            continue
        busy = claim_subject(claim.name) in snapshot.busy
        pool, gangs = fleet.node_pools[claim.node_pool], held.get(claim.name, ())
        if _idle(snapshot, node, held=bool(gangs)):
            for layout, declared in cutting[claim.node_pool].items():
                gpus = cut(machine, declared) if layout != claim.layout else None
                if gpus is not None:
                    slot = _cut_slot(snapshot, node, claim, layout, gpus, pool)
                    yield Recut(claim.name, layout, gpus, slot, busy=busy)
        for mixed in mixed_cuts(fleet, snapshot, pool, claim, node, machine):
            slot = _beside(snapshot, _cut_slot(snapshot, node, claim, mixed.layout, mixed.gpus, pool), gangs)
            yield Recut(claim.name, mixed.layout, mixed.gpus, slot, mixed.cuts, busy)


def _beside(snapshot: Snapshot, slot: NodeSlot, gangs: Iterable[Gang]) -> NodeSlot:
    """What is left of a machine that is cut beside the gangs on it."""
    free = dict(slot.free)
    for gang in gangs:
        pod_sets = {pods.name: pods for pods in gang.pod_sets}
        for pin in seated(snapshot, gang).pins:
            if pin.claim == slot.claim and pin.pod_set in pod_sets:
                for resource, amount in ((PODS, 1), *pod_sets[pin.pod_set].requests.items()):
                    free[resource] = free.get(resource, 0) - amount * pin.count
    return replace(slot, free=free)


def _idle(snapshot: Snapshot, node: Node, *, held: bool) -> bool:
    """Whether no pod is left that holds one of a machine's GPUs but of `held` gangs."""
    if gpu_part(snapshot.foreign_use.get(node.name, {})):
        return False
    return not any(
        gpu_part(pod.requests) for pod in snapshot.node_pods.get(node.name, ()) if not (held and pod.workload)
    )


def _cut_slot(
    snapshot: Snapshot, node: Node, claim: Claim, layout: str, gpus: Mapping[str, int], pool: NodePool
) -> NodeSlot:
    """The machine of a claim as it would be under another layout."""
    slot = _slot(snapshot, node, claim)
    return replace(
        slot,
        labels={**slot.labels, labels.MIG_CONFIG: layout, labels.MIG_LAYOUT: layout_name(layout)},
        free={PODS: 0, **with_gpus(slot.free, gpus)},
        pods_when_empty=None,
        closes_s=closes_s(pool, reservation_of(snapshot, claim)),
    )
