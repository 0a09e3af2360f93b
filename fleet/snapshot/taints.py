"""The taints Muster itself puts on nodes."""

from model.kinds import Taint

UNREGISTERED = Taint(key="muster.dev/unregistered", effect="NoExecute")
"""On every new machine until its claim has adopted it, so that nothing runs on a node nobody answers for."""
DISRUPTED = Taint(key="muster.dev/disrupted", effect="NoSchedule")
"""On a machine that is leaving."""
RECUTTING = Taint(key="muster.dev/recutting", effect="NoSchedule")
"""On a machine whose GPUs are being cut anew."""

OWN_KEYS = frozenset({UNREGISTERED.key, DISRUPTED.key, RECUTTING.key})
EPHEMERAL_KEYS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.cloudprovider.kubernetes.io/uninitialized",
    }
)
"""Taints that the system removes by itself once the node is well."""
EPHEMERAL_PREFIX = "readiness.k8s.io/"
