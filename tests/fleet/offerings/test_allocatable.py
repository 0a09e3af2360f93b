"""What a pool's image, disks and kubelet leave of a machine."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from fleet.catalog import InstanceOffer, InstanceType
from fleet.offerings.allocatable import profiled
from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.offerings import Offerings
from fleet.snapshot import CapacityPool, Catalog, Claim, Snapshot
from model import labels
from model.index import Index
from model.kinds import NodeTemplate
from tests.support.fleets import M7, NOW, catalog, small_fleet
from tests.support.world import World

MACHINE = M7


class FewPods:
    """A cloud whose nodes take as many pods as their template says, and no more memory than 1000 bytes."""

    asked = 0

    def of(self, template: NodeTemplate) -> Callable[[InstanceType], InstanceType]:
        return partial(self._sized, template.kubelet.max_pods)

    def _sized(self, most: int | None, machine: InstanceType) -> InstanceType:
        self.asked += 1
        if most is None:
            return machine
        small = {"pods": most, "memory": 1000}
        return replace(machine, capacity=machine.capacity | small, allocatable=machine.allocatable | small)


def test_a_profile_is_asked_for_once() -> None:
    index, profiles = Index(), FewPods()
    plain, few = (small_fleet(template=said).node_pools["h100"] for said in ({}, {"kubelet": {"maxPods": 7}}))
    assert profiled(index, profiles, plain, MACHINE) is MACHINE
    found = profiled(index, profiles, few, MACHINE)
    assert (found.allocatable["pods"], found.capacity["memory"]) == (7, 1000)
    assert profiled(index, profiles, few, MACHINE) is found
    assert profiles.asked == 2


def test_a_catalogue_that_lists_all_there_is() -> None:
    pool = small_fleet(template={"kubelet": {"maxPods": 7}}).node_pools["h100"]
    assert profiled(Index(), Catalog().profiles, pool, MACHINE) is MACHINE


def test_purchases_count_with_it() -> None:
    spec = {"gpu": None, "instanceTypes": [M7.name], "template": {"kubelet": {"maxPods": 7}}}
    fleet = small_fleet(**spec)
    sold = replace(catalog([InstanceOffer(MACHINE, "us-east-1a", "on-demand", 1.0)]), profiles=FewPods())
    [offering] = Offerings(fleet, sold).of(fleet.node_pools["h100"])
    assert offering.allocatable["pods"] == 7
    assert offering.offer.instance_type.capacity["pods"] == 7


class Greedy:
    """A cloud where the kubelets of a template that says so keep all memory for themselves."""

    def of(self, template: NodeTemplate) -> Callable[[InstanceType], InstanceType]:
        kept = {"memory": 0} if template.kubelet.kube_reserved else {}
        return lambda machine: replace(machine, allocatable=machine.allocatable | kept)


@pytest.mark.parametrize(("reserved", "offers"), [({}, 1), ({"memory": "900Gi"}, 0)])
def test_a_machine_whose_kubelet_keeps_everything_is_not_bought(reserved: dict[str, str], offers: int) -> None:
    """Such a kubelet does not start: the machine would be paid for, and given up."""
    spec = {"gpu": None, "instanceTypes": [M7.name], "template": {"kubelet": {"kubeReserved": reserved}}}
    fleet = small_fleet(**spec)
    sold = replace(catalog([InstanceOffer(MACHINE, "us-east-1a", "on-demand", 1.0)]), profiles=Greedy())
    assert len(Offerings(fleet, sold).of(fleet.node_pools["h100"])) == offers


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
    sold = Catalog(types={MACHINE.name: MACHINE}, profiles=FewPods())
    known = Snapshot(NOW, claims={claim.name: claim}, catalog=sold)
    assert PoolHeadroom.of(known, pool).resources == {"pods": 14}
    unknown = Snapshot(NOW, claims={claim.name: claim})
    assert PoolHeadroom.of(unknown, pool).resources == {"pods": 21 - claim.resources["pods"]}


def machine_claim() -> Claim:
    world = World(small_fleet())
    world.machine("m0")
    return world.claims["m0"]
