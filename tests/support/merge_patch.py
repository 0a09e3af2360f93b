"""Merge patches over a transport, which the agent itself never sends."""

from collections.abc import Mapping
from typing import Any

from providers.kube.resources import ResourcePath
from providers.kube.transport import FIELD_MANAGER, KubeTransport


def patch_merge(
    transport: KubeTransport,
    resource: ResourcePath,
    name: str,
    patch: Mapping[str, Any],
    namespace: str = "",
    subresource: str = "",
) -> bytes:
    """An RFC 7386 merge patch: null removes, lists are replaced; a `metadata.resourceVersion` is a precondition."""
    path = resource.object(name, namespace, subresource)
    media = "application/merge-patch+json"
    return transport._call("PATCH", path, query={"fieldManager": FIELD_MANAGER}, body=patch, content_type=media)
