"""Kubernetes events for what people wait for: admitted, evicted, adopted, refused; one for each change of state."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Literal

from agent.failures import SetAside
from agent.inbox import Done, Failed
from agent.mirror import Mirror
from agent.refused_writes import RefusedWrite
from agent.watch import OnceDone, Watcher
from fleet.actions import Action, Announce, NominatePods, OpenClaims, OpenGang, SaveClaim, SaveGang
from fleet.cost.budgets import LEVELS, BudgetNews
from fleet.gangs.changed_job import changed_since
from fleet.gangs.idle_gpus import idle_words
from fleet.mig.layouts import layout_name
from fleet.nodeclaims.adoption import refusals
from fleet.nodeclaims.adoption_checks import asked_pool
from fleet.placement.pod_quota import pods_queue
from fleet.quota.without_queue import left_in_teams, misread_jobs
from fleet.reasons import Reason, Refusal
from fleet.snapshot import (
    Claim,
    ClaimState,
    DecisionFailure,
    Gang,
    GangState,
    Hold,
    Job,
    JobRef,
    Node,
    Pod,
    PodVerdict,
    Snapshot,
)
from fleet.snapshot.lookups import nodes_by_instance
from model.fleet import Fleet

API_VERSION = "muster.dev/v1alpha1"

WARNINGS = frozenset(
    {
        Reason.NO_CAPACITY,
        Reason.MACHINE_LOST,
        Reason.NODE_FAILURE,
        Reason.PLACE_TAKEN,
        Reason.REPLACING,
        Reason.MAX_RUN_TIME,
        Reason.IDLE_GPUS,
        Reason.REQUEUING_LIMIT,
        Reason.CHECK_REJECTED,
        Reason.INTERRUPTED,
        Reason.BLOCK_ENDS,
        Reason.LAUNCH_FAILED,
        Reason.LAUNCH_REFUSED,
        Reason.REGISTRATION_TIMEOUT,
        Reason.INITIALIZATION_TIMEOUT,
        Reason.LAYOUT_DRIFT,
        Reason.LAYOUT_FAILED,
        Reason.EXCEEDS_MAX_QUOTA,
        Reason.UNSUPPORTED,
        Reason.RUNTIME_CLASS_NOT_FOUND,
        Reason.PODS_FORBIDDEN,
        Reason.RESOURCE_QUOTA,
        Reason.QUEUE_NOT_FOUND,
        Reason.NAMESPACE_NOT_ALLOWED,
        Reason.PRIORITY_NOT_FOUND,
        Reason.PRIORITY_NOT_ALLOWED,
        Reason.TOO_MANY_PODS,
        Reason.NO_MATCHING_FLAVOR,
        Reason.NO_OFFER,
        Reason.POOL_LIMIT,
        Reason.TOPOLOGY,
        Reason.BUDGET_EXHAUSTED,
        Reason.WRITE_REFUSED,
        Reason.FAILED,
        Reason.NOT_READY,
        Reason.PODS_READY_TIMEOUT,
        Reason.LAUNCH_TIMEOUT,
        Reason.INSTANCE_GONE,
    }
)


JOBS_EVERY_S = 5.0
"""From one look at what people have changed of jobs to the next."""
MOST_PODS_TOLD = 200
"""Events on ordinary pods in one turn; the others are told by `muster explain`."""


class Announcer(Watcher):
    """Turns writes of gangs and claims into events on both and on jobs; tells why a machine is not adopted."""

    def __init__(self, say: Callable[[Announce], None]) -> None:
        self._say = say
        self._refused: Mapping[str, Refusal] = {}
        self._told: dict[tuple[str, str], DecisionFailure] = {}
        self._once_done = OnceDone()
        self._of_jobs: Mapping[str, tuple[Announce, ...]] = {}
        self._looked_at_s = 0.0

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """Compare what is about to be written with what stands there."""
        if isinstance(action, NominatePods):
            self._say_all(islice(about_pods(action.verdicts, mirror), MOST_PODS_TOLD))
        elif told := tuple(_told_of(action, mirror)):
            self._once_done.keep(action, lambda: self._say_all(told))

    def ended(self, event: Done | Failed, now_s: float) -> None:
        """Announce the changes that have been written."""
        self._once_done.ended(event)

    def _say_all(self, told: Iterable[Announce]) -> None:
        for it in told:
            self._say(it)

    def stumbled(self, found: SetAside, snapshot: Snapshot) -> None:
        """Announce that nothing can be decided about a subject, once for each failure of another kind."""
        if found.times == 1 or self._told.get((found.decider, found.subject)) != found.failure:
            self._told[found.decider, found.subject] = found.failure
            self._say_all(about_failure(found, snapshot))

    def write_refused(self, write: RefusedWrite, snapshot: Snapshot) -> None:
        """Announce that the API keeps refusing a write."""
        refs = _refs_of(write.subject, snapshot)
        self._say_all(Announce(ref, "WriteRefused", write.refusal.message, "Warning") for ref in refs)

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """Announce adoptions that are refused, each time for another reason, and what people have changed of jobs."""
        if not 0 <= snapshot.now_s - self._looked_at_s < JOBS_EVERY_S:
            self._looked_at_s = snapshot.now_s
            told = about_jobs(fleet, snapshot)
            news = (each for uid, them in told.items() for each in them if each not in self._of_jobs.get(uid, ()))
            self._say_all(islice(news, MOST_PODS_TOLD))
            self._of_jobs = told
        refused = refusals(fleet, snapshot)
        for instance_id, refusal in refused.items():
            if self._refused.get(instance_id) != refusal:
                node = nodes_by_instance(snapshot).get(instance_id)
                self._say(about_refusal(instance_id, refusal, node, asked_of(snapshot, instance_id)))
        self._refused = refused


NOT_ADMITTED = "No matching Workload: it runs without having been admitted, so it is suspended and queued anew"


def _told_of(action: Action, mirror: Mirror) -> Iterator[Announce]:
    """The events that a write is worth."""
    if isinstance(action, OpenGang):
        if _runs_already(mirror, action.gang):
            yield Announce(action.gang.job, "Stopped", NOT_ADMITTED, "Warning")
    elif isinstance(action, SaveGang):
        if gang_changes(action.gang, mirror):
            told = about_gang(action.gang)
            yield from (replace(told, about=ref) for ref in _refs_of_gang(action.gang))
        elif idle := _begins_to_idle(action.gang, mirror):
            yield from (Announce(ref, Reason.IDLE_GPUS, idle, "Warning") for ref in _refs_of_gang(action.gang))
    elif isinstance(action, SaveClaim):
        if told_to_go(action.claim, mirror):
            yield about_claim(action.claim)
        elif further := _about_progress(action.claim, mirror):
            yield further
        yield from _about_cut(action.claim, mirror)
    elif isinstance(action, OpenClaims):
        yield from (about_adoption(claim) for claim in action.claims if claim.adopts)


def _about_progress(claim: Claim, mirror: Mirror) -> Announce | None:
    """The event on a machine that has come further; None where it has not."""
    held, where = mirror.claims.current.get(claim.name), claim.capacity_pool
    if held is None or held.state is claim.state:
        return None
    how = f"{where.instance_type} {where.capacity_type} in {where.zone} at {claim.charged_usd_h:.2f} USD/h"
    words = {
        ClaimState.LAUNCHED: f"instance {claim.instance_id} is launched: {how}",
        ClaimState.REGISTERED: f"node {claim.node} has joined",
        ClaimState.READY: f"node {claim.node} is ready with everything that it owes",
    }
    ref = JobRef(API_VERSION, "NodeClaim", "", claim.name, claim.uid)
    return Announce(ref, str(claim.state), words[claim.state]) if claim.state in words else None


def _begins_to_idle(gang: Gang, mirror: Mirror) -> str:
    """What is said of a gang that is now found to hold GPUs idle; empty where it is not, or that was said."""
    before = mirror.gangs.current.get(f"{gang.namespace}/{gang.workload}")
    return f"it {idle_words(gang.idle)}" if gang.idle is not None and before and before.idle is None else ""


def gang_changes(gang: Gang, mirror: Mirror) -> bool:
    """Whether a gang comes into another state, or stays in it for another reason."""
    before = mirror.gangs.current.get(f"{gang.namespace}/{gang.workload}")
    return before is None or (before.state, before.reason) != (gang.state, gang.reason)


def told_to_go(claim: Claim, mirror: Mirror) -> bool:
    """Whether a machine is told to go, or now for another reason; another deadline is no news."""
    held = mirror.claims.current.get(claim.name)
    return held is not None and _why_it_goes(claim) not in (None, _why_it_goes(held))


def _why_it_goes(claim: Claim) -> tuple[str, str] | None:
    return (claim.disruption.reason, claim.disruption.message) if claim.disruption else None


def _about_cut(claim: Claim, mirror: Mirror) -> Iterator[Announce]:
    """The events of a layout that departs from its claim or is rolled out: when that begins, and when it is over."""
    held = mirror.claims.current.get(claim.name)
    before, now = held.cut if held is not None else None, claim.cut
    ref = JobRef(API_VERSION, "NodeClaim", "", claim.name, claim.uid)
    if now is not None and now.reason and (before is None or before.reason != now.reason):
        bad: Literal["Normal", "Warning"] = "Warning" if now.reason == Reason.LAYOUT_DRIFT else "Normal"
        yield Announce(ref, now.reason, now.message, bad)
    elif before is not None and before.reason and now is None and claim.disruption is None:
        yield Announce(ref, "LayoutRight", f"its GPUs are cut to {layout_name(claim.layout) or 'none'} as it says")


def _refs_of_gang(gang: Gang) -> tuple[JobRef, ...]:
    """A gang's job, and its Workload as soon as that is known: whoever describes either finds the events."""
    workload = JobRef(API_VERSION, "Workload", gang.namespace, gang.workload, gang.workload_uid)
    return (gang.job, workload) if gang.workload_uid else (gang.job,)


def _without_queue(job: Job, counted_in: str) -> str:
    counts = f"its pods count in queue {counted_in}" if counted_in else "no quota counts it"
    return (
        f"it names no queue: {counts}, kube-scheduler runs it where there is room, and its team pays for what it "
        f"takes; create it with the label muster.dev/queue, or give the team a defaultQueue{_misread(job)}"
    )


def _misread(job: Job) -> str:
    """What it says that nothing reads: perhaps that is the queue."""
    return "".join(f"; it says {it.path}, which counts for nothing: {it.words}" for it in job.unread[:1])


def about_jobs(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, tuple[Announce, ...]]:
    """Job (uid) -> the events on it: it is in no queue, or says otherwise than the gang that runs was admitted with."""
    in_no_queue = {job.ref.uid: (job, f"it names no queue{_misread(job)}") for job in misread_jobs(snapshot)}
    for job in left_in_teams(fleet, snapshot):
        in_no_queue[job.ref.uid] = job, _without_queue(job, pods_queue(fleet, job.ref.namespace))
    found: dict[str, tuple[Announce, ...]] = {
        uid: (Announce(job.ref, "NoQueue", words, "Warning"),) for uid, (job, words) in in_no_queue.items()
    }
    for uid, gang in snapshot.gangs.items():
        if gang.state is GangState.ADMITTED and (said := tuple(changed_since(fleet, gang, snapshot.jobs.get(uid)))):
            refs = _refs_of_gang(gang)
            found[uid] = tuple(Announce(ref, "JobChanged", words, "Warning") for words in said for ref in refs)
    return found


def _runs_already(mirror: Mirror, gang: Gang) -> bool:
    """Whether the job of a gang that is only now opened has pods: somebody started it, or deleted its Workload."""
    jobs = (table.current.get(gang.uid) for table in mirror.works.values())
    return any(job is not None and job.hold is Hold.SWITCH and job.active_pods > 0 for job in jobs)


def about_gang(gang: Gang) -> Announce:
    """The event on the job whose gang changed."""
    reason = "Evicted" if gang.state is GangState.EVICTING else str(gang.reason)
    message = f"{gang.state}: {gang.message}"
    return Announce(gang.job, reason, message, "Warning" if gang.reason in WARNINGS else "Normal")


def about_pods(verdicts: Mapping[str, PodVerdict], mirror: Mirror) -> Iterator[Announce]:
    """The events on pods of no gang for which another machine is found, or another reason why none is (Karpenter)."""
    before = mirror.pod_verdicts
    for pod in mirror.pod_index.waiting_pods.values():
        found, known = verdicts.get(pod.uid), before.get(pod.uid)
        ref = _ref_of(pod)
        if found is None or found.reason == Reason.BATCHING or (known is not None and _tells_same(found, known)):
            continue
        if found.nominated:
            where = [f"nodeclaim/{found.claim}"] if found.claim else []
            where += [f"node/{found.node}"] if found.node else []
            yield Announce(ref, "Nominated", f"Pod should schedule on: {', '.join(where)}")
        else:
            yield Announce(ref, "FailedScheduling", f"Failed to schedule pod, {found.message}", "Warning")


def _ref_of(pod: Pod) -> JobRef:
    return JobRef("v1", "Pod", pod.namespace, pod.name, pod.uid)


def _tells_same(found: PodVerdict, known: PodVerdict) -> bool:
    """Whether the machine is the same, joined or not, or there is none for the same reason."""
    if found.nominated or known.nominated:
        return (found.claim or found.node) == (known.claim or known.node)
    return found.same_as(known)


def about_failure(found: SetAside, snapshot: Snapshot) -> Iterator[Announce]:
    """The events on what nothing can be decided about; on the FleetSync where that is no object of the cluster."""
    message = f"{found.words}; it is set aside and tried again, everything else goes on"
    return (Announce(ref, "DecisionFailed", message, "Warning") for ref in _refs_of(found.subject, snapshot))


def _refs_of(subject: str, snapshot: Snapshot) -> tuple[JobRef, ...]:
    """The objects that a subject names; the FleetSync where that is none of the cluster."""
    kind, _, name = subject.partition("/")
    gang = snapshot.gangs.get(name) if kind == "gang" else None
    if gang is not None:
        return _refs_of_gang(gang)
    job, claim, node = snapshot.jobs.get(name), snapshot.claims.get(name), snapshot.nodes.get(name)
    refs = {
        "gang": job.ref if job else None,
        "claim": JobRef(API_VERSION, "NodeClaim", "", name, claim.uid) if claim else None,
        "node": JobRef("v1", "Node", "", name, node.uid) if node else None,
        "pod": next((_ref_of(pod) for pod in snapshot.waiting_pods.values() if pod.uid == name), None),
        "pool": JobRef(API_VERSION, "NodePool", "", name, ""),
        "namespace": JobRef("v1", "Namespace", "", name, ""),
        "queue": JobRef(API_VERSION, "Queue", "", name, ""),
    }
    return (refs.get(kind) or JobRef(API_VERSION, "FleetSync", "", snapshot.cluster, ""),)


def about_budget(news: BudgetNews, fleet: Fleet) -> Iterator[Announce]:
    """The events on the queues of a team that nears the end of its budget, or has come there."""
    kind: Literal["Normal", "Warning"] = "Warning" if news.level > LEVELS[0] else "Normal"
    for name, queue in sorted(fleet.queues.items()):
        if queue.spec.team == news.team:
            yield Announce(JobRef(API_VERSION, "Queue", "", name, ""), news.reason, news.message, kind)


def budget_teller(
    say: Callable[[Announce], object], *hearers: Callable[[BudgetNews], object]
) -> Callable[[BudgetNews, Fleet], None]:
    """Says news of a budget as events, and hands it to the hearers."""

    def tell(news: BudgetNews, fleet: Fleet) -> None:
        for announce in about_budget(news, fleet):
            say(announce)
        for hear in hearers:
            hear(news)

    return tell


def about_claim(claim: Claim) -> Announce:
    """The event on a machine that leaves."""
    disruption = claim.disruption
    reason = disruption.reason if disruption else str(claim.state)
    ref = JobRef(API_VERSION, "NodeClaim", "", claim.name, claim.uid)
    message = disruption.message if disruption else ""
    return Announce(ref, reason, message, "Warning" if reason in WARNINGS else "Normal")


def about_adoption(claim: Claim) -> Announce:
    """The event on the claim of a machine that is adopted."""
    ref = JobRef(API_VERSION, "NodeClaim", "", claim.name, claim.uid)
    message = f"instance {claim.adopts} joins node pool {claim.node_pool} and is given back like any machine of it"
    return Announce(ref, "Adopted", message)


def about_refusal(instance_id: str, refusal: Refusal, node: Node | None, pool: str) -> Announce:
    """The event on the node of a machine that may not be adopted; before it has one, on the pool it is to join."""
    plain = JobRef(API_VERSION, "NodePool", "", pool, "")
    ref = JobRef("v1", "Node", "", node.name, node.uid) if node else plain
    return Announce(ref, refusal.reason, f"instance {instance_id} is not adopted: {refusal.message}", "Warning")


def asked_of(snapshot: Snapshot, instance_id: str) -> str:
    """The pool that an instance is to join, as its tag says or else its claim."""
    instance = snapshot.instances.get(instance_id)
    said = asked_pool(instance, snapshot.cluster) if instance else ""
    return said or next((claim.node_pool for claim in snapshot.claims.values() if claim.adopts == instance_id), "")
