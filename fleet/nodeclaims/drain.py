"""Emptying a node that leaves: gangs go as a whole (their own life cycle), everything else by the eviction API."""

import math

from fleet.actions import Action, EvictPod, pod_subject
from fleet.snapshot import Claim, Node, Pod, Snapshot


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
        hurry = _hurry(pod, snapshot.now_s, deadline_s)
        if hurry is not None:
            steps.append(EvictPod(pod, force_grace_s=hurry))
        elif not pod.deleting and not pod.workload:
            steps.append(EvictPod(pod))
    return bool(pods), steps


def _hurry(pod: Pod, now_s: float, deadline_s: float) -> int | None:
    """The shorter grace a pod gets when its own would end after the deadline; None while there is time."""
    ends_s = pod.deletion_at_s if pod.deleting else now_s + pod.deletion_grace_s
    return max(1, int(deadline_s - now_s)) if ends_s > deadline_s + 1 else None
