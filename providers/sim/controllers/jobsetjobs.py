"""The Jobs a JobSet asks for, as values: names, labels, templates (`pkg/controllers/jobset_controller.go`)."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from providers.sim.controllers.objects import Obj, controlled_by, labels_of, status_of

_PREFIX = "jobset.sigs.k8s.io/"
_ATTEMPT = f"{_PREFIX}restart-attempt"
_RJOB = f"{_PREFIX}replicatedjob-name"


@dataclass(frozen=True, slots=True)
class Replicated:
    """One entry of `spec.replicatedJobs`; `first_global` is the global index of its first job."""

    name: str
    replicas: int
    template: Obj
    first_global: int
    total: int

    @classmethod
    def all_of(cls, jobset: Obj) -> list["Replicated"]:
        """The entries of a JobSet in their order."""
        entries = jobset["spec"].get("replicatedJobs") or ()
        counts = [1 if entry.get("replicas") is None else int(entry["replicas"]) for entry in entries]
        return [
            cls(entry["name"], count, entry["template"], sum(counts[:i]), sum(counts))
            for i, (entry, count) in enumerate(zip(entries, counts, strict=True))
        ]


def rjob_of(job: Obj) -> str:
    """The replicated job a child belongs to."""
    return labels_of(job).get(_RJOB, "")


def attempt_of(job: Obj) -> int:
    """The restart attempt a child was made for."""
    text = labels_of(job).get(_ATTEMPT, "0")
    return int(text) if text.isdigit() else 0


def jobs_wanted(jobset: Obj, replicated: Replicated, *, suspended: bool) -> Iterator[Obj]:
    """The child Jobs of one entry for the present attempt, `<jobset>-<entry>-<index>`."""
    for index in range(replicated.replicas):
        yield _job(jobset, replicated, index, suspended=suspended)


def _job(jobset: Obj, replicated: Replicated, index: int, *, suspended: bool) -> Obj:
    held = replicated.template.get("metadata") or {}
    marks = _marks(jobset, replicated, index)
    pod_template = replicated.template["spec"]["template"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{jobset['metadata']['name']}-{replicated.name}-{index}",
            "namespace": jobset["metadata"]["namespace"],
            "labels": {**(held.get("labels") or {}), **marks},
            "annotations": {**(held.get("annotations") or {}), **marks},
            "ownerReferences": controlled_by(jobset, "jobset.x-k8s.io/v1alpha2", "JobSet"),
        },
        "spec": {
            **replicated.template["spec"],
            "suspend": suspended,
            "template": _pod_template(jobset, pod_template, marks),
        },
    }


def _marks(jobset: Obj, replicated: Replicated, index: int) -> dict[str, str]:
    """The labels that are also annotations, on the Job and on its pods."""
    metadata = jobset["metadata"]
    job_name = f"{metadata['name']}-{replicated.name}-{index}"
    key = hashlib.sha1(f"{metadata['namespace']}/{job_name}".encode(), usedforsecurity=False).hexdigest()
    return {
        f"{_PREFIX}jobset-name": metadata["name"],
        f"{_PREFIX}jobset-uid": metadata["uid"],
        _RJOB: replicated.name,
        f"{_PREFIX}replicatedjob-replicas": str(replicated.replicas),
        f"{_PREFIX}global-replicas": str(replicated.total),
        f"{_PREFIX}job-index": str(index),
        f"{_PREFIX}job-global-index": str(replicated.first_global + index),
        f"{_PREFIX}job-key": key,
        _ATTEMPT: str(status_of(jobset).get("restarts") or 0),
    }


def _pod_template(jobset: Obj, template: Obj, marks: dict[str, str]) -> Obj:
    held = template.get("metadata") or {}
    spec = template["spec"]
    network = jobset["spec"].get("network") or {}
    if network.get("enableDNSHostnames", True):
        spec = {**spec, "subdomain": network.get("subdomain") or jobset["metadata"]["name"]}
    metadata = {
        **held,
        "labels": {**(held.get("labels") or {}), **marks},
        "annotations": {**(held.get("annotations") or {}), **marks},
    }
    return {**template, "metadata": metadata, "spec": spec}


_LATE_SPEC = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


def refreshed_template(replicated: Replicated, job: Obj) -> Obj:
    """The pod template of a suspended child with what may have changed in the JobSet since it was made.

    Labels, annotations and scheduling directives follow the set; all else is immutable in a Job.
    """
    held, wanted = job["spec"]["template"], replicated.template["spec"]["template"]
    metadata, fresh = held.get("metadata") or {}, wanted.get("metadata") or {}
    merged = {kind: {**(metadata.get(kind) or {}), **(fresh.get(kind) or {})} for kind in ("labels", "annotations")}
    spec = {key: value for key, value in held["spec"].items() if key not in _LATE_SPEC}
    spec.update({key: wanted["spec"][key] for key in _LATE_SPEC if key in wanted["spec"]})
    return {**held, "metadata": {**metadata, **merged}, "spec": spec}
