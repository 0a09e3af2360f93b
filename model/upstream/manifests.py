"""All kinds of manifests of other systems, and into what each is read.

`UPSTREAM_KINDS` are the forms in which they may be written; `READINGS` says which of them become another value: older
versions the current one, and kinds that say exactly what one of ours says become ours. Everything else is itself, but
for NodePools of Karpenter: each becomes one of ours together with the EC2NodeClass that it names.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from model.kinds import Declaration, NodeOverlay, NodePool, PriorityClass, Topology
from model.upstream.base import KARPENTER_GROUP, KARPENTER_PROVIDER_GROUP, KUEUE_GROUP, VOLCANO_GROUP
from model.upstream.capacity import KueueTopology, ResourceFlavor, topology
from model.upstream.capacity_buffer import CapacityBuffer, CorePodTemplate
from model.upstream.cluster_queue import ClusterQueue, ClusterQueueV1Beta1, current
from model.upstream.karpenter import (
    EC2NodeClass,
    EC2NodeClassV1Beta1,
    KarpenterNodeOverlay,
    KarpenterNodePool,
    KarpenterNodePoolV1Beta1,
    current_class,
    overlay,
)
from model.upstream.tenancy import AdmissionCheck, Cohort, LocalQueue, WorkloadPriorityClass, priority_class
from model.upstream.volcano import VolcanoQueue

UPSTREAM_KINDS: tuple[type[Declaration], ...] = (
    ClusterQueue,
    ClusterQueueV1Beta1,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    WorkloadPriorityClass,
    KueueTopology,
    AdmissionCheck,
    VolcanoQueue,
    KarpenterNodePool,
    KarpenterNodePoolV1Beta1,
    EC2NodeClass,
    EC2NodeClassV1Beta1,
    KarpenterNodeOverlay,
    CapacityBuffer,
    CorePodTemplate,
)


class _ReadInto(NamedTuple):
    """Says into which class a form of a manifest is read, and how."""

    into: type[Declaration]
    convert: Callable[[Any], Declaration]


READINGS: Mapping[type[Declaration], _ReadInto] = {
    ClusterQueueV1Beta1: _ReadInto(ClusterQueue, current),
    WorkloadPriorityClass: _ReadInto(PriorityClass, priority_class),
    KueueTopology: _ReadInto(Topology, topology),
    EC2NodeClassV1Beta1: _ReadInto(EC2NodeClass, current_class),
    KarpenterNodeOverlay: _ReadInto(NodeOverlay, overlay),
}

_WORK = "leave it to the cluster: a fleet repository declares queues and capacity, not work"
_MULTI = "remove it: one agent runs one cluster"
UNSUPPORTED_KINDS: Mapping[tuple[str, str], str] = {
    (KUEUE_GROUP, "MultiKueueCluster"): _MULTI,
    (KUEUE_GROUP, "MultiKueueConfig"): _MULTI,
    (KUEUE_GROUP, "ProvisioningRequestConfig"): "remove it: machines are bought before a workload is admitted",
    (KUEUE_GROUP, "Workload"): _WORK,
    (VOLCANO_GROUP, "PodGroup"): _WORK,
    (KARPENTER_GROUP, "NodeClaim"): "leave it to the cluster: a fleet repository declares pools, not machines",
    (KARPENTER_GROUP, "Provisioner"): "write a NodePool: Karpenter itself reads no Provisioner since v0.33",
    (KARPENTER_GROUP, "Machine"): "leave it to the cluster: a fleet repository declares pools, not machines",
    (KARPENTER_PROVIDER_GROUP, "AWSNodeTemplate"): "write an EC2NodeClass: Karpenter itself reads no other since v0.33",
}
"""(API group, kind) of what upstream has and we have no behaviour for -> what to do."""


def read_into(kind: type[Declaration]) -> type[Declaration]:
    """The class of the value that a form becomes."""
    if kind in {KarpenterNodePool, KarpenterNodePoolV1Beta1}:
        return NodePool
    return READINGS[kind].into if kind in READINGS else kind


def read(value: Declaration) -> Declaration:
    """Returns the value that a manifest becomes."""
    reading = READINGS.get(type(value))
    return reading.convert(value) if reading else value
