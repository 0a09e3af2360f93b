"""The kinds a fleet repository declares (`muster.dev/v1alpha1`); one page each under `docs/kinds/`."""

from model.kinds.base import API_VERSION, NEVER, Declaration, Kind, RequirementTerm, Taint, Toleration
from model.kinds.capacity import Flavor, MigLayout, Topology
from model.kinds.cluster import Cluster
from model.kinds.node_overlay import NodeOverlay
from model.kinds.node_pool import (
    REPAIRS,
    Budget,
    DisruptionReason,
    MatchCriteria,
    NodePool,
    Repair,
    ReservationKind,
    ReservationTerm,
)
from model.kinds.node_template import NodeTemplate
from model.kinds.policy import FleetPolicy
from model.kinds.tenancy import PodsReady, PriorityClass, Queue, Team
from model.labels import CapacityType

KINDS: tuple[type[Kind], ...] = (
    NodePool,
    NodeOverlay,
    MigLayout,
    Flavor,
    Team,
    Queue,
    PriorityClass,
    Topology,
    FleetPolicy,
    Cluster,
)

__all__ = [
    "API_VERSION",
    "KINDS",
    "NEVER",
    "REPAIRS",
    "Budget",
    "CapacityType",
    "Cluster",
    "Declaration",
    "DisruptionReason",
    "Flavor",
    "FleetPolicy",
    "Kind",
    "MatchCriteria",
    "MigLayout",
    "NodeOverlay",
    "NodePool",
    "NodeTemplate",
    "PodsReady",
    "PriorityClass",
    "Queue",
    "Repair",
    "RequirementTerm",
    "ReservationKind",
    "ReservationTerm",
    "Taint",
    "Team",
    "Toleration",
    "Topology",
]
