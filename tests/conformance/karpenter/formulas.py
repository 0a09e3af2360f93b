"""`instance-capacity`: pods, kube-reserved and eviction of an instance type; and all documented types at once."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.quantity import canonical_resources
from providers.aws import allocatable as formulas
from providers.aws import node_sizes
from providers.aws.allocatable import POD_ENI_RESOURCE, ClusterSettings, hardware
from providers.aws.ami_families import AMI_FAMILIES, KubeletRules
from providers.aws.facts import GpuFacts, Neuron, TypeFacts
from providers.aws.node_sizes import GIB, MIB, NodeSettings
from tests.conformance.cases import Case

_SAMPLE_BYTES = 64 * GIB
Given = Mapping[str, Any]


def run(case: Case) -> dict[str, Any]:
    """Whatever the formulas make of what is given."""
    given = case["given"]
    if "see" in given:
        return _documented(_beside(case["folder"], given["see"]))
    if "eviction_hard_memory" in given:
        return {"threshold": _threshold(given)}
    machine, settings = hardware(_facts(given), _cluster(given)), _settings(given)
    count, reserved = node_sizes.pods(machine, settings), node_sizes.kube_reserved(machine, settings)
    memory_mib = reserved["memory"] // MIB
    return {
        "pods": count,
        "pods_at_least": count,
        "kube_reserved": {
            "cpu_m": reserved["cpu"],
            "memory_mib": memory_mib,
            "ephemeral_gib": reserved["ephemeral-storage"] // GIB,
        },
        "kube_reserved_cpu_m": reserved["cpu"],
        "kube_reserved_memory_mib": memory_mib,
    }


def _beside(folder: Path, named: str) -> Path:
    """The file named, relative to the cases or to a folder they are in."""
    found = (each / named for each in (folder, *folder.parents))
    return next((path.resolve() for path in found if path.exists()), folder / named)


def _facts(given: Given) -> TypeFacts:
    """A type with the addresses given, or such that it allows the pods given; else those of a t3.large."""
    enis, ipv4 = given.get("enis", 3), given.get("ipv4_per_eni", 12)
    if "eni_pods" in given and "instance" not in given:
        enis, ipv4 = 1, given["eni_pods"] - 1
    return TypeFacts("t3.large", given.get("vcpu", 2), given.get("memory_mib", 8192), "amd64", enis, ipv4)


def _cluster(given: Given) -> ClusterSettings:
    return ClusterSettings(reserved_enis=given.get("reserved_enis", 0) + given.get("efa_only_on_card0", 0))


def _settings(given: Given) -> NodeSettings:
    return NodeSettings(
        _rules(given.get("ami_family", "AL2023")),
        max_pods=given.get("max_pods"),
        pods_per_core=given.get("pods_per_core", 0),
    )


_WINDOWS = KubeletRules(eni_limited_pods=False, reserves_for_eni_pods=False)
"""No pool can have these machines; the formulas know them all the same."""


def _rules(name: str) -> KubeletRules:
    """`Windows2022` and its like are one family; `Custom` reserves as Amazon Linux does."""
    if name.upper().startswith("WINDOWS"):
        return _WINDOWS
    found = (family for family in AMI_FAMILIES if name.upper().startswith(family.upper()))
    return AMI_FAMILIES[max(found, key=len, default="AL2023")].kubelet


def _threshold(given: Given) -> str:
    """What is kept free, in the words of the case: judged on two sizes, so that a share is told from an amount."""
    signal = given["eviction_hard_memory"] or NodeSettings().eviction_memory
    kept, twice = (node_sizes.eviction_threshold(signal, size) for size in (_SAMPLE_BYTES, 2 * _SAMPLE_BYTES))
    if kept == twice:
        return f"{kept // MIB}Mi" if kept else "0"
    return f"{round(100 * kept / _SAMPLE_BYTES)}% of capacity"


def _documented(path: Path) -> dict[str, Any]:
    entries = json.loads(path.read_text("utf-8"))["instance_types"]
    exact = sum(formulas.allocatable(_type(name, each)) == _listed(each) for name, each in entries.items())
    return {"types": len(entries), "exact": exact, "note": f"formula reproduces {exact} exactly"}


def _type(name: str, entry: Given) -> TypeFacts:
    documented, neuron = entry["allocatable"], None
    named = (("nvidia", "nvidia.com/gpu"), ("amd", "amd.com/gpu"))
    gpus = tuple(GpuFacts("any", maker, int(documented[each]), 1024) for maker, each in named if each in documented)
    if devices := int(documented.get("aws.amazon.com/neuron", 0)):
        neuron = Neuron("any", devices, int(documented["aws.amazon.com/neuroncore"]) // devices)
    return TypeFacts(
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


def _listed(entry: Given) -> dict[str, int]:
    """All but branch interfaces, which are off unless the CNI is told to."""
    return {name: each for name, each in canonical_resources(entry["allocatable"]).items() if name != POD_ENI_RESOURCE}
