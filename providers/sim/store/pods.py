"""Rules of the pod: defaults, what may change after creation, binding.

Source: `pkg/apis/core/v1/defaults.go`, `pkg/apis/core/validation` (ValidatePodUpdate), `pkg/registry/core/pod`;
KEP-3521 (scheduling gates), KEP-3838 (directives of gated pods).
"""

from typing import Any

from providers.sim.store.errors import StoreConflict, StoreForbidden, cause
from providers.sim.store.objects import Obj, invalid
from providers.sim.store.podplacement import Lookup, node_affinity_faults, placed_spec
from providers.sim.store.registry import Resource

_SPEC_DEFAULTS: dict[str, Any] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "enableServiceLinks": True,
}
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_NO_EXECUTE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_ONLY = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def defaulted_spec(spec: Obj) -> Obj:
    """A pod spec with the defaults of the API; also those of its containers and their ports."""
    result = {**_SPEC_DEFAULTS, **spec}
    for field in ("containers", "initContainers"):
        if isinstance(spec.get(field), list):
            result[field] = [_container(c) if isinstance(c, dict) else c for c in spec[field]]
    return result


def _container(container: Obj) -> Obj:
    image = str(container.get("image", ""))
    latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    result = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if latest else "IfNotPresent",
        "resources": {},
        **container,
    }
    if container.get("ports"):
        result["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    resources = result["resources"]
    if resources.get("limits"):
        result["resources"] = {**resources, "requests": {**resources["limits"], **(resources.get("requests") or {})}}
    return result


def spec_faults(spec: Obj, path: str) -> list[dict[str, str]]:
    """What is wrong with a pod spec, by field path."""
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        return [cause(f"{path}.containers", "Required value", "FieldValueRequired")]
    faults: list[dict[str, str]] = []
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(field) or ()):
            here = f"{path}.{field}[{i}]"
            name = container.get("name") if isinstance(container, dict) else None
            if not name:
                faults.append(cause(f"{here}.name", "Required value", "FieldValueRequired"))
            elif name in seen:
                faults.append(cause(f"{here}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate"))
            if isinstance(container, dict) and not container.get("image"):
                faults.append(cause(f"{here}.image", "Required value", "FieldValueRequired"))
            seen.add(str(name))
    gates = [gate.get("name") for gate in spec.get("schedulingGates") or ()]
    if len(set(gates)) != len(gates):
        faults.append(cause(f"{path}.schedulingGates", "Duplicate value", "FieldValueDuplicate"))
    return [*faults, *node_affinity_faults(spec, path)]


def created_pod(resource: Resource, pod: Obj, lookup: Lookup) -> Obj:
    """A pod as it is stored when created: defaulted, its priority resolved, Pending."""
    name = pod["metadata"]["name"]
    spec = pod.get("spec") if isinstance(pod.get("spec"), dict) else {}
    faults = spec_faults(spec or {}, "spec")
    if faults:
        raise invalid(resource, name, *faults)
    spec = placed_spec(name, defaulted_spec(spec or {}), pod["metadata"].get("labels") or {}, lookup)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        fault = cause("spec.nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared")
        raise invalid(resource, name, fault)
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
    spec.update(_priority(resource, name, spec, lookup))
    status: Obj = {"phase": "Pending", "qosClass": _qos(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [_gated()]
    return {**pod, "spec": spec, "status": status}


def _gated() -> Obj:
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastProbeTime": None,
        "lastTransitionTime": None,
    }


def _tolerations(given: list[Obj]) -> list[Obj]:
    """Plus the five minutes that the admission plug-in DefaultTolerationSeconds grants."""
    covered = {t.get("key") for t in given if t.get("effect") in (None, "", "NoExecute")}
    if any(
        t.get("operator") == "Exists" and not t.get("key") and t.get("effect") in (None, "", "NoExecute") for t in given
    ):
        return given
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in _NO_EXECUTE
        if key not in covered
    ]
    return [*given, *added]


def _priority(resource: Resource, name: str, spec: Obj, lookup: Lookup) -> Obj:
    """What the admission plug-in Priority computes from the class name."""
    class_name = spec.get("priorityClassName")
    if not class_name:
        return {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    if class_name in _SYSTEM_PRIORITIES:
        return {"priority": _SYSTEM_PRIORITIES[class_name], "preemptionPolicy": "PreemptLowerPriority"}
    held = lookup("priorityclasses.scheduling.k8s.io", "", class_name)
    if held is None:
        raise StoreForbidden(
            f'pods "{name}" is forbidden: no PriorityClass with name {class_name} was found',
            {"name": name, "kind": resource.plural},
        )
    return {"priority": held.get("value", 0), "preemptionPolicy": held.get("preemptionPolicy", "PreemptLowerPriority")}


def _qos(spec: Obj) -> str:
    """The quality of service class (pkg/apis/core/v1/helper/qos): only cpu and memory count."""
    guaranteed, any_set = True, False
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        any_set = any_set or any(r in requests or r in limits for r in ("cpu", "memory"))
        guaranteed = guaranteed and all(
            r in limits and str(requests.get(r)) == str(limits[r]) for r in ("cpu", "memory")
        )
    return "Guaranteed" if any_set and guaranteed else "Burstable" if any_set else "BestEffort"


def updated_pod(resource: Resource, new: Obj, old: Obj) -> Obj:
    """A replaced pod, or the 422 that says which change is not allowed."""
    spec, held = new.get("spec") or {}, old["spec"]
    if spec == held:
        return new
    name = old["metadata"]["name"]
    faults = [*_gate_faults(spec, held), *_toleration_faults(spec, held)]
    gated = bool(held.get("schedulingGates"))
    if gated:
        faults += _directive_faults(spec, held)
    if not faults and _comparable(spec, held, gated=gated) != held:
        faults.append(cause("spec", _ONLY, "FieldValueForbidden"))
    if faults:
        raise invalid(resource, name, *faults)
    if gated and not spec.get("schedulingGates"):
        return {**new, "status": _ungated(new.get("status") or {})}
    return new


def _ungated(status: Obj) -> Obj:
    kept = [c for c in status.get("conditions") or () if c.get("reason") != "SchedulingGated"]
    rest = {key: value for key, value in status.items() if key != "conditions"}
    return {**rest, "conditions": kept} if kept else rest


def _gate_faults(spec: Obj, held: Obj) -> list[dict[str, str]]:
    before = {gate["name"] for gate in held.get("schedulingGates") or ()}
    return [
        cause(
            "spec.schedulingGates",
            f"Forbidden: only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
        )
        for gate in spec.get("schedulingGates") or ()
        if gate.get("name") not in before
    ]


def _toleration_faults(spec: Obj, held: Obj) -> list[dict[str, str]]:
    given = spec.get("tolerations") or ()
    if all(toleration in given for toleration in held.get("tolerations") or ()):
        return []
    return [
        cause("spec.tolerations", "Forbidden: existing toleration can not be modified except its tolerationSeconds")
    ]


def _directive_faults(spec: Obj, held: Obj) -> list[dict[str, str]]:
    """While gated, node selectors and required node affinity may only become stricter (KEP-3838)."""
    faults = []
    given = spec.get("nodeSelector") or {}
    if any(given.get(key) != value for key, value in (held.get("nodeSelector") or {}).items()):
        faults.append(cause("spec.nodeSelector", "Invalid value: only additions are allowed"))
    before, after = _required_terms(held), _required_terms(spec)
    if before is not None:
        narrowed = after is not None and len(after) == len(before) and all(map(_narrows, after, before))
        if not narrowed:
            where = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
            faults.append(cause(where, "Invalid value: only additions to the expressions of a term are allowed"))
    return faults


def _required_terms(spec: Obj) -> list[Obj] | None:
    node = ((spec.get("affinity") or {}).get("nodeAffinity")) or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    return (required.get("nodeSelectorTerms") or []) if required else None


def _narrows(after: Obj, before: Obj) -> bool:
    return all(
        expression in (after.get(part) or ())
        for part in ("matchExpressions", "matchFields")
        for expression in before.get(part) or ()
    )


def _comparable(spec: Obj, held: Obj, *, gated: bool) -> Obj:
    """The new spec with everything that may change set back to what is stored."""
    result = {**spec, **{f: held[f] for f in ("activeDeadlineSeconds", "tolerations", "schedulingGates") if f in held}}
    for field in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        if field not in held:
            result.pop(field, None)
    for field in ("containers", "initContainers"):
        given, stored = spec.get(field) or [], held.get(field) or []
        if len(given) == len(stored):
            result |= (
                {field: [{**g, "image": s.get("image")} for g, s in zip(given, stored, strict=True)]} if stored else {}
            )
    if held.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        result["terminationGracePeriodSeconds"] = held["terminationGracePeriodSeconds"]
    if gated:
        for field in ("nodeSelector", "affinity"):
            result.pop(field, None)
            result |= {field: held[field]} if field in held else {}
    return result


def bound_pod(pod: Obj, node_name: str, now: str) -> Obj:
    """A pod assigned to a node. Conflict when it is gated, already assigned or being deleted."""
    meta, spec = pod["metadata"], pod["spec"]
    if not node_name:
        raise StoreConflict(f"pod {meta['name']} needs the name of a node")
    problem = None
    if meta.get("deletionTimestamp"):
        problem = f"pod {meta['name']} is being deleted, cannot be assigned to a host"
    elif spec.get("nodeName"):
        problem = f'pod {meta["name"]} is already assigned to node "{spec["nodeName"]}"'
    elif spec.get("schedulingGates"):
        problem = f"pod {meta['name']} has non-empty .spec.schedulingGates"
    if problem:
        raise StoreConflict(
            f'Operation cannot be fulfilled on pods/binding "{meta["name"]}": {problem}',
            {"name": meta["name"], "kind": "pods/binding"},
        )
    status = pod.get("status") or {}
    others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    return {
        **pod,
        "spec": {**spec, "nodeName": node_name},
        "status": {**status, "conditions": [scheduled, *others]},
    }


def delete_grace_s(pod: Obj, asked_s: int | None) -> int:
    """How long the pod may take to stop (pkg/registry/core/pod strategy CheckGracefulDelete)."""
    period = asked_s if asked_s is not None else pod["spec"].get("terminationGracePeriodSeconds", 30)
    if period < 0:
        period = 1
    unscheduled = not pod["spec"].get("nodeName")
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return 0 if unscheduled or finished else period
