"""Pods as the API writes them -> what they take and whether they may be moved."""

from typing import Any

import msgspec
import pytest

from fleet.snapshot import Pod
from model.quantity import InvalidQuantity
from providers.kube.objects import decode_pod


def pod(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    body = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "managedFields": [{"manager": "k"}], **metadata},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}], **(spec or {})},
        "status": status or {},
    }
    return decode_pod(msgspec.json.encode(body))


def asking(**requests: str | int) -> dict[str, Any]:
    return {"resources": {"requests": requests}}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        pytest.param(
            {"containers": [asking(cpu="500m"), asking(cpu="1", memory="1Gi")]},
            {"cpu": 1500, "memory": 1 << 30},
            id="sum",
        ),
        pytest.param(
            {"containers": [asking(cpu=1)], "initContainers": [asking(cpu=3), asking(cpu=2)]},
            {"cpu": 3000},
            id="largest init container",
        ),
        pytest.param(
            {"containers": [asking(cpu=1)], "initContainers": [asking(cpu=4), {**asking(cpu=2), **SIDECAR}]},
            {"cpu": 4000},
            id="a sidecar started later does not add to an init container",
        ),
        pytest.param(
            {"containers": [asking(cpu=1)], "initContainers": [{**asking(cpu=2), **SIDECAR}, asking(cpu=4)]},
            {"cpu": 6000},
            id="an earlier sidecar does",
        ),
        pytest.param(
            {"containers": [asking(cpu=3)], "initContainers": [{**asking(cpu=2), **SIDECAR}]},
            {"cpu": 5000},
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            {"containers": [asking(cpu=1)], "overhead": {"cpu": "250m", "memory": "1Mi"}},
            {"cpu": 1250, "memory": 1 << 20},
            id="overhead",
        ),
        pytest.param(
            {"containers": [asking(cpu=1, **{"nvidia.com/gpu": 1})], "resources": {"requests": {"cpu": 4}}},
            {"cpu": 4000, "nvidia.com/gpu": 1},
            id="pod-level resources replace the sum",
        ),
        pytest.param(
            {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
            {"nvidia.com/gpu": 8},
            id="limits are requests",
        ),
        pytest.param(
            {"containers": [{"resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "2"}}}]},
            {"cpu": 2000},
            id="requests win",
        ),
        pytest.param(
            {"containers": [asking(cpu="0", memory="100m")]}, {"memory": 1}, id="zeros vanish, fractions round up"
        ),
        pytest.param({"containers": None, "initContainers": None, "overhead": None, "resources": None}, {}, id="nulls"),
    ],
)
def test_requests(spec: dict[str, Any], requests: dict[str, int]) -> None:
    assert pod(spec).requests == requests


def test_unreadable_quantity_is_an_error() -> None:
    with pytest.raises(InvalidQuantity):
        pod({"containers": [asking(cpu="two")]})


def test_equal_pods_share_their_requests() -> None:
    spec = {"containers": [asking(cpu="3", memory="7Gi")]}
    assert pod(spec).requests is pod(spec, name="other").requests


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, ""),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "true"),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "false"}}, ""),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "1h30m"}}, "1h30m"),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, "true"),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}, ""),
    ],
)
def test_do_not_disrupt(metadata: dict[str, Any], expected: str) -> None:
    assert pod(**metadata).do_not_disrupt == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("7", 7), ("-2147483648", -(1 << 31)), ("9999999999", (1 << 31) - 1), ("1e3", 0), ("", 0), ("1" * 5000, 0)],
)
def test_deletion_cost(text: str, expected: int) -> None:
    assert pod(annotations={"controller.kubernetes.io/pod-deletion-cost": text}).deletion_cost == expected
    assert pod(annotations={}).deletion_cost == 0


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}]}, True),
        ({"ownerReferences": [{"kind": "Job", "name": "j", "controller": True}]}, False),
        ({"annotations": {"kubernetes.io/config.mirror": "hash"}}, True),
        ({"annotations": None, "labels": None, "ownerReferences": None}, False),
    ],
)
def test_daemon(metadata: dict[str, Any], expected: bool) -> None:
    assert pod(**metadata).daemon is expected


def test_gang_pod_behind_the_gate() -> None:
    found = pod(
        {"schedulingGates": [{"name": "x"}, {"name": "muster.dev/placement"}], "terminationGracePeriodSeconds": 300},
        {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "lastTransitionTime": None}]},
        labels={"muster.dev/workload": "train", "muster.dev/pod-set": "main", "job-name": "train"},
    )
    assert (found.workload, found.pod_set, found.gated, found.ready) == ("train", "main", True, False)
    assert (found.active, found.deletion_grace_s, found.started_at_s) == (True, 300.0, 0.0)


def test_running_pod_on_its_way_out() -> None:
    found = pod(
        {"nodeName": "ip-10-0-0-1"},
        {"phase": "Running", "startTime": "2027-01-15T08:00:00Z", "conditions": [{"type": "Ready", "status": "True"}]},
        deletionTimestamp="2027-01-15T09:00:00Z",
        deletionGracePeriodSeconds=0,
    )
    assert (found.node, found.ready, found.deleting, found.deletion_grace_s) == ("ip-10-0-0-1", True, True, 30.0)
    assert found.deletion_at_s == 1_800_003_600.0
    assert found.started_at_s == 1_800_000_000.0


@pytest.mark.parametrize(
    ("finalizers", "tracked"),
    [(None, False), (["example.com/hold"], False), (["example.com/hold", "batch.kubernetes.io/job-tracking"], True)],
)
def test_an_end_that_is_still_to_be_counted(finalizers: list[str] | None, tracked: bool) -> None:
    assert pod({}, {"phase": "Failed"}, finalizers=finalizers).tracked is tracked


@pytest.mark.parametrize(
    ("selector", "host"),
    [(None, ""), ({"zone": "a"}, ""), ({"zone": "a", "kubernetes.io/hostname": "ip-10-0-0-1"}, "ip-10-0-0-1")],
)
def test_pinned_host(selector: dict[str, str] | None, host: str) -> None:
    assert pod({"nodeSelector": selector}).pinned_host == host


@pytest.mark.parametrize(
    ("labels", "owners", "owner"),
    [
        ({}, [], ""),
        ({}, [("ReplicaSet", "web-5d", True)], "ReplicaSet/web-5d"),
        ({"pod-template-hash": "5d"}, [("ReplicaSet", "web-5d", True)], "Deployment/web"),
        ({"pod-template-hash": "5d"}, [("ReplicaSet", "web", True)], "ReplicaSet/web"),
        ({}, [("Notebook", "lab", False)], ""),
        ({}, [("Notebook", "lab", True)], "Notebook/lab"),
        ({"muster.dev/workload": "w"}, [("Notebook", "lab", True)], ""),
    ],
)
def test_whose_an_ordinary_pod_is(labels: dict[str, str], owners: list[tuple[str, str, bool]], owner: str) -> None:
    refs = [
        {"apiVersion": "example.com/v1", "kind": kind, "name": name, "uid": "u", "controller": controls}
        for kind, name, controls in owners
    ]
    assert pod(labels=labels, ownerReferences=refs).owner == owner


def test_a_foreign_gate_is_not_ours() -> None:
    assert not pod({"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}).gated


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (None, ()),
        ({}, ()),
        ({"tier": "front", "app": "web"}, (("app", "web"), ("tier", "front"))),
        ({"muster.dev/workload": "job-a", "job-name": "a"}, (("job-name", "a"), ("muster.dev/workload", "job-a"))),
    ],
)
def test_a_pod_keeps_its_labels(labels: dict[str, str] | None, kept: tuple[tuple[str, str], ...]) -> None:
    assert pod(labels=labels).labels == kept


@pytest.mark.parametrize("key", ["muster.dev/workload", "app"])
def test_equal_labels_are_one_object(key: str) -> None:
    one, other = (pod(labels={key: "job-a"}, name=name) for name in "ab")
    assert one.labels is other.labels
