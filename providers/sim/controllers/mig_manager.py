"""The MIG manager's label protocol on every GPU node (mig-parted `pkg/mig/reconfigure/reconfigure.go`, with its traps).

Input `nvidia.com/mig.config`, output `nvidia.com/mig.config.state`. Only a change of the value triggers; until the
manager wakes, the state is that of the value before; what is applied already becomes `success` without a `pending`; it
never drains; a client that does not stop leaves the node `pending` and paused for good.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from providers.sim.controllers.device_plugin import DEPLOY, PAUSED
from providers.sim.controllers.gpus import GpuHardware, PhysicalGpu
from providers.sim.controllers.health import NodeHealth
from providers.sim.controllers.migparted import InvalidMigConfig, MigConfig, geometry, parse_mig_configs, same_geometry
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.nodework import NodeReconciler, pods_by_node
from providers.sim.controllers.objects import Key, Obj, instant, is_terminal, labels_of
from providers.sim.store.podrequests import requests_of

CONFIG = "nvidia.com/mig.config"
STATE = "nvidia.com/mig.config.state"

Feasible = Callable[[str, Mapping[str, int]], bool]
"""(GPU model, profile -> count) -> whether one GPU can be cut so."""


@dataclass(frozen=True, slots=True)
class MigOptions:
    """How fast the manager is, where its configuration file is, and whether a change of the MIG mode needs a reboot."""

    config_map: Key = ("gpu-operator", "mig-parted-config")
    config_key: str = "config.yaml"
    first_delay_s: float = 30.0
    wake_s: float = 2.0
    client_stop_s: float = 8.0
    client_timeout_s: float = 300.0
    apply_s: float = 15.0
    reboot_on_mode_change: bool = False
    reboot_s: float = 300.0


class _Stage(Enum):
    IDLE = "idle"
    WAKING = "waking"
    STOPPING_CLIENTS = "stopping clients"
    APPLYING = "applying"
    REBOOTING = "rebooting"


@dataclass(slots=True)
class _Manager:
    """The manager's process on one node."""

    last_read: str = ""
    stage: _Stage = _Stage.IDLE
    until: float = 0.0
    wanted: tuple[PhysicalGpu, ...] = ()

    def enter(self, stage: _Stage, until: float) -> float:
        """Go to a stage that lasts until then."""
        self.stage, self.until = stage, until
        return until


class MigManager(NodeReconciler):
    """Cuts GPUs as the label says; keys are nodes.

    `hanging` is a fault: the names of nodes on which a GPU client pod does not go away in time.
    """

    name = "mig-manager"

    def __init__(
        self,
        cluster: MirroredCluster,
        hardware: GpuHardware,
        health: NodeHealth,
        feasible: Feasible,
        options: MigOptions | None = None,
    ) -> None:
        super().__init__(cluster, health)
        self._hardware = hardware
        self._feasible = feasible
        self._options = options or MigOptions()
        self._managers: dict[str, _Manager] = {}
        self.hanging: set[str] = set()
        self._pods = pods_by_node(cluster)
        self._configs = cluster.mirror("ConfigMap")

    def forget(self, node: Obj) -> None:
        """The manager's process goes with the machine."""
        self._managers.pop(node["metadata"]["uid"], None)

    def reconcile(self, key: str, now: float) -> float | None:
        """Bring one node's reconfiguration a stage on."""
        node = self._nodes.get(("", key))
        shape = self._hardware.shape(node) if node is not None else None
        if node is None or shape is None or not shape.mig_capable:
            return None
        born = instant(node["metadata"]["creationTimestamp"]) + self._options.first_delay_s
        if now < born:
            return born
        manager = self._managers.setdefault(node["metadata"]["uid"], _Manager())
        if not self._health.of(key).reports and manager.stage is not _Stage.REBOOTING:
            return None
        if manager.stage is not _Stage.IDLE and now < manager.until:
            return manager.until
        return self._STAGES[manager.stage](self, node, manager, now)

    # The stages, in the order in which they are gone through

    def _idle(self, node: Obj, manager: _Manager, now: float) -> float | None:
        wanted = labels_of(node).get(CONFIG, "")
        if not wanted or wanted == manager.last_read:
            return None
        return manager.enter(_Stage.WAKING, now + self._options.wake_s)

    def _waking(self, node: Obj, manager: _Manager, now: float) -> float | None:
        """Read the label and judge it; nothing is paused, and nothing resumed, unless there is something to change."""
        manager.stage = _Stage.IDLE
        wanted = labels_of(node).get(CONFIG, "")
        if not wanted:
            return None
        manager.last_read = wanted
        shape, config = self._hardware.shape(node), self._config(wanted)
        if shape is None or config is None:
            self._label(node, "failed", {})
            return now
        present = self._hardware.of(node)
        manager.wanted = geometry(config, shape, present)
        if same_geometry(manager.wanted, present):
            self._label(node, "success", {})
            return now
        self._label(node, "pending", {label: PAUSED for label in DEPLOY if labels_of(node).get(label) != "false"})
        hangs = node["metadata"]["name"] in self.hanging
        wait_s = self._options.client_timeout_s if hangs else self._options.client_stop_s
        return manager.enter(_Stage.STOPPING_CLIENTS, now + wait_s)

    def _stopping_clients(self, node: Obj, manager: _Manager, now: float) -> float | None:
        if node["metadata"]["name"] in self.hanging:
            manager.stage = _Stage.IDLE  # returns as it is: pending and paused (gpu-operator#2833)
            return now
        changes_mode = [g.mig_enabled for g in manager.wanted] != [g.mig_enabled for g in self._hardware.of(node)]
        if changes_mode and self._options.reboot_on_mode_change:
            self._label(node, "rebooting", {})
            self._health.fail_node(node["metadata"]["name"])
            return manager.enter(_Stage.REBOOTING, now + self._options.reboot_s)
        return manager.enter(_Stage.APPLYING, now + self._options.apply_s)

    def _rebooting(self, node: Obj, manager: _Manager, now: float) -> float | None:
        """After the boot the mode is as wished, nothing is cut, and the manager starts from the beginning."""
        self._hardware.cut(node, tuple(PhysicalGpu({}) if gpu.mig_enabled else PhysicalGpu() for gpu in manager.wanted))
        self._health.heal(node["metadata"]["name"])
        return manager.enter(_Stage.WAKING, now + self._options.wake_s)

    def _applying(self, node: Obj, manager: _Manager, now: float) -> float | None:
        """Destroy all instances and make the new ones; one client anywhere on the node, and it fails ("in use")."""
        manager.stage = _Stage.IDLE
        if self._in_use(node) or not self._can_cut(node, manager.wanted):
            return self._finish(node, "failed", now)
        self._hardware.cut(node, manager.wanted)
        return self._finish(node, "success", now)

    _STAGES: Mapping[_Stage, Callable[["MigManager", Obj, _Manager, float], float | None]] = {
        _Stage.IDLE: _idle,
        _Stage.WAKING: _waking,
        _Stage.STOPPING_CLIENTS: _stopping_clients,
        _Stage.REBOOTING: _rebooting,
        _Stage.APPLYING: _applying,
    }

    # Parts

    def _config(self, name: str) -> MigConfig | None:
        """The configuration of that name as published now; None where the file or the name is wrong."""
        published = self._configs.get(self._options.config_map) or {}
        text = (published.get("data") or {}).get(self._options.config_key)
        try:
            return None if text is None else parse_mig_configs(text).get(name)
        except InvalidMigConfig:
            return None

    def _in_use(self, node: Obj) -> bool:
        return any(
            amount
            for pod in self._pods.by("node", node["metadata"]["name"])
            if not is_terminal(pod)
            for resource, amount in requests_of(pod).items()
            if resource.startswith("nvidia.com/")
        )

    def _can_cut(self, node: Obj, wanted: tuple[PhysicalGpu, ...]) -> bool:
        shape = self._hardware.shape(node)
        model = (shape.gpu_model if shape is not None else None) or ""
        return all(self._feasible(model, gpu.profiles) for gpu in wanted if gpu.profiles)

    def _finish(self, node: Obj, state: str, now: float) -> float:
        """Say how the change ended and let the paused pods go on."""
        resumed = {label: "true" for label in DEPLOY if labels_of(node).get(label) == PAUSED}
        self._label(node, state, resumed)
        return now

    def _label(self, node: Obj, state: str, others: Mapping[str, str]) -> None:
        labels = {**labels_of(node), **others, STATE: state}
        if labels != labels_of(node):
            self._nodes.update_metadata(node, labels=labels)
