"""Simulated controllers on the in-memory store: what a cluster does by itself, from node registration to pod life."""

from providers.sim.controllers.assembly import SimulatedCluster, SimulationOptions, assemble
from providers.sim.controllers.device_plugin import DevicePluginOptions
from providers.sim.controllers.health import NodeHealth, NodeState
from providers.sim.controllers.heartbeat import HeartbeatOptions
from providers.sim.controllers.kubelet import KubeletOptions, PodScript
from providers.sim.controllers.mig_manager import Feasible, MigOptions
from providers.sim.controllers.node_lifecycle import LifecycleOptions
from providers.sim.controllers.registration import RegistrationOptions
from providers.sim.controllers.runtime import Controller

__all__ = [
    "Controller",
    "DevicePluginOptions",
    "Feasible",
    "HeartbeatOptions",
    "KubeletOptions",
    "LifecycleOptions",
    "MigOptions",
    "NodeHealth",
    "NodeState",
    "PodScript",
    "RegistrationOptions",
    "SimulatedCluster",
    "SimulationOptions",
    "assemble",
]
