"""`batch/v1` Job and `jobset.x-k8s.io/v1alpha2` JobSet -> `Job`."""

from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw
from pydantic import TypeAdapter, ValidationError

from fleet.snapshot import Job, JobRef, JobResult, PodSet
from model.kinds.base import NEVER, Duration
from model.labels import DO_NOT_DISRUPT, KUEUE_PRIORITY_CLASS, KUEUE_QUEUE, PRIORITY_CLASS, QUEUE
from providers.kube.objects.additions import Additions, recorded
from providers.kube.objects.instants import instant_of, parse_instant
from providers.kube.objects.names import (
    CHECKPOINT_INTERVAL,
    LAST_CHECKPOINT,
    MAIN_POD_SET,
    MIN_PARALLELISM,
    OWN_DO_NOT_DISRUPT,
    VOLCANO_LAST_CHECKPOINT,
)
from providers.kube.objects.paths import JOB_SETS, JOBS
from providers.kube.objects.pods import protects
from providers.kube.objects.shapes import Meta, Wire, WireCondition, first_of, holding
from providers.kube.objects.templates import Template, pod_set_of
from providers.kube.objects.topology import whole


class _JobSpec(Wire, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    template: Template = Template()

    @property
    def pods(self) -> int:
        """How many pods run at once: `parallelism`, but never more than there are completions to reach."""
        parallel = 1 if self.parallelism is None else self.parallelism
        return parallel if self.completions is None else min(parallel, self.completions)


class _JobStatus(Wire, frozen=True):
    conditions: list[WireCondition] | None = None
    active: int = 0
    ready: int | None = None


class _Job(Wire, frozen=True):
    metadata: Meta
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


class _JobTemplate(Wire, frozen=True):
    spec: _JobSpec = _JobSpec()


class _ReplicatedJob(Wire, frozen=True):
    name: str
    replicas: int | None = None
    template: _JobTemplate = _JobTemplate()


class _JobSetSpec(Wire, frozen=True):
    suspend: bool | None = None
    replicated_jobs: list[_ReplicatedJob] | None = None


class _ReplicatedStatus(Wire, frozen=True):
    name: str
    ready: int = 0
    active: int = 0


class _JobSetStatus(Wire, frozen=True):
    conditions: list[WireCondition] | None = None
    replicated_jobs_status: list[_ReplicatedStatus] | None = None


class _JobSet(Wire, frozen=True):
    metadata: Meta
    spec: _JobSetSpec = _JobSetSpec()
    status: _JobSetStatus = _JobSetStatus()


class _Progress(NamedTuple):
    result: JobResult | None
    finished_at_s: float
    ready_pods: int
    active_pods: int


_jobs = msgspec.json.Decoder(_Job)
_job_sets = msgspec.json.Decoder(_JobSet)
_duration: Final = TypeAdapter[float](Duration)


def decode_job(raw: bytes | Raw) -> Job:
    """A Job with its one pod set `main`. A Job that a JobSet controls is not managed by itself: its queue is ""."""
    found = _jobs.decode(raw)
    meta, status = found.metadata, found.status
    template = found.spec.template
    main = pod_set_of(MAIN_POD_SET, found.spec.pods, template, recorded(meta.annotations))
    return _job(
        JobRef(JOBS.api_version(), "Job", meta.namespace, meta.name, meta.uid),
        meta,
        queue="" if _controlled_by_jobset(meta) else _queue(meta),
        suspended=bool(found.spec.suspend),
        pod_sets=(replace(main, min_count=_min_count(meta, main.count)),),
        templates=(template,),
        progress=_progress(status.conditions, "Complete", status.ready or 0, status.active),
    )


def decode_jobset(raw: bytes | Raw) -> Job:
    """A JobSet with a pod set for each replicated job.

    Its status counts jobs, not pods: a ready (active) job is taken as all of its pods being ready (active).
    """
    found = _job_sets.decode(raw)
    meta, status = found.metadata, found.status
    replicated = found.spec.replicated_jobs or []
    per_job = {one.name: one.template.spec.pods for one in replicated}
    additions = recorded(meta.annotations)
    counted = [(one, per_job.get(one.name, 0)) for one in status.replicated_jobs_status or ()]
    return _job(
        JobRef(JOB_SETS.api_version(), "JobSet", meta.namespace, meta.name, meta.uid),
        meta,
        queue=_queue(meta),
        suspended=bool(found.spec.suspend),
        pod_sets=tuple(_replicated(one, additions) for one in replicated),
        templates=tuple(one.template.spec.template for one in replicated),
        progress=_progress(
            status.conditions,
            "Completed",
            sum(one.ready * pods for one, pods in counted),
            sum(one.active * pods for one, pods in counted),
        ),
    )


def _replicated(one: _ReplicatedJob, additions: Additions) -> PodSet:
    replicas = 1 if one.replicas is None else one.replicas
    return pod_set_of(one.name, replicas * one.template.spec.pods, one.template.spec.template, additions)


def _job(
    ref: JobRef,
    meta: Meta,
    *,
    queue: str,
    suspended: bool,
    pod_sets: tuple[PodSet, ...],
    templates: tuple[Template, ...],
    progress: _Progress,
) -> Job:
    annotations = meta.annotations or {}
    return Job(
        ref=ref,
        resource_version=meta.resource_version,
        queue=queue,
        priority_class=first_of(meta.labels, PRIORITY_CLASS, KUEUE_PRIORITY_CLASS),
        suspended=suspended,
        pod_sets=pod_sets,
        created_at_s=instant_of(meta.creation_timestamp),
        result=progress.result,
        finished_at_s=progress.finished_at_s,
        ready_pods=progress.ready_pods,
        active_pods=progress.active_pods,
        deleting=meta.deletion_timestamp is not None,
        last_checkpoint_s=_instant(first_of(annotations, LAST_CHECKPOINT, VOLCANO_LAST_CHECKPOINT)),
        checkpoint_interval_s=_interval_s(annotations.get(CHECKPOINT_INTERVAL, "")),
        do_not_disrupt=any(map(_protected, (annotations, *(template.annotations for template in templates)))),
    )


def _queue(meta: Meta) -> str:
    return first_of(meta.labels, QUEUE, KUEUE_QUEUE)


def _min_count(meta: Meta, count: int) -> int | None:
    """Fewest pods it may run with, when that is fewer than it asks for."""
    least = whole(first_of(meta.annotations, *MIN_PARALLELISM))
    return least if least is not None and least < count else None


def _controlled_by_jobset(meta: Meta) -> bool:
    owners = meta.owner_references or ()
    return any(
        one.controller and one.kind == "JobSet" and one.api_version.startswith(f"{JOB_SETS.group}/") for one in owners
    )


def _progress(conditions: list[WireCondition] | None, succeeded: str, ready_pods: int, active_pods: int) -> _Progress:
    for kind, result in ((succeeded, JobResult.SUCCEEDED), ("Failed", JobResult.FAILED)):
        if condition := holding(conditions, kind):
            return _Progress(result, instant_of(condition.last_transition_time), ready_pods, active_pods)
    return _Progress(None, 0.0, ready_pods, active_pods)


def _protected(annotations: dict[str, str]) -> bool:
    return any(protects(annotations.get(name, "")) for name in (OWN_DO_NOT_DISRUPT, DO_NOT_DISRUPT))


def _instant(text: str) -> float | None:
    """What the job itself writes is advice: an unreadable time counts as none."""
    try:
        return parse_instant(text) if text else None
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _interval_s(text: str) -> float | None:
    try:
        seconds = _duration.validate_python(text) if text else NEVER
    except ValidationError:
        return None
    return seconds if 0 < seconds < NEVER else None
