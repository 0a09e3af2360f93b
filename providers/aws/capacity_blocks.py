"""What is peculiar to EC2's reservations: how they are bought from, and when a capacity block takes machines back.

Source: EC2 User Guide, "Capacity Blocks for ML"; EC2 API Reference, `InstanceMarketOptionsRequest`. Pure.
"""

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Final

from model.kinds import ReservationKind

if TYPE_CHECKING:  # who asks how many machines NVLink joins buys none
    from fleet.snapshot import LaunchRequest

TERMINATION_S = 30 * 60.0
"""EC2 begins to terminate the machines of a capacity block this long before the block's end (EC2 User Guide, "Capacity
Blocks for ML")."""
ULTRASERVERS: Final[Mapping[str, int]] = {"p6e-gb200.36xlarge": 18}
"""Instance type -> machines of the largest UltraServer, which NVLink joins: u-p6e-gb200x72 (u-p6e-gb200x36 is a half).

They are sold by the UltraServer, as a capacity block of its own (EC2 User Guide, "Amazon EC2 UltraServers"; EC2 API
Reference, `InstanceTopology`: the id of the block names the domain)."""


def terminates_s(kind: ReservationKind, ends_s: float) -> float:
    """When EC2 begins to terminate the machines of a reservation that ends then (epoch seconds; inf = never).

    Only a capacity block takes its machines with it: those of any other run on as on-demand ones.
    """
    return ends_s - TERMINATION_S if kind == "capacity-block" else inf


def market_of(request: "LaunchRequest") -> str:
    """How EC2 sells what is in a reservation (`MarketType`), where that is not plain on-demand."""
    if request.interruptible:
        return "interruptible-capacity-reservation"
    return "capacity-block" if request.reservation_kind == "capacity-block" else ""
