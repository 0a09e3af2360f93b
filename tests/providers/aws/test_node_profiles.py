"""What a pool's image, disks and kubelet leave of one of EC2's machines."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.catalog import InstanceType
from providers.aws.node_sizes import GIB, MIB, Ec2NodeProfiles, Hardware
from tests.support.fleets import M7, small_fleet

HARDWARE = Hardware(vcpu=16, memory_mib=60_000, enis=8, ipv4_per_eni=30, nvme_gb=900)
MACHINE = replace(M7, capacity={**M7.capacity, "a/b": 3}, allocatable={**M7.allocatable, "a/b": 3})
PODS = 8 * 29 + 2
KUBE_MIB = 11 * PODS + 255


def sized(template: dict[str, Any], hardware: Hardware | None = HARDWARE) -> InstanceType:
    known = {} if hardware is None else {M7.name: hardware}
    return Ec2NodeProfiles(known).of(small_fleet(template=template).node_pools["h100"].spec.template)(MACHINE)


def memory(kube_mib: int = KUBE_MIB, system_mib: int = 0, eviction_mib: int = 100) -> int:
    return (60_000 - kube_mib - system_mib - eviction_mib) * MIB


def disk(bytes_: int, kept: int = GIB) -> int:
    return bytes_ - kept - -(-bytes_ // 10)


def volume(device: str, size: str, **more: Any) -> dict[str, Any]:
    return {"deviceName": device, "ebs": {"volumeSize": size}, **more}


def disks(*volumes: dict[str, Any]) -> dict[str, Any]:
    return {"blockDeviceMappings": list(volumes)}


def on_disk(gib: int) -> dict[str, int]:
    return {"ephemeral-storage": disk(gib * GIB)}


BOTTLEROCKET = {"amis": [{"alias": "bottlerocket@latest"}]}
CUSTOM = {"amis": [{"id": "ami-1"}], "amiFamily": "Custom"}
TEMPLATES: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({"kubelet": {"maxPods": 20}}, {"pods": 20, "memory": memory(), "a/b": 3}),
    ({"kubelet": {"podsPerCore": 2}}, {"pods": 32}),
    ({"kubelet": {"podsPerCore": 100}}, {"pods": PODS}),
    ({"kubelet": {"maxPods": 20, "podsPerCore": 1}}, {"pods": 16}),
    ({"kubelet": {"systemReserved": {"cpu": "200m"}}}, {"cpu": 16_000 - 110 - 200}),
    ({"kubelet": {"systemReserved": {"memory": "500Mi"}}}, {"memory": memory(system_mib=500)}),
    ({"kubelet": {"kubeReserved": {"memory": "1Gi"}}}, {"memory": memory(1024), "cpu": 16_000 - 110}),
    ({"kubelet": {"evictionHard": {"memory.available": "1Gi"}}}, {"memory": memory(eviction_mib=1024)}),
    ({"kubelet": {"evictionHard": {"memory.available": "5%"}}}, {"memory": memory(eviction_mib=3000)}),
    ({"kubelet": {"evictionHard": {"nodefs.available": "100%"}}}, {"ephemeral-storage": 19 * GIB}),
    (disks(volume("/dev/xvda", "100Gi")), on_disk(100)),
    (disks(volume("/dev/xvda", "9Gi"), volume("/dev/b", "100Gi", rootVolume=True)), on_disk(100)),
    ({"instanceStorePolicy": "RAID0"}, {"ephemeral-storage": disk(900 * 10**9)}),
    (BOTTLEROCKET | {"kubelet": {"maxPods": 20}}, {"pods": 20, "memory": memory(11 * 20 + 255)}),
    (BOTTLEROCKET | {"kubelet": {"podsPerCore": 1}}, {"pods": PODS}),
    (BOTTLEROCKET | disks(volume("/dev/xvda", "4Gi"), volume("/dev/xvdb", "50Gi")), on_disk(50)),
    (CUSTOM | disks(volume("/dev/a", "4Gi"), volume("/dev/b", "50Gi")), on_disk(50)),
    (CUSTOM | {"kubelet": {"maxPods": 20}}, {"pods": 20, "memory": memory()}),
]


@pytest.mark.parametrize(("template", "expected"), TEMPLATES)
def test_what_is_left_for_pods(template: dict[str, Any], expected: dict[str, int]) -> None:
    machine = sized(template)
    assert {name: machine.allocatable[name] for name in expected} == expected
    assert all(machine.capacity[name] >= amount for name, amount in machine.allocatable.items())


@pytest.mark.parametrize(
    "template",
    [
        {},
        {"userData": "x"},
        {"kubelet": {"cpuCFSQuota": False}},
        {"blockDeviceMappings": [volume("/dev/xvda", "20Gi")]},
    ],
)
def test_a_pool_that_says_nothing_of_it_changes_nothing(template: dict[str, Any]) -> None:
    assert sized(template) is MACHINE


def test_unknown_hardware_stays_as_it_is() -> None:
    assert sized({"kubelet": {"maxPods": 1}}, None).capacity["pods"] == MACHINE.capacity["pods"]


def test_local_disks_that_are_not_there() -> None:
    machine = sized({"instanceStorePolicy": "RAID0"}, replace(HARDWARE, nvme_gb=0))
    assert machine.allocatable["ephemeral-storage"] == disk(20 * GIB)
