"""Simulated controllers on the in-memory store: what a cluster does by itself, from node registration to pod life."""

from providers.sim.controllers.assembly import SimulatedCluster, SimulationOptions, assemble
from providers.sim.controllers.device_plugin import DevicePluginOptions
from providers.sim.controllers.health import Health, NodeHealth
from providers.sim.controllers.heartbeat import HeartbeatOptions
from providers.sim.controllers.kubelet import KubeletOptions, Script
from providers.sim.controllers.mig_manager import Feasible, MigOptions
from providers.sim.controllers.node_lifecycle import LifecycleOptions
from providers.sim.controllers.registration import RegistrationOptions
from providers.sim.controllers.runtime import Controller

__all__ = [
    "Controller",
    "DevicePluginOptions",
    "Feasible",
    "Health",
    "HeartbeatOptions",
    "KubeletOptions",
    "LifecycleOptions",
    "MigOptions",
    "NodeHealth",
    "RegistrationOptions",
    "Script",
    "SimulatedCluster",
    "SimulationOptions",
    "assemble",
]
