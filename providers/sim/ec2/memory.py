"""`MemoryCloud`: the Cloud and Notices ports straight on an account, without boto3 or a wire, for virtual time."""

import dataclasses
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from fleet.catalog import InstanceOffer
from fleet.markets import PastPrice
from fleet.snapshot import (
    CapacityPool,
    Catalog,
    Instance,
    LaunchConfiguration,
    LaunchError,
    LaunchFailure,
    LaunchOutcome,
    LaunchRequest,
    Notice,
    Reservation,
    Resolved,
)
from model.labels import ADOPT, CLUSTER
from providers.aws.capacity_blocks import market_of
from providers.aws.interruption import notice_of
from providers.aws.user_data import ClusterAccess, node_user_data
from providers.clock import Clock
from providers.ports import CloudRejected, CloudThrottled, CloudUnreachable
from providers.sim.ec2.account import Account, ConnectionLost, Ec2Error, Order, Receipt
from providers.sim.ec2.allocation import LaunchOverride, LaunchTarget, MachineSpec
from providers.sim.ec2.market import RegionMarket
from providers.sim.ec2.names import Names
from providers.sim.ec2.reservations import refusal
from providers.sim.ec2.vm import Signal
from providers.sim.machines import LedgerEntry, MachineTimings, SimulatedMachine

ERRORS: Final[Mapping[str, LaunchError]] = {
    "InsufficientInstanceCapacity": LaunchError.SHORTAGE,
    "InsufficientFreeAddressesInSubnet": LaunchError.SHORTAGE,
    "ReservationCapacityExceeded": LaunchError.SHORTAGE,
    "MaxSpotInstanceCountExceeded": LaunchError.QUOTA,
    "VcpuLimitExceeded": LaunchError.QUOTA,
    "Unsupported": LaunchError.MISCONFIGURED,
    "InvalidCapacityReservationId.NotFound": LaunchError.MISCONFIGURED,
    "InvalidParameterCombination": LaunchError.MISCONFIGURED,
    "RequestLimitExceeded": LaunchError.THROTTLED,
}
_BATCH = 10


class _TenNet:
    """Addresses from 10.0.0.0/8, each given out once, as long as there are any."""

    def __init__(self) -> None:
        self._next = count(4)
        self._left = (1 << 24) - 8

    def free(self) -> int:
        """How many addresses are left."""
        return self._left

    def take(self) -> str:
        """The next address."""
        self._left -= 1
        number = next(self._next)
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    def give_back(self, address: str) -> None:
        """An address is never given out twice, so that a late event cannot name the wrong node."""


class MemoryCloud:
    """A cloud for one cluster: the ports `Cloud`, `Notices` and `SimulatedMachines`, and the controls of a fake.

    Spot offers of `catalog` are priced by the market at the last `refresh`.
    """

    def __init__(
        self,
        market: RegionMarket,
        catalog: Catalog,
        clock: Clock,
        *,
        cluster: str = "default",
        timings: MachineTimings | None = None,
        visibility_s: float = 30.0,
    ) -> None:
        self.name = "memory-cloud"
        self.market = market
        self.names = Names({offer.zone for offer in catalog.offers})
        self.account = Account(market, clock, region=catalog.region or "us-east-1", timings=timings)
        self._base = catalog
        self._cluster = cluster
        self._offered = {offer.pool_key for offer in catalog.offers}
        self._addresses = _TenNet()
        self._queue = NoticeQueue(self.account, visibility_s)
        self._catalog = self._priced()

    # Cloud

    def catalog(self) -> Catalog:
        """The catalogue with the spot prices of the last refresh."""
        return self._catalog

    def refresh(self) -> Catalog:
        """Read the spot prices of now. Raises CloudThrottled or CloudUnreachable where the faults say so."""
        self._admit("DescribeSpotPriceHistory")
        self._catalog = self._priced()
        return self._catalog

    def spot_history(
        self, pools: Collection[CapacityPool], begin_s: float, end_s: float
    ) -> Mapping[CapacityPool, Sequence[PastPrice]]:
        """What spot machines of these pools cost in a past time."""
        self._admit("DescribeSpotPriceHistory")
        changes = self.market.spot.changes_s(begin_s, min(end_s, self.account.now()))
        sold = sorted({it for it in pools if it.capacity_type == "spot"} & self._offered)
        told = ((pool, [(at_s, self.market.price_usd_h(pool, at_s)) for at_s in changes]) for pool in sold)
        return {pool: [PastPrice(at_s, usd_h) for at_s, usd_h in prices if usd_h] for pool, prices in told}

    def launch(self, request: LaunchRequest) -> LaunchOutcome:
        """Buy machines, all or nothing, from one pool; the same token never buys twice."""
        try:
            order = self._order(request)
            self.account.admit("CreateFleet")
            receipt = self.account.launch(order)
        except CloudRejected as error:
            return _failed(LaunchError.MISCONFIGURED, "CloudRejected", str(error))
        except ConnectionLost:
            return _failed(LaunchError.UNKNOWN, "ConnectionLost", "no answer")
        except Ec2Error as error:
            return self._refused(request, error)
        if self.market.faults.spend("lost_answers"):
            return _failed(LaunchError.UNKNOWN, "ConnectionLost", "no answer")
        return _outcome(receipt)

    def instances(self) -> Sequence[Instance]:
        """Every instance with this cluster's tag, or asked to be adopted by it, that is still listed, by id."""
        self._admit("DescribeInstances")
        self._admit("DescribeInstances")
        ours = (vm.as_instance() for vm in self.account.vms() if self._concerns(vm.tags))
        return sorted(ours, key=lambda instance: instance.id)

    def _concerns(self, tags: Mapping[str, str]) -> bool:
        return tags.get(CLUSTER) == self._cluster or tags.get(ADOPT, "").startswith(f"{self._cluster}/")

    def reservations(self) -> Sequence[Reservation]:
        """Every capacity reservation, by id."""
        self._admit("DescribeCapacityReservations")
        market, account_id = self.market, self.account.account_id
        found = (held.as_reservation(market.in_use(held.pool), account_id) for held in market.reservations.values())
        return sorted(found, key=lambda each: each.id)

    def resolve(self, births: Sequence[LaunchConfiguration]) -> Mapping[str, Resolved]:
        """What the names of templates stand for now."""
        self._admit("DescribeImages")
        return self.names.resolved(births)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Give machines back; unknown and gone ones are fine."""
        if not instance_ids:
            return
        self._admit("TerminateInstances", machines=len(instance_ids))
        known = {vm.id for vm in self.account.vms()}
        self.account.terminate(sorted(known.intersection(instance_ids)))

    def tag(self, instance_id: str, tags: dict[str, str]) -> None:
        """Add or overwrite tags. Raises CloudRejected for an unknown machine."""
        self._admit("CreateTags")
        try:
            self.account.tag(instance_id, tags)
        except Ec2Error as error:
            raise CloudRejected(str(error)) from error

    # Notices

    def receive(self, wait_s: float) -> Sequence[Notice]:
        """Up to ten notices; never waits, since virtual time stands still meanwhile."""
        del wait_s
        return self._queue.receive()

    def acknowledge(self, notices: Iterable[Notice]) -> None:
        """Delete notices."""
        self._queue.acknowledge(notices)

    def next_notice_at(self) -> float | None:
        """When the next notice can be received that cannot be now."""
        return self._queue.next_at()

    # Machines and Controller

    @property
    def version(self) -> int:
        """Grows with every change of a machine and every notice."""
        return self.account.version

    def list(self) -> Sequence[SimulatedMachine]:
        """Every machine still listed, for node registration."""
        return self.account.machines()

    def step(self, now: float) -> float | None:
        """Let the machines live until `now`; the next instant something happens."""
        return self.account.step(now)

    # Controls

    def running(self) -> Sequence[Instance]:
        """Machines that bill now, by id."""
        alive = (vm.as_instance() for vm in self.account.vms() if vm.alive)
        return sorted(alive, key=lambda instance: instance.id)

    def ledger(self) -> Sequence[LedgerEntry]:
        """Every machine ever bought: the truth about money."""
        return self.account.ledger()

    def interrupt(self, instance_id: str, notice_s: float = 120.0) -> None:
        """Take a spot or reserved machine back `notice_s` from now, with a warning."""
        self.account.interrupt(instance_id, notice_s)

    def rebalance(self, instance_id: str) -> None:
        """Recommend to move off a machine."""
        self.account.rebalance(instance_id)

    def schedule_change(self, instance_id: str) -> None:
        """Announce the retirement of a machine's host."""
        self.account.schedule_change(instance_id)

    def publish_image(self) -> None:
        """Put a new image behind every name."""
        self.names.publish()

    def kill(self, instance_id: str) -> None:
        """Let a machine die at once."""
        self.account.kill(instance_id)

    def boot_delay_s(self, machine: SimulatedMachine) -> float | None:
        """Seconds from its launch until a machine's kubelet registers; None for never."""
        return self.account.boot_delay_s(machine)

    def _priced(self) -> Catalog:
        now_s = self.account.now()
        return replace(
            self._base, offers=tuple(self._price(offer, now_s) for offer in self._base.offers), priced_at_s=now_s
        )

    def _price(self, offer: InstanceOffer, now_s: float) -> InstanceOffer:
        price = self.market.price_usd_h(offer.pool_key, now_s) if offer.capacity_type == "spot" else None
        return offer if price is None else replace(offer, price_usd_h=price)

    def _admit(self, action: str, machines: int = 0) -> None:
        try:
            self.account.admit(action, machines=machines)
        except ConnectionLost as error:
            raise CloudUnreachable(f"{action}: no answer") from error
        except Ec2Error as error:
            raise CloudThrottled(str(error)) from error

    def _order(self, request: LaunchRequest) -> Order:
        """The order behind a request. Raises CloudRejected for labels or taints that are none."""
        access = ClusterAccess(self._cluster)
        user_data = node_user_data(access, request.template, request.labels, request.taints)
        tags = dict(request.tags)
        born = self.names.born(request)
        efa = request.fabric_interfaces
        spec = MachineSpec(
            self._addresses, user_data=user_data, tags=tags, details=born, closed=request.closed, efa=efa
        )
        unsupported = (
            "Unsupported",
            f"{request.pool.instance_type} is not supported as {request.pool.capacity_type} in {request.pool.zone}.",
        )
        refused = None if request.pool in self._offered else unsupported
        if request.pool.capacity_type == "reserved":
            held = self.market.reservations.get(request.pool.reservation)
            refused = refusal(held, request.pool.reservation, request.pool, market_of(request))
        candidate = LaunchOverride(request.pool, spec, refusal=refused)
        target = LaunchTarget(request.count, (candidate,), minimum=request.count, single_type=True, single_zone=True)
        return Order((target,), token=request.token, fingerprint=repr(dataclasses.replace(request, token="")))

    def _refused(self, request: LaunchRequest, error: Ec2Error) -> LaunchOutcome:
        """A token that was used for another request: what it bought then is what there is, if it still runs."""
        if error.code != "IdempotentParameterMismatch":
            return _failed(ERRORS.get(error.code, LaunchError.UNKNOWN), error.code, error.message)
        found = tuple(sorted(vm.id for vm in self.account.vms() if vm.token == request.token and vm.alive))
        whole = len(found) >= request.count
        return LaunchOutcome(found, () if whole else (LaunchFailure(LaunchError.UNKNOWN, error.code, error.message),))


def _outcome(receipt: Receipt) -> LaunchOutcome:
    return LaunchOutcome(
        instances=tuple(sorted(receipt.instance_ids)),
        failures=tuple(
            LaunchFailure(ERRORS.get(refusal.code, LaunchError.UNKNOWN), refusal.code, refusal.message)
            for refusal in receipt.refusals
        ),
    )


def _failed(error: LaunchError, code: str, message: str) -> LaunchOutcome:
    return LaunchOutcome(failures=(LaunchFailure(error, code, message),))


class NoticeQueue:
    """At-least-once delivery, as SQS gives it: a received notice comes again unless it is acknowledged in time."""

    def __init__(self, account: Account, visibility_s: float) -> None:
        self._account = account
        self._visibility_s = visibility_s
        self._lock = threading.Lock()
        self._messages: deque[_Message] = deque()
        account.on_signal(self._put)

    def receive(self) -> list[Notice]:
        """Up to ten visible notices, oldest first; each stays hidden for the visibility time-out."""
        now_s = self._account.now()
        with self._lock:
            visible = [message for message in self._messages if message.hidden_until_s <= now_s][:_BATCH]
            for message in visible:
                message.hidden_until_s = now_s + self._visibility_s
            return [message.notice for message in visible]

    def next_at(self) -> float | None:
        """When a hidden notice shows again; None where all are visible."""
        now_s = self._account.now()
        with self._lock:
            return min((it.hidden_until_s for it in self._messages if it.hidden_until_s > now_s), default=None)

    def acknowledge(self, notices: Iterable[Notice]) -> None:
        """Delete what was received; a duplicate delivery that was not received yet still comes."""
        done = {notice.id for notice in notices}
        with self._lock:
            self._messages = deque(
                message for message in self._messages if message.notice.id not in done or message.hidden_until_s == 0.0
            )

    def _put(self, signal: Signal) -> None:
        notice = notice_of(signal.id, signal.kind, (signal.instance_id,), signal.at_s)
        with self._lock:
            self._messages.append(_Message(notice))


@dataclasses.dataclass(slots=True)
class _Message:
    notice: Notice
    hidden_until_s: float = 0.0
