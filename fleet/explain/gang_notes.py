"""What else is to be said of a gang: what happened to it, how many of its pods it has, what bounds its namespace.

And, by reason, what would change it where no change can be tried on the engine: it is somebody else's to make.
"""

from collections import defaultdict
from collections.abc import Iterator

from fleet.cost.sizing import advice_words, gang_use, use_words
from fleet.gangs.changed_job import changed_since
from fleet.gangs.idle_gpus import idle_words
from fleet.hard_fence import HARD_FENCE
from fleet.mig.layouts import gpu_part
from fleet.nodeclaims.gpu_faults import FaultAction, action_for, fault_words
from fleet.quota.queue_binding import why_non_preemptible, within_guarantee
from fleet.reasons import Reason
from fleet.scheduling.never_fits import meant_in
from fleet.snapshot import STATEFUL_SET, Gang, GangState, Snapshot
from fleet.snapshot.elastic_parts import cores, pods_in
from fleet.snapshot.gangs import POD
from fleet.snapshot.seats import pods_of
from model.fleet import Fleet
from model.kinds.node_pool import Sharing
from model.plain_text import age, counted, instant, number_of
from model.quantity import format_amount

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
    Reason.RESOURCE_QUOTA: "wait until pods of its namespace have ended, or have the named ResourceQuota raised",
    Reason.NO_MATCHING_FLAVOR: "add a flavor that offers the resource to the queue and give its team quota there",
    Reason.EXCEEDS_MAX_QUOTA: "ask for less, or raise quota or borrowing limit in git",
    Reason.WAITING_FOR_QUOTA: "it runs when those who hold what it lacks end, or its team is guaranteed more in git",
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


def remedy_of(gang: Gang) -> str:
    """Returns what would change what is said of a gang; empty where nothing does, or nothing has to."""
    hint = meant_in(gang.message) if gang.reason in {Reason.NO_MATCHING_FLAVOR, Reason.NO_OFFER} else ""
    return f"ask for {hint} in the job" if hint else REMEDIES.get(gang.reason, "")


def gang_notes(snapshot: Snapshot, gang: Gang, fleet: Fleet | None = None) -> Iterator[str]:
    """Yields what else is to be said of a gang, a `subject: words` each; what was changed since takes the fleet.

    Whoever keeps them may be read much later: they tell of instants, and of no ages.
    """
    job = snapshot.jobs.get(gang.uid)
    yield from (f"unread: {it.path}: {it.words}; it counts as not given" for it in (job.unread if job else ()))
    if fleet is not None:
        yield from (f"changed: {words}" for words in changed_since(fleet, gang, job))
        if kept := why_non_preemptible(fleet, gang):
            bound = "; takes no more than its team is guaranteed" if within_guarantee(fleet, gang) else ""
            yield f"stays: {kept}: never evicted for others, moved or consolidated{bound}"
        yield from _shares(snapshot, gang, fleet)
    if gang.eviction:
        times = counted(gang.evictions, "time")
        yield f"evicted: {times}; last at {instant(gang.eviction.at_s)}: {gang.eviction.reason}"
    if gang.holds_capacity:
        yield from _held(snapshot, gang)
    yield from _run_time(gang)
    yield from _grown(snapshot, gang)
    yield from _gpu_use(snapshot, gang)
    yield from fence_words(snapshot, gang.namespace)


def isolation(sharing: Sharing) -> str:
    """Returns how GPUs are shared and what keeps those who share one apart; empty for whole GPUs."""
    if sharing.mig is not None:
        return f"cut by MIG ({', '.join(sharing.mig.layouts)}): memory and compute of each slice are its own"
    if sharing.time_slicing is not None:
        return f"{sharing.replicas} pods take turns on each GPU: nothing keeps one from the memory of all"
    if sharing.mps is not None:
        part = f"1/{sharing.replicas}"
        return (
            f"{sharing.replicas} pods at once on each GPU (MPS): {part} of memory and threads each, faults are shared"
        )
    return ""


def _shares(snapshot: Snapshot, gang: Gang, fleet: Fleet) -> Iterator[str]:
    """Yields with whom a gang shares the GPUs that it has, and what keeps them apart."""
    if not any(gpu_part(pods.requests) for pods in gang.pod_sets):
        return
    claims = (snapshot.claims.get(pin.claim) for pin in gang.pins)
    pools = (fleet.node_pools.get(claim.node_pool) for claim in claims if claim is not None)
    told = dict.fromkeys(isolation(pool.spec.sharing) for pool in pools if pool is not None)
    yield from (f"shares: {words}" for words in told if words)


def _gpu_use(snapshot: Snapshot, gang: Gang) -> Iterator[str]:
    """Yields what it makes of its GPUs by dcgm-exporter, what would be enough, and what it holds idle."""
    use = gang_use(snapshot, gang) if gang.holds_capacity and snapshot.gpu_uses else None
    if use is not None:
        yield f"uses: {use_words(use, snapshot.now_s)}"
        yield from (f"enough: {words}" for words in (advice_words(use),) if words)
    if gang.idle is not None:
        yield f"idle: it {idle_words(gang.idle)}, since {instant(gang.idle.since_s)}"
    yield from _application_faults(snapshot, gang)


def _application_faults(snapshot: Snapshot, gang: Gang) -> Iterator[str]:
    """Yields the errors of the driver that are told of a GPU of its machines and are mostly the program's own."""
    held: dict[str, set[str]] = defaultdict(set)
    for pod in pods_of(snapshot, gang):
        for it in snapshot.gpu_uses.get(pod.key, ()):
            held[it.last.node].add(it.last.gpu)
    for name in sorted(held.keys() & snapshot.nodes.keys()):
        for fault in snapshot.nodes[name].gpu_faults:
            if fault.complaint.gpu in held[name] and action_for(fault.complaint) is FaultAction.APPLICATION:
                words, found = fault_words(fault.complaint), instant(fault.since_s)
                yield f"gpu: {words} on {name}, found at {found}: mostly a fault of the program on it"


def fence_words(snapshot: Snapshot, namespace: str) -> Iterator[str]:
    """Yields how much the pods of a namespace may request together, where its team has a hard fence."""
    fence = (snapshot.hard_fences or {}).get(namespace)
    if fence is not None and fence.ours:
        most = ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in sorted(fence.hard.items()))
        yield f"fence: all pods of {namespace} together request at most {most} (ResourceQuota {HARD_FENCE})"


def _run_time(gang: Gang) -> Iterator[str]:
    """Yields how long it has run, or since when it runs, and how long it may."""
    most = "" if gang.max_run_s is None else f", {age(gang.max_run_s)} at most"
    if gang.state is GangState.ADMITTED:
        before = f", and {age(gang.ran_before_s)} before" if gang.ran_before_s else ""
        yield f"ran: since {instant(gang.admitted_at_s)}{before}{most}"
    elif gang.ran_before_s or most:
        yield f"ran: {age(gang.ran_before_s)} in all{most}"


def _grown(snapshot: Snapshot, gang: Gang) -> Iterator[str]:
    """Yields of a StatefulSet that was scaled up while its gang ran: which of its pods ask for themselves."""
    pods = snapshot.job_pods.get(gang.uid, ())
    if gang.job.kind == POD and pods and (of := snapshot.gangs.get(pods[0].owner_job)) is not None:
        yield f"came: by scaling up {of.name} while that runs; it asks for itself until {of.job.name} starts anew"
    if gang.job.kind == STATEFUL_SET:
        yield from _beside(snapshot, gang)


def _beside(snapshot: Snapshot, gang: Gang) -> Iterator[str]:
    """Yields which pods of a StatefulSet ask for themselves beside its gang."""
    alone = [it for it in snapshot.gangs.values() if it.job.kind == POD and _owner_of(snapshot, it) == gang.uid]
    if alone:
        told = ", ".join(f"{it.job.name} ({it.state}: {it.reason})" for it in sorted(alone, key=lambda it: it.job.name))
        asks = number_of(
            len(alone),
            "pod that came by scaling up asks for itself",
            "pods that came by scaling up ask each for themselves",
        )
        yield f"beside: {len(alone)} {asks}: {told}"


def _owner_of(snapshot: Snapshot, gang: Gang) -> str:
    return next((pod.owner_job for pod in snapshot.job_pods.get(gang.uid, ())), "")


def _held(snapshot: Snapshot, gang: Gang) -> Iterator[str]:
    """Yields how many pods it has of those that were asked for, where these are more."""
    job = snapshot.jobs.get(gang.uid)
    asked = pods_in(job.pod_sets) if job else 0
    has, needs = pods_in(gang.pod_sets), pods_in(cores(gang.pod_sets))
    if asked > has or has > needs:
        leaving = sum(pin.count for pin in gang.leaving)
        gone = f", {leaving} of them leaving" if leaving else ""
        yield f"pods: {has} of {max(asked, has)}{gone}; starts with {needs}"
