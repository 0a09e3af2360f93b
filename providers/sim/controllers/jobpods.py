"""What a Job asks for, and the pods made for it: counts, indexes and templates, as values."""

from collections.abc import Iterable
from dataclasses import dataclass

from providers.sim.controllers.objects import Obj, annotations_of, controlled_by, status_of

JOB_TRACKING = "batch.kubernetes.io/job-tracking"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_GENERATED_BASE = 58  # apiserver names.maxGeneratedNameLength


@dataclass(frozen=True, slots=True)
class JobWork:
    """The spec of a Job with its defaults filled in; `completions` None means a work queue."""

    parallelism: int
    completions: int | None
    indexed: bool
    suspended: bool
    backoff_limit: int
    deadline_s: float | None
    replaces_only_failed: bool
    restarts_in_place: bool

    @classmethod
    def of(cls, job: Obj) -> "JobWork":
        """Read a Job."""
        spec = job["spec"]
        parallelism, completions = spec.get("parallelism"), spec.get("completions")
        if parallelism is None and completions is None:
            completions = 1
        backoff_limit, deadline_s = spec.get("backoffLimit"), spec.get("activeDeadlineSeconds")
        return cls(
            parallelism=1 if parallelism is None else int(parallelism),
            completions=completions,
            indexed=spec.get("completionMode") == "Indexed",
            suspended=bool(spec.get("suspend")),
            backoff_limit=6 if backoff_limit is None else int(backoff_limit),
            deadline_s=None if deadline_s is None else float(deadline_s),
            replaces_only_failed=spec.get("podReplacementPolicy") == "Failed",
            restarts_in_place=spec["template"]["spec"].get("restartPolicy") == "OnFailure",
        )

    def wanted_active(self, succeeded: int, active: int) -> int:
        """How many pods should be active now; a work queue starts no new ones after the first success."""
        if self.completions is None:
            return min(active, self.parallelism) if succeeded else self.parallelism
        return max(0, min(self.parallelism, self.completions - succeeded))

    def is_complete(self, succeeded: int, active: int, terminating: int) -> bool:
        """Whether the work is done."""
        if self.completions is None:
            return succeeded > 0 and active == 0 and terminating == 0
        return succeeded >= self.completions

    def free_indexes(self, status: Obj, active: Iterable[Obj], limit: int) -> list[int | None]:
        """The next `limit` indexes that nobody works on, lowest first; None for each pod of a job without indexes."""
        if not self.indexed:
            return [None] * limit
        taken = completed_indexes(status) | {index_of(pod) for pod in active}
        free = (index for index in range(self.completions or 0) if index not in taken)
        return [index for index, _ in zip(free, range(limit), strict=False)]


def index_of(pod: Obj) -> int:
    """The completion index of a pod; -1 without one."""
    text = annotations_of(pod).get(COMPLETION_INDEX, "")
    return int(text) if text.isdigit() else -1


def completed_indexes(status: Obj) -> set[int]:
    """`status.completedIndexes` ("0-2,5") as a set."""
    done: set[int] = set()
    for span in filter(None, (status.get("completedIndexes") or "").split(",")):
        first, _, last = span.partition("-")
        done.update(range(int(first), int(last or first) + 1))
    return done


def format_indexes(indexes: Iterable[int]) -> str:
    """A set of indexes as the status has it: ascending spans, a pair written "3,4", more as "3-5"."""
    spans: list[list[int]] = []
    for index in sorted(indexes):
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ",".join(_format_span(first, last) for first, last in spans)


def _format_span(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first}{',' if last == first + 1 else '-'}{last}"


def new_pod(job: Obj, index: int | None) -> Obj:
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
    annotations = dict(held.get("annotations") or {})
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
