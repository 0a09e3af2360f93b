"""From a launched or adopted machine to a ready node: tags, registration, initialisation, and how long each may take.

Karpenter `pkg/controllers/nodeclaim/lifecycle/{registration,initialization,liveness}.go`, reference 3.
"""

from collections.abc import Iterator

from fleet.actions import Action, CloseClaim, PatchNode, SaveClaim, TagMachine, instance_subject, node_subject
from fleet.mig.layouts import kept_off, owed, parts_owed
from fleet.nodeclaims.adoption import being_adopted
from fleet.nodeclaims.adoption_checks import asked_pool
from fleet.nodeclaims.cutting import cut_failed, told_once_more
from fleet.nodeclaims.drift import stamp_of
from fleet.nodeclaims.launch import own_tags
from fleet.nodeclaims.repair import fell_silent
from fleet.nodeclaims.termination import close, gone_words, instance_gone
from fleet.offerings.offerings import node_labels_of
from fleet.offerings.reservations import offer_of
from fleet.reasons import Reason
from fleet.snapshot import Claim, Node, Snapshot
from fleet.snapshot.affinity import DISRUPTED, FOR_GANGS, UNREGISTERED, is_ephemeral
from fleet.snapshot.lookups import machines_held, node_of, nodes_by_instance
from fleet.snapshot.seats import starting_gang
from model import labels
from model.changed import changed
from model.fleet import Fleet
from model.kinds import NodeTemplate
from model.pools import pool_hashes

REGISTRATION_TIMEOUT_S = 15 * 60.0
INITIALIZATION_TIMEOUT_S = 30 * 60.0


def launched(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Iterator[Action]:
    """Yields the next step of a claim that has a machine but no node yet."""
    node = nodes_by_instance(snapshot).get(claim.instance_id)
    if claim.disruption is not None:
        yield CloseClaim(claim)
    elif instance_gone(snapshot, claim):
        yield from close(snapshot, claim, Reason.INSTANCE_GONE, f"instance {claim.instance_id} ended before it joined")
    elif being_adopted(snapshot, claim):
        yield from _take_over(fleet, snapshot, claim)
    elif node is not None:
        if node_subject(node.name) not in snapshot.busy:
            yield registration(fleet, snapshot, claim, node)
            yield SaveClaim(changed(claim, node=node.name, registered_at_s=snapshot.now_s))
    elif snapshot.now_s - claim.launched_at_s >= REGISTRATION_TIMEOUT_S:
        message = f"no node joined within {REGISTRATION_TIMEOUT_S / 60:.0f} min"
        yield from close(snapshot, claim, Reason.REGISTRATION_TIMEOUT, message)


def _take_over(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Iterator[Action]:
    """Writes the cluster's tags on a machine that is being adopted, or gives it up where its tag no longer asks."""
    instance = snapshot.instances.get(claim.instance_id)
    if instance is None or instance_subject(instance.id) in snapshot.busy:
        return  # one that is missing from a listing may only be late
    wanted = asked_pool(instance, snapshot.cluster)
    if wanted != claim.node_pool or wanted not in fleet.node_pools:
        message = f"instance {instance.id} was to join node pool {claim.node_pool}, and is not to any more"
        yield from close(snapshot, claim, Reason.ADOPTION_WITHDRAWN, message)
    else:
        yield TagMachine(instance.id, own_tags(claim, snapshot.cluster))


def registered(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Iterator[Action]:
    """Yields the next step of a claim whose node has joined and is not ready for pods yet."""
    now, node = snapshot.now_s, node_of(snapshot, claim)
    if claim.disruption is not None:
        yield CloseClaim(claim)
    elif node is None or instance_gone(snapshot, claim):
        yield from close(snapshot, claim, Reason.INSTANCE_GONE, gone_words(snapshot, claim))
    elif node.deleting:
        yield from close(snapshot, claim, Reason.DELETED, f"somebody deleted node {node.name}")
    elif (silence := fell_silent(fleet, snapshot, claim, node)) is not None:
        yield SaveClaim(claim.with_disruption(silence))
    elif node_subject(node.name) in snapshot.busy:
        return  # what is being written on the node counts when the API has taken it
    elif is_unregistered(node):
        yield registration(fleet, snapshot, claim, node)
    elif not (missing := _not_initialised(fleet, snapshot, claim, node)):
        if starting_gang(snapshot, claim) and FOR_GANGS.key not in {it.key for it in node.taints}:
            yield PatchNode(node.name, add_taints=(FOR_GANGS,))
        emptied_at_s = 0.0 if claim.name in machines_held(snapshot) else now
        yield SaveClaim(changed(claim, ready_at_s=now, emptied_at_s=emptied_at_s, cut=None))
    elif claim.layout and (failed := cut_failed(claim, node, now)):
        yield from close(snapshot, claim, Reason.LAYOUT_FAILED, failed)
    elif now - claim.registered_at_s >= INITIALIZATION_TIMEOUT_S:
        reason = Reason.LAYOUT_FAILED if claim.layout and node.ready else Reason.INITIALIZATION_TIMEOUT
        yield from close(snapshot, claim, reason, f"not initialised: {missing}")
    elif claim.layout:
        yield from told_once_more(claim, node, claim.layout, now)


def is_unregistered(node: Node) -> bool:
    """Returns whether a node still carries the taint that it joins with."""
    return any(taint.key == UNREGISTERED.key for taint in node.taints)


def registration(fleet: Fleet, snapshot: Snapshot, claim: Claim, node: Node) -> PatchNode:
    """Returns the patch that registers a node: its pool and claim, and the labels, taints and annotations of the pool.

    Of a pool that has changed since, the machine gets nothing: it was launched by the old template, which its kubelet
    has from its start, and is replaced as drifted (Karpenter takes them from the NodeClaim, which keeps the old ones).
    But an image of one's own is told nothing at its start, and new taints are better than none.

    An adopted one may carry the taint of an earlier leave, and nobody would take start-up taints away again.
    """
    pool = fleet.node_pools.get(claim.node_pool)
    carried = {
        **_missing_labels(fleet, snapshot, claim, node),
        labels.NODE_POOL: claim.node_pool,
        labels.NODE_CLAIM: claim.name,
        labels.CAPACITY_TYPE: claim.capacity_pool.capacity_type,
    }
    template = pool.spec.template if pool and not _changed(fleet, claim) else NodeTemplate()
    held = {(taint.key, taint.effect) for taint in node.taints}
    at_start = (*template.taints, *claim.startup_taints_by(template)) if template.custom_image else ()
    owed_taints = template.taints if claim.adopts else at_start
    if starting_gang(snapshot, claim) and not kept_off(snapshot, claim, node):
        owed_taints = (*owed_taints, FOR_GANGS)
    return PatchNode(
        node.name,
        carried,
        add_taints=tuple(taint for taint in owed_taints if (taint.key, taint.effect) not in held),
        remove_taints=(UNREGISTERED.key, DISRUPTED.key) if claim.adopts else (UNREGISTERED.key,),
        annotations=template.annotations,
        add_finalizer=True,
    )


def _missing_labels(fleet: Fleet, snapshot: Snapshot, claim: Claim, node: Node) -> dict[str, str]:
    """Returns the labels that the purchase was planned with and the kubelet has not set.

    A label that the node has already keeps its value: the node knows better.
    """
    pool = fleet.node_pools.get(claim.node_pool)
    if pool is None or claim.capacity_pool.instance_type not in snapshot.catalog.types:
        return {}
    planned = node_labels_of(pool, offer_of(claim, snapshot), claim.layout, snapshot.catalog.region)
    of_pool = {*pool.spec.template.labels, *labels.OF_SHARING} if _changed(fleet, claim) else set()
    return {key: value for key, value in sorted(planned.items()) if key not in node.labels and key not in of_pool}


def _changed(fleet: Fleet, claim: Claim) -> bool:
    """Returns whether the machine was told another template at its start than its pool has now."""
    if fleet.node_pools[claim.node_pool].spec.template.custom_image:
        return False
    bought, now = stamp_of(claim.pool_hash), stamp_of(pool_hashes(fleet.index, fleet.node_pools)[claim.node_pool])
    return bought is not None and now is not None and bought.version == now.version and bought.hash != now.hash


def _not_initialised(fleet: Fleet, snapshot: Snapshot, claim: Claim, node: Node) -> str:
    """Returns what a node still lacks before it is initialised; empty when nothing (Karpenter `initialization.go`)."""
    if not node.ready:
        return "the node is not ready"
    pool = fleet.node_pools.get(claim.node_pool)
    startup = {taint.key for taint in claim.startup_taints_by(pool.spec.template if pool else NodeTemplate())}
    if stays := next((taint.key for taint in node.taints if taint.key in startup or is_ephemeral(taint)), ""):
        return f"taint {stays} is still there"
    return owed(claim, node) or parts_owed(pool, claim, snapshot.devices.machines.get(node.name))
