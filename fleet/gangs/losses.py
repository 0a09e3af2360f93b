"""What has become of the machines a gang counts on: those its pods stand on, and those that are still to come."""

from typing import Final, NamedTuple

from fleet.actions import claim_subject
from fleet.reasons import Reason
from fleet.snapshot import Gang, Job, Node, Pin, Snapshot

NODE_FAILURE_AFTER_S: Final = 60.0
"""A node counts as lost when it has not been ready for this long (Kueue waits 30 s, Kubernetes 300 s)."""

UNPLANNED: Final = frozenset({Reason.NODE_FAILURE, Reason.INTERRUPTED, Reason.INSTANCE_GONE})
"""Losses that hit one machine. Where one leaves by plan (drift, expiry, consolidation) its replacement is bought first,
for the gang as a whole (`fleet.disruption.replacement`)."""


class Loss(NamedTuple):
    """Why pods can be at a place no longer, or never will be."""

    reason: Reason
    message: str
    at_s: float
    """Since when, as far as that is known (epoch seconds)."""


def lost_place(snapshot: Snapshot, gang: Gang, job: Job, pin: Pin) -> Loss | None:
    """What is wrong with a place of a gang that has started; None for one that is well, or well on its way."""
    if pin.node:
        return _lost_machine(snapshot, gang, job, pin)
    lost = lost_claim(snapshot, gang, pin.claim)
    return None if lost is None else Loss(Reason.NODE_FAILURE, lost[1], snapshot.now_s)


def _lost_machine(snapshot: Snapshot, gang: Gang, job: Job, pin: Pin) -> Loss | None:
    now = snapshot.now_s
    claim = snapshot.claims.get(pin.claim) if pin.claim else None
    node = snapshot.nodes.get(pin.node)
    if claim is not None and claim.disruption is not None:
        why = claim.disruption
        return Loss(Reason(why.reason), f"machine {claim.node} leaves: {why.message}", min(why.at_s, now))
    if node is None or (pin.claim and (claim is None or claim.deleting)):
        return Loss(Reason.NODE_FAILURE, f"node {pin.node} is gone", now)
    if not node.ready and now - node.ready_changed_at_s >= NODE_FAILURE_AFTER_S:
        message = f"node {pin.node} has not been ready for {NODE_FAILURE_AFTER_S:.0f} s"
        return Loss(Reason.NODE_FAILURE, message, node.ready_changed_at_s)
    if not job.suspended and _driven_off(snapshot, gang, job, node):
        return Loss(Reason.NODE_FAILURE, f"node {pin.node} is cordoned and a pod has left it", now)
    return None


def _driven_off(snapshot: Snapshot, gang: Gang, job: Job, node: Node) -> bool:
    """Whether a pod of the gang has left a cordoned node: it could never come back to its place there."""
    if not node.unschedulable or (gang.pods_ready and job.ready_pods >= sum(s.count for s in gang.pod_sets)):
        return False
    pods = snapshot.gang_pods.get(f"{gang.namespace}/{gang.workload}", ())
    here = sum(1 for pod in pods if pod.node == node.name and not pod.deleting and pod.phase != "Failed")
    leaving = sum(pin.count for pin in gang.leaving if pin.node == node.name)
    return here < sum(pin.count for pin in gang.pins if pin.node == node.name) - leaving


def lost_claim(snapshot: Snapshot, gang: Gang, name: str) -> tuple[Reason, str] | None:
    """Why a machine that the gang waits for will not come, or not as it is needed."""
    claim = snapshot.claims.get(name)
    if claim is None:
        return Reason.MACHINE_LOST, f"machine {name} is gone before it was used"
    if claim.deleting or claim.disruption:
        why = f": {claim.disruption.message}" if claim.disruption else ""
        return Reason.MACHINE_LOST, f"machine {name} leaves before it was used{why}"
    if gang.recuts.get(name, claim.layout) != claim.layout and claim_subject(name) not in snapshot.busy:
        return Reason.MACHINE_LOST, f"machine {name} was not asked for its new cut, or for another since"
    return None
