"""Claims of all devices are counted by the machines that the pods may get, or refused by name."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.placement.all_devices import under_fleet
from fleet.snapshot import Job, PodSet, Snapshot
from fleet.snapshot.constraints import PodConstraints
from fleet.snapshot.devices import ClusterDevices, DeviceAsk, DeviceClaim, RequestedDevices
from model.fleet import Fleet
from model.kinds import Toleration
from providers.aws.catalog import package_catalog
from tests.fleet.placement.test_device_allocator import MARKED, OF_DRIVER
from tests.support.fleets import NOW, FleetBuilder, foreign_pod, gang, job_of, plain_node

CATALOG = package_catalog("us-east-1").catalog
GPU, TYPE = "nvidia.com/gpu", "node.kubernetes.io/instance-type"
SELECTORS = (OF_DRIVER, "device.attributes['gpu.nvidia.com'].type == 'gpu'")


def claims(*selectors: str, every: bool = True, **more: Any) -> tuple[DeviceClaim, ...]:
    ask = DeviceAsk("g", "gpu.nvidia.com", (*SELECTORS, *selectors), 0 if every else 1, GPU, every=every)
    return (DeviceClaim("c", (RequestedDevices("g", (ask,)),), **more),)


def fleet(*flavors: str, **spec: Any) -> Fleet:
    """A pool of machines with four GPUs or eight, and one with eight; both serve pods."""
    made = FleetBuilder()
    for name, types in (("mixed", ["g6.12xlarge", "g6.48xlarge"]), ("big", ["p5.48xlarge"])):
        made = made.pool(name, instanceTypes=types, sharing={"dra": {}}, serves=["Gangs", "Pods"], **spec)
    return made.team(quotas={"mixed": {GPU: 16}, "big": {GPU: 16}}).queue(flavors=flavors).build()


def asked(found: Fleet, pods: PodSet, **more: Any) -> PodSet:
    job = job_of(gang("g", pods))
    snapshot = Snapshot(NOW, jobs={job.ref.uid: job}, catalog=CATALOG, **more)
    return under_fleet(found, snapshot).jobs[job.ref.uid].pod_sets[0]


def pods(devices: tuple[DeviceClaim, ...], **more: Any) -> PodSet:
    return PodSet("main", 2, {"cpu": 1000}, namespace="ns", constraints=PodConstraints(devices=devices), **more)


@pytest.mark.parametrize(
    ("flavors", "it", "gpus"),
    [
        (("big",), pods(claims()), 8),
        (("mixed",), pods(claims(), node_selector={TYPE: "g6.12xlarge"}), 4),
        (("mixed", "big"), pods(claims(), node_selector={TYPE: "p5.48xlarge"}), 8),
        (("mixed", "big"), pods(claims("device.attributes['gpu.nvidia.com'].uuid < 'GPU-2'")), 2),
        (("big",), replace(pods((*claims(), *claims(every=False))), requests={"cpu": 1000, GPU: 1}), 9),
    ],
)
def test_all_are_as_many_as_every_machine_has(flavors: tuple[str, ...], it: PodSet, gpus: int) -> None:
    found = asked(fleet(*flavors), it)
    assert (found.requests, found.unsupported) == ({"cpu": 1000, GPU: gpus}, ())
    assert [ask.count for ask in found.constraints.devices[0].requests[0].asks] == [gpus if gpus < 9 else 8]


def test_machines_that_differ_are_named() -> None:
    found = asked(fleet("mixed", "big"), pods(claims(shared="all-of-it")))
    [told] = found.unsupported
    assert told.path == "spec.resourceClaims: request g of claim all-of-it, allocationMode"
    assert "4 or 8 of them" in told.words
    assert found.requests == {"cpu": 1000}


@pytest.mark.parametrize(("tolerations", "gpus"), [((), 1), ((Toleration(operator="Exists"),), 8)])
def test_where_nothing_can_be_bought_the_machines_that_stand_count(
    tolerations: tuple[Toleration, ...], gpus: int
) -> None:
    """Two of its GPUs have taints: who does not bear them can be given all of none."""
    standing = {"nodes": {"n1": plain_node("n1", {"cpu": 9000})}, "devices": ClusterDevices({"n1": MARKED})}
    nothing = FleetBuilder().pool("h100").team().queue().build()
    [claim] = claims()
    [ask] = claim.requests[0].asks
    bearing = claim._replace(requests=(RequestedDevices("g", (replace(ask, tolerations=tolerations),)),))
    assert asked(nothing, pods((bearing,)), **standing).requests == {"cpu": 1000, GPU: gpus}


def test_ordinary_pods_are_counted_by_the_pools_that_serve_them() -> None:
    shape = pods(claims(), node_selector={TYPE: "p5.48xlarge"})
    waiting = {"ns/p": replace(foreign_pod("p", ""), shape=shape)}
    snapshot = Snapshot(NOW, waiting_pods=waiting, catalog=CATALOG)
    [found] = under_fleet(fleet("big"), snapshot).waiting_pods.values()
    assert found.requests[GPU] == 8


def test_the_same_is_the_same_object() -> None:
    it, made = fleet("big"), job_of(gang("g", pods(claims())))
    snapshot = Snapshot(NOW, jobs={"uid-g": made}, catalog=CATALOG)
    first = under_fleet(it, snapshot)
    assert under_fleet(it, replace(first, jobs=snapshot.jobs, now_s=NOW + 1)).jobs is first.jobs
    none: dict[str, Job] = {"uid-g": job_of(gang("g"))}
    assert under_fleet(it, replace(snapshot, jobs=none)).jobs is none
