"""The MIG manager's label protocol on every GPU node (mig-parted `pkg/mig/reconfigure/reconfigure.go`, with its traps).

Input `nvidia.com/mig.config`, output `nvidia.com/mig.config.state`. Only a change of the value triggers; until the
manager wakes, the state is that of the value before; what is applied already becomes `success` without a `pending`; it
never drains; a client that does not stop leaves the node `pending` and paused for good.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import yaml

from model.mig import mig_parted_config
from model.mig.parted import InvalidMigParted
from providers.sim.controllers.device_plugin import DEPLOY, PAUSED
from providers.sim.controllers.dra.devices import DRIVER
from providers.sim.controllers.dra.podclaims import pools_of, serves_devices
from providers.sim.controllers.gpus import GpuHardware, PhysicalGpu
from providers.sim.controllers.health import NodeHealth
from providers.sim.controllers.migparted import MigConfig, geometry, parse_mig_configs, same_geometry
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.nodework import NodeReconciler, pods_by_node, read_node_fault
from providers.sim.controllers.objects import Key, Obj, instant, is_terminal, labels_of
from providers.sim.store.podrequests import requests_of

CONFIG = "nvidia.com/mig.config"
STATE = "nvidia.com/mig.config.state"

Feasible = Callable[[str, Mapping[str, int]], bool]
"""(GPU model, profile -> count) -> whether one GPU can be cut so."""


_UNPUBLISHED = yaml.safe_dump(mig_parted_config(()))
"""The file that the manager brings along."""


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
    reboot_keeps_the_cut: bool = False
    """Whether a machine that is rebooted comes back cut as it was, or with whole GPUs."""


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
    boots_with: tuple[PhysicalGpu, ...] = ()

    def enter(self, stage: _Stage, until: float) -> float:
        """Go to a stage that lasts until then."""
        self.stage, self.until = stage, until
        return until


@dataclass(frozen=True, slots=True)
class MigFault:
    """Something that goes wrong with the GPUs of a node.

    | kind | value | |
    |---|---|---|
    | `hang` | true, false | a GPU client pod does not go away in time, until it is false |
    | `fail` | a number, or true for 1 | so many changes fail when they are applied ("in use by another client") |
    | `forget` | true | the GPUs lose how they are cut, and nobody is told |
    | `reboot` | true, `keeps`, `loses` | the machine boots anew; with its cut or without, or as configured |
    | `restart` | true | the manager's process starts anew: it reads the label and asserts it |
    | `relabel` | a configuration | somebody else writes the label |
    """

    node: str
    kind: str
    value: bool | int | str


_VALUES: Mapping[str, Callable[[object], bool]] = {
    "hang": lambda value: isinstance(value, bool),
    "fail": lambda value: value is True or (type(value) is int and value >= 0),
    "forget": lambda value: value is True,
    "reboot": lambda value: value is True or value in ("keeps", "loses"),
    "restart": lambda value: value is True,
    "relabel": lambda value: (
        isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", value) is not None
    ),
}


def read_mig_fault(body: Mapping[str, Any]) -> MigFault:
    """`{"node": "...", "hang": true}`; raises ValueError with what there is where it is none."""
    return MigFault(*read_node_fault(body, _VALUES))


class MigManager(NodeReconciler):
    """Cuts GPUs as the label says; keys are nodes. `hanging` are the nodes with the fault of that name."""

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
        self._failing: dict[str, int] = {}
        self._faults: deque[MigFault] = deque()
        self._pods = pods_by_node(cluster)
        self._configs = cluster.mirror("ConfigMap")
        self._claims = cluster.mirror("ResourceClaim", "resource.k8s.io") if serves_devices(cluster) else None
        if self._claims is not None:
            self._claims.index("pool", lambda claim: pools_of(claim, DRIVER))
        self.held: Callable[[Obj], frozenset[int] | None] = lambda _node: None
        """Which GPUs of a node pods hold; None = it is not known which."""

    def forget(self, node: Obj) -> None:
        """The manager's process goes with the machine."""
        self._managers.pop(node["metadata"]["uid"], None)

    def cause(self, fault: MigFault) -> None:
        """Let a fault happen at the next step, from any thread; raises ValueError where the node has no such GPUs."""
        node = self._nodes.get(("", fault.node))
        shape = self._hardware.shape(node) if node is not None else None
        if shape is None or not shape.mig_capable:
            raise ValueError(f"no node {fault.node!r} with GPUs that MIG can cut")
        self._faults.append(fault)
        self._health.look_again()

    def step(self, now: float) -> float | None:
        """Faults happen first."""
        while self._faults:
            fault = self._faults.popleft()
            node = self._nodes.get(("", fault.node))
            if node is not None:
                self._HAPPEN[fault.kind](self, node, fault, now)
                self._health.look_again()  # the device plugin sees the GPUs as they are
        return super().step(now)

    def reconcile(self, key: str, now: float) -> float | None:
        """Bring one node's reconfiguration a stage on."""
        node = self._nodes.get(("", key))
        shape = self._hardware.shape(node) if node is not None else None
        if node is None or shape is None or not shape.mig_capable:
            return None
        born = instant(node["metadata"]["creationTimestamp"]) + self._options.first_delay_s
        if now < born:
            return born
        manager = self._of(node)
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
        told = self._label(node, "pending", {})
        self._label(told, "pending", {label: PAUSED for label in DEPLOY if labels_of(node).get(label) != "false"})
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
            modes = tuple(PhysicalGpu({}) if gpu.mig_enabled else PhysicalGpu() for gpu in manager.wanted)
            return self._boot(node, manager, modes, now)
        return manager.enter(_Stage.APPLYING, now + self._options.apply_s)

    def _rebooting(self, node: Obj, manager: _Manager, now: float) -> float | None:
        """After the boot the manager starts from the beginning."""
        self._hardware.cut(node, manager.boots_with)
        self._health.heal(node["metadata"]["name"])
        return manager.enter(_Stage.WAKING, now + self._options.wake_s)

    def _applying(self, node: Obj, manager: _Manager, now: float) -> float | None:
        """GPU by GPU, leave it as it is or make its instances anew; one client on such a GPU, and it fails ("in use").

        Source: `cmd/nvidia-mig-parted/apply/config.go`, ApplyMigConfig.
        """
        manager.stage = _Stage.IDLE
        if self._fails(node) or self._in_use(node, manager.wanted) or not self._can_cut(node, manager.wanted):
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
        """The configuration of that name as published now; None where the file or the name is wrong.

        Without a ConfigMap the manager has a file of its own, of which only what every such file has stands here.
        """
        published = self._configs.get(self._options.config_map)
        text = _UNPUBLISHED if published is None else (published.get("data") or {}).get(self._options.config_key)
        try:
            return None if text is None else parse_mig_configs(text).get(name)
        except InvalidMigParted:
            return None

    def _in_use(self, node: Obj, wanted: tuple[PhysicalGpu, ...]) -> bool:
        """Whether a GPU that changes has a client; where nobody knows who holds which, any client counts."""
        if self._claims is not None and self._claims.by("pool", node["metadata"]["name"]):
            return True
        if (held := self.held(node)) is not None:
            pairs = zip(self._hardware.of(node), wanted, strict=True)
            return any(index in held for index, (now, then) in enumerate(pairs) if now.profiles != then.profiles)
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
        """Let the paused pods go on, and then say how the change ended."""
        resumed = {label: "true" for label in DEPLOY if labels_of(node).get(label) == PAUSED}
        self._label(self._label(node, "pending", resumed), state, {})
        return now

    def _label(self, node: Obj, state: str, others: Mapping[str, str]) -> Obj:
        labels = {**labels_of(node), **others, STATE: state}
        return node if labels == labels_of(node) else self._nodes.update_metadata(node, labels=labels)

    # Faults

    def _of(self, node: Obj) -> _Manager:
        return self._managers.setdefault(node["metadata"]["uid"], _Manager())

    def _fails(self, node: Obj) -> bool:
        """Spend one of the failures that were asked for."""
        name = node["metadata"]["name"]
        left = self._failing.pop(name, 0)
        if left > 1:
            self._failing[name] = left - 1
        return left > 0

    def _boot(self, node: Obj, manager: _Manager, boots_with: tuple[PhysicalGpu, ...], now: float) -> float:
        manager.boots_with = boots_with
        self._health.fail_node(node["metadata"]["name"])
        return manager.enter(_Stage.REBOOTING, now + self._options.reboot_s)

    def _hang(self, node: Obj, fault: MigFault, _now: float) -> None:
        (self.hanging.add if fault.value else self.hanging.discard)(node["metadata"]["name"])

    def _fail(self, node: Obj, fault: MigFault, _now: float) -> None:
        self._failing[node["metadata"]["name"]] = int(fault.value)

    def _lose_the_cut(self, node: Obj, _fault: MigFault, _now: float) -> None:
        self._hardware.cut(node, tuple(PhysicalGpu() for _ in self._hardware.of(node)))

    def _reboot(self, node: Obj, fault: MigFault, now: float) -> None:
        keeps = fault.value == "keeps" or (fault.value is True and self._options.reboot_keeps_the_cut)
        present = self._hardware.of(node)
        self._boot(node, self._of(node), present if keeps else tuple(PhysicalGpu() for _ in present), now)
        self._queue.add(node["metadata"]["name"])

    def _restart(self, node: Obj, _fault: MigFault, _now: float) -> None:
        """What the process was at is forgotten; whoever was paused stays so until it has asserted the label."""
        self._managers.pop(node["metadata"]["uid"], None)

    def _relabel(self, node: Obj, fault: MigFault, _now: float) -> None:
        self._nodes.update_metadata(node, labels={**labels_of(node), CONFIG: str(fault.value)})

    _HAPPEN: Mapping[str, Callable[["MigManager", Obj, MigFault, float], None]] = {
        "hang": _hang,
        "fail": _fail,
        "forget": _lose_the_cut,
        "reboot": _reboot,
        "restart": _restart,
        "relabel": _relabel,
    }
