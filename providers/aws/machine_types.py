"""Facts about an instance type -> the `InstanceType` that deciders see, labelled exactly as Karpenter labels its nodes.

Source of the labels: aws/karpenter-provider-aws `pkg/providers/instancetype/types.go computeRequirements` (v1.14).
A label whose value is not known is left out, as a node of that type may carry any value of it.
"""

import re
from collections.abc import Iterator

from fleet.catalog import InstanceType
from model import labels
from providers.aws.allocatable import USUAL, ClusterSettings, allocatable, capacity
from providers.aws.attach_limits import attach_limits
from providers.aws.capacity_blocks import ULTRASERVERS
from providers.aws.facts import TypeFacts

_SCHEME = re.compile(r"(^[a-z]+)(-[0-9]+tb)?([0-9]+).*\.")


def machine_type(facts: TypeFacts, cluster: ClusterSettings = USUAL, region: str = "") -> InstanceType:
    """The instance type with what a node of it, bought in `region`, will offer."""
    gpu = facts.gpus[0] if len(facts.gpus) == 1 else None
    return InstanceType(
        name=facts.name,
        capacity=capacity(facts, cluster),
        allocatable=allocatable(facts, cluster),
        labels={**dict(type_labels(facts)), **({labels.REGION: region} if region else {})},
        gpu_name=gpu.name if gpu else "",
        gpu_count=gpu.count if gpu else 0,
        gpu_memory_mib=gpu.memory_mib if gpu else 0,
        fabric_interfaces=facts.efa,
        fabric_resource=labels.FABRIC_RESOURCE,
        nvlink_machines=ULTRASERVERS.get(facts.name, 0),
        attach_limits=attach_limits(facts),
    )


def type_labels(facts: TypeFacts) -> Iterator[tuple[str, str]]:
    """The labels that hold for every machine of the type that Muster buys: Linux, on shared hardware."""
    yield labels.INSTANCE_TYPE, facts.name
    yield labels.ARCH, facts.arch
    yield labels.OS, "linux"
    yield from _name_labels(facts)
    yield labels.INSTANCE_CPU, str(facts.vcpu)
    yield labels.INSTANCE_MEMORY, str(facts.memory_mib)
    yield labels.INSTANCE_HYPERVISOR, facts.hypervisor
    yield labels.INSTANCE_TENANCY, "default"
    yield from _known(
        (labels.INSTANCE_CPU_MANUFACTURER, facts.cpu_manufacturer or None),
        (labels.INSTANCE_CPU_CLOCK_MHZ, facts.clock_mhz),
        (labels.INSTANCE_VOLUME_BANDWIDTH, facts.ebs_mbps),
        (labels.INSTANCE_NETWORK_BANDWIDTH, facts.network_mbps),
        (labels.INSTANCE_LOCAL_NVME, facts.nvme_gb),
    )
    if facts.encryption_in_transit is not None:
        yield labels.INSTANCE_ENCRYPTION_IN_TRANSIT, str(facts.encryption_in_transit).lower()
    yield from _device_labels(facts)


def _name_labels(facts: TypeFacts) -> Iterator[tuple[str, str]]:
    if match := _SCHEME.match(facts.name):
        yield labels.INSTANCE_CATEGORY, match[1]
        yield labels.INSTANCE_GENERATION, match[3]
    yield labels.INSTANCE_FAMILY, facts.family
    yield labels.INSTANCE_SIZE, facts.size
    yield labels.INSTANCE_CAPABILITY_FLEX, str("-flex" in facts.family).lower()


def _known(*pairs: tuple[str, str | int | None]) -> Iterator[tuple[str, str]]:
    return ((label, str(value)) for label, value in pairs if value is not None)


def _device_labels(facts: TypeFacts) -> Iterator[tuple[str, str]]:
    """GPU labels only where all GPUs are of one model; a part of one is a count of 0 and a label that says how much."""
    if len(facts.gpus) == 1:
        gpu = facts.gpus[0]
        yield labels.INSTANCE_GPU_NAME, gpu.name
        yield labels.INSTANCE_GPU_MANUFACTURER, gpu.manufacturer
        yield labels.INSTANCE_GPU_COUNT, str(gpu.count)
        yield labels.INSTANCE_GPU_MEMORY, str(gpu.memory_mib)
        if gpu.fraction < 1:
            yield labels.GPU_FRACTION, str(gpu.fraction)
    if facts.neuron is not None:
        yield labels.INSTANCE_ACCELERATOR_NAME, facts.neuron.name
        yield labels.INSTANCE_ACCELERATOR_MANUFACTURER, "aws"
        yield labels.INSTANCE_ACCELERATOR_COUNT, str(facts.neuron.devices)
