"""The life of a claim: launched or adopted, registered, ready, drained, terminated, forgotten.

Level-triggered like the gang's. Time limits are Karpenter's (`pkg/controllers/nodeclaim/lifecycle`, reference 3).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.actions import (
    Action,
    CloseClaim,
    ForgetClaim,
    LaunchMachines,
    PatchNode,
    RemoveNode,
    SaveClaim,
    TagMachine,
    TerminateMachines,
    claim_subject,
    instance_subject,
    node_subject,
)
from fleet.mig.convergence import owed
from fleet.mig.layouts import layout_name
from fleet.nodeclaims.adopted import asked_pool, taken_over
from fleet.nodeclaims.drain import drain
from fleet.nodeclaims.launch import launch_request, own_tags
from fleet.nodeclaims.orphans import collect, launch_groups
from fleet.nodeclaims.repair import READY, conditions_of, overdue, too_many, unwell
from fleet.offerings.offerings import node_labels_of
from fleet.offerings.reservations import RESERVATION_LABELS, RESERVED, offer_of, outlived
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, Disruption, Gang, GangState, Instance, Node, Snapshot
from fleet.snapshot.lookups import machines_held, nodes_by_instance
from fleet.snapshot.memo import remembered
from fleet.snapshot.taints import DISRUPTED, EPHEMERAL_KEYS, EPHEMERAL_PREFIX, RECUTTING, UNREGISTERED
from model import labels
from model.fleet import Fleet
from model.kinds import NEVER, REPAIRS, NodePool, NodeTemplate, Repair

INTENT_TIMEOUT_S = 30.0
"""A launch group that is still incomplete, or wanted by nobody, after this long is dropped: nothing was bought."""
LAUNCH_TIMEOUT_S = 5 * 60.0
"""A launch whose outcome stays unknown is given up; garbage collection finds what it may have bought."""
REGISTRATION_TIMEOUT_S = 15 * 60.0
INITIALIZATION_TIMEOUT_S = 30 * 60.0
LISTING_LAG_S = 60.0
"""EC2's listing may lag behind a launch by this much; a machine missing from it earlier is not taken for gone."""


@dataclass(slots=True)
class _Yard:
    """A snapshot with the look-ups that every step needs."""

    fleet: Fleet
    snapshot: Snapshot
    held: Mapping[str, Sequence[Gang]]
    node_by_instance: Mapping[str, Node]
    groups: Mapping[str, Sequence[Claim]]

    @classmethod
    def of(cls, fleet: Fleet, snapshot: Snapshot) -> "_Yard":
        held = machines_held(snapshot)
        return cls(fleet, snapshot, held, nodes_by_instance(snapshot), launch_groups(snapshot.claims))

    def node_of(self, claim: Claim) -> Node | None:
        return self.snapshot.nodes.get(claim.node) or self.node_by_instance.get(claim.instance_id)

    def instance_gone(self, claim: Claim) -> bool:
        """Whether the cloud says that the machine is no more."""
        if not claim.instance_id:
            return True
        instance = self.snapshot.instances.get(claim.instance_id)
        if instance is not None:
            return instance.gone
        return self.snapshot.instances_at_s > claim.launched_at_s + LISTING_LAG_S


def decide(fleet: Fleet, snapshot: Snapshot) -> list[Action]:
    """The next step of every claim, then of every machine and node that no claim answers for."""
    yard = _Yard.of(fleet, snapshot)
    actions: list[Action] = []
    for claim in _restless(snapshot.claims, snapshot.nodes, snapshot.instances, yard.held, _watched(fleet.node_pools)):
        if claim_subject(claim.name) not in snapshot.busy:
            actions += _STEPS[claim.state](yard, claim)
    return [*actions, *collect(snapshot)]


@remembered()
def _watched(pools: Mapping[str, NodePool]) -> frozenset[tuple[str, str]]:
    """(condition, status) that some pool does not bear for ever; readiness has its own field."""
    policies = (*REPAIRS, *(policy for pool in pools.values() for policy in pool.spec.repair))
    return frozenset((one.condition, status) for one in policies for status in one.statuses if one.condition != READY)


@remembered(2)
def _restless(
    claims: Mapping[str, Claim],
    nodes: Mapping[str, Node],
    instances: Mapping[str, Instance],
    held: Mapping[str, Sequence[Gang]],
    watched: frozenset[tuple[str, str]],
) -> Sequence[Claim]:
    """The claims, by name, but for those of which `_ready` has nothing to say however late it is."""
    return [
        claim
        for name, claim in sorted(claims.items())
        if claim.disruption is not None
        or claim.state is not ClaimState.READY
        or claim.recut_at_s > claim.ready_at_s
        or bool(claim.emptied_at_s) is (name in held)
        or (instance := instances.get(claim.instance_id)) is None
        or instance.gone
        or (claim.capacity_pool.capacity_type == RESERVED and not instance.reservation)
        or (node := nodes.get(claim.node)) is None
        or not node.ready
        or any((condition, found.status) in watched for condition, found in node.conditions.items())
        or any(taint.key == RECUTTING.key for taint in node.taints)
    ]


def leaving(claim: Claim, reason: Reason, message: str, now_s: float, deadline_s: float = NEVER) -> Claim:
    """The claim told to go; `lifecycle` then closes it and drains its node."""
    return claim.with_disruption(Disruption(reason, message, now_s, deadline_s))


def _close(yard: _Yard, claim: Claim, reason: Reason, message: str) -> Iterator[Action]:
    if claim.disruption is None:
        yield SaveClaim(leaving(claim, reason, message, yard.snapshot.now_s))
    else:
        yield CloseClaim(claim)


def _pending(yard: _Yard, claim: Claim) -> Iterator[Action]:
    now = yard.snapshot.now_s
    group = yard.groups[claim.launch.group]
    complete = len(group) == claim.launch.size and not any(member.deleting or member.disruption for member in group)
    if claim.disruption is not None:
        yield CloseClaim(claim)
    elif not complete or not _wanted(yard, claim):
        if now - claim.created_at_s >= INTENT_TIMEOUT_S or any(member.disruption for member in group):
            yield from _close(yard, claim, Reason.NOT_NEEDED, "nobody waits for it any more")
    elif now - claim.created_at_s >= LAUNCH_TIMEOUT_S:
        message = f"the cloud has not said within {LAUNCH_TIMEOUT_S / 60:.0f} min whether it was bought"
        yield from _close(yard, claim, Reason.LAUNCH_TIMEOUT, message)
    elif claim is _first_of_lot(group, claim):
        lot = [member for member in group if member.launch.lot == claim.launch.lot]
        if not any(claim_subject(member.name) in yard.snapshot.busy for member in lot) and all(m.uid for m in lot):
            names = tuple(member.name for member in lot)
            yield LaunchMachines(launch_request(yard.fleet, yard.snapshot, lot), names)


def _first_of_lot(group: Sequence[Claim], claim: Claim) -> Claim:
    return next(member for member in group if member.launch.lot == claim.launch.lot and not member.launched_at_s)


def _wanted(yard: _Yard, claim: Claim) -> bool:
    """Whether whoever the machine is for still waits for it."""
    if claim.node_pool not in yard.fleet.node_pools:
        return False
    if claim.capacity_pool.instance_type not in yard.snapshot.catalog.types:
        return False  # no longer sold
    if claim.replaces:
        return any(name in yard.snapshot.claims for name in claim.replaces)
    if claim.gang:
        return any(gang.state in _WAITING for gang in yard.held.get(claim.name, ()))
    return yard.fleet.node_pools[claim.node_pool].spec.replicas is not None


_WAITING = frozenset({GangState.RESERVED, GangState.ADMITTED})
"""An admitted gang waits for a machine that has not come when it has lost another."""


def _launched(yard: _Yard, claim: Claim) -> Iterator[Action]:
    now = yard.snapshot.now_s
    node = yard.node_by_instance.get(claim.instance_id)
    if claim.disruption is not None:
        yield CloseClaim(claim)
    elif yard.instance_gone(claim):
        yield from _close(yard, claim, Reason.INSTANCE_GONE, f"instance {claim.instance_id} ended before it joined")
    elif _being_adopted(yard, claim):
        yield from _take_over(yard, claim)
    elif node is not None:
        if node_subject(node.name) not in yard.snapshot.busy:
            yield _registration(yard, claim, node)
            yield SaveClaim(replace(claim, node=node.name, registered_at_s=now))
    elif now - claim.launched_at_s >= REGISTRATION_TIMEOUT_S:
        message = f"no node joined within {REGISTRATION_TIMEOUT_S / 60:.0f} min"
        yield from _close(yard, claim, Reason.REGISTRATION_TIMEOUT, message)


def _being_adopted(yard: _Yard, claim: Claim) -> bool:
    """Whether its machine is not ours yet: until it carries our tags, giving the claim up leaves the machine alone."""
    instance = yard.snapshot.instances.get(claim.instance_id)
    adopting = bool(claim.adopts) and not claim.registered_at_s
    return adopting and not taken_over(instance, own_tags(claim, yard.snapshot.cluster))


def _take_over(yard: _Yard, claim: Claim) -> Iterator[Action]:
    """The machine gets our tags, as long as it is still asked for."""
    instance = yard.snapshot.instances.get(claim.instance_id)
    if instance is None or instance_subject(instance.id) in yard.snapshot.busy:
        return  # one that is missing from a listing may only be late
    wanted = asked_pool(instance, yard.snapshot.cluster)
    if wanted != claim.node_pool or wanted not in yard.fleet.node_pools:
        message = f"instance {instance.id} was to join node pool {claim.node_pool}, and is not to any more"
        yield from _close(yard, claim, Reason.ADOPTION_WITHDRAWN, message)
    else:
        yield TagMachine(instance.id, own_tags(claim, yard.snapshot.cluster))


def _registration(yard: _Yard, claim: Claim, node: Node) -> PatchNode:
    """The node becomes ours: whose it is, and what its pool writes on it.

    An adopted one has started up already: nobody would take start-up taints away again. It may still carry the taint
    of an earlier leave.
    """
    pool = yard.fleet.node_pools.get(claim.node_pool)
    carried = {
        **_untold(yard, claim, node),
        labels.NODE_POOL: claim.node_pool,
        labels.NODE_CLAIM: claim.name,
        labels.CAPACITY_TYPE: claim.capacity_pool.capacity_type,
    }
    template = pool.spec.template if pool else NodeTemplate()
    held = {(taint.key, taint.effect) for taint in node.taints}
    owed_taints = (*template.taints, *template.startup_taints) if template.family == "Custom" else ()
    owed_taints = template.taints if claim.adopts else owed_taints
    return PatchNode(
        node.name,
        carried,
        add_taints=tuple(taint for taint in owed_taints if (taint.key, taint.effect) not in held),
        remove_taints=(UNREGISTERED.key, DISRUPTED.key) if claim.adopts else (UNREGISTERED.key,),
        annotations=template.annotations,
    )


def _untold(yard: _Yard, claim: Claim, node: Node) -> dict[str, str]:
    """What was planned with but the kubelet does not say of itself: it may not, does not know, or was told nothing.

    What the node says already stays: it knows better.
    """
    pool = yard.fleet.node_pools.get(claim.node_pool)
    if pool is None or claim.capacity_pool.instance_type not in yard.snapshot.catalog.types:
        return {}
    planned = node_labels_of(pool, offer_of(claim, yard.snapshot), claim.layout, yard.snapshot.catalog.region)
    return {key: value for key, value in sorted(planned.items()) if key not in node.labels}


def _registered(yard: _Yard, claim: Claim) -> Iterator[Action]:
    now = yard.snapshot.now_s
    node = yard.node_of(claim)
    if claim.disruption is not None:
        yield CloseClaim(claim)
    elif node is None or yard.instance_gone(claim):
        yield from _close(yard, claim, Reason.INSTANCE_GONE, f"instance {claim.instance_id} is gone")
    elif any(taint.key == UNREGISTERED.key for taint in node.taints):
        if node_subject(node.name) not in yard.snapshot.busy:
            yield _registration(yard, claim, node)
    elif not (missing := _not_initialised(yard, claim, node)):
        yield SaveClaim(replace(claim, ready_at_s=now, emptied_at_s=0.0 if claim.name in yard.held else now))
    elif now - claim.registered_at_s >= INITIALIZATION_TIMEOUT_S:
        yield from _close(yard, claim, Reason.INITIALIZATION_TIMEOUT, f"not initialised: {missing}")


def _not_initialised(yard: _Yard, claim: Claim, node: Node) -> str:
    """What a node still owes before pods may count on it; empty when nothing (Karpenter `initialization.go`)."""
    if not node.ready:
        return "the node is not ready"
    pool = yard.fleet.node_pools.get(claim.node_pool)
    startup = {taint.key for taint in pool.spec.template.startup_taints} if pool else set()
    for taint in node.taints:
        if taint.key in startup | EPHEMERAL_KEYS or taint.key.startswith(EPHEMERAL_PREFIX):
            return f"taint {taint.key} is still there"
    return owed(claim, node)


def _ready(yard: _Yard, claim: Claim) -> Iterator[Action]:
    snapshot, now = yard.snapshot, yard.snapshot.now_s
    node = yard.node_of(claim)
    holders_here = yard.held.get(claim.name, ())
    if claim.disruption is not None:
        yield CloseClaim(claim)
    elif node is None or yard.instance_gone(claim):
        yield from _close(yard, claim, Reason.INSTANCE_GONE, f"instance {claim.instance_id} is gone")
    elif complaint := _complaint(yard, claim, node):
        yield SaveClaim(leaving(claim, Reason.NODE_FAILURE, complaint, now, now))
    elif (plain := outlived(snapshot, claim)) is not None:
        yield from _relabelled(yard, plain, node)
    elif claim.recut_at_s > claim.ready_at_s:
        yield from _recut(yard, claim, node)
    elif any(taint.key == RECUTTING.key for taint in node.taints) and node_subject(node.name) not in snapshot.busy:
        yield PatchNode(node.name, remove_taints=(RECUTTING.key,))
    elif holders_here and claim.emptied_at_s:
        yield SaveClaim(replace(claim, emptied_at_s=0.0))
    elif not holders_here and not claim.emptied_at_s:
        yield SaveClaim(replace(claim, emptied_at_s=now))


def _relabelled(yard: _Yard, plain: Claim, node: Node) -> Iterator[Action]:
    """The reservation has ended and the machine runs on, at the price of an on-demand one (Karpenter relabels, too)."""
    if node_subject(node.name) in yard.snapshot.busy:
        return
    on_demand = {labels.CAPACITY_TYPE: plain.capacity_pool.capacity_type}
    if any(node.labels.get(key) != value for key, value in on_demand.items()):
        yield PatchNode(node.name, on_demand, remove_labels=RESERVATION_LABELS)
    else:
        yield SaveClaim(plain)


def _complaint(yard: _Yard, claim: Claim, node: Node) -> str:
    """Why a machine that is not well should be replaced; empty while it is borne, or many of its pool are unwell.

    Nobody on it is waited for: its pods may never end.
    """
    policies = _repairs(yard.fleet, claim.node_pool)
    found = overdue(policies, conditions_of(node), yard.snapshot.now_s)
    if found is None:
        return ""
    members = [other for other in yard.snapshot.claims.values() if other.node_pool == claim.node_pool and other.node]
    nodes = [there for other in members if (there := yard.snapshot.nodes.get(other.node)) is not None]
    if too_many(sum(1 for there in nodes if unwell(policies, conditions_of(there))), len(members)):
        return ""
    status = conditions_of(node)[found.condition].status
    return f"condition {found.condition} of node {node.name} has been {status} for {found.after / 60:.0f} min"


def _repairs(fleet: Fleet, pool: str) -> Sequence[Repair]:
    declared = fleet.node_pools.get(pool)
    return declared.spec.repair if declared else REPAIRS


def _recut(yard: _Yard, claim: Claim, node: Node) -> Iterator[Action]:
    """Taint, label, then wait until the node really offers what the layout promises (never trust the state label)."""
    if node_subject(node.name) in yard.snapshot.busy:
        return
    tainted = any(taint.key == RECUTTING.key for taint in node.taints)
    if node.labels.get(labels.MIG_CONFIG) != claim.layout or not tainted:
        asked = {labels.MIG_CONFIG: claim.layout, labels.MIG_LAYOUT: layout_name(claim.layout)}
        yield PatchNode(node.name, asked, add_taints=(RECUTTING,))
    elif not owed(claim, node):
        yield SaveClaim(replace(claim, ready_at_s=max(yard.snapshot.now_s, claim.recut_at_s)))
    elif yard.snapshot.now_s - claim.recut_at_s >= INITIALIZATION_TIMEOUT_S:
        yield from _close(
            yard, claim, Reason.INITIALIZATION_TIMEOUT, f"cut to {claim.layout} failed: {owed(claim, node)}"
        )


def _terminating(yard: _Yard, claim: Claim) -> Iterator[Action]:
    snapshot = yard.snapshot
    if _being_adopted(yard, claim):
        if instance_subject(claim.instance_id) not in snapshot.busy:
            yield ForgetClaim(claim)
        return
    node = yard.node_of(claim)
    gone = yard.instance_gone(claim)
    late = claim.disruption is not None and claim.disruption.deadline_s > snapshot.now_s
    if node is not None and not gone and late and (complaint := _complaint(yard, claim, node)):
        yield SaveClaim(leaving(claim, Reason.NODE_FAILURE, complaint, snapshot.now_s, snapshot.now_s))
        return
    if node is not None and not gone:
        if not any(taint.key == DISRUPTED.key for taint in node.taints):
            if node_subject(node.name) not in snapshot.busy:
                yield PatchNode(node.name, add_taints=(DISRUPTED,))
            return
        waits, steps = drain(snapshot, claim, node)
        yield from steps
        if waits:
            return
    if not gone:
        if instance_subject(claim.instance_id) not in snapshot.busy:
            reason = claim.disruption.reason if claim.disruption else Reason.NOT_NEEDED
            yield TerminateMachines((claim.instance_id,), reason)
    elif node is not None:
        if node_subject(node.name) not in snapshot.busy:
            yield RemoveNode(node.name)
    else:
        yield ForgetClaim(claim)


_STEPS: dict[ClaimState, Callable[[_Yard, Claim], Iterator[Action]]] = {
    ClaimState.PENDING: _pending,
    ClaimState.LAUNCHED: _launched,
    ClaimState.REGISTERED: _registered,
    ClaimState.READY: _ready,
    ClaimState.TERMINATING: _terminating,
}
