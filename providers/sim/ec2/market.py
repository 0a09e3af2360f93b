"""The market: how many machines each capacity pool still has, what they cost, and when the cloud says no.

A pure model without time or threads of its own; both fake clouds draw on the same one, so that they refuse alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.snapshot import CapacityPool, Catalog
from model.kinds import CapacityType
from providers.sim.ec2.faults import CloudFaults
from providers.sim.ec2.limits import NO_BUCKETS, Bucket, Quota
from providers.sim.ec2.reservations import HeldReservation
from providers.sim.ec2.spot import SpotProcess


@dataclass(frozen=True, slots=True)
class PoolFilter:
    """A set of capacity pools; None means any."""

    capacity_type: CapacityType | None = None
    instance_type: str | None = None
    zone: str | None = None

    def __contains__(self, pool: CapacityPool) -> bool:
        return (
            self.capacity_type in (None, pool.capacity_type)
            and self.instance_type in (None, pool.instance_type)
            and self.zone in (None, pool.zone)
        )

    @classmethod
    def only(cls, pool: CapacityPool) -> "PoolFilter":
        """Just this pool."""
        return cls(pool.capacity_type, pool.instance_type, pool.zone)


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer to a request for machines: how many and, where fewer than asked, EC2's code and words for why."""

    count: int
    code: str = ""
    message: str = ""


def _no_capacity(pool: CapacityPool) -> tuple[str, str]:
    if pool.capacity_type == "reserved":
        return "ReservationCapacityExceeded", (
            f"The requested reservation does not have sufficient {pool.instance_type} capacity in {pool.zone}."
        )
    if pool.capacity_type == "spot":
        return "InsufficientInstanceCapacity", "There is no Spot capacity available that matches your request."
    return "InsufficientInstanceCapacity", (
        f"We currently do not have sufficient {pool.instance_type} capacity in the Availability Zone you requested "
        f"({pool.zone}). Our system will be working on provisioning additional capacity."
    )


def _quota_exceeded(quota: Quota) -> tuple[str, str]:
    if quota.spot:
        return "MaxSpotInstanceCountExceeded", f"Max spot instance count exceeded ({quota.group} vCPU quota)."
    return "VcpuLimitExceeded", (
        "You have requested more vCPU capacity than your current vCPU limit allows for the instance bucket "
        f"{quota.group}."
    )


class RegionMarket:
    """Capacity, prices, shortages, quotas and faults of one region.

    `on_demand_usd_h`: instance type -> price in USD an hour. `capacity`: machines per pool, those in use included; a
    pool that is not in it has `default_capacity` (None: no limit). `vcpus` is needed for types that `quotas` (vCPUs)
    govern. `buckets`: API request limits, off unless given (`EC2_BUCKETS`).
    """

    def __init__(
        self,
        on_demand_usd_h: Mapping[str, float] | None = None,
        *,
        capacity: Mapping[CapacityPool, int] | None = None,
        default_capacity: int | None = None,
        vcpus: Mapping[str, int] | None = None,
        quotas: Mapping[Quota, int] | None = None,
        buckets: Mapping[str, Bucket] = NO_BUCKETS,
        spot: SpotProcess | None = None,
    ) -> None:
        self.on_demand_usd_h = dict(on_demand_usd_h or {})
        self.default_capacity = default_capacity
        self.quotas = dict(quotas or {})
        self.buckets = buckets
        self.spot = spot or SpotProcess()
        self.faults = CloudFaults()
        self._vcpus = dict(vcpus or {})
        self._capacity = dict(capacity or {})
        self._in_use: dict[CapacityPool, int] = {}
        self._vcpus_in_use: dict[Quota, int] = {}
        self.reservations: dict[str, HeldReservation] = {}
        self._shortages: set[PoolFilter] = set()
        self._liars: set[PoolFilter] = set()

    @classmethod
    def from_catalog(
        cls,
        catalog: Catalog,
        *,
        capacity: Mapping[CapacityPool, int] | None = None,
        default_capacity: int | None = None,
        quotas: Mapping[Quota, int] | None = None,
        buckets: Mapping[str, Bucket] = NO_BUCKETS,
        spot: SpotProcess | None = None,
    ) -> "RegionMarket":
        """A market with the on-demand prices and vCPU counts of a catalogue."""
        prices = {o.instance_type.name: o.price_usd_h for o in catalog.offers if o.capacity_type == "on-demand"}
        vcpus = {name: instance_type.capacity.get("cpu", 0) // 1000 for name, instance_type in catalog.types.items()}
        return cls(
            prices,
            capacity=capacity,
            default_capacity=default_capacity,
            vcpus=vcpus,
            quotas=quotas,
            buckets=buckets,
            spot=spot,
        )

    # Prices

    def price_usd_h(self, pool: CapacityPool, now_s: float) -> float | None:
        """The price of `pool` at `now_s` in USD an hour; None for a type without a known price.

        A machine in a reservation is paid for at the on-demand rate, whether it runs or not.
        """
        on_demand = self.on_demand_usd_h.get(pool.instance_type)
        if on_demand is None or pool.capacity_type != "spot":
            return on_demand
        return self.spot.price_usd_h(pool, on_demand, now_s)

    def cost_usd(self, pool: CapacityPool, start_s: float, end_s: float) -> float:
        """What one machine of `pool` cost between two instants; 0 for a type without a known price."""
        on_demand = self.on_demand_usd_h.get(pool.instance_type, 0.0)
        if pool.capacity_type == "spot":
            return self.spot.cost_usd(pool, on_demand, start_s, end_s) if on_demand else 0.0
        return on_demand * max(0.0, end_s - start_s) / 3600.0

    # Capacity

    def capacity(self, pool: CapacityPool) -> int | None:
        """Machines the pool has in all; None for no limit. What a reservation has not, it has not got elsewhere."""
        if pool.capacity_type == "reserved":
            held = self.reservations.get(pool.reservation)
            return held.total if held is not None and held.active else 0
        return self._capacity.get(pool, self.default_capacity)

    def set_capacity(self, pool: CapacityPool, machines: int | None) -> None:
        """Change what a pool has in all; None: the default. Running machines stay (see `Account.reclaim`)."""
        if machines is None:
            self._capacity.pop(pool, None)
            return
        if machines < 0 or pool.capacity_type == "reserved":
            raise ValueError(f"{pool}: {machines} machines")
        self._capacity[pool] = machines

    def pools(self) -> list[CapacityPool]:
        """The pools with a capacity of their own or with machines in use, in order."""
        reserved = {held.pool for held in self.reservations.values()}
        return sorted(self._capacity.keys() | reserved | {pool for pool, count in self._in_use.items() if count})

    def in_use(self, pool: CapacityPool) -> int:
        """Machines of the pool that are handed out."""
        return self._in_use.get(pool, 0)

    def free(self, pool: CapacityPool) -> int | None:
        """Machines that could be had now, quotas aside; None for no limit."""
        if self.short(pool):
            return 0
        total = self.capacity(pool)
        left = None if total is None else max(0, total - self.in_use(pool))
        until_shortage = self.faults.shortage_after
        if until_shortage is None:
            return left
        return until_shortage if left is None else min(left, until_shortage)

    def short(self, pool: CapacityPool) -> bool:
        """Whether a shortage is switched on for the pool."""
        return any(pool in shortage for shortage in self._shortages)

    def set_shortage(self, pools: PoolFilter, *, on: bool = True) -> None:
        """Switch a shortage on, or the same one off again."""
        (self._shortages.add if on else self._shortages.discard)(pools)

    def set_lying(self, pools: PoolFilter, *, on: bool = True) -> None:
        """Let pools ignore the minimum of a request and hand out fewer, which the API promises not to do."""
        (self._liars.add if on else self._liars.discard)(pools)

    def lies(self, pool: CapacityPool) -> bool:
        """Whether the pool ignores the minimum of a request."""
        return any(pool in liars for liars in self._liars)

    def take(self, pool: CapacityPool, count: int, minimum: int = 0) -> Grant:
        """Hand out up to `count` machines, none if fewer than `minimum` can be had (unless the pool lies).

        Every grant below `count` carries the reason. Raises ValueError unless 0 <= minimum <= count and count > 0.
        """
        if count <= 0 or not 0 <= minimum <= count:
            raise ValueError(f"{count} machines, at least {minimum}")
        free, allowed = self.free(pool), self._allowed(pool)
        granted = min([count, *(bound for bound in (free, allowed) if bound is not None)])
        reason = ("", "")
        if granted < count:
            quota_binds = allowed is not None and allowed == granted and (free is None or free > granted)
            reason = _quota_exceeded(Quota.of(pool)) if quota_binds else _no_capacity(pool)
        if granted < minimum and not self.lies(pool):
            granted = 0
        self._use(pool, granted)
        if self.faults.shortage_after is not None:
            self.faults.shortage_after -= granted
        return Grant(granted, *reason)

    def give_back(self, pool: CapacityPool, count: int = 1) -> None:
        """Return machines. Raises ValueError when more come back than were handed out."""
        if not 0 <= count <= self.in_use(pool):
            raise ValueError(f"{pool}: {count} machines come back, {self.in_use(pool)} are out")
        self._use(pool, -count)

    def move(self, pool: CapacityPool, other: CapacityPool) -> None:
        """One machine of a pool counts as one of the other from now on: its reservation has ended, it runs on."""
        self._use(pool, -1)
        self._use(other, 1)

    def undo(self, pool: CapacityPool, count: int) -> None:
        """Return machines of a grant that came to nothing: as if it had never been asked for."""
        self.give_back(pool, count)
        if self.faults.shortage_after is not None:
            self.faults.shortage_after += count

    def vcpus_in_use(self, quota: Quota) -> int:
        """VCPUs that count against a quota now."""
        return self._vcpus_in_use.get(quota, 0)

    def set_quota(self, quota: Quota, vcpus: int | None) -> None:
        """Change a vCPU quota; None lifts it."""
        if vcpus is None:
            self.quotas.pop(quota, None)
        else:
            self.quotas[quota] = vcpus

    def know_vcpus(self, vcpus: Mapping[str, int]) -> None:
        """Add vCPU counts of types that have none yet, before any machine of them is handed out."""
        self._vcpus = dict(vcpus) | self._vcpus

    def _use(self, pool: CapacityPool, count: int) -> None:
        quota = Quota.of(pool)
        self._in_use[pool] = self.in_use(pool) + count
        self._vcpus_in_use[quota] = self.vcpus_in_use(quota) + count * self._vcpus.get(pool.instance_type, 0)

    def _allowed(self, pool: CapacityPool) -> int | None:
        """Machines the account's quota still allows; None for any number."""
        quota = Quota.of(pool)
        limit = self.quotas.get(quota)
        if limit is None:
            return None
        vcpus = self._vcpus.get(pool.instance_type)
        if not vcpus:
            raise ValueError(f"the {quota.group} quota governs {pool.instance_type}, whose vCPUs are not known")
        return max(0, limit - self.vcpus_in_use(quota)) // vcpus
