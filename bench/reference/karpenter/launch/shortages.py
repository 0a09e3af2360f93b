"""What cannot be had for a while, learned from launches that failed (Karpenter `pkg/cache/unavailableofferings.go`)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from bench.reference.karpenter.buy.values import MachineType, ReferenceOffering
from fleet.snapshot import CapacityPool, Reach
from model.kinds import CapacityType

REMEMBERED_S = 180.0
"""After this a shortage is forgotten, and the next launch finds out anew."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tried:
    """What a launch asked for when it failed."""

    pool: CapacityPool
    subnet: str = ""
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class Shortages:
    """What is short until when (epoch seconds). `subnets` are held against a zone once all of its are short."""

    pools: Mapping[CapacityPool, float] = field(default_factory=dict)
    capacity_types: Mapping[str, float] = field(default_factory=dict)
    subnets: Mapping[str, float] = field(default_factory=dict)
    reservations: Mapping[str, float] = field(default_factory=dict)

    def learned(self, tried: Tried, reach: Reach, now_s: float) -> "Shortages":
        """These and what the failure of `tried` teaches."""
        until = now_s + REMEMBERED_S
        match reach:
            case Reach.POOL:
                return replace(self, pools={**self.pools, tried.pool: until})
            case Reach.CAPACITY_TYPE:
                return replace(self, capacity_types={**self.capacity_types, tried.pool.capacity_type: until})
            case Reach.SUBNET:
                return replace(self, subnets={**self.subnets, tried.subnet: until})
            case Reach.RESERVATION:
                return replace(self, reservations={**self.reservations, tried.reservation: until})
            case Reach.NOTHING:
                return self

    def current(self, now_s: float) -> "Shortages":
        """Those that still hold."""
        return Shortages(
            _after(self.pools, now_s),
            _after(self.capacity_types, now_s),
            _after(self.subnets, now_s),
            _after(self.reservations, now_s),
        )

    def cover(self, machine: str, offer: ReferenceOffering, now_s: float, subnets: Iterable[str] = ()) -> bool:
        """Whether an offer of a machine type is short. `subnets` are those of its zone."""
        if offer.reservation_id:
            return self.reservations.get(offer.reservation_id, 0.0) > now_s
        if self.capacity_types.get(offer.capacity_type, 0.0) > now_s:
            return True
        mine = list(subnets)
        if mine and all(self.subnets.get(each, 0.0) > now_s for each in mine):
            return True
        pool = CapacityPool(cast("CapacityType", offer.capacity_type), machine, offer.zone)
        return self.pools.get(pool, 0.0) > now_s

    def spare(
        self, machines: Iterable[MachineType], now_s: float, subnets: Mapping[str, Iterable[str]]
    ) -> list[MachineType]:
        """The machines with what is short no longer available. `subnets` are by zone."""
        return [replace(each, offerings=tuple(self._spared(each, now_s, subnets))) for each in machines]

    def _spared(
        self, machine: MachineType, now_s: float, subnets: Mapping[str, Iterable[str]]
    ) -> Iterable[ReferenceOffering]:
        for offer in machine.offerings:
            short = self.cover(machine.name, offer, now_s, subnets.get(offer.zone, ()))
            yield replace(offer, available=False) if short and offer.available else offer


def _after(until: Mapping[T, float], now_s: float) -> dict[T, float]:
    return {key: at_s for key, at_s in until.items() if at_s > now_s}
