"""What EC2 says of a machine to others: the provider id of its node, and who else answers for it. Pure."""

from collections.abc import Mapping
from typing import Final

_OTHER_OWNERS: Final[Mapping[str, str]] = {"aws:autoscaling:groupName": "an Auto Scaling group (detach it)"}
"""Tags of instances that another service of AWS replaces or gives back, and whose they are."""


def provider_id(zone: str, instance_id: str) -> str:
    """The `spec.providerID` of the node that an instance becomes."""
    return f"aws:///{zone}/{instance_id}"


def managed_by(tags: Mapping[str, str]) -> str:
    """Who else replaces a machine or gives it back, in words; empty where nobody does."""
    tag = next((key for key in sorted(_OTHER_OWNERS) if key in tags), "")
    return f"its tag {tag} says that it belongs to {_OTHER_OWNERS[tag]}" if tag else ""
