"""What `kubectl get` shows: the cells of a row, for built-in kinds by function, for custom ones by JSONPath.

Source: `pkg/printers/internalversion/printers.go`; apiextensions `tableconvertor.go`.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from providers.sim.apiserver.jsonpath import find
from providers.sim.store import Column, Resource

Obj = dict[str, Any]
Cells = Callable[[Obj, float], list[Any]]
_NAME = Column("Name", "string", ".metadata.name")


def columns_of(resource: Resource) -> tuple[Column, ...]:
    """The columns of a table of `resource`, wide ones with priority 1."""
    if resource.key in _BUILTIN:
        return tuple(Column(name, kind, "", priority) for name, kind, priority in _BUILTIN[resource.key][0])
    extra = resource.columns or (Column("Age", "date", ".metadata.creationTimestamp"),)
    return (_NAME, *extra)


def cells_of(resource: Resource, obj: Obj, now_s: float) -> list[Any]:
    """The cells of the row of one object, in the order of `columns_of`."""
    if resource.key in _BUILTIN:
        return _BUILTIN[resource.key][1](obj, now_s)
    return [_custom_cell(column, obj, now_s) for column in columns_of(resource)]


def _custom_cell(column: Column, obj: Obj, now_s: float) -> Any:
    found = find(obj, column.json_path)
    if not found:
        return None
    value = found[0]
    if column.type == "date":
        return age(value if isinstance(value, str) else None, now_s)
    if column.type == "string" and (len(found) > 1 or not isinstance(value, str)):
        return ",".join(_text(item) for item in found)
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def age(stamp: str | None, now_s: float) -> str:
    """How long ago, as kubectl says it (apimachinery duration.HumanDuration)."""
    then = parsed_time(stamp)
    if then is None:
        return "<unknown>"
    return duration(now_s - then)


def parsed_time(stamp: str | None) -> float | None:
    """An RFC 3339 time as epoch seconds, or None."""
    if not stamp:
        return None
    try:
        return datetime.fromisoformat(stamp).astimezone(UTC).timestamp()
    except ValueError:
        return None


def duration(seconds: float) -> str:  # noqa: PLR0911 - a table of thresholds
    """Two units at most, coarser as it grows."""
    s = int(seconds)
    if s < 0:
        return "0s"
    if s < 120:
        return f"{s}s"
    m, h, d = s // 60, s // 3600, s // 86400
    if m < 10:
        return f"{m}m{s % 60}s" if s % 60 else f"{m}m"
    if m < 180:
        return f"{m}m"
    if h < 8:
        return f"{h}h{m % 60}m" if m % 60 else f"{h}h"
    if h < 48:
        return f"{h}h"
    if d < 8:
        return f"{d}d{h % 24}h" if h % 24 else f"{d}d"
    return f"{d}d" if d < 730 else f"{d // 365}y{d % 365}d"


def _meta(obj: Obj) -> tuple[str, str | None]:
    return obj["metadata"]["name"], obj["metadata"].get("creationTimestamp")


def _namespace(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    return [name, obj.get("status", {}).get("phase", ""), age(created, now_s)]


def _node(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    status, labels = obj.get("status") or {}, obj["metadata"].get("labels") or {}
    ready = next((c["status"] for c in status.get("conditions") or () if c["type"] == "Ready"), "Unknown")
    words = ["Ready" if ready == "True" else "NotReady" if ready == "False" else "Unknown"]
    if obj.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix)) or ["<none>"]
    info = status.get("nodeInfo") or {}
    addresses = {a["type"]: a["address"] for a in status.get("addresses") or ()}
    return [
        name,
        ",".join(words),
        ",".join(roles),
        age(created, now_s),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def pod_reason(pod: Obj) -> str:
    """The STATUS of a pod: why it waits or ended, before its bare phase."""
    status, meta = pod.get("status") or {}, pod["metadata"]
    reason = status.get("reason") or status.get("phase") or "Unknown"
    conditions = status.get("conditions") or ()
    if any(c["type"] == "PodScheduled" and c.get("reason") == "SchedulingGated" for c in conditions):
        reason = "SchedulingGated"
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended:
            reason = ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
    if "deletionTimestamp" in meta:
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(reason)


def _pod(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    held = status.get("containerStatuses") or ()
    gates = spec.get("readinessGates") or ()
    met = sum(
        1
        for g in gates
        if any(c["type"] == g["conditionType"] and c["status"] == "True" for c in status.get("conditions") or ())
    )
    return [
        name,
        f"{sum(1 for c in held if c.get('ready'))}/{len(spec.get('containers') or ())}",
        pod_reason(obj),
        str(sum(c.get("restartCount", 0) for c in held)),
        age(created, now_s),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"{met}/{len(gates)}" if gates else "<none>",
    ]


def _job(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    wanted = spec.get("completions")
    done = status.get("succeeded", 0)
    completions = f"{done}/{wanted}" if wanted is not None else f"{done}/1 of {spec.get('parallelism', 1)}"
    started, ended = parsed_time(status.get("startTime")), parsed_time(status.get("completionTime"))
    took = "" if started is None else duration((ended if ended is not None else now_s) - started)
    state = "Running"
    for condition in status.get("conditions") or ():
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed", "Suspended", "FailureTarget"):
            state = condition["type"]
    if "deletionTimestamp" in obj["metadata"]:
        state = "Terminating"
    return [name, state, completions, took, age(created, now_s), *_template_cells(spec)]


def _template_cells(spec: Obj) -> list[Any]:
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    selector = ((spec.get("selector") or {}).get("matchLabels")) or {}
    return [
        ",".join(c.get("name", "") for c in containers),
        ",".join(c.get("image", "") for c in containers),
        ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>",
    ]


def _jobset(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    status = obj.get("status") or {}
    done = [c["status"] for c in status.get("conditions") or () if c["type"] == "Completed"]
    suspended = "true" if (obj.get("spec") or {}).get("suspend") else "false"
    return [
        name,
        status.get("terminalState", ""),
        status.get("restarts"),
        done[0] if done else "",
        suspended,
        age(created, now_s),
    ]


def _event(obj: Obj, now_s: float) -> list[Any]:
    about = obj.get("involvedObject") or {}
    last = obj.get("lastTimestamp") or (obj.get("series") or {}).get("lastObservedTime") or obj.get("eventTime")
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    source = obj.get("source") or {}
    return [
        age(last or first or obj["metadata"].get("creationTimestamp"), now_s),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        source.get("component") or obj.get("reportingComponent", ""),
        str(obj.get("message", "")).strip(),
        age(first or obj["metadata"].get("creationTimestamp"), now_s),
        obj.get("count", 1),
        obj["metadata"]["name"],
    ]


def _deployment(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    return [name, ready, *counts, age(created, now_s), *_template_cells(spec)]


def _replicas(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    counts = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name, *counts, age(created, now_s), *_template_cells(spec)]


def _stateful(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [name, ready, age(created, now_s), *_template_cells(spec)[:2]]


def _daemon(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    selector = ((spec.get("template") or {}).get("spec") or {}).get("nodeSelector") or {}
    shown = ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "<none>"
    return [name, *(status.get(field, 0) for field in counts), shown, age(created, now_s), *_template_cells(spec)]


def _service(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    spec = obj.get("spec") or {}
    ports = ",".join(f"{p.get('port')}/{p.get('protocol', 'TCP')}" for p in spec.get("ports") or ()) or "<none>"
    selector = ",".join(f"{key}={value}" for key, value in sorted((spec.get("selector") or {}).items())) or "<none>"
    address = spec.get("clusterIP") or "<none>"
    return [name, spec.get("type", "ClusterIP"), address, "<none>", ports, age(created, now_s), selector]


def _data(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    return [name, len(obj.get("data") or {}) + len(obj.get("binaryData") or {}), age(created, now_s)]


def _secret(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    return [name, obj.get("type", "Opaque"), len(obj.get("data") or {}), age(created, now_s)]


def _budget(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    bounds = [
        str(spec[field]) if spec.get(field) is not None else "N/A" for field in ("minAvailable", "maxUnavailable")
    ]
    return [name, *bounds, status.get("disruptionsAllowed", 0), age(created, now_s)]


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: Any) -> str:
    return ",".join(_MODES.get(mode, mode) for mode in modes or ())


def _claim(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
    held = [(status.get("capacity") or {}).get("storage", ""), _modes(status.get("accessModes"))]
    kinds = [spec.get("storageClassName") or "", spec.get("volumeAttributesClassName") or "<unset>"]
    mode = spec.get("volumeMode") or "Filesystem"
    return [name, phase, spec.get("volumeName") or "", *held, *kinds, age(created, now_s), mode]


def _volume(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    phase = "Terminating" if obj["metadata"].get("deletionTimestamp") else status.get("phase", "")
    claim = spec.get("claimRef") or {}
    held = [(spec.get("capacity") or {}).get("storage", ""), _modes(spec.get("accessModes"))]
    by = f"{claim.get('namespace') or ''}/{claim.get('name') or ''}" if claim else ""
    kinds = [spec.get("storageClassName") or "", spec.get("volumeAttributesClassName") or "<unset>"]
    mode, policy = spec.get("volumeMode") or "Filesystem", spec.get("persistentVolumeReclaimPolicy") or "Retain"
    return [name, *held, policy, phase, by, *kinds, status.get("reason", ""), age(created, now_s), mode]


def _storage_class(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    notes = obj["metadata"].get("annotations") or {}
    shown = f"{name} (default)" if notes.get("storageclass.kubernetes.io/is-default-class") == "true" else name
    modes = [obj.get("reclaimPolicy") or "Delete", obj.get("volumeBindingMode") or "Immediate"]
    grows = str(bool(obj.get("allowVolumeExpansion"))).lower()
    return [shown, obj.get("provisioner", ""), *modes, grows, age(created, now_s)]


def _csi_node(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    return [name, len(obj["spec"].get("drivers") or ()), age(created, now_s)]


def _revision(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    owners = (owner for owner in obj["metadata"].get("ownerReferences") or () if owner.get("controller"))
    owner = next(owners, None)
    group = "" if owner is None else owner["apiVersion"].partition("/")[0]
    by = "<none>" if owner is None else f"{owner['kind'].lower()}.{group}/{owner['name']}"
    return [name, by, obj.get("revision", 0), age(created, now_s)]


def _lease(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    return [name, (obj.get("spec") or {}).get("holderIdentity", ""), age(created, now_s)]


def _device_claim(obj: Obj, now_s: float) -> list[Any]:
    """`pending`, `allocated,reserved`, `deleted,allocated`."""
    name, created = _meta(obj)
    status, leaving = obj.get("status") or {}, "deletionTimestamp" in obj["metadata"]
    words = ["deleted"] if leaving else []
    if status.get("allocation") is None:
        words += [] if leaving else ["pending"]
    else:
        words += ["allocated", *(["reserved"] if status.get("reservedFor") else [])]
    return [name, ",".join(words), age(created, now_s)]


def _device_slice(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    spec = obj.get("spec") or {}
    where = [spec.get("nodeName") or "", spec.get("driver", ""), (spec.get("pool") or {}).get("name", "")]
    return [name, *where, age(created, now_s)]


def _quota(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    status = obj.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    told = {it: f"{it}: {used.get(it, '0')}/{hard[it]}" for it in sorted(hard)}
    bounds = [it for it in told if it.startswith("limits.")]
    requests = [it for it in told if it not in bounds]
    return [name, *(", ".join(told[it] for it in part) for part in (requests, bounds)), age(created, now_s)]


def _priority(obj: Obj, now_s: float) -> list[Any]:
    name, created = _meta(obj)
    return [
        name,
        obj.get("value", 0),
        bool(obj.get("globalDefault")),
        age(created, now_s),
        obj.get("preemptionPolicy", ""),
    ]


def _definition(obj: Obj, _: float) -> list[Any]:
    return [obj["metadata"]["name"], obj["metadata"].get("creationTimestamp")]


def _spec(text: str) -> tuple[tuple[str, str, int], ...]:
    """`Name Status Age +IP` as columns: those marked with + are wide; # is an integer, _ a space."""
    return tuple(
        (word.lstrip("+#").replace("_", " "), "integer" if "#" in word else "string", int("+" in word))
        for word in text.split()
    )


_TEMPLATE = "+Containers +Images +Selector"
_BUILTIN: dict[str, tuple[tuple[tuple[str, str, int], ...], Cells]] = {
    "namespaces": (_spec("Name Status Age"), _namespace),
    "nodes": (
        _spec("Name Status Roles Age Version +Internal-IP +External-IP +OS-Image +Kernel-Version +Container-Runtime"),
        _node,
    ),
    "pods": (_spec("Name Ready Status Restarts Age +IP +Node +Nominated_Node +Readiness_Gates"), _pod),
    "events": (_spec("Last_Seen Type Reason Object +Subobject +Source Message +First_Seen +#Count +Name"), _event),
    "configmaps": (_spec("Name #Data Age"), _data),
    "secrets": (_spec("Name Type #Data Age"), _secret),
    "services": (_spec("Name Type Cluster-IP External-IP Port(s) Age +Selector"), _service),
    "jobs.batch": (_spec(f"Name Status Completions Duration Age {_TEMPLATE}"), _job),
    "jobsets.jobset.x-k8s.io": (_spec("Name TerminalState #Restarts Completed Suspended Age"), _jobset),
    "deployments.apps": (_spec(f"Name Ready #Up-to-date #Available Age {_TEMPLATE}"), _deployment),
    "replicasets.apps": (_spec(f"Name #Desired #Current #Ready Age {_TEMPLATE}"), _replicas),
    "statefulsets.apps": (_spec("Name Ready Age +Containers +Images"), _stateful),
    "daemonsets.apps": (
        _spec(f"Name #Desired #Current #Ready #Up-to-date #Available Node_Selector Age {_TEMPLATE}"),
        _daemon,
    ),
    "controllerrevisions.apps": (_spec("Name Controller #Revision Age"), _revision),
    "persistentvolumeclaims": (
        _spec("Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age +VolumeMode"),
        _claim,
    ),
    "persistentvolumes": (
        _spec(
            "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age "
            "+VolumeMode"
        ),
        _volume,
    ),
    "storageclasses.storage.k8s.io": (
        _spec("Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age"),
        _storage_class,
    ),
    "csinodes.storage.k8s.io": (_spec("Name #Drivers Age"), _csi_node),
    "poddisruptionbudgets.policy": (_spec("Name Min_Available Max_Unavailable #Allowed_Disruptions Age"), _budget),
    "resourcequotas": (_spec("Name Request Limit Age"), _quota),
    "leases.coordination.k8s.io": (_spec("Name Holder Age"), _lease),
    "resourceclaims.resource.k8s.io": (_spec("Name State Age"), _device_claim),
    "resourceslices.resource.k8s.io": (_spec("Name Node Driver Pool Age"), _device_slice),
    "priorityclasses.scheduling.k8s.io": (_spec("Name #Value Global-Default Age PreemptionPolicy"), _priority),
    "customresourcedefinitions.apiextensions.k8s.io": (_spec("Name Created_At"), _definition),
}
