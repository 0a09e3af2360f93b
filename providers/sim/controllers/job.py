"""The batch/v1 Job controller (kube-controller-manager `job/job_controller.go`): NonIndexed and Indexed jobs.

It acts at once on a changed spec, and a second after everything else (a pod, its own status), so that what a Job's
status says lags behind its pods. A pod carries the job-tracking finalizer until its end is counted: its uid stands
among the uncounted ones, the finalizer goes, the counter moves. Pods that the controller takes away itself lose it
first and are never counted.

While a failure holds back new pods the controller calculates with no active pod at all, and the API server refuses a
status with more ready pods than active ones: as long as siblings are ready, nothing of the failure is told until the
wait is over.
"""

from collections.abc import Iterable
from math import inf

from providers.sim.controllers.eventlog import EventLog
from providers.sim.controllers.jobbackoff import BackoffOptions, JobBackoff
from providers.sim.controllers.joblook import FINAL_CONDITION, JobLook, worth_of
from providers.sim.controllers.jobpods import JOB_TRACKING, new_pod
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import (
    Key,
    Obj,
    being_deleted,
    condition_of,
    controller_of,
    instant,
    is_terminal,
    is_true,
    key_of,
    status_of,
)
from providers.sim.controllers.runtime import Reconciler, WorkQueue
from providers.sim.store import StoreForbidden

_OURS = "kubernetes.io/job-controller"


class _StatusRefused(Exception):
    """The API server refused the status; the sync counts as failed and comes again later."""

    def __init__(self, wake: float | None) -> None:
        super().__init__()
        self.wake = wake


class _JobQueue(WorkQueue[Key]):
    """Like its base, but of two wishes for the same key the earlier one stands (client-go's `AddAfter`).

    Most syncs find nothing to do: what caused them was the controller's own write, or a change that no status tells.
    Such a wish is noted and nobody is woken for it; news that come before it are looked at when it would be granted.
    """

    def __init__(self) -> None:
        super().__init__()
        self._idle: dict[Key, float] = {}

    def at(self, key: Key, instant_s: float | None) -> None:
        """Look at the key at that instant, unless it is to be looked at earlier; None changes nothing."""
        if instant_s is not None and instant_s < self._timers.get(key, inf):
            super().at(key, instant_s)

    def touch(self, key: Key, now: float, due: float, *, news: bool) -> None:
        """Something about this key changed at `now`, and would be looked at when `due`."""
        idle = self._idle.get(key, inf)
        due = min(due, idle) if idle > now else due
        if news:
            self._idle.pop(key, None)
            self.at(key, due)
        else:
            self._idle[key] = due

    def forget(self, key: Key) -> None:
        """The key is gone."""
        self._idle.pop(key, None)


class JobController(Reconciler[Key]):
    """Keeps every Job's pods and status; keys are jobs."""

    name = "job"
    retry_s, retry_cap_s = 1.0, 60.0

    def __init__(
        self, cluster: MirroredCluster, backoff: BackoffOptions | None = None, *, batch_s: float = 1.0
    ) -> None:
        super().__init__(cluster)
        self._batch_s = batch_s
        self._queue: _JobQueue = _JobQueue()
        self._backoff = backoff or BackoffOptions()
        self._backoffs: dict[str, JobBackoff] = {}
        self._touched: dict[Key, bool] = {}
        self._written: set[str] = set()
        self._specs: dict[Key, list[Obj]] = {}
        self._strays: dict[Key, None] = {}
        self._events = EventLog(cluster, "job-controller")
        self._jobs = cluster.mirror("Job", "batch")
        self._pods = cluster.mirror("Pod")
        self._pods.index("job", _job_key)
        self._jobs.watch(self._on_job)
        self._pods.watch(self._on_pod)

    # What it hears

    def _on_job(self, old: Obj | None, new: Obj | None) -> None:
        key = key_of(new or old or {})
        if new is None:
            self._specs.pop(key, None)
            self._backoffs.pop((old or {})["metadata"]["uid"], None)
            self._queue.forget(key)
            self._queue.add(key)
        elif old is None or old["metadata"].get("generation") != new["metadata"].get("generation"):
            self._specs.setdefault(key, []).append(new)
            self._queue.add(key)
        else:
            version = new["metadata"]["resourceVersion"]
            self._touch(key, news=version not in self._written)
            self._written.discard(version)

    def _touch(self, key: Key, *, news: bool) -> None:
        self._touched[key] = news or self._touched.get(key, False)

    def _on_pod(self, old: Obj | None, new: Obj | None) -> None:
        keys = _job_key(new or old or {})
        for key in keys:
            self._touch(key, news=_is_news(old, new))
        if not keys and new is not None and JOB_TRACKING in (new["metadata"].get("finalizers") or ()):
            self._strays[key_of(new)] = None

    def step(self, now: float) -> float | None:
        """Sync the jobs that are due."""
        self._cluster.sync()
        self._batch(now)
        super().step(now)
        self._batch(now)
        return self._queue.next_at(now)

    def _batch(self, now: float) -> None:
        if not self._touched and not self._strays:
            return
        for key, news in self._touched.items():
            self._queue.touch(key, now, now + self._batch_s, news=news)
        self._touched.clear()
        strays = [pod for key in self._strays if (pod := self._pods.get(key)) is not None]
        self._strays.clear()
        self._release(strays)

    def _attempt(self, key: Key, now: float) -> float | None:
        try:
            wake = super()._attempt(key, now)
        except _StatusRefused as refused:
            self._queue.at(key, refused.wake)
            self._queue.touch(key, now, now + self._retry_s(key), news=False)
            return None
        if wake is not None and wake <= now:
            self._queue.add(key)  # beside its timer, not instead of it
            return None
        return wake

    # One sync

    def reconcile(self, key: Key, now: float) -> float | None:
        """Bring one job on: count what ended, decide, add or take away pods, say so.

        Of two specs that came one right after the other it acts on the first as well, as the real one may: what it then
        writes conflicts, and it goes on with the second.
        """
        job, pods = self._latest(key), self._pods.by("job", key)
        uid = job["metadata"]["uid"] if job is not None else ""
        own = [pod for pod in pods if _owner_uid(pod) == uid]
        self._release(pod for pod in pods if _owner_uid(pod) != uid)
        if job is None or (job["spec"].get("managedBy") or _OURS) != _OURS:
            return None
        if is_true(job, "Complete") or is_true(job, "Failed"):
            self._backoffs.pop(uid, None)
            self._release(own)
            return self._expire(job, now)
        return self._sync(job, own, now)

    def _latest(self, key: Key) -> Obj | None:
        """The job as it stands; the older of two specs that were not looked at yet."""
        job, specs = self._jobs.get(key), self._specs.pop(key, [])
        if job is None or len(specs) < 2 or specs[0]["metadata"]["uid"] != job["metadata"]["uid"]:
            return job
        self._specs[key] = specs[-1:]
        self._queue.add(key)
        return specs[0]

    def _sync(self, job: Obj, pods: list[Obj], now: float) -> float | None:
        look = JobLook.of(job, pods, now)
        known = self._backoffs.get(job["metadata"]["uid"], JobBackoff())
        backoff = known.after(look.succeeded, look.failed)
        look.decide(now)
        wake = look.deadline if look.deadline > now else inf
        if look.target:
            self._end(look)
        elif not being_deleted(job):
            wake = min(wake, self._manage(look, backoff, now))
        again = None if wake == inf else wake
        if not self._say(look, backoff, now):
            raise _StatusRefused(again)
        if look.refused is not None:
            raise look.refused
        return self._expire(look.job, now) if look.finished else again

    # Pods

    def _end(self, look: JobLook) -> None:
        """Delete what still runs; the finalizers go when it is counted."""
        for pod in look.active:
            self._pods.delete(pod)
        look.took(look.active)

    def _manage(self, look: JobLook, backoff: JobBackoff, now: float) -> float:
        """Create or delete pods until as many are active as should be; the end of the wait that prevents it."""
        work, wake = look.work, inf
        if work.suspended:
            self._take(look, len(look.active))
        else:
            surplus = len(look.active) - work.wanted_active(look.succeeded_count, len(look.active))
            wake = self._create(look, -surplus, backoff, now) if surplus < 0 else inf
            self._take(look, max(0, surplus))
        look.turn(now)
        return wake

    def _take(self, look: JobLook, surplus: int) -> None:
        """Delete so many active pods, without counting them: those of an index twice taken, then the least advanced."""
        chosen = look.superfluous() if surplus else []
        rest = [pod for pod in look.active if pod not in chosen]
        chosen += sorted(rest, key=worth_of)[: max(0, surplus - len(chosen))]
        for pod in chosen:
            self._release([pod])
            self._pods.delete(pod)
        look.took(chosen)

    def _create(self, look: JobLook, missing: int, backoff: JobBackoff, now: float) -> float:
        """Add pods; where a failure holds them back, none at all before the instant that is returned."""
        missing -= look.terminating if look.work.replaces_only_failed else 0
        if missing <= 0:
            return inf
        places = look.places(missing)
        held_until = -inf
        if look.work.per_index is not None:
            ends = {index: look.index_waits_until(index, self._backoff) for index in places if index is not None}
            free = [index for index in places if index is None or ends[index] <= now]
            held_until = min(ends.values(), default=-inf) if not free else -inf
            places = free
        else:
            held_until = self._backoff.over_at(backoff.failures, backoff.last_at)
        if held_until > now:
            look.active_count = 0
            return held_until
        for index in places:
            notes = look.work.counts_for(look.delayed.get(-1 if index is None else index))
            try:
                look.added(self._pods.create(new_pod(look.job, index, notes)))
            except StoreForbidden as refused:
                self._events.warning(look.job, "FailedCreate", f"Error creating: {refused.message}", now)
                look.refused = refused
                break
        return inf

    def _release(self, pods: Iterable[Obj]) -> None:
        """Let go of pods that are counted or no longer ours: without the finalizer their deletion can end."""
        for pod in pods:
            self._cluster.sync()
            held = self._pods.get(key_of(pod))
            if held is None or held["metadata"]["uid"] != pod["metadata"]["uid"]:
                continue
            finalizers = held["metadata"].get("finalizers") or ()
            if JOB_TRACKING in finalizers:
                self._pods.update_metadata(held, finalizers=[f for f in finalizers if f != JOB_TRACKING])

    # Saying so

    def _say(self, look: JobLook, backoff: JobBackoff, now: float) -> bool:
        """Note the uncounted pods, let go of them, count them; whether the API server takes the status.

        One that says nothing new is not written.
        """
        counted = look.note(now)
        job = look.job
        if look.changed():
            if look.status.get("ready", 0) > look.status.get("active", 0):
                return False
            job = self._write(job, look.written())
            self._backoffs[job["metadata"]["uid"]] = backoff
        self._release(counted)
        look.count(counted)
        look.finish(now)
        if look.written() != status_of(job):
            job = self._write(job, look.written())
        look.job = job
        return True

    def _write(self, job: Obj, status: Obj) -> Obj:
        written = self._jobs.update_status(job, status)
        self._written.add(written["metadata"]["resourceVersion"])
        return written

    def _expire(self, job: Obj, now: float) -> float | None:
        """The end of a finished job's time to live; deletes it when it is over."""
        ttl_s = job["spec"].get("ttlSecondsAfterFinished")
        if ttl_s is None or being_deleted(job):
            return None
        final = next(
            c for c in (condition_of(job, kind) for kind in FINAL_CONDITION.values()) if c and c["status"] == "True"
        )
        due = instant(final["lastTransitionTime"]) + float(ttl_s)
        if now < due:
            return due
        self._jobs.delete(job, propagation="Foreground")
        return None


def _is_news(old: Obj | None, new: Obj | None) -> bool:
    """Whether a change of a pod may change what is counted."""
    if old is None:
        return new is not None and _facts(new) != _NEWBORN
    if new is None:
        return not is_terminal(old) or JOB_TRACKING in (old["metadata"].get("finalizers") or ())
    return _facts(old) != _facts(new)


def _facts(pod: Obj) -> tuple[str, bool, bool, int]:
    status = status_of(pod)
    restarts = sum(container.get("restartCount") or 0 for container in status.get("containerStatuses") or ())
    return status.get("phase") or "Pending", is_true(pod, "Ready"), being_deleted(pod), restarts


_NEWBORN = ("Pending", False, False, 0)


def _owner_uid(pod: Obj) -> str:
    owner = controller_of(pod, "Job")
    return "" if owner is None else owner[1]


def _job_key(pod: Obj) -> tuple[Key, ...]:
    owner = controller_of(pod, "Job")
    return () if owner is None else (owner[0],)
