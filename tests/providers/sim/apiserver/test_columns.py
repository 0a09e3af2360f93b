# ruff: noqa: E501 - a row of a table is a line
"""Printer columns and JSONPath as tables."""

from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.sim.apiserver.columns import cells_of, columns_of, duration, pod_reason
from providers.sim.apiserver.jsonpath import find
from providers.sim.store import Store

Obj = dict[str, Any]
NOW_S = 1_800_000_000.0
OBJ: Obj = {
    "spec": {"size": 3, "tags": ["a", "b"], "empty": None, "a.b/c": 1},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "n": 1},
            {"type": "Stalled", "status": "False", "n": 2},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.size", [3]),
        ("{.spec.size}", [3]),
        ("$.spec.size", [3]),
        (".spec.tags[0]", ["a"]),
        (".spec.tags[-1]", ["b"]),
        (".spec.tags[7]", []),
        (".spec.tags[*]", ["a", "b"]),
        (".spec.missing.deeper", []),
        (".spec.empty", []),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Stalled')].status", ["False"]),
        ('.status.conditions[?(@.type!="Ready")].status', ["False"]),
        (".status.conditions[?(@.n==2)].type", ["Stalled"]),
        (".status.conditions[*].type", ["Ready", "Stalled"]),
        (".spec['a.b/c']", [1]),
        (r".spec.a\.b/c", [1]),
    ],
)
def test_json_path(path: str, found: list[Any]) -> None:
    assert find(OBJ, path) == found


@pytest.mark.parametrize("path", [".spec[", ".a b", "[?(@.x)]"])
def test_broken_json_path(path: str) -> None:
    with pytest.raises(ValueError, match="JSONPath"):
        find(OBJ, path)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (12_000, "3h20m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (8 * 86400, "8d"),
        (900 * 86400, "2y170d"),
    ],
)
def test_durations_as_kubectl_says_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def meta(**more: Any) -> Obj:
    return {"name": "x", "creationTimestamp": "2027-01-15T07:59:00Z", **more}


# kind, object without metadata, the cells after the name
ROWS: list[tuple[str, Obj, list[Any]]] = [
    ("pods", {"spec": {"containers": [{}, {}]}, "status": {"phase": "Running", "containerStatuses": [{"ready": True, "restartCount": 2}, {"ready": False}]}}, ["1/2", "Running", "2", "60s", "<none>", "<none>", "<none>", "<none>"]),
    ("nodes", {"spec": {"unschedulable": True}, "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1"}}}, ["Ready,SchedulingDisabled", "<none>", "60s", "v1", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"]),
    ("jobs", {"spec": {"completions": 3}, "status": {"succeeded": 1, "startTime": "2027-01-15T07:59:30Z"}}, ["Running", "1/3", "30s", "60s", "", "", "<none>"]),
    ("jobs", {"spec": {"completions": 1}, "status": {"succeeded": 1, "startTime": "2027-01-15T07:59:30Z", "completionTime": "2027-01-15T07:59:40Z", "conditions": [{"type": "Complete", "status": "True"}]}}, ["Complete", "1/1", "10s", "60s", "", "", "<none>"]),
    ("jobsets", {"spec": {"suspend": True}, "status": {"restarts": 1}}, ["", 1, "", "true", "60s"]),
    ("events", {"type": "Normal", "reason": "R", "message": "m\n", "involvedObject": {"kind": "Pod", "name": "p"}, "lastTimestamp": "2027-01-15T07:59:50Z"}, ["Normal", "R", "pod/p", "", "", "m", "60s", 1, "x"]),
    ("namespaces", {"status": {"phase": "Active"}}, ["Active", "60s"]),
    ("configmaps", {"data": {"a": "1"}, "binaryData": {"b": ""}}, [2, "60s"]),
    ("pdb", {"spec": {"minAvailable": "50%"}, "status": {"disruptionsAllowed": 1}}, ["50%", "N/A", 1, "60s"]),
    ("leases", {"spec": {"holderIdentity": "me"}}, ["me", "60s"]),
    ("csinodes", {"spec": {"drivers": [{"name": "ebs.csi.aws.com"}]}}, [1, "60s"]),
    ("quota", {"status": {"hard": {"requests.cpu": "4", "pods": "9", "limits.cpu": "5"}, "used": {"pods": "1"}}}, ["pods: 1/9, requests.cpu: 0/4", "limits.cpu: 0/5", "60s"]),
    ("roles", {}, ["60s"]),
    ("deployments", {"spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}}, "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1}}, ["2/3", 3, 1, "60s", "", "", "a=b"]),
    ("replicasets", {"spec": {"replicas": 3}, "status": {"replicas": 2, "readyReplicas": 1}}, [3, 2, 1, "60s", "", "", "<none>"]),
    ("statefulsets", {"spec": {"replicas": 3}, "status": {"readyReplicas": 2}}, ["2/3", "60s", "", ""]),
    ("daemonsets", {"spec": {}, "status": {"desiredNumberScheduled": 4, "currentNumberScheduled": 3, "numberReady": 2, "updatedNumberScheduled": 1}}, [4, 3, 2, 1, 0, "<none>", "60s", "", "", "<none>"]),
    ("controllerrevisions", {"revision": 7}, ["<none>", 7, "60s"]),
    ("pvc", {"spec": {"storageClassName": "gp3"}, "status": {"phase": "Pending"}}, ["Pending", "", "", "", "gp3", "<unset>", "60s", "Filesystem"]),
    ("pvc", {"spec": {"volumeName": "v", "storageClassName": "gp3"}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce", "ReadWriteMany"]}}, ["Bound", "v", "1Gi", "RWO,RWX", "gp3", "<unset>", "60s", "Filesystem"]),
    ("pv", {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"], "claimRef": {"namespace": "n", "name": "c"}, "persistentVolumeReclaimPolicy": "Delete"}, "status": {"phase": "Bound"}}, ["1Gi", "RWOP", "Delete", "Bound", "n/c", "", "<unset>", "", "60s", "Filesystem"]),
    ("sc", {"provisioner": "p.test", "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": True}, ["p.test", "Delete", "WaitForFirstConsumer", "true", "60s"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "obj", "cells"), ROWS)
def test_rows(kind: str, obj: Obj, cells: list[Any]) -> None:
    resource = Store(VirtualClock()).resource(kind)
    found = cells_of(resource, {"metadata": meta(), **obj}, NOW_S)
    assert found[1:] == cells
    assert len(found) == len(columns_of(resource))


def test_rows_that_name_a_relation() -> None:
    store = Store(VirtualClock())
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True}
    revision = {"metadata": meta(ownerReferences=[owner]), "revision": 2}
    assert cells_of(store.resource("controllerrevisions"), revision, NOW_S)[1] == "statefulset.apps/db"
    default = {"metadata": meta(annotations={"storageclass.kubernetes.io/is-default-class": "true"})}
    assert cells_of(store.resource("sc"), default, NOW_S)[0] == "x (default)"


@pytest.mark.parametrize(
    ("status", "more", "expected"),
    [
        ({"phase": "Pending"}, {}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted"}, {}, "Evicted"),
        ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}, {}, "SchedulingGated"),
        ({"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}, {}, "ImagePullBackOff"),
        ({"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}, {}, "Completed"),
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}, {}, "ExitCode:3"),
        ({"phase": "Running"}, {"deletionTimestamp": "2027-01-15T08:00:00Z"}, "Terminating"),
    ],
)  # fmt: skip
def test_the_status_of_a_pod(status: Obj, more: Obj, expected: str) -> None:
    assert pod_reason({"metadata": meta(**more), "status": status}) == expected
