"""The clouds that can be simulated, by name: in memory for virtual time, and behind their own API for the sandbox.

Another cloud is another entry, and a package beside `ec2`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from fleet.snapshot import Catalog, Instance
from providers.clock import Clock
from providers.ports import Cloud, Notices
from providers.sim.controllers.runtime import Controller
from providers.sim.ec2.market import RegionMarket
from providers.sim.machines import LedgerEntry, MachineTimings, SimulatedMachine, SimulatedMachines


class _Fake(SimulatedMachines, Protocol):
    """A cloud that starts machines, ends them, and keeps the books of it."""

    market: RegionMarket
    """Capacity, shortages, spot prices and faults."""

    def boot_delay_s(self, machine: SimulatedMachine) -> float | None:
        """Seconds from its launch until a machine's kubelet registers; None for never."""
        ...

    def ledger(self) -> Sequence[LedgerEntry]:
        """Every machine ever bought, in launch order: the truth about what was spent."""
        ...


class SimulatedCloud(_Fake, Cloud, Notices, Controller, Protocol):
    """A cloud in memory, which lives as one of the controllers of a simulation."""

    @property
    def version(self) -> int:
        """Grows with every change of a machine and every notice."""
        ...

    def next_notice_at(self) -> float | None:
        """When the next notice can be received that cannot be now."""
        ...

    def running(self) -> Sequence[Instance]:
        """Machines that bill now, by id."""
        ...

    def interrupt(self, instance_id: str) -> None:
        """Take a machine back after a warning."""
        ...

    def rebalance(self, instance_id: str) -> None:
        """Recommend to move off a machine."""
        ...

    def publish_image(self) -> None:
        """Put a new image behind every name."""
        ...

    def kill(self, instance_id: str) -> None:
        """Let a machine die at once."""
        ...


class CloudServer(_Fake, Protocol):
    """A cloud on loopback that speaks the API of the real one, so that the agent's own adapter talks to it."""

    @property
    def url(self) -> str:
        """Where it listens."""
        ...

    @property
    def queue_url(self) -> str:
        """The queue of its interruption notices."""
        ...

    def also(self, name: str, act: Callable[[Mapping[str, Any]], Any]) -> None:
        """Let another part of the simulation answer the control route `POST <name>`, with ValueError for a bad body."""
        ...

    def start(self) -> object:
        """Begin to serve."""
        ...

    def stop(self) -> None:
        """Stop, and hang up on everyone."""
        ...


class CloudSimulator(Protocol):
    """Makes what stands in for one cloud: in memory, or served on loopback."""

    name: str
    region: str
    """Where simulations and the sandbox are."""
    environment: Mapping[str, str]
    """Variables by which its SDK talks to a cloud that asks for no credentials."""
    storage_class: Mapping[str, Any]
    """The manifest of the StorageClass that a cluster on this cloud has by default."""

    def in_memory(
        self, catalog: Catalog, clock: Clock, cluster: str, timings: MachineTimings | None = None
    ) -> SimulatedCloud:
        """Returns a cloud in memory that sells what the catalogue lists."""
        ...

    def served(self, catalog: Catalog, clock: Clock, cluster: str, timings: MachineTimings) -> CloudServer:
        """Returns the same behind its own API on loopback."""
        ...


def _aws() -> CloudSimulator:
    from providers.sim.ec2.simulator import AwsSimulator

    return AwsSimulator()


_SIMULATORS: Final[Mapping[str, Callable[[], CloudSimulator]]] = {"aws": _aws}


def cloud_simulator(name: str) -> CloudSimulator:
    """What stands in for the cloud of that name; KeyError where nothing does."""
    return _SIMULATORS[name]()
