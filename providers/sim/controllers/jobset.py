"""The JobSet controller (jobset.sigs.k8s.io `pkg/controllers/jobset_controller.go`, v1alpha2).

Child Jobs per replicated job, suspension and late template changes passed down, success and failure policies with
restarts of the whole set, start-up order. Left out: exclusive placement, coordinator, headless services, dependsOn.
"""

from collections.abc import Iterable

from providers.sim.controllers.jobsetjobs import Replicated, jobs_wanted, refreshed_template, rjob_of
from providers.sim.controllers.jobsetpolicy import (
    Children,
    counts,
    failure_verdict,
    has_started,
    progress,
    success_verdict,
)
from providers.sim.controllers.mirror import MirroredCluster
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
)
from providers.sim.controllers.runtime import Reconciler

_FINAL = ("Completed", "Failed")


class JobSetController(Reconciler[Key]):
    """Keeps every JobSet's jobs and status; keys are jobsets."""

    name = "jobset"

    def __init__(self, cluster: MirroredCluster) -> None:
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
        children = Children.of(jobs, status_of(jobset).get("restarts") or 0)
        if any(is_true(jobset, kind) for kind in _FINAL):
            self._remove(children.active)
            self._say(jobset, children, {})
            return self._expire(jobset, now)
        verdict = failure_verdict(jobset, children, now) or success_verdict(jobset, children, now)
        if verdict is not None:
            self._say(jobset, children, verdict)
            return None
        self._remove(children.outdated)
        self._say(jobset, children, self._drive(jobset, children, now))
        return None

    # Children

    def _drive(self, jobset: Obj, children: Children, now: float) -> Obj:
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
            waiting = in_order and not has_started(replicated, children)
        return progress(jobset, now, suspended=suspended, in_order=in_order, waiting=waiting)

    def _suspend_or_resume(self, replicated: Replicated, job: Obj, *, suspended: bool) -> None:
        if bool(job["spec"].get("suspend")) == suspended or being_deleted(job):
            return
        if suspended:
            self._jobs.update({**job, "spec": {**job["spec"], "suspend": True}})
            return
        template = refreshed_template(replicated, job)
        self._jobs.update({**job, "spec": {**job["spec"], "suspend": False, "template": template}})

    def _remove(self, jobs: Iterable[Obj]) -> None:
        """Delete jobs so that their names become free only when their pods are gone."""
        for job in jobs:
            if not being_deleted(job):
                self._jobs.delete(job, propagation="Foreground")

    # Status

    def _say(self, jobset: Obj, children: Children, change: Obj) -> None:
        status: Obj = {**status_of(jobset), **change}
        status.setdefault("restarts", 0)
        status["replicatedJobsStatus"] = [counts(replicated, children) for replicated in Replicated.all_of(jobset)]
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
