"""`batch/v1` Job and `jobset.x-k8s.io/v1alpha2` JobSet."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fleet.actions import StartJob
from fleet.snapshot import PodSet
from fleet.snapshot.constraints import UnsupportedConstraint
from providers.kube.objects.jobs.asked import COMPLETIONS, PARALLELISM, asked, restored
from providers.kube.objects.jobs.kind import (
    Counts,
    JobChange,
    JobKind,
    JobOutcome,
    Preparation,
    ended,
    number,
    refused_annotations,
)
from providers.kube.objects.jobs.restarts import of_batch_job, of_job_set
from providers.kube.objects.jobs.templates import Role
from providers.kube.objects.json_patch import pointer
from providers.kube.objects.names import EQUAL_COMPLETIONS, MAIN_POD_SET, MIN_PARALLELISM
from providers.kube.objects.paths import JOB_SETS, JOBS
from providers.kube.objects.shapes import JsonObject, dig, first_of
from providers.kube.objects.topology import whole

JOB_SET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_NAME: Final = "jobset.sigs.k8s.io/replicatedjob-name"
EXCLUSIVE: Final = ("alpha.jobset.sigs.k8s.io/exclusive-topology",)
"""Annotations for which JobSet writes pod affinity into each job's template."""


class BatchJob(JobKind):
    """A `batch/v1` Job has one pod set, `main`. It can run with fewer pods at once (`job-min-parallelism`)."""

    path, kind = JOBS, "Job"
    optional = False
    late = frozenset({"batch.kubernetes.io/job-completion-index"})

    def roles(self, raw: JsonObject) -> Sequence[Role]:
        """Returns the one template of a Job."""
        count = _at_once(raw["spec"], asked(raw))
        least = whole(first_of(raw["metadata"].get("annotations"), *MIN_PARALLELISM))
        fewest = least if least is not None and least < count else None
        return [Role(MAIN_POD_SET, count, pointer("spec", "template"), raw["spec"]["template"], fewest)]

    def outcome(self, raw: JsonObject) -> JobOutcome | None:
        """Reads the conditions Complete and Failed."""
        return ended(raw, "Complete")

    def counts(self, raw: JsonObject) -> Counts:
        """Reads the counts of the job controller."""
        status = raw.get("status") or {}
        return Counts(status.get("ready") or 0, status.get("active") or 0)

    def remaining(self, raw: JsonObject) -> Mapping[str, int]:
        """What is left of its completions; without completions no pod is replaced once one has succeeded.

        A pod counts from when its controller has noted its end: it lets the pod go before it adds it to its count.

        Source: Kueue `pkg/controller/jobs/job/job_controller.go` (ReclaimablePods).
        """
        succeeded = (dig(raw, "status", "succeeded") or 0) + len(
            dig(raw, "status", "uncountedTerminatedPods", "succeeded") or ()
        )
        at_once = number(raw["spec"].get("parallelism"), 1)
        left = max(0, number(raw["spec"].get("completions"), at_once) - succeeded)
        return {MAIN_POD_SET: left} if succeeded and left < _at_once(raw["spec"], asked(raw)) else {}

    def restarts(self, raw: JsonObject) -> Mapping[str, int]:
        """Returns how many lost pods its `backoffLimit` still allows."""
        left = of_batch_job(raw["spec"], dig(raw, "status", "failed") or 0)
        return {MAIN_POD_SET: left} if left else {}

    def resume(self, raw: JsonObject, pod_sets: Sequence[PodSet]) -> JobChange:
        """Unsuspends a Job, with a lower `parallelism` where fewer pods were admitted."""
        change = super().resume(raw, pod_sets)
        admitted = next((one.count for one in pod_sets if one.name == MAIN_POD_SET), None)
        most = self.remaining(raw).get(MAIN_POD_SET, _at_once(raw["spec"], asked(raw)))
        if admitted is None or admitted >= most:
            return JobChange([*restored(raw), *change.operations])
        wanted = {PARALLELISM: number(raw["spec"].get("parallelism"), 1)}
        if _completes_with_as_many(raw):
            wanted[COMPLETIONS] = raw["spec"]["completions"]
        lowered = [{"op": "add", "path": where, "value": admitted} for where in sorted(wanted)]
        return JobChange([*lowered, *change.operations], wanted | dict(asked(raw)))

    def prepare(self, action: StartJob, raw: JsonObject) -> Preparation | None:
        """Clears `startTime` where its controller has not done so yet: while it stands, the template is immutable."""
        if self.malleable(raw) or not self.marked(action, raw).operations:
            return None
        return Preparation([{"op": "remove", "path": "/status/startTime"}], "status")

    def malleable(self, raw: JsonObject) -> bool:
        """Returns True only while a Job is suspended and has not run since `prepare`, or never."""
        return self.suspended(raw) and not dig(raw, "status", "startTime")


class JobSet(JobKind):
    """A JobSet has a pod set for each replicated job; the Jobs it makes are no gangs of their own."""

    path, kind = JOB_SETS, "JobSet"
    late = frozenset({"batch.kubernetes.io", "controller-uid", "job-name", "jobset.sigs.k8s.io"})
    owns = frozenset({("batch", "Job")})

    def roles(self, raw: JsonObject) -> Sequence[Role]:
        """Returns the templates of the replicated jobs."""
        return [
            Role(
                job["name"],
                _pods(job),
                pointer("spec", "replicatedJobs", index, "template", "spec", "template"),
                job["template"]["spec"]["template"],
            )
            for index, job in enumerate(raw["spec"].get("replicatedJobs") or ())
        ]

    def stamped(self, raw: JsonObject, role: Role) -> Mapping[str, str]:
        """Returns the labels that name set and replicated job (`jobset_controller.go`, labelAndAnnotateObject)."""
        return {JOB_SET_NAME: raw["metadata"]["name"], REPLICATED_JOB_NAME: role.name}

    def refused(self, raw: JsonObject) -> Iterable[UnsupportedConstraint]:
        """Returns exclusive placement, of the set or of one of its replicated jobs, and volumes that it makes."""
        yield from refused_annotations(raw, "metadata", *EXCLUSIVE)
        for n, job in enumerate(raw["spec"].get("replicatedJobs") or ()):
            yield from refused_annotations(job["template"], f"spec.replicatedJobs[{n}].template.metadata", *EXCLUSIVE)
        if raw["spec"].get("volumeClaimPolicies"):
            words = "claims made for pods are not supported here; use ephemeral volumes in the pod template"
            yield UnsupportedConstraint("spec.volumeClaimPolicies", words)

    def outcome(self, raw: JsonObject) -> JobOutcome | None:
        """Reads the conditions Completed and Failed."""
        return ended(raw, "Completed")

    def counts(self, raw: JsonObject) -> Counts:
        """Reads the status, which counts jobs: of a ready (active) one all pods count as ready (active)."""
        jobs = raw["spec"].get("replicatedJobs") or ()
        per_job = {job["name"]: _at_once(job["template"]["spec"], {}) for job in jobs}
        counted = [(one, per_job.get(one["name"], 0)) for one in dig(raw, "status", "replicatedJobsStatus") or ()]
        ready, active = (sum((one.get(field) or 0) * pods for one, pods in counted) for field in ("ready", "active"))
        return Counts(ready, active)

    def restarts(self, raw: JsonObject) -> Mapping[str, int]:
        """Allows any number while the set may be restarted as a whole; else what each of its Jobs allows."""
        jobs = raw["spec"].get("replicatedJobs") or ()
        left = {job["name"]: of_job_set(raw) or of_batch_job(job["template"]["spec"], 0) for job in jobs}
        return {name: pods for name, pods in left.items() if pods}


def _completes_with_as_many(raw: JsonObject) -> bool:
    """Whether fewer pods are fewer completions, too: where the user says so and the API allows it (KEP-3715)."""
    spec = raw["spec"]
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    return elastic and first_of(raw["metadata"].get("annotations"), *EQUAL_COMPLETIONS) == "true"


def _pods(job: JsonObject) -> int:
    return number(job.get("replicas"), 1) * _at_once(job["template"]["spec"], {})


def _at_once(spec: JsonObject, wanted: Mapping[str, int]) -> int:
    """How many pods run at once: `parallelism`, but never more than there are completions to reach."""
    parallelism = wanted.get(PARALLELISM, number(spec.get("parallelism"), 1))
    completions = wanted.get(COMPLETIONS, spec.get("completions"))
    return parallelism if completions is None else min(parallelism, completions)
