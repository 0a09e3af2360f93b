"""Topology-aware placement: which racks and hosts the pods of a gang go to.

The rules are those of Kueue's topology-aware scheduling. Reading order: `values` (what is asked, what comes back),
`topologies` (the whole), `search` (pod set by pod set), `ground` (one flavor), then bottom up: `ledger` and `tree` are
the state and the shape, `rooms` and `layers` count what fits, `choose`, `descend` and `balance` pick the domains.
"""

from fleet.placement.topology.topologies import Topologies
from fleet.placement.topology.values import (
    Ask,
    Broken,
    Options,
    Outcome,
    Placement,
    Preference,
    Refusal,
    RefusalKind,
    Scaled,
    TopologyFlavor,
)

__all__ = [
    "Ask",
    "Broken",
    "Options",
    "Outcome",
    "Placement",
    "Preference",
    "Refusal",
    "RefusalKind",
    "Scaled",
    "Topologies",
    "TopologyFlavor",
]
