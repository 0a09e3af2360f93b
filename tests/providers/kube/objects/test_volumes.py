"""Claims, volumes, storage classes and CSI limits as the API writes them -> what decides where pods may stand."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fleet.snapshot.volumes import AttachLimits, PersistentVolume, StorageClass, VolumeClaim
from model.kinds import RequirementTerm
from model.upstream.selectors import LabelSelectorRequirement
from providers.kube.objects import (
    decode_csi_node,
    decode_persistent_volume,
    decode_storage_class,
    decode_volume_claim,
)

Obj = dict[str, Any]
NOWHERE = ((RequirementTerm(key="kubernetes.io/hostname", operator="DoesNotExist"),),)
ZONE = "topology.ebs.csi.aws.com/zone"


def read(decode: Callable[[bytes], Any], body: Obj, **metadata: Any) -> Any:
    return decode(msgspec.json.encode({**body, "metadata": {"name": "x", "managedFields": [{}], **metadata}}))


def test_a_claim_that_waits_for_its_pod() -> None:
    spec = {
        "storageClassName": "gp3",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
        "selector": {"matchLabels": {"disk": "fast"}},
    }
    assert read(
        decode_volume_claim, {"spec": spec, "status": {"phase": "Pending"}}, namespace="n", uid="u"
    ) == VolumeClaim(
        namespace="n",
        name="x",
        uid="u",
        storage_class="gp3",
        access_modes=frozenset({"ReadWriteOnce"}),
        requested_bytes=10 << 30,
        selector=(LabelSelectorRequirement(key="disk", operator="In", values=("fast",)),),
    )


@pytest.mark.parametrize(
    ("spec", "annotations", "expected"),
    [
        ({}, {}, {}),
        ({"volumeName": "pv"}, {}, {"volume": "pv"}),
        (
            {"volumeName": "pv"},
            {"pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "n1"},
            {"volume": "pv", "bound": True, "selected_node": "n1"},
        ),
        ({}, {"pv.kubernetes.io/bind-completed": "yes"}, {}),
        (
            {"storageClassName": "new", "volumeMode": "Block"},
            {"volume.beta.kubernetes.io/storage-class": "old"},
            {"storage_class": "old", "volume_mode": "Block"},
        ),
        ({"selector": None, "resources": None, "accessModes": None}, None, {}),
    ],
)
def test_how_far_a_claim_is(spec: Obj, annotations: Obj | None, expected: Obj) -> None:
    found = read(decode_volume_claim, {"spec": spec}, namespace="n", annotations=annotations)
    assert found == VolumeClaim(**{"namespace": "n", "name": "x", **expected})


def test_a_claim_and_a_volume_on_their_way_out() -> None:
    for decode in (decode_volume_claim, decode_persistent_volume):
        assert read(decode, {"spec": {}}, deletionTimestamp="2027-01-15T08:00:00Z").deleting


def test_a_volume_of_a_zone() -> None:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["us-east-1a"]}]}
    spec = {
        "storageClassName": "gp3",
        "capacity": {"storage": "8Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1", "fsType": "ext4"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "claimRef": {"namespace": "n", "name": "c", "uid": "u"},
    }
    body = {"spec": spec, "status": {"phase": "Bound"}}
    assert read(decode_persistent_volume, body, labels={"disk": "fast"}) == PersistentVolume(
        name="x",
        labels={"disk": "fast"},
        storage_class="gp3",
        reaches=((RequirementTerm(key=ZONE, operator="In", values=("us-east-1a",)),),),
        access_modes=frozenset({"ReadWriteOnce"}),
        capacity_bytes=8 << 30,
        driver="ebs.csi.aws.com",
        handle="vol-1",
        claim="n/c",
        claim_uid="u",
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"nodeAffinity": None, "claimRef": None, "csi": None}, {}),
        ({"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}, {"reaches": NOWHERE}),
        ({"nodeAffinity": {"required": {"nodeSelectorTerms": [{}]}}}, {"reaches": NOWHERE}),
        (
            {"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-2"}},
            {"driver": "ebs.csi.aws.com", "handle": "vol-2"},
        ),
        ({"nfs": {"server": "s"}, "volumeMode": "Block"}, {"volume_mode": "Block"}),
    ],
)
def test_what_a_volume_says_of_places(spec: Obj, expected: Obj) -> None:
    found = read(decode_persistent_volume, {"spec": spec, "status": {"phase": "Available"}})
    assert found == PersistentVolume(**{"name": "x", "available": True, **expected})


def topology(*values: str) -> Obj:
    return {"matchLabelExpressions": [{"key": ZONE, "values": list(values)}]}


@pytest.mark.parametrize(
    ("body", "annotations", "expected"),
    [
        ({}, {}, {}),
        ({"volumeBindingMode": "WaitForFirstConsumer"}, {}, {"waits": True}),
        (
            {"volumeBindingMode": "Immediate"},
            {"storageclass.kubernetes.io/is-default-class": "true"},
            {"default": True},
        ),
        ({}, {"storageclass.beta.kubernetes.io/is-default-class": "true"}, {"default": True}),
        ({}, {"storageclass.kubernetes.io/is-default-class": "false"}, {}),
        (
            {"allowedTopologies": [topology("a", "b"), topology("c")]},
            {},
            {
                "allowed": (
                    (RequirementTerm(key=ZONE, operator="In", values=("a", "b")),),
                    (RequirementTerm(key=ZONE, operator="In", values=("c",)),),
                )
            },
        ),
        ({"allowedTopologies": [{}]}, {}, {"allowed": NOWHERE}),
        ({"allowedTopologies": []}, None, {}),
    ],
)
def test_a_storage_class(body: Obj, annotations: Obj | None, expected: Obj) -> None:
    found = read(decode_storage_class, {"provisioner": "ebs.csi.aws.com", **body}, annotations=annotations)
    assert found == StorageClass(**{"name": "x", "provisioner": "ebs.csi.aws.com", **expected})


def test_limits_of_a_node() -> None:
    drivers = [
        {"name": "ebs.csi.aws.com", "nodeID": "i", "allocatable": {"count": 26}},
        {"name": "efs.csi.aws.com", "nodeID": "i"},
        {"name": "none", "nodeID": "i", "allocatable": {}},
        {"name": "zero", "nodeID": "i", "allocatable": {"count": 0}},
    ]
    assert read(decode_csi_node, {"spec": {"drivers": drivers}}) == AttachLimits(
        "x", {"ebs.csi.aws.com": 26, "zero": 0}
    )
    assert read(decode_csi_node, {"spec": {"drivers": None}}) == AttachLimits("x", {})
