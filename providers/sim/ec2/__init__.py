"""A fake EC2 that can refuse: one market and one account, behind the real API or without a wire.

`FakeAws` is the API over HTTP, `MemoryCloud` the agent's ports directly.
"""

from typing import TYPE_CHECKING

from providers.sim.ec2.account import Account, Timings
from providers.sim.ec2.faults import Faults
from providers.sim.ec2.limits import EC2_BUCKETS, Bucket, Quota
from providers.sim.ec2.market import Grant, Market, PoolFilter
from providers.sim.ec2.memory import MemoryCloud
from providers.sim.ec2.reservations import Held
from providers.sim.ec2.spot import SpotProcess
from providers.sim.ec2.vm import LedgerEntry

if TYPE_CHECKING:
    from providers.sim.ec2.server import FakeAws

__all__ = [
    "EC2_BUCKETS",
    "Account",
    "Bucket",
    "FakeAws",
    "Faults",
    "Grant",
    "Held",
    "LedgerEntry",
    "Market",
    "MemoryCloud",
    "PoolFilter",
    "Quota",
    "SpotProcess",
    "Timings",
]


def __getattr__(name: str) -> object:
    """Import moto only for those who want `FakeAws`: it costs a second and is an optional dependency."""
    if name == "FakeAws":
        from providers.sim.ec2.server import FakeAws

        return FakeAws
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
