"""Markets on which machines are bought: capacity pools, and where prices come from. Costs are told without the rest."""

from dataclasses import dataclass
from typing import NamedTuple

from model.labels import CapacityType


@dataclass(frozen=True, slots=True, order=True)
class CapacityPool:
    """A `CapacityPool` is capacity that runs short together: (capacity type, type, zone), or one reservation."""

    capacity_type: CapacityType
    instance_type: str
    zone: str
    reservation: str = ""
    """Id of the capacity reservation."""

    def __str__(self) -> str:
        place = f"{self.instance_type}:{self.capacity_type}:{self.zone}"
        return f"{place}:{self.reservation}" if self.reservation else place


class PriceSource(NamedTuple):
    """Where prices come from; offers with prices of one source share it."""

    source: str
    """In words: `Pricing API`, `package prices of 2026-07-20`, `spot price history`, `0.40 x on-demand`."""
    region: str
    """The region they are of, which is another one where none are known of the offer's own."""
    at_s: float
    """When they held (epoch seconds)."""


NO_SOURCE = PriceSource("", "", 0.0)


class PastPrice(NamedTuple):
    """A `PastPrice` is what a machine of a spot pool cost from an instant on, until the next one."""

    since_s: float
    """When it came into force (epoch seconds)."""
    usd_h: float
