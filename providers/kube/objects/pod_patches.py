"""Pinning gated pods: what a release writes."""

from typing import Any

from fleet.actions import Marks, ReleasePod
from model.labels import HOSTNAME
from providers.kube.objects.json_patch import at_version, pointer
from providers.kube.objects.names import PLACEMENT_GATE, POD_SET, WORKLOAD
from providers.kube.objects.pod_templates import toleration_object
from providers.kube.objects.shapes import JsonObject


def release_patch(action: ReleasePod) -> dict[str, Any]:
    """The *strategic merge* patch that pins a gated pod to its node and takes our gate, in one write.

    Gates are a list keyed by name, so the patch needs no look at the pod, and gates of others stay. The uid refuses a
    pod that has since been replaced by one of the same name. Doing it twice changes nothing.
    """
    return {
        "metadata": {"uid": action.pod.uid},
        "spec": {
            "nodeSelector": {HOSTNAME: action.hostname},
            "schedulingGates": [{"$patch": "delete", "name": PLACEMENT_GATE}],
        },
    }


def take_patch(action: ReleasePod, marks: Marks, raw: JsonObject) -> list[JsonObject]:
    """The JSON patch that takes a pod into its gang, pins it and lets it go, in one write; empty when that is done.

    Tolerations are a list without keys, to which the API lets one only add: hence the look at the pod in `raw`.
    """
    spec, meta = raw["spec"], raw["metadata"]
    gates = [gate for gate in spec.get("schedulingGates") or () if gate["name"] != PLACEMENT_GATE]
    if len(gates) == len(spec.get("schedulingGates") or ()):
        return []
    labels = {**(meta.get("labels") or {}), WORKLOAD: marks.workload, POD_SET: marks.pod_set}
    users = spec.get("tolerations") or []
    added = [one for one in map(toleration_object, marks.tolerations) if one not in users]
    fields = {
        ("metadata", "labels"): labels,
        ("spec", "nodeSelector"): {**(spec.get("nodeSelector") or {}), HOSTNAME: action.hostname},
        ("spec", "tolerations"): [*users, *added],
        ("spec", "schedulingGates"): gates,
    }
    changes = [{"op": "add", "path": pointer(*path), "value": value} for path, value in fields.items()]
    return [at_version(raw), *changes]
