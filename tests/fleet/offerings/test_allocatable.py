"""What a pool's image, disks and kubelet leave of a machine."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.offerings.allocatable import profiled
from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.node_sizes import GIB, MIB
from fleet.offerings.offerings import Offerings
from fleet.snapshot import CapacityPool, Catalog, Claim, Hardware, InstanceOffer, Snapshot
from model import labels
from model.index import Index
from tests.support.fleets import M7, NOW, catalog, small_fleet
from tests.support.world import World

HARDWARE = Hardware(vcpu=16, memory_mib=60_000, enis=8, ipv4_per_eni=30, nvme_gb=900)
MACHINE = replace(M7, hardware=HARDWARE, capacity={**M7.capacity, "a/b": 3}, allocatable={**M7.allocatable, "a/b": 3})
PODS = 8 * 29 + 2
KUBE_MIB = 11 * PODS + 255


def sized(template: dict[str, Any], hardware: Hardware | None = HARDWARE) -> Any:
    pool = small_fleet(template=template).node_pools["h100"]
    return profiled(Index(), pool, replace(MACHINE, hardware=hardware))


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
    pool = small_fleet(template=template).node_pools["h100"]
    assert profiled(Index(), pool, MACHINE) is MACHINE


def test_unknown_hardware_stays_as_it_is() -> None:
    assert sized({"kubelet": {"maxPods": 1}}, None).capacity["pods"] == MACHINE.capacity["pods"]


def test_local_disks_that_are_not_there() -> None:
    machine = sized({"instanceStorePolicy": "RAID0"}, replace(HARDWARE, nvme_gb=0))
    assert machine.allocatable["ephemeral-storage"] == disk(20 * GIB)


def test_purchases_count_with_it() -> None:
    spec = {"gpu": None, "instanceTypes": [M7.name], "template": {"kubelet": {"maxPods": 7}}}
    fleet = small_fleet(**spec)
    sold = catalog([InstanceOffer(MACHINE, "us-east-1a", "on-demand", 1.0)])
    [offering] = Offerings(fleet, sold).of(fleet.node_pools["h100"])
    assert offering.allocatable["pods"] == 7
    assert offering.offer.instance_type.capacity["pods"] == 7


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("terms", "types"),
    [
        ([term(labels.INSTANCE_GPU_NAME, "In", "a100")], {"p4d.24xlarge"}),
        ([term(labels.INSTANCE_GPU_COUNT, "Gt", "4")], {"p4d.24xlarge", "p5.48xlarge"}),
        ([term(labels.INSTANCE_GPU_NAME, "DoesNotExist")], {"m7i.4xlarge"}),
        ([term(labels.INSTANCE_GPU_NAME, "NotIn", "h100", "l4")], {"m7i.4xlarge", "p4d.24xlarge"}),
        ([term(labels.INSTANCE_GPU_COUNT, "Exists")], {"g6.12xlarge", "p4d.24xlarge", "p5.4xlarge", "p5.48xlarge"}),
        ([term(labels.INSTANCE_LOCAL_NVME, "Gt", "100")], set()),
    ],
)
def test_a_machine_without_gpus_has_no_gpu_of_any_name(terms: list[dict[str, Any]], types: set[str]) -> None:
    fleet = small_fleet(gpu=None, instanceTypes=[], requirements=terms)
    found = Offerings(fleet, catalog()).of(fleet.node_pools["h100"])
    assert {offering.offer.instance_type.name for offering in found} == types


def test_limits_count_what_the_pool_makes_of_a_machine() -> None:
    pool = small_fleet(template={"kubelet": {"maxPods": 7}}, limits={"resources": {"pods": 21}}).node_pools["h100"]
    claim = replace(machine_claim(), capacity_pool=CapacityPool("on-demand", MACHINE.name, "us-east-1a"))
    known = Snapshot(NOW, claims={claim.name: claim}, catalog=Catalog(types={MACHINE.name: MACHINE}))
    assert PoolHeadroom.of(known, pool).resources == {"pods": 14}
    unknown = Snapshot(NOW, claims={claim.name: claim})
    assert PoolHeadroom.of(unknown, pool).resources == {"pods": 21 - claim.resources["pods"]}


def machine_claim() -> Claim:
    world = World(small_fleet())
    world.machine("m0")
    return world.claims["m0"]
