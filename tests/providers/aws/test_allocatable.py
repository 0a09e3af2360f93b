import json
from typing import get_args

import pytest

from model.kinds.aws import FAMILY_OF_ALIAS, AmiFamily
from model.quantity import canonical_resources
from providers.aws import allocatable as formulas
from providers.aws import node_sizes
from providers.aws.allocatable import ClusterSettings, hardware
from providers.aws.ami_families import AMI_FAMILIES, KubeletRules
from providers.aws.facts import GpuFacts, Neuron, TypeFacts, package_types
from providers.aws.node_sizes import GIB, MIB, NodeSettings
from tests.support.shared import shared_path

WINDOWS = KubeletRules(eni_limited_pods=False, reserves_for_eni_pods=False)
"""No pool can have these machines; the formulas know them all the same."""
RULES = {name.upper(): traits.kubelet for name, traits in AMI_FAMILIES.items()} | {"WINDOWS": WINDOWS}
POD_ENI = formulas.POD_ENI_RESOURCE
OUTLIERS = {"i7ie.48xlarge", "i7ie.metal-48xl", "i8ge.48xlarge", "i8ge.metal-48xl"}
"""The documentation counts the interfaces of two network cards, the published limits those of one."""


def _oracle():
    return json.loads(shared_path("data/karpenter_doc_allocatable.json").read_text())["instance_types"]


def _documented_devices(entry):
    documented = entry["allocatable"]
    gpus = []
    for manufacturer, resource in (("nvidia", "nvidia.com/gpu"), ("amd", "amd.com/gpu")):
        if resource in documented:
            gpus.append(GpuFacts("any", manufacturer, int(documented[resource]), 1024))
    neuron = None
    if devices := int(documented.get("aws.amazon.com/neuron", 0)):
        neuron = Neuron("any", devices, int(documented["aws.amazon.com/neuroncore"]) // devices)
    return tuple(gpus), neuron


def _documented(entry):
    """All but branch interfaces: they are a table, newer than the documentation, and off unless the CNI is told to."""
    return {name: amount for name, amount in canonical_resources(entry["allocatable"]).items() if name != POD_ENI}


def test_documented_allocatable_of_every_type_is_exact():
    exact, different = 0, set()
    for name, entry in _oracle().items():
        gpus, neuron = _documented_devices(entry)
        facts = TypeFacts(
            name,
            entry["vcpu"],
            entry["memory_mib"],
            entry["arch"],
            entry["default_card_enis"],
            entry["ipv4_per_eni"],
            efa=entry["efa_max"] or 0,
            gpus=gpus,
            neuron=neuron,
        )
        if formulas.allocatable(facts) == _documented(entry):
            exact += 1
        else:
            different.add(name)
    assert (exact, different) == (1359, OUTLIERS)


def test_package_data_reproduces_the_documented_allocatable():
    oracle, types = _oracle(), package_types()
    shared = set(oracle) & set(types)
    assert len(shared) == 1363
    different = {name for name in shared if formulas.allocatable(types[name]) != _documented(oracle[name])}
    assert different == OUTLIERS


def test_branch_interfaces_where_documented():
    oracle, types = _oracle(), package_types()
    documented = {name: int(entry["allocatable"].get(POD_ENI, 0)) for name, entry in oracle.items()}
    assert sum(map(bool, documented.values())) > 1200
    for name in filter(documented.get, documented):
        assert formulas.allocatable(types[name], ClusterSettings(pod_eni=True))[POD_ENI] == documented[name]


def _facts(enis=3, ipv4=12, vcpu=2, memory_mib=8192):
    return TypeFacts("t3.large", vcpu, memory_mib, "amd64", enis, ipv4)


def _suite():
    cases = json.loads(shared_path("conformance/karpenter/capacity.json").read_text())["cases"]
    return {case["id"]: case for case in cases}


def _check_pods(given, expect):
    settings = NodeSettings(max_pods=given.get("max_pods"), pods_per_core=given.get("pods_per_core", 0))
    facts = _facts(given.get("enis", 3), given.get("ipv4_per_eni", 12), given.get("vcpu", 2))
    got = node_sizes.pods(hardware(facts, ClusterSettings(reserved_enis=given.get("reserved_enis", 0))), settings)
    if "pods_at_least" in expect:
        assert got >= expect["pods_at_least"]
    else:
        assert got == expect["pods"]


def _check_reserved_cpu(given, expect):
    reserved = node_sizes.kube_reserved(hardware(_facts(vcpu=given["vcpu"])), NodeSettings())
    assert reserved["cpu"] == expect["kube_reserved_cpu_m"]


def _check_family(given, expect):
    rules = RULES[given["ami_family"].upper()]
    settings = NodeSettings(rules, max_pods=given.get("max_pods"))
    machine = hardware(_facts(), ClusterSettings(reserved_enis=given.get("reserved_enis", 0)))
    assert node_sizes.pods(machine, settings) == expect["pods"]
    assert node_sizes.kube_reserved(machine, settings)["memory"] == expect["kube_reserved_memory_mib"] * MIB


def _check_m5_xlarge(given, expect):
    facts = _facts(enis=4, ipv4=15, vcpu=given["vcpu"])
    assert node_sizes.eni_limited_pods(hardware(facts)) == given["eni_pods"]
    wanted = expect["kube_reserved"]
    assert node_sizes.kube_reserved(hardware(facts), NodeSettings()) == {
        "cpu": wanted["cpu_m"],
        "memory": wanted["memory_mib"] * MIB,
        "ephemeral-storage": wanted["ephemeral_gib"] * GIB,
    }


def _check_eviction(given, expect):
    signal = given["eviction_hard_memory"] or NodeSettings().eviction_memory
    threshold = expect["threshold"]
    if threshold.endswith("% of capacity"):
        percent = int(threshold.split("%")[0])
        assert node_sizes.eviction_threshold(signal, 1_000_001) == -(-1_000_001 * percent // 100)
    else:
        assert node_sizes.eviction_threshold(signal, 64 * GIB) == int(threshold.removesuffix("Mi")) * MIB


CHECKS = {
    "pods-": _check_pods,
    "kube-reserved-cpu-": _check_reserved_cpu,
    "kube-reserved-m5": _check_m5_xlarge,
    "maxpods10-": _check_family,
    "reserved1-": _check_family,
    "eviction-memory-": _check_eviction,
}


def test_capacity_suite():
    checked = 0
    for name, case in _suite().items():
        if name == "allocatable-oracle":
            continue
        check = next(check for prefix, check in CHECKS.items() if name.startswith(prefix))
        check(case["given"], case["expect"])
        checked += 1
    assert checked >= 20


def test_eviction_of_100_percent_is_off():
    assert node_sizes.eviction_threshold("100%", 10**12) == 0


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_nothing_is_ever_negative(rules):
    tiny = TypeFacts("t1.micro", 1, 256, "arm64", 1, 2)
    assert all(
        amount >= 0 for amount in formulas.allocatable(tiny, settings=NodeSettings(rules, max_pods=400)).values()
    )


def test_windows_does_not_count_addresses():
    assert node_sizes.pods(hardware(_facts()), NodeSettings(WINDOWS)) == 110


def test_a_fraction_of_a_gpu_is_no_gpu():
    types = package_types()
    assert "nvidia.com/gpu" not in formulas.allocatable(types["g6f.large"])
    assert formulas.allocatable(types["g6.xlarge"])["nvidia.com/gpu"] == 1
    assert formulas.allocatable(types["g4ad.xlarge"])["amd.com/gpu"] == 1
    assert formulas.allocatable(types["trn1.32xlarge"])["aws.amazon.com/neuroncore"] == 32


def test_every_family_has_its_entry():
    assert set(AMI_FAMILIES) == set(get_args(AmiFamily))
    assert set(FAMILY_OF_ALIAS.values()) == {name for name, traits in AMI_FAMILIES.items() if traits.parameter}
