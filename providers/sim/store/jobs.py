"""Rules of Job and JobSet: defaults, and which part of the template may change and when.

Source: `pkg/apis/batch/v1/defaults.go`, `pkg/apis/batch/validation` (ValidateJobUpdate), KEP-2926 (directives of
suspended jobs); jobset `pkg/webhooks/jobset_webhook.go`.
"""

from typing import Any

from providers.sim.store.errors import cause
from providers.sim.store.jobspec import generated_faults, immutable, job_spec_faults
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
_NO_LIMIT = 2**31 - 1
_IMMUTABLE = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_JOB_DIRECTIVES = ("nodeSelector", "affinity", "tolerations", "schedulingGates")
_JOBSET_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")


def created_job(resource: Resource, job: Obj) -> Obj:
    """A job as it is stored when created: defaulted, with its generated selector and template labels."""
    meta = job["metadata"]
    spec = _defaulted(job.get("spec") or {})
    template = spec["template"]
    if not spec["manualSelector"]:
        spec["selector"] = {"matchLabels": {_UID_LABELS[1]: meta["uid"]}}
        template = {**template, "metadata": _labelled(template["metadata"], meta)}
    spec["template"] = template
    if faults := list(job_spec_faults(spec)):
        raise invalid(resource, meta["name"], *faults)
    labels = meta.get("labels") or template["metadata"].get("labels")
    return {**job, "metadata": {**meta, **({"labels": labels} if labels else {})}, "spec": spec, "status": {}}


def _defaulted(given: Obj) -> Obj:
    """A job's spec with the defaults of the API; null is as good as nothing."""
    spec = {key: value for key, value in given.items() if value is not None}
    spec = {**_DEFAULTS, **spec}
    if spec.get("podFailurePolicy") is not None and "podReplacementPolicy" not in given:
        spec["podReplacementPolicy"] = "Failed"
    if spec.get("backoffLimitPerIndex") is not None and given.get("backoffLimit") is None:
        spec["backoffLimit"] = _NO_LIMIT
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    template = spec.get("template") or {}
    spec["template"] = {
        **template,
        "metadata": template.get("metadata") or {},
        "spec": defaulted_spec(template.get("spec") or {}),
    }
    return spec


def _labelled(template_meta: Obj, meta: Obj) -> Obj:
    own = {**dict.fromkeys(_UID_LABELS, meta["uid"]), **dict.fromkeys(_NAME_LABELS, meta["name"])}
    return {**template_meta, "labels": {**(template_meta.get("labels") or {}), **own}}


def updated_job(resource: Resource, new: Obj, old: Obj) -> Obj:
    """A replaced job, defaulted again, or the 422 that says which field is immutable now."""
    held = old["spec"]
    if new.get("spec") == held:
        return new
    spec = _defaulted(new.get("spec") or {})
    wrong = list(job_spec_faults(spec))
    generated = [] if spec["manualSelector"] else list(generated_faults(spec, old["metadata"]))
    faults = [*generated, *wrong, *wrong, *_frozen(spec, old)]  # the server asks the same rules twice
    if faults:
        raise invalid(resource, old["metadata"]["name"], *faults)
    return {**new, "spec": spec}


def _frozen(spec: Obj, old: Obj) -> list[dict[str, str]]:
    held = old["spec"]
    faults = []
    if spec.get("completions") != held.get("completions"):
        indexed = held.get("completionMode") == "Indexed"
        if not indexed:
            faults.append(immutable("spec.completions", spec.get("completions")))
        elif spec.get("completions") != spec.get("parallelism"):
            text = "can only be modified in tandem with spec.parallelism"
            faults.append(cause("spec.completions", f"Invalid value: {spec.get('completions')}: {text}"))
    faults += [
        immutable(f"spec.{field}", spec.get(field)) for field in _IMMUTABLE if spec.get(field) != held.get(field)
    ]
    template, stored = spec["template"], held.get("template") or {}
    startable = bool(held.get("suspend") and not (old.get("status") or {}).get("startTime"))
    if startable:
        template = _with_directives(template, stored, _JOB_DIRECTIVES)
        template = {**template, "spec": _with_resources(template["spec"], stored.get("spec") or {})}
    if template != stored:
        faults.append(immutable("spec.template.spec" if startable else "spec.template", template))
    return faults


def _with_resources(spec: Obj, stored: Obj) -> Obj:
    """`spec` with the resources of its containers set back: a suspended job may change them (KEP-5440)."""
    result = dict(spec)
    for field in ("containers", "initContainers"):
        given, held = spec.get(field) or [], stored.get(field) or []
        if given and len(given) == len(held):
            pairs = zip(given, held, strict=True)
            result[field] = [{**container, "resources": was.get("resources") or {}} for container, was in pairs]
    return result


def _fixed(path: str) -> dict[str, str]:
    return cause(path, "Invalid value: field is immutable")


def _with_directives(template: Obj, stored: Obj, directives: tuple[str, ...]) -> Obj:
    """`template` with everything a suspended job may change set back to what is stored."""
    meta, held = template.get("metadata") or {}, stored.get("metadata") or {}
    spec, kept = template.get("spec") or {}, stored.get("spec") or {}
    return {
        **template,
        "metadata": _restored(meta, held, ("labels", "annotations", "finalizers")),
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
