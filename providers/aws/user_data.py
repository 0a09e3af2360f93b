"""What a machine is told at birth, by the family of its image."""

from collections.abc import Iterable, Mapping

from model.kinds import NodeTemplate, Taint
from providers.aws.ami_families import AMI_FAMILIES
from providers.aws.joining.access import ClusterAccess, joining
from providers.ports import CloudRejected

__all__ = ["LIMIT_BYTES", "ClusterAccess", "node_user_data"]

LIMIT_BYTES = 16_384
"""EC2 accepts this much user data, before base64."""


def node_user_data(
    access: ClusterAccess, template: NodeTemplate, labels: Mapping[str, str], taints: Iterable[Taint]
) -> str:
    """The user data (plain text). Raises `CloudRejected` for labels or taints that are none, and when too long."""
    text = AMI_FAMILIES[template.family].user_data(joining(access, template, labels, taints))
    if len(text.encode()) > LIMIT_BYTES:
        raise CloudRejected(f"user data is {len(text.encode())} bytes long; EC2 accepts {LIMIT_BYTES}")
    return text
