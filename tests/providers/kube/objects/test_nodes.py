"""Nodes and DaemonSets as the API writes them."""

from typing import Any

import msgspec
import pytest

from fleet.snapshot import Node, NodeCondition
from model.kinds import Taint
from providers.kube.objects import decode_daemonset, decode_node

FULL: dict[str, Any] = {
    "metadata": {
        "name": "ip-10-0-0-1.ec2.internal",
        "uid": "u1",
        "creationTimestamp": "2027-01-15T08:00:00Z",
        "labels": {"kubernetes.io/hostname": "ip-10-0-0-1", "muster.dev/node-pool": "h100"},
        "annotations": {"karpenter.sh/do-not-disrupt": "2h", "csi.volume.kubernetes.io/nodeid": "{}"},
    },
    "spec": {
        "providerID": "aws:///us-east-1a/i-0abc",
        "taints": [
            {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"},
            {"key": "muster.dev/unregistered", "effect": "NoExecute", "timeAdded": "2027-01-15T08:00:00Z"},
        ],
        "unschedulable": True,
    },
    "status": {
        "allocatable": {
            "cpu": "191450m",
            "memory": "2097152Ki",
            "pods": "110",
            "nvidia.com/gpu": "0",
            "nvidia.com/mig-1g.10gb": "56",
            "nvidia.com/mig-3g.40gb": "0",
        },
        "conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T08:01:00Z"},
        ],
        "images": [{"names": ["x"], "sizeBytes": 1}],
    },
}


def decoded(**parts: dict[str, Any]) -> Node:
    return decode_node(msgspec.json.encode({key: {**FULL[key], **parts.get(key, {})} for key in FULL}))


def test_everything_that_is_read() -> None:
    assert decoded() == Node(
        name="ip-10-0-0-1.ec2.internal",
        uid="u1",
        provider_id="aws:///us-east-1a/i-0abc",
        labels={**FULL["metadata"]["labels"], "metadata.name": "ip-10-0-0-1.ec2.internal"},
        taints=(
            Taint(key="nvidia.com/gpu", value="true", effect="NoSchedule"),
            Taint(key="muster.dev/unregistered", effect="NoExecute"),
        ),
        allocatable={"cpu": 191450, "memory": 1 << 31, "pods": 110, "nvidia.com/mig-1g.10gb": 56},
        ready=True,
        unschedulable=True,
        created_at_s=1_800_000_000.0,
        ready_changed_at_s=1_800_000_060.0,
        conditions={
            "MemoryPressure": NodeCondition("False", 0.0),
            "Ready": NodeCondition("True", 1_800_000_060.0),
        },
        do_not_disrupt="2h",
    )


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_not_ready(status: str) -> None:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": "2027-01-15T08:02:00Z"}
    found = decoded(status={"conditions": [condition]})
    assert (found.ready, found.ready_changed_at_s) == (False, 1_800_000_120.0)


def test_bare_node() -> None:
    found = decode_node(
        b'{"metadata": {"name": "n", "labels": null}, "spec": {"taints": null}, "status": {"allocatable": null}}'
    )
    assert (found.ready, found.taints, found.allocatable, dict(found.labels)) == (False, (), {}, {"metadata.name": "n"})
    assert decode_node(b'{"metadata": {"name": "n"}}').name == "n"


def test_being_deleted() -> None:
    assert decoded(metadata={"deletionTimestamp": "2027-01-15T09:00:00Z"}).deleting


def test_equal_nodes_share_labels_and_taints() -> None:
    one, other = decoded(), decoded()
    assert one.taints[0] is other.taints[0]
    assert one.allocatable is other.allocatable


def test_daemonset() -> None:
    body = {
        "metadata": {"name": "d", "namespace": "kube-system"},
        "spec": {
            "template": {
                "spec": {
                    "nodeSelector": {"kubernetes.io/os": "linux"},
                    "containers": [
                        {"resources": {"requests": {"cpu": "100m"}}},
                        {"resources": {"limits": {"memory": "1Gi"}}},
                    ],
                }
            }
        },
        "status": {"desiredNumberScheduled": 3},
    }
    found = decode_daemonset(msgspec.json.encode(body))
    assert found.node_selector == {"kubernetes.io/os": "linux"}
    assert found.requests == {"cpu": 100, "memory": 1 << 30}
    assert found.name == "kube-system/d"
