"""`NodeOverlay` of Karpenter: read into ours."""

from typing import Literal

from model.kinds import API_VERSION
from model.kinds.node_overlay import NodeOverlay, NodeOverlaySpec
from model.upstream.base import UpstreamKind, own_metadata


class KarpenterNodeOverlay(UpstreamKind):
    """Prices and resources of machines, as they are known better than from the cloud."""

    api_version: Literal["karpenter.sh/v1alpha1"]
    kind: Literal["NodeOverlay"] = "NodeOverlay"
    spec: NodeOverlaySpec


def overlay(upstream: KarpenterNodeOverlay) -> NodeOverlay:
    """Returns the NodeOverlay of ours that says the same."""
    return NodeOverlay.model_construct(
        api_version=API_VERSION,
        kind="NodeOverlay",
        metadata=own_metadata(upstream.metadata),
        spec=upstream.spec,
    )
