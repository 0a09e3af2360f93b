"""Manifests of Karpenter, Kueue, Volcano and of capacity buffers in the fleet repository, read as they are.

Most fleets hold none, and the models of all take longer to import than a small fleet to read: who names one of
`model.upstream.manifests` here gets them all, and who needs one file of this package imports that.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model.upstream.manifests import (
        AUTOSCALING_GROUP,
        KARPENTER_GROUP,
        KARPENTER_PROVIDER_GROUP,
        KUEUE_GROUP,
        PLACES,
        READINGS,
        UNSUPPORTED_KINDS,
        UPSTREAM_KINDS,
        VOLCANO_GROUP,
        AdmissionCheck,
        AnyKarpenterNodePool,
        CapacityBuffer,
        ClusterQueue,
        ClusterQueueV1Beta1,
        Cohort,
        CorePodTemplate,
        EC2NodeClass,
        EC2NodeClassV1Beta1,
        KarpenterNodeOverlay,
        KarpenterNodePool,
        KarpenterNodePoolV1Beta1,
        KueueTopology,
        LocalQueue,
        ResourceFlavor,
        VolcanoQueue,
        WorkloadPriorityClass,
        carried_labels,
        cells,
        joined,
        pools_of,
        read,
        read_into,
        wanted_labels,
    )

__all__ = [
    "AUTOSCALING_GROUP",
    "KARPENTER_GROUP",
    "KARPENTER_PROVIDER_GROUP",
    "KUEUE_GROUP",
    "PLACES",
    "READINGS",
    "UNSUPPORTED_KINDS",
    "UPSTREAM_KINDS",
    "VOLCANO_GROUP",
    "AdmissionCheck",
    "AnyKarpenterNodePool",
    "CapacityBuffer",
    "ClusterQueue",
    "ClusterQueueV1Beta1",
    "Cohort",
    "CorePodTemplate",
    "EC2NodeClass",
    "EC2NodeClassV1Beta1",
    "KarpenterNodeOverlay",
    "KarpenterNodePool",
    "KarpenterNodePoolV1Beta1",
    "KueueTopology",
    "LocalQueue",
    "ResourceFlavor",
    "VolcanoQueue",
    "WorkloadPriorityClass",
    "carried_labels",
    "cells",
    "joined",
    "pools_of",
    "read",
    "read_into",
    "wanted_labels",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        from model.upstream import manifests

        return getattr(manifests, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
