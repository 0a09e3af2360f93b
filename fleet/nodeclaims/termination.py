"""How a machine leaves: its claim is closed, its node drained, the instance terminated, the node and claim removed.

Gangs leave a node as a whole, by their own life cycle; everything else leaves by the eviction API. Time limits follow
Karpenter (`pkg/controllers/node/termination`).
"""

import math
from collections.abc import Iterator

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
from fleet.snapshot.lookups import node_of
from model.fleet import Fleet

LISTING_LAG_S = 60.0
"""The cloud's listing may lag behind a launch by this much; a machine missing from it earlier is not taken for gone."""


def close(snapshot: Snapshot, claim: Claim, reason: Reason, message: str) -> Iterator[Action]:
    """Write down why the claim has to go; once that is written, delete it."""
    if claim.disruption is None:
        yield SaveClaim(claim.with_disruption(NodeDisruption(reason, message, snapshot.now_s)))
    else:
        yield CloseClaim(claim)


def instance_gone(snapshot: Snapshot, claim: Claim) -> bool:
    """Whether the cloud says that the machine is no more."""
    if not claim.instance_id:
        return True
    instance = snapshot.instances.get(claim.instance_id)
    if instance is not None:
        return instance.gone
    return snapshot.instances_at_s > claim.launched_at_s + LISTING_LAG_S


def terminating(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Iterator[Action]:
    """The next step of a claim that is being deleted. One whose machine is not ours yet leaves the machine alone."""
    if being_adopted(snapshot, claim):
        if instance_subject(claim.instance_id) not in snapshot.busy:
            yield ForgetClaim(claim)
        return
    node, gone = node_of(snapshot, claim), instance_gone(snapshot, claim)
    if node is not None and not gone:
        late = claim.disruption is not None and claim.disruption.deadline_s > snapshot.now_s
        if late and (failure := node_failure(fleet, snapshot, claim, node)):
            yield SaveClaim(claim.with_disruption(failure))
            return
        if not any(taint.key == DISRUPTED.key for taint in node.taints):
            if node_subject(node.name) not in snapshot.busy:
                yield PatchNode(node.name, add_taints=(DISRUPTED,))
            return
        waits, steps = drain(snapshot, claim, node)
        yield from steps
        if waits:
            return
    yield from _give_back(snapshot, claim, node, gone=gone)


def _give_back(snapshot: Snapshot, claim: Claim, node: Node | None, *, gone: bool) -> Iterator[Action]:
    """First the instance, then its node, then the claim: each once the one before is gone."""
    if not gone:
        if instance_subject(claim.instance_id) not in snapshot.busy:
            reason = claim.disruption.reason if claim.disruption else Reason.NOT_NEEDED
            yield TerminateMachines((claim.instance_id,), reason)
    elif node is not None:
        if node_subject(node.name) not in snapshot.busy:
            yield RemoveNode(node.name)
    else:
        yield ForgetClaim(claim)


def drain(snapshot: Snapshot, claim: Claim, node: Node) -> tuple[bool, list[Action]]:
    """(whether pods still have to go, the evictions to ask for now).

    Before the deadline pods go politely; close to it, a pod gets what time is left; past it nobody is waited for.
    """
    deadline_s = claim.disruption.deadline_s if claim.disruption else math.inf
    if snapshot.now_s >= deadline_s:
        return False, []
    pods = snapshot.node_pods.get(node.name, ())
    steps: list[Action] = []
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
        if pod_subject(pod.uid) in snapshot.busy or (pod.workload and not pod.deleting):
            continue  # its job is suspended first: a pod deleted under a running job counts as a failure of the job
        grace_s = _shorter_grace_s(pod, snapshot.now_s, deadline_s)
        if grace_s is not None:
            steps.append(EvictPod(pod, force_grace_s=grace_s))
        elif not pod.deleting and not pod.workload:
            steps.append(EvictPod(pod))
    return bool(pods), steps


def _shorter_grace_s(pod: Pod, now_s: float, deadline_s: float) -> int | None:
    """The grace a pod gets when its own would end after the deadline; None while there is time."""
    ends_s = pod.deletion_at_s if pod.deleting else now_s + pod.deletion_grace_s
    return max(1, int(deadline_s - now_s)) if ends_s > deadline_s + 1 else None
