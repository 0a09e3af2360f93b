"""Capacity reservations as EC2 lists them: On-Demand Capacity Reservations and Capacity Blocks, own and shared."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any

from fleet.snapshot import Reservation
from model.kinds import ReservationKind
from providers.aws.buckets import RateLimitGroup
from providers.aws.capacity_blocks import terminates_s
from providers.aws.retry import Caller, pages

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_PLATFORM = "Linux/UNIX"
_TENANCY = "default"
_PAGE = 1000


def reservations(caller: Caller, client: "EC2Client") -> Sequence[Reservation]:
    """Every reservation that Linux machines on shared hardware can be launched into, by id; raises `CloudError`."""
    call: Any = client.describe_capacity_reservations
    found = pages(caller, RateLimitGroup.DESCRIBE, call, MaxResults=_PAGE)
    rows = (row for page in found for row in page["CapacityReservations"])
    usable = (row for row in rows if row.get("InstancePlatform") == _PLATFORM and row.get("Tenancy") == _TENANCY)
    return sorted(map(_reservation, usable), key=lambda each: each.id)


def _reservation(row: Mapping[str, Any]) -> Reservation:
    said = row.get("EndDate")
    ends_s = said.timestamp() if isinstance(said, datetime) else inf
    kind: ReservationKind = "capacity-block" if row.get("ReservationType") == "capacity-block" else "default"
    return Reservation(
        id=row["CapacityReservationId"],
        instance_type=row["InstanceType"],
        zone=row["AvailabilityZone"],
        total=row.get("TotalInstanceCount", 0),
        available=row.get("AvailableInstanceCount", 0),
        kind=kind,
        match="open" if row.get("InstanceMatchCriteria") == "open" else "targeted",
        state=row["State"],
        owner=row.get("OwnerId", ""),
        terminates_s=terminates_s(kind, ends_s),
        ends_s=ends_s,
        interruptible=bool(row.get("Interruptible")),
        tags={tag["Key"]: tag.get("Value", "") for tag in row.get("Tags") or ()},
    )
