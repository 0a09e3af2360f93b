"""Capacity reservations of the fake: machines set aside in a zone, who may launch into them, and how they end.

Source: EC2 User Guide "Capacity Reservations" and "Capacity Blocks for ML"; EC2 API Reference
DescribeCapacityReservations.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Any

from fleet.snapshot import CapacityPool, Reservation
from model.kinds import MatchCriteria, ReservationKind
from providers.aws.capacity_blocks import terminates_s

PLATFORM = "Linux/UNIX"
BLOCK, INTERRUPTIBLE = "capacity-block", "interruptible-capacity-reservation"


@dataclass(slots=True)
class HeldReservation:
    """A reservation of `total` machines. A capacity block has an end; others may have one (epoch seconds)."""

    id: str
    instance_type: str
    zone: str
    total: int
    kind: ReservationKind = "default"
    match: MatchCriteria = "targeted"
    owner: str = ""
    """Account id; empty = the account of the fake."""
    ends_s: float | None = None
    interruptible: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    state: str = "active"

    @property
    def pool(self) -> CapacityPool:
        """The capacity pool its machines are drawn from."""
        return CapacityPool("reserved", self.instance_type, self.zone, self.id)

    @property
    def active(self) -> bool:
        """Whether machines can be launched into it."""
        return self.state == "active"

    @property
    def market(self) -> str:
        """The `MarketType` a launch into it has to name; empty for none."""
        if self.interruptible:
            return INTERRUPTIBLE
        return BLOCK if self.kind == BLOCK else ""

    def terminates_s(self) -> float | None:
        """When EC2 begins to terminate its machines; None: they outlive it as on-demand ones."""
        found = terminates_s(self.kind, inf if self.ends_s is None else self.ends_s)
        return found if found < inf else None

    def as_reservation(self, in_use: int, account_id: str) -> Reservation:
        """As the agent sees it."""
        left = max(0, self.total - in_use) if self.active else 0
        return Reservation(
            self.id,
            self.instance_type,
            self.zone,
            self.total,
            left,
            kind=self.kind,
            match=self.match,
            state=self.state,
            owner=self.owner or account_id,
            interruptible=self.interruptible,
            tags=dict(self.tags),
            terminates_s=terminates_s(self.kind, inf if self.ends_s is None else self.ends_s),
            ends_s=inf if self.ends_s is None else self.ends_s,
        )

    def as_row(self, in_use: int, account_id: str) -> dict[str, Any]:
        """As a `CapacityReservation` of the API."""
        row: dict[str, Any] = {
            "CapacityReservationId": self.id,
            "OwnerId": self.owner or account_id,
            "InstanceType": self.instance_type,
            "InstancePlatform": PLATFORM,
            "AvailabilityZone": self.zone,
            "Tenancy": "default",
            "TotalInstanceCount": self.total,
            "AvailableInstanceCount": max(0, self.total - in_use) if self.active else 0,
            "State": self.state,
            "InstanceMatchCriteria": self.match,
            "ReservationType": self.kind,
            "Interruptible": self.interruptible,
            "EndDateType": "unlimited" if self.ends_s is None else "limited",
            "Tags": [{"Key": key, "Value": value} for key, value in sorted(self.tags.items())],
        }
        return row if self.ends_s is None else row | {"EndDate": datetime.fromtimestamp(self.ends_s, UTC)}


def open_to(held: Iterable[HeldReservation], pool: CapacityPool) -> list[HeldReservation]:
    """The reservations that machines of an on-demand pool are let into unasked, by id."""
    place = (pool.instance_type, pool.zone)
    suits = (one for one in held if one.active and one.match == "open" and one.kind == "default")
    if pool.capacity_type != "on-demand":
        return []
    return sorted((one for one in suits if (one.instance_type, one.zone) == place), key=lambda one: one.id)


def refusal(held: HeldReservation | None, wanted: str, pool: CapacityPool, market: str) -> tuple[str, str] | None:
    """Why a machine of `pool` cannot be launched into the reservation `wanted`, if so."""
    if held is None or not held.active:
        return "InvalidCapacityReservationId.NotFound", f"The capacity reservation '{wanted}' does not exist"
    if (held.instance_type, held.zone) != (pool.instance_type, pool.zone):
        message = f"The capacity reservation '{wanted}' is for {held.instance_type} in {held.zone}."
        return "InvalidParameterCombination", message
    if held.market != market:
        message = f"The capacity reservation '{wanted}' needs the market type '{held.market or 'on-demand'}'."
        return "InvalidParameterCombination", message
    return None


def page(rows: Sequence[dict[str, Any]], size: int | None, token: str | None) -> dict[str, Any]:
    """One page of a listing; the token is the id after which to go on."""
    rest = [row for row in rows if not token or row["CapacityReservationId"] > token]
    first = rest if size is None else rest[:size]
    more = len(rest) > len(first)
    return {"CapacityReservations": first, "NextToken": first[-1]["CapacityReservationId"] if more else ""}
