"""What a machine is told at birth, by the family of its image."""

from collections.abc import Callable, Iterable, Mapping

from model.kinds import NodeTemplate, Taint
from model.kinds.aws import AmiFamily
from providers.aws.joining import bootstrap, bottlerocket, nodeadm
from providers.aws.joining.access import ClusterAccess, Joining, joining
from providers.ports import CloudRejected

__all__ = ["LIMIT_BYTES", "ClusterAccess", "node_user_data"]

LIMIT_BYTES = 16_384
"""EC2 accepts this much user data, before base64."""

_FAMILIES: Mapping[AmiFamily, Callable[[Joining], str]] = {
    "AL2023": nodeadm.user_data,
    "AL2": bootstrap.user_data,
    "Bottlerocket": bottlerocket.user_data,
    "Custom": lambda told: told.template.user_data,
}


def node_user_data(
    access: ClusterAccess, template: NodeTemplate, labels: Mapping[str, str], taints: Iterable[Taint]
) -> str:
    """The user data (plain text). Raises `CloudRejected` for labels or taints that are none, and when too long."""
    text = _FAMILIES[template.family](joining(access, template, labels, taints))
    if len(text.encode()) > LIMIT_BYTES:
        raise CloudRejected(f"user data is {len(text.encode())} bytes long; EC2 accepts {LIMIT_BYTES}")
    return text
