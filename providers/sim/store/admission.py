"""What is special about each kind when it is written: a table from resource to its rules.

Source: the strategies below `pkg/registry` and the validations below `pkg/apis` of kubernetes.
"""

import base64
from collections.abc import Callable
from typing import Any

from providers.sim.store import crds, jobs, pods
from providers.sim.store.deviceclaims import CLAIMS, defaulted_claim, defaulted_template
from providers.sim.store.deviceslices import TAINT_RULES, taint_rule_since
from providers.sim.store.errors import cause
from providers.sim.store.limitranger import defaulted_limit_range
from providers.sim.store.naming import Fault
from providers.sim.store.objects import Obj, invalid
from providers.sim.store.podplacement import Lookup
from providers.sim.store.pods import defaulted_spec
from providers.sim.store.podspec import pod_spec_faults, unsupported
from providers.sim.store.podupdate import updated_pod
from providers.sim.store.policies import POLICY_DEFAULTS
from providers.sim.store.registry import Resource
from providers.sim.store.validation import kind_faults

OnCreate = Callable[[Resource, Obj, Lookup], Obj]
OnUpdate = Callable[[Resource, Obj, Obj], Obj]


def admit_new(resource: Resource, obj: Obj, lookup: Lookup) -> Obj:
    """`obj` as it is stored on creation: defaulted and validated. Invalid or Forbidden otherwise."""
    rule = _ON_CREATE.get(resource.key)
    obj = rule(resource, obj, lookup) if rule else obj
    return _valid(resource, obj, None)


def with_parts(resource: Resource, obj: Obj) -> Obj:
    """`obj` with the `spec` and `status` that its kind always shows, empty or not (structs, not pointers, in Go)."""
    missing = [part for part in _PARTS.get(resource.key, ()) if obj.get(part) is None]
    return {**obj, **{part: {} for part in missing}} if missing else obj


def admit_change(resource: Resource, new: Obj, old: Obj) -> Obj:
    """`new` if it may replace `old`. Invalid otherwise."""
    rule = _ON_UPDATE.get(resource.key)
    return _valid(resource, rule(resource, new, old) if rule else new, old)


def admit_status(resource: Resource, new: Obj, old: Obj) -> Obj:
    """`new` if its status may replace that of `old`. Invalid otherwise."""
    return _valid(resource, new, old) if resource.key in ("nodes", CLAIMS) else new


def _valid(resource: Resource, new: Obj, old: Obj | None) -> Obj:
    if faults := kind_faults(resource, new, old):
        raise invalid(resource, new["metadata"]["name"], *faults)
    return new


def _namespace(_: Resource, obj: Obj, __: Lookup) -> Obj:
    meta = obj["metadata"]
    labels = {"kubernetes.io/metadata.name": meta["name"], **(meta.get("labels") or {})}
    spec = {"finalizers": ["kubernetes"], **(obj.get("spec") or {})}
    return {**obj, "metadata": {**meta, "labels": labels}, "spec": spec, "status": {"phase": "Active"}}


def _node(_: Resource, obj: Obj, __: Lookup) -> Obj:
    return {**obj, "spec": obj.get("spec") or {}, "status": obj.get("status") or {}}


def _unbound(_: Resource, obj: Obj, __: Lookup) -> Obj:
    """A new volume or claim; a controller says what becomes of it."""
    return {**obj, "status": {"phase": "Pending"}}


def _storage_class(_: Resource, obj: Obj, __: Lookup) -> Obj:
    return {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", **obj}


def _defaults(**defaults: Any) -> OnCreate:
    """A rule: these spec fields unless given."""
    return lambda _, obj, __: {**obj, "spec": {**defaults, **(obj.get("spec") or {})}}


def _workload(resource: Resource, obj: Obj, _: Lookup) -> Obj:
    """A new Deployment or one of its kin: its defaults, and those of pods in the template."""
    spec = _WORKLOAD_SPECS[resource.key](obj.get("spec") or {})
    template = spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    wanted = ((spec.get("selector") or {}).get("matchLabels")) or {}
    faults = _template_faults(resource, template.get("spec") or {})
    if not spec.get("selector"):
        faults.append(cause("spec.selector", "Required value", "FieldValueRequired"))
    elif any(labels.get(key) != value for key, value in wanted.items()):
        text = "Invalid value: `selector` does not match template `labels`"
        faults.append(cause("spec.template.metadata.labels", text))
    if faults:
        raise invalid(resource, obj["metadata"]["name"], *faults)
    spec["template"] = {**template, "spec": defaulted_spec(template.get("spec") or {})}
    return {**obj, "spec": spec}


def _template_faults(resource: Resource, pod_spec: Obj) -> list[Fault]:
    """What is wrong with the pods of a template. Those of a StatefulSet mount claims that the template does not list.

    Source: `ValidatePodTemplateSpecForStatefulSet`, which therefore leaves all of it to the making of the pods.
    """
    if resource.key != "statefulsets.apps":
        return pod_spec_faults(pod_spec, "spec.template.spec")
    again = pod_spec.get("restartPolicy", "Always")
    return [] if again == "Always" else [unsupported("spec.template.spec.restartPolicy", again, ["Always"])]


def _replaced_workload(resource: Resource, new: Obj, _: Obj) -> Obj:
    """A replaced one: it gets its defaults again."""
    spec = _WORKLOAD_SPECS[resource.key](new.get("spec") or {})
    template = spec.get("template") or {}
    if faults := _template_faults(resource, template.get("spec") or {}):
        raise invalid(resource, new["metadata"]["name"], *faults)
    return {**new, "spec": {**spec, "template": {**template, "spec": defaulted_spec(template.get("spec") or {})}}}


def _deployment_spec(spec: Obj) -> Obj:
    defaults = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}
    strategy = _rolling(spec.get("strategy"), maxSurge="25%", maxUnavailable="25%")
    return {**defaults, **spec, "strategy": strategy}


def _stateful_set_spec(spec: Obj) -> Obj:
    kept = {"whenDeleted": "Retain", "whenScaled": "Retain", **(spec.get("persistentVolumeClaimRetentionPolicy") or {})}
    defaults = {"replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10}
    strategy = _rolling(spec.get("updateStrategy"), partition=0)
    return {**defaults, **spec, "updateStrategy": strategy, "persistentVolumeClaimRetentionPolicy": kept}


def _daemon_set_spec(spec: Obj) -> Obj:
    strategy = _rolling(spec.get("updateStrategy"), maxSurge=0, maxUnavailable=1)
    return {"revisionHistoryLimit": 10, **spec, "updateStrategy": strategy}


def _rolling(strategy: Obj | None, **defaults: Any) -> Obj:
    """A strategy of updates; only RollingUpdate, the default, has parameters."""
    given = {"type": "RollingUpdate", **(strategy or {})}
    if given["type"] != "RollingUpdate":
        return given
    return {**given, "rollingUpdate": {**defaults, **(given.get("rollingUpdate") or {})}}


_WORKLOAD_SPECS: dict[str, Callable[[Obj], Obj]] = {
    "deployments.apps": _deployment_spec,
    "replicasets.apps": lambda spec: {"replicas": 1, **spec},
    "statefulsets.apps": _stateful_set_spec,
    "daemonsets.apps": _daemon_set_spec,
}
"""The defaults of each kind that has a template of pods and a selector."""


def _budget(_: Resource, obj: Obj, __: Lookup) -> Obj:
    status = {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}
    return {**obj, "status": status}


def _priority_class(_: Resource, obj: Obj, __: Lookup) -> Obj:
    return {"value": 0, "preemptionPolicy": "PreemptLowerPriority", **obj}


def _event(_: Resource, obj: Obj, __: Lookup) -> Obj:
    return {**_EVENT, **obj}


def _new_event(_: Resource, obj: Obj, __: Lookup) -> Obj:
    return {**_NEW_EVENT, **obj}


_EVENT: Obj = {
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
_NEW_EVENT: Obj = {"deprecatedSource": {}, "deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None}


def _secret(_: Resource, obj: Obj, __: Lookup) -> Obj:
    return _with_string_data({"type": "Opaque", **obj})


def _with_string_data(obj: Obj) -> Obj:
    plain = obj.get("stringData")
    if not plain:
        return obj
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
    rest = {key: value for key, value in obj.items() if key != "stringData"}
    return {**rest, "data": {**(obj.get("data") or {}), **encoded}}


_BOTH = ("spec", "status")
_PARTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("namespaces", "nodes", "pods", "services", "persistentvolumes", "persistentvolumeclaims"), _BOTH),
    "resourcequotas": _BOTH,
    **dict.fromkeys(_WORKLOAD_SPECS, _BOTH),
    **dict.fromkeys(("jobs.batch", "cronjobs.batch", "poddisruptionbudgets.policy"), _BOTH),
    "leases.coordination.k8s.io": ("spec",),
    **dict.fromkeys((CLAIMS, "deviceclasses.resource.k8s.io"), ("spec",)),
}
_ON_CREATE: dict[str, OnCreate] = {
    "namespaces": _namespace,
    "nodes": _node,
    "pods": pods.created_pod,
    "limitranges": lambda _, obj, __: defaulted_limit_range(obj),
    "persistentvolumes": _unbound,
    "persistentvolumeclaims": _unbound,
    "storageclasses.storage.k8s.io": _storage_class,
    **dict.fromkeys(POLICY_DEFAULTS, lambda resource, obj, _: POLICY_DEFAULTS[resource.key](obj)),
    CLAIMS: lambda _, obj, __: defaulted_claim(obj),
    "resourceclaimtemplates.resource.k8s.io": lambda _, obj, __: defaulted_template(obj),
    TAINT_RULES: lambda _, obj, __: taint_rule_since(obj),
    "secrets": _secret,
    "services": _defaults(type="ClusterIP", sessionAffinity="None"),
    **dict.fromkeys(_WORKLOAD_SPECS, _workload),
    "jobs.batch": lambda resource, obj, _: jobs.created_job(resource, obj),
    "cronjobs.batch": _defaults(
        concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1
    ),
    "jobsets.jobset.x-k8s.io": lambda resource, obj, _: jobs.created_jobset(resource, obj),
    "events": _event,
    "events.events.k8s.io": _new_event,
    "poddisruptionbudgets.policy": _budget,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "customresourcedefinitions.apiextensions.k8s.io": lambda resource, obj, _: crds.admitted(resource, obj),
}
_ON_UPDATE: dict[str, OnUpdate] = {
    **dict.fromkeys(POLICY_DEFAULTS, lambda resource, new, _: POLICY_DEFAULTS[resource.key](new)),
    CLAIMS: lambda _, new, __: defaulted_claim(new),
    "resourceclaimtemplates.resource.k8s.io": lambda _, new, __: defaulted_template(new),
    TAINT_RULES: lambda _, new, old: taint_rule_since(new, old),
    "limitranges": lambda _, new, __: defaulted_limit_range(new),
    "pods": updated_pod,
    "events": lambda _, new, __: {**_EVENT, **new},
    "events.events.k8s.io": lambda _, new, __: {**_NEW_EVENT, **new},
    "secrets": lambda _, new, __: _with_string_data(new),
    **dict.fromkeys(_WORKLOAD_SPECS, _replaced_workload),
    "jobs.batch": jobs.updated_job,
    "jobsets.jobset.x-k8s.io": jobs.updated_jobset,
    "customresourcedefinitions.apiextensions.k8s.io": crds.admitted,
}
