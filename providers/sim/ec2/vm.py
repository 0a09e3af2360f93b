"""One machine of the fake cloud, the signals it sends, and its line in the books."""

from dataclasses import dataclass, field
from typing import cast

from fleet.snapshot import CapacityPool, Instance, NoticeKind
from providers.aws.identity import managed_by, provider_id
from providers.sim.ec2.allocation import MachineSpec
from providers.sim.machines import MachineState, SimulatedMachine


@dataclass(slots=True, eq=False)
class Vm:
    """A machine; times are epoch seconds. `billed_until_s` is set when it starts to shut down."""

    id: str
    ordinal: int
    pool: CapacityPool
    spec: MachineSpec
    launched_at_s: float
    address: str
    private_dns: str
    fleet_id: str
    token: str
    price_usd_h: float | None
    tags: dict[str, str]
    state: MachineState = "pending"
    boot_delay_s: float | None = 0.0
    """Launch to kubelet registration; None for a machine that never becomes a node."""
    listed_from_s: float = 0.0
    billed_until_s: float | None = None
    reason: str = ""
    _machine: SimulatedMachine | None = field(default=None, repr=False)
    _instance: Instance | None = field(default=None, repr=False)

    @property
    def alive(self) -> bool:
        """Whether it is pending or running: it bills and may be ended."""
        return self.state in {"pending", "running"}

    def changed(self) -> None:
        """Forget the views of the state before."""
        self._machine = self._instance = None

    def as_machine(self) -> SimulatedMachine:
        """As node registration sees it; the same object until something changes."""
        if self._machine is None:
            self._machine = SimulatedMachine(
                instance_id=self.id,
                instance_type=self.pool.instance_type,
                zone=self.pool.zone,
                capacity_type=self.pool.capacity_type,
                state=self.state,
                launched_at=self.launched_at_s,
                user_data=self.spec.user_data,
                private_dns=self.private_dns,
                tags=dict(self.tags),
                efa=self.spec.efa,
                reservation=self.pool.reservation,
            )
        return self._machine

    def as_instance(self) -> Instance:
        """As the agent sees it; the same object until something changes."""
        if self._instance is None:
            self._instance = self._told()
        return self._instance

    def _told(self) -> Instance:
        """EC2 tells nothing of the network of a machine that is gone."""
        details = self.spec.details if self.alive else {"image_id": self.spec.details.get("image_id", "")}
        groups = cast("tuple[str, ...]", details.get("security_groups", ()))
        return Instance(
            id=self.id,
            instance_type=self.pool.instance_type,
            zone=self.pool.zone,
            capacity_type=self.pool.capacity_type,
            state=self.state,
            launched_at_s=self.launched_at_s,
            tags=dict(self.tags),
            private_dns=self.private_dns,
            reservation=self.pool.reservation,
            image=str(details.get("image_id", "")),
            subnet=str(details.get("subnet_id", "")),
            security_groups=tuple(sorted(groups)),
            placement_group=str(self.spec.details.get("placement_group", "")),
            provider_id=provider_id(self.pool.zone, self.id),
            managed_by=managed_by(self.tags),
            ended_at_s=self.billed_until_s or 0.0,
        )


@dataclass(frozen=True, slots=True)
class Signal:
    """Something EC2 tells the world about a machine, before it is written as an EventBridge body or a `Notice`.

    `state` is the new state where the signal is a state change.
    """

    id: str
    kind: NoticeKind
    instance_id: str
    at_s: float
    state: str = ""
