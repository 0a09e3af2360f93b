"""The JobSet controller (jobset.sigs.k8s.io `pkg/controllers/jobset_controller.go`, v1alpha2).

Child Jobs per replicated job, suspension and late template changes passed down, success and failure policies with
restarts of the whole set, start-up order. Left out: exclusive placement, coordinator, headless services, dependsOn.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from providers.sim.controllers.jobpods import job_is_over
from providers.sim.controllers.jobsetjobs import Replicated, attempt_of, jobs_wanted, refreshed_template, rjob_of
from providers.sim.controllers.mirror import Cluster
from providers.sim.controllers.objects import (
    Key,
    Obj,
    being_deleted,
    condition_of,
    controller_of,
    instant,
    is_true,
    key_of,
    status_of,
    with_condition,
)
from providers.sim.controllers.runtime import Reconciler

_FINAL = ("Completed", "Failed")
_RESTARTS = frozenset({"RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"})


@dataclass(frozen=True, slots=True)
class _Children:
    """The jobs of the present attempt by how they stand, and those of attempts before."""

    active: list[Obj]
    succeeded: list[Obj]
    failed: list[Obj]
    outdated: list[Obj]

    @classmethod
    def of(cls, jobs: Iterable[Obj], attempt: int) -> "_Children":
        children = cls([], [], [], [])
        buckets = {None: children.active, "Complete": children.succeeded, "Failed": children.failed}
        for job in jobs:
            (children.outdated if attempt_of(job) < attempt else buckets[job_is_over(job)]).append(job)
        return children

    @property
    def all(self) -> list[Obj]:
        """Every job that still has its name."""
        return [*self.active, *self.succeeded, *self.failed, *self.outdated]


class JobSetController(Reconciler[Key]):
    """Keeps every JobSet's jobs and status; keys are jobsets."""

    name = "jobset"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._jobsets = cluster.mirror("JobSet", "jobset.x-k8s.io")
        self._jobs = cluster.mirror("Job", "batch")
        self._jobs.index("jobset", _jobset_keys)
        self._jobsets.watch(self._on_jobset)
        self._jobs.watch(self._on_job)

    def _on_jobset(self, _old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            self._queue.add(key_of(new))

    def _on_job(self, old: Obj | None, new: Obj | None) -> None:
        for key in _jobset_keys(new or old or {}):
            self._queue.add(key)

    def reconcile(self, key: Key, now: float) -> float | None:
        """Bring one set on; every change is left to be seen before the next decision is taken."""
        jobset = self._jobsets.get(key)
        if (
            jobset is None
            or being_deleted(jobset)
            or jobset["spec"].get("managedBy") not in (None, "jobset.sigs.k8s.io/jobset-controller")
        ):
            return None
        uid = jobset["metadata"]["uid"]
        jobs = [job for job in self._jobs.by("jobset", key) if (controller_of(job, "JobSet") or ("", ""))[1] == uid]
        children = _Children.of(jobs, status_of(jobset).get("restarts") or 0)
        if any(is_true(jobset, kind) for kind in _FINAL):
            self._remove(children.active)
            self._say(jobset, children, {})
            return self._expire(jobset, now)
        verdict = _failure(jobset, children, now) or _success(jobset, children, now)
        if verdict is not None:
            self._say(jobset, children, verdict)
            return None
        self._remove(children.outdated)
        self._say(jobset, children, self._drive(jobset, children, now))
        return None

    # Children

    def _drive(self, jobset: Obj, children: _Children, now: float) -> Obj:
        """Create what is missing, suspend or resume what is there; returns what that does to the status."""
        suspended = bool(jobset["spec"].get("suspend"))
        in_order = (jobset["spec"].get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
        taken = {key_of(job) for job in children.all}
        waiting = False
        for replicated in Replicated.all_of(jobset):
            if waiting and not suspended:
                break
            for job in jobs_wanted(jobset, replicated, suspended=suspended):
                if key_of(job) not in taken:
                    self._jobs.create(job)
            mine = [job for job in children.active if rjob_of(job) == replicated.name]
            for job in mine:
                self._suspend_or_resume(replicated, job, suspended=suspended)
            waiting = in_order and not _started(replicated, children)
        return _progress(jobset, now, suspended=suspended, in_order=in_order, waiting=waiting)

    def _suspend_or_resume(self, replicated: Replicated, job: Obj, *, suspended: bool) -> None:
        if bool(job["spec"].get("suspend")) == suspended or being_deleted(job):
            return
        if suspended:
            self._jobs.update({**job, "spec": {**job["spec"], "suspend": True}})
            return
        if status_of(job).get(
            "startTime"
        ):  # its controller has not seen the suspension end; the template is frozen until then
            job = self._jobs.update_status(job, {k: v for k, v in status_of(job).items() if k != "startTime"})
        template = refreshed_template(replicated, job)
        self._jobs.update({**job, "spec": {**job["spec"], "suspend": False, "template": template}})

    def _remove(self, jobs: Iterable[Obj]) -> None:
        """Delete jobs so that their names become free only when their pods are gone."""
        for job in jobs:
            if not being_deleted(job):
                self._jobs.delete(job, propagation="Foreground")

    # Status

    def _say(self, jobset: Obj, children: _Children, change: Obj) -> None:
        status: Obj = {**status_of(jobset), **change}
        status.setdefault("restarts", 0)
        status["replicatedJobsStatus"] = [_counts(replicated, children) for replicated in Replicated.all_of(jobset)]
        if status != status_of(jobset):
            self._jobsets.update_status(jobset, status)

    def _expire(self, jobset: Obj, now: float) -> float | None:
        ttl_s = jobset["spec"].get("ttlSecondsAfterFinished")
        if ttl_s is None:
            return None
        final = next(c for c in (condition_of(jobset, kind) for kind in _FINAL) if c and c["status"] == "True")
        due = instant(final["lastTransitionTime"]) + float(ttl_s)
        if now < due:
            return due
        self._jobsets.delete(jobset, propagation="Foreground")
        return None


def _jobset_keys(job: Obj) -> tuple[Key, ...]:
    owner = controller_of(job, "JobSet")
    return () if owner is None else (owner[0],)


def _conditions(jobset: Obj) -> list[Any]:
    return list(status_of(jobset).get("conditions") or ())


def _ended(jobset: Obj, kind: str, reason: str, message: str, now: float) -> Obj:
    return {
        "conditions": with_condition(_conditions(jobset), now, kind, "True", reason, message),
        "terminalState": kind,
    }


# Policies: a decided change of the status, or None


def _failure(jobset: Obj, children: _Children, now: float) -> Obj | None:
    """What a failed job does to the set: fail it, or start the next attempt (failure_policy.go)."""
    if not children.failed:
        return None
    first = min(
        children.failed, key=lambda job: ((condition_of(job, "Failed") or {})["lastTransitionTime"], key_of(job))
    )
    policy = jobset["spec"].get("failurePolicy")
    if policy is None:
        return _ended(
            jobset,
            "Failed",
            "FailedJobs",
            f"jobset failed due to one or more job failures (first failed job: {first['metadata']['name']})",
            now,
        )
    status = status_of(jobset)
    action = _action(policy, first)
    counted = status.get("restartsCountTowardsMax") or 0
    if action == "FailJobSet":
        return _ended(
            jobset,
            "Failed",
            "FailJobSetFailurePolicyAction",
            f"failed job {first['metadata']['name']} matched FailJobSet",
            now,
        )
    if action == "RestartJobSet" and counted >= (policy.get("maxRestarts") or 0):
        return _ended(
            jobset,
            "Failed",
            "ReachedMaxRestarts",
            f"jobset failed due to reaching max number of restarts (first failed job: {first['metadata']['name']})",
            now,
        )
    return {
        "restarts": (status.get("restarts") or 0) + 1,
        "restartsCountTowardsMax": counted + (action == "RestartJobSet"),
    }


def _action(policy: Obj, failed: Obj) -> str:
    """The action of the first rule that matches the failed job."""
    reason = (condition_of(failed, "Failed") or {}).get("reason", "")
    for rule in policy.get("rules") or ():
        reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
        if (not reasons or reason in reasons) and (not targets or rjob_of(failed) in targets):
            action = str(rule["action"])
            return action if action in _RESTARTS else "FailJobSet"
    return "RestartJobSet"


def _success(jobset: Obj, children: _Children, now: float) -> Obj | None:
    """Whether enough jobs succeeded (success_policy.go)."""
    policy = jobset["spec"].get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs")
    counted = [job for job in children.succeeded if not targets or rjob_of(job) in targets]
    expected = sum(r.replicas for r in Replicated.all_of(jobset) if not targets or r.name in targets)
    enough = bool(counted) if policy.get("operator") == "Any" else len(counted) >= expected
    return _ended(jobset, "Completed", "AllJobsCompleted", "jobset completed successfully", now) if enough else None


def _progress(jobset: Obj, now: float, *, suspended: bool, in_order: bool, waiting: bool) -> Obj:
    """The conditions of a set that is neither complete nor failed."""
    conditions = _conditions(jobset)
    if suspended:
        conditions = with_condition(conditions, now, "Suspended", "True", "SuspendedJobs", "jobset is suspended")
    elif condition_of(jobset, "Suspended") is not None:
        conditions = with_condition(conditions, now, "Suspended", "False", "ResumeJobs", "jobset is resumed")
    if in_order and not suspended:
        done = not waiting
        message = ("all replicated jobs have started", "in order startup policy is executing")[waiting]
        conditions = with_condition(
            conditions, now, "StartupPolicyInProgress", str(waiting), "InOrderStartupPolicyInProgress", message
        )
        conditions = with_condition(
            conditions, now, "StartupPolicyCompleted", str(done), "InOrderStartupPolicyCompleted", message
        )
    return {"conditions": conditions} if conditions else {}


# Counting


def _is_ready(job: Obj) -> bool:
    """Whether as many pods are ready or done as the job runs at a time."""
    spec, status = job["spec"], status_of(job)
    parallelism = spec.get("parallelism", 1)
    wanted = min(parallelism, spec["completions"]) if spec.get("completions") is not None else parallelism
    return bool((status.get("succeeded") or 0) + (status.get("ready") or 0) >= wanted) and not spec.get("suspend")


def _started(replicated: Replicated, children: _Children) -> bool:
    """Whether every job of it is ready, or over."""
    ready = [
        job for job in [*children.active, *children.succeeded, *children.failed] if rjob_of(job) == replicated.name
    ]
    return sum(1 for job in ready if job_is_over(job) or _is_ready(job)) >= replicated.replicas


def _counts(replicated: Replicated, children: _Children) -> Obj:
    active = [job for job in children.active if rjob_of(job) == replicated.name]
    return {
        "name": replicated.name,
        "ready": sum(map(_is_ready, active)),
        "succeeded": sum(rjob_of(job) == replicated.name for job in children.succeeded),
        "failed": sum(rjob_of(job) == replicated.name for job in children.failed),
        "active": sum((status_of(job).get("active") or 0) > 0 for job in active),
        "suspended": sum(bool(job["spec"].get("suspend")) for job in active),
    }
