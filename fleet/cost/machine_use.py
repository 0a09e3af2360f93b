"""Values that say what a machine that bills costs an hour, and who takes which part of it."""

from dataclasses import dataclass
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
