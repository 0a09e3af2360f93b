"""What the kubelet of an EC2 machine will report as capacity and allocatable, before the machine exists.

The formulas are those of the EKS images, as Karpenter documents and computes them
(aws/karpenter-provider-aws `pkg/providers/instancetype/types.go`): integer MiB and milli-CPU throughout.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import ceil

from fleet.catalog import InstanceType
from model.kinds.node_template import NodeTemplate
from model.quantity import Resources, canonical_amount
from providers.aws.ami_families import AMI_FAMILIES, KubeletRules

MIB = 1024**2
GIB = 1024**3
DEFAULT_VOLUME_GIB = 20

_GB = 10**9
_DEFAULT_PODS = 110
_CPU_TIERS = ((1000, 600), (1000, 100), (2000, 50), (None, 25))
"""(width of the tier in milli-CPU, reserved share in 1/10,000): 6 % of core 1, 1 % of core 2, 0.5 % of 3-4, 0.25 %."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What of an instance type decides the size of a node, whatever its pool says of image, disks and kubelet."""

    vcpu: int
    memory_mib: int
    """As the operating system sees it."""
    enis: int
    """Network interfaces of the default card, the only one whose addresses pods get."""
    ipv4_per_eni: int
    reserved_enis: int = 0
    """Interfaces of that card that pods do not get."""
    nvme_gb: int = 0
    """Local disks together, in 10^9 bytes."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What about a node is not a fact of its hardware. The defaults are those of the AL2023 image."""

    rules: KubeletRules = field(default_factory=KubeletRules)
    max_pods: int | None = None
    pods_per_core: int = 0
    """0 = no such limit."""
    eviction_memory: str = "100Mi"
    """`memory.available` of the hard eviction: a quantity or a percentage; 100 % switches it off."""
    eviction_disk: str = "10%"
    kube_reserved: Resources = field(default_factory=dict)
    """Instead of what the image reserves."""
    system_reserved: Resources = field(default_factory=dict)
    volume_gib: int = DEFAULT_VOLUME_GIB
    """The disk that pods and images are kept on."""
    uses_local_disks: bool = False
    """Pods and images are kept on the local disks, where there are any."""


@dataclass(frozen=True, slots=True)
class Ec2NodeProfiles:
    """What the images, disks and kubelet settings of a pool leave of EC2's instance types (port `NodeProfiles`)."""

    hardware: Mapping[str, Hardware]
    """Instance type -> what it is made of; one that is missing stays as it is listed."""

    def of(self, template: NodeTemplate) -> Callable[[InstanceType], InstanceType]:
        """What gives a type the amounts that nodes of the template have; itself where that says nothing of them."""
        settings = settings_of(template)
        return (lambda machine: machine) if settings == NodeSettings() else partial(self._sized, settings)

    def _sized(self, settings: NodeSettings, machine: InstanceType) -> InstanceType:
        hardware = self.hardware.get(machine.name)
        if hardware is None:
            return machine
        return replace(
            machine,
            capacity={**machine.capacity, **capacity(hardware, settings)},
            allocatable={**machine.allocatable, **allocatable(hardware, settings)},
        )


def settings_of(template: NodeTemplate) -> NodeSettings:
    """What a pool's template says about the size of its nodes. Soft evictions promise nothing."""
    kubelet = template.kubelet
    plain = NodeSettings()
    return NodeSettings(
        rules=AMI_FAMILIES[template.family].kubelet,
        max_pods=kubelet.max_pods,
        pods_per_core=kubelet.pods_per_core or 0,
        eviction_memory=kubelet.eviction_hard.get("memory.available", plain.eviction_memory),
        eviction_disk=kubelet.eviction_hard.get("nodefs.available", plain.eviction_disk),
        kube_reserved=kubelet.kube_reserved,
        system_reserved=kubelet.system_reserved,
        volume_gib=volume_gib(template),
        uses_local_disks=template.instance_store_policy == "RAID0",
    )


def volume_gib(template: NodeTemplate) -> int:
    """Size of the disk that pods and images are kept on: the root volume, else the family's device.

    Of an image of one's own it is the last disk. A size that only a snapshot knows counts as the default.
    """
    devices = template.block_device_mappings
    device = AMI_FAMILIES[template.family].data_device
    found = next((one for one in devices if one.root_volume), None)
    if found is None and devices and not device:
        found = devices[-1]
    found = found or next((one for one in devices if one.device_name == device), None)
    return DEFAULT_VOLUME_GIB if found is None else found.ebs.volume_size or DEFAULT_VOLUME_GIB


def capacity(hardware: Hardware, settings: NodeSettings) -> dict[str, int]:
    """Canonical amounts of what every node has, before anything is reserved."""
    return {
        "cpu": hardware.vcpu * 1000,
        "memory": hardware.memory_mib * MIB,
        "ephemeral-storage": disk_bytes(hardware, settings),
        "pods": pods(hardware, settings),
    }


def allocatable(hardware: Hardware, settings: NodeSettings) -> dict[str, int]:
    """Canonical amounts that pods may request: capacity less what is reserved and less hard eviction."""
    whole = capacity(hardware, settings)
    kept = kube_reserved(hardware, settings)
    eviction = {
        "memory": eviction_threshold(settings.eviction_memory, whole["memory"]),
        "ephemeral-storage": eviction_threshold(settings.eviction_disk, whole["ephemeral-storage"]),
    }
    system = settings.system_reserved
    return {
        name: max(0, amount - kept.get(name, 0) - system.get(name, 0) - eviction.get(name, 0))
        for name, amount in whole.items()
    }


def disk_bytes(hardware: Hardware, settings: NodeSettings) -> int:
    """Size of the disk that pods and images are kept on."""
    if settings.uses_local_disks and hardware.nvme_gb:
        return hardware.nvme_gb * _GB
    return settings.volume_gib * GIB


def eni_limited_pods(hardware: Hardware, reserved_enis: int = 0) -> int:
    """Pods that the addresses of the default network card allow, plus two on the host network (`eni-max-pods.txt`)."""
    usable = max(0, hardware.enis - reserved_enis)
    return usable * (hardware.ipv4_per_eni - 1) + 2 if usable else 0


def pods(hardware: Hardware, settings: NodeSettings) -> int:
    """Pods the kubelet accepts."""
    rules = settings.rules
    if settings.max_pods is not None:
        count = settings.max_pods
    else:
        count = eni_limited_pods(hardware, hardware.reserved_enis) if rules.eni_limited_pods else _DEFAULT_PODS
    if settings.pods_per_core and rules.pods_per_core:
        count = min(count, settings.pods_per_core * hardware.vcpu)
    return count


def kube_reserved(hardware: Hardware, settings: NodeSettings) -> Resources:
    """What the node's own daemons get: CPU by tiers, 11 MiB a pod + 255 MiB, 1 GiB of disk, or what the pool says.

    The families that reserve for all addresses do so as if no interface were reserved.
    """
    rules = settings.rules
    count = eni_limited_pods(hardware) if rules.reserves_for_eni_pods else pods(hardware, settings)
    return {
        "cpu": _reserved_milli_cpu(hardware.vcpu * 1000),
        "memory": (11 * count + 255) * MIB,
        "ephemeral-storage": GIB,
        **settings.kube_reserved,
    }


def _reserved_milli_cpu(milli_cpu: int) -> int:
    reserved = 0
    for width, share in _CPU_TIERS:
        inside = milli_cpu if width is None else min(milli_cpu, width)
        reserved += inside * share // 10_000
        milli_cpu -= inside
    return reserved


@lru_cache(maxsize=256)  # one and the same for every type of a region
def _quantity(signal: str) -> int:
    return canonical_amount("memory", signal)


def eviction_threshold(signal: str, capacity_bytes: int) -> int:
    """Bytes the kubelet defends: a quantity, or a percentage of the capacity rounded up; 100 % means none."""
    if not signal.endswith("%"):
        return _quantity(signal)
    percent = float(signal.removesuffix("%"))
    return 0 if percent == 100 else ceil(capacity_bytes / 100 * percent)
