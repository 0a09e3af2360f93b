"""What an action will have made of the world, believed before its echo arrives (Kueue and kube-scheduler: "assume")."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent.mirror import Mirror, job_table
from agent.tables import MirrorTable
from fleet.actions import (
    Action,
    CloseClaim,
    CloseGang,
    EvictPod,
    ForgetClaim,
    KeepHardFence,
    LiftHardFence,
    OpenClaims,
    OpenGang,
    PatchNode,
    ReleasePod,
    RemoveNode,
    SaveClaim,
    SaveGang,
    StartJob,
    StopJob,
)
from fleet.snapshot import Gang, HardFence, JobRef, Pod
from providers.kube.objects import kind_of

Belief = tuple[MirrorTable[Any], str, Any]
"""(table, key, value that will be there; None = gone)."""

WHOLE_SECOND_S = 1.0
"""The API server tells instants in whole seconds."""


def beliefs(action: Action, mirror: Mirror) -> list[Belief]:
    """Returns what the mirror believes while an action is under way; nothing where only the world shows its effect."""
    believe = _TABLE.get(type(action))
    return believe(action, mirror) if believe else []


def believe_ending(action: EvictPod, mirror: Mirror, now_s: float) -> None:
    """Believes that a pod is ending once its eviction was accepted, until the watch shows it or is silent for long.

    Not before: an eviction may be refused, and its answer does not say what became of the pod.
    """
    pod = mirror.pods.current.get(action.pod.key)
    if pod is None or pod.uid != action.pod.uid:
        return
    ending = pod.told_to_end(now_s, action.force_grace_s)

    def shown(seen: Pod | None) -> bool:
        if seen is None or seen.uid != ending.uid:
            return True
        return seen.deleting and seen.deletion_at_s <= ending.deletion_at_s + WHOLE_SECOND_S

    if ending != pod:
        mirror.pods.assume(pod.key, ending, now_s, shown)


def _gang(gang: Gang, mirror: Mirror) -> list[Belief]:
    return [(mirror.gangs, f"{gang.namespace}/{gang.workload}", gang)]


def _no_gang(gang: Gang, mirror: Mirror) -> list[Belief]:
    return [(mirror.gangs, f"{gang.namespace}/{gang.workload}", None)]


def _job(ref: JobRef, mirror: Mirror, *, suspended: bool) -> list[Belief]:
    table = mirror.works[job_table(kind_of(ref))]
    job = table.current.get(ref.uid)
    return [(table, ref.uid, replace(job, suspended=suspended))] if job else []


def _pod(action: ReleasePod, mirror: Mirror) -> list[Belief]:
    pod = mirror.pods.current.get(action.pod.key)
    if pod is None:
        return []
    released = replace(pod, gated=False, pinned_host=action.hostname)
    if action.marks is not None:
        released = replace(released, workload=action.marks.workload, pod_set=action.marks.pod_set)
    return [(mirror.pods, action.pod.key, released)]


def _node(action: PatchNode, mirror: Mirror) -> list[Belief]:
    node = mirror.nodes.current.get(action.node)
    return [(mirror.nodes, action.node, action.applied_to(node))] if node else []


def _fence(action: KeepHardFence, mirror: Mirror) -> list[Belief]:
    known = mirror.hard_fences.current.get(action.namespace, HardFence(action.namespace))
    return [(mirror.hard_fences, action.namespace, replace(known, hard=action.hard, ours=True))]


def _no_fence(action: LiftHardFence, mirror: Mirror) -> list[Belief]:
    left = replace(action.fence, hard={}, ours=False) if action.fence.shared else None
    return [(mirror.hard_fences, action.fence.namespace, left)]


_TABLE: dict[type, Callable[[Any, Mirror], list[Belief]]] = {
    OpenGang: lambda action, mirror: _gang(action.gang, mirror),
    SaveGang: lambda action, mirror: _gang(action.gang, mirror),
    CloseGang: lambda action, mirror: _no_gang(action.gang, mirror),
    StartJob: lambda action, mirror: _job(action.job, mirror, suspended=False),
    StopJob: lambda action, mirror: _job(action.job, mirror, suspended=True),
    ReleasePod: _pod,
    OpenClaims: lambda action, mirror: [(mirror.claims, claim.name, claim) for claim in action.claims],
    SaveClaim: lambda action, mirror: [(mirror.claims, action.claim.name, action.claim)],
    CloseClaim: lambda action, mirror: [(mirror.claims, action.claim.name, replace(action.claim, deleting=True))],
    ForgetClaim: lambda action, mirror: [(mirror.claims, action.claim.name, None)],
    PatchNode: _node,
    KeepHardFence: _fence,
    LiftHardFence: _no_fence,
    RemoveNode: lambda action, mirror: [(mirror.nodes, action.node, None)],
}
