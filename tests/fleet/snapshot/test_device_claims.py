"""Claims are joined with their templates and classes, and counted; slices and allocations with nodes and pods."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from fleet.snapshot import Node, PodSet
from fleet.snapshot.constraints import UnsupportedConstraint
from fleet.snapshot.device_claims import (
    AllocatedClaim,
    ClaimableDevices,
    ClaimTemplate,
    DeviceClass,
    PublishedDevices,
    cluster_devices,
    held_by_pods,
    nodes_with_devices,
    pods_with_claims,
    without_undecided,
)
from fleet.snapshot.devices import AllocatedDevice, Device, DeviceAsk, DeviceTaintRule, RequestedDevices
from fleet.snapshot.gangs import ClaimRef, Slice
from model.index import Index
from model.kinds import Taint

G = "gpu.nvidia.com"
CLIQUE = "nvidia.com/gpu.clique"
CLASSES = {
    G: DeviceClass(G, ("class-gpu",)),
    "mig.nvidia.com": DeviceClass("mig.nvidia.com", ("class-mig",)),
    "ours": DeviceClass("ours", (f"device.attributes['{G}'].type == 'mig' && x.profile == '2g.20gb'",)),
    "named": DeviceClass("named", (), "nvidia.com/mig-3g.40gb"),
    "vfio": DeviceClass("vfio", ("device.attributes['g'].type == 'vfio'",)),
    "compute-domain-default-channel.nvidia.com": DeviceClass("compute-domain-default-channel.nvidia.com"),
    "broken": DeviceClass("broken", (), "", "cannot be read"),
}


def ask(device_class: str = G, *selectors: str, name: str = "r", count: int = 1) -> DeviceAsk:
    return DeviceAsk(name, device_class, selectors, count)


def channel(name: str = "r") -> DeviceAsk:
    return ask("compute-domain-default-channel.nvidia.com", name=name)


def joined(*asks: DeviceAsk, known: bool = True, **more: UnsupportedConstraint) -> PodSet:
    template = ClaimTemplate("n", "t", (RequestedDevices("r", asks),), unsupported=tuple(more.values()))
    pods = PodSet(
        "main", 2, {"cpu": 1000}, namespace="n", resource_claims=(ClaimRef("spec.resourceClaims[0]", "c", "t"),)
    )
    return pods_with_claims(pods, ClaimableDevices({template.key: template} if known else {}, CLASSES))


@pytest.mark.parametrize(
    ("asks", "counted"),
    [
        ((ask(count=3),), {"nvidia.com/gpu": 3}),
        ((ask("mig.nvidia.com", "a.profile == '1g.10gb+me'"),), {"nvidia.com/mig-1g.10gb.me": 1}),
        ((ask("ours"),), {"nvidia.com/mig-2g.20gb": 1}),
        ((ask("named", count=2),), {"nvidia.com/mig-3g.40gb": 2}),
        ((ask(name="r/a", count=1), ask(name="r/b", count=4)), {"nvidia.com/gpu": 4}),
        (
            (ask(name="r/a", count=2), ask("named", name="r/b", count=3), ask("ours", name="r/c")),
            {"nvidia.com/gpu": 2, "nvidia.com/mig-3g.40gb": 3, "nvidia.com/mig-2g.20gb": 1},
        ),
    ],
)
def test_devices_count_as_the_plugin_would_offer_them(asks: tuple[DeviceAsk, ...], counted: dict[str, int]) -> None:
    pods = joined(*asks)
    assert pods.requests == {"cpu": 1000, **counted}
    assert pods.unsupported == ()
    [claim] = pods.constraints.devices
    assert claim.requests[0].asks[0].selectors[: len(CLASSES[asks[0].device_class].selectors)] == (
        CLASSES[asks[0].device_class].selectors
    )


@pytest.mark.parametrize(
    ("asks", "where", "words"),
    [
        ((ask("mig.nvidia.com"),), ".exactly", "names none"),
        ((ask("mig.nvidia.com", "profile == '1g.10gb' || profile == '2g.20gb'"),), ".exactly", "names several"),
        ((ask("vfio"),), ".exactly", "no pool offers devices of class vfio"),
        ((ask("nobody"),), ".exactly.deviceClassName", "there is no DeviceClass nobody"),
        ((ask("broken"),), ".exactly.deviceClassName", "cannot be read"),
    ],
)
def test_what_cannot_be_counted_is_refused_with_its_path(asks: tuple[DeviceAsk, ...], where: str, words: str) -> None:
    pods = joined(*asks)
    [told] = pods.unsupported
    path = "spec.resourceClaims[0]: ResourceClaimTemplate t spec.spec.devices.requests[0]"
    assert told.path == path + where
    assert words in told.words
    assert pods.constraints.devices == ()
    assert pods.requests == {"cpu": 1000}


@pytest.mark.parametrize(
    ("asks", "left"),
    [
        ((ask(name="r/a", count=1), ask(name="r/b", count=4)), {"cpu": 1000, "nvidia.com/gpu": 4}),
        ((ask(name="r/a", count=2), ask("named", name="r/b")), {"cpu": 1000}),
        ((ask(name="r/a"), channel("r/b")), {"cpu": 1000}),
        ((replace(ask(count=2), capacity=(("memory", Fraction(1)),)),), {"cpu": 1000}),
    ],
)
def test_machines_are_judged_without_what_alternatives_of_several_resources_and_parts_of_devices_count_as(
    asks: tuple[DeviceAsk, ...], left: dict[str, int]
) -> None:
    pods = joined(*asks)
    assert without_undecided(pods).requests == left
    both = replace(pods, requests={**pods.requests, "nvidia.com/gpu": pods.requests["nvidia.com/gpu"] + 1})
    assert without_undecided(both).requests["nvidia.com/gpu"] == left.get("nvidia.com/gpu", 0) + 1


def test_a_template_that_is_not_there_or_not_honoured_refuses_the_pods() -> None:
    [told] = joined(ask(), known=False).unsupported
    assert told.path == "spec.resourceClaims[0].resourceClaimTemplateName"
    [told] = joined(ask(), it=UnsupportedConstraint("spec.x", "no")).unsupported
    assert told.path.endswith("ResourceClaimTemplate t spec.x")


@pytest.mark.parametrize(
    ("said", "required"),
    [
        ({}, CLIQUE),
        ({"required_topology": "topology.kubernetes.io/zone"}, CLIQUE),
        ({"required_topology": "kubernetes.io/hostname"}, "kubernetes.io/hostname"),
        ({"slices": (Slice(CLIQUE, 4),)}, ""),
        ({"preferred_topology": CLIQUE}, ""),
    ],
)
def test_pods_with_channels_have_to_be_of_one_nvlink_domain(said: dict[str, Any], required: str) -> None:
    template = ClaimTemplate("n", "t", (RequestedDevices("r", (channel(),)),))
    refs = (ClaimRef("spec.resourceClaims[0]", "c", "t"),)
    pods = PodSet("main", 8, {"cpu": 1000}, namespace="n", resource_claims=refs, **said)
    found = pods_with_claims(pods, ClaimableDevices({template.key: template}, CLASSES))
    assert (found.required_topology, found.requests, found.unsupported) == (required, {"cpu": 1000}, ())


def test_pods_that_claim_and_name_gpus_are_refused() -> None:
    template = ClaimTemplate("n", "t", (RequestedDevices("r", (channel(),)),))
    refs = (ClaimRef("spec.resourceClaims[0]", "c", "t"),)
    pods = PodSet("main", 8, {"nvidia.com/gpu": 4}, namespace="n", resource_claims=refs)
    [told] = pods_with_claims(pods, ClaimableDevices({template.key: template}, CLASSES)).unsupported
    assert told.path == "spec.containers[*].resources"


def slice_of(name: str, *devices: str, node: str = "n1", generation: int = 1, slices: int = 1) -> PublishedDevices:
    made = tuple(Device(G, node, it, {f"{G}/type": "gpu"}) for it in devices)
    return PublishedDevices(name, node, G, node, generation, slices, made)


def node(name: str, dra: str = "true") -> Node:
    labels = {"nvidia.com/dra-kubelet-plugin": dra}
    return Node(name, name, "", labels, (), {"cpu": 4000}, ready=True, unschedulable=False, created_at_s=0.0)


def test_slices_are_devices_of_nodes_once_their_pool_is_complete() -> None:
    slices = {it.name: it for it in (slice_of("b", "gpu-1", slices=2), slice_of("a", "gpu-0", slices=2))}
    found = cluster_devices(Index(), slices, {})
    assert [it.name for it in found.machines["n1"].devices] == ["gpu-0", "gpu-1"]
    assert cluster_devices(Index(), {"a": slices["a"]}, {}).machines == {}
    newer = {**slices, "c": slice_of("c", "gpu-9", generation=2)}
    assert [it.name for it in cluster_devices(Index(), newer, {}).machines["n1"].devices] == ["gpu-9"]


def test_nodes_of_the_driver_offer_their_devices_and_pods_have_theirs() -> None:
    broken = Device(G, "n1", "gpu-2", {f"{G}/type": "gpu"}, taints=(Taint(key="xid", effect="NoExecute"),))
    first = slice_of("a", "gpu-0", "gpu-1")
    index, slices = (
        Index(),
        {"a": first._replace(devices=(*first.devices, broken)), "b": slice_of("b", "gpu-0", node="n2")},
    )
    claims = {
        "n/x": AllocatedClaim("n", "x", "pod", (AllocatedDevice((G, "n1", "gpu-1")),)),
        "n/y": AllocatedClaim("n", "y"),
    }
    devices = cluster_devices(index, slices, claims)
    nodes = {"n1": node("n1"), "n2": node("n2", dra="false"), "n3": node("n3")}
    found = nodes_with_devices(index, nodes, devices)
    assert found["n1"].allocatable == {"cpu": 4000, "nvidia.com/gpu": 2}
    assert (found["n2"], found["n3"]) == (nodes["n2"], nodes["n3"])
    assert devices.machines["n1"].tainted == {"nvidia.com/gpu": 1}
    assert held_by_pods(index, devices) == {"n/pod": {"nvidia.com/gpu": 1}}
    [allocation] = devices.allocated["n1"]
    assert (allocation.claim, allocation.pod) == ("n/x", "n/pod")


def test_of_pods_with_parts_of_one_device_each_has_one() -> None:
    half = AllocatedDevice((G, "n1", "gpu-0"), {f"{G}/memory": Fraction(1)})
    claims = {f"n/{it}": AllocatedClaim("n", it, f"pod-{it}", (half,)) for it in ("x", "y")}
    devices = cluster_devices(Index(), {"a": slice_of("a", "gpu-0")}, claims)
    assert held_by_pods(Index(), devices) == {"n/pod-x": {"nvidia.com/gpu": 1}, "n/pod-y": {"nvidia.com/gpu": 1}}


@pytest.mark.parametrize(
    ("about", "ruled"),
    [
        ({}, ["gpu-0", "gpu-1", "gpu-0"]),
        ({"driver": G}, ["gpu-0", "gpu-1", "gpu-0"]),
        ({"driver": "other"}, []),
        ({"pool": "n2"}, ["gpu-0"]),
        ({"pool": "n1", "device": "gpu-1"}, ["gpu-1"]),
        ({"device": "gpu-0"}, ["gpu-0", "gpu-0"]),
    ],
)
def test_a_rule_taints_the_devices_that_it_selects_and_they_count_all_the_same(
    about: dict[str, str], ruled: list[str]
) -> None:
    slices = {"a": slice_of("a", "gpu-0", "gpu-1"), "b": slice_of("b", "gpu-0", node="n2")}
    given = Taint(key="drained", effect="NoSchedule")
    rules = {"r": DeviceTaintRule("r", given, **about), "told": DeviceTaintRule("told", None)}
    found = cluster_devices(Index(), slices, {}, rules)
    devices = [it for machine in found.machines.values() for it in machine.devices]
    assert [it.name for it in devices if it.ruled] == ruled
    assert all(it.repels == it.ruled == (given,) for it in devices if it.ruled)
    assert found.machines["n1"].amounts == {"nvidia.com/gpu": 2}
    assert found.rules == (rules["r"],)


def test_rules_are_the_same_object_until_one_of_those_that_repel_changes() -> None:
    """What can be bought is worked out anew by them."""
    index, slices = Index(), {"a": slice_of("a", "gpu-0")}
    rules = {"r": DeviceTaintRule("r", Taint(key="k", effect="NoExecute"))}
    first = cluster_devices(index, slices, {}, rules)
    again = cluster_devices(index, slices, {}, {**rules, "told": DeviceTaintRule("told", None)})
    assert again.rules is first.rules
    assert cluster_devices(Index(), {}, {}, rules).rules == first.rules
