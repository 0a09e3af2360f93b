"""Values that say what a machine that bills costs an hour, and who takes which part of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from fleet.markets import CapacityPool, PriceSource

IDLE: Final = "(idle)"
NOT_READY: Final = "(not ready)"
UNCLAIMED: Final = "(unclaimed)"
UNOBSERVED: Final = "(unobserved)"
RESERVED: Final = "(reserved)"
"""What was paid for a reservation and no machine has taken."""
NOBODY: Final = frozenset({IDLE, NOT_READY, UNCLAIMED, UNOBSERVED, RESERVED})
"""Subjects that are nobody: what no work takes of a machine, by why. Kubernetes allows no name in brackets."""


class Commitment(NamedTuple):
    """A `Commitment` is what was paid, or is paid by the hour, for machines of a reservation, used or not."""

    reservation: str
    """Its id, as EC2 has it: of a capacity block or another capacity reservation."""
    instance_type: str
    zone: str
    machines: int
    """That are paid for."""
    begin_s: float
    """Its term, `[begin_s, end_s)` in epoch seconds."""
    end_s: float
    upfront_usd: float
    """For the whole term and all machines."""
    usd_h: float
    """By the hour, for each machine."""
    source: str
    """In words, for reports."""

    @property
    def machine_usd_h(self) -> float:
        """Returns what each machine costs an hour."""
        return self.upfront_usd / self.machines * 3600 / (self.end_s - self.begin_s) + self.usd_h


@dataclass(frozen=True, slots=True)
class Holding:
    """A `Holding` is what a gang, or the ordinary pods of one owner, take of a machine."""

    subject: str
    """uid of the gang's job; `namespace/kind/name` of the owner of ordinary pods."""
    name: str
    namespace: str
    queue: str
    team: str
    user: str
    borrowed: bool
    """Whether the gang stands on quota that its team has borrowed."""
    share: float
    """Part of the machine, 0 to 1."""
    devices: str
    """GPUs and slices, as in `7 nvidia.com/mig-1g.10gb`."""
    since_s: float
    """Since when it holds them at the earliest (epoch seconds)."""

    def of_run(self, admitted_at_s: float) -> bool:
        """Returns whether a gang has held it since this admission; what is stored is whole microseconds."""
        return abs(self.since_s - admitted_at_s) < 1.0


class MachinePrice(NamedTuple):
    """A `MachinePrice` is what a machine costs an hour (USD), until its reservation ends and then."""

    usd_h: float
    until_s: float
    then_usd_h: float

    def to_come(self, begin_s: float, end_s: float) -> Iterator[tuple[float, float, float]]:
        """Yields (begin, end, USD an hour) of a time to come, in order; nothing of what costs nothing any more."""
        turn_s = min(max(begin_s, self.until_s or end_s), end_s)
        if begin_s < turn_s:
            yield begin_s, turn_s, self.usd_h
        if turn_s < end_s and self.then_usd_h:
            yield turn_s, end_s, self.then_usd_h


@dataclass(frozen=True, slots=True)
class MachineUse:
    """A `MachineUse` is a machine that bills: what it is, what it costs an hour now, and who takes which part."""

    machine: str
    """Id of the instance; the claim's name where that is not known."""
    node_pool: str
    where: CapacityPool
    gpu: str
    """Model of its GPUs, as EC2 names it; empty = none."""
    gpus: int
    usd_h: float
    priced: PriceSource
    launched_s: float
    holdings: tuple[Holding, ...] = ()
    rest: str = IDLE
    """Why nobody takes what nobody takes, one of `NOBODY`."""
    spot_part: float = 0.0
    """What it costs, by the spot price of its pool: 1, or less by a rate; 0 where its price does not follow that."""
    until_s: float = 0.0
    """When its reservation ends (epoch seconds); 0 = it is in none, or no end is set."""
    then_usd_h: float = 0.0
    """What it, or what its pool buys on demand in its place, costs an hour after that; 0 = nothing is in its place."""
    known_s: float = 0.0
    """Since when it is known to run (epoch seconds): an answer that was lost is given minutes after the launch."""

    @property
    def priced_as(self) -> MachinePrice:
        """Returns what it costs, now and later."""
        return MachinePrice(self.usd_h, self.until_s, self.then_usd_h)

    def to_come(self, begin_s: float, end_s: float) -> Iterator[tuple[float, float, "MachineUse"]]:
        """Yields (begin, end, use) of a time to come in which nothing changes, but that its reservation ends."""
        for from_s, until_s, usd_h in self.priced_as.to_come(begin_s, end_s):
            reserved = not self.until_s or from_s < self.until_s
            where = self.where if reserved else replace(self.where, capacity_type="on-demand", reservation="")
            yield from_s, until_s, replace(self, where=where, usd_h=usd_h)
