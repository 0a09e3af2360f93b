"""The kinds a fleet repository declares (`muster.dev/v1alpha1`); one page each under `docs/kinds/`."""

from model.kinds.base import API_VERSION, NEVER, Declaration, Kind, RequirementTerm, Taint, Toleration
from model.kinds.capacity import Flavor, MigLayout, Topology
from model.kinds.node_pool import REPAIRS, Budget, CapacityType, DisruptionReason, NodePool, Repair
from model.kinds.policy import FleetPolicy
from model.kinds.tenancy import PodsReady, PriorityClass, Queue, Team

KINDS: tuple[type[Kind], ...] = (NodePool, MigLayout, Flavor, Team, Queue, PriorityClass, Topology, FleetPolicy)

__all__ = [
    "API_VERSION",
    "KINDS",
    "NEVER",
    "REPAIRS",
    "Budget",
    "CapacityType",
    "Declaration",
    "DisruptionReason",
    "Flavor",
    "FleetPolicy",
    "Kind",
    "MigLayout",
    "NodePool",
    "PodsReady",
    "PriorityClass",
    "Queue",
    "Repair",
    "RequirementTerm",
    "Taint",
    "Team",
    "Toleration",
    "Topology",
]
