"""The account: the machines that were bought from the market and what happens to them as time passes.

Both fake clouds are faces on an `Account`: the EC2 API (`server`) and the ports without a wire (`memory`).
"""

import hashlib
import heapq
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf

from fleet.snapshot import CapacityPool, NoticeKind
from providers.clock import Clock
from providers.sim.ec2.allocation import LaunchOverride, LaunchTarget, OverrideRefusal, allocate
from providers.sim.ec2.limits import Throttle, bucket_of
from providers.sim.ec2.market import RegionMarket
from providers.sim.ec2.reservations import HeldReservation
from providers.sim.ec2.vm import Signal, Vm
from providers.sim.machines import LedgerEntry, MachineState, MachineTimings, SimulatedMachine

ANNOUNCED: frozenset[str] = frozenset({"stopping", "stopped", "shutting-down", "terminated"})
"""State changes that reach the queue: the EventBridge rule an operator is told to create matches these states."""


class Ec2Error(Exception):
    """A refusal of the API, with EC2's error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class ConnectionLost(Exception):
    """The caller gets no answer. Whether anything happened, it cannot know."""


@dataclass(frozen=True, slots=True)
class Order:
    """A launch: with `token` it happens once. `fingerprint` tells the same request from another with the same token."""

    targets: tuple[LaunchTarget, ...]
    token: str = ""
    fingerprint: Hashable = None
    fleet: bool = True


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an order brought; the same token gets the same receipt again."""

    fleet_id: str
    launched: tuple[tuple[LaunchOverride, tuple[str, ...]], ...]
    refusals: tuple[OverrideRefusal, ...]

    @property
    def instance_ids(self) -> tuple[str, ...]:
        """All machines, in launch order."""
        return tuple(instance_id for _, ids in self.launched for instance_id in ids)


class Account:
    """Machines and their lives. Thread-safe; time passes when it is asked anything, and in `step`.

    Ids are a function of the account, the order of events and `salt`, which makes those of another run differ.
    """

    def __init__(
        self,
        market: RegionMarket,
        clock: Clock,
        *,
        region: str = "us-east-1",
        account_id: str = "000000000000",
        salt: str = "",
        timings: MachineTimings | None = None,
    ) -> None:
        self.name = f"ec2/{account_id}"
        self.market = market
        self.region = region
        self.account_id = account_id
        self.timings = timings or MachineTimings()
        self.lock = threading.RLock()
        self.calls: Counter[str] = Counter()
        """API calls by action, refused ones included."""
        self.throttled: Counter[str] = Counter()
        """Those refused for their rate."""
        self.version = 0
        """Grows with every change of a machine and every message."""
        self._salt = salt
        self._clock = clock
        self._throttle = Throttle(market.buckets)
        self._vms: dict[str, Vm] = {}
        self._history: dict[str, Vm] = {}
        self._receipts: dict[str, tuple[float, Hashable, Receipt]] = {}
        self._sinks: list[Callable[[Signal], None]] = []
        self._wakers: list[Callable[[], None]] = []
        self._agenda: list[tuple[float, int, Callable[[float], None]]] = []
        self._due_s = inf
        """When the first of the agenda is due: for whoever asks without the lock."""
        self._sequence = count()

    # Time

    def now(self) -> float:
        """The clock's time, with everything that was due by then done."""
        now_s = self._clock.now()
        if self._due_s <= now_s:
            self.step(now_s)
        return now_s

    def step(self, now: float) -> float | None:
        """Do all that is due at `now`; returns when the next thing is, or None."""
        with self.lock:
            while self._agenda and self._agenda[0][0] <= now:
                at_s, _, action = heapq.heappop(self._agenda)
                action(at_s)
            self._due_s = self._agenda[0][0] if self._agenda else inf
            return self._agenda[0][0] if self._agenda else None

    def _at(self, at_s: float, action: Callable[[float], None]) -> None:
        self.version += 1
        heapq.heappush(self._agenda, (at_s, next(self._sequence), action))
        self._due_s = self._agenda[0][0]
        for wake in self._wakers:
            wake()

    def on_agenda(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever something new is due in the future; it must only set a flag."""
        self._wakers.append(wake)

    def on_signal(self, sink: Callable[[Signal], None]) -> None:
        """Hand every signal, when it is delivered, to `sink`."""
        self._sinks.append(sink)

    # The API's own limits

    def admit(self, action: str, *, paged: bool = True, machines: int = 0) -> None:
        """Let one API call in. Raises Ec2Error(RequestLimitExceeded) or ConnectionLost, before anything happens."""
        now_s = self.now()
        with self.lock:
            if self.market.faults.spend("dropped_calls"):
                raise ConnectionLost(action)
            allowed = self._throttle.allows(bucket_of(action, paged=paged), now_s)
            if machines:
                allowed = self._throttle.allows(f"{action}:machines", now_s, machines) and allowed
            self.calls[action] += 1
            if self.market.faults.spend("throttled_calls") or not allowed:
                self.throttled[action] += 1
                raise Ec2Error("RequestLimitExceeded", "Request limit exceeded.")

    # Buying and giving back

    def launch(self, order: Order) -> Receipt:
        """Buy machines. Raises Ec2Error(IdempotentParameterMismatch) where the token was used for another request."""
        now_s = self.now()
        with self.lock:
            known = self._receipts.get(order.token) if order.token else None
            if known is not None and now_s - known[0] <= self.timings.tokens_s:
                if known[1] != order.fingerprint:
                    raise Ec2Error(
                        "IdempotentParameterMismatch",
                        f"Arguments on this idempotent request are inconsistent with the first use of {order.token}.",
                    )
                return known[2]
            receipt = self._launch(order, now_s)
            if order.token and (order.fleet or receipt.launched):
                self._receipts[order.token] = (now_s, order.fingerprint, receipt)
            return receipt

    def _launch(self, order: Order, now_s: float) -> Receipt:
        fleet_id = f"fleet-{self._hex('fleet', 36)}" if order.fleet else ""
        launched: list[tuple[LaunchOverride, tuple[str, ...]]] = []
        refusals: list[OverrideRefusal] = []
        for target in order.targets:
            allocation = allocate(self.market, target, now_s)
            refusals += allocation.refusals
            for award in allocation.awards:
                vms = [self._create(award.candidate, at, order.token, fleet_id, now_s) for at in award.addresses]
                launched.append((award.candidate, tuple(vm.id for vm in vms)))
        return Receipt(fleet_id, tuple(launched), tuple(refusals))

    def _create(self, candidate: LaunchOverride, address: str, token: str, fleet_id: str, now_s: float) -> Vm:
        faults = self.market.faults
        vm = Vm(
            id=f"i-{self._hex('i', 17)}",
            ordinal=len(self._history) + 1,
            pool=candidate.pool,
            spec=candidate.spec,
            launched_at_s=now_s,
            address=address,
            private_dns=private_dns(address, self.region),
            fleet_id=fleet_id,
            token=token,
            price_usd_h=self.market.price_usd_h(candidate.pool, now_s),
            tags=dict(candidate.spec.tags) | ({"aws:ec2:fleet-id": fleet_id} if fleet_id else {}),
        )
        pending_s = self.timings.pending_s + (faults.slow_boot_s if faults.spend("slow_boots") else 0.0)
        vm.boot_delay_s = None if faults.spend("never_boots") else pending_s + self.timings.boot_s
        vm.listed_from_s = now_s + (faults.late_listing_s if faults.spend("late_listings") else 0.0)
        self._vms[vm.id] = vm
        self._history[vm.id] = vm
        self._at(now_s + pending_s, lambda at_s: self._run(vm, at_s))
        if candidate.pool.capacity_type == "spot":
            lifetime_s = self.market.spot.lifetime_s(candidate.pool, vm.ordinal)
            if lifetime_s is not None:
                self._at(now_s + lifetime_s, lambda at_s: self._interrupt(vm, 120.0, at_s))
        return vm

    def launched(self, receipt: Receipt) -> list[Vm]:
        """The machines of a receipt, also those that are not listed yet or no longer."""
        with self.lock:
            return [self._history[instance_id] for instance_id in receipt.instance_ids]

    def terminate(self, instance_ids: Sequence[str]) -> list[tuple[Vm, MachineState]]:
        """Give machines back; returns each with its state before. Nothing happens if one id is unknown (Ec2Error)."""
        now_s = self.now()
        with self.lock:
            vms = [self.get(instance_id) for instance_id in dict.fromkeys(instance_ids)]
            before = [(vm, vm.state) for vm in vms]
            for vm in vms:
                self._stop(vm, "Client.UserInitiatedShutdown", now_s)
            return before

    def tag(self, instance_id: str, tags: Mapping[str, str]) -> None:
        """Add or overwrite tags of a machine. Raises Ec2Error for an unknown one."""
        with self.lock:
            vm = self.get(instance_id)
            vm.tags.update(tags)
            vm.changed()
            self.version += 1

    def untag(self, instance_id: str, tags: Mapping[str, str | None]) -> None:
        """Remove tags; one with a value only if it has that value. Raises Ec2Error for an unknown machine."""
        with self.lock:
            vm = self.get(instance_id)
            for key, value in tags.items():
                if value is None or vm.tags.get(key) == value:
                    vm.tags.pop(key, None)
            vm.changed()
            self.version += 1

    # What the cloud does by itself

    def interrupt(self, instance_id: str, notice_s: float = 120.0) -> None:
        """Take a machine back: warn now, end it `notice_s` later. Raises Ec2Error if gone or on-demand."""
        now_s = self.now()
        with self.lock:
            vm = self.get(instance_id)
            if vm.pool.capacity_type == "on-demand" or not vm.alive:
                raise Ec2Error("IncorrectInstanceState", f"{instance_id} is {vm.pool.capacity_type} and {vm.state}")
            self._interrupt(vm, notice_s, now_s)

    def rebalance(self, instance_id: str) -> None:
        """Recommend to move off a machine. Raises Ec2Error for an unknown one."""
        now_s = self.now()
        with self.lock:
            self._emit(self.get(instance_id), NoticeKind.REBALANCE_RECOMMENDATION, now_s)

    def schedule_change(self, instance_id: str) -> None:
        """Announce the retirement of the host (AWS Health). Raises Ec2Error for an unknown machine."""
        now_s = self.now()
        with self.lock:
            self._emit(self.get(instance_id), NoticeKind.SCHEDULED_CHANGE, now_s)

    def kill(self, instance_id: str) -> None:
        """Let a machine die at once, without a warning (failed hardware). Raises Ec2Error for an unknown one."""
        now_s = self.now()
        with self.lock:
            vm = self.get(instance_id)
            self._stop(vm, "Server.InternalError", now_s)
            self._vanish(vm, now_s)

    def reclaim(self, pool: CapacityPool, notice_s: float = 120.0) -> list[str]:
        """Interrupt the newest machines of a spot pool until the rest fits its capacity; returns their ids."""
        now_s = self.now()
        with self.lock:
            total = self.market.capacity(pool)
            if total is None or pool.capacity_type != "spot":
                return []
            alive = [vm for vm in self._vms.values() if vm.pool == pool and vm.alive and not vm.reason]
            for vm in alive[total:]:
                self._interrupt(vm, notice_s, now_s)
            return [vm.id for vm in alive[total:]]

    def reserve(self, held: HeldReservation) -> None:
        """Add a capacity reservation, and let it end when its time comes."""
        self.now()
        with self.lock:
            self.market.reservations[held.id] = held
            terminates_s = held.terminates_s()
            if terminates_s is not None:
                self._at(terminates_s, lambda at_s: self._clear(held, at_s))
            if held.ends_s is not None:
                self._at(held.ends_s, lambda at_s: self._end(held, "expired", at_s))

    def cancel_reservation(self, reservation: str) -> None:
        """Give a reservation up: its machines run on. Raises Ec2Error for an unknown one."""
        now_s = self.now()
        with self.lock:
            held = self.market.reservations.get(reservation)
            if held is None:
                raise Ec2Error("InvalidCapacityReservationId.NotFound", f"no reservation {reservation}")
            self._end(held, "cancelled", now_s)

    # What there is

    def get(self, instance_id: str) -> Vm:
        """A machine that is still listed. Raises Ec2Error(InvalidInstanceID.NotFound)."""
        vm = self._vms.get(instance_id)
        if vm is None or vm.listed_from_s > self._clock.now():
            raise Ec2Error("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
        return vm

    def vms(self) -> list[Vm]:
        """Every machine that the API lists, in launch order."""
        now_s = self.now()
        with self.lock:
            return [vm for vm in self._vms.values() if vm.listed_from_s <= now_s]

    def machines(self) -> list[SimulatedMachine]:
        """Every machine there is, for node registration."""
        self.now()
        with self.lock:
            return [vm.as_machine() for vm in self._vms.values()]

    def boot_delay_s(self, machine: SimulatedMachine) -> float | None:
        """Seconds from its launch until a machine's kubelet registers; None for never."""
        vm = self._vms.get(machine.instance_id)
        return None if vm is None else vm.boot_delay_s

    def ledger(self) -> list[LedgerEntry]:
        """Every machine ever bought, in launch order."""
        now_s = self.now()
        with self.lock:
            return [self._entry(vm, now_s) for vm in self._history.values()]

    def _entry(self, vm: Vm, now_s: float) -> LedgerEntry:
        ended_s = vm.billed_until_s
        cost = self.market.cost_usd(vm.pool, vm.launched_at_s, now_s if ended_s is None else ended_s)
        return LedgerEntry(
            vm.id, vm.pool, vm.fleet_id, vm.token, vm.launched_at_s, ended_s, vm.reason, vm.price_usd_h, cost
        )

    # Transitions, each at the instant it is due

    def _run(self, vm: Vm, at_s: float) -> None:
        if vm.state == "pending":
            self._enter(vm, "running", at_s)

    def _interrupt(self, vm: Vm, notice_s: float, at_s: float) -> None:
        if not vm.alive:
            return
        spot = vm.pool.capacity_type == "spot"
        vm.reason = "Server.SpotInstanceTermination" if spot else "Server.CapacityReservationInterruption"
        kind = NoticeKind.SPOT_INTERRUPTED if spot else NoticeKind.CAPACITY_RESERVATION_INTERRUPTED
        self._emit(vm, kind, at_s)
        self._at(at_s + notice_s, lambda due_s: self._stop(vm, vm.reason, due_s))

    def _stop(self, vm: Vm, reason: str, at_s: float) -> None:
        if not vm.alive:
            return
        vm.reason, vm.billed_until_s = reason, at_s
        self._enter(vm, "shutting-down", at_s)
        self._at(at_s + self.timings.stopping_s, lambda due_s: self._vanish(vm, due_s))

    def _clear(self, held: HeldReservation, at_s: float) -> None:
        """A capacity block ends in half an hour: its machines go now."""
        for vm in list(self._vms.values()):
            if vm.pool == held.pool:
                self._stop(vm, "Server.CapacityBlockExpiration", at_s)

    def _end(self, held: HeldReservation, state: str, at_s: float) -> None:
        """The reservation is no more; machines that still run go on as on-demand ones."""
        del at_s
        if not held.active:
            return
        held.state = state
        plain = CapacityPool("on-demand", held.instance_type, held.zone)
        for vm in self._vms.values():
            if vm.pool == held.pool and vm.alive:
                self.market.move(vm.pool, plain)
                vm.pool = plain
                vm.changed()
                self.version += 1

    def _vanish(self, vm: Vm, at_s: float) -> None:
        if vm.state != "shutting-down":
            return
        self.market.give_back(vm.pool)
        vm.spec.addresses.give_back(vm.address)
        self._enter(vm, "terminated", at_s)
        self._at(at_s + self.timings.listed_s, lambda _: self._forget(vm))

    def _forget(self, vm: Vm) -> None:
        self.version += 1
        del self._vms[vm.id]

    def _enter(self, vm: Vm, state: MachineState, at_s: float) -> None:
        vm.state = state
        self.version += 1
        vm.changed()
        if state in ANNOUNCED:
            self._emit(vm, NoticeKind.INSTANCE_TERMINATED, at_s, state)

    def _emit(self, vm: Vm, kind: NoticeKind, at_s: float, state: str = "") -> None:
        hexed = self._hex("event", 32)
        signal = Signal(
            f"{hexed[:8]}-{hexed[8:12]}-{hexed[12:16]}-{hexed[16:20]}-{hexed[20:]}", kind, vm.id, at_s, state
        )
        faults = self.market.faults
        copies = 2 if faults.spend("duplicate_messages") else 1
        delay_s = faults.late_by_s if faults.spend("late_messages") else 0.0
        for _ in range(copies):
            if delay_s:
                self._at(at_s + delay_s, lambda _: self._deliver(signal))
            else:
                self._deliver(signal)

    def _deliver(self, signal: Signal) -> None:
        self.version += 1
        for sink in self._sinks:
            sink(signal)

    def _hex(self, kind: str, digits: int) -> str:
        """An id nobody else has, the same in every run."""
        key = f"{self._salt}|{self.account_id}|{self.region}|{kind}|{next(self._sequence)}"
        return hashlib.blake2b(key.encode(), digest_size=32).hexdigest()[:digits]


def private_dns(address: str, region: str) -> str:
    """The name EC2 gives an address (IP-based naming)."""
    domain = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return f"ip-{address.replace('.', '-')}.{domain}"
