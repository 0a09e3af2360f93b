"""How a machine leaves: its claim is closed, its node drained, the instance terminated, the node and claim removed.

Gangs leave a node as a whole, by their own life cycle; everything else leaves by the eviction API. Time limits follow
Karpenter (`pkg/controllers/node/termination`).
"""

import math
from collections.abc import Iterator
from typing import Final

from fleet.actions import (
    Action,
    CloseClaim,
    EvictPod,
    ForgetClaim,
    PatchNode,
    RemoveNode,
    SaveClaim,
    TerminateMachines,
    instance_subject,
    node_subject,
    pod_subject,
)
from fleet.nodeclaims.adoption import being_adopted
from fleet.nodeclaims.repair import node_failure
from fleet.reasons import Reason
from fleet.snapshot import Claim, Node, NodeDisruption, Pod, Snapshot
from fleet.snapshot.affinity import DISRUPTED
from fleet.snapshot.claims import SAME_INSTANT_S
from fleet.snapshot.lookups import node_of, unlisted
from model.fleet import Fleet
from model.upstream.do_not_disrupt import protected


def close(snapshot: Snapshot, claim: Claim, reason: Reason, message: str) -> Iterator[Action]:
    """Writes down why the claim has to go; once that is written, deletes it."""
    if claim.disruption is None:
        yield SaveClaim(claim.with_disruption(NodeDisruption(reason, message, snapshot.now_s)))
    else:
        yield CloseClaim(claim)


def instance_gone(snapshot: Snapshot, claim: Claim) -> bool:
    """Returns whether the machine has ended as far as the cloud lists it, or was never launched."""
    if not claim.instance_id:
        return True
    instance = snapshot.instances.get(claim.instance_id)
    if instance is not None:
        return instance.gone
    return unlisted(snapshot, claim)


def gone_words(snapshot: Snapshot, claim: Claim) -> str:
    """Returns what is gone of a machine that had joined: the instance, or the Node alone."""
    if instance_gone(snapshot, claim):
        return f"instance {claim.instance_id} is gone"
    return f"node {claim.node} is gone, though instance {claim.instance_id} stands"


def terminating(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Iterator[Action]:
    """Yields the next step of a claim that is being deleted. A machine not adopted yet is left alone."""
    if being_adopted(snapshot, claim):
        if instance_subject(claim.instance_id) not in snapshot.busy:
            yield ForgetClaim(claim)
        return
    if claim.disruption is None:  # the agent writes down why before it deletes one
        why = NodeDisruption(Reason.DELETED, f"somebody deleted NodeClaim {claim.name}", snapshot.now_s)
        yield SaveClaim(claim.with_disruption(why))
        return
    node, gone = node_of(snapshot, claim), instance_gone(snapshot, claim)
    waits = False
    if node is not None and not gone:
        waits, steps = _emptied(fleet, snapshot, claim, node)
        yield from steps
    if not waits:
        yield from _give_back(snapshot, claim, node, gone=gone)


def _emptied(fleet: Fleet, snapshot: Snapshot, claim: Claim, node: Node) -> tuple[bool, list[Action]]:
    """Returns (whether the machine has to wait, what to do now): the node is tainted first, then drained.

    A node that is not well has no time left for its drain: its pods may never end.
    """
    has_time = claim.disruption is not None and claim.disruption.deadline_s > snapshot.now_s + SAME_INSTANT_S
    if has_time and (failure := node_failure(fleet, snapshot, claim, node)):
        return True, [SaveClaim(claim.with_disruption(failure))]
    if all(taint.key != DISRUPTED.key for taint in node.taints):
        busy = node_subject(node.name) in snapshot.busy
        return True, [] if busy else [PatchNode(node.name, add_taints=(DISRUPTED,))]
    return drain(snapshot, claim, node)


def _give_back(snapshot: Snapshot, claim: Claim, node: Node | None, *, gone: bool) -> Iterator[Action]:
    """Removes first the instance, then its node, then the claim: each once the one before is gone.

    The claim stays until the instance is terminated, as Karpenter's does: budgets, limits and reservations count it.
    """
    instance = snapshot.instances.get(claim.instance_id)
    if instance is not None and instance.ending:
        return
    if not gone:
        if instance_subject(claim.instance_id) not in snapshot.busy:
            reason = claim.disruption.reason if claim.disruption else Reason.NOT_NEEDED
            yield TerminateMachines((claim.instance_id,), reason)
    elif node is not None and (node.has_finalizer or not node.deleting):
        if node_subject(node.name) not in snapshot.busy:
            yield RemoveNode(node.name)
    else:  # what others still hold a deleted node for is theirs
        yield ForgetClaim(claim)


STUCK_S: Final = 60.0
"""A pod is stuck this long after its deletion should have ended (Karpenter `pod.IsStuckTerminating`)."""


def drain(snapshot: Snapshot, claim: Claim, node: Node) -> tuple[bool, list[Action]]:
    """Returns (whether pods still have to go, the evictions to ask for now).

    Pods are evicted with their own grace period; close to the deadline only with what is left of it; past it the
    machine waits for none. One that is not to be disrupted is let run until then, where there is a deadline. Nor does
    it wait for a pod that should have ended a while ago: nobody there ends it.
    """
    deadline_s = claim.disruption.deadline_s if claim.disruption else math.inf
    if snapshot.now_s >= deadline_s:
        return False, []
    late_s = snapshot.now_s - STUCK_S
    pods = [pod for pod in snapshot.node_pods.get(node.name, ()) if not (pod.deleting and pod.deletion_at_s <= late_s)]
    steps: list[Action] = []
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
        if pod_subject(pod.uid) in snapshot.busy or (pod.workload and not pod.deleting):
            continue  # its job is suspended first: a pod deleted under a running job counts as a failure of the job
        grace_s = _shorter_grace_s(pod, snapshot.now_s, deadline_s)
        if grace_s is not None:
            steps.append(EvictPod(pod, force_grace_s=grace_s))
        elif not pod.deleting and not pod.workload and not _has_time(pod, snapshot.now_s, deadline_s):
            steps.append(EvictPod(pod))
    return bool(pods), steps


def _has_time(pod: Pod, now_s: float, deadline_s: float) -> bool:
    """Returns whether a pod that is not to be disrupted is let run until the deadline is near."""
    return deadline_s < math.inf and protected(pod.do_not_disrupt, pod.started_at_s, now_s)


def _shorter_grace_s(pod: Pod, now_s: float, deadline_s: float) -> int | None:
    """Returns the grace (s) of a pod whose own would end after the deadline; None while there is time for its own."""
    ends_s = pod.deletion_at_s if pod.deleting else now_s + pod.deletion_grace_s
    return max(1, int(deadline_s - now_s)) if ends_s > deadline_s + 1 else None
