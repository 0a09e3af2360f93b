"""Why a gang waits or runs, its place in the queue, and what would change it, for the CLI and for reviews."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fleet.explain.what_if import otherwise, standings
from fleet.mig.layouts import gpu_part
from fleet.reasons import Reason
from fleet.scheduling.queue_order import pending_in_same_queue, queue_key, usage_of_local_queues
from fleet.snapshot import STATEFUL_SET, Gang, GangState, Snapshot
from fleet.snapshot.elastic_parts import cores
from fleet.snapshot.gangs import POD
from model.fleet import Fleet
from model.plain_text import age, number_of
from model.quantity import format_amount
from providers.kube.objects import HARD_FENCE

REMEDIES: dict[str, str] = {
    Reason.QUEUE_NOT_FOUND: "name a declared queue in the label muster.dev/queue, or declare this one in git",
    Reason.NAMESPACE_NOT_ALLOWED: "add the namespace to the team in git, or submit from one the team owns",
    Reason.PRIORITY_NOT_FOUND: "declare the priority class in git, or name another",
    Reason.PRIORITY_NOT_ALLOWED: "use a class the team may use, or add it to the team in git",
    Reason.QUEUE_STOPPED: "set the queue's stopPolicy to None in git",
    Reason.BUDGET_EXHAUSTED: "raise the team's budget in git, or wait for the next month",
    Reason.BACK_OFF: "nothing to do: it is considered again after the pause",
    Reason.DEACTIVATED: "set spec.active of its Workload to true",
    Reason.BEHIND_HEAD: "let the head of the queue run, or set the queue's order to BestEffortFIFO",
    Reason.UNSUPPORTED: "correct the field in the job, as the reason says; it keeps its place in the queue",
    Reason.RUNTIME_CLASS_NOT_FOUND: "create the RuntimeClass, or name another in the job",
    Reason.PODS_FORBIDDEN: "correct requests and limits in the job, or change the LimitRange that is named",
    Reason.NO_MATCHING_FLAVOR: "add a flavor that offers the resource to the queue and give its team quota there",
    Reason.EXCEEDS_MAX_QUOTA: "ask for less, or raise quota or borrowing limit in git",
    Reason.WAITING_FOR_QUOTA: "it runs when others finish; a higher priority or more guaranteed quota gets it sooner",
    Reason.WAITING_FOR_PREEMPTED: "nothing to do: it runs as soon as the named gangs have left",
    Reason.NO_OFFER: "change the pods' selectors or sizes, or a pool's requirements in git",
    Reason.POOL_LIMIT: "raise the pool's limits in git, or wait until machines are free",
    Reason.NO_CAPACITY: "nothing to do: the shortage is forgotten after some minutes; more zones or types help",
    Reason.TOPOLOGY: "ask for a coarser topology level, or wait until a whole domain is free",
    Reason.BATCHING: "nothing to do: it takes a second, ten at most",
    Reason.BUYING: "nothing to do: it starts when every machine is ready",
    Reason.WAITING_FOR_CHECKS: "the named checks have to be answered in status.admissionChecks of its Workload",
    Reason.RECUTTING: "nothing to do: it starts when the GPUs are cut",
}


@dataclass(frozen=True, slots=True)
class Otherwise:
    """How a gang would be; empty: as it is."""

    priority: str = ""
    queue: str = ""
    gpus: int | None = None
    """A pod."""

    def __bool__(self) -> bool:
        return bool(self.priority or self.queue or self.gpus is not None)


def fence_words(snapshot: Snapshot, namespace: str) -> Iterator[str]:
    """How much the pods of a namespace may request together, where its team has a hard fence."""
    fence = (snapshot.hard_fences or {}).get(namespace)
    if fence is not None and fence.ours:
        most = ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in sorted(fence.hard.items()))
        yield f"  fence:    all pods of {namespace} together request at most {most} (ResourceQuota {HARD_FENCE})"


def find(snapshot: Snapshot, name: str) -> list[Gang]:
    """Gangs by job name, Workload name, or either behind `namespace/`."""
    return [
        gang
        for _, gang in sorted(snapshot.gangs.items(), key=lambda entry: entry[1].name)
        if name in {gang.job.name, gang.workload, gang.name, f"{gang.namespace}/{gang.workload}"}
    ]


def gang_lines(snapshot: Snapshot, gang: Gang, fleet: Fleet | None = None, usage: Iterable[str] = ()) -> Iterator[str]:
    """The explanation, line by line; `usage` has those about its queue's quota."""
    now = snapshot.now_s
    asked = "; ".join(f"{count} x ({words})" for words, count in _asked(gang).items())
    yield f"{gang.name}  ({gang.job.kind}, queue {gang.queue}, priority {gang.effective_priority})"
    yield f"  asks:     {asked}"
    yield f"  state:    {gang.state} for {age(now - gang.since_s)}, {age(now - gang.created_at_s)} since submission"
    yield f"  reason:   {gang.reason}: {gang.message}"
    if gang.eviction:
        yield f"  evicted:  {gang.evictions} times; last {age(now - gang.eviction.at_s)} ago: {gang.eviction.reason}"
    if gang.state is GangState.PENDING:
        yield from _position(snapshot, gang, fleet)
        yield from usage
    if gang.holds_capacity:
        yield from _held(snapshot, gang)
    if gang.ran_s(now) or gang.max_run_s is not None:
        most = "" if gang.max_run_s is None else f", {age(gang.max_run_s)} at most"
        yield f"  ran:      {age(gang.ran_s(now))} in all{most}"
    if gang.pins:
        yield f"  machines: {', '.join(sorted({pin.node or pin.claim for pin in gang.pins}))}"
    yield from _grown(snapshot, gang)
    yield from fence_words(snapshot, gang.namespace)
    if remedy := REMEDIES.get(gang.reason):
        yield f"  what would change it: {remedy}"


def _grown(snapshot: Snapshot, gang: Gang) -> Iterator[str]:
    """Of a StatefulSet that was scaled up while its gang ran: which of its pods ask for themselves."""
    pods = snapshot.job_pods.get(gang.uid, ())
    if gang.job.kind == POD and pods and (of := snapshot.gangs.get(pods[0].owner_job)) is not None:
        yield f"  came:     by scaling up {of.name} while that runs; it asks for itself until {of.job.name} starts anew"
    if gang.job.kind != STATEFUL_SET:
        return
    alone = [it for it in snapshot.gangs.values() if it.job.kind == POD and _owner_of(snapshot, it) == gang.uid]
    if alone:
        told = ", ".join(f"{it.job.name} ({it.state}: {it.reason})" for it in sorted(alone, key=lambda it: it.job.name))
        asks = number_of(
            len(alone),
            "pod that came by scaling up asks for itself",
            "pods that came by scaling up ask each for themselves",
        )
        yield f"  beside:   {len(alone)} {asks}: {told}"


def _owner_of(snapshot: Snapshot, gang: Gang) -> str:
    return next((pod.owner_job for pod in snapshot.job_pods.get(gang.uid, ())), "")


def _asked(gang: Gang) -> Mapping[str, int]:
    """What a pod asks for -> pods, of pod sets in order; those that ask the same are told together."""
    found = Counter[str]()
    for pods in gang.pod_sets:
        found[", ".join(f"{a} {r}" for r, a in gpu_part(pods.requests).items()) or "no GPU"] += pods.count
    return found


def _held(snapshot: Snapshot, gang: Gang) -> Iterator[str]:
    """How many pods it has of those that were asked for, where these are more."""
    job = snapshot.jobs.get(gang.uid)
    asked = sum(pods.count for pods in job.pod_sets) if job else 0
    has, needs = sum(pods.count for pods in gang.pod_sets), sum(pods.count for pods in cores(gang.pod_sets))
    if asked > has or has > needs:
        leaving = sum(pin.count for pin in gang.leaving)
        gone = f", {leaving} of them leaving" if leaving else ""
        yield f"  pods:     {has} of {max(asked, has)}{gone}; starts with {needs}"


def _position(snapshot: Snapshot, gang: Gang, fleet: Fleet | None) -> Iterator[str]:
    """Its place in the queue; without the fleet's files by priority and age alone."""
    if fleet is not None:
        waiting = pending_in_same_queue(fleet, snapshot, gang)
    else:
        pending = (it for it in snapshot.gangs.values() if it.queue == gang.queue and it.state is GangState.PENDING)
        waiting = sorted(pending, key=queue_key)
    place = [it.uid for it in waiting].index(gang.uid) + 1
    unsure = " by priority and age; --fleet tells the order by use" if fleet is None and snapshot.local_usage else ""
    yield f"  position: {place} of {len(waiting)} in queue {gang.queue}{unsure}"
    if fleet is not None and (rivals := usage_of_local_queues(fleet, snapshot, gang)):
        told = ", ".join(f"{name} {value:.4g}" for name, value in rivals)
        yield f"  usage:    {told}: who used less lately goes first"


def way_through(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> Iterator[str]:
    """The quota tree from the gang's queue to the root, without what the gang itself holds."""
    for standing in standings(fleet, snapshot, gang):
        resource = standing.levels[0].resource
        asked, free = (format_amount(resource, amount) for amount in (standing.asked, standing.free))
        yield f"  {resource} of {standing.levels[0].flavor}: asks {asked}, {free} free for it"
        for level in standing.levels:
            quota, used = (format_amount(resource, amount) for amount in (level.quota, level.used))
            bound = "" if level.most is None else f", at most {format_amount(resource, level.most)}"
            borrowed = f", borrows {format_amount(resource, level.borrowed)}" if level.borrowed else ""
            yield f"    {level.node}: uses {used} of {quota}{borrowed}{bound}"


def imagined(fleet: Fleet, snapshot: Snapshot, gang: Gang, question: Otherwise) -> Iterator[str]:
    """What the next decision would be if the gang were as the question has it, at the prices of the snapshot."""
    found = otherwise(fleet, snapshot, gang, priority_class=question.priority, queue=question.queue, gpus=question.gpus)
    asked = [
        f"priority class {question.priority}" if question.priority else "",
        f"queue {question.queue}" if question.queue else "",
        f"{question.gpus} GPUs a pod" if question.gpus is not None else "",
    ]
    yield f"  with {', '.join(it for it in asked if it)}: {found.state}, {found.reason}: {found.message}"
    if found.evicted:
        yield f"    would make leave: {', '.join(found.evicted)}"


GANGS_MOST = 3
"""Gangs of one name that an answer tells of."""


def told_of(name: str, question: Otherwise, fleet: Fleet, snapshot: Snapshot) -> Iterator[str]:
    """All there is to say of the gangs of a name, in the fleet in force."""
    gangs = find(snapshot, name)
    if not gangs:
        yield f"no workload {name!r}"
    for gang in gangs[:GANGS_MOST]:
        yield from gang_lines(snapshot, gang, fleet)
        yield from way_through(fleet, snapshot, gang)
        if question:
            yield from imagined(fleet, snapshot, gang, question)
