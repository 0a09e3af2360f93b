"""The life of a claim: launched, adopted, ready, drained, terminated, forgotten; and what belongs to nobody.

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
    TerminateMachines,
    claim_subject,
    instance_subject,
    node_subject,
)
from fleet.capacity.drain import drain
from fleet.capacity.launch import LAUNCH_GROUP_TAG, launch_request
from fleet.capacity.repair import READY, conditions_of, overdue, too_many, unwell
from fleet.capacity.stock import holders, machines_held
from fleet.memo import remembered
from fleet.mig.convergence import owed
from fleet.mig.layouts import layout_name
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, Disruption, Gang, GangState, Instance, Node, Snapshot
from fleet.taints import DISRUPTED, EPHEMERAL_KEYS, EPHEMERAL_PREFIX, RECUTTING, UNREGISTERED
from model import labels
from model.fleet import Fleet
from model.kinds import NEVER, REPAIRS, NodePool, Repair

INTENT_TIMEOUT_S = 30.0
"""A launch group that is still incomplete, or wanted by nobody, after this long is dropped: nothing was bought."""
LAUNCH_TIMEOUT_S = 5 * 60.0
"""A launch whose outcome stays unknown is given up; garbage collection finds what it may have bought."""
REGISTRATION_TIMEOUT_S = 15 * 60.0
INITIALIZATION_TIMEOUT_S = 30 * 60.0
ORPHAN_AGE_S = 30.0
"""An instance or node of this cluster without a claim is left alone this long: its claim may not be visible yet."""
MASS_ORPHANS = 8
"""More orphans than this, and more than half of all machines, are not collected: see `mass_orphaned`."""
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
        held = machines_held(holders(snapshot))
        return cls(fleet, snapshot, held, _nodes_by_instance(snapshot.nodes), _groups(snapshot.claims))

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
    return [*actions, *_orphans(yard)]


@remembered()
def _nodes_by_instance(nodes: Mapping[str, Node]) -> Mapping[str, Node]:
    return {instance_id: node for node in nodes.values() if (instance_id := node.instance_id)}


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
    elif node is not None:
        if node_subject(node.name) not in yard.snapshot.busy:
            yield _adoption(yard, claim, node)
            yield SaveClaim(replace(claim, node=node.name, registered_at_s=now))
    elif now - claim.launched_at_s >= REGISTRATION_TIMEOUT_S:
        message = f"no node joined within {REGISTRATION_TIMEOUT_S / 60:.0f} min"
        yield from _close(yard, claim, Reason.REGISTRATION_TIMEOUT, message)


def _adoption(yard: _Yard, claim: Claim, node: Node) -> PatchNode:
    """The node becomes ours: whose it is, and what its pool writes on it."""
    pool = yard.fleet.node_pools.get(claim.node_pool)
    carried = {
        labels.NODE_POOL: claim.node_pool,
        labels.NODE_CLAIM: claim.name,
        labels.CAPACITY_TYPE: claim.capacity_pool.capacity_type,
    }
    noted = pool.spec.template.annotations if pool else {}
    return PatchNode(node.name, carried, remove_taints=(UNREGISTERED.key,), annotations=noted)


def _registered(yard: _Yard, claim: Claim) -> Iterator[Action]:
    now = yard.snapshot.now_s
    node = yard.node_of(claim)
    if claim.disruption is not None:
        yield CloseClaim(claim)
    elif node is None or yard.instance_gone(claim):
        yield from _close(yard, claim, Reason.INSTANCE_GONE, f"instance {claim.instance_id} is gone")
    elif any(taint.key == UNREGISTERED.key for taint in node.taints):
        if node_subject(node.name) not in yard.snapshot.busy:
            yield _adoption(yard, claim, node)
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
    elif claim.recut_at_s > claim.ready_at_s:
        yield from _recut(yard, claim, node)
    elif any(taint.key == RECUTTING.key for taint in node.taints) and node_subject(node.name) not in snapshot.busy:
        yield PatchNode(node.name, remove_taints=(RECUTTING.key,))
    elif holders_here and claim.emptied_at_s:
        yield SaveClaim(replace(claim, emptied_at_s=0.0))
    elif not holders_here and not claim.emptied_at_s:
        yield SaveClaim(replace(claim, emptied_at_s=now))


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


def _orphans(yard: _Yard) -> Iterator[Action]:
    """Machines and nodes of this cluster that no claim answers for (garbage collection both ways)."""
    snapshot = yard.snapshot
    orphans = orphaned(snapshot)
    if not mass_orphaned(snapshot, orphans):
        for instance in orphans:
            if instance_subject(instance.id) not in snapshot.busy:
                yield TerminateMachines((instance.id,), Reason.ORPHANED)
    for name, node in _unclaimed_nodes(snapshot.nodes, snapshot.claims):
        if node_subject(name) in snapshot.busy:
            continue
        behind = snapshot.instances.get(node.instance_id)
        if (behind is None or behind.gone) and snapshot.now_s - node.created_at_s >= ORPHAN_AGE_S:
            yield RemoveNode(name)


def orphaned(snapshot: Snapshot) -> list[Instance]:
    """Running machines of this cluster, old enough to be known, that no claim answers for; by id."""
    found = _unclaimed(snapshot.instances, snapshot.claims)
    return [instance for instance in found if snapshot.now_s - instance.launched_at_s >= ORPHAN_AGE_S]


@remembered()
def _unclaimed(instances: Mapping[str, Instance], claims: Mapping[str, Claim]) -> Sequence[Instance]:
    groups = _groups(claims)
    return [found for _, found in sorted(instances.items()) if not found.gone and not _claimed(groups, found)]


@remembered()
def _unclaimed_nodes(nodes: Mapping[str, Node], claims: Mapping[str, Claim]) -> Sequence[tuple[str, Node]]:
    """Nodes, by name, of claims that are no more."""
    named = ((name, node, node.labels.get(labels.NODE_CLAIM)) for name, node in sorted(nodes.items()))
    return [(name, node) for name, node, claim in named if claim and claim not in claims]


def mass_orphaned(snapshot: Snapshot, orphans: Sequence[Instance]) -> bool:
    """Whether so many machines lack a claim that the claims, not the machines, are likelier to be what is missing.

    Somebody deleted the CRD, or the API server came back from an old backup: the machines keep running, the agent says
    so, and an operator decides.
    """
    if len(orphans) <= MASS_ORPHANS:
        return False
    return len(orphans) * 2 > sum(1 for instance in snapshot.instances.values() if not instance.gone)


@remembered()
def _groups(claims: Mapping[str, Claim]) -> Mapping[str, Sequence[Claim]]:
    groups: dict[str, list[Claim]] = {}
    for claim in sorted(claims.values(), key=lambda claim: claim.name):
        groups.setdefault(claim.launch.group, []).append(claim)
    return groups


def _claimed(groups: Mapping[str, Sequence[Claim]], instance: Instance) -> bool:
    """By id, or by launch group while the answer to the launch is still on its way."""
    group = groups.get(instance.tags.get(LAUNCH_GROUP_TAG, ""), [])
    return any(claim.instance_id in {instance.id, ""} for claim in group)
