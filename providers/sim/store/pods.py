"""Rules of the pod: defaults, admission, binding.

Source: `pkg/apis/core/v1/defaults.go`, `pkg/registry/core/pod`; KEP-3521 (scheduling gates).
"""

from typing import Any

from providers.sim.store.errors import StoreConflict, StoreForbidden, StoreUnknownError, cause
from providers.sim.store.objects import Obj, invalid
from providers.sim.store.podplacement import Lookup, placed_spec
from providers.sim.store.podspec import pod_spec_faults
from providers.sim.store.registry import Resource

_SPEC_DEFAULTS: dict[str, Any] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
}
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_NO_EXECUTE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


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
    resources = {field: given for field, given in result["resources"].items() if given}  # Go keeps no empty map
    result["resources"] = resources
    if resources.get("limits"):
        result["resources"] = {**resources, "requests": {**resources["limits"], **(resources.get("requests") or {})}}
    return result


def created_pod(resource: Resource, pod: Obj, lookup: Lookup) -> Obj:
    """A pod as it is stored when created: defaulted, its priority resolved, Pending."""
    name = pod["metadata"]["name"]
    spec = pod.get("spec") if isinstance(pod.get("spec"), dict) else {}
    faults = pod_spec_faults(spec or {}, "spec")
    if faults:
        raise invalid(resource, name, *faults)
    spec = {"enableServiceLinks": True, **(spec or {})}
    spec = placed_spec(name, defaulted_spec(spec), pod["metadata"].get("labels") or {}, lookup)
    if spec.get("schedulingGates") and spec.get("nodeName"):
        text = "Forbidden: cannot be set until all schedulingGates have been cleared"
        fault = cause("spec.nodeName", text, "FieldValueForbidden")
        raise invalid(resource, name, fault)
    spec["tolerations"] = with_default_tolerations(spec.get("tolerations") or [])
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


def with_default_tolerations(given: list[Obj]) -> list[Obj]:
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


def bound_pod(pod: Obj, node_name: str, now: str, added: Obj) -> Obj:
    """A pod assigned to a node. Conflict when it is gated, already assigned or being deleted."""
    meta, spec = pod["metadata"], pod["spec"]
    if not node_name:
        raise StoreUnknownError("target.name: Required value")
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
        "metadata": {**meta, **_merged_marks(meta, added)},
        "spec": {**spec, "nodeName": node_name},
        "status": {**status, "conditions": [scheduled, *others]},
    }


def _merged_marks(meta: Obj, added: Obj) -> Obj:
    """The annotations of a binding, and its labels of topology (KEP-4742), go to the pod."""
    marks = {}
    if added.get("annotations"):
        marks["annotations"] = {**(meta.get("annotations") or {}), **added["annotations"]}
    places = {key: value for key, value in (added.get("labels") or {}).items() if key in _PLACES}
    if places:
        marks["labels"] = {**(meta.get("labels") or {}), **places}
    return marks


_PLACES = frozenset({"topology.kubernetes.io/zone", "topology.kubernetes.io/region"})


def delete_grace_s(pod: Obj, asked_s: int | None) -> int:
    """How long the pod may take to stop (pkg/registry/core/pod strategy CheckGracefulDelete)."""
    period = asked_s if asked_s is not None else pod["spec"].get("terminationGracePeriodSeconds", 30)
    if period < 0:
        period = 1
    unscheduled = not pod["spec"].get("nodeName")
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return 0 if unscheduled or finished else period
