"""What is answered of a gang, or of a job that is in no queue: typed values, which the API gives as JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from agent.explanation import Otherwise, explanation_lines, imagined_lines
from agent.web.view import Looking
from fleet.cost.sizing import GangUse, gang_use
from fleet.explain.gang import GangExplanation
from fleet.explain.what_if import WhatIfDecision, otherwise
from fleet.gangs.idle_gpus import idle_words
from fleet.placement.pod_quota import pods_queue
from fleet.quota.queue_binding import payer_of
from fleet.quota.without_queue import left_without_queue
from fleet.snapshot import Gang, Job, Snapshot
from fleet.snapshot.gpus import MeasuredUse
from fleet.snapshot.ordinary_pods import makers
from model.quantity import format_amount

GPUS_MOST: Final = 1_000
ANY_NAMESPACE: Final = "-"
"""In place of a namespace: whichever has it, of those that the viewer sees."""


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
    counts_in: str = ""
    """The queue whose quota its pods take; empty = none."""
    unread: tuple[str, ...] = ()
    """What it says that nothing reads, with why: perhaps its queue."""


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
    gangs = [
        it for it in look.gangs if name in {it.workload, it.job.name} and namespace in {ANY_NAMESPACE, it.namespace}
    ]
    homes = look.scope.namespaces
    left = [
        it
        for it in left_without_queue(look.snapshot, name)
        if namespace in {ANY_NAMESPACE, it.ref.namespace} and (homes is None or it.ref.namespace in homes)
    ]
    spaces = sorted({it.namespace for it in gangs} | {it.ref.namespace for it in left})
    if len(spaces) > 1:
        raise ValueError(f"there are several of this name: {', '.join(f'{it}/{name}' for it in spaces[:10])}")
    if gangs:
        return GangAnswer(look.explanation(gangs[0]), _otherwise(look, gangs[0]))
    if not left:
        return None
    payer = payer_of(look.fleet, spaces[0], "") or ""
    counts_in = pods_queue(look.fleet, spaces[0])
    return GangAnswer(in_no_queue=in_no_queue(left[0], look.snapshot, payer, counts_in))


def _question(look: Looking) -> Otherwise:
    priority, queue, gpus = (look.asked(name) for name in ("priority", "queue", "gpus"))
    if gpus and not (gpus.isascii() and gpus.isdigit() and int(gpus[:6]) <= GPUS_MOST):
        raise ValueError(f"gpus is a number of GPUs a pod, {GPUS_MOST} at most")
    return Otherwise(priority, queue, int(gpus) if gpus else None)


def _otherwise(look: Looking, gang: Gang) -> WhatIfDecision | None:
    it = _question(look)
    if not it:
        return None
    return otherwise(look.fleet, look.snapshot, gang, priority_class=it.priority, queue=it.queue, gpus=it.gpus)


def answer_lines(look: Looking) -> Iterator[str]:
    """Yields the same as lines of text, as the command line prints it; none for what there is not."""
    found = answer_of(look)
    if found is None:
        return
    if found.gang is not None:
        yield from explanation_lines(found.gang)
    if found.otherwise is not None:
        yield from imagined_lines(_question(look), found.otherwise)
    if found.in_no_queue is not None:
        yield from in_no_queue_lines(found.in_no_queue)


def in_no_queue_lines(job: JobInNoQueue) -> Iterator[str]:
    """Yields what is to be said of a job that is left to itself."""
    yield f"{job.name}  ({job.kind}, no queue)"
    counts = f"its pods count in queue {job.counts_in}" if job.counts_in else "counts in no quota"
    yield f"  it asks for {_amounts(job.asks) or 'nothing'} and {counts}: it is left to kube-scheduler"
    if job.nodes:
        where = ", ".join(f"{node} ({count})" for node, count in sorted(job.nodes.items()))
        pays = f"team {job.team}" if job.team else "nobody"
        yield f"  holds:    {_amounts(job.holds) or 'nothing'}, on {where}, which {pays} pays for"
    yield from (f"  unread: {it}" for it in job.unread)
    yield "  remedy: create it with the label muster.dev/queue; defaultQueue of its team sees to all such jobs"


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in sorted(amounts.items()))


def in_no_queue(job: Job, snapshot: Snapshot, team: str, counts_in: str = "") -> JobInNoQueue:
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
    asked, held = dict(sorted(asks.items())), dict(sorted(holds.items()))
    unread = tuple(f"{it.path}: {it.words}" for it in job.unread)
    return JobInNoQueue(name, job.ref.kind, team, asked, held, dict(nodes), counts_in, unread)
