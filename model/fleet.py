"""`Fleet`: everything one revision declares, checked and indexed by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from model.index import Index
from model.kinds import (
    Cluster,
    Flavor,
    FleetPolicy,
    MigLayout,
    NodeOverlay,
    NodePool,
    PriorityClass,
    Queue,
    Team,
    Topology,
)
from model.kinds.base import API_VERSION, Metadata
from model.kinds.capacity import FlavorSpec

if TYPE_CHECKING:  # most fleets hold none of them
    from model.upstream.capacity import ResourceFlavor
    from model.upstream.capacity_buffer import CapacityBuffer, CorePodTemplate
    from model.upstream.cluster_queue import ClusterQueue
    from model.upstream.tenancy import AdmissionCheck, Cohort, LocalQueue
    from model.upstream.volcano import VolcanoQueue


def default_policy() -> FleetPolicy:
    """The policy of a fleet that declares none: the guard rails' own defaults."""
    return FleetPolicy.known(api_version=API_VERSION, metadata=Metadata.known(name="default"))


@dataclass(frozen=True, slots=True)
class Fleet:
    """The declarations of one revision by name. Built by `model.loader`; every reference in it resolves.

    NodePools of Karpenter, with their EC2NodeClasses, and its NodeOverlays are found among ours, as are a Topology and
    a WorkloadPriorityClass of Kueue. Other manifests of Kueue and Volcano stand beside ours; names are unique where the
    two meet (queues, nodes of the quota tree, flavors).
    """

    node_pools: Mapping[str, NodePool] = field(default_factory=dict)
    node_overlays: Mapping[str, NodeOverlay] = field(default_factory=dict)
    mig_layouts: Mapping[str, MigLayout] = field(default_factory=dict)
    former_layouts: Mapping[str, MigLayout] = field(default_factory=dict)
    """Pool -> the layout that it has gone back to, whatever it declares; no repository says this."""
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    """Declared flavors and, for each NodePool without a namesake, the flavor it implies."""
    teams: Mapping[str, Team] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    topologies: Mapping[str, Topology] = field(default_factory=dict)
    policy: FleetPolicy = field(default_factory=default_policy)
    cluster_queues: "Mapping[str, ClusterQueue]" = field(default_factory=dict)
    cohorts: "Mapping[str, Cohort]" = field(default_factory=dict)
    """A cohort that is named but neither here nor in `teams` is a root without quota."""
    local_queues: "Mapping[str, LocalQueue]" = field(default_factory=dict)
    """By `namespace/name`."""
    resource_flavors: "Mapping[str, ResourceFlavor]" = field(default_factory=dict)
    """One named like a pool goes before the flavor the pool implies; `pools_of` says which pools it has."""
    admission_checks: "Mapping[str, AdmissionCheck]" = field(default_factory=dict)
    volcano_queues: "Mapping[str, VolcanoQueue]" = field(default_factory=dict)
    """The root queue need not be here."""
    capacity_buffers: "Mapping[str, CapacityBuffer]" = field(default_factory=dict)
    """By `namespace/name`."""
    pod_templates: "Mapping[str, CorePodTemplate]" = field(default_factory=dict)
    """By `namespace/name`; those that buffers name, and perhaps others."""
    cluster: Cluster | None = None
    """The cluster that this is the fleet of; None where the repository holds no Cluster."""
    digest: str = field(default="", compare=False)
    """Of the files that are read for the cluster; empty where the repository holds no Cluster."""
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False, compare=False)
    """Address of a declaration (`team/research`) -> the files that make it, each with a digest of what it says where
    there are several: a base and its patches."""
    index: Index = field(default_factory=Index, repr=False, compare=False)
    """Views derived from these declarations alone."""


def implied_flavor(pool: NodePool) -> Flavor:
    """The flavor of a NodePool's own name: its nodes, tolerating nothing, with its topology."""
    spec = FlavorSpec.known(node_pools=(pool.name,), topology=pool.spec.placement.topology)
    return Flavor.known(api_version=API_VERSION, metadata=Metadata.known(name=pool.name), spec=spec)
