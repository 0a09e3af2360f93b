"""What a Job asks for, and the pods made for it: counts, indexes and templates, as values."""

from collections.abc import Mapping
from dataclasses import dataclass

from providers.sim.controllers.jobpolicy import FailureRuling, ruling
from providers.sim.controllers.objects import Obj, annotations_of, being_deleted, controlled_by, status_of

JOB_TRACKING = "batch.kubernetes.io/job-tracking"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"
IGNORED_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"
_GENERATED_BASE = 58  # apiserver names.maxGeneratedNameLength


@dataclass(frozen=True, slots=True)
class JobWork:
    """The spec of a Job with its defaults filled in; `completions` None means a work queue.

    `per_index`: how often each index may fail (backoffLimitPerIndex), None without such a limit.
    """

    parallelism: int
    completions: int | None
    indexed: bool
    suspended: bool
    backoff_limit: int
    deadline_s: float | None
    replaces_only_failed: bool
    restarts_in_place: bool
    per_index: int | None
    most_failed: int | None
    failures: Obj | None
    successes: Obj | None

    @classmethod
    def of(cls, job: Obj) -> "JobWork":
        """Read a Job."""
        spec = job["spec"]
        parallelism, completions = spec.get("parallelism"), spec.get("completions")
        if parallelism is None and completions is None:
            completions = 1
        indexed, deadline_s = spec.get("completionMode") == "Indexed", spec.get("activeDeadlineSeconds")
        per_index = spec.get("backoffLimitPerIndex") if indexed else None
        backoff_limit = spec.get("backoffLimit")
        if backoff_limit is None:
            backoff_limit = 6 if per_index is None else 2**31 - 1
        return cls(
            parallelism=1 if parallelism is None else int(parallelism),
            completions=completions,
            indexed=indexed,
            suspended=bool(spec.get("suspend")),
            backoff_limit=int(backoff_limit),
            deadline_s=None if deadline_s is None else float(deadline_s),
            replaces_only_failed=spec.get("podReplacementPolicy") == "Failed" or "podFailurePolicy" in spec,
            restarts_in_place=spec["template"]["spec"].get("restartPolicy") == "OnFailure",
            per_index=per_index,
            most_failed=spec.get("maxFailedIndexes"),
            failures=spec.get("podFailurePolicy"),
            successes=spec.get("successPolicy"),
        )

    def wanted_active(self, succeeded: int, active: int) -> int:
        """How many pods should be active now; a work queue starts no new ones after the first success."""
        if self.completions is None:
            return active if succeeded else self.parallelism
        return max(0, min(self.parallelism, self.completions - succeeded))

    def is_complete(self, succeeded: int, active: int) -> bool:
        """Whether the work is done."""
        return succeeded > 0 and active == 0 if self.completions is None else succeeded >= self.completions

    def has(self, index: int) -> bool:
        """Whether this is an index of the job."""
        return 0 <= index < (self.completions or 0)

    def is_failed(self, pod: Obj) -> bool:
        """Whether the pod failed; where only failed ones are replaced, one on its way out has not failed yet."""
        phase = status_of(pod).get("phase")
        if phase == "Failed" or self.replaces_only_failed:
            return bool(phase == "Failed")
        return being_deleted(pod) and phase != "Succeeded"

    def ruling(self, pod: Obj) -> FailureRuling:
        """What a failed pod means for the job."""
        return ruling(self.failures, pod)

    def index_is_failed(self, pod: Obj) -> bool:
        """Whether this pod's end is the end of its index."""
        if self.per_index is None or not self.is_failed(pod):
            return False
        said = self.ruling(pod)
        return said.action == "FailIndex" or (said.counts and failures_of(pod) >= self.per_index)

    def counts_for(self, replaced: Obj | None) -> dict[str, str]:
        """The annotations by which a pod of an index with a limit says how often the index failed before."""
        if self.per_index is None:
            return {}
        failed, ignored = 0, 0
        if replaced is not None:
            counts = self.ruling(replaced).counts
            failed, ignored = failures_of(replaced) + counts, _ignored_of(replaced) + (not counts)
        return {FAILURE_COUNT: str(failed), **({IGNORED_COUNT: str(ignored)} if ignored else {})}


def failures_of(pod: Obj) -> int:
    """How often the index of this pod had failed before it."""
    return _number(pod, FAILURE_COUNT)


def _ignored_of(pod: Obj) -> int:
    return _number(pod, IGNORED_COUNT)


def tries_of(pod: Obj) -> int:
    """How often the index of this pod had ended before it, failures that do not count included."""
    return failures_of(pod) + _ignored_of(pod)


def _number(pod: Obj, annotation: str) -> int:
    text = annotations_of(pod).get(annotation, "")
    return int(text) if text.isdigit() else 0


def index_of(pod: Obj) -> int:
    """The completion index of a pod; -1 without one."""
    text = annotations_of(pod).get(COMPLETION_INDEX, "")
    return int(text) if text.isdigit() else -1


def new_pod(job: Obj, index: int | None, notes: Mapping[str, str]) -> Obj:
    """A pod of this job, to be created with a generated name (`<job>-<index>-xxxxx` or `<job>-xxxxx`)."""
    metadata, template = job["metadata"], job["spec"]["template"]
    held = template.get("metadata") or {}
    name, uid = metadata["name"], metadata["uid"]
    labels = {
        **(held.get("labels") or {}),
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    annotations = {**(held.get("annotations") or {}), **notes}
    spec, tail = template["spec"], "-"
    if index is not None:
        labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(index)
        spec, tail = _with_index(spec, name, index), f"-{index}-"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": name[: _GENERATED_BASE - len(tail)] + tail,
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
            "finalizers": [*(held.get("finalizers") or ()), JOB_TRACKING],
            "ownerReferences": controlled_by(job, "batch/v1", "Job"),
        },
        "spec": spec,
    }


def _with_index(spec: Obj, job: str, index: int) -> Obj:
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}},
    }
    changed = {
        field: [_with_variable(container, variable) for container in spec[field]]
        for field in ("containers", "initContainers")
        if spec.get(field)
    }
    return {**spec, **changed, "hostname": spec.get("hostname") or f"{job}-{index}"}


def _with_variable(container: Obj, variable: Obj) -> Obj:
    kept = [entry for entry in container.get("env") or () if entry["name"] != variable["name"]]
    return {**container, "env": [*kept, variable]}


def job_is_over(job: Obj) -> str | None:
    """`Complete` or `Failed` when the job is over, else None."""
    for condition in status_of(job).get("conditions") or ():
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return None
