"""What the GPU operator's pods do on every GPU node: the device plugin's resources and feature discovery's labels.

Both stop while `nvidia.com/gpu.deploy.*` says so: resources drop to zero, labels stay as they were and become stale.
"""

from dataclasses import dataclass
from math import ceil

from providers.sim.controllers.gpus import GpuHardware, PluginFails, Strategy, device_resources, discovery_labels
from providers.sim.controllers.health import NodeHealth
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.nodework import NodeReconciler
from providers.sim.controllers.objects import Key, Obj, instant, labels_of, status_of
from providers.sim.controllers.sharing import NOT_SHARED, GpuSharing, InvalidPluginConfig, read_plugin_config

DEPLOY = tuple(
    f"nvidia.com/gpu.deploy.{part}"
    for part in ("device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm", "nvsm")
)
DEVICE_PLUGIN, DISCOVERY = DEPLOY[0], DEPLOY[1]
CONFIG = "nvidia.com/device-plugin.config"
PAUSED = "paused-for-mig-change"


@dataclass(frozen=True, slots=True)
class DevicePluginOptions:
    """How fast the operator's pods are.

    `first_delay_s`: node creation to devices; `restart_delay_s`: end of a pause to devices; `discovery_interval_s`:
    between two looks of feature discovery, and from the end of a pause to its first.
    """

    first_delay_s: float = 45.0
    restart_delay_s: float = 10.0
    discovery_interval_s: float = 60.0
    strategy: Strategy = "mixed"
    config_map: Key = ("gpu-operator", "muster-device-plugin-config")
    """Where the configurations are that a node's label names."""


@dataclass(slots=True)
class _Plugin:
    """The pods of one node: when they started or will, when devices are served and when discovery looks first."""

    started_at: float
    serves_at: float
    looks_at: float
    paused: bool = False
    due_at: float | None = None
    """The tick at which discovery writes what it has found to be wrong."""


class DevicePlugin(NodeReconciler):
    """Publishes GPUs; keys are nodes."""

    name = "device-plugin"

    def __init__(
        self,
        cluster: MirroredCluster,
        hardware: GpuHardware,
        health: NodeHealth,
        options: DevicePluginOptions | None = None,
    ) -> None:
        super().__init__(cluster, health)
        self._hardware = hardware
        self._options = options or DevicePluginOptions()
        self._plugins: dict[str, _Plugin] = {}
        self._configs = cluster.mirror("ConfigMap")

    def forget(self, node: Obj) -> None:
        """The pods and the geometry go with the machine."""
        self._plugins.pop(node["metadata"]["uid"], None)
        self._hardware.forget(node)

    def reconcile(self, key: str, now: float) -> float | None:
        """Publish what one node's GPUs are."""
        node = self._nodes.get(("", key))
        if node is None or self._hardware.shape(node) is None or not self._health.of(key).reports:
            return None
        plugin = self._plugin(node, now)
        labels = labels_of(node)
        missing = {label: "true" for label in DEPLOY if label not in labels}
        if missing:
            self._nodes.update_metadata(node, labels={**labels, "nvidia.com/gpu.present": "true", **missing})
            return now
        wakes = [wake for wake in (self._serve(node, plugin, now), self._look(node, plugin, now)) if wake is not None]
        return min(wakes, default=None)

    def _plugin(self, node: Obj, now: float) -> _Plugin:
        """The pods of a node; they stop and start with the deploy label."""
        first = instant(node["metadata"]["creationTimestamp"]) + self._options.first_delay_s
        plugin = self._plugins.setdefault(node["metadata"]["uid"], _Plugin(first, first, first))
        paused = labels_of(node).get(DEVICE_PLUGIN, "true") != "true"
        if paused != plugin.paused:
            plugin.paused = paused
            plugin.started_at = max(first, now)
            plugin.serves_at = max(first, now + self._options.restart_delay_s)
            plugin.looks_at = max(first, now + self._options.discovery_interval_s)
            plugin.due_at = None
        return plugin

    def _serve(self, node: Obj, plugin: _Plugin, now: float) -> float | None:
        """Bring allocatable and capacity up to date; returns when to look again."""
        if not plugin.paused and now < plugin.serves_at:
            return plugin.serves_at
        devices = {} if plugin.paused else self._devices(node)
        status = status_of(node)
        changed = {field: _published(status.get(field) or {}, devices) for field in ("capacity", "allocatable")}
        if any(changed[field] != (status.get(field) or {}) for field in changed):
            self._nodes.update_status(node, {**status, **changed})
        return None

    def _devices(self, node: Obj) -> dict[str, int]:
        """What the plugin advertises; nothing where it does not start."""
        shape, sharing = self._hardware.shape(node), self._sharing(node)
        if shape is None or sharing is None:
            return {}
        try:
            return device_resources(shape, self._hardware.of(node), self._options.strategy, sharing)
        except PluginFails:
            return {}

    def _sharing(self, node: Obj) -> GpuSharing | None:
        """The configuration that the node's label names, nothing shared where it names none.

        None: it is refused, or there is none of that name, for which the plugin's config-manager waits.
        """
        name = labels_of(node).get(CONFIG, "")
        published = (self._configs.get(self._options.config_map) or {}).get("data") or {}
        if name and name not in published:
            return None
        try:
            return read_plugin_config(published[name]) if name else NOT_SHARED
        except InvalidPluginConfig:
            return None

    def _look(self, node: Obj, plugin: _Plugin, now: float) -> float | None:
        """Feature discovery corrects the labels, but only at its ticks; returns the tick to wait for."""
        shape, labels = self._hardware.shape(node), labels_of(node)
        if shape is None or labels.get(DISCOVERY, "true") != "true":
            return None  # stale until it runs again
        sharing, gpus, strategy = self._sharing(node), self._hardware.of(node), self._options.strategy
        if sharing is None:
            return None
        found = discovery_labels(shape, gpus, strategy, sharing, started_s=plugin.started_at)
        if found is None:
            return None
        wanted = {**{label: value for label, value in labels.items() if not _is_stale(label, found)}, **found}
        if wanted == labels:
            plugin.due_at = None
            return None
        interval_s = self._options.discovery_interval_s
        if plugin.due_at is None:  # a clock that is not virtual never stands at a tick
            plugin.due_at = plugin.looks_at + max(0, ceil((now - plugin.looks_at) / interval_s)) * interval_s
        if now < plugin.due_at:
            return plugin.due_at
        plugin.due_at = None
        self._nodes.update_metadata(node, labels=wanted)
        return None


def _published(resources: dict[str, str], devices: dict[str, int]) -> dict[str, str]:
    """A node's resource list with these devices; NVIDIA resources no longer served stay behind with value 0."""
    left_behind = {name: "0" for name in resources if name.startswith("nvidia.com/")}
    return {**resources, **left_behind, **{name: str(count) for name, count in devices.items()}}


def _is_stale(label: str, found: dict[str, str]) -> bool:
    return label.startswith(_OF_THE_CUT) and label not in found


_OF_THE_CUT = (
    "nvidia.com/mig-",
    "nvidia.com/mig.strategy",
    *(f"nvidia.com/gpu.{kind}" for kind in ("multiprocessors", "slices.", "engines.")),
)
"""Labels of feature discovery that a node has only while it is cut so."""
