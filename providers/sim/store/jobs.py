"""Rules of Job and JobSet: defaults, and which part of the template may change and when.

Source: `pkg/apis/batch/v1/defaults.go`, `pkg/apis/batch/validation` (ValidateJobUpdate), KEP-2926 (directives of
suspended jobs); jobset `pkg/webhooks/jobset_webhook.go`.
"""

from typing import Any

from providers.sim.store.errors import cause
from providers.sim.store.objects import Obj, invalid
from providers.sim.store.pods import defaulted_spec
from providers.sim.store.podspec import pod_spec_faults
from providers.sim.store.registry import Resource

_DEFAULTS: dict[str, Any] = {
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "suspend": False,
    "manualSelector": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}
_IMMUTABLE = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_JOB_DIRECTIVES = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
_JOBSET_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")


def created_job(resource: Resource, job: Obj) -> Obj:
    """A job as it is stored when created: defaulted, with its generated selector and template labels."""
    given, meta = job.get("spec") or {}, job["metadata"]
    template = given.get("template") or {}
    faults = pod_spec_faults(template.get("spec") or {}, "spec.template.spec")
    restart = (template.get("spec") or {}).get("restartPolicy", "Always")
    if restart not in ("Never", "OnFailure"):
        text = f'Required value: valid values: "OnFailure", "Never" (is {restart})'
        faults.append(cause("spec.template.spec.restartPolicy", text, "FieldValueRequired"))
    if given.get("completionMode") == "Indexed" and given.get("completions") is None:
        faults.append(
            cause("spec.completions", "Required value: when completion mode is Indexed", "FieldValueRequired")
        )
    if faults:
        raise invalid(resource, meta["name"], *faults)
    spec = {**_DEFAULTS, **given}
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    template = {**template, "metadata": template.get("metadata") or {}, "spec": defaulted_spec(template["spec"])}
    if not spec["manualSelector"]:
        spec["selector"] = {"matchLabels": {_UID_LABELS[1]: meta["uid"]}}
        template["metadata"] = _labelled(template["metadata"], meta)
    return {**job, "spec": {**spec, "template": template}, "status": {}}


def _labelled(template_meta: Obj, meta: Obj) -> Obj:
    own = {**dict.fromkeys(_UID_LABELS, meta["uid"]), **dict.fromkeys(_NAME_LABELS, meta["name"])}
    return {**template_meta, "labels": {**(template_meta.get("labels") or {}), **own}}


def updated_job(resource: Resource, new: Obj, old: Obj) -> Obj:
    """A replaced job, or the 422 that says which field is immutable now."""
    spec, held = new.get("spec") or {}, old["spec"]
    if spec == held:
        return new
    faults = [_fixed(f"spec.{field}") for field in _IMMUTABLE if spec.get(field) != held.get(field)]
    if spec.get("completions") != held.get("completions") and not _elastic(spec, held):
        faults.append(_fixed("spec.completions"))
    template, stored = spec.get("template") or {}, held.get("template") or {}
    startable = held.get("suspend") and not (old.get("status") or {}).get("startTime")
    if startable:
        template = _with_directives(template, stored, _JOB_DIRECTIVES)
    if template != stored:
        faults.append(_fixed("spec.template"))
    if faults:
        raise invalid(resource, old["metadata"]["name"], *faults)
    return new


def _fixed(path: str) -> dict[str, str]:
    return cause(path, "Invalid value: field is immutable")


def _elastic(spec: Obj, held: Obj) -> bool:
    """An indexed job may change completions together with an equal parallelism (KEP-3715)."""
    return held.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")


def _with_directives(template: Obj, stored: Obj, directives: tuple[str, ...]) -> Obj:
    """`template` with everything a suspended job may change set back to what is stored."""
    meta, held = template.get("metadata") or {}, stored.get("metadata") or {}
    spec, kept = template.get("spec") or {}, stored.get("spec") or {}
    return {
        **template,
        "metadata": _restored(meta, held, ("labels", "annotations")),
        "spec": _restored(spec, kept, directives),
    }


def _restored(new: Obj, old: Obj, fields: tuple[str, ...]) -> Obj:
    rest = {key: value for key, value in new.items() if key not in fields}
    return {**rest, **{field: old[field] for field in fields if field in old}}


def created_jobset(resource: Resource, jobset: Obj) -> Obj:
    """A jobset as its webhook stores it: operators, replicas, indexed completion and OnFailure by default."""
    given = jobset.get("spec") or {}
    replicated = given.get("replicatedJobs") or []
    names = [job.get("name") for job in replicated]
    faults = [
        cause(f"spec.replicatedJobs[{i}].name", "Required value", "FieldValueRequired")
        for i, name in enumerate(names)
        if not name
    ]
    if len(set(names)) != len(names):
        faults.append(cause("spec.replicatedJobs", "Duplicate value", "FieldValueDuplicate"))
    for i, job in enumerate(replicated):
        pod_spec = (((job.get("template") or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
        faults += pod_spec_faults(pod_spec, f"spec.replicatedJobs[{i}].template.spec.template.spec")
    if faults:
        raise invalid(resource, jobset["metadata"]["name"], *faults)
    return _defaulted_jobset(jobset)


def _defaulted_jobset(jobset: Obj) -> Obj:
    """What the mutating webhook makes of every written jobset, new or not (`jobSetWebhook.Default`)."""
    given = jobset.get("spec") or {}
    spec = {
        "suspend": False,
        "successPolicy": {"operator": "All"},
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        **given,
        "replicatedJobs": [_replicated(job) for job in given.get("replicatedJobs") or ()],
    }
    return {**jobset, "spec": spec}


def _replicated(job: Obj) -> Obj:
    template = job.get("template") or {}
    spec = {"completionMode": "Indexed", **(template.get("spec") or {})}
    pod = spec.get("template") or {}
    spec["template"] = {**pod, "spec": {"restartPolicy": "OnFailure", **(pod.get("spec") or {})}}
    if spec["completionMode"] == "Indexed":
        spec.setdefault("parallelism", 1)
        spec.setdefault("completions", spec["parallelism"])
    return {"replicas": 1, "groupName": "default", **job, "template": {**template, "spec": spec}}


def updated_jobset(resource: Resource, new: Obj, old: Obj) -> Obj:
    """A replaced jobset: its jobs are fixed, but for scheduling directives while it is, or becomes, suspended."""
    if new.get("spec") == old["spec"]:
        return new
    new = _defaulted_jobset(new)
    spec, held = new["spec"], old["spec"]
    jobs, stored = spec.get("replicatedJobs") or [], held.get("replicatedJobs") or []
    suspended = held.get("suspend") or spec.get("suspend")
    if suspended and len(jobs) == len(stored):
        jobs = [_with_job_directives(job, was) for job, was in zip(jobs, stored, strict=True)]
    faults = [_fixed("spec.replicatedJobs")] if jobs != stored else []
    faults += [_fixed("spec.managedBy")] if spec.get("managedBy") != held.get("managedBy") else []
    if faults:
        raise invalid(resource, old["metadata"]["name"], *faults)
    return new


def _with_job_directives(job: Obj, stored: Obj) -> Obj:
    template, held = job.get("template") or {}, stored.get("template") or {}
    spec, kept = template.get("spec") or {}, held.get("spec") or {}
    pod = _with_directives(spec.get("template") or {}, kept.get("template") or {}, _JOBSET_DIRECTIVES)
    if "metadata" not in (kept.get("template") or {}):
        pod = {key: value for key, value in pod.items() if key != "metadata"}
    return {**job, "template": {**template, "spec": {**spec, "template": pod}}}
