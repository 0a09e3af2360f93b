"""Purchase in Karpenter's order: first-fit decreasing over shrinking sets of machine types.

`solve(pods, templates, nodes)` is the whole of it; `values` says what goes in, `outcome` what comes out. What is
emulated, what ties are broken by and what differs from upstream stands in `docs/design/0006-karpenters-order.md`. Every
rule cites kubernetes-sigs/karpenter v1.14 (`pkg/controllers/provisioning/scheduling`) unless it says otherwise.
"""

from bench.reference.karpenter.buy.outcome import Option, PlannedClaim, SchedulingResults, Unplaced, Why
from bench.reference.karpenter.buy.solve import solve
from bench.reference.karpenter.buy.values import (
    Daemon,
    HostPort,
    KarpenterNode,
    MachineType,
    Peers,
    PodSpecification,
    PoolTemplate,
    ReferenceOffering,
    Resident,
    Spread,
    WaitingPod,
    Weighted,
)

__all__ = [
    "Daemon",
    "HostPort",
    "KarpenterNode",
    "MachineType",
    "Option",
    "Peers",
    "PlannedClaim",
    "PodSpecification",
    "PoolTemplate",
    "ReferenceOffering",
    "Resident",
    "SchedulingResults",
    "Spread",
    "Unplaced",
    "WaitingPod",
    "Weighted",
    "Why",
    "solve",
]
