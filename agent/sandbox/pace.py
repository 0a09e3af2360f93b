"""How fast the simulated world runs: the delays of real clusters, divided by a speed."""

from dataclasses import dataclass

from providers.sim.clouds import CloudServer
from providers.sim.controllers.assembly import SimulationOptions
from providers.sim.controllers.device_plugin import DevicePluginOptions
from providers.sim.controllers.dra.nvidia_driver import DraOptions
from providers.sim.controllers.heartbeat import HeartbeatOptions
from providers.sim.controllers.kubelet import KubeletOptions
from providers.sim.controllers.mig_manager import MigOptions
from providers.sim.controllers.node_lifecycle import LifecycleOptions
from providers.sim.controllers.registration import RegistrationOptions
from providers.sim.machines import MachineTimings

MIG_CONFIG_MAP = ("gpu-operator", "muster-mig-config")


@dataclass(frozen=True, slots=True)
class SandboxPace:
    """A speed: 1 is life, 10 boots a machine in six seconds instead of a minute."""

    speed: float
    consumable_shares: str = ""
    """The flag of the DRA driver."""

    def timings(self) -> MachineTimings:
        """Delays of the cloud."""
        return MachineTimings(pending_s=5 / self.speed, boot_s=45 / self.speed, stopping_s=10 / self.speed)

    def controllers(self, cloud: CloudServer) -> SimulationOptions:
        """Delays of nodes, kubelets and the GPU operator."""
        speed = self.speed
        return SimulationOptions(
            registration=RegistrationOptions(
                boot_delay_s=cloud.boot_delay_s, poll_s=max(0.1, 1 / speed), node_gc_delay_s=10 / speed
            ),
            heartbeat=HeartbeatOptions(ready_delay_s=5 / speed),
            lifecycle=LifecycleOptions(grace_s=max(5.0, 40 / speed)),
            device_plugin=DevicePluginOptions(
                first_delay_s=15 / speed, restart_delay_s=5 / speed, discovery_interval_s=30 / speed
            ),
            mig=MigOptions(
                config_map=MIG_CONFIG_MAP,
                first_delay_s=10 / speed,
                wake_s=2 / speed,
                client_stop_s=5 / speed,
                apply_s=10 / speed,
            ),
            dra=DraOptions(15 / speed, 5 / speed, self.consumable_shares),
            kubelet=KubeletOptions(start_delay_s=2 / speed, prepare_again_s=10 / speed),
            podgc_quarantine_s=max(5.0, 40 / speed),
            dcgm_delay_s=15 / speed,
        )
