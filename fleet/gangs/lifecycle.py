"""The life of a gang between decisions: opened, started once, its pods released onto their nodes, evicted, finished.

Level-triggered: every step follows from what is observed, so that a crash between any two loses nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

from fleet.actions import Action, CloseGang, OpenGang, SaveGang, StartJob, gang_subject
from fleet.fence import Decided, each
from fleet.gangs.admission_checks import open_checks, retry_pause_s, verdict
from fleet.gangs.elastic import departures, scaled_down
from fleet.gangs.holding import flavor_tolerations, releases, stop, trimmed
from fleet.gangs.idle_gpus import idle_gpus, idle_too_long
from fleet.gangs.lost_machines import at_risk, awaits_recut, lost_claim, lost_node
from fleet.gangs.pods_ready import not_ready_in_time, pods_ready_of, ready_pods, requeue_pause_s
from fleet.gangs.replacement import arrived, moved_out, must_go, under_way
from fleet.gangs.taken_places import kept, lacks_pods, reclaimed
from fleet.gangs.transitions import FOR_GOOD, called_off, evicted, released, retired, spent
from fleet.placement.device_allocator import tainted_devices
from fleet.placement.inventory import usable
from fleet.quota.queue_binding import binding_of, priority_of
from fleet.reasons import Reason
from fleet.snapshot import Gang, GangState, Hold, Job, JobResult, Pin, PodSet, Snapshot
from fleet.snapshot.gangs import workload_name
from fleet.snapshot.seats import given_back, pods_of, strays_of
from fleet.snapshot.shared_claims import whole_sets
from fleet.snapshot.works import outgrown
from model.fleet import Fleet
from model.plain_text import counted, number_of, plain

T = TypeVar("T")
LOST_MACHINE_PAUSE_S = 60.0
"""Before a gang is considered again whose machine was bought and never joined."""


class _GangStep(NamedTuple):
    fleet: Fleet
    snapshot: Snapshot
    gang: Gang
    job: Job
    may_have_lost: Callable[[Gang], bool]
    """Whether a gang may have lost a machine."""


def decide(fleet: Fleet, snapshot: Snapshot, *, among: Collection[str] | None = None) -> list[Decided]:
    """Returns the next step of every gang, and of every job that has none yet; those with an action under way wait.

    `among`: the uids of the jobs to be looked at, for who knows where something has changed; None = all.
    """
    uids = sorted(snapshot.jobs.keys() | snapshot.gangs.keys() if among is None else among)
    jobs = ((uid, snapshot.jobs[uid]) for uid in uids if uid in snapshot.jobs and uid not in snapshot.gangs)
    gangs = ((uid, snapshot.gangs[uid]) for uid in uids if uid in snapshot.gangs)
    grouped = ((gang_subject(uid), uid) for uid in sorted(snapshot.job_pods))
    risky: Collection[str] = () if among is not None else at_risk(snapshot)

    def may_have_lost(gang: Gang) -> bool:
        return gang.uid in (risky if among is None else at_risk(snapshot, (gang,)))

    return [
        *each(snapshot, _free(snapshot, jobs), lambda job: _open(fleet, snapshot, job)),
        *each(snapshot, _free(snapshot, gangs), lambda gang: _step(fleet, snapshot, gang, may_have_lost)),
        *each(snapshot, grouped, lambda uid: trimmed(snapshot, uid)),
    ]


def _free(snapshot: Snapshot, subjects: Iterable[tuple[str, T]]) -> Iterator[tuple[str, T]]:
    named = ((gang_subject(uid), value) for uid, value in subjects)
    return ((subject, value) for subject, value in named if subject not in snapshot.busy)


def _open(fleet: Fleet, snapshot: Snapshot, job: Job) -> list[Action]:
    if not job.managed or job.result or job.deleting:
        return []
    return [OpenGang(new_gang(fleet, snapshot, job))]


def new_gang(fleet: Fleet, snapshot: Snapshot, job: Job) -> Gang:
    """Returns the gang of a job that asks to be managed. Its place in the queue goes by the job's age."""
    priority = priority_of(fleet, snapshot, job)
    return Gang(
        uid=job.ref.uid,
        namespace=job.ref.namespace,
        workload=workload_name(job.ref),
        job=job.ref,
        queue=job.queue,
        priority_class=job.priority_class,
        priority=priority.value,
        pod_sets=job.pod_sets,
        created_at_s=job.created_at_s,
        reason=Reason.QUEUED,
        message="not considered yet",
        since_s=snapshot.now_s,
        preempts=priority.preempts,
    )


def _step(fleet: Fleet, snapshot: Snapshot, gang: Gang, may_have_lost: Callable[[Gang], bool]) -> list[Action]:
    job = snapshot.jobs.get(gang.uid)
    if job is None or job.deleting:
        return [] if _has_active_pods(snapshot, gang) else [CloseGang(gang)]
    if gang.state is GangState.FINISHED:
        return []
    if job.result:
        finished = _finished(gang, job.result, snapshot.now_s)
        return [] if _has_active_pods(snapshot, gang) else [SaveGang(finished)]
    return list(_STEPS[gang.state](_GangStep(fleet, snapshot, gang, job, may_have_lost)))


def _finished(gang: Gang, result: JobResult, now_s: float) -> Gang:
    ended = {"pins": (), "recuts": {}, "ran_before_s": gang.ran_s(now_s)}
    reason = Reason.SUCCEEDED if result is JobResult.SUCCEEDED else Reason.FAILED
    return gang.moved(GangState.FINISHED, reason, f"the job has {result.lower()}", now_s, idle=None, **ended)


def _has_active_pods(snapshot: Snapshot, gang: Gang) -> bool:
    return any(pod.active for pod in pods_of(snapshot, gang))


def _pending(case: _GangStep) -> Iterator[Action]:
    gang, job = case.gang, case.job
    if _asks_otherwise(case):
        yield _asked_anew(case)
    elif not job.suspended:
        yield from stop(case.snapshot, gang, job)
    elif limit := spent(gang, case.snapshot.now_s):
        yield retired(gang, job, *limit, case.snapshot.now_s)


def _asks_otherwise(case: _GangStep) -> bool:
    """Returns whether the job, not started yet, no longer asks what the gang says (`_asked_anew`)."""
    gang, job = case.gang, case.job
    return (job.queue, job.priority_class) != (gang.queue, gang.priority_class) or not _admitted_of(gang, job)


def _asked_anew(case: _GangStep) -> SaveGang | CloseGang:
    """Returns the gang of a changed job: at its old place in the queue, holding nothing, asking what the job asks now.

    It is the same job: how often it was evicted and how long it has run stay, and so do its limits and back-offs that
    go by these. What a pause or time-outs were due to may be what was changed. One that is no longer managed is closed.
    """
    gang, job, now = case.gang, case.job, case.snapshot.now_s
    if not job.managed:
        return CloseGang(gang)
    priority = priority_of(case.fleet, case.snapshot, job)
    message = "its job asks for something else than before; not considered yet"
    waiting = released(gang, job, Reason.QUEUED, message, now, requeue_at_s=0.0, timeouts=0)
    ranked = replace(waiting, priority_class=job.priority_class, priority=priority.value, preempts=priority.preempts)
    return SaveGang(replace(ranked, queue=job.queue), respecifies=True)


def _admitted_of(gang: Gang, job: Job) -> bool:
    """Returns whether the gang is what its job asks for, or the part of it that was admitted."""
    asked = job.pod_sets
    if asked == gang.pod_sets or not gang.holds_capacity or len(asked) != len(gang.pod_sets):
        return asked == gang.pod_sets
    pairs = zip(asked, gang.pod_sets, strict=True)
    if job.choice is not None:
        return all(held.count <= wanted.count and _alike(wanted, held) for wanted, held in pairs)
    return all(_part_of(wanted, held, job.remaining.get(wanted.name)) for wanted, held in pairs)


def _alike(wanted: PodSet, held: PodSet) -> bool:
    """Returns whether two sets differ in their numbers alone."""
    return replace(wanted, count=held.count, core=held.core) == held


def _part_of(wanted: PodSet, held: PodSet, left: int | None) -> bool:
    said = [least for least in (wanted.min_count, wanted.core, left) if least is not None]
    least = min(said, default=wanted.count)
    return least <= held.count <= wanted.count and replace(wanted, count=held.count) == held


def _reserved(case: _GangStep) -> Iterator[Action]:
    if not case.job.suspended:
        yield from stop(case.snapshot, case.gang, case.job)
    elif _asks_otherwise(case):
        yield _asked_anew(case)
    elif (given_back := _given_back(case)) is not None:
        yield given_back
    elif all(_machine_ready(case.snapshot, case.gang, pin) for pin in case.gang.pins):
        yield from _start(case)


def _given_back(case: _GangStep) -> SaveGang | None:
    """Returns the gang holding nothing any more, where something speaks against its start; None where nothing does."""
    snapshot, gang, now = case.snapshot, case.gang, case.snapshot.now_s
    if limit := spent(gang, now):
        return retired(gang, case.job, *limit, now)
    if told := verdict(case.fleet, gang):
        return _turned_away(case, *told)
    if off := called_off(gang):
        return SaveGang(released(gang, case.job, *off, now))
    if closed := _queue_closed(case):
        return SaveGang(released(gang, case.job, *closed, now))
    if lost := _lost_place(case.fleet, snapshot, gang):
        pause_s = LOST_MACHINE_PAUSE_S if _never_came(snapshot, gang) else 0.0
        return SaveGang(released(gang, case.job, *lost, now, requeue_at_s=now + pause_s))
    return None


def _start(case: _GangStep) -> Iterator[Action]:
    """Admits the gang, pinned to the nodes of its machines; or notes which admission checks it still waits for."""
    gang, now = case.gang, case.snapshot.now_s
    if checks := plain(open_checks(case.fleet, gang)):
        if (gang.reason, gang.message) != (Reason.WAITING_FOR_CHECKS, checks):
            yield SaveGang(gang.moved(gang.state, Reason.WAITING_FOR_CHECKS, checks, now))
        return
    claims = case.snapshot.claims
    pins = tuple(sorted(replace(pin, node=claims[pin.claim].node) if pin.claim else pin for pin in gang.pins))
    machines = len({pin.node for pin in pins})
    message = f"has quota and {counted(machines, 'ready machine')}"
    yield SaveGang(
        gang.moved(GangState.ADMITTED, Reason.ADMITTED, message, now, pins=pins, recuts={}, admitted_at_s=now)
    )


def _turned_away(case: _GangStep, reason: Reason, message: str) -> SaveGang:
    """Returns the gang that an admission check is against: deactivated, or waiting until it may be checked again."""
    gang, now = case.gang, case.snapshot.now_s
    if reason in FOR_GOOD:
        return retired(gang, case.job, reason, message, now)
    return SaveGang(released(gang, case.job, reason, message, now, requeue_at_s=now + retry_pause_s(case.fleet, gang)))


def _lost_place(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> tuple[Reason, str] | None:
    """Returns which machine of a gang that has not started is lost, and how; None while all may come."""
    for name in sorted({pin.claim for pin in gang.pins if pin.claim}):
        if (lost := lost_claim(fleet, snapshot, gang, name)) is not None:
            return lost
    for name in sorted({pin.node for pin in gang.pins if not pin.claim}):
        if name not in snapshot.nodes:
            return Reason.MACHINE_LOST, f"node {name} is gone before it was used"
        if (lost := lost_node(fleet, gang, snapshot.nodes[name])) is not None:
            return lost
    return _lost_devices(snapshot, gang)


def _lost_devices(snapshot: Snapshot, gang: Gang) -> tuple[Reason, str] | None:
    claims = (snapshot.claims[pin.claim].node if pin.claim else pin.node for pin in gang.pins)
    for name in sorted(set(claims) & snapshot.devices.machines.keys() & snapshot.nodes.keys()):
        if tainted := tainted_devices(snapshot, gang, snapshot.nodes[name]):
            return Reason.MACHINE_LOST, f"node {name} {tainted}; it was not used yet"
    return None


def _never_came(snapshot: Snapshot, gang: Gang) -> bool:
    """Returns whether a machine bought for the gang did not become a node: the next one probably would not either."""
    claims = (snapshot.claims.get(pin.claim) for pin in gang.pins if pin.claim)
    return any(claim and claim.disruption and claim.disruption.reason in _NEVER_CAME for claim in claims)


_NEVER_CAME = frozenset(
    {Reason.LAUNCH_TIMEOUT, Reason.REGISTRATION_TIMEOUT, Reason.INITIALIZATION_TIMEOUT, Reason.LAYOUT_FAILED}
)


def _machine_ready(snapshot: Snapshot, gang: Gang, pin: Pin) -> bool:
    claim = snapshot.claims.get(pin.claim)
    node = snapshot.nodes.get(claim.node if claim else pin.node)
    if node is None or not usable(node, claim):
        return False
    return claim is None or not awaits_recut(gang, claim)


def _admitted(case: _GangStep) -> Iterator[Action]:
    snapshot, gang, job = case.snapshot, case.gang, case.job
    leave = _must_leave(case)
    if leave is not None:
        yield SaveGang(evicted(gang, case.job, *leave, snapshot.now_s))
    elif job.suspended and _asks_otherwise(case):
        if not _has_active_pods(snapshot, gang):
            yield _asked_anew(case)
    elif job.suspended and job.hold is Hold.SWITCH:
        tolerations = flavor_tolerations(case.fleet, gang)
        yield StartJob(job.ref, job.resource_version, gang.uid, gang.workload, tolerations, whole_sets(gang.pod_sets))
    elif (settled := _settled(case)) is not None:
        yield SaveGang(settled)
    else:
        leaving = list(departures(snapshot, gang))
        yield from releases(case.fleet, snapshot, gang)
        yield from moved_out(snapshot, gang)
        yield from kept(snapshot, gang)
        yield from reclaimed(snapshot, gang)
        yield from leaving or _readiness(case)


def _settled(case: _GangStep) -> Gang | None:
    """Returns the gang with what has become of its seats by itself, and with GPUs it holds idle; None = as it is."""
    snapshot, gang = case.snapshot, case.gang
    settled = arrived(snapshot, gang) or given_back(snapshot, gang) or scaled_down(snapshot, gang, case.job)
    if settled is not None or (idle := idle_gpus(case.fleet, snapshot, gang)) == gang.idle:
        return settled
    return replace(gang, idle=idle)


def _readiness(case: _GangStep) -> Iterator[Action]:
    """Notes when all pods have become ready, and when they no longer are."""
    gang, now = case.gang, case.snapshot.now_s
    ready, wanted = ready_pods(case.snapshot, gang)
    whole = ready >= wanted and not under_way(case.snapshot, gang)
    since_s = gang.replacing_since_s if strays_of(case.snapshot, gang) else 0.0
    if whole and not gang.pods_ready:
        message = number_of(wanted, "its pod is ready", f"all {wanted} pods are ready")
        facts = {"pods_ready": True, "not_ready_since_s": 0.0, "replacing_since_s": since_s}
        yield SaveGang(gang.moved(gang.state, Reason.RUNNING, message, now, **facts))
    elif ready < wanted and gang.pods_ready:
        message = f"{ready} of {counted(wanted, 'pod')} {number_of(wanted, 'is', 'are')} ready"
        yield SaveGang(gang.moved(gang.state, Reason.NOT_READY, message, now, pods_ready=False, not_ready_since_s=now))
    elif whole and gang.replacing_since_s and not since_s:
        yield SaveGang(replace(gang, replacing_since_s=0.0))


def _must_leave(case: _GangStep) -> tuple[Reason, str] | None:
    """Returns why a running gang cannot stay where it is; None while it may.

    It was deactivated or has run its time, its queue is drained or does not bear idle GPUs, an admission check is
    against it, its template asks for something else, its pods were not ready in time, or a machine leaves or failed and
    may not be replaced.
    """
    if limit := spent(case.gang, case.snapshot.now_s) or called_off(case.gang):
        return limit
    if stopped := _queue_stopped(case, "HoldAndDrain"):
        return Reason.QUEUE_DRAINED, stopped
    idle = idle_too_long(case.fleet, case.snapshot, case.gang)
    if told := idle or verdict(case.fleet, case.gang) or _outdated(case):
        return told
    late = not_ready_in_time(case.fleet, case.snapshot, case.gang, case.job)
    if late or not (case.may_have_lost(case.gang) or lacks_pods(case.snapshot, case.gang, case.job)):
        return late  # its places are there, and nobody else has come into them
    return must_go(case.fleet, case.snapshot, case.gang, case.job)


def _outdated(case: _GangStep) -> tuple[Reason, str] | None:
    """Returns that the template of a StatefulSet asks for something else than its gang holds, and a pod of it is there.

    Quota and place were given for the template that the gang was admitted with.
    """
    revision = outgrown(case.gang, case.job, case.snapshot.job_pods.get(case.gang.uid, ()))
    if not revision:
        return None
    return Reason.TEMPLATE_CHANGED, f"its template asks for something else since revision {revision}"


def _queue_closed(case: _GangStep) -> tuple[Reason, str] | None:
    """Returns why the queue lets nothing start: it is stopped, or not declared any more; None where it does."""
    if binding_of(case.fleet, case.gang.namespace, case.gang.queue) is None:
        return Reason.QUEUE_NOT_FOUND, f"queue {case.gang.queue!r} is not declared"
    stopped = _queue_stopped(case)
    return (Reason.QUEUE_STOPPED, stopped) if stopped else None


def _queue_stopped(case: _GangStep, *policies: str) -> str:
    line = binding_of(case.fleet, case.gang.namespace, case.gang.queue)
    stopping = policies or ("Hold", "HoldAndDrain")
    if line is None or line.stop_policy not in stopping:
        return ""
    return f"queue {line.name!r} is stopped ({line.stop_policy})"


def _evicting(case: _GangStep) -> Iterator[Action]:
    gang = case.gang
    if not case.job.suspended:
        yield from stop(case.snapshot, gang, case.job)
    elif _has_active_pods(case.snapshot, gang):
        return
    elif _asks_otherwise(case):
        yield _asked_anew(case)
    elif gang.eviction and gang.eviction.reason in FOR_GOOD:
        yield retired(gang, case.job, Reason(gang.eviction.reason), gang.eviction.message, case.snapshot.now_s)
    elif off := called_off(gang):
        yield SaveGang(released(gang, case.job, *off, case.snapshot.now_s))
    else:
        why = gang.eviction.message if gang.eviction else gang.message
        message = f"requeued; was evicted because it {why}" if why.startswith("makes") else f"requeued; {why}"
        requeue_at_s = case.snapshot.now_s + _pause_s(case.fleet, gang)
        again = released(gang, case.job, Reason.QUEUED, message, case.snapshot.now_s, requeue_at_s=requeue_at_s)
        yield SaveGang(again)


def _pause_s(fleet: Fleet, gang: Gang) -> float:
    """Returns how long (s) an evicted gang waits before it is considered again."""
    reason = gang.eviction.reason if gang.eviction else ""
    if reason == Reason.PODS_READY_TIMEOUT:
        return requeue_pause_s(pods_ready_of(fleet, gang), gang.timeouts)
    if reason == Reason.CHECK_RETRY:
        return retry_pause_s(fleet, gang)
    return 0.0


_STEPS: dict[GangState, Callable[[_GangStep], Iterator[Action]]] = {
    GangState.PENDING: _pending,
    GangState.RESERVED: _reserved,
    GangState.ADMITTED: _admitted,
    GangState.EVICTING: _evicting,
}
