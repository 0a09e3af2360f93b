"""Names of labels, taints and annotations that more than one floor reads or writes.

Sources: Kubernetes "Well-Known Labels, Annotations and Taints"; Karpenter core and AWS provider `pkg/apis/v1/labels.go`
(v1.14); NVIDIA GPU feature discovery and mig-manager (k8s-device-plugin v0.20, mig-parted v0.15).
"""

from typing import Final, Literal

# Kubernetes
ARCH: Final = "kubernetes.io/arch"
OS: Final = "kubernetes.io/os"
HOSTNAME: Final = "kubernetes.io/hostname"
NODE_NAME: Final = "metadata.name"
"""The field that `matchFields` of node affinity looks at. Nodes carry it among their labels, machines to buy do not."""
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
WINDOWS_BUILD: Final = "node.kubernetes.io/windows-build"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
ZONE_ID: Final = "topology.k8s.aws/zone-id"

# Karpenter core
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
CapacityType = Literal["reserved", "spot", "on-demand"]
"""What that label says of a node, and how a machine is bought."""
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
"""Annotation on pods and nodes: `"true"` or a duration."""

KARPENTER_NODE_POOL: Final = "karpenter.sh/nodepool"
"""Carried, with the next, by machines of pools that are read from manifests of Karpenter."""
KARPENTER_NODE_CLASS: Final = "karpenter.k8s.aws/ec2nodeclass"

# Karpenter AWS provider: facts of the instance type
_PROVIDER: Final = "karpenter.k8s.aws/"
INSTANCE_CATEGORY: Final = _PROVIDER + "instance-category"
INSTANCE_FAMILY: Final = _PROVIDER + "instance-family"
INSTANCE_GENERATION: Final = _PROVIDER + "instance-generation"
INSTANCE_SIZE: Final = _PROVIDER + "instance-size"
INSTANCE_HYPERVISOR: Final = _PROVIDER + "instance-hypervisor"
INSTANCE_ENCRYPTION_IN_TRANSIT: Final = _PROVIDER + "instance-encryption-in-transit-supported"
INSTANCE_CAPABILITY_FLEX: Final = _PROVIDER + "instance-capability-flex"
INSTANCE_LOCAL_NVME: Final = _PROVIDER + "instance-local-nvme"
INSTANCE_CPU: Final = _PROVIDER + "instance-cpu"
INSTANCE_CPU_MANUFACTURER: Final = _PROVIDER + "instance-cpu-manufacturer"
INSTANCE_CPU_CLOCK_MHZ: Final = _PROVIDER + "instance-cpu-sustained-clock-speed-mhz"
INSTANCE_MEMORY: Final = _PROVIDER + "instance-memory"
"""MiB."""
INSTANCE_VOLUME_BANDWIDTH: Final = _PROVIDER + "instance-ebs-bandwidth"
INSTANCE_NETWORK_BANDWIDTH: Final = _PROVIDER + "instance-network-bandwidth"
"""Mbit/s, as is that of volumes."""
INSTANCE_GPU_NAME: Final = _PROVIDER + "instance-gpu-name"
"""Lower case: `h100`, `a100`, `l4`, `a10g`, `l40s`."""
INSTANCE_GPU_MANUFACTURER: Final = _PROVIDER + "instance-gpu-manufacturer"
INSTANCE_GPU_COUNT: Final = _PROVIDER + "instance-gpu-count"
INSTANCE_GPU_MEMORY: Final = _PROVIDER + "instance-gpu-memory"
"""MiB of one GPU."""
INSTANCE_ACCELERATOR_NAME: Final = _PROVIDER + "instance-accelerator-name"
INSTANCE_ACCELERATOR_MANUFACTURER: Final = _PROVIDER + "instance-accelerator-manufacturer"
INSTANCE_ACCELERATOR_COUNT: Final = _PROVIDER + "instance-accelerator-count"
INSTANCE_TENANCY: Final = _PROVIDER + "instance-tenancy"
CAPACITY_RESERVATION_ID: Final = _PROVIDER + "capacity-reservation-id"
CAPACITY_RESERVATION_TYPE: Final = _PROVIDER + "capacity-reservation-type"
CAPACITY_RESERVATION_INTERRUPTIBLE: Final = _PROVIDER + "capacity-reservation-interruptible"
PLACEMENT_GROUP_ID: Final = _PROVIDER + "placement-group-id"
PLACEMENT_GROUP_PARTITION: Final = _PROVIDER + "placement-group-partition"

# Muster
WORKLOAD: Final = "muster.dev/workload"
"""On pods: the name of their gang's Workload."""
POD_SET: Final = "muster.dev/pod-set"
"""On pods: the name of their role."""
SHARED_CLAIM: Final = "muster.dev/shared-claim"
"""On pod sets of a gang that share a ResourceClaim: its name. No pod carries it."""
NODE_POOL: Final = "muster.dev/node-pool"
NODE_CLAIM: Final = "muster.dev/node-claim"
LAUNCH_GROUP: Final = "muster.dev/launch-group"
"""On NodeClaims and machines: those that were launched together, all or none."""
GPU_FRACTION: Final = "muster.dev/gpu-fraction"
"""Part of a GPU that a machine has, on types that have less than one: `0.125`, `0.25`, `0.5`."""
MIG_LAYOUT: Final = "muster.dev/mig-layout"
"""Name of the `MigLayout` a node was cut by."""
CLUSTER: Final = "muster.dev/cluster"
USER: Final = "muster.dev/user"
"""Label of pods, or of their job: whose work it is, for reports of costs."""
ADOPT: Final = "muster.dev/adopt"
"""Tag with which a person hands over a machine that was not bought here: `<cluster>/<node pool>`."""
BOOKS: Final = "muster.dev/books"
"""On the ConfigMap in which the agent keeps its books."""
REQUESTED_AT: Final = "muster.dev/requested-at"
"""Annotation of a FleetSync: another value than before makes the agent poll the repository now."""
QUEUE: Final = "muster.dev/queue"
PRIORITY_CLASS: Final = "muster.dev/priority-class"
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
KUEUE_PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"

# NVIDIA: mig-manager's protocol and GPU feature discovery
MIG_CONFIG: Final = "nvidia.com/mig.config"
GPU_EQUIVALENT: Final = "muster.dev/gpu-equivalent"
"""A resource of quotas alone: whole GPUs of a flavor, in any shape; a slice is its part of the GPU's compute slices."""
GPU_PARTS: Final = 840
"""Parts of a GPU that quotas of GPU-equivalents are counted in: sevenths, quarters and eighths are whole numbers."""
MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
MIG_CONFIG_STATE: Final = "nvidia.com/mig.config.state"
DEVICE_PLUGIN_CONFIG: Final = "nvidia.com/device-plugin.config"
GPU_CLIQUE: Final = "nvidia.com/gpu.clique"
"""The NVLink domain of a machine, as feature discovery says it: its GPUs reach those of others in it over NVLink."""
DRA_PLUGIN: Final = "nvidia.com/dra-kubelet-plugin"
"""Whether NVIDIA's DRA driver runs on a node (the node selector of its kubelet plugin)."""
DEPLOY_DEVICE_PLUGIN: Final = "nvidia.com/gpu.deploy.device-plugin"
DEPLOY_MIG_MANAGER: Final = "nvidia.com/gpu.deploy.mig-manager"
"""Whether the GPU operator runs this operand on a node."""
DRA_DYNAMIC_MIG: Final = "muster.dev/dra-dynamic-mig"
"""On nodes whose DRA driver cuts GPUs when slices are claimed: who deploys the driver with that gate selects them."""
OF_SHARING: Final = (DEVICE_PLUGIN_CONFIG, DRA_PLUGIN, DEPLOY_DEVICE_PLUGIN, DEPLOY_MIG_MANAGER, DRA_DYNAMIC_MIG)
"""What a machine is born with says how its GPUs are offered: the operator follows these as the machine stands."""

# Resources
GPU_RESOURCE: Final = "nvidia.com/gpu"
SHARED_GPU_RESOURCE: Final = f"{GPU_RESOURCE}.shared"
"""Replicas of a GPU under `renameByDefault` of the device plugin."""
MIG_RESOURCE_PREFIX: Final = "nvidia.com/mig-"
FABRIC_RESOURCE: Final = "vpc.amazonaws.com/efa"
"""Network interfaces by which machines talk past the kernel, as the device plugin of EFA names them."""

ACCELERATORS: Final[frozenset[str]] = frozenset(
    {
        GPU_RESOURCE,
        SHARED_GPU_RESOURCE,
        "aws.amazon.com/neuron",
        "aws.amazon.com/neuroncore",
        "aws.amazon.com/neurondevice",
        "amd.com/gpu",
        "habana.ai/gaudi",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
    }
)
"""GPUs and what takes their place, as device plugins name them: what machines are dear and scarce for."""

KNOWN_DEVICES: Final[frozenset[str]] = ACCELERATORS | {FABRIC_RESOURCE, "vpc.amazonaws.com/pod-eni"}
"""Resources of device plugins that many clusters have; there are others, and they are as good."""

WELL_KNOWN: Final[frozenset[str]] = frozenset(
    {
        ARCH,
        OS,
        HOSTNAME,
        INSTANCE_TYPE,
        WINDOWS_BUILD,
        ZONE,
        REGION,
        ZONE_ID,
        CAPACITY_TYPE,
        INSTANCE_CATEGORY,
        INSTANCE_FAMILY,
        INSTANCE_GENERATION,
        INSTANCE_SIZE,
        INSTANCE_HYPERVISOR,
        INSTANCE_ENCRYPTION_IN_TRANSIT,
        INSTANCE_CAPABILITY_FLEX,
        INSTANCE_LOCAL_NVME,
        INSTANCE_CPU,
        INSTANCE_CPU_MANUFACTURER,
        INSTANCE_CPU_CLOCK_MHZ,
        INSTANCE_MEMORY,
        INSTANCE_VOLUME_BANDWIDTH,
        INSTANCE_NETWORK_BANDWIDTH,
        INSTANCE_GPU_NAME,
        INSTANCE_GPU_MANUFACTURER,
        INSTANCE_GPU_COUNT,
        INSTANCE_GPU_MEMORY,
        INSTANCE_ACCELERATOR_NAME,
        INSTANCE_ACCELERATOR_MANUFACTURER,
        INSTANCE_ACCELERATOR_COUNT,
        INSTANCE_TENANCY,
        CAPACITY_RESERVATION_ID,
        CAPACITY_RESERVATION_TYPE,
        CAPACITY_RESERVATION_INTERRUPTIBLE,
        PLACEMENT_GROUP_ID,
        PLACEMENT_GROUP_PARTITION,
        NODE_POOL,
        GPU_FRACTION,
    }
)
"""Labels every machine we buy may come to carry: a requirement on one is not refused because a pool leaves it open."""

OF_SOME_MACHINES: Final[frozenset[str]] = frozenset(
    {
        INSTANCE_GPU_NAME,
        INSTANCE_GPU_MANUFACTURER,
        INSTANCE_GPU_COUNT,
        INSTANCE_GPU_MEMORY,
        INSTANCE_ACCELERATOR_NAME,
        INSTANCE_ACCELERATOR_MANUFACTURER,
        INSTANCE_ACCELERATOR_COUNT,
        INSTANCE_LOCAL_NVME,
    }
)
"""Labels of what only some instance types have: a type without one has none of it, and no value of it is left open."""

OF_TOPOLOGIES: Final[frozenset[str]] = frozenset(
    {
        "topology.k8s.aws/network-node-layer-1",
        "topology.k8s.aws/network-node-layer-2",
        "topology.k8s.aws/network-node-layer-3",
        GPU_CLIQUE,
    }
)
"""Labels that say where nodes stand, beside zones and hosts."""
OF_DISCOVERY: Final[frozenset[str]] = frozenset(
    {
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.family",
        "nvidia.com/gpu.machine",
        "nvidia.com/gpu.memory",
        "nvidia.com/gpu.present",
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.replicas",
        "nvidia.com/mig.capable",
        "nvidia.com/mig.strategy",
    }
)
"""Labels that GPU feature discovery writes."""

NORMALIZED: Final[dict[str, str]] = {
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "topology.ebs.csi.aws.com/zone": ZONE,
}
"""Deprecated or vendor-specific names -> the label that means the same."""


def normalize(key: str) -> str:
    """The current name of a label key."""
    return NORMALIZED.get(key, key)
