"""The limits of an AWS account: request token buckets (EC2 "Request throttling") and vCPU quotas per family group."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fleet.snapshot import CapacityPool


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket: it holds at most `burst` tokens and gains `refill_per_s`."""

    burst: float
    refill_per_s: float


EC2_BUCKETS: Final[Mapping[str, Bucket]] = {
    "RunInstances": Bucket(5, 2),
    "TerminateInstances": Bucket(100, 5),
    "CreateTags": Bucket(100, 10),
    "CreateLaunchTemplateVersion": Bucket(100, 5),
    "DescribeInstanceTopology": Bucket(1, 1),
    "DescribeCapacityBlockOfferings": Bucket(10, 0.15),
    "PurchaseCapacityBlock": Bucket(10, 0.15),
    "DescribeInstances:unpaged": Bucket(50, 10),
    "read": Bucket(100, 20),
    "write": Bucket(50, 5),
    "RunInstances:machines": Bucket(1000, 2),
    "TerminateInstances:machines": Bucket(1000, 20),
}
"""Amazon EC2 API Reference, "Request throttling". `read` and `write` are shared by all calls without a row of their
own; `:machines` rows count instances, not calls (there is none for CreateFleet)."""
STRICTER: Final[Mapping[str, Bucket]] = {**EC2_BUCKETS, "CreateFleet:machines": EC2_BUCKETS["RunInstances:machines"]}
"""As if the machines of fleets counted like those of RunInstances, which is not documented."""

NO_BUCKETS: Final[Mapping[str, Bucket]] = {}

_READS = ("Describe", "Get", "List", "Search")


def bucket_of(action: str, *, paged: bool) -> str:
    """The bucket an EC2 action draws from. `paged`: it gave ids, a filter or MaxResults."""
    if action == "DescribeInstances" and not paged:
        return "DescribeInstances:unpaged"
    if action in EC2_BUCKETS:
        return action
    return "read" if action.startswith(_READS) else "write"


class Throttle:
    """The levels of a set of buckets over time; a bucket that is not in the set never runs dry."""

    def __init__(self, buckets: Mapping[str, Bucket]) -> None:
        self._buckets = buckets
        self._levels: dict[str, tuple[float, float]] = {}

    def allows(self, name: str, now_s: float, tokens: float = 1.0) -> bool:
        """Take `tokens` from bucket `name` if they are there."""
        bucket = self._buckets.get(name)
        if bucket is None:
            return True
        level, at_s = self._levels.get(name, (bucket.burst, now_s))
        level = min(bucket.burst, level + max(0.0, now_s - at_s) * bucket.refill_per_s)
        granted = level >= tokens
        self._levels[name] = (level - tokens if granted else level, now_s)
        return granted


_FAMILY = re.compile(r"[a-z]+(-[a-z])?")
_GROUPS = {
    "g": "G and VT",
    "gr": "G and VT",
    "vt": "G and VT",
    "p": "P",
    "inf": "Inf",
    "trn": "Trn",
    "dl": "DL",
    "f": "F",
    "x": "X",
    "u": "High Memory",
    "u-": "High Memory",
    "hpc": "HPC",
}


def quota_group(instance_type: str) -> str:
    """The vCPU quota that an instance type counts against, by the names of "Amazon EC2 instance type quotas"."""
    match = _FAMILY.match(instance_type)
    return _GROUPS.get(match[0] if match else "", "Standard")


@dataclass(frozen=True, slots=True, order=True)
class Quota:
    """One vCPU quota; on-demand machines and reservations share theirs, spot has its own."""

    spot: bool
    group: str

    @classmethod
    def of(cls, pool: CapacityPool) -> "Quota":
        """The quota that machines of `pool` count against."""
        return cls(pool.capacity_type == "spot", quota_group(pool.instance_type))
