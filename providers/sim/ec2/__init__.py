"""A fake EC2 that can refuse: one market and one account, behind the real API or without a wire.

`FakeAws` is the API over HTTP, `MemoryCloud` the agent's ports directly.
"""

from typing import TYPE_CHECKING

from providers.sim.ec2.account import Account
from providers.sim.ec2.faults import CloudFaults
from providers.sim.ec2.limits import EC2_BUCKETS, Bucket, Quota
from providers.sim.ec2.market import Grant, PoolFilter, RegionMarket
from providers.sim.ec2.memory import MemoryCloud
from providers.sim.ec2.reservations import HeldReservation
from providers.sim.ec2.spot import SpotProcess
from providers.sim.machines import LedgerEntry, MachineTimings

if TYPE_CHECKING:
    from providers.sim.ec2.server import FakeAws

__all__ = [
    "EC2_BUCKETS",
    "Account",
    "Bucket",
    "CloudFaults",
    "FakeAws",
    "Grant",
    "HeldReservation",
    "LedgerEntry",
    "MachineTimings",
    "MemoryCloud",
    "PoolFilter",
    "Quota",
    "RegionMarket",
    "SpotProcess",
]


def __getattr__(name: str) -> object:
    """Import moto only for those who want `FakeAws`: it costs a second and is an optional dependency."""
    if name == "FakeAws":
        from providers.sim.ec2.server import FakeAws

        return FakeAws
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
