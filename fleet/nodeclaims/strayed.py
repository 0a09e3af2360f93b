"""Whether a machine still has the image, subnet and security groups that its pool would give it now.

The rules are those of Karpenter's AWS provider (`pkg/cloudprovider/drift.go`): the image is the one that the pool's
terms choose for such a machine (the newest of all they find), the subnet is among those they select, and the security
groups are exactly those they select. Terms that find nothing are an error there and show no difference here.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from fleet.nodeclaims.difference import SAME, Difference
from fleet.snapshot import ImageKind, Instance, Resolved

_SHOWN: Final = 3
"""Most ids in a sentence."""


class Stray(StrEnum):
    """What of a machine is not what its pool would get now; Karpenter's words, in the order they are looked at."""

    IMAGE = "AMIDrift"
    SUBNET = "SubnetDrift"
    SECURITY_GROUPS = "SecurityGroupDrift"


STRAY: Final = frozenset(Stray)
"""Differences that no revision has made: the cloud has."""


def strayed(pool: str, kind: ImageKind | None, machine: Instance, now: Resolved) -> Difference:
    """The first difference; a machine whose `kind` is None is of a type that nobody knows any more."""
    image = now.images.get(kind, "") if kind is not None else ""
    if image and machine.image and machine.image != image:
        return Difference(Stray.IMAGE, f"its image is {machine.image}, node pool {pool} now gets {image}")
    if not now.subnets or not machine.subnet:
        return SAME
    if machine.subnet not in now.subnets:
        selected = f"node pool {pool} now selects {_told(now.subnets)}"
        return Difference(Stray.SUBNET, f"its subnet is {machine.subnet}, {selected}")
    wanted, carried = now.subnets[machine.subnet], machine.security_groups
    if wanted and carried and set(wanted) != set(carried):
        selected = f"node pool {pool} now selects {_told(wanted)}"
        return Difference(Stray.SECURITY_GROUPS, f"its security groups are {_told(carried)}, {selected}")
    return SAME


def _told(ids: Iterable[str]) -> str:
    """The ids in order; of many the first few."""
    found = sorted(ids)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more
