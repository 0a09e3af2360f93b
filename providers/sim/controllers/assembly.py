"""All simulated controllers over one store, wired together in the order the kernel steps them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from providers.clock import Clock
from providers.sim.controllers.apps.daemonset import DaemonSetController
from providers.sim.controllers.apps.deployment import DeploymentController
from providers.sim.controllers.apps.replicaset import ReplicaSetController
from providers.sim.controllers.apps.statefulset import StatefulSetController
from providers.sim.controllers.budgets import Budgets
from providers.sim.controllers.dcgm_exporter import DcgmExporters
from providers.sim.controllers.device_plugin import DevicePlugin, DevicePluginOptions
from providers.sim.controllers.dra.compute_domains import ComputeDomains
from providers.sim.controllers.dra.nvidia_driver import DraOptions, NvidiaDraDriver
from providers.sim.controllers.dra.podclaims import serves_devices
from providers.sim.controllers.dra.preparing import ClaimPreparation
from providers.sim.controllers.dra.resource_claims import ResourceClaims
from providers.sim.controllers.dra.taint_eviction import DeviceTaintEviction
from providers.sim.controllers.garbage import GarbageCollector
from providers.sim.controllers.gpus import GpuHardware
from providers.sim.controllers.health import NodeHealth
from providers.sim.controllers.heartbeat import HeartbeatOptions, Heartbeats
from providers.sim.controllers.job import JobController
from providers.sim.controllers.jobset import JobSetController
from providers.sim.controllers.kubelet import KubeletOptions, Kubelets
from providers.sim.controllers.mig_manager import Feasible, MigManager, MigOptions
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.node_lifecycle import LifecycleOptions, NodeLifecycle
from providers.sim.controllers.persistent_volumes import VolumeController
from providers.sim.controllers.podgc import PodGarbage
from providers.sim.controllers.registration import Registration, RegistrationOptions
from providers.sim.controllers.resource_quotas import ResourceQuotas
from providers.sim.controllers.runtime import Controller
from providers.sim.controllers.scheduler import Scheduler
from providers.sim.kernel import Kernel, KernelThread
from providers.sim.machines import ShapeOf, SimulatedMachine, SimulatedMachines
from providers.sim.store import Store


class NoMachines:
    """A cluster whose nodes are created by hand."""

    def list(self) -> Sequence[SimulatedMachine]:
        """None at all."""
        return ()


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """The delays of every part; the defaults are those of real clusters."""

    registration: RegistrationOptions = field(default_factory=RegistrationOptions)
    heartbeat: HeartbeatOptions = field(default_factory=HeartbeatOptions)
    lifecycle: LifecycleOptions = field(default_factory=LifecycleOptions)
    device_plugin: DevicePluginOptions = field(default_factory=DevicePluginOptions)
    mig: MigOptions = field(default_factory=MigOptions)
    dra: DraOptions = field(default_factory=DraOptions)
    kubelet: KubeletOptions = field(default_factory=KubeletOptions)
    podgc_quarantine_s: float = 40.0
    dcgm_delay_s: float | None = None
    """From the creation of a GPU node to its dcgm-exporter, whose server the caller starts; None = there is none."""


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """The running parts a caller may want: the kernel to drive, and the handles for faults."""

    store: Store
    kernel: Kernel
    health: NodeHealth
    hardware: GpuHardware
    registration: Registration
    mig_manager: MigManager
    dra_driver: NvidiaDraDriver | None
    """None where the release has no claims of devices."""
    exporters: DcgmExporters | None = None

    def in_real_time(self, *, on_error: Callable[[Exception], None] | None = None) -> KernelThread:
        """A thread that drives the kernel and feels faults at once; not started yet."""
        thread = KernelThread(self.kernel, self.store, on_error=on_error)
        self.health.subscribe(thread.wake)
        return thread


def assemble(
    store: Store,
    clock: Clock,
    *,
    machines: SimulatedMachines | None = None,
    shape_of: ShapeOf = lambda _type: None,
    feasible: Feasible = lambda _model, _profiles: True,
    options: SimulationOptions | None = None,
    more: Sequence[Controller] = (),
    moves: Callable[[], int] | None = None,
) -> SimulatedCluster:
    """Every controller over `store`; the same kernel steps `more` after them (an agent's brain, a test's probe).

    `moves`: a number that grows whenever `machines` change, or whatever else `more` act on that is no store event.
    Without it machines are listed every few seconds.
    """
    chosen = options or SimulationOptions()
    cluster, health, hardware = MirroredCluster(store), NodeHealth(clock), GpuHardware(shape_of)
    told = moves is not None
    registration = Registration(cluster, machines or NoMachines(), shape_of, health, chosen.registration, told=told)
    mig_manager = MigManager(cluster, hardware, health, feasible, chosen.mig)
    exporters = None
    if chosen.dcgm_delay_s is not None:
        exporters = DcgmExporters(cluster, hardware, health, chosen.dcgm_delay_s, chosen.mig.config_map[0])
        mig_manager.held = exporters.held
    devices = _DeviceParts(cluster, hardware, health, chosen.dra) if serves_devices(cluster) else None
    controllers: list[Controller] = [
        registration,
        Heartbeats(cluster, health, chosen.heartbeat),
        NodeLifecycle(cluster, health, chosen.lifecycle),
        mig_manager,
        DevicePlugin(cluster, hardware, health, chosen.device_plugin),
        *([exporters] if exporters is not None else []),
        JobSetController(cluster),
        JobController(cluster),
        DeploymentController(cluster),
        ReplicaSetController(cluster),
        StatefulSetController(cluster),
        DaemonSetController(cluster),
        GarbageCollector(store),
        VolumeController(cluster),
        *(devices.controllers if devices is not None else ()),
        Scheduler(cluster),
        Kubelets(cluster, health, chosen.kubelet, devices.preparation if devices is not None else None),
        PodGarbage(cluster, quarantine_s=chosen.podgc_quarantine_s),
        Budgets(cluster),
        ResourceQuotas(cluster),
        *more,
    ]
    leases = store.resource("leases", "coordination.k8s.io")
    counted = None if moves is None else partial(_moved, moves, health)
    kernel = Kernel(store, clock, controllers, moves=counted, renewed=[leases], polling=[registration])
    return SimulatedCluster(
        store, kernel, health, hardware, registration, mig_manager, devices.driver if devices else None, exporters
    )


class _DeviceParts:
    """What has to do with claims of devices."""

    def __init__(
        self, cluster: MirroredCluster, hardware: GpuHardware, health: NodeHealth, options: DraOptions
    ) -> None:
        self.driver = NvidiaDraDriver(cluster, hardware, health, options)
        domains = ComputeDomains(cluster)
        self.preparation = ClaimPreparation(cluster, self.driver, domains)
        self.controllers: tuple[Controller, ...] = (
            self.driver,
            domains,
            ResourceClaims(cluster),
            DeviceTaintEviction(cluster),
        )


def _moved(moves: Callable[[], int], health: NodeHealth) -> int:
    return moves() + health.version
