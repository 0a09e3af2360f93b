"""What a node of an instance type has to offer: what `providers.aws.node_sizes` computes, and the type's devices."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from model.labels import FABRIC_RESOURCE, GPU_RESOURCE
from providers.aws import node_sizes
from providers.aws.facts import TypeFacts
from providers.aws.node_sizes import Hardware, NodeSettings

AMD_GPU_RESOURCE = "amd.com/gpu"
GAUDI_RESOURCE = "habana.ai/gaudi"
NEURON_RESOURCE = "aws.amazon.com/neuron"
NEURON_CORE_RESOURCE = "aws.amazon.com/neuroncore"
POD_ENI_RESOURCE = "vpc.amazonaws.com/pod-eni"

_GPU_RESOURCES = {"nvidia": GPU_RESOURCE, "amd": AMD_GPU_RESOURCE, "habana": GAUDI_RESOURCE}


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What holds for all machines of a cluster, whatever their pool. The defaults are Karpenter's."""

    vm_memory_overhead: float = 0.075
    """Share of the memory that the hypervisor keeps; the highest seen on any type."""
    reserved_enis: int = 0
    """Interfaces of the default card that pods do not get (custom networking)."""
    pod_eni: bool = False
    """Whether the VPC CNI runs with ENABLE_POD_ENI, so that nodes get `vpc.amazonaws.com/pod-eni`."""


USUAL = ClusterSettings()
_PLAIN = NodeSettings()


def hardware(facts: TypeFacts, cluster: ClusterSettings = USUAL) -> Hardware:
    """The facts that the size of a node follows from."""
    return Hardware(
        vcpu=facts.vcpu,
        memory_mib=memory_mib(facts, cluster),
        enis=facts.enis,
        ipv4_per_eni=facts.ipv4_per_eni,
        reserved_enis=cluster.reserved_enis,
        nvme_gb=facts.nvme_gb or 0,
    )


def capacity(facts: TypeFacts, cluster: ClusterSettings = USUAL, settings: NodeSettings = _PLAIN) -> dict[str, int]:
    """Canonical amounts of everything the node has, before anything is reserved."""
    return node_sizes.capacity(hardware(facts, cluster), settings) | dict(_devices(facts, cluster))


def allocatable(facts: TypeFacts, cluster: ClusterSettings = USUAL, settings: NodeSettings = _PLAIN) -> dict[str, int]:
    """Canonical amounts that pods may request."""
    return node_sizes.allocatable(hardware(facts, cluster), settings) | dict(_devices(facts, cluster))


def memory_mib(facts: TypeFacts, cluster: ClusterSettings = USUAL) -> int:
    """Memory that the operating system sees. Graviton keeps 64 MiB of contiguous memory for itself."""
    size_mib = facts.memory_mib - (64 if facts.arch == "arm64" else 0)
    return size_mib - ceil(size_mib * cluster.vm_memory_overhead)


def _devices(facts: TypeFacts, cluster: ClusterSettings) -> Iterator[tuple[str, int]]:
    """Extended resources; a fraction of a GPU counts as none, since no device plugin reports it as a whole one."""
    for gpu in facts.gpus:
        if gpu.count and gpu.manufacturer in _GPU_RESOURCES:
            yield _GPU_RESOURCES[gpu.manufacturer], gpu.count
    if facts.neuron is not None:
        yield NEURON_RESOURCE, facts.neuron.devices
        yield NEURON_CORE_RESOURCE, facts.neuron.devices * facts.neuron.cores_per_device
    if facts.efa:
        yield FABRIC_RESOURCE, facts.efa
    if cluster.pod_eni and facts.branch_enis:
        yield POD_ENI_RESOURCE, facts.branch_enis
