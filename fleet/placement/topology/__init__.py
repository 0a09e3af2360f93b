"""Topology-aware placement decides which racks and hosts the pods of a gang go to.

The rules are those of Kueue's topology-aware scheduling. Reading order: `request` (what is asked, what comes back),
`topologies` (all flavors, and the search pod set by pod set), `flavor_topology` (one flavor), then bottom up:
`domains` and `capacity` are the shape and the state, `counts` and `pod_classes` say what fits, `choose`, `descend` and
`balance` pick the domains.
"""

from fleet.placement.topology.request import (
    NodeReplacement,
    PreferredSchedulingTerm,
    PreviousAssignment,
    RefusalKind,
    TopologyAssignment,
    TopologyFlavor,
    TopologyOptions,
    TopologyRefusal,
    TopologyRequest,
    TopologyResult,
)
from fleet.placement.topology.topologies import Topologies

__all__ = [
    "NodeReplacement",
    "PreferredSchedulingTerm",
    "PreviousAssignment",
    "RefusalKind",
    "Topologies",
    "TopologyAssignment",
    "TopologyFlavor",
    "TopologyOptions",
    "TopologyRefusal",
    "TopologyRequest",
    "TopologyResult",
]
