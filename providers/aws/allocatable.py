"""What the kubelet will report as capacity and allocatable, before the machine exists.

The formulas are those of the EKS images, as Karpenter documents and computes them
(aws/karpenter-provider-aws `pkg/providers/instancetype/types.go`): integer MiB and milli-CPU throughout.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from model.labels import EFA_RESOURCE, GPU_RESOURCE
from model.quantity import Resources, canonical_amount
from providers.aws.facts import TypeFacts

MIB = 1024**2
GIB = 1024**3

AMD_GPU_RESOURCE = "amd.com/gpu"
GAUDI_RESOURCE = "habana.ai/gaudi"
NEURON_RESOURCE = "aws.amazon.com/neuron"
NEURON_CORE_RESOURCE = "aws.amazon.com/neuroncore"
POD_ENI_RESOURCE = "vpc.amazonaws.com/pod-eni"

_GPU_RESOURCES = {"nvidia": GPU_RESOURCE, "amd": AMD_GPU_RESOURCE, "habana": GAUDI_RESOURCE}
_DEFAULT_PODS = 110
_CPU_TIERS = ((1000, 600), (1000, 100), (2000, 50), (None, 25))
"""(width of the tier in milli-CPU, reserved share in 1/10,000): 6 % of core 1, 1 % of core 2, 0.5 % of 3-4, 0.25 %."""


@dataclass(frozen=True, slots=True)
class FamilyRules:
    """How the images of one family differ."""

    eni_limited_pods: bool
    """Pods are limited by addresses; otherwise 110."""
    reserves_for_eni_pods: bool
    """Memory is reserved for all pods the addresses allow, even where fewer may run."""
    pods_per_core: bool


class ImageFamily(StrEnum):
    """Families of EKS node images; Muster boots AL2023."""

    AL2 = "AL2"
    AL2023 = "AL2023"
    BOTTLEROCKET = "Bottlerocket"
    WINDOWS = "Windows"


_AMAZON_LINUX = FamilyRules(eni_limited_pods=True, reserves_for_eni_pods=True, pods_per_core=True)
_RULES = {
    ImageFamily.AL2: _AMAZON_LINUX,
    ImageFamily.AL2023: _AMAZON_LINUX,
    ImageFamily.BOTTLEROCKET: FamilyRules(eni_limited_pods=True, reserves_for_eni_pods=False, pods_per_core=False),
    ImageFamily.WINDOWS: FamilyRules(eni_limited_pods=False, reserves_for_eni_pods=False, pods_per_core=True),
}


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What about a node is not a fact of its hardware. The defaults are those of Karpenter and the AL2023 image."""

    family: ImageFamily = ImageFamily.AL2023
    vm_memory_overhead: float = 0.075
    """Share of the memory that the hypervisor keeps; the highest seen on any type."""
    reserved_enis: int = 0
    """Interfaces of the default card that pods do not get (custom networking)."""
    max_pods: int | None = None
    pods_per_core: int = 0
    """0 = no such limit."""
    eviction_memory: str = "100Mi"
    """`memory.available` of the hard eviction: a quantity or a percentage; 100 % switches it off."""
    eviction_disk: str = "10%"
    root_volume_gib: int = 20
    pod_eni: bool = False
    """Whether the VPC CNI runs with ENABLE_POD_ENI, so that nodes get `vpc.amazonaws.com/pod-eni`."""


AL2023 = NodeSettings()


def capacity(facts: TypeFacts, settings: NodeSettings = AL2023) -> dict[str, int]:
    """Canonical amounts of everything the node has, before anything is reserved."""
    return {
        "cpu": facts.vcpu * 1000,
        "memory": memory_mib(facts, settings) * MIB,
        "ephemeral-storage": settings.root_volume_gib * GIB,
        "pods": pods(facts, settings),
        **dict(_devices(facts, settings)),
    }


def allocatable(facts: TypeFacts, settings: NodeSettings = AL2023) -> dict[str, int]:
    """Canonical amounts that pods may request: capacity less kube-reserved less hard eviction."""
    whole = capacity(facts, settings)
    reserved = kube_reserved(facts, settings)
    eviction = {
        "memory": eviction_threshold(settings.eviction_memory, whole["memory"]),
        "ephemeral-storage": eviction_threshold(settings.eviction_disk, whole["ephemeral-storage"]),
    }
    return {
        name: max(0, amount - reserved.get(name, 0) - eviction.get(name, 0)) if name in reserved else amount
        for name, amount in whole.items()
    }


def memory_mib(facts: TypeFacts, settings: NodeSettings = AL2023) -> int:
    """Memory that the operating system sees. Graviton keeps 64 MiB of contiguous memory for itself."""
    size_mib = facts.memory_mib - (64 if facts.arch == "arm64" else 0)
    return size_mib - ceil(size_mib * settings.vm_memory_overhead)


def eni_limited_pods(facts: TypeFacts, reserved_enis: int = 0) -> int:
    """Pods that the addresses of the default network card allow, plus two on the host network (`eni-max-pods.txt`)."""
    usable = max(0, facts.enis - reserved_enis)
    return usable * (facts.ipv4_per_eni - 1) + 2 if usable else 0


def pods(facts: TypeFacts, settings: NodeSettings = AL2023) -> int:
    """Pods the kubelet accepts."""
    rules = _RULES[settings.family]
    if settings.max_pods is not None:
        count = settings.max_pods
    else:
        count = eni_limited_pods(facts, settings.reserved_enis) if rules.eni_limited_pods else _DEFAULT_PODS
    if settings.pods_per_core and rules.pods_per_core:
        count = min(count, settings.pods_per_core * facts.vcpu)
    return count


def kube_reserved(facts: TypeFacts, settings: NodeSettings = AL2023) -> Resources:
    """What the node's own daemons get: CPU by tiers, 11 MiB a pod + 255 MiB, 1 GiB of disk.

    The families that reserve for all addresses do so as if no interface were reserved.
    """
    rules = _RULES[settings.family]
    count = eni_limited_pods(facts) if rules.reserves_for_eni_pods else pods(facts, settings)
    return {
        "cpu": _reserved_milli_cpu(facts.vcpu * 1000),
        "memory": (11 * count + 255) * MIB,
        "ephemeral-storage": GIB,
    }


def _reserved_milli_cpu(milli_cpu: int) -> int:
    reserved = 0
    for width, share in _CPU_TIERS:
        inside = milli_cpu if width is None else min(milli_cpu, width)
        reserved += inside * share // 10_000
        milli_cpu -= inside
    return reserved


def eviction_threshold(signal: str, capacity_bytes: int) -> int:
    """Bytes the kubelet defends: a quantity, or a percentage of the capacity rounded up; 100 % means none."""
    if not signal.endswith("%"):
        return canonical_amount("memory", signal)
    percent = float(signal.removesuffix("%"))
    return 0 if percent == 100 else ceil(capacity_bytes / 100 * percent)


def _devices(facts: TypeFacts, settings: NodeSettings) -> Iterator[tuple[str, int]]:
    """Extended resources; a fraction of a GPU counts as none, since no device plugin reports it as a whole one."""
    for gpu in facts.gpus:
        if gpu.count and gpu.manufacturer in _GPU_RESOURCES:
            yield _GPU_RESOURCES[gpu.manufacturer], gpu.count
    if facts.neuron is not None:
        yield NEURON_RESOURCE, facts.neuron.devices
        yield NEURON_CORE_RESOURCE, facts.neuron.devices * facts.neuron.cores_per_device
    if facts.efa:
        yield EFA_RESOURCE, facts.efa
    if settings.pod_eni and facts.branch_enis:
        yield POD_ENI_RESOURCE, facts.branch_enis
