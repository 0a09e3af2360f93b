"""The batch/v1 Job controller (kube-controller-manager `job/job_controller.go`): NonIndexed and Indexed jobs.

A pod carries the job-tracking finalizer until its end is counted in the status, so every pod is counted exactly once
however it goes away; pods the controller deletes itself lose the finalizer first and are never counted.
Left out: podFailurePolicy, successPolicy, backoffLimitPerIndex.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Any

from providers.sim.controllers.jobpods import (
    JOB_TRACKING,
    JobWork,
    completed_indexes,
    format_indexes,
    index_of,
    new_pod,
)
from providers.sim.controllers.mirror import Cluster
from providers.sim.controllers.objects import (
    Key,
    Obj,
    being_deleted,
    condition_of,
    controller_of,
    instant,
    is_active,
    is_terminal,
    is_true,
    key_of,
    node_of,
    stamp,
    status_of,
    with_condition,
)
from providers.sim.controllers.runtime import Reconciler
from providers.sim.store import StoreNotFound


@dataclass(frozen=True, slots=True)
class _Backoff:
    """Failures since the last success, and the last one's time: new pods wait ever longer."""

    failures: int = 0
    last_at: float = 0.0

    def after(self, succeeded: int, failed: int, now: float) -> "_Backoff":
        """As it stands after so many more pods ended."""
        before = 0 if succeeded else self.failures
        return _Backoff(before + failed, now if failed else self.last_at)

    def over_at(self, base_s: float, cap_s: float) -> float:
        """When the next pod may be created."""
        return self.last_at + min(cap_s, base_s * 2.0 ** min(self.failures - 1, 20)) if self.failures else -inf


@dataclass(frozen=True, slots=True)
class _JobEnding:
    """What has to become of a job: FailureTarget or SuccessCriteriaMet, and why; empty while it runs."""

    target: str = ""
    reason: str = ""
    message: str = ""


_GOING_ON = _JobEnding()
_FINAL = {"FailureTarget": "Failed", "SuccessCriteriaMet": "Complete"}


@dataclass(slots=True)
class _Count:
    """The pods of one job, counted once a look."""

    active: list[Obj]
    terminating: int
    succeeded: list[Obj]
    failed: list[Obj]

    @classmethod
    def of(cls, pods: Iterable[Obj], work: JobWork) -> "_Count":
        count = cls([], 0, [], [])
        for pod in pods:
            if is_active(pod):
                count.active.append(pod)
            elif not is_terminal(pod):
                count.terminating += 1
            if JOB_TRACKING in (pod["metadata"].get("finalizers") or ()):
                count._file(pod, work)
        return count

    def _file(self, pod: Obj, work: JobWork) -> None:
        phase = status_of(pod).get("phase")
        if phase == "Succeeded":
            self.succeeded.append(pod)
        elif phase == "Failed" or (being_deleted(pod) and not work.replaces_only_failed):
            self.failed.append(pod)


class JobController(Reconciler[Key]):
    """Keeps every Job's pods and status; keys are jobs."""

    name = "job"

    def __init__(self, cluster: Cluster, *, backoff_base_s: float = 10.0, backoff_cap_s: float = 600.0) -> None:
        super().__init__(cluster)
        self._backoff_base_s = backoff_base_s
        self._backoff_cap_s = backoff_cap_s
        self._backoffs: dict[str, _Backoff] = {}
        self._jobs = cluster.mirror("Job", "batch")
        self._pods = cluster.mirror("Pod")
        self._pods.index("job", _job_key)
        self._jobs.watch(self._on_job)
        self._pods.watch(self._on_pod)

    def _on_job(self, old: Obj | None, new: Obj | None) -> None:
        self._queue.add(key_of(new or old or {}))
        if new is None and old is not None:
            self._backoffs.pop(old["metadata"]["uid"], None)

    def _on_pod(self, old: Obj | None, new: Obj | None) -> None:
        for key in _job_key(new or old or {}):
            self._queue.add(key)

    def reconcile(self, key: Key, now: float) -> float | None:
        """Bring one job on: count what ended, decide, add or take away pods, say so."""
        job, pods = self._jobs.get(key), self._pods.by("job", key)
        uid = job["metadata"]["uid"] if job is not None else ""
        own = [pod for pod in pods if _owner_uid(pod) == uid]
        self._release(pod for pod in pods if _owner_uid(pod) != uid)
        if (
            job is None
            or (job["spec"].get("managedBy") or "kubernetes.io/job-controller") != "kubernetes.io/job-controller"
        ):
            return None
        if is_true(job, "Complete") or is_true(job, "Failed"):
            self._release(own)
            return self._expire(job, now)
        return self._run(job, own, now)

    def _run(self, job: Obj, pods: list[Obj], now: float) -> float | None:
        work = JobWork.of(job)
        count = _Count.of(pods, work)
        status = _counted(job, work, count, now)
        known = self._backoffs.get(job["metadata"]["uid"], _Backoff())
        backoff = known.after(len(count.succeeded), len(count.failed), now)
        outcome = self._outcome(job, work, status, count, now)
        wake = inf
        if being_deleted(job):
            pass  # neither new pods nor deletions: garbage collection takes them
        elif outcome.target or work.suspended:
            self._take(count, len(count.active))
        else:
            may_at = backoff.over_at(self._backoff_base_s, self._backoff_cap_s)
            wake = self._fit(job, work, status, count, may_at if may_at > now else -inf)
        self._say(job, work, status, count, outcome, now)
        self._backoffs[job["metadata"]["uid"]] = backoff
        self._release([*count.succeeded, *count.failed])
        deadline = _deadline(status, work)
        wake = min(wake, deadline if deadline > now else inf)
        return None if wake == inf else wake

    # Counting and deciding

    def _outcome(self, job: Obj, work: JobWork, status: Obj, count: _Count, now: float) -> _JobEnding:
        for target in _FINAL:
            decided = condition_of(job, target)
            if decided is not None and decided["status"] == "True":
                return _JobEnding(target, decided.get("reason", ""), decided.get("message", ""))
        if status["failed"] > work.backoff_limit or _restarts(count.active, work) > work.backoff_limit:
            return _JobEnding("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        if not work.suspended and _deadline(status, work) <= now:
            return _JobEnding("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline")
        if work.is_complete(status["succeeded"], len(count.active), count.terminating):
            return _JobEnding("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
        return _GOING_ON

    # Pods

    def _fit(self, job: Obj, work: JobWork, status: Obj, count: _Count, may_at: float) -> float:
        """Create or delete pods until as many are active as should be; `may_at` when creation waits for it."""
        wanted = work.wanted_active(status["succeeded"], len(count.active))
        self._take(count, max(0, len(count.active) - wanted))
        missing = wanted - len(count.active) - (count.terminating if work.replaces_only_failed else 0)
        if missing > 0 and may_at > -inf:
            return may_at
        for index in work.free_indexes(status, count.active, max(0, missing)):
            count.active.append(self._pods.create(new_pod(job, index)))
        return inf

    def _take(self, count: _Count, surplus: int) -> None:
        """Delete `surplus` active pods, the least advanced first, without counting them."""
        ranked = sorted(count.active, key=_worth)
        for pod in ranked[:surplus]:
            self._release([pod])
            self._pods.delete(pod)
            count.terminating += bool(node_of(pod))
        count.active = ranked[surplus:]

    def _release(self, pods: Iterable[Obj]) -> None:
        """Let go of pods that are counted or no longer ours: without the finalizer their deletion can end."""
        for pod in pods:
            finalizers = pod["metadata"].get("finalizers") or ()
            if JOB_TRACKING in finalizers:
                try:
                    self._pods.update_metadata(pod, finalizers=[f for f in finalizers if f != JOB_TRACKING])
                except StoreNotFound:
                    continue

    # Saying so

    def _say(self, job: Obj, work: JobWork, status: Obj, count: _Count, outcome: _JobEnding, now: float) -> None:
        ready = sum(is_true(pod, "Ready") for pod in count.active)
        status = {**status, "active": len(count.active), "ready": ready, "terminating": count.terminating}
        conditions: list[Any] = list(status.get("conditions") or ())
        if outcome.target:
            conditions = with_condition(conditions, now, outcome.target, "True", outcome.reason, outcome.message)
            if not count.active and not count.terminating:
                conditions = with_condition(
                    conditions, now, _FINAL[outcome.target], "True", outcome.reason, outcome.message
                )
                if outcome.target == "SuccessCriteriaMet":
                    status["completionTime"] = stamp(now)
        elif work.suspended:
            conditions = with_condition(conditions, now, "Suspended", "True", "JobSuspended", "Job suspended")
            status.pop("startTime", None)
        elif condition_of(job, "Suspended") is not None:
            conditions = with_condition(conditions, now, "Suspended", "False", "JobResumed", "Job resumed")
        if conditions:
            status["conditions"] = conditions
        if status != status_of(job):
            self._jobs.update_status(job, status)

    def _expire(self, job: Obj, now: float) -> float | None:
        """The end of a finished job's time to live; deletes it when it is over."""
        ttl_s = job["spec"].get("ttlSecondsAfterFinished")
        if ttl_s is None or being_deleted(job):
            return None
        final = next(c for c in (condition_of(job, kind) for kind in _FINAL.values()) if c and c["status"] == "True")
        due = instant(final["lastTransitionTime"]) + float(ttl_s)
        if now < due:
            return due
        self._jobs.delete(job, propagation="Foreground")
        return None


def _counted(job: Obj, work: JobWork, count: _Count, now: float) -> Obj:
    """The status with the pods that ended since the last look, and the start time of a job that may run."""
    status = dict(status_of(job))
    if work.indexed:
        done = completed_indexes(status) | {index_of(pod) for pod in count.succeeded}
        done = {index for index in done if 0 <= index < (work.completions or 0)}
        if done:
            status["completedIndexes"] = format_indexes(done)
        status["succeeded"] = len(done)
    else:
        status["succeeded"] = (status.get("succeeded") or 0) + len(count.succeeded)
    status["failed"] = (status.get("failed") or 0) + len(count.failed)
    if not work.suspended and not status.get("startTime"):
        status["startTime"] = stamp(now)
    return status


def _owner_uid(pod: Obj) -> str:
    owner = controller_of(pod, "Job")
    return "" if owner is None else owner[1]


def _job_key(pod: Obj) -> tuple[Key, ...]:
    owner = controller_of(pod, "Job")
    return () if owner is None else (owner[0],)


def _deadline(status: Obj, work: JobWork) -> float:
    """When the job will have been active too long."""
    if work.deadline_s is None or work.suspended or not status.get("startTime"):
        return inf
    return instant(status["startTime"]) + work.deadline_s


def _restarts(pods: Iterable[Obj], work: JobWork) -> int:
    """Restarts in place count against the backoff limit, too (pastBackoffLimitOnFailure)."""
    if not work.restarts_in_place:
        return -1
    return sum(c["restartCount"] for pod in pods for c in status_of(pod).get("containerStatuses") or ())


def _worth(pod: Obj) -> tuple[bool, bool, bool, float, str]:
    """Sorts the pods whose loss costs least to the front (`ActivePods`): unbound, pending, unready, youngest."""
    born = instant(pod["metadata"]["creationTimestamp"])
    return (
        bool(node_of(pod)),
        status_of(pod).get("phase") == "Running",
        is_true(pod, "Ready"),
        -born,
        pod["metadata"]["name"],
    )
