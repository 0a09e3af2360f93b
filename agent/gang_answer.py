"""What is answered of a gang, or of a job that is in no queue: typed values, which the API gives as JSON."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.web.view import Looking
from fleet.cost.sizing import GangUse, gang_use
from fleet.explain.gang import GangExplanation
from fleet.explain.what_if import WhatIfDecision, otherwise
from fleet.gangs.idle_gpus import idle_words
from fleet.quota.queue_binding import payer_of
from fleet.quota.without_queue import left_without_queue
from fleet.snapshot import Gang, Job, Snapshot
from fleet.snapshot.gpus import MeasuredUse
from fleet.snapshot.ordinary_pods import makers

GPUS_MOST: Final = 1_000


@dataclass(frozen=True, slots=True)
class JobInNoQueue:
    """A job that names no queue and is left to kube-scheduler; amounts are canonical."""

    name: str
    kind: str
    team: str
    """Of its namespace, which pays for it; empty = none."""
    asks: Mapping[str, int]
    holds: Mapping[str, int]
    nodes: Mapping[str, int]
    """Node -> its pods there."""


@dataclass(frozen=True, slots=True)
class GangAnswer:
    """What is known under a name: a gang, or a job in no queue."""

    gang: GangExplanation | None = None
    otherwise: WhatIfDecision | None = None
    """What the next decision would be if the gang were as the question has it."""
    in_no_queue: JobInNoQueue | None = None


@dataclass(frozen=True, slots=True)
class GangGpus:
    """What a gang makes of the GPUs and slices that it holds."""

    name: str
    queue: str
    team: str
    use: GangUse
    idle: str = ""
    """What it holds idle, in words; empty = it uses what it has."""


@dataclass(frozen=True, slots=True)
class GpusAnswer:
    """What is known of the use of GPUs: by gang, and by pod and device."""

    at_s: float
    gangs: tuple[GangGpus, ...] = ()
    uses: tuple[MeasuredUse, ...] = ()


def gpus_answer(look: Looking) -> GpusAnswer:
    """Returns what the viewer may know of what is used: of gangs and pods of the namespaces that they see."""
    gangs = (
        GangGpus(
            gang.name,
            gang.queue,
            payer_of(look.fleet, gang.namespace, gang.queue) or "",
            use,
            f"it {idle_words(gang.idle)}" if gang.idle is not None else "",
        )
        for gang in look.gangs
        if gang.holds_capacity and (use := gang_use(look.snapshot, gang)) is not None
    )
    namespaces = look.scope.namespaces
    uses = (it for _, found in sorted(look.snapshot.gpu_uses.items()) for it in found)
    seen = tuple(it for it in uses if namespaces is None or it.last.namespace in namespaces)
    return GpusAnswer(look.snapshot.now_s, tuple(gangs), seen)


def answer_of(look: Looking) -> GangAnswer | None:
    """Returns what is known of the gang or job that the address names; None where there is none to be seen.

    The query may ask how it would be with another `priority` class, `queue`, or so many `gpus` a pod. ValueError for
    what is no such question.
    """
    namespace, name = look.names
    gang = next((it for it in look.gangs if it.namespace == namespace and name in {it.workload, it.job.name}), None)
    if gang is not None:
        return GangAnswer(look.explanation(gang), _otherwise(look, gang))
    if not look.scope.whole and namespace not in (look.scope.namespaces or ()):
        return None
    left = left_without_queue(look.snapshot, f"{namespace}/{name}")
    payer = payer_of(look.fleet, namespace, "") or ""
    return GangAnswer(in_no_queue=in_no_queue(left[0], look.snapshot, payer)) if left else None


def _otherwise(look: Looking, gang: Gang) -> WhatIfDecision | None:
    priority, queue, gpus = (look.asked(name) for name in ("priority", "queue", "gpus"))
    if not (priority or queue or gpus):
        return None
    if gpus and not (gpus.isascii() and gpus.isdigit() and int(gpus[:6]) <= GPUS_MOST):
        raise ValueError(f"gpus is a number of GPUs a pod, {GPUS_MOST} at most")
    count = int(gpus) if gpus else None
    return otherwise(look.fleet, look.snapshot, gang, priority_class=priority, queue=queue, gpus=count)


def in_no_queue(job: Job, snapshot: Snapshot, team: str) -> JobInNoQueue:
    """Returns what a job asks for and what the pods that it has made hold, and where."""
    asks, holds, nodes = Counter[str](), Counter[str](), Counter[str]()
    for pods in job.pod_sets:
        asks.update({name: amount * pods.count for name, amount in pods.requests.items()})
    for node, standing in snapshot.ordinary_pods.items():
        for pod in standing:
            if job.ref.uid in makers(snapshot.jobs, pod.owner_job):
                holds.update(pod.requests)
                nodes[node] += 1
    name = f"{job.ref.namespace}/{job.ref.name}"
    return JobInNoQueue(name, job.ref.kind, team, dict(sorted(asks.items())), dict(sorted(holds.items())), dict(nodes))
