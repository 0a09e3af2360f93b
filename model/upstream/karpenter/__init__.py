"""Manifests of Karpenter: `NodePool`, `EC2NodeClass` and `NodeOverlay`.

A NodePool and the EC2NodeClass it names together say what one NodePool of ours says (`joining`); a NodeOverlay says
what ours says. Rules and defaults are those of Karpenter v1.14 (its CRDs); what is immutable there cannot be told from
one revision and is not checked.
"""

from model.upstream.karpenter.joining import PLACES, AnyKarpenterNodePool, joined
from model.upstream.karpenter.node_class import EC2NodeClass, EC2NodeClassV1Beta1, current_class
from model.upstream.karpenter.node_overlay import KarpenterNodeOverlay, overlay
from model.upstream.karpenter.node_pool import KarpenterNodePool, KarpenterNodePoolV1Beta1

__all__ = [
    "PLACES",
    "AnyKarpenterNodePool",
    "EC2NodeClass",
    "EC2NodeClassV1Beta1",
    "KarpenterNodeOverlay",
    "KarpenterNodePool",
    "KarpenterNodePoolV1Beta1",
    "current_class",
    "joined",
    "overlay",
]
